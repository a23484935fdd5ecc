//go:build gpu

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// SoftmaxForward divides the exponentials of each row by their sum.
func (d *Device) SoftmaxForward(x, y kernels.Tensor) error {
	const kernel = "softmax forward"
	if err := d.checked(kernel, kernels.CheckSoftmaxForward(x, y), x.DType); err != nil {
		return err
	}
	return d.softmax(kernel, "softmax_forward", &softmaxArguments{x: read(x), y: written(y)}, x, y)
}

// SoftmaxBackward shares out what each probability's gradient is above the mean of all.
func (d *Device) SoftmaxBackward(y, dy, dx kernels.Tensor) error {
	const kernel = "softmax backward"
	if err := d.checked(kernel, kernels.CheckSoftmaxBackward(y, dy, dx), y.DType); err != nil {
		return err
	}
	return d.softmax(kernel, "softmax_backward", &softmaxArguments{x: read(y), dy: read(dy), y: written(dx)}, y, dy, dx)
}

// softmax gives each row a block, or a warp where its registers hold the row.
func (d *Device) softmax(kernel, entry string, g *softmaxArguments, tensors ...kernels.Tensor) (err error) {
	const lanes, short, long = 32, 24 * 32, 32 * 32
	length := tensors[0].Shape[len(tensors[0].Shape)-1]
	if length > long {
		return d.probabilities(kernel, "softmax", entry, g, tensors...)
	}
	if g.lines, err = linesOf(tensors...); err != nil || g.lines.count == 0 {
		return d.failed(kernel, err)
	}
	if entry += "_warp"; length <= short && g.lines.aligned != 0 {
		entry += "_short" // fewer registers, and so more warps
	}
	suffix := entrySuffixes[tensors[0].DType]
	blocks := (g.lines.count*lanes + elementwiseThreads - 1) / elementwiseThreads
	err = d.launch(shapeOf("softmax"+suffix, entry+suffix, [3]int{int(blocks), 1, 1}, elementwiseThreads, 0), nil, unsafe.Pointer(g))
	for _, t := range tensors {
		runtime.KeepAlive(t.Owner)
	}
	return err
}
