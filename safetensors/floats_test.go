package safetensors_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
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

// Rows read as columns are the transpose of what Float32s reads, whatever their number and length, and nothing is written beside
// them.
func TestTransposed(t *testing.T) {
	const n = 67 * 70
	single, brain, half := make([]float32, n), make([]kernels.BFloat16, n), make([]kernels.Float16, n)
	for i := range n {
		x := float32(i-n/2) / 64
		single[i], brain[i], half[i] = x, kernels.ToBFloat16(x), kernels.ToFloat16(x)
	}
	data := written(t, safetensors.Tensors{{Name: "single", Value: dense(single, n)}, {Name: "brain", Value: dense(brain, n)}, {Name: "half", Value: dense(half, n)}}, nil)
	file, err := safetensors.Read(strings.NewReader(string(data)), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"single", "brain", "half"} {
		all := make([]float32, n)
		if err := file.Float32s(name, 0, all); err != nil {
			t.Fatal(err)
		}
		for _, columns := range []int{1, 3, 32, 67, n} {
			for _, rows := range []int{1, 2, 33, n / columns} {
				if rows > n/columns {
					continue
				}
				from, stride := n/columns-rows, rows+2
				into := make([]float32, columns*stride)
				if err := file.Transposed(name, columns, from, rows, into, stride); err != nil {
					t.Fatal(err)
				}
				for at, have := range into {
					i, want := at%stride, float32(0)
					if i < rows {
						want = all[(from+i)*columns+at/stride]
					}
					if have != want {
						t.Fatalf("%s, %d rows of %d: element %d is %v, want %v", name, rows, columns, at, have, want)
					}
				}
			}
		}
	}
	into := make([]float32, 10)
	for want, read := range map[string]func() error{
		`has no tensor "none"`: func() error { return file.Transposed("none", 1, 0, 1, into, 1) },
		`tensor "brain" has 4690 elements, 2 rows of 67 are asked for from row 69 on`: func() error { return file.Transposed("brain", 67, 69, 2, into, 2) },
		`-1 rows of 67 are asked for`:                func() error { return file.Transposed("brain", 67, 0, -1, into, 2) },
		`1 rows of 0 are asked for`:                  func() error { return file.Transposed("brain", 0, 0, 1, into, 2) },
		`2 rows of 6 are asked for into 10 elements`: func() error { return file.Transposed("brain", 6, 0, 2, into, 2) },
		`at a stride of 1`:                           func() error { return file.Transposed("brain", 2, 0, 2, into, 1) },
		`rows of 9223372036854775807 are asked for`:  func() error { return file.Transposed("brain", math.MaxInt, 0, 1, into, 1) },
		`from row 9223372036854775807 on`:            func() error { return file.Transposed("brain", 1, math.MaxInt, math.MaxInt, into, math.MaxInt) },
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
