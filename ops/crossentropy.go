package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// CrossEntropyOptions are the options of [SoftmaxCrossEntropy]. The zero value is the mean loss over all rows.
type CrossEntropyOptions struct {
	IgnoreIndex    *int              // the target of rows that do not count; nil: every target must be from 0 to V−1
	LabelSmoothing float64           // the part of a target's probability that is spread over all classes, in [0, 1)
	Reduction      kernels.Reduction // the mean over the rows that count (zero), or the sum
}

// SoftmaxCrossEntropy is the loss of predicting targets, int, int32 or int64 of shape (...), from logits, (..., V): a
// scalar that [gorgonia.Grad] takes as a cost. The targets may change from run to run.
// [kernels.CrossEntropyOptions] has the equations. Probabilities are never held; the gradient is as large as the logits.
func SoftmaxCrossEntropy(logits, targets *gorgonia.Node, o CrossEntropyOptions) (*gorgonia.Node, error) {
	return apply("SoftmaxCrossEntropy", &crossEntropy{o: o.forKernels()},
		input{name: "logits", node: logits}, input{name: "targets", node: targets, form: indexForm})
}

// forKernels is a copy that the caller cannot change.
func (o CrossEntropyOptions) forKernels() kernels.CrossEntropyOptions {
	if o.IgnoreIndex != nil {
		index := *o.IgnoreIndex
		o.IgnoreIndex = &index
	}
	return kernels.CrossEntropyOptions(o)
}

type crossEntropy struct {
	o   kernels.CrossEntropyOptions
	lse kernels.Tensor
}

func (k *crossEntropy) problem(in []kernels.Tensor) *kernels.CrossEntropy {
	return &kernels.CrossEntropy{Logits: in[0], Targets: in[1], CrossEntropyOptions: k.o}
}

func (k *crossEntropy) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	if len(in[0].Shape) < 2 {
		return nil, fmt.Errorf("logits has shape %v, it needs at least two axes (..., classes)", in[0].Shape)
	}
	return described(in[0].DType.Wide()), k.problem(in).Validate()
}

func (k *crossEntropy) source() source { return fromSaved }

func (k *crossEntropy) forward(r *run, in, out []kernels.Tensor) error {
	outputs := kernels.CrossEntropyOutputs{Loss: out[0]}
	if r.wanted != nil {
		if err := r.keep(&k.lse, in[0].DType.Wide(), in[1].Shape...); err != nil {
			return err
		}
		outputs.LSE = k.lse
	}
	return r.CrossEntropyForward(k.problem(in), outputs)
}

func (k *crossEntropy) backward(r *run, in, dOut, d []kernels.Tensor) error {
	return r.CrossEntropyBackward(k.problem(in), kernels.CrossEntropyGradients{DLoss: dOut[0], LSE: k.lse, DLogits: d[0]})
}
