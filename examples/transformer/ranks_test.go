//go:build unix

package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// output is written to by the readers of several processes.
type output struct {
	lock sync.Mutex
	text []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.text = append(o.text, p...)
	return len(p), nil
}

func (o *output) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return string(o.text)
}

// launched runs the program as ranks on the CPU, as a launcher would.
func launched(t *testing.T, ranks int, args ...string) (string, error) {
	t.Helper()
	return launchedWith(t, ranks, distributed.LostEnds, args...)
}

func launchedWith(t *testing.T, ranks int, lost distributed.Lost, args ...string) (string, error) {
	t.Helper()
	out := &output{}
	err := distributed.Launch(t.Context(), ranks, distributed.LaunchConfig{
		Command: append([]string{os.Args[0], "-device", "cpu"}, args...), Env: []string{asProgram + "=1"}, Stdout: out, Stderr: out, Grace: 20 * time.Second, Lost: lost,
	})
	return out.String(), err
}

// TestRanks compares a run of three ranks, which is resumed by three that share the optimiser's
// state and write checkpoints in parts, with one process that accumulates three batches.
func TestRanks(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	if err := do(t, append(small, "-steps", "10", "-accumulation", "3", "-out", "one", "-device", "cpu")...); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{append(small, "-steps", "5", "-out", "three"), {"-resume", "-out", "three", "-steps", "10", "-length", "40", "-shard", "state"}} {
		out, err := launched(t, 3, args...)
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		if strings.Count(out, "It computes on 3 ranks") != 1 || strings.Contains(out, "[rank ") {
			t.Errorf("%q: not rank 0 alone says what it does:\n%s", args, out)
		}
	}
	if read(t, "one/sample.txt") != read(t, "three/sample.txt") {
		t.Error("the text of three ranks differs from that of one process")
	}
	one, err := checkpoint.Load("one/checkpoints/step-00000010")
	if err != nil {
		t.Fatal(err)
	}
	three, err := checkpoint.Load("three/checkpoints/step-00000010")
	if err != nil {
		t.Fatal(err)
	}
	if parts, err := filepath.Glob("three/checkpoints/step-00000010/*-of-00003.safetensors"); err != nil || len(parts) != 6 {
		t.Errorf("three ranks have written the parts %q, %v, want six", parts, err)
	}
	weights := three.Weights.Map()
	for _, w := range one.Weights {
		if !slices.Equal(weights[w.Name].Float32s(), w.Value.Float32s()) {
			t.Errorf("%s of three ranks differs from that of one process", w.Name)
		}
	}
	if runs, err := filepath.Glob("*/checkpoints"); err != nil || len(runs) != 2 {
		t.Errorf("the runs are %v, %v, want two", runs, err)
	}
}

// dying is the environment variable of ranks that kill themselves, such as "0:3 2:8", rank 0 when
// the log has three steps.
const dying = "STHENO_TEST_DYING"

// dieOnce kills this rank, unless a process in its place was killed before.
func dieOnce() {
	rank, rest, dies := strings.Cut(os.Getenv(dying), os.Getenv("RANK")+":")
	var at int
	if _, err := fmt.Sscan(rest, &at); !dies || err != nil || strings.HasSuffix(rank, ":") {
		return
	}
	for {
		text, err := os.ReadFile("run/log.jsonl")
		if err == nil && strings.Count(string(text), `"event":"step"`) >= at {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if os.Mkdir("dead-"+os.Getenv("RANK"), 0o777) == nil {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

// TestLostRanks kills two of three ranks, rank 0 among them: they are replaced, and the weights are
// those of a run that lost none. Where ranks may be missing, those that are left end the run.
func TestLostRanks(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	if err := do(t, append(small, "-steps", "16", "-accumulation", "2", "-out", "one", "-device", "cpu")...); err != nil {
		t.Fatal(err)
	}
	for lost, c := range map[string]struct{ die, said string }{
		"replace": {"0:3 1:8", "rank 0 ended (signal: killed) and is started again"},
		"fewer":   {"1:3", "1 ranks go on after step"},
	} {
		t.Setenv(dying, c.die)
		out, err := launchedWith(t, 2, distributed.Lost(lost), append(small, "-steps", "16", "-out", "run", "-lost", lost)...)
		if err != nil || !strings.Contains(out, c.said) {
			t.Fatalf("%s: %v\n%s", lost, err, out)
		}
		one, err := checkpoint.Load("one/checkpoints/step-00000016")
		if err != nil {
			t.Fatal(err)
		}
		two, err := checkpoint.Load("run/checkpoints/step-00000016")
		if err != nil {
			t.Fatal(err)
		}
		weights := two.Weights.Map()
		for _, w := range one.Weights {
			if !slices.Equal(weights[w.Name].Float32s(), w.Value.Float32s()) {
				t.Errorf("%s: %s differs from that of one process", lost, w.Name)
			}
		}
		if steps := strings.Count(read(t, "run/log.jsonl"), `"event":"step"`); steps != 16 {
			t.Errorf("%s: the log has %d steps, want 16", lost, steps)
		}
		for _, gone := range []string{"run", "dead-0", "dead-1"} {
			if err := os.RemoveAll(gone); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRanksShareSequences compares four ranks, of which every two share sequences and the model,
// with one process that accumulates two batches. The sums have another order: 6e-8 was seen.
func TestRanksShareSequences(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	if err := do(t, append(small, "-steps", "5", "-accumulation", "2", "-out", "one", "-device", "cpu")...); err != nil {
		t.Fatal(err)
	}
	out, err := launched(t, 4, append(small, "-steps", "5", "-out", "four", "-share", "2", "-shard", "weights", "-shard-ranks", "2")...)
	if err != nil || !strings.Contains(out, "It computes on 4 ranks with a batch for every 2") {
		t.Fatalf("%v\n%s", err, out)
	}
	var weights [2]map[string]*tensor.Dense
	for i, run := range []string{"one", "four"} {
		c, err := checkpoint.Load(run + "/checkpoints/step-00000005")
		if err != nil {
			t.Fatal(err)
		}
		weights[i] = c.Weights.Map()
	}
	worst := 0.0
	for name, one := range weights[0] {
		for i, x := range weights[1][name].Float32s() {
			worst = max(worst, math.Abs(float64(x-one.Float32s()[i])))
		}
	}
	if !(worst <= 1e-6) {
		t.Errorf("a weight differs by %v from that of one process", worst)
	}
	for want, args := range map[string][]string{
		"-share is 3: distributed: Split: size is 3, it needs to divide the number of ranks, 4":       {"-share", "3"},
		"-shard-ranks is 3: distributed: Split: size is 3, it needs to divide the number of ranks, 4": {"-shard", "state", "-shard-ranks", "3"},
	} {
		out, err = launched(t, 4, append(append(small, "-steps", "5", "-out", "three"), args...)...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v, it said %q", err, out)
		}
	}
}

// TestRanksThatCannotStart has one rank that cannot read what the others can, and more GPUs than
// there are.
func TestRanksThatCannotStart(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("hello world\n", 40))
	out, err := launched(t, 2, append(small, "-steps", "5", "-gpus", "2")...)
	if err == nil || !strings.Contains(out, "-device is given with -gpus") {
		t.Errorf("%v, it said %q", err, out)
	}
	program := exec.Command(os.Args[0], append(append([]string{}, small...), "-steps", "5", "-gpus", "65")...)
	program.Env = append(os.Environ(), asProgram+"=1")
	said, err := program.CombinedOutput()
	want := "transformer: -gpus is 65: built without GPUs: build with -tags gpu"
	if _, openErr := ops.OpenDevice(64); openErr != nil {
		want = "transformer: -gpus is 65: " + openErr.Error()
	}
	if err == nil || !strings.HasPrefix(string(said), want) {
		t.Errorf("%v, it said %q, want %q", err, said, want)
	}
}
