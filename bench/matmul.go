package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// matmul measures products: squares, those of a GPT-2 block and of a small character model, and the thin ones of
// decoding and of gradients.
func matmul(s *session) error {
	s.section("matmul", "Matrix products", "float32, C = A·B of m×n×k; Aᵀ or Bᵀ lie transposed in memory. Products of few rows are bound by memory, "+
		"not by the peak that they are held against.")
	for _, p := range []struct {
		m, n, k                int
		transposeA, transposeB bool
	}{
		{m: 64, n: 64, k: 64}, {m: 128, n: 128, k: 128}, {m: 256, n: 256, k: 256}, {m: 512, n: 512, k: 512},
		{m: 1024, n: 1024, k: 1024}, {m: 1000, n: 1000, k: 1000},
		{m: 768, n: 3072, k: 768}, {m: 768, n: 768, k: 3072}, {m: 768, n: 3072, k: 768, transposeB: true},
		{m: 768, n: 768, k: 3072, transposeA: true},
		{m: 768, n: 384, k: 128}, {m: 768, n: 512, k: 128}, {m: 768, n: 128, k: 512}, {m: 512, n: 65, k: 128},
		{m: 128, n: 512, k: 768, transposeA: true},
		{m: 1, n: 3072, k: 768}, {m: 1, n: 3072, k: 768, transposeB: true}, {m: 8, n: 3072, k: 768}, {m: 3072, n: 1, k: 768},
	} {
		name := fmt.Sprintf("%d×%d×%d", p.m, p.n, p.k)
		if p.transposeA {
			name += " Aᵀ"
		}
		if p.transposeB {
			name += " Bᵀ"
		}
		problem, out := product(p.m, p.n, p.k, p.transposeA, p.transposeB)
		for _, threads := range s.threads {
			c := report.Case{Section: "matmul", Name: name, Threads: threads, Work: problem.FLOPs(), Unit: "FLOP", Ceiling: fma}
			if !s.wants(c) {
				continue
			}
			backend := &cpu.Backend{Threads: threads}
			if err := s.measure(c, s.ours(func() error { return backend.MatMul(problem, out) })); err != nil {
				return err
			}
		}
	}
	return nil
}

// product is a random product.
func product(m, n, k int, transposeA, transposeB bool) (*kernels.MatMul, kernels.MatMulOutputs) {
	r := newRandom()
	matrix := func(rows, columns int, transposed bool) kernels.Tensor {
		if transposed {
			return r.tensor(columns, rows).Permute(1, 0)
		}
		return r.tensor(rows, columns)
	}
	return &kernels.MatMul{A: matrix(m, k, transposeA), B: matrix(k, n, transposeB)}, kernels.MatMulOutputs{C: r.tensor(m, n)}
}

// gemmSample is the rate of a large product, the ceiling of a training step.
func gemmSample(clock measure.Clock, threads int) func() (float64, error) {
	problem, out := product(1024, 1024, 1024, false, false)
	backend := &cpu.Backend{Threads: threads}
	seconds := measure.Repeated(turn, measure.Timed(clock, func() error { return backend.MatMul(problem, out) }))
	return func() (float64, error) {
		x, err := seconds()
		return problem.FLOPs() / x, err
	}
}
