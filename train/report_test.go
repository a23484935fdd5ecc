package train

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/tensor"
)

// Steps that are queued do what steps that are waited for do, also where one that has no report yet
// is skipped: the rates go by the steps that were made.
func TestQueue(t *testing.T) {
	const steps = 12
	bad := []int{2, 3, 8}
	var weights [2][]float64
	var reports [2][]Report
	for k, waits := range []bool{true, false} {
		p := newProblem(t, tensor.Float32, []string{"first", "second"}, []int{5}, []int{2, 9})
		opt, err := NewStepper(p.parameters, AdamW{}, Options{Schedule: LinearDecay{From: 0.1, Steps: 20}, ClipNorm: 1})
		if err != nil {
			t.Fatal(err)
		}
		var pending []*PendingReport
		for step := range steps {
			set(p.gradients[1], wave(float64(step), step))
			if slices.Contains(bad, step) {
				set(p.gradients[1], func(int) float64 { return math.Inf(1) })
			}
			p.run(t)
			r, err := opt.Queue()
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, r)
			if waits {
				if _, err := r.Report(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if _, err := pending[steps-2].Report(); err != nil { // reads those before it too
			t.Fatal(err)
		}
		for _, r := range pending {
			report, err := r.Report()
			if err != nil {
				t.Fatal(err)
			}
			if report.Skipped { // NaN is not equal to itself
				report.GradientNorm = 0
			}
			reports[k] = append(reports[k], report)
		}
		weights[k] = append(floats(p.parameters[0].Value()), floats(p.parameters[1].Value())...)
		if opt.Skipped() != len(bad) || state(t, opt).Step != steps-len(bad) {
			t.Errorf("%d steps were skipped and %d made, it needs to be %d and %d", opt.Skipped(), state(t, opt).Step, len(bad), steps-len(bad))
		}
	}
	if !slices.Equal(weights[0], weights[1]) {
		t.Error("queued steps gave other weights than steps that were waited for")
	}
	if !slices.Equal(reports[0], reports[1]) {
		t.Errorf("queued steps have the reports\n%+v\nsteps that were waited for\n%+v", reports[1], reports[0])
	}
	for step, r := range reports[0] {
		if r.Skipped != slices.Contains(bad, step) || !r.Skipped && !(math.Abs(r.LearningRate-(0.1-0.005*float64(r.Step-1))) <= 1e-15) {
			t.Errorf("step %d has the report %+v", step, r)
		}
	}
}

// A state is one after all steps that were queued, and takes the place of what they did.
func TestStateOfQueuedSteps(t *testing.T) {
	p := newProblem(t, tensor.Float64, []string{"w"}, []int{4})
	opt, err := NewStepper(p.parameters, SGD{Momentum: 0.5}, Options{Schedule: LinearDecay{From: 1, To: 0.5, Steps: 5}})
	if err != nil {
		t.Fatal(err)
	}
	queue := func() *PendingReport {
		set(p.gradients[0], wave(1, 0))
		p.run(t)
		r, err := opt.Queue()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for range 3 {
		queue()
	}
	if s := state(t, opt); s.Step != 3 {
		t.Errorf("after three steps the state has %d", s.Step)
	}
	queue()
	s := state(t, opt)
	s.Step, s.Skipped, s.SkippedInARow = 1, 7, 2
	if err := opt.SetState(s); err != nil {
		t.Fatal(err)
	}
	if r, err := queue().Report(); err != nil || r.Step != 2 || r.LearningRate != 0.9 || opt.Skipped() != 7 || state(t, opt).SkippedInARow != 0 {
		t.Errorf("the step after a state of one has the report %+v, error %v", r, err)
	}
}

// What goes wrong in a queued step is an error of its report, and of the next call that reads it on
// the way.
func TestErrorsOfQueuedSteps(t *testing.T) {
	p := newProblem(t, tensor.Float32, []string{"w"}, []int{4})
	opt, err := NewStepper(p.parameters, Lion{}, Options{Schedule: rates{0.1, math.NaN(), 0.1, 0.1, 0.1}, MaxSkips: 2})
	if err != nil {
		t.Fatal(err)
	}
	queue := func(x float64) (*PendingReport, error) {
		set(p.gradients[0], func(int) float64 { return x })
		p.run(t)
		return opt.Queue()
	}
	first, err := queue(math.NaN())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Report(); err != nil {
		t.Fatal(err)
	}
	var list []*PendingReport
	for _, x := range []float64{math.NaN(), 1, 1, 1} {
		r, err := queue(x)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	const skips, rate = "Lion: the gradients of 2 steps in a row are not finite, the last of them first in w",
		"Lion: the schedule's learning rate of step 1 is NaN, it needs to be finite and not negative"
	if _, err := queue(1); err == nil || !strings.Contains(err.Error(), skips) {
		t.Errorf("the error of the call that read the report is %v", err)
	}
	for i, want := range []string{skips, "", rate, rate} {
		if _, err := list[i].Report(); want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("the error of queued step %d is %v, it needs to be %q", i, err, want)
		}
	}
}

// fixedNumber is a device's number.
type fixedNumber float64

func (n fixedNumber) Float64() (float64, error) { return float64(n), nil }

// A step that a device has abandoned counts neither as made nor as skipped.
func TestAbandonedStep(t *testing.T) {
	p := newProblem(t, tensor.Float32, []string{"first"}, []int{5})
	opt, err := NewStepper(p.parameters, AdamW{}, Options{Schedule: ConstantRate(0.1), MaxSkips: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, verdict := range []float64{kernels.StepMade, kernels.StepAbandoned} {
		set(p.gradients[0], wave(1, 0))
		p.run(t)
		r, err := opt.Queue()
		if err != nil {
			t.Fatal(err)
		}
		r.verdict = fixedNumber(verdict)
		if _, err = r.Report(); errors.Is(err, errAbandoned) != (verdict == kernels.StepAbandoned) || opt.step != 1 || opt.Skipped() != 0 {
			t.Errorf("verdict %v: the error is %v, %d steps are made and %d skipped, they need to be 1 and 0", verdict, err, opt.step, opt.Skipped())
		}
	}
}
