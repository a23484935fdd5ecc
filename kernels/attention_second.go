package kernels

import (
	"errors"
	"fmt"
)

// AttentionSecond carries what the gradients of attention's own gradients are computed from, and
// what is computed. With u, w, b and s the gradients of some loss by dq, dk, dv, dbias and dsinks,
// which AttentionBackward gives, the kernel differentiates
//
//	Φ = ⟨dq, UQ⟩ + ⟨dk, UK⟩ + ⟨dv, UV⟩ + ⟨dbias, UBias⟩ + ⟨dsinks, USinks⟩
//
// by q, k, v, bias, sinks, dO and dLSE. What is left out among the U counts as zeros.
type AttentionSecond struct {
	DO   Tensor // (B, Hq, Sq, Dv), last axis contiguous
	DLSE Tensor // (B, Hq, Sq) row-major, or left out

	UQ, UK, UV    Tensor // shaped as Q, K, V, last axis contiguous
	UBias, USinks Tensor // shaped as Bias and Sinks, row-major

	DQ, DK, DV, DDO Tensor // of Φ by q, k, v and dO, last axis contiguous, every element written
	DDLSE           Tensor // of Φ by dLSE, (B, Hq, Sq) row-major, or left out
	DBias, DSinks   Tensor // of Φ by bias and sinks, row-major, or left out
}

// AttentionSecondKernels is a device that differentiates attention's gradients. It needs nothing
// that the other kernels have saved, and memory that grows with the length, not its square. For one
// row, with P, S, dP, δ and dS as in [AttentionKernels], m = keep/(1 − p), f' and f” the
// derivatives of what Score makes of a score, c and c' the soft cap's, and p_s the sink's weight:
//
//	t_j = scale (UQ·k_j + q·UK_j)        r_j = f'_j (c_j t_j + UBias_j)     y_j = m_j dO·UV_j
//	R   = Σ_j P_j r_j + USinks p_s       H = Σ_j P_j (dP_j r_j + y_j) − R (δ + dLSE)
//	X_j = P_j (r_j − R)                  G_j = dS_j (r_j − R) + P_j (y_j − H)
//	N_j = f'_j G_j + f''_j dS_j (c_j t_j + UBias_j)
//	M_j = c_j N_j + c'_j f'_j dS_j t_j
//
// and then
//
//	dq   = scale Σ_j M_j k_j + f'_j c_j dS_j UK_j     dk_j = scale Σ_i M_j q + f'_j c_j dS_j UQ
//	ddO  = Σ_j m_j (X_j v_j + P_j UV_j)               dv_j = Σ_i m_j X_j dO
//	dbias = Σ N over the axes that bias broadcasts    ddLSE = R
//	dsink = Σ_i p_s (δ (R − USinks) − H)
//
// A score that looks up floats, whose gradients would be among those to differentiate, is an error.
type AttentionSecondKernels interface {
	AttentionSecond(a *Attention, s AttentionSecond) error
}

// CheckSecond returns what is wrong with a call of AttentionSecond.
func (a *Attention) CheckSecond(s AttentionSecond) error {
	if err := a.checkProblem(); err != nil {
		return err
	}
	if err := a.ValidateSecond(); err != nil {
		return err
	}
	bias, sinks := s.UBias.IsSet() || s.DBias.IsSet(), s.USinks.IsSet() || s.DSinks.IsSet()
	switch {
	case bias && !a.Bias.IsSet():
		return errors.New("uBias or dBias is there, and the problem has no bias")
	case sinks && !a.Sinks.IsSet():
		return errors.New("uSinks or dSinks is there, and the problem has no sinks")
	}
	dtype := a.Q.DType
	return checkOperands(a.operands(
		like("dO", s.DO, a.OutputShape(), dtype), a.perRow("dLSE", s.DLSE).optional(),
		like("uq", s.UQ, a.Q.Shape, dtype).optional(), like("uk", s.UK, a.K.Shape, dtype).optional(), like("uv", s.UV, a.V.Shape, dtype).optional(),
		denseLike("uBias", s.UBias, a.Bias), denseLike("uSinks", s.USinks, a.Sinks),
		writtenLike("dq", s.DQ, a.Q.Shape, dtype), writtenLike("dk", s.DK, a.K.Shape, dtype), writtenLike("dv", s.DV, a.V.Shape, dtype),
		writtenLike("ddO", s.DDO, a.OutputShape(), dtype), a.perRow("ddLSE", s.DDLSE).optional(),
		denseLike("dBias", s.DBias, a.Bias), denseLike("dSinks", s.DSinks, a.Sinks))...)
}

// ValidateSecond returns what of a valid problem has no second derivatives, or nil.
func (a *Attention) ValidateSecond() error {
	if a.Score != nil && len(a.Score.Lookups) > 0 {
		table := a.Score.Tables[a.Score.Lookups[0].Table]
		return fmt.Errorf("score looks up %s, it needs to look up no floats where gradients are differentiated", table.Name)
	}
	return nil
}
