package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file tests how ops with one output behave as part of a graph: beside Gorgonia's own, shared,
// run again, over views.

// miniature is a model with every op of this package and some of Gorgonia's, in which weights and
// nodes are used several times: a block of a transformer over 2 sequences of 4 tokens.
type miniature struct {
	g          *gorgonia.ExprGraph
	parameters gorgonia.Nodes
	loss       *gorgonia.Node
}

func newMiniature(dtype tensor.Dtype) *miniature {
	const batch, length, width, wider, vocabulary = 2, 4, 6, 8, 7
	const rows = batch * length
	m := &miniature{g: gorgonia.NewGraph()}
	ops.ModeOf(m.g).Train(step)
	r := rand.New(rand.NewPCG(17, 1))
	parameter := func(name string, shape ...int) *gorgonia.Node {
		data := normal(r, elements(shape))
		for i := range data {
			data[i] *= 0.4
		}
		m.parameters = append(m.parameters, input(m.g, name, dense(dtype, data, shape...)))
		return m.parameters[len(m.parameters)-1]
	}
	integers := func(name string) *gorgonia.Node {
		list := make([]int, rows)
		for i := range list {
			list[i] = r.IntN(vocabulary)
		}
		return input(m.g, name, tensor.New(tensor.WithShape(rows), tensor.WithBacking(list)))
	}
	reshape := func(n *gorgonia.Node, shape ...int) *gorgonia.Node { return gorgonia.Must(gorgonia.Reshape(n, shape)) }
	half := gorgonia.NewConstant(0.5)
	if dtype == tensor.Float32 {
		half = gorgonia.NewConstant(float32(0.5))
	}

	table := parameter("table", vocabulary, width)
	h := gorgonia.Must(ops.Embedding(table, integers("tokens")))

	normed := gorgonia.Must(ops.RMSNorm(h, parameter("rms.gamma", width), ops.NormOptions{}))
	q := gorgonia.Must(ops.Linear(normed, parameter("q.weight", width, width), nil, ops.LinearOptions{}))
	q = gorgonia.Must(ops.RoPE(reshape(q, batch, length, 1, width), ops.RoPEOptions{Layout: ops.BSHD}))
	v := reshape(normed, batch, length, 1, width)
	attended := gorgonia.Must(ops.FlashAttention(q, q, v, ops.AttentionOptions{Layout: ops.BSHD, Causal: kernels.CausalBottomRight}))
	h = gorgonia.Must(ops.Add(h, gorgonia.Must(ops.Dropout(reshape(attended, rows, width), ops.DropoutOptions{Drop: ops.Drop{P: 0.2, Seed: 5}}))))

	normed = gorgonia.Must(ops.LayerNorm(h, parameter("gamma", width), parameter("beta", width), ops.NormOptions{}))
	up := gorgonia.Must(ops.Linear(normed, parameter("up.weight", width, wider), parameter("up.bias", wider), ops.LinearOptions{Activation: kernels.GELUTanh}))
	gate := gorgonia.Must(gorgonia.Mul(normed, parameter("gate.weight", width, wider)))
	middle := gorgonia.Must(ops.SwiGLU(gate, up))
	h = gorgonia.Must(ops.Add(h, gorgonia.Must(ops.MatMul(middle, parameter("down.weight", wider, width), ops.MatMulOptions{}))))

	mix := gorgonia.Must(gorgonia.SoftMax(gorgonia.Must(ops.Linear(h, parameter("mix.weight", width, width), nil, ops.LinearOptions{}))))
	h = gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.HadamardProd(mix, gorgonia.Must(ops.GELUErf(h)))), h))

	targets := integers("targets")
	logits := gorgonia.Must(ops.MatMul(h, table, ops.MatMulOptions{TransposeB: true}))
	losses := gorgonia.Nodes{
		gorgonia.Must(ops.SoftmaxCrossEntropy(logits, targets, ops.CrossEntropyOptions{LabelSmoothing: 0.1})),
		gorgonia.Must(gorgonia.Mul(gorgonia.Must(ops.LinearCrossEntropy(h, table, targets, ops.LinearCrossEntropyOptions{})), half)),
		gorgonia.Must(ops.Mean(gorgonia.Must(ops.ReLUSquared(h)))),
	}
	m.loss = gorgonia.Must(gorgonia.Add(gorgonia.Must(gorgonia.Add(losses[0], losses[1])), losses[2]))
	return m
}

// TestMiniatureGradients compares the gradients of all parameters, under both machines, with the
// slope of the loss.
func TestMiniatureGradients(t *testing.T) {
	const h, most = 1e-4, 6
	got := map[string]gorgonia.Nodes{}
	for _, machine := range machines {
		m := newMiniature(tensor.Float64)
		if machine == "lispMachine" {
			run(t, gorgonia.NewLispMachine(m.g))
		} else {
			if _, err := gorgonia.Grad(m.loss, m.parameters...); err != nil {
				t.Fatal(err)
			}
			run(t, gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.parameters...)))
		}
		got[machine] = m.parameters
	}
	probe := newMiniature(tensor.Float64)
	vm := gorgonia.NewTapeMachine(probe.g)
	r := rand.New(rand.NewPCG(1, 1))
	for p, n := range probe.parameters {
		x := n.Value().Data().([]float64)
		for _, i := range r.Perm(len(x))[:min(most, len(x))] {
			at := func(delta float64) float64 {
				old := x[i]
				x[i] += delta
				run(t, vm)
				x[i] = old
				return numbers(t, probe.loss.Value())[0]
			}
			slope := (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
			for machine, parameters := range got {
				if g := gradientOf(t, parameters[p])[i]; !(math.Abs(g-slope) <= 1e-9*max(1, math.Abs(slope))) {
					t.Errorf("%s: the gradient of %s[%d] is %g, the slope of the loss is %g", machine, n.Name(), i, g, slope)
				}
			}
		}
	}
}

// TestMiniatureTrains takes steps along the gradient, with new masks in each, in both types.
func TestMiniatureTrains(t *testing.T) {
	slow.Emulated(t)
	for dtype := range bounds {
		m := newMiniature(dtype)
		if _, err := gorgonia.Grad(m.loss, m.parameters...); err != nil {
			t.Fatal(err)
		}
		vm := gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.parameters...))
		solver := gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.1))
		var losses []float64
		for i := range uint32(250) {
			ops.ModeOf(m.g).Train(i)
			run(t, vm)
			losses = append(losses, numbers(t, m.loss.Value())[0])
			if err := solver.Step(gorgonia.NodesToValueGrads(m.parameters)); err != nil {
				t.Fatal(err)
			}
		}
		last := 0.0 // the mean of some steps, whose masks differ
		for _, loss := range losses[len(losses)-10:] {
			last += loss / 10
		}
		if first := losses[0]; !(last < 0.6*first) {
			t.Errorf("%v: the loss went from %v to %v in 250 steps", dtype, first, last)
		}
	}
}

// TestOpsOfOneNode gives ops the same node twice: its gradient is the sum of both.
func TestOpsOfOneNode(t *testing.T) {
	testOp(t, []opCase{
		{
			options: "Add to itself", in: []opInput{floats("x", 3, 5)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(in[0], in[0]) },
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				x := float64sOf(in[0])
				return sum(x, x), [][]float64{sum(dOut, dOut)}
			},
		},
		{
			options: "MatMul with itself", in: []opInput{floats("x", 5, 5)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				return ops.MatMul(in[0], in[0], ops.MatMulOptions{TransposeB: true})
			},
			want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
				out, d := matMulByDefinition(ops.MatMulOptions{TransposeB: true}, in[0], in[0], 5, 5, 5, dOut)
				return out, [][]float64{sum(d...)}
			},
		},
	})
}

// steady are cases of ops that keep something from one run to another.
func steady() []opCase {
	return []opCase{
		{
			options: "LayerNorm", in: []opInput{floats("x", 3, 5), floats("gamma", 5), floats("beta", 5)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				return ops.LayerNorm(in[0], in[1], in[2], ops.NormOptions{})
			},
		},
		{
			options: "Linear", in: []opInput{floats("x", 3, 5), floats("weight", 5, 4), floats("bias", 4)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				return ops.Linear(in[0], in[1], in[2], ops.LinearOptions{Activation: kernels.SiLU})
			},
		},
		{
			options: "MatMul", in: []opInput{floats("a", 2, 3, 5), floats("b", 2, 4, 5)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				return ops.MatMul(in[0], in[1], ops.MatMulOptions{TransposeB: true})
			},
		},
		{
			options: "LinearCrossEntropy", in: []opInput{floats("x", 3, 5), floats("weight", 4, 5), ids("targets", 4, 3)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				return ops.LinearCrossEntropy(in[0], in[1], in[2], ops.LinearCrossEntropyOptions{})
			},
		},
		{
			options: "SoftmaxCrossEntropy", in: []opInput{floats("logits", 3, 5), ids("targets", 5, 3)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				return ops.SoftmaxCrossEntropy(in[0], in[1], ops.CrossEntropyOptions{})
			},
		},
		{
			options: "Add", in: []opInput{floats("a", 3, 5), floats("b", 3, 5)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Add(in[0], in[1]) },
		},
		{
			options: "RoPE", in: []opInput{floats("x", 2, 3, 2, 4)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.RoPE(in[0], ops.RoPEOptions{}) },
		},
		{
			options: "Mean", in: []opInput{floats("x", 3, 5)},
			apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.Mean(in[0]) },
		},
	}
}

// TestOpsRunAgain runs one graph many times, with new values each time, on two machines in turn,
// and compares each run with a fresh graph.
func TestOpsRunAgain(t *testing.T) {
	for _, c := range steady() {
		a := c.build(t, tensor.Float64)
		wrt := a.floats()
		if _, err := gorgonia.Grad(a.loss, wrt...); err != nil {
			t.Fatal(err)
		}
		vms := []gorgonia.VM{gorgonia.NewTapeMachine(a.g, gorgonia.BindDualValues(wrt...)), gorgonia.NewTapeMachine(a.g, gorgonia.BindDualValues(wrt...))}
		for i := range 6 {
			next := c
			fresh := c.build(t, tensor.Float64) // whose weights of the loss are those of the first seed
			next.seed = uint64(100 + i)
			for j, v := range next.values() {
				if c.in[j].ids != nil {
					continue
				}
				copy(a.in[j].Value().Data().([]float64), float64sOf(v))
				copy(fresh.in[j].Value().Data().([]float64), float64sOf(v))
				if d, err := a.in[j].Grad(); err == nil && d != nil {
					d.(*tensor.Dense).Zero()
				}
			}
			run(t, vms[i%2])
			got := map[string][]float64{"out": numbers(t, a.out.Value())}
			for _, n := range wrt {
				got["d"+n.Name()] = gradientOf(t, n)
			}
			compare(t, opRun{next, fmt.Sprint("run ", i)}, got, fresh.run(t, "tapeMachine", fresh.floats()), 0)
		}
	}
}

// TestOpsReadStrides gives views: transposed, and with gaps between rows.
func TestOpsReadStrides(t *testing.T) {
	views := map[string]func(data []float64, shape []int) *tensor.Dense{
		"transposed": func(data []float64, shape []int) *tensor.Dense {
			backwards := []int{3, 2, 1, 0}[4-len(shape):]
			turned := make([]int, len(shape))
			for i, axis := range backwards {
				turned[i] = shape[axis]
			}
			v := dense(tensor.Float64, ordered(kernels.Of(data, shape...).Permute(backwards...)), turned...)
			if err := v.T(backwards...); err != nil {
				t.Fatal(err)
			}
			return v
		},
		"sliced": func(data []float64, shape []int) *tensor.Dense {
			wide, slices := slices.Clone(shape), make([]tensor.Slice, len(shape))
			for axis, d := range shape {
				wide[axis] = d + 2
				slices[axis] = gorgonia.S(1, d+1)
			}
			all := filled(elements(wide), math.NaN())
			at := kernels.Of(all, wide...)
			for axis, d := range shape {
				at = at.Slice(axis, 1, d+1)
			}
			for i := range data {
				offset, rest := 0, i
				for axis := len(shape) - 1; axis >= 0; axis-- {
					offset += rest % shape[axis] * at.Strides[axis]
					rest /= shape[axis]
				}
				*(*float64)(unsafe.Add(at.Data, 8*offset)) = data[i]
			}
			v, err := dense(tensor.Float64, all, wide...).Slice(slices...)
			if err != nil {
				t.Fatal(err)
			}
			return v.(*tensor.Dense)
		},
	}
	for _, c := range steady() {
		plain := c.build(t, tensor.Float64)
		want := plain.run(t, "tapeMachine", plain.floats())
		for name, view := range views {
			for _, machine := range machines {
				a := c.build(t, tensor.Float64)
				for i, v := range c.values() {
					if c.in[i].ids == nil && len(c.in[i].shape) > 1 {
						if err := gorgonia.Let(a.in[i], view(float64sOf(v), c.in[i].shape)); err != nil {
							t.Fatal(err)
						}
					}
				}
				a.run(t, machine, a.floats())
				got := map[string][]float64{"out": numbers(t, a.out.Value())}
				for _, n := range a.floats() {
					d, err := n.Grad()
					if err != nil {
						t.Fatal(err)
					}
					sums := d.(*tensor.Dense) // strided like the value, since Gorgonia adds up gradients in a clone of it
					got["d"+n.Name()] = ordered(kernels.Tensor{
						Data: unsafe.Pointer(unsafe.SliceData(sums.Float64s())), DType: kernels.F64, Shape: sums.Shape(), Strides: sums.Strides(),
					})
				}
				compare(t, opRun{c, machine + " " + name}, got, want, 1e-12)
			}
		}
	}
}

// TestGradientsThroughViews sends the gradients of outputs through ops of Gorgonia that give views.
func TestGradientsThroughViews(t *testing.T) {
	for _, c := range steady() {
		for _, machine := range machines {
			a := c.build(t, tensor.Float64)
			if len(a.out.Shape()) != 2 {
				continue
			}
			want := c.build(t, tensor.Float64)
			expected := want.run(t, "tapeMachine", want.floats())
			b := &opGraph{g: gorgonia.NewGraph()}
			for i, n := range a.in {
				b.in = append(b.in, input(b.g, c.in[i].name, n.Value().(*tensor.Dense)))
			}
			b.out = gorgonia.Must(c.apply(b.in))
			shape := b.out.Shape()
			weights := ordered(kernels.Of(c.dOut(shape), shape...).Permute(1, 0))
			turned := gorgonia.Must(gorgonia.Transpose(b.out, 1, 0))
			b.loss = gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(turned,
				input(b.g, "weights", dense(tensor.Float64, weights, shape[1], shape[0]))))))
			got := b.run(t, machine, b.floats())
			delete(got, "out") // whose elements lie in another order, after Transpose
			compare(t, opRun{c, machine + " through a transpose"}, got, expected, 1e-12)
		}
	}
}

// TestOpsConcurrently builds and runs graphs in several goroutines. Run it under the race detector.
func TestOpsConcurrently(t *testing.T) {
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			m := newMiniature(tensor.Float32)
			if _, err := gorgonia.Grad(m.loss, m.parameters...); err != nil {
				t.Error(err)
				return
			}
			vm := gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.parameters...))
			for range 3 {
				run(t, vm)
			}
		})
	}
	wait.Wait()
}

// TestOpsMemory runs a graph many times and looks at what stays.
func TestOpsMemory(t *testing.T) {
	slow.Emulated(t)
	m := newMiniature(tensor.Float32)
	if _, err := gorgonia.Grad(m.loss, m.parameters...); err != nil {
		t.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.parameters...))
	live := func() uint64 {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for range 50 { // until each worker has its buffers, on many cores too
		run(t, vm)
	}
	before := live()
	for range 200 {
		run(t, vm)
	}
	if after := live(); after > before+50<<10 {
		t.Errorf("200 runs added %d KiB to %d KiB", (after-before)>>10, before>>10)
	}
	runtime.KeepAlive(vm)
	runtime.KeepAlive(m)
}
