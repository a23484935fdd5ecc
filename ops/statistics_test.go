package ops_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Norms that hand out their statistics have the values and gradients of those that do not, also
// where a cost has the statistics in it, which are constants to it.
func TestNormStatistics(t *testing.T) {
	shape, c := []int{2, 3, 17}, 17
	r := rand.New(rand.NewPCG(3, 4))
	x, gamma, beta, dy := normal(r, 6*c), normal(r, c), normal(r, c), normal(r, 6*c)
	layer := &kernels.Norm{X: kernels.Of(x, shape...), Gamma: kernels.Of(gamma, c), Beta: kernels.Of(beta, c), Eps: 0.1}
	y, mean, rstd := reference.Norm[float64](layer)
	dx, dGamma, dBeta := reference.NormGrad(layer, dy)
	rms := &kernels.Norm{RMS: true, X: layer.X, Gamma: layer.Gamma, Eps: 0.1}
	rmsY, _, rmsRStd := reference.Norm[float64](rms)
	rmsDX, rmsDGamma, _ := reference.NormGrad(rms, dy)
	for _, machine := range append(machines, "no gradient") {
		for _, isRMS := range []bool{false, true} {
			g := gorgonia.NewGraph()
			in := gorgonia.Nodes{input(g, "x", dense(tensor.Float64, x, shape...)), input(g, "gamma", dense(tensor.Float64, gamma, c))}
			var outputs gorgonia.Nodes
			var want [][]float64
			if o := (ops.NormOptions{Epsilon: 0.1}); isRMS {
				out, rstd, err := ops.RMSNormStatistics(in[0], in[1], o)
				if err != nil {
					t.Fatal(err)
				}
				outputs, want = gorgonia.Nodes{out, rstd}, [][]float64{rmsY, rmsRStd, rmsDX, rmsDGamma}
			} else {
				in = append(in, input(g, "beta", dense(tensor.Float64, beta, c)))
				out, m, s, err := ops.LayerNormStatistics(in[0], in[1], in[2], o)
				if err != nil {
					t.Fatal(err)
				}
				outputs, want = gorgonia.Nodes{out, m, s}, [][]float64{y, mean, rstd, dx, dGamma, dBeta}
			}
			weights := input(g, "dy", dense(tensor.Float64, dy, shape...))
			loss := gorgonia.Must(ops.Sum(gorgonia.Must(gorgonia.HadamardProd(outputs[0], weights))))
			values := make([]gorgonia.Value, len(outputs))
			for i, n := range outputs {
				gorgonia.Read(n, &values[i])
			}
			for _, statistic := range outputs[1:] {
				loss = gorgonia.Must(gorgonia.Add(loss, gorgonia.Must(ops.Sum(statistic))))
			}
			var got [][]float64
			switch machine {
			case "lispMachine":
				run(t, gorgonia.NewLispMachine(g))
			case "tapeMachine":
				if _, err := gorgonia.Grad(loss, in...); err != nil {
					t.Fatal(err)
				}
				run(t, gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(in...)))
			default:
				run(t, gorgonia.NewTapeMachine(g))
				want = want[:len(outputs)]
			}
			for i, n := range outputs {
				if values[i] == nil { // a lispMachine reads nothing
					values[i] = n.Value()
				}
				got = append(got, float64s(t, values[i]))
			}
			for _, n := range in[:len(want)-len(outputs)] {
				got = append(got, gradientOf(t, n))
			}
			for i := range want {
				for j := range want[i] {
					if diff := math.Abs(got[i][j] - want[i][j]); !(diff <= 1e-12*(1+math.Abs(want[i][j]))) {
						t.Fatalf("%s, RMS %t: element %d of result %d is %v, want %v", machine, isRMS, j, i, got[i][j], want[i][j])
					}
				}
			}
		}
	}
}
