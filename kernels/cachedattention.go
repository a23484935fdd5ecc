package kernels

import (
	"errors"
	"fmt"
	"slices"
)

// CachedAttention is attention of a few new tokens that follow those in a cache. How many tokens
// the cache holds lies in the device's memory, so that each launch of a recording follows the one
// before. For batch item b, which is item i = first + b of the cache and holds n tokens:
//
//	Keys_i, Values_i, rows n … n + S − 1  ←  RoPE(K_b), V_b       n ← n + S
//	O_b = attention of RoPE(Q_b) over the first n rows of Keys_i and Values_i
//
// An item that does not take part keeps what it holds, and its O means nothing.
type CachedAttention struct {
	// Attention is the problem over the new tokens alone: Q, K and V have S rows of each of B
	// items, which Causal, Window and ALiBi number as the last ones of all that the item then
	// holds.
	Attention
	// RoPE turns rows of Q and K by their place in the cache beyond Offset; nil leaves them as they
	// are. It has no Positions.
	RoPE         *RoPE
	Keys, Values Tensor // (items, Hk, capacity, D) and (items, Hk, capacity, Dv): memory of the cache
	// State is (1 + 2·items) of I32: first, then how many tokens each item holds, then 1 for each
	// that takes part and 0 for others. The caller makes sure that the new rows have room.
	State Tensor
}

// CachedAttentionKernels is a device that computes [CachedAttention]. Elsewhere, and where it does
// not take a problem, copies to the cache and [AttentionKernels] give the same.
type CachedAttentionKernels interface {
	// TakesCachedAttention reports whether there is a kernel for the problem, whose tensors may
	// lack data.
	TakesCachedAttention(c *CachedAttention) bool
	// CachedAttentionForward adds to the cache, changes State, and computes O, which is as that of
	// [AttentionForward].
	CachedAttentionForward(c *CachedAttention, o Tensor) error
}

// Validate returns what is wrong with the problem, naming the argument, what it was and what it
// needs to be, or nil.
func (c *CachedAttention) Validate() error {
	if c == nil {
		return errNoProblem
	}
	if err := c.Attention.Validate(); err != nil {
		return err
	}
	q, k, v := c.Q, c.K, c.V
	if c.RoPE != nil {
		if c.RoPE.Positions.IsSet() {
			return errors.New("positions are given, rows are turned by their place in the cache")
		}
		if err := errors.Join(c.RoPE.Validate(q, "q"), c.RoPE.Validate(k, "k")); err != nil {
			return err
		}
	}
	if k.Shape[0] != q.Shape[0] || k.Shape[2] != q.Shape[2] {
		return fmt.Errorf("k has shape %v and q %v: each token needs a row of both", k.Shape, q.Shape)
	}
	for _, of := range []struct {
		name      string
		rows, all Tensor
	}{{"keys", k, c.Keys}, {"values", v, c.Values}} {
		rows, all := of.rows.Shape, of.all.Shape
		if len(all) != 4 || all[0] < rows[0] || all[1] != rows[1] || all[2] < rows[2] || all[3] != rows[3] || of.all.DType != of.rows.DType {
			return fmt.Errorf("%s are %v of shape %v, it needs %v of (at least %d items, %d heads, at least %d rows, %d)",
				of.name, of.all.DType, all, of.rows.DType, rows[0], rows[1], rows[2], rows[3])
		}
	}
	if want := []int{1 + 2*c.Keys.Shape[0]}; c.Values.Shape[0] != c.Keys.Shape[0] || c.State.DType != I32 || !slices.Equal(c.State.Shape, want) {
		return fmt.Errorf("state is %v of shape %v, it needs %v of shape %v", c.State.DType, c.State.Shape, I32, want)
	}
	return nil
}

// Check returns what is wrong with a call of CachedAttentionForward.
func (c *CachedAttention) Check(o Tensor) error {
	if err := c.Validate(); err != nil {
		return err
	}
	err := checkOperands(
		operand{name: "keys", tensor: c.Keys, shape: c.Keys.Shape, dtypes: [2]DType{c.K.DType}, layout: writtenRows},
		operand{name: "values", tensor: c.Values, shape: c.Values.Shape, dtypes: [2]DType{c.V.DType}, layout: writtenRows},
		operand{name: "state", tensor: c.State, shape: c.State.Shape, dtypes: [2]DType{I32}, layout: dense})
	if err != nil {
		return err
	}
	return c.CheckForward(AttentionOutputs{O: o})
}
