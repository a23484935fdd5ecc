package checkpoint

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// This file is checkpoints that several processes write at once. One of them saves, which makes the
// folder, gives all of them its path and, when their parts are on the disk, lists their checksums
// and gives the folder its name: the checkpoint is there whole or not at all, as one that a single
// process writes. Whoever reads it puts the parts together, or reads a part alone.

// Part is what one of several writers or readers has of a checkpoint's tensors.
type Part struct {
	// Weights are whole tensors, each of them one part's.
	Weights safetensors.Tensors
	// Optimizer are pieces of tensors. Those of a tensor follow each other from part to part.
	Optimizer []Piece

	disk filesystem // nil for the system's
}

// Piece is some of a tensor's elements, in row-major order.
type Piece struct {
	Name  string
	Shape []int         // of the tensor
	From  int           // number of the first element
	Value *tensor.Dense // with one axis; one that is all of the tensor may have its shape
}

// Write writes the part of writer i of n, counted from 0, into the folder that [Checkpoint.Parts]
// is called with, which may be called in another process, and returns its checksums for that
// function's result. When it returns, the part is on the disk.
func (p Part) Write(folder string, i, n int) (sums string, err error) {
	if n < 1 || n > maxParts || i < 0 || i >= n {
		return "", fmt.Errorf("checkpoint: writing part %d of %d: there are 1 to %d parts, counted from 0", i, n, maxParts)
	}
	pieces, places := safetensors.Tensors{}, map[string]place{}
	for _, piece := range p.Optimizer {
		pieces = append(pieces, safetensors.Tensor{Name: piece.Name, Value: piece.Value})
		places[piece.Name] = place{piece.Shape, piece.From}
	}
	where, err := json.Marshal(places)
	if err != nil {
		return "", fmt.Errorf("checkpoint: writing part %d of %d: %w", i, n, err)
	}
	writes := []func(io.Writer) error{
		func(w io.Writer) error { return safetensors.Write(w, p.Weights, metadata) },
		func(w io.Writer) error {
			return safetensors.Write(w, pieces, map[string]string{placesKey: string(where)})
		},
	}
	for k, name := range partFiles(i, n) {
		sum, err := writeSummed(p.onDisk(), filepath.Join(folder, name), writes[k])
		if err != nil {
			return "", fmt.Errorf("checkpoint: writing part %d of %d into %s: %w", i, n, folder, err)
		}
		sums += sumLine(sum, name)
	}
	return sums, nil
}

func (p Part) onDisk() filesystem {
	if p.disk == nil {
		return disk{}
	}
	return p.disk
}

// place is where a piece belongs, as the metadata of its file says.
type place struct {
	Shape []int `json:"shape"`
	From  int   `json:"from"`
}

// placesKey is the key of the metadata that holds the places of all pieces in the file.
const placesKey = "places"

// maxParts is the most that the names of files have digits for.
const maxParts = 99999

// partFiles are the files of a part.
func partFiles(i, n int) [2]string {
	var names [2]string
	for k, whole := range []string{modelFile, optimizerFile} {
		stem, extension, _ := strings.Cut(whole, ".")
		names[k] = fmt.Sprintf("%s-%05d-of-%05d.%s", stem, i+1, n, extension)
	}
	return names
}

var firstPart = regexp.MustCompile(`^[0-9a-f]{64}  model-00001-of-(\d{5})\.safetensors\n`)

// partsIn is how many parts a checkpoint has by its file of checksums, 0 where one process wrote
// all.
func partsIn(sums string) int {
	match := firstPart.FindStringSubmatch(sums)
	if match == nil {
		return 0
	}
	n, err := strconv.Atoi(match[1])
	if err != nil || n < 1 || strings.Count(sums, "\n") < 2*n {
		return 0
	}
	return n
}

// filesOf are the files that have a checksum, in the order in which the sums are listed, where
// there are n parts; 0 where one process wrote all.
func filesOf(n int) []string {
	if n == 0 {
		return summedFiles
	}
	var list []string
	for i := range n {
		names := partFiles(i, n)
		list = append(list, names[:]...)
	}
	return append(list, stateFile)
}

// writeParts has all parts written and returns their checksums.
func (c Checkpoint) writeParts(folder string) (sums string, n int, err error) {
	list, err := c.Parts(folder)
	if err != nil {
		return "", 0, err
	}
	if len(list) < 1 || len(list) > maxParts {
		return "", 0, fmt.Errorf("parts gave %d parts, it needs to give 1 to %d", len(list), maxParts)
	}
	for i, text := range list {
		names := partFiles(i, len(list))
		if _, err := splitSums(text, names[:]); err != nil {
			return "", 0, fmt.Errorf("parts gave for part %d: %w", i, err)
		}
		sums += text
	}
	return sums, len(list), nil
}

// put gives a checkpoint the tensors of a part that has all of them.
func (c *Checkpoint) put(p Part) error {
	if len(p.Weights.Map()) != len(p.Weights) {
		return errors.New("two parts have the same weight")
	}
	pieces, whole := map[string][]Piece{}, map[string]*tensor.Dense{}
	for _, piece := range p.Optimizer {
		pieces[piece.Name] = append(pieces[piece.Name], piece)
	}
	for name, list := range pieces {
		var err error
		if whole[name], err = assemble(list); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	c.Weights, c.Optimizer = p.Weights, safetensors.Sorted(whole)
	return nil
}

// addPieces adds the pieces in a file, whose metadata says where they belong.
func (p *Part) addPieces(tensors safetensors.Tensors, metadata string) error {
	var places map[string]place
	if err := json.Unmarshal([]byte(metadata), &places); err != nil {
		return fmt.Errorf("its metadata's %s: %w", placesKey, err)
	}
	for _, t := range tensors {
		at, known := places[t.Name]
		if !known || t.Value.Dims() != 1 {
			return fmt.Errorf("%s has shape %v and a place %v, it needs one axis and a place", t.Name, []int(t.Value.Shape()), known)
		}
		p.Optimizer = append(p.Optimizer, Piece{t.Name, at.Shape, at.From, t.Value})
	}
	return nil
}

// assemble makes a tensor of its pieces.
func assemble(list []Piece) (*tensor.Dense, error) {
	extents := make([]Extent, len(list))
	for i, p := range list {
		extents[i] = p.extent()
	}
	all, err := join(extents)
	if err != nil {
		return nil, err
	}
	first := list[0].Value
	switch {
	case slices.Equal([]int(first.Shape()), all.Shape):
		return first, nil
	case len(all.Shape) == 0:
		return nil, fmt.Errorf("its pieces have %d elements, its shape is %v", all.Count, all.Shape)
	}
	whole := tensor.New(tensor.Of(first.Dtype()), tensor.WithShape(all.Shape...))
	for _, p := range list {
		to := reflect.ValueOf(whole.Data()).Slice(p.From, p.From+p.Value.Shape().TotalSize())
		reflect.Copy(to, reflect.ValueOf(p.Value.Data()))
	}
	return whole, nil
}

// writeSummed writes a file and returns its checksum.
func writeSummed(d filesystem, path string, write func(io.Writer) error) (string, error) {
	sum := sha256.New()
	err := writeFile(d, path, func(w io.Writer) error {
		s := summing{to: w, pieces: make(chan []byte), summed: make(chan struct{}, 1)}
		defer close(s.pieces)
		go func() {
			for p := range s.pieces {
				sum.Write(p)
				s.summed <- struct{}{}
			}
		}()
		return write(s)
	})
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

// summing is a writer of which a checksum is made while the file takes what is written.
type summing struct {
	to     io.Writer
	pieces chan []byte
	summed chan struct{}
}

func (s summing) Write(p []byte) (int, error) {
	s.pieces <- p
	n, err := s.to.Write(p)
	<-s.summed
	return n, err
}
