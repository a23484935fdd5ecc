package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// listedCase is attention over drawn tensors, of which lists choose blocks.
type listedCase struct {
	batch, heads, keyHeads, sq, sk int
	lists                          []int
	shape                          []int // of the lists
	o                              ops.BlockLists
	options                        func(listed func(ops.Pair) ops.Cond) ops.AttentionOptions
}

// run returns the output and the gradients of q, k and v. Without lists, options get nil.
func (c listedCase) run(lists bool) (results [][]float64, err error) {
	g := gorgonia.NewGraph()
	random := rand.New(rand.NewPCG(1, 2))
	leaf := func(name string, shape ...int) *gorgonia.Node {
		x := make([]float64, tensor.Shape(shape).TotalSize())
		for i := range x {
			x[i] = random.NormFloat64()
		}
		return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(x))))
	}
	leaves := gorgonia.Nodes{leaf("q", c.batch, c.heads, c.sq, 8), leaf("k", c.batch, c.keyHeads, c.sk, 8), leaf("v", c.batch, c.keyHeads, c.sk, 4)}
	var listed func(ops.Pair) ops.Cond
	if lists {
		n := gorgonia.NewTensor(g, tensor.Int, len(c.shape), gorgonia.WithName("lists"), gorgonia.WithShape(c.shape...),
			gorgonia.WithValue(tensor.New(tensor.WithShape(c.shape...), tensor.WithBacking(slices.Clone(c.lists)))))
		if listed, err = ops.ListedBlocks(n, c.o); err != nil {
			return nil, err
		}
	}
	out, err := ops.FlashAttention(leaves[0], leaves[1], leaves[2], c.options(listed))
	if err != nil {
		return nil, err
	}
	var value gorgonia.Value
	gorgonia.Read(out, &value)
	if _, err := gorgonia.Grad(gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(out, out)))), leaves...); err != nil {
		return nil, err
	}
	m, err := ops.NewMachine(g)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := m.RunAll(); err != nil {
		return nil, err
	}
	results = append(results, value.Data().([]float64))
	for _, n := range leaves {
		gradient, err := n.Grad()
		if err != nil {
			return nil, err
		}
		results = append(results, gradient.Data().([]float64))
	}
	return results, nil
}

func plainOptions(listed func(ops.Pair) ops.Cond) ops.AttentionOptions {
	return ops.AttentionOptions{Mask: listed}
}

func compareListed(t *testing.T, name string, got, want [][]float64, bound float64) {
	t.Helper()
	for n := range want {
		for i := range want[n] {
			if !(math.Abs(got[n][i]-want[n][i]) <= bound) {
				t.Fatalf("%s: element %d of result %d is %v instead of %v", name, i, n, got[n][i], want[n][i])
			}
		}
	}
}

// Lists of all blocks, in any order and some twice, are attention without a mask.
func TestListsOfAllBlocks(t *testing.T) {
	c := listedCase{batch: 2, heads: 2, keyHeads: 1, sq: 130, sk: 200, shape: []int{1, 1, 3, 5}, o: ops.BlockLists{Queries: 64, Keys: 64, Count: 4}, options: plainOptions}
	c.lists = []int{3, 1, 0, 2, 2, 0, 1, 2, 3, -1, 0, 0, 1, 2, 3}
	want, err := c.run(false)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.run(true)
	if err != nil {
		t.Fatal(err)
	}
	compareListed(t, "all blocks", got, want, 1e-12)
}

// Drawn lists are a mask of what they have, with all else that attention can do.
func TestDrawnListsAreAMask(t *testing.T) {
	slow.Race(t)
	random := rand.New(rand.NewPCG(3, 4))
	for n, sizes := range [][2]int{{64, 64}, {32, 64}, {48, 20}, {1, 16}, {128, 32}} {
		c := listedCase{batch: 2, heads: 4, keyHeads: 2, sq: 150, sk: 170, o: ops.BlockLists{Queries: sizes[0], Keys: sizes[1], ByKeyHead: n%2 == 0}}
		heads := 4
		if c.o.ByKeyHead {
			heads = 2
		}
		blocks := func(length, size int) int { return (length + size - 1) / size }
		c.o.Count = blocks(c.sk, c.o.Keys)
		c.shape = []int{2, heads, blocks(c.sq, c.o.Queries), 3}
		shown := map[[4]int]bool{}
		for i := range 2 * heads * c.shape[2] * 3 {
			block := random.IntN(c.o.Count+1) - 1
			c.lists = append(c.lists, block)
			shown[[4]int{i / (3 * c.shape[2] * heads), i / (3 * c.shape[2]) % heads, i / 3 % c.shape[2], block}] = true
		}
		for name, more := range map[string]ops.AttentionOptions{
			"alone": {}, "causal with a window": {Causal: kernels.CausalBottomRight, Window: &kernels.Window{Left: 90, Right: 0}},
			"dropout and slopes": {Dropout: ops.Drop{P: 0.2}, ALiBi: []float64{0.1, 0.2, 0.3, 0.4}}, "scored": {Score: score.SoftCap(1.5), SoftCap: 3}} {
			c.options = func(listed func(ops.Pair) ops.Cond) ops.AttentionOptions {
				o := more
				if o.Mask = listed; listed != nil {
					return o
				}
				o.Mask = func(p ops.Pair) ops.Cond { // the same, written out
					head := p.Head
					if c.o.ByKeyHead {
						head = p.KeyHead
					}
					cond := p.Key.Less(0)
					for at := range shown {
						cond = cond.Or(p.Batch.Equal(at[0]).And(head.Equal(at[1])).And(p.Query.Div(c.o.Queries).Equal(at[2])).And(p.Key.Div(c.o.Keys).Equal(at[3])))
					}
					return cond
				}
				return o
			}
			if c.o.Queries == 1 && name != "alone" || len(shown) > 150 {
				continue // the written mask would be too long
			}
			want, err := c.run(false)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.run(true)
			if err != nil {
				t.Fatal(err)
			}
			compareListed(t, fmt.Sprint(name, sizes), got, want, 1e-12)
		}
	}
}

func TestListedBlocksErrors(t *testing.T) {
	for want, change := range map[string]func(c *listedCase){
		"ListedBlocks: cpu: lists[0 0 1 0] is 4, it needs to be from 0 to 3":  func(c *listedCase) { c.lists[5] = 4 },
		"ListedBlocks: cpu: lists[0 0 0 2] is -2, it needs to be from 0 to 3": func(c *listedCase) { c.lists[2] = -2 },
		"ListedBlocks: lists has shape [3 5], it needs four axes":             func(c *listedCase) { c.shape = []int{3, 5} },
		"ListedBlocks: count is 0":                                            func(c *listedCase) { c.o.Count = 0 },
		"ListedBlocks: queries is 0 and keys is 64":                           func(c *listedCase) { c.o.Queries = 0 },
	} {
		c := listedCase{batch: 1, heads: 2, keyHeads: 1, sq: 130, sk: 200, shape: []int{1, 1, 3, 5}, lists: make([]int, 15), o: ops.BlockLists{Queries: 64, Keys: 64, Count: 4}, options: plainOptions}
		change(&c)
		if _, err := c.run(true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
