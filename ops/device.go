package ops

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Device is a GPU whose memory can hold values. An op computes where its inputs live, so a graph whose inputs were
// uploaded runs there:
//
//	device, err := ops.OpenDevice(0)
//	x, err := device.Upload(hostX)                                     // a value in the GPU's memory
//	q := gorgonia.NodeFromAny(g, x, gorgonia.WithName("q"))             // in place of the host's value
//	...
//	m := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())) // Engine adds gradients there
//	err = m.RunAll()
//	y, err := ops.Download(out.Value())                                // back on the host; waits for the GPU
//
// float32 values can be uploaded. Of this package's ops, attention, Add, Sum and Mean compute on a GPU; the others, and Gorgonia's
// own except Add, give an error there, and a node whose inputs are partly here and partly there gives one too. The machine is a
// tapeMachine; gradients are read with Node.Grad or Node.Value of what [gorgonia.Grad] gave, not through BindDualValues.
//
// A value's memory is freed when Go's collector finds that the value is garbage. A slice of a value is only good as long as
// the value itself is there.
type Device struct {
	home        *home
	upload      func(kernels.Tensor) (kernels.Tensor, error)
	download    func(host, device kernels.Tensor) error
	description string
}

// Devices is the number of GPUs that can be opened, 0 in a program that was built without the tag gpu.
func Devices() int { return countDevices() }

// OpenDevice gives the GPU of an index. A program that was built without the tag gpu gets an error.
func OpenDevice(index int) (*Device, error) {
	d, err := openDevice(index)
	if err != nil {
		return nil, fmt.Errorf("OpenDevice: %w", err)
	}
	return d, nil
}

// String is the name and the product, as in "cuda:0, NVIDIA H200 (...)".
func (d *Device) String() string { return d.home.Name() + ", " + d.description }

// Upload gives a copy of a value of the host in the device's memory. The value is float32 and may have any strides.
func (d *Device) Upload(t *tensor.Dense) (*tensor.Dense, error) {
	if t == nil || !t.IsNativelyAccessible() {
		return nil, errors.New("Upload: the value needs to be on the host")
	}
	if t.Dtype() != tensor.Float32 {
		return nil, fmt.Errorf("Upload: the value is %v, it needs to be float32", t.Dtype())
	}
	shape := []int(t.Shape())
	dense, err := host.contiguous(t, kernels.F32, shape, len(shape))
	if err != nil {
		return nil, fmt.Errorf("Upload: the value %w", err)
	}
	uploaded, err := d.upload(dense)
	runtime.KeepAlive(t)
	if err != nil {
		return nil, fmt.Errorf("Upload: %w", err)
	}
	return d.home.value(uploaded), nil
}

// Download gives a copy of a value on the host, once everything that computes it is done. A value of the host is given as
// it is.
func Download(v gorgonia.Value) (*tensor.Dense, error) {
	t, ok := v.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("Download: the value is a %T, it needs to be a *tensor.Dense", v)
	}
	if t.IsNativelyAccessible() {
		return t, nil
	}
	d, err := deviceOf(t)
	if err != nil {
		return nil, fmt.Errorf("Download: the value %w", err)
	}
	from, err := d.home.view(t, kernels.F32, t.Shape())
	if err != nil {
		return nil, fmt.Errorf("Download: the value %w", err)
	}
	to, err := host.Alloc(kernels.F32, t.Shape()...)
	if err != nil {
		return nil, fmt.Errorf("Download: %w", err)
	}
	if err := d.download(to, from); err != nil {
		return nil, fmt.Errorf("Download: %w", err)
	}
	runtime.KeepAlive(t)
	return host.value(to), nil
}

// deviceHomeOf finds the device on which a value lives.
func deviceHomeOf(t *tensor.Dense) (*home, error) {
	d, err := deviceOf(t)
	if err != nil {
		return nil, err
	}
	return d.home, nil
}

// Engine is Gorgonia's standard engine with an Add of our own: threaded on the host, and the only one on a device. Give it to
// a machine by gorgonia.WithEngine: the gradient of a node that is used several times is a sum, which Gorgonia computes by
// its own Add. A machine that runs values on a device needs it; on the host it makes training a little faster.
func Engine() tensor.Engine { return engine{} }

type engine struct{ tensor.StdEng }

// Add computes a + b where both live. Its options are those of tensor.Add.
func (e engine) Add(a, b tensor.Tensor, options ...tensor.FuncOpt) (tensor.Tensor, error) {
	if a.IsNativelyAccessible() && b.IsNativelyAccessible() {
		if sum, ok := addOnHost(a, b, options); ok {
			return sum, nil
		}
		return e.StdEng.Add(a, b, options...)
	}
	sum, err := addOnDevice(a, b, tensor.ParseFuncOpts(options...))
	if err != nil {
		return nil, fmt.Errorf("Add: %w", err)
	}
	return sum, nil
}

// addOnHost adds what gradients are, row-major tensors of floats of one shape. It leaves everything else to Gorgonia, errors
// as well.
func addOnHost(a, b tensor.Tensor, options []tensor.FuncOpt) (tensor.Tensor, bool) {
	left, isDense := a.(*tensor.Dense)
	right, alsoDense := b.(*tensor.Dense)
	if !isDense || !alsoDense || left.IsMasked() || right.IsMasked() || left.Dims() == 0 || dtypeOf(left.Dtype()) == kernels.NoDType {
		return nil, false
	}
	parsed := tensor.ParseFuncOpts(options...)
	into, increment := parsed.IncrReuse()
	if increment {
		return nil, false
	}
	if into == nil && !parsed.Safe() {
		into = left
	}
	dtype, shape := dtypeOf(left.Dtype()), left.Shape()
	if into == nil {
		fresh, err := host.Alloc(dtype, shape...)
		if err != nil {
			return nil, false
		}
		into = host.value(fresh)
		tensor.WithEngine(left.Engine())(into)
	}
	var views [3]kernels.Tensor
	for i, t := range [3]tensor.Tensor{left, right, into} {
		var err error
		if views[i], err = host.view(t, dtype, shape); err != nil || !t.IsNativelyAccessible() || !isRowMajor(views[i], len(shape)) {
			return nil, false
		}
	}
	return into, host.Add(views[0], views[1], views[2]) == nil
}

func addOnDevice(a, b tensor.Tensor, options *tensor.OpOpt) (*tensor.Dense, error) {
	values := []gorgonia.Value{a, b}
	h, err := homeOfAll([]string{"a", "b"}, values)
	if err != nil {
		return nil, err
	}
	var terms [2]kernels.Tensor
	for i, v := range values {
		if terms[i], err = h.view(v, kernels.F32, a.Shape()); err != nil {
			return nil, fmt.Errorf("%s %w", []string{"a", "b"}[i], err)
		}
	}
	into, increment := options.IncrReuse()
	if into != nil && into.IsNativelyAccessible() && !increment {
		into = nil // memory of the host that Gorgonia set aside before it knew where the values are
	}
	if into == nil && !options.Safe() {
		into = a
	}
	if into == nil {
		sum, err := h.Alloc(kernels.F32, a.Shape()...)
		if err != nil {
			return nil, err
		}
		return h.value(sum), h.Add(terms[0], terms[1], sum)
	}
	dense, ok := into.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("the result is a %T, it needs to be a *tensor.Dense", into)
	}
	if at, err := homeOf(dense); err != nil {
		return nil, fmt.Errorf("the result %w", err)
	} else if at != h {
		return nil, fmt.Errorf("the result is on %s, a is on %s", at.Name(), h.Name())
	}
	sum, err := h.view(dense, kernels.F32, a.Shape())
	if err != nil {
		return nil, fmt.Errorf("the result %w", err)
	}
	if increment {
		if err := h.Add(terms[0], sum, sum); err != nil {
			return nil, err
		}
		return dense, h.Add(terms[1], sum, sum)
	}
	return dense, h.Add(terms[0], terms[1], sum)
}
