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

// withLast is a shape with another last axis.
func withLast(shape []int, n int) []int {
	return append(slices.Clone(shape[:len(shape)-1]), n)
}

func TestTopK(t *testing.T) { bothTypes(t, testTopK[float32], testTopK[float64]) }

func testTopK[T kernels.Float](t *testing.T) {
	shapes := fieldShapes()
	for _, long := range [][]int{{3, 700}, {2, 5000}} {
		s := shapes[0]
		s.gap, s.shape = 3, long
		shapes = append(shapes, s)
	}
	for i := range 2 * len(shapes) {
		if slow.Racing() && i%3 > 0 {
			continue
		}
		s, odd := shapes[i/2], 50
		if i%2 == 1 {
			odd = math.MaxInt // rows of numbers
		}
		r := newRandom()
		x := newField[T](r, s.gap, s.shape...)
		x.each(func(at *T) {
			switch *at = T(math.Round(4 * float64(*at))); r.IntN(odd) { // equal elements, and some that are no numbers
			case 0:
				*at = T(math.NaN())
			case 1:
				*at = T(math.Inf(1 - 2*r.IntN(2)))
			}
		})
		length := s.shape[len(s.shape)-1]
		for _, k := range []int{1, 2, 5, 32, 33, length} {
			if k > length {
				continue
			}
			values, shape := newField[T](r, s.gap, withLast(s.shape, k)...), withLast(s.shape, k)
			want, wantIDs := reference.TopK[float64](x.Tensor, k)
			for _, ids := range []kernels.Tensor{int32s(make([]int, len(wantIDs)), shape...), int64s(make([]int, len(wantIDs)), shape...)} {
				verify[T](t, fmt.Sprintf("k=%d %s", k, name(s.shape, s.gap)), func(b *cpu.Backend) ([]result, error) {
					err := b.TopK(x.Tensor, values.Tensor, ids)
					for i, id := range wantIDs {
						at := ids
						at.Shape, at.Strides = []int{len(wantIDs)}, []int{1}
						if got := int(kernels.HostElement(at, i)); got != id {
							t.Fatalf("k=%d shape=%v: index %d is %d, want %d", k, s.shape, i, got, id)
						}
					}
					return []result{resultOf("values", values, want, slices.Clone(values.typed()))}, err
				})
			}
		}
	}
}

func TestGatherAndScatter(t *testing.T) {
	bothTypes(t, testGatherAndScatter[float32], testGatherAndScatter[float64])
}

func testGatherAndScatter[T kernels.Float](t *testing.T) {
	for _, s := range fieldShapes() {
		for _, k := range []int{0, 1, 3, 200} {
			r := newRandom()
			length, shape := s.shape[len(s.shape)-1], withLast(s.shape, k)
			x, y := newField[T](r, s.gap, s.shape...), newField[T](r, s.gap, s.shape...)
			few, picked := newField[T](r, s.gap, shape...), newField[T](r, s.gap, shape...)
			list := make([]int, few.Elements())
			for i := range list {
				list[i] = min(r.IntN(length), r.IntN(length))
			}
			for _, ids := range []kernels.Tensor{int32s(list, shape...), int64s(list, shape...)} {
				want, plain := reference.Gather[float64](x.Tensor, ids), reference.Gather[T](x.Tensor, ids)
				wantY, plainY := reference.Scatter(few.values(), ids, length), reference.Scatter(few.typed(), ids, length)
				if k == 0 { // the reference takes the rows from the indices
					wantY, plainY = make([]float64, y.Elements()), make([]T, y.Elements())
				}
				verify[T](t, fmt.Sprintf("k=%d %s", k, name(s.shape, s.gap)), func(b *cpu.Backend) ([]result, error) {
					if err := b.Gather(x.Tensor, ids, picked.Tensor); err != nil {
						return nil, err
					}
					err := b.Scatter(few.Tensor, ids, y.Tensor)
					return []result{resultOf("picked", picked, want, plain), resultOf("y", y, wantY, plainY)}, err
				})
			}
		}
	}
}

func TestIndexedErrors(t *testing.T) {
	b, x, two := cpu.New(), kernels.Of(make([]float32, 6), 2, 3), kernels.Of(make([]float32, 4), 2, 2)
	ids := int32s([]int{0, 1, 3, 0}, 2, 2)
	checkErrors(t, []errorCase{
		{"cpu: top-k: k is 4, it needs to be from 1 to 3: x has shape [2 3]", b.TopK(x, kernels.Of(make([]float32, 8), 2, 4), ids)},
		{"cpu: top-k: k is 0, it needs to be from 1 to 3: x has shape [2 3]", b.TopK(x, kernels.Tensor{}, ids)},
		{"cpu: top-k: ids is float32, it needs to be int32 or int64", b.TopK(x, two, two)},
		{"cpu: gather: ids[1 0] is 3, it needs to be from 0 to 2", b.Gather(x, ids, two)},
		{"cpu: scatter: ids[1 0] is 3, it needs to be from 0 to 2", b.Scatter(two, ids, x)},
		{"cpu: gather: ids has shape [4], it needs those axes of x, [2 3], but for the last", b.Gather(x, int32s(make([]int, 4), 4), two)},
		{"cpu: scatter: x is missing, it needs shape [2 2]", b.Scatter(kernels.Tensor{}, ids, x)},
	})
}
