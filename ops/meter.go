package ops

import (
	"errors"
	"reflect"

	"github.com/stheno-ml/stheno/kernels"
)

// meter is a device that computes nothing and has no memory. It counts the bytes that it is asked
// for and the work that it is given, so that a run can be estimated before it is made. Its tensors
// have shapes and no data.
type meter struct {
	bytes int
	work  float64

	stands   kernels.Borrower // the device that it stands for, nil for one that borrows nothing
	borrowed int              // by a call of that, at most
	last     float64          // the work of the last product of a step, which may be left out
}

// How many operations of a product take the time in which a byte is moved: on CPUs, whose caches
// hold a part of the tensors, and on a device that borrows memory, a GPU. There attention makes
// half as many operations in a time as products do.
const (
	workOfByte, workOfByteThere = 8, 200
	workOfAttentionThere        = 2
)

// ofAttention is the work of operations of attention.
func (d *meter) ofAttention(operations float64) float64 {
	if d.stands != nil {
		return workOfAttentionThere * operations
	}
	return operations
}

var errMeter = errors.New("the device that estimates a run holds no numbers")

func (d *meter) Name() string { return "an estimate" }

func (d *meter) Alloc(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	t := kernels.Contiguous(nil, dtype, shape...)
	d.bytes += occupied(d.stands, t.Elements()*dtype.Size())
	return t, nil
}

// occupied is how much of a device's memory a tensor of so many bytes takes.
func occupied(b kernels.Borrower, bytes int) int {
	if b == nil {
		return bytes
	}
	return b.Occupies(bytes)
}

func (d *meter) Owner(kernels.Tensor) any { return nil }

func (d *meter) Copy(dst, src kernels.Tensor) error { return d.add(0, dst, src) }

func (d *meter) Fill(t kernels.Tensor, _ float64) error { return d.add(0, t) }

func (d *meter) Read(kernels.Tensor) (kernels.Number, error) { return nil, errMeter }

func (d *meter) Record() (kernels.Event, error) { return nil, errMeter }

func (d *meter) Synchronize() error { return nil }

// add counts the operations of products, and the bytes of all tensors that a kernel was given.
func (d *meter) add(operations float64, given ...any) error {
	bytes := 0
	for _, g := range given {
		bytes += bytesOf(reflect.ValueOf(g))
	}
	perByte := float64(workOfByte)
	if d.stands != nil {
		perByte = workOfByteThere
	}
	d.work += operations + perByte*float64(bytes)
	return nil
}

var tensorType = reflect.TypeFor[kernels.Tensor]()

// bytesOf is the size of the tensors in an argument of a kernel.
func bytesOf(v reflect.Value) (bytes int) {
	switch {
	case !v.IsValid():
	case v.Type() == tensorType:
		t := v.Interface().(kernels.Tensor)
		if t.IsSet() {
			bytes = t.Elements() * t.DType.Size()
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		bytes = bytesOf(v.Elem())
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				bytes += bytesOf(v.Field(i))
			}
		}
	case v.Kind() == reflect.Slice && (v.Type().Elem() == tensorType || v.Type().Elem().Kind() == reflect.Struct):
		for i := range v.Len() {
			bytes += bytesOf(v.Index(i))
		}
	}
	return bytes
}

// productsOf are the operations of a loss and of the gradients that are asked for.
func productsOf(c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) float64 {
	product := 2 * float64(c.Hidden.Elements()) * float64(c.Weight.Shape[0])
	operations := product
	for _, t := range []kernels.Tensor{out.DHidden, out.DWeight} {
		if t.IsSet() {
			operations += product
		}
	}
	return operations
}

func (d *meter) Activate(_ kernels.Activation, x, y kernels.Tensor) error {
	return d.add(0, x, y)
}

func (d *meter) ActivateBackward(_ kernels.Activation, x, dy, dx kernels.Tensor) error {
	return d.add(0, x, dy, dx)
}

func (d *meter) SwiGLU(gate, up, y kernels.Tensor) error {
	return d.add(0, gate, up, y)
}

func (d *meter) SwiGLUBackward(gate, up, dy, dGate, dUp kernels.Tensor) error {
	return d.add(0, gate, up, dy, dGate, dUp)
}

func (d *meter) Add(a, b, c kernels.Tensor) error {
	return d.add(0, a, b, c)
}

func (d *meter) Accumulate(sums, x []kernels.Tensor) error {
	return d.add(0, sums, x)
}

func (d *meter) AttentionForward(a *kernels.Attention, out kernels.AttentionOutputs) error {
	return d.add(d.ofAttention(a.ForwardFLOPs()), a, out)
}

func (d *meter) AttentionDelta(a *kernels.Attention, o, dO, dLSE, delta kernels.Tensor) error {
	return d.add(0, a, o, dO, dLSE, delta)
}

func (d *meter) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) error {
	return d.add(d.ofAttention(a.BackwardFLOPs()), a, g)
}

func (d *meter) AttentionMerge(sum, part kernels.AttentionOutputs) error {
	return d.add(0, sum, part)
}

func (d *meter) AttentionScores(a *kernels.Attention, _ []int, s kernels.Tensor) error {
	return d.add(0, a, s)
}

func (d *meter) ChooseTokens(c *kernels.ChooseTokens, out kernels.ChosenTokens) error {
	return d.add(0, c, out)
}

func (d *meter) CrossEntropyForward(c *kernels.CrossEntropy, out kernels.CrossEntropyOutputs) error {
	return d.add(0, c, out)
}

func (d *meter) CrossEntropyBackward(c *kernels.CrossEntropy, g kernels.CrossEntropyGradients) error {
	return d.add(0, c, g)
}

func (d *meter) LinearCrossEntropy(c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) error {
	if d.stands != nil {
		d.borrowed = max(d.borrowed, d.stands.LinearCrossEntropyBorrows(c, out))
	}
	return d.add(productsOf(c, out), c, out)
}

func (d *meter) Dropout(_ kernels.Dropout, x, y kernels.Tensor) error {
	return d.add(0, x, y)
}

func (d *meter) EmbeddingForward(e *kernels.Embedding, y kernels.Tensor) error {
	return d.add(0, e, y)
}

func (d *meter) EmbeddingBackward(e *kernels.Embedding, dy, dTable kernels.Tensor) error {
	return d.add(0, e, dy, dTable)
}

func (d *meter) Apply(_ kernels.Function, x, y kernels.Tensor) error {
	return d.add(0, x, y)
}

func (d *meter) ApplyBackward(_ kernels.Function, x, dy, dx kernels.Tensor) error {
	return d.add(0, x, dy, dx)
}

func (d *meter) AddScalar(_ float64, x, y kernels.Tensor) error {
	return d.add(0, x, y)
}

func (d *meter) BinaryTargets(targets, y kernels.Tensor) error {
	return d.add(0, targets, y)
}

func (d *meter) Div(a, b, c kernels.Tensor) error {
	return d.add(0, a, b, c)
}

func (d *meter) DivBackward(a, b, dc, da, db kernels.Tensor) error {
	return d.add(0, a, b, dc, da, db)
}

func (d *meter) ClampedGate(_ kernels.ClampedGate, x, y kernels.Tensor) error {
	return d.add(0, x, y)
}

func (d *meter) ClampedGateBackward(_ kernels.ClampedGate, x, dy, dx kernels.Tensor) error {
	return d.add(0, x, dy, dx)
}

func (d *meter) RoundFloat8(x kernels.Tensor, r kernels.Float8Rounding) error { return d.add(0, x, r) }

func (d *meter) TurnFloat8(rows, columns kernels.Float8Sides) error { return d.add(0, rows, columns) }

func (d *meter) GroupedMatMul(m *kernels.GroupedMatMul, c kernels.Tensor) error {
	return d.add(m.FLOPs(), m, c)
}

func (d *meter) GroupedMatMulGradient(m *kernels.GroupedMatMul, dC, dB kernels.Tensor) error {
	return d.add(m.FLOPs(), m, dC, dB)
}

func (d *meter) GroupedSumRows(x, offsets, out kernels.Tensor) error {
	return d.add(0, x, offsets, out)
}

func (d *meter) TopK(x, values, ids kernels.Tensor) error {
	return d.add(0, x, values, ids)
}

func (d *meter) Gather(x, ids, y kernels.Tensor) error {
	return d.add(0, x, ids, y)
}

func (d *meter) Scatter(x, ids, y kernels.Tensor) error {
	return d.add(0, x, ids, y)
}

func (d *meter) KeyMask(mask, bias, out kernels.Tensor) error {
	return d.add(0, mask, bias, out)
}

func (d *meter) LogSoftmaxForward(x, y kernels.Tensor) error {
	return d.add(0, x, y)
}

func (d *meter) LogSoftmaxBackward(y, dy, dx kernels.Tensor) error {
	return d.add(0, y, dy, dx)
}

func (d *meter) MatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	if d.stands != nil {
		d.borrowed = max(d.borrowed, d.stands.MatMulBorrows(m))
	}
	return d.add(m.FLOPs(), m, out)
}

// GateGradientsInPlace reports whether the device that it stands for writes them so.
func (d *meter) GateGradientsInPlace(m *kernels.MatMul, c kernels.Tensor) bool {
	device, ok := d.stands.(kernels.GradientsInPlace)
	return ok && device.GateGradientsInPlace(m, c)
}

// WidensFor reports whether the device that it stands for does.
func (d *meter) WidensFor(rows int) bool {
	device, ok := d.stands.(kernels.Widener)
	return ok && device.WidensFor(rows)
}

func (d *meter) Widen(packed, to kernels.Tensor) error { return d.add(0, packed, to) }

// TakesThinProducts reports whether the device that it stands for does.
func (d *meter) TakesThinProducts(p *kernels.ThinProducts, parts int) bool {
	device, ok := d.stands.(kernels.ThinKernels)
	return ok && device.TakesThinProducts(p, parts)
}

func (d *meter) ThinProducts(p *kernels.ThinProducts, out kernels.ThinOutputs) error {
	d.borrowed = max(d.borrowed, d.ThinProductsBorrow(p))
	return d.add(p.FLOPs(), p, out)
}

func (d *meter) ThinProductsBorrow(p *kernels.ThinProducts) int {
	return d.stands.(kernels.ThinKernels).ThinProductsBorrow(p)
}

func (d *meter) SumRows(x, out kernels.Tensor, accumulate bool) error {
	return d.add(0, x, out, accumulate)
}

func (d *meter) Mul(a, b, c kernels.Tensor) error {
	return d.add(0, a, b, c)
}

func (d *meter) MulScalar(_ float64, x, y kernels.Tensor) error {
	return d.add(0, x, y)
}

func (d *meter) NormForward(n *kernels.Norm, out kernels.NormOutputs) error {
	return d.add(0, n, out)
}

func (d *meter) NormBackward(n *kernels.Norm, g kernels.NormGradients) error {
	return d.add(0, n, g)
}

func (d *meter) AdamW(_ kernels.AdamW, w, g, m, v []kernels.Tensor) error {
	return d.add(0, w, g, m, v)
}

func (d *meter) SGD(_ kernels.SGD, w, g, m []kernels.Tensor) error {
	return d.add(0, w, g, m)
}

func (d *meter) Momentum(_ kernels.SGD, g, m, y []kernels.Tensor, sums kernels.Tensor) error {
	return d.add(0, g, m, y, sums)
}

func (d *meter) Normalize(x []kernels.Tensor, sums kernels.Tensor, _ float64, y []kernels.Tensor) error {
	return d.add(0, x, sums, y)
}

func (d *meter) Lion(_ kernels.Lion, w, g, m []kernels.Tensor) error {
	return d.add(0, w, g, m)
}

func (d *meter) Adafactor(_ kernels.Adafactor, w, g, r, c, v []kernels.Tensor) error {
	return d.add(0, w, g, r, c, v)
}

func (d *meter) SumSquares(x []kernels.Tensor, sums kernels.Tensor) error {
	return d.add(0, x, sums)
}

func (d *meter) PlanStep(_ kernels.StepPlan, sums, control kernels.Tensor) error {
	return d.add(0, sums, control)
}

func (d *meter) Zero(x []kernels.Tensor) error {
	return d.add(0, x)
}

func (d *meter) TokenPositions(p *kernels.TokenPositions, positions kernels.Tensor) error {
	return d.add(0, p, positions)
}

func (d *meter) Sum(x, out kernels.Tensor) error {
	return d.add(0, x, out)
}

func (d *meter) Mean(x, out kernels.Tensor) error {
	return d.add(0, x, out)
}

func (d *meter) Broadcast(value kernels.Tensor, _ float64, x kernels.Tensor) error {
	return d.add(0, value, x)
}

func (d *meter) RoPEForward(r *kernels.RoPE, x, y kernels.Tensor) error {
	return d.add(0, r, x, y)
}

func (d *meter) RoPEBackward(r *kernels.RoPE, dy, dx kernels.Tensor) error {
	return d.add(0, r, dy, dx)
}

func (d *meter) Route(r *kernels.Routing, weights kernels.Tensor, a kernels.Assignment) error {
	return d.add(0, r, weights, a)
}

func (d *meter) RouteBackward(r *kernels.Routing, a kernels.Assignment, dWeights, dLogits kernels.Tensor) error {
	return d.add(0, r, a, dWeights, dLogits)
}

func (d *meter) Dispatch(x, factors kernels.Tensor, a kernels.Assignment, y kernels.Tensor) error {
	return d.add(0, x, factors, a, y)
}

func (d *meter) Combine(x, factors kernels.Tensor, a kernels.Assignment, y kernels.Tensor) error {
	return d.add(0, x, factors, a, y)
}

func (d *meter) CombineFactors(x, dy kernels.Tensor, a kernels.Assignment, dFactors kernels.Tensor) error {
	return d.add(0, x, dy, a, dFactors)
}

func (d *meter) BalanceLoss(logits, offsets, loss kernels.Tensor) error {
	return d.add(0, logits, offsets, loss)
}

func (d *meter) BalanceLossBackward(logits, offsets, dLoss, dLogits kernels.Tensor) error {
	return d.add(0, logits, offsets, dLoss, dLogits)
}

func (d *meter) SoftCap(_ float64, x, y kernels.Tensor) error {
	return d.add(0, x, y)
}

func (d *meter) SoftCapBackward(_ float64, y, dy, dx kernels.Tensor) error {
	return d.add(0, y, dy, dx)
}

func (d *meter) SoftmaxForward(x, y kernels.Tensor) error {
	return d.add(0, x, y)
}

func (d *meter) SoftmaxBackward(y, dy, dx kernels.Tensor) error {
	return d.add(0, y, dy, dx)
}

var (
	_ kernels.Backend          = (*meter)(nil)
	_ kernels.ThinKernels      = (*meter)(nil)
	_ kernels.GradientsInPlace = (*meter)(nil)
	_ kernels.Widener          = (*meter)(nil)
)
