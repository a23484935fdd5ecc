package ops

import "gorgonia.org/gorgonia"

// Detach is a copy of x that is a constant to gradients.
func Detach(x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Detach", kernel{
		describe: func(in tensors) (description, error) {
			is := like(in[0])
			is.gradients = noGradient
			return is, nil
		},
		forward: func(r *run, in, out tensors) error { return r.Copy(out[0], in[0]) },
	}, input{name: "x", node: x, unread: true, scalars: true})
}
