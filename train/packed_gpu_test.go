//go:build gpu

package train

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/tensor"
)

// packedBatch is batch n of sequences that lie end to end, of tokens of a list. What is behind the
// last does not count.
func packedBatch(ids []int, total, n int, ends []int) data.Batch {
	vector := func(list []int) *tensor.Dense {
		return tensor.New(tensor.WithShape(len(list)), tensor.WithBacking(list))
	}
	tokens, targets, positions := make([]int, total), make([]int, total), make([]int, total)
	from := n * total % (len(ids) - total)
	copy(tokens, ids[from:])
	copy(targets, ids[from+1:])
	for s := 1; s < len(ends); s++ {
		for i := ends[s-1]; i < ends[s]; i++ {
			positions[i] = i - ends[s-1]
		}
	}
	for i := ends[len(ends)-1]; i < total; i++ {
		targets[i] = nn.IgnoreTarget
	}
	return data.Batch{"tokens": vector(tokens), "targets": vector(targets), "positions": vector(positions), "ends": vector(ends)}
}

// cuts are ends of up to seven sequences in some tokens, most in another way in each batch.
func cuts(total int) func(n int) []int {
	return func(n int) []int {
		const sequences = 7
		random := rand.New(rand.NewPCG(4, uint64(n)))
		ends := make([]int, sequences+1)
		for i := 1; i <= sequences; i++ {
			ends[i] = random.IntN(total + 1)
		}
		slices.Sort(ends)
		switch ends[sequences] = total; n % 5 {
		case 1: // one sequence
			for i := 1; i < sequences; i++ {
				ends[i] = total
			}
		case 3: // tokens behind the last, and the first ones are empty
			for i := range ends {
				ends[i] = max(0, i-3) * total / sequences
			}
		}
		return ends
	}
}

// Sequences that lie end to end are trained on the device as on the host. Their lengths, which the
// host reads, differ from batch to batch: steps are recorded all the same, and have the bits of
// those that are not.
func TestPackedSequencesOnTheDevice(t *testing.T) {
	d := gpu(t)
	gpt := nn.GPTConfig{Vocab: 67, Context: 320, Layers: 2, Heads: 4, Dim: 64, Attention: ops.AttentionOptions{Guarantees: kernels.Guarantees{Deterministic: true}}}
	dropping := gpt
	dropping.Dropout = 0.2
	llama := &nn.LlamaConfig{Vocab: gpt.Vocab, Context: gpt.Context, Layers: 2, Heads: 4, KVHeads: 2, Dim: 64, Attention: gpt.Attention}
	for _, base := range []training{
		{model: gpt, accumulation: 1}, {model: dropping, accumulation: 1}, {model: dropping, accumulation: 2}, {model: gpt, llama: llama, accumulation: 1},
	} {
		base.rows, base.steps, base.packed = 1, 30, cuts(gpt.Context)
		name := fmt.Sprintf("llama %v, dropout %v, %d runs a step", base.llama != nil, base.model.Dropout, base.accumulation)
		want, _, _ := base.losses(t)
		if !(want[len(want)-1] < want[0]-0.1) {
			t.Fatalf("%s: the losses on the host go from %v to %v: nothing is learnt", name, want[0], want[len(want)-1])
		}
		for compute, bound := range map[tensor.Dtype]float64{tensor.Float32: 1e-4, ops.BFloat16: 1e-2} {
			c := base
			c.device, c.compute = d, compute
			recorded, weights, l := c.losses(t)
			if l.training.last.recording == nil || l.training.unrecorded != nil {
				t.Errorf("%s, %v: the steps were not recorded: %v", name, compute, l.training.unrecorded)
			}
			for i := range want {
				if !(math.Abs(recorded[i]-want[i]) <= bound*want[i]) {
					t.Fatalf("%s, %v: the losses are %v, on the host %v", name, compute, recorded, want)
				}
			}
			c.prepare = func(l *Loop) { l.training.unrecorded = errors.New("not wanted") }
			plain, plainWeights, _ := c.losses(t)
			if !slices.Equal(plain, recorded) || !slices.EqualFunc(weights, plainWeights, slices.Equal) {
				t.Errorf("%s, %v: unrecorded losses are %v, recorded ones %v", name, compute, plain, recorded)
			}
		}
	}
}

// Recorded steps whose lengths change take no memory.
func TestMemoryOfPackedSteps(t *testing.T) {
	c := training{device: gpu(t), rows: 1, steps: 1000, packed: cuts(320), compute: ops.BFloat16, model: nn.GPTConfig{
		Vocab: 67, Context: 320, Layers: 2, Heads: 4, Dim: 64, Dropout: 0.1,
	}}
	raw, err := cuda.Default()
	if err != nil {
		t.Fatal(err)
	}
	var looks []cuda.Memory
	l := c.loop(t, Hook{OnStep: func(s Step) error {
		if s.Done%100 == 0 {
			looks = append(looks, raw.Memory())
		}
		return nil
	}})
	if _, err := l.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if l.training.last.recording == nil {
		t.Fatal("the steps were not recorded: ", l.training.unrecorded)
	}
	for _, look := range looks {
		if look.Allocations != looks[0].Allocations || look.Live > looks[0].Live {
			t.Fatalf("memory, each 100 steps: %+v", looks)
		}
	}
}
