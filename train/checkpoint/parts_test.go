package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// inParts is a checkpoint that n writers save at once: each has every n-th weight, and an n-th of
// each of the optimiser's tensors.
func inParts(c Checkpoint, n int, on filesystem) Checkpoint {
	weights, optimizer := c.Weights, c.Optimizer
	c.Weights, c.Optimizer = nil, nil
	c.Parts = func(folder string) ([]string, error) {
		sums, errs := make([]string, n), make([]error, n)
		var writers sync.WaitGroup
		for i := range n {
			p := Part{disk: on}
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
			write := func() { sums[i], errs[i] = p.Write(folder, i, n) }
			if on != nil { // one after the other, so that a seed gives the same again
				write()
				continue
			}
			writers.Go(write)
		}
		writers.Wait()
		return sums, errors.Join(errs...)
	}
	return c
}

// What several writers save is what one saves, for any number of them, more than a tensor has
// elements included.
func TestParts(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 2)
	for i, n := range []int{1, 2, 3, 70} {
		path := mustSave(t, f, inParts(sample(i, 1), n, nil))
		wantLatest(t, f, i, 1, 0)
		if files := len(entries(t, path)); files != 2*n+2 {
			t.Errorf("%d parts are %d files", n, files)
		}
	}
	if _, err := f.SaveBest(inParts(sample(5, 1), 2, nil)); err != nil {
		t.Fatal(err)
	}
	if c, _, err := f.Best(); err != nil || c.Step != 5 {
		t.Errorf("the best is step %d, %v", c.Step, err)
	}
}

// A part that is not written leaves nothing, one that is lost or of another checkpoint is refused,
// and what does not fit together is an error.
func TestPartsFail(t *testing.T) {
	folder := t.TempDir()
	f := mustOpen(t, folder, 3)
	mustSave(t, f, inParts(sample(1, 1), 2, nil))
	lost := errors.New("writer 1 is gone")
	c := inParts(sample(2, 1), 2, nil)
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

	path := mustSave(t, f, inParts(sample(3, 1), 2, nil))
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

// Readers share the bytes of a checkpoint out, whoever wrote it: each reads its files, twice, for
// the checksum and for the tensors, and together they have every element once. A file that is
// damaged is named by its reader.
func TestReadersShareTheBytes(t *testing.T) {
	f := mustOpen(t, t.TempDir(), 9)
	weights, moments := safetensors.Tensors{}, safetensors.Tensors{}
	for i := range 12 {
		data := make([]float32, 5000+700*i)
		for k := range data {
			data[k] = float32(i*k + k)
		}
		weights = append(weights, safetensors.Tensor{Name: fmt.Sprint("w", i), Value: dense(data, len(data))})
		moments = append(moments, safetensors.Tensor{Name: fmt.Sprint("m.w", i), Value: dense(data, len(data)/100, 100)})
	}
	want := Layout{}
	for i := range weights {
		want.Weights = append(want.Weights, Whole(weights[i].Name, tensor.Float32, weights[i].Value.Shape()))
		want.Optimizer = append(want.Optimizer, Whole(moments[i].Name, tensor.Float32, moments[i].Value.Shape()))
	}
	for step, c := range []struct{ writers, readers int }{{0, 1}, {0, 3}, {2, 2}, {4, 3}, {3, 4}, {6, 4}} {
		whole := Checkpoint{Step: step, Weights: weights, Optimizer: moments, Meta: []byte("{}")}
		if c.writers > 0 {
			whole = inParts(whole, c.writers, nil)
		}
		path := mustSave(t, f, whole)
		var size, most int64
		for _, name := range entries(t, path) {
			info, err := os.Stat(filepath.Join(path, name))
			if err != nil {
				t.Fatal(err)
			}
			size, most = size+info.Size(), max(most, info.Size())
		}
		var layouts []Layout
		var all Part
		var total int64
		for i := range c.readers {
			before := bytesRead(t)
			got, part, err := LoadPart(path, i, c.readers)
			if err != nil || got.Step != step || len(got.Weights) > 0 {
				t.Fatalf("reader %d of %d: step %d, %v", i, c.readers, got.Step, err)
			}
			read := bytesRead(t) - before
			if total += read; read > 2*(size/int64(c.readers)+most) {
				t.Errorf("%d writers: reader %d of %d has read %d bytes of %d", c.writers, i, c.readers, read, size)
			}
			layouts = append(layouts, part.Layout())
			all.Weights, all.Optimizer = append(all.Weights, part.Weights...), append(all.Optimizer, part.Optimizer...)
		}
		if total > 2*size+int64(c.readers)*4000 {
			t.Errorf("%d writers: %d readers have read %d bytes of %d", c.writers, c.readers, total, size)
		}
		if err := MatchParts(layouts, want); err != nil {
			t.Errorf("%d writers, %d readers: %v", c.writers, c.readers, err)
		}
		slices.SortFunc(all.Optimizer, func(a, b Piece) int { return a.From - b.From })
		var got Checkpoint
		if err := got.put(all); err != nil {
			t.Fatal(err)
		}
		for _, kind := range []struct{ have, want safetensors.Tensors }{{got.Weights, weights}, {got.Optimizer, moments}} {
			for _, w := range kind.want {
				if have := kind.have.Map()[w.Name]; have == nil || !slices.Equal(have.Float32s(), w.Value.Float32s()) {
					t.Errorf("%d writers, %d readers: %s has changed", c.writers, c.readers, w.Name)
				}
			}
		}
		for what, broken := range map[string][]Layout{"w0 is missing": layouts[:0], "elements from 0 on": append(layouts, layouts...)} {
			if err := MatchParts(broken, want); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%v, want %s", err, what)
			}
		}
	}

	path := filepath.Join(f.path, "step-00000003")
	damaged := filepath.Join(path, partFiles(2, 4)[1])
	if err := os.Truncate(damaged, 100); err != nil {
		t.Fatal(err)
	}
	var said []string
	for i := range 3 {
		if _, _, err := LoadPart(path, i, 3); err != nil {
			said = append(said, err.Error())
		}
	}
	if len(said) != 1 || !strings.Contains(said[0], filepath.Base(damaged)) {
		t.Errorf("of a damaged part the readers say %q, want one that names it", said)
	}
	if c, err := LoadState(path); err != nil || c.Step != 3 {
		t.Errorf("the state beside a damaged part: step %d, %v", c.Step, err)
	}
	if err := os.Remove(damaged); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadPart(path, 0, 3); err == nil || !strings.Contains(err.Error(), filepath.Base(damaged)) {
		t.Errorf("a part is lost: %v", err)
	}
	if _, _, err := LoadPart(path, 3, 3); err == nil || !strings.Contains(err.Error(), "part 3 of 3") {
		t.Errorf("a reader that there is not: %v", err)
	}
}

// bytesRead is how many bytes this process has read from files and others in its life, 0 where the
// system does not tell.
func bytesRead(t *testing.T) (n int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/io")
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if _, scanErr := fmt.Sscanf(string(text), "rchar: %d", &n); err != nil || scanErr != nil {
		t.Fatalf("%q, %v, %v", text, err, scanErr)
	}
	return n
}
