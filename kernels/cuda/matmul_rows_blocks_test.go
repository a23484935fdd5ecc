//go:build gpu

package cuda

import "testing"

// Blocks share the depth of a panel so that 132 multiprocessors end together.
func TestBlocksOfPanel(t *testing.T) {
	for _, c := range []struct{ columns, depth, want int }{
		{2560, 2048, 3}, {2048, 2048, 4}, {5632, 2048, 3}, {2048, 5632, 4}, {32000, 2048, 1}, {8, 8, 1}, {8, 128, 2}, {64, 1 << 20, 8},
	} {
		if got := blocksOfPanel(tilesOf(int32(c.columns), columnsOfPanel), tilesOf(int32(c.depth), depthOfStep), 132); got != c.want {
			t.Errorf("%d columns of depth %d are of %d blocks each, they need to be of %d", c.columns, c.depth, got, c.want)
		}
	}
}
