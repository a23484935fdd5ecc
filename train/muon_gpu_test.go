//go:build gpu

package train

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// Directions that a GPU computes of large matrices, half of whose symmetric products it leaves out,
// are as near to those of float64 as 16 bits let them be, whatever the matrices' singular values
// are.
func TestMuonOnTheDevice(t *testing.T) {
	gpu(t)
	device, err := cuda.Default()
	if err != nil {
		t.Fatal(err)
	}
	host := cpu.New()
	random := rand.New(rand.NewPCG(1, 2))
	for _, shapes := range [][][]int{
		{{2, 520, 1032}, {1, 520, 520}, {3, 1032, 520}},
		{{1, 768, 768}, {1, 768, 1536}},
		{{2, 64, 200}, {1, 200, 64}},
	} {
		for _, decay := range []float64{0, 1, 3} { // of the columns, which the singular values follow
			exact := Update{Backend: host, memory: new([]kernels.Tensor)}
			near := Update{Backend: device, memory: new([]kernels.Tensor)}
			y, err := exact.stacks(scratchMatrix, kernels.F64, shapes)
			if err != nil {
				t.Fatal(err)
			}
			at, list := 0, kernels.Host[float64](y.all)
			for _, shape := range shapes {
				for i := range elements(shape) {
					list[at] = float64(float32(random.NormFloat64() * math.Exp(-decay*float64(i%shape[2])/100)))
					at++
				}
			}
			deviceY, err := near.stacks(scratchMatrix, kernels.F32, shapes)
			if err != nil {
				t.Fatal(err)
			}
			singles := make([]float32, len(list))
			for i, x := range list {
				singles[i] = float32(x)
			}
			if err := device.Copy(deviceY.all, kernels.Of(singles, len(singles))); err != nil {
				t.Fatal(err)
			}
			want, err := Muon{}.orthogonalOf(exact, y)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // memory that was used before changes nothing
				got, err := Muon{}.orthogonalOf(near, deviceY)
				if err != nil {
					t.Fatal(err)
				}
				for k := range want {
					wide, err := device.Alloc(kernels.F32, got[k].Shape...)
					if err != nil {
						t.Fatal(err)
					}
					found := make([]float32, want[k].Elements())
					if err := firstError(device.Copy(wide, got[k]), device.Copy(kernels.Of(found, want[k].Shape...), wide)); err != nil {
						t.Fatal(err)
					}
					off, norm := 0.0, 0.0
					for i, x := range kernels.Host[float64](want[k]) {
						d := float64(found[i]) - x
						off, norm = off+d*d, norm+x*x
					}
					share := math.Sqrt(off / norm)
					t.Logf("%v, decay %v: %.2g of the norm", want[k].Shape, decay, share)
					if !(share <= 0.03) {
						t.Errorf("matrix %d of %v, decay %v, is off by %.3g of its norm", k, shapes, decay, share)
					}
				}
			}
		}
	}
}
