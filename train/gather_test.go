//go:build unix

package train_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// heldModel is a language model whose weights ranks share out. Sums of gradients have the order of
// one process but where layers share weights: then the bound is not 0.
type heldModel struct {
	name         string
	bound        float64
	size         int // ranks
	accumulation int
	steps        int // 0 means 20
	prepare      func(p *nn.Parameters) error
	optimizer    train.Optimizer // of matrices; nil for AdamW
	model        func(s *nn.Scope) *nn.LanguageModel
}

func heldLlama(config nn.LlamaConfig) func(s *nn.Scope) *nn.LanguageModel {
	config.Vocab, config.Heads, config.KVHeads, config.Dim, config.Hidden = countVocab, 2, 1, 16, 24
	return func(s *nn.Scope) *nn.LanguageModel { return nn.NewLlama(s, config) }
}

func heldGPT(config nn.GPTConfig) func(s *nn.Scope) *nn.LanguageModel {
	config.Vocab, config.Context, config.Heads, config.Dim = countVocab, countLength, 2, 16
	return func(s *nn.Scope) *nn.LanguageModel { return nn.NewGPT(s, config) }
}

// inBFloat16 is a model that computes in 16 bits.
func inBFloat16(model func(s *nn.Scope) *nn.LanguageModel) func(s *nn.Scope) *nn.LanguageModel {
	return func(s *nn.Scope) *nn.LanguageModel { return model(s.Compute(ops.BFloat16)) }
}

// inFloat64 is a model whose parameters are of 64 bits.
func inFloat64(model func(s *nn.Scope) *nn.LanguageModel) func(s *nn.Scope) *nn.LanguageModel {
	return func(s *nn.Scope) *nn.LanguageModel { return model(s.DType(tensor.Float64)) }
}

var heldModels = []heldModel{
	{name: "Llama", size: 2, accumulation: 1, model: heldLlama(nn.LlamaConfig{Layers: 2})},
	{name: "Llama in bfloat16, computed again", steps: 6, size: 3, accumulation: 1, model: inBFloat16(heldLlama(nn.LlamaConfig{Layers: 2, Recompute: true}))},
	{name: "GPT with a tied head", bound: 1e-9, size: 2, accumulation: 2, model: inFloat64(heldGPT(nn.GPTConfig{Layers: 2, Dropout: 0.1}))},
	{name: "GPT in bfloat16", steps: 6, bound: 1e-4, size: 2, accumulation: 1, model: inBFloat16(heldGPT(nn.GPTConfig{Layers: 1}))},
	{name: "Llama by Muon", size: 3, accumulation: 1, optimizer: train.Muon{WeightDecay: 0.1}, model: heldLlama(nn.LlamaConfig{Layers: 2})},
	{
		name: "Llama with a LoRA", steps: 6, size: 2, accumulation: 1, model: heldLlama(nn.LlamaConfig{Layers: 1}),
		prepare: func(p *nn.Parameters) error { return p.SetLoRA(nn.LoRA{Rank: 2}) },
	},
}

// trains has a loop train the model, whose weights a group holds in parts; nil for none.
func (m heldModel) trains(holders *distributed.Group, c *train.LoopConfig) error {
	store := nn.NewParameters(1)
	if m.prepare != nil {
		if err := m.prepare(store); err != nil {
			return err
		}
	}
	c.Steps, c.Evaluations.Every, c.Evaluations.Batches = 20, 20, 3
	if m.steps > 0 {
		c.Steps, c.Evaluations.Every = m.steps, m.steps
	}
	if testing.Short() {
		c.Steps, c.Evaluations.Every = 3, 3
	}
	c.Parameters, c.Model = store, lossOf(m.model)
	if m.optimizer != nil {
		c.Optimizer, c.Options.Groups = m.optimizer, []train.Group{{Match: train.Any(train.Vectors, train.Named("tokens.*", "head.*")), Optimizer: train.AdamW{}}}
	}
	return store.ShareOut(holders)
}

// run trains on so many ranks, and returns the course of rank 0 with the weights that all hold
// together.
func (m heldModel) run(t *testing.T, size, accumulation int, files bool, change func(group *distributed.Group, c *train.LoopConfig)) course {
	t.Helper()
	courses, errs := together{size: size, accumulation: accumulation, files: files, resume: change != nil, changeGroup: func(group *distributed.Group, c *train.LoopConfig) {
		if err := m.trains(group, c); err != nil {
			t.Error(err)
		}
		if change != nil {
			change(group, c)
		}
	}}.train(t)
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%s, %d ranks: %v", m.name, size, err)
	}
	return wholeCourse(courses)
}

// wholeCourse is the course of rank 0, with the whole of the weights that the ranks have parts of.
func wholeCourse(courses []course) course {
	whole := courses[0]
	whole.weights = nil
	for _, name := range slices.Sorted(maps.Keys(whole.values)) {
		list := whole.values[name]
		if len(courses) > 1 && !slices.Equal(list, courses[1].values[name]) {
			list = nil
			for _, c := range courses {
				list = append(list, c.values[name]...)
			}
		}
		whole.weights = append(whole.weights, list...)
	}
	return whole
}

// differ reports how courses differ by more than a bound, relative to the numbers.
func differ(a, b course, bound float64) error {
	for kind, lists := range map[string][2][]float64{"losses": {a.losses, b.losses}, "evaluations": {a.evaluations, b.evaluations}, "weights": {a.weights, b.weights}} {
		if len(lists[0]) != len(lists[1]) || len(lists[0]) == 0 {
			return fmt.Errorf("%d %s in place of %d", len(lists[0]), kind, len(lists[1]))
		}
		bound := bound
		if kind != "weights" {
			bound = max(bound, 1e-12) // the mean of losses has another order
		}
		for i, x := range lists[0] {
			if !(math.Abs(x-lists[1][i]) <= bound*max(1, math.Abs(x))) {
				return fmt.Errorf("%s: number %d is %v in place of %v", kind, i, x, lists[1][i])
			}
		}
	}
	return nil
}

// Ranks that hold parts of the weights train as one process does with all of them: to the last bit
// where sums have its order. Their vectors are whole, and all ranks have the same.
func TestRanksShareWeights(t *testing.T) {
	models := heldModels
	if testing.Short() {
		models = models[:1]
	}
	for _, m := range models {
		t.Run(m.name, func(t *testing.T) {
			one := m.run(t, 1, m.size*m.accumulation, false, nil)
			if err := differ(m.run(t, m.size, m.accumulation, false, nil), one, m.bound); err != nil {
				t.Error(err)
			}
		})
	}
}

// Ranks that share weights and every two of them sequences train as one process. Weights that not
// all ranks hold are an error.
func TestRanksShareWeightsAndSequences(t *testing.T) {
	if testing.Short() {
		t.Skip("TestRanksShareWeights has the short case")
	}
	m := sharingModels[0]
	run := func(size int, row bool) ([]course, error) {
		courses, errs := together{size: size, sequenceRanks: max(1, size/2), accumulation: max(1, 2/size), dtype: tensor.Float64, changeGroup: func(group *distributed.Group, c *train.LoopConfig) {
			m.trains(c)
			c.Steps, c.Evaluations.Every = 3, 3
			store, holders := nn.NewParameters(1), group
			if row {
				holders = c.Place.SequenceRanks()
			}
			if err := store.ShareOut(holders); err != nil {
				t.Error(err)
			}
			c.Parameters = store
		}}.train(t)
		return courses, errors.Join(errs...)
	}
	one, err := run(1, false)
	if err != nil {
		t.Fatal(err)
	}
	four, err := run(4, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := differ(wholeCourse(four), wholeCourse(one), 1e-9); err != nil {
		t.Error(err)
	}
	want := "tokens.weight is shared out over 2 ranks that are not the place's"
	if _, err := run(4, true); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("weights that two of four ranks hold: %v, want %q in it", err, want)
	}
}

// Any number of ranks goes on from what any other number has written, whether they share weights or
// the state alone, or nothing, and write checkpoints together or rank 0 does.
func TestRanksThatShareWeightsResume(t *testing.T) {
	m, path := heldModels[2], t.TempDir()
	parts := []struct {
		size, steps int
		holds       bool
		together    bool
	}{{2, 2, true, true}, {4, 4, true, false}, {1, 5, false, false}, {2, 6, true, true}, {2, 7, false, true}}
	if testing.Short() {
		t.Skip("TestRanksResume has the short case")
	}
	last := parts[len(parts)-1].steps
	straight := m.run(t, 1, 4, false, func(_ *distributed.Group, c *train.LoopConfig) {
		c.Steps, c.Evaluations.Every, c.Checkpoints = last, 0, openFolder(t, t.TempDir(), 1)
	})
	var losses []float64
	var end course
	for _, part := range parts {
		folder := openFolder(t, path, 2)
		end = m.run(t, part.size, 4/part.size, part.together, func(group *distributed.Group, c *train.LoopConfig) {
			if !part.holds {
				if err := m.trains(nil, c); err != nil {
					t.Error(err)
				}
			}
			c.Steps, c.Evaluations.Every = part.steps, 0
			if group.Rank() == 0 {
				c.Checkpoints = folder
			}
		})
		if err := folder.Close(); err != nil {
			t.Fatal(err)
		}
		losses = append(losses, end.losses...)
		c, err := checkpoint.Load(filepath.Join(path, fmt.Sprintf("step-%08d", part.steps)))
		if err != nil {
			t.Fatal(err)
		}
		var written []float64
		for _, w := range c.Weights {
			written = append(written, w.Value.Float64s()...)
		}
		slices.Sort(written)
		held := slices.Sorted(slices.Values(end.weights))
		if !slices.Equal(written, held) {
			t.Errorf("%+v: the checkpoint has other weights than the ranks", part)
		}
	}
	if err := differ(course{losses: losses, evaluations: losses, weights: end.weights}, course{losses: straight.losses, evaluations: straight.losses, weights: straight.weights}, 1e-9); err != nil {
		t.Error(err)
	}
}

// A process that dies while others collect weights ends them with its name, and they go on from the
// newest checkpoint.
func TestRanksThatShareWeightsDie(t *testing.T) {
	if testing.Short() {
		t.Skip("TestRanksThatFail has the short case")
	}
	const steps, size = 8, 2
	m := heldModels[0]
	if folder := os.Getenv(rankFolder); folder != "" {
		place, err := distributed.FromEnvironment()
		if err != nil {
			t.Fatal(err)
		}
		at, err := strconv.Atoi(os.Getenv(rankFault))
		if err != nil {
			t.Fatal(err)
		}
		_, err = together{size: size, accumulation: 1, files: true, resume: true, changeGroup: func(group *distributed.Group, c *train.LoopConfig) {
			if err := m.trains(group, c); err != nil {
				t.Error(err)
			}
			c.Steps, c.Evaluations.Every, c.CheckpointEvery = steps, 0, 2
			if group.Rank() == 0 {
				c.Checkpoints = openFolder(t, folder, 2)
			}
			if group.Rank() == 1 && at > 0 {
				c.Data = faulty{at: at, how: "dies"}
			}
		}}.trainRank(t, place)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	path := t.TempDir() // of this process alone: that of a rank which dies would stay
	launch := func(at int) (string, error) {
		out := &writer{}
		err := distributed.Launch(t.Context(), size, distributed.LaunchConfig{
			Command: []string{os.Args[0], "-test.run=^TestRanksThatShareWeightsDie$"}, Stdout: out, Stderr: out, Grace: 10 * time.Minute,
			Env: []string{rankFolder + "=" + path, rankFault + "=" + strconv.Itoa(at)},
		})
		return out.String(), err
	}
	said, err := launch(size * 5)
	for _, want := range []string{"rank 1 (", "no checkpoint of step 5: each rank has a part of the weights", "so of the 5 steps 1 are lost"} {
		if err == nil || !strings.Contains(said, want) {
			t.Errorf("rank 0 does not say %q but %q", want, said)
		}
	}
	if said, err := launch(0); err != nil {
		t.Fatal(err, said)
	}
	straight := m.run(t, 1, size, false, func(_ *distributed.Group, c *train.LoopConfig) {
		c.Steps, c.Evaluations.Every, c.Checkpoints = steps, 0, openFolder(t, t.TempDir(), 1)
	})
	c, err := checkpoint.Load(filepath.Join(path, fmt.Sprintf("step-%08d", steps)))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range c.Weights {
		if !slices.EqualFunc(w.Value.Float32s(), straight.values[w.Name], func(x float32, y float64) bool { return float64(x) == y }) {
			t.Errorf("%s differs from that of one process", w.Name)
		}
	}
}

// A rank that is gone has taken its part of the weights with it, and the others say so.
func TestRanksLoseSharedWeights(t *testing.T) {
	if testing.Short() {
		t.Skip("TestRanksLoseSharedState has the short case")
	}
	_, errs := together{size: 2, accumulation: 1, changeGroup: func(group *distributed.Group, c *train.LoopConfig) {
		if err := heldModels[0].trains(group, c); err != nil {
			t.Error(err)
		}
		c.Evaluations.Every = 0
		if group.Rank() == 0 {
			c.Checkpoints = openFolder(t, t.TempDir(), 2)
			return
		}
		c.Data = data.Func(func(n int) (data.Batch, error) {
			if n >= 4 {
				group.Close()
			}
			return counting{}.Batch(n)
		})
	}}.train(t)
	for _, want := range []string{"rank 1", "no checkpoint of step 2: each rank has a part of the weights and of the optimizer's state, and one is gone with its own"} {
		if errs[0] == nil || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("rank 0 says %v, want %q in it", errs[0], want)
		}
	}
}

// Ranks that share weights, gradients and state need a share of their memory: what all need
// together, after two steps, is little more than what one does, where it is otherwise as many times
// that.
func TestSharedWeightsTakeLessMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector has memory of its own")
	}
	const size = 3
	var bytes [2]float64
	for i, holds := range []bool{false, true} {
		model := heldModel{model: func(s *nn.Scope) *nn.LanguageModel {
			return nn.NewLlama(s, nn.LlamaConfig{Vocab: countVocab, Layers: 5, Heads: 2, Dim: 64, Hidden: 512})
		}}
		_, errs := together{size: size, accumulation: 1, changeGroup: func(group *distributed.Group, c *train.LoopConfig) {
			holders := group
			if !holds {
				holders = nil
			}
			if err := model.trains(holders, c); err != nil {
				t.Error(err)
			}
			c.Steps, c.Evaluations.Every = 3, 0
			c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
				if s.Done == 2 { // the other ranks cannot end their last step before this one begins it
					bytes[i] = heapInUse()
				}
				return nil
			}}}
		}}.train(t)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		bytes[i] -= heapInUse()
	}
	t.Logf("%d ranks use %.1f MB, with shared weights %.1f MB", size, bytes[0]/1e6, bytes[1]/1e6)
	if !(bytes[1] < 0.65*bytes[0]) {
		t.Errorf("%d ranks use %.1f MB, with shared weights %.1f MB", size, bytes[0]/1e6, bytes[1]/1e6)
	}
}
