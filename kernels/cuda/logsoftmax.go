//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// softmaxArguments is LogSoftmaxArguments in src/logsoftmax.cu, and SoftmaxArguments in
// src/softmax.cu.
type softmaxArguments struct {
	lines lines
	x, dy readable
	y     writable
}

// LogSoftmaxForward subtracts from each row its logsumexp.
func (d *Device) LogSoftmaxForward(x, y kernels.Tensor) error {
	const kernel = "log-softmax forward"
	if err := d.checked(kernel, kernels.CheckLogSoftmaxForward(x, y), x.DType); err != nil {
		return err
	}
	return d.probabilities(kernel, "logsoftmax", "log_softmax_forward", &softmaxArguments{x: read(x), y: written(y)}, x, y)
}

// LogSoftmaxBackward takes from each row of dy its sum, shared out by the probabilities.
func (d *Device) LogSoftmaxBackward(y, dy, dx kernels.Tensor) error {
	const kernel = "log-softmax backward"
	if err := d.checked(kernel, kernels.CheckLogSoftmaxBackward(y, dy, dx), y.DType); err != nil {
		return err
	}
	return d.probabilities(kernel, "logsoftmax", "log_softmax_backward", &softmaxArguments{x: read(y), dy: read(dy), y: written(dx)}, y, dy, dx)
}

// probabilities gives each row a block.
func (d *Device) probabilities(kernel, module, entry string, g *softmaxArguments, tensors ...kernels.Tensor) (err error) {
	if g.lines, err = linesOf(tensors...); err != nil {
		return d.failed(kernel, err)
	}
	if g.lines.count == 0 {
		return nil
	}
	dtype := tensors[0].DType
	threads := rowThreads(int(g.lines.length), dtype)
	suffix := entrySuffixes[dtype]
	s := shapeOf(module+suffix, entry+suffix, [3]int{int(g.lines.count), 1, 1}, threads, 0)
	err = d.launch(s, nil, unsafe.Pointer(g))
	for _, t := range tensors {
		runtime.KeepAlive(t.Owner)
	}
	return err
}

// rowThreads is how many threads go through a row of elements.
func rowThreads(length int, dtype kernels.DType) int {
	const piecesOfThread, mostThreads = 4, 512
	pieces := length*dtype.Size()/accessBytes + 1
	return min(mostThreads, (pieces/piecesOfThread+31)/32*32+32)
}
