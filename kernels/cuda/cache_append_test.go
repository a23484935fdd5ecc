//go:build gpu

package cuda_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Attention of new tokens adds them to a cache whose lengths the device counts, once as a call and
// then in launches of a recording: turned or not, some items resting, the call's items anywhere in
// the cache, for whose keys one cluster is enough or not.
func TestCachedAttention(t *testing.T) {
	const items = 5
	for _, c := range []struct {
		capacity, batch, first, heads, keyHeads, rows, d, dv int
		rope                                                 *kernels.RoPE
	}{
		{200, 1, 0, 32, 4, 1, 64, 64, &kernels.RoPE{}},
		{200, 4, 1, 8, 2, 2, 128, 128, &kernels.RoPE{Base: 500000, RotaryDim: 64, Amplitude: 1.25, Offset: 3}},
		{200, 3, 2, 4, 4, 16, 64, 40, &kernels.RoPE{Pairing: kernels.Interleaved, RotaryDim: 48}},
		{200, 5, 0, 6, 3, 3, 72, 80, nil},
		{3000, 1, 4, 32, 4, 1, 64, 64, &kernels.RoPE{}},
		{1100, 3, 2, 8, 2, 3, 128, 128, nil},
		{200, 2, 3, 4, 2, 1, 256, 256, &kernels.RoPE{Divisors: slices.Repeat([]float64{1, 4}, 64)}},
	} {
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			r := newRowwiseTest(t, "%v %+v", dtype, c)
			keys, values := r.normals(dtype, 8, items, c.capacity, c.keyHeads, c.d), r.normals(dtype, 0, items, c.capacity, c.keyHeads, c.dv)
			columns := (c.heads+c.keyHeads)*c.d + c.keyHeads*c.dv
			qkv, o := r.empty(dtype, 0, c.batch, c.rows, columns), r.empty(dtype, 8, c.batch, c.heads, c.rows, c.dv)
			part := func(t kernels.Tensor, from, heads, d int) kernels.Tensor {
				return t.Slice(2, from, from+heads*d).Unflatten(2, d).Permute(0, 2, 1, 3)
			}
			split := func(t kernels.Tensor) (q, k, v kernels.Tensor) {
				at := c.heads * c.d
				return part(t, 0, c.heads, c.d), part(t, at, c.keyHeads, c.d), part(t, at+c.keyHeads*c.d, c.keyHeads, c.dv)
			}
			state := make([]int32, 1+2*items)
			state[0] = int32(c.first)
			for item := range items {
				state[1+item], state[1+items+item] = int32(c.capacity-200+item*37%90), int32(min(1, (item+c.first)%4))
			}
			onDevice, err := r.d.Upload(kernels.Of(state, len(state)))
			r.must(err)
			p := kernels.CachedAttention{RoPE: c.rope, State: onDevice, Attention: kernels.Attention{Causal: kernels.CausalBottomRight},
				Keys: keys.Tensor.Permute(0, 2, 1, 3), Values: values.Tensor.Permute(0, 2, 1, 3)}
			p.Q, p.K, p.V = split(qkv.Tensor)
			if !r.d.TakesCachedAttention(&p) {
				t.Fatalf("%s: there is no kernel", r.name)
			}
			call := func() error { return r.d.CachedAttentionForward(&p, o.Tensor) }
			var recording kernels.Recording
			for step := range 5 {
				for i, list := 0, qkv.values(); i < len(list); i++ {
					list[i] = roundedTo(dtype, r.random.NormFloat64())
				}
				r.must(r.d.Copy(qkv.Tensor, qkv.host))
				switch {
				case step == 0:
					r.must(call())
				case recording == nil:
					recording, err = r.d.Capture(call)
					r.must(err)
					fallthrough
				default:
					r.must(recording.Launch())
				}
				want := c.rope
				q, k, v := split(qkv.host)
				for b := range c.batch {
					item := c.first + b
					if state[1+items+item] == 0 {
						continue
					}
					held := int(state[1+item])
					state[1+item] += int32(c.rows)
					now := held + c.rows
					one := func(t kernels.Tensor) kernels.Tensor { return t.Slice(0, b, b+1) }
					all := kernels.Attention{Q: one(q), Causal: kernels.CausalBottomRight,
						K: hostTensor(kernels.F64, 1, c.keyHeads, now, c.d), V: hostTensor(kernels.F64, 1, c.keyHeads, now, c.dv)}
					r.must(r.d.Copy(all.K, p.Keys.Slice(0, item, item+1).Slice(2, 0, now)))
					r.must(r.d.Copy(all.V, p.Values.Slice(0, item, item+1).Slice(2, 0, now)))
					added := slices.Clone(ordered(one(k)))
					if want != nil {
						turned := *want
						turned.Offset += held
						added = reference.RoPE[float64](&turned, one(k))
						all.Q = kernels.Of(reference.RoPE[float64](&turned, one(q)), 1, c.heads, c.rows, c.d)
					}
					r.near("a new key", ordered(all.K.Slice(2, held, now)), added, dtype, 1)
					r.near("a new value", ordered(all.V.Slice(2, held, now)), ordered(one(v)), dtype, 0)
					out, _ := reference.Attention(&all)
					got := hostTensor(kernels.F64, 1, c.heads, c.rows, c.dv)
					r.must(r.d.Copy(got, one(o.Tensor)))
					r.near("o", ordered(got), out, dtype, 4)
				}
				now := kernels.Of(make([]int32, len(state)), len(state))
				r.must(r.d.Copy(now, onDevice))
				if got := kernels.Host[int32](now); !slices.Equal(got, state) {
					t.Fatalf("%s: step %d: state is %v, it needs to be %v", r.name, step, got, state)
				}
			}
			r.checkGaps("keys", keys)
			r.checkGaps("o", o)
		}
	}
}

// near compares with numbers of a size of about 1, with so many units in the last place of 1 to
// spare.
func (r *rowwiseTest) near(what string, got, want []float64, dtype kernels.DType, units float64) {
	r.Helper()
	unit := 1.0 / 128
	if dtype == kernels.F16 {
		unit /= 8
	}
	for i := range want {
		if e := math.Abs(got[i] - want[i]); !(e <= units*unit/2*max(1, math.Abs(want[i]))) {
			r.Fatalf("%s: %s[%d] is %v, it needs to be %v", r.name, what, i, got[i], want[i])
		}
	}
}

// ordered is the numbers of a tensor of the host in row-major order.
func ordered(t kernels.Tensor) []float64 {
	list := kernels.Of(make([]float64, t.Elements()), t.Shape...)
	kernels.CopyHost(list, t)
	return kernels.Host[float64](list)
}
