//go:build gpu

package ops

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"gorgonia.org/tensor"
)

func countDevices() int { return cuda.Count() }

// opened are the devices that were opened, by index.
var opened sync.Map

func openDevice(index int) (*Device, error) {
	if d, ok := opened.Load(index); ok {
		return d.(*Device), nil
	}
	gpu, err := cuda.Open(index)
	if err != nil {
		return nil, err
	}
	d, _ := opened.LoadOrStore(index, newDevice(gpu))
	return d.(*Device), nil
}

// deviceOf finds the device on which a value lives. Gorgonia gives values new engines as it pleases, so the value's address
// is what tells.
func deviceOf(t *tensor.Dense) (found *Device, err error) {
	opened.Range(func(_, d any) bool {
		if _, _, owner := d.(*Device).home.data(t); owner != nil {
			found = d.(*Device)
		}
		return found == nil
	})
	if found == nil {
		return nil, errors.New("is not in the memory of a device that is open, or is a view of a value that is gone")
	}
	return found, nil
}

func newDevice(gpu *cuda.Device) *Device {
	h := &home{
		Backend: gpu,
		value:   deviceValue,
		data: func(t *tensor.Dense) (unsafe.Pointer, int, any) {
			address := t.Uintptr()
			at := *(*unsafe.Pointer)(unsafe.Pointer(&address))
			return at, int(t.MemSize()) / kernels.F32.Size(), gpu.Owner(kernels.Tensor{Data: at})
		},
		copy: gpu.Copy,
		zero: func(t kernels.Tensor) error { return gpu.Zero([]kernels.Tensor{t}) },
		scale: func(t kernels.Tensor, factor float64) error {
			return gpu.Scale(t, float32(factor))
		},
		number: func(t kernels.Tensor) (float64, error) {
			x := make([]float32, 1)
			err := gpu.Download(kernels.Of(x), t)
			return float64(x[0]), err
		},
		scalar: func(x float64, dtype kernels.DType) (kernels.Tensor, error) {
			t, err := gpu.Alloc(dtype)
			if err != nil {
				return t, err
			}
			return t, gpu.Fill(t, x)
		},
	}
	return &Device{home: h, upload: gpu.Upload, download: gpu.Download, description: gpu.Description()}
}

// inaccessible is the engine that a device's values are made with: it tells tensor that Go cannot read them, which the
// values remember when Gorgonia gives them another engine.
type inaccessible struct{ engine }

func (inaccessible) AllocAccessible() bool { return false }

// deviceValue makes a float32 tensor of a device a value. The value keeps the memory's owner alive.
func deviceValue(t kernels.Tensor) *tensor.Dense {
	if t.DType != kernels.F32 {
		panic(fmt.Sprintf("ops: a value on a device is %v, it needs to be float32", t.DType))
	}
	v := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(t.Shape...),
		tensor.FromMemory(uintptr(t.Data), uintptr(t.Elements()*t.DType.Size())), tensor.WithEngine(inaccessible{}))
	runtime.AddCleanup(v, func(any) {}, t.Owner)
	return v
}
