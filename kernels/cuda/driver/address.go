//go:build gpu

package driver

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Address is a place in the device's memory, 0 for none.
type Address uintptr

// Readable is an address for one who reads there, and Writable for one who writes there too.
type (
	Readable Address
	Writable Address
)

// Readable is the address for reading.
func (a Address) Readable() Readable { return Readable(a) }

// Writable is the address for writing. What lies there belongs to the caller: see [Written] for
// what belongs to a tensor.
func (a Address) Writable() Writable { return Writable(a) }

// Address is where it is.
func (w Writable) Address() Address { return Address(w) }

// Readable is the address for reading what was written.
func (w Writable) Readable() Readable { return Readable(w) }

// Read is where a tensor lies, for one who writes nothing there.
func Read(t kernels.Tensor) Readable { return Readable(uintptr(t.Data)) }

// Written is where a tensor lies, for one who may write there.
func Written(t kernels.Tensor) Writable {
	if o, ok := t.Owner.(*Owner); ok {
		if w := o.watcher.Load(); w != nil {
			(*w).Changed()
		}
	}
	return Writable(uintptr(t.Data))
}

// Span is a piece of the device's memory, up to but not including To.
type Span struct{ From, To Address }

// SpanOf is where a tensor that is not empty lies, gaps between its elements included.
func SpanOf(t kernels.Tensor) Span {
	last := 0
	for axis, n := range t.Shape {
		last += (n - 1) * t.Strides[axis]
	}
	from := Address(uintptr(t.Data))
	return Span{from, from + Address((last+1)*t.DType.Size())}
}

// Pointer is the place as kernels.Tensor has it: no pointer that Go could follow.
func (a Address) Pointer() unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }
