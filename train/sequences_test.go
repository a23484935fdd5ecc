package train_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// sharingModel is a language model over sequences that ranks share.
type sharingModel struct {
	name  string
	model func(g *gorgonia.ExprGraph, p *nn.Parameters, ranks kernels.Ranks) (languageModel, error)
}

const shareLength = 48

var sharingModels = []sharingModel{
	{"GPT with dropout", func(g *gorgonia.ExprGraph, p *nn.Parameters, ranks kernels.Ranks) (languageModel, error) {
		return nn.NewGPT(g, nn.GPTConfig{
			DType: tensor.Float64, Parameters: p, Vocab: countVocab, Context: shareLength, Layers: 2, Heads: 2, Dim: 16, Dropout: 0.1,
			Attention: ops.AttentionOptions{Ranks: ranks},
		})
	}},
	{"Llama with a window", func(g *gorgonia.ExprGraph, p *nn.Parameters, ranks kernels.Ranks) (languageModel, error) {
		return nn.NewLlama(g, nn.LlamaConfig{
			DType: tensor.Float64, Parameters: p, Vocab: countVocab, Context: shareLength, Layers: 2, Heads: 4, KVHeads: 2, Dim: 16, Hidden: 24,
			Attention: ops.AttentionOptions{Ranks: ranks, Window: &kernels.Window{Left: 9, Right: 0}},
		})
	}},
	{"GPT with slopes, computed again", func(g *gorgonia.ExprGraph, p *nn.Parameters, ranks kernels.Ranks) (languageModel, error) {
		return nn.NewGPT(g, nn.GPTConfig{
			DType: tensor.Float64, Parameters: p, Vocab: countVocab, Context: shareLength, Layers: 2, Heads: 2, Dim: 16, Recompute: true,
			Attention: ops.AttentionOptions{Ranks: ranks, ALiBi: []float64{0.5, 0.1}},
		})
	}},
}

// longCounting are batches of longer rows than counting's.
var longCounting = data.Func(func(n int) (data.Batch, error) {
	const rows = 2
	tokens, targets := make([]int, rows*shareLength), make([]int, rows*shareLength)
	for r := range rows {
		start, stride := int(word("start", rows*n+r)), 1+int(word("stride", rows*n+r)%5)
		for i := range shareLength {
			tokens[r*shareLength+i] = (start + i*stride + i/7) % countVocab
			targets[r*shareLength+i] = (start + (i+1)*stride + (i+1)/7) % countVocab
		}
	}
	shape := tensor.WithShape(rows, shareLength)
	return data.Batch{"tokens": tensor.New(shape, tensor.WithBacking(tokens)), "targets": tensor.New(shape, tensor.WithBacking(targets))}, nil
})

// Ranks that share sequences train as one process does that takes them whole: in float64, losses and weights are equal up to the order of
// sums, with the masks of dropout, the positions and the windows of the whole.
func TestRanksShareSequences(t *testing.T) {
	for _, m := range sharingModels {
		courses := map[int][]course{}
		for _, size := range []int{1, 2, 3, 4} {
			var errs []error
			courses[size], errs = together{size: size, accumulation: 2, dtype: tensor.Float64, changeGroup: func(group *distributed.Group, c *train.LoopConfig) {
				store := nn.NewParameters(1)
				c.Steps, c.EvalEvery = 8, 4
				c.Data = train.ShareSequences(longCounting, group)
				c.Validation = c.Data
				c.Model = func(g *gorgonia.ExprGraph, in train.Inputs) (train.Outputs, error) {
					var ranks kernels.Ranks
					if group.Size() > 1 {
						ranks = group
					}
					model, err := m.model(g, store, ranks)
					if err != nil {
						return train.Outputs{}, err
					}
					loss, err := model.Loss(in["tokens"], in["targets"])
					return train.Outputs{Loss: loss, Parameters: model.Parameters()}, err
				}
			}}.train(t)
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%s, %d ranks: %v", m.name, size, err)
			}
		}
		one := courses[1][0]
		for _, size := range []int{2, 3, 4} {
			all := courses[size]
			for name, lists := range map[string][2][]float64{
				"losses": {all[0].losses, one.losses}, "evaluations": {all[0].evaluations, one.evaluations}, "weights": {all[size-1].weights, one.weights},
			} {
				if len(lists[0]) != len(lists[1]) || len(lists[0]) == 0 {
					t.Fatalf("%s, %d ranks: %d %s, one process has %d", m.name, size, len(lists[0]), name, len(lists[1]))
				}
				for i, x := range lists[0] {
					if !(math.Abs(x-lists[1][i]) <= 1e-9*max(1, math.Abs(x))) {
						t.Errorf("%s, %d ranks: %s: number %d is %v, of one process %v", m.name, size, name, i, x, lists[1][i])
						break
					}
				}
			}
		}
	}
}

// A length that ranks cannot share is an error that says so.
func TestSharingErrors(t *testing.T) {
	_, errs := together{size: 2, accumulation: 1, dtype: tensor.Float64, changeGroup: func(group *distributed.Group, c *train.LoopConfig) {
		c.Data = train.ShareSequences(data.Func(func(int) (data.Batch, error) {
			return data.Batch{"tokens": tensor.New(tensor.WithShape(2, 6), tensor.WithBacking(make([]int, 12)))}, nil
		}), group)
	}}.train(t)
	if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), "tokens: HeldRows: the length is 6, it needs to be a multiple of 2·2 ranks") {
		t.Errorf("a length that ranks cannot share: %v", err)
	}
}
