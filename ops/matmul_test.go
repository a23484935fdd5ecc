package ops_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestMatMul(t *testing.T) {
	slow.Emulated(t)
	var cases []opCase
	for _, c := range []struct {
		batch   []int
		m, k, n int
		shared  bool
	}{
		{nil, 1, 1, 1, false}, {nil, 3, 5, 7, false}, {nil, 1, 9, 2, false}, {nil, 33, 17, 13, false},
		{[]int{1}, 2, 3, 4, false}, {[]int{2, 3}, 5, 1, 4, false}, {[]int{3}, 4, 5, 6, true}, {[]int{2, 3}, 2, 5, 3, true},
	} {
		for flags := range 4 {
			o := ops.MatMulOptions{TransposeA: flags&1 != 0, TransposeB: flags&2 != 0}
			matrix := func(batch []int, rows, columns int, transposed bool) []int {
				if transposed {
					rows, columns = columns, rows
				}
				return append(append([]int{}, batch...), rows, columns)
			}
			batchB := c.batch
			if c.shared {
				batchB = nil
			}
			cases = append(cases, opCase{
				options: fmt.Sprintf("MatMul with %+v", o),
				in:      []opInput{floats("a", matrix(c.batch, c.m, c.k, o.TransposeA)...), floats("b", matrix(batchB, c.k, c.n, o.TransposeB)...)},
				apply:   func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(in[0], in[1], o) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					return matMulByDefinition(o, in[0], in[1], c.m, c.k, c.n, dOut)
				},
			})
		}
	}
	testOp(t, cases)
}

// Batches broadcast to each other, and vectors are rows or columns, as in NumPy.
func TestMatMulBroadcasts(t *testing.T) {
	var cases []opCase
	for _, c := range []struct{ a, b, out []int }{
		{[]int{3}, []int{3}, nil}, {[]int{3}, []int{3, 4}, []int{4}}, {[]int{2, 3}, []int{3}, []int{2}},
		{[]int{5, 2, 3}, []int{3}, []int{5, 2}}, {[]int{3}, []int{5, 3, 4}, []int{5, 4}}, {[]int{3}, []int{2, 5, 3, 4}, []int{2, 5, 4}},
		{[]int{2, 3}, []int{5, 3, 4}, []int{5, 2, 4}}, {[]int{1, 2, 3}, []int{5, 3, 4}, []int{5, 2, 4}},
		{[]int{5, 2, 3}, []int{1, 3, 4}, []int{5, 2, 4}}, {[]int{5, 1, 2, 3}, []int{6, 3, 4}, []int{5, 6, 2, 4}},
		{[]int{2, 1, 5, 2, 3}, []int{7, 1, 3, 4}, []int{2, 7, 5, 2, 4}}, {[]int{1, 1, 3}, []int{2, 2, 3, 1}, []int{2, 2, 1, 1}},
	} {
		for flags := range 4 {
			o := ops.MatMulOptions{TransposeA: flags&1 != 0, TransposeB: flags&2 != 0}
			if o.TransposeA && len(c.a) == 1 || o.TransposeB && len(c.b) == 1 {
				continue
			}
			shape := func(shape []int, transposed bool) []int {
				shape = slices.Clone(shape)
				if last := len(shape) - 1; transposed {
					shape[last-1], shape[last] = shape[last], shape[last-1]
				}
				return shape
			}
			cases = append(cases, opCase{
				options: fmt.Sprintf("MatMul with %+v", o),
				in:      []opInput{floats("a", shape(c.a, o.TransposeA)...), floats("b", shape(c.b, o.TransposeB)...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
					out, err := ops.MatMul(in[0], in[1], o)
					if err == nil && !slices.Equal(out.Shape(), c.out) {
						err = fmt.Errorf("the product has shape %v, it needs %v", out.Shape(), c.out)
					}
					return out, err
				},
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					return broadcastProduct(o, in[0], in[1], dOut)
				},
			})
		}
	}
	testOp(t, cases)
}

// broadcastProduct goes through the product element by element.
func broadcastProduct(o ops.MatMulOptions, a, b kernels.Tensor, dOut []float64) (out []float64, d [][]float64) {
	x, y := float64sOf(a), float64sOf(b)
	if len(a.Shape) == 1 {
		a = a.Reshape(1, a.Shape[0])
	}
	if len(b.Shape) == 1 {
		b = b.Reshape(b.Shape[0], 1)
	}
	swap := func(t kernels.Tensor, is bool) kernels.Tensor {
		last := len(t.Shape) - 1
		t.Shape, t.Strides = slices.Clone(t.Shape), slices.Clone(t.Strides)
		if is {
			t.Shape[last-1], t.Shape[last] = t.Shape[last], t.Shape[last-1]
			t.Strides[last-1], t.Strides[last] = t.Strides[last], t.Strides[last-1]
		}
		for len(t.Shape) < 5 {
			t.Shape, t.Strides = append([]int{1}, t.Shape...), append([]int{0}, t.Strides...)
		}
		return t
	}
	a, b = swap(a, o.TransposeA), swap(b, o.TransposeB)
	da, db := make([]float64, len(x)), make([]float64, len(y))
	at := func(t kernels.Tensor, batch [3]int, i, j int) int {
		for axis, n := range batch {
			batch[axis] = n % t.Shape[axis] // 0 along an axis of 1
		}
		return t.Offset(batch[0], batch[1], batch[2], i, j)
	}
	size := func(axis int) int { return max(a.Shape[axis], b.Shape[axis]) }
	for item := range size(0) * size(1) * size(2) {
		batch := [3]int{item / size(2) / size(1), item / size(2) % size(1), item % size(2)}
		for i := range a.Shape[3] {
			for j := range b.Shape[4] {
				sum, g := 0.0, dOut[len(out)]
				for p := range a.Shape[4] {
					atA, atB := at(a, batch, i, p), at(b, batch, p, j)
					sum += x[atA] * y[atB]
					da[atA] += g * y[atB]
					db[atB] += g * x[atA]
				}
				out = append(out, sum)
			}
		}
	}
	return out, [][]float64{da, db}
}

// matMulByDefinition computes C = A·B by the reference, and the gradients element by element.
func matMulByDefinition(o ops.MatMulOptions, a, b kernels.Tensor, m, k, n int, dOut []float64) ([]float64, [][]float64) {
	swapped := func(t kernels.Tensor, is bool) kernels.Tensor {
		if !is {
			return t
		}
		order := []int{0, 1, 2, 3}[:len(t.Shape)]
		last := len(order) - 1
		order[last-1], order[last] = last, last-1
		return t.Permute(order...)
	}
	out, _ := reference.MatMul[float64](&kernels.MatMul{A: swapped(a, o.TransposeA), B: swapped(b, o.TransposeB)}, nil)
	da, db := make([]float64, a.Elements()), make([]float64, b.Elements())
	x, y := float64sOf(a), float64sOf(b)
	for item := range len(out) / (m * n) {
		itemB := item
		if len(b.Shape) == 2 {
			itemB = 0
		}
		for i := range m {
			for j := range n {
				g := dOut[(item*m+i)*n+j]
				for p := range k {
					atA, atB := (item*m+i)*k+p, (itemB*k+p)*n+j
					if o.TransposeA {
						atA = (item*k+p)*m + i
					}
					if o.TransposeB {
						atB = (itemB*n+j)*k + p
					}
					da[atA] += g * y[atB]
					db[atB] += g * x[atA]
				}
			}
		}
	}
	return out, [][]float64{da, db}
}

// A wide product of 16-bit inputs is float32, of nothing but the rounded inputs, and its gradients
// have their type.
func TestMatMulWide(t *testing.T) {
	const m, k, n = 3, 37, 5
	for _, dtype := range []tensor.Dtype{ops.BFloat16, ops.Float16} {
		g := gorgonia.NewGraph()
		input := func(name string, rows int) (*gorgonia.Node, []float32) {
			list := make([]float32, rows*k)
			for i := range list {
				list[i] = float32(i*i%23)/7 - 1.5
			}
			v, err := ops.Converted(tensor.New(tensor.WithShape(rows, k), tensor.WithBacking(list)), dtype)
			if err != nil {
				t.Fatal(err)
			}
			back, err := ops.Converted(v, tensor.Float32)
			if err != nil {
				t.Fatal(err)
			}
			return gorgonia.NewMatrix(g, dtype, gorgonia.WithShape(rows, k), gorgonia.WithName(name), gorgonia.WithValue(v)), back.Float32s()
		}
		a, as := input("a", m)
		b, bs := input("b", n)
		out := gorgonia.Must(ops.MatMul(a, b, ops.MatMulOptions{TransposeB: true, Wide: true}))
		if out.Dtype() != tensor.Float32 {
			t.Fatalf("%v: the product is %v", dtype, out.Dtype())
		}
		gradients, err := gorgonia.Grad(gorgonia.Must(ops.Sum(out)), a, b)
		if err != nil {
			t.Fatal(err)
		}
		ops.Keep(append(gradients, out)...)
		machine, err := ops.NewMachine(g)
		if err != nil {
			t.Fatal(err)
		}
		defer machine.Close()
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		products := out.Value().Data().([]float32)
		sums := make([]float64, k) // of b's rows: the gradient of each row of a
		for i := range m {
			for j := range n {
				want := 0.0
				for p := range k {
					want += float64(as[i*k+p]) * float64(bs[j*k+p])
				}
				if e := math.Abs(float64(products[i*n+j]) - want); e > 1e-5 {
					t.Errorf("%v: element (%d, %d) is %v, off by %.2g", dtype, i, j, products[i*n+j], e)
				}
			}
		}
		for i, x := range bs {
			sums[i%k] += float64(x)
		}
		da, err := ops.Converted(gradients[0].Value(), tensor.Float32)
		if err != nil || gradients[0].Dtype() != dtype {
			t.Fatalf("the gradient is %v: %v", gradients[0].Dtype(), err)
		}
		for i, x := range da.Float32s() {
			if e := math.Abs(float64(x) - sums[i%k]); e > math.Abs(sums[i%k])/250 {
				t.Errorf("%v: gradient %d is %v instead of %v", dtype, i, x, sums[i%k])
			}
		}
	}
}
