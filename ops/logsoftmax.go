package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// LogSoftmax is the logarithm of the probabilities that logits x, (..., V), stand for: x − log Σ exp x along the last axis. It is
// exact where probabilities are too small for a float.
func LogSoftmax(x *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("LogSoftmax", &logSoftmax{}, input{name: "x", node: x, unread: true})
}

type logSoftmax struct{}

func (k *logSoftmax) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) { return alike(in[0]), nil }

func (k *logSoftmax) source() source { return fromOutputs }

func (k *logSoftmax) forward(r *run, in, out []kernels.Tensor) error {
	return r.LogSoftmaxForward(in[0], out[0])
}

func (k *logSoftmax) backward(r *run, _, dOut, d []kernels.Tensor) error {
	return r.LogSoftmaxBackward(r.out[0], dOut[0], d[0])
}
