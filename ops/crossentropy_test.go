package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestSoftmaxCrossEntropy(t *testing.T) {
	var cases []opCase
	for _, shape := range [][]int{{1, 1}, {1, 7}, {5, 3}, {2, 3, 17}, {2, 2, 3, 33}} {
		for _, o := range append(crossEntropyOptions(), ops.CrossEntropyOptions{Reduction: kernels.NoReduction},
			ops.CrossEntropyOptions{Reduction: kernels.NoReduction, LabelSmoothing: 0.2}) {
			last := len(shape) - 1
			weights := classWeights(shape[last])
			for _, weighted := range []bool{false, true} {
				cases = append(cases, opCase{
					options: fmt.Sprintf("SoftmaxCrossEntropy with %+v, weighted %t", o, weighted),
					in:      []opInput{floats("logits", shape...), ids("targets", shape[last], shape[:last]...)},
					apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
						o := o
						if weighted {
							o.Weights = input(in[0].Graph(), "classWeights", dense(in[0].Dtype(), weights, shape[last]))
						}
						return ops.SoftmaxCrossEntropy(in[0], in[1], o)
					},
					want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
						c := &kernels.CrossEntropy{Logits: in[0], Targets: in[1], CrossEntropyOptions: forReference(o, weighted, weights)}
						if o.Reduction == kernels.NoReduction {
							losses, _, d := reference.CrossEntropyRows(c, dOut)
							return losses, [][]float64{d, nil}
						}
						loss, _, d := reference.CrossEntropy(c, dOut[0])
						return []float64{loss}, [][]float64{d, nil}
					},
				})
			}
		}
	}
	testOp(t, cases)
}

// classWeights are different, one of them 0 where there are several.
func classWeights(n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = 0.5 + float64(i*5%7)/3
	}
	list[n/2] *= float64(1 / n)
	return list
}

func forReference(o ops.CrossEntropyOptions, weighted bool, weights []float64) kernels.CrossEntropyOptions {
	k := kernels.CrossEntropyOptions{IgnoreIndex: o.IgnoreIndex, LabelSmoothing: o.LabelSmoothing, Reduction: o.Reduction}
	if weighted {
		k.Weights = kernels.Of(weights, len(weights))
	}
	return k
}

func TestLogSoftmax(t *testing.T) {
	var cases []opCase
	for _, shape := range [][]int{{1}, {7}, {1, 1}, {5, 3}, {2, 3, 17}, {2, 300}} {
		cases = append(cases, opCase{
			options: "LogSoftmax",
			in:      []opInput{floats("x", shape...)},
			apply:   func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.LogSoftmax(in[0]) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				y, dx := reference.LogSoftmax(in[0], dOut)
				return y, [][]float64{dx}
			},
		})
	}
	testOp(t, cases)
}

// crossEntropyOptions are each option alone, and all of them.
func crossEntropyOptions() []ops.CrossEntropyOptions {
	zero, negative := 0, -100
	return []ops.CrossEntropyOptions{
		{}, {IgnoreIndex: &zero}, {IgnoreIndex: &negative}, {LabelSmoothing: 0.1}, {Reduction: kernels.SumReduction},
		{IgnoreIndex: &zero, LabelSmoothing: 0.3, Reduction: kernels.SumReduction},
	}
}

func TestLinearCrossEntropy(t *testing.T) {
	slow.Emulated(t)
	var cases []opCase
	for _, c := range []struct {
		x          []int
		vocabulary int
	}{{[]int{1, 1}, 1}, {[]int{5, 3}, 7}, {[]int{2, 3, 17}, 33}, {[]int{300, 2}, 11}} {
		for _, o := range crossEntropyOptions() {
			for flags := range 4 {
				transposed, weighted := flags&1 != 0, flags&2 != 0
				weights := classWeights(c.vocabulary)
				rows, features := c.x[:len(c.x)-1], c.x[len(c.x)-1]
				weight := floats("weight", c.vocabulary, features)
				if transposed {
					weight = floats("weight", features, c.vocabulary)
				}
				all := ops.LinearCrossEntropyOptions{
					IgnoreIndex: o.IgnoreIndex, LabelSmoothing: o.LabelSmoothing, Reduction: o.Reduction, WeightTransposed: transposed,
				}
				cases = append(cases, opCase{
					options: fmt.Sprintf("LinearCrossEntropy with %+v, weighted %t", all, weighted),
					in:      []opInput{floats("x", c.x...), weight, ids("targets", c.vocabulary, rows...)},
					apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
						all := all
						if weighted {
							all.Weights = input(in[0].Graph(), "classWeights", dense(in[0].Dtype(), weights, c.vocabulary))
						}
						return ops.LinearCrossEntropy(in[0], in[1], in[2], all)
					},
					want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
						p := &kernels.LinearCrossEntropy{
							Hidden: kernels.Of(float64sOf(in[0]), in[2].Elements(), features), Weight: in[1],
							Targets:             kernels.Of(kernels.Host[int64](in[2]), in[2].Elements()),
							CrossEntropyOptions: forReference(o, weighted, weights), DLoss: kernels.Of(dOut),
						}
						if transposed {
							p.Weight = p.Weight.Permute(1, 0)
						}
						loss, dx, dw := reference.LinearCrossEntropy[float64](p)
						if transposed {
							dw = ordered(kernels.Of(dw, c.vocabulary, features).Permute(1, 0))
						}
						return []float64{loss}, [][]float64{dx, dw, nil}
					},
				})
			}
		}
	}
	testOp(t, cases)
}
