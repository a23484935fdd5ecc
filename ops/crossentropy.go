package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// CrossEntropyOptions are the options of [SoftmaxCrossEntropy]. The zero value is the mean loss
// over all rows.
type CrossEntropyOptions struct {
	IgnoreIndex    *int              // the target of rows that do not count, such as new(-100); nil: every target must be from 0 to V−1
	LabelSmoothing float64           // the part of a target's probability that is spread over all classes, in [0, 1)
	Reduction      kernels.Reduction // the mean over the rows that count (zero), the sum, or none: a loss a row
	// Weights, (V), say how much a class counts: the mean is one over the weights of the targets.
	// They have no gradient and are float32, or float64 as the logits. nil: 1 for each class.
	Weights *gorgonia.Node
}

// SoftmaxCrossEntropy is the loss of predicting targets, int, int32 or int64 of shape (...), from
// logits, (..., V): a scalar that [gorgonia.Grad] takes as a cost, or without a reduction a loss a
// row, (...). The targets may change from run to run. [kernels.CrossEntropyOptions] has the
// equations. Probabilities are never held, [LogSoftmax] gives them; the gradient is as large as the
// logits.
func SoftmaxCrossEntropy(logits, targets *gorgonia.Node, o CrossEntropyOptions) (*gorgonia.Node, error) {
	options := o.forKernels()
	problem := func(in tensors) *kernels.CrossEntropy {
		p := &kernels.CrossEntropy{Logits: in[0], Targets: in[1], CrossEntropyOptions: options}
		p.Weights = in[2]
		return p
	}
	return apply("SoftmaxCrossEntropy", kernel{
		describe: func(in tensors) (description, error) {
			if len(in[0].Shape) < 2 {
				return description{}, fmt.Errorf("logits has shape %v, it needs at least two axes (..., classes)", in[0].Shape)
			}
			p, wide := problem(in), in[0].DType.Wide()
			is := described(wide, p.LossShape()...)
			is.saves = tensors{kernels.Contiguous(nil, wide, in[1].Shape...)} // the logsumexp
			return is, p.Validate()
		},
		forward: func(r *run, in, out tensors) error {
			return r.CrossEntropyForward(problem(in), kernels.CrossEntropyOutputs{Loss: out[0], LSE: r.saved(0)})
		},
		backward: func(r *run, in, dOut, d tensors) error {
			g := kernels.CrossEntropyGradients{DLoss: dOut[0], LSE: r.saved(0), DLogits: d[0]}
			return r.CrossEntropyBackward(problem(in), g)
		},
	}, input{name: "logits", node: logits}, input{name: "targets", node: targets, form: indexForm},
		input{name: "weights", node: o.Weights, form: constantForm, optional: true})
}

// forKernels is a copy that the caller cannot change, without the weights.
func (o CrossEntropyOptions) forKernels() kernels.CrossEntropyOptions {
	if o.IgnoreIndex != nil {
		index := *o.IgnoreIndex
		o.IgnoreIndex = &index
	}
	return kernels.CrossEntropyOptions{IgnoreIndex: o.IgnoreIndex, LabelSmoothing: o.LabelSmoothing, Reduction: o.Reduction}
}
