package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// parameterShapes are the parameters of one call: ends of pieces and tasks, tensors shorter than a
// vector, and enough elements for several threads.
var parameterShapes = [][]int{{3}, {16, 33}, {4096}, {}, {5, 16411}, {1}, {0, 4}, {4097}, {7}, {37, 2048}}

// updateCase is a list of parameters whose tensors are what they were at the start whenever restore
// is called.
type updateCase[T kernels.Float] struct {
	w, g, m, v []field[T]
	before     map[*T][]T
}

func newUpdateCase[T kernels.Float]() *updateCase[T] {
	c, r := &updateCase[T]{before: map[*T][]T{}}, newRandom()
	list := func(positive bool) (all []field[T]) {
		for _, shape := range parameterShapes {
			f := newField[T](r, 0, shape...)
			if positive {
				f.each(func(at *T) { *at *= *at })
			}
			if f.Elements() > 0 {
				c.before[&f.memory[0]] = f.typed()
			}
			all = append(all, f)
		}
		return all
	}
	c.w, c.g, c.m, c.v = list(false), list(false), list(false), list(true)
	return c
}

func (c *updateCase[T]) restore() {
	for _, list := range [][]field[T]{c.w, c.g, c.m, c.v} {
		for _, f := range list {
			if f.Elements() > 0 {
				copy(f.memory, c.before[&f.memory[0]])
			}
		}
	}
}

func tensors[T kernels.Float](list []field[T]) (all []kernels.Tensor) {
	for _, f := range list {
		all = append(all, f.Tensor)
	}
	return all
}

// joined is all elements of a list, and in float64.
func joined[T kernels.Float](list []field[T]) (typed []T, wide []float64) {
	for _, f := range list {
		typed = append(typed, f.typed()...)
	}
	return typed, widened(typed)
}

// updated is a result for each list that a step changes. The last is of the gradients: zeros if
// they are cleared.
func (c *updateCase[T]) updated(cleared bool, want64 [][]float64, wantT [][]T, changed ...[]field[T]) (all []result) {
	for i, list := range changed {
		_, got := joined(list)
		all = append(all, result{name: []string{"w", "m", "v"}[i], got: got, ref: want64[i], pt: widened(wantT[i])})
	}
	_, got := joined(c.g)
	want := make([]float64, len(got))
	if !cleared {
		want = want[:0]
		for _, f := range c.g {
			if f.Elements() > 0 {
				want = append(want, widened(c.before[&f.memory[0]])...)
			}
		}
	}
	return append(all, result{name: "g", got: got, ref: want, pt: want})
}

var updates = []kernels.Update{
	{LearningRate: 1e-2, WeightDecay: 0.1, GradientScale: 0.25, ClearGradients: true},
	{LearningRate: 0.5},
}

func TestAdamW(t *testing.T) {
	slow.Emulated(t)
	bothTypes(t, testAdamW[float32], testAdamW[float64])
}

func testAdamW[T kernels.Float](t *testing.T) {
	c := newUpdateCase[T]()
	w, w64 := joined(c.w)
	g, g64 := joined(c.g)
	m, m64 := joined(c.m)
	v, v64 := joined(c.v)
	for i, u := range updates {
		o := kernels.AdamW{Update: u, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: []int{1, 1000}[i]}
		newW, newM, newV := reference.AdamW(o, w, g, m, v)
		newW64, newM64, newV64 := reference.AdamW(o, w64, g64, m64, v64)
		verify[T](t, fmt.Sprintf("%+v shapes=%v seed=%d", o, parameterShapes, rowwiseSeed), func(b *cpu.Backend) ([]result, error) {
			c.restore()
			err := b.AdamW(o, tensors(c.w), tensors(c.g), tensors(c.m), tensors(c.v))
			return c.updated(o.ClearGradients, [][]float64{newW64, newM64, newV64}, [][]T{newW, newM, newV}, c.w, c.m, c.v), err
		})
	}
}

func TestSGD(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	bothTypes(t, testSGD[float32], testSGD[float64])
}

func testSGD[T kernels.Float](t *testing.T) {
	c := newUpdateCase[T]()
	w, w64 := joined(c.w)
	g, g64 := joined(c.g)
	for _, u := range updates {
		for _, o := range []kernels.SGD{{Update: u}, {Update: u, Decoupled: true}, {Update: u, Momentum: 0.9},
			{Update: u, Momentum: 0.9, Nesterov: true}, {Update: u, Momentum: 0.5, Nesterov: true, Decoupled: true}} {
			var m []T
			var m64 []float64
			changed, momentum := [][]field[T]{c.w}, []kernels.Tensor(nil)
			if o.Momentum > 0 {
				c.restore()
				m, m64 = joined(c.m)
				changed, momentum = append(changed, c.m), tensors(c.m)
			}
			newW, newM := reference.SGD(o, w, g, m)
			newW64, newM64 := reference.SGD(o, w64, g64, m64)
			verify[T](t, fmt.Sprintf("%+v shapes=%v seed=%d", o, parameterShapes, rowwiseSeed), func(b *cpu.Backend) ([]result, error) {
				c.restore()
				err := b.SGD(o, tensors(c.w), tensors(c.g), momentum)
				return c.updated(o.ClearGradients, [][]float64{newW64, newM64}, [][]T{newW, newM}, changed...), err
			})
		}
	}
}

// Momentum gives what SGD adds to weights of zero, and the sums of its squares: zeros in a step
// that is skipped.
func TestMomentum(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	bothTypes(t, testMomentum[float32], testMomentum[float64])
}

func testMomentum[T kernels.Float](t *testing.T) {
	c := newUpdateCase[T]()
	g, g64 := joined(c.g)
	m, m64 := joined(c.m)
	sums := make([]float64, len(c.g))
	for _, u := range updates {
		for _, nesterov := range []bool{false, true} {
			o := kernels.SGD{Update: u, Momentum: 0.9, Nesterov: nesterov}
			newM, y := reference.Momentum(o, g, m)
			newM64, y64 := reference.Momentum(o, g64, m64)
			verify[T](t, fmt.Sprintf("%+v shapes=%v seed=%d", o, parameterShapes, rowwiseSeed), func(b *cpu.Backend) ([]result, error) {
				c.restore()
				err := b.Momentum(o, tensors(c.g), tensors(c.m), tensors(c.w), kernels.Of(sums, len(sums)))
				for i, f := range c.w {
					if want := reference.SumSquares(f.typed()); !(math.Abs(sums[i]-want) <= 1e-12*want) {
						t.Errorf("the sum of the squares of tensor %d is %v instead of %v", i, sums[i], want)
					}
				}
				return c.updated(o.ClearGradients, [][]float64{y64, newM64}, [][]T{y, newM}, c.w, c.m), err
			})
		}
	}
	c.restore()
	control := make([]float64, kernels.ControlSize)
	control[kernels.ControlVerdict] = 1
	o := kernels.SGD{Update: kernels.Update{Control: kernels.Of(control, len(control)), ClearGradients: true}, Momentum: 0.9}
	if err := cpu.New().Momentum(o, tensors(c.g), tensors(c.m), tensors(c.w), kernels.Tensor{}); err != nil {
		t.Fatal(err)
	}
	now, _ := joined(c.m)
	y, _ := joined(c.w)
	cleared, _ := joined(c.g)
	if isZero := func(x T) bool { return x == 0 }; !slices.Equal(now, m) || !all(y, isZero) || !all(cleared, isZero) {
		t.Error("a skipped step changes momenta, or leaves steps or gradients")
	}
}

func all[T any](list []T, is func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !is(x) })
}

// Normalize gives tensors one norm, and leaves zeros what they are.
func TestNormalize(t *testing.T) { bothTypes(t, testNormalize[float32], testNormalize[float64]) }

func testNormalize[T kernels.Float](t *testing.T) {
	c := newUpdateCase[T]()
	clear(c.g[0].memory)
	if len(c.before[&c.g[0].memory[0]]) > 0 {
		clear(c.before[&c.g[0].memory[0]])
	}
	sums := make([]float64, len(c.g))
	var want64 []float64
	var want []T
	for i, f := range c.g {
		x := f.typed()
		sums[i] = reference.SumSquares(x)
		want, want64 = append(want, reference.Normalize(x, -1.5)...), append(want64, reference.Normalize(widened(x), -1.5)...)
	}
	verify[T](t, fmt.Sprintf("shapes=%v seed=%d", parameterShapes, rowwiseSeed), func(b *cpu.Backend) ([]result, error) {
		c.restore()
		err := b.Normalize(tensors(c.g), kernels.Of(sums, len(sums)), -1.5, tensors(c.w))
		return c.updated(false, [][]float64{want64}, [][]T{want}, c.w), err
	})
}

func TestLion(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	bothTypes(t, testLion[float32], testLion[float64])
}

func testLion[T kernels.Float](t *testing.T) {
	c := newUpdateCase[T]()
	// Where nothing ever pulled, the sign is zero.
	c.g[0].memory[1], c.m[0].memory[1] = 0, 0
	c.before[&c.g[0].memory[0]][1], c.before[&c.m[0].memory[0]][1] = 0, 0
	w, w64 := joined(c.w)
	g, g64 := joined(c.g)
	m, m64 := joined(c.m)
	for _, u := range updates {
		o := kernels.Lion{Update: u, Beta1: 0.9, Beta2: 0.99}
		newW, newM := reference.Lion(o, w, g, m)
		newW64, newM64 := reference.Lion(o, w64, g64, m64)
		verify[T](t, fmt.Sprintf("%+v shapes=%v seed=%d", o, parameterShapes, rowwiseSeed), func(b *cpu.Backend) ([]result, error) {
			c.restore()
			err := b.Lion(o, tensors(c.w), tensors(c.g), tensors(c.m))
			return c.updated(o.ClearGradients, [][]float64{newW64, newM64}, [][]T{newW, newM}, c.w, c.m), err
		})
	}
}

func TestSumSquares(t *testing.T) { bothTypes(t, testSumSquares[float32], testSumSquares[float64]) }

func testSumSquares[T kernels.Float](t *testing.T) {
	c := newUpdateCase[T]()
	want := make([]float64, len(c.g))
	for i, f := range c.g {
		want[i] = reference.SumSquares(f.typed())
	}
	verify[T](t, fmt.Sprintf("shapes=%v seed=%d", parameterShapes, rowwiseSeed), func(b *cpu.Backend) ([]result, error) {
		sums := make([]float64, len(c.g))
		err := b.SumSquares(tensors(c.g), kernels.Of(sums, len(sums)))
		for i := range sums {
			if !(math.Abs(sums[i]-want[i]) <= 1e-12*want[i]) {
				t.Errorf("shape %v: the sum is %.17g, it needs to be %.17g", parameterShapes[i], sums[i], want[i])
			}
		}
		return []result{{name: "sums", got: sums, ref: want, pt: want}}, err
	})
}

// A single element that is not finite shows in its tensor's sum, wherever it lies, and in no other;
// the largest float32 numbers do not.
func TestSumSquaresTellsNonFinite(t *testing.T) {
	b, r := cpu.New(), rand.New(rand.NewPCG(rowwiseSeed, 1))
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -math.MaxFloat32} {
		x := make([]float32, 20000)
		at := r.IntN(len(x))
		x[at] = float32(bad)
		sums := []float64{0, 0, 0}
		list := []kernels.Tensor{kernels.Of([]float32{1}, 1), kernels.Of(x, len(x)), kernels.Of([]float32{2}, 1)}
		if err := b.SumSquares(list, kernels.Of(sums, 3)); err != nil {
			t.Fatal(err)
		}
		finite := !math.IsNaN(sums[1]) && !math.IsInf(sums[1], 0)
		if finite != (bad == -math.MaxFloat32) || sums[0] != 1 || sums[2] != 4 {
			t.Errorf("with %v at %d the sums are %v", bad, at, sums)
		}
	}
}

// newControl is a control vector before the given step, with rates 0.1, 0.2 and so on from step 3
// on.
func newControl(step float64) []float64 {
	c := make([]float64, kernels.ControlSize)
	c[kernels.ControlSteps], c[kernels.ControlLossScale], c[kernels.ControlFirstRate] = step, 1, 3
	copy(c[kernels.ControlRates:], []float64{0.1, 0.2, math.NaN(), 0.4})
	return c
}

func TestPlanStep(t *testing.T) {
	b := cpu.New()
	scaling := kernels.LossScaling{Interval: 2}
	for name, c := range map[string]struct {
		plan   kernels.StepPlan
		sums   []float64
		before map[int]float64
		after  map[int]float64
	}{
		"made": {sums: []float64{9, 16}, after: map[int]float64{
			kernels.ControlVerdict: kernels.StepMade, kernels.ControlNorm: 5, kernels.ControlScale: 1, kernels.ControlRate: 0.2,
			kernels.ControlSteps: 5, kernels.ControlSkippedInARow: 0, kernels.ControlSkipped: 7, kernels.ControlGoodSteps: 2}},
		"clipped": {plan: kernels.StepPlan{ClipNorm: 1, Accumulation: 2}, sums: []float64{9, 16}, after: map[int]float64{
			kernels.ControlNorm: 2.5, kernels.ControlScale: 1 / (2.5 + 1e-6) / 2}},
		"below the limit": {plan: kernels.StepPlan{ClipNorm: 6}, sums: []float64{9, 16}, after: map[int]float64{kernels.ControlScale: 1}},
		"not a number": {sums: []float64{9, math.NaN(), math.Inf(1)}, after: map[int]float64{
			kernels.ControlVerdict: 1, kernels.ControlSteps: 4, kernels.ControlSkipped: 8, kernels.ControlSkippedInARow: 3,
			kernels.ControlGoodSteps: 0, kernels.ControlLossScale: 8}},
		"infinite": {plan: kernels.StepPlan{LossScaling: scaling}, sums: []float64{9, 1, math.Inf(1)}, after: map[int]float64{
			kernels.ControlVerdict: 2, kernels.ControlNorm: math.Inf(1), kernels.ControlLossScale: 4}},
		"too large to be squared": {plan: kernels.StepPlan{ClipNorm: 1}, sums: []float64{9, 0x1p128 * 64, 1}, after: map[int]float64{
			kernels.ControlVerdict: 1, kernels.ControlSteps: 4, kernels.ControlSkippedInARow: 3}},
		"just small enough": {plan: kernels.StepPlan{Accumulation: 2}, sums: []float64{0x1p128 * 255, 0}, after: map[int]float64{
			kernels.ControlVerdict: kernels.StepMade, kernels.ControlSteps: 5}},
		"a loss scale that grows": {plan: kernels.StepPlan{LossScaling: scaling}, sums: []float64{64}, after: map[int]float64{
			kernels.ControlNorm: 1, kernels.ControlScale: 0.125, kernels.ControlLossScale: 16, kernels.ControlGoodSteps: 0}},
		"no rate": {sums: []float64{9}, before: map[int]float64{kernels.ControlSteps: 5}, after: map[int]float64{
			kernels.ControlVerdict: kernels.NoRate, kernels.ControlSteps: 5, kernels.ControlSkipped: 7}},
		"a step before the rates": {sums: []float64{9}, before: map[int]float64{kernels.ControlSteps: 2}, after: map[int]float64{
			kernels.ControlVerdict: kernels.NoRate}},
		"a step behind the rates": {sums: []float64{9}, before: map[int]float64{kernels.ControlSteps: 7}, after: map[int]float64{
			kernels.ControlVerdict: kernels.NoRate}},
	} {
		control := newControl(4)
		control[kernels.ControlSkipped], control[kernels.ControlSkippedInARow], control[kernels.ControlGoodSteps] = 7, 2, 1
		if name != "made" && name != "clipped" && name != "below the limit" {
			control[kernels.ControlLossScale] = 8
		}
		for at, x := range c.before {
			control[at] = x
		}
		want := reference.PlanStep(c.plan, c.sums, control)
		if err := b.PlanStep(c.plan, kernels.Of(c.sums, len(c.sums)), kernels.Of(control, len(control))); err != nil {
			t.Fatal(err)
		}
		for at, x := range c.after {
			if control[at] != x {
				t.Errorf("%s: number %d is %v, it needs to be %v", name, at, control[at], x)
			}
		}
		for at, x := range want {
			if control[at] != x && !(math.IsNaN(x) && math.IsNaN(control[at])) {
				t.Errorf("%s: number %d is %v, the reference gives %v", name, at, control[at], x)
			}
		}
	}
}

// A control vector's numbers have the effect of options, and where it says that a step is skipped,
// gradients alone change.
func TestControlledUpdates(t *testing.T) {
	c, b := newUpdateCase[float32](), cpu.New()
	control := newControl(12)
	control[kernels.ControlRate], control[kernels.ControlScale] = 0.25, 0.5
	w, g, m, v := tensors(c.w), tensors(c.g), tensors(c.m), tensors(c.v)
	all := func() (list []float32) {
		for _, fields := range [][]field[float32]{c.w, c.m, c.v} {
			typed, _ := joined(fields)
			list = append(list, typed...)
		}
		return list
	}
	for name, update := range map[string]func(u kernels.Update, step int) error{
		"adamw": func(u kernels.Update, step int) error {
			return b.AdamW(kernels.AdamW{Update: u, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: step}, w, g, m, v)
		},
		"sgd": func(u kernels.Update, _ int) error { return b.SGD(kernels.SGD{Update: u, Momentum: 0.9}, w, g, m) },
		"lion": func(u kernels.Update, _ int) error {
			return b.Lion(kernels.Lion{Update: u, Beta1: 0.9, Beta2: 0.99}, w, g, m)
		},
	} {
		run := func(u kernels.Update, step int) []float32 {
			c.restore()
			if err := update(u, step); err != nil {
				t.Fatal(err)
			}
			return all()
		}
		c.restore()
		before := all()
		control[kernels.ControlVerdict] = kernels.StepMade
		by := kernels.Update{LearningRate: 2, WeightDecay: 0.1, GradientScale: 4, ClearGradients: true, Control: kernels.Of(control, len(control))}
		plain := kernels.Update{LearningRate: 0.5, WeightDecay: 0.1, GradientScale: 2, ClearGradients: true}
		want := run(plain, 12)
		if !slices.Equal(run(by, 0), want) || slices.Equal(want, before) {
			t.Errorf("%s: a control vector has another effect than options", name)
		}
		for _, verdict := range []float64{0, 3, kernels.NoRate} {
			control[kernels.ControlVerdict] = verdict
			if !slices.Equal(run(by, 0), before) {
				t.Errorf("%s: a step with verdict %v changed something", name, verdict)
			}
			if typed, _ := joined(c.g); slices.ContainsFunc(typed, func(x float32) bool { return x != 0 }) {
				t.Errorf("%s: a step with verdict %v did not clear the gradients", name, verdict)
			}
		}
	}
}

func TestZero(t *testing.T) { bothTypes(t, testZero[float32], testZero[float64]) }

func testZero[T kernels.Float](t *testing.T) {
	c := newUpdateCase[T]()
	want, _ := joined(c.g)
	clear(want)
	verify[T](t, fmt.Sprintf("shapes=%v", parameterShapes), func(b *cpu.Backend) ([]result, error) {
		c.restore()
		err := b.Zero(tensors(c.g))
		_, got := joined(c.g)
		return []result{{name: "x", got: got, ref: widened(want), pt: widened(want)}}, err
	})
}

func TestOptimizerErrors(t *testing.T) {
	b := cpu.New()
	list := func(shapes ...[]int) (all []kernels.Tensor) {
		for _, s := range shapes {
			all = append(all, newField[float32](newRandom(), 0, s...).Tensor)
		}
		return all
	}
	x, other := list([]int{2, 3}, []int{4}), list([]int{2, 3}, []int{5})
	double := []kernels.Tensor{x[0], kernels.Of(make([]float64, 4), 4)}
	half := slices.Clone(x)
	half[0].DType, half[1].DType = kernels.F16, kernels.F16
	turned := []kernels.Tensor{x[0], kernels.Of(make([]float32, 8), 4, 2).Slice(1, 0, 1).Permute(1, 0)}
	turned[1].Shape, turned[1].Strides = []int{4}, []int{2}
	good := kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Step: 1}
	with := func(change func(o *kernels.AdamW)) error {
		o := good
		change(&o)
		return b.AdamW(o, x, x, x, x)
	}
	sums := make([]float64, 2)
	checkErrors(t, []errorCase{
		{"cpu: adamw: g has 1 tensors, it needs one for each of the 2 of w", b.AdamW(good, x, x[:1], x, x)},
		{"cpu: adamw: v[1] has shape [5] and strides [1], it needs shape [4]", b.AdamW(good, x, x, x, other)},
		{"cpu: adamw: m[1] is float64, it needs w[0]'s float32", b.AdamW(good, x, x, double, x)},
		{"cpu: adamw: g[1] has strides [2] for shape [4], it needs a stride of 1 on axis 0", b.AdamW(good, x, turned, x, x)},
		{"cpu: adamw: step is 0, it needs to be at least 1", with(func(o *kernels.AdamW) { o.Step = 0 })},
		{"cpu: adamw: beta1 is 1, it needs to be in [0, 1)", with(func(o *kernels.AdamW) { o.Beta1 = 1 })},
		{"cpu: adamw: beta2 is NaN, it needs to be in [0, 1)", with(func(o *kernels.AdamW) { o.Beta2 = math.NaN() })},
		{"cpu: adamw: epsilon is -1, it needs to be finite and not negative", with(func(o *kernels.AdamW) { o.Epsilon = -1 })},
		{"cpu: adamw: epsilon is 1e-50, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37", with(func(o *kernels.AdamW) { o.Epsilon = 1e-50 })},
		{"cpu: adamw: learning rate is -1, it needs to be finite and not negative", with(func(o *kernels.AdamW) { o.LearningRate = -1 })},
		{"cpu: adamw: weight decay is +Inf, it needs to be finite and not negative", with(func(o *kernels.AdamW) { o.WeightDecay = math.Inf(1) })},
		{"cpu: adamw: gradient scale is NaN, it needs to be finite, or 0 for 1", with(func(o *kernels.AdamW) { o.GradientScale = math.NaN() })},
		{"cpu: sgd: m has 0 tensors, it needs one for each of the 2 of w", b.SGD(kernels.SGD{Momentum: 0.9}, x, x, nil)},
		{"cpu: sgd: momentum is 0, Nesterov's needs it to be positive", b.SGD(kernels.SGD{Nesterov: true}, x, x, nil)},
		{"cpu: sgd: momentum is 1, it needs to be in [0, 1)", b.SGD(kernels.SGD{Momentum: 1}, x, x, x)},
		{"cpu: sgd: clear gradients is true, it needs to be false where g is float16", b.SGD(kernels.SGD{Update: kernels.Update{ClearGradients: true}}, x, half, nil)},
		{"cpu: sgd: g[1] is float32, it needs g[0]'s float16", b.SGD(kernels.SGD{}, x, []kernels.Tensor{half[0], x[1]}, nil)},
		{"cpu: sgd by gradients of float16 is not supported there", b.SGD(kernels.SGD{}, x, half, nil)},
		{"cpu: momentum: m[1] is float64, it needs y[0]'s float32", b.Momentum(kernels.SGD{Momentum: 0.9}, x, double, x, kernels.Tensor{})},
		{"cpu: momentum: sums has shape [1] and strides [1], it needs shape [2]", b.Momentum(kernels.SGD{Momentum: 0.9}, x, x, x, kernels.Of(sums, 1))},
		{"cpu: momentum: momentum is 0, it needs to be positive", b.Momentum(kernels.SGD{}, x, x, x, kernels.Tensor{})},
		{"cpu: normalize: factor is NaN, it needs to be finite", b.Normalize(x, kernels.Of(sums, 2), math.NaN(), x)},
		{"cpu: normalize: y has 1 tensors, it needs one for each of the 2 of x", b.Normalize(x, kernels.Of(sums, 2), 1, x[:1])},
		{"cpu: normalize: sums is missing, it needs shape [2]", b.Normalize(x, kernels.Tensor{}, 1, x)},
		{"cpu: normalize to float16 is not supported there", b.Normalize(x, kernels.Of(sums, 2), 1, half)},
		{"cpu: lion: beta2 is 2, it needs to be in [0, 1)", b.Lion(kernels.Lion{Beta2: 2}, x, x, x)},
		{"cpu: zero: x[0] is no dtype, it needs to be float32 or float64", b.Zero(make([]kernels.Tensor, 1))},
		{"cpu: adamw: control has shape [2] and strides [1], it needs shape [14]", with(func(o *kernels.AdamW) { o.Control = kernels.Of(sums, 2) })},
		{"cpu: plan step: control is missing, it needs shape [14]", b.PlanStep(kernels.StepPlan{}, kernels.Of(sums, 2), kernels.Tensor{})},
		{"cpu: plan step: sums is float32, it needs to be float64", b.PlanStep(kernels.StepPlan{}, x[1], kernels.Tensor{})},
		{"cpu: plan step: clip norm is -1, it needs to be finite and positive, or 0 for no limit",
			b.PlanStep(kernels.StepPlan{ClipNorm: -1}, kernels.Of(sums, 2), kernels.Tensor{})},
		{"cpu: plan step: loss scaling's backoff is 2, it needs to be in (0, 1], or 0 for 0.5",
			b.PlanStep(kernels.StepPlan{LossScaling: kernels.LossScaling{Backoff: 2}}, kernels.Of(sums, 2), kernels.Tensor{})},
		{"cpu: sum of squares: sums is float32, it needs to be float64", b.SumSquares(x, x[0])},
		{"cpu: sum of squares: sums has shape [1] and strides [1], it needs shape [2]", b.SumSquares(x, kernels.Of(sums, 1))},
	})
}

// BenchmarkOptimizer measures steps over 25 million parameters in float32 beside a copy of as many
// bytes as a step reads and writes.
func BenchmarkOptimizer(b *testing.B) {
	const n = 25 << 20
	r := newRandom()
	f := func() []kernels.Tensor {
		x := make([]float32, n)
		for i := range x {
			x[i] = r.Float32()
		}
		return []kernels.Tensor{kernels.Of(x, n)}
	}
	w, g, m, v, sums := f(), f(), f(), f(), kernels.Of(make([]float64, 1), 1)
	keep := kernels.Update{LearningRate: 1e-3, WeightDecay: 0.1, GradientScale: 0.5}
	clearing := keep
	clearing.ClearGradients = true
	for _, k := range []struct {
		name    string
		streams int // of n elements, read or written
		do      func(b *cpu.Backend) error
	}{
		{"adamw", 7, func(b *cpu.Backend) error {
			return b.AdamW(kernels.AdamW{Update: keep, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 10}, w, g, m, v)
		}},
		{"adamw clearing", 8, func(b *cpu.Backend) error {
			return b.AdamW(kernels.AdamW{Update: clearing, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 10}, w, g, m, v)
		}},
		{"sgd", 3, func(b *cpu.Backend) error { return b.SGD(kernels.SGD{Update: keep}, w, g, nil) }},
		{"sgd momentum", 5, func(b *cpu.Backend) error { return b.SGD(kernels.SGD{Update: keep, Momentum: 0.9}, w, g, m) }},
		{"lion", 5, func(b *cpu.Backend) error {
			return b.Lion(kernels.Lion{Update: keep, Beta1: 0.9, Beta2: 0.99}, w, g, m)
		}},
		{"sum of squares", 1, func(b *cpu.Backend) error { return b.SumSquares(g, sums) }},
		{"zero", 1, func(b *cpu.Backend) error { return b.Zero(g) }},
	} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", k.name, threads), func(b *testing.B) {
				backend := &cpu.Backend{Threads: threads}
				var took []time.Duration
				measureBesideCopy(b, threads, 4*n*k.streams, func() error {
					start := time.Now()
					defer func() { took = append(took, time.Since(start)) }()
					return k.do(backend)
				})
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/n, "ns/parameter")
			})
		}
	}
}
