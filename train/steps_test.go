package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The tests of this file train the model of testdata/steps.py, which PyTorch trained too.

const (
	countVocab, countLength, countRows = 17, 12, 4
	goldenSteps                        = 100
)

// word is a well mixed word for element i of what has that name.
func word(name string, i int) uint32 {
	x := crc32.ChecksumIEEE([]byte(name)) + uint32(i)*2654435761
	x = (x ^ x>>16) * 0x45D9F3B
	x = (x ^ x>>16) * 0x45D9F3B
	return x ^ x>>16
}

// counting are batches whose rows count upwards by a stride of their own, modulo the vocabulary.
type counting struct{}

func (counting) Batch(n int) (data.Batch, error) {
	tokens, targets := make([]int, countRows*countLength), make([]int, countRows*countLength)
	for r := range countRows {
		start, stride := int(word("start", countRows*n+r)), 1+int(word("stride", countRows*n+r)%3)
		for i := range countLength {
			tokens[r*countLength+i] = (start + i*stride) % countVocab
			targets[r*countLength+i] = (start + (i+1)*stride) % countVocab
		}
	}
	shape := tensor.WithShape(countRows, countLength)
	return data.Batch{"tokens": tensor.New(shape, tensor.WithBacking(tokens)), "targets": tensor.New(shape, tensor.WithBacking(targets))}, nil
}

// countingModel is the model of steps.py.
func countingModel(dtype tensor.Dtype, dropout float64) train.Model {
	return func(s *nn.Scope, in train.Inputs) train.Outputs {
		m := nn.NewGPT(s.DType(dtype), nn.GPTConfig{Vocab: countVocab, Context: countLength, Layers: 2, Heads: 3, Dim: 24, Dropout: dropout})
		return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
	}
}

// countingOptimizer is the optimiser of steps.py.
var countingOptimizer, countingOptions = train.AdamW{Beta2: 0.99, WeightDecay: 0.1}, train.Options{
	Schedule: train.WarmupCosine{Peak: 1e-2, Min: 1e-3, Warmup: 10, Steps: goldenSteps},
	Groups:   []train.Group{{Match: train.Vectors, NoDecay: true}},
	ClipNorm: 1,
}

// startWeights gives parameters the first values of steps.py.
func startWeights(t *testing.T, parameters gorgonia.Nodes) {
	for _, n := range parameters {
		value := func(i int) float64 { return float64(int(word(n.Name(), i)>>11)-1<<20) / (1 << 24) }
		switch {
		case strings.Contains(n.Name(), "norm") && strings.HasSuffix(n.Name(), "weight"):
			value = func(int) float64 { return 1 }
		case strings.HasSuffix(n.Name(), "bias"):
			value = func(int) float64 { return 0 }
		}
		switch data := n.Value().Data().(type) {
		case []float64:
			for i := range data {
				data[i] = value(i)
			}
		case []float32:
			for i := range data {
				data[i] = float32(value(i))
			}
		default:
			t.Fatalf("%s holds a %T", n.Name(), data)
		}
	}
}

// goldenOptimizers are those of steps.py, each with how many steps it takes and how far losses may
// be off, relatively.
var goldenOptimizers = map[string]struct {
	optimizer       train.Optimizer
	groups          []train.Group
	steps           int
	double, singles float64
}{
	"adamw":     {countingOptimizer, countingOptions.Groups, goldenSteps, 1e-9, 1e-4},
	"adafactor": {train.Adafactor{WeightDecay: 0.1}, countingOptions.Groups, 40, 1e-9, 1e-4},
	"muon": {train.Muon{WeightDecay: 0.1}, []train.Group{
		{Match: train.Vectors, NoDecay: true, Optimizer: countingOptimizer, LearningRateScale: 0.5},
		{Match: train.Named("tokens.*", "positions.*"), Optimizer: countingOptimizer, LearningRateScale: 0.5},
	}, 40, 1e-9, 1e-4},
}

// TestStepsAsInPyTorch compares losses and gradient norms of each step with PyTorch's, and the loss
// with an average of the weights.
func TestStepsAsInPyTorch(t *testing.T) {
	slow.Race(t)
	content, err := os.ReadFile("testdata/steps.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden map[string]struct {
		Losses, Norms []float64
		Averaged      float64
	}
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	for name, c := range goldenOptimizers {
		for dtype, bound := range map[tensor.Dtype]float64{tensor.Float64: c.double, tensor.Float32: c.singles} {
			t.Run(fmt.Sprint(name, " ", dtype), func(t *testing.T) {
				want := golden[fmt.Sprint(name, " ", dtype)]
				if len(want.Losses) != c.steps || len(want.Norms) != c.steps {
					t.Fatalf("the golden file has %d losses and %d norms, it needs %d", len(want.Losses), len(want.Norms), c.steps)
				}
				worst, worstNorm := 0.0, 0.0
				check := train.Hook{OnStep: func(s train.Step) error {
					i := s.Done - 1
					worst = max(worst, math.Abs(s.Loss/want.Losses[i]-1))
					worstNorm = max(worstNorm, math.Abs(s.GradientNorm/want.Norms[i]-1))
					if !(worst <= bound && worstNorm <= 100*bound) {
						return fmt.Errorf("step %d: loss %v and gradient norm %v, PyTorch has %v and %v", i, s.Loss, s.GradientNorm, want.Losses[i], want.Norms[i])
					}
					return nil
				}, OnEval: func(e train.Evaluation) error {
					t.Logf("with the average: %v, PyTorch has %v", e.Validation, want.Averaged)
					if e.Done == c.steps && !(math.Abs(e.Validation/want.Averaged-1) <= bound) {
						return fmt.Errorf("the loss with the average is %v, PyTorch has %v", e.Validation, want.Averaged)
					}
					return nil
				}}
				options := countingOptions
				options.Groups, options.Average = c.groups, &train.Average{Decay: 0.9, Evaluate: true}
				loop, err := train.NewLoop(train.LoopConfig{
					Model: countingModel(dtype, 0), Parameters: nn.NewParameters(1), Optimizer: c.optimizer, Options: options, Data: counting{},
					Steps: c.steps, Hooks: []train.Hook{check}, Evaluations: train.Evaluations{Every: c.steps, Batches: 1, Validation: onlyFirst{}},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer loop.Close()
				startWeights(t, loop.Parameters())
				end, err := loop.Run(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if end.Done != c.steps {
					t.Fatalf("%d steps done, want %d", end.Done, c.steps)
				}
				t.Logf("largest relative difference: loss %.2g, gradient norm %.2g", worst, worstNorm)
			})
		}
	}
}

// onlyFirst is the first of the counting batches, again and again.
type onlyFirst struct{}

func (onlyFirst) Batch(int) (data.Batch, error) { return counting{}.Batch(0) }
