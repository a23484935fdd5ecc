//go:build gpu

package cuda

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// Blocks share the depth of a panel so that 132 multiprocessors end together.
func TestBlocksOfPanel(t *testing.T) {
	for _, c := range []struct{ columns, depth, want int }{
		{2560, 2048, 3}, {2048, 2048, 4}, {5632, 2048, 3}, {2048, 5632, 4}, {32000, 2048, 1}, {8, 8, 1}, {8, 128, 2}, {64, 1 << 20, 8},
	} {
		if got := (matmulRows{}).blocksOfPanel(tilesOf(int32(c.columns), columnsOfPanel), tilesOf(int32(c.depth), depthOfStep), 132); got != c.want {
			t.Errorf("%d columns of depth %d are of %d blocks each, they need to be of %d", c.columns, c.depth, got, c.want)
		}
	}
	v := matmulRows{packing: kernels.Int8}
	for _, c := range []struct{ panels, steps, want int }{{48, 32, 4}, {32, 32, 6}, {224, 32, 1}, {32, 112, 6}, {1, 1, 1}, {1, 8, 8}} {
		if got := v.blocksOfPanel(c.panels, c.steps, 132); got != c.want {
			t.Errorf("%d packed panels of %d steps are of %d blocks each, they need to be of %d", c.panels, c.steps, got, c.want)
		}
	}
}
