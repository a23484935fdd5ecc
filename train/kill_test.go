package train_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/watch"
)

var kills = flag.Int("kills", 3, "how many times TestKilledRunsResume kills its run")

// killFolder is the environment variable that makes a test process the victim, with the folder as
// its value.
const killFolder = "STHENO_TEST_KILL_FOLDER"

// TestKilledRunsResume kills a run, which writes a checkpoint after every step, at random moments,
// and starts it again each time. The weights at the end need to be those of a run that nobody
// killed, no checkpoint may ever be unreadable, and the log has each step once.
func TestKilledRunsResume(t *testing.T) {
	slow.Race(t)
	const mostSteps = 40 // between two kills
	steps := (*kills + 1) * mostSteps
	if folder := os.Getenv(killFolder); folder != "" {
		victim(t, folder, steps, mostSteps)
		return
	}
	straight := countingLoop(t, nil, func(c *train.LoopConfig) { c.Steps = steps })
	runLoop(t, straight, context.Background())

	const seed = 11
	random := rand.New(rand.NewPCG(seed, 0))
	folder := t.TempDir()
	killed, reached := 0, map[int]bool{}
	for killed < *kills {
		child := exec.Command(os.Args[0], "-test.run=^TestKilledRunsResume$", fmt.Sprintf("-kills=%d", *kills))
		child.Env = append(os.Environ(), killFolder+"="+folder)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// Moments are counted in steps, so that a slow machine's kills are not all before the
		// first; the last wait is for the middle of a step, its log or its checkpoint.
		lines := bufio.NewScanner(out)
		for range 1 + random.IntN(mostSteps/2) {
			if !lines.Scan() {
				t.Fatalf("kill %d, seed %d: the run has ended: %v", killed, seed, lines.Err())
			}
		}
		time.Sleep(time.Duration(random.IntN(4000)) * time.Microsecond)
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if child.Wait() == nil {
			t.Fatalf("the run was over after %d kills, it needs more steps", killed)
		}
		killed++
		view, err := checkpoint.View(folder)
		if err != nil {
			t.Fatal(err)
		}
		c, refused, err := view.Latest()
		if err != nil && !errors.Is(err, checkpoint.ErrNone) || len(refused) > 0 {
			t.Fatalf("kill %d, seed %d: checkpoint %v, refused %v", killed, seed, err, refused)
		}
		t.Logf("kill %d after step %d", killed, c.Step)
		reached[c.Step] = true
	}
	if len(reached) < killed/2 {
		t.Errorf("%d kills came after %d different steps, most of them need to come after new ones", killed, len(reached))
	}
	last := killable(t, folder, steps)
	runLoop(t, last, context.Background())
	if !slices.Equal(bits(last), bits(straight)) {
		t.Errorf("after %d kills, seed %d, the weights differ from an uninterrupted run's", killed, seed)
	}
	file, err := os.Open(filepath.Join(folder, "log.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log, err := watch.ReadJSONLines(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range log.Steps {
		if s.Done != i+1 {
			t.Fatalf("after %d kills, seed %d, the log has step %d where step %d needs to be", killed, seed, s.Done, i+1)
		}
	}
	if len(log.Steps) != steps {
		t.Errorf("after %d kills, seed %d, the log has %d steps, want %d", killed, seed, len(log.Steps), steps)
	}
}

// killable is a loop that goes on where the folder's checkpoints say, and keeps a log.
func killable(t *testing.T, folder string, steps int, hooks ...train.Hook) *train.Loop {
	loop := countingLoop(t, openFolder(t, folder, 2), func(c *train.LoopConfig) {
		c.Steps, c.CheckpointEvery, c.Hooks = steps, 1, append(hooks, watch.OpenJSONLines(filepath.Join(folder, "log.jsonl")))
	})
	if refused, err := loop.Resume(); err != nil && !errors.Is(err, checkpoint.ErrNone) || len(refused) > 0 {
		t.Fatal(err, refused)
	}
	return loop
}

// victim is the process that gets killed. It prints a line when it starts and one after each step,
// and does not go further between two kills than it may, however late whoever kills it is.
func victim(t *testing.T, folder string, steps, most int) {
	fmt.Println("running")
	began := 0
	loop := killable(t, folder, steps, train.Hook{OnStep: func(s train.Step) error {
		if began == 0 {
			began = s.Done
		}
		if s.Done == began+most-1 {
			time.Sleep(time.Hour)
		}
		_, err := fmt.Println("step", s.Done)
		return err
	}})
	runLoop(t, loop, context.Background())
}
