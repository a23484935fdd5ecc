//go:build gpu

package train

import (
	"context"
	"flag"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
)

var (
	text      = flag.String("text", "", "file of text that TestTextInFloat8 trains on; without one it is skipped")
	textSeeds = flag.String("text-seeds", "1,2,3", "what TestTextInFloat8 draws batches by")
)

// A GPT of characters learns in 8 bits what it learns in bfloat16, for several draws of batches:
// 2,000 steps, and text that neither has seen.
func TestTextInFloat8(t *testing.T) {
	if *text == "" {
		t.Skip("needs a -text to train on")
	}
	all, err := os.ReadFile(*text)
	if err != nil {
		t.Fatal(err)
	}
	ids, known := make([]int, len(all)), map[byte]int{}
	for i, c := range all {
		if _, ok := known[c]; !ok {
			known[c] = len(known)
		}
		ids[i] = known[c]
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		t.Fatal(err)
	}
	learnt, unseen, err := tokens.Split(0.9)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range strings.Split(*textSeeds, ",") {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		c := textTraining{len(known), learnt, unseen, seed}
		wide, narrow := c.losses(t, kernels.PrecisionAuto), c.losses(t, kernels.PrecisionFloat8)
		off := func(what string, a, b, bound float64) {
			t.Logf("seed %d, %s: bfloat16 %.4f, 8 bits %.4f, %+.2f %%", seed, what, a, b, 100*(b/a-1))
			if !(math.Abs(b/a-1) <= bound) {
				t.Errorf("seed %d, %s: 8 bits are %+.2f %% off", seed, what, 100*(b/a-1))
			}
		}
		const parts, asked, noise = 10, 0.005, 0.02
		n := len(wide.steps) / parts
		for k := range parts {
			bound := noise
			if k == parts-1 {
				bound = asked
			}
			off("part "+strconv.Itoa(k+1), average(wide.steps[k*n:][:n]), average(narrow.steps[k*n:][:n]), bound)
		}
		off("all steps", average(wide.steps), average(narrow.steps), asked)
		off("best of unseen text", slices.Min(wide.unseen), slices.Min(narrow.unseen), asked)
		if first, last := wide.steps[0], average(wide.steps[len(wide.steps)-n:]); !(last < first/2) {
			t.Errorf("seed %d: losses go from %v to %v: too little is learnt", seed, first, last)
		}
	}
}

// textTraining is a training of a GPT of characters.
type textTraining struct {
	characters     int
	learnt, unseen *data.Tokens
	seed           uint64
}

// textLosses are those of all steps, and of text that is not learnt on the way.
type textLosses struct{ steps, unseen []float64 }

func (c textTraining) losses(t *testing.T, precision kernels.Precision) (losses textLosses) {
	const rows, length, steps, evaluations = 32, 256, 2000, 2
	batches, err := data.Random(c.learnt, rows, length, c.seed)
	if err != nil {
		t.Fatal(err)
	}
	others, err := data.Random(c.unseen, rows, length, 1)
	if err != nil {
		t.Fatal(err)
	}
	model := nn.GPTConfig{Vocab: c.characters, Context: length, Layers: 6, Heads: 6, Dim: 384, NoBias: true}
	l := training{
		device: gpu(t), rows: rows, steps: steps, compute: ops.BFloat16, precision: precision, model: model,
		change: func(l *LoopConfig) {
			l.Data, l.Options.Schedule = batches, ConstantRate(5e-4)
			l.Evaluations = Evaluations{Every: steps / evaluations, Batches: 32, Validation: others}
		},
	}.loop(t, Hook{
		OnStep: func(s Step) error {
			losses.steps = append(losses.steps, s.Loss)
			return nil
		},
		OnEval: func(e Evaluation) error {
			losses.unseen = append(losses.unseen, e.Validation)
			return nil
		},
	})
	if _, err := l.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return losses
}

func average(list []float64) (sum float64) {
	for _, x := range list {
		sum += x / float64(len(list))
	}
	return sum
}
