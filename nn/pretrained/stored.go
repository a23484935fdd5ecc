package pretrained

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// stored is a tensor of a file, whatever its numbers look like there.
type stored interface {
	describe() storedInfo
	// read reads elements from one on, row by row, in the type that describe says. They are whole
	// rows of the first axis. Several may be read at a time.
	read(first int, to []byte) error
}

// storedInfo is what is known of a tensor without reading it.
type storedInfo struct {
	shape  []int
	dtype  kernels.DType // that elements are read in; NoDType for what cannot be read
	called string        // what the file calls the type
	bytes  int64
}

// packedStored is a tensor whose numbers a file may have in a type of packed matrices.
type packedStored interface {
	stored
	// packed gives some rows, nil where the file has them in another type.
	packed(dtype tensor.Dtype, row, rows int) (*tensor.Dense, error)
}

// plain is a tensor of a safetensors file that is read as it is.
type plain struct {
	file *safetensors.File
	name string
	info safetensors.Info
}

func newPlain(file *safetensors.File, name string) (plain, error) {
	info, err := file.Info(name)
	return plain{file, name, info}, err
}

// fileTypes are the types that parameters may have in a file.
var fileTypes = map[string]kernels.DType{"F32": kernels.F32, "F16": kernels.F16, "BF16": kernels.BF16}

func (p plain) describe() storedInfo {
	return storedInfo{p.info.Shape, fileTypes[p.info.Type], p.info.Type, p.info.Bytes}
}

func (p plain) read(first int, to []byte) error { return p.file.Elements(p.name, first, to) }

// readPacked reads the weights of linear layers, each of which is packed before the next is read.
func (r *reader) readPacked(list []source, dtype tensor.Dtype) error {
	for i := range list {
		s := &list[i]
		done, err := r.takePacked(s, dtype)
		if err == nil && !done {
			err = r.pack(s, dtype)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takePacked takes what a file has packed already, if it has that.
func (r *reader) takePacked(s *source, dtype tensor.Dtype) (done bool, err error) {
	from, ok := s.stored.(packedStored)
	if !ok || !s.transposed {
		return false, nil
	}
	row := 0
	for _, p := range s.parts {
		if p.at != 0 || p.n != p.shape[1] {
			return false, nil
		}
		v, err := from.packed(dtype, row, p.n)
		if err != nil || v == nil {
			return false, err
		}
		r.values[p.ours] = v
		row += p.n
	}
	r.report(s.bytes)
	return true, nil
}

// pack reads the weights of a tensor as (out, in) and packs them.
func (r *reader) pack(s *source, dtype tensor.Dtype) error {
	turned := *s.link
	turned.transposed, turned.parts = !s.transposed, slices.Clone(s.parts)
	wide := map[string]*tensor.Dense{}
	for i := range turned.parts {
		p := &turned.parts[i]
		p.shape = []int{p.shape[1], p.shape[0]}
		if wide[p.ours] != nil {
			continue
		}
		if r.values[p.ours] != nil {
			return fmt.Errorf("parameter %s is of two tensors, it cannot be kept in %v", p.ours, dtype)
		}
		v := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(p.shape...))
		memory, err := ops.TensorOf(v)
		if err != nil {
			return err
		}
		wide[p.ours], r.memory[p.ours] = v, memory
	}
	of := *s
	of.link = &turned
	if err := r.read([]source{of}); err != nil {
		return err
	}
	for name, v := range wide {
		var err error
		if r.values[name], err = ops.Packed(v, dtype); err != nil {
			return fmt.Errorf("tensor %q: %w", s.name, err)
		}
	}
	return nil
}
