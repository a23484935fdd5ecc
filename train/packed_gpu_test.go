//go:build gpu

package train

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// packed are batches of 96 tokens in five sequences of other lengths in each batch.
func packed(n int) (data.Batch, error) {
	const total, vocab = 96, 19
	vector := func(list []int) *tensor.Dense {
		return tensor.New(tensor.WithShape(len(list)), tensor.WithBacking(list))
	}
	ends := []int{0, 7 + n%11, 20 + n%17, 44, 45 + n%23, total}
	tokens, targets, positions := make([]int, total), make([]int, total), make([]int, total)
	for s := 1; s < len(ends); s++ {
		for i := ends[s-1]; i < ends[s]; i++ {
			positions[i] = i - ends[s-1]
			tokens[i], targets[i] = (n+3*positions[i])%vocab, (n+3*positions[i]+3)%vocab
		}
	}
	return data.Batch{"tokens": vector(tokens), "targets": vector(targets), "positions": vector(positions), "ends": vector(ends)}, nil
}

// Sequences that lie end to end are trained on the device as on the host: their lengths, which the host reads, differ from batch to
// batch, so that steps are not recorded, which is said once.
func TestPackedSequencesOnTheDevice(t *testing.T) {
	losses := map[*ops.Device][]float64{}
	device := gpu(t)
	for _, d := range []*ops.Device{nil, device} {
		parameters := nn.NewParameters(5)
		if d != nil {
			if err := parameters.MoveTo(d); err != nil {
				t.Fatal(err)
			}
		}
		var notices []Notice
		l, err := NewLoop(LoopConfig{
			Device: d, Data: data.Func(packed), Steps: 12,
			Model: func(g *gorgonia.ExprGraph, in Inputs) (Outputs, error) {
				m, err := nn.NewGPT(g, nn.GPTConfig{Parameters: parameters, Vocab: 19, Context: 96, Layers: 2, Heads: 2, Dim: 32})
				if err != nil {
					return Outputs{}, err
				}
				loss, err := m.LossPacked(in["tokens"], in["targets"], nn.Packing{Ends: in["ends"], Positions: in["positions"]})
				return Outputs{Loss: loss, Parameters: m.Parameters()}, err
			},
			Optimizer: func(parameters gorgonia.Nodes) (*Optimizer, error) {
				return NewAdamW(parameters, AdamWConfig{Options: Options{Schedule: ConstantRate(3e-3)}})
			},
			Hooks: []Hook{{
				OnStep:   func(s Step) error { losses[d] = append(losses[d], s.Loss); return nil },
				OnNotice: func(n Notice) error { notices = append(notices, n); return nil },
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := l.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d != nil && (len(notices) != 1 || !strings.Contains(string(notices[0]), "reads on the host")) {
			t.Errorf("the notices are %q, want one that says why steps are not recorded", notices)
		}
	}
	want, have := losses[nil], losses[device]
	if !(want[11] < want[0]-0.5) {
		t.Errorf("nothing is learnt: %v", want)
	}
	for i := range want {
		if !(math.Abs(have[i]-want[i]) <= 1e-4*want[i]) {
			t.Fatalf("the losses are %v, on the host %v", have, want)
		}
	}
}
