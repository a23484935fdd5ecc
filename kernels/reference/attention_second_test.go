package reference_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Second derivatives are compared with differences of ⟨gradients, U⟩ for random U.
func TestAttentionSecondByFiniteDifferences(t *testing.T) {
	slow.Emulated(t)
	waves := attentiontest.ScoreOf("waves", func(p score.Pair) score.Expr {
		return p.Score.Mul(p.Score).Mul(0.2).Sin().Add(p.Score.Mul(p.Key.Float()).Mul(0.1))
	})
	sets := append(attentiontest.OptionSets(), []attentiontest.Option{attentiontest.RowBiasOver("BQ"), attentiontest.Sinks},
		[]attentiontest.Option{waves, attentiontest.BiasOver("HQ"), attentiontest.SoftCap, attentiontest.Sinks},
		[]attentiontest.Option{attentiontest.MaskOf("dilated", score.Dilated(2)), attentiontest.DLSE})
	for n, options := range sets {
		for kind := range 3 {
			c := attentiontest.Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 4, Sk: 5, D: 3, Dv: 2, Options: options, Seed: uint64(n)}
			switch kind {
			case 1:
				c.Batch, c.Sq, c.Sk = 1, 9, 11 // empty sequences, and rows behind the last
				c.QLens, c.KVLens = []int{0, 2, 2, 5, 8}, []int{0, 4, 5, 5, 10}
			case 2:
				c.KVLengths, c.SharedKeys = []int{3, 5}, true
			}
			p := attentiontest.New[float64](c)
			random := rand.New(rand.NewPCG(uint64(n), uint64(kind)))
			draw := func(t kernels.Tensor) []float64 {
				if !t.IsSet() {
					return nil
				}
				list := make([]float64, t.Elements())
				for i := range list {
					list[i] = random.NormFloat64()
				}
				return list
			}
			in := reference.AttentionSecondInputs{DO: kernels.Host[float64](p.DO), UQ: draw(p.Q), UK: draw(p.K), UV: draw(p.V), UBias: draw(p.Bias), USinks: draw(p.Sinks)}
			in.DLSE = draw(kernels.Contiguous(nil, kernels.F64, p.Q.Shape[:3]...))
			phi := func() (sum float64) {
				g := reference.AttentionGrad(&p.Attention, in.DO, in.DLSE)
				for _, pair := range [][2][]float64{{g.DQ, in.UQ}, {g.DK, in.UK}, {g.DV, in.UV}, {g.DBias, in.UBias}, {g.DSinks, in.USinks}} {
					for i, u := range pair[1] {
						sum += u * pair[0][i]
					}
				}
				return sum
			}
			g := reference.AttentionSecond(&p.Attention, in)
			variables := []gradcheck.Variable{{Name: "dO", X: in.DO, Gradient: g.DDO}, {Name: "dLSE", X: in.DLSE, Gradient: g.DDLSE}}
			add := func(name string, x kernels.Tensor, gradient []float64) {
				if x.IsSet() {
					variables = append(variables, gradcheck.Variable{Name: name, X: kernels.Host[float64](x), Gradient: gradient})
				}
			}
			add("q", p.Q, g.DQ)
			add("k", p.K, g.DK)
			add("v", p.V, g.DV)
			add("bias", p.Bias, g.DBias)
			add("sinks", p.Sinks, g.DSinks)
			if err := gradcheck.Function(phi, variables, gradcheck.Options{Seed: uint64(n), Elements: 8, Directions: 2}); err != nil {
				t.Fatalf("%v: %v", c, err)
			}
		}
	}
}
