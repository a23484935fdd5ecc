package train_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/tensor"
)

// A training whose blocks are computed again has the bits of one whose blocks keep what they
// computed, dropout included, and needs less memory.
func TestRecompute(t *testing.T) {
	slow.Race(t)
	for name, build := range map[string]func(s *nn.Scope, again bool) *nn.LanguageModel{
		"GPT": func(s *nn.Scope, again bool) *nn.LanguageModel {
			return nn.NewGPT(s, nn.GPTConfig{Vocab: countVocab, Context: countLength, Layers: 8, Heads: 4, Dim: 64, Dropout: 0.1, Recompute: again})
		},
		"Llama": func(s *nn.Scope, again bool) *nn.LanguageModel {
			return nn.NewLlama(s, nn.LlamaConfig{Vocab: countVocab, Layers: 6, Heads: 4, KVHeads: 2, Dim: 64, Hidden: 64, QKNorm: true, Dropout: 0.1, Recompute: again})
		},
	} {
		var losses [2][]uint64
		var loops [2]*train.Loop
		var bytes [2]float64
		for i, again := range []bool{false, true} {
			store := nn.NewParameters(3)
			before := heapInUse()
			loops[i] = countingLoop(t, nil, func(c *train.LoopConfig) {
				c.Steps, c.Evaluations.Every, c.Evaluations.Validation = 2, 0, nil
				c.Data = repeated{8}
				c.Parameters, c.Model = store, lossOf(func(s *nn.Scope) *nn.LanguageModel { return build(s, again) })
				c.Hooks = []train.Hook{{OnStep: func(s train.Step) error {
					losses[i] = append(losses[i], math.Float64bits(s.Loss))
					return nil
				}}}
			})
			runLoop(t, loops[i], context.Background())
			bytes[i] = heapInUse() - before
		}
		if !slices.Equal(losses[0], losses[1]) || !slices.Equal(bits(loops[0]), bits(loops[1])) {
			t.Errorf("%s: losses or weights differ from those of blocks that keep what they computed", name)
		}
		t.Logf("%s: %.1f MB, computed again %.1f MB", name, bytes[0]/1e6, bytes[1]/1e6)
		if !(bytes[1] < 0.7*bytes[0]) {
			t.Errorf("%s: %.1f MB are in use after the training, %.1f where nothing is computed again", name, bytes[1]/1e6, bytes[0]/1e6)
		}
	}
}

// heapInUse is what lives on the heap, when the cleanups of graphs that are gone have run too.
func heapInUse() float64 {
	var m runtime.MemStats
	for last := uint64(math.MaxUint64); ; last = m.HeapAlloc {
		runtime.GC()
		time.Sleep(time.Millisecond)
		if runtime.ReadMemStats(&m); m.HeapAlloc+1<<16 > last {
			return float64(m.HeapAlloc)
		}
	}
}

// repeated are batches of counting, several of them one below the other.
type repeated struct{ times int }

func (r repeated) Batch(n int) (data.Batch, error) {
	all := data.Batch{}
	for _, name := range []string{"tokens", "targets"} {
		var ids []int
		for i := range r.times {
			b, err := counting{}.Batch(n*r.times + i)
			if err != nil {
				return nil, err
			}
			ids = append(ids, b[name].Ints()...)
		}
		all[name] = tensor.New(tensor.WithShape(r.times*countRows, countLength), tensor.WithBacking(ids))
	}
	return all, nil
}

// lossOf trains a language model.
func lossOf(model func(s *nn.Scope) *nn.LanguageModel) train.Model {
	return func(s *nn.Scope, in train.Inputs) train.Outputs {
		return train.Outputs{Loss: model(s).Loss(in.Get("tokens"), in.Get("targets"))}
	}
}
