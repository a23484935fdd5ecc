package measure_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"pgregory.net/rapid"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		samples              []float64
		median, lower, upper float64
	}{
		{[]float64{3}, 3, 3, 3},
		{[]float64{4, 1, 3, 2}, 2.5, 1.75, 3.25},
		{[]float64{5, 1, 4, 2, 3}, 3, 2, 4},
		{nil, math.NaN(), math.NaN(), math.NaN()},
	} {
		s := measure.Summarize(c.samples)
		for _, v := range [][2]float64{{s.Median, c.median}, {s.Lower, c.lower}, {s.Upper, c.upper}} {
			if !near(v[0], v[1]) && !(math.IsNaN(v[0]) && math.IsNaN(v[1])) {
				t.Errorf("%v: %+v, want median %v, quartiles %v and %v", c.samples, s, c.median, c.lower, c.upper)
			}
		}
	}
}

// The ranks are in every table of the sign test: 6 samples are the fewest for 95%, 20 leave out
// five on each side.
func TestMedianInterval(t *testing.T) {
	for n, ranks := range map[int][2]int{5: {}, 6: {1, 6}, 9: {2, 8}, 15: {4, 12}, 20: {6, 15}, 50: {18, 33}} {
		samples := make([]float64, n)
		for i := range samples {
			samples[i] = float64(n - i)
		}
		low, high := measure.MedianInterval(samples, 0.95)
		if n == 5 {
			if !math.IsInf(low, -1) || !math.IsInf(high, 1) {
				t.Errorf("n=5: from %v to %v, it needs to be infinite", low, high)
			}
			continue
		}
		if low != float64(ranks[0]) || high != float64(ranks[1]) {
			t.Errorf("n=%d: ranks %v to %v, want %v", n, low, high, ranks)
		}
	}
}

// The probabilities of the first lines count arrangements by hand; those with ties are of the usual
// normal approximation with corrections for ties and continuity.
func TestMannWhitney(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		p    float64
	}{
		{[]float64{1}, []float64{2}, 1},
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 2.0 / 20},
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70},
		{[]float64{1, 2, 4}, []float64{3, 5, 6}, 4.0 / 20},
		{nil, []float64{1}, 1},
		{[]float64{1, 1, 1}, []float64{1, 1, 1}, 1},
		{[]float64{1, 2, 2, 3}, []float64{2, 4, 4, 5}, math.Erfc((6 - 0.5) / math.Sqrt(8.0/6*(9-30.0/56)) / math.Sqrt2)},
	} {
		if p := measure.MannWhitney(c.a, c.b); !near(p, c.p) {
			t.Errorf("%v and %v: p = %v, want %v", c.a, c.b, p, c.p)
		}
		if p, q := measure.MannWhitney(c.a, c.b), measure.MannWhitney(c.b, c.a); !near(p, q) {
			t.Errorf("%v and %v: p = %v one way and %v the other", c.a, c.b, p, q)
		}
	}
}

// Where nothing changed, a test at 5% must not see a change more often than that.
func TestMannWhitneyFalseAlarms(t *testing.T) {
	random, alarms := rand.New(rand.NewPCG(1, 1)), 0
	const trials = 2000
	for range trials {
		a, b := make([]float64, 8), make([]float64, 10)
		for _, s := range [][]float64{a, b} {
			for i := range s {
				s[i] = random.ExpFloat64()
			}
		}
		if measure.MannWhitney(a, b) < 0.05 {
			alarms++
		}
	}
	if share := float64(alarms) / trials; share > 0.065 || share < 0.02 {
		t.Errorf("%.1f%% false alarms at 5%%", 100*share)
	}
}

func TestShiftInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		factor := rapid.Float64Range(0.5, 2).Draw(t, "factor")
		random := rand.New(rand.NewPCG(seed, 1))
		before, after := make([]float64, 15), make([]float64, 15)
		for i := range before {
			before[i], after[i] = 1+0.01*random.Float64(), factor*(1+0.01*random.Float64())
		}
		shift, low, high := measure.ShiftInterval(before, after, 0.95, 7)
		if !(low <= shift && shift <= high) || !(math.Abs(shift-(factor-1)) <= 0.02*factor) || high-low > 0.03*factor {
			t.Fatalf("a factor of %v is seen as %v, from %v to %v", factor, shift, low, high)
		}
		if again, _, _ := measure.ShiftInterval(before, after, 0.95, 7); again != shift {
			t.Fatalf("%v, then %v from the same seed", shift, again)
		}
	})
}
