package main

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// plainGorgonia is the name of attention that is made of Gorgonia's own ops.
const plainGorgonia = "Gorgonia's ops"

// gorgoniaAttention trains the same causal attention through Gorgonia's graph, with this module's
// op and with the ops that one would use without it.
func gorgoniaAttention(s *session) error {
	const heads, size = 4, 64
	s.section("gorgonia", "Attention in a Gorgonia graph", "Causal, float32, B=1 H=4 D=64, forward and backward through a tape machine: FlashAttention, "+
		"and the same made of BatchedMatMul, Mul, BroadcastAdd and SoftMax.")
	lengths := []int{512, 1024, 2048}
	if s.quick {
		lengths = lengths[:2]
	}
	for _, length := range lengths {
		for _, threads := range s.threads {
			work := attentionShape{batch: 1, heads: heads, keyHeads: heads, length: length, size: size, causal: true}.work()
			c := report.Case{Section: "gorgonia", Series: "forward and backward", Name: fmt.Sprintf("S=%d", length), Threads: threads,
				Figure: "attention-gorgonia", X: float64(length), Work: work, Unit: "FLOP", Ceiling: fma}
			if !s.wants(c) {
				continue
			}
			var contenders []contender
			for i, attend := range []attendFunc{flashAttention, gorgoniaOps} {
				g, err := newAttentionGraph(attend, heads, length, size)
				if err != nil {
					return fmt.Errorf("%s: %w", c.Key(), err)
				}
				defer g.Close()
				contenders = append(contenders, s.ours(func() error {
					defer g.Reset()
					return g.RunAll()
				}))
				contenders[i].by = []string{report.Ours, plainGorgonia}[i]
			}
			if err := s.measure(c, contenders...); err != nil {
				return err
			}
		}
	}
	return nil
}

// work is the FLOPs of both passes over visible pairs.
func (a attentionShape) work() float64 {
	p := kernels.Attention{
		Q: kernels.Contiguous(nil, kernels.F32, a.batch, a.heads, a.length, a.size),
		K: kernels.Contiguous(nil, kernels.F32, a.batch, a.keyHeads, a.length, a.size),
	}
	p.V = p.K
	if a.causal {
		p.Causal = kernels.CausalBottomRight
	}
	return p.ForwardFLOPs() + p.BackwardFLOPs()
}

// attendFunc adds attention to a graph.
type attendFunc func(q, k, v *gorgonia.Node) (*gorgonia.Node, error)

func flashAttention(q, k, v *gorgonia.Node) (*gorgonia.Node, error) {
	return ops.FlashAttention(q, k, v, ops.AttentionOptions{Causal: kernels.CausalBottomRight})
}

// gorgoniaOps is softmax(QKᵀ/√D + mask)·V for a batch of one.
func gorgoniaOps(q, k, v *gorgonia.Node) (out *gorgonia.Node, err error) {
	g, shape := q.Graph(), q.Shape()
	heads, length, size := shape[1], shape[2], shape[3]
	hidden := make([]float32, length*length)
	for i := range length {
		for j := i + 1; j < length; j++ {
			hidden[i*length+j] = -1e9
		}
	}
	mask := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(1, length, length), gorgonia.WithName("mask"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(1, length, length), tensor.WithBacking(hidden))))
	must := func(n *gorgonia.Node, e error) *gorgonia.Node {
		if err == nil {
			err = e
		}
		return n
	}
	flat := func(n *gorgonia.Node) *gorgonia.Node {
		return must(gorgonia.Reshape(n, tensor.Shape{heads, length, size}))
	}
	for _, add := range []func(){
		func() { out = must(gorgonia.BatchedMatMul(flat(q), flat(k), false, true)) },
		func() { out = must(gorgonia.Mul(out, gorgonia.NewConstant(float32(1/math.Sqrt(float64(size)))))) },
		func() { out = must(gorgonia.BroadcastAdd(out, mask, nil, []byte{0})) },
		func() { out = must(gorgonia.SoftMax(out, 2)) },
		func() { out = must(gorgonia.BatchedMatMul(out, flat(v))) },
		func() { out = must(gorgonia.Reshape(out, shape)) },
	} {
		if add(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// newAttentionGraph is a machine that computes attention of random q, k and v and the gradients of
// Σ w·out.
func newAttentionGraph(attend attendFunc, heads, length, size int) (gorgonia.VM, error) {
	g, r := gorgonia.NewGraph(), newRandom()
	input := func(name string) *gorgonia.Node {
		value := tensor.New(tensor.WithShape(1, heads, length, size), tensor.WithBacking(r.numbers(heads*length*size)))
		return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName(name), gorgonia.WithShape(1, heads, length, size), gorgonia.WithValue(value))
	}
	q, k, v := input("q"), input("k"), input("v")
	out, err := attend(q, k, v)
	if err != nil {
		return nil, err
	}
	weighted, err := gorgonia.HadamardProd(out, input("w"))
	if err != nil {
		return nil, err
	}
	loss, err := gorgonia.Sum(weighted)
	if err != nil {
		return nil, err
	}
	if _, err := gorgonia.Grad(loss, q, k, v); err != nil {
		return nil, err
	}
	return gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(q, k, v)), nil
}
