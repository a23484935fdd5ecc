package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

func TestSaveAndLoad(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "runs", "one")
	f := mustOpen(t, folder, 2)
	if _, refused, err := f.Latest(); !errors.Is(err, ErrNone) || refused != nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("an empty folder: refused %v, error %v", refused, err)
	}
	for step := 100; step <= 400; step += 100 {
		path := mustSave(t, f, sample(step, 1))
		if want := filepath.Join(folder, fmt.Sprintf("step-%08d", step)); path != want {
			t.Errorf("the path is %s, want %s", path, want)
		}
		c, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := versionOf(c); err != nil || c.Step != step || c.Path != path {
			t.Errorf("step %d at %s: %v", c.Step, c.Path, err)
		}
		wantLatest(t, f, step, 1, 0)
	}
	wantEntries(t, folder, "step-00000300", "step-00000400")
	if steps, err := f.Steps(); err != nil || !slices.Equal(steps, []int{300, 400}) {
		t.Errorf("steps are %v, %v", steps, err)
	}
	if c, _, err := f.At(300); err != nil || c.Step != 300 {
		t.Errorf("at 300 is %d, %v", c.Step, err)
	}
	if _, _, err := f.At(100); !errors.Is(err, ErrNone) {
		t.Errorf("at 100: error %v", err)
	}
	wantEntries(t, filepath.Join(folder, "step-00000400"), sumsFile, modelFile, optimizerFile, stateFile)
}

func TestSaveEmpty(t *testing.T) {
	f := mustOpen(t, t.TempDir(), 1)
	c, err := Load(mustSave(t, f, Checkpoint{}))
	if err != nil || c.Step != 0 || len(c.Weights) != 0 || len(c.Optimizer) != 0 || string(c.Meta) != "null" {
		t.Errorf("%+v, %v", c, err)
	}
}

// A step that is saved again replaces the one before, as often as it is done.
func TestSaveAgain(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 2)
	mustSave(t, f, sample(100, 1))
	for version := 1; version <= 4; version++ {
		mustSave(t, f, sample(200, version))
		wantLatest(t, f, 200, version, 0)
	}
	wantEntries(t, folder, "step-00000100", "step-00000200.4")
	mustSave(t, f, sample(300, 1))
	wantEntries(t, folder, "step-00000200.4", "step-00000300")
}

// Training that went back to an earlier step keeps what it saves.
func TestSaveEarlier(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 2)
	for _, step := range []int{200, 300, 100} {
		mustSave(t, f, sample(step, 1))
	}
	wantEntries(t, folder, "step-00000100", "step-00000300")
	mustSave(t, f, sample(150, 1))
	wantEntries(t, folder, "step-00000150", "step-00000300")
}

func TestSaveBest(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 1)
	if _, _, err := f.Best(); !errors.Is(err, ErrNone) {
		t.Errorf("no best: error %v", err)
	}
	for version, step := range []int{100, 300, 300, 200} {
		if _, err := f.SaveBest(sample(step, version)); err != nil {
			t.Fatal(err)
		}
		mustSave(t, f, sample(step, 9))
		c, refused, err := f.Best()
		if err != nil || len(refused) > 0 {
			t.Fatal(err, refused)
		}
		if have, err := versionOf(c); err != nil || have != version || c.Step != step {
			t.Errorf("the best is version %d of step %d (%v), want %d of %d", have, c.Step, err, version, step)
		}
	}
	wantEntries(t, folder, "best-00000200", "step-00000200")
}

func TestSaveRefuses(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 1)
	mustSave(t, f, sample(1, 1))
	view, err := View(folder)
	if err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		folder *Folder
		c      Checkpoint
		want   string
	}{
		{"negative", f, Checkpoint{Step: -1}, "step is -1"},
		{"meta", f, Checkpoint{Step: 2, Meta: json.RawMessage("{")}, "meta is not valid JSON"},
		{"empty meta", f, Checkpoint{Step: 2, Meta: json.RawMessage{}}, "meta is not valid JSON"},
		{"weights", f, Checkpoint{Step: 2, Weights: safetensors.Tensors{{Name: "w"}}}, `model.safetensors: safetensors: tensor "w" is nil`},
		{"optimizer", f, Checkpoint{Step: 2, Optimizer: safetensors.Tensors{{Name: "m", Value: dense([]int{1}, 1)}}}, `optimizer.safetensors: safetensors: tensor "m" is int`},
		{"view", view, sample(2, 1), "opened with View"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path, err := c.folder.Save(c.c)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), folder) {
				t.Errorf("error %v, want one with %q and the folder", err, c.want)
			}
			if path != "" {
				t.Errorf("the path is %s, want none", path)
			}
			wantEntries(t, folder, "step-00000001")
		})
	}
	wantLatest(t, f, 1, 1, 0)
}

func TestOpenRefuses(t *testing.T) {
	folder := t.TempDir()
	plain := filepath.Join(folder, "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		keep int
		disk filesystem
		want string
	}{
		{folder, 0, disk{}, "0 checkpoints are to be kept"},
		{plain, 1, disk{}, plain + " is a file"},
		{filepath.Join(plain, "below"), 1, disk{}, plain},
		{folder, 1, &faulty{}, folder + " is not writable"},
		{filepath.Join(folder, "a", "b"), 1, &faulty{operations: 2}, "b cannot be made"},
	} {
		if _, err := open(c.path, c.keep, c.disk); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, keep %d: error %v, want one with %q", c.path, c.keep, err, c.want)
		}
	}
	for _, path := range []string{plain, filepath.Join(folder, "none")} {
		if _, err := View(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("View: error %v, want one with %s", err, path)
		}
	}
	if os.Geteuid() > 0 {
		locked := filepath.Join(folder, "locked")
		if err := os.Mkdir(locked, 0o500); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(locked, 1); err == nil || !strings.Contains(err.Error(), locked+" is not writable") {
			t.Errorf("a folder without the right to write: error %v", err)
		}
	}
}

// Open removes what only a killed writer can have left, and nothing else; View removes nothing.
func TestLeftovers(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 1)
	path := mustSave(t, f, sample(100, 1))
	ours := []string{workName(writing, "step-00000200"), workName(writing, "best-00000200.3"), workName(deleting, "step-123456789"), workName(writing, probeName)}
	theirs := []string{".deleting-step-00000200", ".writing-mine-17", ".writing", "best", "notes", "step-00000150.old", "step-00000300.1", "step-150"}
	for _, n := range append(ours, theirs...) {
		if err := os.CopyFS(filepath.Join(folder, n), os.DirFS(path)); err != nil {
			t.Fatal(err)
		}
	}
	aFile := workName(writing, "step-00000400") // not a folder, so not one that a writer made
	if err := os.WriteFile(filepath.Join(folder, aFile), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	before := entries(t, folder)
	view, err := View(folder)
	if err != nil {
		t.Fatal(err)
	}
	wantLatest(t, view, 100, 1, 0)
	wantEntries(t, folder, before...)
	f.Close()
	f = mustOpen(t, folder, 1)
	wantLatest(t, f, 100, 1, 0)
	mustSave(t, f, sample(200, 1))
	want := append(theirs, aFile, "step-00000200")
	slices.Sort(want)
	wantEntries(t, folder, want...)
}

// Whichever byte is changed and wherever a file is cut, the checkpoint is refused, with the file's
// name, and the one before is used.
func TestDamage(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 2)
	mustSave(t, f, sample(100, 1))
	path := mustSave(t, f, sample(200, 1))
	whole := map[string][]byte{}
	for _, n := range append([]string{sumsFile}, summedFiles...) {
		data, err := os.ReadFile(filepath.Join(path, n))
		if err != nil {
			t.Fatal(err)
		}
		whole[n] = data
	}
	refusedWith := func(t *rapid.T, name string) {
		c, refused, err := f.Latest()
		if err != nil || c.Step != 100 || len(refused) != 1 {
			t.Fatalf("step %d is the latest (%v), %d refused", c.Step, err, len(refused))
		}
		if message := refused[0].Error(); !strings.Contains(message, path) || !strings.Contains(message, name) {
			t.Fatalf("the refusal %q does not name %s and %s", message, path, name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(append([]string{sumsFile}, summedFiles...)).Draw(t, "file")
		damaged := slices.Clone(whole[name])
		at := rapid.IntRange(0, len(damaged)-1).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "damage") {
		case 0:
			damaged[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		case 1:
			damaged = damaged[:at]
		case 2:
			damaged = append(damaged, rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "more")...)
		}
		if err := os.WriteFile(filepath.Join(path, name), damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		refusedWith(t, name)
		if err := os.WriteFile(filepath.Join(path, name), whole[name], 0o644); err != nil {
			t.Fatal(err)
		}
	})
	wantLatest(t, f, 200, 1, 0)
	for name := range whole {
		if err := os.Rename(filepath.Join(path, name), filepath.Join(folder, "away")); err != nil {
			t.Fatal(err)
		}
		if refused := wantLatest(t, f, 100, 1, 1); !strings.Contains(refused[0].Error(), name) {
			t.Errorf("%s is missing: refused with %v", name, refused[0])
		}
		if err := os.Rename(filepath.Join(folder, "away"), filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	renamed := filepath.Join(folder, "step-00000300")
	if err := os.Rename(path, renamed); err != nil {
		t.Fatal(err)
	}
	if refused := wantLatest(t, f, 100, 1, 1); !strings.Contains(refused[0].Error(), "it holds step 200") {
		t.Errorf("a folder under another's name: refused with %v", refused[0])
	}
	for _, step := range []string{"step-00000100", "step-00000300"} {
		if err := os.Truncate(filepath.Join(folder, step, modelFile), 10); err != nil {
			t.Fatal(err)
		}
	}
	if _, refused, err := f.Latest(); !errors.Is(err, ErrNone) || len(refused) != 2 {
		t.Errorf("all are damaged: error %v, refused %v", err, refused)
	}
}

// The sums are as sha256sum writes them.
func TestSumsFile(t *testing.T) {
	tool, err := exec.LookPath("sha256sum")
	if err != nil {
		t.Skip("there is no sha256sum")
	}
	check := exec.Command(tool, "--check", "--strict", sumsFile)
	check.Dir = mustSave(t, mustOpen(t, t.TempDir(), 1), sample(1, 1))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// Wherever a save fails, its error is returned, nothing half-written is left, and what was there
// before stays; a save on a disk that works again succeeds.
func TestSaveFails(t *testing.T) {
	for _, k := range []kind{regular, best} {
		for _, step := range []int{200, 300} { // one that is there already and one that is not
			for _, unit := range []string{"operations", "bytes"} {
				t.Run(fmt.Sprintf("%s %d %s", k, step, unit), func(t *testing.T) {
					folder := t.TempDir()
					d := &faulty{operations: math.MaxInt, bytes: math.MaxInt}
					f, err := open(folder, 2, d)
					if err != nil {
						t.Fatal(err)
					}
					save := map[kind]func(Checkpoint) (string, error){regular: f.Save, best: f.SaveBest}[k]
					latest := map[kind]func() (Checkpoint, []error, error){regular: f.Latest, best: f.Best}[k]
					for step := 100; step <= 200; step += 100 {
						if _, err := save(sample(step, 1)); err != nil {
							t.Fatal(err)
						}
					}
					before := entries(t, folder)
					increment := map[string]int{"operations": 1, "bytes": 499}[unit]
					for budget := 0; ; budget += increment {
						if unit == "operations" {
							d.operations = budget
						} else {
							d.bytes = budget
						}
						path, err := save(sample(step, 2))
						if err == nil {
							if budget < 10*increment {
								t.Fatalf("a save costs only %d %s", budget, unit)
							}
							break
						}
						if !errors.Is(err, errFault) || path != "" {
							t.Fatalf("after %d %s: path %q, error %v, want the fault and no path", budget, unit, path, err)
						}
						wantEntries(t, folder, before...)
						c, refused, err := latest()
						if version, _ := versionOf(c); err != nil || len(refused) > 0 || c.Step != 200 || version != 1 {
							t.Fatalf("after %d %s: version %d of step %d is the latest, error %v, refused %v", budget, unit, version, c.Step, err, refused)
						}
					}
					c, _, err := latest()
					if version, _ := versionOf(c); err != nil || c.Step != step || version != 2 {
						t.Fatalf("version %d of step %d is the latest, error %v", version, c.Step, err)
					}
					if hasWork(t, folder) {
						t.Fatalf("something is left: %q", entries(t, folder))
					}
				})
			}
		}
	}
}

// stuck is a disk on which nothing can be removed.
type stuck struct{ disk }

func (stuck) removeAll(string) error { return errFault }

// A checkpoint that is saved counts, even if an old one cannot be removed.
func TestRemoveFails(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 1)
	mustSave(t, f, sample(100, 1))
	f.disk = stuck{}
	path, err := f.Save(sample(200, 1))
	if !errors.Is(err, errFault) || !strings.Contains(err.Error(), "step 200 is saved in "+path) || path == "" {
		t.Errorf("path %q, error %v", path, err)
	}
	f.Close()
	f = mustOpen(t, folder, 1)
	wantLatest(t, f, 200, 1, 0)
	wantEntries(t, folder, "step-00000200")
}

// A folder is open for writing once at a time; one that is closed, or a view, does not write.
func TestOneWriter(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 1)
	mustSave(t, f, sample(100, 1))
	work := filepath.Join(folder, workName(writing, "step-00000200")) // as if it were being written
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(folder, 1); !errors.Is(err, ErrOpen) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("opened twice: error %v, want ErrOpen and who has it open", err)
	}
	if _, err := os.Stat(work); err != nil {
		t.Errorf("the second to open it removed what the first writes: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantLatest(t, f, 100, 1, 0)
	for name, save := range map[string]func(Checkpoint) (string, error){"Save": f.Save, "SaveBest": f.SaveBest, "SaveBeside": f.SaveBeside} {
		if _, err := save(sample(200, 1)); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("%s in a closed folder: error %v", name, err)
		}
	}
	if f.CheckWritable() == nil || f.RemoveAfter(1) == nil {
		t.Error("a closed folder is taken for one that is open")
	}
	mustOpen(t, folder, 1)
	wantEntries(t, folder, "step-00000100")
}

// Many that open a folder that is not there yet make it together, and one of them gets it.
func TestOpenAtOnce(t *testing.T) {
	for range 20 {
		folder := filepath.Join(t.TempDir(), "runs", "1", "checkpoints")
		type result struct {
			folder *Folder
			err    error
		}
		results := make(chan result)
		for range 8 {
			go func() {
				f, err := Open(folder, 1)
				results <- result{f, err}
			}()
		}
		won := 0
		for range 8 {
			switch r := <-results; {
			case r.err == nil:
				won++
				defer r.folder.Close()
			case !errors.Is(r.err, ErrOpen):
				t.Errorf("error %v, want ErrOpen", r.err)
			}
		}
		if won != 1 {
			t.Errorf("%d opened the folder, want 1", won)
		}
	}
}

// Training that goes on from an earlier checkpoint leaves none behind that is later, and what is
// saved beside others removes none.
func TestRemoveAfter(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 2)
	for step := 100; step <= 400; step += 100 {
		if _, err := f.SaveBeside(sample(step, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.SaveBest(sample(400, 1)); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, folder, "best-00000400", "step-00000100", "step-00000200", "step-00000300", "step-00000400")
	if err := f.RemoveAfter(200); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, folder, "best-00000400", "step-00000100", "step-00000200")
}

func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := name{rapid.SampledFrom([]kind{regular, best}).Draw(t, "kind"), rapid.IntRange(0, math.MaxInt).Draw(t, "step"),
			rapid.IntRange(1, 1000).Draw(t, "generation")}
		if have, ok := parseName(n.String()); !ok || have != n {
			t.Fatalf("%v is read as %+v, %v", n, have, ok)
		}
		for _, what := range []string{writing, deleting} {
			w := workName(what, n.String())
			if _, ok := parseName(w); ok || !workPattern.MatchString(w) || workPattern.MatchString(n.String()) {
				t.Fatalf("%s is not told from a checkpoint", w)
			}
		}
	})
}

func TestMatch(t *testing.T) {
	one := func(dtype tensor.Dtype, shape ...int) *tensor.Dense {
		return tensor.New(tensor.Of(dtype), tensor.WithShape(shape...))
	}
	want := safetensors.Tensors{{Name: "a", Value: one(tensor.Float32, 2, 3)}, {Name: "b", Value: one(tensor.Float32, 3)}}
	many := func(n int) (list safetensors.Tensors) {
		for i := range n {
			list = append(list, safetensors.Tensor{Name: fmt.Sprint("p", i), Value: one(tensor.Float32, 1)})
		}
		return list
	}
	const start = "the checkpoint does not fit the model: "
	cases := []struct {
		name       string
		have, want safetensors.Tensors
		message    string
	}{
		{"equal", want, want, ""},
		{"nothing", nil, nil, ""},
		{"other order", safetensors.Tensors{want[1], want[0]}, want, ""},
		{"missing", want[:1], want, start + "b is missing"},
		{"unknown", want, want[:1], start + "b is none of the model's"},
		{"shape", safetensors.Tensors{{Name: "a", Value: one(tensor.Float32, 3, 2)}, want[1]}, want, start + "a is float32 [3 2], the model's is float32 [2 3]"},
		{"axes", safetensors.Tensors{want[0], {Name: "b", Value: one(tensor.Float32, 1, 3)}}, want, start + "b is float32 [1 3], the model's is float32 [3]"},
		{"type", safetensors.Tensors{want[0], {Name: "b", Value: one(tensor.Float64, 3)}}, want, start + "b is float64 [3], the model's is float32 [3]"},
		{"nil", safetensors.Tensors{{Name: "a"}, want[1]}, want, start + "a is missing"},
		{"nil in the model", want, safetensors.Tensors{{Name: "a"}, want[1]}, start + "a has no value in the model"},
		{"all", safetensors.Tensors{{Name: "x", Value: want[0].Value}, {Name: "b", Value: want[0].Value}}, want,
			start + "a is missing; b is float32 [2 3], the model's is float32 [3]; x is none of the model's"},
		{"many", nil, many(7), start + "p0 is missing; p1 is missing; p2 is missing; p3 is missing; p4 is missing; and 2 more"},
		{"five", many(5), nil, start + "p0 is none of the model's; p1 is none of the model's; p2 is none of the model's; p3 is none of the model's; p4 is none of the model's"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			message := ""
			if err := Match(c.have, c.want); err != nil {
				message = err.Error()
			}
			if message != c.message {
				t.Errorf("%q, want %q", message, c.message)
			}
		})
	}
}
