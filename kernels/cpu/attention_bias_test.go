package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// This file is the case in which attention in bfloat16 is known to make trainings diverge (arXiv
// 2510.04212): several scores of a row are its maximum, so that their probabilities before the
// division are 1, and the values there have one sign. A sum of such values that is rounded to
// bfloat16 before it is divided ends in a half more often than other numbers, and what the other
// keys add makes all of these halves round the same way. The error leans to one side, delta adds it
// up over all channels, and the weights take it step by step.

// repeatedMaxima has so many maxima in each row, the other scores a gap below them, and values of
// one sign, other ones for each head.
func repeatedMaxima(maxima int, gap float64, random *rand.Rand) *kernels.Attention {
	const heads, sq, sk, d = 256, 2, 32, 16
	tensor := func(rows int, value func(row, channel int) float64) kernels.Tensor {
		list := make([]kernels.BFloat16, heads*rows*d)
		for i := range list {
			list[i] = kernels.ToBFloat16(float32(value(i/d%rows, i%d)))
		}
		return kernels.Of(list, 1, heads, rows, d)
	}
	first := func(x float64, channel int) float64 {
		if channel > 0 {
			return 0
		}
		return x
	}
	return &kernels.Attention{
		Q: tensor(sq, func(_, c int) float64 { return first(4, c) }), // whose scores are divided by √16
		K: tensor(sk, func(row, c int) float64 {
			if row < maxima {
				return first(8, c)
			}
			return first(8-gap, c)
		}),
		V: tensor(sk, func(int, int) float64 { return -2 - 2*random.Float64() }),
	}
}

// leaning is the attention that rounds the sum before it is divided.
func leaning(a *kernels.Attention, maxima int, gap float64) []float64 {
	heads, sq, sk, d := a.Q.Shape[1], a.Q.Shape[2], a.K.Shape[2], a.Q.Shape[3]
	v, o := numbers(a.V), make([]float64, 0, a.Q.Elements())
	round := func(x float64) float64 { return float64(kernels.ToBFloat16(float32(x)).Float32()) }
	for row := range heads * sq {
		for channel := range d {
			sum, total := 0.0, 0.0
			for key := range sk {
				p := 1.0
				if key >= maxima {
					p = round(math.Exp(-gap))
				}
				sum, total = sum+p*v[(row/sq*sk+key)*d+channel], total+p
			}
			o = append(o, round(round(sum)/total))
		}
	}
	return o
}

// The kernels keep the sum in float32 until it is divided, and round once: the mean error of 4,096
// numbers is within 5 of its standard deviations around 0, where that of the other way is more than
// 20 of them.
func TestRepeatedMaximaDoNotLean(t *testing.T) {
	for _, c := range []struct {
		maxima int
		gap    float64
	}{{2, 12}, {2, 8}, {3, 12}, {4, 8}, {8, 8}, {8, 6}} {
		t.Run(fmt.Sprintf("%d maxima, %v above the others", c.maxima, c.gap), func(t *testing.T) {
			h := &halfTest{t, kernels.BF16, newRandom(), nil}
			a := repeatedMaxima(c.maxima, c.gap, rand.New(rand.NewPCG(1, 2)))
			o, lse, delta := h.out(kernels.BF16, a.Q.Shape...), h.dense(kernels.F32, a.Q.Shape[:3]...), h.dense(kernels.F32, a.Q.Shape[:3]...)
			ones := h.out(kernels.BF16, a.Q.Shape...)
			kernels.CopyHost(ones, kernels.Of(filled(a.Q.Elements(), 1), a.Q.Shape...))
			b := cpu.New()
			h.done(b.AttentionForward(a, kernels.AttentionOutputs{O: o, LSE: lse}))
			h.done(b.AttentionDelta(a, o, ones, kernels.Tensor{}, delta))
			exact, _ := reference.Attention(a)
			const ulp = 1.0 / 64 // of bfloat16 from 2 to 4
			lean := func(got []float64) float64 {
				sum := 0.0
				for i, x := range got {
					sum += (x - exact[i]) / ulp
				}
				return sum / float64(len(got))
			}
			// The two queries of a head are the same.
			deviation := 1 / math.Sqrt(12) / math.Sqrt(float64(len(exact)/2))
			if ours := lean(numbers(o)); !(math.Abs(ours) <= 5*deviation) {
				t.Errorf("the mean error is %v ulp, want at most %v", ours, 5*deviation)
			}
			if theirs := lean(leaning(a, c.maxima, c.gap)); !(math.Abs(theirs) >= 20*deviation) {
				t.Errorf("the mean error of the case that is known is %v ulp, it should be %v at least: this is not that case", theirs, 20*deviation)
			}
			sum, d := 0.0, a.Q.Shape[3]
			for i, x := range numbers(delta) {
				sum += x
				for _, e := range exact[i*d : (i+1)*d] {
					sum -= e
				}
			}
			if mean := sum / ulp / float64(len(exact)); !(math.Abs(mean) <= 5*deviation) {
				t.Errorf("delta's mean error is %v ulp a channel, want at most %v", mean, 5*deviation)
			}
		})
	}
}

func filled(n int, x float64) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = x
	}
	return list
}

// A training in which every step has the case stays beside one in float64: two rows of keys, of
// which one is at several places, learn with queries and values of one sign by 300 steps of plain
// descent in bfloat16 beside weights of float64.
func TestTrainingSurvivesRepeatedMaxima(t *testing.T) {
	const heads, sq, sk, d, maxima, steps, rate = 2, 8, 16, 16, 4, 300, 0.1
	run := func(half bool) (losses []float64) {
		random := rand.New(rand.NewPCG(3, 4))
		draw := func(n int, from, to float64) []float64 {
			list := make([]float64, n)
			for i := range list {
				list[i] = from + (to-from)*random.Float64()
			}
			return list
		}
		q, keys, v := draw(heads*sq*d, 0, 2), draw(2*heads*d, 0, 2), draw(heads*sk*d, -4, -2)
		for i := range keys[heads*d:] { // the other row
			keys[heads*d+i] -= 2
		}
		target := draw(heads*sq*d, -4, -2)
		keyOf := func(i int) int { // of an element of K, that of its row
			head, row, channel := i/(sk*d), i/d%sk, i%d
			if row < maxima {
				return head*d + channel
			}
			return heads*d + head*d + channel
		}
		for range steps {
			k := make([]float64, heads*sk*d)
			for i := range k {
				k[i] = keys[keyOf(i)]
			}
			o, grad := attentionStep(t, half, [3][]float64{q, k, v}, target, []int{1, heads, sq, sk, d})
			loss := 0.0
			for i, x := range o {
				loss += (x - target[i]) * (x - target[i]) / 2
			}
			losses = append(losses, loss)
			for i, g := range grad.DQ {
				q[i] -= rate * g
			}
			for i, g := range grad.DK {
				keys[keyOf(i)] -= rate * g
			}
			for i, g := range grad.DV {
				v[i] -= rate * g
			}
		}
		return losses
	}
	exact, ours := run(false), run(true)
	if !(exact[steps-1] < 0.7*exact[0]) {
		t.Fatalf("in float64 the loss goes from %v to %v: it should learn", exact[0], exact[steps-1])
	}
	for i, x := range ours {
		if !(math.Abs(x-exact[i]) <= 0.05*exact[i]) {
			t.Fatalf("the loss of step %d is %v, in float64 %v", i, x, exact[i])
		}
	}
}

// attentionStep is the attention of some values, and its gradients of half the squared distance to
// a target: of the kernels in bfloat16, or in float64.
func attentionStep(t *testing.T, half bool, qkv [3][]float64, target []float64, s []int) ([]float64, reference.AttentionGradients) {
	t.Helper()
	shapes := [3][]int{{s[0], s[1], s[2], s[4]}, {s[0], s[1], s[3], s[4]}, {s[0], s[1], s[3], s[4]}}
	h := &halfTest{t, kernels.BF16, newRandom(), nil}
	var in [3]kernels.Tensor
	for i, list := range qkv {
		if in[i] = kernels.Of(list, shapes[i]...); half {
			in[i] = h.out(kernels.BF16, shapes[i]...)
			kernels.CopyHost(in[i], kernels.Of(list, shapes[i]...))
		}
	}
	a := &kernels.Attention{Q: in[0], K: in[1], V: in[2]}
	distance := func(o []float64) []float64 {
		list := make([]float64, len(o))
		for i, x := range o {
			list[i] = x - target[i]
		}
		return list
	}
	if !half {
		o, _ := reference.Attention(a)
		return o, reference.AttentionGrad(a, distance(o), nil)
	}
	o, dO := h.out(kernels.BF16, shapes[0]...), h.out(kernels.BF16, shapes[0]...)
	lse, delta := h.dense(kernels.F32, shapes[0][:3]...), h.dense(kernels.F32, shapes[0][:3]...)
	g := kernels.AttentionGradients{DO: dO, LSE: lse, Delta: delta, DQ: h.out(kernels.BF16, shapes[0]...), DK: h.out(kernels.BF16, shapes[1]...), DV: h.out(kernels.BF16, shapes[2]...)}
	b := cpu.New()
	h.done(b.AttentionForward(a, kernels.AttentionOutputs{O: o, LSE: lse}))
	kernels.CopyHost(dO, kernels.Of(distance(numbers(o)), shapes[0]...))
	h.done(b.AttentionDelta(a, o, dO, kernels.Tensor{}, delta))
	h.done(b.AttentionBackward(a, g))
	return numbers(o), reference.AttentionGradients{DQ: numbers(g.DQ), DK: numbers(g.DK), DV: numbers(g.DV)}
}
