package reference_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/kernels/score"
)

// tiny is one head with two queries of size 1 and two keys; every result fits on paper.
func tiny() *kernels.Attention {
	return &kernels.Attention{
		Q:     kernels.Of([]float64{0, math.Log(3)}, 1, 1, 2, 1),
		K:     kernels.Of([]float64{0, 1}, 1, 1, 2, 1),
		V:     kernels.Of([]float64{8, 16}, 1, 1, 2, 1),
		Scale: 1,
	}
}

func TestAttentionByHand(t *testing.T) {
	ln := math.Log
	capped := math.Tanh(ln(3))
	for _, c := range []struct {
		name   string
		change func(a *kernels.Attention)
		o, lse []float64
	}{
		// Row 0 scores (0, 0), row 1 scores (0, ln 3): P is (1/2, 1/2) and (1/4, 3/4).
		{"plain", func(*kernels.Attention) {}, []float64{12, 14}, []float64{ln(2), ln(4)}},
		{"causal", func(a *kernels.Attention) { a.Causal = kernels.CausalBottomRight }, []float64{8, 14}, []float64{0, ln(4)}},
		{"window", func(a *kernels.Attention) { a.Window = &kernels.Window{Left: 0, Right: -1} }, []float64{12, 16}, []float64{ln(2), ln(3)}},
		{"no key", func(a *kernels.Attention) {
			a.Window = &kernels.Window{Left: -1, Right: 0}
			a.K, a.V = a.K.Slice(2, 0, 1), a.V.Slice(2, 0, 1)
		},
			[]float64{0, 8}, []float64{math.Inf(-1), 0}},
		{"cap", func(a *kernels.Attention) { a.SoftCap = 1 },
			[]float64{12, (8 + 16*math.Exp(capped)) / (1 + math.Exp(capped))}, []float64{ln(2), ln(1 + math.Exp(capped))}},
		// |i − j|·ln 3 comes off: (0, −ln 3) and (−ln 3, ln 3).
		{"alibi", func(a *kernels.Attention) { a.ALiBi = []float64{ln(3)} }, []float64{(8 + 16./3) / (4. / 3), (8./3 + 16*3) / (10. / 3)},
			[]float64{ln(4. / 3), ln(10. / 3)}},
		{"bias", func(a *kernels.Attention) { a.Bias = kernels.Of([]float64{math.Inf(-1), 0}, 1, 1, 1, 2) }, []float64{16, 16}, []float64{0, ln(3)}},
		{"bias hides all", func(a *kernels.Attention) { a.Bias = kernels.Of([]float64{math.Inf(-1), math.Inf(-1)}, 1, 1, 1, 2) },
			[]float64{0, 0}, []float64{math.Inf(-1), math.Inf(-1)}},
		{"sink", func(a *kernels.Attention) { a.Sinks = kernels.Of([]float64{ln(4)}, 1) }, []float64{24. / 6, (8 + 48) / 8.}, []float64{ln(6), ln(8)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := tiny()
			c.change(a)
			o, lse := reference.Attention(a)
			near(t, "o", o, c.o, 1e-14)
			near(t, "lse", lse, c.lse, 1e-14)
		})
	}
}

// With dO = (1, 1), of row 0 dP = (8, 16), δ = 12, dS = (−2, 2); of row 1 dP = (8, 16), δ = 14, dS
// = (−1.5, 1.5).
func TestAttentionGradByHand(t *testing.T) {
	a := tiny()
	a.Bias = kernels.Of(make([]float64, 2), 1, 1, 1, 2)
	g := reference.AttentionGrad(a, []float64{1, 1}, nil)
	near(t, "dq", g.DQ, []float64{2, 1.5}, 1e-14)
	near(t, "dk", g.DK, []float64{-1.5 * math.Log(3), 1.5 * math.Log(3)}, 1e-14)
	near(t, "dv", g.DV, []float64{0.75, 1.25}, 1e-14)
	near(t, "dbias", g.DBias, []float64{-3.5, 3.5}, 1e-14)
}

// A sink is a key without a value: the gradients of a sink of s are those of a key that scores s
// and whose value is 0.
func TestSinkIsAKeyWithoutValue(t *testing.T) {
	sink := tiny()
	sink.Sinks = kernels.Of([]float64{0.5}, 1)
	key := tiny()
	key.K, key.V = kernels.Of([]float64{0, 1, 0}, 1, 1, 3, 1), kernels.Of([]float64{8, 16, 0}, 1, 1, 3, 1)
	key.Bias = kernels.Of([]float64{0, 0, 0.5}, 1, 1, 1, 3)

	dO, dLSE := []float64{0.3, -0.8}, []float64{0.7, 0.2}
	got, want := reference.AttentionGrad(sink, dO, dLSE), reference.AttentionGrad(key, dO, dLSE)
	near(t, "dq", got.DQ, want.DQ, 1e-14)
	near(t, "dk", got.DK, want.DK[:2], 1e-14)
	near(t, "dsinks", got.DSinks, want.DBias[2:], 1e-14)
}

func near(t *testing.T, name string, got, want []float64, bound float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s has %d elements, it needs %d", name, len(got), len(want))
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= bound) && got[i] != want[i] {
			t.Errorf("%s[%d] is %v instead of %v: error %.3g, bound %.3g", name, i, got[i], want[i], got[i]-want[i], bound)
		}
	}
}

// Gradients are compared with differences of ⟨O, dO⟩ + ⟨LSE, dLSE⟩.
func TestAttentionGradByFiniteDifferences(t *testing.T) {
	slow.Emulated(t)
	sets := append(attentiontest.OptionSets(), []attentiontest.Option{attentiontest.ShiftedWindow(1, 2, -2)},
		[]attentiontest.Option{attentiontest.RowBiasOver("BQ"), attentiontest.Sinks})
	sets = append(sets, attentiontest.ScoreSets()...)
	for n, options := range sets {
		for kind := range 4 {
			c := attentiontest.Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 5, Sk: 7, D: 3, Dv: 2, Options: options, Seed: uint64(n)}
			switch kind {
			case 1:
				c.Batch, c.Sq, c.Sk = 1, 9, 11
				c.QLens, c.KVLens = []int{0, 2, 9}, []int{0, 6, 11}
			case 2:
				c.Batch, c.Sq, c.Sk = 1, 9, 11 // empty sequences, and rows behind the last
				c.QLens, c.KVLens = []int{0, 2, 2, 5, 8}, []int{0, 4, 5, 5, 10}
			case 3:
				c.KVLengths, c.SharedKeys = []int{3, 6}, true
			}
			p := attentiontest.New[float64](c)
			dO := kernels.Host[float64](p.DO)
			var dLSE []float64
			if p.DLSE.IsSet() {
				dLSE = kernels.Host[float64](p.DLSE)
			}
			loss := func() float64 {
				o, lse := reference.Attention(&p.Attention)
				sum := 0.0
				for i := range o {
					sum += o[i] * dO[i]
				}
				for i := range dLSE {
					if dLSE[i] != 0 && !math.IsInf(lse[i], -1) {
						sum += lse[i] * dLSE[i]
					}
				}
				return sum
			}
			g := reference.AttentionGrad(&p.Attention, dO, dLSE)
			variables := []gradcheck.Variable{}
			add := func(name string, x kernels.Tensor, gradient []float64) {
				if x.IsSet() && gradient != nil {
					variables = append(variables, gradcheck.Variable{Name: name, X: kernels.Host[float64](x), Gradient: gradient})
				}
			}
			add("q", p.Q, g.DQ)
			add("k", p.K, g.DK)
			add("v", p.V, g.DV)
			add("bias", p.Bias, g.DBias)
			add("sinks", p.Sinks, g.DSinks)
			for n, table := range p.ScoreTables() {
				add(table.Name, p.Tables[n], g.DTables[n])
			}
			if err := gradcheck.Function(loss, variables, gradcheck.Options{Seed: uint64(n), Elements: 12, Directions: 2}); err != nil {
				t.Fatalf("%v: %v", c, err)
			}
		}
	}
}

// The mask is a wall: whatever lies behind it changes no bit of what lies before it.
func TestMaskedValuesDoNotSpread(t *testing.T) {
	c := attentiontest.Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 6, Sk: 8, D: 4, Dv: 4, Options: []attentiontest.Option{attentiontest.Causal}}
	clean, dirty := attentiontest.New[float64](c), attentiontest.New[float64](c)
	dirty.Plant(dirty.K, math.NaN(), 0, 0, 6, 1) // seen by the rows 4 and 5
	dirty.Plant(dirty.V, math.Inf(1), 0, 0, 7, 0)
	want, wantLSE := reference.Attention(&clean.Attention)
	got, gotLSE := reference.Attention(&dirty.Attention)
	for h := range 2 {
		for i := range 6 {
			row := h*6 + i
			if seen := i >= 4; math.IsNaN(gotLSE[row]) != seen {
				t.Errorf("head %d row %d: lse is %v, the NaN is seen: %v", h, i, gotLSE[row], seen)
			} else if !seen {
				near(t, "o", got[row*4:][:4], want[row*4:][:4], 0)
				near(t, "lse", gotLSE[row:][:1], wantLSE[row:][:1], 0)
			}
		}
	}
}

// A sequence of a packed problem is computed as if it were alone.
func TestPackedSequencesAreAlone(t *testing.T) {
	c := attentiontest.Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 9, Sk: 11, D: 3, Dv: 3, Options: []attentiontest.Option{attentiontest.Causal},
		QLens: []int{0, 2, 9}, KVLens: []int{0, 6, 11}, Seed: 3}
	p := attentiontest.New[float64](c)
	o, lse := reference.Attention(&p.Attention)
	for n := range 2 {
		q0, q1, k0, k1 := c.QLens[n], c.QLens[n+1], c.KVLens[n], c.KVLens[n+1]
		alone := &kernels.Attention{Q: p.Q.Slice(2, q0, q1), K: p.K.Slice(2, k0, k1), V: p.V.Slice(2, k0, k1), Causal: kernels.CausalBottomRight}
		wantO, wantLSE := reference.Attention(alone)
		for h := range 4 {
			near(t, "o", o[(h*9+q0)*3:(h*9+q1)*3], wantO[h*(q1-q0)*3:(h+1)*(q1-q0)*3], 0)
			near(t, "lse", lse[h*9+q0:h*9+q1], wantLSE[h*(q1-q0):(h+1)*(q1-q0)], 0)
		}
	}
}

// The chosen rows are what the whole problem has there; of a dO that is zero elsewhere, they make
// all gradients.
func TestChosenRows(t *testing.T) {
	c := attentiontest.Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 17, Sk: 13, D: 4, Dv: 3, Checked: attentiontest.Checked{Rows: 4}, Seed: 5,
		Options: []attentiontest.Option{attentiontest.DLSE, attentiontest.BiasOver("Q"), attentiontest.Sinks}}
	p := attentiontest.New[float64](c)
	rows := func(sequence, head, row int) bool {
		return kernels.Host[float64](p.DLSE)[(sequence*2+head)*17+row] != 0
	}
	dO, dLSE := kernels.Host[float64](p.DO), kernels.Host[float64](p.DLSE)
	all, chosen := reference.AttentionGrad(&p.Attention, dO, dLSE), reference.Arithmetic[float64]{}.AttentionGrad(&p.Attention, dO, dLSE, rows)
	near(t, "dq", chosen.DQ, all.DQ, 0)
	near(t, "dk", chosen.DK, all.DK, 0)
	near(t, "dv", chosen.DV, all.DV, 0)
	near(t, "dbias", chosen.DBias, all.DBias, 0)
	near(t, "dsinks", chosen.DSinks, all.DSinks, 0)

	o, lse := reference.Attention(&p.Attention)
	oChosen, lseChosen := reference.Arithmetic[float64]{}.Attention(&p.Attention, rows)
	for row := range lse {
		if rows(row/34, row/17%2, row%17) {
			near(t, "o", oChosen[row*3:][:3], o[row*3:][:3], 0)
			near(t, "lse", lseChosen[row:][:1], lse[row:][:1], 0)
		}
	}
}

// What the language says of an option that attention has gives the same, forward and backward.
func TestReadyMadeScoresAndMasks(t *testing.T) {
	slopes := attentiontest.ALiBi
	for _, c := range []struct{ option, written attentiontest.Option }{
		{attentiontest.Causal, attentiontest.MaskOf("causal", score.Causal)},
		{attentiontest.CausalTopLeft, attentiontest.MaskOf("causal", score.CausalTopLeft)},
		{attentiontest.WindowOf(4, 1), attentiontest.MaskOf("window", score.SlidingWindow(4, 1))},
		{attentiontest.WindowOf(-1, 2), attentiontest.MaskOf("window", score.SlidingWindow(-1, 2))},
		{attentiontest.WindowOf(0, -1), attentiontest.MaskOf("window", score.SlidingWindow(0, -1))},
		{attentiontest.SoftCap, attentiontest.ScoreOf("cap", score.SoftCap(2.5))},
		{slopes, attentiontest.ScoreOf("slopes", score.ALiBi(0.0625, 0.00390625))},
	} {
		results := [2]reference.AttentionGradients{}
		for n, option := range []attentiontest.Option{c.option, c.written} {
			p := attentiontest.New[float64](attentiontest.Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 9, Sk: 12, D: 3, Dv: 2, Options: []attentiontest.Option{option}, Seed: 4})
			results[n] = reference.AttentionGrad(&p.Attention, kernels.Host[float64](p.DO), nil)
		}
		near(t, c.written.Name+": dq", results[1].DQ, results[0].DQ, 1e-13)
		near(t, c.written.Name+": dk", results[1].DK, results[0].DK, 1e-13)
		near(t, c.written.Name+": dv", results[1].DV, results[0].DV, 1e-13)
	}
}
