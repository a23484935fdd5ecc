//go:build unix

package distributed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
)

func init() { roles["survive"], roles["lose rank 0"] = survive, loseRank0 }

// loseRank0 is a rank of which the first kills itself once all have met.
func loseRank0() error {
	return inGroup(func(g *Group) error {
		if err := g.Barrier(); err != nil {
			return err
		}
		if g.Rank() == 0 {
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		<-g.done
		return g.Renew(context.Background(), nil)
	})
}

// survive is a rank of which the last kills itself, until the group was renewed.
func survive() error {
	return inGroup(func(g *Group) error {
		if victim := g.Size() - 1; g.Rank() == victim && !g.Renewed() {
			if err := g.Sum(kernels.Of([]float32{1}, 1)); err != nil {
				return err
			}
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		for {
			x := []float32{1}
			err := g.Sum(kernels.Of(x, 1))
			if err == nil && g.Renewed() {
				fmt.Printf("rank %d sees %v\n", g.Rank(), x[0])
				return g.Barrier()
			}
			if errors.Is(err, ErrLost) {
				err = g.Renew(context.Background(), nil)
			}
			if err != nil {
				return err
			}
		}
	})
}

// A rank that is killed is started again, or the others go on without it.
func TestLaunchOfARankThatIsKilled(t *testing.T) {
	for lost, want := range map[Lost][]string{
		LostReplaced: {"rank 2 ended (signal: killed) and is started again\n", "rank 0 sees 3\n", "[rank 2] rank 2 sees 3\n"},
		LostMissed:   {"rank 2 ended (signal: killed), the others go on\n", "rank 0 sees 2\n", "[rank 1] rank 1 sees 2\n"},
	} {
		out := &lockedWriter{}
		err := Launch(t.Context(), 3, LaunchConfig{
			Command: []string{os.Args[0]}, Env: []string{role + "=survive", lostRole + "=" + string(lost)}, Stdout: out, Stderr: out, Grace: 5 * time.Minute, Lost: lost,
		})
		if err != nil {
			t.Errorf("%s: %v", lost, err)
		}
		for _, line := range want {
			if !strings.Contains(out.String(), line) {
				t.Errorf("%s: %q lacks %q", lost, out.String(), line)
			}
		}
	}
}

// Without rank 0 the others cannot go on, and are not waited for.
func TestLaunchWithFewerLosesRank0(t *testing.T) {
	out := &lockedWriter{}
	err := Launch(t.Context(), 3, LaunchConfig{
		Command: []string{os.Args[0]}, Env: []string{role + "=lose rank 0", lostRole + "=" + string(LostMissed)}, Stdout: out, Stderr: out, Grace: time.Second, Lost: LostMissed,
	})
	if err == nil || !strings.Contains(err.Error(), "rank 0: signal: killed: rank 0 cannot be missed") || !strings.Contains(err.Error(), "start all ranks again") {
		t.Errorf("%v, output %q", err, out.String())
	}
}

// A rank that always ends is not started for ever.
func TestLaunchOfARankThatAlwaysPanics(t *testing.T) {
	out := &lockedWriter{}
	err := Launch(t.Context(), 1, LaunchConfig{
		Command: []string{os.Args[0]}, Env: []string{role + "=panic"}, Stdout: out, Stderr: out, Lost: LostReplaced, Restarts: 2,
	})
	if err == nil || !strings.Contains(err.Error(), "rank 0: exit status 2") || strings.Count(out.String(), "is started again") != 2 {
		t.Errorf("%v: %q", err, out.String())
	}
}
