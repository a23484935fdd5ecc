package kernels_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestMatMulShapes(t *testing.T) {
	for _, c := range []struct {
		a, b, out []int
		flops     float64
	}{
		{[]int{3, 4}, []int{4, 5}, []int{3, 5}, 120},
		{[]int{2, 3, 4}, []int{4, 5}, []int{2, 3, 5}, 240},
		{[]int{7, 2, 3, 4}, []int{7, 2, 4, 5}, []int{7, 2, 3, 5}, 1680},
		{[]int{3, 0}, []int{0, 5}, []int{3, 5}, 0},
	} {
		p := kernels.MatMul{A: shaped(c.a...), B: shaped(c.b...)}
		if err := p.Validate(); err != nil {
			t.Errorf("%v·%v: %v", c.a, c.b, err)
		}
		if p.B.DType = kernels.BF16; p.Validate() != nil {
			t.Errorf("%v·%v with b in bfloat16: %v", c.a, c.b, p.Validate())
		}
		if got := p.OutputShape(); !slices.Equal(got, c.out) || p.FLOPs() != c.flops {
			t.Errorf("%v·%v has shape %v and %v FLOPs, it needs %v and %v", c.a, c.b, got, p.FLOPs(), c.out, c.flops)
		}
	}
}

func TestMatMulValidate(t *testing.T) {
	for want, change := range map[string]func(p *kernels.MatMul){
		"a has shape [4], it needs at least two axes": func(p *kernels.MatMul) { p.A = shaped(4) },
		"b has shape [4 -1], no axis can be negative": func(p *kernels.MatMul) { p.B = shaped(4, -1) },
		"a has 1 strides for its 3 axes":              func(p *kernels.MatMul) { p.A.Strides = []int{1} },
		"b has strides [5 -1], none can be negative":  func(p *kernels.MatMul) { p.B.Strides = []int{5, -1} },
		"b is missing": func(p *kernels.MatMul) { p.B = kernels.Tensor{} },
		"b is float64, a is float32: they need one dtype":                          func(p *kernels.MatMul) { p.B.DType = kernels.F64 },
		"b has batch axes [3], it needs a's [2] or none":                           func(p *kernels.MatMul) { p.B = shaped(3, 4, 5) },
		"b has 5 rows, it needs a's 4 columns: a is [2 3 4], b is [5 4]":           func(p *kernels.MatMul) { p.B = shaped(5, 4) },
		"b is float32, a is bfloat16: they need one dtype":                         func(p *kernels.MatMul) { p.A.DType = kernels.BF16 },
		"bias is float16, it needs to be float32":                                  func(p *kernels.MatMul) { p.B.DType, p.Bias = kernels.F16, shaped(5); p.Bias.DType = kernels.F16 },
		"bias has shape [1 5], it needs one value for each of b's 5 columns":       func(p *kernels.MatMul) { p.Bias = shaped(1, 5) },
		"bias is bfloat16, it needs to be float32":                                 func(p *kernels.MatMul) { p.Bias = shaped(5); p.Bias.DType = kernels.BF16 },
		"bias has a stride of 2 along its last axis, which needs to be contiguous": func(p *kernels.MatMul) { p.Bias = shaped(5); p.Bias.Strides[0] = 2 },
		"bias has shape [5], it needs to be left out where bUp is given":           func(p *kernels.MatMul) { p.Epilogue, p.Bias = kernels.Gate{BUp: shaped(4, 5)}, shaped(5) },
		"bUp has shape [4 5], it needs to be left out to accumulate":               func(p *kernels.MatMul) { p.Epilogue, p.Accumulate = kernels.Gate{BUp: shaped(4, 5)}, true },
		"z has shape [2 3 5], it needs to be left out to accumulate":               func(p *kernels.MatMul) { p.Epilogue, p.Accumulate = kernels.TimesSlope{Z: shaped(2, 3, 5)}, true },
		"z has shape [2 3], it needs to be left out to accumulate":                 func(p *kernels.MatMul) { p.Epilogue, p.Accumulate = kernels.GateGradient{Z: shaped(2, 3)}, true },
		"epilogue is a *kernels.Gate, it needs to be an Activate, TimesSlope, Gate, GateGradient or Symmetric": func(p *kernels.MatMul) {
			p.Epilogue = (*kernels.Gate)(nil)
		},
		"c has 3 rows and 5 columns, to be symmetric it needs as many of both": func(p *kernels.MatMul) { p.Epilogue = kernels.Symmetric{} },
		"diagonal is NaN, it needs to be finite": func(p *kernels.MatMul) {
			p.B, p.Epilogue = shaped(4, 3), kernels.Symmetric{Diagonal: math.NaN()}
		},
		"accumulate is true, of a symmetric product it needs to be false": func(p *kernels.MatMul) {
			p.B, p.Epilogue, p.Accumulate = shaped(4, 3), kernels.Symmetric{}, true
		},
		"bias has shape [3], it needs to be left out of a symmetric product": func(p *kernels.MatMul) {
			p.B, p.Epilogue, p.Bias = shaped(4, 3), kernels.Symmetric{}, shaped(3)
		},
		"plus has 1 factors, a symmetric product needs to have none": func(p *kernels.MatMul) {
			p.B, p.Epilogue, p.Plus = shaped(4, 3), kernels.Symmetric{}, []kernels.Factors{{A: shaped(2, 3, 1), B: shaped(1, 3)}}
		},
		"activation is GELUErf, it needs to be NoActivation to accumulate": func(p *kernels.MatMul) {
			p.Accumulate, p.Epilogue = true, kernels.Activate{Activation: kernels.GELUErf}
		},
		"plus[0].a has shape [2 2 1], it needs a's [2 3 4] but for the last axis": func(p *kernels.MatMul) {
			p.Plus = []kernels.Factors{{A: shaped(2, 2, 1), B: shaped(1, 5)}}
		},
		"plus[1].b has shape [2 5], it needs [3 5]: a row for each of plus[1].a's columns, a column for each of b's": func(p *kernels.MatMul) {
			p.Plus = []kernels.Factors{{A: shaped(2, 3, 0), B: shaped(0, 5)}, {A: shaped(2, 3, 3), B: shaped(2, 5)}}
		},
		"plus[0].bUp is missing": func(p *kernels.MatMul) {
			p.Epilogue, p.Plus = kernels.Gate{BUp: shaped(4, 5)}, []kernels.Factors{{A: shaped(2, 3, 1), B: shaped(1, 5)}}
		},
		"plus[0].bUp has shape [1 5], it needs to be left out without a Gate": func(p *kernels.MatMul) {
			p.Plus = []kernels.Factors{{A: shaped(2, 3, 1), B: shaped(1, 5), BUp: shaped(1, 5)}}
		},
		"plus[0].b is bfloat16, a is float32: they need one dtype": func(p *kernels.MatMul) {
			p.Plus = []kernels.Factors{{A: shaped(2, 3, 1), B: shaped(1, 5)}}
			p.Plus[0].B.DType = kernels.BF16
		},
		"activation is 99, it needs to be NoActivation, GELUTanh, GELUErf, SiLU, ReLUSquared, ReLU, QuickGELU, Sigmoid or Tanh": func(p *kernels.MatMul) { p.Epilogue = kernels.Activate{Activation: 99} },
	} {
		p := kernels.MatMul{A: shaped(2, 3, 4), B: shaped(4, 5)}
		change(&p)
		if err := p.Validate(); err == nil || err.Error() != want {
			t.Errorf("the error is %v, it needs to be %s", err, want)
		}
	}
}
