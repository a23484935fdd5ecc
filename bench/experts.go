package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

const (
	expertCount = 16
	expertRows  = 4096 // of all experts: 2048 tokens that have two each
	expertDepth = 512
	expertWidth = 1024
)

// experts measures what the layers of experts do, beside the same products of one matrix.
func experts(s *session) error {
	s.section("experts", "Experts", "float32, 4096 rows that 16 experts share unevenly, each times its own expert's matrix of 512×1024: the "+
		"layer, and the gradient of its weights. Beside it are the same multiplications with one matrix for all rows, and PyTorch, "+
		"which multiplies expert after expert, as transformers does.")
	r, from := newRandom(), unevenGroups()
	offsets := kernels.Of(from, len(from))
	x, w := r.tensor(expertRows, expertDepth), r.tensor(expertCount, expertDepth, expertWidth)
	y, dw := r.tensor(expertRows, expertWidth), r.tensor(expertCount, expertDepth, expertWidth)
	m := &kernels.GroupedMatMul{A: x, B: w, Offsets: offsets}
	one, dOne := w.Slice(0, 0, 1).Reshape(expertDepth, expertWidth), dw.Slice(0, 0, 1).Reshape(expertDepth, expertWidth)
	for _, pass := range []struct {
		name         string
		ours, single func(b *cpu.Backend) error
	}{
		{"layer", func(b *cpu.Backend) error { return b.GroupedMatMul(m, y) }, func(b *cpu.Backend) error {
			return b.MatMul(&kernels.MatMul{A: x, B: one}, kernels.MatMulOutputs{C: y})
		}},
		{"gradient of the weights", func(b *cpu.Backend) error { return b.GroupedMatMulGradient(m, y, dw) }, func(b *cpu.Backend) error {
			return b.MatMul(&kernels.MatMul{A: x.Permute(1, 0), B: y}, kernels.MatMulOutputs{C: dOne})
		}},
	} {
		for i, threads := range s.threads {
			c := report.Case{Section: "experts", Name: pass.name, Threads: threads, Work: m.FLOPs(), Unit: "FLOP", Ceiling: fma}
			if !s.wants(c) {
				continue
			}
			backend := &cpu.Backend{Threads: threads}
			contenders := []contender{
				s.ours(func() error { return pass.ours(backend) }),
				{by: "one matrix", run: measure.Timed(s.clock, func() error { return pass.single(backend) })},
			}
			if i == len(s.threads)-1 && pass.name == "layer" {
				other, err := s.groupedPeer(threads, m, from, y)
				if err != nil {
					return err
				}
				if other != nil {
					defer other.close()
					contenders = append(contenders, other.contender())
				}
			}
			if err := s.measure(c, contenders...); err != nil {
				return err
			}
		}
	}
	return nil
}

// unevenGroups is where the rows of each expert begin: some have half as many again as others.
func unevenGroups() []int32 {
	from := make([]int32, expertCount+1)
	for i := range from {
		from[i] = int32(i * expertRows / expertCount)
		if i > 0 && i < expertCount {
			from[i] += int32((i%3 - 1) * expertRows / expertCount / 5)
		}
	}
	return from
}

// groupedPeer is PyTorch with a grouped product, nil where it is not there.
func (s *session) groupedPeer(threads int, m *kernels.GroupedMatMul, from []int32, c kernels.Tensor) (*peerProduct, error) {
	at := slices.IndexFunc(s.peerList, func(p *peer) bool { return p.name == "PyTorch" })
	if at < 0 {
		return nil, nil
	}
	folder, err := os.MkdirTemp("", "stheno-bench")
	if err != nil {
		return nil, err
	}
	p := s.peerList[at]
	err = errors.Join(writeFloats(filepath.Join(folder, "a"), kernels.Host[float32](m.A)), writeFloats(filepath.Join(folder, "b"), kernels.Host[float32](m.B)))
	if err == nil {
		rows, _, columns, depth := m.Dims()
		_, err = p.ask(request{Do: "product", Folder: folder, Threads: threads, Rows: rows, Columns: columns, Depth: depth, Groups: from})
	}
	if err != nil {
		s.missing(p.name+", experts", err)
		return nil, os.RemoveAll(folder)
	}
	return &peerProduct{p, folder, c}, nil
}
