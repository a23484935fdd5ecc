package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
	"pgregory.net/rapid"
)

var ignoreMinus100 = -100

var crossEntropyOptions = []kernels.CrossEntropyOptions{
	{},
	{IgnoreIndex: &ignoreMinus100},
	{Reduction: kernels.SumReduction, LabelSmoothing: 0.1},
	{IgnoreIndex: &ignoreMinus100, LabelSmoothing: 0.3},
}

// someTargets are n targets, every third ignored if the options allow it.
func someTargets(o kernels.CrossEntropyOptions, n, vocabulary int) []int {
	list := make([]int, n)
	for i := range list {
		if list[i] = i * 7 % vocabulary; o.IgnoreIndex != nil && i%3 == 1 {
			list[i] = *o.IgnoreIndex
		}
	}
	return list
}

func TestCrossEntropy(t *testing.T) {
	bothTypes(t, testCrossEntropy[float32], testCrossEntropy[float64])
}

func testCrossEntropy[T kernels.Float](t *testing.T) {
	shapes := fieldShapes()
	for n := range 2 * len(shapes) {
		i, s := n%len(shapes), shapes[n%len(shapes)]
		o := crossEntropyOptions[i%len(crossEntropyOptions)]
		r := newRandom()
		if n >= len(shapes) {
			o.Weights = classWeights[T](last(s.shape))
		}
		logits, dLogits := newField[T](r, s.gap, s.shape...), newField[T](r, s.gap, s.shape...)
		logits.each(func(at *T) { *at = *at*3 + 20 })
		if i == 4 {
			logits.memory[2] = T(math.NaN())
		}
		lse, loss, dLoss := newField[T](r, 0, perRow(s.shape)...), newField[T](r, 0), newField[T](r, 0)
		targets := someTargets(o, lse.Elements(), last(s.shape))
		c := &kernels.CrossEntropy{Logits: logits.Tensor, Targets: int32s(targets, perRow(s.shape)...), CrossEntropyOptions: o}
		refLoss, refLSE, refD := reference.CrossEntropy(c, dLoss.values()[0])
		ptLoss, ptLSE, ptD := reference.CrossEntropy(c, dLoss.typed()[0])
		verify[T](t, fmt.Sprintf("options=%d weights=%t %s", i%len(crossEntropyOptions), o.Weights.IsSet(), name(s.shape, s.gap)), func(b *cpu.Backend) ([]result, error) {
			if err := b.CrossEntropyForward(c, kernels.CrossEntropyOutputs{Loss: loss.Tensor, LSE: lse.Tensor}); err != nil {
				return nil, err
			}
			err := b.CrossEntropyBackward(c, kernels.CrossEntropyGradients{DLoss: dLoss.Tensor, LSE: lse.Tensor, DLogits: dLogits.Tensor})
			return []result{resultOf("loss", loss, []float64{refLoss}, []T{ptLoss}), resultOf("lse", lse, refLSE, ptLSE),
				resultOf("dLogits", dLogits, refD, ptD)}, err
		})
	}
}

// classWeights are different, one of them 0 where there are several.
func classWeights[T kernels.Float](n int) kernels.Tensor {
	list := make([]T, n)
	for i := range list {
		list[i] = T(0.5 + float64(i*5%7)/3)
	}
	list[n/2] *= T(1 / n)
	return kernels.Of(list, n)
}

// Without a reduction each row has its loss and takes a gradient of its own.
func TestCrossEntropyRows(t *testing.T) {
	bothTypes(t, testCrossEntropyRows[float32], testCrossEntropyRows[float64])
}

func testCrossEntropyRows[T kernels.Float](t *testing.T) {
	for i, s := range fieldShapes() {
		o := crossEntropyOptions[i%len(crossEntropyOptions)]
		o.Reduction = kernels.NoReduction
		if i%2 == 0 {
			o.Weights = classWeights[T](last(s.shape))
		}
		r := newRandom()
		logits, dLogits := newField[T](r, s.gap, s.shape...), newField[T](r, s.gap, s.shape...)
		rows := perRow(s.shape)
		lse, losses, dLosses := newField[T](r, 0, rows...), newField[T](r, 0, rows...), newField[T](r, 0, rows...)
		targets := someTargets(o, lse.Elements(), last(s.shape))
		c := &kernels.CrossEntropy{Logits: logits.Tensor, Targets: int32s(targets, rows...), CrossEntropyOptions: o}
		ref, refLSE, refD := reference.CrossEntropyRows(c, dLosses.values())
		pt, ptLSE, ptD := reference.CrossEntropyRows(c, dLosses.typed())
		verify[T](t, fmt.Sprintf("options=%d %s", i%len(crossEntropyOptions), name(s.shape, s.gap)), func(b *cpu.Backend) ([]result, error) {
			if err := b.CrossEntropyForward(c, kernels.CrossEntropyOutputs{Loss: losses.Tensor, LSE: lse.Tensor}); err != nil {
				return nil, err
			}
			err := b.CrossEntropyBackward(c, kernels.CrossEntropyGradients{DLoss: dLosses.Tensor, LSE: lse.Tensor, DLogits: dLogits.Tensor})
			return []result{resultOf("losses", losses, ref, pt), resultOf("lse", lse, refLSE, ptLSE),
				{name: "dLogits", got: dLogits.values(), ref: refD, pt: widened(ptD), gaps: dLogits.checkGaps(), terms: 1}}, err
		})
	}
}

func TestLogSoftmax(t *testing.T) { bothTypes(t, testLogSoftmax[float32], testLogSoftmax[float64]) }

func testLogSoftmax[T kernels.Float](t *testing.T) {
	for i, s := range fieldShapes() {
		r := newRandom()
		x, y := newField[T](r, s.gap, s.shape...), newField[T](r, s.gap, s.shape...)
		dy, dx := newField[T](r, s.gap, s.shape...), newField[T](r, 2*s.gap, s.shape...)
		x.each(func(at *T) { *at = *at*3 + 20 })
		if i == 4 {
			x.memory[2] = T(math.NaN())
		}
		ref, refD := reference.LogSoftmax(x.Tensor, dy.values())
		pt, ptD := reference.LogSoftmax(x.Tensor, dy.typed())
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			if err := b.LogSoftmaxForward(x.Tensor, y.Tensor); err != nil {
				return nil, err
			}
			err := b.LogSoftmaxBackward(y.Tensor, dy.Tensor, dx.Tensor)
			return []result{resultOf("y", y, ref, pt), resultOf("dx", dx, refD, ptD)}, err
		})
	}
}

// An ignored row may hold anything; if all are ignored, the loss is 0.
func TestCrossEntropyOfNothing(t *testing.T) {
	for _, reduction := range []kernels.Reduction{kernels.MeanReduction, kernels.SumReduction} {
		logits := kernels.Of([]float32{1, float32(math.NaN()), 3, 4}, 2, 2)
		c := &kernels.CrossEntropy{Logits: logits, Targets: int64s([]int{-100, -100}, 2)}
		c.IgnoreIndex, c.Reduction = &ignoreMinus100, reduction
		loss, lse, grad := []float32{5}, make([]float32, 2), []float32{5, 5, 5, 5}
		b := cpu.New()
		if err := b.CrossEntropyForward(c, kernels.CrossEntropyOutputs{Loss: kernels.Of(loss), LSE: kernels.Of(lse, 2)}); err != nil {
			t.Fatal(err)
		}
		if err := b.CrossEntropyBackward(c, kernels.CrossEntropyGradients{LSE: kernels.Of(lse, 2), DLogits: kernels.Of(grad, 2, 2)}); err != nil {
			t.Fatal(err)
		}
		if loss[0] != 0 || grad[0] != 0 || grad[1] != 0 || grad[2] != 0 || grad[3] != 0 {
			t.Errorf("reduction %d: the loss is %v, the gradient %v", reduction, loss[0], grad)
		}
	}
}

// Moving all logits of a row changes nothing; a row's gradient adds up to zero; it may take the
// logits' place.
func TestCrossEntropyProperties(t *testing.T) {
	b := cpu.New()
	rapid.Check(t, func(t *rapid.T) {
		n, vocabulary := rapid.IntRange(1, 5).Draw(t, "n"), rapid.IntRange(1, 40).Draw(t, "vocabulary")
		o := crossEntropyOptions[rapid.IntRange(0, 3).Draw(t, "options")]
		move := rapid.Float64Range(-1000, 1000).Draw(t, "move")
		logits := newField[float64](newRandom(), 0, n, vocabulary)
		c := &kernels.CrossEntropy{Logits: logits.Tensor, Targets: int32s(someTargets(o, n, vocabulary), n), CrossEntropyOptions: o}
		loss, lse := make([]float64, 1), make([]float64, n)
		out := kernels.CrossEntropyOutputs{Loss: kernels.Of(loss), LSE: kernels.Of(lse, n)}
		if err := b.CrossEntropyForward(c, out); err != nil {
			t.Fatal(err)
		}
		before := loss[0]
		logits.each(func(at *float64) { *at += move })
		if err := b.CrossEntropyForward(c, out); err != nil {
			t.Fatal(err)
		}
		if !(math.Abs(loss[0]-before) <= 1e-11) {
			t.Fatalf("the loss went from %v to %v with all logits", before, loss[0])
		}
		if err := b.CrossEntropyBackward(c, kernels.CrossEntropyGradients{LSE: out.LSE, DLogits: logits.Tensor}); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			sum := 0.0
			for _, d := range logits.memory[i*vocabulary:][:vocabulary] {
				sum += d
			}
			if !(math.Abs(sum) <= 1e-11) {
				t.Fatalf("the gradient of row %d adds up to %.3g", i, sum)
			}
		}
	})
}

func TestLinearCrossEntropy(t *testing.T) {
	slow.Emulated(t)
	bothTypes(t, testLinearCrossEntropy[float32], testLinearCrossEntropy[float64])
}

func testLinearCrossEntropy[T kernels.Float](t *testing.T) {
	for i, s := range []struct{ n, features, vocabulary int }{{1, 1, 1}, {3, 5, 7}, {20, 33, 65}, {67, 16, 40}, {600, 8, 1030}, {0, 4, 5}} {
		o := crossEntropyOptions[i%len(crossEntropyOptions)]
		for _, transposed := range []bool{false, true} {
			if slow.Racing() && transposed && s.n > 100 {
				continue
			}
			r := newRandom()
			if transposed && i%2 == 1 {
				o.Weights = classWeights[T](s.vocabulary)
			}
			hidden, dHidden := newField[T](r, i%2*3, s.n, s.features), newField[T](r, i%2*3, s.n, s.features)
			weight, dWeight := newField[T](r, 0, s.vocabulary, s.features), newField[T](r, 0, s.vocabulary, s.features)
			if transposed {
				weight, dWeight = newField[T](r, 2, s.features, s.vocabulary), newField[T](r, 2, s.features, s.vocabulary)
				weight.Tensor, dWeight.Tensor = weight.Permute(1, 0), dWeight.Permute(1, 0)
			}
			loss, dLoss := newField[T](r, 0), newField[T](r, 0)
			c := &kernels.LinearCrossEntropy{Hidden: hidden.Tensor, Weight: weight.Tensor, Targets: int64s(someTargets(o, s.n, s.vocabulary), s.n),
				CrossEntropyOptions: o, DLoss: dLoss.Tensor}
			refLoss, refH, refW := reference.LinearCrossEntropy[float64](c)
			ptLoss, ptH, ptW := reference.LinearCrossEntropy[T](c)
			verify[T](t, fmt.Sprintf("%+v options=%d transposed=%v seed=%d", s, i%len(crossEntropyOptions), transposed, rowwiseSeed), func(b *cpu.Backend) ([]result, error) {
				err := b.LinearCrossEntropy(c, kernels.LinearCrossEntropyOutputs{Loss: loss.Tensor, DHidden: dHidden.Tensor, DWeight: dWeight.Tensor})
				both := resultOf("loss", loss, []float64{refLoss}, []T{ptLoss})
				if err == nil {
					err = b.LinearCrossEntropy(c, kernels.LinearCrossEntropyOutputs{Loss: loss.Tensor})
				}
				return []result{both, resultOf("the loss alone", loss, []float64{refLoss}, []T{ptLoss}),
					resultOf("dHidden", dHidden, refH, ptH), resultOf("dWeight", dWeight, refW, ptW)}, err
			})
		}
	}
}

func TestCrossEntropyErrors(t *testing.T) {
	b := cpu.New()
	x, loss := kernels.Of(make([]float32, 6), 2, 3), kernels.Of(make([]float32, 1))
	forward := func(targets kernels.Tensor, o kernels.CrossEntropyOptions) error {
		return b.CrossEntropyForward(&kernels.CrossEntropy{Logits: x, Targets: targets, CrossEntropyOptions: o}, kernels.CrossEntropyOutputs{Loss: loss})
	}
	good := int32s([]int{0, 1}, 2)
	linear := func(weight kernels.Tensor, out kernels.LinearCrossEntropyOutputs) error {
		return b.LinearCrossEntropy(&kernels.LinearCrossEntropy{Hidden: x, Weight: weight, Targets: good}, out)
	}
	checkErrors(t, []errorCase{
		{"cpu: cross-entropy forward: targets[1] is -1, it needs to be from 0 to 2, or IgnoreIndex, which is not set", forward(int32s([]int{0, -1}, 2), kernels.CrossEntropyOptions{})},
		{"cpu: cross-entropy forward: targets[0] is 3, it needs to be from 0 to 2, or -100, which is IgnoreIndex", forward(int64s([]int{3, -100}, 2), crossEntropyOptions[1])},
		{"cpu: cross-entropy forward: targets has shape [3], it needs one target for each row of logits: [2]", forward(int32s([]int{0, 0, 0}, 3), kernels.CrossEntropyOptions{})},
		{"cpu: cross-entropy forward: targets is float32, it needs to be int32 or int64", forward(kernels.Of(make([]float32, 2), 2), kernels.CrossEntropyOptions{})},
		{"cpu: cross-entropy forward: label smoothing is 1, it needs to be in [0, 1)", forward(good, kernels.CrossEntropyOptions{LabelSmoothing: 1})},
		{"cpu: cross-entropy forward: reduction is 3, it needs to be MeanReduction, SumReduction or NoReduction", forward(good, kernels.CrossEntropyOptions{Reduction: 3})},
		{"cpu: cross-entropy backward: lse is missing, it needs shape [2]",
			b.CrossEntropyBackward(&kernels.CrossEntropy{Logits: x, Targets: good}, kernels.CrossEntropyGradients{DLogits: x})},
		{"cpu: linear cross-entropy: weight has shape [3 2] and strides [2 1], it needs two axes (vocabulary, hidden's 3 features)",
			linear(kernels.Of(make([]float32, 6), 3, 2), kernels.LinearCrossEntropyOutputs{Loss: loss})},
		{"cpu: linear cross-entropy: dWeight has shape [3 2] and strides [2 1], it needs shape [2 3]",
			linear(x, kernels.LinearCrossEntropyOutputs{Loss: loss, DWeight: kernels.Of(make([]float32, 6), 3, 2)})},
	})
}

// An offset that all logits of a row have in common changes neither loss nor gradient, however
// large it is. The logits are what float32 makes of them there; of these the results are as exact
// as anywhere.
func TestCrossEntropyFarFromZero(t *testing.T) {
	const rows, vocabulary = 5, 6000
	targets := []int{0, 17, 5999, 4096, 300}
	for _, offset := range []float32{1e3, -1e3, 1e6, -1e6, 1e8, 1e12} {
		r := newRandom()
		logits, dLogits := newField[float32](r, 0, rows, vocabulary), newField[float32](r, 0, rows, vocabulary)
		logits.each(func(at *float32) { *at = *at*3 + offset })
		loss, lse := newField[float32](r, 0), newField[float32](r, 0, rows)
		c := &kernels.CrossEntropy{Logits: logits.Tensor, Targets: int32s(targets, rows)}
		c.LabelSmoothing = 0.1
		refLoss, _, refD := reference.CrossEntropy(c, 1.0)
		verify[float32](t, fmt.Sprint("offset=", offset), func(b *cpu.Backend) ([]result, error) {
			if err := b.CrossEntropyForward(c, kernels.CrossEntropyOutputs{Loss: loss.Tensor, LSE: lse.Tensor}); err != nil {
				return nil, err
			}
			err := b.CrossEntropyBackward(c, kernels.CrossEntropyGradients{LSE: lse.Tensor, DLogits: dLogits.Tensor})
			// An unfused program has no digits left here.
			ref := []float64{refLoss}
			return []result{{name: "loss", got: loss.values(), ref: ref, pt: ref, steps: 4},
				{name: "dLogits", got: dLogits.values(), ref: refD, pt: refD, steps: 32}}, err
		})
	}
}
