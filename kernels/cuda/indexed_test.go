//go:build gpu

package cuda_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// The largest elements of short rows and long ones: drawn, with equal elements and NaN among them,
// all equal, in order, and so many of them in what a few lanes have that no warp keeps them all.
func TestTopK(t *testing.T) {
	type row struct {
		name string
		at   func(r *rowwiseTest, i int) float64
	}
	rows := []row{
		{"drawn", func(r *rowwiseTest, i int) float64 {
			if r.random.IntN(60) == 0 {
				return math.NaN()
			}
			return math.Round(3 * r.random.NormFloat64())
		}},
		{"numbers", func(r *rowwiseTest, i int) float64 { return r.random.NormFloat64() }},
		{"equal", func(*rowwiseTest, int) float64 { return math.Copysign(0, -1) }},
		{"infinite", func(r *rowwiseTest, i int) float64 { return math.Inf(1 - 2*min(1, r.random.IntN(9))) }},
		{"ascending", func(_ *rowwiseTest, i int) float64 { return float64(i / 8) }},
		{"in few lanes", func(r *rowwiseTest, i int) float64 {
			if i%256 < 160 {
				return 100 + math.Round(9*r.random.NormFloat64())
			}
			return r.random.NormFloat64()
		}},
	}
	shapes := [][]int{{5, 1}, {7, 3}, {33, 8}, {3, 4, 64}, {9, 130}, {9, 768}, {70, 513}, {17, 1024}, {4, 1032}, {3, 5000}, {2, 5003}, {2, 20001}}
	for _, dtype := range halfAndFull {
		for n, shape := range shapes {
			for i, row := range rows {
				if slices.Max(shape) > 10000 && i > 0 {
					continue // sorting them takes long
				}
				r := newRowwiseTest(t, "%v %v %s", dtype, shape, row.name)
				length := shape[len(shape)-1]
				list := make([]float64, r.normals(dtype, 0, shape...).Elements())
				for i := range list {
					list[i] = float64(rounded(dtype)(float32(row.at(r, i%length))))
				}
				x := tensorOf(t, dtype, list, shape...)
				host := kernels.Of(list, shape...)
				for _, k := range []int{1, 2, 8, 24, 25, 32, 33, 50, 53, 64, 65} {
					if k > length {
						continue
					}
					of := append(slices.Clone(shape[:len(shape)-1]), k)
					ids, _ := r.indices([]kernels.DType{kernels.I32, kernels.I64}[n%2], func() int { return -1 }, of...)
					values := r.empty(dtype, 1, of...)
					r.must(r.d.TopK(x, values.Tensor, ids))
					want, wantIDs := reference.TopK[float64](host, k)
					if got := r.values(values); !slices.EqualFunc(got, want, func(a, b float64) bool { return a == b || a != a && b != b }) {
						t.Fatalf("%v %v %s k=%d: values are %v, want %v", dtype, shape, row.name, k, got, want)
					}
					read := hostTensor(ids.DType, of...)
					r.must(errors.Join(r.d.Copy(read, ids), r.d.Synchronize()))
					read.Shape, read.Strides = []int{len(wantIDs)}, []int{1}
					for i, id := range wantIDs {
						if got := int(kernels.HostElement(read, i)); got != id {
							t.Fatalf("%v %v %s k=%d: index %d is %d, want %d", dtype, shape, row.name, k, i, got, id)
						}
					}
				}
			}
		}
	}
}

// Few indices a row and many, often equal, and gradients that are the same from run to run.
func TestGatherAndScatter(t *testing.T) {
	for _, dtype := range halfAndFull {
		for i, c := range []struct{ rows, length, k, gap int }{
			{5, 1, 1, 0}, {7, 9, 3, 1}, {300, 64, 8, 0}, {65, 64, 9, 3}, {3, 700, 1000, 0}, {1, 20001, 5000, 0}, {40, 5, 64, 0}, {4, 6, 0, 0},
		} {
			r := newRowwiseTest(t, "%v %+v", dtype, c)
			x, few := r.normals(dtype, c.gap, c.rows, c.length), r.normals(dtype, c.gap, c.rows, c.k)
			next := func() int { return min(r.random.IntN(c.length), r.random.IntN(c.length)) }
			ids, host := r.indices([]kernels.DType{kernels.I32, kernels.I64}[i%2], next, c.rows, c.k)
			picked, y := r.empty(dtype, c.gap, c.rows, c.k), r.empty(dtype, c.gap, c.rows, c.length)
			r.must(errors.Join(r.d.Gather(x.Tensor, ids, picked.Tensor), r.d.Scatter(few.Tensor, ids, y.Tensor)))
			if c.k == 0 {
				r.check("y", y, make([]float64, c.rows*c.length), make([]float32, c.rows*c.length))
				continue
			}
			r.check("picked", picked, reference.Gather[float64](x.host, host), reference.Gather[float32](x.host, host))
			r.check("y", y, reference.Scatter(few.values(), host, c.length), reference.Scatter(single(few.values()), host, c.length))
			first := r.values(y)
			for range 3 {
				r.must(errors.Join(r.d.Fill(y.Tensor, math.NaN()), r.d.Scatter(few.Tensor, ids, y.Tensor)))
				r.checkSame("y", y, first)
			}
		}
	}
}

// An index outside the row is reported by the next wait.
func TestIndexedFaults(t *testing.T) {
	for name, call := range map[string]func(r *rowwiseTest, ids, x, few kernels.Tensor) error{
		"gather: element 3 of ids is 9, it needs to be from 0 to 4": func(r *rowwiseTest, ids, x, few kernels.Tensor) error {
			return r.d.Gather(x, ids, few)
		},
		"scatter: element 3 of ids is 9, it needs to be from 0 to 4": func(r *rowwiseTest, ids, x, few kernels.Tensor) error {
			return r.d.Scatter(few, ids, x)
		},
	} {
		for _, k := range []int{2, 20} {
			r := newRowwiseTest(t, "faults")
			at := -1
			ids, _ := r.indices(kernels.I64, func() int {
				if at++; at == 3 {
					return 9
				}
				return 1
			}, 4, k)
			x, few := r.normals(kernels.F32, 0, 4, 5), r.normals(kernels.F32, 0, 4, k)
			if err := errors.Join(call(r, ids, x.Tensor, few.Tensor), r.d.Synchronize()); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("the error is %v, want one with %q", err, name)
			}
			r.must(r.d.Synchronize())
		}
	}
}
