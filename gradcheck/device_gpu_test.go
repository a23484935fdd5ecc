//go:build gpu

package gradcheck_test

import (
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/ops"
)

// The gradients that a GPU gives are those of differences too, and are read from its memory.
func TestGraphOnAGPU(t *testing.T) {
	if ops.Devices() == 0 {
		t.Skip("this machine has no GPU")
	}
	d, err := ops.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range graphs {
		t.Run(name, func(t *testing.T) {
			c.o.Device = d
			if err := gradcheck.Graph(c.build, c.o); err != nil {
				t.Error(err)
			}
		})
	}
}
