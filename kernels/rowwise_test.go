package kernels_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// ids describes indices without data.
func ids(shape ...int) kernels.Tensor { return kernels.Contiguous(nil, kernels.I64, shape...) }

// Problems that are fine without values, as an op sees them before it runs.
func TestDescriptionsAreValid(t *testing.T) {
	pad := -100
	x := shaped(2, 3, 8)
	for name, err := range map[string]error{
		"activation":           kernels.SiLU.Validate(),
		"layer norm":           (&kernels.Norm{X: x, Gamma: shaped(8), Beta: shaped(8)}).Validate(),
		"bare layer norm":      (&kernels.Norm{X: shaped(8)}).Validate(),
		"rms norm":             (&kernels.Norm{RMS: true, X: x, Eps: 1e-6}).Validate(),
		"embedding":            (&kernels.Embedding{Table: shaped(5, 8), IDs: ids(2, 3)}).Validate(),
		"embedding of one":     (&kernels.Embedding{Table: shaped(5, 8), IDs: ids()}).Validate(),
		"dropout":              kernels.Dropout{P: 0.5}.Validate(),
		"rope":                 (&kernels.RoPE{}).Validate(shaped(1, 2, 3, 8), "x"),
		"partial rope":         (&kernels.RoPE{RotaryDim: 4, Pairing: kernels.Interleaved}).Validate(shaped(1, 2, 3, 7), "x"),
		"cross-entropy":        (&kernels.CrossEntropy{Logits: x, Targets: ids(2, 3)}).Validate(),
		"linear cross-entropy": (&kernels.LinearCrossEntropy{Hidden: shaped(6, 8), Weight: shaped(8, 5).Permute(1, 0), Targets: ids(6)}).Validate(),
		"ignoring":             (&kernels.CrossEntropy{Logits: x, Targets: ids(2, 3), CrossEntropyOptions: kernels.CrossEntropyOptions{IgnoreIndex: &pad}}).Validate(),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDescriptionErrors(t *testing.T) {
	x, broken := shaped(2, 3), shaped(2, 3)
	broken.Strides = []int{3}
	backwards := shaped(2, 3)
	backwards.Strides = []int{-3, 1}
	half := kernels.Contiguous(nil, kernels.BF16, 2, 3)
	for _, c := range []struct {
		want string
		err  error
	}{
		{"gamma is float16, with x of bfloat16 it needs to be bfloat16 or float32", (&kernels.Norm{RMS: true, X: half, Gamma: kernels.Contiguous(nil, kernels.F16, 3)}).Validate()},
		{"y is float16, it needs to be bfloat16", kernels.SiLU.CheckForward(half.Slice(0, 0, 0), kernels.Contiguous(nil, kernels.F16, 0, 3))},
		{"out is bfloat16, it needs to be float32", kernels.CheckReduction(half.Slice(0, 0, 0), kernels.Contiguous(nil, kernels.BF16))},
		{"ids has shape [2] but no data", (&kernels.Embedding{Table: x.Slice(0, 0, 0), IDs: ids(2)}).CheckForward(half)},
		{"activation is -1, it needs to be NoActivation, GELUTanh, GELUErf, SiLU, ReLUSquared, ReLU, QuickGELU, Sigmoid or Tanh", kernels.Activation(-1).Validate()},
		{"beta has shape [3], it needs to be left out of an RMS norm", (&kernels.Norm{RMS: true, X: x, Beta: shaped(3)}).Validate()},
		{"mean has shape [2], it needs to be left out of an RMS norm",
			(&kernels.Norm{RMS: true, X: x}).CheckForward(kernels.NormOutputs{Mean: shaped(2)})},
		{"mean has shape [2], it needs to be left out of an RMS norm",
			(&kernels.Norm{RMS: true, X: x}).CheckBackward(kernels.NormGradients{Mean: shaped(2)})},
		{"dBeta has shape [3], it needs to be left out of an RMS norm",
			(&kernels.Norm{RMS: true, X: x}).CheckBackward(kernels.NormGradients{DBeta: shaped(3)})},
		{"x has 1 strides for its 2 axes", (&kernels.Norm{X: broken}).Validate()},
		{"x has strides [-3 1], none can be negative", (&kernels.Norm{RMS: true, X: backwards}).Validate()},
		{"x has shape [2 -1], no axis can be negative", (&kernels.Norm{RMS: true, X: shaped(2, -1)}).Validate()},
		{"x has shape [], it needs at least one element along a last axis", (&kernels.Norm{RMS: true, X: shaped()}).Validate()},
		{"x has a stride of 2 along its last axis, which needs to be contiguous", (&kernels.Norm{X: shaped(3, 2).Permute(1, 0)}).Validate()},
		{"eps is NaN, it needs to be positive, or 0 for 1e-5", (&kernels.Norm{RMS: true, X: x, Eps: math.NaN()}).Validate()},
		{"eps is 1e-46, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37", (&kernels.Norm{RMS: true, X: x, Eps: 1e-46}).Validate()},
		{"eps is 1e+39, with float32 its magnitude needs to be from 4.7e-38 to 2.13e+37", (&kernels.Norm{X: x, Eps: 1e39}).Validate()},
		{"gamma has shape [2 3], it needs one value for each of x's 3 features", (&kernels.Norm{RMS: true, X: x, Gamma: x}).Validate()},
		{"table is missing", (&kernels.Embedding{IDs: ids(2)}).Validate()},
		{"ids is missing", (&kernels.Embedding{Table: x}).Validate()},
		{"dropout is NaN, it needs to be in [0, 1)", kernels.Dropout{P: math.NaN()}.Validate()},
		{"dy has 1 strides for its 4 axes", (&kernels.RoPE{}).Validate(kernels.Tensor{DType: kernels.F32, Shape: []int{1, 1, 1, 2}, Strides: []int{1}}, "dy")},
		{"logits is missing", (&kernels.CrossEntropy{Targets: ids(2)}).Validate()},
		{"label smoothing is -0.1, it needs to be in [0, 1)",
			(&kernels.CrossEntropy{Logits: x, Targets: ids(2), CrossEntropyOptions: kernels.CrossEntropyOptions{LabelSmoothing: -0.1}}).Validate()},
		{"hidden has shape [3], it needs two axes (rows, features)", (&kernels.LinearCrossEntropy{Hidden: shaped(3)}).Validate()},
		{"weight is missing", (&kernels.LinearCrossEntropy{Hidden: x}).Validate()},
		{"weight is int64, with hidden of float32 it needs to be float32", (&kernels.LinearCrossEntropy{Hidden: x, Weight: ids(4, 3)}).Validate()},
		{"targets has shape [3], it needs one target for each row of hidden: [2]",
			(&kernels.LinearCrossEntropy{Hidden: x, Weight: shaped(4, 3), Targets: ids(3)}).Validate()},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("the error is %v, it needs to be: %s", c.err, c.want)
		}
	}
}

func TestActivationNames(t *testing.T) {
	for act, want := range map[kernels.Activation]string{0: "NoActivation", 2: "GELUErf", 4: "ReLUSquared", 8: "Tanh", 9: "Activation(9)", -1: "Activation(-1)"} {
		if act.String() != want {
			t.Errorf("activation %d is called %v, it needs to be %s", int(act), act, want)
		}
	}
}

func TestEmbeddingOutputShape(t *testing.T) {
	e := &kernels.Embedding{Table: shaped(5, 8), IDs: ids(2, 3)}
	if got := e.OutputShape(); !slices.Equal(got, []int{2, 3, 8}) {
		t.Errorf("y has shape %v", got)
	}
}

// The wavelength of a pair grows from a radian a position to nearly the base.
func TestRoPEFrequency(t *testing.T) {
	for _, c := range []struct {
		r    kernels.RoPE
		pair int
		want float64
	}{{kernels.RoPE{}, 0, 1}, {kernels.RoPE{}, 2, 0.01}, {kernels.RoPE{Base: 16}, 1, 0.5}, {kernels.RoPE{PositionScale: 4}, 0, 0.25}} {
		if got := c.r.Frequency(c.pair, 8); !(math.Abs(got-c.want) <= 1e-15) {
			t.Errorf("pair %d of %+v turns by %v, it needs to be %v", c.pair, c.r, got, c.want)
		}
	}
}
