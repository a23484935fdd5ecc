//go:build unix

package train_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// rankFolder is the variable of the environment that makes a test process a rank, with the folder
// of its checkpoints as its value. rankFault says what happens to the last rank, and at which
// batch.
const (
	rankFolder = "STHENO_TEST_RANK_FOLDER"
	rankFault  = "STHENO_TEST_RANK_FAULT"
)

// TestRanksThatFail trains in processes of which one dies, hangs, is stopped, fails or is killed at
// a random moment, and goes on from the checkpoint that is left. Each time the others end, and the
// weights in the end are those of one process that nothing happened to. They name that rank where
// no time-out is what tells them, which may be that of any rank on a machine that is busy.
func TestRanksThatFail(t *testing.T) {
	const steps = 20
	size, early, faults := 3, 1, []string{"dies", "hangs", "is stopped", "fails", "is killed", ""}
	if testing.Short() {
		size, early, faults = 2, 2, []string{"dies", ""}
	}
	if folder := os.Getenv(rankFolder); folder != "" {
		failingRank(t, folder, steps)
		return
	}
	straight, errs := together{size: 1, accumulation: size, dtype: tensor.Float32}.train(t)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	const seed = 5
	random, path := rand.New(rand.NewPCG(seed, 0)), t.TempDir()
	last := fmt.Sprint("rank ", size-1)
	for i, fault := range faults {
		at := 0
		if fault != "" { // every fault comes after some of the steps that are left
			at = size*(i*steps/6+early+random.IntN(steps/6-1)) + size - 1
		}
		out, grace := &writer{}, 10*time.Minute
		if isSilent(fault) {
			grace = 2 * time.Second
		}
		err := distributed.Launch(t.Context(), size, distributed.LaunchConfig{
			Command: []string{os.Args[0], "-test.run=^TestRanksThatFail$", fmt.Sprint("-test.short=", testing.Short())}, Stdout: out, Stderr: out, Grace: grace,
			Env: []string{rankFolder + "=" + path, rankFault + "=" + fmt.Sprint(at, " ", fault)},
		})
		if fault == "" {
			if err != nil {
				t.Fatal(err, out.String())
			}
			break
		}
		named := 0
		for line := range strings.Lines(out.String()) {
			if !strings.HasPrefix(line, "["+last+"]") && strings.Contains(line, last) {
				named++
			}
		}
		if err == nil || named < size-1 && !isSilent(fault) {
			t.Errorf("%s %s at batch %d, seed %d: %v, the others say %q", last, fault, at, seed, err, out.String())
		}
		view, err := checkpoint.View(path)
		if err != nil {
			t.Fatal(err)
		}
		c, refused, err := view.Latest()
		want := at / size
		least, most := want-1, want
		if isSilent(fault) {
			least = 0
		}
		if fault == "is killed" {
			most = steps
		}
		if err != nil || len(refused) > 0 || c.Step < least || c.Step > most {
			t.Errorf("%s %s in step %d: checkpoint of step %d, %v, refused %v", last, fault, want, c.Step, err, refused)
		}
	}
	folder := openFolder(t, path, 2)
	end, errs := together{size: 1, accumulation: size, dtype: tensor.Float32, resume: true, change: func(_ int, c *train.LoopConfig) { c.Checkpoints = folder }}.train(t)
	if err := errors.Join(append(errs, folder.Close())...); err != nil || end[0].end.Done != steps || !slices.Equal(end[0].weights, straight[0].weights) {
		t.Errorf("the weights differ from those of one process (%v)", err)
	}
}

// failingRank is one of the processes. They share the optimiser's state every other time, and write
// checkpoints in parts but for every third.
func failingRank(t *testing.T, path string, steps int) {
	place, err := distributed.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	at, fault, _ := strings.Cut(os.Getenv(rankFault), " ")
	place.Timeout = 5 * time.Minute
	if isSilent(fault) {
		place.Timeout = 3 * time.Second
	}
	batch, err := strconv.Atoi(at)
	if err != nil {
		t.Fatal(err)
	}
	o := together{size: place.Size, accumulation: 1, dtype: tensor.Float32, resume: true, shard: batch%2 == 1, files: batch%3 != 0, change: func(rank int, c *train.LoopConfig) {
		c.Steps, c.CheckpointEvery = steps, 1
		if rank == 0 {
			c.Checkpoints = openFolder(t, path, 2)
		}
		if rank == place.Size-1 && fault != "" {
			c.Data = faulty{at: batch, last: steps*place.Size - 1, how: fault}
		}
	}}
	if _, err := o.trainRank(t, place); err != nil {
		t.Fatal(err)
	}
}

// isSilent reports whether a rank of which the others hear nothing any more is found out by time
// alone.
func isSilent(fault string) bool { return fault == "hangs" || fault == "is stopped" }

// faulty is counting up to a batch.
type faulty struct {
	at, last int
	how      string
}

func (f faulty) Batch(n int) (data.Batch, error) {
	if n < f.at {
		return counting{}.Batch(n)
	}
	switch f.how {
	case "dies":
		os.Exit(3)
	case "hangs":
		select {}
	case "is killed": // in one of the steps that come now, or while it writes a checkpoint
		time.AfterFunc(time.Duration(rand.IntN(15))*time.Millisecond, func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		if n == f.last { // the run must not be over before
			select {}
		}
		return counting{}.Batch(n)
	case "is stopped": // as with a machine that is lost
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {}
	}
	return nil, errDataEnded
}

// writer is written to by the readers of several processes.
type writer struct {
	lock sync.Mutex
	text []byte
}

func (w *writer) Write(p []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.text = append(w.text, p...)
	return len(p), nil
}

func (w *writer) String() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	return string(w.text)
}
