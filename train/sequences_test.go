package train_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/tensor"
)

// sharingModel is a language model over sequences that ranks share.
type sharingModel struct {
	name  string
	model func(s *nn.Scope) *nn.LanguageModel
}

const shareLength = 48

var sharingModels = []sharingModel{
	{"GPT with dropout", func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s.DType(tensor.Float64), nn.GPTConfig{
			Vocab: countVocab, Context: shareLength, Layers: 2, Heads: 2, Dim: 16, Dropout: 0.1,
		})
	}},
	{"Llama with a window", func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewLlama(s.DType(tensor.Float64), nn.LlamaConfig{
			Vocab: countVocab, Context: shareLength, Layers: 2, Heads: 4, KVHeads: 2, Dim: 16, Hidden: 24,
			Attention: ops.AttentionOptions{Window: &kernels.Window{Left: 9, Right: 0}},
		})
	}},
	{"GPT with slopes, computed again", func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s.DType(tensor.Float64), nn.GPTConfig{
			Vocab: countVocab, Context: shareLength, Layers: 2, Heads: 2, Dim: 16, Recompute: true,
			Attention: ops.AttentionOptions{ALiBi: []float64{0.5, 0.1}},
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

// Ranks that share sequences train as one process does that takes them whole: in float64, losses
// and weights are equal up to the order of sums, with the masks of dropout, the positions and the
// windows of the whole.
func TestRanksShareSequences(t *testing.T) {
	for i, m := range sharingModels {
		courses, sizes := map[int][]course{}, []int{1, 2, 3, 4}
		if testing.Short() {
			sizes = []int{1, 4 - i}
		}
		for _, size := range sizes {
			var errs []error
			courses[size], errs = together{size: size, sequenceRanks: size, accumulation: 2, dtype: tensor.Float64, change: func(_ int, c *train.LoopConfig) { m.trains(c) }}.train(t)
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("%s, %d ranks: %v", m.name, size, err)
			}
		}
		one := courses[1][0]
		for _, size := range sizes[1:] {
			all := courses[size]
			sameCourse(t, fmt.Sprintf("%s, %d ranks", m.name, size), course{losses: all[0].losses, evaluations: all[0].evaluations, weights: all[size-1].weights}, one)
		}
	}
}

// sharingSteps is how many steps a model takes, with evaluations before, in the middle and after.
func sharingSteps() int {
	if testing.Short() {
		return 4
	}
	return 8
}

// trains has a loop train the model.
func (m sharingModel) trains(c *train.LoopConfig) {
	store := nn.NewParameters(1)
	c.Steps, c.Evaluations.Every = sharingSteps(), sharingSteps()/2
	c.Data, c.Evaluations.Validation = longCounting, longCounting
	c.Parameters, c.Model = store, lossOf(m.model)
}

// sameCourse compares what ranks that share sequences left with what one process did, up to the
// order of sums in float64.
func sameCourse(t *testing.T, name string, have, want course) {
	t.Helper()
	for kind, lists := range map[string][2][]float64{
		"losses": {have.losses, want.losses}, "evaluations": {have.evaluations, want.evaluations}, "weights": {have.weights, want.weights},
	} {
		if len(lists[0]) != len(lists[1]) || len(lists[0]) == 0 {
			t.Fatalf("%s: %d %s, one process has %d", name, len(lists[0]), kind, len(lists[1]))
		}
		for i, x := range lists[0] {
			if !(math.Abs(x-lists[1][i]) <= 1e-9*max(1, math.Abs(x))) {
				t.Errorf("%s: %s: number %d is %v, of one process %v", name, kind, i, x, lists[1][i])
				break
			}
		}
	}
}

// Four ranks of which every two share sequences train as one process does that takes two batches a
// step, and tell of as many examples and tokens. A checkpoint that they wrote in parts, of a state
// that all four share, is what one process goes on from, and theirs what the four do.
func TestRanksShareSequencesInRows(t *testing.T) {
	type told struct{ examplesPerStep, tokensPerStep, examples, tokens, evaluated int }
	m, path := sharingModels[0], t.TempDir()
	run := func(size, steps int, shard bool) (course, told) {
		var said told
		folder := openFolder(t, path, 2)
		defer folder.Close()
		all, errs := together{size: size, sequenceRanks: max(1, size/2), accumulation: max(1, 2/size), dtype: tensor.Float64, shard: shard, files: shard, resume: true, change: func(rank int, c *train.LoopConfig) {
			m.trains(c)
			if c.Steps = steps; rank > 0 {
				return
			}
			c.Checkpoints = folder
			c.Hooks = append(c.Hooks, train.Hook{
				OnStart: func(s train.Start) error {
					said.examplesPerStep, said.tokensPerStep = s.ExamplesPerStep, s.TokensPerStep
					return nil
				},
				OnStep: func(s train.Step) error { said.examples, said.tokens = s.Examples, s.Tokens; return nil },
				OnBatch: func(b train.Batch) error {
					if b.Evaluation {
						said.evaluated = max(said.evaluated, b.Batch)
					}
					return nil
				},
			})
		}}.train(t)
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("%s, %d ranks: %v", m.name, size, err)
		}
		return course{losses: all[0].losses, evaluations: all[0].evaluations, weights: all[size-1].weights}, said
	}
	steps := sharingSteps()
	first, ranksTold := run(4, steps/2, true)
	second, oneTold := run(1, steps*3/4, false)
	third, _ := run(4, steps, false)
	if ranksTold != oneTold || oneTold != (told{2 * 2, 2 * 2 * shareLength, 2 * 2, 2 * 2 * shareLength, 10}) {
		t.Errorf("%s: four ranks tell of %+v, one process of %+v", m.name, ranksTold, oneTold)
	}
	straight, errs := together{size: 1, accumulation: 2, dtype: tensor.Float64, change: func(_ int, c *train.LoopConfig) { m.trains(c) }}.train(t)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	whole := course{losses: append(append(first.losses, second.losses...), third.losses...), weights: third.weights}
	whole.evaluations = append(first.evaluations, third.evaluations[len(third.evaluations)-2:]...)
	sameCourse(t, m.name, whole, straight[0])
}

// A length that ranks cannot share is an error that says so.
func TestSharingErrors(t *testing.T) {
	_, errs := together{size: 2, sequenceRanks: 2, accumulation: 1, dtype: tensor.Float64, change: func(_ int, c *train.LoopConfig) {
		c.Data = data.Func(func(int) (data.Batch, error) {
			return data.Batch{"tokens": tensor.New(tensor.WithShape(2, 6), tensor.WithBacking(make([]int, 12)))}, nil
		})
	}}.train(t)
	if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), "tokens: HeldRows: the length is 6, it needs to be a multiple of 2·2 ranks") {
		t.Errorf("a length that ranks cannot share: %v", err)
	}
}
