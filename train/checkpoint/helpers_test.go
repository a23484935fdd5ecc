package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

func dense(backing any, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(backing))
}

// sample is the checkpoint that tests save at a step: all of it follows from the step and the
// version.
func sample(step, version int) Checkpoint {
	w, m, v := make([]float32, 600), make([]float32, 600), make([]float64, 50)
	for i := range w {
		w[i] = float32(math.Sin(float64(1+i) * (float64(step) + 0.01*float64(version))))
		m[i] = -w[i] / 3
	}
	for i := range v {
		v[i] = math.Sqrt(float64(step + i))
	}
	return Checkpoint{
		Step:      step,
		Weights:   safetensors.Tensors{{Name: "b.weight", Value: dense(w, 20, 30)}, {Name: "a.bias", Value: dense(w[:7], 7)}},
		Optimizer: safetensors.Tensors{{Name: "m.b.weight", Value: dense(m, 20, 30)}, {Name: "v", Value: dense(v, 50)}},
		Meta:      json.RawMessage(fmt.Sprintf(`{"seed":18446744073709551615,"version":%d,"loss":1.8446744073709551e-3,"data":[%d,null]}`, version, step)),
	}
}

// versionOf is the version of a sample, and an error unless it is exactly the sample of its step
// and version.
func versionOf(c Checkpoint) (int, error) {
	var meta struct{ Version int }
	if err := json.Unmarshal(c.Meta, &meta); err != nil {
		return 0, err
	}
	want := sample(c.Step, meta.Version)
	var compact bytes.Buffer
	if err := json.Compact(&compact, c.Meta); err != nil {
		return 0, err
	}
	if compact.String() != string(want.Meta) {
		return 0, fmt.Errorf("meta of step %d is %s, want %s", c.Step, &compact, want.Meta)
	}
	for _, lists := range [][2]safetensors.Tensors{{c.Weights, want.Weights}, {c.Optimizer, want.Optimizer}} {
		if err := Match(lists[0], lists[1]); err != nil {
			return 0, err
		}
		have := lists[0].Map()
		for _, w := range lists[1] {
			if fmt.Sprint(have[w.Name].Data()) != fmt.Sprint(w.Value.Data()) {
				return 0, fmt.Errorf("%s of step %d is %v, want %v", w.Name, c.Step, have[w.Name], w.Value)
			}
		}
	}
	return meta.Version, nil
}

func mustOpen(t testing.TB, path string, keep int) *Folder {
	t.Helper()
	f, err := Open(path, keep)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func mustSave(t testing.TB, f *Folder, c Checkpoint) string {
	t.Helper()
	path, err := f.Save(c)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// wantLatest checks that the newest whole checkpoint is the sample of that step and version.
func wantLatest(t testing.TB, f *Folder, step, version, refusals int) (refused []error) {
	t.Helper()
	c, refused, err := f.Latest()
	if err != nil {
		t.Fatalf("%v; refused: %v", err, refused)
	}
	have, err := versionOf(c)
	if err != nil {
		t.Fatal(err)
	}
	if c.Step != step || have != version {
		t.Fatalf("the latest is version %d of step %d, want version %d of step %d", have, c.Step, version, step)
	}
	if len(refused) != refusals {
		t.Fatalf("%d checkpoints were refused, want %d: %v", len(refused), refusals, refused)
	}
	return refused
}

// entries is what lies in a folder, sorted, apart from what Open takes its lock on.
func entries(t testing.TB, folder string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Name() != lockFile {
			names = append(names, e.Name())
		}
	}
	return names
}

func wantEntries(t testing.TB, folder string, want ...string) {
	t.Helper()
	if have := entries(t, folder); !slices.Equal(have, want) {
		t.Fatalf("the folder has %q, want %q", have, want)
	}
}

// hasWork reports whether the folder has anything half-written or half-deleted.
func hasWork(t testing.TB, folder string) bool {
	return slices.ContainsFunc(entries(t, folder), func(n string) bool { return strings.HasPrefix(n, ".") })
}

// faulty is a disk on which everything fails from the moment that its budget is spent: of
// operations, each of which costs 1, or of bytes, those of a write. What a full disk still lets do,
// removing, works.
type faulty struct {
	disk
	operations, bytes int // that are left; counts down
}

var errFault = errors.New("injected fault")

func (f *faulty) spend() error {
	f.operations--
	if f.operations < 0 {
		return errFault
	}
	return nil
}

func (f *faulty) mkdir(path string) error {
	if err := f.spend(); err != nil {
		return err
	}
	return f.disk.mkdir(path)
}

func (f *faulty) create(path string) (file, error) {
	if err := f.spend(); err != nil {
		return nil, err
	}
	out, err := f.disk.create(path)
	if err != nil {
		return nil, err
	}
	return &faultyFile{out, f}, nil
}

func (f *faulty) syncFolder(string) error {
	return f.spend() // the tests' time is worth more than what they write
}

func (f *faulty) rename(from, to string) error {
	// Renaming out of sight is a part of removing.
	if !strings.Contains(filepath.Base(to), deleting) {
		if err := f.spend(); err != nil {
			return err
		}
	}
	return f.disk.rename(from, to)
}

type faultyFile struct {
	file
	disk *faulty
}

func (f *faultyFile) Write(b []byte) (int, error) {
	if err := f.disk.spend(); err != nil {
		return 0, err
	}
	n := min(len(b), f.disk.bytes)
	f.disk.bytes -= n
	written, err := f.file.Write(b[:n])
	if err == nil && n < len(b) {
		err = errFault
	}
	return written, err
}

func (f *faultyFile) Sync() error {
	return f.disk.spend()
}

func (f *faultyFile) Close() error { return errors.Join(f.disk.spend(), f.file.Close()) }
