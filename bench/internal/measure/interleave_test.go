package measure_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/bench/internal/measure"
)

// fakeClock moves only when told.
type fakeClock struct{ now time.Duration }

func (c *fakeClock) read() time.Duration { return c.now }

func TestInterleave(t *testing.T) {
	for _, c := range []struct {
		name         string
		plan         measure.Plan
		a, b         time.Duration // what a sample takes
		failA        int           // the call of a that fails, 0 for none
		mostA        int
		wantA, wantB int
		wantErr      bool
	}{
		{name: "budget", plan: measure.Plan{Least: 2, Most: 100, Budget: 10 * time.Second}, a: time.Second, b: time.Second, wantA: 5, wantB: 5},
		{name: "least", plan: measure.Plan{Least: 3, Most: 100, Budget: time.Second}, a: time.Second, b: time.Minute, wantA: 3, wantB: 3},
		{name: "most", plan: measure.Plan{Least: 3, Most: 4, Budget: time.Hour}, a: time.Second, b: time.Second, wantA: 4, wantB: 4},
		{name: "leaves", plan: measure.Plan{Least: 4, Most: 4}, mostA: 3, wantA: 3, wantB: 4},
		{name: "fails at once", plan: measure.Plan{Least: 3, Most: 3}, failA: 1, wantA: 0, wantB: 3, wantErr: true},
		{name: "fails later", plan: measure.Plan{Least: 3, Most: 3}, failA: 3, wantA: 1, wantB: 3, wantErr: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, calls, order := &fakeClock{}, 0, []string{}
			a := measure.Contender{Name: "a", Most: c.mostA, Sample: func() (float64, error) {
				clock.now += c.a
				order = append(order, "a")
				if calls++; calls == c.failA {
					return 0, errors.New("broken")
				}
				return float64(calls), nil
			}}
			b := measure.Contender{Name: "b", Sample: func() (float64, error) {
				clock.now += c.b
				order = append(order, "b")
				return 0, nil
			}}
			s := measure.Interleave(clock.read, c.plan, a, b)
			if len(s[0].Samples) != c.wantA || len(s[1].Samples) != c.wantB || (s[0].Err != nil) != c.wantErr {
				t.Errorf("got %d and %d samples, error %v; want %d, %d, error %v", len(s[0].Samples), len(s[1].Samples), s[0].Err, c.wantA, c.wantB, c.wantErr)
			}
			if !c.wantErr && !slices.Equal(order[:6], []string{"a", "b", "a", "b", "b", "a"}) {
				t.Errorf("order %v: after the round that is not counted, the first of a round should alternate", order)
			}
			if !c.wantErr && s[0].Samples[0] != 2 {
				t.Errorf("the first sample is of call %v, it needs to be 2: the first call is not counted", s[0].Samples[0])
			}
		})
	}
}

func TestDivided(t *testing.T) {
	p := measure.Plan{Least: 6, Most: 20, Budget: 3 * time.Second}
	for sweeps, want := range map[int]measure.Plan{
		0: p, 1: p, 3: {Least: 2, Most: 7, Budget: time.Second}, 10: {Least: 1, Most: 2, Budget: 300 * time.Millisecond},
	} {
		if got := p.Divided(sweeps); got != want {
			t.Errorf("in %d sweeps: %+v, want %+v", sweeps, got, want)
		}
	}
}

func TestRepeated(t *testing.T) {
	for _, c := range []struct {
		each  time.Duration
		turn  float64
		times int // at least, of the second sample
	}{
		{time.Second, 0.01, 1}, {time.Millisecond, 0.01, 10}, {time.Microsecond, 0.01, 10_000}, {0, 0.01, 1 << 20},
	} {
		t.Run(fmt.Sprint(c.each), func(t *testing.T) {
			clock, calls := &fakeClock{}, 0
			sample := measure.Repeated(c.turn, measure.Timed(clock.read, func() error { clock.now += c.each; calls++; return nil }))
			for i := range 2 {
				calls = 0
				got, err := sample()
				if want := c.each.Seconds(); err != nil || got < want*0.999 || got > want*1.001 {
					t.Errorf("sample %d is %v, error %v; want %v", i, got, err, want)
				}
			}
			if calls < c.times || calls > 2*c.times {
				t.Errorf("a turn makes %d calls, want %d to twice that", calls, c.times)
			}
		})
	}
}
