//go:build gpu

package cuda

import "testing"

// Clusters of all texts run at once on 132 multiprocessors where that takes less than turns do, and
// a block's tokens lie in shared memory where they can.
func TestClustersOfChoices(t *testing.T) {
	d := deviceOf(132)
	if got := d.choiceCluster(16, 32_000); got != 1 {
		t.Errorf("without clusters %d blocks share a text, it needs to be 1", got)
	}
	d.Major = 9
	for _, c := range []struct{ texts, tokens, want int }{
		{1, 100, 1}, {1, 4096, 2}, {1, 32_000, 8}, {14, 32_000, 8}, {15, 32_000, 4}, {16, 32_000, 4}, {32, 32_000, 2}, {64, 4096, 1},
		{1, 128_256, 8}, {16, 128_256, 8}, {1, 300_000, 8},
	} {
		if got := d.choiceCluster(c.texts, c.tokens); got != c.want {
			t.Errorf("%d texts of %d tokens have clusters of %d blocks, they need to be of %d", c.texts, c.tokens, got, c.want)
		}
	}
}
