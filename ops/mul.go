package ops

import (
	"errors"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// Mul is a·b, element by element, of two tensors of one shape or two scalars: a gate.
func Mul(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Mul", kernel{
		describe: func(in tensors) (description, error) { return like(in[0]), checkSame("b", in[1], "a", in[0]) },
		forward:  func(r *run, in, out tensors) error { return r.Mul(in[0], in[1], out[0]) },
		backward: func(r *run, in, dOut, d tensors) error { // da = dc·b and db = dc·a
			for i := range d {
				if !d[i].IsSet() {
					continue
				}
				if err := r.Mul(dOut[0], in[1-i], d[i]); err != nil {
					return err
				}
			}
			return nil
		},
		second: byNodes(func(x *cotangents) (gorgonia.Nodes, error) {
			da, err := Mul(x.dOut[0], x.in[1])
			db, err2 := Mul(x.dOut[0], x.in[0])
			return gorgonia.Nodes{da, db}, errors.Join(err, err2)
		}),
	}, input{name: "a", node: a, scalars: true}, input{name: "b", node: b, scalars: true})
}

// Scale multiplies every element of x, which may be a scalar, by a number.
func Scale(x *gorgonia.Node, factor float64) (*gorgonia.Node, error) {
	return apply("Scale", kernel{
		describe: func(in tensors) (description, error) {
			return like(in[0]), kernels.ValidateFactor(factor, in[0].DType)
		},
		linear:   true,
		forward:  func(r *run, in, out tensors) error { return r.MulScalar(factor, in[0], out[0]) },
		backward: func(r *run, _, dOut, d tensors) error { return r.MulScalar(factor, dOut[0], d[0]) },
	}, input{name: "x", node: x, unread: true, scalars: true})
}
