package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/freeport"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// course is what a training left.
type course struct {
	losses, evaluations []float64
	weights             []float64
	values              map[string][]float64 // the weights by name, or this rank's parts
	end                 train.End
	refused             []error // checkpoints
}

// together says how ranks train the counting model.
type together struct {
	size, accumulation int
	shard, files       bool // of the optimiser's state, and that all see
	sequenceRanks      int
	shardRanks         int
	dtype              tensor.Dtype
	change             func(rank int, c *train.LoopConfig)
	changeGroup        func(group *distributed.Group, c *train.LoopConfig)
	resume             bool
	contexts           map[int]context.Context // of ranks that have one of their own
}

// rankConfigs are the places of ranks on this machine.
func rankConfigs(t *testing.T, size int) []distributed.Config {
	address, err := freeport.OnLoopback()
	if err != nil {
		t.Fatal(err)
	}
	list := make([]distributed.Config, size)
	for rank := range list {
		list[rank] = distributed.Config{Rank: rank, Size: size, Address: address, Timeout: 5 * time.Minute}
	}
	return list
}

// train returns what each rank has in the end. The other ranks' first values are not rank 0's,
// which count.
func (o together) train(t *testing.T) ([]course, []error) {
	t.Helper()
	courses, errs := make([]course, o.size), make([]error, o.size)
	var ranks sync.WaitGroup
	for rank, place := range rankConfigs(t, o.size) {
		ranks.Go(func() { courses[rank], errs[rank] = o.trainRank(t, place) })
	}
	ranks.Wait()
	return courses, errs
}

func (o together) trainRank(t *testing.T, place distributed.Config) (left course, err error) {
	ctx := o.contexts[place.Rank]
	if ctx == nil {
		ctx = t.Context()
	}
	group, err := distributed.Join(ctx, place)
	if err != nil {
		return left, err
	}
	defer group.Close()
	setting := train.PlaceConfig{
		Device: "cpu", Group: group, SequenceRanks: o.sequenceRanks, ShardRanks: o.shardRanks, SharedFiles: o.files && group.Rank() == 0,
	}
	if o.shard {
		setting.Shard = train.ShardState
	}
	here, err := train.OpenPlace(t.Context(), setting)
	if err != nil {
		return left, err
	}
	c := train.LoopConfig{
		Place: here,
		Model: countingModel(o.dtype, 0.1), Parameters: nn.NewParameters(1), Data: counting{},
		Steps: 20, Evaluations: train.Evaluations{Every: 10, Batches: 5, Validation: counting{}},
		Optimizer: train.AdamW{}, Options: train.Options{
			Schedule: train.ConstantRate(1e-2), ClipNorm: 1, Accumulation: o.accumulation,
		},
		Hooks: []train.Hook{{
			OnStep: func(s train.Step) error { left.losses = append(left.losses, s.Loss); return nil },
			OnEval: func(e train.Evaluation) error {
				left.evaluations = append(left.evaluations, e.Train, e.Validation)
				return nil
			},
		}},
	}
	if o.change != nil {
		o.change(place.Rank, &c)
	}
	if o.changeGroup != nil {
		o.changeGroup(group, &c)
	}
	loop, err := train.NewLoop(c)
	if err != nil {
		return left, err
	}
	defer loop.Close()
	first := loop.Parameters()[0]
	if _, holders := ops.WholeOf(first); place.Rank > 0 && holders == nil {
		first.Value().(*tensor.Dense).Zero()
	}
	if o.resume {
		if left.refused, err = loop.Resume(); err != nil && !errors.Is(err, checkpoint.ErrNone) {
			return left, err
		}
	}
	left.end, err = loop.Run(ctx)
	left.values = map[string][]float64{}
	for _, n := range loop.Parameters() {
		var list []float64
		switch data := n.Value().Data().(type) {
		case []float64:
			list = data
		case []float32:
			for _, x := range data {
				list = append(list, float64(x))
			}
		}
		left.weights, left.values[n.Name()] = append(left.weights, list...), list
	}
	return left, err
}

// Any number of ranks trains as one process does that accumulates the same batches: with the same
// bits of losses and weights on the CPU, where sums are made in the order of the batches as long as
// each rank has one.
func TestRanksTrainAsOne(t *testing.T) {
	for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		for _, c := range []struct{ size, accumulation int }{{2, 1}, {3, 1}, {4, 1}, {2, 2}} {
			if testing.Short() && (c.size > 2 || c.accumulation > 1 || dtype != tensor.Float32) {
				continue
			}
			t.Run(fmt.Sprintf("%v, %d ranks of %d batches", dtype, c.size, c.accumulation), func(t *testing.T) {
				one, errs := together{size: 1, accumulation: c.size * c.accumulation, dtype: dtype}.train(t)
				if errs[0] != nil {
					t.Fatal(errs[0])
				}
				all, errs := together{size: c.size, accumulation: c.accumulation, dtype: dtype}.train(t)
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
				if dtype == tensor.Float32 {
					shared, errs := together{size: c.size, accumulation: c.accumulation, dtype: dtype, shard: true}.train(t)
					if err := errors.Join(errs...); err != nil || !slices.Equal(shared[0].losses, all[0].losses) || !slices.Equal(shared[c.size-1].weights, all[0].weights) {
						t.Errorf("ranks that share the optimizer's state have other losses or weights (%v)", err)
					}
				}
				for rank := range all {
					if !slices.Equal(all[rank].weights, all[0].weights) {
						t.Errorf("rank %d has other weights than rank 0", rank)
					}
					if rank > 0 && len(all[rank].losses) > 0 {
						t.Errorf("rank %d has told its hooks of %d steps", rank, len(all[rank].losses))
					}
				}
				if c.accumulation == 1 && !slices.Equal(all[0].weights, one[0].weights) {
					t.Errorf("the weights differ from those of one process")
				}
				bound := 1e-12
				if c.accumulation > 1 { // the sums have another order
					bound = map[tensor.Dtype]float64{tensor.Float32: 1e-5, tensor.Float64: 1e-12}[dtype]
				}
				for name, lists := range map[string][2][]float64{"losses": {all[0].losses, one[0].losses}, "evaluations": {all[0].evaluations, one[0].evaluations}} {
					if len(lists[0]) != len(lists[1]) || len(lists[0]) == 0 {
						t.Fatalf("%d %s, one process has %d", len(lists[0]), name, len(lists[1]))
					}
					for i, x := range lists[0] {
						if !(math.Abs(x/lists[1][i]-1) <= bound) {
							t.Errorf("%s: number %d is %v, of one process %v", name, i, x, lists[1][i])
						}
					}
				}
			})
		}
	}
}

// A training goes on with another number of ranks, which share the optimiser's state or do not,
// from a checkpoint that rank 0 or all of them wrote, and that rank 0 or all of them read, as long
// as a step takes as many batches.
func TestRanksResume(t *testing.T) {
	one, errs := together{size: 1, accumulation: 4, dtype: tensor.Float64}.train(t)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	path := t.TempDir()
	goOn := func(size, accumulation, steps int) ([]course, error) {
		folder := openFolder(t, path, 2)
		courses, errs := together{size: size, accumulation: accumulation, shard: steps != 12, files: steps > 7, dtype: tensor.Float64, resume: true, change: func(rank int, c *train.LoopConfig) {
			c.Steps = steps
			if rank == 0 {
				c.Checkpoints = folder
			}
		}}.train(t)
		return courses, errors.Join(append(errs, folder.Close())...)
	}
	parts := []struct{ size, steps int }{{4, 7}, {2, 12}, {4, 13}, {1, 15}, {4, 20}}
	if testing.Short() {
		parts = []struct{ size, steps int }{{1, 7}, {2, 20}}
	}
	for _, part := range parts {
		courses, err := goOn(part.size, 4/part.size, part.steps)
		if err != nil {
			t.Fatal(err)
		}
		written, err := filepath.Glob(filepath.Join(courses[0].end.Checkpoint, "model*.safetensors"))
		want := part.size
		if part.steps <= 7 {
			want = 1 // rank 0 writes all
		}
		if err != nil || len(written) != want {
			t.Errorf("%d ranks have written the weights as %q, want %d files", part.size, written, want)
		}
		for rank, c := range courses {
			if c.end.Done != part.steps {
				t.Errorf("rank %d of %d ended after %d steps, want %d", rank, part.size, c.end.Done, part.steps)
			}
			if !slices.Equal(c.weights, courses[0].weights) {
				t.Errorf("rank %d of %d has other weights than rank 0", rank, part.size)
			}
			for i, x := range c.weights {
				if part.steps == 20 && !(math.Abs(x-one[0].weights[i]) <= 1e-9) {
					t.Fatalf("rank %d: weight %d is %v, without interruption %v", rank, i, x, one[0].weights[i])
				}
			}
		}
	}
	if _, err := goOn(3, 1, 25); err == nil || !strings.Contains(err.Error(), "it took 80 batches for 20 steps, this loop would have taken 60") {
		t.Errorf("three ranks go on with a training of four: %v", err)
	}

	if testing.Short() {
		return
	}
	damaged := filepath.Join(path, "step-00000020", "optimizer-00003-of-00004.safetensors")
	if err := os.Truncate(damaged, 100); err != nil {
		t.Fatal(err)
	}
	courses, err := goOn(2, 2, 20)
	if refused := fmt.Sprint(courses[0].refused); err != nil || courses[0].end.Done != 20 || len(courses[0].losses) != 5 || !strings.Contains(refused, filepath.Base(damaged)) {
		t.Errorf("after a part was damaged: %v, %d steps from there, refused %s", err, len(courses[0].losses), refused)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if courses, err = goOn(2, 2, 8); err != nil || len(courses[0].losses) != 8 {
		t.Errorf("without any checkpoint: %v, %d steps", err, len(courses[0].losses))
	}
}

// What stops one rank stops all. Where a rank's data end, there is a checkpoint of the last step,
// also of a state that they share.
func TestRanksStopTogether(t *testing.T) {
	folder := openFolder(t, t.TempDir(), 2)
	courses, errs := together{size: 3, accumulation: 1, shard: true, dtype: tensor.Float32, change: func(rank int, c *train.LoopConfig) {
		if rank == 0 {
			c.Checkpoints = folder
		}
		if rank == 2 {
			c.Data = endingData{at: 30}
		}
	}}.train(t)
	if c, _, err := folder.Latest(); err != nil || c.Step != 10 || len(c.Optimizer) != 2*len(c.Weights) || courses[0].end.Done != 10 {
		t.Errorf("the checkpoint is of step %d with %d tensors of state (%v), the run ended after step %d, want 10", c.Step, len(c.Optimizer), err, courses[0].end.Done)
	}
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), errDataEnded.Error()) || rank != 2 && !strings.Contains(err.Error(), "rank 2 gave up") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	courses, errs = together{size: 3, accumulation: 1, dtype: tensor.Float32, contexts: map[int]context.Context{1: ctx}, change: func(rank int, c *train.LoopConfig) {
		c.Steps, c.Evaluations.Every = 1_000_000, 0
		c.Hooks = append(c.Hooks, train.Hook{OnStep: func(s train.Step) error {
			if s.Done == 3 {
				cancel()
			}
			return nil
		}})
	}}.train(t)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for rank, c := range courses {
		if !c.end.Cancelled || c.end.Done != courses[0].end.Done || c.end.Done < 3 {
			t.Errorf("rank %d ended %+v", rank, c.end)
		}
	}
}

// Where ranks share the optimiser's state and one is gone, there can be no checkpoint of the last
// step. The error says what is left.
func TestRanksLoseSharedState(t *testing.T) {
	for want, every := range map[string]int{
		"no checkpoint of step 10: each rank has a part of the optimizer's state, and one is gone with its own; the newest is %s, so of the 10 steps 2 are lost": 4,
		"one is gone with its own; there is no other, so all 10 are lost":                                                                                        0,
	} {
		if testing.Short() && every == 0 {
			continue
		}
		folder, path := openFolder(t, t.TempDir(), 2), ""
		_, errs := together{size: 3, accumulation: 1, shard: true, files: true, dtype: tensor.Float32, changeGroup: func(group *distributed.Group, c *train.LoopConfig) {
			c.Evaluations.Every, c.CheckpointEvery = 0, every
			switch group.Rank() {
			case 0:
				c.Checkpoints = folder
				c.Hooks = append(c.Hooks, train.Hook{OnCheckpoint: func(c train.Checkpoint) error { path = c.Path; return nil }})
			case 2:
				c.Data = data.Func(func(n int) (data.Batch, error) {
					if n >= 30 {
						group.Close()
					}
					return counting{}.Batch(n)
				})
			}
		}}.train(t)
		if strings.Contains(want, "%s") {
			want = fmt.Sprintf(want, path)
		}
		if errs[0] == nil || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("rank 0 says %v, want %q in it", errs[0], want)
		}
		if errs[1] == nil || !strings.Contains(errs[1].Error(), "the training goes on from the newest that rank 0 has written") {
			t.Errorf("rank 1 says %v", errs[1])
		}
	}
}

var errDataEnded = errors.New("the data ended")

// endingData is counting up to a batch.
type endingData struct{ at int }

func (d endingData) Batch(n int) (data.Batch, error) {
	if n >= d.at {
		return nil, errDataEnded
	}
	return counting{}.Batch(n)
}
