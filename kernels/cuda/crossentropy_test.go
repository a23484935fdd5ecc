//go:build gpu

package cuda_test

import (
	"errors"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func lossOptions() []kernels.CrossEntropyOptions {
	pad, first := -100, 0
	return []kernels.CrossEntropyOptions{
		{}, {IgnoreIndex: &pad}, {Reduction: kernels.SumReduction}, {LabelSmoothing: 0.1}, {LabelSmoothing: 0.3, IgnoreIndex: &first, Reduction: kernels.SumReduction},
	}
}

// targets makes targets, some of them ignored if the options ignore any.
func (r *rowwiseTest) targets(o kernels.CrossEntropyOptions, dtype kernels.DType, vocabulary int, shape ...int) (onDevice, onHost kernels.Tensor) {
	return r.indices(dtype, func() int {
		if o.IgnoreIndex != nil && r.random.IntN(3) == 0 {
			return *o.IgnoreIndex
		}
		return r.random.IntN(vocabulary)
	}, shape...)
}

func TestCrossEntropy(t *testing.T) {
	shapes := []struct {
		gap   int
		shape []int
	}{{0, []int{1, 1}}, {0, []int{5}}, {3, []int{3, 7}}, {0, []int{2, 3, 65}}, {8, []int{4, 64}}, {1, []int{2, 3, 1000}}, {0, []int{70, 256}}, {0, []int{3, 50257}}, {0, []int{0, 9}}}
	for _, dtype := range halfAndFull {
		for i, s := range shapes {
			for j, o := range lossOptions() {
				r := newRowwiseTest(t, "%v %v gap %d options %d", dtype, s.shape, s.gap, j)
				rows, vocabulary := s.shape[:len(s.shape)-1], s.shape[len(s.shape)-1]
				logits := r.filled(dtype, s.gap, func() float64 { return 5 * r.random.NormFloat64() }, s.shape...)
				targets, hostTargets := r.targets(o, []kernels.DType{kernels.I32, kernels.I64}[i%2], vocabulary, rows...)
				loss, lse, dLoss := r.empty(kernels.F32, 0), r.empty(kernels.F32, 0, rows...), r.normals(kernels.F32, 0)
				c := &kernels.CrossEntropy{Logits: logits.Tensor, Targets: targets, CrossEntropyOptions: o}
				host := &kernels.CrossEntropy{Logits: logits.host, Targets: hostTargets, CrossEntropyOptions: o}
				r.must(r.d.CrossEntropyForward(c, kernels.CrossEntropyOutputs{Loss: loss.Tensor, LSE: lse.Tensor}))
				wantLoss, wantLSE, want := reference.CrossEntropy(host, dLoss.values()[0])
				plainLoss, plainLSE, plain := reference.CrossEntropy(host, float32(dLoss.values()[0]))
				r.check("loss", loss, []float64{wantLoss}, []float32{plainLoss})
				r.check("lse", lse, wantLSE, plainLSE)
				r.must(errors.Join(r.d.Fill(loss.Tensor, 7), r.d.CrossEntropyForward(c, kernels.CrossEntropyOutputs{Loss: loss.Tensor})))
				r.check("the loss alone", loss, []float64{wantLoss}, []float32{plainLoss})

				dLogits := r.empty(dtype, 2*s.gap, s.shape...)
				g := kernels.CrossEntropyGradients{DLoss: dLoss.Tensor, LSE: lse.Tensor, DLogits: dLogits.Tensor}
				r.must(r.d.CrossEntropyBackward(c, g))
				r.check("dLogits", dLogits, want, plain)
				g.DLogits = logits.Tensor
				r.must(r.d.CrossEntropyBackward(c, g))
				r.check("dLogits in place", logits, want, plain)
			}
		}
	}
}

// Class weights, with and without smoothing, in every reduction; and without a reduction, a loss
// and a gradient a row.
func TestCrossEntropyOfWeightedClasses(t *testing.T) {
	for _, dtype := range halfAndFull {
		for _, shape := range [][]int{{1, 1}, {2, 3, 65}, {7, 1000}, {3, 50257}, {0, 9}} {
			for j, o := range lossOptions() {
				for _, o.Reduction = range []kernels.Reduction{kernels.MeanReduction, kernels.SumReduction, kernels.NoReduction} {
					r := newRowwiseTest(t, "%v %v options %d reduction %d", dtype, shape, j, o.Reduction)
					rows, vocabulary := shape[:len(shape)-1], shape[len(shape)-1]
					logits, dLogits := r.filled(dtype, 0, func() float64 { return 5 * r.random.NormFloat64() }, shape...), r.empty(dtype, 3, shape...)
					weights := r.filled(kernels.F32, 0, func() float64 { return float64(r.random.IntN(4)) / 2 }, vocabulary)
					targets, hostTargets := r.targets(o, kernels.I64, vocabulary, rows...)
					var lossShape []int
					if o.Reduction == kernels.NoReduction {
						lossShape = rows
					}
					loss, lse, dLoss := r.empty(kernels.F32, 0, lossShape...), r.empty(kernels.F32, 0, rows...), r.normals(kernels.F32, 0, lossShape...)
					o.Weights = weights.Tensor
					c := &kernels.CrossEntropy{Logits: logits.Tensor, Targets: targets, CrossEntropyOptions: o}
					o.Weights = weights.host
					host := &kernels.CrossEntropy{Logits: logits.host, Targets: hostTargets, CrossEntropyOptions: o}
					r.must(r.d.CrossEntropyForward(c, kernels.CrossEntropyOutputs{Loss: loss.Tensor, LSE: lse.Tensor}))
					r.must(r.d.CrossEntropyBackward(c, kernels.CrossEntropyGradients{DLoss: dLoss.Tensor, LSE: lse.Tensor, DLogits: dLogits.Tensor}))
					if o.Reduction == kernels.NoReduction {
						plainDLoss := make([]float32, len(dLoss.values()))
						for i, x := range dLoss.values() {
							plainDLoss[i] = float32(x)
						}
						want, _, wantD := reference.CrossEntropyRows(host, dLoss.values())
						plain, _, plainD := reference.CrossEntropyRows(host, plainDLoss)
						r.check("losses", loss, want, plain)
						r.check("dLogits", dLogits, wantD, plainD)
						continue
					}
					want, _, wantD := reference.CrossEntropy(host, dLoss.values()[0])
					plain, _, plainD := reference.CrossEntropy(host, float32(dLoss.values()[0]))
					r.check("loss", loss, []float64{want}, []float32{plain})
					r.check("dLogits", dLogits, wantD, plainD)
				}
			}
		}
	}
}

func TestLogSoftmax(t *testing.T) {
	for _, dtype := range halfAndFull {
		for _, shape := range [][]int{{1, 1}, {5}, {2, 3, 65}, {7, 1000}, {3, 50257}, {0, 9}} {
			r := newRowwiseTest(t, "%v %v", dtype, shape)
			x, y := r.filled(dtype, 0, func() float64 { return 5 * r.random.NormFloat64() }, shape...), r.empty(dtype, 3, shape...)
			dy, zeros := r.normals(dtype, 1, shape...), make([]float32, x.host.Elements())
			r.must(r.d.LogSoftmaxForward(x.Tensor, y.Tensor))
			want, _ := reference.LogSoftmax(x.host, make([]float64, len(zeros)))
			plain, _ := reference.LogSoftmax(x.host, zeros)
			r.check("y", y, want, plain)

			// The gradient is that of the y that it is given.
			logs, rows, length := r.values(y), dy.values(), shape[len(shape)-1]
			wantD, plainD := make([]float64, len(logs)), make([]float32, len(logs))
			for from := 0; from < len(logs); from += length {
				sum, plainSum := 0.0, float32(0)
				for v := from; v < from+length; v++ {
					sum += rows[v]
					plainSum += float32(rows[v])
				}
				for v := from; v < from+length; v++ {
					wantD[v] = rows[v] - math.Exp(logs[v])*sum
					plainD[v] = float32(rows[v]) - float32(math.Exp(logs[v]))*plainSum
				}
			}
			r.must(r.d.LogSoftmaxBackward(y.Tensor, dy.Tensor, dy.Tensor))
			r.check("dx in place", dy, wantD, plainD)
		}
	}
}

// Products of 16-bit factors are rounded once more than the criterion knows: to the logits, and to
// their gradient. So the plain formula is that of logits and gradients that are rounded there.
func TestLinearCrossEntropy(t *testing.T) {
	shapes := []headShape{{1, 1, 1, 0}, {3, 5, 7, 3}, {20, 32, 65, 0}, {67, 16, 40, 8}, {200, 64, 129, 0}, {0, 4, 5, 0}, {9, 8, 50304, 0}, {5, 8, 20000, 0}, {281, 2, 14400, 0}}
	for _, dtype := range halfAndFull {
		for i, s := range shapes {
			for _, transposed := range []bool{false, true} {
				for _, wide := range parameterTypes(dtype) {
					o := lossOptions()[i%5]
					r := newRowwiseTest(t, "%v weight %v %+v transposed %v options %d", dtype, wide, s, transposed, i%5)
					c, loss, wantLoss, plainLoss := r.linearCrossEntropy(dtype, wide, s, transposed, o)
					r.must(errors.Join(r.d.Fill(loss.Tensor, 7), r.d.LinearCrossEntropy(c, kernels.LinearCrossEntropyOutputs{Loss: loss.Tensor})))
					r.check("the loss alone", loss, []float64{wantLoss}, []float32{plainLoss})
				}
			}
		}
	}
}

// Logits that take more memory than they may are computed in chunks, of which the last is shorter.
func TestLinearCrossEntropyInChunks(t *testing.T) {
	defer cuda.LimitLogits(1)()
	for _, dtype := range halfAndFull {
		for i, o := range lossOptions() {
			r := newRowwiseTest(t, "%v options %d", dtype, i)
			r.linearCrossEntropy(dtype, kernels.F32, headShape{n: 300, features: 16, vocabulary: 136}, false, o)
		}
	}
}

// headShape is what a last layer and its loss are tested with: rows, and elements between two of
// them.
type headShape struct{ n, features, vocabulary, gap int }

// linearCrossEntropy checks the loss of a last layer and its gradients. It returns the call, and
// its loss beside what that needs to be.
func (r *rowwiseTest) linearCrossEntropy(dtype, wide kernels.DType, s headShape, transposed bool, o kernels.CrossEntropyOptions) (
	c *kernels.LinearCrossEntropy, loss field, wantLoss float64, plainLoss float32,
) {
	hidden, dHidden := r.normals(dtype, s.gap, s.n, s.features), r.empty(dtype, s.gap, s.n, s.features)
	weight, dWeight := r.normals(wide, s.gap, s.vocabulary, s.features), r.empty(wide, s.gap, s.vocabulary, s.features)
	if transposed {
		weight, dWeight = r.normals(wide, s.gap, s.features, s.vocabulary), r.empty(wide, s.gap, s.features, s.vocabulary)
		weight.Tensor, dWeight.Tensor = weight.Permute(1, 0), dWeight.Permute(1, 0)
		weight.host = weight.host.Permute(1, 0)
	}
	targets, hostTargets := r.targets(o, kernels.I64, s.vocabulary, s.n)
	loss, dLoss := r.empty(kernels.F32, 0), r.normals(kernels.F32, 0)
	c = &kernels.LinearCrossEntropy{Hidden: hidden.Tensor, Weight: weight.Tensor, Targets: targets, CrossEntropyOptions: o, DLoss: dLoss.Tensor}
	host := &kernels.LinearCrossEntropy{Hidden: hidden.host, Weight: weight.host, Targets: hostTargets, CrossEntropyOptions: o, DLoss: dLoss.host}
	r.must(r.d.LinearCrossEntropy(c, kernels.LinearCrossEntropyOutputs{Loss: loss.Tensor, DHidden: dHidden.Tensor, DWeight: dWeight.Tensor}))
	wantLoss, wantHidden, wantWeight := reference.LinearCrossEntropy[float64](host)
	plainLoss, plainHidden, plainWeight := unfusedLinearCrossEntropy(host, dtype)
	r.check("loss", loss, []float64{wantLoss}, []float32{plainLoss})
	r.check("dHidden", dHidden, wantHidden, plainHidden)
	r.check("dWeight", dWeight, wantWeight, plainWeight)
	return c, loss, wantLoss, plainLoss
}

// unfusedLinearCrossEntropy computes in float32 with a weight, logits and gradients of logits that
// are rounded to a dtype.
func unfusedLinearCrossEntropy(c *kernels.LinearCrossEntropy, dtype kernels.DType) (loss float32, dHidden, dWeight []float32) {
	n, features, vocabulary := c.Hidden.Shape[0], c.Hidden.Shape[1], c.Weight.Shape[0]
	rounded := func(x float32) float32 { return float32(roundedTo(dtype, float64(x))) }
	hidden, weight := kernels.Host[float64](c.Hidden), make([]float32, vocabulary*features)
	for v := range vocabulary {
		for f := range features {
			weight[v*features+f] = rounded(float32(kernels.HostElement(c.Weight, c.Weight.Offset(v, f))))
		}
	}
	logits := hostTensor(kernels.F64, n, vocabulary)
	for i := range n {
		for v := range vocabulary {
			var sum float32
			for f := range features {
				sum += float32(hidden[i*features+f]) * weight[v*features+f]
			}
			kernels.Host[float64](logits)[i*vocabulary+v] = float64(rounded(sum))
		}
	}
	entropy := &kernels.CrossEntropy{Logits: logits, Targets: c.Targets, CrossEntropyOptions: c.CrossEntropyOptions}
	loss, _, dLogits := reference.CrossEntropy(entropy, float32(kernels.HostElement(c.DLoss, 0)))
	dHidden, dWeight = make([]float32, n*features), make([]float32, vocabulary*features)
	for i := range n {
		for v := range vocabulary {
			d := rounded(dLogits[i*vocabulary+v])
			for f := range features {
				dHidden[i*features+f] += d * weight[v*features+f]
				dWeight[v*features+f] += d * float32(hidden[i*features+f])
			}
		}
	}
	return loss, dHidden, dWeight
}

// Far from zero a float32 logsumexp has few digits behind the point. The gradient of a row adds up
// to nothing all the same.
func TestCrossEntropyFarFromZero(t *testing.T) {
	for _, far := range []float64{1e4, -1e5} {
		r := newRowwiseTest(t, "%v", far)
		const rows, vocabulary = 4, 1000
		logits := r.filled(kernels.F32, 0, func() float64 { return far + 3*r.random.NormFloat64() }, rows, vocabulary)
		targets, hostTargets := r.targets(kernels.CrossEntropyOptions{}, kernels.I32, vocabulary, rows)
		loss, lse := r.empty(kernels.F32, 0), r.empty(kernels.F32, 0, rows)
		c := &kernels.CrossEntropy{Logits: logits.Tensor, Targets: targets}
		want, _, _ := reference.CrossEntropy[float64](&kernels.CrossEntropy{Logits: logits.host, Targets: hostTargets}, 1)
		r.must(r.d.CrossEntropyForward(c, kernels.CrossEntropyOutputs{Loss: loss.Tensor, LSE: lse.Tensor}))
		r.check("loss", loss, []float64{want}, single([]float64{want}))
		r.must(r.d.CrossEntropyBackward(c, kernels.CrossEntropyGradients{LSE: lse.Tensor, DLogits: logits.Tensor}))
		gradients := r.values(logits)
		for row := range rows {
			sum := 0.0
			for _, g := range gradients[row*vocabulary:][:vocabulary] {
				sum += g
			}
			if !(math.Abs(sum) <= 1e-6) {
				t.Errorf("%s: the gradient of row %d adds up to %v", r.name, row, sum)
			}
		}
	}
}
