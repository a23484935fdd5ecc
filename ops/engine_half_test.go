package ops_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A node of 16 bits that is used several times has gradients that Gorgonia adds, and users add such
// nodes themselves: both machines do with this package's engine.
func TestHalfAddsUnderBothMachines(t *testing.T) {
	data := []float64{-2, -1, -0.5, 0, 0.25, 1, 3, 4}
	weights := []float64{1, -1, 2, 0.5, 1, 4, -2, 1}
	for _, dtype := range []tensor.Dtype{ops.BFloat16, ops.Float16} {
		for name, machine := range map[string]func(*gorgonia.ExprGraph, *gorgonia.Node) (gorgonia.VM, error){
			"tapeMachine": func(g *gorgonia.ExprGraph, x *gorgonia.Node) (gorgonia.VM, error) {
				return ops.NewMachine(g, gorgonia.BindDualValues(x))
			},
			"lispMachine": func(g *gorgonia.ExprGraph, _ *gorgonia.Node) (gorgonia.VM, error) {
				return gorgonia.NewLispMachine(g, gorgonia.WithEngine(ops.Engine())), nil
			},
		} {
			t.Run(name+"/"+dtype.String(), func(t *testing.T) {
				g := gorgonia.NewGraph()
				x := input(g, "x", dense(tensor.Float32, data, 2, 4))
				h := gorgonia.Must(ops.Cast(x, dtype))
				act := gorgonia.Must(ops.SiLU(h))
				sum := gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Add(act, h)), gorgonia.Must(ops.Mul(h, h))))
				loss := weightedSum(g, gorgonia.Must(ops.Cast(sum, tensor.Float32)), weights)
				if name == "tapeMachine" {
					if _, err := gorgonia.Grad(loss, x); err != nil {
						t.Fatal(err)
					}
				}
				vm, err := machine(g, x)
				if err != nil {
					t.Fatal(err)
				}
				run(t, vm)
				for i, got := range gradientOf(t, x) {
					s := 1 / (1 + math.Exp(-data[i]))
					want := weights[i] * (s*(1+data[i]*(1-s)) + 1 + 2*data[i])
					if !(math.Abs(got-want) <= 0x1p-7*(math.Abs(want)+4)) {
						t.Errorf("dx[%d] is %v, want %v", i, got, want)
					}
				}
			})
		}
	}
}
