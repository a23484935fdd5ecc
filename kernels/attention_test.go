package kernels_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
	"pgregory.net/rapid"
)

// shaped returns a row-major tensor without data.
func shaped(shape ...int) kernels.Tensor { return kernels.Contiguous(nil, kernels.F32, shape...) }

// valid returns a problem without options: two batch items, four query heads, two key heads.
func valid() kernels.Attention {
	return kernels.Attention{Q: shaped(2, 4, 5, 8), K: shaped(2, 2, 7, 8), V: shaped(2, 2, 7, 6)}
}

// validPacked returns a problem of two packed sequences: 2 and 3 queries, 4 and 3 keys.
func validPacked() kernels.Attention {
	return kernels.Attention{Q: shaped(1, 4, 5, 8), K: shaped(1, 2, 7, 8), V: shaped(1, 2, 7, 6), Lengths: kernels.Lengths{QLens: []int{0, 2, 5}, KVLens: []int{0, 4, 7}}}
}

// changed adds a number to scores, below shows scores that are below one.
func changed(number float64) *score.Score {
	s, err := score.NewScore(func(p score.Pair) score.Expr { return p.Score.Add(number) })
	if err != nil {
		panic(err)
	}
	return s
}

func below(number float64) *score.Mask {
	m, err := score.NewMask(func(p score.Pair) score.Cond { return p.Key.Float().Less(number) })
	if err != nil {
		panic(err)
	}
	return m
}

func TestValidateAccepts(t *testing.T) {
	for name, change := range map[string]func(a *kernels.Attention){
		"nothing special": func(a *kernels.Attention) {},
		"no rows":         func(a *kernels.Attention) { a.Q = shaped(2, 4, 0, 8) },
		"no keys":         func(a *kernels.Attention) { a.K, a.V = shaped(2, 2, 0, 8), shaped(2, 2, 0, 6) },
		"an empty batch":  func(a *kernels.Attention) { a.Q, a.K, a.V = shaped(0, 4, 5, 8), shaped(0, 2, 7, 8), shaped(0, 2, 7, 6) },
		"another layout":  func(a *kernels.Attention) { a.Q = shaped(2, 5, 4, 8).Permute(0, 2, 1, 3) },
		"a shared key":    func(a *kernels.Attention) { a.K.Strides[0] = 0 },
		"any stride for size 1": func(a *kernels.Attention) {
			a.Q, a.K = shaped(2, 4, 5, 1), shaped(2, 2, 7, 1)
			a.Q.Strides[3] = 9
		},
		"every option": func(a *kernels.Attention) {
			a.Bias, a.Sinks, a.ALiBi = shaped(2, 4, 5, 7), shaped(4), []float64{1, .5, .25, 0}
			a.Scale, a.SoftCap, a.Window, a.Causal = -2, 30, &kernels.Window{Left: -1, Right: 0}, kernels.CausalTopLeft
			a.Dropout, a.Precision, a.Deterministic = kernels.Dropout{P: 0.9}, kernels.PrecisionFloat16, true
		},
		"a broadcast bias":    func(a *kernels.Attention) { a.Bias = shaped(1, 1, 1, 7) },
		"a bias for all keys": func(a *kernels.Attention) { a.Bias = shaped(2, 1, 5, 1) },
		"a float32 bias and sinks beside 16-bit inputs": func(a *kernels.Attention) {
			a.Q.DType, a.K.DType, a.V.DType, a.Bias, a.Sinks = kernels.F16, kernels.F16, kernels.F16, shaped(2, 1, 5, 7), shaped(4)
		},
		"keys of one batch item": func(a *kernels.Attention) { a.K, a.V = shaped(1, 2, 7, 8), shaped(1, 2, 7, 6) },
		"lengths of keys":        func(a *kernels.Attention) { a.KVLengths = []int{0, 7} },
		"an empty sequence, and rows behind the last": func(a *kernels.Attention) {
			*a = validPacked()
			a.QLens, a.KVLens = []int{0, 2, 2, 3}, []int{0, 0, 4, 6}
		},
		"a window beside the diagonal":             func(a *kernels.Attention) { a.Window = &kernels.Window{Left: 1, Shift: -5} },
		"a score of −∞":                            func(a *kernels.Attention) { a.Score = changed(math.Inf(-1)) },
		"the largest number of float32 in a score": func(a *kernels.Attention) { a.Score = changed(-math.MaxFloat32) },
		"a packed bias": func(a *kernels.Attention) {
			*a = validPacked()
			a.Bias = shaped(2, 4, 9, 9)
		},
	} {
		a := valid()
		change(&a)
		if err := a.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateRejects(t *testing.T) {
	for _, c := range []struct {
		change func(a *kernels.Attention)
		want   string
	}{
		{func(a *kernels.Attention) { a.Q = kernels.Tensor{} }, "q has shape [], it needs four axes (batch, heads, length, head size)"},
		{func(a *kernels.Attention) { a.K = shaped(2, 7, 8) }, "k has shape [2 7 8], it needs four axes (batch, heads, length, head size)"},
		{func(a *kernels.Attention) { a.V = shaped(2, 2, -7, 6) }, "v has shape [2 2 -7 6], no axis can be negative"},
		{func(a *kernels.Attention) { a.Q.Strides = []int{1} }, "q has 1 strides for its 4 axes"},
		{func(a *kernels.Attention) { a.K.Strides[1] = -8 }, "k has strides [112 -8 8 1], none can be negative"},
		{func(a *kernels.Attention) { a.V.Strides[3] = 2 }, "v has a stride of 2 along its last axis, which needs to be contiguous"},
		{func(a *kernels.Attention) { a.K.DType = kernels.F64 }, "k is float64, q is float32: all inputs need one dtype"},
		{func(a *kernels.Attention) { a.V.DType = kernels.BF16 }, "v is bfloat16, q is float32: all inputs need one dtype"},
		{func(a *kernels.Attention) { a.Q = shaped(2, 4, 5, 0) }, "q has a head size of 0, it needs to be from 1 to 1024"},
		{func(a *kernels.Attention) { a.V = shaped(2, 2, 7, 1025) }, "v has a head size of 1025, it needs to be from 1 to 1024"},
		{func(a *kernels.Attention) { a.K = shaped(3, 2, 7, 8) }, "k has a batch of 3, it needs q's 2, or 1 for all of them"},
		{func(a *kernels.Attention) { a.K = shaped(1, 2, 7, 8) }, "v has a batch of 2, k of 1: they need to be equal"},
		{func(a *kernels.Attention) { a.V = shaped(3, 2, 7, 6) }, "v has a batch of 3, k of 2: they need to be equal"},
		{func(a *kernels.Attention) { a.K, a.V = shaped(2, 0, 7, 8), shaped(2, 0, 7, 6) }, "k has no heads, q has 4: they need at least one"},
		{func(a *kernels.Attention) { a.K = shaped(2, 3, 7, 8) }, "k has 3 heads, which does not divide q's 4"},
		{func(a *kernels.Attention) { a.V = shaped(2, 4, 7, 6) }, "v has 4 heads, it needs k's 2"},
		{func(a *kernels.Attention) { a.K = shaped(2, 2, 7, 9) }, "k has a head size of 9, it needs q's 8"},
		{func(a *kernels.Attention) { a.V = shaped(2, 2, 6, 6) }, "v has 6 rows, it needs k's 7"},
		{func(a *kernels.Attention) { a.Scale = math.NaN() }, "scale is NaN, it needs to be finite"},
		{func(a *kernels.Attention) { a.Scale = math.Inf(-1) }, "scale is -Inf, it needs to be finite"},
		{func(a *kernels.Attention) { a.SoftCap = -1 }, "soft cap is -1, it needs to be positive, or 0 for none"},
		{func(a *kernels.Attention) { a.SoftCap = math.NaN() }, "soft cap is NaN, it needs to be positive, or 0 for none"},
		{func(a *kernels.Attention) { a.Scale = 1e-46 }, "scale is 1e-46, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37"},
		{func(a *kernels.Attention) { a.Scale = -1e39 }, "scale is -1e+39, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37"},
		{func(a *kernels.Attention) {
			a.Q.DType, a.K.DType, a.V.DType, a.Scale = kernels.F64, kernels.F64, kernels.F64, 1e-310
		}, "scale is 1e-310, with float64 its magnitude needs to be from 8.9e-308 to 1.12e+307"},
		{func(a *kernels.Attention) { a.SoftCap = 1e39 }, "soft cap is 1e+39, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37"},
		{func(a *kernels.Attention) { a.SoftCap = 1e-40 }, "soft cap is 1e-40, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37"},
		{func(a *kernels.Attention) { a.Scale, a.SoftCap = 1e30, 1e-30 }, "scale over soft cap is 1e+60, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37"},
		{func(a *kernels.Attention) { a.ALiBi = []float64{0, 1, 1e39, 1} }, "alibi's slope for head 2 is 1e+39, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37"},
		{func(a *kernels.Attention) { a.ALiBi = []float64{1e-60, 1, 1, 1} }, "alibi's slope for head 0 is 1e-60, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37"},
		{func(a *kernels.Attention) { a.Score = changed(1e39) }, "score has the number 1e+39, with float32 its magnitude needs to be from 1.4e-45 to 3.4e+38"},
		{func(a *kernels.Attention) { a.Score = changed(-1e-46) }, "score has the number -1e-46, with float32 its magnitude needs to be from 1.4e-45 to 3.4e+38"},
		{func(a *kernels.Attention) { a.Score = changed(math.NaN()) }, "score has the number NaN, with float32 its magnitude needs to be from 1.4e-45 to 3.4e+38"},
		{func(a *kernels.Attention) { a.Mask = below(1e39) }, "mask has the number 1e+39, with float32 its magnitude needs to be from 1.4e-45 to 3.4e+38"},
		{func(a *kernels.Attention) { a.Dropout.P = 1 }, "dropout is 1, it needs to be in [0, 1)"},
		{func(a *kernels.Attention) { a.Dropout.P = math.NaN() }, "dropout is NaN, it needs to be in [0, 1)"},
		{func(a *kernels.Attention) { a.Causal = 3 }, "causal is 3, it needs to be NotCausal, CausalBottomRight or CausalTopLeft"},
		{func(a *kernels.Attention) { a.Precision = kernels.PrecisionFloat8 }, "precision is 5, it needs to be PrecisionAuto, PrecisionFloat32, PrecisionTF32, PrecisionBFloat16 or PrecisionFloat16"},
		{func(a *kernels.Attention) { a.Precision = -1 }, "precision is -1, it needs to be PrecisionAuto, PrecisionFloat32, PrecisionTF32, PrecisionBFloat16 or PrecisionFloat16"},
		{func(a *kernels.Attention) { a.Window = &kernels.Window{Left: -2, Right: 4} }, "window is (-2, 4), each side needs to be 0 or more, or -1 for unlimited"},
		{func(a *kernels.Attention) { a.Window = &kernels.Window{Shift: math.MinInt} }, "window has a shift of -9223372036854775808, it needs to be from -1099511627776 to 1099511627776"},
		{func(a *kernels.Attention) { a.ALiBi = []float64{1, 2} }, "alibi has 2 slopes, it needs one for each of q's 4 heads"},
		{func(a *kernels.Attention) { a.ALiBi = []float64{1, 2, math.NaN(), 4} }, "alibi has a slope of NaN for head 2, it needs to be finite"},
		{func(a *kernels.Attention) { a.Bias = shaped(5, 7) }, "bias has shape [5 7], it needs four axes (1 or batch, 1 or heads, 1 or q's length, 1 or k's length)"},
		{func(a *kernels.Attention) { a.Bias = shaped(1, 1, 1, 7); a.Bias.Strides[3] = 2 }, "bias has a stride of 2 along its last axis, which needs to be contiguous"},
		{func(a *kernels.Attention) { a.Bias = shaped(1, 1, 1, 7); a.Bias.DType = kernels.F64 }, "bias is float64, it needs q's float32"},
		{func(a *kernels.Attention) { a.Bias = shaped(1, 2, 1, 7) }, "bias has shape [1 2 1 7], which does not broadcast: it needs (1 or 2, 1 or 4, 1 or 5, 1 or 7)"},
		{func(a *kernels.Attention) { a.Bias = shaped(1, 1, 5, 2) }, "bias has shape [1 1 5 2], which does not broadcast: it needs (1 or 2, 1 or 4, 1 or 5, 1 or 7)"},
		{func(a *kernels.Attention) {
			a.Q.DType, a.K.DType, a.V.DType, a.Bias = kernels.BF16, kernels.BF16, kernels.BF16, shaped(1, 1, 1, 7)
			a.Bias.DType = kernels.F16
		}, "bias is float16, it needs q's bfloat16 or float32"},
		{func(a *kernels.Attention) { a.Sinks = shaped(2) }, "sinks has shape [2], it needs one value for each of q's 4 heads"},
		{func(a *kernels.Attention) { a.Sinks = shaped(4); a.Sinks.DType = kernels.F64 }, "sinks is float64, it needs q's float32"},
		{func(a *kernels.Attention) { a.QLens = []int{0, 5} }, "qLens has 2 entries and kvLens has 0: packed sequences need both"},
		{func(a *kernels.Attention) { a.QLens, a.KVLens = []int{0, 5}, []int{0, 7} }, "q has a batch of 2, packed sequences need a batch of 1"},
		{func(a *kernels.Attention) { *a = validPacked(); a.KVLens = []int{0, 7} }, "kvLens has 2 entries, it needs qLens's 3"},
		{func(a *kernels.Attention) { *a = validPacked(); a.QLens = []int{1, 2, 5} }, "qLens is [1 2 5], it needs to be 0 and then where each sequence ends"},
		{func(a *kernels.Attention) { *a = validPacked(); a.QLens, a.KVLens = []int{0}, []int{0} }, "qLens is [0], it needs to be 0 and then where each sequence ends"},
		{func(a *kernels.Attention) { *a = validPacked(); a.QLens = []int{0, 5, 4} }, "qLens goes from 5 to 4 at entry 2, it cannot decrease"},
		{func(a *kernels.Attention) { *a = validPacked(); a.KVLens = []int{0, 4, 8} }, "kvLens ends at 8, k has 7 rows"},
		{func(a *kernels.Attention) { *a = validPacked(); a.KVLengths = []int{3} }, "kvLengths has 1 entries, packed sequences need their keys' lengths in kvLens alone"},
		{func(a *kernels.Attention) { a.KVLengths = []int{3} }, "kvLengths has 1 entries, it needs one for each of q's 2 batch items"},
		{func(a *kernels.Attention) { a.KVLengths = []int{3, -1} }, "kvLengths is -1 for batch item 1, it needs to be from 0 to k's 7 rows"},
		{func(a *kernels.Attention) { a.KVLengths = []int{8, 0} }, "kvLengths is 8 for batch item 0, it needs to be from 0 to k's 7 rows"},
		{func(a *kernels.Attention) { *a = validPacked(); a.Bias = shaped(1, 1, 2, 4) }, "bias has shape [1 1 2 4], which does not broadcast: it needs (1 or 2, 1 or 4, 1 or 3, 1 or 4)"},
	} {
		a := valid()
		c.change(&a)
		if err := a.Validate(); err == nil {
			t.Errorf("no error, it needs to be: %s", c.want)
		} else if err.Error() != c.want {
			t.Errorf("the error is\n  %s\nit needs to be\n  %s", err, c.want)
		}
	}
}

// drawProblem is any small problem with a mask.
func drawProblem(t *rapid.T) kernels.Attention {
	size := func(name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }
	heads, batch, d, dv := 1+size("heads", 3), 1+size("batch", 2), 1+size("d", 8), 1+size("dv", 8)
	sq, sk := size("sq", 12), size("sk", 12)
	a := kernels.Attention{Causal: kernels.Causal(size("causal", 2))}
	if rapid.Bool().Draw(t, "window") {
		side := rapid.OneOf(rapid.IntRange(-1, 15), rapid.Just(math.MaxInt))
		shift := rapid.OneOf(rapid.Just(0), rapid.IntRange(-20, 20), rapid.Just(1<<40), rapid.Just(-1<<40))
		a.Window = &kernels.Window{Left: side.Draw(t, "left"), Right: side.Draw(t, "right"), Shift: shift.Draw(t, "shift")}
	}
	if rapid.Bool().Draw(t, "packed") {
		batch = 1
		a.QLens, a.KVLens = []int{0}, []int{0}
		for range 1 + size("sequences", 3) {
			a.QLens = append(a.QLens, a.QLens[len(a.QLens)-1]+size("sq", 5))
			a.KVLens = append(a.KVLens, a.KVLens[len(a.KVLens)-1]+size("sk", 5))
		}
		sq, sk = a.QLens[len(a.QLens)-1]+size("unused", 3), a.KVLens[len(a.KVLens)-1]+size("unused", 3)
	} else if rapid.Bool().Draw(t, "lengths") {
		for range batch {
			a.KVLengths = append(a.KVLengths, size("length", sk))
		}
	}
	keyBatch := batch
	if rapid.Bool().Draw(t, "shared keys") {
		keyBatch = 1
	}
	a.Q, a.K, a.V = shaped(batch, heads, sq, d), shaped(keyBatch, 1, sk, d), shaped(keyBatch, 1, sk, dv)
	return a
}

// shows returns the mask as the documentation words it, in numbers that cannot overflow.
func shows(a kernels.Attention, s kernels.Sequence, i, j int) bool {
	off := s.Sk - s.Sq
	fromDiagonal := j - (i + off)
	show := true
	switch a.Causal {
	case kernels.CausalBottomRight:
		show = fromDiagonal <= 0
	case kernels.CausalTopLeft:
		show = j <= i
	}
	if w := a.Window; w != nil {
		distance := float64(fromDiagonal) - float64(w.Shift)
		show = show && (w.Left < 0 || -distance <= float64(w.Left)) && (w.Right < 0 || distance <= float64(w.Right))
	}
	return show
}

func TestBandAndCost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawProblem(t)
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
		pairs := 0
		for _, s := range a.Sequences() {
			lo, hi := a.Band(s)
			for i := range s.Sq {
				for j := range s.Sk {
					want := shows(a, s, i, j)
					if got := j >= i+lo && j < i+hi; got != want {
						t.Fatalf("sequence %+v, row %d, key %d: the band (%d, %d) shows it: %v, the mask: %v", s, i, j, lo, hi, got, want)
					}
					if want {
						pairs += a.Q.Shape[1]
					}
				}
			}
		}
		if got := a.VisiblePairs(); got != pairs {
			t.Fatalf("VisiblePairs is %d instead of %d", got, pairs)
		}
		d, dv := float64(a.Q.Shape[3]), float64(a.V.Shape[3])
		if got, want := a.ForwardFLOPs(), float64(pairs)*(2*d+2*dv); got != want {
			t.Fatalf("ForwardFLOPs is %v instead of %v", got, want)
		}
		// Q·Kᵀ, dS·K and dSᵀ·Q over d, dO·Vᵀ and Pᵀ·dO over dv.
		if got, want := a.BackwardFLOPs(), float64(pairs)*(6*d+4*dv); got != want {
			t.Fatalf("BackwardFLOPs is %v instead of %v", got, want)
		}
	})
}

func TestSequences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawProblem(t)
		q, k := 0, 0
		for n, s := range a.Sequences() {
			if s.Index != n {
				t.Fatalf("sequence %d calls itself %d", n, s.Index)
			}
			if a.QLens == nil {
				want := kernels.Sequence{Index: n, Batch: n, KeyBatch: n, Sq: a.Q.Shape[2], Sk: a.K.Shape[2]}
				if a.K.Shape[0] == 1 {
					want.KeyBatch = 0
				}
				if a.KVLengths != nil {
					want.Sk = a.KVLengths[n]
				}
				want.Place, want.Distance = kernels.Place{Sequence: n}, want.Sk-want.Sq
				if s != want {
					t.Fatalf("sequence %+v instead of %+v", s, want)
				}
				continue
			}
			if s.Batch != 0 || s.KeyBatch != 0 || s.Q0 != q || s.K0 != k {
				t.Fatalf("sequence %+v does not begin where the one before ends, at %d and %d", s, q, k)
			}
			q, k = q+s.Sq, k+s.Sk
			if q != a.QLens[n+1] || k != a.KVLens[n+1] {
				t.Fatalf("sequence %d ends at %d and %d instead of %d and %d", n, q, k, a.QLens[n+1], a.KVLens[n+1])
			}
		}
	})
}

func TestEffectiveScale(t *testing.T) {
	a := valid()
	if got, want := a.EffectiveScale(), 1/math.Sqrt(8); got != want {
		t.Errorf("the default scale is %v instead of %v", got, want)
	}
	a.Scale = -3
	if got := a.EffectiveScale(); got != -3 {
		t.Errorf("the scale is %v instead of -3", got)
	}
}
