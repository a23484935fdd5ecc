//go:build gpu

package cuda

import (
	"context"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/nccl"
)

var _ kernels.Networked = (*Device)(nil)

// NetworkKey returns the key of a new network.
func (d *Device) NetworkKey() ([]byte, error) { return nccl.Key(d.GPU) }

// JoinNetwork returns the network of a key once all of its members have come. NCCL waits for them
// without end: where the context ends before, a thread of the process is left behind in that wait.
func (d *Device) JoinNetwork(ctx context.Context, key []byte, rank, size int) (kernels.Network, error) {
	return nccl.Join(ctx, d.GPU, key, rank, size)
}
