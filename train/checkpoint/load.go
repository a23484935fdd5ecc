package checkpoint

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/safetensors"
)

// maxText is the most bytes that the files without tensors may have.
const maxText = 64 << 20

// Load reads the checkpoint in a folder such as runs/step-00002000. Each file must have the
// checksum that it was written with; one that is missing, cut short or changed is an error that
// names it.
func Load(path string) (Checkpoint, error) {
	c, p, err := LoadPart(path, 0, 1)
	if err == nil {
		if err = c.put(p); err != nil {
			err = refused(path, err)
		}
	}
	if err != nil {
		return Checkpoint{}, err
	}
	return c, nil
}

// LoadPart is Load by reader i of n, counted from 0, who tell each other what they have read. Each
// reads some of the files with tensors, about as many bytes as the others, and compares them with
// their checksums: together they read all. The checkpoint has no tensors, the part has those of the
// files; any number of readers reads what any number of writers wrote.
func LoadPart(path string, i, n int) (Checkpoint, Part, error) {
	if n < 1 || i < 0 || i >= n {
		return Checkpoint{}, Part{}, fmt.Errorf("checkpoint: reading part %d of %d: parts are counted from 0", i, n)
	}
	c, p, err := loadPart(path, i, n)
	if err != nil {
		return Checkpoint{}, Part{}, refused(path, err)
	}
	return c, p, nil
}

// LoadState is Load without tensors, of which it reads nothing: they may be damaged.
func LoadState(path string) (Checkpoint, error) {
	c := Checkpoint{}
	l, err := readList(path)
	if err == nil {
		c, err = l.loadState()
	}
	if err != nil {
		return Checkpoint{}, refused(path, err)
	}
	return c, nil
}

func refused(path string, err error) error {
	if _, gone := os.Stat(path); errors.Is(gone, fs.ErrNotExist) {
		return fmt.Errorf("checkpoint: there is no %s, it needs to be a checkpoint's folder: %w", path, fs.ErrNotExist)
	}
	return fmt.Errorf("checkpoint: %s is refused: %w", path, err)
}

func loadPart(path string, i, n int) (c Checkpoint, p Part, err error) {
	l, err := readList(path)
	if err != nil {
		return c, p, err
	}
	own, err := l.dealt(i, n)
	if err != nil {
		return c, p, err
	}
	for _, file := range own { // before anything in them is believed
		if err := l.verify(file); err != nil {
			return c, p, err
		}
	}
	if c, err = l.loadState(); err != nil {
		return c, p, err
	}
	for _, file := range own {
		if err := l.load(file, &p); err != nil {
			return c, p, err
		}
	}
	return c, p, nil
}

// list is the files of a checkpoint that have a checksum. The last one is the state, the others are
// weights and optimiser in turns.
type list struct {
	path        string
	names, sums []string
	inParts     bool
}

func readList(path string) (list, error) {
	text, err := plainfile.ReadFile(filepath.Join(path, sumsFile), maxText)
	if err != nil {
		return list{}, err
	}
	parts := partsIn(string(text))
	l := list{path: path, names: filesOf(parts), inParts: parts > 0}
	if l.sums, err = splitSums(string(text), l.names); err != nil {
		return list{}, fmt.Errorf("%s %w", sumsFile, err)
	}
	return l, nil
}

func (l list) file(i int) string { return filepath.Join(l.path, l.names[i]) }

// dealt are the files with tensors that reader i of n reads: the largest are dealt out first, each
// to the reader with the least so far.
func (l list) dealt(i, n int) (own []int, err error) {
	files := len(l.names) - 1
	sizes, order, load := make([]int64, files), make([]int, files), make([]int64, n)
	for k := range files {
		info, err := os.Stat(l.file(k))
		if err != nil {
			return nil, err
		}
		sizes[k], order[k] = info.Size(), k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(sizes[b], sizes[a]) })
	for _, k := range order {
		reader := slices.Index(load, slices.Min(load))
		if load[reader] += sizes[k]; reader == i {
			own = append(own, k)
		}
	}
	slices.Sort(own)
	return own, nil
}

// verify compares a file with its checksum.
func (l list) verify(i int) error {
	have, size, err := checksum(l.file(i))
	if err != nil {
		return err
	}
	if have != l.sums[i] {
		return fmt.Errorf("%s, of %d bytes, does not have the checksum in %s: one of the two is cut short or changed", l.names[i], size, sumsFile)
	}
	return nil
}

// loadState reads the checkpoint without its tensors.
func (l list) loadState() (c Checkpoint, err error) {
	if err := l.verify(len(l.names) - 1); err != nil {
		return c, err
	}
	text, err := plainfile.ReadFile(filepath.Join(l.path, stateFile), maxText)
	if err != nil {
		return c, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil {
		return c, fmt.Errorf("%s: %w", stateFile, err)
	}
	if s.Format != stateFormat {
		return c, fmt.Errorf("%s has format %d, this version reads format %d", stateFile, s.Format, stateFormat)
	}
	return Checkpoint{Step: s.Step, Meta: s.Meta, Path: l.path}, nil
}

// load adds the tensors of a file to a part.
func (l list) load(i int, p *Part) error {
	in, err := safetensors.Open(l.file(i))
	if err != nil {
		return err
	}
	defer in.Close()
	tensors, err := in.Tensors()
	switch {
	case err != nil:
		return err
	case i%2 == 0:
		p.Weights = append(p.Weights, tensors...)
	case l.inParts:
		err = p.addPieces(tensors, in.Metadata()[placesKey])
	default:
		for _, t := range tensors {
			p.Optimizer = append(p.Optimizer, Piece{Name: t.Name, Shape: t.Value.Shape(), Value: t.Value})
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.names[i], err)
	}
	return nil
}

// splitSums returns the checksums that a text lists of some files. The error goes on from the
// text's name.
func splitSums(text string, names []string) ([]string, error) {
	var sums []string
	for _, name := range names {
		line, after, ended := strings.Cut(text, "\n")
		sum, named := strings.CutSuffix(line, "  "+name)
		if !ended || !named {
			return nil, fmt.Errorf("has %q where the checksum of %s needs to be", line, name)
		}
		sums, text = append(sums, sum), after
	}
	if text != "" {
		return nil, fmt.Errorf("has %d bytes too many", len(text))
	}
	return sums, nil
}

func checksum(path string) (sum string, size int64, err error) {
	in, _, err := plainfile.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer in.Close()
	hash := sha256.New()
	size, err = io.Copy(hash, in)
	return fmt.Sprintf("%x", hash.Sum(nil)), size, err
}
