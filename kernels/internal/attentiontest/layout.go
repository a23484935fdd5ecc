package attentiontest

import (
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Layout is how tensors lie in memory.
type Layout int

const (
	BHSD      Layout = iota // (B, H, S, D) without gaps
	BSHD                    // (B, S, H, D) without gaps; with packed sequences it is (total, H, D)
	QKV                     // one (B, S, (Hq + 2Hk)·D) of q, k and v; needs Sq = Sk and D = Dv
	Padded                  // (B, H, S, D) with gaps between rows, heads and batch items, and at odd addresses
	Broadcast               // (B, H, S, D), where one k and v serve the whole batch by a stride of 0
)

func (l Layout) String() string {
	return [...]string{"BHSD", "BSHD", "QKV", "padded", "broadcast"}[l]
}

// buffer is memory and the tensors that lie in it.
type buffer[T kernels.Float] struct {
	data  []T
	views []kernels.Tensor
}

// one lays out a single tensor.
func (l Layout) one(allocate func(shape ...int) kernels.Tensor, batch, heads, rows, size int) kernels.Tensor {
	switch l {
	case BSHD, QKV:
		return allocate(batch, rows, heads, size).Permute(0, 2, 1, 3)
	case Padded:
		t := allocate(batch, heads+1, rows+2, size+3)
		return t.Slice(1, 0, heads).Slice(2, 1, rows+1).Slice(3, 1, size+1)
	}
	return allocate(batch, heads, rows, size)
}

// three lays out tensors of the shapes of q, k and v. Outputs may not share memory, so do not
// broadcast.
func (l Layout) three(allocate func(shape ...int) kernels.Tensor, c Case, output bool) (q, k, v kernels.Tensor) {
	if l == QKV {
		all := allocate(c.Batch, c.Sq, c.Heads+2*c.KeyHeads, c.D).Permute(0, 2, 1, 3)
		h, hk := c.Heads, c.KeyHeads
		return all.Slice(1, 0, h), all.Slice(1, h, h+hk), all.Slice(1, h+hk, h+2*hk)
	}
	q = l.one(allocate, c.Batch, c.Heads, c.Sq, c.D)
	if c.SharedKeys {
		return q, l.one(allocate, 1, c.KeyHeads, c.Sk, c.D), l.one(allocate, 1, c.KeyHeads, c.Sk, c.Dv)
	}
	if l == Broadcast && !output {
		k, v = l.one(allocate, 1, c.KeyHeads, c.Sk, c.D), l.one(allocate, 1, c.KeyHeads, c.Sk, c.Dv)
		for _, t := range []*kernels.Tensor{&k, &v} {
			t.Shape[0], t.Strides[0] = c.Batch, 0
		}
		return q, k, v
	}
	return q, l.one(allocate, c.Batch, c.KeyHeads, c.Sk, c.D), l.one(allocate, c.Batch, c.KeyHeads, c.Sk, c.Dv)
}

// eachOffset calls do with the offset of every element, in row-major order.
func eachOffset(t kernels.Tensor, do func(offset int)) {
	var walk func(axis, offset int)
	walk = func(axis, offset int) {
		if axis == len(t.Shape) {
			do(offset)
			return
		}
		for i := range t.Shape[axis] {
			walk(axis+1, offset+i*t.Strides[axis])
		}
	}
	walk(0, 0)
}

// values is the elements of a tensor in row-major order.
func values[T kernels.Float](t kernels.Tensor) []float64 {
	if !t.IsSet() {
		return nil
	}
	list, data := make([]float64, 0, t.Elements()), kernels.Host[T](t)
	eachOffset(t, func(offset int) { list = append(list, float64(data[offset])) })
	return list
}

// Outputs are filled with a NaN of a pattern that no arithmetic on ordinary values makes. Where it
// is still there after a run, nobody wrote, or somebody added to it.
const (
	poison32 uint32 = 0x7fc0dead
	poison64 uint64 = 0x7ff8dead0000dead
)

func poison[T kernels.Float](data []T) {
	for i := range data {
		switch at := any(&data[i]).(type) {
		case *float32:
			*at = math.Float32frombits(poison32)
		case *float64:
			*at = math.Float64frombits(poison64)
		}
	}
}

func poisoned[T kernels.Float](x T) bool {
	switch x := any(x).(type) {
	case float32:
		return math.Float32bits(x) == poison32
	case float64:
		return math.Float64bits(x) == poison64
	}
	return false
}

// position is where a tensor's first element lies in the buffer.
func (b *buffer[T]) position(t kernels.Tensor) int {
	return int(uintptr(t.Data)-uintptr(unsafe.Pointer(unsafe.SliceData(b.data)))) / t.DType.Size()
}
