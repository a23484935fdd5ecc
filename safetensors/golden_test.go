package safetensors_test

import (
	"bytes"
	"flag"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// The tests of this file exchange files with Python's safetensors; testdata/golden.py is the other
// side.

var update = flag.Bool("update", false, "write testdata/stheno.safetensors anew")

var goldenMetadata = map[string]string{"format": "pt", "note": "quotes \" and \\, a line\nbreak, ünïcode"}

// goldenTensors is what both files hold.
func goldenTensors() safetensors.Tensors {
	f64, f32 := make([]float64, 6), make([]float32, 24)
	for i := range f64 {
		f64[i] = float64(i-5) / 8
	}
	for i := range f32 {
		f32[i] = float32(i-5) / 8
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	return safetensors.Tensors{
		{"f64", dense(f64, 2, 3)},
		{"i64", dense([]int64{math.MinInt64, -1, 0, math.MaxInt64}, 4)},
		{"f32", dense(f32, 2, 3, 4)},
		{"i32", dense([]int32{math.MinInt32, math.MaxInt32}, 1, 2)},
		{"scalar", dense([]float32{2.5})},
		{"special", dense([]float32{inf, -inf, nan, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32}, 5)},
		{"ünïcode <&> \"name\"", dense([]float32{1}, 1)},
	}
}

func dense(backing any, shape ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(backing))
}

// asBits is a tensor's elements, so that NaN equals NaN and 0 does not equal −0.
func asBits(t *tensor.Dense) (list []uint64) {
	switch t.Dtype() {
	case tensor.Float32:
		for _, x := range t.Float32s() {
			list = append(list, uint64(math.Float32bits(x)))
		}
	case tensor.Float64:
		for _, x := range t.Float64s() {
			list = append(list, math.Float64bits(x))
		}
	case tensor.Int32:
		for _, x := range t.Int32s() {
			list = append(list, uint64(x))
		}
	case tensor.Uint8:
		for _, x := range t.Uint8s() {
			list = append(list, uint64(x))
		}
	case tensor.Int64:
		for _, x := range t.Int64s() {
			list = append(list, uint64(x))
		}
	}
	return list
}

// same reports whether two tensors have one type, shape and bits, NaNs of different bits aside.
func same(a, b *tensor.Dense) bool {
	if a.Dtype() != b.Dtype() || !slices.Equal(a.Shape(), b.Shape()) {
		return false
	}
	return slices.EqualFunc(asBits(a), asBits(b), func(x, y uint64) bool {
		bothNaN := a.Dtype() == tensor.Float32 && isNaN(x) && isNaN(y)
		return x == y || bothNaN
	})
}

func isNaN(bits uint64) bool { return math.IsNaN(float64(math.Float32frombits(uint32(bits)))) }

func TestGoldenRead(t *testing.T) {
	f, err := safetensors.Open("testdata/python.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !maps.Equal(f.Metadata(), goldenMetadata) {
		t.Errorf("metadata is %q, want %q", f.Metadata(), goldenMetadata)
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	want := append(goldenTensors(),
		safetensors.Tensor{Name: "bf16", Value: dense([]float32{1, -2.5, math.Float32frombits(0x7F62 << 16), math.Float32frombits(1 << 16), inf, nan}, 6)},
		safetensors.Tensor{Name: "f16", Value: dense([]float32{1, -2.5, 65504, 1.0 / (1 << 24), -inf, nan}, 6)},
		safetensors.Tensor{Name: "u8", Value: dense([]uint8{1, 2, 3}, 3)})
	for _, w := range want {
		have, err := f.Tensor(w.Name)
		if err != nil {
			t.Errorf("%s: %v", w.Name, err)
		} else if !same(have, w.Value) {
			t.Errorf("%s is %v %v %v, want %v %v", w.Name, have.Dtype(), have.Shape(), have, w.Value.Shape(), w.Value)
		}
	}
	if n := len(f.Names()); n != len(want)+2 {
		t.Errorf("there are %d tensors, want %d: %q", n, len(want)+2, f.Names())
	}
	for name, message := range map[string]string{
		"bool":  `tensor "bool" is BOOL`,
		"empty": `tensor "empty" has shape [0 3]`,
		"none":  `has no tensor "none"`,
	} {
		if _, err := f.Tensor(name); err == nil || !strings.Contains(err.Error(), message) || !strings.Contains(err.Error(), "python.safetensors") {
			t.Errorf("%s: %v, want an error with %q and the file's name", name, err, message)
		}
	}
	if info, err := f.Info("bf16"); err != nil || info.Type != "BF16" || !slices.Equal(info.Shape, []int{6}) || info.Bytes != 12 {
		t.Errorf("info of bf16 is %+v, %v", info, err)
	}
}

func TestGoldenWrite(t *testing.T) {
	const path = "testdata/stheno.safetensors"
	var have bytes.Buffer
	if err := safetensors.Write(&have, goldenTensors(), goldenMetadata); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, have.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have.Bytes(), want) {
		t.Errorf("%d bytes were written, which are not the %d of %s", have.Len(), len(want), path)
	}
}
