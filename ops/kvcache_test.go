package ops_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// cachedCase is attention over a sequence that arrives in pieces.
type cachedCase struct {
	batch, heads, kvHeads, d, dv int
	pieces                       []int
	qkv                          bool
	sinks                        bool
	o                            ops.AttentionOptions
	dtype                        tensor.Dtype
	seed                         uint64
}

func drawCachedCase(t *rapid.T) cachedCase {
	size := func(name string, most int) int { return rapid.IntRange(1, most).Draw(t, name) }
	c := cachedCase{
		batch: size("batch", 2), kvHeads: size("kvHeads", 3), d: 2 * size("d/2", 20), dv: size("dv", 40),
		pieces: rapid.SliceOfN(rapid.SampledFrom([]int{1, 1, 1, 2, 5, 17}), 1, 12).Draw(t, "pieces"),
		qkv:    rapid.Bool().Draw(t, "qkv"), sinks: rapid.Bool().Draw(t, "sinks"),
		dtype: rapid.SampledFrom([]tensor.Dtype{tensor.Float32, tensor.Float64}).Draw(t, "dtype"),
		seed:  rapid.Uint64().Draw(t, "seed"),
	}
	c.heads = c.kvHeads * size("group", 3)
	c.o.Causal = kernels.Causal(rapid.IntRange(0, 2).Draw(t, "causal")) // which is not looked at
	c.o.Layout = ops.Layout(rapid.IntRange(0, 1).Draw(t, "layout"))
	c.o.SoftCap = float64(rapid.IntRange(0, 2).Draw(t, "softCap"))
	if rapid.Bool().Draw(t, "window") {
		c.o.Window = &kernels.Window{Left: rapid.IntRange(-1, 12).Draw(t, "left"), Right: rapid.IntRange(-1, 2).Draw(t, "right")}
	}
	if rapid.Bool().Draw(t, "alibi") {
		for range c.heads {
			c.o.ALiBi = append(c.o.ALiBi, rapid.Float64Range(1e-3, 1).Draw(t, "slope"))
		}
	}
	if c.qkv {
		c.o.Layout, c.dv = ops.BSHD, c.d
	}
	return c
}

func (c cachedCase) String() string {
	return fmt.Sprintf("batch=%d heads=%d kvHeads=%d d=%d dv=%d pieces=%v qkv=%t sinks=%t %v seed=%d options=%+v",
		c.batch, c.heads, c.kvHeads, c.d, c.dv, c.pieces, c.qkv, c.sinks, c.dtype, c.seed, c.o)
}

// piece is a graph that takes a number of tokens in each run.
type piece struct {
	inputs []*tensor.Dense // q, k and v, or qkv
	out    *gorgonia.Node
	m      gorgonia.VM
}

func (c cachedCase) piece(t rapid.TB, cache *ops.KVCache, length int, sinks []float64) piece {
	t.Helper()
	g := gorgonia.NewGraph()
	var p piece
	add := func(name string, shape ...int) *gorgonia.Node {
		value := tensor.New(tensor.WithShape(shape...), tensor.Of(c.dtype))
		p.inputs = append(p.inputs, value)
		return input(g, name, value)
	}
	rows := func(name string, heads, d int) *gorgonia.Node {
		if c.o.Layout == ops.BSHD {
			return add(name, c.batch, length, heads, d)
		}
		return add(name, c.batch, heads, length, d)
	}
	o := c.o
	if c.sinks {
		o.Sinks = input(g, "sinks", dense(c.dtype, sinks, c.heads))
	}
	var err error
	if c.qkv {
		qkv := add("qkv", c.batch, length, (c.heads+2*c.kvHeads)*c.d)
		p.out, err = ops.CachedAttentionQKV(qkv, c.heads, c.kvHeads, cache, ops.CachedAttentionOptions{AttentionOptions: o})
	} else {
		p.out, err = ops.CachedAttention(rows("q", c.heads, c.d), rows("k", c.kvHeads, c.d), rows("v", c.kvHeads, c.dv), cache, ops.CachedAttentionOptions{AttentionOptions: o})
	}
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	p.m = gorgonia.NewTapeMachine(g)
	return p
}

// hostFloats is a value of either type as float64s.
func hostFloats(v gorgonia.Value) []float64 {
	if list, ok := v.Data().([]float64); ok {
		return list
	}
	var list []float64
	for _, x := range v.Data().([]float32) {
		list = append(list, float64(x))
	}
	return list
}

// fill copies the rows [from, from+n) of (B, S, columns) matrices into the inputs of a piece.
func (c cachedCase) fill(p piece, from, n int, q, k, v kernels.Tensor) {
	parts := []kernels.Tensor{q, k, v}
	set := func(value *tensor.Dense, i int, x float64) {
		if c.dtype == tensor.Float64 {
			value.Float64s()[i] = x
		} else {
			value.Float32s()[i] = float32(x)
		}
	}
	filled := make([]int, len(p.inputs))
	put := func(input int, part kernels.Tensor) {
		for _, x := range ordered(part) {
			set(p.inputs[input], filled[input], x)
			filled[input]++
		}
	}
	switch {
	case c.qkv:
		for b := range c.batch {
			for i := from; i < from+n; i++ {
				for _, part := range parts {
					put(0, part.Slice(0, b, b+1).Slice(2, i, i+1).Permute(0, 2, 1, 3))
				}
			}
		}
	default:
		for i, part := range parts {
			part = part.Slice(2, from, from+n)
			if c.o.Layout == ops.BSHD {
				part = part.Permute(0, 2, 1, 3)
			}
			put(i, part)
		}
	}
}

// TestCachedAttention checks that a sequence that arrives in pieces, through as many graphs as
// there are lengths of pieces, gives what the reference gives for the whole.
func TestCachedAttention(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCachedCase(t)
		total := 0
		for _, n := range c.pieces {
			total += n
		}
		cache, err := ops.NewKVCache(ops.KVCacheConfig{DType: c.dtype, Batch: c.batch, Heads: c.kvHeads, HeadDim: c.d, ValueDim: c.dv, Capacity: total + 2})
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(c.seed, 1))
		random := func(heads, d int) kernels.Tensor {
			return kernels.Of(normal(r, c.batch*heads*total*d), c.batch, heads, total, d)
		}
		whole := kernels.Attention{
			Q: random(c.heads, c.d), K: random(c.kvHeads, c.d), V: random(c.kvHeads, c.dv),
			Causal: kernels.CausalBottomRight, Window: c.o.Window, SoftCap: c.o.SoftCap, ALiBi: c.o.ALiBi,
		}
		sinks := normal(r, c.heads)
		if c.sinks {
			whole.Sinks = kernels.Of(sinks, c.heads)
		}
		o, _ := reference.Attention(&whole)
		want := kernels.Of(o, c.batch, c.heads, total, c.dv)

		graphs := map[int]piece{}
		for range 2 { // the second time in the memory of the first
			cache.Reset()
			for _, n := range c.pieces {
				p, ok := graphs[n]
				if !ok {
					p = c.piece(t, cache, n, sinks)
					graphs[n] = p
				}
				from := cache.Len()
				c.fill(p, from, n, whole.Q, whole.K, whole.V)
				if err := p.m.RunAll(); err != nil {
					t.Fatalf("%v: %v", c, err)
				}
				p.m.Reset()
				if cache.Len() != from+n {
					t.Fatalf("%v: the cache holds %d tokens after %d and %d", c, cache.Len(), from, n)
				}
				expected := want.Slice(2, from, from+n)
				if c.o.Layout == ops.BSHD {
					expected = expected.Permute(0, 2, 1, 3)
				}
				bound := 1e-12
				if c.dtype == tensor.Float32 {
					bound = 1e-5
				}
				list := ordered(expected)
				for i, got := range hostFloats(p.out.Value()) {
					if diff := math.Abs(got - list[i]); !(diff <= bound*(1+math.Abs(list[i]))) {
						t.Fatalf("%v: the error at %d of the rows from %d is %.3g", c, i, from, diff)
					}
				}
			}
		}
	})
}

// Rows are turned as those that follow what each item of the cache holds: the same as turning them
// beforehand by positions.
func TestRoPEAfterCache(t *testing.T) {
	const batch, heads, kvHeads, d, capacity = 2, 4, 2, 8, 20
	type side struct {
		cache        *ops.KVCache
		x, positions *tensor.Dense
		out          *gorgonia.Node
		machine      gorgonia.VM
	}
	make := func(length int, turnsItself bool, cache *ops.KVCache) side {
		g := gorgonia.NewGraph()
		s := side{cache: cache, x: tensor.New(tensor.WithShape(batch, length, (heads+2*kvHeads)*d), tensor.Of(tensor.Float64)),
			positions: tensor.New(tensor.WithShape(batch, length), tensor.Of(tensor.Int))}
		x, o, rope := input(g, "x", s.x), ops.CachedAttentionOptions{}, ops.RoPEOptions{Offset: 2, RotaryDim: 6}
		if turnsItself {
			o.RoPE = &rope
		} else {
			rope.Positions = input(g, "positions", s.positions)
			x = gorgonia.Must(ops.RoPEQKV(x, heads, kvHeads, rope))
		}
		s.out = gorgonia.Must(ops.CachedAttentionQKV(x, heads, kvHeads, cache, o))
		s.machine = gorgonia.NewTapeMachine(g)
		return s
	}
	var caches [2]*ops.KVCache
	for i := range caches {
		var err error
		if caches[i], err = ops.NewKVCache(ops.KVCacheConfig{DType: tensor.Float64, Batch: batch, Heads: kvHeads, HeadDim: d, Capacity: capacity}); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for run, length := range []int{3, 1, 2, 1, 1} {
		var got [2][]float64
		values, taking := normal(random, batch*length*(heads+2*kvHeads)*d), []bool{true, run%2 == 0}
		for i, cache := range caches {
			s := make(length, i == 0, cache)
			held := cache.Lengths()
			for j := range s.positions.Ints() {
				s.positions.Ints()[j] = held[j/length] + j%length
			}
			copy(s.x.Float64s(), values)
			if err := errors.Join(cache.Only(taking), s.machine.RunAll()); err != nil {
				t.Fatal(err)
			}
			for item, takes := range taking {
				if n := length * heads * d; takes {
					got[i] = append(got[i], s.out.Value().Data().([]float64)[item*n:(item+1)*n]...)
				}
			}
		}
		for i, want := range got[1] {
			if !(math.Abs(got[0][i]-want) <= 1e-14) {
				t.Fatalf("run %d: element %d is %v, want %v", run, i, got[0][i], want)
			}
		}
	}
}

func TestKVCacheErrors(t *testing.T) {
	cache := func(c ops.KVCacheConfig) error { _, err := ops.NewKVCache(c); return err }
	held, err := ops.NewKVCache(ops.KVCacheConfig{Batch: 2, Heads: 2, HeadDim: 8, ValueDim: 3, Capacity: 6})
	if err != nil {
		t.Fatal(err)
	}
	g := gorgonia.NewGraph()
	names := 0
	rows := func(dtype tensor.Dtype, shape ...int) *gorgonia.Node {
		names++
		return node(g, fmt.Sprint("n", names), dtype, shape...)
	}
	f := tensor.Float32
	turned := func(q, k, v []int, o ops.CachedAttentionOptions) error {
		_, err := ops.CachedAttention(rows(f, q...), rows(f, k...), rows(f, v...), held, o)
		return err
	}
	attend := func(q, k, v []int, o ops.AttentionOptions) error {
		return turned(q, k, v, ops.CachedAttentionOptions{AttentionOptions: o})
	}
	shape := func(shape ...int) []int { return shape }
	q, k, v := shape(2, 4, 5, 8), shape(2, 2, 5, 8), shape(2, 2, 5, 3)
	lens := node(g, "lens", tensor.Int, 3)
	of := func(dtype tensor.Dtype) error {
		_, err := ops.CachedAttention(rows(dtype, q...), rows(dtype, k...), rows(dtype, v...), held, ops.CachedAttentionOptions{})
		return err
	}
	without := func() error {
		_, err := ops.CachedAttention(rows(f, q...), rows(f, k...), rows(f, v...), nil, ops.CachedAttentionOptions{})
		return err
	}
	qkv := func(heads, columns int) error {
		_, err := ops.CachedAttentionQKV(rows(f, 2, 5, columns), heads, 2, held, ops.CachedAttentionOptions{})
		return err
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{cache(ops.KVCacheConfig{DType: tensor.Int}), "KVCache: dtype is int, it needs to be float32, float64, BFloat16 or Float16"},
		{cache(ops.KVCacheConfig{Batch: -1}), "KVCache: batch is -1, it needs to be at least 1"},
		{cache(ops.KVCacheConfig{}), "KVCache: heads is 0, it needs to be at least 1"},
		{cache(ops.KVCacheConfig{Heads: 1}), "KVCache: head dim is 0, it needs to be at least 1"},
		{cache(ops.KVCacheConfig{Heads: 1, HeadDim: 1, ValueDim: -2}), "KVCache: value dim is -2, it needs to be at least 1"},
		{cache(ops.KVCacheConfig{Heads: 1, HeadDim: 1, ValueDim: 2, Within: true, Capacity: 1}),
			"KVCache: value dim is 2, values within keys need at most the head dim of 1"},
		{cache(ops.KVCacheConfig{Heads: 1, HeadDim: 1}), "KVCache: capacity is 0, it needs to be at least 1"},
		{attend(q, k, v, ops.AttentionOptions{}), "<nil>"},
		{without(), "CachedAttention: cache is nil, it needs to be a KVCache"},
		{of(tensor.Float64), "CachedAttention: k is float64, the cache holds float32"},
		{attend(shape(3, 4, 5, 8), shape(3, 2, 5, 8), shape(3, 2, 5, 3), ops.AttentionOptions{}), "CachedAttention: k has a batch of 3, it needs at most the cache's 2"},
		{attend(q, shape(2, 4, 5, 8), shape(2, 4, 5, 3), ops.AttentionOptions{}), "CachedAttention: k has 4 heads of size 8, the cache holds 2 of size 8"},
		{attend(q, k, shape(2, 2, 5, 4), ops.AttentionOptions{}), "CachedAttention: v has a head size of 4, the cache holds 3"},
		{attend(shape(2, 4, 7, 8), shape(2, 2, 7, 8), shape(2, 2, 7, 3), ops.AttentionOptions{}), "CachedAttention: k has 7 rows, it needs at most the cache's capacity of 6"},
		{attend(shape(2, 4, 4, 8), k, v, ops.AttentionOptions{}), "CachedAttention: q has 4 rows, k has 5: each token needs one of both"},
		{attend(q, k, shape(2, 2, 4, 3), ops.AttentionOptions{}), "CachedAttention: v has 4 rows, it needs k's 5"},
		{attend(q, k, v, ops.AttentionOptions{Layout: 7}), "CachedAttention: layout is 7, it needs to be BHSD or BSHD"},
		{attend(q, k, v, ops.AttentionOptions{Bias: lens}), "CachedAttention: bias is given, it needs to be left out: the number of keys grows"},
		{turned(q, k, v, ops.CachedAttentionOptions{RoPE: &ops.RoPEOptions{Positions: lens}}), "CachedAttention: RoPE has positions or ranks, it needs neither: rows are turned by their place in the cache"},
		{turned(q, k, v, ops.CachedAttentionOptions{RoPE: &ops.RoPEOptions{RotaryDim: 9}}), "CachedAttention: rotary dim is 9, it needs to be from 0 to q's head size of 8"},
		{attend(q, k, v, ops.AttentionOptions{Lengths: ops.Lengths{QLens: lens}}), "CachedAttention: qLens or kvLens is given, it does not take packed sequences"},
		{attend(q, k, v, ops.AttentionOptions{Dropout: ops.Drop{P: 0.1}}), "CachedAttention: dropout is 0.1, it needs to be 0: a cache is for evaluation"},
		{attend(q, k, v, ops.AttentionOptions{SoftCap: -1}), "CachedAttention: soft cap is -1, it needs to be positive, or 0 for none"},
		{qkv(0, 64), "CachedAttentionQKV: heads is 0 and kvHeads is 2, each needs to be from 1 to 1048576"},
		{qkv(4, 63), "CachedAttentionQKV: qkv has 63 columns, they need to be a multiple of heads + 2·kvHeads = 8"},
		{qkv(4, 64), "CachedAttentionQKV: v has a head size of 8, the cache holds 3"},
	} {
		if fmt.Sprint(c.err) != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}

// TestFullKVCache checks that a run that does not fit says so and adds nothing, and that a cache
// can be used again.
func TestFullKVCache(t *testing.T) {
	c := cachedCase{batch: 1, heads: 2, kvHeads: 1, d: 4, dv: 4, dtype: tensor.Float32}
	cache, err := ops.NewKVCache(ops.KVCacheConfig{Heads: 1, HeadDim: 4, Capacity: 7})
	if err != nil {
		t.Fatal(err)
	}
	p := c.piece(t, cache, 3, nil)
	for round := range 2 {
		for range 2 {
			if err := p.m.RunAll(); err != nil {
				t.Fatal(err)
			}
			p.m.Reset()
		}
		err := p.m.RunAll()
		if want := "CachedAttention: the cache holds 6 tokens of 7, 3 more do not fit"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("round %d: got  %v\nwant %s", round, err, want)
		}
		p.m.Reset()
		if cache.Len() != 6 || cache.Capacity() != 7 {
			t.Errorf("round %d: the cache holds %d of %d, want 6 of 7", round, cache.Len(), cache.Capacity())
		}
		cache.Reset()
	}
}

func TestCachedAttentionHasNoGradient(t *testing.T) {
	cache, err := ops.NewKVCache(ops.KVCacheConfig{Heads: 1, HeadDim: 4, Capacity: 7})
	if err != nil {
		t.Fatal(err)
	}
	g := gorgonia.NewGraph()
	q := node(g, "q", tensor.Float32, 1, 1, 3, 4)
	out := gorgonia.Must(ops.CachedAttention(q, q, q, cache, ops.CachedAttentionOptions{}))
	loss := gorgonia.Must(ops.Sum(out))
	if err := gorgonia.Let(q, tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(1, 1, 3, 4))); err != nil {
		t.Fatal(err)
	}
	if err := gorgonia.NewLispMachine(g).RunAll(); err == nil || !strings.Contains(err.Error(), "CachedAttention: there is no gradient") {
		t.Errorf("a lispMachine gives %v, want an error", err)
	}
	if _, err := gorgonia.Grad(loss, q); err == nil {
		t.Error("Grad gives a gradient")
	}
}

// cachedStep is a graph that adds one token a batch item, with its query.
type cachedStep struct {
	q, k, v *tensor.Dense
	out     *gorgonia.Node
	m       gorgonia.VM
}

// newCachedStep attends to values of their own, or to the keys as values.
func newCachedStep(t *testing.T, cache *ops.KVCache, batch, heads, d int, within bool) cachedStep {
	t.Helper()
	g := gorgonia.NewGraph()
	of := func() *tensor.Dense {
		return tensor.New(tensor.WithShape(batch, heads, 1, d), tensor.Of(tensor.Float64))
	}
	s := cachedStep{q: of(), k: of(), v: of()}
	if within {
		s.v = s.k
	}
	var err error
	s.out, err = ops.CachedAttention(input(g, "q", s.q), input(g, "k", s.k), input(g, "v", s.v), cache, ops.CachedAttentionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.m = gorgonia.NewTapeMachine(g)
	return s
}

// run adds a token made from a seed to each batch item, and gives what attention says of it.
func (s cachedStep) run(t *testing.T, seeds ...uint64) []float64 {
	t.Helper()
	for i, value := range []*tensor.Dense{s.q, s.k, s.v} {
		data := value.Float64s()
		per := len(data) / len(seeds)
		for item, seed := range seeds {
			copy(data[item*per:], normal(rand.New(rand.NewPCG(seed, uint64(i))), per))
		}
	}
	if err := s.m.RunAll(); err != nil {
		t.Fatal(err)
	}
	s.m.Reset()
	return float64s(t, s.out.Value())
}

// A cache that goes back to a prefix, one that is forked, and one that is set to what another held
// go on exactly as one that has seen just these tokens.
func TestKVCacheGoesOnFromAPrefix(t *testing.T) {
	t.Run("keys and values", func(t *testing.T) { goesOnFromAPrefix(t, false) })
	t.Run("values within keys", func(t *testing.T) { goesOnFromAPrefix(t, true) })
}

func goesOnFromAPrefix(t *testing.T, within bool) {
	t.Helper()
	const heads, d = 2, 4
	newCache := func(batch int) *ops.KVCache {
		cache, err := ops.NewKVCache(ops.KVCacheConfig{DType: tensor.Float64, Batch: batch, Heads: heads, HeadDim: d, Within: within, Capacity: 8})
		if err != nil {
			t.Fatal(err)
		}
		return cache
	}
	after := func(cache *ops.KVCache, seeds ...uint64) (out []float64) {
		step := newCachedStep(t, cache, 1, heads, d, within)
		for _, seed := range seeds {
			out = step.run(t, seed)
		}
		return out
	}
	same := func(what string, got, want []float64) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	first, second := after(newCache(1), 1, 2, 3), after(newCache(1), 1, 2, 9)

	cache := newCache(1)
	same("a prefix", after(cache, 1, 2, 3), first)
	if err := cache.Truncate(2); err != nil || cache.Len() != 2 {
		t.Fatal(err, cache.Len())
	}
	k, v, err := cache.Read()
	if err != nil || !slices.Equal(k.Shape(), []int{1, heads, 2, d}) {
		t.Fatal(err, k)
	}
	fork, err := cache.Fork(2)
	if err != nil {
		t.Fatal(err)
	}
	same("another end", after(cache, 9), second)
	whole, err := cache.Fork(1)
	if err != nil {
		t.Fatal(err)
	}
	same("a fork of all", after(whole, 5), after(newCache(1), 1, 2, 9, 5))
	same("two ends at once", newCachedStep(t, fork, 2, heads, d, within).run(t, 3, 9), slices.Concat(first, second))

	other := newCache(1)
	if err := other.Set(k, v); err != nil || other.Len() != 2 {
		t.Fatal(err)
	}
	same("what was read", after(other, 3), first)
	if again, _, err := other.Read(); err != nil || !slices.Equal(again.Float64s()[:2*d], k.Float64s()[:2*d]) {
		t.Errorf("the cache reads as %v, it was set to %v: %v", again, k, err)
	}
}

// Items that rest keep what they hold, and items of different lengths cannot be read as one.
func TestKVCacheItems(t *testing.T) {
	const heads, d = 2, 4
	cache, err := ops.NewKVCache(ops.KVCacheConfig{DType: tensor.Float64, Batch: 2, Heads: heads, HeadDim: d, Capacity: 3})
	if err != nil {
		t.Fatal(err)
	}
	step := newCachedStep(t, cache, 2, heads, d, false)
	lengths := func(want ...int) {
		t.Helper()
		if !slices.Equal(cache.Lengths(), want) {
			t.Fatalf("the items hold %v tokens, want %v", cache.Lengths(), want)
		}
	}
	step.run(t, 1, 2)
	if err := cache.Only([]bool{false, true}); err != nil {
		t.Fatal(err)
	}
	step.run(t, 3, 4)
	step.run(t, 5, 6)
	lengths(1, 3)
	_, _, uneven := cache.Read()
	for _, c := range []struct {
		err  error
		want string
	}{
		{uneven, "KVCache: the items hold [1 3] tokens, to be read they need to hold equally many"},
		{cache.Only([]bool{true}), "KVCache: there are 1 items, it needs one for each of the batch of 2"},
		{cache.TruncateItem(2, 0), "KVCache: item is 2, it needs to be from 0 to 1"},
		{cache.TruncateItem(0, 2), "KVCache: 2 tokens of item 0 are to stay, it needs to be from 0 to the 1 that it holds"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
	if err := cache.TruncateItem(1, 1); err != nil {
		t.Fatal(err)
	}
	if err := cache.Only(nil); err != nil {
		t.Fatal(err)
	}
	lengths(1, 1)
	if k, _, err := cache.Read(); err != nil || !slices.Equal(k.Shape(), []int{2, heads, 1, d}) {
		t.Errorf("the cache reads as %v: %v", k, err)
	}
	step.run(t, 7, 8)
	lengths(2, 2)
}

func TestKVCacheContentErrors(t *testing.T) {
	cache, err := ops.NewKVCache(ops.KVCacheConfig{Batch: 2, Heads: 3, HeadDim: 4, ValueDim: 5, Capacity: 6})
	if err != nil {
		t.Fatal(err)
	}
	of := func(dtype tensor.Dtype, shape ...int) *tensor.Dense {
		return tensor.New(tensor.Of(dtype), tensor.WithShape(shape...))
	}
	f := tensor.Float32
	_, _, readErr := cache.Read()
	_, forkErr := cache.Fork(3)
	for _, c := range []struct {
		err  error
		want string
	}{
		{readErr, "KVCache: there is nothing to read, the cache is empty"},
		{forkErr, "KVCache: a batch of 3 is to go on from one of 2, it needs to be the same, or from one of 1"},
		{cache.Truncate(1), "KVCache: 1 tokens are to stay, it needs to be from 0 to the 0 that it holds"},
		{cache.Set(of(f, 2, 3, 7, 4), of(f, 2, 3, 7, 5)), "KVCache: k has shape [2 3 7 4], it needs (2, 3, up to 6 tokens, the same of k and v, 4)"},
		{cache.Set(of(f, 2, 3, 6, 4), of(f, 2, 3, 5, 5)), "KVCache: v has shape [2 3 5 5], it needs (2, 3, up to 6 tokens, the same of k and v, 5)"},
		{cache.Set(of(tensor.Float64, 2, 3, 6, 4), of(f, 2, 3, 6, 5)), "KVCache: k is float64, the cache holds float32"},
		{cache.Set(nil, of(f, 2, 3, 6, 5)), "KVCache: k is nil, it needs to be a value"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}

// Graphs of fewer items than a cache add to the items that they are told, and one item goes on from
// the tokens of another, exactly as in caches of their own.
func TestKVCacheOfSeveralItems(t *testing.T) {
	const heads, d = 2, 4
	newCache := func(batch int) *ops.KVCache {
		cache, err := ops.NewKVCache(ops.KVCacheConfig{DType: tensor.Float64, Batch: batch, Heads: heads, HeadDim: d, Capacity: 8})
		if err != nil {
			t.Fatal(err)
		}
		return cache
	}
	cache := newCache(3)
	one, two := newCachedStep(t, cache, 1, heads, d, false), newCachedStep(t, cache, 2, heads, d, false)
	at := func(item int) {
		t.Helper()
		if err := cache.From(item); err != nil {
			t.Fatal(err)
		}
	}
	alone := func(seeds ...uint64) (out []float64) {
		step := newCachedStep(t, newCache(1), 1, heads, d, false)
		for _, seed := range seeds {
			out = step.run(t, seed)
		}
		return out
	}
	check := func(what string, got []float64, want ...[]float64) {
		t.Helper()
		if !slices.Equal(got, slices.Concat(want...)) {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	at(2)
	check("the last item alone", one.run(t, 1), alone(1))
	at(1)
	check("the last two", two.run(t, 7, 2), alone(7), alone(1, 2))
	if err := cache.CopyItem(0, 2, 1); err != nil {
		t.Fatal(err)
	}
	at(0)
	check("the first two, the first of which goes on from the last", two.run(t, 5, 8), alone(1, 5), alone(7, 8))
	if got := cache.Lengths(); !slices.Equal(got, []int{2, 2, 2}) {
		t.Errorf("the items hold %v tokens, want [2 2 2]", got)
	}
	at(2)
	two.q.Zero()
	err := two.m.RunAll()
	two.m.Reset()
	for _, c := range []struct {
		err  error
		want string
	}{
		{err, "CachedAttention: the run is of 2 items from item 2 on, the cache has 3"},
		{cache.From(3), "KVCache: item is 3, it needs to be from 0 to 2"},
		{cache.CopyItem(3, 0, 1), "KVCache: item is 3, it needs to be from 0 to 2"},
		{cache.CopyItem(0, -1, 1), "KVCache: item is -1, it needs to be from 0 to 2"},
		{cache.CopyItem(0, 1, 3), "KVCache: 3 tokens of item 1 are to be copied, it needs to be from 0 to the 2 that it holds"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}
