package kernels_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestDropoutKeeps(t *testing.T) {
	const rows, columns = 200, 1000
	for _, p := range []float64{0, 0.1, 0.5, 0.97} {
		d := kernels.Dropout{P: p, Seed: 42, Step: 7}
		kept := 0
		for i := range rows {
			for j := range columns {
				if d.Keep(3, i, j) {
					kept++
				}
			}
		}
		share, deviation := float64(kept)/(rows*columns), math.Sqrt(p*(1-p)/(rows*columns))
		if !(math.Abs(share-(1-p)) <= 4*deviation) {
			t.Errorf("dropout %v keeps %v, it needs to be within %v of %v", p, share, 4*deviation, 1-p)
		}
		if mean := share * d.Scale(); !(math.Abs(mean-1) <= 4*deviation/(1-p)) {
			t.Errorf("dropout %v has a mean of %v, it needs to be 1", p, mean)
		}
	}
}

// The layout of counter and words is part of the contract between devices: each word has two
// columns, the lower half first.
func TestDropoutPosition(t *testing.T) {
	d := kernels.Dropout{P: 0.4, Seed: 0x299f31d0a4093822, Step: 5}
	for plane := range 3 {
		for row := range 5 {
			for column := range 21 {
				words := kernels.Philox(7, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{5, uint32(plane), uint32(row), uint32(column / 8)})
				number := words[column%8/2] & 0xffff
				if column%2 == 1 {
					number = words[column%8/2] >> 16
				}
				want := float64(number) >= 0.4*(1<<16)
				if got := d.Keep(plane, row, column); got != want {
					t.Errorf("plane %d row %d column %d is kept: %v, it needs to be %v", plane, row, column, got, want)
				}
			}
		}
	}
}

// Masks of different seeds, steps and planes have nothing in common but their density.
func TestDropoutMasksAreIndependent(t *testing.T) {
	const p, elements = 0.5, 40000
	base := kernels.Dropout{P: p, Seed: 1}
	for name, other := range map[string]func(i int) bool{
		"seed":      func(i int) bool { return kernels.Dropout{P: p, Seed: 2}.Keep(0, i/200, i%200) },
		"high seed": func(i int) bool { return kernels.Dropout{P: p, Seed: 1 + 1<<32}.Keep(0, i/200, i%200) },
		"step":      func(i int) bool { return kernels.Dropout{P: p, Seed: 1, Step: 1}.Keep(0, i/200, i%200) },
		"plane":     func(i int) bool { return base.Keep(1, i/200, i%200) },
		"row":       func(i int) bool { return base.Keep(0, 1+i/200, i%200) },
		"column":    func(i int) bool { return base.Keep(0, i/200, 1+i%200) },
	} {
		same := 0
		for i := range elements {
			if other(i) == base.Keep(0, i/200, i%200) {
				same++
			}
		}
		if share := float64(same) / elements; !(math.Abs(share-0.5) <= 4*0.5/math.Sqrt(elements)) {
			t.Errorf("masks that differ in their %s agree on %v of the elements, it needs to be a half", name, share)
		}
	}
}

func TestDropoutThreshold(t *testing.T) {
	const part = 1. / (1 << 16)
	for _, c := range []struct {
		p     float64
		want  uint32
		scale float64
	}{
		{0, 0, 1}, {0.49 * part, 0, 1}, {0.51 * part, 1, 1 / (1 - part)}, {0.1, 6554, 1 / (1 - 6554*part)}, {0.5, 1 << 15, 2},
		{1 - 0.51*part, 1<<16 - 1, 1 << 16},
	} {
		d := kernels.Dropout{P: c.p}
		if err := d.Validate(); err != nil {
			t.Errorf("dropout %v: %v", c.p, err)
		}
		if got := d.Threshold(); got != c.want {
			t.Errorf("the threshold of %v is %d instead of %d", c.p, got, c.want)
		}
		if got := d.Scale(); !(math.Abs(got-c.scale) <= 1e-15*c.scale) {
			t.Errorf("the scale of %v is %v instead of %v", c.p, got, c.scale)
		}
	}
}

// A probability that rounds to 1 leaves nothing to scale up.
func TestDropoutOfAlmostEverything(t *testing.T) {
	for _, p := range []float64{1 - 1./(1<<18), 1 - 1./(1<<40)} {
		err := kernels.Dropout{P: p}.Validate()
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint("dropout is ", p)) {
			t.Errorf("dropout %v: error %v, it needs to name the probability", p, err)
		}
	}
}
