package cpu_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// routeCases are routers of every kind.
func routeCases() []kernels.RouterOptions {
	return []kernels.RouterOptions{
		{Chosen: 1}, {Chosen: 2, Normalize: true}, {Chosen: 12, Scale: 2.5},
		{Chosen: 3, Scores: kernels.SigmoidScores, Normalize: true, Epsilon: 1e-20},
		{Chosen: 3, Groups: 4, KeptGroups: 2},
		{Chosen: 5, Scores: kernels.SigmoidScores, Groups: 4, KeptGroups: 2, GroupChoice: kernels.GroupByBestTwo, Normalize: true, Scale: 1.5},
	}
}

// emptyAssignment is room for what tokens choose.
func emptyAssignment(tokens, experts, chosen int) kernels.Assignment {
	n := kernels.AssignmentSize(tokens, experts, chosen)
	return kernels.AssignmentOf(kernels.Of(make([]int32, n), n), experts, chosen)
}

func TestRoute(t *testing.T) {
	slow.Emulated(t)
	bothTypes(t, testRoute[float32], testRoute[float64])
}

func testRoute[T kernels.Float](t *testing.T) {
	const experts = 12
	for n, o := range routeCases() {
		for _, tokens := range []int{1, 37, 400} {
			r := newRandom()
			logits := newField[T](r, n%3, tokens, experts)
			p := &kernels.Routing{Logits: logits.Tensor, RouterOptions: o}
			if n%2 == 1 {
				p.Bias = newField[T](r, 0, experts).Tensor
			}
			dWeights := newField[T](r, 0, tokens, o.Chosen)
			ref, pt := reference.Route[float64](p), reference.Route[T](p)
			refD, ptD := reference.RouteGrad(p, dWeights.values()), reference.RouteGrad(p, dWeights.typed())
			verify[T](t, fmt.Sprintf("%+v tokens=%d", o, tokens), func(b *cpu.Backend) ([]result, error) {
				weights, dLogits, a := newField[T](r, 0, tokens, o.Chosen), newField[T](r, n%2, tokens, experts), emptyAssignment(tokens, experts, o.Chosen)
				if err := b.Route(p, weights.Tensor, a); err != nil {
					return nil, err
				}
				for name, lists := range map[string]struct {
					got  kernels.Tensor
					want []int
				}{"experts": {a.Experts, ref.Experts}, "offsets": {a.Offsets, ref.Offsets}, "order": {a.Order, ref.Order}, "places": {a.Places, ref.Places}} {
					if got := kernels.Host[int32](lists.got); !slices.EqualFunc(got, lists.want, func(a int32, b int) bool { return int(a) == b }) {
						t.Errorf("%+v: %s are %v, want %v", o, name, got, lists.want)
					}
				}
				err := b.RouteBackward(p, a, dWeights.Tensor, dLogits.Tensor)
				return []result{resultOf("weights", weights, ref.Weights, pt.Weights), resultOf("dLogits", dLogits, refD, ptD)}, err
			})
		}
	}
}

// A token whose logits are NaN still chooses as many different experts, and ties go to the first.
func TestRouteOfNaN(t *testing.T) {
	nan := math.NaN()
	logits := kernels.Of([]float64{nan, nan, nan, nan, 1, nan, 1, 1}, 2, 4)
	a, weights := emptyAssignment(2, 4, 2), kernels.Of(make([]float64, 4), 2, 2)
	if err := cpu.New().Route(&kernels.Routing{Logits: logits, RouterOptions: kernels.RouterOptions{Chosen: 2, Scores: kernels.SigmoidScores}}, weights, a); err != nil {
		t.Fatal(err)
	}
	if got := kernels.Host[int32](a.Experts); !slices.Equal(got, []int32{0, 1, 0, 2}) {
		t.Errorf("experts are %v", got)
	}
}

func TestMoves(t *testing.T) {
	slow.Emulated(t)
	bothTypes(t, testMoves[float32], testMoves[float64])
}

func testMoves[T kernels.Float](t *testing.T) {
	for n, shape := range [][4]int{{1, 1, 1, 1}, {5, 4, 2, 3}, {37, 8, 3, 65}, {300, 16, 4, 129}} {
		tokens, experts, chosen, features := shape[0], shape[1], shape[2], shape[3]
		r := newRandom()
		a := emptyAssignment(tokens, experts, chosen)
		logits := newField[T](r, 0, tokens, experts)
		factors := newField[T](r, 0, tokens, chosen)
		options := kernels.RouterOptions{Chosen: chosen}
		if err := cpu.New().Route(&kernels.Routing{Logits: logits.Tensor, RouterOptions: options}, factors.Tensor, a); err != nil {
			t.Fatal(err)
		}
		x, rows := newField[T](r, n%3, tokens, features), newField[T](r, n%2, tokens*chosen, features)
		layers := kernels.Of(kernels.Host[int32](a.Offsets), 1, experts+1)
		dLoss := kernels.Of([]T{-1.5})
		dLoss.Shape, dLoss.Strides = nil, nil
		refLoss, refD := reference.BalanceLoss(logits.Tensor, layers, -1.5)
		ptLoss, ptD := reference.BalanceLoss(logits.Tensor, layers, T(-1.5))
		verify[T](t, fmt.Sprint(shape), func(b *cpu.Backend) ([]result, error) {
			f := func(shape ...int) field[T] { return newField[T](r, n%3, shape...) }
			there, weighted, back, summed, d := f(tokens*chosen, features), f(tokens*chosen, features), f(tokens, features), f(tokens, features), newField[T](r, 0, tokens, chosen)
			loss, dLogits := newField[T](r, 0), f(tokens, experts)
			for _, err := range []error{
				b.Dispatch(x.Tensor, kernels.Tensor{}, a, there.Tensor), b.Dispatch(x.Tensor, factors.Tensor, a, weighted.Tensor),
				b.Combine(rows.Tensor, factors.Tensor, a, back.Tensor), b.Combine(rows.Tensor, kernels.Tensor{}, a, summed.Tensor),
				b.CombineFactors(rows.Tensor, x.Tensor, a, d.Tensor),
				b.BalanceLoss(logits.Tensor, layers, loss.Tensor), b.BalanceLossBackward(logits.Tensor, layers, dLoss, dLogits.Tensor),
			} {
				if err != nil {
					return nil, err
				}
			}
			gradient := resultOf("dLogits", dLogits, refD, ptD)
			gradient.steps = 4 // of differences that nearly cancel
			return []result{
				gradient, resultOf("dispatched", there, reference.Dispatch(x.values(), nil, a), reference.Dispatch(x.typed(), nil, a)),
				resultOf("weighted", weighted, reference.Dispatch(x.values(), factors.values(), a), reference.Dispatch(x.typed(), factors.typed(), a)),
				resultOf("combined", back, reference.Combine(rows.values(), factors.values(), a), reference.Combine(rows.typed(), factors.typed(), a)),
				resultOf("summed", summed, reference.Combine(rows.values(), nil, a), reference.Combine(rows.typed(), nil, a)),
				resultOf("factors", d, reference.CombineFactors(rows.values(), x.values(), a), reference.CombineFactors(rows.typed(), x.typed(), a)),
				resultOf("loss", loss, []float64{refLoss}, []T{ptLoss}),
			}, nil
		})
	}
}

func TestRouteErrors(t *testing.T) {
	b := cpu.New()
	logits, weights := kernels.Of(make([]float32, 12), 3, 4), kernels.Of(make([]float32, 6), 3, 2)
	with := func(change func(o *kernels.RouterOptions)) error {
		o := kernels.RouterOptions{Chosen: 2}
		change(&o)
		return b.Route(&kernels.Routing{Logits: logits, RouterOptions: o}, weights, emptyAssignment(3, 4, 2))
	}
	a := emptyAssignment(3, 4, 2)
	kernels.Host[int32](a.Order)[4], kernels.Host[int32](a.Places)[3], kernels.Host[int32](a.Experts)[5] = 6, -1, 4
	checkErrors(t, []errorCase{
		{"cpu: route: chosen is 5, it needs to be from 1 to the 4 experts", with(func(o *kernels.RouterOptions) { o.Chosen = 5 })},
		{"cpu: route: groups is 3, it needs to divide the 4 experts", with(func(o *kernels.RouterOptions) { o.Groups, o.KeptGroups = 3, 1 })},
		{"cpu: route: chosen is 2, it needs to be at most the 1 experts of 1 kept groups", with(func(o *kernels.RouterOptions) { o.Groups, o.KeptGroups = 4, 1 })},
		{"cpu: route: epsilon is -1, it needs to be 0 or positive", with(func(o *kernels.RouterOptions) { o.Epsilon = -1 })},
		{"cpu: route: experts has shape [3 2] and strides [2 1], it needs shape [3 1]", with(func(o *kernels.RouterOptions) { o.Chosen = 1 })},
		{"cpu: dispatch: order[4] is 6, it needs to be from 0 to 5", b.Dispatch(logits, kernels.Tensor{}, a, kernels.Of(make([]float32, 24), 6, 4))},
		{"cpu: combine: places[1 1] is -1, it needs to be from 0 to 5", b.Combine(kernels.Of(make([]float32, 24), 6, 4), kernels.Tensor{}, a, logits)},
		{"cpu: route backward: experts[2 1] is 4, it needs to be from 0 to 3",
			b.RouteBackward(&kernels.Routing{Logits: logits, RouterOptions: kernels.RouterOptions{Chosen: 2}}, a, weights, kernels.Of(make([]float32, 12), 3, 4))},
		{"cpu: balance loss: offsets has shape [5], it needs (layers, 5): one more than experts",
			b.BalanceLoss(logits, a.Offsets, kernels.Contiguous(nil, kernels.F32))},
	})
}

// Logits of 16 bits have the loss of the same numbers in float32, and its gradient, rounded.
func TestBalanceLossOfHalves(t *testing.T) {
	t.Run("bfloat16", testBalanceLossOfHalves[kernels.BFloat16])
	t.Run("float16", testBalanceLossOfHalves[kernels.Float16])
}

func testBalanceLossOfHalves[T kernels.Element](t *testing.T) {
	const tokens, experts = 37, 8
	half, rounded := kernels.Of(make([]T, tokens*experts), tokens, experts), kernels.Of(make([]T, tokens*experts), tokens, experts)
	wide := newField[float32](newRandom(), 0, tokens, experts).Tensor
	kernels.CopyHost(half, wide)
	kernels.CopyHost(wide, half)
	gradient, ofHalf := kernels.Of(make([]float32, tokens*experts), tokens, experts), kernels.Of(make([]T, tokens*experts), tokens, experts)
	var losses [2]float64
	for n, c := range []struct{ logits, d kernels.Tensor }{{wide, gradient}, {half, ofHalf}} {
		number := kernels.Of([]float32{-1.5})
		number.Shape, number.Strides = nil, nil
		offsets := kernels.Of([]int32{0, 5, 9, 20, 20, 41, 50, 60, 74}, 1, experts+1)
		if err := cpu.New().BalanceLossBackward(c.logits, offsets, number, c.d); err != nil {
			t.Fatal(err)
		}
		if err := cpu.New().BalanceLoss(c.logits, offsets, number); err != nil {
			t.Fatal(err)
		}
		losses[n] = kernels.HostElement(number, 0)
	}
	kernels.CopyHost(rounded, gradient)
	if losses[0] != losses[1] || !slices.Equal(kernels.Host[T](rounded), kernels.Host[T](ofHalf)) {
		t.Errorf("the loss is %v, of float32 %v, or the gradients differ", losses[1], losses[0])
	}
}
