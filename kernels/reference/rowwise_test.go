package reference_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/gradcheck"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// normals are n random numbers.
func normals(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

// inner is ⟨x, y⟩: with y a random gradient, the loss whose differences tests look at.
func inner(x, y []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += x[i] * y[i]
	}
	return sum
}

// checkDifferences compares a gradient with differences of a loss, at all elements.
func checkDifferences(t *testing.T, name string, x, grad []float64, loss func() float64) {
	t.Helper()
	variables := []gradcheck.Variable{{Name: name, X: x, Gradient: grad}}
	if err := gradcheck.Function(loss, variables, gradcheck.Options{Elements: -1, Directions: 1}); err != nil {
		t.Error(err)
	}
}

func TestActivationGrad(t *testing.T) {
	for _, act := range kernels.Activations() {
		r := rand.New(rand.NewPCG(1, uint64(act)))
		x, dy := normals(r, 20), normals(r, 20)
		_, dx := reference.Activation(act, x, dy)
		checkDifferences(t, act.String(), x, dx, func() float64 { y, _ := reference.Activation(act, x, dy); return inner(y, dy) })
	}
}

func TestActivationByHand(t *testing.T) {
	x := []float64{-1, 0, 1, 2}
	for act, want := range map[kernels.Activation][]float64{
		kernels.NoActivation: x,
		kernels.GELUTanh:     {-0.158808009198, 0, 0.841191990802, 1.95459769373},
		kernels.GELUErf:      {-0.158655253931, 0, 0.841344746069, 1.95449973610},
		kernels.SiLU:         {-0.268941421370, 0, 0.731058578630, 1.76159415596},
		kernels.ReLUSquared:  {0, 0, 1, 4},
		kernels.ReLU:         {0, 0, 1, 2},
		kernels.QuickGELU:    {-0.154204234067, 0, 0.845795765933, 1.935658623144},
		kernels.Sigmoid:      {0.268941421370, 0.5, 0.731058578630, 0.880797077978},
		kernels.Tanh:         {-0.761594155956, 0, 0.761594155956, 0.964027580076},
	} {
		y, _ := reference.Activation(act, x, x)
		near(t, act.String(), y, want, 1e-9)
	}
}

func TestMulGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 0))
	a, b, dc := normals(r, 9), normals(r, 9), normals(r, 9)
	_, da, db := reference.Mul(a, b, dc)
	loss := func() float64 { c, _, _ := reference.Mul(a, b, dc); return inner(c, dc) }
	checkDifferences(t, "a", a, da, loss)
	checkDifferences(t, "b", b, db, loss)
	near(t, "scaled", reference.Scale(-2, []float64{1, 3}), []float64{-2, -6}, 0)
}

func TestSoftCapGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 0))
	x, dy := normals(r, 9), normals(r, 9)
	_, dx := reference.SoftCap(0.7, x, dy)
	checkDifferences(t, "x", x, dx, func() float64 { y, _ := reference.SoftCap(0.7, x, dy); return inner(y, dy) })
	y, _ := reference.SoftCap(2, []float64{1, -100}, []float64{0, 0})
	near(t, "capped", y, []float64{0.924234314520, -2}, 1e-9)
}

func TestSwiGLUGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 0))
	gate, up, dy := normals(r, 9), normals(r, 9), normals(r, 9)
	_, dGate, dUp := reference.SwiGLU(gate, up, dy)
	loss := func() float64 { y, _, _ := reference.SwiGLU(gate, up, dy); return inner(y, dy) }
	checkDifferences(t, "gate", gate, dGate, loss)
	checkDifferences(t, "up", up, dUp, loss)
}

func TestLayerNormGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	x, gamma, beta, dy := normals(r, 15), normals(r, 5), normals(r, 5), normals(r, 15)
	n := &kernels.Norm{X: kernels.Of(x, 3, 5), Gamma: kernels.Of(gamma, 5), Beta: kernels.Of(beta, 5), Eps: 0.1}
	dx, dGamma, dBeta := reference.NormGrad(n, dy)
	loss := func() float64 { y, _, _ := reference.Norm[float64](n); return inner(y, dy) }
	checkDifferences(t, "x", x, dx, loss)
	checkDifferences(t, "gamma", gamma, dGamma, loss)
	checkDifferences(t, "beta", beta, dBeta, loss)
}

func TestLayerNormByHand(t *testing.T) {
	n := &kernels.Norm{X: kernels.Of([]float64{1, 3, 5, 5}, 2, 2), Gamma: kernels.Of([]float64{2, 4}, 2), Eps: 3}
	y, mean, rstd := reference.Norm[float64](n)
	near(t, "y", y, []float64{-1, 2, 0, 0}, 1e-14)
	near(t, "mean", mean, []float64{2, 5}, 0)
	near(t, "rstd", rstd, []float64{0.5, 1 / math.Sqrt(3)}, 1e-15)
}

func TestRMSNormGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 0))
	x, gamma, dy := normals(r, 15), normals(r, 5), normals(r, 15)
	n := &kernels.Norm{RMS: true, X: kernels.Of(x, 3, 5), Gamma: kernels.Of(gamma, 5), Eps: 0.1}
	dx, dGamma, _ := reference.NormGrad(n, dy)
	loss := func() float64 { y, _, _ := reference.Norm[float64](n); return inner(y, dy) }
	checkDifferences(t, "x", x, dx, loss)
	checkDifferences(t, "gamma", gamma, dGamma, loss)
}

func TestRMSNormByHand(t *testing.T) {
	y, _, rstd := reference.Norm[float64](&kernels.Norm{RMS: true, X: kernels.Of([]float64{1, 7, 0, 0}, 2, 2), Eps: 1e-30})
	near(t, "y", y, []float64{0.2, 1.4, 0, 0}, 1e-15)
	near(t, "rstd", rstd, []float64{0.2, 1e15}, 1)
}

func TestEmbeddingGrad(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	table, dy := normals(r, 12), normals(r, 15)
	e := &kernels.Embedding{Table: kernels.Of(table, 4, 3), IDs: kernels.Of([]int32{2, 0, 2, 3, 2}, 5)}
	checkDifferences(t, "table", table, reference.EmbeddingGrad(e, dy), func() float64 { return inner(reference.Embedding[float64](e), dy) })
}

func TestRoPEGrad(t *testing.T) {
	for _, o := range []kernels.RoPE{{}, {Pairing: kernels.Interleaved}, {Offset: 9, Base: 50, PositionScale: 4, RotaryDim: 4}, {Divisors: []float64{1, 3, 9}, Amplitude: 1.5}} {
		r := rand.New(rand.NewPCG(6, 0))
		x, dy := normals(r, 2*3*6), normals(r, 2*3*6)
		grad := reference.RoPEGrad[float64](&o, kernels.Of(dy, 1, 2, 3, 6))
		checkDifferences(t, "x", x, grad, func() float64 { return inner(reference.RoPE[float64](&o, kernels.Of(x, 1, 2, 3, 6)), dy) })
	}
}

// Position 2 turns the first pair by 2 and the second by 2/10.
func TestRoPEByHand(t *testing.T) {
	x := kernels.Of([]float64{1, 0, 0, 1}, 1, 1, 1, 4)
	o := kernels.RoPE{Offset: 4, PositionScale: 2, Base: 100}
	near(t, "half-split", reference.RoPE[float64](&o, x), []float64{math.Cos(2), -math.Sin(0.2), math.Sin(2), math.Cos(0.2)}, 1e-15)
	o.Pairing = kernels.Interleaved
	near(t, "interleaved", reference.RoPE[float64](&o, x), []float64{math.Cos(2), math.Sin(2), -math.Sin(0.2), math.Cos(0.2)}, 1e-15)
}

func TestCrossEntropyGrad(t *testing.T) {
	pad := 1
	for _, o := range []kernels.CrossEntropyOptions{
		{}, {Reduction: kernels.SumReduction, LabelSmoothing: 0.1}, {IgnoreIndex: &pad, LabelSmoothing: 0.3},
	} {
		r := rand.New(rand.NewPCG(7, 0))
		logits, targets := normals(r, 12), kernels.Of([]int64{3, 1, 0}, 3)
		c := &kernels.CrossEntropy{Logits: kernels.Of(logits, 3, 4), Targets: targets, CrossEntropyOptions: o}
		_, _, grad := reference.CrossEntropy(c, 1.5)
		checkDifferences(t, "logits", logits, grad, func() float64 { l, _, _ := reference.CrossEntropy(c, 1.5); return 1.5 * l })

		hidden, weight := normals(r, 6), normals(r, 8)
		dLoss := kernels.Of([]float64{1.5})
		lin := &kernels.LinearCrossEntropy{Hidden: kernels.Of(hidden, 3, 2), Weight: kernels.Of(weight, 4, 2), Targets: targets, CrossEntropyOptions: o, DLoss: dLoss}
		_, dHidden, dWeight := reference.LinearCrossEntropy[float64](lin)
		loss := func() float64 { l, _, _ := reference.LinearCrossEntropy[float64](lin); return 1.5 * l }
		checkDifferences(t, "hidden", hidden, dHidden, loss)
		checkDifferences(t, "weight", weight, dWeight, loss)
	}
}

// The logits (0, ln 3) have the probabilities ¼ and ¾.
func TestCrossEntropyByHand(t *testing.T) {
	ignored := -100
	c := &kernels.CrossEntropy{Logits: kernels.Of([]float64{0, math.Log(3), 7, 8}, 2, 2), Targets: kernels.Of([]int32{0, -100}, 2)}
	c.IgnoreIndex = &ignored
	loss, lse, grad := reference.CrossEntropy[float64](c, 2)
	near(t, "loss", []float64{loss}, []float64{math.Log(4)}, 1e-15)
	near(t, "lse", lse[:1], []float64{math.Log(4)}, 1e-15)
	near(t, "dLogits", grad, []float64{-1.5, 1.5, 0, 0}, 1e-15)
	c.LabelSmoothing = 0.5
	loss, _, grad = reference.CrossEntropy[float64](c, 1)
	near(t, "the smoothed loss", []float64{loss}, []float64{math.Log(4) - math.Log(3)/4}, 1e-15)
	near(t, "the smoothed dLogits", grad, []float64{-0.5, 0.5, 0, 0}, 1e-15)
	c.Targets = kernels.Of([]int32{-100, -100}, 2)
	loss, _, grad = reference.CrossEntropy[float64](c, 1)
	near(t, "the loss of nothing", []float64{loss}, []float64{0}, 0)
	near(t, "dLogits of nothing", grad, make([]float64, 4), 0)
}

func TestSmallKernels(t *testing.T) {
	x := kernels.Of([]float64{1, 2, 3, 4, 5, 6}, 2, 3)
	near(t, "the sum with the transpose", reference.Add[float64](x.Permute(1, 0), x.Permute(1, 0)), []float64{2, 8, 4, 10, 6, 12}, 0)
	if sum, mean := reference.Sum[float64](x), reference.Mean[float64](x); sum != 21 || mean != 3.5 {
		t.Errorf("the sum is %v, the mean %v", sum, mean)
	}
	d := kernels.Dropout{P: 0.5, Seed: 3}
	for i, y := range reference.Dropout[float64](d, x) {
		want := 0.0
		if d.Keep(0, i/3, i%3) {
			want = 2 * float64(i+1)
		}
		if y != want {
			t.Errorf("element %d is %v, it needs to be %v", i, y, want)
		}
	}
}
