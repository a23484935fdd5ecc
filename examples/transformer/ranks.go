package main

import (
	"context"
	"fmt"
	"time"

	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
)

// rankTimeout is how long ranks wait for one that has not come: longer than rank 0 takes to write a checkpoint or a sample.
const rankTimeout = 10 * time.Minute

// joinRanks joins the ranks that -gpus or a launcher has started. Without either the program is alone, a group of one.
func joinRanks(ctx context.Context, o options) (*distributed.Group, error) {
	c, err := distributed.FromEnvironment()
	if err != nil {
		return nil, err
	}
	if size := max(1, c.Size); o.gpus > 0 && size != o.gpus {
		return nil, fmt.Errorf("-gpus is %d, a launcher has started %d ranks: it needs no -gpus", o.gpus, size)
	}
	if o.shard != "" && c.Size <= 1 {
		return nil, fmt.Errorf("-shard is %q, it needs several GPUs, by -gpus or a launcher: this program is alone", o.shard)
	}
	c.Timeout = rankTimeout
	return distributed.Join(ctx, c)
}

// shareSequences has every few ranks share the batches, and returns those that this rank shares them with, itself included.
func shareSequences(ranks *distributed.Group, o options, batches ...*data.Batches) (*distributed.Group, error) {
	sharers, err := ranks.Split(o.share)
	if err != nil {
		return nil, fmt.Errorf("-share is %d: %w", o.share, err)
	}
	for _, b := range batches {
		*b = train.ShareSequences(*b, sharers)
	}
	return sharers, nil
}

// leaveRanks leaves them, and tells them of an error that ends this rank.
func leaveRanks(ranks *distributed.Group, err error) {
	if err != nil {
		ranks.Abort(err)
	}
	ranks.Close()
}

// launch starts this program again on each of n GPUs of this machine, and waits for all.
func launch(ctx context.Context, n int) error {
	if ops.Devices() < n {
		_, err := ops.OpenDevice(n - 1)
		return fmt.Errorf("-gpus is %d: %w", n, err)
	}
	return distributed.Launch(ctx, n, distributed.LaunchConfig{})
}

// gpuOf is the index of the GPU that a rank takes, where -device does not say: one each, but the only one that a launcher lets it see.
func gpuOf(rank *distributed.Group) int {
	if ops.Devices() == 1 {
		return 0
	}
	return rank.LocalRank()
}
