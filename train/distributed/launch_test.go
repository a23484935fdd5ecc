package distributed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
)

// The test's binary is also the program that it launches: what this variable names.
const (
	role     = "STHENO_TEST_ROLE"
	lostRole = "STHENO_TEST_LOST"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(role); name != "" {
		if err := roles[name](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var roles = map[string]func() error{
	"sum": func() error {
		return inGroup(func(g *Group) error {
			x := []float32{float32(g.Rank() + 1)}
			if err := g.Sum(kernels.Of(x, 1)); err != nil {
				return err
			}
			fmt.Printf("rank %d of %d has %v\n", g.Rank(), g.Size(), x[0])
			return nil
		})
	},
	"crash": func() error {
		return inGroup(func(g *Group) error {
			for {
				if err := g.Sum(kernels.Of(make([]float32, 1000), 1000)); err != nil {
					return err
				}
				if g.operation.Load() > 40 && g.Rank() == 1 {
					os.Exit(3)
				}
			}
		})
	},
	"panic": func() error { panic("always") },
	// Outside a group, where a rank would end by itself when the other is lost.
	"hang": func() error {
		c, err := FromEnvironment()
		if err != nil {
			return err
		}
		if c.Rank == 1 {
			time.Sleep(time.Hour)
		}
		return errors.New("no more paper")
	},
	"wait": func() error {
		return inGroup(func(g *Group) error {
			fmt.Println("ready")
			select {}
		})
	},
}

func inGroup(do func(g *Group) error) error {
	c, err := FromEnvironment()
	if err != nil {
		return err
	}
	c.Timeout, c.Lost = 5*time.Minute, Lost(os.Getenv(lostRole))
	g, err := Join(context.Background(), c)
	if err != nil {
		return err
	}
	if err := do(g); err != nil {
		return err
	}
	return g.Close()
}

// launch starts ranks in a role and returns what they wrote. Ranks that end by themselves have all
// the time that they need for it.
func launch(ctx context.Context, n int, name string, grace time.Duration) (string, error) {
	out := &lockedWriter{}
	err := Launch(ctx, n, LaunchConfig{Command: []string{os.Args[0]}, Env: []string{role + "=" + name}, Stdout: out, Stderr: out, Grace: grace})
	return out.String(), err
}

func TestLaunch(t *testing.T) {
	out, err := launch(t.Context(), 3, "sum", 10*time.Minute)
	if err != nil {
		t.Fatal(err, out)
	}
	for _, line := range []string{"rank 0 of 3 has 6\n", "[rank 1] rank 1 of 3 has 6\n", "[rank 2] rank 2 of 3 has 6\n"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q lacks %q", out, line)
		}
	}
}

// A rank that dies ends the others, who name it.
func TestLaunchOfARankThatDies(t *testing.T) {
	out, err := launch(t.Context(), 3, "crash", 10*time.Minute)
	if err == nil || !strings.Contains(err.Error(), "rank 1: exit status 3") {
		t.Errorf("%v", err)
	}
	if strings.Count(out, "rank 1 (host") < 2 || !strings.Contains(out, "[rank 2] distributed: rank 1 (host") {
		t.Errorf("the others say %q", out)
	}
}

// A rank that hangs does not keep Launch when another has failed.
func TestLaunchOfARankThatHangs(t *testing.T) {
	out, err := launch(t.Context(), 2, "hang", time.Second)
	if err == nil || !strings.Contains(err.Error(), "rank 0: exit status 1") || !strings.Contains(err.Error(), "rank 1: signal: ") && runtime.GOOS != "windows" {
		t.Errorf("%v, output %q", err, out)
	}
}

func TestLaunchIsCancelled(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no signals that ask")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	out := &lockedWriter{wrote: func(text string) {
		if strings.Count(text, "ready") == 2 {
			cancel(reason)
		}
	}}
	err := Launch(ctx, 2, LaunchConfig{Command: []string{os.Args[0]}, Env: []string{role + "=wait"}, Stdout: out, Stderr: out, Grace: 10 * time.Minute})
	if err != reason {
		t.Errorf("%v, output %q", err, out.String())
	}
	if err := Launch(t.Context(), 0, LaunchConfig{}); err == nil || err.Error() != "distributed: Launch: n is 0, it needs to be from 1 to 65536" {
		t.Error(err)
	}
}

// lockedWriter is written to by several processes' readers.
type lockedWriter struct {
	lock  sync.Mutex
	text  bytes.Buffer
	wrote func(text string) // called with all that there is, or nil
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	n, err := w.text.Write(p)
	if w.wrote != nil {
		w.wrote(w.text.String())
	}
	return n, err
}

func (w *lockedWriter) String() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.text.String()
}
