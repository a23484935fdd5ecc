package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/stheno-ml/stheno/internal/filelock"
	"github.com/stheno-ml/stheno/safetensors"
)

// Folder is a folder of checkpoints. One Folder at a time may write to it, which a lock ensures;
// any number of [View]s may read meanwhile. Its methods are not for several goroutines at once.
type Folder struct {
	path string
	keep int // 0 in a view
	disk filesystem
	lock *os.File // nil in a view, and once closed
}

// Open opens a folder for writing and reading, and makes it if there is none. Of the checkpoints
// that Save writes the newest keep stay. What an earlier process left half-written or half-deleted
// is removed; other files in the folder are left alone. A folder that cannot be written to is an
// error, and so is one that is open for writing already, here or in another process: [ErrOpen].
// Close lets others in.
func Open(path string, keep int) (*Folder, error) { return open(path, keep, disk{}) }

func open(path string, keep int, d filesystem) (*Folder, error) {
	if keep < 1 {
		return nil, fmt.Errorf("checkpoint: %d checkpoints are to be kept, it needs to be at least 1", keep)
	}
	f := &Folder{path: path, keep: keep, disk: d}
	if err := f.make(filepath.Clean(path)); err != nil {
		return nil, fmt.Errorf("checkpoint: folder %s cannot be made: %w", path, err)
	}
	var err error
	if f.lock, err = filelock.Create(filepath.Join(path, lockFile)); errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("checkpoint: folder %s: %w: %w", path, ErrOpen, err)
	}
	if err == nil {
		err = f.probe()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint: folder %s is not writable: %w", path, err), f.Close())
	}
	if err := f.secure(); err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint: folder %s: %w", path, err), f.Close())
	}
	if err := f.removeLeftovers(); err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint: folder %s: %w", path, err), f.Close())
	}
	return f, nil
}

// lockFile is what a folder that is open for writing has a lock on. It stays when the lock is gone.
const lockFile = "lock"

// probe makes sure that the folder takes a checkpoint.
func (f *Folder) probe() error {
	probe := filepath.Join(f.path, workName(writing, probeName))
	return errors.Join(f.disk.mkdir(probe), f.disk.removeAll(probe))
}

// CheckWritable returns an error unless Save can make a checkpoint in the folder as it is now.
func (f *Folder) CheckWritable() error {
	if err := f.checkOpen(); err != nil {
		return fmt.Errorf("checkpoint: folder %s: %w", f.path, err)
	}
	if err := f.probe(); err != nil {
		return fmt.Errorf("checkpoint: folder %s is not writable: %w", f.path, err)
	}
	return nil
}

func (f *Folder) checkOpen() error {
	switch {
	case f.keep == 0:
		return errors.New("the folder was opened with View, it needs to be opened with Open")
	case f.lock == nil:
		return errors.New("the folder is closed, it needs to be open")
	}
	return nil
}

// Close lets others open the folder for writing. Reading goes on to work. Closing again does
// nothing, and closing nil neither.
func (f *Folder) Close() error {
	if f == nil || f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	return err
}

// View opens a folder for reading alone, while another process may be writing to it. It changes
// nothing.
func View(path string) (*Folder, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("checkpoint: %s is not a folder", path)
	}
	return &Folder{path: path, disk: disk{}}, nil
}

// Save writes a checkpoint and gives its path. When it returns, the checkpoint is on the disk, and
// of the others the oldest are removed until keep are left. One of the same step that is there
// already is replaced. After an error nothing of the new checkpoint is left and the others are as
// they were; only if an old one could not be removed, there is a path together with the error.
func (f *Folder) Save(c Checkpoint) (path string, err error) { return f.save(regular, c, f.keep) }

// SaveBeside is [Folder.Save] that removes no other checkpoint, for one of which nobody knows
// whether it is good.
func (f *Folder) SaveBeside(c Checkpoint) (path string, err error) {
	return f.save(regular, c, math.MaxInt)
}

// SaveBest writes a checkpoint beside those of Save and replaces the one that it wrote before.
func (f *Folder) SaveBest(c Checkpoint) (path string, err error) { return f.save(best, c, 1) }

func (f *Folder) save(k kind, c Checkpoint, keep int) (string, error) {
	fail := func(err error) error { return fmt.Errorf("checkpoint: saving step %d in %s: %w", c.Step, f.path, err) }
	if err := f.checkOpen(); err != nil {
		return "", fail(err)
	}
	if err := c.validate(); err != nil {
		return "", fail(err)
	}
	others, err := f.list(k)
	if err != nil {
		return "", fail(err)
	}
	n := name{k, c.Step, 1}
	for _, other := range others {
		if other.step == n.step {
			n.generation = max(n.generation, other.generation+1)
		}
	}
	path := filepath.Join(f.path, n.String())
	if err := f.write(path, n, c); err != nil {
		return "", fail(err)
	}
	if err := f.prune(n, others, keep); err != nil {
		return path, fmt.Errorf("checkpoint: step %d is saved in %s, but an older one cannot be removed: %w", c.Step, path, err)
	}
	return path, nil
}

// write makes the checkpoint's folder under a name of its own and gives it the right one once all
// of it is on the disk.
func (f *Folder) write(path string, n name, c Checkpoint) error {
	temporary := filepath.Join(f.path, workName(writing, n.String()))
	err := f.disk.mkdir(temporary)
	if err == nil {
		err = f.fill(temporary, c)
	}
	if err == nil {
		err = f.disk.rename(temporary, path)
	}
	if err != nil {
		return errors.Join(err, f.disk.removeAll(temporary))
	}
	if err := f.disk.syncFolder(f.path); err != nil {
		return errors.Join(err, f.remove(n))
	}
	return nil
}

// fill writes the checkpoint's files and syncs each of them, and the folder.
func (f *Folder) fill(folder string, c Checkpoint) error {
	sums, parts, err := "", 0, error(nil)
	if c.Parts != nil {
		if sums, parts, err = c.writeParts(folder); err != nil {
			return err
		}
	}
	for _, name := range filesOf(parts)[2*parts:] {
		sum, err := writeSummed(f.disk, filepath.Join(folder, name), func(w io.Writer) error { return c.writeFile(name, w) })
		if err != nil {
			return err
		}
		sums += sumLine(sum, name)
	}
	err = writeFile(f.disk, filepath.Join(folder, sumsFile), func(w io.Writer) error {
		_, err := io.WriteString(w, sums)
		return err
	})
	if err != nil {
		return err
	}
	return f.disk.syncFolder(folder)
}

// metadata is that of files with whole tensors, without which Python's transformers refuses them.
var metadata = map[string]string{"format": "pt"}

// writeFile writes one of the files that have a checksum.
func (c Checkpoint) writeFile(name string, w io.Writer) error {
	switch name {
	case modelFile:
		return safetensors.Write(w, c.Weights, metadata)
	case optimizerFile:
		return safetensors.Write(w, c.Optimizer, metadata)
	}
	text, err := json.MarshalIndent(state{stateFormat, c.Step, c.Meta}, "", "\t")
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

func writeFile(d filesystem, path string, write func(io.Writer) error) error {
	out, err := d.create(path)
	if err != nil {
		return err
	}
	err = write(out)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

// prune removes checkpoints until, together with the one that was just saved, keep are left. Which
// one was saved matters: if it is not the newest, since training went back to an earlier step, it
// stays nevertheless, since it is known to be whole.
func (f *Folder) prune(saved name, others []name, keep int) error {
	left := 1
	steps := map[int]bool{saved.step: true}
	var errs []error
	for _, other := range others {
		if left < keep && !steps[other.step] {
			left++
			steps[other.step] = true
			continue
		}
		errs = append(errs, f.remove(other))
	}
	return errors.Join(errs...)
}

// RemoveAfter removes the checkpoints of later steps than one, as training does that has gone back
// to it. The best stays. What it has removed does not come back after a loss of power.
func (f *Folder) RemoveAfter(step int) error {
	err := f.checkOpen()
	if err == nil {
		var names []name
		names, err = f.list(regular)
		for _, n := range names {
			if n.step > step {
				err = errors.Join(err, f.remove(n))
			}
		}
	}
	if err == nil {
		err = f.disk.syncFolder(f.path)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: removing the steps after %d in %s: %w", step, f.path, err)
	}
	return nil
}

// remove deletes a checkpoint's folder under another name, so that none that is half deleted is
// ever looked at.
func (f *Folder) remove(n name) error {
	doomed := filepath.Join(f.path, workName(deleting, n.String()))
	if err := f.disk.rename(filepath.Join(f.path, n.String()), doomed); err != nil {
		return err
	}
	return f.disk.removeAll(doomed)
}

// Steps is the steps of the checkpoints that Save wrote, in ascending order. Whether they are whole
// is not checked.
func (f *Folder) Steps() ([]int, error) {
	names, err := f.list(regular)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	var steps []int
	for _, n := range names {
		steps = append(steps, n.step)
	}
	slices.Sort(steps)
	return slices.Compact(steps), nil
}

// Latest reads the newest checkpoint that is whole. Each newer one that is not is an error in
// refused, which says what is wrong with which file. If none is whole, err is [ErrNone].
func (f *Folder) Latest() (c Checkpoint, refused []error, err error) { return f.LatestBy(Load) }

// LatestBy is [Folder.Latest] with another way of loading, such as [LoadState]. It returns what
// that does.
func (f *Folder) LatestBy(load func(path string) (Checkpoint, error)) (c Checkpoint, refused []error, err error) {
	return f.LatestUpTo(math.MaxInt, load)
}

// LatestUpTo is [Folder.LatestBy] of the checkpoints of at most so many steps.
func (f *Folder) LatestUpTo(step int, load func(path string) (Checkpoint, error)) (c Checkpoint, refused []error, err error) {
	return f.newest(regular, func(n name) bool { return n.step <= step }, load)
}

// Best reads what SaveBest wrote last, with results as those of Latest.
func (f *Folder) Best() (c Checkpoint, refused []error, err error) { return f.BestBy(Load) }

// BestBy is [Folder.Best] with another way of loading.
func (f *Folder) BestBy(load func(path string) (Checkpoint, error)) (c Checkpoint, refused []error, err error) {
	return f.newest(best, func(name) bool { return true }, load)
}

// At reads the checkpoint of a step, with results as those of Latest.
func (f *Folder) At(step int) (c Checkpoint, refused []error, err error) {
	return f.newest(regular, func(n name) bool { return n.step == step }, Load)
}

func (f *Folder) newest(k kind, wanted func(name) bool, load func(path string) (Checkpoint, error)) (c Checkpoint, refused []error, err error) {
	for again := true; again; {
		again, refused = false, nil
		names, err := f.list(k)
		if err != nil {
			return Checkpoint{}, nil, fmt.Errorf("checkpoint: %w", err)
		}
		for _, n := range names {
			if !wanted(n) {
				continue
			}
			path := filepath.Join(f.path, n.String())
			c, err := load(path)
			if err == nil && c.Step != n.step {
				err = fmt.Errorf("checkpoint: %s is refused: it holds step %d", path, c.Step)
			}
			if err == nil {
				return c, refused, nil
			}
			if _, statErr := os.Stat(path); errors.Is(statErr, fs.ErrNotExist) {
				again = true // another process saved a newer one, and removed this one since it was listed
				continue
			}
			refused = append(refused, err)
		}
	}
	return Checkpoint{}, refused, fmt.Errorf("checkpoint: folder %s: %w", f.path, ErrNone)
}

// list is the checkpoints of a kind, the newest first.
func (f *Folder) list(k kind) ([]name, error) {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return nil, err
	}
	var names []name
	for _, e := range entries {
		if n, ok := parseName(e.Name()); ok && n.kind == k && e.IsDir() {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, newestFirst)
	return names, nil
}

// make makes a folder and those above it that are missing, and syncs where each was entered.
func (f *Folder) make(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s is a file", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if err := f.make(parent); err != nil {
		return err
	}
	if err := f.disk.mkdir(path); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have made it just now
		return err
	}
	return f.disk.syncFolder(parent)
}

// secure makes sure, before the first checkpoint, that the folder itself survives a loss of power:
// whoever made it, or those around it, may have been killed before they were on the disk.
func (f *Folder) secure() error {
	for _, k := range []kind{regular, best} {
		if names, err := f.list(k); err != nil || len(names) > 0 {
			return err
		}
	}
	path, err := filepath.Abs(f.path)
	if err != nil {
		return err
	}
	for parent := filepath.Dir(path); ; parent = filepath.Dir(parent) {
		// What may not be read was not made by this user.
		if err := f.disk.syncFolder(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

// removeLeftovers removes what a writer that was killed has left under the names that only writers
// use.
func (f *Folder) removeLeftovers() error {
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() && workPattern.MatchString(e.Name()) {
			if err := f.disk.removeAll(filepath.Join(f.path, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
