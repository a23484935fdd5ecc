//go:build gpu

package cuda

import (
	"fmt"
	"slices"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// This file keeps copies of float32 weights in 16 bits, so that a step of training need not make
// them. An optimiser's update writes the copies with the weights. Anything else that may have
// written a weight makes its copies stale, and a stale copy is made anew before it is read: whoever
// takes a tensor's address for writing tells so (driver.Written).

// roundedWeight is a weight and its copy.
type roundedWeight struct {
	weight, copy kernels.Tensor
	fresh        bool // the copy has the weight's numbers, at this point in the order of work
}

// roundedWeights are weights whose copies lie in one matrix.
type roundedWeights struct {
	all    kernels.Tensor
	list   []*roundedWeight
	layout kernels.RoundedLayout
}

// isOf reports whether these are the copies of weights in a dtype.
func (s *roundedWeights) isOf(dtype kernels.DType, layout kernels.RoundedLayout, weights []kernels.Tensor) bool {
	return s.all.DType == dtype && s.layout == layout && slices.EqualFunc(s.list, weights, func(r *roundedWeight, w kernels.Tensor) bool {
		return r.weight.Owner == w.Owner && r.weight.Data == w.Data && slices.Equal(r.weight.Shape, w.Shape)
	})
}

// copiesOf are the copies of weights that lie in one owner's memory. It watches that memory.
type copiesOf struct {
	hardware *hardware
	owner    *driver.Owner
	sets     []*roundedWeights // guarded by the device's rounding
}

// rounding guards what is known of weights' copies in 16 bits.
type rounding struct {
	sync.Mutex
	recorded recordedCopies // by the recording that is being made, nil for none
}

// copiesIn returns the copies of weights in a tensor's memory, of which there may be none.
func (d *Device) copiesIn(w kernels.Tensor) []*roundedWeights {
	o, ok := w.Owner.(*driver.Owner)
	if !ok {
		return nil
	}
	c, ok := o.Watcher().(*copiesOf)
	if !ok {
		return nil
	}
	d.rounding.Lock()
	defer d.rounding.Unlock()
	return slices.Clone(c.sets)
}

// Rounded gives the copies of weights.
func (d *Device) Rounded(dtype kernels.DType, layout kernels.RoundedLayout, weights ...kernels.Tensor) (kernels.Tensor, error) {
	const name = "rounded"
	if err := kernels.CheckRounded(dtype, layout, weights); err != nil {
		return kernels.Tensor{}, d.callError(name, err)
	}
	for i, w := range weights {
		if o, ok := w.Owner.(*driver.Owner); !ok || o.GPU() != d.GPU {
			return kernels.Tensor{}, d.callError(name, fmt.Errorf("weights[%d] is not in the memory of this device, it needs to be", i))
		}
	}
	s := d.roundedOf(dtype, layout, weights)
	if s == nil {
		if d.IsRecording() {
			return kernels.Tensor{}, nil // what is made now would be the recording's
		}
		var err error
		if s, err = d.newRounded(dtype, layout, weights); err != nil {
			return kernels.Tensor{}, d.failed(name, err)
		}
	}
	return s.all, d.refresh(s)
}

// roundedOf finds copies that were made.
func (d *Device) roundedOf(dtype kernels.DType, layout kernels.RoundedLayout, weights []kernels.Tensor) *roundedWeights {
	for _, s := range d.copiesIn(weights[0]) {
		if s.isOf(dtype, layout, weights) {
			return s
		}
	}
	return nil
}

// roundedMatrix gives the copy of a matrix, or of its transpose, if there is one.
func (d *Device) roundedMatrix(dtype kernels.DType, w kernels.Tensor) (kernels.Tensor, error) {
	if w.IsTransposed() {
		t, err := d.roundedMatrix(dtype, w.Permute(1, 0))
		if t.IsSet() {
			t = t.Permute(1, 0)
		}
		return t, err
	}
	s := d.roundedOf(dtype, kernels.RoundedLayout{}, []kernels.Tensor{w})
	if s == nil {
		return kernels.Tensor{}, nil
	}
	return s.all, d.refresh(s)
}

// newRounded makes memory for copies, which lives as long as one of the weights does.
func (d *Device) newRounded(dtype kernels.DType, layout kernels.RoundedLayout, weights []kernels.Tensor) (*roundedWeights, error) {
	const multiple = 8 // of the ranks at which a block begins
	rows, columns := weights[0].Shape[0], 0
	if layout.Blocks {
		rows = 0
	}
	for _, w := range weights {
		if columns += w.Shape[1]; layout.Blocks {
			rows += (w.Shape[0] + multiple - 1) / multiple * multiple
		}
	}
	shape := []int{rows, columns}
	if layout.Transposed {
		shape = []int{columns, rows}
	}
	all, err := d.Alloc(dtype, shape...)
	if err == nil && layout.Blocks {
		err = d.Fill(all, 0)
	}
	if err != nil {
		return nil, err
	}
	if layout.Transposed {
		all = all.Permute(1, 0)
	}
	s := &roundedWeights{all: all, layout: layout}
	below, beside := 0, 0
	for _, w := range weights {
		place := all.Slice(0, below, below+w.Shape[0]).Slice(1, beside, beside+w.Shape[1])
		s.list = append(s.list, &roundedWeight{weight: w, copy: place})
		if beside += w.Shape[1]; layout.Blocks {
			below += (w.Shape[0] + multiple - 1) / multiple * multiple
		}
	}
	d.rounding.Lock()
	defer d.rounding.Unlock()
	for _, w := range weights {
		o := w.Owner.(*driver.Owner)
		c, ok := o.Watcher().(*copiesOf)
		if !ok {
			c = &copiesOf{hardware: d.hardware, owner: o}
			o.Watch(c)
		}
		if !slices.Contains(c.sets, s) {
			c.sets = append(c.sets, s)
		}
	}
	return s, nil
}

// refresh makes stale copies anew.
func (d *Device) refresh(s *roundedWeights) error {
	for _, r := range s.list {
		if d.isFresh(r) {
			continue
		}
		if err := d.copies([]pair{{r.copy, r.weight}}); err != nil {
			return err
		}
		d.setFresh(r, true)
	}
	return nil
}

// Changed makes the copies of an owner's weights stale.
func (c *copiesOf) Changed() {
	r := &c.hardware.rounding
	r.Lock()
	defer r.Unlock()
	for _, s := range c.sets {
		for _, w := range s.list {
			if w.weight.Owner == any(c.owner) {
				r.setFresh(w, false)
			}
		}
	}
}

// recordedCopies are what recorded work knows and does of copies.
type recordedCopies map[*roundedWeight]recordedCopy

type recordedCopy struct {
	needed bool // it reads the copy as it finds it
	set    bool // it writes the weight or the copy
	fresh  bool // the copy is, after what was recorded so far
}

// isFresh reports whether a copy has its weight's numbers. Where a recording is made, launches see
// to it that it has at first.
func (d *Device) isFresh(w *roundedWeight) bool {
	r := &d.rounding
	r.Lock()
	defer r.Unlock()
	if r.recorded == nil {
		return w.fresh
	}
	state, ok := r.recorded[w]
	if !ok {
		state = recordedCopy{needed: true, fresh: true}
		r.recorded[w] = state
	}
	return state.fresh
}

func (d *Device) setFresh(w *roundedWeight, fresh bool) {
	d.rounding.Lock()
	defer d.rounding.Unlock()
	d.rounding.setFresh(w, fresh)
}

// setFresh is Device.setFresh where the caller holds the lock.
func (r *rounding) setFresh(w *roundedWeight, fresh bool) {
	if r.recorded == nil {
		w.fresh = fresh
		return
	}
	state := r.recorded[w]
	state.set, state.fresh = true, fresh
	r.recorded[w] = state
}

// record notes what becomes of copies while work is recorded.
func (r *rounding) record(to recordedCopies) {
	r.Lock()
	defer r.Unlock()
	r.recorded = to
}

// Recording is recorded work: see [Device.Capture].
type Recording struct {
	*driver.Recording
	device    *Device
	launching sync.Mutex
	copies    recordedCopies
}

// Capture records what work queues on the device, without running it. [driver.GPU.Capture] says
// what a recording keeps, and what cannot be recorded.
func (d *Device) Capture(work func() error) (kernels.Recording, error) {
	copies := recordedCopies{}
	r, err := d.GPU.Capture(func() error {
		d.rounding.record(copies)
		defer d.rounding.record(nil)
		return work()
	})
	if err != nil {
		return nil, err
	}
	return &Recording{Recording: r, device: d, copies: copies}, nil
}

// Launch queues the recorded work, and before it the copies of weights that it needs and that are
// stale.
func (r *Recording) Launch() error {
	r.launching.Lock()
	defer r.launching.Unlock()
	if r.device.IsRecording() {
		return r.Recording.Launch() // which says that it cannot be
	}
	for w, state := range r.copies {
		if state.needed {
			if err := r.device.refresh(&roundedWeights{list: []*roundedWeight{w}}); err != nil {
				return err
			}
		}
	}
	if err := r.Recording.Launch(); err != nil {
		return err
	}
	for w, state := range r.copies {
		if state.set {
			r.device.setFresh(w, state.fresh)
		}
	}
	return nil
}

// writtenCopy is the copy that an update writes with a weight, or with a part of it: Chunk in
// src/optimizer.cu says more.
type writtenCopy struct {
	of                               *roundedWeight // nil for none
	first, columns, stride, alongRow uint32
}

// writtenCopies are the copies that an update of weights keeps fresh: for each weight one that is
// fresh, and of which four elements that a thread has at once are in one row.
func (d *Device) writtenCopies(weights []kernels.Tensor) []writtenCopy {
	list := make([]writtenCopy, len(weights))
	for i, w := range weights {
		for _, s := range d.copiesIn(w) {
			for _, r := range s.list {
				if c, ok := r.writtenWith(w); ok && list[i].of == nil && d.isFresh(r) {
					list[i] = c
				}
			}
		}
	}
	return list
}

// writtenWith says where the elements of a tensor, a weight or a part of one, lie in the weight's
// copy.
func (r *roundedWeight) writtenWith(w kernels.Tensor) (c writtenCopy, ok bool) {
	const together, most = 4, 1 << 32
	if w.Owner != r.weight.Owner {
		return c, false
	}
	first := int(read(w)-read(r.weight)) / kernels.F32.Size()
	columns, stride, alongRow := r.weight.Shape[1], r.copy.Strides[0], r.copy.Strides[1]
	if first < 0 || first+w.Elements() > r.weight.Elements() || r.weight.Elements() >= most || alongRow >= most {
		return c, false
	}
	if first%together != 0 || columns%together != 0 || alongRow == 1 && (read(r.copy)%(2*together) != 0 || stride%together != 0) {
		return c, false
	}
	return writtenCopy{r, uint32(first), uint32(columns), uint32(stride), uint32(alongRow)}, true
}

// stayFresh notes that an update has written copies.
func (d *Device) stayFresh(list []writtenCopy) {
	for _, c := range list {
		if c.of != nil {
			d.setFresh(c.of, true)
		}
	}
}

var _ kernels.Rounder = (*Device)(nil)
