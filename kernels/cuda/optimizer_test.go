//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// parameterShapes are the parameters of one call: ends of groups of four and of chunks, tensors
// shorter than either, and none at all.
var parameterShapes = [][]int{{3}, {16, 33}, {4096}, {}, {5, 16411}, {1}, {0, 4}, {16384}, {16385}, {7}, {37, 2048}}

// parameterList is tensors of the device that lie in one piece of memory, with gaps between them in
// which nothing may be written; every third begins where four elements cannot be moved at once.
type parameterList struct {
	host    []float32 // of the memory
	offsets []int
	memory  kernels.Tensor
	tensors []kernels.Tensor
}

const gap = 1e9

func newParameterList(t testing.TB, d *cuda.Device, shapes [][]int, shift int, value func() float64) *parameterList {
	t.Helper()
	p := &parameterList{}
	for i, shape := range shapes {
		for len(p.host)%4 != 0 || len(p.host) == 0 {
			p.host = append(p.host, gap)
		}
		if i%3 == shift {
			p.host = append(p.host, gap)
		}
		p.offsets = append(p.offsets, len(p.host))
		for range kernels.Contiguous(nil, kernels.F32, shape...).Elements() {
			p.host = append(p.host, float32(value()))
		}
		p.host = append(p.host, gap)
	}
	var err error
	if p.memory, err = d.Alloc(kernels.F32, len(p.host)); err != nil {
		t.Fatal(err)
	}
	for i, shape := range shapes {
		n := kernels.Contiguous(nil, kernels.F32, shape...).Elements()
		p.tensors = append(p.tensors, p.memory.Slice(0, p.offsets[i], p.offsets[i]+n).Reshape(shape...))
	}
	p.up(t, d)
	return p
}

// up makes the device's memory what the host's is.
func (p *parameterList) up(t testing.TB, d *cuda.Device) {
	t.Helper()
	if err := d.Copy(p.memory, kernels.Of(p.host, len(p.host))); err != nil {
		t.Fatal(err)
	}
}

// elements are those of all tensors, as the host has them.
func (p *parameterList) elements() (list []float32) {
	for i, x := range p.tensors {
		list = append(list, p.host[p.offsets[i]:p.offsets[i]+x.Elements()]...)
	}
	return list
}

// down returns the elements of all tensors as the device has them, and fails where something lies
// in a gap.
func (p *parameterList) down(t testing.TB, d *cuda.Device) (list []float32) {
	t.Helper()
	now := make([]float32, len(p.host))
	if err := d.Copy(kernels.Of(now, len(now)), p.memory); err != nil {
		t.Fatal(err)
	}
	at := 0
	for i, x := range p.tensors {
		for ; at < p.offsets[i]; at++ {
			if now[at] != gap {
				t.Fatalf("before tensor %d, element %d of the memory was written", i, at)
			}
		}
		list = append(list, now[at:at+x.Elements()]...)
		at += x.Elements()
	}
	if now[at] != gap {
		t.Fatal("the element behind the last tensor was written")
	}
	return list
}

func wide(list []float32) []float64 {
	all := make([]float64, len(list))
	for i, x := range list {
		all[i] = float64(x)
	}
	return all
}

// compare fails where got is further from the float64 result than twice what the same formula in
// float32 is.
func compare(t *testing.T, what string, got, unfused []float32, want []float64) {
	t.Helper()
	worst, allowed, largest := 0.0, 0.0, 0.0
	for i, w := range want {
		if math.IsNaN(float64(got[i])) {
			t.Errorf("%s: element %d is NaN", what, i)
			return
		}
		worst, allowed = max(worst, math.Abs(float64(got[i])-w)), max(allowed, math.Abs(float64(unfused[i])-w))
		largest = max(largest, math.Abs(w))
	}
	if worst > 2*allowed+1e-6*largest {
		t.Errorf("%s: the error is %.3g, that of an unfused program is %.3g", what, worst, allowed)
	}
}

func newControl(t testing.TB, d *cuda.Device, list ...float64) kernels.Tensor {
	t.Helper()
	c, err := d.Alloc(kernels.F64, len(list))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Copy(c, kernels.Of(list, len(list))); err != nil {
		t.Fatal(err)
	}
	return c
}

// updateCase is an update, and the lists that it leaves: the weights, and the states if there are
// any.
type updateCase struct {
	run     func() error
	want    [][]float64
	unfused [][]float32
}

func TestOptimizers(t *testing.T) {
	d := device(t)
	random := rand.New(rand.NewPCG(5, 6))
	square := func() float64 { x := random.NormFloat64(); return x * x }
	w, g := newParameterList(t, d, parameterShapes, 0, random.NormFloat64), newParameterList(t, d, parameterShapes, 1, random.NormFloat64)
	m, v := newParameterList(t, d, parameterShapes, 0, random.NormFloat64), newParameterList(t, d, parameterShapes, 2, square)
	g.host[g.offsets[1]], m.host[m.offsets[1]] = 0, 0 // where nothing ever pulled, Lion's sign is zero
	w32, g32, m32, v32 := w.elements(), g.elements(), m.elements(), v.elements()
	w64, g64, m64, v64 := wide(w32), wide(g32), wide(m32), wide(v32)
	lists := []*parameterList{w, m, v}

	decided := make([]float64, kernels.ControlSize)
	decided[kernels.ControlSteps], decided[kernels.ControlVerdict] = 1000, kernels.StepMade
	decided[kernels.ControlRate], decided[kernels.ControlScale] = 0.04, 0.125
	skipped := slices.Clone(decided)
	skipped[kernels.ControlVerdict] = 4
	plain := kernels.Update{LearningRate: 1e-2, WeightDecay: 0.1, GradientScale: 0.25, ClearGradients: true}
	by := plain
	by.LearningRate, by.GradientScale = 0.25, 2
	updates := map[string][2]kernels.Update{} // what the device is told, and what it means
	updates["plain"] = [2]kernels.Update{{LearningRate: 0.5}, {LearningRate: 0.5}}
	updates["scaled"] = [2]kernels.Update{plain, plain}
	by.Control = newControl(t, d, decided...)
	updates["decided"] = [2]kernels.Update{by, plain}
	by.Control = newControl(t, d, skipped...)
	updates["skipped"] = [2]kernels.Update{by, {}}

	for name, u := range updates {
		o := kernels.AdamW{Update: u[1], Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8, Step: 1000}
		a64, b64, c64 := reference.AdamW(o, w64, g64, m64, v64)
		a32, b32, c32 := reference.AdamW(o, w32, g32, m32, v32)
		o.Update = u[0]
		if o.Control.IsSet() {
			o.Step = 0
		}
		cases := map[string]updateCase{"adamw": {func() error { return d.AdamW(o, w.tensors, g.tensors, m.tensors, v.tensors) },
			[][]float64{a64, b64, c64}, [][]float32{a32, b32, c32}}}

		l := kernels.Lion{Update: u[1], Beta1: 0.9, Beta2: 0.99}
		a64, b64 = reference.Lion(l, w64, g64, m64)
		a32, b32 = reference.Lion(l, w32, g32, m32)
		l.Update = u[0]
		cases["lion"] = updateCase{func() error { return d.Lion(l, w.tensors, g.tensors, m.tensors) },
			[][]float64{a64, b64}, [][]float32{a32, b32}}

		for kind, s := range map[string]kernels.SGD{"sgd": {}, "sgd decoupled": {Decoupled: true}, "momentum": {Momentum: 0.9},
			"nesterov": {Momentum: 0.9, Nesterov: true}, "nesterov decoupled": {Momentum: 0.5, Nesterov: true, Decoupled: true}} {
			var momentum []kernels.Tensor
			var momentum32 []float32
			var momentum64 []float64
			if s.Momentum > 0 {
				momentum, momentum32, momentum64 = m.tensors, m32, m64
			}
			s.Update = u[1]
			a64, b64 := reference.SGD(s, w64, g64, momentum64)
			a32, b32 := reference.SGD(s, w32, g32, momentum32)
			s.Update = u[0]
			cases[kind] = updateCase{func() error { return d.SGD(s, w.tensors, g.tensors, momentum) },
				[][]float64{a64, b64}, [][]float32{a32, b32}}
		}
		for kind, c := range cases {
			what := kind + ", " + name
			for _, list := range []*parameterList{w, g, m, v} {
				list.up(t, d)
			}
			if err := c.run(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for i, list := range lists {
				switch got := list.down(t, d); {
				case i >= len(c.want) || c.want[i] == nil || name == "skipped": // not the rule's to change
					if !slices.Equal(got, list.elements()) {
						t.Errorf("%s: list %d changed", what, i)
					}
				default:
					compare(t, fmt.Sprintf("%s: list %d", what, i), got, c.unfused[i], c.want[i])
				}
			}
			wantG := g32
			if u[0].ClearGradients {
				wantG = make([]float32, len(g32))
			}
			if !slices.Equal(g.down(t, d), wantG) {
				t.Errorf("%s: the gradients are not what they need to be", what)
			}
		}
	}
}

// halves is a list in float16, on the device.
func (p *parameterList) halves(t testing.TB, d *cuda.Device) (list []kernels.Tensor) {
	t.Helper()
	for _, x := range p.tensors {
		half, err := d.Alloc(kernels.F16, x.Shape...)
		if err == nil && x.Elements() > 0 {
			err = d.Copy(half, x)
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, half)
	}
	return list
}

// Momentum gives what SGD adds to weights of zero, with its squares' sums, which have the bits of
// SumSquares. A skipped step gives zeros. SGD by gradients of float16 is SGD by their numbers.
func TestMomentum(t *testing.T) {
	d := device(t)
	random := rand.New(rand.NewPCG(11, 12))
	list := func(shift int) *parameterList {
		return newParameterList(t, d, parameterShapes, shift, random.NormFloat64)
	}
	g, m, y := list(0), list(1), list(2)
	control := make([]float64, kernels.ControlSize)
	control[kernels.ControlSteps], control[kernels.ControlVerdict], control[kernels.ControlRate], control[kernels.ControlScale] = 3, kernels.StepMade, 0.1, 0.5
	made := newControl(t, d, control...)
	control[kernels.ControlVerdict] = 2
	skipped := newControl(t, d, control...)
	for name, c := range map[string]struct {
		kernels.SGD
		scale float64
	}{
		"plain":             {kernels.SGD{Momentum: 0.9}, 1},
		"nesterov, cleared": {kernels.SGD{Momentum: 0.95, Nesterov: true, Update: kernels.Update{GradientScale: 0.25, ClearGradients: true, LearningRate: 7}}, 0.25},
		"decided":           {kernels.SGD{Momentum: 0.95, Nesterov: true, Update: kernels.Update{Control: made, LearningRate: 3}}, 0.5},
		"skipped":           {kernels.SGD{Momentum: 0.95, Update: kernels.Update{Control: skipped, ClearGradients: true}}, 0},
	} {
		for _, p := range []*parameterList{g, m, y} {
			p.up(t, d)
		}
		sums, again := newControl(t, d, make([]float64, len(g.tensors))...), newControl(t, d, make([]float64, len(g.tensors))...)
		if err := d.Fill(sums, math.NaN()); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Momentum(c.SGD, g.tensors, m.tensors, y.tensors, sums), d.SumSquares(y.tensors, again)); err != nil {
			t.Fatal(err)
		}
		o := c.SGD
		o.Update = kernels.Update{GradientScale: c.scale}
		m32, y32 := reference.Momentum(o, g.elements(), m.elements())
		m64, y64 := reference.Momentum(o, wide(g.elements()), wide(m.elements()))
		gotM, gotY, gotG := m.down(t, d), y.down(t, d), g.down(t, d)
		if name == "skipped" {
			if !slices.Equal(gotM, m.elements()) || slices.ContainsFunc(gotY, func(x float32) bool { return x != 0 }) {
				t.Error("a skipped step changes momenta, or gives steps")
			}
		} else {
			compare(t, name+": m", gotM, m32, m64)
			compare(t, name+": y", gotY, y32, y64)
		}
		wantG := g.elements()
		if c.ClearGradients {
			clear(wantG)
		}
		if !slices.Equal(gotG, wantG) {
			t.Errorf("%s: the gradients are not what they need to be", name)
		}
		got, want := make([]float64, len(g.tensors)), make([]float64, len(g.tensors))
		if err := errors.Join(d.Copy(kernels.Of(got, len(got)), sums), d.Copy(kernels.Of(want, len(want)), again)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the sums are %v, of SumSquares %v", name, got, want)
		}
	}
}

// Normalize gives tensors one norm in float32 and float16, and leaves zeros what they are.
func TestNormalize(t *testing.T) {
	d := device(t)
	random := rand.New(rand.NewPCG(13, 14))
	x, y := newParameterList(t, d, parameterShapes, 0, random.NormFloat64), newParameterList(t, d, parameterShapes, 1, random.NormFloat64)
	for i := range x.tensors[1].Elements() {
		x.host[x.offsets[1]+i] = 0
	}
	for i := range x.tensors[2].Elements() {
		x.host[x.offsets[2]+i] *= 1e-30 // its squares are no float32
	}
	x.up(t, d)
	sums := newControl(t, d, make([]float64, len(x.tensors))...)
	if err := errors.Join(d.SumSquares(x.tensors, sums), d.Normalize(x.tensors, sums, -0.75, y.tensors)); err != nil {
		t.Fatal(err)
	}
	var want []float64
	var plain []float32
	for i, tensor := range x.tensors {
		list := x.host[x.offsets[i]:][:tensor.Elements()]
		want, plain = append(want, reference.Normalize(wide(list), -0.75)...), append(plain, reference.Normalize(list, -0.75)...)
	}
	compare(t, "float32", y.down(t, d), plain, want)
	half := y.halves(t, d)
	for _, h := range half {
		if h.Elements() > 0 {
			if err := d.Fill(h, math.NaN()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Normalize(x.tensors, sums, -0.75, half); err != nil {
		t.Fatal(err)
	}
	at := 0
	for i, h := range half {
		if h.Elements() == 0 {
			continue
		}
		for k, got := range download(t, d, h) {
			if want := roundedTo(kernels.F16, float64(float32(want[at]))); math.Abs(got-want) > 1e-3*math.Abs(want) {
				t.Fatalf("float16: number %d of tensor %d is %v instead of %v", k, i, got, want)
			}
			at++
		}
	}
}

// Weights move by gradients of float16 as by the same numbers in float32.
func TestSGDByHalves(t *testing.T) {
	d := device(t)
	random := rand.New(rand.NewPCG(15, 16))
	w, g := newParameterList(t, d, parameterShapes, 0, random.NormFloat64), newParameterList(t, d, parameterShapes, 1, func() float64 {
		return roundedTo(kernels.F16, random.NormFloat64())
	})
	for _, o := range []kernels.SGD{{Update: kernels.Update{LearningRate: 0.3}}, {Update: kernels.Update{LearningRate: 0.1, WeightDecay: 0.2, GradientScale: 0.5}, Decoupled: true}} {
		var got [2][]float32
		for i, gradients := range [][]kernels.Tensor{g.tensors, g.halves(t, d)} {
			w.up(t, d)
			if err := d.SGD(o, w.tensors, gradients, nil); err != nil {
				t.Fatal(err)
			}
			got[i] = w.down(t, d)
		}
		if !slices.Equal(got[0], got[1]) || slices.Equal(got[0], w.elements()) {
			t.Errorf("%+v: gradients of float16 and float32 give other weights, or change none", o)
		}
	}
}

// Sums are right and the same bits wherever the tensors lie, and tell tensors with an element that
// is not finite.
func TestSumSquares(t *testing.T) {
	d := device(t)
	sums := newControl(t, d, make([]float64, len(parameterShapes))...)
	got := func(list *parameterList) []float64 {
		t.Helper()
		if err := d.Fill(sums, math.NaN()); err != nil {
			t.Fatal(err)
		}
		host := make([]float64, len(parameterShapes))
		if err := errors.Join(d.SumSquares(list.tensors, sums), d.Copy(kernels.Of(host, len(host)), sums)); err != nil {
			t.Fatal(err)
		}
		return host
	}
	var first []float64
	for shift := range 3 {
		random := rand.New(rand.NewPCG(7, 8))
		list := newParameterList(t, d, parameterShapes, shift, random.NormFloat64)
		found := got(list)
		for i, x := range list.tensors {
			want := reference.SumSquares(list.host[list.offsets[i] : list.offsets[i]+x.Elements()])
			if !(math.Abs(found[i]-want) <= 1e-12*want) { // of which the reference, adding one by one, has a part
				t.Errorf("the sum of tensor %d is %.17g, it needs to be %.17g", i, found[i], want)
			}
		}
		if first == nil {
			first = found
		}
		if !slices.Equal(found, first) {
			t.Error("tensors that lie elsewhere have another sum")
		}
		for _, bad := range []float64{math.NaN(), math.Inf(-1), math.MaxFloat32} {
			at := random.IntN(len(parameterShapes))
			for list.tensors[at].Elements() == 0 {
				at++
			}
			place := &list.host[list.offsets[at]+random.IntN(list.tensors[at].Elements())]
			before := *place
			*place = float32(bad)
			list.up(t, d)
			for i, sum := range got(list) {
				if finite := !math.IsNaN(sum) && !math.IsInf(sum, 0); finite == (i == at && bad != math.MaxFloat32) {
					t.Errorf("with %v in tensor %d, the sum of tensor %d is %v", bad, at, i, sum)
				}
			}
			*place = before
			list.up(t, d)
		}
	}
}

// A step that is recorded, decided on the device and replayed does what the host's kernels do, and
// skips as they do.
func TestRecordedSteps(t *testing.T) {
	d, host := device(t), cpu.New()
	random := rand.New(rand.NewPCG(9, 10))
	list := func() *parameterList { return newParameterList(t, d, parameterShapes, 1, random.NormFloat64) }
	w, g, m, v := list(), list(), list(), list()
	for i := range v.host {
		v.host[i] = float32(math.Abs(float64(v.host[i])))
	}
	v.up(t, d)
	onHost := func(p *parameterList) (all []kernels.Tensor) {
		for i, x := range p.tensors {
			n := x.Elements()
			all = append(all, kernels.Of(slices.Clone(p.host[p.offsets[i]:p.offsets[i]+n]), x.Shape...))
		}
		return all
	}
	hw, hm, hv := onHost(w), onHost(m), onHost(v)
	p := kernels.StepPlan{ClipNorm: 300, Accumulation: 2, LossScaling: kernels.LossScaling{Interval: 3}}
	begin := make([]float64, kernels.ControlSize)
	begin[kernels.ControlLossScale] = 4
	control, hostControl := newControl(t, d, begin...), kernels.Of(slices.Clone(begin), len(begin))
	sums, hostSums := newControl(t, d, make([]float64, len(parameterShapes))...), kernels.Of(make([]float64, len(parameterShapes)), len(parameterShapes))
	step := func(b kernels.Backend, control, sums kernels.Tensor, w, g, m, v []kernels.Tensor) error {
		o := kernels.AdamW{Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8,
			Update: kernels.Update{LearningRate: 0.5, WeightDecay: 0.1, ClearGradients: true, Control: control}}
		return errors.Join(b.SumSquares(g, sums), b.PlanStep(p, sums, control), b.AdamW(o, w, g, m, v))
	}
	recorded, err := d.Capture(func() error { return step(d, control, sums, w.tensors, g.tensors, m.tensors, v.tensors) })
	if err != nil {
		t.Fatal(err)
	}
	c, now := kernels.Host[float64](hostControl), make([]float64, kernels.ControlSize)
	for round := range 12 {
		for i := range g.offsets {
			for j := range g.tensors[i].Elements() {
				g.host[g.offsets[i]+j] = float32(random.NormFloat64() * float64(round))
			}
		}
		if round%4 == 2 {
			g.host[g.offsets[4]+3000] = []float32{float32(math.Inf(1)), 3e38, float32(math.NaN())}[round/4]
		}
		g.up(t, d)
		rates := []float64{c[kernels.ControlSteps], 0.01, math.NaN(), math.NaN(), math.NaN()}
		if round == 7 {
			rates[1] = math.NaN()
		}
		copy(c[kernels.ControlFirstRate:], rates)
		if err := errors.Join(d.Copy(control.Slice(0, kernels.ControlFirstRate, kernels.ControlSize), kernels.Of(rates, len(rates))),
			recorded.Launch(), step(host, hostControl, hostSums, hw, onHost(g), hm, hv), d.Copy(kernels.Of(now, len(now)), control)); err != nil {
			t.Fatal(err)
		}
		for at, x := range c {
			if math.Abs(now[at]-x) > 1e-12*math.Abs(x) {
				t.Errorf("round %d: number %d of the control vector is %v, the host's kernels make it %v", round, at, now[at], x)
			}
		}
	}
	if c[kernels.ControlSteps] != 8 || c[kernels.ControlSkipped] != 3 {
		t.Errorf("%v steps were made and %v skipped, the test needs 8 and 3", c[kernels.ControlSteps], c[kernels.ControlSkipped])
	}
	for name, lists := range map[string]struct {
		device *parameterList
		host   []kernels.Tensor
	}{"w": {w, hw}, "m": {m, hm}, "v": {v, hv}} {
		got, at := lists.device.down(t, d), 0
		for i, x := range lists.host {
			for j, want := range kernels.Host[float32](x)[:x.Elements()] {
				if diff := math.Abs(float64(got[at] - want)); diff > 1e-5*max(1, math.Abs(float64(want))) {
					t.Fatalf("%s: element %d of tensor %d is %v, the host's kernels make it %v", name, j, i, got[at], want)
				}
				at++
			}
		}
	}
}

func TestOptimizerErrors(t *testing.T) {
	d := device(t)
	x := []kernels.Tensor{alloc(t, d, kernels.F32, 3)}
	onHost := []kernels.Tensor{kernels.Of(make([]float32, 3), 3)}
	double := []kernels.Tensor{alloc(t, d, kernels.F64, 3)}
	sums := newControl(t, d, 0)
	control := kernels.Of(make([]float64, kernels.ControlSize), kernels.ControlSize)
	for _, c := range []struct {
		want string
		err  error
	}{
		{"cuda:0: lion: a tensor is on the host, it needs to be on the device", d.Lion(kernels.Lion{}, x, onHost, x)},
		{"cuda:0: adamw: step is 0, it needs to be at least 1", d.AdamW(kernels.AdamW{}, x, x, x, x)},
		{"cuda:0: sgd: control is on the host, it needs to be on the device", d.SGD(kernels.SGD{Update: kernels.Update{Control: control}}, x, x, nil)},
		{"cuda:0: plan step: control is on the host, it needs to be on the device", d.PlanStep(kernels.StepPlan{}, sums, control)},
		{"cuda:0: sum of squares: sums is float32, it needs to be float64", d.SumSquares(x, x[0])},
		{"cuda:0: sum of squares of float64 is not supported there", d.SumSquares(double, sums)},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("the error is %v, it needs to be: %s", c.err, c.want)
		}
	}
	if err := d.SGD(kernels.SGD{}, double, double, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the error is %v", err)
	}
}

// BenchmarkOptimizer measures steps over the parameters of GPT-2 with 124 million parameters: what
// the device takes for a recorded step, and for its parts.
func BenchmarkOptimizer(b *testing.B) {
	d := device(b)
	const dim = 768
	matrices, vectors := [][]int{{50304, dim}, {1024, dim}}, [][]int{{dim}, {dim}}
	for range 12 {
		matrices = append(matrices, []int{dim, 3 * dim}, []int{dim, dim}, []int{dim, 4 * dim}, []int{4 * dim, dim})
		vectors = append(vectors, []int{3 * dim}, []int{dim}, []int{4 * dim}, []int{dim}, []int{dim}, []int{dim}, []int{dim}, []int{dim})
	}
	n := 0
	list := func(shapes [][]int, x float64) (all []kernels.Tensor) {
		for _, shape := range shapes {
			t, err := d.Alloc(kernels.F32, shape...)
			if err == nil {
				err = d.Fill(t, x)
			}
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, t)
		}
		return all
	}
	shapes := slices.Concat(matrices, vectors)
	for _, shape := range shapes {
		n += kernels.Contiguous(nil, kernels.F32, shape...).Elements()
	}
	w, g, m, v := list(shapes, 1), list(shapes, 0.01), list(shapes, 0), list(shapes, 0)
	var means [3][]kernels.Tensor // of Adafactor
	for _, shape := range shapes {
		rows, columns, all := kernels.Adafactor{}.StateShapes(shape)
		for k, shape := range [][]int{rows, columns, all} {
			if shape == nil {
				means[k] = append(means[k], kernels.Tensor{})
			} else {
				means[k] = append(means[k], list([][]int{shape}, 0)...)
			}
		}
	}
	split := len(matrices)
	begin := make([]float64, kernels.ControlSize)
	begin[kernels.ControlLossScale] = 1
	for i := range kernels.RateWindow {
		begin[kernels.ControlRates+i] = 1e-3
	}
	control, sums := newControl(b, d, begin...), newControl(b, d, make([]float64, len(shapes))...)
	begin[kernels.ControlVerdict], begin[kernels.ControlSteps], begin[kernels.ControlScale] = kernels.StepMade, 10, 1
	fixed := newControl(b, d, begin...)
	update := func(control kernels.Tensor, clear bool) error {
		for _, part := range [][2]int{{0, split}, {split, len(shapes)}} {
			from, to := part[0], part[1]
			o := kernels.AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8,
				Update: kernels.Update{LearningRate: 1, WeightDecay: 0.1, ClearGradients: clear, Control: control}}
			if err := d.AdamW(o, w[from:to], g[from:to], m[from:to], v[from:to]); err != nil {
				return err
			}
		}
		return nil
	}
	for _, k := range []struct {
		name  string
		bytes int // of an element, read or written
		do    func() error
	}{
		{"step", 36, func() error {
			first := control.Slice(0, kernels.ControlSteps, kernels.ControlSteps+1) // has a rate each time
			return errors.Join(d.Fill(first, 0), d.SumSquares(g, sums), d.PlanStep(kernels.StepPlan{ClipNorm: 1}, sums, control), update(control, true))
		}},
		{"adamw clearing", 32, func() error { return update(fixed, true) }},
		{"adamw", 28, func() error { return update(fixed, false) }},
		{"sgd momentum", 20, func() error {
			return d.SGD(kernels.SGD{Momentum: 0.9, Update: kernels.Update{LearningRate: 1, Control: fixed}}, w, g, m)
		}},
		{"lion", 20, func() error {
			return d.Lion(kernels.Lion{Beta1: 0.9, Beta2: 0.99, Update: kernels.Update{LearningRate: 1, Control: fixed}}, w, g, m)
		}},
		{"adafactor", 24, func() error {
			o := kernels.Adafactor{Beta2Decay: -0.8, Epsilon: 1e-3, Clip: 1, Update: kernels.Update{LearningRate: 1, Control: fixed}}
			return d.Adafactor(o, w, g, means[0], means[1], means[2])
		}},
		{"sum of squares", 4, func() error { return d.SumSquares(g, sums) }},
		{"plan", 0, func() error { return d.PlanStep(kernels.StepPlan{ClipNorm: 1}, sums, control) }},
	} {
		b.Run(k.name, func(b *testing.B) {
			recorded, err := d.Capture(k.do)
			if err == nil {
				err = recorded.Launch()
			}
			from, err2 := d.Record()
			if err := errors.Join(err, err2); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := recorded.Launch(); err != nil {
					b.Fatal(err)
				}
			}
			to, err := d.Record()
			if err != nil {
				b.Fatal(err)
			}
			took, err := to.Since(from)
			if err != nil {
				b.Fatal(err)
			}
			each := took.Seconds() / float64(b.N)
			b.ReportMetric(each*1e6, "µs-device")
			b.ReportMetric(float64(k.bytes*n)/each/1e12, "TB/s")
		})
	}
}
