//go:build gpu

package cuda_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// mirrored lets a device compute on tensors of the host: it uploads the memory of all tensors of a
// call, gaps included and in the same place relative to each other, lets the device compute, and
// downloads it again. So a test that looks for unwritten elements and for writes into gaps works as
// with a backend of the host.
//
// With half set, the tensors of q's kind travel as bfloat16 or float16. What the host holds must
// survive that rounding.
type mirrored struct {
	*cuda.Device
	half kernels.DType // or NoDType
	wide bool          // bias and sinks are float32 all the same
	dry  bool          // the device's calls are rehearsed: nothing is copied
}

// region is a piece of the host's memory that the tensors of a call lie in.
type region struct {
	first, last uintptr // addresses of elements
	half        bool
	device      kernels.Tensor
	shift       int // elements from the device tensor's start to the region's
}

// copied is one call's regions.
type copied struct {
	mirrored
	regions []*region
}

// newCopied finds the regions of tensors and uploads them. The first tensors are those of q's kind,
// the rest have 32 bits an element.
func (m mirrored) newCopied(main, rest []kernels.Tensor) (*copied, error) {
	c := &copied{mirrored: m}
	for i, t := range append(slices.Clone(main), rest...) {
		if t.IsSet() && t.Elements() > 0 && t.Data != nil {
			last := 0
			for axis, n := range t.Shape {
				last += (n - 1) * t.Strides[axis]
			}
			c.regions = append(c.regions, &region{
				first: uintptr(t.Data), last: uintptr(t.Data) + uintptr(4*last), half: i < len(main) && m.half != kernels.NoDType})
		}
	}
	slices.SortFunc(c.regions, func(a, b *region) int { return int(int64(a.first) - int64(b.first)) })
	for i := 0; i+1 < len(c.regions); {
		if a, b := c.regions[i], c.regions[i+1]; b.first <= a.last && a.half == b.half {
			a.last = max(a.last, b.last)
			c.regions = slices.Delete(c.regions, i+1, i+2)
		} else {
			i++
		}
	}
	for _, r := range c.regions {
		if err := c.upload(r); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (r *region) host() []float32 {
	return unsafe.Slice(*(**float32)(unsafe.Pointer(&r.first)), (r.last-r.first)/4+1)
}

// upload copies a region to the device, to an address whose alignment is that on the host.
func (c *copied) upload(r *region) error {
	host, dtype := r.host(), kernels.F32
	r.shift = int(r.first % 64 / 4)
	if r.half {
		dtype = c.half
	}
	var err error
	if r.device, err = c.Alloc(dtype, r.shift+len(host)); err != nil || c.dry {
		return err
	}
	inside := r.device.Slice(0, r.shift, r.shift+len(host))
	if !r.half {
		return c.UploadBytes(inside, unsafe.Pointer(unsafe.SliceData(host)))
	}
	bits := make([]uint16, len(host))
	inParts(len(host), func(from, to int) {
		for i, x := range host[from:to] {
			bits[from+i] = toHalf(c.half, x)
		}
	})
	return c.UploadBytes(inside, unsafe.Pointer(unsafe.SliceData(bits)))
}

// download brings all regions back.
func (c *copied) download() error {
	if c.dry {
		return nil
	}
	for _, r := range c.regions {
		host := r.host()
		inside := r.device.Slice(0, r.shift, r.shift+len(host))
		if !r.half {
			if err := c.DownloadBytes(inside, unsafe.Pointer(unsafe.SliceData(host))); err != nil {
				return err
			}
			continue
		}
		bits := make([]uint16, len(host))
		if err := c.DownloadBytes(inside, unsafe.Pointer(unsafe.SliceData(bits))); err != nil {
			return err
		}
		inParts(len(host), func(from, to int) {
			for i, b := range bits[from:to] {
				host[from+i] = fromHalf(c.half, b)
			}
		})
	}
	return nil
}

// inParts does a loop of n steps on all processors: a test that has the device holds up all others.
func inParts(n int, do func(from, to int)) {
	const least = 1 << 14
	parts := min(runtime.GOMAXPROCS(0), n/least+1)
	var group sync.WaitGroup
	for part := range parts {
		group.Go(func() { do(n*part/parts, n*(part+1)/parts) })
	}
	group.Wait()
}

// on is a tensor's twin on the device.
func (c *copied) on(t kernels.Tensor) kernels.Tensor {
	if !t.IsSet() {
		return t
	}
	at := uintptr(t.Data)
	for _, r := range c.regions {
		if t.Elements() > 0 && r.first <= at && at <= r.last {
			first := r.shift + int(at-r.first)/4
			twin := r.device.Slice(0, first, first+1)
			twin.Shape, twin.Strides = t.Shape, t.Strides
			return twin
		}
	}
	if t.Elements() > 0 {
		panic(fmt.Sprintf("a tensor of shape %v has no twin", t.Shape))
	}
	twin := t
	twin.Data = nil
	return twin
}

// typed is on for a tensor of q's kind, which may be empty.
func (c *copied) typed(t kernels.Tensor) kernels.Tensor {
	twin := c.on(t)
	if t.IsSet() && c.half != kernels.NoDType {
		twin.DType = c.half
	}
	return twin
}

func (c *copied) problem(a *kernels.Attention) *kernels.Attention {
	twin := *a
	twin.Q, twin.K, twin.V, twin.Bias, twin.Sinks = c.typed(a.Q), c.typed(a.K), c.typed(a.V), c.added(a.Bias), c.added(a.Sinks)
	twin.Tables = c.lookedUp(a.Tables)
	return &twin
}

// lookedUp is on for tables, which are of float32 or of integers, or their gradients.
func (c *copied) lookedUp(list []kernels.Tensor) []kernels.Tensor {
	var twins []kernels.Tensor
	for _, t := range list {
		twin := c.on(t)
		twin.DType = t.DType
		twins = append(twins, twin)
	}
	return twins
}

// added is on for what is added to scores, or its gradient.
func (c *copied) added(t kernels.Tensor) kernels.Tensor {
	if c.wide {
		return c.on(t)
	}
	return c.typed(t)
}

// newAttention is newCopied for a call of attention: tensors of q's kind, those that are added to
// scores, and statistics.
func (m mirrored) newAttention(main, added, statistics []kernels.Tensor) (*copied, error) {
	if m.wide {
		return m.newCopied(main, slices.Concat(added, statistics))
	}
	return m.newCopied(slices.Concat(main, added), statistics)
}

func (m mirrored) AttentionForward(a *kernels.Attention, out kernels.AttentionOutputs) error {
	c, err := m.newAttention([]kernels.Tensor{a.Q, a.K, a.V, out.O}, []kernels.Tensor{a.Bias, a.Sinks}, append([]kernels.Tensor{out.LSE}, a.Tables...))
	if err != nil {
		return err
	}
	if err := m.Device.AttentionForward(c.problem(a), kernels.AttentionOutputs{O: c.typed(out.O), LSE: c.on(out.LSE)}); err != nil {
		return err
	}
	return c.download()
}

func (m mirrored) AttentionDelta(a *kernels.Attention, o, dO, dLSE, delta kernels.Tensor) error {
	c, err := m.newAttention([]kernels.Tensor{a.Q, a.K, a.V, o, dO}, []kernels.Tensor{a.Bias, a.Sinks}, append([]kernels.Tensor{dLSE, delta}, a.Tables...))
	if err != nil {
		return err
	}
	if err := m.Device.AttentionDelta(c.problem(a), c.typed(o), c.typed(dO), c.on(dLSE), c.on(delta)); err != nil {
		return err
	}
	return c.download()
}

func (m mirrored) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) error {
	c, err := m.newAttention([]kernels.Tensor{a.Q, a.K, a.V, g.DO, g.DQ, g.DK, g.DV}, []kernels.Tensor{a.Bias, a.Sinks, g.DBias, g.DSinks},
		slices.Concat([]kernels.Tensor{g.LSE, g.Delta}, a.Tables, g.DTables))
	if err != nil {
		return err
	}
	if err := m.Device.AttentionBackward(c.problem(a), kernels.AttentionGradients{
		DO: c.typed(g.DO), LSE: c.on(g.LSE), Delta: c.on(g.Delta), DQ: c.typed(g.DQ), DK: c.typed(g.DK), DV: c.typed(g.DV),
		DBias: c.added(g.DBias), DSinks: c.added(g.DSinks), DTables: c.lookedUp(g.DTables),
	}); err != nil {
		return err
	}
	return c.download()
}

// The NaN that attentiontest fills outputs with, and its twin of 16 bits.
const (
	poison32 uint32 = 0x7fc0dead
	poison16 uint16 = 0x7fde
)

// halfBias is what float32's exponent exceeds float16's by, in its place.
const halfBias = (127 - 15) << 23

// toHalf rounds to the nearest number of 16 bits, to even where two are equally near.
func toHalf(dtype kernels.DType, x float32) uint16 {
	bits := math.Float32bits(x)
	if bits == poison32 {
		return poison16
	}
	if x != x {
		return 0x7fff
	}
	if dtype == kernels.BF16 {
		return uint16((bits + 0x7fff + bits>>16&1) >> 16)
	}
	sign, size := uint16(bits>>16&0x8000), math.Abs(float64(x))
	switch {
	case math.IsInf(size, 1) || size >= 65520:
		return sign | 0x7c00
	case size < 1.0/(1<<14):
		return sign | uint16(math.RoundToEven(size*(1<<24)))
	}
	return sign | uint16((bits&0x7fffffff-halfBias+0xfff+bits>>13&1)>>13)
}

func fromHalf(dtype kernels.DType, b uint16) float32 {
	if b == poison16 {
		return math.Float32frombits(poison32)
	}
	if dtype == kernels.BF16 {
		return math.Float32frombits(uint32(b) << 16)
	}
	size := math.Float32frombits(uint32(b&0x7fff)<<13 + halfBias)
	switch b >> 10 & 31 {
	case 0:
		size = float32(b&1023) / (1 << 24)
	case 31:
		size = math.Float32frombits(uint32(b&1023)<<13 | 0x7f800000) // ∞ or NaN
	}
	return math.Float32frombits(math.Float32bits(size) | uint32(b&0x8000)<<16)
}
