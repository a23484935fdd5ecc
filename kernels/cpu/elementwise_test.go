package cpu_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
	"pgregory.net/rapid"
)

func TestAdd(t *testing.T) { bothTypes(t, testAdd[float32], testAdd[float64]) }

func testAdd[T kernels.Float](t *testing.T) {
	for _, s := range fieldShapes() {
		r := newRandom()
		x, y, sum := newField[T](r, s.gap, s.shape...), newField[T](r, 0, s.shape...), newField[T](r, 2*s.gap, s.shape...)
		if x.Elements() > 0 {
			x.memory[0] = T(math.Inf(1))
		}
		want := reference.Add[T](x.Tensor, y.Tensor)
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			err := b.Add(x.Tensor, y.Tensor, sum.Tensor)
			return []result{resultOf("c", sum, widened(want), want)}, err
		})
	}
}

// What has 16 bits is added to float32 as it is, as views and in place too.
func TestAddToWide(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
		for _, columns := range []int{1, 6, 64} {
			x, y := make([]float64, 3*columns), make([]float64, 3*columns)
			for i := range x {
				x[i], y[i] = float64(i%5)+1e-3, float64(i%9)
			}
			a, b := tensorOf(t, kernels.F32, x, 3, columns), tensorOf(t, dtype, y, 3, columns)
			into := a.Slice(0, 1, 3)
			if err := cpu.New().Add(into, b.Slice(0, 0, 2), into); err != nil {
				t.Fatal(err)
			}
			for i, got := range numbersOf(t, a) {
				want := float32(x[i])
				if i >= columns {
					want += float32(y[i-columns])
				}
				if got != float64(want) {
					t.Fatalf("%v, %d columns: element %d is %v, want %v", dtype, columns, i, got, want)
				}
			}
		}
	}
	half, single := tensorOf(t, kernels.BF16, []float64{1}, 1), tensorOf(t, kernels.F32, []float64{1}, 1)
	err := cpu.New().Add(half, single, half)
	if err == nil || !strings.Contains(err.Error(), "b is float32, it needs to be bfloat16") {
		t.Errorf("float32 added to bfloat16: %v", err)
	}
}

// Lists of tensors of many sizes are added in one call, to the bits of additions of their own.
func TestAccumulate(t *testing.T) {
	var sums, x, want []kernels.Tensor
	for i, n := range []int{0, 1, 5, 4096, 40001} {
		a, b := make([]float64, n), make([]float64, n)
		for j := range n {
			a[j], b[j] = math.Sin(float64(i+j)), math.Cos(float64(i-7*j))
		}
		sums, x = append(sums, tensorOf(t, kernels.F32, a, n)), append(x, tensorOf(t, kernels.F32, b, n))
		want = append(want, tensorOf(t, kernels.F32, a, n))
		if err := cpu.New().Add(want[i], x[i], want[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := cpu.New().Accumulate(sums, x); err != nil {
		t.Fatal(err)
	}
	for i := range sums {
		if !slices.Equal(numbersOf(t, sums[i]), numbersOf(t, want[i])) {
			t.Errorf("%d elements: other bits than Add gives", sums[i].Elements())
		}
	}
	err := cpu.New().Accumulate(sums, x[1:])
	if err == nil || !strings.Contains(err.Error(), "x has 4 tensors, it needs one for each of the 5 of sums") {
		t.Errorf("lists of two lengths: %v", err)
	}
}

func TestDropout(t *testing.T) { bothTypes(t, testDropout[float32], testDropout[float64]) }

func testDropout[T kernels.Float](t *testing.T) {
	for i, s := range fieldShapes() {
		r := newRandom()
		x, y := newField[T](r, s.gap, s.shape...), newField[T](r, 2*s.gap, s.shape...)
		d := kernels.Dropout{P: []float64{0.1, 0.7, 0}[i%3], Seed: 1 << 40, Step: 5}
		want := reference.Dropout[T](d, x.Tensor)
		verify[T](t, fmt.Sprint(d, " ", name(s.shape, s.gap)), func(b *cpu.Backend) ([]result, error) {
			err := b.Dropout(d, x.Tensor, y.Tensor)
			return []result{resultOf("y", y, widened(want), want)}, err
		})
	}
}

// Dropped in place, ones keep a mean of one.
func TestDropoutKeepsTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rows, columns = 50, 401
		d := kernels.Dropout{P: rapid.Float64Range(0.01, 0.9).Draw(t, "p"), Seed: rapid.Uint64().Draw(t, "seed")}
		x := newField[float64](newRandom(), 0, rows, columns)
		x.each(func(at *float64) { *at = 1 })
		if err := cpu.New().Dropout(d, x.Tensor, x.Tensor); err != nil {
			t.Fatal(err)
		}
		var mean float64
		for _, v := range x.memory {
			mean += v / (rows * columns)
		}
		if deviation := math.Sqrt(d.P / (1 - d.P) / (rows * columns)); !(math.Abs(mean-1) <= 6*deviation) {
			t.Fatalf("the mean is %v, it needs to be within %v of 1", mean, 6*deviation)
		}
	})
}

func TestReduce(t *testing.T) { bothTypes(t, testReduce[float32], testReduce[float64]) }

func testReduce[T kernels.Float](t *testing.T) {
	for _, s := range fieldShapes() {
		r := newRandom()
		x, sum, mean, broadcast := newField[T](r, s.gap, s.shape...), newField[T](r, 0), newField[T](r, 0), newField[T](r, s.gap, s.shape...)
		want := reference.Sum[float64](x.Tensor)
		n := float64(x.Elements())
		verify[T](t, name(s.shape, s.gap), func(b *cpu.Backend) ([]result, error) {
			if err := b.Sum(x.Tensor, sum.Tensor); err != nil {
				return nil, err
			}
			if err := b.Mean(x.Tensor, mean.Tensor); err != nil {
				return nil, err
			}
			err := b.Broadcast(sum.Tensor, 2, broadcast.Tensor)
			all := make([]T, x.Elements())
			for i := range all {
				all[i] = 2 * sum.memory[0]
			}
			return []result{{name: "sum", got: sum.values(), ref: []float64{want}, pt: []float64{want}},
				{name: "mean", got: mean.values(), ref: []float64{want / n}, pt: []float64{want / n}}, resultOf("broadcast", broadcast, widened(all), all)}, err
		})
	}
}

// Ten million equal numbers in float32, of which a running sum loses the last third.
func TestSumIsExact(t *testing.T) {
	const n = 10_000_019
	x, sum := make([]float32, n), make([]float32, 1)
	for i := range x {
		x[i] = 0.1
	}
	if err := cpu.New().Sum(kernels.Of(x, n), kernels.Of(sum)); err != nil {
		t.Fatal(err)
	}
	if want := float32(n * float64(float32(0.1))); sum[0] != want {
		t.Errorf("the sum is %v, it needs to be %v", sum[0], want)
	}
}

func TestSumOfInfinities(t *testing.T) {
	sum := make([]float64, 1)
	for _, c := range []struct{ x, want float64 }{{math.Inf(1), math.Inf(1)}, {math.Inf(-1), math.Inf(-1)}, {math.NaN(), math.NaN()}} {
		x := make([]float64, 5000)
		x[7] = c.x
		if err := cpu.New().Sum(kernels.Of(x, 5000), kernels.Of(sum)); err != nil {
			t.Fatal(err)
		}
		if sum[0] != c.want && !(math.IsNaN(sum[0]) && math.IsNaN(c.want)) {
			t.Errorf("the sum with a %v is %v", c.x, sum[0])
		}
	}
}

func TestElementwiseErrors(t *testing.T) {
	b, x := cpu.New(), kernels.Of(make([]float32, 6), 2, 3)
	checkErrors(t, []errorCase{
		{"cpu: add: b has shape [6] and strides [1], it needs shape [2 3]", b.Add(x, kernels.Of(make([]float32, 6), 6), x)},
		{"cpu: add: c is missing, it needs shape [2 3]", b.Add(x, x, kernels.Tensor{})},
		{"cpu: add: a is missing", b.Add(kernels.Tensor{}, x, x)},
		{"cpu: dropout: dropout is 1, it needs to be in [0, 1)", b.Dropout(kernels.Dropout{P: 1}, x, x)},
		{"cpu: dropout: y is missing, it needs shape [2 3]", b.Dropout(kernels.Dropout{}, x, kernels.Tensor{})},
		{"cpu: sum: out has shape [2 3] and strides [3 1], it needs shape []", b.Sum(x, x)},
		{"cpu: mean: out is missing, it needs shape []", b.Mean(x, kernels.Tensor{})},
		{"cpu: broadcast: factor is NaN, it needs to be a number", b.Broadcast(kernels.Of(make([]float32, 1)), math.NaN(), x)},
	})
}

// Rows of a tensor that say which they are lose what they lose in the whole.
func TestDropoutOfLaterRows(t *testing.T) {
	const rows, columns, first = 20, 21, 13
	whole, part := make([]float32, rows*columns), make([]float32, (rows-first)*columns)
	for i := range whole {
		whole[i] = 1
	}
	copy(part, whole)
	d := kernels.Dropout{P: 0.4, Seed: 3, Step: 5}
	if err := cpu.New().Dropout(d, kernels.Of(whole, rows, columns), kernels.Of(whole, rows, columns)); err != nil {
		t.Fatal(err)
	}
	d.Row = first
	if err := cpu.New().Dropout(d, kernels.Of(part, rows-first, columns), kernels.Of(part, rows-first, columns)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(part, whole[first*columns:]) {
		t.Error("they lose other elements")
	}
	d.Row = -1
	if err := cpu.New().Dropout(d, kernels.Of(part, 1, 1), kernels.Of(part, 1, 1)); err == nil || !strings.Contains(err.Error(), "dropout begins at row -1") {
		t.Errorf("a negative row: %v", err)
	}
}
