package ops

import (
	"gorgonia.org/gorgonia"
)

// BinaryTargets gives targets that a binary cross-entropy compares with probabilities. A run in
// which one is not from 0 to 1, or no number, fails.
func BinaryTargets(targets *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("BinaryCrossEntropy", kernel{
		describe: func(in tensors) (description, error) {
			return description{outputs: tensors{in[0]}, gradients: fromOutput}, nil
		},
		forward: func(r *run, in, out tensors) error { return r.BinaryTargets(in[0], out[0]) },
	}, input{name: "targets", node: targets, unread: true, scalars: true})
}
