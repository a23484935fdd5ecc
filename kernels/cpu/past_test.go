package cpu_test

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// TestPast compares results so large that they are stored past the caches with those of a few rows
// at a time, which are not. Rows start at every multiple of 12 bytes.
func TestPast(t *testing.T) {
	const rows, length, atOnce = 8400, 515, 700 // 17 MB
	r := newRandom()
	b := &cpu.Backend{Threads: 2}
	x, y, dy := newField[float32](r, 0, rows, length), newField[float32](r, 0, rows, length), newField[float32](r, 0, rows, length)
	part := func(t kernels.Tensor, from int) kernels.Tensor { return t.Slice(0, from, from+atOnce) }
	for name, call := range map[string]func(x, dy, y kernels.Tensor) error{
		"softmax":              func(x, _, y kernels.Tensor) error { return b.SoftmaxForward(x, y) },
		"log-softmax":          func(x, _, y kernels.Tensor) error { return b.LogSoftmaxForward(x, y) },
		"softmax backward":     func(x, dy, y kernels.Tensor) error { return b.SoftmaxBackward(x, dy, y) },
		"log-softmax backward": func(x, dy, y kernels.Tensor) error { return b.LogSoftmaxBackward(x, dy, y) },
	} {
		if err := call(x.Tensor, dy.Tensor, y.Tensor); err != nil {
			t.Fatal(err)
		}
		got := slices.Clone(y.memory)
		clear(y.memory)
		for from := 0; from < rows; from += atOnce {
			if err := call(part(x.Tensor, from), part(dy.Tensor, from), part(y.Tensor, from)); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, y.memory) {
			t.Errorf("%s differs where it is stored past the caches", name)
		}
	}
}
