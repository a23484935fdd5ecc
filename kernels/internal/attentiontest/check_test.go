package attentiontest

import (
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// oracle is a backend that computes by the reference in the arithmetic of T, and then spoils the
// results.
type oracle[T kernels.Float] struct {
	spoilForward  func(out kernels.AttentionOutputs)
	spoilBackward func(g kernels.AttentionGradients)
}

func (b oracle[T]) AttentionForward(a *kernels.Attention, out kernels.AttentionOutputs) error {
	o, lse := reference.Arithmetic[T]{}.Attention(a, nil)
	write[T](out.O, o)
	write[T](out.LSE, lse)
	if b.spoilForward != nil {
		b.spoilForward(out)
	}
	return nil
}

func (oracle[T]) AttentionDelta(a *kernels.Attention, o, dO, dLSE, delta kernels.Tensor) error {
	write[T](delta, reference.AttentionDelta(a, values[T](o), values[T](dO), values[T](dLSE)))
	return nil
}

func (b oracle[T]) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) error {
	grad := reference.Arithmetic[T]{}.AttentionGrad(a, values[T](g.DO), b.dLSE(g), nil)
	write[T](g.DQ, grad.DQ)
	write[T](g.DK, grad.DK)
	write[T](g.DV, grad.DV)
	write[T](g.DBias, grad.DBias)
	write[T](g.DSinks, grad.DSinks)
	if b.spoilBackward != nil {
		b.spoilBackward(g)
	}
	return nil
}

// dLSE is not among the backward kernel's arguments, because δ holds it; the cases here have none.
func (oracle[T]) dLSE(kernels.AttentionGradients) []float64 { return nil }

func write[T kernels.Float](t kernels.Tensor, list []float64) {
	data, n := kernels.Host[T](t), 0
	if t.IsSet() {
		eachOffset(t, func(offset int) { data[offset], n = T(list[n]), n+1 })
	}
}

func TestCheckAcceptsTheReference(t *testing.T) {
	for n, options := range OptionSets() {
		for layout := BHSD; layout <= Broadcast; layout++ {
			c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 9, Sk: 9, D: 5, Dv: 5, Layout: layout, Options: options, Seed: uint64(n), Checked: Checked{Rows: n % 5}}
			var o settings
			for _, option := range options {
				option.set(&o)
			}
			if o.dLSE {
				continue
			}
			for precision, check := range map[string]func() error{
				"float32": func() error { p := New[float32](c); return firstOf(p.Run(oracle[float32]{}), p.Check) },
				"float64": func() error { p := New[float64](c); return firstOf(p.Run(oracle[float64]{}), p.Check) },
			} {
				if err := check(); err != nil {
					t.Errorf("%s: %v", precision, err)
				}
			}
		}
	}
}

func firstOf(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

func TestCheckFindsMistakes(t *testing.T) {
	type spoiler struct {
		forward  func(out kernels.AttentionOutputs)
		backward func(g kernels.AttentionGradients)
	}
	element := func(t kernels.Tensor, index ...int) *float32 { return &kernels.Host[float32](t)[t.Offset(index...)] }
	nan := float32(math.NaN())
	for _, c := range []struct {
		spoil spoiler
		want  string
	}{
		{spoiler{forward: func(out kernels.AttentionOutputs) { *element(out.O, 1, 0, 3, 2) += 5e-6 }}, "o[1 0 3 2] is"},
		{spoiler{forward: func(out kernels.AttentionOutputs) { *element(out.LSE, 0, 1, 0) = -1e30 }}, "lse[0 1 0] is -1.0000000150474662e+30, the reference has −∞"},
		{spoiler{forward: func(out kernels.AttentionOutputs) { *element(out.O, 0, 0, 4, 1) = nan }}, "o[0 0 4 0]: the row's being finite is false"},
		{spoiler{backward: func(g kernels.AttentionGradients) { *element(g.DK, 0, 0, 1, 0) -= 5e-6 }}, "dk[0 0 1 0] is"},
		{spoiler{backward: func(g kernels.AttentionGradients) { *element(g.DSinks, 1) += 1e-2 }}, "dsinks[1] is"},
		{spoiler{backward: func(g kernels.AttentionGradients) { *element(g.DBias, 0, 0, 5, 1) = nan }}, "dbias[0 0 5 1]: the row's being finite is false"},
		{spoiler{backward: func(g kernels.AttentionGradients) { poison(kernels.Host[float32](g.DV)[:1]) }}, "1 of the 48 elements of dv were not written"},
		{spoiler{backward: func(g kernels.AttentionGradients) { g.DQ.Shape[3]++; *element(g.DQ, 0, 0, 0, 3) = 4; g.DQ.Shape[3]-- }}, "4 was written into the gap"},
		{spoiler{backward: func(g kernels.AttentionGradients) { *element(g.DO, 0, 0, 0, 0)++ }}, "of the input buffer"},
	} {
		p := New[float32](Case{Batch: 2, Heads: 2, KeyHeads: 2, Sq: 6, Sk: 4, D: 3, Dv: 3, Layout: Padded, Options: []Option{Causal, BiasOver("Q"), Sinks}})
		if strings.HasPrefix(c.want, "lse") { // without sinks, the first two rows see nothing
			p = New[float32](Case{Batch: 2, Heads: 2, KeyHeads: 2, Sq: 6, Sk: 4, D: 3, Dv: 3, Layout: Padded, Options: []Option{Causal}})
		}
		err := firstOf(p.Run(oracle[float32]{c.spoil.forward, c.spoil.backward}), p.Check)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, it needs to say: %s", err, c.want)
		}
	}
}

func TestCheckJudgesNonFiniteRows(t *testing.T) {
	p := New[float64](Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 6, Sk: 6, D: 3, Dv: 3, Options: []Option{Causal}})
	p.Plant(p.V, math.Inf(1), 0, 0, 4, 1)
	if err := firstOf(p.Run(oracle[float64]{}), p.Check); err != nil {
		t.Error(err)
	}
	kernels.Host[float64](p.O)[p.O.Offset(0, 1, 5, 1)] = 0
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "o[0 1 5 0]: the row's being finite is true, it needs to be false") {
		t.Errorf("a lost infinity gives: %v", err)
	}
}

func TestPackedLens(t *testing.T) {
	for seed := range uint64(200) {
		q, k := PackedLens(seed, 4, 4+int(seed%9), 30)
		for _, lens := range [][]int{q, k} {
			for n := 1; n <= 4; n++ {
				if lens[n] <= lens[n-1] {
					t.Fatalf("seed %d: %v does not increase", seed, lens)
				}
			}
		}
	}
}

// The unfused program without rounding is the reference, and one that rounds is judged by its own
// errors.
func TestCheckRounded(t *testing.T) {
	exact := func(x float32) float32 { return x }
	coarse := func(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ 0xffff) }
	for n, options := range OptionSets() {
		c := Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 9, Sk: 12, D: 5, Dv: 6, Options: options, Seed: uint64(n), Checked: Checked{Slack: 2}}
		if n%3 == 0 {
			c.QLens, c.KVLens = []int{0, 4, 9}, []int{0, 7, 12}
		}
		var o settings
		for _, option := range options {
			option.set(&o)
		}
		if o.dLSE {
			continue
		}
		p := New[float32](c)
		p.Round(coarse)
		if err := firstOf(p.Run(oracle[float32]{}), func() error { return CheckRounded(p, &Rounding{Operand: exact, Result: exact}) }); err != nil {
			t.Errorf("exact: %v", err)
		}
		if err := CheckRounded(p, &Rounding{Operand: coarse, Result: coarse}); err != nil {
			t.Errorf("coarse: %v", err)
		}
	}
}

// Where few elements are large, the unfused program's roundings may cancel in all of them, and
// those of a program that rounds less may not. The nearest key in the head of the steepest slope,
// which has P = .51, makes the largest element here. Kernels are .0128 off: .0041 by dS, .0057 by
// the result and .0030 by the weights of O, which δ is made of. The unfused program is .0058 off.
// Twice the kernels' error is found.
func TestCheckRoundedOfFewLargeElements(t *testing.T) {
	nearest := func(x float32) float32 {
		b := math.Float32bits(x)
		return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
	}
	bfloat16 := &Rounding{Operand: nearest, Result: nearest, Unit: 1.0 / (1 << 7)}
	p := New[float32](Case{Batch: 1, Heads: 8, KeyHeads: 8, Sq: 1, Sk: 1024, D: 64, Dv: 64, Layout: BSHD, Options: []Option{ALiBi, Causal}, Seed: 105})
	p.Round(nearest)
	largest := []int{0, 0, 1023, 63}
	const exact, once = -2.08097974, -2.09375 // the next bfloat16 is -2.078125
	for _, c := range []struct {
		errors float32
		passes bool
	}{{0, true}, {1, true}, {2, false}, {10, false}} {
		spoil := func(g kernels.AttentionGradients) {
			kernels.Host[float32](g.DK)[g.DK.Offset(largest...)] = exact + c.errors*(once-exact)
		}
		if err := p.Run(oracle[float32]{spoilBackward: spoil}); err != nil {
			t.Fatal(err)
		}
		if err := CheckRounded(p, bfloat16); err == nil != c.passes {
			t.Errorf("with %v of the error: %v", c.errors, err)
		}
	}
}
