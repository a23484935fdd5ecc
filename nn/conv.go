package nn

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// ConvConfig describes a [Conv].
type ConvConfig struct {
	In, Out    int           // channels
	Windows    []ops.Sliding // one for each axis between the batch and the channels
	Groups     int           // parts of the channels that do not see each other; 0 means 1
	NoBias     bool
	Activation kernels.Activation // is applied to the result
	Init       Init               // of the weight; nil means a normal distribution as FanIn's
}

// Conv is a convolution of any number of axes: (B, lengths..., In) → (B, places..., Out). The
// channels come last, so [Tensor.Permute] goes between it and what has them second. It is a linear
// layer of the patches that its windows see ([ops.Patches]).
//
// Its parameters are weight, (K·In, Out), and bias, (Out), which starts at 0: K counts the elements
// of a window, the last axis fastest. PyTorch's weight, (Out, In, sizes...), is that with its axes
// in the order (sizes..., In, Out). With groups the weight is (Groups, K·In/Groups, Out/Groups). A
// [LoRA] of the scope's Parameters changes one without groups.
type Conv struct {
	layer
	c            ConvConfig
	linear       *Linear // nil with groups
	weight, bias *gorgonia.Node
}

// NewConv makes a Conv in a scope.
func NewConv(s *Scope, c ConvConfig) *Conv {
	l := &Conv{layer: s.layer("Conv"), c: c}
	l.c.Windows, l.c.Groups = slices.Clone(c.Windows), max(c.Groups, 1)
	sizes := []size{{"in", c.In}, {"out", c.Out}, {"windows", len(c.Windows)}}
	k := 1
	for _, w := range c.Windows {
		sizes, k = append(sizes, size{"a window's size", w.Size}), k*w.Size
	}
	if !l.positive(sizes...) || !l.check(c.Activation.Validate()) {
		return l
	}
	groups := l.c.Groups
	switch {
	case c.In%groups != 0 || c.Out%groups != 0:
		l.failf("groups is %d, it needs to divide in and out, which are %d and %d", c.Groups, c.In, c.Out)
	case groups == 1:
		l.linear = NewLinear(s, LinearConfig{In: k * c.In, Out: c.Out, NoBias: c.NoBias, Activation: c.Activation, Init: c.Init})
	default:
		in := k * c.In / groups
		l.weight = l.parameter("weight", initOr(c.Init, Normal(1/math.Sqrt(float64(in)))), groups, in, c.Out/groups)
		if !c.NoBias {
			l.bias = l.parameter("bias", Zero, c.Out)
		}
	}
	return l
}

// Forward is the convolution of x.
func (l *Conv) Forward(x Tensor) Tensor {
	if !l.takes("x", x, l.c.In) {
		return l.none(x)
	}
	patches := x.Patches(0, l.c.Windows...) // (B, places..., K, In)
	shape := slices.Clone([]int(patches.Shape()))
	if len(shape) == 0 {
		return l.none(x)
	}
	places := shape[:len(shape)-2]
	if l.linear != nil {
		return l.linear.Forward(patches.Reshape(append(places, -1)...))
	}
	groups, k := l.c.Groups, shape[len(shape)-2]
	patches = patches.Reshape(product(places), k, groups, l.c.In/groups).Permute(2, 0, 1, 3).Reshape(groups, product(places), -1)
	y := patches.MatMul(l.s.of(l.weight, nil)).Permute(1, 0, 2).Reshape(append(places, l.c.Out)...)
	if l.bias != nil {
		y = y.Add(l.s.of(l.bias, nil))
	}
	return y.activate(l.c.Activation)
}

// activate applies an activation, if there is one.
func (x Tensor) activate(act kernels.Activation) Tensor {
	if act == kernels.NoActivation {
		return x
	}
	return x.apply(func(n *gorgonia.Node) (*gorgonia.Node, error) { return ops.Activate(n, act) })
}
