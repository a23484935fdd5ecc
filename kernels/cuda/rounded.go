//go:build gpu

package cuda

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// This file keeps copies of float32 weights in 16 bits, so that a step of training need not make them. An optimiser's update writes the
// copies with the weights. Anything else that may have written a weight makes its copies stale, and a stale copy is made anew before it
// is read: whoever takes a tensor's address may write there (addressOf), but for those that say that they read (addressToRead).

// roundedWeight is a weight and its copy.
type roundedWeight struct {
	weight, copy kernels.Tensor
	fresh        bool // the copy has the weight's numbers, at this point in the order of work
}

// roundedWeights are weights whose copies lie side by side in one matrix.
type roundedWeights struct {
	all  kernels.Tensor
	list []*roundedWeight
}

// isOf reports whether these are the copies of weights in a dtype.
func (s *roundedWeights) isOf(dtype kernels.DType, weights []kernels.Tensor) bool {
	return s.all.DType == dtype && slices.EqualFunc(s.list, weights, func(r *roundedWeight, w kernels.Tensor) bool {
		return r.weight.Owner == w.Owner && r.weight.Data == w.Data && slices.Equal(r.weight.Shape, w.Shape)
	})
}

// Rounded gives the copies of weights, side by side.
func (d *Device) Rounded(dtype kernels.DType, weights ...kernels.Tensor) (kernels.Tensor, error) {
	const name = "rounded"
	if err := kernels.CheckRounded(dtype, weights); err != nil {
		return kernels.Tensor{}, d.callError(name, err)
	}
	for i, w := range weights {
		if o, ok := w.Owner.(*owner); !ok || o.allocator.device != d {
			return kernels.Tensor{}, d.callError(name, fmt.Errorf("weights[%d] is not in the memory of this device, it needs to be", i))
		}
	}
	s := d.roundedOf(dtype, weights)
	if s == nil {
		if d.memory.recording.Load() != nil {
			return kernels.Tensor{}, nil // what is made now would be the recording's
		}
		var err error
		if s, err = d.newRounded(dtype, weights); err != nil {
			return kernels.Tensor{}, d.failed(name, err)
		}
	}
	return s.all, d.refresh(s)
}

// roundedOf finds copies that were made.
func (d *Device) roundedOf(dtype kernels.DType, weights []kernels.Tensor) *roundedWeights {
	o, ok := weights[0].Owner.(*owner)
	if !ok {
		return nil
	}
	d.rounding.Lock()
	defer d.rounding.Unlock()
	for _, s := range o.rounded {
		if s.isOf(dtype, weights) {
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
	s := d.roundedOf(dtype, []kernels.Tensor{w})
	if s == nil {
		return kernels.Tensor{}, nil
	}
	return s.all, d.refresh(s)
}

// newRounded makes memory for copies, which lives as long as one of the weights does.
func (d *Device) newRounded(dtype kernels.DType, weights []kernels.Tensor) (*roundedWeights, error) {
	columns := 0
	for _, w := range weights {
		columns += w.Shape[1]
	}
	all, err := d.Alloc(dtype, weights[0].Shape[0], columns)
	if err != nil {
		return nil, err
	}
	s := &roundedWeights{all: all}
	at := 0
	for _, w := range weights {
		s.list = append(s.list, &roundedWeight{weight: w, copy: all.Slice(1, at, at+w.Shape[1])})
		at += w.Shape[1]
	}
	d.rounding.Lock()
	defer d.rounding.Unlock()
	for _, w := range weights {
		if o := w.Owner.(*owner); !slices.Contains(o.rounded, s) {
			o.rounded = append(o.rounded, s)
			o.isRounded.Store(true)
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

// changed makes the copies of an owner's weights stale.
func (o *owner) changed() {
	d := o.allocator.device
	d.rounding.Lock()
	sets := slices.Clone(o.rounded)
	d.rounding.Unlock()
	for _, s := range sets {
		for _, r := range s.list {
			if r.weight.Owner == any(o) {
				d.setFresh(r, false)
			}
		}
	}
}

// roundedState is what recorded work knows and does of a copy.
type roundedState struct {
	needed bool // it reads the copy as it finds it
	set    bool // it writes the weight or the copy
	fresh  bool // the copy is, after what was recorded so far
}

// isFresh reports whether a copy has its weight's numbers. Where a recording is made, launches see to it that it has at first.
func (d *Device) isFresh(r *roundedWeight) bool {
	d.rounding.Lock()
	defer d.rounding.Unlock()
	kept := d.memory.recording.Load()
	if kept == nil {
		return r.fresh
	}
	state, ok := kept.rounded[r]
	if !ok {
		state = roundedState{needed: true, fresh: true}
		kept.setRounded(r, state)
	}
	return state.fresh
}

func (d *Device) setFresh(r *roundedWeight, fresh bool) {
	d.rounding.Lock()
	defer d.rounding.Unlock()
	kept := d.memory.recording.Load()
	if kept == nil {
		r.fresh = fresh
		return
	}
	state := kept.rounded[r]
	state.set, state.fresh = true, fresh
	kept.setRounded(r, state)
}

func (k *recordedMemory) setRounded(r *roundedWeight, state roundedState) {
	if k.rounded == nil {
		k.rounded = map[*roundedWeight]roundedState{}
	}
	k.rounded[r] = state
}

// beforeLaunch makes stale copies anew that recorded work reads.
func (d *Device) beforeLaunch(states map[*roundedWeight]roundedState) error {
	for r, state := range states {
		if state.needed {
			if err := d.refresh(&roundedWeights{list: []*roundedWeight{r}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// afterLaunch notes what recorded work has done.
func (d *Device) afterLaunch(states map[*roundedWeight]roundedState) {
	for r, state := range states {
		if state.set {
			d.setFresh(r, state.fresh)
		}
	}
}

// writtenCopy is the copy that an update writes with a weight, or with a part of it: Chunk in src/optimizer.cu says more.
type writtenCopy struct {
	of                     *roundedWeight // nil for none
	first, columns, stride uint32
}

// writtenCopies are the copies that an update of weights keeps fresh: for each weight one that is fresh, and whose rows a thread can write
// four elements at a time.
func (d *Device) writtenCopies(weights []kernels.Tensor) []writtenCopy {
	list := make([]writtenCopy, len(weights))
	for i, w := range weights {
		o, ok := w.Owner.(*owner)
		if !ok || !o.isRounded.Load() {
			continue
		}
		d.rounding.Lock()
		sets := slices.Clone(o.rounded)
		d.rounding.Unlock()
		for _, s := range sets {
			for _, r := range s.list {
				if c, ok := r.writtenWith(w); ok && list[i].of == nil && d.isFresh(r) {
					list[i] = c
				}
			}
		}
	}
	return list
}

// writtenWith says where the elements of a tensor, a weight or a part of one, lie in the weight's copy.
func (r *roundedWeight) writtenWith(w kernels.Tensor) (c writtenCopy, ok bool) {
	const together, most = 4, 1 << 32
	if w.Owner != r.weight.Owner {
		return c, false
	}
	first := int(addressToRead(w)-addressToRead(r.weight)) / kernels.F32.Size()
	columns, stride := r.weight.Shape[1], r.copy.Strides[0]
	if first < 0 || first+w.Elements() > r.weight.Elements() || r.weight.Elements() >= most {
		return c, false
	}
	if addressToRead(r.copy)%(2*together) != 0 || first%together != 0 || columns%together != 0 || stride%together != 0 {
		return c, false
	}
	return writtenCopy{r, uint32(first), uint32(columns), uint32(stride)}, true
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
