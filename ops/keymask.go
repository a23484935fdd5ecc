package ops

import (
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// KeyMask is a Bias for [FlashAttention] that hides keys, such as the padding of a batch of sentences: mask, (B, Sk),
// is bool, or a float or integer of which 0 means false, and true means attend. bias may be nil; otherwise it is (1|B,
// 1|Hq, 1|Sq, Sk) and the result is bias where the mask is true. The result is (B, 1, 1, Sk), or with a bias
// (B, 1|Hq, 1|Sq, Sk), of the given type, and −∞ where the mask is false.
//
// The mask may change from run to run. It has no gradient; bias has.
func KeyMask(mask, bias *gorgonia.Node, dtype tensor.Dtype) (*gorgonia.Node, error) {
	n, err := keyMaskNode(mask, bias, dtype)
	if err != nil {
		return nil, fmt.Errorf("KeyMask: %w", err)
	}
	return n, nil
}

func keyMaskNode(mask, bias *gorgonia.Node, dtype tensor.Dtype) (*gorgonia.Node, error) {
	names, children := []string{"mask"}, gorgonia.Nodes{mask}
	if bias != nil {
		names, children = append(names, "bias"), append(children, bias)
	}
	if err := checkGraph(names, children); err != nil {
		return nil, err
	}
	if dtypeOf(dtype) == kernels.NoDType {
		return nil, fmt.Errorf("dtype is %v, it needs to be float32 or float64", dtype)
	}
	if !slices.Contains([]tensor.Dtype{tensor.Bool, tensor.Float32, tensor.Float64, tensor.Int, tensor.Int32, tensor.Int64}, mask.Dtype()) {
		return nil, fmt.Errorf("mask is %v, it needs to be bool, float32, float64, int, int32 or int64", mask.Dtype())
	}
	shape := mask.Shape()
	if len(shape) != 2 || shape.TotalSize() == 0 {
		return nil, fmt.Errorf("mask has shape %v, it needs two axes (batch, keys)", []int(shape))
	}
	k := &keyMask{batch: shape[0], keys: shape[1], bias: []int{1, 1, 1, shape[1]}}
	if bias != nil {
		if bias.Dtype() != dtype {
			return nil, fmt.Errorf("bias is %v, it needs to be %v", bias.Dtype(), dtype)
		}
		k.bias = bias.Shape()
		if len(k.bias) != 4 || k.bias[0] != 1 && k.bias[0] != k.batch || k.bias[3] != k.keys {
			return nil, fmt.Errorf("bias has shape %v, it needs (1 or %d, heads or 1, queries or 1, %d)", k.bias, k.batch, k.keys)
		}
	}
	k.signature = newSignature("KeyMask", children, []bool{false, true}[:len(children)], dtype, k.batch, k.bias[1], k.bias[2], k.keys)
	k.dtype = dtype
	return gorgonia.ApplyOp(k, children...)
}

type keyMask struct {
	signature
	dtype       tensor.Dtype
	batch, keys int
	bias        []int // its shape
}

func (k *keyMask) Do(values ...gorgonia.Value) (gorgonia.Value, error) {
	v, err := k.compute(values)
	if err != nil {
		return nil, fmt.Errorf("KeyMask: %w", err)
	}
	return v, nil
}

func (k *keyMask) compute(values []gorgonia.Value) (gorgonia.Value, error) {
	attend, err := k.attend(values[0])
	if err != nil {
		return nil, fmt.Errorf("mask's value %w", err)
	}
	if k.dtype == tensor.Float64 {
		return masked[float64](k, attend, values[1:])
	}
	return masked[float32](k, attend, values[1:])
}

// attend reads the mask in row-major order.
func (k *keyMask) attend(v gorgonia.Value) ([]bool, error) {
	t, ok := v.(*tensor.Dense)
	if !ok || !t.IsNativelyAccessible() {
		return nil, fmt.Errorf("is a %T, it needs to be a *tensor.Dense on the host", v)
	}
	if !slices.Equal(t.Shape(), []int{k.batch, k.keys}) {
		return nil, fmt.Errorf("has shape %v, its node promised %v", []int(t.Shape()), []int{k.batch, k.keys})
	}
	var at func(i int) bool
	switch data := t.Data().(type) {
	case []bool:
		at = func(i int) bool { return data[i] }
	case []float32:
		at = func(i int) bool { return data[i] != 0 }
	case []float64:
		at = func(i int) bool { return data[i] != 0 }
	case []int:
		at = func(i int) bool { return data[i] != 0 }
	case []int32:
		at = func(i int) bool { return data[i] != 0 }
	case []int64:
		at = func(i int) bool { return data[i] != 0 }
	default:
		return nil, fmt.Errorf("holds a %T, it needs bools, floats or integers", data)
	}
	attend, strides := make([]bool, k.batch*k.keys), t.Strides()
	for i := range attend {
		attend[i] = at(i/k.keys*strides[0] + i%k.keys*strides[1])
	}
	return attend, nil
}

// masked writes the result: a row of the bias, of zeros without one, for each row of the output, −∞ where hidden.
func masked[T kernels.Float](k *keyMask, attend []bool, bias []gorgonia.Value) (gorgonia.Value, error) {
	rows := k.bias[1] * k.bias[2] // of each batch item
	from := make([]T, k.bias[0]*rows*k.keys)
	if len(bias) > 0 {
		h, err := homeOfAll([]string{"bias"}, bias)
		if err != nil {
			return nil, err
		}
		if h != host {
			return nil, fmt.Errorf("bias is on %s, it needs to be on the host, as the mask is", h.Name())
		}
		t, err := h.contiguous(bias[0], dtypeOf(k.dtype), k.bias, len(k.bias))
		if err != nil {
			return nil, fmt.Errorf("bias's value %w", err)
		}
		from = kernels.Host[T](t)
	}
	out, hidden := make([]T, k.batch*rows*k.keys), T(math.Inf(-1))
	for b := range k.batch {
		for row := range rows {
			dst, src := out[(b*rows+row)*k.keys:], from[(b%k.bias[0]*rows+row)*k.keys:]
			for j, see := range attend[b*k.keys:][:k.keys] {
				if dst[j] = hidden; see {
					dst[j] = src[j]
				}
			}
		}
	}
	return tensor.New(tensor.WithShape(k.signature.shape...), tensor.WithBacking(out)), nil
}

// SymDiff gives the gradient of the bias: the output's, which is 0 where a key is hidden, summed over the batch where
// the bias is one for all of it.
func (k *keyMask) SymDiff(inputs gorgonia.Nodes, _, dOut *gorgonia.Node) (gorgonia.Nodes, error) {
	if len(inputs) == 1 {
		return gorgonia.Nodes{nil}, nil
	}
	if k.bias[0] == k.batch {
		return gorgonia.Nodes{nil, dOut}, nil
	}
	s := newSignature("KeyMask.dbias", gorgonia.Nodes{dOut}, nil, k.dtype, k.bias...)
	n, err := gorgonia.ApplyOp(&keyMaskGradient{s, k}, dOut)
	return gorgonia.Nodes{nil, n}, err
}

// DoDiff is SymDiff under a lispMachine.
func (k *keyMask) DoDiff(_ gorgonia.ExecutionContext, inputs gorgonia.Nodes, output *gorgonia.Node) error {
	if len(inputs) == 1 {
		return nil
	}
	dOut, err := output.Grad()
	if err != nil {
		return fmt.Errorf("KeyMask: %w", err)
	}
	d, err := k.sum(dOut)
	if err == nil {
		err = accumulate(inputs[1], d)
	}
	if err != nil {
		return fmt.Errorf("KeyMask: gradient of bias: %w", err)
	}
	return nil
}

// sum adds the gradient of the output up to the bias's shape.
func (k *keyMask) sum(dOut gorgonia.Value) (*tensor.Dense, error) {
	h, err := homeOfAll([]string{"the gradient of the output"}, []gorgonia.Value{dOut})
	if err != nil {
		return nil, err
	}
	t, err := h.contiguous(dOut, dtypeOf(k.dtype), k.signature.shape, 4)
	if err != nil {
		return nil, fmt.Errorf("the gradient of the output %w", err)
	}
	d, err := h.Alloc(t.DType, k.bias...)
	if err != nil {
		return nil, err
	}
	columns := d.Elements()
	rows := kernels.Contiguous(t.Data, t.DType, t.Elements()/columns, columns)
	return h.value(d), h.SumRows(rows, kernels.Contiguous(d.Data, d.DType, columns), false)
}

type keyMaskGradient struct {
	signature
	k *keyMask
}

func (g *keyMaskGradient) Do(values ...gorgonia.Value) (gorgonia.Value, error) {
	d, err := g.k.sum(values[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.name, err)
	}
	return d, nil
}
