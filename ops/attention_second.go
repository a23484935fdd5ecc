package ops

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// attentionSecond is the kernel of the gradients of attention's gradients. Its inputs are those of
// the attention, then dO, dLSE, and the gradients by those of q, k and v (or the one that is all of
// them), the bias and the sinks. Its outputs are the gradients of all of these that there are, but
// for the last ones.
type attentionSecond struct {
	*attention
	withBias, withSinks bool
}

// second differentiates the gradients.
func (a *attention) second(x *cotangents) (differentiated, error) {
	inputs := slices.Clone(a.inputs)
	for i := range inputs {
		inputs[i].node = x.in[i]
	}
	k := attentionSecond{a, x.in[a.rows+biasInput] != nil, x.in[a.rows+sinksInput] != nil}
	add := func(name string, i int, list gorgonia.Nodes) {
		in := input{name: name, form: ownRowsForm, optional: true}
		if i < len(list) {
			in.node = list[i]
		}
		inputs = append(inputs, in)
	}
	add("dO", 0, x.dOut)
	add("dLSE", 1, x.dOut)
	for i := range a.rows + 2 { // q, k and v, bias and sinks
		add("u"+a.inputs[i].name, i, x.u)
	}
	if x.dOut[0] == nil {
		// Nothing uses the result, but its logsumexp.
		p, zeros := len(a.inputs), (*gorgonia.Node)(nil)
		var err error
		if zeros, err = constantLike(x.in[0], 0, x.c.is.outputs[0].Shape...); err != nil {
			return differentiated{}, err
		}
		inputs[p].node = zeros
	}
	outputs, err := applyAll(x.c.name+".second", kernel{describe: k.describe, forward: k.forward}, inputs...)
	if err != nil {
		return differentiated{}, err
	}
	result := x.none()
	take := func(to **gorgonia.Node) {
		*to, outputs = outputs[0], outputs[1:]
	}
	for i := range a.rows {
		take(&result.d[i])
	}
	dO := (*gorgonia.Node)(nil)
	if take(&dO); x.dOut[0] != nil {
		result.dOut[0] = dO
	}
	if k.withBias {
		take(&result.d[a.rows+biasInput])
	}
	if k.withSinks {
		take(&result.d[a.rows+sinksInput])
	}
	if len(x.dOut) > 1 && x.dOut[1] != nil {
		take(&result.dOut[1])
	}
	return result, nil
}

func (k attentionSecond) describe(in tensors) (description, error) {
	own, more := in[:len(k.inputs)], in[len(k.inputs):]
	p, err := k.check(own)
	if err == nil {
		err = p.ValidateSecond()
	}
	if err != nil {
		return description{}, err
	}
	is := description{gradients: noGradient, dropout: p.Dropout}
	for _, t := range own[:k.rows] {
		is.outputs = append(is.outputs, kernels.Contiguous(nil, t.DType, t.Shape...))
	}
	is.outputs = append(is.outputs, more[0])
	for _, t := range k.behind(own)[:sinksInput+1] {
		if t.IsSet() {
			is.outputs = append(is.outputs, t)
		}
	}
	if more[1].IsSet() {
		is.outputs = append(is.outputs, more[1])
	}
	return is, nil
}

func (k attentionSecond) forward(r *run, in, out tensors) error {
	own, more := in[:len(k.inputs)], in[len(k.inputs):]
	s := kernels.AttentionSecond{DO: k.outputView(more[0]), DDO: k.outputView(out[k.rows])}
	s.DQ, s.DK, s.DV = k.split(out[:k.rows])
	if rows := more[2:][:k.rows]; k.heads > 0 {
		if rows[0].IsSet() {
			s.UQ, s.UK, s.UV = k.split(rows)
		}
	} else {
		for i, to := range []*kernels.Tensor{&s.UQ, &s.UK, &s.UV} {
			if rows[i].IsSet() {
				*to = k.kernelView(rows[i])
			}
		}
	}
	s.UBias, s.USinks = fourAxes(more[2+k.rows]), more[3+k.rows]
	rest := out[k.rows+1:]
	take := func() (t kernels.Tensor) {
		t, rest = rest[0], rest[1:]
		return t
	}
	if k.withBias {
		s.DBias = fourAxes(take())
	}
	if k.withSinks {
		s.DSinks = take()
	}
	if more[1].IsSet() {
		rows := rowsOf(k.problem(r, own))
		s.DLSE, s.DDLSE = more[1].Reshape(rows...), take().Reshape(rows...)
	}
	return k.vary(r, own, func(b kernels.Backend, p *kernels.Attention) error {
		device, ok := b.(kernels.AttentionSecondKernels)
		if !ok {
			return kernels.Unsupported{Device: b.Name(), What: "the gradient of attention's gradient"}
		}
		return device.AttentionSecond(p, s)
	})
}
