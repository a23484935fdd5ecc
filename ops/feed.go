package ops

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Feed is an input of a graph that a program fills anew before each run, such as the ids of tokens:
// a value that the program writes on the host, and the one that the graph reads, where it computes.
type Feed struct {
	host, value *tensor.Dense
	from, to    kernels.Tensor
	destination kernels.Backend
}

var errUnmadeFeed = errors.New("Feed: it is a zero value, it needs to be what NewFeed gave")

// NewFeed makes a value of the host, which is row-major, an input of graphs that compute on a
// device, or on the host where the device is nil.
func NewFeed(d *Device, on *tensor.Dense) (*Feed, error) {
	if on == nil || !on.IsNativelyAccessible() {
		return nil, errors.New("Feed: the value needs to be on the host")
	}
	if on.Dtype() == (tensor.Dtype{}) {
		return nil, errors.New("Feed: the value is a zero value, it needs elements of a type")
	}
	if d == nil {
		return &Feed{host: on, value: on}, nil
	}
	if err := d.isOpen(); err != nil {
		return nil, fmt.Errorf("Feed: %w", err)
	}
	f := &Feed{host: on, destination: d.backend}
	var err error
	if f.from, err = TensorOf(on); err != nil {
		return nil, fmt.Errorf("Feed: the value %w", err)
	}
	if f.to, err = d.backend.Alloc(f.from.DType, f.from.Shape...); err != nil {
		return nil, fmt.Errorf("Feed: %w", err)
	}
	f.value = ValueOf(f.to)
	of := weak.Make(f.value)
	fedFrom.Store(of, on)
	runtime.AddCleanup(f.value, func(of weak.Pointer[tensor.Dense]) { fedFrom.Delete(of) }, of)
	return f, nil
}

// fedFrom has the host's value of each feed's value on a device, a *tensor.Dense by its weak
// pointer, for ops that read an input on the host, such as the lengths of packed sequences.
var fedFrom sync.Map

// onHost is a value of the host, or what a value on a device was filled from.
func onHost(v gorgonia.Value) (gorgonia.Value, error) {
	at, err := PlaceOf(v)
	if err == nil && at == host {
		return v, nil
	}
	if t, ok := v.(*tensor.Dense); ok {
		if from, fed := fedFrom.Load(weak.Make(t)); fed {
			return from.(*tensor.Dense), nil
		}
	}
	return nil, errors.Join(errors.New("needs to be on the host, or a feed's"), err)
}

// Value is what the graph's input is to have as its value.
func (f *Feed) Value() *tensor.Dense { return f.value }

// Node adds an input with the feed's value to a graph. Without a graph, or a value, it is nil,
// which no op takes.
func (f *Feed) Node(g *gorgonia.ExprGraph, name string) *gorgonia.Node {
	if g == nil || f.value == nil {
		return nil
	}
	return gorgonia.NewTensor(g, f.value.Dtype(), f.value.Dims(), gorgonia.WithShape(f.value.Shape()...), gorgonia.WithName(name), gorgonia.WithValue(f.value))
}

// Fill makes the graph read a value of the host, of the feed's type and shape, in its next run.
func (f *Feed) Fill(value *tensor.Dense) error {
	if f.value == nil {
		return errUnmadeFeed
	}
	if value == nil || !value.IsNativelyAccessible() || value.Dtype() != f.host.Dtype() || !value.Shape().Eq(f.host.Shape()) {
		return fmt.Errorf("Feed: the value needs to be on the host, %v of shape %v", f.host.Dtype(), []int(f.host.Shape()))
	}
	if err := Assign(f.host, value); err != nil {
		return fmt.Errorf("Feed: %w", err)
	}
	return f.Send()
}

// Send hands what the program wrote to the graph. It does not wait for runs that still read what
// was sent before.
func (f *Feed) Send() error {
	switch {
	case f.value == nil:
		return errUnmadeFeed
	case f.destination == nil: // it stays on the host
		return nil
	}
	if err := f.destination.Copy(f.to, f.from); err != nil {
		return fmt.Errorf("Feed: %w", err)
	}
	return nil
}

// SendFirst is Send of the first n indices of the first axis alone. The graph has what it had of
// the others.
func (f *Feed) SendFirst(n int) error {
	switch {
	case f.value == nil:
		return errUnmadeFeed
	case len(f.host.Shape()) == 0 || n < 0 || n > f.host.Shape()[0]:
		return fmt.Errorf("Feed: n is %d, it needs to be from 0 to the first axis of shape %v", n, []int(f.host.Shape()))
	case f.destination == nil:
		return nil
	}
	if err := f.destination.Copy(f.to.Slice(0, 0, n), f.from.Slice(0, 0, n)); err != nil {
		return fmt.Errorf("Feed: %w", err)
	}
	return nil
}

// ReadNumber asks for the number that a scalar of a graph is, such as a loss. It does not wait for
// the device that computes it.
func ReadNumber(v gorgonia.Value) (kernels.Number, error) {
	if s, ok := v.(gorgonia.Scalar); ok {
		x, err := float(s)
		return known(x), err
	}
	t, place, err := located(v)
	if err != nil {
		return nil, fmt.Errorf("ReadNumber: the value %w", err)
	}
	return place.Read(t)
}

// known is a number that is there.
type known float64

func (k known) Float64() (float64, error) { return float64(k), nil }
