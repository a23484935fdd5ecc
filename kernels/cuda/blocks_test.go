//go:build gpu

package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Lists of either integer type, shorter and longer than a warp, with blocks that are listed twice
// and with none.
func TestListBlocks(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.I32, kernels.I64} {
		for _, shape := range [][]int{{1, 1, 1, 1}, {2, 3, 5, 4}, {1, 2, 33, 40}, {3, 1, 7, 0}, {0, 1, 2, 3}, {2, 8, 64, 16}} {
			for _, count := range []int{1, 31, 100} {
				r := newRowwiseTest(t, "%v %v of %d", dtype, shape, count)
				const gap = 2
				wide := append(append([]int(nil), shape[:3]...), shape[3]+gap)
				lists, host := r.indices(dtype, func() int { return r.random.IntN(count+1) - 1 }, wide...)
				grid, _ := r.indices(kernels.I32, func() int { return 7 }, shape[0], shape[1], shape[2], count)
				for range 2 { // into what an earlier call left, too
					r.must(r.d.ListBlocks(lists.Slice(3, 0, shape[3]), grid))
				}
				got := hostTensor(kernels.I32, grid.Shape...)
				r.must(r.d.Copy(got, grid))
				for row := range shape[0] * shape[1] * shape[2] {
					want := make([]float64, count)
					for n := range shape[3] {
						if block := kernels.HostElement(host, row*(shape[3]+gap)+n); block >= 0 {
							want[int(block)] = 1
						}
					}
					for block, want := range want {
						if got := kernels.HostElement(got, row*count+block); got != want {
							t.Fatalf("%s: list %d, block %d is %v, it needs to be %v", r.name, row, block, got, want)
						}
					}
				}
			}
		}
	}
}

// An index that is no block is reported by the next wait.
func TestListBlocksFaults(t *testing.T) {
	for index, want := range map[int]string{
		9: "list blocks: element 3 of lists is 9, it needs to be from 0 to 4", -2: "list blocks: element 3 of lists is -2, it needs to be from 0 to 4",
	} {
		r := newRowwiseTest(t, "faults")
		at := -1
		lists, _ := r.indices(kernels.I32, func() int {
			if at++; at == 3 {
				return index
			}
			return 1
		}, 1, 1, 2, 4)
		grid, _ := r.indices(kernels.I32, func() int { return 0 }, 1, 1, 2, 5)
		if err := errors.Join(r.d.ListBlocks(lists, grid), r.d.Synchronize()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
		r.must(r.d.Synchronize())
	}
}

// Tables of blocks, others for each head, over many tiles: alone, which is read block by block,
// with other masks, and with what changes scores.
func TestListedBlocks(t *testing.T) {
	compiles(t)
	slopes := ScoreOf("slopes", func(p score.Pair) score.Expr {
		return p.Score.Sub(p.Position().Sub(p.Key).Abs().Float().Mul(0.01))
	})
	for n, options := range [][]Option{
		{ListedBlocks(64, 64, 0.3, nil)}, {ListedBlocks(128, 64, 0.3, score.Causal)}, {ListedBlocks(64, 64, 0.4, score.Dilated(3))},
		{ListedBlocks(96, 40, 0.3, nil), Dropout, DLSE}, {ListedBlocks(64, 128, 0.4, score.Causal), slopes, Sinks},
	} {
		for m, size := range []int{64, 128, 96, 256} {
			for k, a := range []arithmetic{arithmetics[0], arithmetics[2], arithmetics[4]} {
				if size > 128 && a.half == kernels.NoDType || (n+m+k)%5 != 0 && !*grid {
					continue
				}
				c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 500 + 37*m, Sk: 600 - 41*n, D: size, Dv: size, Options: options, Seed: uint64(n)}
				if (n+m)%3 == 1 {
					c.Batch = 1
					c.QLens, c.KVLens = PackedLens(uint64(n), 3, c.Sq, c.Sk)
				}
				if (n+m)%3 == 2 {
					c.KVLengths = []int{c.Sk, 300}
				}
				a.cheaplyBeside(t, c)
			}
		}
	}
}

// Tables of blocks of 64 keys alone, or with a band: each query block's tiles are then its own, or
// those of two heads.
// Some lists are empty, and some sequences end within a block.
func TestListedBlocksAlone(t *testing.T) {
	compiles(t)
	for n, blocks := range [][2]int{{64, 64}, {128, 64}, {192, 64}, {64, 128}, {320, 192}} {
		for m, size := range []int{64, 128, 96} {
			for k, listed := range []func(float64) Option{
				func(share float64) Option { return ListedBlocks(blocks[0], blocks[1], share, nil) },
				func(share float64) Option { return ListedBlocks(blocks[0], blocks[1], share, score.Causal) },
				func(share float64) Option { return ListedBlocksByKeyHead(blocks[0], blocks[1], share, nil) },
				func(share float64) Option { return ListedBlocksByKeyHead(blocks[0], blocks[1], share, score.Causal) },
			} {
				share := []float64{0.3, 0.08, 0.7}[(n+m+k)%3]
				c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 1100 + 37*m, Sk: 1300 - 41*n, D: size, Dv: size,
					Options: []Option{listed(share)}, Seed: uint64(n)}
				if (n+m+k)%3 == 1 {
					c.Batch = 1
					c.QLens, c.KVLens = PackedLens(uint64(n), 3, c.Sq, c.Sk)
				}
				if (n+m+k)%3 == 2 {
					c.KVLengths = []int{c.Sk, 300}
				}
				a := arithmetics[(n+m+k)%2]
				a.cheaplyBeside(t, c)
			}
		}
	}
}

// Lists of more cells than a kernel has at a time, and so many keys that two cells share a bit.
func TestListedBlocksLong(t *testing.T) {
	compiles(t)
	for n, size := range []int{64, 128, 96} {
		for _, blocks := range [][2]int{{64, 64}, {128, 128}} {
			arithmetics[n%2].cheaplyBeside(t, Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 130, Sk: 9000 + 37*n, D: size, Dv: size,
				Options: []Option{ListedBlocks(blocks[0], blocks[1], 0.7, nil)}, Seed: uint64(n)})
		}
	}
	arithmetics[0].cheaplyBeside(t, Case{Batch: 1, Heads: 1, KeyHeads: 1, Sq: 65, Sk: 140_000, D: 64, Dv: 64,
		Options: []Option{ListedBlocks(64, 64, 0.4, nil)}})
}
