//go:build gpu

package main

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// product is C = act(A·B + bias), A (rows, depth) and B (depth, columns), each of which may lie
// transposed.
type product struct {
	Rows, Columns, Depth   int
	TransposeA, TransposeB bool
	Bias, GELU, Pre        bool
	Wide                   bool // C is float32
}

// time times calls that take turns among as many copies of the tensors as the cache has no room
// for.
func (p product) time(d *cuda.Device, dtypeName, precision string) (float64, error) {
	dtype, err := dtypeOf(dtypeName)
	if err != nil {
		return 0, err
	}
	output := func(dtype kernels.DType, shape ...int) (t kernels.Tensor) {
		if err == nil {
			t, err = d.Alloc(dtype, shape...)
		}
		return t
	}
	tensor := func(dtype kernels.DType, shape ...int) kernels.Tensor {
		t := output(dtype, shape...)
		if err == nil {
			err = fill(d, t)
		}
		return t
	}
	matrix := func(rows, columns int, transposed bool) kernels.Tensor {
		if transposed {
			return tensor(dtype, columns, rows).Permute(1, 0)
		}
		return tensor(dtype, rows, columns)
	}
	const cache = 128 << 20
	type call struct {
		problem kernels.MatMul
		out     kernels.MatMulOutputs
	}
	var calls []call
	bytes := dtype.Size() * (p.Rows*p.Depth + p.Depth*p.Columns + p.Rows*p.Columns)
	for range 1 + min(5, cache/bytes) {
		var c call
		c.problem = kernels.MatMul{A: matrix(p.Rows, p.Depth, p.TransposeA), B: matrix(p.Depth, p.Columns, p.TransposeB)}
		if p.Bias {
			c.problem.Bias = tensor(dtype, p.Columns)
		}
		var epilogue kernels.Activate
		if p.GELU {
			epilogue.Activation = kernels.GELUTanh
		}
		if precision == "TF32" {
			c.problem.Precision = kernels.PrecisionTF32
		}
		kind := dtype
		if p.Wide {
			kind = dtype.Wide()
		}
		c.out.C = output(kind, p.Rows, p.Columns)
		if p.Pre {
			epilogue.Pre = output(dtype, p.Rows, p.Columns)
		}
		c.problem.Epilogue = epilogue
		calls = append(calls, c)
	}
	if err != nil {
		return 0, err
	}
	n := 0
	const together = 8
	return median(d, together, func() error {
		c := &calls[n%len(calls)]
		n++
		return d.MatMul(&c.problem, c.out)
	})
}
