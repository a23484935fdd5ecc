package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestSoftmaxCrossEntropy(t *testing.T) {
	var cases []opCase
	for _, shape := range [][]int{{1, 1}, {1, 7}, {5, 3}, {2, 3, 17}, {2, 2, 3, 33}} {
		for _, o := range crossEntropyOptions() {
			last := len(shape) - 1
			cases = append(cases, opCase{
				options: fmt.Sprintf("SoftmaxCrossEntropy with %+v", o),
				in:      []opInput{floats("logits", shape...), ids("targets", shape[last], shape[:last]...)},
				apply:   func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.SoftmaxCrossEntropy(in[0], in[1], o) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					loss, _, d := reference.CrossEntropy(&kernels.CrossEntropy{
						Logits: in[0], Targets: in[1], CrossEntropyOptions: kernels.CrossEntropyOptions(o),
					}, dOut[0])
					return []float64{loss}, [][]float64{d, nil}
				},
			})
		}
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
	var cases []opCase
	for _, c := range []struct {
		x          []int
		vocabulary int
	}{{[]int{1, 1}, 1}, {[]int{5, 3}, 7}, {[]int{2, 3, 17}, 33}, {[]int{300, 2}, 11}} {
		for _, o := range crossEntropyOptions() {
			for _, transposed := range []bool{false, true} {
				rows, features := c.x[:len(c.x)-1], c.x[len(c.x)-1]
				weight := floats("weight", c.vocabulary, features)
				if transposed {
					weight = floats("weight", features, c.vocabulary)
				}
				all := ops.LinearCrossEntropyOptions{
					IgnoreIndex: o.IgnoreIndex, LabelSmoothing: o.LabelSmoothing, Reduction: o.Reduction, WeightTransposed: transposed,
				}
				cases = append(cases, opCase{
					options: fmt.Sprintf("LinearCrossEntropy with %+v", all),
					in:      []opInput{floats("x", c.x...), weight, ids("targets", c.vocabulary, rows...)},
					apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
						return ops.LinearCrossEntropy(in[0], in[1], in[2], all)
					},
					want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
						p := &kernels.LinearCrossEntropy{
							Hidden: kernels.Of(float64sOf(in[0]), in[2].Elements(), features), Weight: in[1],
							Targets:             kernels.Of(kernels.Host[int64](in[2]), in[2].Elements()),
							CrossEntropyOptions: kernels.CrossEntropyOptions(o), DLoss: kernels.Of(dOut),
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
