//go:build gpu

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// AdamW updates weights and both of their moments.
func (d *Device) AdamW(o kernels.AdamW, w, g, m, v []kernels.Tensor) error {
	return d.update("adamw", "adamw", o.Check(w, g, m, v), o.Update,
		update{beta1: o.Beta1, beta2: o.Beta2, epsilon: o.Epsilon, step: int32(o.Step)}, w, g, m, v)
}

// SGD updates weights and, if there is any, their momentum.
func (d *Device) SGD(o kernels.SGD, w, g, m []kernels.Tensor) error {
	u := update{beta1: o.Momentum, nesterov: flag(o.Nesterov), decoupled: flag(o.Decoupled)}
	if o.Momentum == 0 {
		entry := "sgd"
		if len(g) > 0 && g[0].DType == kernels.F16 {
			entry = "sgd_f16"
		}
		return d.update("sgd", entry, o.Check(w, g, m), o.Update, u, w, g)
	}
	return d.update("sgd", "sgd_momentum", o.Check(w, g, m), o.Update, u, w, g, m)
}

// Lion updates weights and their momentum.
func (d *Device) Lion(o kernels.Lion, w, g, m []kernels.Tensor) error {
	return d.update("lion", "lion", o.Check(w, g, m), o.Update, update{beta1: o.Beta1, beta2: o.Beta2}, w, g, m)
}

// Accumulate adds each tensor of x to the one in its place in sums.
func (d *Device) Accumulate(sums, x []kernels.Tensor) error {
	return d.update("accumulate", "accumulate", kernels.CheckAccumulate(sums, x), kernels.Update{}, update{}, sums, x)
}

// update is Update in src/optimizer.cu.
type update struct {
	chunks                   address
	control                  readable
	rate, weightDecay, scale float64
	beta1, beta2, epsilon    float64

	step, clear, nesterov, decoupled int32
}

func flag(set bool) int32 {
	if set {
		return 1
	}
	return 0
}

// update runs an optimiser's kernel over lists that were checked with the result given.
func (d *Device) update(name, entry string, checked error, o kernels.Update, u update, lists ...[]kernels.Tensor) error {
	if checked != nil {
		return d.callError(name, checked)
	}
	copies := d.writtenCopies(lists[0])
	table, err := d.newChunkTable(name, copies, written, lists...)
	if err != nil || table.chunks == 0 {
		return err
	}
	if err := d.tell(name, o, table, &u); err != nil {
		return err
	}
	if err = d.launchOptimizer(entry, table.chunks, unsafe.Pointer(&u)); err == nil {
		d.stayFresh(copies)
	}
	runtime.KeepAlive(table.owner)
	runtime.KeepAlive(lists)
	runtime.KeepAlive(o.Control.Owner)
	return err
}

// tell gives a kernel the chunks of an update, and what all optimisers have in common.
func (d *Device) tell(name string, o kernels.Update, table chunkTable, u *update) error {
	u.chunks = table.owner.At
	u.rate, u.weightDecay, u.scale, u.clear = o.LearningRate, o.WeightDecay, o.EffectiveScale(), flag(o.ClearGradients)
	if !o.Control.IsSet() {
		return nil
	}
	u.control = read(o.Control)
	return d.checkHere(name, "control", o.Control)
}

// momentumStep is MomentumStep in src/optimizer.cu.
type momentumStep struct {
	u     update
	parts address
}

// Momentum moves momenta, gives what SGD would add to weights, and adds up the squares of that.
func (d *Device) Momentum(o kernels.SGD, g, m, y []kernels.Tensor, sums kernels.Tensor) error {
	const name = "momentum"
	if err := o.CheckMomentum(g, m, y, sums); err != nil {
		return d.callError(name, err)
	}
	if len(y) == 0 {
		return nil
	}
	if err := d.checkHere(name, "sums", sums); sums.IsSet() && err != nil {
		return err
	}
	table, err := d.newChunkTable(name, nil, written, y, g, m)
	if err != nil {
		return err
	}
	a := momentumStep{u: update{beta1: o.Momentum, nesterov: flag(o.Nesterov)}}
	if err := d.tell(name, o.Update, table, &a.u); err != nil {
		return err
	}
	var s sumSquares
	if sums.IsSet() {
		parts, err := d.scratch(8 * max(1, table.chunks))
		if err != nil {
			return d.callError(name, err)
		}
		defer parts.Free()
		a.parts = parts.At
		s = sumSquares{table.owner.At, table.firsts(), parts.At, written(sums)}
	}
	if table.chunks > 0 {
		err = d.launchOptimizer("momentum", table.chunks, unsafe.Pointer(&a))
	}
	if err == nil && sums.IsSet() {
		err = d.launchOptimizer("sum_parts", len(y), unsafe.Pointer(&s))
	}
	runtime.KeepAlive(table.owner)
	runtime.KeepAlive([][]kernels.Tensor{g, m, y})
	runtime.KeepAlive(sums.Owner)
	runtime.KeepAlive(o.Control.Owner)
	return err
}

// normalizing is Normalizing in src/optimizer.cu.
type normalizing struct {
	chunks address
	sums   readable
	factor float64
}

// Normalize brings tensors to one norm.
func (d *Device) Normalize(x []kernels.Tensor, sums kernels.Tensor, factor float64, y []kernels.Tensor) error {
	const name = "normalize"
	if err := kernels.CheckNormalize(x, sums, factor, y); err != nil {
		return d.callError(name, err)
	}
	if err := d.checkHere(name, "sums", sums); err != nil {
		return err
	}
	entry := "normalize"
	if len(y) > 0 && y[0].DType == kernels.F16 {
		entry = "normalize_f16"
	}
	table, err := d.newChunkTable(name, nil, written, x, y)
	if err != nil || table.chunks == 0 {
		return err
	}
	a := normalizing{table.owner.At, read(sums), factor}
	err = d.launchOptimizer(entry, table.chunks, unsafe.Pointer(&a))
	runtime.KeepAlive(table.owner)
	runtime.KeepAlive([][]kernels.Tensor{x, y})
	runtime.KeepAlive(sums.Owner)
	return err
}

// sumSquares is Sums in src/optimizer.cu.
type sumSquares struct {
	chunks, firsts, parts address
	sums                  writable
}

// SumSquares adds the squares of each tensor chunk by chunk, and then the sums of the chunks.
func (d *Device) SumSquares(x []kernels.Tensor, sums kernels.Tensor) error {
	const name = "sum of squares"
	if err := kernels.CheckSumSquares(x, sums); err != nil {
		return d.callError(name, err)
	}
	if len(x) == 0 {
		return nil
	}
	if err := d.checkHere(name, "sums", sums); err != nil {
		return err
	}
	table, err := d.newChunkTable(name, nil, func(t kernels.Tensor) writable { return writable(read(t)) }, x)
	if err != nil {
		return err
	}
	parts, err := d.scratch(8 * max(1, table.chunks))
	if err != nil {
		return d.callError(name, err)
	}
	defer parts.Free()
	s := sumSquares{table.owner.At, table.firsts(), parts.At, written(sums)}
	if table.chunks > 0 {
		err = d.launchOptimizer("sum_squares", table.chunks, unsafe.Pointer(&s))
	}
	if err == nil {
		err = d.launchOptimizer("sum_parts", len(x), unsafe.Pointer(&s))
	}
	runtime.KeepAlive(table.owner)
	runtime.KeepAlive(x)
	runtime.KeepAlive(sums.Owner)
	return err
}

// plan is Plan in src/optimizer.cu.
type plan struct {
	sums                         readable
	control                      writable
	abandoned                    readable // see driver.GPU.Abandoned
	limit, runs, growth, backoff float64
	count, interval              int32
}

// PlanStep decides about a step on the device.
func (d *Device) PlanStep(p kernels.StepPlan, sums, control kernels.Tensor) error {
	const name = "plan step"
	if err := p.Check(sums, control); err != nil {
		return d.callError(name, err)
	}
	for _, o := range []operand{{"sums", sums}, {"control", control}} {
		if err := d.checkHere(name, o.name, o.tensor); err != nil {
			return err
		}
	}
	a := plan{sums: read(sums), control: written(control), abandoned: d.Abandoned(), limit: p.ClipNorm, runs: float64(p.EffectiveAccumulation()),
		growth: p.LossScaling.EffectiveGrowth(), backoff: p.LossScaling.EffectiveBackoff(),
		count: int32(sums.Shape[0]), interval: int32(p.LossScaling.Interval)}
	err := d.launchOptimizer("plan_step", 1, unsafe.Pointer(&a))
	runtime.KeepAlive(sums.Owner)
	runtime.KeepAlive(control.Owner)
	return err
}

func (d *Device) launchOptimizer(entry string, blocks int, arguments unsafe.Pointer) error {
	const threads = 256
	return d.launch(shapeOf("optimizer", entry, [3]int{blocks, 1, 1}, threads, 0), nil, arguments)
}

// checkHere makes sure that a tensor with elements is in the memory of a device.
func (d *Device) checkHere(kernel, name string, t kernels.Tensor) error {
	if t.Owner == nil && t.Elements() > 0 {
		return fmt.Errorf("%s: %s: %s is on the host, it needs to be on the device", d.Name(), kernel, name)
	}
	return nil
}

// chunkTable is where the tensors of some lists lie, cut into chunks, in the device's memory: the
// chunks, and behind them the number of the first chunk of each tensor.
type chunkTable struct {
	owner  *driver.Owner
	chunks int
}

// chunk is Chunk in src/optimizer.cu.
type chunk struct {
	data                             [4]writable
	count, tensor                    int32
	copy                             writable
	first, columns, stride, alongRow uint32
	element                          element
	_                                int32
}

// firsts is where the numbers of the first chunks are.
func (t chunkTable) firsts() address { return t.owner.At + address(t.chunks*chunkBytes) }

const (
	chunkBytes    = int(unsafe.Sizeof(chunk{}))
	chunkElements = 16 << 10
)

// newChunkTable describes checked lists to kernels, and copies of those in the first list, if there
// are any. It is made once for tensors that stay where they are. They are float32, and those of the
// second list may be float16.
func (d *Device) newChunkTable(name string, copies []writtenCopy, at func(kernels.Tensor) writable, lists ...[]kernels.Tensor) (chunkTable, error) {
	var t chunkTable
	var key []uint64 // sizes and addresses
	for i, lead := range lists[0] {
		n := lead.Elements()
		t.chunks += (n + chunkElements - 1) / chunkElements
		key = append(key, uint64(n))
		for k, list := range lists {
			if isHalf := k == 1 && list[i].DType == kernels.F16; list[i].DType != kernels.F32 && !isHalf {
				return t, kernels.Unsupported{Device: d.Name(), What: fmt.Sprintf("%s of %v", name, list[i].DType)}
			}
			if err := d.checkHere(name, "a tensor", list[i]); err != nil {
				return t, err
			}
			key = append(key, uint64(at(list[i])), uint64(list[i].DType))
		}
		if copies != nil && copies[i].of != nil {
			c := copies[i]
			key = append(key, uint64(read(c.of.copy)), uint64(c.first), uint64(c.columns)<<32|uint64(c.stride), uint64(c.alongRow)<<32|uint64(c.of.copy.DType))
		}
	}
	var err error
	t.owner, err = d.queue().Table(fmt.Sprintf("%d lists: %s", len(lists), bytesOf(key)), func() []byte { return t.contents(copies, lists) })
	return t, err
}

// contents is the table as the device reads it.
func (t chunkTable) contents(copies []writtenCopy, lists [][]kernels.Tensor) []byte {
	chunks := make([]chunk, 0, t.chunks)
	firsts := make([]int32, 0, len(lists[0])+1)
	for i, lead := range lists[0] {
		firsts = append(firsts, int32(len(chunks)))
		n := lead.Elements()
		for from := 0; from < n; from += chunkElements {
			c := chunk{count: int32(min(chunkElements, n-from)), tensor: int32(i)}
			for k, list := range lists {
				c.data[k] = writable(read(list[i])) + writable(list[i].DType.Size()*from) // newChunkTable has said that it is written
			}
			if copies != nil && copies[i].of != nil {
				of := copies[i].of
				c.copy, c.element = written(of.copy), elementOf(of.copy.DType)
				c.first, c.columns, c.stride, c.alongRow = copies[i].first+uint32(from), copies[i].columns, copies[i].stride, copies[i].alongRow
			}
			chunks = append(chunks, c)
		}
	}
	firsts = append(firsts, int32(len(chunks)))
	return append([]byte(bytesOf(chunks)), bytesOf(firsts)...)
}
