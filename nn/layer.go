package nn

import (
	"errors"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Layer is what most layers are: a function of one tensor, with parameters of the scope that it was
// made in.
type Layer interface {
	Forward(x Tensor) Tensor
}

// LayerFunc is a function as a [Layer]: one that reads parameters which were made before it, see
// [Scope.Parameter].
type LayerFunc func(x Tensor) Tensor

// Forward calls the function.
func (f LayerFunc) Forward(x Tensor) Tensor { return f(x) }

// Maker makes a layer in a scope from its config. Configs take one for each kind of layer that they
// are made of, so that a model may have others in their place: [NewLinear] with something added to
// it, a norm of one's own, a mixture of experts for an MLP. A maker that wants the usual layer for
// some names, which the scope has, calls the usual function.
type Maker[Config any] func(s *Scope, c Config) Layer

// errUnmade is what is wrong with a layer that is the zero value of its type.
var errUnmade = errors.New("nn: the layer is a zero value, it needs to be what its New function gave")

// layer is what all layers have: where they were made, and what they are called in messages.
type layer struct {
	s    *Scope
	kind string
}

func (s *Scope) layer(kind string) layer { return layer{s, kind} }

// Parameters lists the parameters that were made in the layer's scope.
func (l layer) Parameters() gorgonia.Nodes { return l.s.Parameters() }

// isMade reports whether all is well with the layer and its model so far.
func (l layer) isMade() bool { return l.s != nil && l.s.err == nil }

// errorf is an error of the layer.
func (l layer) errorf(format string, args ...any) error {
	if l.s == nil {
		return errUnmade
	}
	return fmt.Errorf(l.kind+": "+format, args...)
}

// failf makes an error of the layer that of its scope.
func (l layer) failf(format string, args ...any) Tensor { return l.s.Fail(l.errorf(format, args...)) }

// refuse makes an error of the layer that of its scope, and reports that not all is well.
func (l layer) refuse(format string, args ...any) bool {
	l.failf(format, args...)
	return false
}

// check makes an error the scope's, if there is one, and reports whether there is none so far.
func (l layer) check(err error) bool {
	if l.s != nil && err != nil {
		l.s.fail(fmt.Errorf("%s: %w", l.kind, err))
	}
	return l.isMade()
}

// positive checks the sizes of a config.
func (l layer) positive(sizes ...size) bool {
	for _, z := range sizes {
		if z.n < 1 {
			l.failf("%s is %d, it needs to be at least 1", z.name, z.n)
			break
		}
	}
	return l.isMade()
}

type size struct {
	name string
	n    int
}

// nonNegative checks a number of which 0 means another.
func (l layer) nonNegative(name string, x float64, zero string) bool {
	if !(x >= 0) || math.IsInf(x, 0) {
		l.failf("%s is %v, it needs to be positive, or 0 for %s", name, x, zero)
	}
	return l.isMade()
}

// given checks that there is a tensor, and that it belongs to the layer's graph.
func (l layer) given(name string, x Tensor) bool {
	switch {
	case l.s == nil:
		if x.in != nil {
			x.in.fail(errUnmade)
		}
	case l.s.err != nil:
	case x.in == nil:
		l.failf("%s is a zero Tensor, it needs to be one of the model's", name)
	case x.in.g != l.s.g:
		l.failf("%s belongs to another graph than the layer", name)
	case x.n == nil:
		l.s.fail(x.in.err)
	}
	return l.isMade()
}

// takes checks a tensor that a layer is applied to: its graph, its type and, where features is
// positive, its last axis.
func (l layer) takes(name string, x Tensor, features int) bool {
	if !l.given(name, x) {
		return false
	}
	shape := x.Shape()
	switch d := x.DType(); {
	case d != l.s.dtype && (l.s.dtype != tensor.Float32 || !isHalf(d)):
		l.failf("%s is %v, it needs to go with the layer's parameters, which are %v", name, d, l.s.dtype)
	case len(shape) == 0:
		l.failf("%s is a scalar, it needs at least one axis", name)
	case features > 0 && shape[len(shape)-1] != features:
		l.failf("%s has shape %v, it needs a last axis of %d", name, []int(shape), features)
	}
	return l.isMade()
}

// none is what a layer gives after an error.
func (l layer) none(x Tensor) Tensor {
	if l.s == nil {
		return Tensor{in: x.in}
	}
	return Tensor{in: l.s.making}
}

// parameter makes a parameter of the layer; nil after an error.
func (l layer) parameter(part string, init Init, shape ...int) *gorgonia.Node {
	if l.s == nil {
		return nil
	}
	return l.named(l.s.child(part), l.s.values.value, init, shape...)
}

// linearWeight and embeddingWeight make the parameter called weight, which may be kept in less
// memory.
func (l layer) linearWeight(init Init, in, out int) *gorgonia.Node {
	if l.s == nil {
		return nil
	}
	return l.named(l.s.child("weight"), l.s.values.linearWeight, init, in, out)
}

// expertsWeight makes the parameter called weight that has a matrix for each expert, which may be
// kept in 16 bits.
func (l layer) expertsWeight(init Init, count, in, out int) *gorgonia.Node {
	if l.s == nil {
		return nil
	}
	return l.named(l.s.child("weight"), l.s.values.linearWeight, init, count, in, out)
}

// constant makes a parameter that gradients do not train.
func (l layer) constant(part string, init Init, shape ...int) *gorgonia.Node {
	n := l.parameter(part, init, shape...)
	if n != nil {
		l.s.values.fix(n.Name())
	}
	return n
}

func (l layer) embeddingWeight(init Init, vocab, dim int) *gorgonia.Node {
	if l.s == nil {
		return nil
	}
	return l.named(l.s.child("weight"), l.s.values.embeddingWeight, init, vocab, dim)
}

// named makes a parameter of that name, whose value is what a method of Parameters gives.
func (l layer) named(
	name string, get func(string, tensor.Dtype, Init, []int) (*tensor.Dense, error), init Init, shape ...int,
) *gorgonia.Node {
	if !l.isMade() {
		return nil
	}
	if len(l.s.g.ByName(name)) > 0 {
		l.failf("the graph already has a parameter or input called %s, each layer needs a scope of its own: Sub makes one; a layer to apply more than once is a value, as NewLinear gives", name)
		return nil
	}
	value, err := get(name, l.s.dtype, init, shape)
	if !l.check(err) {
		return nil
	}
	n := gorgonia.NewTensor(l.s.g, value.Dtype(), value.Dims(), gorgonia.WithShape(value.Shape()...),
		gorgonia.WithName(name), gorgonia.WithValue(value))
	l.s.parameters = append(l.s.parameters, n)
	whole, err := l.s.values.whole(n)
	l.check(err)
	return whole
}

// dropoutSeed is the seed of the masks of a dropout in the layer.
func (l layer) dropoutSeed(part string) uint64 {
	return l.s.values.derive("dropout " + l.s.child(part))[0]
}

// ids is an input of the graph that holds a number for each place. One serves all calls of its
// shape.
func (l layer) ids(what string, rows, columns int, at func(row, column int) int) Tensor {
	return l.s.constant(l.s.child(fmt.Sprintf("%s.%dx%d", what, rows, columns)), func() *tensor.Dense {
		data := make([]int, rows*columns)
		for i := range data {
			data[i] = at(i/columns, i%columns)
		}
		return tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(data))
	})
}

// linear makes a linear layer that is a part of this one, by a maker, or as usual where that is
// nil.
func (l layer) linear(part string, maker Maker[LinearConfig], c LinearConfig) Layer {
	if maker == nil {
		return NewLinear(l.s.Sub(part), c)
	}
	return makeBy(l, part, maker, c)
}

// norm makes a norm that is a part of this layer.
func (l layer) norm(part string, maker Maker[NormConfig], c NormConfig) Layer {
	if maker == nil {
		return NewNorm(l.s.Sub(part), c)
	}
	return makeBy(l, part, maker, c)
}

// dropout makes a dropout that is a part of this layer.
func (l layer) dropout(part string, p float64) *Dropout { return NewDropout(l.s.Sub(part), p) }

// sharers is how many ranks share a sequence.
func (l layer) sharers() int {
	if l.s == nil || l.s.ranks == nil {
		return 1
	}
	return max(1, l.s.ranks.Size())
}

// makeBy makes a part of a layer by a maker of the user's.
func makeBy[Config any](l layer, part string, maker Maker[Config], c Config) Layer {
	if !l.isMade() {
		return missing{l}
	}
	made := maker(l.s.Sub(part), c)
	if made == nil {
		l.failf("the maker of %s gave nil, it needs to give a layer", l.s.child(part))
		return missing{l}
	}
	return made
}

// missing is in the place of a layer that could not be made.
type missing struct{ layer }

func (m missing) Forward(x Tensor) Tensor { return m.none(x) }

// isHalf reports whether a type has 16 bits.
func isHalf(d tensor.Dtype) bool { return d == ops.BFloat16 || d == ops.Float16 }

// isKept reports whether a type is one that weights are kept in.
func isKept(d tensor.Dtype) bool { return isHalf(d) || ops.IsPacked(d) }
