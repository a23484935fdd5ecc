package ops

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// LinearCrossEntropyOptions are the options of [LinearCrossEntropy]: those of
// [SoftmaxCrossEntropy], and the weight's.
type LinearCrossEntropyOptions struct {
	IgnoreIndex    *int
	LabelSmoothing float64
	Reduction      kernels.Reduction // the mean or the sum
	Weights        *gorgonia.Node
	// WeightTransposed says that weight is (C, V), as [Linear] has it, instead of (V, C), as an
	// embedding table is.
	WeightTransposed bool
}

// LinearCrossEntropy is [SoftmaxCrossEntropy] of the logits x·weightᵀ, which are computed and used
// up some rows at a time, for vocabularies so large that the logits of a batch would be most of the
// memory: x is (..., C), weight is (V, C), such as the embedding table of a model with tied
// weights, and targets are (...).
//
// In a graph that is differentiated the forward run also computes the gradients of x and weight, of
// those two that are wanted, and keeps them for the backward run.
func LinearCrossEntropy(x, weight, targets *gorgonia.Node, o LinearCrossEntropyOptions) (*gorgonia.Node, error) {
	common := CrossEntropyOptions{IgnoreIndex: o.IgnoreIndex, LabelSmoothing: o.LabelSmoothing, Reduction: o.Reduction}
	k := linearCrossEntropy{o: common.forKernels(), transposed: o.WeightTransposed}
	return apply("LinearCrossEntropy", kernel{describe: k.describe, forward: k.forward, backward: k.backward},
		input{name: "x", node: x, form: denseForm, unread: true},
		input{name: "weight", node: weight, form: stridedForm, unread: true, roundsTo: floatOf(x)},
		input{name: "targets", node: targets, form: indexForm, unread: true},
		input{name: "weights", node: o.Weights, form: constantForm, optional: true, unread: true})
}

type linearCrossEntropy struct {
	o          kernels.CrossEntropyOptions
	transposed bool
}

func (k linearCrossEntropy) describe(in tensors) (description, error) {
	x, weight, targets := in[0], in[1], in[2]
	features := x.Shape[len(x.Shape)-1]
	axes, of := "(vocabulary, x's %d features)", 1
	if k.transposed {
		axes, of = "(x's %d features, vocabulary)", 0
	}
	switch {
	case len(x.Shape) < 2:
		return description{}, fmt.Errorf("x has shape %v, it needs at least two axes (..., features)", x.Shape)
	case len(weight.Shape) != 2 || weight.Shape[of] != features:
		return description{}, fmt.Errorf("weight has shape %v, it needs two axes "+axes, weight.Shape, features)
	case weight.DType != x.DType && weight.DType != x.DType.Wide():
		return description{}, errParameter("weight", weight, x)
	case !slices.Equal(targets.Shape, rowShape(x)):
		return description{}, fmt.Errorf("targets has shape %v, it needs one target for each row of x: %v", targets.Shape, rowShape(x))
	}
	is := described(x.DType.Wide())
	// They are for a gradient of the loss of 1, or the graph's loss scale.
	is.gradients, is.saves = fromForward, make(tensors, 2)
	return is, k.problem(in).Validate()
}

func (k linearCrossEntropy) problem(in tensors) *kernels.LinearCrossEntropy {
	p := &kernels.LinearCrossEntropy{
		Hidden: asMatrix(in[0]), Weight: k.byVocabulary(in[1]), CrossEntropyOptions: k.o,
		Targets: in[2].Reshape(in[2].Elements()),
	}
	p.Weights = in[3]
	return p
}

// byVocabulary views the weight, or its gradient, as (V, C).
func (k linearCrossEntropy) byVocabulary(t kernels.Tensor) kernels.Tensor {
	if k.transposed {
		return t.Permute(1, 0)
	}
	return t
}

func (k linearCrossEntropy) forward(r *run, in, out tensors) error {
	outputs := kernels.LinearCrossEntropyOutputs{Loss: out[0]}
	if r.wants(0) {
		dX, err := r.keep(0, in[0].DType, in[0].Shape...)
		if err != nil {
			return err
		}
		outputs.DHidden = asMatrix(dX)
	}
	if r.wants(1) {
		dW, err := r.keep(1, r.c.operands[1].dShape.DType, in[1].Shape...)
		if err != nil {
			return err
		}
		outputs.DWeight = k.byVocabulary(dW)
		if dtype := in[0].DType; dtype != in[1].DType { // the device finds the copy
			if _, err := r.rounded(dtype, in[1]); err != nil {
				return err
			}
		}
	}
	p := k.problem(in)
	if scale := &r.c.state.lossScale; r.wanted != nil && scale.Load() != nil {
		var err error
		if p.DLoss, err = r.scratch(out[0].DType); err != nil {
			return err
		}
		if err := scale.scaled(r, 1, p.DLoss); err != nil {
			return err
		}
	}
	return r.LinearCrossEntropy(p, outputs)
}

// backward hands out the gradients, multiplied by that of the loss.
func (k linearCrossEntropy) backward(r *run, _, dOut, d tensors) error {
	for i := range 2 {
		if !d[i].IsSet() {
			continue
		}
		if d[i] = r.saved(i); r.unit {
			continue
		}
		factor, err := r.scratchLike(d[i])
		if err != nil {
			return err
		}
		one, err := r.scratch(d[i].DType.Wide())
		if err != nil {
			return err
		}
		if err := errors.Join(r.Copy(one, dOut[0]), r.Broadcast(one, 1, factor), r.Mul(d[i], factor, d[i])); err != nil {
			return err
		}
	}
	return nil
}
