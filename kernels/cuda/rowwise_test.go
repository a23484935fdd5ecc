//go:build gpu

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// rowwiseTest is a case of a kernel that goes row by row.
type rowwiseTest struct {
	*testing.T
	d      *cuda.Device
	random *rand.Rand
	name   string
}

// field is a tensor of the device in memory of its own, whose rows may have gaps between them. Gaps
// hold NaN, and so does a field whose values were not written.
type field struct {
	kernels.Tensor
	memory kernels.Tensor // all of it, gaps included
	host   kernels.Tensor // float64 of the field's shape: the values that were written, rounded to its dtype
}

// newRowwiseTest names a case; its numbers depend on the name alone.
func newRowwiseTest(t *testing.T, format string, arguments ...any) *rowwiseTest {
	name := fmt.Sprintf(format, arguments...)
	seed := uint64(1)
	for _, c := range name {
		seed = seed*31 + uint64(c)
	}
	return &rowwiseTest{t, device(t), rand.New(rand.NewPCG(seed, 0)), name}
}

// empty makes a field of NaN, with gap elements behind each row and twice as many behind each index
// of the first axis.
func (r *rowwiseTest) empty(dtype kernels.DType, gap int, shape ...int) field {
	r.Helper()
	strides, stride := make([]int, len(shape)), 1
	for axis := len(shape) - 1; axis >= 0; axis-- {
		strides[axis] = stride
		stride *= shape[axis]
		if axis > 0 && (axis == len(shape)-1 || axis == 1) {
			stride += gap
		}
	}
	memory := alloc(r.T, r.d, dtype, stride)
	r.must(r.d.Fill(memory, math.NaN()))
	return field{
		Tensor: kernels.Tensor{Data: memory.Data, DType: dtype, Shape: slices.Clone(shape), Strides: strides, Owner: memory.Owner},
		memory: memory, host: hostTensor(kernels.F64, shape...),
	}
}

// filled makes a field of what each call of next returns.
func (r *rowwiseTest) filled(dtype kernels.DType, gap int, next func() float64, shape ...int) field {
	r.Helper()
	f := r.empty(dtype, gap, shape...)
	list := kernels.Host[float64](f.host)
	for i := range list {
		list[i] = roundedTo(dtype, next())
	}
	r.must(r.d.Copy(f.Tensor, f.host))
	return f
}

// normals makes a field of normal random numbers.
func (r *rowwiseTest) normals(dtype kernels.DType, gap int, shape ...int) field {
	r.Helper()
	return r.filled(dtype, gap, r.random.NormFloat64, shape...)
}

func (r *rowwiseTest) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatalf("%s: %v", r.name, err)
	}
}

// values is what a field holds now.
func (r *rowwiseTest) values(f field) []float64 {
	r.Helper()
	host := hostTensor(kernels.F64, f.Shape...)
	r.must(r.d.Copy(host, f.Tensor))
	return kernels.Host[float64](host)
}

// host is the values that were written into a field.
func (f field) values() []float64 { return kernels.Host[float64](f.host) }

// check compares a field with the reference in float64, and with the same formula computed in
// float32 and rounded once to the field's dtype: the field may have twice the error of that. Gaps
// must still hold NaN.
func (r *rowwiseTest) check(what string, f field, ref []float64, plain []float32) {
	r.Helper()
	r.checkSum(what, f, ref, plain, 0)
}

// checkSum is check for sums whose terms, of up to a size, may cancel: the field may also have half
// a unit in the last place of a term's float32.
func (r *rowwiseTest) checkSum(what string, f field, ref []float64, plain []float32, terms float64) {
	r.Helper()
	got := r.values(f)
	if len(got) != len(ref) || len(plain) != len(ref) {
		r.Fatalf("%s: %s has %d elements, the reference has %d and %d", r.name, what, len(got), len(ref), len(plain))
	}
	var worst, worstPlain, largest float64
	at := 0
	for i, want := range ref {
		if math.IsNaN(want) != math.IsNaN(got[i]) {
			r.Errorf("%s: %s[%d] is %v, it needs to be %v", r.name, what, i, got[i], want)
			return
		}
		if math.IsNaN(want) || want == got[i] {
			continue
		}
		if e := math.Abs(got[i] - want); !(e <= worst) {
			worst, at = e, i
		}
		largest = max(largest, math.Abs(want))
	}
	for i, want := range ref {
		if e := math.Abs(roundedTo(f.DType, float64(plain[i])) - want); e > worstPlain {
			worstPlain = e
		}
	}
	if bound := 2*worstPlain + 1e-6*largest + terms/(1<<24); !(worst <= bound) {
		r.Errorf("%s: %s[%d] is %.9g, it needs to be %.9g: error %.3g, at most %.3g (of the plain formula %.3g, largest value %.3g)",
			r.name, what, at, got[at], ref[at], worst, bound, worstPlain, largest)
	}
	r.checkGaps(what, f)
}

// checkGaps makes sure that nothing was written between the rows.
func (r *rowwiseTest) checkGaps(what string, f field) {
	r.Helper()
	host := hostTensor(kernels.F64, f.memory.Shape...)
	r.must(r.d.Copy(host, f.memory))
	untouched := 0
	for _, x := range kernels.Host[float64](host) {
		if math.IsNaN(x) {
			untouched++
		}
	}
	inside := 0
	for _, x := range r.values(f) {
		if math.IsNaN(x) {
			inside++
		}
	}
	if gaps := f.memory.Elements() - f.Elements(); untouched-inside != gaps {
		r.Errorf("%s: of %s, %d of the %d elements between the rows were written", r.name, what, gaps-untouched+inside, gaps)
	}
}

// checkSame makes sure that a field holds the same bits as before.
func (r *rowwiseTest) checkSame(what string, f field, before []float64) {
	r.Helper()
	same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	if !slices.EqualFunc(r.values(f), before, same) {
		r.Errorf("%s: %s is not what the first call computed", r.name, what)
	}
}

// greatest is the greatest magnitude in a list.
func greatest(list []float64) float64 {
	most := 0.0
	for _, x := range list {
		most = max(most, math.Abs(x))
	}
	return most
}

// halfAndFull are the dtypes of rows.
var halfAndFull = []kernels.DType{kernels.F32, kernels.BF16, kernels.F16}

// parameterTypes are the dtypes that parameters may have beside rows of a dtype.
func parameterTypes(dtype kernels.DType) []kernels.DType {
	if dtype == kernels.F32 {
		return []kernels.DType{dtype}
	}
	return []kernels.DType{dtype, kernels.F32}
}

// fieldShapes are shapes for kernels that go row by row, with gaps between rows or none: ones,
// primes, whole pieces of 16 bytes, rows longer than a block holds, many rows, and nothing at all.
var fieldShapes = []struct {
	gap   int
	shape []int
}{
	{0, []int{1}}, {0, []int{7}}, {0, []int{1, 1}}, {3, []int{5, 1}}, {0, []int{2, 3, 17}}, {5, []int{2, 3, 33}}, {8, []int{2, 5, 64}},
	{0, []int{89, 768}}, {0, []int{19, 769}}, {8, []int{3, 41, 768}}, {4, []int{3, 7, 776}}, {0, []int{5000, 64}}, {0, []int{5, 3072}}, {0, []int{600, 4096}},
	{0, []int{3, 16384}}, {16, []int{2, 4, 33024}}, {1, []int{2, 33001}}, {0, []int{0, 5}},
}
