//go:build gpu

package train

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/checkpoint"
)

// checkpointed is a training with a checkpoint, or two, every five steps.
func checkpointed(t *testing.T, folder *checkpoint.Folder, hook Hook) *Loop {
	t.Helper()
	c := training{device: gpu(t), compute: ops.BFloat16, model: nn.GPTConfig{Vocab: 67, Context: 64, Layers: 2, Heads: 4, Dim: 64}, rows: 4, steps: 32, checkpoints: folder}
	l := c.loop(t, hook)
	l.c.CheckpointEvery, l.c.Evaluations.Every, l.c.Evaluations.Batches = 5, 5, 3
	return l
}

func weightsOf(t *testing.T, l *Loop) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, n := range l.Parameters() {
		value, err := ops.Download(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		all[n.Name()] = value.Float32s()
	}
	return all
}

// A checkpoint that is written beside the steps after it holds the weights of its own step, the
// best and the newest alike, and a run that resumes from it ends with the bits of one that was not
// interrupted.
func TestCheckpointsBesideSteps(t *testing.T) {
	folder, err := checkpoint.Open(t.TempDir(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	var l *Loop
	weights, told := map[int]map[string][]float32{}, map[string]bool{}
	l = checkpointed(t, folder, Hook{
		OnEval: func(e Evaluation) error {
			weights[e.Done] = weightsOf(t, l)
			return nil
		},
		OnCheckpoint: func(c Checkpoint) error {
			told[fmt.Sprint(strings.Contains(c.Path, "best"), c.Done)] = true
			saved, err := checkpoint.Load(c.Path)
			if err != nil {
				return err
			}
			for _, w := range saved.Weights {
				if !slices.Equal(w.Value.Float32s(), weights[c.Done][w.Name]) {
					t.Errorf("%s has another %s than the model had", c.Path, w.Name)
				}
			}
			return nil
		},
	})
	end, err := l.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int{5, 10, 15, 20, 25, 30, 32} {
		if !told[fmt.Sprint(false, step)] {
			t.Errorf("nobody was told of the checkpoint of step %d", step)
		}
	}
	if !told[fmt.Sprint(true, end.BestStep)] || !strings.HasSuffix(end.Checkpoint, "step-00000032") {
		t.Errorf("the end says %+v, checkpoints are %v", end, told)
	}
	c, refused, err := folder.At(30)
	if err != nil {
		t.Fatal(err, refused)
	}
	other, err := checkpoint.Open(t.TempDir(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	again := checkpointed(t, other, Hook{})
	if err := again.ResumeFrom(c); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := weightsOf(t, l)
	for name, have := range weightsOf(t, again) {
		if !slices.Equal(have, want[name]) {
			t.Errorf("resumed, %s is another", name)
		}
	}
}

// A checkpoint that cannot be written ends the run, if some steps later, and the one before it is
// what the end tells of.
func TestCheckpointThatFailsBesideSteps(t *testing.T) {
	folder, err := checkpoint.Open(t.TempDir(), 2)
	if err != nil {
		t.Fatal(err)
	}
	l := checkpointed(t, folder, Hook{OnCheckpoint: func(c Checkpoint) error {
		if c.Done == 10 && !strings.Contains(c.Path, "best") {
			return folder.Close()
		}
		return nil
	}})
	end, err := l.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "no checkpoint of step 15") || !strings.Contains(err.Error(), "the folder is closed") {
		t.Errorf("the error is %v", err)
	}
	if !strings.HasSuffix(end.Checkpoint, "step-00000010") || end.Done < 15 {
		t.Errorf("the end says %+v", end)
	}
}
