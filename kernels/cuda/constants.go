//go:build gpu

package cuda

import (
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// constants are vectors and tables in the device's memory that kernels read, such as slopes, the lengths of packed
// sequences and the places of parameters. They are found by what they say, so that a step whose constants are those of the
// last uploads nothing.
type constants struct {
	sync.Mutex
	owners map[string]*owner
	order  []string // of their upload, for forgetting the oldest
}

// mostConstants is how many constants a device remembers.
const mostConstants = 64

// constant gives a vector with the given contents. The caller keeps the owner alive until
// the work that reads it is queued.
func constant[T int32 | float32 | float64](d *Device, list []T) (*owner, error) {
	contents := bytesOf(list)
	if d.isVarying() {
		return d.varied.vectors.take(d, contents)
	}
	return d.constantBytes("vector: "+contents, func() []byte { return []byte(contents) })
}

// bytesOf copies the memory of a slice, whose elements hold no pointers that Go knows.
func bytesOf[T any](list []T) string {
	var element T
	return string(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*int(unsafe.Sizeof(element))))
}

// constantBytes finds a constant by its key, and makes it if it is not there.
func (d *Device) constantBytes(key string, make func() []byte) (*owner, error) {
	c := &d.constants
	c.Lock()
	defer c.Unlock()
	r := d.memory.recording.Load()
	if o, ok := c.owners[key]; ok {
		if r != nil {
			r.keepConstant(o)
		}
		return o, nil
	}
	contents := make()
	b, err := d.memory.getLasting(len(contents))
	if err != nil {
		return nil, err
	}
	o := b.owned()
	if r == nil {
		err = d.uploadBytes(b.at, unsafe.Pointer(unsafe.SliceData(contents)), len(contents))
	} else {
		r.keepConstant(o)
		err = d.unrecorded("cuMemcpyHtoDAsync", func(s cu.Stream) error {
			return cu.MemcpyHtoDAsync(cu.DevicePtr(b.at), unsafe.Pointer(unsafe.SliceData(contents)), int64(len(contents)), s)
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
	c.owners[key] = o
	c.order = append(c.order, key)
	return o, nil
}
