package ops_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestAttentionScores compares with what the reference's probabilities and logsumexp say of the
// scores, log P + LSE, over all cases of attention that are not packed.
func TestAttentionScores(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	for _, c := range attentionCases() {
		if c.qLens != nil || c.qkv {
			continue
		}
		values, shapes := c.values(), c.shapes()
		p := c.problem(values)
		p.Sinks, p.Dropout = kernels.Tensor{}, kernels.Dropout{}
		batch, heads, keys, rows := p.K.Shape[0], p.K.Shape[1], p.K.Shape[2], p.Q.Shape[2]
		identity := make([]float64, batch*heads*keys*keys)
		for i := range batch * heads * keys {
			identity[i*keys+i%keys] = 1
		}
		p.V = kernels.Of(identity, batch, heads, keys, keys)
		weights, lse := reference.Attention(p)
		for _, chosen := range [][]int{nil, {rows - 1}, {rows / 2, 0}} {
			for dtype, bound := range map[tensor.Dtype]float64{tensor.Float64: 1e-11, tensor.Float32: 1e-4} {
				g, in := gorgonia.NewGraph(), map[string]*gorgonia.Node{}
				for _, name := range c.inputs() {
					in[name] = input(g, name, dense(dtype, values[name], shapes[name]...))
				}
				o := c.o
				o.Layout, o.Bias, o.Sinks = c.layout, in["bias"], in["sinks"]
				if c.kvLengths != nil {
					o.KVLengths = input(g, "kvLengths", tensor.New(tensor.WithBacking(slices.Clone(c.kvLengths))))
				}
				scores, err := ops.AttentionScores(in["q"], in["k"], o, chosen...)
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
					continue
				}
				run(t, gorgonia.NewTapeMachine(g))
				list := chosen
				for i := 0; chosen == nil && i < rows; i++ {
					list = append(list, i)
				}
				for at, got := range float64s(t, scores.Value()) {
					row := at/keys/len(list)*rows + list[at/keys%len(list)]
					weight := weights[row*keys+at%keys]
					want := math.Log(weight) + lse[row]
					if weight == 0 || math.IsInf(lse[row], -1) {
						want = math.Inf(-1)
					}
					if got != want && !(math.Abs(got-want) <= bound*(1+math.Abs(want))) {
						t.Fatalf("%s, %v, rows %v: score %d is %v, want %v", c.name, dtype, chosen, at, got, want)
					}
				}
			}
		}
	}
}

func TestAttentionScoresErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	q, k, lens := node(g, "q", tensor.Float32, 1, 4, 5, 8), node(g, "k", tensor.Float32, 1, 3, 5, 8), node(g, "lens", tensor.Int, 3)
	scores := func(k *gorgonia.Node, o ops.AttentionOptions, rows ...int) error {
		_, err := ops.AttentionScores(q, k, o, rows...)
		return err
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{scores(k, ops.AttentionOptions{}), "AttentionScores: k has 3 heads, which does not divide q's 4"},
		{scores(nil, ops.AttentionOptions{}), "AttentionScores: k is nil, it needs to be a node"},
		{scores(q, ops.AttentionOptions{}, 4, 5), "AttentionScores: row 5 is asked for, it needs to be from 0 to 4"},
		{scores(q, ops.AttentionOptions{Lengths: ops.Lengths{QLens: lens, KVLens: lens}}), "AttentionScores: QLens or KVLens is given, it does not take packed sequences"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}
