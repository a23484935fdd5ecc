//go:build gpu

package cuda_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

func pointerTo(list []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(list)) }

// A request that the device cannot meet is an error, and the allocator works as before.
func TestOutOfMemory(t *testing.T) {
	d := device(t)
	before := d.Memory().Live
	if _, err := d.Alloc(kernels.F32, 1<<40); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Fatalf("4 TiB: the error is %v", err)
	}
	var list []kernels.Tensor
	for {
		piece, err := d.Alloc(kernels.F32, 1<<31) // 8 GiB
		if err != nil {
			if !errors.Is(err, cuda.ErrOutOfMemory) {
				t.Fatal(err)
			}
			break
		}
		list = append(list, piece)
	}
	if _, err := d.Alloc(kernels.F32, 1<<20); err != nil {
		t.Errorf("4 MiB after an error: %v", err)
	}
	runtime.KeepAlive(list)
	list = nil
	if _, err := d.Alloc(kernels.F32, 1<<32); err != nil {
		t.Errorf("16 GiB, when 8 GiB pieces were dropped: %v", err)
	}
	for n := 0; n < 10 && d.Memory().Live > before; n++ {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	if live := d.Memory().Live; live > before+1<<20 {
		t.Errorf("%d bytes are in use, %d were before", live, before)
	}
	if err := d.Trim(); err != nil {
		t.Fatal(err)
	}
	if cached := d.Memory().Cached; cached > 64<<20 {
		t.Errorf("%d bytes are cached after Trim", cached)
	}
}

// Copies, sums and factors take any strides.
func TestElementwise(t *testing.T) {
	d := device(t)
	random := rand.New(rand.NewPCG(1, 2))
	values := func(n int) []float32 {
		list := make([]float32, n)
		for i := range list {
			list[i] = float32(random.NormFloat64())
		}
		return list
	}
	upload := func(list []float32, shape ...int) kernels.Tensor {
		up, err := d.Upload(kernels.Of(list, shape...))
		if err != nil {
			t.Fatal(err)
		}
		return up
	}
	download := func(x kernels.Tensor) []float32 {
		list := make([]float32, x.Elements())
		if err := d.Copy(kernels.Of(list, x.Shape...), x); err != nil {
			t.Fatal(err)
		}
		return list
	}
	for _, shape := range [][]int{{1}, {7}, {4096}, {3, 5, 8}, {2, 3, 4, 5}, {64, 33, 12}, {2, 1, 6, 16}, {}} {
		n := kernels.Contiguous(nil, kernels.F32, shape...).Elements()
		hostA, hostB := values(n), values(n)
		a, b := upload(hostA, shape...), upload(hostB, shape...)
		sum, err := d.Alloc(kernels.F32, shape...)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Add(a, b, sum), d.MulScalar(0.5, sum, sum)); err != nil {
			t.Fatal(err)
		}
		for i, x := range download(sum) {
			if want := (hostA[i] + hostB[i]) * 0.5; x != want {
				t.Fatalf("%v: element %d of (a+b)/2 is %v, it needs to be %v", shape, i, x, want)
			}
		}
		if len(shape) < 2 {
			continue
		}
		// A copy of a permuted view, and a slice of it back into a part of another tensor.
		order := []int{len(shape) - 1}
		for axis := range len(shape) - 1 {
			order = append(order, axis)
		}
		view := a.Permute(order...)
		got := download(view)
		hostView, i := kernels.Of(hostA, shape...).Permute(order...), 0
		walk(hostView, func(x float32) {
			if got[i] != x {
				t.Fatalf("%v permuted by %v: element %d is %v, it needs to be %v", shape, order, i, got[i], x)
			}
			i++
		})
		part := sum.Slice(0, 0, 1)
		if err := errors.Join(d.Zero([]kernels.Tensor{sum}), d.Copy(part, a.Slice(0, shape[0]-1, shape[0]))); err != nil {
			t.Fatal(err)
		}
		if want := hostA[n-n/shape[0]:]; !slices.Equal(download(part), want) {
			t.Fatalf("%v: the slice was not copied", shape)
		}
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			half, err := d.Alloc(dtype, shape...)
			if err != nil {
				t.Fatal(err)
			}
			back, err := d.Alloc(kernels.F32, shape...)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Copy(half, a), d.Copy(back, half)); err != nil {
				t.Fatal(err)
			}
			for i, x := range download(back) {
				if want := fromHalf(dtype, toHalf(dtype, hostA[i])); x != want {
					t.Fatalf("%v as %v: %v became %v, it needs to be %v", shape, dtype, hostA[i], x, want)
				}
			}
		}
	}
	if err := d.Copy(upload(values(4), 4), upload(values(5), 5)); err == nil {
		t.Error("copy of another shape gave no error")
	}
}

// walk calls do with every element of a tensor of the host, in row-major order.
func walk(t kernels.Tensor, do func(float32)) {
	if len(t.Shape) == 0 {
		do(kernels.Host[float32](t)[0])
		return
	}
	for i := range t.Shape[0] {
		part := t.Slice(0, i, i+1)
		walk(kernels.Tensor{Data: part.Data, DType: t.DType, Shape: t.Shape[1:], Strides: t.Strides[1:]}, do)
	}
}

func TestOpenErrors(t *testing.T) {
	d := device(t)
	if _, err := cuda.Open(cuda.Count()); err == nil {
		t.Error("opening a device that does not exist gave no error")
	}
	again, err := cuda.Open(0)
	if err != nil || again != d {
		t.Errorf("opening a device again gave another one, and error %v", err)
	}
	t.Log(d.Description())
}

// Events measure the time between two points of the device's work.
func TestEvents(t *testing.T) {
	d := device(t)
	x, err := d.Alloc(kernels.F32, 1<<28)
	if err != nil {
		t.Fatal(err)
	}
	from, err := d.Record()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Fill(x, 1); err != nil {
		t.Fatal(err)
	}
	to, err := d.Record()
	if err != nil {
		t.Fatal(err)
	}
	if took, err := to.Since(from); err != nil || !(took > 0) {
		t.Errorf("1 GiB took %v, error %v", took, err)
	}
}
