package cpu

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// LinearCrossEntropy computes the loss of logits = hidden·weightᵀ and the gradients of both
// factors, a chunk of rows at a time: their logits are computed, become their own gradient in
// place, and are multiplied into the gradients.
func (b *Backend) LinearCrossEntropy(c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) (err error) {
	const kernel = "linear cross-entropy"
	defer catch(kernel, &err)
	if err := checked(kernel, c.Check(out)); err != nil {
		return err
	}
	rows, err := newLossRows(kernel, &c.CrossEntropyOptions, c.Targets, c.Weight.Shape[0])
	if err != nil {
		return err
	}
	defer rows.memory.release()
	h := halves{b: b}
	defer h.round()
	wide := *c
	wide.Weight, wide.Hidden = h.readAs(c.Hidden.DType, c.Weight), h.read(c.Hidden)
	out.DHidden, out.DWeight = h.write(out.DHidden), h.write(out.DWeight)
	return inTypeOf(wide.Hidden, linearCrossEntropy[float32], linearCrossEntropy[float64])(b, rows, &wide, out)
}

// chunkElements is how many logits are held at a time, unless not even chunkRows rows fit; more
// than mostChunkRows only as long as the caches hold nearElements of them.
const (
	chunkElements = 1 << 24
	chunkRows     = 16
	mostChunkRows = 256
	nearElements  = 1 << 18
)

func linearCrossEntropy[T kernels.Float](b *Backend, rows *lossRows, c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) error {
	n, vocabulary := len(rows.targets), rows.vocabulary
	if n == 0 && out.DWeight.IsSet() {
		zero[T](out.DWeight)
	}
	perChunk := min(n, max(mostChunkRows, nearElements/vocabulary), max(chunkRows, chunkElements/vocabulary))
	memory := newWorkspace(bytesFor[T](perChunk * vocabulary))
	defer memory.release()
	buffer := take[T](memory, perChunk*vocabulary)
	scale := rows.scale * scalarOr[T](c.DLoss, 1)
	gradients := out.DHidden.IsSet() || out.DWeight.IsSet()
	for first := 0; first < n; first += perChunk {
		last := min(n, first+perChunk)
		hidden := c.Hidden.Slice(0, first, last)
		logits := kernels.Contiguous(unsafe.Pointer(&buffer[0]), c.Hidden.DType, last-first, vocabulary)
		if err := b.MatMul(&kernels.MatMul{A: hidden, B: c.Weight.Permute(1, 0), Precision: c.Precision}, kernels.MatMulOutputs{C: logits}); err != nil {
			return err
		}
		b.eachRow(last-first, vocabulary, func(i int) {
			if rows.ignored(first+i) && !gradients {
				return
			}
			z := &buffer[i*vocabulary]
			if lse := lossOfRow(rows, first+i, z); gradients {
				gradOfRow(rows, first+i, z, z, lse, scale)
			}
		})
		if out.DHidden.IsSet() {
			if err := b.MatMul(&kernels.MatMul{A: logits, B: c.Weight, Precision: c.Precision}, kernels.MatMulOutputs{C: out.DHidden.Slice(0, first, last)}); err != nil {
				return err
			}
		}
		if out.DWeight.IsSet() {
			if err := b.addWeightGradient(&kernels.MatMul{A: logits.Permute(1, 0), B: hidden, Accumulate: first > 0, Precision: c.Precision}, out.DWeight); err != nil {
				return err
			}
		}
	}
	if out.Loss.IsSet() {
		kernels.Host[T](out.Loss)[0] = T(rows.total())
	}
	return nil
}

// addWeightGradient is dWeight (+)= dLogitsᵀ·hidden, as its transpose where dWeight's columns are
// what is contiguous.
func (b *Backend) addWeightGradient(m *kernels.MatMul, dWeight kernels.Tensor) error {
	if dWeight.IsTransposed() {
		m.A, m.B, dWeight = m.B.Permute(1, 0), m.A.Permute(1, 0), dWeight.Permute(1, 0)
	}
	return b.MatMul(m, kernels.MatMulOutputs{C: dWeight})
}

// zero writes zeros to a matrix of any strides.
func zero[T kernels.Float](t kernels.Tensor) {
	host := kernels.Host[T](t)
	for i := range t.Shape[0] {
		for j := range t.Shape[1] {
			host[t.Offset(i, j)] = 0
		}
	}
}
