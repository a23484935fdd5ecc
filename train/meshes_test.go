package train_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

var (
	drawnMeshes = flag.Int("meshes", 6, "how many meshes of ranks to draw, each with what it trains")
	meshSeed    = flag.Uint64("mesh-seed", 1, "the first seed of those meshes; 0 takes the clock's")
)

// mesh is ranks, of which every so many share sequences, and every so many hold one copy of what is
// sharded.
type mesh struct {
	ranks, sequences int
	shard            train.Shard
	holders          int // 0 for all
	files            bool
}

// meshTraining is what a mesh trains: so many batches a step.
type meshTraining struct {
	batches   int
	model     func(s *nn.Scope) *nn.LanguageModel
	compute   tensor.Dtype // float64, or that of activations beside float32 parameters
	packed    bool
	padded    int             // 1 where rows end early
	optimizer train.Optimizer // of matrices
	clip      float64
	average   *train.Average
	scaling   *train.LossScaling
	frozen    []string
	lora      int
	about     string
}

const meshLength = 48 // which two, three, four, six and eight ranks can share

// batch is batch n: of one to three rows, or as many tokens in sequences of other lengths each
// time.
func (m meshTraining) batch(n int) (data.Batch, error) {
	rows := 1 + int(word("rows", n)%3)
	total := rows * meshLength
	tokens, targets, positions, ends := make([]int, total), make([]int, total), make([]int, total), []int{0}
	for i := range total {
		tokens[i] = int(word("token", 1000*n+i)>>3) % countVocab
		targets[i] = (tokens[i] + i%5) % countVocab
	}
	if !m.packed {
		for row := range rows * m.padded { // of which ranks that share them have some, and one maybe none
			at := row * meshLength
			for i := int(word("end", 10*n+row) % meshLength); i < meshLength; i++ {
				targets[at+i] = nn.IgnoreTarget
			}
		}
		return data.Batch{"tokens": ofInts(tokens, rows, meshLength), "targets": ofInts(targets, rows, meshLength)}, nil
	}
	for at := 0; at < total; {
		end := min(total, at+1+int(word("length", 1000*n+at)%20))
		for i := at; i < end; i++ {
			positions[i] = i - at
		}
		if word("counts", 1000*n+at)%4 == 0 {
			targets[at] = nn.IgnoreTarget
		}
		ends, at = append(ends, end), end
	}
	return data.Batch{
		"tokens": ofInts(tokens, total), "targets": ofInts(targets, total), "positions": ofInts(positions, total), "ends": ofInts(ends, len(ends)),
	}, nil
}

func ofInts(list []int, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(list))
}

// run trains up to a step, from the newest checkpoint in a folder on, and returns the losses and
// what each rank has.
func (m meshTraining) run(t *testing.T, of mesh, path string, steps int) ([]course, error) {
	t.Helper()
	folder := openFolder(t, path, 2)
	courses, errs := make([]course, of.ranks), make([]error, of.ranks)
	var ranks sync.WaitGroup
	for rank, place := range rankConfigs(t, of.ranks) {
		ranks.Go(func() { courses[rank], errs[rank] = m.rank(t, of, place, folder, steps) })
	}
	ranks.Wait()
	return courses, errors.Join(append(errs, folder.Close())...)
}

func (m meshTraining) rank(t *testing.T, of mesh, config distributed.Config, folder *checkpoint.Folder, steps int) (left course, err error) {
	group, err := distributed.Join(t.Context(), config)
	if err != nil {
		return left, err
	}
	defer func() {
		if err != nil {
			group.Abort(err)
		}
		group.Close()
	}()
	place, err := train.OpenPlace(t.Context(), train.PlaceConfig{
		Device: "cpu", Group: group, SequenceRanks: of.sequences, Shard: of.shard, ShardRanks: of.holders, SharedFiles: of.files,
	})
	if err != nil {
		return left, err
	}
	parameters, err := place.NewParameters(7)
	if err != nil {
		return left, err
	}
	if m.frozen != nil {
		parameters.Freeze(func(name string) bool {
			return slices.ContainsFunc(m.frozen, func(part string) bool { return strings.Contains(name, part) })
		})
	}
	if m.lora > 0 {
		if err := parameters.SetLoRA(nn.LoRA{Rank: m.lora}); err != nil {
			return left, err
		}
	}
	if config.Rank > 0 {
		folder = nil
	}
	options := train.Options{
		Schedule: train.ConstantRate(1e-2), ClipNorm: m.clip, Accumulation: m.batches * of.sequences / of.ranks, Average: m.average, LossScaling: m.scaling,
		Groups: []train.Group{{Match: train.Vectors, NoDecay: true}},
	}
	if _, isMuon := m.optimizer.(train.Muon); isMuon {
		options.Groups = []train.Group{{Match: train.Any(train.Vectors, train.Named("tokens.*", "positions.*", "head.*")), Optimizer: train.AdamW{Epsilon: 1e-4}}}
	}
	batches := data.Func(m.batch)
	loop, err := train.NewLoop(train.LoopConfig{
		Place: place, Parameters: parameters, Data: batches, Steps: steps, Checkpoints: folder, Optimizer: m.optimizer, Options: options,
		Evaluations: train.Evaluations{Every: 2, Batches: 3, Validation: batches},
		Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
			if m.compute == tensor.Float64 {
				s = s.DType(tensor.Float64)
			} else {
				s = s.Compute(m.compute)
			}
			model, tokens, targets := m.model(s), in.Get("tokens"), in.Get("targets")
			if m.packed {
				return train.Outputs{Loss: model.LossPacked(tokens, targets, nn.Packing{Ends: in.Get("ends"), Positions: in.Get("positions")})}
			}
			return train.Outputs{Loss: model.Loss(tokens, targets)}
		},
		Hooks: []train.Hook{{
			OnStep: func(s train.Step) error { left.losses = append(left.losses, s.Loss); return nil },
			OnEval: func(e train.Evaluation) error {
				left.evaluations = append(left.evaluations, e.Train, e.Validation)
				return nil
			},
		}},
	})
	if err != nil {
		return left, err
	}
	defer loop.Close()
	if refused, err := loop.Resume(); len(refused) > 0 || err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return left, errors.Join(append(refused, err)...)
	}
	if left.end, err = loop.Run(t.Context()); err != nil {
		return left, err
	}
	for _, n := range loop.Parameters() {
		value := n.Value().(*tensor.Dense)
		left.weights = append(left.weights, numbersOf(value)...)
	}
	return left, nil
}

func numbersOf(value *tensor.Dense) (list []float64) {
	switch numbers := value.Data().(type) {
	case []float64:
		return slices.Clone(numbers)
	case []float32:
		for _, x := range numbers {
			list = append(list, float64(x))
		}
	}
	return list
}

// drawTraining draws what is trained.
func drawTraining(r *rand.Rand) meshTraining {
	m := meshTraining{batches: []int{2, 4, 5, 6, 8}[r.IntN(5)], clip: float64(r.IntN(2)) * 0.5, compute: tensor.Float64}
	wide := r.IntN(4) > 0
	if !wide {
		m.compute = []tensor.Dtype{tensor.Float32, ops.BFloat16}[r.IntN(2)]
	}
	m.packed, m.padded = r.IntN(3) == 0, r.IntN(2)
	dropout := float64(r.IntN(2)) * 0.1
	attention, options := ops.AttentionOptions{}, r.IntN(4)
	switch options {
	case 1:
		attention.Window = &kernels.Window{Left: 9}
	case 2:
		attention.ALiBi = []float64{0.5, 0.1}
	}
	recompute, tied, gpt := r.IntN(4) == 0, r.IntN(2) == 0, r.IntN(2) == 0
	m.optimizer = []train.Optimizer{
		train.AdamW{WeightDecay: 0.1, Epsilon: 1e-4}, train.AdamW{Epsilon: 1e-4}, train.SGD{Momentum: 0.9, WeightDecay: 0.1},
		train.Muon{WeightDecay: 0.1}, train.Adafactor{},
	}[r.IntN(5)]
	_, relative := m.optimizer.(train.Adafactor)
	bare := relative || m.compute != tensor.Float64 // the gradient of a bias of keys is nothing but rounding
	m.model = func(s *nn.Scope) *nn.LanguageModel {
		if gpt {
			return nn.NewGPT(s, nn.GPTConfig{
				Vocab: countVocab, Context: meshLength, Layers: 2, Heads: 2, Dim: 16, Dropout: dropout, Attention: attention, Recompute: recompute,
				NoBias: bare,
			})
		}
		return nn.NewLlama(s, nn.LlamaConfig{
			Vocab: countVocab, Layers: 2, Heads: 2, KVHeads: 1, Dim: 16, Hidden: 23, Dropout: dropout, Attention: attention, Recompute: recompute, TiedHead: tied,
		})
	}
	if r.IntN(3) == 0 {
		m.average = &train.Average{Decay: 0.9, Evaluate: true}
	}
	if r.IntN(4) == 0 {
		m.frozen = []string{"blocks.0.", "norm"}
	}
	if _, isMuon := m.optimizer.(train.Muon); !isMuon && r.IntN(6) == 0 { // a group of Muon's names no matrix of a LoRA
		m.lora = 2
	}
	m.about = fmt.Sprintf("GPT %v, tied %v, attention %d, dropout %v, computed again %v, %v, packed %v, padded %v, %d batches, %T, clip %v, average %v, frozen %v, LoRA %d",
		gpt, tied || gpt, options, dropout, recompute, m.compute, m.packed, m.padded, m.batches, m.optimizer, m.clip, m.average != nil, m.frozen, m.lora)
	return m
}

// drawMesh draws a mesh that can make a step of the training's batches.
func drawMesh(r *rand.Rand, m meshTraining) mesh {
	for {
		of := mesh{ranks: 2 + r.IntN(7), sequences: 1, files: r.IntN(2) == 0}
		if !m.packed {
			of.sequences = []int{1, 1, 2, 3, 4, 6, 8}[r.IntN(7)]
		}
		if _, whole := m.optimizer.(train.Adafactor); !whole {
			of.shard = []train.Shard{train.ShardNothing, train.ShardState, train.ShardWeights}[r.IntN(3)]
		}
		if of.shard != train.ShardNothing {
			of.holders = []int{0, 2, 3, 4}[r.IntN(4)]
		}
		if of.ranks%of.sequences == 0 && of.ranks%max(1, of.holders) == 0 && m.batches%(of.ranks/of.sequences) == 0 {
			return of
		}
	}
}

// Meshes of ranks train as one process does that takes the batches of all, whatever they share:
// sequences, the optimiser's state, weights, among all or within groups. A mesh goes on from what
// another has written. What is drawn has its seed in its name: -mesh-seed N -meshes 1 repeats it.
func TestMeshes(t *testing.T) {
	slow.Race(t)
	slow.Emulated(t)
	count, first := *drawnMeshes, *meshSeed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	if testing.Short() {
		count = min(count, 2)
	}
	for seed := first; seed < first+uint64(count); seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		m := drawTraining(r)
		list := []mesh{drawMesh(r, m), drawMesh(r, m)}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Logf("%+v: %s", list, m.about)
			m.compare(t, list)
		})
	}
}

// Eight ranks share sequences, state and weights in all ways that groups of two and four allow, and
// go on from each other's checkpoints. Rows end early, so that one has fewer targets than another.
func TestMeshesOfEight(t *testing.T) {
	if testing.Short() {
		t.Skip("TestMeshes has the short case")
	}
	meshTraining{batches: 8, padded: 1, compute: tensor.Float64, optimizer: train.AdamW{WeightDecay: 0.1}, clip: 0.5, model: func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: countVocab, Context: meshLength, Layers: 1, Heads: 2, Dim: 16, Dropout: 0.1, NoBias: true})
	}}.compare(t, []mesh{
		{ranks: 8, sequences: 1, shard: train.ShardState, holders: 4},
		{ranks: 8, sequences: 1, shard: train.ShardWeights, holders: 2, files: true},
		{ranks: 8, sequences: 2, shard: train.ShardWeights, holders: 4},
		{ranks: 8, sequences: 4, shard: train.ShardState, holders: 2, files: true},
		{ranks: 8, sequences: 4, shard: train.ShardWeights, holders: 4, files: true},
		{ranks: 8, sequences: 2, shard: train.ShardWeights},
		{ranks: 8, sequences: 4},
		{ranks: 4, sequences: 2},
	})
}

// Ranks that write checkpoints together go on from them by an optimiser whose state has other
// shapes than the weights.
func TestMeshOfAdafactor(t *testing.T) {
	two := mesh{ranks: 2, sequences: 1, files: true}
	meshTraining{batches: 2, compute: tensor.Float64, optimizer: train.Adafactor{}, model: func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: countVocab, Layers: 1, Heads: 2, Dim: 16, Hidden: 23})
	}}.compare(t, []mesh{two, two})
}

// bound is for numbers relative to the largest of their tensor: at most ten times the largest
// difference seen in 500 draws, or 1, for what is not compared.
func (m meshTraining) bound() (losses, tensors float64) {
	switch m.compute {
	case tensor.Float64:
		return 3e-15, 3e-12
	case tensor.Float32:
		return 4e-7, 2e-5
	}
	return 1e-3, 1 // what is computed in parts is rounded in parts
}

// compare trains on one mesh after the other, two steps each, and on one process.
func (m meshTraining) compare(t *testing.T, list []mesh) {
	t.Helper()
	paths, steps := [2]string{t.TempDir(), t.TempDir()}, 2*len(list)
	one, err := m.run(t, mesh{ranks: 1, sequences: 1}, paths[0], steps)
	if err != nil {
		t.Fatal(err)
	}
	var losses, evaluations []float64
	for i, of := range list {
		all, err := m.run(t, of, paths[1], 2*(i+1))
		if err != nil {
			t.Fatalf("%+v: %v", of, err)
		}
		losses, evaluations = append(losses, all[0].losses...), append(evaluations, all[0].evaluations...)
		for rank, c := range all {
			like := rank // the first that has the same
			switch {
			case of.shard != train.ShardWeights:
				like = 0
			case of.holders > 0:
				like = rank % of.holders
			}
			if !slices.Equal(c.weights, all[like].weights) {
				t.Errorf("%+v: rank %d has other weights than rank %d", of, rank, like)
			}
		}
	}
	bound, tensors := m.bound()
	worst := differs(t, "losses", losses, one[0].losses, bound)
	worst = max(worst, differs(t, "evaluations", evaluations, one[0].evaluations, bound))
	t.Logf("losses differ by at most %.2g", worst)
	worst = 0
	var last [2]checkpoint.Checkpoint
	for i, path := range paths {
		if last[i], err = checkpoint.Load(filepath.Join(path, fmt.Sprintf("step-%08d", steps))); err != nil {
			t.Fatal(err)
		}
	}
	for _, both := range [][2]safetensors.Tensors{{last[1].Weights, last[0].Weights}, {last[1].Optimizer, last[0].Optimizer}} {
		want := both[1].Map()
		if len(both[0]) != len(want) {
			t.Errorf("%d tensors, of one process %d", len(both[0]), len(want))
		}
		for _, have := range both[0] {
			if want[have.Name] == nil {
				t.Errorf("%s is not one process's", have.Name)
				continue
			}
			worst = max(worst, differs(t, have.Name, numbersOf(have.Value), numbersOf(want[have.Name]), tensors))
		}
	}
	t.Logf("tensors differ by at most %.2g", worst)
}

// differs is the largest difference of numbers, relative to the largest of them.
func differs(t *testing.T, what string, have, want []float64, bound float64) (worst float64) {
	t.Helper()
	if len(have) != len(want) || len(have) == 0 {
		t.Fatalf("%s: %d numbers, of one process %d", what, len(have), len(want))
	}
	largest := 0.0
	for _, x := range want {
		largest = max(largest, math.Abs(x))
	}
	for i, x := range have {
		if x == want[i] {
			continue
		}
		difference := math.Abs(x-want[i]) / largest
		if !(difference <= bound) && !(worst > bound) {
			t.Errorf("%s: number %d is %v, of one process %v", what, i, x, want[i])
		}
		worst = max(worst, difference)
	}
	return worst
}

// What a mesh cannot train is an error that says so.
func TestMeshErrors(t *testing.T) {
	llama := meshTraining{batches: 2, compute: tensor.Float64, optimizer: train.AdamW{}, model: func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewLlama(s, nn.LlamaConfig{Vocab: countVocab, Layers: 1, Heads: 2, Dim: 16, Hidden: 23})
	}}
	for want, c := range map[string]struct {
		of     mesh
		change func(m *meshTraining)
	}{
		"for ranks to share its sequences":                       {mesh{ranks: 2, sequences: 2}, func(m *meshTraining) { m.packed = true }},
		"Adafactor computes with whole parameters":               {mesh{ranks: 4, sequences: 2, shard: train.ShardState, holders: 2}, func(m *meshTraining) { m.optimizer = train.Adafactor{} }},
		"ShardRanks is 4: distributed: Split: size is 4":         {mesh{ranks: 2, sequences: 1, shard: train.ShardState, holders: 4}, func(*meshTraining) {}},
		"LossScaling is set and one of the ranks that share a b": {mesh{ranks: 2, sequences: 2}, func(m *meshTraining) { m.padded, m.scaling = 1, &train.LossScaling{} }},
	} {
		m := llama
		c.change(&m)
		if _, err := m.run(t, c.of, t.TempDir(), 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q in it", c.of, err, want)
		}
	}
}
