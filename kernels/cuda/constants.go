//go:build gpu

package cuda

import (
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// constants are small vectors in the device's memory that kernels read, such as slopes and the lengths of packed
// sequences. They are found by their contents, so that a step whose vectors are those of the last uploads nothing.
type constants struct {
	sync.Mutex
	owners map[string]*owner
	order  []string // of their upload, for forgetting the oldest
}

// mostConstants is how many vectors a device remembers.
const mostConstants = 64

// constant gives a vector with the given contents, whose elements have four bytes. The caller keeps the owner alive until
// the work that reads it is queued.
func constant[T int32 | float32](d *Device, list []T) (*owner, error) {
	contents := string(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), 4*len(list)))
	c := &d.constants
	c.Lock()
	defer c.Unlock()
	r := d.memory.recording.Load()
	if o, ok := c.owners[contents]; ok {
		if r != nil {
			r.keepConstant(o)
		}
		return o, nil
	}
	b, err := d.memory.getLasting(len(contents))
	if err != nil {
		return nil, err
	}
	o := b.owned()
	if r == nil {
		err = d.uploadBytes(b.at, unsafe.Pointer(unsafe.StringData(contents)), len(contents))
	} else {
		r.keepConstant(o)
		err = d.unrecorded("cuMemcpyHtoDAsync", func(s cu.Stream) error {
			return cu.MemcpyHtoDAsync(cu.DevicePtr(b.at), unsafe.Pointer(unsafe.StringData(contents)), int64(len(contents)), s)
		})
	}
	if err != nil {
		return nil, err
	}
	if c.owners == nil {
		c.owners = map[string]*owner{}
	}
	if len(c.order) == mostConstants {
		delete(c.owners, c.order[0])
		c.order = append(c.order[:0], c.order[1:]...)
	}
	c.owners[contents] = o
	c.order = append(c.order, contents)
	return o, nil
}
