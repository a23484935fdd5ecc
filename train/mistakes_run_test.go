package train_test

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestMistakesOfModels has what goes wrong in a model of one's own, with its batches, and in the
// config around it. The error is one line, which begins with the line of the model where it was
// made and says what to change.
func TestMistakesOfModels(t *testing.T) {
	batch := data.Batch{
		"x": data.Floats(make32(24), 4, 6), "images": data.Floats(make32(64), 4, 1, 4, 4), "labels": data.Ints([]int{0, 1, 2, 0}, 4),
		"answers": data.Floats([]float32{0, 1, 0.5, 1, 0, 1.5, -1, 0}, 4, 2),
		"tokens":  data.Ints([]int{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4}, 4, 3), "mask": data.Bools(make([]bool, 4), 4),
	}
	type scope = nn.Scope
	type inputs = train.Inputs
	loss := func(model func(s *scope, in inputs) nn.Tensor) func(c *train.LoopConfig) {
		return func(c *train.LoopConfig) {
			c.Model = func(s *scope, in inputs) train.Outputs { return train.Outputs{Loss: model(s, in)} }
		}
	}
	batches := func(make func(n int) (data.Batch, error)) func(c *train.LoopConfig) {
		return func(c *train.LoopConfig) { c.Data = data.Func(make) }
	}
	classes := func(s *scope, x nn.Tensor) nn.Tensor { return s.Linear("classes", x, 3) }
	bert := nn.BERTConfig{Vocab: 9, Context: 3, Layers: 1, Heads: 2, Dim: 4, Classes: 3}
	wide := nn.BlockConfig{Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}}
	for _, m := range []struct {
		mistake func(c *train.LoopConfig)
		line    bool // the error begins with the model's line
		want    string
	}{
		{loss(func(s *scope, in inputs) nn.Tensor { return classes(s, in.Get("image")).Mean() }), true,
			`the batch has no array "image", it has ["answers" "images" "labels" "mask" "tokens" "x"]`},
		{loss(func(s *scope, in inputs) nn.Tensor { return classes(s, in.Get("x")).Square() }), false, "model gave a loss of shape [4 3], it needs to be a scalar"},
		{loss(func(s *scope, in inputs) nn.Tensor { return classes(s, in.Get("tokens")).Mean() }), true, "Linear: x is int, it needs to go with the layer's parameters"},
		{loss(func(s *scope, in inputs) nn.Tensor { return classes(s, in.Get("x")).CrossEntropy(in.Get("x")) }), true,
			"targets is float32, it needs to be int, int32 or int64"},
		{loss(func(s *scope, in inputs) nn.Tensor { return classes(s, in.Get("x")).CrossEntropy(in.Get("tokens")) }), true,
			"targets has shape [4 3], it needs one target for each row of logits: [4]"},
		{loss(func(s *scope, in inputs) nn.Tensor {
			return s.Linear("two", in.Get("x"), 2).CrossEntropy(in.Get("labels"))
		}), false,
			"targets[2] is 2, it needs to be from 0 to 1, or IgnoreIndex, which is not set (targets is labels)"},
		{loss(func(s *scope, in inputs) nn.Tensor {
			return s.Linear("yes", in.Get("x"), 2).BinaryCrossEntropy(in.Get("answers"))
		}), false, "BinaryCrossEntropy: cpu: targets[2 1] is 1.5, it needs to be from 0 to 1 (targets is answers)"},
		{loss(func(s *scope, in inputs) nn.Tensor { return s.Embedding("words", in.Get("tokens"), 8, 4).Mean() }), false,
			"Embedding: cpu: ids[2 1] is 8, it needs to be from 0 to 7 (ids is tokens)"},
		{loss(func(s *scope, in inputs) nn.Tensor { return classes(s, in.Get("x")).MSE(in.Get("x")) }), true,
			"MSE: x has shape [4 3] and targets [4 6], they need to be of one shape"},
		{loss(func(s *scope, in inputs) nn.Tensor {
			return classes(s, in.Get("x")).Add(s.Linear("other", in.Get("x"), 4)).Mean()
		}), true,
			"Add: x has shape [4 3] and y [4 4], which do not broadcast"},
		{loss(func(s *scope, in inputs) nn.Tensor { return classes(s, in.Get("x")).Mean(2).Mean() }), true, "Mean: axis is 2, it needs to be one of shape [4 3]"},
		{loss(func(s *scope, in inputs) nn.Tensor { return classes(s, in.Get("x").Chunk(1, 3)[3]).Mean() }), true,
			"the model panics: runtime error: index out of range [3] with length 3"},
		{loss(func(s *scope, in inputs) nn.Tensor { return s.Attention("attn", in.Get("x"), 2).Mean() }), true,
			"MultiHeadAttention: x has shape [4 6], it needs three axes (batch, length, features)"},
		{loss(func(s *scope, in inputs) nn.Tensor {
			return s.Attention("attn", in.Get("x").Reshape(4, 1, 6), 2, ops.AttentionOptions{Window: &kernels.Window{Left: -5}}).Mean()
		}), true, "window is (-5, 0), each side needs to be 0 or more, or -1 for unlimited"},
		{loss(func(s *scope, in inputs) nn.Tensor {
			return s.Block("block", in.Get("x").Reshape(4, 1, 6), wide).Mean()
		}), true,
			"x has shape [4 1 6], it needs a last axis of 8"},
		{loss(func(s *scope, in inputs) nn.Tensor { return s.MLP("mlp", in.Get("x"), nn.MLPConfig{Dim: 8}).Mean() }), true,
			"Linear: x has shape [4 6], it needs a last axis of 8"},
		{loss(func(s *scope, in inputs) nn.Tensor {
			return s.Conv2d("conv", in.Get("images"), 3, ops.Sliding{Size: 9}).Mean()
		}), true, "window 0 is {Size:9 Stride:1 Padding:0 Dilation:1}, it needs to fit into x's 1 elements"},
		{loss(func(s *scope, in inputs) nn.Tensor {
			return nn.NewGPT(s, nn.GPTConfig{Vocab: 9, Context: 2, Layers: 1, Heads: 2, Dim: 4}).Loss(in.Get("tokens"), in.Get("tokens"))
		}), true, "GPT: tokens has 3 positions, it needs at most the context's 2"},
		{loss(func(s *scope, in inputs) nn.Tensor {
			b := nn.NewBERT(s, bert)
			return b.Classify(b.ForwardWith(in.Get("tokens"), nn.EncoderInputs{KeyMask: in.Get("mask")})).CrossEntropy(in.Get("labels"))
		}), true, "key mask has shape [4], it needs one value for each key: [4 3]"},
		{loss(func(s *scope, in inputs) nn.Tensor {
			elsewhere := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(1))
			return classes(elsewhere, in.Get("x")).CrossEntropy(in.Get("labels"))
		}), false, "a loss of another scope than that it was called with, which failed: mistakes_run_test.go:"},
		{loss(func(s *scope, in inputs) nn.Tensor { return classes(s.Compute(tensor.Int), in.Get("x")).Mean() }), true, "Scope: compute is int, beside parameters of float32"},
		{func(c *train.LoopConfig) { c.Parameters.Freeze(func(string) bool { return true }) }, false, "2 parameters that are all frozen, it needs one that is trained"},
		{func(c *train.LoopConfig) { c.Options.Schedule = train.ConstantRate(-1) }, false, "schedule: rate is -1, it needs to be finite and not negative"},
		{func(c *train.LoopConfig) { c.Options.Schedule = train.WarmupCosine{Peak: 1, Warmup: 100, Steps: 10} }, false,
			"steps is 10, it needs to be more than the warm-up's 100"},
		{func(c *train.LoopConfig) { c.Optimizer = train.AdamW{Beta1: 1.5} }, false, "AdamW: beta1 is 1.5, it needs to be in [0, 1)"},
		{func(c *train.LoopConfig) { c.Optimizer = nil }, false, "optimizer is nil, it needs to be one, such as AdamW{}"},
		{batches(func(int) (data.Batch, error) { panic("no file") }), false, "data: batch 0: mistakes_run_test.go:"},
		{batches(func(n int) (data.Batch, error) { return []data.Batch{batch}[n], nil }), false,
			"the code of the batches panics: runtime error: index out of range [1] with length 1"},
		{batches(func(n int) (data.Batch, error) {
			none := map[int]data.Batch{}[n] // nil, in a way that no check of sources sees
			none["x"] = batch["x"]
			return none, nil
		}), false, "the code of the batches panics: assignment to entry in nil map"},
		{func(c *train.LoopConfig) { c.Data = data.Func(nil) }, false, "the function is nil, it needs to be one that makes batches"},
		{batches(func(int) (data.Batch, error) {
			return data.Batch{"x": batch["x"], "labels": data.Ints([]int{0, 1}, 4)}, nil
		}), false, "the batch's labels is nil, it needs to be an array: Floats, Ints and Bools of package data give nil where values do not fill the shape"},
		{batches(func(n int) (data.Batch, error) {
			return []data.Batch{batch, {"pictures": batch["images"]}}[min(n, 1)], nil
		}), false, `the batch has no array "x", it has ["pictures"]`},
		{func(c *train.LoopConfig) {
			c.Evaluations = train.Evaluations{Every: 1, Validation: data.Func(func(int) (data.Batch, error) { return data.Batch{"x": batch["x"]}, nil })}
		}, false, `evaluations validation: batch 0: mistakes_run_test.go`},
	} {
		c := train.LoopConfig{
			Parameters: nn.NewParameters(1), Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(0.1)}, Steps: 2,
			Data: data.Func(func(int) (data.Batch, error) { return batch, nil }),
			Model: func(s *scope, in inputs) train.Outputs {
				return train.Outputs{Loss: classes(s, in.Get("x")).CrossEntropy(in.Get("labels"))}
			},
		}
		m.mistake(&c)
		_, err := train.Run(t.Context(), c)
		if err == nil {
			t.Errorf("there is no error, want %q", m.want)
			continue
		}
		said := err.Error()
		t.Log(said)
		if !strings.Contains(said, m.want) || !isPlain(said) || m.line && !strings.HasPrefix(said, "Loop: data: batch 0: mistakes_run_test.go:") {
			t.Errorf("the error is %s, want one line with %q", said, m.want)
		}
	}
}

// Evaluations that never come are told of, since there are batches for them.
func TestValidationWithoutEvery(t *testing.T) {
	c := trapConfig(func(s *nn.Scope, in train.Inputs) train.Outputs {
		return train.Outputs{Loss: s.Linear("head", in.Get("x"), 2).Square().Mean()}
	})
	c.Evaluations.Validation = c.Data
	end, err := train.Run(t.Context(), c)
	if err != nil || len(end.Notices) != 1 || !strings.Contains(string(end.Notices[0]), "Every is 0") {
		t.Errorf("the notices are %q, the error %v", end.Notices, err)
	}
}
