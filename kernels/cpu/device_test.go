package cpu_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// Copies between any strides and types are those of each element.
func TestCopy(t *testing.T) {
	b := cpu.New()
	types := []kernels.DType{kernels.F32, kernels.F64, kernels.BF16, kernels.F16}
	for _, from := range types {
		for _, to := range types {
			src, err := b.Alloc(from, 3, 4, 5)
			if err != nil {
				t.Fatal(err)
			}
			for i := range src.Elements() {
				if err := b.Fill(kernels.Contiguous(src.Reshape(60).Slice(0, i, i+1).Data, from, 1), float64(i)-7.5); err != nil {
					t.Fatal(err)
				}
			}
			dst, err := b.Alloc(to, 5, 3, 4)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Copy(dst.Permute(1, 2, 0), src); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				for j := range 4 {
					for k := range 5 {
						got, want := kernels.HostElement(dst, dst.Offset(k, i, j)), float64(src.Offset(i, j, k))-7.5
						if got != want {
							t.Fatalf("%v to %v at (%d, %d, %d): got %v, want %v", from, to, i, j, k, got, want)
						}
					}
				}
			}
		}
	}
	ints, floats := kernels.Of([]int64{math.MaxInt64, 2}, 2), kernels.Of(make([]float32, 2), 2)
	if err := b.Copy(floats, ints); err == nil {
		t.Error("integers became floats")
	}
	back := []int64{0, 0}
	if err := b.Copy(kernels.Of(back, 2), ints); err != nil || back[0] != math.MaxInt64 {
		t.Errorf("got %v, error %v", back, err)
	}
}

// Zeros fill a tensor and nothing beside it, also where threads share the work and where there are
// gaps.
func TestFillWithZeros(t *testing.T) {
	b := &cpu.Backend{Threads: 3}
	for _, n := range []int{1, 5, 100_001} {
		for _, strides := range [][]int{{3, 1}, {4, 1}, {1, n}} {
			cells := make([]float64, 4*n+2)
			for i := range cells {
				cells[i] = 7
			}
			x := kernels.Of(cells[1:], len(cells)-1)
			x.Shape, x.Strides = []int{n, 3}, strides
			if err := b.Fill(x, 0); err != nil {
				t.Fatal(err)
			}
			want := make(map[int]bool, 3*n)
			for i := range n {
				for j := range 3 {
					want[1+i*strides[0]+j*strides[1]] = true
				}
			}
			for i, c := range cells {
				if (c == 0) != want[i] {
					t.Fatalf("n=%d, strides %v: cell %d is %v", n, strides, i, c)
				}
			}
		}
	}
}

// A number is the one of the moment in which it was asked for.
func TestRead(t *testing.T) {
	b, x := cpu.New(), []float32{1.5}
	n, err := b.Read(kernels.Of(x))
	if err != nil {
		t.Fatal(err)
	}
	x[0] = 2
	if got, err := n.Float64(); got != 1.5 || err != nil {
		t.Errorf("got %v, error %v", got, err)
	}
	if _, err := b.Read(kernels.Of(make([]float32, 2), 2)); err == nil {
		t.Error("a vector was read as a number")
	}
}

// Sizes beyond an address space are refused.
func TestAllocOfTooMuch(t *testing.T) {
	if _, err := cpu.New().Alloc(kernels.F32, math.MaxInt/2, 4); err == nil {
		t.Error("there is no error")
	}
	if err := (kernels.Unsupported{Device: "cpu", What: "x"}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error("Unsupported does not wrap errors.ErrUnsupported")
	}
}
