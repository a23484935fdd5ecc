//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// routeArguments is RouteArguments in src/route.cu.
type routeArguments struct {
	logits                      readable
	dLogits                     writable
	bias                        readable
	weights, experts            writable // backward only reads them
	step, dStep, tokens         int64
	count, chosen               int32
	sigmoid, normalize, bestTwo int32
	groups, kept                int32
	epsilon, scale              float32
	zero                        int32
}

// sortArguments is SortArguments there.
type sortArguments struct {
	experts                readable
	offsets, order, places writable
	choices, count         int32
}

// moveArguments is MoveArguments there.
type moveArguments struct {
	from, other                       readable
	to                                writable
	factors                           readable
	dFactors                          writable
	where                             readable
	fromStep, otherStep, toStep, rows int64
	length, chosen                    int32
	zero                              [2]int32
}

// balanceArguments is BalanceArguments there.
type balanceArguments struct {
	logits              readable
	dLogits             writable
	offsets             readable
	loss                writable // backward only reads its gradient
	parts               address
	step, dStep, tokens int64
	count, layers       int32
	blocks, zero        int32
}

// routeWarps is how many warps of a block have a token each, for which they need so many floats of
// shared memory an expert, and the block some more.
func routeWarps(count, rows, more int) (warps, sharedBytes int) {
	const most, sharedMemory = 8, 48 << 10
	warps = max(1, min(most, (sharedMemory/4-more)/(rows*count)))
	return warps, 4 * (warps*rows*count + more)
}

// describeRoute tells the kernels of a routing.
func (d *Device) describeRoute(kernel string, r *kernels.Routing) (*routeArguments, error) {
	tokens, count := r.Logits.Shape[0], r.Logits.Shape[1]
	if tokens*r.Chosen > math.MaxInt32 {
		return nil, fmt.Errorf("%s: %s: logits has shape %v and tokens have %d experts each, a GPU computes up to %d in all",
			d.Name(), kernel, r.Logits.Shape, r.Chosen, math.MaxInt32)
	}
	flag := func(is bool) int32 {
		if is {
			return 1
		}
		return 0
	}
	return &routeArguments{
		logits: read(r.Logits), bias: read(r.Bias), step: int64(r.Logits.Strides[0]), tokens: int64(tokens), count: int32(count), chosen: int32(r.Chosen),
		sigmoid: flag(r.Scores == kernels.SigmoidScores), normalize: flag(r.Normalize), bestTwo: flag(r.GroupChoice == kernels.GroupByBestTwo),
		groups: int32(r.Groups), kept: int32(r.KeptGroups), epsilon: float32(r.Epsilon), scale: float32(r.WeightScale()),
	}, nil
}

// Route lets each token choose its experts, a warp each, and sorts the choices, a block an expert.
func (d *Device) Route(r *kernels.Routing, weights kernels.Tensor, a kernels.Assignment) error {
	const kernel = "route"
	if err := d.checked(kernel, r.Check(weights, a), r.Logits.DType); err != nil {
		return err
	}
	g, err := d.describeRoute(kernel, r)
	if err != nil {
		return err
	}
	g.weights, g.experts = written(weights), written(a.Experts)
	if g.tokens > 0 {
		warps, shared := routeWarps(int(g.count), 3, 0)
		s := shapeOf("route", "route_choose"+entrySuffixes[r.Logits.DType], [3]int{tilesOf(int32(g.tokens), warps), 1, 1}, 32*warps, shared)
		if err := d.launch(s, nil, unsafe.Pointer(g)); err != nil {
			return err
		}
	}
	choices := int(g.tokens) * r.Chosen
	sort := &sortArguments{
		experts: read(a.Experts), offsets: written(a.Offsets), order: written(a.Order), places: written(a.Places),
		choices: int32(choices), count: g.count,
	}
	threads := min(1024, max(32, (choices+31)/32*32))
	err = d.launch(shapeOf("route", "route_sort", [3]int{int(g.count), 1, 1}, threads, 0), nil, unsafe.Pointer(sort))
	runtime.KeepAlive(r)
	runtime.KeepAlive(weights.Owner)
	runtime.KeepAlive(a)
	return err
}

// RouteBackward computes the gradient of the logits.
func (d *Device) RouteBackward(r *kernels.Routing, a kernels.Assignment, dWeights, dLogits kernels.Tensor) error {
	const kernel = "route backward"
	if err := d.checked(kernel, r.CheckBackward(a, dWeights, dLogits), r.Logits.DType); err != nil {
		return err
	}
	g, err := d.describeRoute(kernel, r)
	if err != nil || g.tokens == 0 {
		return err
	}
	g.weights, g.experts = written(dWeights), written(a.Experts)
	g.dLogits, g.dStep = written(dLogits), int64(dLogits.Strides[0])
	warps, shared := routeWarps(int(g.count), 2, 0)
	s := shapeOf("route", "route_backward"+entrySuffixes[r.Logits.DType], [3]int{tilesOf(int32(g.tokens), warps), 1, 1}, 32*warps, shared)
	err = d.launch(s, nil, unsafe.Pointer(g))
	runtime.KeepAlive(r)
	runtime.KeepAlive(dWeights.Owner)
	runtime.KeepAlive(dLogits.Owner)
	runtime.KeepAlive(a)
	return err
}

// Dispatch copies the rows of tokens to the places of their choices.
func (d *Device) Dispatch(x, factors kernels.Tensor, a kernels.Assignment, y kernels.Tensor) error {
	const kernel = "dispatch"
	if err := d.checked(kernel, a.CheckDispatch(x, factors, y), x.DType); err != nil {
		return err
	}
	g := &moveArguments{from: read(x), to: written(y), factors: read(factors), where: read(a.Order)}
	g.fromStep, g.toStep, g.rows = int64(x.Strides[0]), int64(y.Strides[0]), int64(y.Shape[0])
	return d.move("dispatch", g, a, x, y, x, factors)
}

// Combine sums the rows of each token's choices, in their order.
func (d *Device) Combine(x, factors kernels.Tensor, a kernels.Assignment, y kernels.Tensor) error {
	const kernel = "combine"
	if err := d.checked(kernel, a.CheckCombine(x, factors, y), x.DType); err != nil {
		return err
	}
	g := &moveArguments{from: read(x), to: written(y), factors: read(factors), where: read(a.Places)}
	g.fromStep, g.toStep, g.rows = int64(x.Strides[0]), int64(y.Strides[0]), int64(y.Shape[0])
	return d.move("combine", g, a, x, y, y, factors)
}

// CombineFactors computes dot products of rows.
func (d *Device) CombineFactors(x, dy kernels.Tensor, a kernels.Assignment, dFactors kernels.Tensor) error {
	const kernel = "combine factors"
	if err := d.checked(kernel, a.CheckCombineFactors(x, dy, dFactors), x.DType); err != nil {
		return err
	}
	g := &moveArguments{from: read(x), other: read(dy), dFactors: written(dFactors), where: read(a.Places)}
	g.fromStep, g.otherStep, g.rows = int64(x.Strides[0]), int64(dy.Strides[0]), int64(x.Shape[0])
	return d.move("combine_factors", g, a, x, dy, x, dFactors)
}

// move gives each row a warp, 16 bytes a lane at a time where all rows begin at multiples of that.
func (d *Device) move(entry string, g *moveArguments, a kernels.Assignment, first, second, like, factors kernels.Tensor) error {
	g.length, g.chosen = int32(like.Shape[1]), int32(a.Places.Shape[1])
	if g.rows == 0 || g.length == 0 && g.dFactors == 0 {
		return nil
	}
	if g.rows > math.MaxInt32 || like.Shape[1] > math.MaxInt32 {
		return fmt.Errorf("%s: %s: rows are %d of %d elements, a GPU computes up to %d", d.Name(), entry, g.rows, like.Shape[1], math.MaxInt32)
	}
	wide := true
	for _, t := range []kernels.Tensor{first, second} {
		size := int64(t.DType.Size())
		wide = wide && int64(read(t))%accessBytes == 0 && int64(g.length)*size%accessBytes == 0 && (t.Shape[0] <= 1 || int64(t.Strides[0])*size%accessBytes == 0)
	}
	if wide {
		entry += "_wide"
	}
	const warps = 8
	err := d.launch(shapeOf("route", entry+entrySuffixes[first.DType], [3]int{tilesOf(int32(g.rows), warps), 1, 1}, 32*warps, 0), nil, unsafe.Pointer(g))
	runtime.KeepAlive(first.Owner)
	runtime.KeepAlive(second.Owner)
	runtime.KeepAlive(factors.Owner)
	runtime.KeepAlive(a)
	return err
}

// BalanceLoss sums what each token's probabilities and the loads of experts give.
func (d *Device) BalanceLoss(logits, offsets, loss kernels.Tensor) error {
	const kernel = "balance loss"
	if err := d.checked(kernel, kernels.CheckBalanceLoss(logits, offsets, loss), logits.DType); err != nil {
		return err
	}
	g := &balanceArguments{loss: written(loss)}
	if err := d.balance(kernel, "balance_forward", g, logits, offsets); err != nil || g.tokens == 0 {
		return err
	}
	runtime.KeepAlive(loss.Owner)
	return nil
}

// BalanceLossBackward computes the gradient of the logits.
func (d *Device) BalanceLossBackward(logits, offsets, dLoss, dLogits kernels.Tensor) error {
	const kernel = "balance loss backward"
	if err := d.checked(kernel, kernels.CheckBalanceLossBackward(logits, offsets, dLoss, dLogits), logits.DType); err != nil {
		return err
	}
	g := &balanceArguments{loss: written(dLoss), dLogits: written(dLogits), dStep: int64(dLogits.Strides[0])}
	err := d.balance(kernel, "balance_backward", g, logits, offsets)
	runtime.KeepAlive(dLoss.Owner)
	runtime.KeepAlive(dLogits.Owner)
	return err
}

// balance queues a kernel of the balance loss, and the sum of what its blocks found.
func (d *Device) balance(kernel, entry string, g *balanceArguments, logits, offsets kernels.Tensor) error {
	const mostBlocks = 512
	g.logits, g.offsets, g.step, g.tokens = read(logits), read(offsets), int64(logits.Strides[0]), int64(logits.Shape[0])
	g.count, g.layers = int32(logits.Shape[1]), int32(offsets.Shape[0])
	if g.tokens == 0 {
		if entry == "balance_forward" {
			return d.zero(g.loss.Address(), 4)
		}
		return nil
	}
	warps, shared := routeWarps(int(g.count), 1, int(g.count))
	g.blocks = int32(min(mostBlocks, (g.tokens+int64(warps)-1)/int64(warps)))
	parts, err := d.scratch(4 * mostBlocks)
	if err != nil {
		return d.failed(kernel, err)
	}
	defer parts.Free()
	g.parts = parts.At
	s := shapeOf("route", entry+entrySuffixes[logits.DType], [3]int{int(g.blocks), 1, 1}, 32*warps, shared)
	if err := d.launch(s, nil, unsafe.Pointer(g)); err != nil || entry != "balance_forward" {
		return err
	}
	err = d.launch(shapeOf("route", "balance_sum", [3]int{1, 1, 1}, 32, 0), nil, unsafe.Pointer(g))
	runtime.KeepAlive(logits.Owner)
	runtime.KeepAlive(offsets.Owner)
	return err
}
