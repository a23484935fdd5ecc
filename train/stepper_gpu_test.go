//go:build gpu

package train

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Steps on a device do to parameters what steps on the host do, with the state there and brought
// over midway.
func TestStepsOnTheDevice(t *testing.T) {
	if ops.Devices() == 0 {
		t.Skip("this machine has no GPU")
	}
	d, err := ops.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	for name, optimizer := range optimizers {
		for _, accumulation := range []int{1, 2} {
			options := Options{Schedule: WarmupCosine{Peak: 0.02, Warmup: 2, Steps: 10}, ClipNorm: 0.02, Accumulation: accumulation,
				Groups: []Group{{Match: Named("k"), NoDecay: true, LearningRateScale: 0.5}}}
			what := fmt.Sprintf("%s over %d runs", name, accumulation)
			want, reports := attended(t, nil, optimizer, options)
			got, onDevice := attended(t, d, optimizer, options)
			for i, r := range onDevice {
				if !(math.Abs(r.GradientNorm-reports[i].GradientNorm) <= 1e-4*reports[i].GradientNorm) || r.Step != i+1 || r.Clipped != reports[i].Clipped {
					t.Errorf("%s: step %d reports %+v on the device and %+v on the host", what, i, r, reports[i])
				}
			}
			for i, x := range want {
				// Lion's steps follow signs, which float32 on two devices cannot agree about where
				// they are close to zero.
				if !(math.Abs(got[i]-x) <= 3e-4) && name != "Lion" {
					t.Fatalf("%s: element %d is %v on the device and %v on the host", what, i, got[i], x)
				}
			}
		}
	}
}

// A run and its step that were recorded do, launched again and again, what they do when they are
// queued one by one.
func TestRecordedStepsOnTheDevice(t *testing.T) {
	if ops.Devices() == 0 {
		t.Skip("this machine has no GPU")
	}
	d, err := ops.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := cuda.Default()
	if err != nil {
		t.Fatal(err)
	}
	for name, optimizer := range optimizers {
		var weights [2][]float64
		for k, records := range []bool{false, true} {
			opt, run, parameters := newAttended(t, d, optimizer, Options{Schedule: LinearDecay{From: 0.02, Steps: 20}, ClipNorm: 0.02})
			step := func() error { return errors.Join(run(), opt.update(true)) }
			again := step
			for i := range 8 {
				if err := opt.prepare(); err != nil {
					t.Fatal(err)
				}
				if records && i == 2 { // after all modules are loaded and all memory was asked for, as one would
					recording, err := raw.Capture(step)
					if err != nil {
						t.Fatal(err)
					}
					again = recording.Launch
				}
				if err := again(); err != nil {
					t.Fatal(err)
				}
				if _, err := opt.ask(); err != nil {
					t.Fatal(err)
				}
			}
			if s := state(t, opt); s.Step != 8 {
				t.Fatalf("%s: %d steps were made, it needs to be 8", name, s.Step)
			}
			for _, n := range parameters {
				value, err := ops.Download(n.Value())
				if err != nil {
					t.Fatal(err)
				}
				weights[k] = append(weights[k], floats(value)...)
			}
		}
		for i, x := range weights[0] {
			if !(math.Abs(weights[1][i]-x) <= 1e-5) && name != "Lion" {
				t.Fatalf("%s: element %d is %v when steps are recorded and %v when they are not", name, i, weights[1][i], x)
			}
		}
	}
}

// A step and an accumulation on a device need a run of the graph before each of them.
func TestStepsOnTheDeviceNeedARun(t *testing.T) {
	if ops.Devices() == 0 {
		t.Skip("this machine has no GPU")
	}
	d, err := ops.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, accumulation := range []int{1, 2} {
		opt, run, _ := newAttended(t, d, optimizers["AdamW"], Options{Schedule: ConstantRate(1e-3), Accumulation: accumulation})
		step := func() error { _, err := opt.Step(); return err }
		for i, c := range []struct {
			do      func() error
			runs    int
			refused bool
		}{{step, 1, false}, {step, 0, true}, {opt.Accumulate, 0, true}, {opt.Accumulate, 2, false}, {step, 0, true}, {step, 1, false}} {
			for range c.runs {
				if err := run(); err != nil {
					t.Fatal(err)
				}
			}
			const want = "AdamW: no gradient was computed since the last step"
			if i >= 2 && accumulation == 1 {
				break
			}
			if err := c.do(); (err != nil) != c.refused || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("accumulation %d, part %d: error %v, want one with %q: %t", accumulation, i, err, want, c.refused)
			}
		}
	}
}

// newAttended makes an optimiser over three parameters, on the host or on a device, and what
// computes their gradients: those of the mean of an attention.
func newAttended(t *testing.T, d *ops.Device, optimizer Optimizer, options Options) (opt *Stepper, run func() error, parameters gorgonia.Nodes) {
	t.Helper()
	g, shape := gorgonia.NewGraph(), []int{1, 2, 40, 16}
	for i, name := range []string{"q", "k", "v"} {
		n := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(shape...), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))))
		set(n, wave(1, i))
		if d != nil {
			value, err := d.Upload(n.Value().(*tensor.Dense))
			if err != nil {
				t.Fatal(err)
			}
			if err := gorgonia.Let(n, value); err != nil {
				t.Fatal(err)
			}
		}
		parameters = append(parameters, n)
	}
	out, err := ops.FlashAttention(parameters[0], parameters[1], parameters[2], ops.AttentionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	loss := gorgonia.Must(ops.Mean(out))
	if _, err := gorgonia.Grad(loss, parameters...); err != nil {
		t.Fatal(err)
	}
	machineOptions := []gorgonia.VMOpt{gorgonia.WithEngine(ops.Engine())}
	if d == nil {
		machineOptions = append(machineOptions, gorgonia.BindDualValues(parameters...))
	}
	machine := gorgonia.NewTapeMachine(g, machineOptions...)
	t.Cleanup(func() { machine.Close() })
	if opt, err = NewStepper(parameters, optimizer, options); err != nil {
		t.Fatal(err)
	}
	return opt, func() error {
		defer machine.Reset()
		return machine.RunAll()
	}, parameters
}

// attended takes steps. Midway another optimiser goes on from the state.
func attended(t *testing.T, d *ops.Device, optimizer Optimizer, options Options) (all []float64, reports []Report) {
	t.Helper()
	opt, runOnce, parameters := newAttended(t, d, optimizer, options)
	var pending []*PendingReport
	for step := range 6 {
		for run := range options.Accumulation {
			if err := runOnce(); err != nil {
				t.Fatal(err)
			}
			if run < options.Accumulation-1 {
				if err := opt.Accumulate(); err != nil {
					t.Fatal(err)
				}
			}
		}
		r, err := opt.Queue()
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, r)
		if step == 2 {
			before := state(t, opt)
			if opt, err = NewStepper(parameters, optimizer, options); err != nil {
				t.Fatal(err)
			}
			if err := opt.SetState(before); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, r := range pending {
		report, err := r.Report()
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, report)
	}
	for _, n := range parameters {
		value, err := ops.Download(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, floats(value)...)
	}
	return all, reports
}
