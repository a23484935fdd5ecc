package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Exp is e to the x, element by element.
func Exp(x *gorgonia.Node) (*gorgonia.Node, error) { return function(kernels.Exp, x) }

// Log is the natural logarithm of x, element by element.
func Log(x *gorgonia.Node) (*gorgonia.Node, error) { return function(kernels.Log, x) }

// Sqrt is the square root of x, element by element.
func Sqrt(x *gorgonia.Node) (*gorgonia.Node, error) { return function(kernels.Sqrt, x) }

// Abs is x without its sign. At 0 its gradient is 0.
func Abs(x *gorgonia.Node) (*gorgonia.Node, error) { return function(kernels.Abs, x) }

func function(f kernels.Function, x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply(f.String(), kernel{
		describe: func(in tensors) (description, error) { return like(in[0]), f.Validate() },
		forward:  func(r *run, in, out tensors) error { return r.Apply(f, in[0], out[0]) },
		backward: func(r *run, in, dOut, d tensors) error { return r.ApplyBackward(f, in[0], dOut[0], d[0]) },
		second:   secondOfElements(functionGradient(f), functionCurve(f)),
	}, input{name: "x", node: x, scalars: true})
}

// AddScalar adds a number to every element of x, which may be a scalar.
func AddScalar(x *gorgonia.Node, number float64) (*gorgonia.Node, error) {
	return apply("AddScalar", kernel{
		describe: func(in tensors) (description, error) {
			return description{outputs: tensors{in[0]}, gradients: fromOutput}, kernels.ValidateSummand(number)
		},
		forward: func(r *run, in, out tensors) error { return r.AddScalar(number, in[0], out[0]) },
	}, input{name: "x", node: x, unread: true, scalars: true})
}

// Div is a/b, element by element, of two tensors of one shape, or of two scalars.
func Div(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Div", kernel{
		describe: func(in tensors) (description, error) { return like(in[0]), checkSame("b", in[1], "a", in[0]) },
		forward:  func(r *run, in, out tensors) error { return r.Div(in[0], in[1], out[0]) },
		backward: func(r *run, in, dOut, d tensors) error {
			if !d[1].IsSet() {
				return r.Div(dOut[0], in[1], d[0])
			}
			da := d[0]
			if !da.IsSet() {
				var err error
				if da, err = r.scratch(in[0].DType, in[0].Shape...); err != nil {
					return err
				}
			}
			return r.DivBackward(in[0], in[1], dOut[0], da, d[1])
		},
		second: byNodes(func(x *cotangents) (gorgonia.Nodes, error) {
			e := &nodes{}
			da := e.with(Div, x.dOut[0], x.in[1])
			return gorgonia.Nodes{da, e.scale(e.mul(da, e.with(Div, x.in[0], x.in[1])), -1)}, e.err
		}),
	}, input{name: "a", node: a, scalars: true}, input{name: "b", node: b, scalars: true})
}

// Softmax makes probabilities of logits x, (..., V), along the last axis: exp x / Σ exp x.
// [LogSoftmax] is exact where they are too small for a float.
func Softmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Softmax", kernel{
		describe: func(in tensors) (description, error) {
			return description{outputs: tensors{in[0]}, readsOutputs: 1}, nil
		},
		forward:  func(r *run, in, out tensors) error { return r.SoftmaxForward(in[0], out[0]) },
		backward: func(r *run, _, dOut, d tensors) error { return r.SoftmaxBackward(r.out[0], dOut[0], d[0]) },
		second:   byNodes(secondOfSoftmax),
		ofOutput: true,
	}, input{name: "x", node: x, unread: true})
}
