package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
)

// The test of this file loses power at each operation of a save, on a disk that keeps nothing but what was synced, as far
// as it may.

// forgetful is a disk that fails as faulty does, and remembers what of all that was done is not synced yet. Removals
// take effect at once: a disk that brings back what was removed does no harm.
type forgetful struct {
	faulty
	content map[string]bool    // files that are not synced
	entries map[string]unsaved // paths that are not in their folders for good
}

// unsaved is how to take a path back: to rename it, or, where before is empty, to remove it.
type unsaved struct{ before string }

func (d *forgetful) mkdir(path string) error {
	err := d.faulty.mkdir(path)
	if err == nil {
		d.entries[path] = unsaved{}
	}
	return err
}

func (d *forgetful) create(path string) (file, error) {
	out, err := d.faulty.create(path)
	if err != nil {
		return nil, err
	}
	d.content[path], d.entries[path] = true, unsaved{}
	return &forgetfulFile{out, d, path}, nil
}

func (d *forgetful) syncFolder(path string) error {
	err := d.faulty.syncFolder(path)
	if err == nil {
		for entry := range d.entries {
			if filepath.Dir(entry) == path {
				delete(d.entries, entry)
			}
		}
	}
	return err
}

func (d *forgetful) rename(from, to string) error {
	err := d.faulty.rename(from, to)
	if err != nil {
		return err
	}
	for path := range d.content { // what lies in the folder moves with it
		if filepath.Dir(path) == from {
			delete(d.content, path)
			d.content[filepath.Join(to, filepath.Base(path))] = true
		}
	}
	for path, u := range d.entries {
		if filepath.Dir(path) == from {
			delete(d.entries, path)
			d.entries[filepath.Join(to, filepath.Base(path))] = u
		}
	}
	delete(d.entries, from)
	d.entries[to] = unsaved{from}
	return nil
}

// removeAll does nothing once the power is gone.
func (d *forgetful) removeAll(path string) error {
	if d.operations < 0 {
		return errFault
	}
	return d.faulty.removeAll(path)
}

type forgetfulFile struct {
	file
	disk *forgetful
	path string
}

func (f *forgetfulFile) Sync() error {
	err := f.file.Sync()
	if err == nil {
		delete(f.disk.content, f.path)
	}
	return err
}

// losePower takes back at random what was not synced: contents, files, folders and names.
func (d *forgetful) losePower(t *testing.T, random *rand.Rand) {
	t.Helper()
	for path := range d.content {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && random.IntN(3) > 0 {
			err = os.Truncate(path, random.Int64N(info.Size()+1))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, renamed := range []bool{false, true} { // files in a folder first, while it still has its name
		for path, u := range d.entries {
			if (u.before != "") != renamed || random.IntN(3) == 0 {
				continue
			}
			var err error
			if renamed {
				err = os.Rename(path, u.before)
			} else {
				err = os.RemoveAll(path)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
}

func TestPowerLoss(t *testing.T) {
	slow.Race(t)
	for seed := range uint64(3) {
		for budget := 0; ; budget++ {
			random := rand.New(rand.NewPCG(seed, uint64(budget)))
			folder := filepath.Join(t.TempDir(), fmt.Sprint(budget), "run")
			d := &forgetful{faulty{operations: math.MaxInt, bytes: math.MaxInt}, map[string]bool{}, map[string]unsaved{}}
			f, err := open(folder, 1, d)
			if err != nil {
				t.Fatal(err)
			}
			for _, save := range []func(Checkpoint) (string, error){f.Save, f.SaveBest} {
				if _, err := save(sample(100, 1)); err != nil {
					t.Fatal(err)
				}
			}
			d.operations = budget
			var saveErr error
			step := map[kind]int{regular: 100, best: 100}
			for k, save := range map[kind]func(Checkpoint) (string, error){regular: f.Save, best: f.SaveBest} {
				if _, err := save(sample(200, 1)); err == nil {
					step[k] = 200
				} else {
					saveErr = err
				}
			}
			d.losePower(t, random)
			f.Close()
			after := mustOpen(t, folder, 1)
			for k, latest := range map[kind]func() (Checkpoint, []error, error){regular: after.Latest, best: after.Best} {
				c, refused, err := latest()
				if err != nil {
					t.Fatalf("seed %d, power lost after %d operations: %s: %v, refused %v", seed, budget, k, err, refused)
				}
				if _, err := versionOf(c); err != nil || c.Step < step[k] {
					t.Fatalf("seed %d, power lost after %d operations: %s is of step %d (%v), but %d was saved", seed, budget, k, c.Step, err, step[k])
				}
			}
			if hasWork(t, folder) {
				t.Fatalf("seed %d, power lost after %d operations: Open has left %q", seed, budget, entries(t, folder))
			}
			if saveErr == nil {
				if budget < 20 {
					t.Fatalf("two saves cost only %d operations", budget)
				}
				break
			}
		}
	}
}
