package checkpoint

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The test of this file kills a process that saves, again and again, and looks at what it has left.

var kills = flag.Int("kills", 15, "how often TestKill kills a process that saves checkpoints")

// childFolder is the environment variable that makes the test binary a process that saves until it
// is killed.
const childFolder = "STHENO_CHECKPOINT_TEST_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(childFolder); folder != "" {
		if err := saveForever(folder); err != nil {
			fmt.Println("error:", err)
		}
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// saveForever goes on from the latest checkpoint: every fifth step is saved twice, every third is
// the best, and every other in parts. It prints what it has saved after it has.
func saveForever(folder string) error {
	fmt.Println("start")
	f, err := Open(folder, 2)
	if err != nil {
		return err
	}
	step := 0
	if c, refused, err := f.Latest(); err == nil && len(refused) == 0 {
		step = c.Step
	} else if !errors.Is(err, ErrNone) || len(refused) > 0 {
		return fmt.Errorf("%v, refused: %v", err, refused)
	}
	for step++; ; step++ {
		for version := range 1 + (5-step%5)/5 {
			c := sample(step, version)
			if step%2 == 1 {
				c = inParts(c, 3, nil)
			}
			if _, err := f.Save(c); err != nil {
				return err
			}
			fmt.Println("step", step, version)
		}
		if step%3 == 0 {
			if _, err := f.SaveBest(sample(step, 0)); err != nil {
				return err
			}
			fmt.Println("best", step, 0)
		}
	}
}

func TestKill(t *testing.T) {
	const seed = 5
	random := rand.New(rand.NewPCG(seed, 0))
	folder := filepath.Join(t.TempDir(), "run")
	saved := map[kind]position{regular: {}, best: {}}
	leftovers, span := 0, max(30*time.Millisecond, 4*timeOfSave(t))
	for round := range *kills {
		wait := time.Duration(random.Int64N(int64(span)))
		t.Logf("round %d of seed %d: killed after %v", round, seed, wait)
		after := "start"
		if round%2 == 1 { // so that there is something new, however slow the machine is
			after = "step"
		}
		saveAndKill(t, folder, after, wait, saved)
		if hasWork(t, folder) {
			leftovers++
		}
		f, err := View(folder)
		if err != nil {
			t.Fatal(err)
		}
		for k, latest := range map[kind]func() (Checkpoint, []error, error){regular: f.Latest, best: f.Best} {
			c, refused, err := latest()
			if errors.Is(err, ErrNone) && len(refused) == 0 && saved[k] == (position{}) {
				continue
			}
			if err != nil || len(refused) > 0 {
				t.Fatalf("%s: error %v, refused %v", k, err, refused)
			}
			version, err := versionOf(c)
			if err != nil {
				t.Fatal(err)
			}
			if have := (position{c.Step, version}); have.before(saved[k]) {
				t.Fatalf("%s: the newest is %+v, but %+v was reported as saved", k, have, saved[k])
			}
		}
	}
	f := mustOpen(t, folder, 2)
	if hasWork(t, folder) {
		t.Errorf("Open has left %q", entries(t, folder))
	}
	c, _, err := f.Latest()
	t.Logf("step %d was reached; %d of %d kills left something half-written or half-deleted", c.Step, leftovers, *kills)
	if err != nil && *kills > 5 {
		t.Error(err)
	}
}

// timeOfSave is how long a process that has just begun takes for its first checkpoint.
func timeOfSave(t *testing.T) time.Duration {
	child, lines := startSaving(t, filepath.Join(t.TempDir(), "timed"))
	begin := time.Now()
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "step") {
		if lines.Text() == "start" {
			begin = time.Now()
		}
	}
	took := time.Since(begin)
	child.Process.Kill()
	child.Wait()
	return took
}

// position is how far a process that saves has come.
type position struct{ step, version int }

func (p position) before(q position) bool {
	return p.step < q.step || p.step == q.step && p.version < q.version
}

// saveAndKill runs a process that saves, kills it that long after it has said something, and notes
// what it has reported.
func saveAndKill(t *testing.T, folder, after string, wait time.Duration, saved map[kind]position) {
	t.Helper()
	child, lines := startSaving(t, folder)
	for lines.Scan() {
		line := lines.Text()
		var k kind
		var p position
		if strings.HasPrefix(line, after) {
			time.AfterFunc(wait, func() { child.Process.Kill() })
		}
		if _, err := fmt.Sscan(strings.TrimSpace(line), &k, &p.step, &p.version); err == nil {
			saved[k] = p
		} else if strings.HasPrefix(line, "error") {
			t.Fatalf("the process that saves: %s", line)
		}
	}
	if err := child.Wait(); err == nil {
		t.Fatal("the process that saves ended before it was killed")
	}
}

// startSaving starts a process that saves for ever, and returns what reads its lines.
func startSaving(t *testing.T, folder string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(program)
	child.Env = append(os.Environ(), childFolder+"="+folder)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	return child, bufio.NewScanner(out)
}
