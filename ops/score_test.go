package ops_test

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// scored is attention with a score and a mask that look nodes up: a window of one document, a
// learnt bias by distance, and a learnt temperature a head.
type scored struct {
	graph      *gorgonia.ExprGraph
	floats     gorgonia.Nodes // q, k, v, bias, heat
	ids        *gorgonia.Node
	loss       *gorgonia.Node
	out        *gorgonia.Node
	sq, sk, hq int
}

func newScored(t testing.TB, dtype tensor.Dtype, packed bool) *scored {
	t.Helper()
	s := &scored{graph: gorgonia.NewGraph(), sq: 7, sk: 7, hq: 4}
	random := rand.New(rand.NewPCG(3, 4))
	values := func(shape ...int) *tensor.Dense {
		list := make([]float64, kernels.Contiguous(nil, kernels.F64, shape...).Elements())
		for i := range list {
			list[i] = random.NormFloat64()
		}
		return dense(dtype, list, shape...)
	}
	rows := func(name string, heads, size int) *gorgonia.Node {
		if packed {
			return input(s.graph, name, values(2*s.sq, heads, size))
		}
		return input(s.graph, name, values(2, heads, s.sq, size))
	}
	q, k, v := rows("q", s.hq, 4), rows("k", 2, 4), rows("v", 2, 3)
	bias, heat := input(s.graph, "bias", values(s.hq, 5)), input(s.graph, "heat", values(s.hq))
	s.floats = gorgonia.Nodes{q, k, v, bias, heat}
	s.ids = input(s.graph, "ids", tensor.New(tensor.WithShape(2, 7), tensor.WithBacking([]int64{1, 1, 1, 1, 5, 5, 5, 2, 2, 2, 2, 2, 2, 2})))
	o := ops.AttentionOptions{
		Score: func(p ops.Pair) ops.Expr {
			x := p.Score.Mul(ops.Lookup(heat, p.Head).Exp())
			return x.Add(ops.Lookup(bias, p.Head, p.Query.Sub(p.Key)))
		},
		Mask: score.And(score.SlidingWindow(3, 0), ops.Documents(s.ids)),
	}
	if packed {
		o.QLens = input(s.graph, "lens", tensor.New(tensor.WithShape(3), tensor.WithBacking([]int{0, 7, 14})))
		o.KVLens = o.QLens
	}
	var err error
	if s.out, err = ops.FlashAttention(q, k, v, o); err != nil {
		t.Fatal(err)
	}
	s.loss = gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(s.out))))
	return s
}

// The gradients of a graph with a score and a mask are those of finite differences, under both
// machines, for what is looked up too.
func TestScoreGradients(t *testing.T) {
	slow.Emulated(t)
	for _, packed := range []bool{false, true} {
		probe := newScored(t, tensor.Float64, packed)
		m := gorgonia.NewTapeMachine(probe.graph)
		slopes := map[string][]float64{}
		for _, n := range probe.floats {
			data := n.Value().Data().([]float64)
			for i, old := range data {
				const h = 1e-5
				var at [2]float64
				for side, step := range []float64{-h, h} {
					data[i] = old + step
					run(t, m)
					at[side] = probe.loss.Value().Data().(float64)
				}
				data[i] = old
				slopes[n.Name()] = append(slopes[n.Name()], (at[1]-at[0])/(2*h))
			}
		}
		for _, machine := range []string{"tapeMachine", "lispMachine"} {
			s := newScored(t, tensor.Float64, packed)
			if machine == "lispMachine" {
				run(t, gorgonia.NewLispMachine(s.graph))
			} else {
				if _, err := gorgonia.Grad(s.loss, s.floats...); err != nil {
					t.Fatal(err)
				}
				run(t, gorgonia.NewTapeMachine(s.graph, gorgonia.BindDualValues(s.floats...)))
			}
			for _, n := range s.floats {
				for i, got := range gradientOf(t, n) {
					if want := slopes[n.Name()][i]; !(math.Abs(got-want) <= 1e-7*(1+math.Abs(want))) {
						t.Errorf("%s, packed %t: d%s[%d] is %v, differences give %v", machine, packed, n.Name(), i, got, want)
					}
				}
			}
		}
	}
}

// A score looks up sums of rows, which an op makes of what it captures.
func TestScoreOfSumsOfRows(t *testing.T) {
	build := func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
		random := rand.New(rand.NewPCG(5, 6))
		leaf := func(name string, shape ...int) *gorgonia.Node { return drawn(g, random, dtype, name, shape...) }
		in := gorgonia.Nodes{leaf("q", 2, 4, 5, 6), leaf("k", 2, 2, 7, 6), leaf("v", 2, 2, 7, 3), leaf("captured", 4, 7, 3)}
		ones := tensor.Ones(dtype, 3)
		sums, err := ops.MatMul(in[3], gorgonia.NewTensor(g, dtype, 1, gorgonia.WithShape(3), gorgonia.WithName("ones"), gorgonia.WithValue(ones)), ops.MatMulOptions{})
		if err != nil {
			return nil, nil, err
		}
		out, err := ops.FlashAttention(in[0], in[1], in[2], ops.AttentionOptions{Score: func(p ops.Pair) ops.Expr {
			return p.Score.Mul(ops.Lookup(sums, p.Head, p.Key).Sin()).Add(ops.Lookup(sums, p.Head, p.Query).Add(p.Score).Cos())
		}})
		return out, in, err
	}
	if err := gradcheck.Graph(build, gradcheck.Options{Seed: 1, Elements: 5, Directions: 1, Single: true, Contiguous: true}); err != nil {
		t.Error(err)
	}
}

// The other types compute the same, to their precision; and a change of what the mask looks up
// changes what is visible.
func TestScoreTypes(t *testing.T) {
	output := func(dtype tensor.Dtype, change bool) []float64 {
		s := newScored(t, dtype, false)
		m := gorgonia.NewTapeMachine(s.graph)
		run(t, m)
		if change {
			s.ids.Value().Data().([]int64)[2] = 9
			run(t, m)
		}
		return float64s(t, s.out.Value())
	}
	want, changed := output(tensor.Float64, false), output(tensor.Float64, true)
	for dtype, bound := range map[tensor.Dtype]float64{tensor.Float32: 1e-5, ops.BFloat16: 0.05, ops.Float16: 0.01} {
		for i, x := range output(dtype, false) {
			if !(math.Abs(x-want[i]) <= bound) {
				t.Errorf("%v: element %d is %v instead of %v", dtype, i, x, want[i])
			}
		}
	}
	differences := 0
	for i := range want {
		if want[i] != changed[i] {
			differences++
		}
	}
	if rows := differences / 3; rows < 4 || rows > 16 {
		t.Errorf("%d rows changed with one document id, of 4 heads each row that saw it or is it should", rows)
	}
}

func TestScoreErrors(t *testing.T) {
	for _, c := range []struct {
		o    func(g *gorgonia.ExprGraph) ops.AttentionOptions
		want string
	}{
		{func(*gorgonia.ExprGraph) ops.AttentionOptions {
			return ops.AttentionOptions{Score: func(p ops.Pair) ops.Expr { return p.Score.Add(p.Key) }}
		}, "FlashAttention: score: score + key: score is a float and key is an integer; Float converts an integer"},
		{func(*gorgonia.ExprGraph) ops.AttentionOptions {
			return ops.AttentionOptions{Mask: func(p ops.Pair) ops.Cond { return ops.Lookup(nil, p.Key).Equal(0) }}
		}, "FlashAttention: mask: a node that is looked up is nil or a zero node, it needs to be one of a graph"},
		{func(g *gorgonia.ExprGraph) ops.AttentionOptions {
			n := node(g, "bias", tensor.Float32, 3)
			return ops.AttentionOptions{Score: func(p ops.Pair) ops.Expr { return p.Score.Add(ops.Lookup(n, p.Head)) }}
		}, "FlashAttention: bias[head]: axis 0 of bias has 3 elements, head goes up to 3"},
		{func(g *gorgonia.ExprGraph) ops.AttentionOptions {
			n := node(g, "ids", tensor.Int, 2, 9)
			return ops.AttentionOptions{Mask: func(p ops.Pair) ops.Cond { return ops.Lookup(n, p.Key).Equal(0) }}
		}, "FlashAttention: mask: ids[key]: ids has shape [2 9] and there are 1 indices, it needs one for each axis"},
		{func(g *gorgonia.ExprGraph) ops.AttentionOptions {
			n := node(g, "bias", tensor.Float64, 4)
			return ops.AttentionOptions{Score: func(p ops.Pair) ops.Expr { return p.Score.Add(ops.Lookup(n, p.Head)) }}
		}, "FlashAttention: bias is float64, it needs q's float32"},
		{func(*gorgonia.ExprGraph) ops.AttentionOptions {
			n := node(gorgonia.NewGraph(), "bias", tensor.Float32, 4)
			return ops.AttentionOptions{Score: func(p ops.Pair) ops.Expr { return p.Score.Add(ops.Lookup(n, p.Head)) }}
		}, "FlashAttention: bias belongs to another graph than the inputs before it, all need one graph"},
		{func(*gorgonia.ExprGraph) ops.AttentionOptions {
			t := &score.Table{Name: "loose", Shape: []int{4}}
			return ops.AttentionOptions{Score: func(p ops.Pair) ops.Expr { return p.Score.Add(score.Lookup(t, p.Head)) }}
		}, "FlashAttention: loose is no node, what is looked up needs to come from Lookup"},
	} {
		g := gorgonia.NewGraph()
		_, err := ops.FlashAttention(node(g, "q", tensor.Float32, 2, 4, 5, 8), node(g, "k", tensor.Float32, 2, 4, 5, 8), node(g, "v", tensor.Float32, 2, 4, 5, 8), c.o(g))
		if err == nil || err.Error() != c.want {
			t.Errorf("the error is\n%v\nit needs to be\n%s", err, c.want)
		}
	}
}

func TestMaskPicture(t *testing.T) {
	g := gorgonia.NewGraph()
	list := make([]int, 600)
	for i := range list {
		list[i] = i / 300
	}
	ids := input(g, "ids", tensor.New(tensor.WithShape(600), tensor.WithBacking(list)))
	var file bytes.Buffer
	place := ops.MaskPlace{QueryLength: 600, KeyLength: 600}
	if err := ops.MaskPicture(&file, score.And(score.Causal, ops.Documents(ids)), place); err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(&file)
	if err != nil || picture.Bounds().Dx() != 600 || picture.Bounds().Dy() != 600 {
		t.Fatalf("the picture is %v: %v", picture.Bounds(), err)
	}
	gray := func(q, k int) string {
		r, _, _, _ := picture.At(k, q).RGBA()
		return fmt.Sprint(r >> 8)
	}
	// A visible pair at the diagonal, one far below it, one of two documents in a tile that has
	// both, one above the diagonal, and one far from what it could see.
	got := strings.Join([]string{gray(10, 10), gray(200, 100), gray(310, 290), gray(5, 590), gray(590, 5)}, " ")
	if want := "110 40 215 255 255"; got != want {
		t.Errorf("pixels are %s instead of %s", got, want)
	}
	err = ops.MaskPicture(&file, score.Causal, ops.MaskPlace{QueryLength: 5})
	if want := "MaskPicture: there are 5 queries and 0 keys, it needs at least one of each"; err == nil || err.Error() != want {
		t.Errorf("the error is %v instead of %s", err, want)
	}
}
