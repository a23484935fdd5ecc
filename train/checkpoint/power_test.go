package checkpoint

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
)

// The tests of this file cut the power, or kill the process, at any operation of one that saves, on
// a disk that keeps nothing but what was synced, as far as it may, and that forgets operations on
// folders in any order.

var powerCuts = flag.Int("powercuts", 120, "how many times TestPowerCuts cuts the power")

// drive is a disk that knows what of it would be there after a loss of power. It works on real
// folders, and keeps in mind which bytes and which entries of folders are synced.
type drive struct {
	disk
	top        *inode // the folder at root, which is synced for good
	root       string
	operations int // until the power is cut
}

// inode is a file or a folder, whatever its name is and whether it has one.
type inode struct {
	content []byte            // of a file
	synced  int               // bytes of it
	entries map[string]*inode // of a folder, nil for a file
	durable map[string]*inode // those that are synced
	pending []change          // that are not
}

// change is an operation on the entries of a folder: one is taken out, one is put in, or both at
// once.
type change struct {
	out, in string
	node    *inode
}

func newFolder() *inode { return &inode{entries: map[string]*inode{}, durable: map[string]*inode{}} }

func (n *inode) change(c change) {
	apply(n.entries, c)
	n.pending = append(n.pending, c)
}

func apply(entries map[string]*inode, c change) {
	if c.out != "" {
		delete(entries, c.out)
	}
	if c.in != "" {
		entries[c.in] = c.node
	}
}

// spend takes an operation off. Once the power is cut, or the process dead, none works any more.
func (d *drive) spend() error {
	d.operations--
	if d.operations < 0 {
		return errFault
	}
	return nil
}

// find is the folder of a path and the name there; nil for a path outside of the drive.
func (d *drive) find(path string) (folder *inode, name string) {
	relative, err := filepath.Rel(d.root, path)
	if err != nil || strings.HasPrefix(relative, "..") {
		return nil, ""
	}
	folder = d.top
	parts := strings.Split(relative, string(filepath.Separator))
	for _, part := range parts[:len(parts)-1] {
		folder = folder.entries[part]
	}
	return folder, parts[len(parts)-1]
}

func (d *drive) mkdir(path string) error {
	if err := d.spend(); err != nil {
		return err
	}
	err := d.disk.mkdir(path)
	if err == nil {
		folder, name := d.find(path)
		folder.change(change{in: name, node: newFolder()})
	}
	return err
}

func (d *drive) create(path string) (file, error) {
	if err := d.spend(); err != nil {
		return nil, err
	}
	out, err := d.disk.create(path)
	if err != nil {
		return nil, err
	}
	folder, name := d.find(path)
	n := &inode{}
	folder.change(change{in: name, node: n})
	return &driveFile{out, d, n}, nil
}

func (d *drive) syncFolder(path string) error {
	if err := d.spend(); err != nil {
		return err
	}
	folder, name := d.find(path)
	if folder == nil {
		return nil
	}
	if name != "." {
		folder = folder.entries[name]
	}
	for _, c := range folder.pending {
		apply(folder.durable, c)
	}
	folder.pending = nil
	return nil
}

func (d *drive) rename(from, to string) error {
	if err := d.spend(); err != nil {
		return err
	}
	err := d.disk.rename(from, to)
	if err == nil {
		folder, before := d.find(from)
		folder.change(change{out: before, in: filepath.Base(to), node: folder.entries[before]})
	}
	return err
}

// removeAll removes one entry after the other.
func (d *drive) removeAll(path string) error {
	folder, name := d.find(path)
	n := folder.entries[name]
	if n == nil {
		return d.spend()
	}
	for entry := range n.entries {
		if err := d.removeAll(filepath.Join(path, entry)); err != nil {
			return err
		}
	}
	if err := d.spend(); err != nil {
		return err
	}
	folder.change(change{out: name})
	return os.Remove(path)
}

type driveFile struct {
	file
	disk *drive
	node *inode
}

func (f *driveFile) Write(b []byte) (int, error) {
	if err := f.disk.spend(); err != nil {
		return 0, err
	}
	f.node.content = append(f.node.content, b...)
	return f.file.Write(b)
}

func (f *driveFile) Sync() error {
	if err := f.disk.spend(); err != nil {
		return err
	}
	f.node.synced = len(f.node.content)
	return nil
}

// cutPower leaves of the drive what is synced, and any part of what is not: some of the changes of
// each folder, and of a file some bytes, or as many as were written, some of them zeros.
func (d *drive) cutPower(t *testing.T, random *rand.Rand) {
	t.Helper()
	d.top.lose(random)
	if err := os.RemoveAll(d.root); err != nil {
		t.Fatal(err)
	}
	if err := d.top.write(d.root); err != nil {
		t.Fatal(err)
	}
}

func (n *inode) lose(random *rand.Rand) {
	if n.entries == nil {
		kept := n.synced + random.IntN(len(n.content)-n.synced+1)
		if content := n.content[:kept:kept]; random.IntN(2) == 0 {
			n.content = content
		} else {
			n.content = append(content, make([]byte, len(n.content)-kept)...)
		}
		n.synced = len(n.content)
		return
	}
	often := random.IntN(4) // in four
	for _, c := range n.pending {
		if random.IntN(4) <= often-1 {
			apply(n.durable, c)
		}
	}
	n.pending, n.entries = nil, map[string]*inode{}
	for name, entry := range n.durable {
		n.entries[name] = entry
		entry.lose(random)
	}
}

func (n *inode) write(path string) error {
	if n.entries == nil {
		return os.WriteFile(path, n.content, 0o644)
	}
	err := os.Mkdir(path, 0o755)
	for name, entry := range n.entries {
		err = errors.Join(err, entry.write(filepath.Join(path, name)))
	}
	return err
}

// promised is what a process was told that it can rely on.
type promised struct {
	step map[kind]int // of the newest checkpoint; 0 for none
	most int          // no regular checkpoint is of a later step
}

// TestPowerCuts cuts the power again and again, in histories of several cuts and kills. Nothing
// that was promised is lost.
func TestPowerCuts(t *testing.T) {
	slow.Race(t)
	cuts, kills, within := 0, 0, 0
	for seed := uint64(0); cuts < *powerCuts; seed++ {
		random := rand.New(rand.NewPCG(seed, 4))
		d := &drive{top: newFolder(), root: filepath.Join(t.TempDir(), "disk")}
		if err := os.Mkdir(d.root, 0o755); err != nil {
			t.Fatal(err)
		}
		p := promised{step: map[kind]int{}}
		for n := range 6 {
			path := filepath.Join(d.root, "runs", "1", "checkpoints")
			d.operations = random.IntN(150)
			if n == 0 { // often while the folder is made
				d.operations = random.IntN(1 + random.IntN(40))
			}
			err := p.live(d, path, random)
			if err != nil && !errors.Is(err, errFault) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err != nil {
				within++
			}
			if random.IntN(4) == 0 {
				kills++ // the process alone: the disk goes on, and forgets later
			} else {
				cuts++
				d.cutPower(t, random)
			}
			p.check(t, d, path, fmt.Sprintf("seed %d, after %d cuts and %d kills", seed, cuts, kills))
		}
	}
	t.Logf("%d cuts and %d kills, %d of them within an operation", cuts, kills, within)
}

// live is a process that opens the folder, saves and goes back until it is told to end, or is
// ended.
func (p *promised) live(d *drive, path string, random *rand.Rand) error {
	f, err := open(path, 1+random.IntN(2), d)
	if err != nil {
		return err
	}
	defer f.Close()
	for range random.IntN(5) {
		step, k := p.step[regular]+1, regular
		c := sample(step, random.IntN(100))
		version, err := versionOf(c)
		if err != nil {
			return err
		}
		if random.IntN(2) == 0 {
			c = inParts(c, 2, d)
		}
		save := f.Save
		switch random.IntN(6) {
		case 0:
			k, save = best, f.SaveBest
		case 1:
			save = f.SaveBeside
		case 2: // once more
			if p.step[regular] > 0 {
				c.Step--
				c = sample(c.Step, version)
			}
		case 3:
			if p.step[regular] > 1 {
				// The checkpoint that stays is saved first, as training does that has gone back.
				c, save = sample(step-2, version), func(c Checkpoint) (string, error) {
					path, err := f.Save(c)
					if err == nil {
						p.step[regular] = c.Step
						err = f.RemoveAfter(c.Step)
					}
					if err == nil {
						p.most = c.Step
					}
					return path, err
				}
			}
		}
		if k == regular {
			p.most = max(p.most, c.Step)
		}
		saved, err := save(c)
		if saved != "" { // though an older one could not be removed
			p.step[k] = c.Step
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// check opens the folder as the next process does.
func (p *promised) check(t *testing.T, d *drive, path, when string) {
	t.Helper()
	d.operations = math.MaxInt
	f, err := open(path, 2, d)
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	defer f.Close()
	if hasWork(t, path) {
		t.Fatalf("%s: Open has left %q", when, entries(t, path))
	}
	for k, latest := range map[kind]func() (Checkpoint, []error, error){regular: f.Latest, best: f.Best} {
		c, refused, err := latest()
		if errors.Is(err, ErrNone) && p.step[k] == 0 {
			continue
		}
		if err != nil {
			t.Fatalf("%s: %s: %v, refused %v; step %d was saved", when, k, err, refused, p.step[k])
		}
		if _, err := versionOf(c); err != nil || c.Step < p.step[k] || k == regular && c.Step > p.most {
			t.Fatalf("%s: %s is of step %d (%v), %d was saved, and none after %d is to be there", when, k, c.Step, err, p.step[k], p.most)
		}
	}
}
