package nn_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
)

// This file trains the models of models_test.go, beside whose losses bench/models/curves.py has
// those of their twins in PyTorch, on the same batches.

var (
	curves = flag.String("curves", "", "a file: train models and write their losses there")
	seeds  = flag.Int("seeds", 20, "with -curves: trainings of each model")
)

const curveRows, curveSteps = 32, 300

// task is a model and what it learns. The numbers of batch n of a task are those of word and value
// for the task's name and n.
type task struct {
	name  string
	model func(s *nn.Scope, in train.Inputs) nn.Tensor
	batch func(b *taskBatch)
}

// taskBatch makes a batch.
type taskBatch struct {
	data.Batch
	name string
}

// drawn is a number below a limit for a row.
func (b *taskBatch) drawn(what string, row, limit int) int {
	return int(word(b.name+what, row) % uint32(limit))
}

// ids adds integers, (rows, …), each of them a row's.
func (b *taskBatch) ids(name string, of func(row, i int) int, shape ...int) {
	each := 1
	for _, n := range shape {
		each *= n
	}
	list := make([]int, 0, curveRows*each)
	for row := range curveRows {
		for i := range each {
			list = append(list, of(row, i))
		}
	}
	b.Batch[name] = data.Ints(list, append([]int{curveRows}, shape...)...)
}

// noisy adds what each row's class looks like, with noise.
func (b *taskBatch) noisy(name string, class func(row, i int) int, shape ...int) {
	each := 1
	for _, n := range shape {
		each *= n
	}
	list := make([]float32, 0, curveRows*each)
	for row := range curveRows {
		for i := range each {
			list = append(list, float32(value(fmt.Sprint("class", class(row, i)), i)+1.5*value(b.name+name, row*each+i)))
		}
	}
	b.Batch[name] = data.Floats(list, append([]int{curveRows}, shape...)...)
}

// counted is token i of a row that counts in steps of one to three.
func (b *taskBatch) counted(row, i int) int {
	return (b.drawn("start", row, 19) + i*(1+b.drawn("step", row, 3))) % 19
}

var tasks = []task{
	{"ViT", func(s *nn.Scope, in train.Inputs) nn.Tensor {
		return visionTransformer(s, in.Get("images")).CrossEntropy(in.Get("labels"))
	}, func(b *taskBatch) {
		label := func(row, _ int) int { return b.drawn("label", row, 10) }
		b.noisy("images", label, 3, 8, 8)
		b.ids("labels", label)
	}},
	{"masked BERT", func(s *nn.Scope, in train.Inputs) nn.Tensor {
		return maskedBERT(s, in.Get("tokens")).CrossEntropy(in.Get("targets"))
	}, func(b *taskBatch) {
		b.ids("tokens", func(row, i int) int {
			if i == b.drawn("mask", row, 6) {
				return 19
			}
			return b.counted(row, i)
		}, 6)
		b.ids("targets", b.counted, 6)
	}},
	{"T5", func(s *nn.Scope, in train.Inputs) nn.Tensor {
		return t5(s, in.Get("source"), in.Get("said")).CrossEntropy(in.Get("targets"))
	}, func(b *taskBatch) {
		source := func(row, i int) int { return 1 + b.drawn("source", row*6+i, 19) }
		b.ids("source", source, 6)
		b.ids("said", func(row, i int) int {
			if i == 0 {
				return 0
			}
			return source(row, 6-i)
		}, 5)
		b.ids("targets", func(row, i int) int { return source(row, 5-i) }, 5)
	}},
	{"mixture of experts", func(s *nn.Scope, in train.Inputs) nn.Tensor {
		return moe(s, in.Get("tokens")).CrossEntropy(in.Get("targets"))
	}, func(b *taskBatch) {
		b.ids("tokens", b.counted, 6)
		b.ids("targets", func(row, i int) int { return b.counted(row, i+1) }, 6)
	}},
	{"Whisper", func(s *nn.Scope, in train.Inputs) nn.Tensor {
		return whisper(s, in.Get("sound"), in.Get("said")).CrossEntropy(in.Get("targets"))
	}, func(b *taskBatch) {
		b.noisy("sound", func(row, i int) int { return b.counted(row, i/10) }, 12, 5)
		b.ids("said", func(row, i int) int {
			if i == 0 {
				return 19
			}
			return b.counted(row, i-1)
		}, 6)
		b.ids("targets", b.counted, 6)
	}},
	{"CLIP", func(s *nn.Scope, in train.Inputs) nn.Tensor {
		return clip(s, in.Get("images"), in.Get("tokens"), in.Get("rows"))
	}, func(b *taskBatch) {
		class := func(row, _ int) int { return row + curveRows*b.drawn("class", row, 4) } // no two rows have one
		b.noisy("images", class, 3, 8, 8)
		b.ids("tokens", func(row, i int) int { return int(word(fmt.Sprint("words", class(row, 0)), i) % 19) }, 6)
		b.ids("rows", func(row, _ int) int { return row })
	}},
	{"DPO", func(s *nn.Scope, in train.Inputs) nn.Tensor {
		s.Values().Freeze(func(name string) bool { return strings.HasPrefix(name, "reference") })
		return dpo(s, in.Get("tokens"), in.Get("targets"))
	}, func(b *taskBatch) {
		token := func(row, i int) int {
			if row < curveRows/2 {
				return b.counted(row, i)
			}
			return b.drawn("any", row*9+i, 20)
		}
		b.ids("tokens", token, 8)
		b.ids("targets", func(row, i int) int { return token(row, i+1) }, 8)
	}},
	{"convolution and LSTM", func(s *nn.Scope, in train.Inputs) nn.Tensor {
		return convolutionalLSTM(s, in.Get("sound")).CrossEntropy(in.Get("labels"))
	}, func(b *taskBatch) {
		label := func(row, _ int) int { return b.drawn("label", row, 10) }
		b.noisy("sound", label, 7, 5)
		b.ids("labels", label)
	}},
}

// losses trains a task's model from a seed.
func (k task) losses(t *testing.T, seed uint64, steps int) (list []float64) {
	t.Helper()
	_, err := train.Run(context.Background(), train.LoopConfig{
		Parameters: nn.NewParameters(seed), Optimizer: train.AdamW{}, Options: train.Options{Schedule: train.ConstantRate(3e-3)},
		Model: func(s *nn.Scope, in train.Inputs) train.Outputs { return train.Outputs{Loss: k.model(s, in)} },
		Data: data.Func(func(n int) (data.Batch, error) {
			b := &taskBatch{data.Batch{}, fmt.Sprint(k.name, n)}
			k.batch(b)
			return b.Batch, nil
		}),
		Steps: steps, Hooks: []train.Hook{{OnStep: func(s train.Step) error {
			list = append(list, s.Loss)
			return nil
		}}},
	})
	if err != nil {
		t.Fatalf("%s: %v", k.name, err)
	}
	return list
}

// With -curves, losses of all models and seeds are written, by name. Without, each model learns
// something in a few steps.
func TestCurves(t *testing.T) {
	slow.Race(t)
	all := map[string][][]float64{}
	for _, k := range tasks {
		if *curves == "" {
			if list := k.losses(t, 1, 40); !(mean(list[30:]) < mean(list[:10])) {
				t.Errorf("%s: the losses are %.3f", k.name, list)
			}
			continue
		}
		for seed := range *seeds {
			all[k.name] = append(all[k.name], k.losses(t, uint64(seed+1), curveSteps))
		}
	}
	if *curves == "" {
		return
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*curves, text, 0o666); err != nil {
		t.Fatal(err)
	}
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// Queries begin so that scores are as large whatever their scale is, alone or beside keys and
// values.
func TestQueriesFollowTheScale(t *testing.T) {
	const dim, heads = 64, 4
	for _, c := range []struct{ scale, factor float64 }{{0, 1}, {0.25, 1}, {0.1, 1}, {1, 0.25}, {-2, 0.125}} {
		for _, cross := range []bool{false, true} {
			s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(1))
			m := nn.NewMultiHeadAttention(s.Sub("attn"), nn.MultiHeadAttentionConfig{Dim: dim, Heads: heads, Cross: cross, Options: ops.AttentionOptions{Scale: c.scale}})
			if m == nil || s.Err() != nil {
				t.Fatal(s.Err())
			}
			for _, n := range s.Trainable() {
				name, isWeight := strings.CutSuffix(strings.TrimPrefix(n.Name(), "attn."), ".weight")
				if !isWeight || name == "proj" {
					continue
				}
				columns := n.Shape()[1]
				var squares [2]float64 // of queries, and of others
				var counts [2]int
				for i, x := range floats(t, n.Value()) {
					which := 0
					if name != "q" && (name != "qkv" || i%columns >= dim) {
						which = 1
					}
					squares[which] += x * x
					counts[which]++
				}
				for which, want := range []float64{c.factor / 8, 1.0 / 8} {
					if got := math.Sqrt(squares[which] / float64(max(1, counts[which]))); counts[which] > 0 && !(math.Abs(got/want-1) < 0.05) {
						t.Errorf("scale %v, cross %t: %s begins with a deviation of %.4f, it needs to be %.4f", c.scale, cross, n.Name(), got, want)
					}
				}
			}
		}
	}
}
