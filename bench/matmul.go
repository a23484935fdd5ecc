package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// productShape is a product of m×k and k×n matrices, of which one may lie transposed.
type productShape struct {
	m, n, k                int
	transposeA, transposeB bool
}

func (p productShape) String() string {
	name := fmt.Sprintf("%d×%d×%d", p.m, p.n, p.k)
	if p.transposeA {
		name += " Aᵀ"
	}
	if p.transposeB {
		name += " Bᵀ"
	}
	return name
}

// matmul measures products: squares, those of a GPT-2 block and of small character models, and the
// thin ones of decoding and of gradients.
func matmul(s *session) error {
	s.section("matmul", "Matrix products", "float32, C = A·B of m×n×k; Aᵀ or Bᵀ lie transposed in memory. Products of few rows are bound by memory, "+
		"not by the peak that they are held against.")
	for _, p := range []productShape{
		{m: 64, n: 64, k: 64}, {m: 128, n: 128, k: 128}, {m: 256, n: 256, k: 256}, {m: 512, n: 512, k: 512},
		{m: 1024, n: 1024, k: 1024}, {m: 1000, n: 1000, k: 1000},
		{m: 768, n: 3072, k: 768}, {m: 768, n: 768, k: 3072}, {m: 768, n: 3072, k: 768, transposeB: true},
		{m: 768, n: 768, k: 3072, transposeA: true},
		{m: 768, n: 384, k: 128}, {m: 768, n: 512, k: 128}, {m: 768, n: 128, k: 512}, {m: 512, n: 65, k: 128},
		{m: 128, n: 512, k: 768, transposeA: true},
		{m: 2048, n: 1152, k: 384}, {m: 2048, n: 384, k: 1536}, {m: 384, n: 1536, k: 2048, transposeA: true},
		{m: 1, n: 3072, k: 768}, {m: 1, n: 3072, k: 768, transposeB: true}, {m: 8, n: 3072, k: 768}, {m: 3072, n: 1, k: 768},
	} {
		c := report.Case{Section: "matmul", Name: p.String(), Work: 2 * float64(p.m) * float64(p.n) * float64(p.k), Unit: "FLOP", Ceiling: fma}
		if err := s.product(c, p, func() (*kernels.MatMul, kernels.MatMulOutputs) { return product(p) }); err != nil {
			return err
		}
	}
	return nil
}

// decoding measures products of a few rows and a matrix that no cache holds.
func decoding(s *session) error {
	rows := 4096
	if s.quick {
		rows = 256
	}
	s.section("decoding", "One row times a matrix", fmt.Sprintf("float32, or a matrix of bfloat16, of %d×%d, which each token of a decoder reads "+
		"once; Bᵀ lies transposed. The share is that of threads that do nothing but read float32.", rows, largeColumns))
	for _, m := range []int{1, 4} {
		for _, transposed := range []bool{false, true} {
			for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
				if err := s.decoded(productShape{m: m, n: largeColumns, k: rows, transposeB: transposed}, dtype); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// decoded measures a product of a few rows and the large matrix in a type.
func (s *session) decoded(p productShape, dtype kernels.DType) error {
	c := report.Case{Section: "decoding", Name: p.String(), Work: float64(dtype.Size() * p.k * p.n), Unit: "B", Ceiling: reading}
	if dtype != kernels.F32 {
		c.Name += " " + dtype.String()
	}
	return s.product(c, p, func() (*kernels.MatMul, kernels.MatMulOutputs) {
		r := newRandom()
		large := kernels.Of(s.matrix(p.k), p.k, p.n)
		if dtype == kernels.BF16 {
			large = kernels.Of(make([]kernels.BFloat16, p.k*p.n), p.k, p.n)
			kernels.CopyHost(large, kernels.Of(s.matrix(p.k), p.k, p.n))
		}
		if p.transposeB {
			large = large.Reshape(p.n, p.k).Permute(1, 0)
		}
		return &kernels.MatMul{A: r.tensor(p.m, p.k), B: large}, kernels.MatMulOutputs{C: r.tensor(p.m, p.n)}
	})
}

// largeColumns are those of a matrix that no cache holds.
const largeColumns = 16384

// matrix is the numbers of a large matrix of so many rows, the same ones each time.
func (s *session) matrix(rows int) []float32 {
	if s.large == nil {
		s.large = newRandom().numbers(rows * largeColumns)
	}
	return s.large
}

// product measures a product on every number of threads, and with the most beside the peers.
func (s *session) product(c report.Case, shape productShape, make func() (*kernels.MatMul, kernels.MatMulOutputs)) error {
	for i, threads := range s.threads {
		c.Threads = threads
		if !s.wants(c) {
			continue
		}
		problem, out := make()
		backend := &cpu.Backend{Threads: threads}
		contenders := []contender{s.ours(func() error { return backend.MatMul(problem, out) })}
		for _, p := range s.peerList {
			if i < len(s.threads)-1 || problem.B.DType != kernels.F32 { // which is what peers multiply
				break
			}
			other, err := p.product(shape, threads, problem, out)
			if err != nil {
				s.missing(p.name+", products", err)
				continue
			}
			defer other.close()
			contenders = append(contenders, other.contender())
		}
		if err := s.measure(c, contenders...); err != nil {
			return err
		}
	}
	return nil
}

// product is a random product.
func product(p productShape) (*kernels.MatMul, kernels.MatMulOutputs) {
	r := newRandom()
	matrix := func(rows, columns int, transposed bool) kernels.Tensor {
		if transposed {
			return r.tensor(columns, rows).Permute(1, 0)
		}
		return r.tensor(rows, columns)
	}
	return &kernels.MatMul{A: matrix(p.m, p.k, p.transposeA), B: matrix(p.k, p.n, p.transposeB)}, kernels.MatMulOutputs{C: r.tensor(p.m, p.n)}
}

// gemmSample is the rate of a large product, the ceiling of a training step.
func gemmSample(clock measure.Clock, threads int) func() (float64, error) {
	problem, out := product(productShape{m: 1024, n: 1024, k: 1024})
	backend := &cpu.Backend{Threads: threads}
	seconds := measure.Repeated(turn, measure.Timed(clock, func() error { return backend.MatMul(problem, out) }))
	return func() (float64, error) {
		x, err := seconds()
		return problem.FLOPs() / x, err
	}
}
