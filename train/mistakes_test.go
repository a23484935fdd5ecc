package train_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestMistakes makes forty mistakes on purpose. Each is one line that names what was wrong, what it
// was and what it needs to be, in no words of a machine's.
func TestMistakes(t *testing.T) {
	g := gorgonia.NewGraph()
	x := func(shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("x", shape)))
	}
	ids := func(shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Int, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("ids", shape)))
	}
	of := func(_ any, err error) error { return err }
	type scope = nn.Scope
	model := func(make func(s *scope, x, ids func(shape ...int) nn.Tensor)) error {
		s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(1))
		input := func(of tensor.Dtype) func(shape ...int) nn.Tensor {
			return func(shape ...int) nn.Tensor {
				return s.Constant(fmt.Sprint(of, shape), tensor.New(tensor.Of(of), tensor.WithShape(shape...)))
			}
		}
		make(s, input(tensor.Float32), input(tensor.Int))
		return s.Err()
	}
	linear := func(call func(l *nn.Linear, x, ids func(shape ...int) nn.Tensor)) error {
		return model(func(s *scope, x, ids func(shape ...int) nn.Tensor) {
			call(nn.NewLinear(s, nn.LinearConfig{In: 4, Out: 4}), x, ids)
		})
	}
	gpt := func(call func(m *nn.LanguageModel, x, ids func(shape ...int) nn.Tensor)) error {
		return model(func(s *scope, x, ids func(shape ...int) nn.Tensor) {
			call(nn.NewGPT(s, nn.GPTConfig{Vocab: 9, Context: 4, Layers: 1, Heads: 2, Dim: 8}), x, ids)
		})
	}
	type shaped = func(shape ...int) nn.Tensor
	tokens, err := data.FromInts(make([]int, 20))
	if err != nil {
		t.Fatal(err)
	}
	block := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}}
	store := nn.NewParameters(1)
	stored := nn.NewLinear(nn.NewScope(g, store).Sub("stored"), nn.LinearConfig{In: 2, Out: 2})
	optimizer := func(change func(*train.Options)) error {
		o := train.Options{Schedule: train.ConstantRate(1)}
		change(&o)
		stepper, err := train.NewStepper(stored.Parameters(), train.AdamW{}, o)
		if err == nil {
			_, err = stepper.Step()
		}
		return err
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
		{model(func(s *scope, _, _ shaped) { nn.NewLinear(s, nn.LinearConfig{In: 0, Out: 3}) }), "in", "is 0"},
		{nn.NewScope(nil, nil).Err(), "g", "nil"},
		{model(func(s *scope, x, _ shaped) { s.Linear("l", s.Linear("l", x(4, 4), 4), 4) }), "l.weight", "already"},
		{linear(func(l *nn.Linear, x, _ shaped) { l.Forward(x(2, 3)) }), "x", "[2 3]"},
		{linear(func(l *nn.Linear, _, _ shaped) { l.Forward(nn.Tensor{}) }), "x", "zero"},
		{linear(func(l *nn.Linear, _, ids shaped) { l.Forward(ids(2, 4)) }), "x", "int"},
		{model(func(s *scope, _, _ shaped) { nn.NewGPT(s, nn.GPTConfig{Vocab: 9, Context: 4, Heads: 2, Dim: 8}) }), "layers", "is 0"},
		{model(func(s *scope, x, _ shaped) { s.Attention("attn", x(1, 2, 8), 3) }), "dim", "is 8"},
		{gpt(func(m *nn.LanguageModel, x, _ shaped) { m.Forward(x(2, 4)) }), "tokens", "float32"},
		{gpt(func(m *nn.LanguageModel, _, ids shaped) { m.Forward(ids(2, 4, 1)) }), "tokens", "[2 4 1]"},
		{gpt(func(m *nn.LanguageModel, _, ids shaped) { m.Loss(ids(2, 4), ids(2, 3)) }), "targets", "[2 3]"},
		{gpt(func(m *nn.LanguageModel, _, ids shaped) { m.Loss(ids(2, 4), nn.Tensor{}) }), "targets", "zero"},
		{model(func(s *scope, x, _ shaped) { s.Dropout("drop", x(2), 1) }), "p", "is 1"},
		{model(func(s *scope, _, _ shaped) {
			nn.NewMultiHeadAttention(s, nn.MultiHeadAttentionConfig{Dim: 8, Heads: 4, KVHeads: 3})
		}), "kvHeads", "4"},
		{model(func(s *scope, x, _ shaped) {
			nn.NewBlock(s, block).ForwardWith(x(1, 2, 8), nn.BlockInputs{Context: x(1, 3, 8)})
		}), "context", "given"},
		{model(func(s *scope, x, _ shaped) { s.Patches("patches", x(1, 1, 8, 9), 4, 8) }), "patch", "is 4"},
		{model(func(_ *scope, x, _ shaped) { nn.Pool(x(2, 8), nn.MeanPool, nn.Tensor{}) }), "x", "[2 8]"},
		{model(func(s *scope, _, _ shaped) { s.Parameter("q", nil, 0) }), "q", "[0]"},
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
		{optimizer(func(*train.Options) {}), "stored.weight", "no gradient"},
		{loop(func(c *train.LoopConfig) { c.Data = nil }), "data", "nil"},
		{loop(func(c *train.LoopConfig) { c.Steps = 0 }), "steps", "is 0"},
		{loop(func(c *train.LoopConfig) { c.CheckpointEvery, c.Checkpoints = 3, nil }), "checkpoints", "nil"},
		{loop(func(c *train.LoopConfig) {
			c.Model = func(*nn.Scope, train.Inputs) train.Outputs { return train.Outputs{} }
		}), "loss", "no loss"},
		{loop(func(c *train.LoopConfig) {
			c.Data = data.Func(func(int) (data.Batch, error) { return data.Batch{"tokens": nil}, nil })
		}), "tokens", "nil"},
	}
	if len(mistakes) < 40 {
		t.Errorf("there are %d mistakes, want 40 or more", len(mistakes))
	}
	for i, m := range mistakes {
		if m.err == nil {
			t.Errorf("mistake %d, of %s, has no error", i, m.names)
			continue
		}
		said := m.err.Error()
		t.Log(said)
		if !strings.Contains(said, m.names) || !strings.Contains(said, m.was) || !strings.Contains(said, "need") {
			t.Errorf("mistake %d says %q, not that %s was %q, or what it needs to be", i, said, m.names, m.was)
		}
		if !isPlain(said) {
			t.Errorf("mistake %d says %q, it needs to be a line without a machine's words", i, said)
		}
	}
}

// machineWords are in errors as Gorgonia's machines write them.
var machineWords = regexp.MustCompile(`PC:? ?[0-9]|CPU[0-9]|Failed to|goroutine|0x[0-9a-f]{6}`)

// isPlain reports whether an error is one line that nobody needs to know a machine for.
func isPlain(said string) bool {
	return !strings.Contains(said, "\n") && !machineWords.MatchString(said)
}
