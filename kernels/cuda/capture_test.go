//go:build gpu

package cuda_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// down is a float32 tensor of the device, on the host.
func down(t *testing.T, d *cuda.Device, x kernels.Tensor) []float32 {
	t.Helper()
	list := make([]float32, x.Elements())
	if err := d.Copy(kernels.Of(list, x.Shape...), x); err != nil {
		t.Fatal(err)
	}
	return list
}

// spoil writes over memory that nobody uses.
func spoil(t *testing.T, d *cuda.Device) {
	t.Helper()
	var list []kernels.Tensor
	for size := 1; size <= 1<<22; size *= 2 {
		for range 20 {
			x := alloc(t, d, kernels.F32, size)
			if err := d.Fill(x, 1e30); err != nil {
				t.Fatal(err)
			}
			list = append(list, x)
		}
	}
	runtime.KeepAlive(list)
}

// What was recorded runs with the inputs of the moment, through memory that nothing else was given,
// and with the constants and counters that it had.
func TestRecording(t *testing.T) {
	d := device(t)
	random := rand.New(rand.NewPCG(3, 4))
	slopes := func() []float64 { return []float64{random.Float64(), random.Float64()} }
	shape := []int{2, 2, 300, 64}
	n := 2 * 2 * 300 * 64
	values := make([]float32, n)
	next := func() kernels.Tensor {
		for i := range values {
			values[i] = float32(random.NormFloat64())
		}
		return kernels.Of(values, shape...)
	}
	q := alloc(t, d, kernels.F32, shape...)
	attend := func(alibi []float64) (kernels.Tensor, error) {
		twice, err := d.Alloc(kernels.F32, shape...)
		if err != nil {
			return twice, err
		}
		o, err := d.Alloc(kernels.F32, shape...)
		if err != nil {
			return o, err
		}
		p := kernels.Attention{Q: twice, K: twice, V: q, ALiBi: alibi, Causal: kernels.CausalBottomRight}
		return o, errors.Join(d.Add(q, q, twice), d.AttentionForward(&p, kernels.AttentionOutputs{O: o}))
	}
	if err := d.Copy(q, next()); err != nil {
		t.Fatal(err)
	}
	alibi := slopes() // that the device has not seen
	var o kernels.Tensor
	r, err := d.Capture(func() (err error) {
		o, err = attend(alibi)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		for range 100 { // makes the device forget the slopes
			if _, err := attend(slopes()); err != nil {
				t.Fatal(err)
			}
			runtime.GC()
		}
		if err := d.Copy(q, next()); err != nil {
			t.Fatal(err)
		}
		spoil(t, d)
		if err := r.Launch(); err != nil {
			t.Fatal(err)
		}
		want, err := attend(alibi)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(down(t, d, o), down(t, d, want)) {
			t.Errorf("launch %d computed something else than the calls that were recorded", round)
		}
	}
	if d.Memory().Recorded == 0 {
		t.Error("the recording keeps no memory")
	}
	runtime.KeepAlive(r)
	r = nil
	for n := 0; n < 20 && d.Memory().Recorded > 0; n++ {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	if kept := d.Memory().Recorded; kept > 0 {
		t.Errorf("%d bytes are kept for a recording that is gone", kept)
	}
}

// What waits for the device, or moves data to the host or from it, says that it cannot be recorded;
// the device works afterwards.
func TestUnrecordable(t *testing.T) {
	d := device(t)
	x, host := alloc(t, d, kernels.F32, 1), kernels.Of([]float32{5}, 1)
	before, err := d.Read(x)
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{
		"Synchronize":        d.Synchronize,
		"Read":               func() error { _, err := d.Read(x); return err },
		"Record":             func() error { _, err := d.Record(); return err },
		"Copy from the host": func() error { return d.Copy(x, host) },
		"Copy to the host":   func() error { return d.Copy(host, x) },
		"Capture":            func() error { _, err := d.Capture(func() error { return nil }); return err },
	} {
		_, err := d.Capture(func() error {
			_, err := before.Float64() // was asked for before
			return errors.Join(err, d.Fill(x, 3), call())
		})
		var unrecordable cuda.Unrecordable
		if !errors.As(err, &unrecordable) || unrecordable.Error() != "cuda:0: "+what+" cannot be recorded" {
			t.Errorf("%s: the error is %v", what, err)
		}
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic was lost")
			}
		}()
		_, _ = d.Capture(func() error { panic("for a test") })
	}()
	if err := d.Fill(x, 4); err != nil {
		t.Fatal(err)
	}
	if got := down(t, d, x); got[0] != 4 {
		t.Errorf("after failed recordings a tensor filled with 4 holds %v", got[0])
	}
}

// A kernel whose module was not loaded, and memory that the driver has yet to give, may be part of
// a recording.
func TestRecordingLoadsModules(t *testing.T) {
	d := device(t)
	var q, o kernels.Tensor
	r, err := d.Capture(func() (err error) {
		if q, err = d.Alloc(kernels.F16, 1, 1, 3000, 224); err != nil {
			return err
		}
		if o, err = d.Alloc(kernels.F16, 1, 1, 3000, 224); err != nil {
			return err
		}
		return errors.Join(d.Fill(q, 0.5), d.AttentionForward(&kernels.Attention{Q: q, K: q, V: q}, kernels.AttentionOutputs{O: o}))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Launch(); err != nil {
		t.Fatal(err)
	}
	wide := alloc(t, d, kernels.F32, o.Shape...)
	if err := d.Copy(wide, o); err != nil {
		t.Fatal(err)
	}
	for i, x := range down(t, d, wide) {
		if x != 0.5 {
			t.Fatalf("element %d is %v, it needs to be 0.5", i, x)
		}
	}
}

// Recorded dropout has the masks of the step that is set, whatever it was recorded with: its own
// kernel's, and those of attention and its gradients, whose kernels have tensor maps on some
// devices.
func TestRecordingDropoutStep(t *testing.T) {
	d := device(t)
	random := rand.New(rand.NewPCG(5, 6))
	shape := []int{1, 2, 200, 64}
	values := make([]float32, 2*200*64)
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
		q, dO := alloc(t, d, dtype, shape...), alloc(t, d, dtype, shape...)
		if err := errors.Join(d.Copy(q, kernels.Of(values, shape...)), d.Copy(dO, kernels.Of(values, shape...))); err != nil {
			t.Fatal(err)
		}
		var results []kernels.Tensor
		for range 5 {
			results = append(results, alloc(t, d, dtype, shape...))
		}
		lse, delta := alloc(t, d, kernels.F32, shape[:3]...), alloc(t, d, kernels.F32, shape[:3]...)
		work := func(step uint32) error {
			drop := kernels.Dropout{P: 0.25, Seed: 7, Step: step}
			a := &kernels.Attention{Q: q, K: q, V: q, Dropout: drop, Guarantees: kernels.Guarantees{Deterministic: true}}
			return errors.Join(
				d.Dropout(drop, q, results[0]),
				d.AttentionForward(a, kernels.AttentionOutputs{O: results[1], LSE: lse}),
				d.AttentionDelta(a, results[1], dO, kernels.Tensor{}, delta),
				d.AttentionBackward(a, kernels.AttentionGradients{DO: dO, LSE: lse, Delta: delta, DQ: results[2], DK: results[3], DV: results[4]}))
		}
		read := func() (all []float32) {
			for _, x := range results {
				wide := alloc(t, d, kernels.F32, shape...)
				if err := d.Copy(wide, x); err != nil {
					t.Fatal(err)
				}
				all = append(all, down(t, d, wide)...)
			}
			return all
		}
		r, err := d.Capture(func() error { return work(3) })
		if err != nil {
			t.Fatal(err)
		}
		var before []float32
		for _, step := range []uint32{3, 4, 1 << 31, 4, 0} {
			if err := errors.Join(r.SetDropoutStep(step), r.Launch()); err != nil {
				t.Fatal(err)
			}
			got := read()
			if err := work(step); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, read()) {
				t.Errorf("%v: step %d has other masks where it was recorded", dtype, step)
			}
			if slices.Equal(got, before) {
				t.Errorf("%v: step %d has the masks of the step before", dtype, step)
			}
			before = got
		}
	}
}
