package ops

import "gorgonia.org/gorgonia"

// Add is a + b, two tensors of one shape or two scalars: a residual connection. The gradient of the
// sum is that of both, as it is.
func Add(a, b *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Add", kernel{
		describe: func(in tensors) (description, error) {
			is := like(in[0])
			is.gradients, is.joins.takes = fromOutput, []int{1}
			return is, checkSame("b", in[1], "a", in[0])
		},
		forward: func(r *run, in, out tensors) error {
			if done, err := r.addRows(1, in[0], out[0]); done || err != nil {
				return err
			}
			return r.Add(in[0], in[1], out[0])
		},
	}, input{name: "a", node: a, unread: true, scalars: true}, input{name: "b", node: b, unread: true, scalars: true})
}
