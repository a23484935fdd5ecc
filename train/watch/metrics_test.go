package watch

import (
	"bytes"
	"image"
	_ "image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/train"
)

// evaluated is an evaluation with metrics.
func evaluated(done int) train.Evaluation {
	return train.Evaluation{
		Done: done, Train: 1, Validation: 2, TrainMetrics: map[string]float64{"accuracy": 0.5, "perplexity": float64(done)},
		ValidationMetrics: map[string]float64{"accuracy": 0.25, "perplexity": math.NaN()},
	}
}

// Progress shows examples where there are no tokens, what is trained of a model, and metrics.
func TestProgressShowsMetrics(t *testing.T) {
	step := stepAt(9, 9)
	step.Tokens, step.Metrics = 0, map[string]float64{"z loss": 0.125}
	var out bytes.Buffer
	if err := play(Progress(&out), train.Start{Steps: 9, Parameters: 1000, Trained: 10, ExamplesPerStep: 12}, evaluated(8), step, train.End{Done: 9, Steps: 9, BestLoss: 2, BestStep: 8}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"training 10 of 1,000 parameters for 9 steps of 12 examples\n",
		"step 8/9  evaluation: train 1.0000, validation 2.0000, accuracy 0.500 and 0.250, perplexity 8.00 and NaN\n",
		"loss 2.2222  z loss 0.125  lr", " 600 ex/s",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// Each metric makes the picture taller by a panel.
func TestDrawMetrics(t *testing.T) {
	slow.Race(t)
	height := func(log Log) int {
		path := filepath.Join(t.TempDir(), "curve.png")
		if err := Draw(path, log); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		c, _, err := image.DecodeConfig(file)
		if err != nil {
			t.Fatal(err)
		}
		return c.Height
	}
	plain := Log{Steps: []train.Step{stepAt(1, 2), stepAt(2, 2)}}
	measured := plain
	measured.Evaluations = []train.Evaluation{evaluated(0), evaluated(1), evaluated(2)}
	if a, b := height(plain), height(measured); b-a != 2*375 {
		t.Errorf("without metrics the picture is %d pixels high, with two it is %d", a, b)
	}
}

// TensorBoard has a series for each metric.
func TestTensorBoardMetrics(t *testing.T) {
	folder, step := t.TempDir(), stepAt(1, 2)
	step.Metrics = map[string]float64{"z loss": 1}
	if err := play(TensorBoard(folder), train.Start{Steps: 2}, step, evaluated(1), train.End{}); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*"))
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"z loss/step", "accuracy/train", "accuracy/validation", "perplexity/train", "loss/validation"} {
		if !bytes.Contains(text, []byte(tag)) {
			t.Errorf("there is no series %s", tag)
		}
	}
}
