package cpu_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/internal/scoretest"
)

var (
	drawnScores = flag.Int("scores", 0, "how many programs of scores and masks to draw, in place of those of every run")
	scoreSeed   = flag.Uint64("score-seed", 0, "the first seed of those programs; 0 takes the clock's")
)

// Programs of scores and masks that are drawn from the whole language compute what a plain
// interpreter says, in every type.
func TestDrawnScores(t *testing.T) {
	always, fresh, seed := 400, 100, *scoreSeed
	if testing.Short() {
		always, fresh = 24, 6
	}
	if *drawnScores > 0 {
		always, fresh = 0, *drawnScores
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%d programs from seed 1 on, %d from seed %d on", always, fresh, seed)
	bounds := map[string][]float64{}
	for n := range uint64(always + fresh) {
		at := 1 + n
		if n >= uint64(always) {
			at = seed + n - uint64(always)
		}
		checkDrawn(t, scoretest.Draw(at), bounds)
		if t.Failed() {
			return
		}
	}
	for name, most := range map[string]float64{"float64 o": 1e-11, "float32 o": 1e-3, "float64 dq": 1e-10, "float32 dq": 1e-2} {
		list := bounds[name]
		slices.Sort(list)
		median := list[len(list)/2]
		t.Logf("%s: %d programs, the median bound is %.2g of the largest element", name, len(list), median)
		if median > most {
			t.Errorf("the median bound of %s is %.2g of its largest element, at most %.2g would find faults", name, median, most)
		}
	}
}

// checkDrawn compares a case in float64, in float32 and in one of the types of 16 bits, and
// collects the bounds of what it compares.
func checkDrawn(t *testing.T, c *scoretest.Case, bounds map[string][]float64) {
	half := []scoretest.Arithmetic{scoretest.BFloat16, scoretest.Float16}[c.Seed%2]
	for _, m := range []scoretest.Arithmetic{scoretest.Float64, scoretest.Float32, half} {
		check := func(c *scoretest.Case) error {
			r, err := c.Check(cpu.New(), m)
			for name, x := range r.Bounds {
				bounds[m.Name+" "+name] = append(bounds[m.Name+" "+name], x)
			}
			return err
		}
		if err := check(c); err != nil {
			t.Error(scoretest.Shrink(c, err, check))
		}
	}
}
