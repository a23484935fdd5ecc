package ops

import (
	"errors"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// norm is the kernel of the layer norms and the RMS norms. Its inputs are x, other, gamma and beta,
// of which a norm of x alone leaves other out, and an RMS norm beta.
type norm struct {
	eps   float64
	rms   bool
	ofSum bool // of a sum that is no output
	gives extra
}

// extra is what a norm gives besides the normalised rows.
type extra int

const (
	onlyRows   extra = iota
	statistics       // behind them what it found in each row: a layer norm the mean, and both 1/√(... + eps)
	theSum           // before them the sum that they are the norm of
)

// The places of a norm's inputs.
const normX, normOther, normGamma, normBeta = 0, 1, 2, 3

func (k norm) apply(name string, x, other, gamma, beta *gorgonia.Node) (gorgonia.Nodes, error) {
	adds := k.ofSum || k.gives == theSum
	kernel := kernel{describe: k.describe, forward: k.forward, backward: k.backward}
	if !adds && k.gives == onlyRows {
		kernel.second = byNodes(k.second)
	}
	return applyAll(name, kernel,
		input{name: "x", node: x, unread: adds},
		input{name: "other", node: other, optional: !adds, unread: true, shared: adds},
		input{name: "gamma", node: gamma, form: denseForm, optional: true},
		input{name: "beta", node: beta, form: denseForm, optional: true, unread: true})
}

// two are an op's two outputs.
func two(outputs gorgonia.Nodes, err error) (a, b *gorgonia.Node, _ error) {
	if err != nil {
		return nil, nil, err
	}
	return outputs[0], outputs[1], nil
}

func (k norm) problem(in tensors) *kernels.Norm {
	return &kernels.Norm{RMS: k.rms, X: in[normX], Other: in[normOther], Gamma: in[normGamma], Beta: in[normBeta], Eps: k.eps}
}

func (k norm) describe(in tensors) (description, error) {
	x := in[normX]
	is, statistic := like(x), kernels.Contiguous(nil, x.DType.Wide(), rowShape(x)...)
	if is.saves = (tensors{statistic, statistic}); k.rms {
		is.saves = tensors{statistic}
	}
	if !k.ofSum {
		is.again = k.again
	}
	switch {
	case k.gives == statistics:
		is.outputs, is.statistics = append(is.outputs, is.saves...), len(is.saves)
	case k.gives == theSum:
		is.outputs, is.readsOutputs = tensors{x, x}, 1
	case k.ofSum:
		is.saves = append(is.saves, x)
	}
	if k.rms && k.gives != statistics {
		is.joins = joins{postpones: len(is.outputs), takes: []int{normOther}}
	}
	if in[normOther].IsSet() && !k.rms {
		is.sums = normOther
	}
	return is, k.problem(in).Validate()
}

// again computes the rows once more, from x or the sum that they are the norm of. Other outputs are
// kept.
func (k norm) again(c *call, output int, a *again) (*gorgonia.Node, error) {
	rows, of := 0, c.operands[normX].node
	if k.gives == theSum {
		rows, of = 1, c.outputs[0].node
	}
	gamma, beta := &c.operands[normGamma], &c.operands[normBeta]
	for _, o := range []*operand{gamma, beta} {
		if whole, _ := o.gathered(); whole != nil || output != rows {
			return c.outputs[output].node, nil
		}
	}
	of, err := a.behind(of)
	if err != nil {
		return nil, err
	}
	return one(norm{eps: k.eps, rms: k.rms}.apply(c.name+".again", of, nil, gamma.node, beta.node))
}

// saved are the statistics that a run saves.
func (k norm) saved(r *run) (mean, rstd kernels.Tensor) {
	if k.rms {
		return mean, r.saved(0)
	}
	return r.saved(0), r.saved(1)
}

func (k norm) forward(r *run, in, out tensors) (err error) {
	o := kernels.NormOutputs{Y: out[0]}
	o.Mean, o.RStd = k.saved(r)
	switch {
	case k.gives == theSum:
		o.Sum, o.Y = out[0], out[1]
	case k.ofSum:
		o.Sum, err = r.savedOrScratch(len(r.c.is.saves) - 1)
	case k.gives == statistics && r.wanted == nil:
		if o.RStd = out[len(out)-1]; !k.rms {
			o.Mean = out[1]
		}
	}
	if err == nil {
		err = k.normalise(r, k.problem(in), o)
	}
	for i := 1; err == nil && k.gives == statistics && r.wanted != nil && i < len(out); i++ {
		err = r.Copy(out[i], r.saved(i-1))
	}
	return err
}

// normalise computes a norm, or leaves it to the step that reads it.
func (k norm) normalise(r *run, n *kernels.Norm, o kernels.NormOutputs) error {
	done, err := false, error(nil)
	if n.Other.IsSet() {
		if done, err = r.addRows(normOther, n.X, o.Sum); err != nil {
			return err
		}
	}
	if done {
		n.X, n.Other, o.Sum = o.Sum, kernels.Tensor{}, kernels.Tensor{}
	}
	compute := func() error { return r.NormForward(n, o) }
	if k.rms && !n.Other.IsSet() && r.joiner() != nil && r.postpones() {
		r.c.last.postponed = &postponed{norm: n, compute: compute}
		return nil
	}
	return compute()
}

// rowShape is the shape of values that a tensor has one of for each row.
func rowShape(t kernels.Tensor) []int { return t.Shape[:len(t.Shape)-1] }

func (k norm) backward(r *run, in, dOut, d tensors) (err error) {
	x := in[normX]
	g := kernels.NormGradients{DY: dOut[0], DX: d[normX], DGamma: d[normGamma], DBeta: d[normBeta]}
	switch {
	case k.gives == theSum && !dOut[1].IsSet():
		return gradientOfSum(r, dOut[0], d)
	case k.gives == theSum:
		x, g.DSum, g.DY = r.out[0], dOut[0], dOut[1]
	case k.ofSum:
		x = r.saved(len(r.c.is.saves) - 1)
	}
	g.Mean, g.RStd = k.saved(r)
	if g.DXSums, err = r.sumsAlong(); err != nil {
		return err
	}
	return r.NormBackward(&kernels.Norm{RMS: k.rms, X: x, Gamma: in[normGamma], Eps: k.eps}, g)
}

// gradientOfSum is the gradients of a sum whose norm nothing uses: that of the sum, and zeros for
// the parameters.
func gradientOfSum(r *run, dSum kernels.Tensor, d tensors) error {
	if err := errors.Join(zeroed(r, d[normGamma]), zeroed(r, d[normBeta])); err != nil || !d[normX].IsSet() {
		return err
	}
	return r.Copy(d[normX], dSum)
}
