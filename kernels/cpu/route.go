package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// Route lets each token choose its experts, and sorts the choices by counting.
func (b *Backend) Route(r *kernels.Routing, weights kernels.Tensor, a kernels.Assignment) (err error) {
	defer catch("route", &err)
	if err := checked("route", r.Check(weights, a)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	wide := *r
	wide.Logits = h.read(r.Logits)
	inTypeOf(wide.Logits, choose[float32], choose[float64])(b, &wide, weights, a)
	sortChoices(a)
	return nil
}

// sortChoices fills in the offsets, the order and the places of the experts that were chosen.
func sortChoices(a kernels.Assignment) {
	offsets, experts := kernels.Host[int32](a.Offsets), kernels.Host[int32](a.Experts)
	order, places := kernels.Host[int32](a.Order), kernels.Host[int32](a.Places)
	clear(offsets)
	for _, e := range experts {
		offsets[e+1]++
	}
	next := make([]int32, len(offsets))
	for e := 1; e < len(offsets); e++ {
		offsets[e] += offsets[e-1]
		next[e] = offsets[e]
	}
	for choice, e := range experts {
		order[next[e]], places[choice] = int32(choice), next[e]
		next[e]++
	}
}

func choose[T kernels.Float](b *Backend, r *kernels.Routing, weights kernels.Tensor, a kernels.Assignment) {
	from, bias := rowViewOf[T](r.Logits), kernels.Host[T](r.Bias)
	experts, to := kernels.Host[int32](a.Experts), kernels.Host[T](weights)
	n, k := r.Logits.Shape[1], r.Chosen
	b.eachRow(from.n, n, func(token int) {
		memory := newWorkspace(3 * bytesFor[T](n))
		defer memory.release()
		scores, values, groups := take[T](memory, n), take[T](memory, n), take[T](memory, n)
		routerScores(r.Scores, scores, from.at(token))
		copy(values, scores)
		for e, x := range bias {
			values[e] += x
		}
		if r.Groups > 0 {
			keepGroups(&r.RouterOptions, values, groups[:r.Groups])
		}
		chosen := experts[token*k:][:k]
		for j := range chosen {
			chosen[j] = int32(takeBest(values))
		}
		divisor := T(1)
		if r.Normalize {
			divisor = T(r.Epsilon)
			for _, e := range chosen {
				divisor += scores[e]
			}
		}
		for j, e := range chosen {
			to[token*k+j] = T(r.WeightScale()) * scores[e] / divisor
		}
	})
}

// taken marks a value that was chosen: it is below all others. One that is NaN is next to it.
var taken = math.Inf(-1)

// takeBest returns the first of the largest values, and marks it.
func takeBest[T kernels.Float](values []T) int {
	best, rank := -1, -1
	for e, x := range values {
		at := 2
		switch {
		case x != x:
			at = 1
		case x == T(taken):
			at = 0
		}
		if at > rank || at == rank && at == 2 && x > values[best] {
			best, rank = e, at
		}
	}
	values[best] = T(taken)
	return best
}

// keepGroups marks the values of all but the best groups.
func keepGroups[T kernels.Float](o *kernels.RouterOptions, values, groups []T) {
	size := len(values) / o.Groups
	for g := range groups {
		first, second := T(taken), T(taken)
		for _, x := range values[g*size:][:size] {
			switch {
			case x > first:
				first, second = x, first
			case x > second:
				second = x
			}
		}
		if groups[g] = first; o.GroupChoice == kernels.GroupByBestTwo {
			groups[g] += second
		}
	}
	for range o.KeptGroups {
		takeBest(groups)
	}
	for g, x := range groups {
		if x == T(taken) {
			continue
		}
		for e := g * size; e < (g+1)*size; e++ {
			values[e] = T(taken)
		}
	}
}

// routerScores computes the scores of a token's logits.
func routerScores[T kernels.Float](kind kernels.RouterScores, scores []T, logits *T) {
	if kind == kernels.SigmoidScores {
		simd.Activate(kernels.Sigmoid, len(scores), &scores[0], logits)
		return
	}
	most, sum := exponentialsOf(len(scores), logits)
	simd.ScaledExp(len(scores), &scores[0], logits, most+T(math.Log(sum)), 1, 0)
}

// RouteBackward computes the gradient of the logits.
func (b *Backend) RouteBackward(r *kernels.Routing, a kernels.Assignment, dWeights, dLogits kernels.Tensor) (err error) {
	const kernel = "route backward"
	defer catch(kernel, &err)
	if err := checked(kernel, r.CheckBackward(a, dWeights, dLogits)); err != nil {
		return err
	}
	if err := checkNumbers(kernel, "experts", a.Experts, r.Logits.Shape[1]); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	wide := *r
	wide.Logits, dLogits = h.read(r.Logits), h.write(dLogits)
	inTypeOf(wide.Logits, routeBackward[float32], routeBackward[float64])(b, &wide, a, dWeights, dLogits)
	return nil
}

func routeBackward[T kernels.Float](b *Backend, r *kernels.Routing, a kernels.Assignment, dWeights, dLogits kernels.Tensor) {
	from, to := rowViewOf[T](r.Logits), rowViewOf[T](dLogits)
	experts, dw := kernels.Host[int32](a.Experts), kernels.Host[T](dWeights)
	n, k, scale := r.Logits.Shape[1], r.Chosen, T(r.WeightScale())
	b.eachRow(from.n, n, func(token int) {
		memory := newWorkspace(2 * bytesFor[T](n))
		defer memory.release()
		scores, dScores := take[T](memory, n), take[T](memory, n)
		routerScores(r.Scores, scores, from.at(token))
		clear(dScores)
		chosen, dw := experts[token*k:][:k], dw[token*k:][:k]
		divisor, mean := T(1), T(0)
		if r.Normalize {
			divisor = T(r.Epsilon)
			for j, e := range chosen {
				divisor += scores[e]
				mean += dw[j] * scores[e]
			}
			mean /= divisor
		}
		sum := T(0)
		for j, e := range chosen {
			dScores[e] = scale * (dw[j] - mean) / divisor
			sum += dScores[e] * scores[e]
		}
		out := unsafe.Slice(to.at(token), n)
		for e, s := range scores {
			if r.Scores == kernels.SigmoidScores {
				out[e] = dScores[e] * s * (1 - s)
			} else {
				out[e] = s * (dScores[e] - sum)
			}
		}
	})
}

// checkNumbers makes sure that all of some numbers are from 0 to limit−1.
func checkNumbers(kernel, name string, t kernels.Tensor, limit int) error {
	for i, n := range kernels.Host[int32](t) {
		if n < 0 || int(n) >= limit {
			return callError(kernel, fmt.Errorf("%s%v is %d, it needs to be from 0 to %d", name, position(t.Shape, i), n, limit-1))
		}
	}
	return nil
}

// Dispatch copies the rows of tokens to the places of their choices.
func (b *Backend) Dispatch(x, factors kernels.Tensor, a kernels.Assignment, y kernels.Tensor) (err error) {
	const kernel = "dispatch"
	defer catch(kernel, &err)
	if err := checked(kernel, a.CheckDispatch(x, factors, y)); err != nil {
		return err
	}
	if err := checkNumbers(kernel, "order", a.Order, a.Order.Shape[0]); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, dispatch[float32], dispatch[float64])(b, x, factors, a, y)
	return nil
}

func dispatch[T kernels.Float](b *Backend, x, factors kernels.Tensor, a kernels.Assignment, y kernels.Tensor) {
	from, to, n := rowViewOf[T](x), rowViewOf[T](y), lastAxis(x)
	order, factor, chosen := kernels.Host[int32](a.Order), kernels.Host[T](factors), a.Places.Shape[1]
	if n == 0 {
		return
	}
	b.eachRow(len(order), n, func(i int) {
		choice := int(order[i])
		if factor == nil {
			copy(unsafe.Slice(to.at(i), n), unsafe.Slice(from.at(choice/chosen), n))
		} else {
			simd.ScaleRows(1, n, to.at(i), n, from.at(choice/chosen), n, factor[choice:][:1])
		}
	})
}

// Combine sums the rows of each token's choices, in their order.
func (b *Backend) Combine(x, factors kernels.Tensor, a kernels.Assignment, y kernels.Tensor) (err error) {
	const kernel = "combine"
	defer catch(kernel, &err)
	if err := checked(kernel, a.CheckCombine(x, factors, y)); err != nil {
		return err
	}
	if err := checkNumbers(kernel, "places", a.Places, a.Order.Shape[0]); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, y = h.read(x), h.write(y)
	inTypeOf(x, combine[float32], combine[float64])(b, x, factors, a, y)
	return nil
}

func combine[T kernels.Float](b *Backend, x, factors kernels.Tensor, a kernels.Assignment, y kernels.Tensor) {
	from, to, n := rowViewOf[T](x), rowViewOf[T](y), lastAxis(x)
	places, factor, chosen := kernels.Host[int32](a.Places), kernels.Host[T](factors), a.Places.Shape[1]
	if n == 0 {
		return
	}
	b.eachRow(to.n, n*chosen, func(token int) {
		out := unsafe.Slice(to.at(token), n)
		for j := range chosen {
			choice := token*chosen + j
			in := unsafe.Slice(from.at(int(places[choice])), n)
			w := T(1)
			if factor != nil {
				w = factor[choice]
			}
			if j == 0 {
				simd.ScaleRows(1, n, &out[0], n, &in[0], n, []T{w})
				continue
			}
			for i, v := range in {
				out[i] += w * v
			}
		}
	})
}

// CombineFactors computes dot products of rows.
func (b *Backend) CombineFactors(x, dy kernels.Tensor, a kernels.Assignment, dFactors kernels.Tensor) (err error) {
	const kernel = "combine factors"
	defer catch(kernel, &err)
	if err := checked(kernel, a.CheckCombineFactors(x, dy, dFactors)); err != nil {
		return err
	}
	if err := checkNumbers(kernel, "places", a.Places, a.Order.Shape[0]); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	x, dy = h.read(x), h.read(dy)
	inTypeOf(x, combineFactors[float32], combineFactors[float64])(b, x, dy, a, dFactors)
	return nil
}

func combineFactors[T kernels.Float](b *Backend, x, dy kernels.Tensor, a kernels.Assignment, dFactors kernels.Tensor) {
	from, d, n := rowViewOf[T](x), rowViewOf[T](dy), lastAxis(x)
	places, to, chosen := kernels.Host[int32](a.Places), kernels.Host[T](dFactors), a.Places.Shape[1]
	if n == 0 {
		clear(to)
		return
	}
	b.eachRow(len(places), n, func(choice int) {
		simd.Dots(1, n, from.at(int(places[choice])), 0, d.at(choice/chosen), 0, to[choice:][:1])
	})
}

// BalanceLoss sums the probabilities of each expert, weighted by how often it was chosen.
func (b *Backend) BalanceLoss(logits, offsets, loss kernels.Tensor) (err error) {
	const kernel = "balance loss"
	defer catch(kernel, &err)
	if err := checked(kernel, kernels.CheckBalanceLoss(logits, offsets, loss)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	wide := h.read(logits)
	kernels.FillHost(loss, inTypeOf(wide, balance[float32], balance[float64])(b, wide, offsets, 0, kernels.Tensor{}))
	return nil
}

// BalanceLossBackward computes the gradient of the logits.
func (b *Backend) BalanceLossBackward(logits, offsets, dLoss, dLogits kernels.Tensor) (err error) {
	const kernel = "balance loss backward"
	defer catch(kernel, &err)
	if err := checked(kernel, kernels.CheckBalanceLossBackward(logits, offsets, dLoss, dLogits)); err != nil {
		return err
	}
	h := halves{b: b}
	defer h.round()
	wide := h.read(logits)
	inTypeOf(wide, balance[float32], balance[float64])(b, wide, offsets, kernels.HostElement(dLoss, 0), h.write(dLogits))
	return nil
}

// balance returns the loss, or, where there is room for them, computes gradients.
func balance[T kernels.Float](b *Backend, logits, offsets kernels.Tensor, dLoss float64, dLogits kernels.Tensor) float64 {
	from, to, n := rowViewOf[T](logits), rowViewOf[T](dLogits), lastAxis(logits)
	tokens, list := logits.Shape[0], kernels.Host[int32](offsets)
	if tokens == 0 {
		return 0
	}
	memory := newWorkspace(bytesFor[T](n) + bytesFor[float64](tokens))
	defer memory.release()
	factors, sums := take[T](memory, n), take[float64](memory, tokens)
	clear(factors)
	for layer := range offsets.Shape[0] {
		for e := range factors {
			at := layer*(n+1) + e
			factors[e] += T(list[at+1] - list[at])
		}
	}
	for e := range factors {
		factors[e] *= T(n) / T(tokens)
	}
	b.eachRow(tokens, n, func(token int) {
		memory := newWorkspace(2 * bytesFor[T](n))
		defer memory.release()
		p, sum := take[T](memory, n), take[T](memory, 1)
		routerScores(kernels.SoftmaxScores, p, from.at(token))
		simd.Dots(1, n, &p[0], 0, &factors[0], 0, sum)
		sums[token] = float64(sum[0])
		if dLogits.IsSet() {
			out := unsafe.Slice(to.at(token), n)
			for e := range out {
				out[e] = T(dLoss) * p[e] * (factors[e] - sum[0]) / T(tokens)
			}
		}
	})
	return compensatedSum(sums) / float64(tokens)
}
