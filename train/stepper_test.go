package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// problem is a graph whose loss is Σ p·g over its parameters: the gradient of p is what the input g
// holds.
type problem struct {
	parameters, gradients gorgonia.Nodes
	machine               gorgonia.VM
}

func newProblem(t testing.TB, dtype tensor.Dtype, names []string, shapes ...[]int) *problem {
	t.Helper()
	g, p := gorgonia.NewGraph(), &problem{}
	var loss *gorgonia.Node
	for i, shape := range shapes {
		node := func(name string) *gorgonia.Node {
			return gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name),
				gorgonia.WithValue(tensor.New(tensor.Of(dtype), tensor.WithShape(shape...))))
		}
		w, dw := node(names[i]), node("gradient of "+names[i])
		p.parameters, p.gradients = append(p.parameters, w), append(p.gradients, dw)
		part := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(w, dw))))
		if loss == nil {
			loss = part
		} else {
			loss = gorgonia.Must(gorgonia.Add(loss, part))
		}
	}
	if err := differentiate(loss, p.parameters); err != nil {
		t.Fatal(err)
	}
	p.machine = gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(p.parameters...))
	return p
}

// run makes the gradients what was set.
func (p *problem) run(t testing.TB) {
	t.Helper()
	if err := p.machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	p.machine.Reset()
}

// set fills a node's value.
func set(n *gorgonia.Node, at func(i int) float64) {
	switch data := n.Value().Data().(type) {
	case []float32:
		for i := range data {
			data[i] = float32(at(i))
		}
	case []float64:
		for i := range data {
			data[i] = at(i)
		}
	}
}

func floats(v gorgonia.Value) (list []float64) {
	switch data := v.Data().(type) {
	case []float32:
		for _, x := range data {
			list = append(list, float64(x))
		}
	case []float64:
		list = slices.Clone(data)
	}
	return list
}

func wave(scale float64, shift int) func(i int) float64 {
	return func(i int) float64 { return scale * math.Sin(float64(3*i+shift)) }
}

// rates is a schedule that is a list.
type rates []float64

func (r rates) LearningRate(step int) float64 { return r[step] }
func (r rates) Validate() error               { return nil }

type golden struct {
	Start     map[string][]float64
	Rates     rates
	Gradients []map[string][]float64
	Results   map[string][]struct {
		Norm       float64
		Parameters map[string][]float64
	}
}

// The weights after each of 20 steps are those of PyTorch, whose inputs and results
// testdata/adamw.py wrote.
func TestLikePyTorch(t *testing.T) {
	data, err := os.ReadFile("testdata/adamw.json")
	if err != nil {
		t.Fatal(err)
	}
	var want golden
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	options := Options{Schedule: want.Rates, Groups: []Group{{Match: Vectors, NoDecay: true}}, ClipNorm: 1}
	for _, c := range []struct {
		dtype tensor.Dtype
		bound float64
	}{{tensor.Float64, 1e-12}, {tensor.Float32, 1e-5}} {
		for name, optimizer := range map[string]Optimizer{
			"AdamW": AdamW{Beta2: 0.95, WeightDecay: 0.1}, "SGD": SGD{Momentum: 0.9, Nesterov: true, WeightDecay: 0.1},
		} {
			p := newProblem(t, c.dtype, []string{"weight", "bias"}, []int{3, 5}, []int{7})
			for _, n := range p.parameters {
				set(n, func(i int) float64 { return want.Start[n.Name()][i] })
			}
			opt, err := NewStepper(p.parameters, optimizer, options)
			if err != nil {
				t.Fatal(err)
			}
			clipped := 0
			for step, result := range want.Results[name] {
				for i, n := range p.parameters {
					set(p.gradients[i], func(j int) float64 { return want.Gradients[step][n.Name()][j] })
				}
				p.run(t)
				report, err := opt.Step()
				if err != nil {
					t.Fatal(err)
				}
				if !(math.Abs(report.GradientNorm-result.Norm) <= c.bound*result.Norm) || report.Step != step+1 || report.Clipped != (result.Norm > 1) {
					t.Errorf("%s %v: step %d reports %+v, the norm needs to be %v", name, c.dtype, step, report, result.Norm)
				}
				if report.Clipped {
					clipped++
				}
				for _, n := range p.parameters {
					for i, got := range floats(n.Value()) {
						if w := result.Parameters[n.Name()][i]; !(math.Abs(got-w) <= c.bound*max(1, math.Abs(w))) {
							t.Fatalf("%s %v: after step %d, %s[%d] is %.17g, it needs to be %.17g: off by %.3g",
								name, c.dtype, step, n.Name(), i, got, w, got-w)
						}
					}
				}
			}
			if clipped == 0 || clipped == len(want.Rates) {
				t.Errorf("%d of %d steps were clipped, the test needs some of both", clipped, len(want.Rates))
			}
		}
	}
}

// optimizers are one of each kind.
var optimizers = map[string]Optimizer{
	"AdamW": AdamW{WeightDecay: 0.1}, "SGD": SGD{}, "SGD with momentum": SGD{Momentum: 0.9, WeightDecay: 0.1, Decoupled: true},
	"Lion": Lion{WeightDecay: 1},
}

// state is an optimiser's state.
func state(t *testing.T, o *Stepper) State {
	t.Helper()
	s, err := o.State()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// trained runs some steps from fixed parameters and gives all parameters. at, if any, may change
// the optimiser before a step.
func trained(t *testing.T, optimizer Optimizer, threads, steps int, dtype tensor.Dtype,
	at func(step int, opt *Stepper) *Stepper) []float64 {
	t.Helper()
	p := newProblem(t, dtype, []string{"a.weight", "a.bias", "b.weight"}, []int{70, 611}, []int{611}, []int{1, 3})
	for i, n := range p.parameters {
		set(n, wave(1, i))
	}
	opt, err := NewStepper(p.parameters, optimizer, Options{Schedule: WarmupCosine{Peak: 0.02, Warmup: 2, Steps: 10}, ClipNorm: 5,
		Groups: []Group{{Match: Any(Vectors, Named("b.*")), NoDecay: true, LearningRateScale: 0.5}}})
	if err != nil {
		t.Fatal(err)
	}
	for step := range steps {
		if at != nil {
			opt = at(step, opt)
		}
		opt.backend = &cpu.Backend{Threads: threads}
		for i, n := range p.gradients {
			set(n, wave(0.1, 5*step+i))
		}
		p.run(t)
		if report, err := opt.Step(); err != nil || report.Skipped {
			t.Fatalf("step %d: %+v, %v", step, report, err)
		}
	}
	var all []float64
	for _, n := range p.parameters {
		all = append(all, floats(n.Value())...)
		if g, err := n.Grad(); err != nil || slices.ContainsFunc(floats(g), func(x float64) bool { return x != 0 }) {
			t.Errorf("the gradient of %s is not zero after a step (%v)", n.Name(), err)
		}
	}
	return all
}

// Steps give the same bits on any number of threads, and when an optimiser takes over another's
// state midway.
func TestBitEqual(t *testing.T) {
	slow.Race(t)
	for name, optimizer := range optimizers {
		for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			want := trained(t, optimizer, 1, 6, dtype, nil)
			if got := trained(t, optimizer, 3, 6, dtype, nil); !slices.Equal(got, want) {
				t.Errorf("%s %v: three threads do not compute what one does", name, dtype)
			}
			resumed := trained(t, optimizer, 2, 6, dtype, func(step int, opt *Stepper) *Stepper {
				if step != 3 {
					return opt
				}
				var nodes gorgonia.Nodes
				for _, p := range opt.parameters {
					nodes = append(nodes, p.node)
				}
				fresh, err := NewStepper(nodes, optimizer, opt.options)
				if err == nil {
					err = fresh.SetState(state(t, opt))
				}
				if err != nil {
					t.Fatal(err)
				}
				return fresh
			})
			if !slices.Equal(resumed, want) {
				t.Errorf("%s %v: a resumed optimiser does not compute what one that went on does", name, dtype)
			}
		}
	}
}

// Two runs whose gradients are averaged are as one run with their mean.
func TestAccumulation(t *testing.T) {
	var results [2][]float64
	for k, runs := range [][]float64{{0.5, 1.5}, {1}} {
		p := newProblem(t, tensor.Float64, []string{"w"}, []int{4, 4})
		opt, err := NewStepper(p.parameters, AdamW{}, Options{Schedule: ConstantRate(0.1), Accumulation: len(runs), ClipNorm: 0.7})
		if err != nil {
			t.Fatal(err)
		}
		for _, scale := range runs {
			set(p.gradients[0], wave(scale, 0))
			p.run(t)
		}
		report, err := opt.Step()
		if err != nil || !report.Clipped {
			t.Fatalf("%+v, %v", report, err)
		}
		results[k] = append(floats(p.parameters[0].Value()), report.GradientNorm)
	}
	for i := range results[0] {
		if !(math.Abs(results[0][i]-results[1][i]) <= 1e-14) {
			t.Fatalf("two runs give %v, one gives %v", results[0], results[1])
		}
	}
}

// A gradient that is not finite, or whose square is not, changes nothing but the counters; after
// too many in a row, Step fails, and one good step is enough to start counting anew.
func TestNonFiniteGradients(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 3e38, -0x1p64} {
		p := newProblem(t, tensor.Float32, []string{"first", "second"}, []int{5}, []int{2, 9})
		opt, err := NewStepper(p.parameters, Lion{}, Options{Schedule: ConstantRate(0.1), ClipNorm: 1, MaxSkips: 3})
		if err != nil {
			t.Fatal(err)
		}
		steps := 0
		for i, isBad := range []bool{false, true, true, false, true, true, true} {
			set(p.gradients[1], wave(1, 0))
			if isBad {
				set(p.gradients[1], func(j int) float64 { return []float64{1, bad}[j/17] })
			} else {
				steps++
			}
			before, momentum := floats(p.parameters[1].Value()), floats(state(t, opt).Tensors["m.second"])
			p.run(t)
			report, err := opt.Step()
			unchanged := slices.Equal(before, floats(p.parameters[1].Value())) && slices.Equal(momentum, floats(state(t, opt).Tensors["m.second"]))
			if report.Skipped != isBad || unchanged != isBad || report.Step != steps || isBad && report.NonFinite != "second" {
				t.Errorf("%v at step %d: %+v, unchanged: %v", bad, i, report, unchanged)
			}
			const want = "Lion: the gradients of 3 steps in a row are not finite, the last of them first in second"
			if last := i == 6; last && (err == nil || !strings.HasPrefix(err.Error(), want)) || !last && err != nil {
				t.Errorf("%v at step %d: the error is %v", bad, i, err)
			}
		}
		if opt.Skipped() != 5 || state(t, opt).Skipped != 5 || state(t, opt).SkippedInARow != 3 {
			t.Errorf("%d steps were skipped, the state is %+v", opt.Skipped(), state(t, opt))
		}
	}
}

// Whatever one gradient was, no optimiser holds its weight for ever.
func TestLargeGradientsFreezeNothing(t *testing.T) {
	for name, clip := range map[string]float64{"without a limit": 0, "with a limit": 1} {
		for _, large := range []float64{1e18, 1.8e19, 3e19, 3e38} {
			p := newProblem(t, tensor.Float32, []string{"w"}, []int{5})
			opt, err := NewStepper(p.parameters, AdamW{}, Options{Schedule: ConstantRate(0.1), ClipNorm: clip})
			if err != nil {
				t.Fatal(err)
			}
			for step := range 2 {
				set(p.gradients[0], func(j int) float64 { return []float64{1, large}[(j+step)%2] })
				p.run(t)
				if _, err := opt.Step(); err != nil {
					t.Fatal(err)
				}
			}
			if v := floats(state(t, opt).Tensors["v.w"]); slices.ContainsFunc(v, func(x float64) bool { return math.IsInf(x, 0) || math.IsNaN(x) }) {
				t.Errorf("%s, a gradient of %v leaves v = %v", name, large, v)
			}
		}
	}
}

func TestZeroGradients(t *testing.T) {
	p := newProblem(t, tensor.Float32, []string{"w"}, []int{5})
	opt, err := NewStepper(p.parameters, SGD{}, Options{Schedule: ConstantRate(1)})
	if err != nil {
		t.Fatal(err)
	}
	set(p.gradients[0], wave(1, 0))
	p.run(t)
	if err := opt.ZeroGradients(); err != nil {
		t.Fatal(err)
	}
	set(p.gradients[0], func(int) float64 { return 0 })
	p.run(t)
	if report, err := opt.Step(); err != nil || report.GradientNorm != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// A step needs a run of its own graph before it: gradients of zero that were computed are fine,
// those that no run computed are not.
func TestStepNeedsARun(t *testing.T) {
	for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		p, other := newProblem(t, dtype, []string{"w", "v"}, []int{5}, []int{2, 2}), newProblem(t, dtype, []string{"w", "v"}, []int{5}, []int{2, 2})
		opt, err := NewStepper(p.parameters, AdamW{}, Options{Schedule: ConstantRate(1)})
		if err != nil {
			t.Fatal(err)
		}
		const want = "AdamW: no gradient was computed since the last step"
		for step, c := range []struct {
			prepare func()
			refused bool
		}{
			{func() { p.run(t) }, false},
			{func() {}, true},
			{func() { other.run(t) }, true}, // another graph
			{func() { p.run(t) }, false},
			{func() { p.run(t); opt.ZeroGradients() }, true},
		} {
			c.prepare()
			if _, err := opt.Step(); (err != nil) != c.refused || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, step %d: error %v, want one with %q: %v", dtype, step, err, want, c.refused)
			}
		}
		// Without a Reset a machine's second run does nothing.
		for range 2 {
			if err := p.machine.RunAll(); err != nil {
				t.Fatal(err)
			}
			_, err = opt.Step()
		}
		if err == nil {
			t.Errorf("%v: a step after a run without a Reset has no error", dtype)
		}
	}
}

// On a device it is the graph that knows whether a run computed gradients since a step used them:
// here a graph on the host.
func TestUsedGradients(t *testing.T) {
	newRun := func() (*gorgonia.ExprGraph, gorgonia.VM) {
		g := gorgonia.NewGraph()
		w := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(4), gorgonia.WithName("w"), gorgonia.WithInit(gorgonia.Ones()))
		loss := gorgonia.Must(ops.Sum(gorgonia.Must(ops.SiLU(w))))
		if _, err := gorgonia.Grad(loss, w); err != nil {
			t.Fatal(err)
		}
		return g, gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(w))
	}
	g, machine := newRun()
	other, otherMachine := newRun()
	run := func(m gorgonia.VM, resets bool) {
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		if resets {
			m.Reset()
		}
	}
	var used usedGradients
	for i, c := range []struct {
		prepare func()
		newer   bool
	}{
		{func() {}, false},
		{func() { run(machine, true) }, true},
		{func() {}, false},
		{func() { run(otherMachine, true) }, false}, // another graph
		{func() { run(machine, false) }, true},
		{func() { run(machine, true) }, false}, // a machine without a Reset does nothing
		{func() { run(machine, true); run(machine, true) }, true},
	} {
		c.prepare()
		if got := used.isNewer(g); got != c.newer {
			t.Errorf("step %d: the gradients are newer: %t, want %t", i, got, c.newer)
		}
		used.mark(g)
	}
	if !used.isNewer(other) {
		t.Error("the other graph's gradients were never used, and are not newer")
	}
}

// One optimiser over two graphs with the same values makes the steps that it makes over one.
func TestUse(t *testing.T) {
	for _, accumulation := range []int{1, 2, 3} {
		var weights [2][]float64
		for k, graphs := range []int{1, 2} {
			var problems []*problem
			for range graphs {
				problems = append(problems, newProblem(t, tensor.Float32, []string{"w", "v"}, []int{5}, []int{2, 2}))
			}
			first := problems[0]
			for i, n := range problems[graphs-1].parameters {
				if err := gorgonia.Let(n, first.parameters[i].Value()); err != nil {
					t.Fatal(err)
				}
			}
			opt, err := NewStepper(first.parameters, AdamW{}, Options{Schedule: ConstantRate(0.1), Accumulation: accumulation})
			if err != nil {
				t.Fatal(err)
			}
			for run := range 12 {
				p := problems[run%graphs]
				for i, n := range p.gradients {
					set(n, wave(float64(run+i), run))
				}
				p.run(t)
				if err := opt.Use(p.parameters); err != nil {
					t.Fatal(err)
				}
				if run%accumulation < accumulation-1 {
					err = opt.Accumulate()
				} else {
					_, err = opt.Step()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			weights[k] = append(floats(first.parameters[0].Value()), floats(first.parameters[1].Value())...)
		}
		for i := range weights[0] {
			if !(math.Abs(weights[0][i]-weights[1][i]) <= 1e-6) {
				t.Errorf("%d runs a step: over two graphs the weights are %v, over one %v", accumulation, weights[1], weights[0])
				break
			}
		}
	}
	p := newProblem(t, tensor.Float32, []string{"w"}, []int{5})
	opt, err := NewStepper(p.parameters, SGD{}, Options{Schedule: ConstantRate(1)})
	if err != nil {
		t.Fatal(err)
	}
	for want, nodes := range map[string]gorgonia.Nodes{
		"0 parameters to use in place of 1": nil,
		"w is not among the parameters":     newProblem(t, tensor.Float32, []string{"v"}, []int{5}).parameters,
		"another value":                     newProblem(t, tensor.Float32, []string{"w"}, []int{5}).parameters,
	} {
		if err := opt.Use(nodes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// A step allocates some small things for its threads, whose number does not grow with that of the
// parameters.
func TestStepAllocations(t *testing.T) {
	for _, n := range []int{5, 50} {
		var names []string
		var shapes [][]int
		for i := range n {
			names, shapes = append(names, fmt.Sprint("w", i)), append(shapes, []int{40, 50})
		}
		p := newProblem(t, tensor.Float32, names, shapes...)
		opt, err := NewStepper(p.parameters, AdamW{}, Options{Schedule: ConstantRate(1e-3), ClipNorm: 1})
		if err != nil {
			t.Fatal(err)
		}
		opt.backend = &cpu.Backend{Threads: 2}
		p.run(t)
		gradient, err := p.parameters[0].Grad()
		if err != nil {
			t.Fatal(err)
		}
		first := gradient.Data().([]float32)
		allocations := testing.AllocsPerRun(20, func() {
			first[0] = 1 // as a run leaves it
			if _, err := opt.Step(); err != nil {
				t.Fatal(err)
			}
		})
		t.Logf("%d parameters: %v allocations", n, allocations)
		if allocations > 40 {
			t.Errorf("a step over %d parameters allocates %v times, it needs to be 40 or fewer", n, allocations)
		}
	}
}

func TestErrors(t *testing.T) {
	p := newProblem(t, tensor.Float32, []string{"a", "b"}, []int{2, 3}, []int{3})
	good := Options{Schedule: ConstantRate(0.1)}
	with := func(change func(o *Options)) error {
		o := good
		change(&o)
		_, err := NewStepper(p.parameters, SGD{}, o)
		return err
	}
	adamw := func(a AdamW, nodes ...*gorgonia.Node) error {
		_, err := NewStepper(nodes, a, good)
		return err
	}
	schedule := func(s Schedule) error { return with(func(o *Options) { o.Schedule = s }) }
	g := gorgonia.NewGraph()
	scalar := gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("s"))
	whole := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("i"))
	double := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithShape(3), gorgonia.WithName("d"))
	opt, err := NewStepper(p.parameters, AdamW{}, good)
	if err != nil {
		t.Fatal(err)
	}
	lone := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithShape(3), gorgonia.WithName("lone"), gorgonia.WithInit(gorgonia.Ones()))
	other, err := NewStepper(gorgonia.Nodes{lone}, AdamW{}, good)
	if err != nil {
		t.Fatal(err)
	}
	_, noGradient := other.Step()
	unbound := newProblem(t, tensor.Float32, []string{"u"}, []int{3})
	unbound.machine = gorgonia.NewTapeMachine(unbound.parameters[0].Graph())
	unbound.run(t)
	third, err := NewStepper(unbound.parameters, AdamW{}, good)
	if err != nil {
		t.Fatal(err)
	}
	_, notBound := third.Step()
	changed := func(change func(s *State)) error {
		s := state(t, opt)
		change(&s)
		return opt.SetState(s)
	}
	for _, c := range []struct {
		want string
		err  error
	}{
		{"SGD: schedule is nil, it needs to be one, such as ConstantRate(1e-3)", with(func(o *Options) { o.Schedule = nil })},
		{"SGD: schedule: rate is NaN, it needs to be finite and not negative", schedule(ConstantRate(math.NaN()))},
		{"SGD: schedule: steps is 0, it needs to be at least 1", schedule(LinearDecay{From: 1})},
		{"SGD: schedule: to is -1, it needs to be finite and not negative", schedule(LinearDecay{From: 1, To: -1, Steps: 3})},
		{"SGD: schedule: steps is 10, it needs to be more than the warm-up's 10", schedule(WarmupCosine{Peak: 1, Warmup: 10, Steps: 10})},
		{"SGD: schedule: warm-up is -1, it needs to be at least 0", schedule(InverseSquareRoot{Peak: 1, Warmup: -1})},
		{"SGD: schedule: decay is 0, it needs to be at least 1", schedule(WarmupStableDecay{Peak: 1})},
		{"SGD: clip norm is -1, it needs to be finite and positive, or 0 for no limit", with(func(o *Options) { o.ClipNorm = -1 })},
		{"SGD: accumulation is -1, it needs to be positive, or 0 for 1", with(func(o *Options) { o.Accumulation = -1 })},
		{"SGD: max skips is -1, it needs to be positive, or 0 for 10", with(func(o *Options) { o.MaxSkips = -1 })},
		{"SGD: group 0 has no match, it needs one, such as Vectors", with(func(o *Options) { o.Groups = make([]Group, 1) })},
		{"SGD: group 0 has a learning rate scale of -1, it needs to be finite and positive, or 0 for 1",
			with(func(o *Options) { o.Groups = []Group{{Match: Vectors, LearningRateScale: -1}} })},
		{"AdamW: there are no parameters, it needs at least one", adamw(AdamW{})},
		{"AdamW: parameter 1 is nil, it needs to be a node", adamw(AdamW{}, lone, nil)},
		{"AdamW: lone is the name of two parameters, each needs one of its own", adamw(AdamW{}, lone, lone)},
		{"AdamW: s is a scalar, it needs to be a tensor, of shape (1) for a single number", adamw(AdamW{}, scalar)},
		{"AdamW: i is int, all parameters need to be float32 or all float64", adamw(AdamW{}, whole)},
		{"AdamW: d is float64, all parameters need to be float32 or all float64", adamw(AdamW{}, lone, double)},
		{"AdamW: beta1 is 1.5, it needs to be in [0, 1)", adamw(AdamW{Beta1: 1.5}, lone)},
		{"AdamW: epsilon is 1e-50, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37", adamw(AdamW{Epsilon: 1e-50}, lone)},
		{"AdamW: weight decay is -1, it needs to be finite and not negative", adamw(AdamW{WeightDecay: -1}, lone)},
		{"AdamW: lone has no gradient bound to it, it needs a run of a machine made with gorgonia.BindDualValues", noGradient},
		{"AdamW: u has no gradient bound to it, it needs a run of a machine made with gorgonia.BindDualValues", notBound},
		{`AdamW: the state is of "Lion", it needs to be of "AdamW"`, changed(func(s *State) { s.Optimizer = "Lion" })},
		{"AdamW: the state has no v.b", changed(func(s *State) { delete(s.Tensors, "v.b") })},
		{"AdamW: the state has 5 tensors, these parameters need 4", changed(func(s *State) { s.Tensors["m.c"] = s.Tensors["m.a"] })},
		{"AdamW: the state's m.a is float32 of shape [3], it needs to be float32 of shape [2 3]",
			changed(func(s *State) { s.Tensors["m.a"] = s.Tensors["m.b"] })},
		{"AdamW: the state has -1 steps, 0 skipped, 0 of them in a row: no count can be negative or less than its part",
			changed(func(s *State) { s.Step = -1 })},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("the error is %v, it needs to be: %s", c.err, c.want)
		}
	}
}

func TestGroups(t *testing.T) {
	p := newProblem(t, tensor.Float32, []string{"tokens.weight", "norm.weight", "fc.weight", "fc.bias"}, []int{4, 2}, []int{2}, []int{2, 3}, []int{3})
	ordered, spans := grouped(p.parameters, []Group{{Match: Named("*.bias", "tokens.*"), NoDecay: true}, {Match: Vectors, LearningRateScale: 2}, {Match: Named("none")}})
	var names []string
	for _, n := range ordered {
		names = append(names, n.Name())
	}
	if got, want := strings.Join(names, " "), "tokens.weight fc.bias norm.weight fc.weight"; got != want {
		t.Errorf("the order is %s, it needs to be %s", got, want)
	}
	if want := []span{{0, 2, nil, true, 1}, {2, 3, nil, false, 2}, {3, 4, nil, false, 1}}; !slices.Equal(spans, want) {
		t.Errorf("the groups are %v, they need to be %v", spans, want)
	}
}

// BenchmarkOptimizerStep is a step over the parameters of a GPT of 4 layers of 128 features: what
// many small tensors cost.
func BenchmarkOptimizerStep(b *testing.B) {
	const dim = 128
	var names []string
	var shapes [][]int
	for layer := range 4 {
		for i, shape := range [][]int{{dim, 3 * dim}, {3 * dim}, {dim, dim}, {dim}, {dim, 4 * dim}, {4 * dim}, {4 * dim, dim}, {dim}, {dim}, {dim}} {
			names, shapes = append(names, fmt.Sprint(layer, ".", i)), append(shapes, shape)
		}
	}
	p := newProblem(b, tensor.Float32, names, shapes...)
	p.run(b)
	opt, err := NewStepper(p.parameters, AdamW{}, Options{Schedule: ConstantRate(1e-3), ClipNorm: 1, Groups: []Group{{Match: Vectors, NoDecay: true}}})
	if err != nil {
		b.Fatal(err)
	}
	elements := 0
	for _, w := range opt.parameters {
		elements += tensor.Shape(w.shape).TotalSize()
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := opt.Step(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(elements), "ns/parameter")
}
