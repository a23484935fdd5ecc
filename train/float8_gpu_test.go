//go:build gpu

package train

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/chart"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
)

var (
	text      = flag.String("text", "", "file of text that TestTextInFloat8 trains on, 8 MB at least; without one it is skipped")
	textSeeds = flag.String("text-seeds", "1,2,3", "what TestTextInFloat8 draws batches by")
	textDrawn = flag.String("text-picture", "", "file that TestTextInFloat8 draws its losses into, an SVG")
)

// A GPT of characters learns in 8 bits what it learns in bfloat16, for several draws of batches:
// 2,000 steps, and text that neither has seen. A second training in bfloat16, whose learning rate
// is a millionth larger, shows what rounding alone changes.
func TestTextInFloat8(t *testing.T) {
	if *text == "" {
		t.Skip("needs a -text to train on")
	}
	all, err := os.ReadFile(*text)
	if err != nil {
		t.Fatal(err)
	}
	const least = 8e6 // 2,000 steps read 16 million characters: fewer are learnt by heart
	if len(all) < least {
		t.Fatalf("%s has %d bytes, it needs %.0f", *text, len(all), least)
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
	var narrow, again []textDifference
	var picture textPicture
	for _, s := range strings.Split(*textSeeds, ",") {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		c := textTraining{characters: len(known), learnt: learnt, unseen: unseen, seed: seed, rate: 5e-4}
		wide := c.losses(t)
		c.precision = kernels.PrecisionFloat8
		short := c.losses(t)
		narrow = append(narrow, wide.compare(t, "8 bits", short))
		c.precision, c.rate = kernels.PrecisionAuto, c.rate*(1+1e-6)
		second := c.losses(t)
		again = append(again, wide.compare(t, "bfloat16 again", second))
		picture.add(wide, short, second)
	}
	picture.write(t)
	off, noise := meanDifference(narrow), meanDifference(again)
	t.Logf("mean of the seeds: 8 bits %v, bfloat16 again %v", off, noise)
	const asked = 0.005
	for what, x := range map[string]float64{"all steps": off.all, "the last tenth": off.last, "unseen text": off.unseen} {
		if !(math.Abs(x) <= asked) {
			t.Errorf("%s: 8 bits are %+.2f %% off", what, 100*x)
		}
	}
}

// textTraining is a training of a GPT of characters.
type textTraining struct {
	characters     int
	learnt, unseen *data.Tokens
	seed           uint64
	rate           float64
	precision      kernels.Precision
}

// textLosses are those of all steps, and of text that is not learnt on the way.
type textLosses struct {
	seed   uint64
	steps  []float64
	unseen float64
}

// textDifference is how far losses are off those of another training, over those.
type textDifference struct{ all, last, unseen float64 }

func (d textDifference) String() string {
	return fmt.Sprintf("all steps %+.2f %%, last tenth %+.2f %%, unseen text %+.2f %%", 100*d.all, 100*d.last, 100*d.unseen)
}

func meanDifference(list []textDifference) (mean textDifference) {
	n := float64(len(list))
	for _, d := range list {
		mean = textDifference{mean.all + d.all/n, mean.last + d.last/n, mean.unseen + d.unseen/n}
	}
	return mean
}

// parts are the means of ten parts of the steps.
func (l textLosses) parts() []float64 {
	const parts = 10
	n := len(l.steps) / parts
	list := make([]float64, parts)
	for k := range list {
		list[k] = average(l.steps[k*n:][:n])
	}
	return list
}

// compare lists the losses of another training beside l, which must not diverge.
func (l textLosses) compare(t *testing.T, name string, other textLosses) textDifference {
	t.Helper()
	ours, others := l.parts(), other.parts()
	for k := range ours {
		t.Logf("seed %d, part %d: bfloat16 %.4f, %s %.4f, %+.2f %%", l.seed, k+1, ours[k], name, others[k], 100*(others[k]/ours[k]-1))
	}
	for k := 1; k < len(others); k++ {
		if !(others[k] < 1.02*others[k-1]) {
			t.Errorf("seed %d, %s: losses go from %.4f to %.4f", l.seed, name, others[k-1], others[k])
		}
	}
	last := len(ours) - 1
	if !(ours[last] < l.steps[0]/2) {
		t.Errorf("seed %d: losses go from %v to %v: too little is learnt", l.seed, l.steps[0], ours[last])
	}
	d := textDifference{average(other.steps)/average(l.steps) - 1, others[last]/ours[last] - 1, other.unseen/l.unseen - 1}
	t.Logf("seed %d, bfloat16 %.4f, unseen text %.4f: %s: %v", l.seed, average(l.steps), l.unseen, name, d)
	return d
}

func (c textTraining) losses(t *testing.T) textLosses {
	t.Helper()
	const rows, length, steps = 32, 256, 2000
	batches, err := data.Random(c.learnt, rows, length, c.seed)
	if err != nil {
		t.Fatal(err)
	}
	others, err := data.Random(c.unseen, rows, length, 1)
	if err != nil {
		t.Fatal(err)
	}
	losses := textLosses{seed: c.seed}
	model := nn.GPTConfig{Vocab: c.characters, Context: length, Layers: 6, Heads: 6, Dim: 384, NoBias: true}
	l := training{
		device: gpu(t), rows: rows, steps: steps, compute: ops.BFloat16, precision: c.precision, model: model,
		change: func(l *LoopConfig) {
			l.Data, l.Options.Schedule = batches, ConstantRate(c.rate)
			l.Evaluations = Evaluations{Every: steps, Batches: 64, Validation: others}
		},
	}.loop(t, Hook{
		OnStep: func(s Step) error {
			losses.steps = append(losses.steps, s.Loss)
			return nil
		},
		OnEval: func(e Evaluation) error {
			losses.unseen = e.Validation // of the last one
			return nil
		},
	})
	if _, err := l.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	return losses
}

// textPicture is the losses of all seeds, and how far they are off, in parts of some steps.
type textPicture struct{ wide, narrow, narrowOff, againOff []chart.Line }

func (p *textPicture) add(wide, narrow, again textLosses) {
	const fine, coarse = 20, 100
	line := func(n int, c color.NRGBA, y func(part int) float64) chart.Line {
		l := chart.Line{Color: c, Width: 1}
		for k := range len(wide.steps) / n {
			l.Points = append(l.Points, chart.Point{X: float64(k*n + n/2), Y: y(k)})
		}
		return l
	}
	blue, orange := color.NRGBA{R: 24, G: 90, B: 160, A: 255}, color.NRGBA{R: 217, G: 95, B: 14, A: 255}
	of := func(l textLosses) func(int) float64 {
		return func(k int) float64 { return average(l.steps[k*fine:][:fine]) }
	}
	off := func(l textLosses) func(int) float64 {
		return func(k int) float64 {
			return 100 * (average(l.steps[k*coarse:][:coarse])/average(wide.steps[k*coarse:][:coarse]) - 1)
		}
	}
	p.wide, p.narrow = append(p.wide, line(fine, blue, of(wide))), append(p.narrow, line(fine, orange, of(narrow)))
	p.narrowOff, p.againOff = append(p.narrowOff, line(coarse, orange, off(narrow))), append(p.againOff, line(coarse, blue, off(again)))
}

func (p *textPicture) write(t *testing.T) {
	if *textDrawn == "" {
		return
	}
	panel := func(y string, height float64, first string, firsts []chart.Line, second string, seconds []chart.Line) chart.Panel {
		return chart.Panel{X: "step", Y: y, Height: height, Rows: 2, Lines: append(slices.Clone(firsts), seconds...), Legend: []chart.Entry{
			{Text: first, Lines: firsts[:1]}, {Text: second, Lines: seconds[:1]},
		}}
	}
	var drawn bytes.Buffer
	err := chart.Write(&drawn, "svg", []chart.Panel{
		panel("loss", 300, "bfloat16, a line a seed", p.wide, "8 bits", p.narrow),
		panel("% off", 180, "bfloat16 again, with a rate a millionth larger", p.againOff, "8 bits", p.narrowOff),
	})
	if err == nil {
		err = os.WriteFile(*textDrawn, drawn.Bytes(), 0o666)
	}
	if err != nil {
		t.Error(err)
	}
}

func average(list []float64) (sum float64) {
	for _, x := range list {
		sum += x / float64(len(list))
	}
	return sum
}
