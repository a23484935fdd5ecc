package ops_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// Opening a device that is not there is an error, in every build.
func TestOpenDeviceErrors(t *testing.T) {
	for _, index := range []int{-1, 1 << 20} {
		if d, err := ops.OpenDevice(index); d != nil || err == nil || !strings.HasPrefix(err.Error(), "OpenDevice: ") {
			t.Errorf("OpenDevice(%d) gave %v and error %v", index, d, err)
		}
	}
}

// Values of the host are downloaded as they are, and the engine computes on them as Gorgonia's own.
func TestEngineOnTheHost(t *testing.T) {
	a := tensor.New(tensor.WithShape(3), tensor.WithBacking([]float32{1, 2, 3}), tensor.WithEngine(ops.Engine()))
	b := tensor.New(tensor.WithShape(3), tensor.WithBacking([]float32{10, 20, 30}), tensor.WithEngine(ops.Engine()))
	sum, err := tensor.Add(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if got := sum.Data().([]float32); !slices.Equal(got, []float32{11, 22, 33}) {
		t.Errorf("the sum is %v", got)
	}
	if same, err := ops.Download(a); err != nil || same != a {
		t.Errorf("Download gave %v and error %v", same, err)
	}
}
