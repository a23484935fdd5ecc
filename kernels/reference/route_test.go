package reference_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestRouteByHand(t *testing.T) {
	logits := []float64{0, 2, 1, 2, -1, 0, 3, 3}
	of := func(o kernels.RouterOptions, bias ...float64) reference.Chosen[float64] {
		r := &kernels.Routing{Logits: kernels.Of(logits, 2, 4), RouterOptions: o}
		if bias != nil {
			r.Bias = kernels.Of(bias, 4)
		}
		return reference.Route[float64](r)
	}
	c := of(kernels.RouterOptions{Chosen: 2, Normalize: true, Scale: 3})
	near(t, "weights", c.Weights, []float64{1.5, 1.5, 1.5, 1.5}, 1e-12)
	for name, lists := range map[string][2][]int{
		"experts": {c.Experts, {1, 3, 2, 3}}, "offsets": {c.Offsets, {0, 0, 1, 2, 4}},
		"order": {c.Order, {0, 2, 1, 3}}, "places": {c.Places, {0, 2, 1, 3}},
		"by bias":       {of(kernels.RouterOptions{Chosen: 1, Scores: kernels.SigmoidScores}, 5, 0, 0, 0).Experts, {0, 0}},
		"best group":    {of(kernels.RouterOptions{Chosen: 2, Groups: 2, KeptGroups: 1}).Experts, {1, 0, 2, 3}},
		"best of two":   {of(kernels.RouterOptions{Chosen: 2, Groups: 2, KeptGroups: 1, GroupChoice: kernels.GroupByBestTwo}).Experts, {3, 2, 2, 3}},
		"of two groups": {of(kernels.RouterOptions{Chosen: 3, Groups: 4, KeptGroups: 3}).Experts, {1, 3, 2, 2, 3, 1}},
	} {
		if !slices.Equal(lists[0], lists[1]) {
			t.Errorf("%s are %v, want %v", name, lists[0], lists[1])
		}
	}
	loss, _ := reference.BalanceLoss(kernels.Of(make([]float64, 8), 2, 4), kernels.Of([]int32{0, 1, 2, 3, 4}, 1, 5), 1.0)
	near(t, "loss of tokens that use all alike", []float64{loss}, []float64{2}, 1e-12)
}

func TestRouteGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	for _, o := range []kernels.RouterOptions{
		{Chosen: 2}, {Chosen: 3, Normalize: true}, {Chosen: 2, Scores: kernels.SigmoidScores, Scale: 2.5},
		{Chosen: 2, Scores: kernels.SigmoidScores, Normalize: true, Epsilon: 0.1, Groups: 3, KeptGroups: 2, GroupChoice: kernels.GroupByBestTwo},
	} {
		x, dw := normals(r, 5*6), normals(r, 5*o.Chosen)
		p := &kernels.Routing{Logits: kernels.Of(x, 5, 6), RouterOptions: o}
		grad := reference.RouteGrad(p, dw)
		checkDifferences(t, fmt.Sprint(o), x, grad, func() float64 { return inner(reference.Route[float64](p).Weights, dw) })
	}
}

func TestMovesAndBalanceGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 0))
	logits := kernels.Of(normals(r, 4*5), 4, 5)
	a := assignmentOf(reference.Route[float64](&kernels.Routing{Logits: logits, RouterOptions: kernels.RouterOptions{Chosen: 2}}), 4)
	x, w, dy := normals(r, 4*2*3), normals(r, 8), normals(r, 4*3)
	loss := func() float64 { return inner(reference.Combine(x, w, a), dy) }
	checkDifferences(t, "combined", x, reference.Dispatch(dy, w, a), loss)
	checkDifferences(t, "factors", w, reference.CombineFactors(x, dy, a), loss)
	tokens, dRows := normals(r, 4*3), normals(r, 8*3)
	checkDifferences(t, "dispatched", tokens, reference.Combine(dRows, nil, a), func() float64 {
		return inner(reference.Dispatch(tokens, nil, a), dRows)
	})
	offsets := a.Offsets.Reshape(1, 6)
	_, d := reference.BalanceLoss(logits, offsets, 1.5)
	checkDifferences(t, "logits", kernels.Host[float64](logits), d, func() float64 {
		loss, _ := reference.BalanceLoss(logits, offsets, 1.0)
		return 1.5 * loss
	})
}

// assignmentOf is what was chosen for so many tokens.
func assignmentOf(c reference.Chosen[float64], tokens int) kernels.Assignment {
	of := func(list []int, shape ...int) kernels.Tensor {
		numbers := make([]int32, len(list))
		for i, x := range list {
			numbers[i] = int32(x)
		}
		return kernels.Of(numbers, shape...)
	}
	chosen := len(c.Experts) / tokens
	return kernels.Assignment{
		Offsets: of(c.Offsets, len(c.Offsets)), Experts: of(c.Experts, tokens, chosen), Order: of(c.Order, len(c.Order)), Places: of(c.Places, tokens, chosen),
	}
}

func TestClampedGateGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 0))
	x, dy := normals(r, 40), normals(r, 20)
	gate := kernels.ClampedGate{Slope: 1.702, Limit: 1.1}
	_, dx := reference.ClampedGate(gate, x, dy)
	checkDifferences(t, "x", x, dx, func() float64 { y, _ := reference.ClampedGate(gate, x, dy); return inner(y, dy) })
}

func TestGroupedMatMulGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 0))
	a, b, bias, dc := normals(r, 5*3), normals(r, 4*3*2), normals(r, 4*2), normals(r, 5*2)
	offsets := kernels.Of([]int32{0, 2, 2, 5, 5}, 5)
	m := &kernels.GroupedMatMul{A: kernels.Of(a, 5, 3), B: kernels.Of(b, 4, 3, 2), Bias: kernels.Of(bias, 4, 2), Offsets: offsets}
	loss := func() float64 { return inner(reference.GroupedMatMul[float64](m, nil), dc) }
	back := &kernels.GroupedMatMul{A: kernels.Of(dc, 5, 2), B: m.B.Permute(0, 2, 1), Offsets: offsets}
	checkDifferences(t, "a", a, reference.GroupedMatMul[float64](back, nil), loss)
	checkDifferences(t, "b", b, reference.GroupedMatMulGradient(m, dc), loss)
	checkDifferences(t, "bias", bias, reference.GroupedSumRows[float64](back.A, offsets), loss)
}
