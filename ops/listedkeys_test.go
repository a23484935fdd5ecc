package ops_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// drawn is a leaf of normal random numbers.
func drawn(g *gorgonia.ExprGraph, random *rand.Rand, dtype tensor.Dtype, name string, shape ...int) *gorgonia.Node {
	value := tensor.New(tensor.WithShape(shape...), tensor.Of(dtype))
	for i := range value.DataSize() {
		x := random.NormFloat64()
		if dtype == tensor.Float32 {
			value.Set(i, float32(x))
		} else {
			value.Set(i, x)
		}
	}
	return gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...), gorgonia.WithValue(value))
}

// Drawn shapes and options: gradients are the slopes of the output, and those of a mask that shows
// the listed keys.
func TestListedKeysAttention(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 7))
		batch, keyHeads, group, rows, keys := 1+random.IntN(2), 1+random.IntN(3), 1+random.IntN(5), 1+random.IntN(9), 1+random.IntN(20)
		d, dv, n := 1+random.IntN(9), 1+random.IntN(9), 1+random.IntN(keys)
		o := ops.ListedKeysOptions{Layout: []ops.Layout{ops.BHSD, ops.BSHD}[random.IntN(2)], Scale: []float64{0, 0.7, -0.4}[random.IntN(3)]}
		shape := []int{[]int{1, batch}[random.IntN(2)], []int{1, keyHeads}[random.IntN(2)], rows, n}
		lists, visible := []int{}, make([]float64, batch*keyHeads*group*rows*keys)
		for i := range visible {
			visible[i] = math.Inf(-1)
		}
		for l := range shape[0] * shape[1] * rows {
			for _, key := range random.Perm(keys)[:n] {
				if random.IntN(4) == 0 {
					key = -1
				}
				lists = append(lists, key)
				for at := range batch * keyHeads * group {
					b, h := at/(keyHeads*group), at%(keyHeads*group)/group
					if key >= 0 && (b%shape[0]*shape[1]+h%shape[1])*rows+l%rows == l {
						visible[(at*rows+l%rows)*keys+key] = 0
					}
				}
			}
		}
		keyBatch := []int{1, batch}[random.IntN(2)]
		build := func(listed bool) gradcheck.Build {
			return func(g *gorgonia.ExprGraph, dtype tensor.Dtype) (*gorgonia.Node, gorgonia.Nodes, error) {
				random := rand.New(rand.NewPCG(seed, 8))
				leaf := func(name string, batch, heads, rows, size int) *gorgonia.Node {
					if o.Layout == ops.BSHD {
						return drawn(g, random, dtype, name, batch, rows, heads, size)
					}
					return drawn(g, random, dtype, name, batch, heads, rows, size)
				}
				in := gorgonia.Nodes{leaf("q", batch, keyHeads*group, rows, d), leaf("k", keyBatch, keyHeads, keys, d), leaf("v", keyBatch, keyHeads, keys, dv)}
				if !listed {
					bias := gorgonia.NewTensor(g, tensor.Float64, 4, gorgonia.WithName("bias"), gorgonia.WithShape(batch, keyHeads*group, rows, keys),
						gorgonia.WithValue(tensor.New(tensor.WithShape(batch, keyHeads*group, rows, keys), tensor.WithBacking(visible))))
					out, err := ops.FlashAttention(in[0], in[1], in[2], ops.AttentionOptions{Layout: o.Layout, Scale: o.Scale, Bias: bias})
					return out, in, err
				}
				chosen := gorgonia.NewTensor(g, tensor.Int, 4, gorgonia.WithName("lists"), gorgonia.WithShape(shape...),
					gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(lists))))
				out, err := ops.ListedKeysAttention(in[0], in[1], in[2], chosen, o)
				return out, in, err
			}
		}
		name := fmt.Sprintf("seed %d: batch %d, key batch %d, key heads %d, group %d, rows %d, keys %d, d %d, dv %d, lists %v, %+v",
			seed, batch, keyBatch, keyHeads, group, rows, keys, d, dv, shape, o)
		if err := gradcheck.Graph(build(true), gradcheck.Options{Seed: seed, Elements: 4, Directions: 1, Single: true, Contiguous: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, want := resultsOf(t, build(true)), resultsOf(t, build(false))
		for i := range want {
			for at, x := range want[i] {
				if !(math.Abs(got[i][at]-x) <= 1e-12*(1+math.Abs(x))) {
					t.Fatalf("%s: element %d of result %d is %v, under a mask %v", name, at, i, got[i][at], x)
				}
			}
		}
	}
}

// resultsOf is the output of a graph in float64, and the gradients of its inputs.
func resultsOf(t *testing.T, build gradcheck.Build) (results [][]float64) {
	t.Helper()
	g := gorgonia.NewGraph()
	out, in, err := build(g, tensor.Float64)
	if err != nil {
		t.Fatal(err)
	}
	gradients, err := gorgonia.Grad(gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(out, out)))), in...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ops.NewMachine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.RunAll(); err != nil {
		t.Fatal(err)
	}
	for _, n := range append(gorgonia.Nodes{out}, gradients...) {
		results = append(results, n.Value().Data().([]float64))
	}
	return results
}

func TestListedKeysAttentionErrors(t *testing.T) {
	for want, change := range map[string]func(lists *[]int, shape []int, o *ops.ListedKeysOptions){
		"ListedKeysAttention: cpu: lists[0 0 2 1] is 4, it needs to be from 0 to 3": func(lists *[]int, _ []int, _ *ops.ListedKeysOptions) {
			(*lists)[5] = 4
		},
		"ListedKeysAttention: lists has shape [1 1 2 3], it needs (1 or 1 batch items, 1 or 2 key heads, 3 queries, listed keys)": func(_ *[]int, shape []int, _ *ops.ListedKeysOptions) {
			shape[2], shape[3] = 2, 3
		},
		"ListedKeysAttention: layout is 7, it needs to be BHSD or BSHD": func(_ *[]int, _ []int, o *ops.ListedKeysOptions) { o.Layout = 7 },
	} {
		lists, shape, o := make([]int, 6), []int{1, 1, 3, 2}, ops.ListedKeysOptions{}
		change(&lists, shape, &o)
		g, random := gorgonia.NewGraph(), rand.New(rand.NewPCG(1, 2))
		q, k := drawn(g, random, tensor.Float64, "q", 1, 4, 3, 8), drawn(g, random, tensor.Float64, "k", 1, 2, 4, 8)
		chosen := gorgonia.NewTensor(g, tensor.Int, 4, gorgonia.WithName("lists"), gorgonia.WithShape(shape...),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(lists))))
		_, err := ops.ListedKeysAttention(q, k, k, chosen, o)
		if err == nil {
			m, _ := ops.NewMachine(g)
			err = m.RunAll()
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
