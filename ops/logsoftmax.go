package ops

import "gorgonia.org/gorgonia"

// LogSoftmax is the logarithm of the probabilities that logits x, (..., V), stand for: x − log Σ
// exp x along the last axis. It is exact where probabilities are too small for a float.
func LogSoftmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("LogSoftmax", kernel{
		describe: func(in tensors) (description, error) {
			return description{outputs: tensors{in[0]}, readsOutputs: 1}, nil
		},
		forward:  func(r *run, in, out tensors) error { return r.LogSoftmaxForward(in[0], out[0]) },
		backward: func(r *run, _, dOut, d tensors) error { return r.LogSoftmaxBackward(r.out[0], dOut[0], d[0]) },
		second:   byNodes(secondOfLogSoftmax),
		ofOutput: true,
	}, input{name: "x", node: x, unread: true})
}
