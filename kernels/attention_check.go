package kernels

import (
	"errors"
	"fmt"
)

// CheckForward returns what is wrong with a call of AttentionForward.
func (a *Attention) CheckForward(out AttentionOutputs) error {
	if err := a.checkProblem(); err != nil {
		return err
	}
	return checkOperands(a.operands(writtenLike("o", out.O, a.OutputShape(), a.Q.DType), a.perRow("lse", out.LSE).optional())...)
}

// CheckDelta returns what is wrong with a call of AttentionDelta.
func (a *Attention) CheckDelta(o, dO, dLSE, delta Tensor) error {
	if err := a.checkProblem(); err != nil {
		return err
	}
	return checkOperands(a.operands(like("o", o, a.OutputShape(), a.Q.DType), like("dO", dO, a.OutputShape(), a.Q.DType),
		a.perRow("dLSE", dLSE).optional(), a.perRow("delta", delta))...)
}

// CheckBackward returns what is wrong with a call of AttentionBackward.
func (a *Attention) CheckBackward(g AttentionGradients) error {
	if err := a.checkProblem(); err != nil {
		return err
	}
	switch {
	case g.DBias.IsSet() && !a.Bias.IsSet():
		return errors.New("dBias is there, and the problem has no bias")
	case g.DSinks.IsSet() && !a.Sinks.IsSet():
		return errors.New("dSinks is there, and the problem has no sinks")
	}
	if err := a.checkTableGradients(g.DTables); err != nil {
		return err
	}
	dq := writtenLike("dq", g.DQ, a.Q.Shape, a.Q.DType)
	dk, dv := writtenLike("dk", g.DK, a.K.Shape, a.Q.DType), writtenLike("dv", g.DV, a.V.Shape, a.Q.DType)
	if !g.DQ.IsSet() && !g.DK.IsSet() && !g.DV.IsSet() {
		dq, dk, dv = dq.optional(), dk.optional(), dv.optional()
	}
	list := a.operands(like("dO", g.DO, a.OutputShape(), a.Q.DType), a.perRow("lse", g.LSE), a.perRow("delta", g.Delta),
		dq, dk, dv, denseLike("dBias", g.DBias, a.Bias), denseLike("dSinks", g.DSinks, a.Sinks))
	for n, d := range g.DTables {
		list = append(list, denseLike("d"+a.ScoreTables()[n].Name, d, a.Tables[n]))
	}
	return checkOperands(list...)
}

func (a *Attention) checkProblem() error {
	if a == nil {
		return errNoProblem
	}
	if err := a.Q.validateFloat("q"); err != nil {
		return err
	}
	return a.Validate()
}

// operands lists the inputs of a valid problem, and then more.
func (a *Attention) operands(more ...operand) []operand {
	dtype := a.Q.DType
	list := []operand{
		like("q", a.Q, a.Q.Shape, dtype), like("k", a.K, a.K.Shape, dtype), like("v", a.V, a.V.Shape, dtype),
		like("bias", a.Bias, a.Bias.Shape, a.Bias.DType).optional(), like("sinks", a.Sinks, a.Sinks.Shape, a.Sinks.DType).optional(),
	}
	for n, t := range a.Tables {
		list = append(list, like(a.ScoreTables()[n].Name, t, t.Shape, t.DType))
	}
	return append(list, more...)
}

// perRow is an operand of a value for each row of Q.
func (a *Attention) perRow(name string, t Tensor) operand {
	return wide(name, t, a.Q.Shape[:3], a.Q.DType)
}

// denseLike is the gradient of an input, or left out.
func denseLike(name string, t, input Tensor) operand {
	return operand{name: name, tensor: t, shape: input.Shape, dtypes: [2]DType{input.DType}, layout: dense, isOptional: true}
}

// OutputShape returns the shape that O and dO need: (B, Hq, Sq, Dv).
func (a *Attention) OutputShape() []int {
	return []int{a.Q.Shape[0], a.Q.Shape[1], a.Q.Shape[2], a.V.Shape[3]}
}

// CheckScores returns what is wrong with a request for the scores s, (B, Hq, rows, Sk), of some
// query rows.
func (a *Attention) CheckScores(rows []int, s Tensor) error {
	if err := a.checkProblem(); err != nil {
		return err
	}
	if a.QLens != nil {
		return errors.New("the sequences are packed, scores of packed sequences cannot be looked at")
	}
	for _, i := range rows {
		if i < 0 || i >= a.Q.Shape[2] {
			return fmt.Errorf("row %d is asked for, it needs to be from 0 to %d", i, a.Q.Shape[2]-1)
		}
	}
	return checkOperands(append(a.operands(), wide("scores", s, []int{a.Q.Shape[0], a.Q.Shape[1], len(rows), a.K.Shape[2]}, a.Q.DType))...)
}
