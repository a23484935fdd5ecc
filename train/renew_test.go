//go:build unix

package train_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/distributed"
	"github.com/stheno-ml/stheno/train/watch"
	"gorgonia.org/tensor"
)

// replacedFolder is the variable of the environment that makes a test process a rank that may be
// replaced, with the run's folder.
const replacedFolder = "STHENO_TEST_REPLACED_FOLDER"

// TestKilledRanksAreReplaced kills any of four ranks at random moments, the one that has just come
// included, again and again. The weights at the end are those of one process that nobody killed,
// and the log has each step and each evaluation once.
func TestKilledRanksAreReplaced(t *testing.T) {
	slow.Race(t)
	const size, mostSteps, evalEvery = 4, 8, 10
	steps := (*rankKills + 2) * mostSteps
	if folder := os.Getenv(replacedFolder); folder != "" {
		replacedRank(t, folder, steps, evalEvery)
		return
	}
	straight, errs := together{size: 1, accumulation: size, dtype: tensor.Float32, change: func(_ int, c *train.LoopConfig) {
		c.Steps, c.Evaluations.Every = steps, evalEvery
	}}.train(t)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	seed := uint64(7)
	if *rankKills > 100 {
		seed = uint64(time.Now().UnixNano())
	}
	folder, out := t.TempDir(), &writer{}
	var killer sync.WaitGroup
	over := make(chan struct{})
	var killed []kill
	killer.Go(func() { killed = killRanks(t, folder, rand.New(rand.NewPCG(seed, 0)), over, size, mostSteps) })
	err := distributed.Launch(t.Context(), size, distributed.LaunchConfig{
		Command: []string{os.Args[0], "-test.run=^TestKilledRanksAreReplaced$", fmt.Sprint("-rankkills=", *rankKills), "-test.timeout=0"},
		Stdout:  out, Stderr: out, Grace: 10 * time.Minute, Env: []string{replacedFolder + "=" + folder},
		Lost: distributed.LostReplaced, Restarts: *rankKills + 1,
	})
	close(over)
	killer.Wait()
	t.Logf("seed %d: %d processes were killed in %d steps", seed, len(killed), steps)
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, out.String())
	}
	view, err := checkpoint.View(folder)
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := view.Latest()
	if err != nil || c.Step != steps {
		t.Fatalf("seed %d: the newest checkpoint is of step %d, %v", seed, c.Step, err)
	}
	checkLog(t, filepath.Join(folder, "log.jsonl"), straight[0], steps, evalEvery, killed)
	for name, want := range straight[0].values {
		for i, x := range c.Weights.Map()[name].Float32s() {
			if float64(x) != want[i] {
				t.Fatalf("seed %d: %s has %v at %d, without kills %v", seed, name, x, i, want[i])
			}
		}
	}
}

// checkLog wants each step and evaluation once in a log, with the losses of a course. It says which
// ranks were killed near the first that has another.
func checkLog(t *testing.T, path string, want course, steps, evalEvery int, killed []kill) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	log, err := watch.ReadJSONLines(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var done, evaluated []int
	for i, s := range log.Steps {
		if done = append(done, s.Done); s.Done == i+1 && !(s.Loss/want.losses[i]-1 <= 1e-12 && s.Loss/want.losses[i]-1 >= -1e-12) {
			near := slices.DeleteFunc(slices.Clone(killed), func(k kill) bool { return k.step < i-20 || k.step > i+2 })
			t.Fatalf("the loss of step %d is %v, without kills %v; killed were %+v", s.Done, s.Loss, want.losses[i], near)
		}
	}
	for _, e := range log.Evaluations {
		evaluated = append(evaluated, e.Done)
	}
	for i := range steps {
		if i >= len(done) || done[i] != i+1 {
			t.Fatalf("the log has the steps %v", done)
		}
	}
	for i, at := range evaluated {
		if at != min(i*evalEvery, steps) || len(done) != steps {
			t.Fatalf("the log has %d steps and the evaluations %v", len(done), evaluated)
		}
	}
	if at := 1 + (steps+evalEvery-1)/evalEvery; len(evaluated) != at {
		t.Fatalf("the log has the evaluations %v, want %d", evaluated, at)
	}
}

// kill is of a rank, when the log had so many steps.
type kill struct{ rank, step int }

// killRanks kills ranks until as many are dead as are to be. Moments are counted in steps that the
// log has, so that on no machine all come before the first; the last wait is for any place within a
// step.
func killRanks(t *testing.T, folder string, random *rand.Rand, over <-chan struct{}, size, mostSteps int) (killed []kill) {
	dead := map[int]bool{}
	at := 0
	for n := 0; n < *rankKills; {
		select {
		case <-over:
			t.Errorf("the run was over after %d kills", n)
			return killed
		case <-time.After(time.Duration(random.IntN(8000)) * time.Microsecond):
		}
		text, err := os.ReadFile(filepath.Join(folder, "log.jsonl"))
		if steps := bytes.Count(text, []byte(`"event":"step"`)); err != nil || steps < at {
			continue
		}
		rank := random.IntN(size)
		pid, err := strconv.Atoi(strings.TrimSpace(readText(filepath.Join(folder, fmt.Sprint("pid-", rank)))))
		if err != nil || dead[pid] {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("kill %d: %v", n, err)
		}
		dead[pid] = true
		n++
		done := bytes.Count(text, []byte(`"event":"step"`))
		killed = append(killed, kill{rank, done})
		// Every fourth comes while the group is not whole again.
		if at = done + 1 + random.IntN(mostSteps-1); n%4 == 3 {
			at = 0
		}
	}
	return killed
}

func readText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	return string(text)
}

// replacedRank is one of the processes.
func replacedRank(t *testing.T, folder string, steps, evalEvery int) {
	place, err := distributed.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(folder, fmt.Sprint("pid-", place.Rank))
	if err := os.WriteFile(mine+".new", []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(mine+".new", mine); err != nil {
		t.Fatal(err)
	}
	place.Timeout, place.Lost = 5*time.Minute, distributed.LostReplaced
	o := together{size: place.Size, accumulation: 1, dtype: tensor.Float32, change: func(rank int, c *train.LoopConfig) {
		c.Steps, c.Evaluations.Every, c.CheckpointEvery = steps, evalEvery, 7
		if rank == 0 {
			c.Checkpoints = openFolder(t, folder, 2)
			c.Hooks = append(slices.Clone(c.Hooks), watch.OpenJSONLines(filepath.Join(folder, "log.jsonl")))
		}
	}}
	if _, err := o.trainRank(t, place); err != nil {
		fmt.Fprintln(os.Stderr, err)
		t.Fatal(err)
	}
}
