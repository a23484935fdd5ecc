package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// inParts is a checkpoint that n writers save at once: each has every n-th weight, and an n-th of each of the optimiser's tensors.
func inParts(c Checkpoint, n int) Checkpoint {
	weights, optimizer := c.Weights, c.Optimizer
	c.Weights, c.Optimizer = nil, nil
	c.Parts = func(folder string) ([]string, error) {
		sums, errs := make([]string, n), make([]error, n)
		var writers sync.WaitGroup
		for i := range n {
			var p Part
			for k := i; k < len(weights); k += n {
				p.Weights = append(p.Weights, weights[k])
			}
			for _, t := range optimizer {
				from, to := kernels.Part(i, n, t.Value.Shape().TotalSize())
				if from == to {
					continue
				}
				var elements any
				switch data := t.Value.Data().(type) {
				case []float32:
					elements = data[from:to]
				case []float64:
					elements = data[from:to]
				}
				p.Optimizer = append(p.Optimizer, Piece{t.Name, t.Value.Shape(), from, dense(elements, to-from)})
			}
			writers.Go(func() { sums[i], errs[i] = p.Write(folder, i, n) })
		}
		writers.Wait()
		return sums, errors.Join(errs...)
	}
	return c
}

// What several writers save is what one saves, for any number of them, more than a tensor has elements included.
func TestParts(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 2)
	for i, n := range []int{1, 2, 3, 70} {
		path := mustSave(t, f, inParts(sample(i, 1), n))
		wantLatest(t, f, i, 1, 0)
		if files := len(entries(t, path)); files != 2*n+2 {
			t.Errorf("%d parts are %d files", n, files)
		}
	}
	if _, err := f.SaveBest(inParts(sample(5, 1), 2)); err != nil {
		t.Fatal(err)
	}
	if c, _, err := f.Best(); err != nil || c.Step != 5 {
		t.Errorf("the best is step %d, %v", c.Step, err)
	}
}

// A part that is not written leaves nothing, one that is lost or of another checkpoint is refused, and what does not fit together is
// an error.
func TestPartsFail(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 3)
	mustSave(t, f, inParts(sample(1, 1), 2))
	lost := errors.New("writer 1 is gone")
	c := inParts(sample(2, 1), 2)
	write := c.Parts
	for name, parts := range map[string]func(string) ([]string, error){
		lost.Error():         func(folder string) ([]string, error) { write(folder); return nil, lost },
		"parts gave 0 parts": func(string) ([]string, error) { return nil, nil },
		"parts gave for part 0: has": func(folder string) ([]string, error) {
			sums, err := write(folder)
			return []string{sums[1], sums[0]}, err
		},
	} {
		c.Parts = parts
		if _, err := f.Save(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want %s", err, name)
		}
	}
	c.Parts, c.Weights = write, sample(2, 1).Weights
	if _, err := f.Save(c); err == nil || !strings.Contains(err.Error(), "2 tensors beside parts") {
		t.Errorf("tensors beside parts: %v", err)
	}
	wantEntries(t, folder, "step-00000001")
	if _, err := (Part{}).Write(folder, 2, 2); err == nil || !strings.Contains(err.Error(), "part 2 of 2") {
		t.Errorf("a part that there is not: %v", err)
	}

	path := mustSave(t, f, inParts(sample(3, 1), 2))
	second := filepath.Join(path, partFiles(1, 2)[1])
	whole, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []func() error{
		func() error { return os.Truncate(second, int64(len(whole)-1)) },
		func() error { return os.Remove(second) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if refused := wantLatest(t, f, 1, 1, 1); !strings.Contains(refused[0].Error(), filepath.Base(second)) {
			t.Errorf("a part is lost: refused with %v", refused[0])
		}
	}

	piece := func(from, n int, shape ...int) Piece { return Piece{"m", shape, from, dense(make([]float32, n), n)} }
	for want, pieces := range map[string][]Piece{
		"a piece is elements from 3 on":        {piece(0, 2, 5), piece(3, 2, 5)},
		"its pieces have 4 elements":           {piece(0, 4, 5)},
		"of float32 [2 3], the pieces":         {piece(0, 3, 3, 2), piece(3, 3, 2, 3)},
		"its shape is [4611686018427387904 4]": {piece(0, 4, 1<<62, 4)},
		"of float64 [5]":                       {piece(0, 2, 5), {"m", []int{5}, 2, tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(3))}},
	} {
		if _, err := assemble(pieces); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	twice := Checkpoint{Step: 4, Parts: func(folder string) (sums []string, err error) {
		p := Part{Weights: safetensors.Tensors{{Name: "w", Value: dense([]float32{1}, 1)}}}
		for i := range 2 {
			text, writeErr := p.Write(folder, i, 2)
			sums, err = append(sums, text), errors.Join(err, writeErr)
		}
		return sums, err
	}}
	if _, err := Load(mustSave(t, f, twice)); err == nil || !strings.Contains(err.Error(), "two parts have the same weight") {
		t.Errorf("a weight in two parts: %v", fmt.Sprint(err))
	}
}
