package train_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestMistakes makes forty mistakes on purpose. What is printed names what was wrong, and says what it was and what it needs to be:
// of all but two.
func TestMistakes(t *testing.T) {
	g := gorgonia.NewGraph()
	x := func(shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("x", shape)))
	}
	ids := func(shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Int, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("ids", shape)))
	}
	of := func(_ any, err error) error { return err }
	linear := nn.Must(nn.NewLinear(g, nn.LinearConfig{Name: "l", In: 4, Out: 4}))
	gpt := nn.Must(nn.NewGPT(g, nn.GPTConfig{Name: "m", Vocab: 9, Context: 4, Layers: 1, Heads: 2, Dim: 8}))
	tokens := nn.Must(data.FromInts(make([]int, 20)))
	block := nn.BlockConfig{Name: "b", Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}}
	store := nn.NewParameters(1)
	nn.Must(nn.NewLinear(g, nn.LinearConfig{Name: "stored", Parameters: store, In: 2, Out: 2}))
	optimizer := func(change func(*train.Options)) error {
		o := train.Options{Schedule: train.ConstantRate(1)}
		change(&o)
		return of(train.NewStepper(linear.Parameters(), train.AdamW{}, o))
	}
	loop := func(change func(*train.LoopConfig)) error {
		c := countingConfig(nil)
		change(&c)
		return of(train.NewLoop(c))
	}
	mistakes := []struct {
		err        error
		names, was string
	}{
		{of(nn.NewLinear(g, nn.LinearConfig{In: 0, Out: 3})), "in", "is 0"},
		{of(nn.NewLinear(nil, nn.LinearConfig{In: 3, Out: 3})), "g", "nil"},
		{of(nn.NewLinear(g, nn.LinearConfig{Name: "l", In: 4, Out: 4})), "l.weight", "already"},
		{of(linear.Forward(x(2, 3))), "x", "[2 3]"},
		{of(linear.Forward(nil)), "x", "nil"},
		{of(linear.Forward(ids(2, 4))), "x", "int"},
		{of(nn.NewGPT(g, nn.GPTConfig{Vocab: 9, Context: 4, Layers: 0, Heads: 2, Dim: 8})), "layers", "is 0"},
		{of(nn.NewGPT(g, nn.GPTConfig{Name: "n", Vocab: 9, Context: 4, Layers: 1, Heads: 3, Dim: 8})), "dim", "is 8"},
		{of(gpt.Forward(x(2, 4))), "tokens", "float32"},
		{of(gpt.Forward(ids(2, 4, 1))), "tokens", "[2 4 1]"},
		{of(gpt.Loss(ids(2, 4), ids(2, 3))), "targets", "[2 3]"},
		{of(gpt.Loss(ids(2, 4), nil)), "targets", "nil"},
		{of(nn.NewDropout(g, nn.DropoutConfig{P: 1})), "p", "is 1"},
		{of(nn.NewMultiHeadAttention(g, nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, KVHeads: 3})), "kvHeads", "4"},
		{of(nn.Must(nn.NewBlock(g, block)).ForwardWith(x(1, 2, 8), nn.BlockInputs{Context: x(1, 3, 8)})), "context", "given"},
		{of(nn.NewPatchEmbedding(g, nn.PatchEmbeddingConfig{Channels: 1, Height: 8, Width: 9, Patch: 4, Dim: 8})), "patch", "is 4"},
		{of(nn.Pool(x(2, 8), nn.MeanPool, nil)), "x", "[2 8]"},
		{of(nn.NewParameter(g, nn.ParameterConfig{Name: "q", Shape: []int{0}})), "q", "[0]"},
		{store.Set("stored.wieght", tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 2))), "stored.wieght", "no layer"},
		{store.Set("stored.weight", tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2, 3))), "stored.weight", "[2 3]"},
		{nn.NewParameters(1).Load(nil), "Load", "no layer"},
		{of(ops.MatMul(x(2, 3), x(4, 5), ops.MatMulOptions{})), "a", "[2 3]"},
		{of(ops.Permute(x(2, 3), 0, 0)), "axes", "[0 0]"},
		{of(ops.Select(x(2, 3), 1, 3)), "index", "is 3"},
		{of(ops.SoftmaxCrossEntropy(x(2, 3), ids(3), ops.CrossEntropyOptions{})), "targets", "[3]"},
		{of(ops.SoftmaxCrossEntropy(x(2, 3), ids(2), ops.CrossEntropyOptions{LabelSmoothing: 1})), "label smoothing", "is 1"},
		{of(ops.RoPE(x(1, 2, 3, 5), ops.RoPEOptions{})), "dimensions", "5"},
		{of(data.Random(tokens, 2, 20, 1)), "tokens", "20"},
		{of(data.Random(nil, 2, 4, 1)), "tokens", "nil"},
		{of(data.Examples(data.Batch{}, 2, 1)), "arrays", "no arrays"},
		{of(data.Open(filepath.Join(t.TempDir(), "missing.bin"))), "missing.bin", "no such file"},
		{optimizer(func(o *train.Options) { o.Schedule = nil }), "schedule", "nil"},
		{optimizer(func(o *train.Options) { o.ClipNorm = -1 }), "clip norm", "is -1"},
		{optimizer(func(o *train.Options) { o.Accumulation = -1 }), "accumulation", "is -1"},
		{of(nn.Must(train.NewStepper(linear.Parameters(), train.AdamW{}, train.Options{Schedule: train.ConstantRate(1)})).Step()), "l.weight", "no gradient"},
		{loop(func(c *train.LoopConfig) { c.Data = nil }), "data", "nil"},
		{loop(func(c *train.LoopConfig) { c.Steps = 0 }), "steps", "is 0"},
		{loop(func(c *train.LoopConfig) { c.CheckpointEvery, c.Checkpoints = 3, nil }), "checkpoints", "nil"},
		{loop(func(c *train.LoopConfig) {
			c.Model = func(*gorgonia.ExprGraph, train.Inputs) (train.Outputs, error) { return train.Outputs{}, nil }
		}), "loss", "no loss"},
		{loop(func(c *train.LoopConfig) {
			c.Data = data.Func(func(int) (data.Batch, error) { return data.Batch{"tokens": nil}, nil })
		}), "tokens", "nil"},
	}
	whole := 0
	for i, m := range mistakes {
		if m.err == nil {
			t.Errorf("mistake %d, of %s, has no error", i, m.names)
			continue
		}
		said := m.err.Error()
		t.Log(said)
		if strings.Contains(said, m.names) && strings.Contains(said, m.was) && strings.Contains(said, "need") {
			whole++
		} else {
			t.Logf("  which does not say that %s was %q, or what it needs to be", m.names, m.was)
		}
	}
	if len(mistakes) != 40 || whole < 38 {
		t.Errorf("of %d mistakes, %d are told with what it was and what it needs to be, want 38 of 40", len(mistakes), whole)
	}
}
