package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// field is a tensor in memory of its own, whose rows may have gaps between them; the gaps hold
// canaries.
type field[T kernels.Float] struct {
	kernels.Tensor
	memory []T
}

const canary = -7654321

// newField makes a tensor of random numbers, with gap elements behind each row and twice as many
// behind each index of the first axis.
func newField[T kernels.Float](r *rand.Rand, gap int, shape ...int) field[T] {
	strides, stride := make([]int, len(shape)), 1
	for axis := len(shape) - 1; axis >= 0; axis-- {
		strides[axis] = stride
		stride *= shape[axis]
		if axis > 0 && (axis == len(shape)-1 || axis == 1) {
			stride += gap
		}
	}
	f := field[T]{memory: make([]T, stride)}
	for i := range f.memory {
		f.memory[i] = canary
	}
	f.Tensor = kernels.Of(f.memory, len(f.memory))
	f.Shape, f.Strides = slices.Clone(shape), strides
	f.each(func(at *T) { *at = T(r.NormFloat64()) })
	return f
}

// each goes through the elements in row-major order.
func (f field[T]) each(do func(at *T)) {
	for i := range f.Elements() {
		offset := 0
		for axis := len(f.Shape) - 1; axis >= 0; axis-- {
			offset += i % f.Shape[axis] * f.Strides[axis]
			i /= f.Shape[axis]
		}
		do(&f.memory[offset])
	}
}

func (f field[T]) values() []float64 {
	var list []float64
	f.each(func(at *T) { list = append(list, float64(*at)) })
	return list
}

func (f field[T]) typed() []T {
	var list []T
	f.each(func(at *T) { list = append(list, *at) })
	return list
}

// checkGaps makes sure that nothing was written between the rows.
func (f field[T]) checkGaps() error {
	inside := 0
	for _, v := range f.memory {
		if v == canary {
			inside++
		}
	}
	if gaps := len(f.memory) - f.Elements(); inside != gaps {
		return fmt.Errorf("%d of the %d elements between the rows were written", gaps-inside, gaps)
	}
	return nil
}

// result is an output beside what it should be: in float64, and as the reference's loops compute it
// in the kernel's own precision.
type result struct {
	name    string
	got     []float64
	ref, pt []float64
	gaps    error
	steps   float64 // of float32 that an error may have beyond pt's, of the largest element; 0 means the usual
	terms   float64 // how large the terms of a sum are that may cancel, whose steps then count
}

func resultOf[T kernels.Float](name string, f field[T], ref []float64, pt []T) result {
	return result{name: name, got: f.values(), ref: ref, pt: widened(pt), gaps: f.checkGaps()}
}

func widened[T kernels.Float](list []T) []float64 {
	wide := make([]float64, len(list))
	for i, v := range list {
		wide[i] = float64(v)
	}
	return wide
}

// verify runs a kernel at every level (in short tests, such as those for races, at one), on one
// thread and on more. Results must be near the reference: in float32 the largest error is at most
// twice pt's and one step of the largest element, in float64 1e-12 of that; NaN where it is NaN;
// and bit-equal for any number of threads.
func verify[T kernels.Float](t *testing.T, what string, compute func(b *cpu.Backend) ([]result, error)) {
	t.Helper()
	for _, level := range levels() {
		restore := simd.SetLevel(level)
		var single []result
		for _, threads := range []int{1, 3} {
			what := fmt.Sprintf("%s %v %v threads=%d", what, kernels.DTypeOf[T](), level, threads)
			results, err := compute(&cpu.Backend{Threads: threads})
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if threads > 1 {
				for i, r := range results {
					if !slices.EqualFunc(r.got, single[i].got, sameBits) {
						t.Errorf("%s: %s is not what one thread computes", what, r.name)
					}
				}
				continue
			}
			single = results
			for _, r := range results {
				if err := r.check(kernels.DTypeOf[T]()); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		restore()
	}
}

// float32Step is the distance from 1 to the next larger float32.
const float32Step = 1.0 / (1 << 23)

func sameBits(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

func (r result) check(dtype kernels.DType) error {
	if len(r.got) != len(r.ref) {
		return fmt.Errorf("%s has %d elements, it needs %d", r.name, len(r.got), len(r.ref))
	}
	var worst, worstPt, largest float64
	at := 0
	for i, want := range r.ref {
		if math.IsNaN(want) != math.IsNaN(r.got[i]) {
			return fmt.Errorf("%s[%d] is %v instead of %v", r.name, i, r.got[i], want)
		}
		if want == r.got[i] || math.IsNaN(want) {
			continue
		}
		if e := math.Abs(r.got[i] - want); e > worst {
			worst, at = e, i
		}
		if e := math.Abs(r.pt[i] - want); e > worstPt {
			worstPt = e
		}
		largest = max(largest, math.Abs(want))
	}
	steps := r.steps
	if steps == 0 {
		if steps = 1; len(r.ref) < 64 {
			steps = 4 // the largest of few errors is a matter of luck
		}
	}
	bound := 2*worstPt + steps*float32Step*max(largest, r.terms)
	if dtype == kernels.F64 {
		bound = 1e-12*largest + 1e-14
	}
	if !(worst <= bound) {
		return fmt.Errorf("%s[%d] is %.9g instead of %.9g: error %.3g, bound %.3g (unfused %.3g, largest %.3g)",
			r.name, at, r.got[at], r.ref[at], worst, bound, worstPt, largest)
	}
	return r.gaps
}

// bothTypes runs a test in both element types.
func bothTypes(t *testing.T, single, double func(t *testing.T)) {
	t.Run("float32", single)
	t.Run("float64", double)
}

// fieldShapes are shapes for kernels that go row by row, with gaps between rows or none: ones,
// primes, more than one task, rows longer than a task, and nothing at all. With -short they are
// every second of them.
func fieldShapes() (list []fieldShape) {
	for n, s := range []fieldShape{
		{0, []int{7}}, {0, []int{1}}, {0, []int{1, 1}}, {3, []int{5, 1}}, {5, []int{2, 3, 33}}, {0, []int{2, 3, 17}},
		{0, []int{89, 769}}, {2, []int{3, 41, 60}}, {0, []int{16411}}, {1, []int{2, 33001}}, {0, []int{0, 5}},
	} {
		if !testing.Short() || n%2 == 0 {
			list = append(list, s)
		}
	}
	return list
}

type fieldShape struct {
	gap   int
	shape []int
}

func name(shape []int, gap int) string {
	return fmt.Sprintf("shape=%v gap=%d seed=%d", shape, gap, rowwiseSeed)
}

const rowwiseSeed = 11

func newRandom() *rand.Rand { return rand.New(rand.NewPCG(rowwiseSeed, 0)) }

// shapeOnly describes a row-major tensor without data.
func shapeOnly(shape ...int) kernels.Tensor { return kernels.Contiguous(nil, kernels.F32, shape...) }

// errorCase is a call that must fail with exactly this message.
type errorCase struct {
	want string
	err  error
}

func checkErrors(t *testing.T, cases []errorCase) {
	t.Helper()
	for _, c := range cases {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("the error is %v, it needs to be: %s", c.err, c.want)
		}
	}
}
