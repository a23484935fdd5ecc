package ops_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// TestAttentionWeights compares with the reference's attention to an identity matrix, over all
// cases of attention that are not packed, and one with more keys than a head is wide.
func TestAttentionWeights(t *testing.T) {
	long := attentionCase{name: "long", b: 1, hq: 2, hk: 1, sq: 3, sk: 600, d: 4, dv: 4, seed: 1, o: ops.AttentionOptions{Causal: kernels.CausalBottomRight}}
	for _, c := range append(attentionCases(), long) {
		if c.qLens != nil {
			continue
		}
		values, shapes := c.values(), c.shapes()
		p := c.problem(values)
		batch, heads, keys := p.K.Shape[0], p.K.Shape[1], p.K.Shape[2]
		identity := make([]float64, batch*heads*keys*keys)
		for i := range batch * heads * keys {
			identity[i*keys+i%keys] = 1
		}
		p.V = kernels.Of(identity, batch, heads, keys, keys)
		want, _ := reference.Attention(p)
		for dtype, bound := range map[tensor.Dtype]float64{tensor.Float64: 1e-12, tensor.Float32: 1e-5} {
			g, in := gorgonia.NewGraph(), map[string]*gorgonia.Node{}
			ops.ModeOf(g).Train(step)
			for _, name := range c.inputs() {
				in[name] = input(g, name, dense(dtype, values[name], shapes[name]...))
			}
			o := c.o
			o.Layout, o.Bias, o.Sinks = c.layout, in["bias"], in["sinks"]
			if c.kvLengths != nil {
				o.KVLengths = input(g, "kvLengths", tensor.New(tensor.WithBacking(slices.Clone(c.kvLengths))))
			}
			var weights *gorgonia.Node
			var err error
			if c.qkv {
				weights, err = ops.AttentionWeightsQKV(in["qkv"], c.hq, c.hk, o)
			} else {
				weights, err = ops.AttentionWeights(in["q"], in["k"], o)
			}
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			run(t, gorgonia.NewTapeMachine(g))
			compare(t, typed{c, dtype, "weights"}, map[string][]float64{"weights": float64s(t, weights.Value())}, map[string][]float64{"weights": want}, bound)
		}
	}
}

func TestAttentionWeightsErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	q, k := node(g, "q", tensor.Float32, 1, 4, 5, 8), node(g, "k", tensor.Float32, 1, 3, 5, 8)
	lens := node(g, "lens", tensor.Int, 3)
	qkv := func(heads, kvHeads int) error {
		_, err := ops.AttentionWeightsQKV(node(g, "qkv", tensor.Float32, 1, 5, 16), heads, kvHeads, ops.AttentionOptions{})
		return err
	}
	weights := func(q, k *gorgonia.Node, o ops.AttentionOptions) error {
		_, err := ops.AttentionWeights(q, k, o)
		return err
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{weights(q, k, ops.AttentionOptions{}), "AttentionWeights: k has 3 heads, which does not divide q's 4"},
		{weights(q, nil, ops.AttentionOptions{}), "AttentionWeights: k is nil, it needs to be a node"},
		{weights(q, q, ops.AttentionOptions{Layout: 7}), "AttentionWeights: layout is 7, it needs to be BHSD or BSHD"},
		{weights(q, q, ops.AttentionOptions{Lengths: ops.Lengths{QLens: lens, KVLens: lens}}), "AttentionWeights: QLens or KVLens is given, it does not take packed sequences"},
		{qkv(0, 2), "AttentionWeightsQKV: heads is 0 and kvHeads is 2, each needs to be from 1 to 1048576"},
		{qkv(3, 1), "AttentionWeightsQKV: qkv has 16 columns, they need to be a multiple of heads + 2·kvHeads = 5"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}

// The weights of a row sum to one, whatever the shape and the options; to zero in a row that sees
// no key.
func TestAttentionWeightsSumToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
		kvHeads, sq, sk, d := size("kvHeads", 2), size("sq", 40), size("sk", 70), size("d", 20)
		heads := kvHeads * size("group", 3)
		o := ops.AttentionOptions{
			Causal:  kernels.Causal(rapid.IntRange(0, 2).Draw(t, "causal")),
			SoftCap: float64(rapid.IntRange(0, 3).Draw(t, "softCap")),
			Scale:   float64(rapid.IntRange(-300, 300).Draw(t, "scale")) / 100, // one of 1e-308 is refused
		}
		if rapid.Bool().Draw(t, "window") {
			o.Window = &kernels.Window{Left: rapid.IntRange(-1, 30).Draw(t, "left"), Right: rapid.IntRange(-1, 30).Draw(t, "right")}
		}
		g, random := gorgonia.NewGraph(), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		node := func(name string, shape ...int) *gorgonia.Node {
			data := make([]float64, tensor.Shape(shape).TotalSize())
			for i := range data {
				data[i] = random.NormFloat64()
			}
			value := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
			return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...), gorgonia.WithValue(value))
		}
		weights := gorgonia.Must(ops.AttentionWeights(node("q", 1, heads, sq, d), node("k", 1, kvHeads, sk, d), o))
		m := gorgonia.NewTapeMachine(g)
		defer m.Close()
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		band := kernels.Attention{Causal: o.Causal, Window: o.Window}
		lo, hi := band.Band(kernels.Sequence{Sq: sq, Sk: sk})
		p := weights.Value().Data().([]float64)
		for row := range heads * sq {
			want, sum, i := 0.0, 0.0, row%sq
			if max(0, i+lo) < min(sk, i+hi) {
				want = 1
			}
			for _, x := range p[row*sk:][:sk] {
				sum += x
			}
			if !(math.Abs(sum-want) <= 1e-12) {
				t.Fatalf("%d:%d heads, %d×%d, D=%d, %+v: row %d sums to %v instead of %v", heads, kvHeads, sq, sk, d, o, row, sum, want)
			}
		}
	})
}
