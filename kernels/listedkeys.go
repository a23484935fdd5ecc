package kernels

import (
	"errors"
	"fmt"
	"slices"
)

// ListedAttention is attention in which each query sees the keys on a list of its own, such as a
// top-k choice. Query head h reads key head h/(Hq/Hk); the query heads of a group share a list. For
// one query, with j over its list:
//
//	S_j = scale · q·k_j     LSE = log Σ_j exp S_j     P_j = exp(S_j − LSE)     o = Σ_j P_j v_j
//
// −1 is no key. A key that a list has several times counts as often. A query without keys has O = 0
// and LSE = −∞, and gives zero to all gradients.
type ListedAttention struct {
	Q     Tensor  // (B, Hq, Sq, D); every axis but the last may have any stride
	K     Tensor  // (1|B, Hk, Sk, D)
	V     Tensor  // (1|B, Hk, Sk, Dv)
	Lists Tensor  // (1|B, 1|Hk, Sq, n), int32 or int64: rows of K
	Scale float64 // 0 means 1/√D

	Deterministic bool // gradients that are bit-equal from run to run; on the CPU they always are
}

// ListedKernels is a device that computes attention to listed keys.
type ListedKernels interface {
	// ListedForward computes O, and the logsumexp of each row if asked. An index that is no row of
	// K is an error that names its place.
	ListedForward(a *ListedAttention, out AttentionOutputs) error
	// ListedBackward computes DQ, DK and DV from the saved logsumexp and δ. The other gradients are
	// left out.
	ListedBackward(a *ListedAttention, g AttentionGradients) error
}

// Plain is the problem in which each query sees all keys.
func (a *ListedAttention) Plain() *Attention {
	return &Attention{Q: a.Q, K: a.K, V: a.V, Scale: a.Scale}
}

// Validate returns what is wrong with the problem, apart from the indices. Tensors may lack data.
func (a *ListedAttention) Validate() error {
	if a == nil {
		return errNoProblem
	}
	if err := a.Plain().Validate(); err != nil {
		return err
	}
	if err := a.Lists.validateIndices("lists"); err != nil {
		return err
	}
	q, k, l := a.Q.Shape, a.K.Shape, a.Lists.Shape
	if len(l) != 4 || l[0] != 1 && l[0] != q[0] || l[1] != 1 && l[1] != k[1] || l[2] != q[2] {
		return fmt.Errorf("lists has shape %v, it needs (1 or %d batch items, 1 or %d key heads, %d queries, listed keys)", l, q[0], k[1], q[2])
	}
	return nil
}

// CheckForward returns what is wrong with a call of ListedForward, apart from the indices.
func (a *ListedAttention) CheckForward(out AttentionOutputs) error {
	if err := a.Validate(); err != nil {
		return err
	}
	return errors.Join(a.Plain().CheckForward(out), checkOperands(indices("lists", a.Lists)))
}

// CheckBackward returns what is wrong with a call of ListedBackward, apart from the indices.
func (a *ListedAttention) CheckBackward(g AttentionGradients) error {
	if err := a.Validate(); err != nil {
		return err
	}
	if !g.DQ.IsSet() || g.DBias.IsSet() || g.DSinks.IsSet() || slices.ContainsFunc(g.DTables, Tensor.IsSet) {
		return errors.New("attention to listed keys has gradients of q, k and v, all three")
	}
	return errors.Join(a.Plain().CheckBackward(g), checkOperands(indices("lists", a.Lists)))
}
