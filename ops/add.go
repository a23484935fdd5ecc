package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Add is a + b, two tensors of one shape: a residual connection. The gradient of the sum is that of both, as it is.
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Add", addition{}, input{name: "a", node: a, unread: true}, input{name: "b", node: b, unread: true})
}

// alike describes one output that is like a tensor.
func alike(t kernels.Tensor) []kernels.Tensor { return []kernels.Tensor{t} }

// described describes one output of a dtype and shape.
func described(dtype kernels.DType, shape ...int) []kernels.Tensor {
	return []kernels.Tensor{kernels.Contiguous(nil, dtype, shape...)}
}

// checkSame makes sure that a tensor has the shape and dtype of another.
func checkSame(name string, t kernels.Tensor, of string, like kernels.Tensor) error {
	if !slices.Equal(t.Shape, like.Shape) {
		return fmt.Errorf("%s has shape %v, it needs %s's %v", name, t.Shape, of, like.Shape)
	}
	if t.DType != like.DType {
		return fmt.Errorf("%s is %v, %s is %v: they need one dtype", name, t.DType, of, like.DType)
	}
	return nil
}

type addition struct{}

func (addition) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	return alike(in[0]), checkSame("b", in[1], "a", in[0])
}

func (addition) source() source { return fromOutput }

func (addition) forward(r *run, in, out []kernels.Tensor) error {
	return r.Add(in[0], in[1], out[0])
}

func (addition) backward(*run, []kernels.Tensor, []kernels.Tensor, []kernels.Tensor) error {
	return nil
}
