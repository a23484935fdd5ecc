package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// everywhere runs a test at every level of the machine, in both element types. What BFMMLA adds has
// none in these.
func everywhere(t *testing.T, single func(*testing.T), double func(*testing.T)) {
	for _, level := range Levels() {
		if level == BFMMLA {
			continue
		}
		t.Run(level.String(), func(t *testing.T) {
			defer SetLevel(level)()
			t.Run("float32", single)
			t.Run("float64", double)
		})
	}
}

// epsilon is the distance from 1 to the next number.
func epsilon[T kernels.Float]() float64 {
	if single32[T]() {
		return 0x1p-23
	}
	return 0x1p-52
}

func single32[T kernels.Float]() bool { return size[T]() == 4 }

// canary is what the cells around a tile hold. No kernel computes it.
const canary = -7654321

// fenced is a tile in memory full of canaries, the gaps between its rows included. The last row
// ends the memory's last but margin elements.
type fenced[T kernels.Float] struct {
	cells           []T
	rows, n, stride int
}

const margin = 40

func newFenced[T kernels.Float](r *rand.Rand, rows, n, stride int) fenced[T] {
	f := fenced[T]{make([]T, 2*margin+max(0, rows-1)*stride+max(n, 1)), rows, n, stride}
	for i := range f.cells {
		f.cells[i] = canary
	}
	for i := range rows {
		for j := range n {
			*f.at(i, j) = T(r.NormFloat64())
		}
	}
	return f
}

func (f fenced[T]) at(i, j int) *T { return &f.cells[margin+i*f.stride+j] }
func (f fenced[T]) first() *T      { return &f.cells[margin] }

func (f fenced[T]) clone() fenced[T] {
	f.cells = append([]T(nil), f.cells...)
	return f
}

// check compares the tile with what it should hold, within a bound that may depend on the element,
// and the cells around it with the canary.
func (f fenced[T]) check(t *testing.T, name, what string, want func(i, j int) float64, bound func(i, j int) float64) {
	t.Helper()
	inside := make([]bool, len(f.cells))
	for i := range f.rows {
		for j := range f.n {
			inside[margin+i*f.stride+j] = true
			got, want := float64(*f.at(i, j)), want(i, j)
			if math.IsNaN(want) {
				if !math.IsNaN(got) {
					t.Fatalf("%s: %s[%d][%d] is %g, want NaN", what, name, i, j, got)
				}
				continue
			}
			if got == want {
				continue
			}
			if b := bound(i, j); !(math.Abs(got-want) <= b) {
				t.Fatalf("%s: %s[%d][%d] is %.9g, want %.9g: off by %.3g, allowed are %.3g", what, name, i, j, got, want, got-want, b)
			}
		}
	}
	for i, in := range inside {
		if !in && f.cells[i] != canary {
			t.Fatalf("%s: %s was written %d elements from its start, outside of the tile", what, name, i-margin)
		}
	}
}

// same is the bound of what must be exact.
func same(int, int) float64 { return 0 }

func TestLevels(t *testing.T) {
	for _, c := range []struct {
		have  []Level
		asked string
		want  Level
		err   string
	}{
		{[]Level{Generic, AVX2, AVX512}, "", AVX512, ""},
		{[]Level{Generic, AVX2, AVX512}, "avx2", AVX2, ""},
		{[]Level{Generic, AVX2, AVX512}, "generic", Generic, ""},
		{[]Level{Generic, AVX2}, "avx512", AVX2, `STHENO_SIMD is "avx512", this machine has ["generic" "avx2"]`},
		{[]Level{Generic, AVX2}, "fast", AVX2, `STHENO_SIMD is "fast", it needs to be one of ["generic" "avx2" "avx512" "neon" "bfmmla"]`},
		{[]Level{Generic, NEON}, "", NEON, ""},
		{[]Level{Generic, NEON}, "neon", NEON, ""},
		{[]Level{Generic, NEON, BFMMLA}, "", BFMMLA, ""},
		{[]Level{Generic, NEON, BFMMLA}, "neon", NEON, ""},
		{[]Level{Generic, NEON}, "bfmmla", NEON, `STHENO_SIMD is "bfmmla", this machine has ["generic" "neon"]`},
		{[]Level{Generic, NEON}, "avx2", NEON, `STHENO_SIMD is "avx2", this machine has ["generic" "neon"]`},
		{[]Level{Generic}, "neon", Generic, `STHENO_SIMD is "neon", this machine has ["generic"]`},
	} {
		got, err := chooseLevel(c.have, c.asked)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if got != c.want || message != c.err {
			t.Errorf("%v, asked for %q: %v, %q; want %v, %q", c.have, c.asked, got, message, c.want, c.err)
		}
	}
	if got := fmt.Sprint(Generic, AVX2, AVX512, NEON, BFMMLA, Level(9)); got != "generic avx2 avx512 neon bfmmla Level(9)" {
		t.Errorf("levels print as %q", got)
	}
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r, "simd.SetLevel: Level(9)") {
			t.Errorf("SetLevel of a level that does not exist: %q", r)
		}
	}()
	SetLevel(9)
}

func TestPeak(t *testing.T) { everywhere(t, testPeak[float32], testPeak[float64]) }

func testPeak[T kernels.Float](t *testing.T) {
	if flops := Peak[T](10); !(flops > 0) {
		t.Errorf("ten rounds are %g operations", flops)
	}
	if flops := Peak[T](0); flops != 0 {
		t.Errorf("no rounds are %g operations", flops)
	}
}
