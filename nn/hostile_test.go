package nn_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/hostile"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// constructor is a function that makes a layer in a scope, and a config with which it works.
type constructor struct {
	makes  any
	config any
}

// constructors has all of the package but those in madeOtherwise, each with a config of its own.
func constructors() map[string]constructor {
	return map[string]constructor{
		"NewLinear":              {nn.NewLinear, nn.LinearConfig{In: 4, Out: 6, Activation: kernels.SiLU}},
		"NewConv":                {nn.NewConv, nn.ConvConfig{In: 4, Out: 6, Windows: []ops.Sliding{{Size: 3, Padding: 1}}}},
		"NewEmbedding":           {nn.NewEmbedding, nn.EmbeddingConfig{Vocab: 5, Dim: 4}},
		"NewPositionalEmbedding": {nn.NewPositionalEmbedding, nn.PositionalEmbeddingConfig{Context: 8, Dim: 4, Kind: nn.SinusoidalPositions}},
		"NewPatchEmbedding":      {nn.NewPatchEmbedding, nn.PatchEmbeddingConfig{Channels: 1, Height: 4, Width: 4, Patch: 2, Dim: 4, ClassToken: true}},
		"NewNorm":                {nn.NewNorm, nn.NormConfig{Dim: 4, RMS: true, PlusOne: true}},
		"NewMLP":                 {nn.NewMLP, nn.MLPConfig{Dim: 4, Hidden: 8, Gated: true}},
		"NewMultiHeadAttention": {nn.NewMultiHeadAttention, nn.MultiHeadAttentionConfig{
			Dim: 4, Heads: 2, KVHeads: 1, RoPE: &ops.RoPEOptions{}, Options: ops.AttentionOptions{Causal: kernels.CausalBottomRight, Window: &kernels.Window{Left: 3, Right: 1}, Dropout: ops.Drop{P: 0.1}, ALiBi: []float64{1, 0.5}}}},
		"NewBlock": {nn.NewBlock, nn.BlockConfig{
			Attention: nn.MultiHeadAttentionConfig{Dim: 4, Heads: 2, Options: ops.AttentionOptions{Causal: kernels.CausalBottomRight}}, Norms: nn.SandwichNorm, Dropout: 0.1}},
		"NewStack":      {nn.NewStack, nn.StackConfig{Layers: 2, Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 4, Heads: 2}}}},
		"NewClassifier": {nn.NewClassifier, nn.ClassifierConfig{Dim: 4, Classes: 3, Hidden: 5, Dropout: 0.1}},
		"NewEncoder": {nn.NewEncoder, nn.EncoderConfig{
			Layers: 1, Text: &nn.TextConfig{Vocab: 5, Context: 8, Types: 2, Dim: 3, FirstPosition: 1}, EmbeddingNorm: true, Distances: &nn.DistanceConfig{Buckets: 8, Farthest: 9},
			Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 4, Heads: 2}},
			Heads: nn.EncoderHeads{Pooler: true, Classes: 2, TokenClasses: 2, Masked: true}}},
		"NewEncoderDecoder": {nn.NewEncoderDecoder, nn.EncoderDecoderConfig{Shared: true,
			Encoder: nn.EncoderConfig{Layers: 1, Text: &nn.TextConfig{Vocab: 5, Context: 8, NoPositions: true}, Distances: &nn.DistanceConfig{Buckets: 8, Farthest: 9},
				Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 4, Heads: 2}}},
			Decoder: nn.LanguageModelConfig{Vocab: 5, Layers: 1, Distances: &nn.DistanceConfig{Buckets: 8, Farthest: 9},
				Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 4, Heads: 2, Options: ops.AttentionOptions{Causal: kernels.CausalBottomRight}}}}}},
		"NewContrastive": {nn.NewContrastive, nn.ContrastiveConfig{Sigmoid: true,
			Text: nn.TowerConfig{Dim: 3, End: new(2), Encoder: nn.EncoderConfig{Layers: 1, Text: &nn.TextConfig{Vocab: 5, Context: 8},
				Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 4, Heads: 2}}}},
			Image: nn.TowerConfig{Dim: 3, Probe: true, Encoder: nn.EncoderConfig{Layers: 1, Grid: 9,
				Patches: &nn.PatchEmbeddingConfig{Channels: 1, Height: 4, Width: 4, Patch: 2, ClassToken: true, Registers: 1, MaskToken: true, Sizes: nn.AnySize},
				Block:   nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 4, Heads: 1}, Scales: true}}}}},
		"NewBERT":  {nn.NewBERT, nn.BERTConfig{Vocab: 5, Context: 8, Layers: 1, Heads: 2, Dim: 4, Types: 2, Pooler: true, Masked: true, Classes: 2}},
		"NewGPT":   {nn.NewGPT, nn.GPTConfig{Vocab: 5, Context: 8, Layers: 1, Heads: 2, Dim: 4, Dropout: 0.1}},
		"NewLlama": {nn.NewLlama, nn.LlamaConfig{Vocab: 5, Context: 8, Layers: 1, Heads: 2, KVHeads: 1, Dim: 4, QKNorm: true}},
		"NewExperts": {nn.NewExperts, nn.ExpertsConfig{Dim: 4, Hidden: 6, Count: 3, Router: kernels.RouterOptions{Chosen: 2},
			Shared: nn.SharedExpert{Hidden: 3, Gated: true}}},
		"NewViT": {nn.NewViT, nn.ViTConfig{
			Channels: 1, Height: 4, Width: 4, Patch: 2, Layers: 1, Heads: 2, Dim: 4, Pooler: true, Classes: 2}},
		"NewLanguageModel": {nn.NewLanguageModel, nn.LanguageModelConfig{Vocab: 5, Context: 8, Layers: 1, LogitSoftCap: 3, EmbeddingScale: 2, Positions: true,
			Block: nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 4, Heads: 2, Options: ops.AttentionOptions{Causal: kernels.CausalTopLeft}}}}},
	}
}

// madeOtherwise are the constructors that take something else than a scope and a config, with tests
// of their own.
var madeOtherwise = []string{"NewParameters", "NewScope", "NewDropout", "NewDecoder", "NewBatchDecoder"}

// names lists the constructors, and fails where one is missing here.
func names(t testing.TB) []string {
	t.Helper()
	declared, err := hostile.Constructors(".")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, name := range declared {
		if slices.Contains(madeOtherwise, name) {
			continue
		}
		if constructors()[name].makes == nil {
			t.Errorf("%s is not tried with hostile configs, it needs a place among the constructors here", name)
			continue
		}
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// inputs are nodes of a graph that layers may take.
func inputs(g *gorgonia.ExprGraph) []*gorgonia.Node {
	ids := tensor.New(tensor.WithShape(1, 3), tensor.WithBacking([]int{1, 2, 0}))
	return []*gorgonia.Node{
		gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(1, 3, 4), gorgonia.WithName("x")),
		gorgonia.NewTensor(g, tensor.Int, 2, gorgonia.WithShape(1, 3), gorgonia.WithName("ids"), gorgonia.WithValue(ids)),
		gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(2, 1, 4, 4), gorgonia.WithName("images")),
	}
}

// callWith calls all methods of a layer with zero tensors, with those of another graph, after an
// error, and with each kind of tensor.
func callWith(layer any, g *gorgonia.ExprGraph) (panics []string) {
	panics = hostile.CallAll(layer)
	tensors := []nn.Tensor{{}, nn.NewScope(g, nil).Fail(errors.New("an error")), nn.NewScope(nil, nil).Tensor(nil, nil), nn.NewScope(g, nil).Tensor(&gorgonia.Node{}, nil)}
	for _, n := range inputs(g) {
		tensors = append(tensors, nn.NewScope(g, nil).Tensor(n, nil))
	}
	for _, in := range tensors {
		cache, err := ops.NewKVCache(ops.KVCacheConfig{Heads: 1, HeadDim: 2, Capacity: 4})
		if err != nil {
			return []string{err.Error()}
		}
		panics = append(panics, hostile.CallAll(layer, in, nn.AttentionInputs{Context: in}, nn.BlockInputs{Context: in}, nn.EncoderInputs{KeyMask: in, Hidden: in}, nn.DecodeInputs{Context: in}, nn.Packing{Ends: in, Positions: in},
			cache, []*ops.KVCache{cache}, []int{1}, in.Node())...)
	}
	return panics
}

// Layers that no constructor has made give errors.
func TestZeroLayers(t *testing.T) {
	for _, name := range names(t) {
		layer := reflect.TypeOf(constructors()[name].makes).Out(0)
		for _, panicked := range callWith(reflect.New(layer.Elem()).Interface(), gorgonia.NewGraph()) {
			t.Error(panicked)
		}
	}
	for _, value := range []any{
		&nn.Parameters{}, nn.NewParameters(1), &nn.Decoder{}, &nn.BatchDecoder{}, nn.LoRA{}, nn.YaRN{}, nn.Llama3RoPE{}, &nn.Dropout{}, (*nn.Scope)(nil),
	} {
		for _, panicked := range callWith(value, gorgonia.NewGraph()) {
			t.Error(panicked)
		}
	}
	zero := &nn.Parameters{}
	s := nn.NewScope(gorgonia.NewGraph(), zero)
	if nn.NewLinear(s, nn.LinearConfig{In: 2, Out: 3}); s.Err() != nil || len(zero.Names()) != 2 {
		t.Errorf("a zero Parameters has %v, error %v", zero.Names(), s.Err())
	}
}

// Methods of scopes and tensors give errors, and no panics.
func TestHostileTensors(t *testing.T) {
	slow.Race(t)
	for _, number := range []int{0, 1, -1, 3, 1 << 40, -1 << 40} {
		g := gorgonia.NewGraph()
		for i, n := range append(inputs(g), nil) {
			for _, dtype := range []tensor.Dtype{{}, tensor.Float64, ops.BFloat16, tensor.Int} {
				x := nn.NewScope(g, nil).Tensor(n, nil)
				for _, other := range append(inputs(gorgonia.NewGraph()), n, nil) {
					y := x
					if other != n {
						y = on(other)
					}
					arguments := []any{y, number, []int{number}, 0.5, dtype, ops.MatMulOptions{TransposeA: number == 1},
						nn.BinaryCrossEntropyOptions{PositiveWeights: []float64{float64(number)}}, fmt.Sprint("name", i), any(y)}
					for _, value := range []any{x, nn.Tensor{}, nn.NewScope(g, nil), nn.NewScope(nil, nil), (*nn.Scope)(nil)} {
						for _, panicked := range hostile.CallAll(value, arguments...) {
							t.Error(panicked)
						}
					}
				}
			}
		}
	}
}

// FuzzConstructors makes layers of configs of which some fields were changed, and calls what it
// got. Nothing panics.
func FuzzConstructors(f *testing.F) {
	random, all := rand.New(rand.NewPCG(7, 8)), names(f)
	for i := range all {
		f.Add(uint8(i), []byte{}) // works as it is
		for range 24 {
			data := make([]byte, 2+random.IntN(12))
			for k := range data {
				data[k] = byte(random.Uint32())
			}
			f.Add(uint8(i), data)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		name := all[int(which)%len(all)]
		if err := constructChanged(name, data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// constructChanged makes a layer of a changed config.
func constructChanged(name string, data []byte) (err error) {
	b, works := hostile.Bytes(data), len(data) == 0
	constructor := constructors()[name]
	config := reflect.New(reflect.TypeOf(constructor.config))
	config.Elem().Set(reflect.ValueOf(constructor.config))
	own := map[reflect.Type]func(reflect.Value){
		// What is neither small nor more than any memory holds would only take long.
		reflect.TypeFor[int](): func(v reflect.Value) {
			v.SetInt(int64([]int{0, 1, -1, 2, 3, 4, 6, 8, 12, 24, -7, 1 << 40, 1 << 61, 1<<63 - 1, -1 << 63, (1<<63 - 1) / 2}[b.Intn(16)]))
		},
		reflect.TypeFor[tensor.Dtype](): func(v reflect.Value) {
			v.Set(reflect.ValueOf([]tensor.Dtype{{}, tensor.Float32, tensor.Float64, tensor.Int, tensor.String, ops.BFloat16, ops.Float16}[b.Intn(7)]))
		},
		reflect.TypeFor[nn.Init](): func(v reflect.Value) {
			v.Set(reflect.ValueOf([]nn.Init{nil, func([]int, *rand.Rand) func() float64 { return nil }, nn.Normal(b.Float()), nn.Uniform(b.Float())}[b.Intn(4)]))
		},
		reflect.TypeFor[*gorgonia.Node](): func(v reflect.Value) {
			v.Set(reflect.ValueOf(inputs(gorgonia.NewGraph())[b.Intn(3)]))
		},
		reflect.TypeFor[nn.Maker[nn.LinearConfig]](): func(v reflect.Value) {
			v.Set(reflect.ValueOf(nn.Maker[nn.LinearConfig](func(*nn.Scope, nn.LinearConfig) nn.Layer {
				return []nn.Layer{nil, &nn.Linear{}, &nn.MLP{}}[b.Intn(3)]
			})))
		},
	}
	for changes := 0; len(b) > 0 && changes < 4; changes++ {
		hostile.Change(&b, own, config.Interface())
	}
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%+v: panic: %v", config.Elem().Interface(), reason)
		}
	}()
	g := gorgonia.NewGraph()
	s := nn.NewScope(g, nil)
	layer := reflect.ValueOf(constructor.makes).Call([]reflect.Value{reflect.ValueOf(s), config.Elem()})[0]
	switch {
	case s.Err() != nil && works:
		return fmt.Errorf("does not work as it should: %w", s.Err())
	case s.Err() != nil && strings.Count(s.Err().Error(), ": ") < 2:
		return fmt.Errorf("the error names no line and no layer: %w", s.Err())
	}
	if panics := callWith(layer.Interface(), g); len(panics) > 0 {
		return fmt.Errorf("%+v: %w", config.Elem().Interface(), errors.New(strings.Join(panics, "\n")))
	}
	return nil
}
