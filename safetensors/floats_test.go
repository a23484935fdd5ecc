package safetensors_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/safetensors"
)

// Any part of a tensor is the part of what Tensor reads, across the pieces in which a file is read.
func TestFloat32s(t *testing.T) {
	golden, err := safetensors.Open("testdata/python.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer golden.Close()
	for _, name := range []string{"f32", "bf16", "f16"} {
		want, err := golden.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		for from := range want.DataSize() {
			part := make([]float32, want.DataSize()-from)
			if err := golden.Float32s(name, from, part); err != nil {
				t.Fatal(err)
			}
			if !same(dense(part, len(part)), dense(want.Float32s()[from:], len(part))) {
				t.Errorf("%s from %d on is %v, want %v", name, from, part, want.Float32s()[from:])
			}
		}
	}
	for want, read := range map[string]func() error{
		`tensor "f64" is F64, it needs to be F32, F16 or BF16`:            func() error { return golden.Float32s("f64", 0, nil) },
		`has no tensor "none"`:                                            func() error { return golden.Float32s("none", 0, nil) },
		`tensor "bf16" has 6 elements, 4 are asked for from number 3 on`:  func() error { return golden.Float32s("bf16", 3, make([]float32, 4)) },
		`tensor "bf16" has 6 elements, 0 are asked for from number -1 on`: func() error { return golden.Float32s("bf16", -1, nil) },
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}

	const n = 200_003 // more than one piece
	long := make([]float32, n)
	for i := range long {
		long[i] = float32(i)
	}
	data := written(t, safetensors.Tensors{{Name: "long", Value: dense(long, n)}}, nil)
	file, err := safetensors.Read(strings.NewReader(string(data)), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	part := make([]float32, n-7)
	if err := file.Float32s("long", 5, part); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(part, long[5:n-2]) {
		t.Error("a long part is not what was written")
	}
}
