package ops_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

func TestRoPE(t *testing.T) {
	var cases []opCase
	for _, shape := range [][]int{{1, 1, 1, 2}, {2, 3, 5, 8}, {1, 2, 17, 22}} {
		for _, o := range []ops.RoPEOptions{
			{}, {Interleaved: true}, {Offset: 7}, {Base: 500, Scaling: 4}, {RotaryDim: 2}, {RotaryDim: 2, Interleaved: true, Offset: 3},
			{RotaryDim: 2, Divisors: []float64{3}, Amplitude: 1.5},
		} {
			for _, layout := range []ops.Layout{ops.BHSD, ops.BSHD} {
				o := o
				o.Layout = layout
				r := &kernels.RoPE{Offset: o.Offset, Base: o.Base, PositionScale: o.Scaling, RotaryDim: o.RotaryDim, Divisors: o.Divisors, Amplitude: o.Amplitude}
				if o.Interleaved {
					r.Pairing = kernels.Interleaved
				}
				positioned := len(cases)%3 == 2
				in := []opInput{floats("x", shape...)}
				if positioned {
					in = append(in, ids("positions", 5000, shape[0], shape[2-int(o.Layout)]))
				}
				// rotated applies the reference to x as (B, H, S, D) and orders the result as x is.
				rotated := func(positions []kernels.Tensor, x []float64, rotate func(*kernels.RoPE, kernels.Tensor) []float64) []float64 {
					r := *r
					if positioned {
						r.Positions = positions[0]
					}
					if o.Layout == ops.BHSD {
						return rotate(&r, kernels.Of(x, shape...))
					}
					y := rotate(&r, kernels.Of(x, shape...).Permute(0, 2, 1, 3))
					return ordered(kernels.Of(y, shape[0], shape[2], shape[1], shape[3]).Permute(0, 2, 1, 3))
				}
				cases = append(cases, opCase{
					options: fmt.Sprintf("RoPE with %+v", o), in: in,
					apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) {
						o := o
						if positioned {
							o.Positions = in[1]
						}
						return ops.RoPE(in[0], o)
					},
					want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
						return rotated(in[1:], float64sOf(in[0]), reference.RoPE), [][]float64{rotated(in[1:], dOut, reference.RoPEGrad), nil}
					},
				})
			}
		}
	}
	testOp(t, cases)
}

// Queries and keys of a projection are turned, and values stay.
func TestRoPEQKV(t *testing.T) {
	const batch, length, heads, kvHeads, d = 2, 5, 4, 2, 6
	var cases []opCase
	for _, o := range []ops.RoPEOptions{{}, {Interleaved: true, Offset: 7}, {RotaryDim: 2}} {
		for _, shape := range [][]int{{batch, length, (heads + 2*kvHeads) * d}, {batch * length, (heads + 2*kvHeads) * d}} {
			items, rows := batch, length
			if len(shape) == 2 {
				items, rows = 1, batch*length
			}
			r := &kernels.RoPE{Offset: o.Offset, RotaryDim: o.RotaryDim}
			if o.Interleaved {
				r.Pairing = kernels.Interleaved
			}
			rotated := func(x []float64, rotate func(*kernels.RoPE, kernels.Tensor) []float64) []float64 {
				const turned = heads + kvHeads
				all := kernels.Of(x, items, rows, heads+2*kvHeads, d)
				y := rotate(r, all.Permute(0, 2, 1, 3).Slice(1, 0, turned))
				out := ordered(all)
				for i, v := range ordered(kernels.Of(y, items, turned, rows, d).Permute(0, 2, 1, 3)) {
					out[i/(turned*d)*(heads+2*kvHeads)*d+i%(turned*d)] = v
				}
				return out
			}
			cases = append(cases, opCase{
				options: fmt.Sprintf("RoPEQKV with %+v", o), in: []opInput{floats("qkv", shape...)},
				apply: func(in []*gorgonia.Node) (*gorgonia.Node, error) { return ops.RoPEQKV(in[0], heads, kvHeads, o) },
				want: func(in []kernels.Tensor, dOut []float64) ([]float64, [][]float64) {
					return rotated(float64sOf(in[0]), reference.RoPE), [][]float64{rotated(dOut, reference.RoPEGrad)}
				},
			})
		}
	}
	testOp(t, cases)
}
