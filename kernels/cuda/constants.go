//go:build gpu

package cuda

import (
	"fmt"
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
	if o, ok := c.owners[contents]; ok {
		return o, nil
	}
	b, err := d.memory.get(len(contents))
	if err != nil {
		return nil, err
	}
	o := b.owned()
	if err := d.do(fmt.Sprintf("cuMemcpyHtoDAsync(%d bytes)", len(contents)), func() error {
		if err := cu.MemcpyHtoDAsync(cu.DevicePtr(b.at), unsafe.Pointer(unsafe.StringData(contents)), int64(len(contents)), d.stream); err != nil {
			return err
		}
		return d.stream.Synchronize() // contents is Go's memory, which the driver may not read later
	}); err != nil {
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
