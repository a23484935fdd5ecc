package ops

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// BlockLists says what the lists of [ListedBlocks] are of.
type BlockLists struct {
	// Queries and Keys are the sizes of a block. The CPU is fastest with 32 queries, or a multiple
	// of 64, and a multiple of 32 keys; a GPU with multiples of 128 of both, then with those of 64.
	Queries, Keys int
	// Count is how many blocks of keys there are: Sk/Keys, rounded up.
	Count int
	// ByKeyHead says that the second axis of the lists counts heads of keys and not of queries: the
	// query heads of a group read the same blocks.
	ByKeyHead bool
}

// ListedBlocks shows each block of queries the blocks of keys on its list, for the Mask of
// [AttentionOptions]: attention that is sparse by blocks chosen at run time. lists is (1|B,
// 1|heads, blocks of queries, n), of int, int32 or int64: numbers of blocks of keys, from 0 to
// Count−1. −1 is no block, and one that is listed several times counts once. Queries behind the
// last block read the last list. Of packed sequences the first axis counts these, and blocks begin
// at each sequence's first query and key.
//
// What is not listed costs nothing, forward and backward. All else that attention can do may be had
// beside it: for blocks of the past, Mask is score.And(score.Causal, listed).
//
//	_, blocks, err := ops.TopK(scores, 16)   // (B, heads, blocks of queries, blocks of keys)
//	listed, err := ops.ListedBlocks(blocks, ops.BlockLists{Queries: 64, Keys: 64, Count: 256})
//	out, err := ops.FlashAttention(q, k, v, ops.AttentionOptions{Mask: listed})
//
// The choice has no gradient. An index that is none is an error of the run; on a GPU, which leaves
// it out, of the next call that waits for the device.
func ListedBlocks(lists *gorgonia.Node, o BlockLists) (func(Pair) Cond, error) {
	grid, err := apply("ListedBlocks", kernel{
		describe: func(in tensors) (is description, err error) {
			shape := in[0].Shape
			const most = 1 << 30
			switch {
			case len(shape) != 4:
				return is, fmt.Errorf("lists has shape %v, it needs four axes (1 or batch, 1 or heads, blocks of queries, listed blocks)", shape)
			case o.Queries < 1 || o.Keys < 1 || o.Queries > most || o.Keys > most:
				return is, fmt.Errorf("queries is %d and keys is %d, a block needs at least 1 of each and at most %d", o.Queries, o.Keys, most)
			case o.Count < 1 || o.Count > most:
				return is, fmt.Errorf("count is %d, it needs to be from 1 to %d", o.Count, most)
			}
			is = described(kernels.I32, shape[0], shape[1], shape[2], o.Count)
			is.gradients = noGradient
			return is, nil
		},
		forward: func(r *run, in, out tensors) error {
			device, ok := r.Backend.(kernels.BlockKernels)
			if !ok {
				return kernels.Unsupported{Device: r.Name(), What: "a choice of blocks"}
			}
			return device.ListBlocks(in[0], out[0])
		},
	}, input{name: "lists", node: lists, form: indexForm})
	if err != nil {
		return nil, err
	}
	shape := lists.Shape()
	return func(p Pair) Cond {
		at := []any{0, 0, p.Query.Div(o.Queries), p.Key.Div(o.Keys)}
		if shape[0] > 1 {
			at[0] = p.Batch
		}
		if shape[1] > 1 {
			if at[1] = p.Head; o.ByKeyHead {
				at[1] = p.KeyHead
			}
		}
		return Lookup(grid, at...).Equal(1)
	}, nil
}
