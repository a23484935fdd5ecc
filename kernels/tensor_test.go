package kernels_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"pgregory.net/rapid"
)

// count is 0, 1, 2, ...: every element of a tensor over it is its own position.
func count(n int) []float64 {
	data := make([]float64, n)
	for i := range data {
		data[i] = float64(i)
	}
	return data
}

// at reads one element.
func at(t kernels.Tensor, index ...int) int { return int(kernels.Host[float64](t)[t.Offset(index...)]) }

func TestViews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5)
		a, b, c := size.Draw(t, "a"), size.Draw(t, "b"), size.Draw(t, "c")
		x := kernels.Of(count(a*b*c), a, b, c)
		i, j, k := rapid.IntRange(0, a-1).Draw(t, "i"), rapid.IntRange(0, b-1).Draw(t, "j"), rapid.IntRange(0, c-1).Draw(t, "k")
		want := (i*b+j)*c + k
		check := func(name string, view kernels.Tensor, shape []int, index ...int) {
			if !slices.Equal(view.Shape, shape) {
				t.Fatalf("%s has shape %v instead of %v", name, view.Shape, shape)
			}
			if got := at(view, index...); got != want {
				t.Fatalf("%s%v is element %d instead of %d", name, index, got, want)
			}
		}
		check("the tensor", x, []int{a, b, c}, i, j, k)
		check("Permute", x.Permute(2, 0, 1), []int{c, a, b}, k, i, j)
		from, to := rapid.IntRange(0, j).Draw(t, "from"), rapid.IntRange(j+1, b).Draw(t, "to")
		check("Slice", x.Slice(1, from, to), []int{a, to - from, c}, i, j-from, k)
		check("Slice of Permute", x.Permute(1, 2, 0).Slice(0, from, to), []int{to - from, c, a}, j-from, k, i)
		flat := kernels.Of(count(a*b*c), a, b*c)
		check("Unflatten", flat.Unflatten(1, c), []int{a, b, c}, i, j, k)
		check("Unflatten of the first axis", kernels.Of(count(a*b*c), a*b, c).Unflatten(0, b), []int{a, b, c}, i, j, k)
		if x.Elements() != a*b*c || x.Offset() != 0 || !x.IsSet() {
			t.Fatalf("%v has %d elements", x.Shape, x.Elements())
		}
	})
}

// The parts of a packed projection (B, S, (Hq+2Hk)·D) are views, and writing one leaves the others
// alone.
func TestPackedProjection(t *testing.T) {
	const batch, length, heads, keyHeads, d = 2, 3, 4, 2, 5
	qkv := kernels.Of(count(batch*length*(heads+2*keyHeads)*d), batch, length, (heads+2*keyHeads)*d)
	k := qkv.Slice(2, heads*d, (heads+keyHeads)*d).Unflatten(2, d).Permute(0, 2, 1, 3)
	if want := []int{batch, keyHeads, length, d}; !slices.Equal(k.Shape, want) {
		t.Fatalf("k has shape %v instead of %v", k.Shape, want)
	}
	if got, want := at(k, 1, 1, 2, 3), ((1*length+2)*(heads+2*keyHeads)+heads+1)*d+3; got != want {
		t.Errorf("k[1 1 2 3] is element %d instead of %d", got, want)
	}
	if last := len(kernels.Host[float64](k)); last != at(k, 1, 1, 2, 4)-at(k, 0, 0, 0, 0)+1 {
		t.Errorf("k's memory is %d elements long, it needs to end with its last element", last)
	}
}

// Views share neither shape nor strides with what they view.
func TestViewsAreIndependent(t *testing.T) {
	x := kernels.Of(count(24), 2, 3, 4)
	for name, view := range map[string]kernels.Tensor{"Permute": x.Permute(0, 1, 2), "Slice": x.Slice(0, 0, 1), "Unflatten": x.Unflatten(2, 2)} {
		view.Shape[0], view.Strides[0] = 77, 77
		if x.Shape[0] != 2 || x.Strides[0] != 12 {
			t.Fatalf("changing %s changed the tensor to shape %v, strides %v", name, x.Shape, x.Strides)
		}
	}
}

func TestTensorWithoutData(t *testing.T) {
	x := kernels.Contiguous(nil, kernels.F32, 2, 3).Slice(1, 1, 3)
	if x.Data != nil || kernels.Host[float32](x) != nil {
		t.Error("a tensor without data got some from Slice")
	}
	if empty := kernels.Of(count(4), 2, 0, 3); kernels.Host[float64](empty) != nil {
		t.Error("a tensor without elements has memory")
	}
	if (kernels.Tensor{}).IsSet() {
		t.Error("the zero tensor counts as given")
	}
}

func TestOfRefusesTooLittleData(t *testing.T) {
	defer func() {
		if got, want := recover(), "kernels.Of: shape [2 3] needs 6 elements, data has 5"; got != want {
			t.Errorf("the panic is %v, it needs to be %s", got, want)
		}
	}()
	kernels.Of(count(5), 2, 3)
}

// Shapes whose product is more than an int counts, one of them a product of 2⁶⁴, are no shapes of
// few elements.
func TestElementsDoNotOverflow(t *testing.T) {
	const half = 1 << 32
	for want, shapes := range map[int][][]int{
		math.MaxInt: {{half, half}, {half, half, 3}, {3, half, half, half}, {math.MaxInt, 2}, {math.MaxInt}},
		0:           {{half, half, 0}, {0}}, 6: {{1, 2, 3}}, 1: {{}},
	} {
		for _, shape := range shapes {
			if got := (kernels.Tensor{Shape: shape}).Elements(); got != want {
				t.Errorf("shape %v has %d elements, want %d", shape, got, want)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Of takes no data for 2⁶⁴ elements")
		}
	}()
	kernels.Of([]float32{}, half, half)
}

func TestDType(t *testing.T) {
	for _, c := range []struct {
		d    kernels.DType
		name string
		size int
	}{
		{kernels.NoDType, "no dtype", 0}, {kernels.F32, "float32", 4}, {kernels.F64, "float64", 8},
		{kernels.BF16, "bfloat16", 2}, {kernels.F16, "float16", 2},
		{kernels.I32, "int32", 4}, {kernels.I64, "int64", 8}, {99, "DType(99)", 0},
	} {
		if c.d.String() != c.name || c.d.Size() != c.size {
			t.Errorf("%v has %d bytes, it needs to be %s with %d", c.d, c.d.Size(), c.name, c.size)
		}
	}
	if kernels.DTypeOf[float32]() != kernels.F32 || kernels.DTypeOf[float64]() != kernels.F64 {
		t.Errorf("DTypeOf gives %v and %v", kernels.DTypeOf[float32](), kernels.DTypeOf[float64]())
	}
	if kernels.DTypeOf[int32]() != kernels.I32 || kernels.DTypeOf[int64]() != kernels.I64 {
		t.Errorf("DTypeOf gives %v and %v", kernels.DTypeOf[int32](), kernels.DTypeOf[int64]())
	}
}

// TestOfRefusesShapes checks that no shape claims more than there is.
func TestOfRefusesShapes(t *testing.T) {
	for _, shape := range [][]int{{5}, {2, 3}, {-1, -4}, {-2, 2}, {math.MaxInt, 2}, {math.MaxInt, math.MaxInt}, {1 << 33, 1 << 33}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("4 elements have become a tensor of shape %v", shape)
				}
			}()
			kernels.Of(make([]float32, 4), shape...)
		}()
	}
}
