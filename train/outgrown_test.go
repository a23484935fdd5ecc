package train

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// runs is a machine that counts its runs.
type runs struct {
	gorgonia.VM
	made int
}

func (r *runs) RunAll() error { r.made++; return nil }
func (r *runs) Reset()        {}

// failing is a recording that cannot be launched.
type failing struct {
	kernels.Recording
	err error
}

func (f failing) Launch() error { return f.err }

// A run that outgrows its recording is made kernel by kernel, as all are after it; other errors of
// a launch are the run's.
func TestOutgrownSteps(t *testing.T) {
	machine, wrong := &runs{}, errors.New("lengths descend")
	g := &graph{machine: machine}
	g.last.recording = failing{err: wrong}
	if err := g.launch(&g.last, g.compute); !errors.Is(err, wrong) || machine.made != 0 || g.unrecorded != nil {
		t.Errorf("the error is %v, %d runs were made, and %v keeps others from being recorded", err, machine.made, g.unrecorded)
	}
	g.last.recording = failing{err: fmt.Errorf("attention: %w", kernels.ErrOutgrown)}
	g.others.recording = g.last.recording
	for n, p := range []*pass{&g.last, &g.others, &g.last} {
		if err := g.launch(p, g.compute); err != nil || machine.made != n+1 {
			t.Errorf("run %d: the error is %v, %d runs were made", n, err, machine.made)
		}
	}
	if !errors.Is(g.unrecorded, kernels.ErrOutgrown) {
		t.Errorf("what is said of steps that are not recorded is %v", g.unrecorded)
	}
}
