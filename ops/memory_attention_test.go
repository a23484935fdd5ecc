package ops_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// ramp is an array of that shape whose elements differ.
func ramp(shape ...int) *tensor.Dense {
	v := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
	for i := range v.Float32s() {
		v.Float32s()[i] = float32((i*37)%23)/10 - 1
	}
	return v
}

// Attention to a memory is attention to the keys and values that were set, of each item its own.
func TestMemoryAttention(t *testing.T) {
	const heads, dim, queries = 2, 4, 3
	memory, err := ops.NewKVCache(ops.KVCacheConfig{Batch: 2, Heads: heads, HeadDim: dim, Capacity: 6})
	if err != nil {
		t.Fatal(err)
	}
	q := ramp(2, heads, queries, dim)
	var want []float32
	for item, length := range []int{5, 2} {
		k, v := ramp(1, heads, length, dim), ramp(1, heads, length, dim)
		for i := range v.Float32s() {
			v.Float32s()[i] += float32(item)
		}
		for range 2 { // the second takes the place of the first
			if err := memory.SetItem(item, k, v); err != nil {
				t.Fatal(err)
			}
		}
		g := gorgonia.NewGraph()
		one := tensor.New(tensor.WithShape(1, heads, queries, dim), tensor.WithBacking(q.Float32s()[item*heads*queries*dim:][:heads*queries*dim]))
		in := func(name string, v *tensor.Dense) *gorgonia.Node {
			return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(v.Shape()...), gorgonia.WithName(name), gorgonia.WithValue(v))
		}
		out, err := ops.FlashAttention(in("q", one), in("k", k), in("v", v), ops.AttentionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, evaluated(t, g, out)...)
	}
	g := gorgonia.NewGraph()
	node := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(q.Shape()...), gorgonia.WithName("q"), gorgonia.WithValue(q))
	out, err := ops.MemoryAttention(node, memory, ops.AttentionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := evaluated(t, g, out)
	for i := range want {
		if d := have[i] - want[i]; d > 1e-6 || d < -1e-6 {
			t.Errorf("element %d is %v, want %v", i, have[i], want[i])
		}
	}
}

func evaluated(t *testing.T, g *gorgonia.ExprGraph, out *gorgonia.Node) []float32 {
	t.Helper()
	machine := gorgonia.NewTapeMachine(g)
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	return out.Value().Data().([]float32)
}

// What does not fit a memory is an error that says why.
func TestMemoryAttentionErrors(t *testing.T) {
	memory, err := ops.NewKVCache(ops.KVCacheConfig{Batch: 1, Heads: 2, HeadDim: 4, Capacity: 6})
	if err != nil {
		t.Fatal(err)
	}
	g := gorgonia.NewGraph()
	q := func(shape ...int) *gorgonia.Node {
		v := ramp(shape...)
		return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(shape...), gorgonia.WithName("q"), gorgonia.WithValue(v))
	}
	for want, shape := range map[string][]int{"q has a batch of 2": {2, 2, 3, 4}, "q has 3 heads of size 4": {1, 3, 3, 4}} {
		if _, err := ops.MemoryAttention(q(shape...), memory, ops.AttentionOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	if _, err := ops.MemoryAttention(q(1, 2, 3, 4), nil, ops.AttentionOptions{}); err == nil || !strings.Contains(err.Error(), "cache is nil") {
		t.Errorf("without a memory: %v", err)
	}
	if err := memory.SetItem(1, ramp(1, 2, 3, 4), ramp(1, 2, 3, 4)); err == nil || !strings.Contains(err.Error(), "item is 1") {
		t.Errorf("an item that there is not: %v", err)
	}
	if err := memory.SetItem(0, ramp(1, 2, 7, 4), ramp(1, 2, 7, 4)); err == nil || !strings.Contains(err.Error(), "up to 6 tokens") {
		t.Errorf("more than fits: %v", err)
	}
	out, err := ops.MemoryAttention(q(1, 2, 3, 4), memory, ops.AttentionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(out.Graph())
	defer machine.Close()
	if err := machine.RunAll(); err == nil || !strings.Contains(err.Error(), "the memory is empty") {
		t.Errorf("an empty memory: %v", err)
	}
}
