package train_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/tensor"
)

// What is wrong with a place is said in the words of who asked for it: fields, or flags.
func TestPlaceErrors(t *testing.T) {
	for want, c := range map[string]train.PlaceConfig{
		`Device is "tpu", it needs to be auto, cpu, cuda or cuda:N`:        {Device: "tpu"},
		"GPUs is -1, it needs to be at least 1":                            {GPUs: -1},
		"Device is given with GPUs, which takes the first GPUs":            {GPUs: 2, Device: "cuda:1"},
		`Shard is "all", it needs to be state or weights`:                  {Shard: "all"},
		"SequenceRanks is -2, it needs to be at least 1":                   {SequenceRanks: -2},
		"SequenceRanks is 3, it needs to divide GPUs 4":                    {SequenceRanks: 3, GPUs: 4},
		"ShardRanks is 1, it needs to be at least 2, or 0 for all":         {Shard: train.ShardState, ShardRanks: 1},
		"ShardRanks is 2 and Shard is empty":                               {ShardRanks: 2},
		"Lost is fewer with ShardRanks, where each rank has a part":        {Shard: train.ShardState, ShardRanks: 2, Lost: distributed.LostMissed},
		"ShardRanks is 3, it needs to divide GPUs 4":                       {Shard: train.ShardWeights, ShardRanks: 3, GPUs: 4},
		`Shard is "state", it needs several GPUs, by GPUs or a launcher`:   {Device: "cpu", Shard: train.ShardState},
		"SequenceRanks is 2, it needs several GPUs, by GPUs or a launcher": {Device: "cpu", SequenceRanks: 2},
	} {
		p, err := train.OpenPlace(t.Context(), c)
		if err == nil || !strings.HasPrefix(err.Error(), want) || p != nil {
			t.Errorf("%+v: %v, want an error that begins with %q", c, err, want)
		}
	}
	var c train.PlaceConfig
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	c.Flags(flags)
	if err := flags.Parse([]string{"-device", "cpu", "-share", "2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := train.OpenPlace(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), "-share is 2, it needs several GPUs") {
		t.Errorf("flags for ranks that are not there: %v", err)
	}
}

// Run hands the place to a function, whose error it returns. A place of one process is the host,
// and nil is such a one.
func TestPlaceRun(t *testing.T) {
	fault := errors.New("no data")
	err := train.PlaceConfig{Device: "cpu"}.Run(t.Context(), func(_ context.Context, p *train.Place) error {
		if !p.Leads() || p.Device() != nil || p.Ranks().Size() != 1 || p.SequenceRanks().Size() != 1 || p.String() != "the CPU" {
			t.Errorf("the place is %v, of %d ranks", p, p.Ranks().Size())
		}
		return fault
	})
	if !errors.Is(err, fault) {
		t.Errorf("the error is %v", err)
	}
	var none *train.Place
	if p, err := none.NewParameters(1); err != nil || p == nil || none.String() != "the CPU" || !none.Leads() || none.Close() != nil {
		t.Errorf("no place: %v, %v", none, err)
	}
}

// The one process that leads has the folder of checkpoints.
func TestPlaceOpensCheckpoints(t *testing.T) {
	path := t.TempDir()
	_, errs := together{size: 2, accumulation: 1, dtype: tensor.Float32, change: func(rank int, c *train.LoopConfig) {
		folder, err := c.Place.OpenCheckpoints(path, 1)
		if err != nil || (folder == nil) == (rank == 0) {
			t.Errorf("rank %d has the folder %v, %v", rank, folder, err)
		}
		t.Cleanup(func() { folder.Close() })
		c.Checkpoints, c.Steps, c.Evaluations.Every = folder, 2, 0
	}}.train(t)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	view, err := checkpoint.View(path)
	if err != nil {
		t.Fatal(err)
	}
	if c, _, err := view.Latest(); err != nil || c.Step != 2 {
		t.Errorf("the checkpoint is of step %d, %v", c.Step, err)
	}
}
