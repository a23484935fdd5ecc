//go:build gpu

package cuda_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// hostTensor is a row-major tensor of the host whose elements are 1, −2, 3, ... thirds.
func hostTensor(dtype kernels.DType, shape ...int) kernels.Tensor {
	t := kernels.Contiguous(nil, dtype, shape...)
	t.Data = unsafe.Pointer(unsafe.SliceData(make([]uint64, t.Elements()+1)))
	for i := range t.Elements() {
		x := float64(i+1) * float64(1-i%2*2)
		if dtype.IsFloat() {
			x /= 3
		}
		one := kernels.Tensor{Data: unsafe.Add(t.Data, i*dtype.Size()), DType: dtype}
		kernels.FillHost(one, x)
	}
	return t
}

// bytesOf is the memory of a row-major tensor of the host.
func bytesOf(t kernels.Tensor) []byte {
	return unsafe.Slice((*byte)(t.Data), t.Elements()*t.DType.Size())
}

// views are ways to lie in memory that copies meet.
var views = map[string]func(kernels.Tensor) kernels.Tensor{
	"row-major":  func(t kernels.Tensor) kernels.Tensor { return t },
	"transposed": func(t kernels.Tensor) kernels.Tensor { return t.Permute(1, 0) },
	"a part":     func(t kernels.Tensor) kernels.Tensor { return t.Slice(0, 1, 5).Slice(1, 3, 7) },
}

func alloc(t *testing.T, d *cuda.Device, dtype kernels.DType, shape ...int) kernels.Tensor {
	t.Helper()
	x, err := d.Alloc(dtype, shape...)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Copies go between all floats, the host and the device, at any strides, and write what lies in the
// destination alone.
func TestCopyToAndFromTheHost(t *testing.T) {
	d := device(t)
	types := []kernels.DType{kernels.F32, kernels.F64, kernels.BF16, kernels.F16, kernels.I32, kernels.I64}
	for _, from := range types {
		for _, to := range types {
			if from != to && (from.IsInteger() || to.IsInteger()) {
				continue
			}
			for name, view := range views {
				src, dst := hostTensor(from, 6, 8), hostTensor(to, 6, 8)
				want := hostTensor(to, 6, 8)
				kernels.CopyHost(view(want), view(src))
				up, there := alloc(t, d, from, 6, 8), alloc(t, d, to, 6, 8)
				steps := []struct {
					what     string
					dst, src kernels.Tensor
				}{
					{"up", up, src}, {"up", there, dst}, // all of the memory
					{"on the device", view(there), view(up)}, {"down", dst, there},
				}
				check := func(kind string) {
					for _, s := range steps {
						if err := d.Copy(s.dst, s.src); err != nil {
							t.Fatalf("%v to %v, %s, %s: %v", from, to, name, s.what, err)
						}
					}
					if !bytes.Equal(bytesOf(dst), bytesOf(want)) {
						t.Errorf("%v to %v, %s: a copy %s is wrong", from, to, name, kind)
					}
				}
				check("on the device")
				kernels.CopyHost(dst, hostTensor(to, 6, 8))
				steps[0].dst, steps[0].src = there, dst
				steps[1].dst, steps[1].src = view(there), view(src)
				steps = append(steps[:2], steps[3])
				check("up")
				kernels.CopyHost(dst, hostTensor(to, 6, 8))
				steps[0].dst, steps[0].src = up, src
				steps[1].dst, steps[1].src = view(dst), view(up)
				steps = steps[:2]
				check("down")
			}
		}
	}
	for _, shape := range [][]int{{}, {0, 3}} {
		if err := d.Copy(alloc(t, d, kernels.F32, shape...), hostTensor(kernels.F32, shape...)); err != nil {
			t.Errorf("shape %v: %v", shape, err)
		}
	}
	if err := d.Copy(alloc(t, d, kernels.F32, 2), hostTensor(kernels.I32, 2)); fmt.Sprint(err) != "cuda:0: copy: dst is float32 and src is int32, there is no conversion between them" {
		t.Errorf("the error is %v", err)
	}
}

func TestFill(t *testing.T) {
	d := device(t)
	for _, dtype := range []kernels.DType{kernels.F32, kernels.F64, kernels.BF16, kernels.F16, kernels.I32, kernels.I64} {
		for name, view := range views {
			x := 0.3
			if dtype.IsInteger() {
				x = -7
			}
			want, got, there := hostTensor(dtype, 6, 8), hostTensor(dtype, 6, 8), alloc(t, d, dtype, 6, 8)
			kernels.FillHost(view(want), x)
			for _, err := range []error{d.Copy(there, got), d.Fill(view(there), x), d.Copy(got, there)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(bytesOf(want), bytesOf(got)) {
				t.Errorf("%v, %s: fill is wrong", dtype, name)
			}
		}
	}
	if err := d.Fill(alloc(t, d, kernels.I32, 2), 0.5); err == nil {
		t.Error("half of an integer gave no error")
	}
}

// A number is the one of the moment at which it was asked for, however late it is looked at.
func TestRead(t *testing.T) {
	d := device(t)
	for _, dtype := range []kernels.DType{kernels.F32, kernels.F64, kernels.BF16, kernels.F16, kernels.I32, kernels.I64} {
		x := alloc(t, d, dtype, 1, 1)
		var numbers []kernels.Number
		for i := range 3000 {
			if err := d.Fill(x, float64(i%200)); err != nil {
				t.Fatal(err)
			}
			n, err := d.Read(x)
			if err != nil {
				t.Fatal(err)
			}
			if i%3 > 0 { // others are never looked at
				numbers = append(numbers, n)
			}
			if i == 2000 {
				runtime.GC()
			}
		}
		for i, n := range numbers {
			want := float64((i/2*3 + i%2 + 1) % 200)
			for range 2 {
				if got, err := n.Float64(); err != nil || got != want {
					t.Fatalf("%v: number %d is %v, it needs to be %v; error %v", dtype, i, got, want, err)
				}
			}
		}
	}
	if _, err := d.Read(alloc(t, d, kernels.F32, 2)); fmt.Sprint(err) != "cuda:0: read: t has shape [2], it needs one element" {
		t.Errorf("the error is %v", err)
	}
}

// The caller's memory is its own again when a copy from it returns, while the device is still busy
// with something else.
func TestCopyTakesTheHostsMemoryAtOnce(t *testing.T) {
	d := device(t)
	const n = 3<<20 + 5 // more bytes than a piece, and in all more than pieces may hold
	busy := alloc(t, d, kernels.F32, 1<<28)
	list := make([]float32, n)
	var there []kernels.Tensor
	for round := range 8 {
		for i := range list {
			list[i] = float32(i%1000 + round)
		}
		for range 20 {
			if err := d.MulScalar(1, busy, busy); err != nil {
				t.Fatal(err)
			}
		}
		x := alloc(t, d, kernels.F32, n)
		if err := d.Copy(x, kernels.Of(list, n)); err != nil {
			t.Fatal(err)
		}
		there = append(there, x)
	}
	for round, x := range there {
		if err := d.Copy(kernels.Of(list, n), x); err != nil {
			t.Fatal(err)
		}
		for i, got := range list {
			if want := float32(i%1000 + round); got != want {
				t.Fatalf("copy %d: element %d is %v, it needs to be %v", round, i, got, want)
			}
		}
	}
}
