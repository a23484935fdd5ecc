package kernels_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// A weight is the exponential to a millionth, or to the last bit of the whole number that it is,
// and never larger than that of a larger logit by more than such an error.
func TestChoiceWeight(t *testing.T) {
	const one = 1 << 40
	for _, temperature := range []float32{0.1, 1, 7} {
		for i := range 100_000 {
			z := float64(i) * -0.0003
			x := float32(z * float64(temperature))
			got, want := float64(kernels.ChoiceWeight(x, 0, temperature)), one*math.Exp(float64(x)/float64(temperature))
			if want < 0.9 {
				want = math.Floor(want)
			}
			if math.Abs(got-want) > 3e-6*want+1 {
				t.Fatalf("the weight of %v at temperature %v is %v, it needs to be %v", x, temperature, got, want)
			}
		}
	}
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		x, largest, temperature float32
		want                    uint64
	}{
		{3, 3, 1e-38, one}, {3, 3, inf, one}, {-inf, 3, 1, 0}, {-inf, 3, inf, 0}, {-1, 3, inf, one}, {-3e38, 3e38, 1, 0}, {2, 3, 1e-38, 0},
	} {
		if got := kernels.ChoiceWeight(c.x, c.largest, c.temperature); got != c.want {
			t.Errorf("the weight of %v beside %v at temperature %v is %d, it needs to be %d", c.x, c.largest, c.temperature, got, c.want)
		}
	}
}
