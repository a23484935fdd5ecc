package ops

import (
	"errors"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// This file writes gradients as nodes, from which their own gradients follow.

// nodes computes with nodes until one of its ops fails.
type nodes struct{ err error }

type node = *gorgonia.Node

func (e *nodes) keep(n node, err error) node {
	if e.err == nil {
		e.err = err
	}
	return n
}

func (e *nodes) do(op func(x node) (node, error), x node) node {
	if e.err != nil {
		return nil
	}
	return e.keep(op(x))
}

func (e *nodes) with(op func(a, b node) (node, error), a, b node) node {
	if e.err != nil {
		return nil
	}
	return e.keep(op(a, b))
}

func (e *nodes) mul(a, b node) node { return e.with(Mul, a, b) }
func (e *nodes) add(a, b node) node { return e.with(Add, a, b) }
func (e *nodes) sub(a, b node) node { return e.add(a, e.scale(b, -1)) }

func (e *nodes) scale(x node, factor float64) node {
	return e.do(func(x node) (node, error) { return Scale(x, factor) }, x)
}

// plus is x·factor + number.
func (e *nodes) plus(x node, factor, number float64) node {
	return e.do(func(x node) (node, error) { return AddScalar(x, number) }, e.scale(x, factor))
}

func (e *nodes) product(a, b node, transposeA, transposeB bool) node {
	return e.with(func(a, b node) (node, error) {
		return MatMul(a, b, MatMulOptions{TransposeA: transposeA, TransposeB: transposeB})
	}, a, b)
}

func (e *nodes) constant(like node, value float64, shape ...int) node {
	return e.do(func(n node) (node, error) { return constantLike(n, value, shape...) }, like)
}

func (e *nodes) reshape(x node, shape ...int) node {
	return e.do(func(x node) (node, error) { return Reshape(x, shape...) }, x)
}

// rows is a tensor as a matrix of its last axis.
func (e *nodes) rows(x node) node {
	if e.err != nil {
		return nil
	}
	shape := x.Shape()
	n := shape[len(shape)-1]
	return e.reshape(x, shape.TotalSize()/n, n)
}

// sumRows is the sum of a matrix's rows.
func (e *nodes) sumRows(x node) node {
	if e.err != nil {
		return nil
	}
	return e.product(e.constant(x, 1, x.Shape()[0]), x, false, false)
}

// means has the mean of each row of a matrix in all of the row's columns, times a factor.
func (e *nodes) means(x node, factor float64) node {
	if e.err != nil {
		return nil
	}
	n := x.Shape()[1]
	mean := e.product(x, e.constant(x, factor/float64(n), n, 1), false, false)
	return e.product(mean, e.constant(x, 1, 1, n), false, false)
}

// secondOfElements differentiates the gradient of a function of elements, whose second derivative
// is curve.
func secondOfElements(slope func(x, dy node) (node, error), curve func(e *nodes, x node) node) func(x *cotangents) (differentiated, error) {
	return func(x *cotangents) (differentiated, error) {
		result, e := x.none(), &nodes{}
		if x.u[0] == nil {
			return result, nil
		}
		result.dOut[0] = e.with(slope, x.in[0], x.u[0])
		if bent := curve(e, x.in[0]); bent != nil {
			result.d[0] = e.mul(e.mul(x.u[0], x.dOut[0]), bent)
		}
		return result, e.err
	}
}

// activationGradient is dy·act'(x).
func activationGradient(kind kernels.Activation) func(x, dy node) (node, error) {
	return func(x, dy node) (node, error) {
		k := elementsGradient(func(r *run, in, out tensors) error { return r.ActivateBackward(kind, in[0], in[1], out[0]) })
		k.first = func(in, dOut gorgonia.Nodes) (gorgonia.Nodes, error) {
			e := &nodes{}
			list := gorgonia.Nodes{nil, e.with(activationGradient(kind), in[0], dOut[0])}
			if bent := activationCurve(kind)(e, in[0]); bent != nil {
				list[0] = e.mul(e.mul(dOut[0], in[1]), bent)
			} else {
				list[0] = e.constant(in[0], 0, in[0].Shape()...)
			}
			return list, e.err
		}
		return apply(kind.String()+".gradient", k, input{name: "x", node: x}, input{name: "dy", node: dy})
	}
}

// elementsGradient is the kernel of a function of x and dy, element by element.
func elementsGradient(forward func(r *run, in, out tensors) error) kernel {
	return kernel{
		describe: func(in tensors) (description, error) { return like(in[0]), checkSame("dy", in[1], "x", in[0]) },
		forward:  forward,
	}
}

// activationCurve is the second derivative of an activation; nil for 0.
func activationCurve(kind kernels.Activation) func(e *nodes, x node) node {
	return func(e *nodes, x node) node {
		sigmoidSlope := func(x node) (s, slope node) {
			s = e.do(Sigmoid, x)
			return s, e.mul(s, e.plus(s, -1, 1))
		}
		switch kind {
		case kernels.ReLU:
			return nil
		case kernels.ReLUSquared: // twice the slope of ReLU
			return e.scale(e.with(activationGradient(kernels.ReLU), x, e.constant(x, 1, x.Shape()...)), 2)
		case kernels.Sigmoid:
			s, slope := sigmoidSlope(x)
			return e.mul(slope, e.plus(s, -2, 1))
		case kernels.Tanh:
			return softCapCurve(1)(e, x)
		case kernels.SiLU, kernels.QuickGELU: // x·σ(ax): aσ'(ax)·(2 + ax·(1 − 2σ(ax)))
			a := 1.0
			if kind == kernels.QuickGELU {
				a = 1.702
			}
			ax := e.scale(x, a)
			s, slope := sigmoidSlope(ax)
			return e.scale(e.mul(slope, e.plus(e.mul(ax, e.plus(s, -2, 1)), 1, 2)), a)
		case kernels.GELUErf: // φ(x)·(2 − x²)
			square := e.mul(x, x)
			density := e.scale(e.do(Exp, e.scale(square, -0.5)), 1/math.Sqrt(2*math.Pi))
			return e.mul(density, e.plus(square, -1, 2))
		case kernels.GELUTanh: // of x·(1 + tanh g)/2 with g = c(x + βx³)
			c, beta := math.Sqrt(2/math.Pi), 0.044715
			square := e.mul(x, x)
			t := e.do(Tanh, e.mul(e.scale(x, c), e.plus(square, beta, 1)))
			slope, bend := e.plus(square, 3*c*beta, c), e.scale(x, 6*c*beta)
			inner := e.add(slope, e.scale(e.mul(x, bend), 0.5))
			inner = e.sub(inner, e.mul(e.mul(x, t), e.mul(slope, slope)))
			return e.mul(e.plus(e.mul(t, t), -1, 1), inner)
		}
		e.err = errors.Join(e.err, fmt.Errorf("the gradient of %v has no gradient", kind))
		return nil
	}
}

// softCapGradient is dy·(1 − tanh(x/cap)²).
func softCapGradient(cap float64) func(x, dy node) (node, error) {
	return func(x, dy node) (node, error) {
		e := &nodes{}
		t := e.scale(e.do(func(x node) (node, error) { return SoftCap(x, cap) }, x), 1/cap)
		return e.mul(dy, e.plus(e.mul(t, t), -1, 1)), e.err
	}
}

// softCapCurve is the second derivative of cap·tanh(x/cap).
func softCapCurve(cap float64) func(e *nodes, x node) node {
	return func(e *nodes, x node) node {
		t := e.scale(e.do(func(x node) (node, error) { return SoftCap(x, cap) }, x), 1/cap)
		return e.scale(e.mul(t, e.plus(e.mul(t, t), -1, 1)), -2/cap)
	}
}

// second writes the gradients of a product of batches of one shape.
func (k matMul) second(x *cotangents) (gorgonia.Nodes, error) {
	a, b, dc, e := x.in[0], x.in[1], x.dOut[0], &nodes{}
	if len(a.Shape()) < 2 || len(b.Shape()) < 2 {
		return nil, errors.New("the gradient of a product with a vector has no gradient: give the vector a second axis")
	}
	list := make(gorgonia.Nodes, 2)
	if list[0] = e.product(dc, b, false, !k.TransposeB); k.TransposeA {
		list[0] = e.product(b, dc, k.TransposeB, true)
	}
	if list[1] = e.product(a, dc, !k.TransposeA, false); k.TransposeB {
		list[1] = e.product(dc, a, true, k.TransposeA)
	}
	for i, n := range list {
		if e.err == nil && x.u[i] != nil && !n.Shape().Eq(x.in[i].Shape()) {
			if i == 0 || len(b.Shape()) > 2 || k.TransposeA {
				return nil, fmt.Errorf("the gradient of a product of batches %v and %v has no gradient: they need to be equal", a.Shape(), b.Shape())
			}
			flatA, flatC := e.rows(a), e.rows(dc)
			if list[1] = e.product(flatA, flatC, true, false); k.TransposeB {
				list[1] = e.product(flatC, flatA, true, false)
			}
		}
	}
	return list, e.err
}

// second writes the gradients of a linear layer.
func (k linear) second(x *cotangents) (gorgonia.Nodes, error) {
	if len(k.changes.scales) > 0 {
		return nil, errors.New("the gradient of a layer with a change has no gradient")
	}
	input, weight, e := x.in[0], x.in[1], &nodes{}
	dz := x.dOut[0]
	if k.activation != kernels.NoActivation {
		z := e.keep(Linear(input, weight, x.in[2], LinearOptions{}))
		dz = e.with(activationGradient(k.activation), z, dz)
	}
	rows := e.rows(dz)
	list := gorgonia.Nodes{e.product(dz, weight, false, true), e.product(e.rows(input), rows, true, false), nil}
	if x.u[2] != nil {
		list[2] = e.sumRows(rows)
	}
	return append(list, make(gorgonia.Nodes, len(x.in)-3)...), e.err
}

// second writes the gradients of the norm of one tensor.
func (k norm) second(x *cotangents) (gorgonia.Nodes, error) {
	in, e := x.in[normX], &nodes{}
	rows, dy := e.rows(in), e.rows(x.dOut[0])
	centred := rows
	if !k.rms {
		centred = e.sub(rows, e.means(rows, 1))
	}
	spread := e.do(Sqrt, e.plus(e.means(e.mul(centred, centred), 1), 1, (&kernels.Norm{Eps: k.eps}).EffectiveEps()))
	normal := e.with(Div, centred, spread)
	list, g := make(gorgonia.Nodes, len(x.in)), dy
	if gamma := x.in[normGamma]; gamma != nil && e.err == nil {
		n := gamma.Shape()[0]
		g = e.mul(dy, e.product(e.constant(in, 1, rows.Shape()[0], 1), e.reshape(gamma, 1, n), false, false))
		list[normGamma] = e.sumRows(e.mul(dy, normal))
	}
	if x.u[normBeta] != nil {
		list[normBeta] = e.sumRows(dy)
	}
	dx := e.sub(g, e.mul(normal, e.means(e.mul(g, normal), 1)))
	if !k.rms {
		dx = e.sub(dx, e.means(g, 1))
	}
	list[normX] = e.reshape(e.with(Div, dx, spread), in.Shape()...)
	return list, e.err
}

// secondOfSoftmax writes the gradient of Softmax by its result: y·(dy − Σ y·dy).
func secondOfSoftmax(x *cotangents) (gorgonia.Nodes, error) {
	e := &nodes{}
	y, dy := e.rows(x.out), e.rows(x.dOut[0])
	product := e.mul(y, dy)
	dx := e.sub(product, e.mul(y, e.means(product, float64(lastSize(x.out)))))
	return gorgonia.Nodes{e.reshape(dx, x.out.Shape()...)}, e.err
}

// secondOfLogSoftmax writes the gradient of LogSoftmax by its result: dy − exp(y)·Σ dy.
func secondOfLogSoftmax(x *cotangents) (gorgonia.Nodes, error) {
	e := &nodes{}
	y, dy := e.rows(x.out), e.rows(x.dOut[0])
	dx := e.sub(dy, e.mul(e.do(Exp, y), e.means(dy, float64(lastSize(x.out)))))
	return gorgonia.Nodes{e.reshape(dx, x.out.Shape()...)}, e.err
}

func lastSize(n node) int { return n.Shape()[len(n.Shape())-1] }

// functionGradient is dy·f'(x).
func functionGradient(f kernels.Function) func(x, dy node) (node, error) {
	return func(x, dy node) (node, error) {
		e := &nodes{}
		switch f {
		case kernels.Exp:
			return e.mul(dy, e.do(Exp, x)), e.err
		case kernels.Log:
			return Div(dy, x)
		case kernels.Sqrt:
			return e.scale(e.with(Div, dy, e.do(Sqrt, x)), 0.5), e.err
		}
		k := elementsGradient(func(r *run, in, out tensors) error { return r.ApplyBackward(f, in[0], in[1], out[0]) })
		k.first = func(in, dOut gorgonia.Nodes) (gorgonia.Nodes, error) {
			dx := e.constant(in[0], 0, in[0].Shape()...)
			ddy := e.with(functionGradient(f), in[0], dOut[0])
			return gorgonia.Nodes{dx, ddy}, e.err
		}
		return apply(f.String()+".gradient", k, input{name: "x", node: x, scalars: true}, input{name: "dy", node: dy, scalars: true})
	}
}

// functionCurve is the second derivative of a function of elements; nil for 0.
func functionCurve(f kernels.Function) func(e *nodes, x node) node {
	return func(e *nodes, x node) node {
		if f == kernels.Abs || e.err != nil {
			return nil
		}
		one := e.constant(x, 1, x.Shape()...)
		switch f {
		case kernels.Exp:
			return e.do(Exp, x)
		case kernels.Log:
			return e.scale(e.with(Div, one, e.mul(x, x)), -1)
		}
		return e.scale(e.with(Div, one, e.mul(x, e.do(Sqrt, x))), -0.25) // Sqrt
	}
}
