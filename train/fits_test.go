package train

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/data"
)

// A step that the machine's memory cannot hold is an error before any of it is taken.
func TestStepThatDoesNotFit(t *testing.T) {
	before := hostMemory
	defer func() { hostMemory = before }()
	tokens, err := data.FromInts(make([]int, 1000))
	if err != nil {
		t.Fatal(err)
	}
	batches, err := data.Random(tokens, 64, 32, 1)
	if err != nil {
		t.Fatal(err)
	}
	loop := func(memory uint64, known bool) error {
		hostMemory = func() (uint64, bool) { return memory, known }
		l, err := NewLoop(LoopConfig{
			Model: func(s *nn.Scope, in Inputs) Outputs {
				m := nn.NewGPT(s, nn.GPTConfig{Vocab: 100, Context: 32, Layers: 2, Heads: 2, Dim: 64})
				return Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
			},
			Parameters: nn.NewParameters(0), Optimizer: AdamW{}, Options: Options{Schedule: ConstantRate(1e-3)}, Data: batches, Steps: 3,
		})
		if err == nil {
			err = l.Close()
		}
		return err
	}
	const want = "data: batch 0: a step on batches of targets [64 32] of int, tokens [64 32] of int takes about "
	if err := loop(8<<20, true); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the memory here is 8M: fewer or shorter") {
		t.Errorf("within 8M of memory the error is %v, want %q", err, want)
	}
	for memory, known := range map[uint64]bool{1 << 30: true, 0: false} {
		if err := loop(memory, known); err != nil {
			t.Errorf("within %d bytes of memory, known %v: %v", memory, known, err)
		}
	}
}
