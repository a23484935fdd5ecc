package kernels_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// The known answers that the authors of Philox publish for Philox4x32-10.
func TestPhilox(t *testing.T) {
	const ones = 0xffffffff
	for _, c := range []struct {
		key     [2]uint32
		counter [4]uint32
		want    [4]uint32
	}{
		{[2]uint32{}, [4]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[2]uint32{ones, ones}, [4]uint32{ones, ones, ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := kernels.Philox(c.key, c.counter); got != c.want {
			t.Errorf("key %08x counter %08x: %08x instead of %08x", c.key, c.counter, got, c.want)
		}
	}
}

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
		if math.Abs(share-(1-p)) > 4*deviation {
			t.Errorf("dropout %v keeps %v, it needs to be within %v of %v", p, share, 4*deviation, 1-p)
		}
		if mean := share * d.Scale(); math.Abs(mean-1) > 4*deviation/(1-p) {
			t.Errorf("dropout %v has a mean of %v, it needs to be 1", p, mean)
		}
	}
}

// The layout of the counter is part of the contract between devices: a word is compared with the threshold as is.
func TestDropoutPosition(t *testing.T) {
	d := kernels.Dropout{P: 0.4, Seed: 0x299f31d0a4093822, Step: 5}
	for plane := range 3 {
		for row := range 5 {
			for column := range 13 {
				words := kernels.Philox([2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{5, uint32(plane), uint32(row), uint32(column / 4)})
				want := float64(words[column%4]) >= 0.4*(1<<32)
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
		if share := float64(same) / elements; math.Abs(share-0.5) > 4*0.5/math.Sqrt(elements) {
			t.Errorf("masks that differ in their %s agree on %v of the elements, it needs to be a half", name, share)
		}
	}
}

func TestDropoutThreshold(t *testing.T) {
	for _, c := range []struct {
		p    float64
		want uint32
	}{{0, 0}, {0.5, 1 << 31}, {1. / (1 << 32), 1}, {1 - 1./(1<<40), math.MaxUint32}} {
		if got := (kernels.Dropout{P: c.p}).Threshold(); got != c.want {
			t.Errorf("the threshold of %v is %d instead of %d", c.p, got, c.want)
		}
	}
}
