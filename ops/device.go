package ops

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Device is a GPU whose memory can hold values. An op computes where its inputs live, so a graph
// whose inputs were uploaded runs there:
//
//	device, err := ops.OpenDevice(0)
//	x, err := device.Upload(hostX)                                     // a value in the GPU's memory
//	q := gorgonia.NodeFromAny(g, x, gorgonia.WithName("q"))             // in place of the host's value
//	...
//	m := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())) // Engine adds gradients there
//	err = m.RunAll()
//	y, err := ops.Download(out.Value())                                // back on the host; waits for the GPU
//
// Floats and integers can be uploaded, ids of tokens too. The ops of this package compute on a GPU;
// of Gorgonia's own, Add does, and those that only view a value, as Reshape; the others give an
// error there, and a node whose inputs are partly here and partly there gives one too. The machine
// is a tapeMachine; gradients are read with Node.Grad or Node.Value of what [gorgonia.Grad] gave,
// not through BindDualValues.
//
// A value's memory is freed when Go's collector finds that the value is garbage. A slice of a value
// is only good as long as the value itself is there.
type Device struct {
	backend     kernels.Backend
	description string
}

// Devices is the number of GPUs that can be opened, 0 in a program that was built without the tag
// gpu.
func Devices() int { return cuda.Count() }

// OpenDevice returns the GPU of an index, the same one in each call. A program that was built
// without the tag gpu gets an error.
func OpenDevice(index int) (*Device, error) {
	if d, ok := opened.Load(index); ok {
		return d.(*Device), nil
	}
	gpu, err := cuda.Open(index)
	if err != nil {
		return nil, fmt.Errorf("OpenDevice: %w", err)
	}
	d, _ := opened.LoadOrStore(index, &Device{gpu, gpu.Description()})
	return d.(*Device), nil
}

// OnCompile has a function called with a line for people when a GPU's kernel for a user's score or
// mask, or for dropout or slopes that ranks share, is compiled, which takes seconds the first time,
// and when that is done, until stop is called. It is called on the goroutine that needs the kernel.
func OnCompile(tell func(line string)) (stop func()) { return cuda.OnCompile(tell) }

// String is the name and the product, as in "cuda:0, NVIDIA H200 (...)".
func (d *Device) String() string {
	if err := d.isOpen(); err != nil {
		return err.Error()
	}
	return d.backend.Name() + ", " + d.description
}

// isOpen returns an error for nil and the zero Device.
func (d *Device) isOpen() error {
	if d == nil || d.backend == nil {
		return errors.New("the device is nil or a zero value, it needs to be what OpenDevice gave")
	}
	return nil
}

// Backend is what computes on the device.
func (d *Device) Backend() kernels.Backend { return d.backend }

// Upload returns a copy of a value of the host in the device's memory. The value may have any
// strides.
func (d *Device) Upload(t *tensor.Dense) (*tensor.Dense, error) {
	if t == nil || !t.IsNativelyAccessible() {
		return nil, errors.New("Upload: the value needs to be on the host")
	}
	if err := d.isOpen(); err != nil {
		return nil, fmt.Errorf("Upload: %w", err)
	}
	v, err := copyTo(d.backend, t)
	if err != nil {
		return nil, fmt.Errorf("Upload: the value %w", err)
	}
	return v, nil
}

// Download returns a copy of a value on the host, once everything that computes it is done. A value
// of the host is returned as it is. A program that reads a value of a device in any other way ends:
// its Data is the device's memory, and for a scalar Data itself reads that.
func Download(v gorgonia.Value) (*tensor.Dense, error) {
	t, ok := v.(*tensor.Dense)
	if !ok || t == nil {
		return nil, fmt.Errorf("Download: the value is %s, it needs to be a *tensor.Dense", kindOf(v))
	}
	if t.IsNativelyAccessible() {
		return t, nil
	}
	t, err := copyTo(host, t)
	if err != nil {
		return nil, fmt.Errorf("Download: the value %w", err)
	}
	return t, nil
}

// Assign writes the elements of a value of one shape and type over those of another, wherever
// either lives.
func Assign(to, from gorgonia.Value) error {
	var tensors [2]kernels.Tensor
	var places [2]kernels.Backend
	for i, v := range []gorgonia.Value{to, from} {
		var err error
		if tensors[i], places[i], err = located(v); err != nil {
			return fmt.Errorf("Assign: the value %w", err)
		}
	}
	if tensors[0].DType != tensors[1].DType {
		return fmt.Errorf("Assign: a value of %v cannot be written over one of %v", tensors[1].DType, tensors[0].DType)
	}
	if tensors[0].DType.IsPacked() {
		if a, b := to.(*tensor.Dense).Shape(), from.(*tensor.Dense).Shape(); !a.Eq(b) {
			return fmt.Errorf("Assign: a value of shape %v cannot be written over one of shape %v", []int(b), []int(a))
		}
		tensors[0], tensors[1] = wordsOf(tensors[0], to), wordsOf(tensors[1], from)
	}
	err := copierOf(places[0], places[1]).Copy(tensors[0], tensors[1])
	runtime.KeepAlive(from)
	return err
}

// copyTo copies a value to a place.
func copyTo(place kernels.Backend, t *tensor.Dense) (*tensor.Dense, error) {
	from, own, err := located(t)
	if err != nil {
		return nil, err
	}
	packed := from.DType
	if packed.IsPacked() {
		from = wordsOf(from, t)
	}
	to, err := copied(from, from.DType, place, copierOf(place, own))
	if err != nil {
		return nil, fmt.Errorf("cannot be copied: %w", err)
	}
	runtime.KeepAlive(t)
	if packed.IsPacked() {
		return packedValueOf(to, t.Dtype(), t.Shape()[0])
	}
	return ValueOf(to), nil
}
