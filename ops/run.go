package ops

import (
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// run is one run of a call or of its gradients: the device that computes, and what the kernel asks
// of the call.
type run struct {
	kernels.Backend
	c         *call
	step      *step      // nil for the gradients of a lispMachine
	gradients *gradients // in backward, nil likewise
	wanted    []bool     // the inputs whose gradients are asked for; nil if none
	out       tensors    // in backward, of kernels that read the outputs
	unit      bool       // in backward: the gradient of the output is known to be 1
	again     bool       // in forward: the last run is done over, for what it did not keep
	backward  bool
	adds      bool      // in backward: to the gradient of input 0
	begun     *transfer // in forward: what brings the output, which was begun ahead of the run
	scratched tensors   // what it has borrowed
}

// MatMul is the device's, as exact as the graph says.
func (r *run) MatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	m.Precision = r.c.state.mode.orPrecision(m.Precision)
	return r.Backend.MatMul(m, out)
}

// lastMatMul is MatMul of a call's output, which is left out where nothing reads it.
func (r *run) lastMatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	if r.unread() {
		return nil
	}
	if d, ok := r.Backend.(*meter); ok {
		defer func(before float64) { d.last = d.work - before }(d.work)
	}
	return r.MatMul(m, out)
}

// writesGateGradientsOver reports whether the product's device may write both gradients over what
// they are of, Z and Up of its epilogue.
func (r *run) writesGateGradientsOver(m *kernels.MatMul, c kernels.Tensor) bool {
	d, ok := r.Backend.(kernels.GradientsInPlace)
	asked := *m
	asked.Precision = r.c.state.mode.orPrecision(m.Precision)
	return ok && d.GateGradientsInPlace(&asked, c)
}

// matMulBesideLayers is MatMul for what is no linear layer: 8 bits are not for it.
func (r *run) matMulBesideLayers(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	m.Precision = r.c.state.mode.orPrecision(m.Precision).OrSixteenBits()
	return r.Backend.MatMul(m, out)
}

// GroupedMatMul is the device's, as exact as the graph says.
func (r *run) GroupedMatMul(m *kernels.GroupedMatMul, c kernels.Tensor) error {
	m.Precision = r.c.state.mode.orPrecision(m.Precision).OrSixteenBits()
	return r.Backend.GroupedMatMul(m, c)
}

// GroupedMatMulGradient is the device's, as exact as the graph says.
func (r *run) GroupedMatMulGradient(m *kernels.GroupedMatMul, dC, dB kernels.Tensor) error {
	m.Precision = r.c.state.mode.orPrecision(m.Precision).OrSixteenBits()
	return r.Backend.GroupedMatMulGradient(m, dC, dB)
}

// LinearCrossEntropy is the device's, as exact as the graph says.
func (r *run) LinearCrossEntropy(c *kernels.LinearCrossEntropy, out kernels.LinearCrossEntropyOutputs) error {
	c.Precision = r.c.state.mode.orPrecision(c.Precision).OrSixteenBits()
	return r.Backend.LinearCrossEntropy(c, out)
}

// wants reports whether the gradient of any of some inputs will be asked for.
func (r *run) wants(inputs ...int) bool {
	return r.wanted != nil && slices.ContainsFunc(inputs, func(i int) bool { return r.wanted[i] })
}

// lendOutput gives an output memory.
func (r *run) lendOutput(i int) (kernels.Tensor, error) {
	c, like := r.c, r.c.is.outputs[i]
	if r.again { // the output stays what the ops behind it made of it
		return r.Alloc(like.DType, like.Shape...)
	}
	if r.begun = c.state.ahead.arrived(c.id); r.begun != nil {
		c.release(&c.outputs[i].memory)
		c.outputs[i].memory = result{Tensor: r.begun.whole, place: r.Backend}
		return r.begun.whole, nil
	}
	return c.lend(&c.outputs[i].memory, r.Backend, like)
}

// prepare decides what a forward run drops, and takes the memory that it leaves for backward.
func (r *run) prepare() error {
	c := r.c
	clear(c.last.saved)
	if err := r.decideDropout(); err != nil {
		return err
	}
	if err := r.takeSaves(); err != nil || r.again {
		return err
	}
	return r.attend()
}

// takeSaves takes the memory that a forward run leaves for backward, as far as its size is known.
func (r *run) takeSaves() error {
	for i, like := range r.c.is.saves {
		if r.wanted != nil && like.DType != kernels.NoDType {
			if _, err := r.keep(i, like.DType, like.Shape...); err != nil {
				return err
			}
		}
	}
	return nil
}

// decideDropout decides what a forward run drops.
func (r *run) decideDropout() error {
	c, last := r.c, &r.c.last
	if r.again || c.is.dropout.P == 0 {
		return nil
	}
	mode, runs := &c.state.mode, last.runs
	last.dropout = kernels.Dropout{}
	step, on := mode.step(runs)
	if on {
		if mode.state.Load() == 0 {
			if err := c.checkRecording(); err != nil {
				return err
			}
		}
		last.dropout = c.is.dropout
		last.dropout.Step = step
	}
	last.runs++
	return nil
}

// dropout is what the run drops: in backward what forward did.
func (r *run) dropout() kernels.Dropout { return r.c.last.dropout }

// shares reports whether the graph's ops share memory.
func (r *run) shares() bool { return r.c.state.pool.shared }

// keep gives memory that holds until the gradients have been computed, where [run.saved] finds it.
// Its contents are undefined.
func (r *run) keep(i int, dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	return r.keepIn(&r.c.last.saved[i], &r.c.rooms.saved[i], dtype, shape...)
}

func (r *run) keepIn(t, room *kernels.Tensor, dtype kernels.DType, shape ...int) (_ kernels.Tensor, err error) {
	if !r.shares() {
		err = fit(room, r, kernels.Contiguous(nil, dtype, shape...))
		*t = *room
	} else if *t, err = r.c.state.pool.take(r.Backend, dtype, shape...); err == nil {
		r.c.last.kept = append(r.c.last.kept, *t)
	}
	return *t, err
}

// saved is what the kernel's description says that forward saves: memory in forward, where a
// gradient is wanted, and in backward what that holds.
func (r *run) saved(i int) kernels.Tensor {
	if saved := r.c.last.saved; i < len(saved) {
		return saved[i]
	}
	return kernels.Tensor{}
}

// savedOrScratch is saved, and in a forward run that saves nothing scratch memory in its place.
func (r *run) savedOrScratch(i int) (kernels.Tensor, error) {
	if t := r.saved(i); t.IsSet() {
		return t, nil
	}
	return r.scratchLike(r.c.is.saves[i])
}

// scratch gives memory that holds until the end of the run. Its contents are undefined.
func (r *run) scratch(dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	return r.scratchLike(kernels.Contiguous(nil, dtype, shape...))
}

func (r *run) scratchLike(like kernels.Tensor) (kernels.Tensor, error) {
	if r.shares() {
		t, err := r.c.state.pool.take(r.Backend, like.DType, like.Shape...)
		r.scratched = append(r.scratched, t)
		return t, err
	}
	rooms := &r.c.rooms.scratch[0]
	if r.backward {
		rooms = &r.c.rooms.scratch[1]
	}
	next := len(r.scratched)
	if next == len(*rooms) {
		*rooms = append(*rooms, kernels.Tensor{})
	}
	err := fit(&(*rooms)[next], r, like)
	r.scratched = append(r.scratched, (*rooms)[next])
	return (*rooms)[next], err
}

// giveBack gives back, before the run ends, what was borrowed from a place among it on to another.
func (r *run) giveBack(from, to int) {
	for i := from; i < to && r.shares(); i++ {
		r.c.state.pool.put(r.Backend, r.scratched[i])
		r.scratched[i] = kernels.Tensor{}
	}
}

// unread reports whether nothing reads the output of the run.
func (r *run) unread() bool { return r.step != nil && r.step.unread }

// end gives back what was borrowed, unless postponed work needs it.
func (r *run) end() {
	if !r.shares() {
		return
	}
	if r.c.last.postponed != nil && !r.backward {
		r.c.last.kept = append(r.c.last.kept, r.scratched...)
		return
	}
	for _, t := range r.scratched {
		r.c.state.pool.put(r.Backend, t)
	}
}

// copyOutputs keeps the outputs that backward needs, where an op of Gorgonia's may write over them.
func (r *run) copyOutputs(out tensors) error {
	c := r.c
	if c.last.copies == nil {
		c.last.copies = make(tensors, len(out))
	}
	for i, exposed := range c.planned().of[c.id].exposed[:c.is.readsOutputs] {
		copied := &c.last.copies[i]
		if !exposed {
			*copied = kernels.Tensor{}
			continue
		}
		if _, err := r.keepIn(copied, copied, out[i].DType, out[i].Shape...); err != nil {
			return err
		}
		if err := r.Copy(*copied, out[i]); err != nil {
			return err
		}
	}
	return nil
}

// rounded gives weights in a 16-bit type, side by side, as a device keeps them for parameters of
// the graph: matrices of float32, or of that type. It is not set where a device does not, where a
// weight is something else, or in a run that is made again, which is to take no memory for good.
func (r *run) rounded(dtype kernels.DType, weights ...kernels.Tensor) (kernels.Tensor, error) {
	if r.c.repeats {
		return kernels.Tensor{}, nil
	}
	return r.roundedInAnyRun(dtype, kernels.RoundedLayout{}, weights...)
}

// roundedInAnyRun is the same in a layout, also in a run that is made again: for copies that the
// first run has made too.
func (r *run) roundedInAnyRun(dtype kernels.DType, layout kernels.RoundedLayout, weights ...kernels.Tensor) (kernels.Tensor, error) {
	keeper, ok := r.Backend.(kernels.Rounder)
	for _, w := range weights {
		ok = ok && (w.DType == kernels.F32 || w.DType == dtype) && len(w.Shape) == 2 && w.IsRowMajor() && r.c.readsInput(w)
	}
	if !ok {
		return kernels.Tensor{}, nil
	}
	return keeper.Rounded(dtype, layout, weights...)
}

// vary does work that depends on what the host reads of in, the kernel's inputs. Where the graph is
// recorded, it is done again before each launch, with what the inputs of the graph have then.
func (r *run) vary(in tensors, work func(b kernels.Backend) error) error {
	recorder, ok := r.Backend.(kernels.Recorder)
	if !ok {
		return work(r.Backend)
	}
	c, again := r.c, false
	return recorder.Vary(func(b kernels.Backend) (err error) {
		for i := 0; again && i < len(in) && err == nil; i++ {
			if o := &c.operands[i]; o.form == rereadForm && o.child >= 0 {
				if in[i], err = c.bindOne(b, i, o.node.Value()); err != nil {
					err = fmt.Errorf("%s's value %w", o.name, err)
				}
			}
		}
		if err == nil {
			err = work(b)
		}
		if again && err != nil {
			err = c.runError(err)
		}
		again = true
		return err
	})
}
