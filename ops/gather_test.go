package ops_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// meeting is where the ranks of one process exchange tensors.
type meeting struct {
	lock    sync.Mutex
	all     *sync.Cond
	here    int
	round   int
	tensors []kernels.Tensor
	travels int // collections and sums of float32 and float64
	halves  int // and of 16-bit floats
}

func newMeeting(size int) *meeting {
	m := &meeting{tensors: make([]kernels.Tensor, size)}
	m.all = sync.NewCond(&m.lock)
	return m
}

// wait returns when all ranks have come.
func (m *meeting) wait() {
	m.lock.Lock()
	defer m.lock.Unlock()
	round := m.round
	if m.here++; m.here == len(m.tensors) {
		m.here, m.round = 0, round+1
		m.all.Broadcast()
	}
	for m.round == round {
		m.all.Wait()
	}
}

// holder is one of the ranks.
type holder struct {
	*meeting
	rank int
}

func (h holder) Rank() int { return h.rank }
func (h holder) Size() int { return len(h.tensors) }

func (h holder) CollectParts(tensors ...kernels.Tensor) error {
	return h.each(tensors, func(part func(of, rank int) kernels.Tensor) {
		for rank := range h.tensors {
			if rank != h.rank {
				kernels.CopyHost(part(h.rank, rank), part(rank, rank))
			}
		}
	})
}

func (h holder) CollectPartsLater(tensors ...kernels.Tensor) (kernels.Transfer, error) {
	return h, h.CollectParts(tensors...)
}

func (h holder) SumPartsLater(tensors ...kernels.Tensor) error { return h.SumParts(tensors...) }

func (holder) Join() error { return nil }

func (h holder) SumParts(tensors ...kernels.Tensor) error {
	return h.each(tensors, func(part func(of, rank int) kernels.Tensor) {
		own := part(h.rank, h.rank)
		for i := range own.Elements() {
			sum := 0.0
			for rank := range h.tensors {
				sum += kernels.HostElement(part(rank, h.rank), i)
			}
			if own.DType == kernels.F64 {
				kernels.Host[float64](own)[i] = sum
			} else {
				kernels.Host[float32](own)[i] = float32(sum)
			}
		}
	})
}

func (h holder) each(tensors []kernels.Tensor, do func(part func(of, rank int) kernels.Tensor)) error {
	for _, t := range tensors {
		h.tensors[h.rank] = t.Reshape(t.Elements())
		h.wait()
		if h.rank == 0 && t.DType.Size() == 2 {
			h.halves++
		} else if h.rank == 0 {
			h.travels++
		}
		do(func(of, rank int) kernels.Tensor {
			from, to := kernels.Part(rank, h.Size(), t.Elements())
			return h.tensors[of].Slice(0, from, to)
		})
		h.wait()
	}
	return nil
}

// gathering is a graph over weights.
type gathering struct {
	shapes [][]int
	of     func(x *gorgonia.Node, ids *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error)
	frozen int // how many of the weights, the first ones, have no gradient
}

const gatherRows, gatherIn, gatherHidden = 4, 6, 10

var gatherings = map[string]gathering{
	"Linear": {shapes: [][]int{{gatherIn, gatherHidden}}, of: func(x, _ *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
		return ops.Linear(x, w[0], nil, ops.LinearOptions{Activation: kernels.SiLU})
	}},
	"Linears": {shapes: [][]int{{gatherIn, gatherHidden}, {gatherIn, gatherHidden}}, of: func(x, _ *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
		out, err := ops.Linears(x, w, nil)
		if err != nil {
			return nil, err
		}
		return ops.Mul(out[0], out[1])
	}},
	"MLP": {shapes: [][]int{{gatherIn, gatherHidden}, {gatherHidden, gatherIn}}, of: func(x, _ *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
		return ops.MLP(x, w[0], nil, w[1], nil, ops.MLPOptions{Activation: kernels.GELUTanh})
	}},
	"SwiGLUMLP, the gate frozen": {frozen: 1, shapes: [][]int{{gatherIn, gatherHidden}, {gatherIn, gatherHidden}, {gatherHidden, gatherIn}}, of: func(x, _ *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
		return ops.SwiGLUMLP(x, w[0], w[1], w[2], ops.SwiGLUMLPBiases{})
	}},
	"a sum of weights, which have one gradient": {shapes: [][]int{{gatherIn, gatherHidden}, {gatherIn, gatherHidden}}, of: func(x, _ *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
		sum, err := ops.Add(w[0], w[1])
		if err != nil {
			return nil, err
		}
		return ops.Linear(x, sum, nil, ops.LinearOptions{})
	}},
	"an embedding and a head that share a table": {shapes: [][]int{{13, gatherIn}}, of: func(x, ids *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
		y, err := ops.EmbeddingAs(w[0], ids, x.Dtype())
		if err == nil {
			y, err = ops.Add(x, y)
		}
		if err != nil {
			return nil, err
		}
		return ops.LinearCrossEntropy(y, w[0], ids, ops.LinearCrossEntropyOptions{})
	}},
	"layers that are computed again": {shapes: [][]int{{gatherIn, gatherHidden}, {gatherHidden, gatherIn}, {gatherIn, gatherIn}}, of: func(x, _ *gorgonia.Node, w gorgonia.Nodes) (*gorgonia.Node, error) {
		from := x
		for _, weight := range w[:2] {
			var err error
			if x, err = ops.Linear(x, weight, nil, ops.LinearOptions{Activation: kernels.SiLU}); err != nil {
				return nil, err
			}
		}
		x, err := ops.Recompute(x, from)
		if err != nil {
			return nil, err
		}
		return ops.Linear(x, w[2], nil, ops.LinearOptions{})
	}},
}

// run returns the loss and the gradients of the weights that are not frozen, of the second of two
// runs, either by whole weights, where ranks is nil, or by parts, on a device, or on the host where
// that is nil.
func (c gathering) run(t *testing.T, d *ops.Device, dtype tensor.Dtype, rank int, ranks kernels.Holders) (loss float64, gradients [][]float64) {
	random, g := rand.New(rand.NewPCG(7, uint64(rank))), gorgonia.NewGraph()
	parameters := dtype
	if dtype.Size() == 2 {
		parameters = tensor.Float32
	}
	value := func(r *rand.Rand, shape ...int) *tensor.Dense {
		data := make([]float64, tensor.Shape(shape).TotalSize())
		for i := range data {
			data[i] = r.NormFloat64()
		}
		v, err := ops.Converted(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data)), parameters)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	leaf := func(name string, v *tensor.Dense) *gorgonia.Node {
		if at, err := ops.DeviceOf(v); err == nil && at != d {
			if v, err = d.Upload(v); err != nil {
				t.Fatal(err)
			}
		}
		return gorgonia.NewTensor(g, v.Dtype(), v.Dims(), gorgonia.WithShape(v.Shape()...), gorgonia.WithName(name), gorgonia.WithValue(v))
	}
	x := gorgonia.Must(ops.Cast(leaf("x", value(random, gatherRows, gatherIn)), dtype))
	ids := make([]int, gatherRows)
	for i := range ids {
		ids[i] = random.IntN(13)
	}
	index := leaf("ids", tensor.New(tensor.WithShape(gatherRows), tensor.WithBacking(ids)))
	same := rand.New(rand.NewPCG(8, 8))
	var weights, leaves gorgonia.Nodes
	for i, shape := range c.shapes {
		v := value(same, shape...)
		if ranks != nil {
			var err error
			if v, err = ops.PartOf(ranks, v); err != nil {
				t.Fatal(err)
			}
		}
		part := leaf(fmt.Sprint("w", i), v)
		w := part
		if ranks != nil {
			var err error
			if w, err = ops.Whole(part, ranks, shape...); err != nil {
				t.Fatal(err)
			}
			if of, by := ops.WholeOf(part); of != w || by != ranks {
				t.Errorf("a part's whole is %v of %v", of, by)
			}
		}
		leaves, weights = append(leaves, part), append(weights, w)
	}
	y, err := c.of(x, index, weights)
	if err != nil {
		t.Fatal(err)
	}
	if !y.IsScalar() {
		y = gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(y, y))))
	}
	trained := leaves[c.frozen:]
	nodes, err := gorgonia.Grad(y, trained...)
	if err != nil {
		t.Fatal(err)
	}
	ops.ReuseMemory(g)
	ops.Keep(append(nodes, y)...)
	m, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 2 {
		run(t, m)
	}
	for _, n := range nodes {
		gradients = append(gradients, listed(t, n.Value()))
	}
	number, err := ops.ReadNumber(y.Value())
	if err == nil {
		loss, err = number.Float64()
	}
	if err != nil {
		t.Fatal(err)
	}
	return loss, gradients
}

// listed are the elements of a value.
func listed(t *testing.T, v gorgonia.Value) []float64 {
	copied, err := ops.Download(v)
	if err != nil {
		t.Fatal(err)
	}
	view, err := ops.TensorOf(copied)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]float64, view.Elements())
	for i := range list {
		list[i] = kernels.HostElement(view, i)
	}
	return list
}

// What is no part of what it is to be is named, and so is an op that cannot read a whole.
func TestWholeRefuses(t *testing.T) {
	g, ranks := gorgonia.NewGraph(), holder{newMeeting(4), 1}
	part := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(1, 2), gorgonia.WithName("part"), gorgonia.WithInit(gorgonia.Ones()))
	ints := gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(1, 2), gorgonia.WithName("ints"))
	for want, c := range map[string]struct {
		part  *gorgonia.Node
		ranks kernels.Holders
		shape []int
	}{
		"Whole: part is nil, it needs to be a node":                                               {nil, ranks, []int{2, 4}},
		"Whole: ranks is empty, it needs to be those that hold the parts":                         {part, nil, []int{2, 4}},
		"Whole: part is int, it needs to be float32, float64":                                     {ints, ranks, []int{2, 4}},
		"Whole: shape is [], it needs at least one axis":                                          {part, ranks, nil},
		"Whole: shape is [2 0], it needs at least one axis, and none that is empty":               {part, ranks, []int{2, 0}},
		"Whole: part has shape [1 2], rank 1 of 4 needs [1 3] of [2 5], and each rank an element": {part, ranks, []int{2, 5}},
		"Whole: part has shape [1 2], rank 1 of 4 needs [1 1] of [1 3], and each rank an element": {part, ranks, []int{1, 3}},
	} {
		if _, err := ops.Whole(c.part, c.ranks, c.shape...); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("the error is %v, it needs to say %q", err, want)
		}
	}
	g = gorgonia.NewGraph()
	part = gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(1, 2), gorgonia.WithName("part"), gorgonia.WithInit(gorgonia.Ones()))
	gorgonia.Must(gorgonia.Square(gorgonia.Must(ops.Whole(part, ranks, 2, 4))))
	m, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.RunAll(); err == nil || !strings.Contains(err.Error(), "reads the whole of part, which only ops of this package can") {
		t.Errorf("the error of Square is %v", err)
	}
}

// Ops whose weights are collected have the results of ops that have them whole, with the gradients
// of all ranks added up, in every type: float64's bits but for the sums over ranks. In 16 bits the
// weights travel in these, and gradients in float32.
func TestWhole(t *testing.T) {
	const size = 3
	for name, c := range gatherings {
		for _, dtype := range []tensor.Dtype{tensor.Float64, tensor.Float32, ops.BFloat16} {
			t.Run(fmt.Sprintf("%s, %v", name, dtype), func(t *testing.T) {
				m := newMeeting(size)
				var losses [size]float64
				var parts [size][][]float64
				var ranks sync.WaitGroup
				for rank := range size {
					ranks.Go(func() { losses[rank], parts[rank] = c.run(t, nil, dtype, rank, holder{m, rank}) })
				}
				ranks.Wait()
				bound := map[tensor.Dtype]float64{tensor.Float64: 1e-14}[dtype]
				if bound == 0 {
					bound = 1e-6
				}
				sums := make([][]float64, len(c.shapes)-c.frozen)
				for rank := range size {
					loss, gradients := c.run(t, nil, dtype, rank, nil)
					if loss != losses[rank] {
						t.Errorf("rank %d: the loss is %v, of whole weights %v", rank, losses[rank], loss)
					}
					for i, g := range gradients {
						if sums[i] == nil {
							sums[i] = make([]float64, len(g))
						}
						for k, x := range g {
							sums[i][k] += x
						}
					}
				}
				for i, want := range sums {
					got := slices.Concat(parts[0][i], parts[1][i], parts[2][i])
					largest := 0.0
					for _, x := range want {
						largest = max(largest, math.Abs(x))
					}
					for k, x := range want {
						if len(got) != len(want) || !(math.Abs(got[k]-x) <= bound*largest) {
							t.Fatalf("number %d of the gradient of weight %d is %v, of whole weights %v", k, c.frozen+i, got[k], x)
						}
					}
				}
				if dtype == ops.BFloat16 && !strings.HasPrefix(name, "a sum") && m.halves == 0 {
					t.Errorf("the weights have travelled in float32")
				}
			})
		}
	}
}

// ahead is a rank alone that counts the collections which were begun ahead, and those which were
// not.
type ahead struct{ later, joined, atOnce, deferred int }

func (*ahead) Rank() int                               { return 0 }
func (*ahead) Size() int                               { return 1 }
func (*ahead) SumParts(...kernels.Tensor) error        { return nil }
func (a *ahead) CollectParts(...kernels.Tensor) error  { a.atOnce++; return nil }
func (a *ahead) SumPartsLater(...kernels.Tensor) error { a.deferred++; return nil }
func (a *ahead) Join() error                           { a.joined++; return nil }

func (a *ahead) CollectPartsLater(...kernels.Tensor) (kernels.Transfer, error) {
	a.later++
	return a, nil
}

// What is read behind an attention is collected when that begins, forward and backward, and has the
// weights as they are then: also behind a run that failed in its middle.
func TestGathersAhead(t *testing.T) {
	const dim = 6
	must := gorgonia.Must
	fails, defers := false, false
	build := func(weight func(g *gorgonia.ExprGraph, i int) (whole, part *gorgonia.Node)) (gorgonia.VM, gorgonia.Nodes) {
		g := gorgonia.NewGraph()
		ops.ReuseMemory(g)
		h := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("x"), gorgonia.WithShape(1, 2, 4, dim), gorgonia.WithInit(gorgonia.Gaussian(0, 1)))
		x := h
		var parts gorgonia.Nodes
		for i := range 3 {
			if i > 0 {
				h = must(ops.FlashAttention(h, h, h, ops.AttentionOptions{}))
			}
			whole, part := weight(g, i)
			parts, h = append(parts, part), must(ops.Linear(h, whole, nil, ops.LinearOptions{}))
		}
		loss := must(ops.Mean(must(ops.Mul(h, h))))
		if _, err := gorgonia.Grad(loss, parts...); err != nil {
			t.Fatal(err)
		}
		gorgonia.Let(x, tensor.New(tensor.WithShape(1, 2, 4, dim), tensor.WithBacking(tensor.Range(tensor.Float32, -20, 28))))
		ops.DeferSums(parts, func() bool { return defers })
		ops.OnGradients(parts, func(i int, _ kernels.Tensor) error {
			if fails && i == 1 {
				return errors.New("on purpose")
			}
			return nil
		})
		machine, err := ops.NewMachine(g)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { machine.Close() })
		return machine, parts
	}
	value := func(i, run int, shape ...int) *tensor.Dense {
		x := make([]float32, dim*dim)
		for k := range x {
			x[k] = float32((k*(i+2)+run)%7)/7 - 0.4
		}
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))
	}
	var ranks ahead
	shared, parts := build(func(g *gorgonia.ExprGraph, i int) (*gorgonia.Node, *gorgonia.Node) {
		part := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName(fmt.Sprint("part", i)), gorgonia.WithShape(1, dim*dim), gorgonia.WithValue(value(i, 0, 1, dim*dim)))
		return must(ops.Whole(part, &ranks, dim, dim)), part
	})
	plain, weights := build(func(g *gorgonia.ExprGraph, i int) (*gorgonia.Node, *gorgonia.Node) {
		w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName(fmt.Sprint("w", i)), gorgonia.WithShape(dim, dim), gorgonia.WithValue(value(i, 0, dim, dim)))
		return w, w
	})
	for run := range 4 {
		for i := range parts {
			copy(parts[i].Value().Data().([]float32), value(i, run, dim*dim).Data().([]float32))
			copy(weights[i].Value().Data().([]float32), value(i, run, dim*dim).Data().([]float32))
		}
		before := ranks
		if fails = run == 2; fails {
			if err := shared.RunAll(); err == nil {
				t.Error("a run that was to fail did not")
			}
			fails = false
			shared.Reset()
			continue
		}
		defers = run == 3
		if err := errors.Join(shared.RunAll(), plain.RunAll(), ops.SettleSums(parts[0].Graph())); err != nil {
			t.Fatal(err)
		}
		for i := range parts {
			got, gotErr := parts[i].Grad()
			want, wantErr := weights[i].Grad()
			if err := errors.Join(gotErr, wantErr); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Data().([]float32), want.Data().([]float32)) {
				t.Errorf("run %d: the gradient of part %d is %v, of the weight %v", run, i, got, want)
			}
		}
		shared.Reset()
		plain.Reset()
		later, all := ranks.later-before.later, ranks.later+ranks.atOnce-before.later-before.atOnce
		if later != 4 || all != 6 {
			t.Errorf("run %d: %d of %d collections begin ahead, want 4 of 6", run, later, all)
		}
		if want := run / 3 * 2; ranks.deferred != want {
			t.Errorf("run %d: %d sums were put off, want %d", run, ranks.deferred, want)
		}
		if ranks.joined != ranks.later {
			t.Errorf("run %d: %d of %d collections that began ahead were joined", run, ranks.joined, ranks.later)
		}
	}
}
