package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// bands are (lo, hi) of a tile of n columns: everything, diagonals from each side, windows, and
// none at all.
func bands(n int) [][2]int {
	list := [][2]int{{-1 << 40, 1 << 40}, {-1 << 40, -1 << 40}, {1 << 40, 1 << 41}, {0, n}, {n, 2 * n}, {5, 5}, {7, 4}}
	for x := -9; x <= n; x += 5 {
		list = append(list, [2]int{-1 << 40, x}, [2]int{x, 1 << 40}, [2]int{x, x + 1}, [2]int{x, x + 3}, [2]int{x - 20, x + 20})
	}
	return list
}

func TestSoftmax(t *testing.T) { everywhere(t, testSoftmax[float32], testSoftmax[float64]) }

func testSoftmax[T kernels.Float](t *testing.T) {
	const seed = 4
	r := rand.New(rand.NewPCG(seed, 0))
	lanes := Lanes[T]()
	for _, rows := range []int{1, 2, 13} {
		for _, n := range []int{1, 2, 5, 8, 16, 17, 40, 64} {
			for b, band := range bands(n) {
				for _, scale := range []float64{0.3, 30, 0x1p-40} {
					if scale != 0.3 && b%7 != 0 {
						continue
					}
					oneSoftmax[T](t, r, rows, n, b%3*lanes, T(scale), band[0], band[1], seed)
				}
			}
		}
	}
}

// oneSoftmax takes two steps, so that the second finds maxima and sums: some of the maxima stay,
// some grow.
func oneSoftmax[T kernels.Float](t *testing.T, r *rand.Rand, rows, n, d int, scale T, lo, hi int, seed uint64) {
	t.Helper()
	what := fmt.Sprintf("rows=%d n=%d d=%d scale=%g lo=%d hi=%d seed=%d", rows, n, d, scale, lo, hi, seed)
	o := newFenced[T](r, rows, d, d+3)
	m, l := newFenced[T](r, 1, rows, 0), newFenced[T](r, 1, rows, 0)
	for i := range rows {
		*m.at(0, i), *l.at(0, i) = -T(maxFloat[T]()), 0
	}
	for range 2 {
		s := newFenced[T](r, rows, roundUp[T](n), n+lanesAbove[T]())
		for i := range rows {
			for j := range s.n {
				if !visible(i, j, n, lo, hi) {
					*s.at(i, j) = T([]float64{math.NaN(), math.Inf(1), 5, 1e30}[(i+j)%4])
				}
			}
		}
		wantS, wantM, wantL, wantO := softmaxReference(s, m, l, o, n, scale, lo, hi)
		Softmax(rows, n, s.first(), s.stride, m.first(), l.first(), o.first(), o.stride, d, scale, lo, hi)
		eps := epsilon[T]()
		// The error of x is that of a product of this size.
		tolerance := func(i int, x float64) float64 {
			return 4*eps*math.Abs(x) + eps*math.Abs(float64(scale**m.at(0, i))*x) + tiny[T]()
		}
		s.check(t, "p", what, wantS, func(i, j int) float64 {
			return tolerance(i, wantS(i, j)) + 8*eps*math.Abs(float64(scale))*wantS(i, j)
		})
		m.check(t, "m", what, wantM, func(_, i int) float64 { return eps * math.Abs(wantM(0, i)) })
		l.check(t, "l", what, wantL, func(_, i int) float64 {
			return 4*tolerance(i, wantL(0, i)) + 16*eps*math.Abs(float64(scale))*wantL(0, i)
		})
		o.check(t, "o", what, wantO, func(i, e int) float64 {
			return 4*tolerance(i, wantO(i, e)) + 16*eps*math.Abs(float64(scale)*wantO(i, e))
		})
	}
}

// softmaxReference is the definition in float64.
func softmaxReference[T kernels.Float](s, m, l, o fenced[T], n int, scale T, lo, hi int) (wantS, wantM, wantL, wantO func(i, j int) float64) {
	before := s.clone()
	oBefore := o.clone()
	most, sum, shrink := make([]float64, s.rows), make([]float64, s.rows), make([]float64, s.rows)
	p := func(i, j int) float64 {
		if !visible(i, j, n, lo, hi) {
			return 0
		}
		return math.Exp2((float64(*before.at(i, j)) - most[i]) * float64(scale))
	}
	for i := range s.rows {
		most[i], sum[i] = float64(*m.at(0, i)), float64(*l.at(0, i))
		for j := range n {
			if visible(i, j, n, lo, hi) {
				most[i] = max(most[i], float64(*before.at(i, j)))
			}
		}
		shrink[i] = math.Exp2((float64(*m.at(0, i)) - most[i]) * float64(scale))
		sum[i] *= shrink[i]
		for j := range n {
			sum[i] += p(i, j)
		}
	}
	return p,
		func(_, i int) float64 { return most[i] },
		func(_, i int) float64 { return sum[i] },
		func(i, e int) float64 { return float64(*oBefore.at(i, e)) * shrink[i] }
}

func visible(i, j, n, lo, hi int) bool { return j >= lo+i && j < hi+i && j < n }

// lanesAbove is how far rows lie apart beyond their columns: room for whole vectors, and then some.
func lanesAbove[T kernels.Float]() int { return Lanes[T]() + 3 }

func maxFloat[T kernels.Float]() float64 {
	if single32[T]() {
		return math.MaxFloat32
	}
	return math.MaxFloat64
}

// tiny is the smallest normal number: below it results may be zero.
func tiny[T kernels.Float]() float64 {
	if single32[T]() {
		return 0x1p-126
	}
	return 0x1p-1022
}

func TestSoftmaxExtremes(t *testing.T) {
	everywhere(t, testSoftmaxExtremes[float32], testSoftmaxExtremes[float64])
}

// testSoftmaxExtremes has one strange row among ordinary ones.
func testSoftmaxExtremes[T kernels.Float](t *testing.T) {
	const rows, n, d, strange, seed = 5, 21, 16, 2, 5
	var inf, nan = math.Inf(1), math.NaN()
	for _, c := range []struct {
		name     string
		score    func(j int) float64
		p, m, l  float64 // of the strange row, in every column; −1: not looked at
		lo, hi   int
		thenGood bool // a second, ordinary tile follows
	}{
		{name: "all -Inf", score: func(int) float64 { return -inf }, p: 0, m: -maxFloat[T](), l: 0, hi: n},
		{name: "one NaN at the start", score: oneOf(0, nan), p: nan, m: nan, l: nan, hi: n},
		{name: "one NaN at the end", score: oneOf(n-1, nan), p: -1, m: nan, l: nan, hi: n},
		{name: "one NaN, then a good tile", score: oneOf(7, nan), p: -1, m: nan, l: nan, hi: n, thenGood: true},
		{name: "one Inf", score: oneOf(3, inf), p: -1, m: nan, l: nan, hi: n},
		{name: "all equal and huge", score: func(int) float64 { return -1e30 }, p: 1, m: -1, l: n, hi: n},
		{name: "all equal and the lowest", score: func(int) float64 { return -maxFloat[T]() }, p: 1, m: -maxFloat[T](), l: n, hi: n},
		{name: "far below zero", score: func(j int) float64 { return -0x1p20 - float64(j) }, p: 1, m: -0x1p20, l: -1, hi: n},
	} {
		r := rand.New(rand.NewPCG(seed, 0))
		s, o := newFenced[T](r, rows, roundUp[T](n), 40), newFenced[T](r, rows, d, d)
		m, l := newFenced[T](r, 1, rows, 0), newFenced[T](r, 1, rows, 0)
		for i := range rows {
			*m.at(0, i), *l.at(0, i) = -T(maxFloat[T]()), 0
		}
		for j := range n {
			*s.at(strange, j) = T(c.score(j))
		}
		step := func() {
			Softmax(rows, n, s.first(), s.stride, m.first(), l.first(), o.first(), o.stride, d, 1.5, -1<<40, 1<<40)
		}
		step()
		if c.thenGood {
			again := newFenced[T](r, rows, roundUp[T](n), 40)
			copy(s.cells, again.cells)
			step()
		}
		for i := range rows {
			if i != strange {
				for j := range n {
					if p := float64(*s.at(i, j)); math.IsNaN(p) || math.IsNaN(float64(*l.at(0, i))) || math.IsNaN(float64(*m.at(0, i))) {
						t.Errorf("%s: row %d is not ordinary: p[%d]=%g l=%g m=%g", c.name, i, j, p, *l.at(0, i), *m.at(0, i))
					}
				}
				continue
			}
			for _, x := range []struct {
				name      string
				got, want float64
			}{{"p[0]", float64(*s.at(i, 0)), c.p}, {"m", float64(*m.at(0, i)), c.m}, {"l", float64(*l.at(0, i)), c.l}} {
				if x.want != -1 && x.got != x.want && !(math.IsNaN(x.got) && math.IsNaN(x.want)) {
					t.Errorf("%s: %s is %g, want %g", c.name, x.name, x.got, x.want)
				}
			}
		}
	}
}

// oneOf is an ordinary row with one strange score.
func oneOf(at int, x float64) func(int) float64 {
	return func(j int) float64 {
		if j == at {
			return x
		}
		return float64(j%5) - 2
	}
}

func TestSoftmaxGrad(t *testing.T) { everywhere(t, testSoftmaxGrad[float32], testSoftmaxGrad[float64]) }

func testSoftmaxGrad[T kernels.Float](t *testing.T) {
	const seed = 6
	r := rand.New(rand.NewPCG(seed, 0))
	for _, rows := range []int{1, 2, 13} {
		for _, n := range []int{1, 5, 8, 16, 17, 40, 64} {
			for b, band := range bands(n) {
				scale := T([]float64{0.3, 0x1p-40, 4, 2}[b%4])
				lo, hi := band[0], band[1]
				what := fmt.Sprintf("rows=%d n=%d scale=%g lo=%d hi=%d seed=%d", rows, n, scale, lo, hi, seed)
				stride := n + lanesAbove[T]()
				s, dp := newFenced[T](r, rows, roundUp[T](n), stride), newFenced[T](r, rows, roundUp[T](n), stride)
				lse, delta := newFenced[T](r, 1, rows, 0), newFenced[T](r, 1, rows, 0)
				for i := range rows {
					*lse.at(0, i) += 3
					switch i {
					case 3: // a row without keys in forward
						*lse.at(0, i) = T(math.Inf(1))
					case 5: // a mask in the bias
						*s.at(i, 0) = T(math.Inf(-1))
					case 7: // far below zero
						*lse.at(0, i) -= 0x1p20
						for j := range n {
							*s.at(i, j) -= 0x1p20
						}
					}
					for j := range s.n {
						if !visible(i, j, n, lo, hi) {
							*s.at(i, j), *dp.at(i, j) = T(math.NaN()), T(math.Inf(-1))
						}
					}
				}
				beforeS, beforeDP := s.clone(), dp.clone()
				SoftmaxGrad(rows, n, s.first(), dp.first(), stride, lse.first(), delta.first(), scale, lo, hi)
				p := func(i, j int) float64 {
					if !visible(i, j, n, lo, hi) {
						return 0
					}
					return math.Exp2(min(0, (float64(*beforeS.at(i, j))-float64(*lse.at(0, i)))*float64(scale)))
				}
				grad := func(i, j int) float64 {
					if !visible(i, j, n, lo, hi) {
						return 0
					}
					return p(i, j) * (float64(*beforeDP.at(i, j)) - float64(*delta.at(0, i)))
				}
				eps := epsilon[T]()
				s.check(t, "p", what, p, func(i, j int) float64 { return 12*eps*p(i, j) + tiny[T]() })
				dp.check(t, "dp", what, grad, func(i, j int) float64 {
					return eps*p(i, j)*(14*math.Abs(float64(*beforeDP.at(i, j)))+14*math.Abs(float64(*delta.at(0, i)))) + tiny[T]()
				})
			}
		}
	}
}

// TestExp2 looks at the exponential alone: with a row's maximum of 0 and a scale of 1, p is 2^s.
func TestExp2(t *testing.T) { everywhere(t, testExp2[float32], testExp2[float64]) }

func testExp2[T kernels.Float](t *testing.T) {
	const n, seed = 512, 7
	r := rand.New(rand.NewPCG(seed, 0))
	lowest := math.Log2(tiny[T]())
	allowed := 1.5 * epsilon[T]()
	for _, width := range []float64{1, 3, 20, -lowest} {
		for range 20 {
			s, m, l := make([]T, n), []T{0}, []T{0}
			for j := range s {
				s[j] = -T(r.Float64() * width)
			}
			s[0], s[1], s[2], s[3], s[4] = 0, -1, -0.5, T(lowest), T(-epsilon[T]()/8)
			p := append([]T(nil), s...)
			var o T
			Softmax(1, n, &p[0], n, &m[0], &l[0], &o, 0, 0, 1, 0, n)
			for j := range s {
				want := math.Exp2(float64(s[j]))
				if e := math.Abs(float64(p[j])-want) / want; e > allowed {
					t.Fatalf("2^%g is %g, want %g: relative error %.3g, allowed are %.3g; seed=%d", s[j], p[j], want, e, allowed, seed)
				}
			}
			if p[0] != 1 || p[1] != 0.5 {
				t.Fatalf("2^0 is %g, 2^-1 is %g", p[0], p[1])
			}
		}
	}
	for _, x := range []float64{2 * lowest, 1000 * lowest, -maxFloat[T](), math.Inf(-1)} {
		p, m, l, o := []T{T(x)}, []T{0}, []T{0}, T(0)
		p = append(p, make([]T, Lanes[T]())...)
		Softmax(1, 1, &p[0], 1, &m[0], &l[0], &o, 0, 0, 1, 0, 1)
		if p[0] != 0 {
			t.Errorf("2^%g is %g, want 0", x, p[0])
		}
	}
}
