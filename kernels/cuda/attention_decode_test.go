//go:build gpu

package cuda_test

import (
	"math"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// checkDecoding compares attention of a few rows with the reference, and calls it again for the
// same bits. The host's tensors hold what the device's do.
func (r *rowwiseTest) checkDecoding(a, host *kernels.Attention, dtype kernels.DType) {
	r.Helper()
	q := a.Q.Shape
	o, lse := r.empty(dtype, 0, q[0], q[1], q[2], a.V.Shape[3]), r.empty(kernels.F32, 0, q[0], q[1], q[2])
	wantO, wantLSE := reference.Attention(host)
	r.must(r.d.AttentionForward(a, kernels.AttentionOutputs{O: o.Tensor, LSE: lse.Tensor}))
	gotO, gotLSE := r.values(o), r.values(lse)
	// Probabilities and results are rounded to the type, whose least number is all that is left of
	// results that a sink has drowned.
	rounding := map[kernels.DType]float64{kernels.BF16: 1.5 / (1 << 8), kernels.F16: 1.5 / (1 << 11)}[dtype]
	least := map[kernels.DType]float64{kernels.BF16: 0x1p-133, kernels.F16: 0x1p-24}[dtype]
	bound := rounding*greatest(wantO) + least
	for i, x := range gotO {
		if e := math.Abs(x - wantO[i]); !(e <= bound) {
			r.Fatalf("%s: o[%d] is %v, it needs to be %v within %.2g", r.name, i, x, wantO[i], bound)
		}
	}
	for i, x := range gotLSE {
		if x != wantLSE[i] && !(math.Abs(x-wantLSE[i]) <= 1e-5*(1+math.Abs(wantLSE[i]))) {
			r.Fatalf("%s: lse[%d] is %v, it needs to be %v", r.name, i, x, wantLSE[i])
		}
	}
	for range 3 {
		r.must(r.d.AttentionForward(a, kernels.AttentionOutputs{O: o.Tensor, LSE: lse.Tensor}))
		r.checkSame("o", o, gotO)
		r.checkSame("lse", lse, gotLSE)
	}
}

// Attention of few rows with all options and lengths, where blocks have a part of a head, one head
// or many, on Hopper and by the kernels for any device.
func TestDecoding(t *testing.T) {
	options := []func(a *kernels.Attention){
		func(*kernels.Attention) {},
		func(a *kernels.Attention) { a.Causal = kernels.CausalBottomRight },
		func(a *kernels.Attention) {
			a.Causal, a.Window = kernels.CausalBottomRight, &kernels.Window{Left: 200, Right: -1}
		},
		func(a *kernels.Attention) { a.SoftCap = 3 },
		func(a *kernels.Attention) {
			a.Causal = kernels.CausalTopLeft
			for h := range a.Q.Shape[1] {
				a.ALiBi = append(a.ALiBi, 1/float64(h+2))
			}
		},
		func(a *kernels.Attention) { a.Window = &kernels.Window{Left: 3, Right: 50, Shift: -300} },
	}
	sizes := [][2]int{{64, 64}, {128, 128}, {40, 56}, {256, 256}, {192, 128}, {80, 80}}
	n := 0
	for _, maps := range []bool{true, false} {
		if !maps {
			defer device(t).WithoutMaps()()
		}
		for _, rows := range []struct{ sq, heads, keyHeads int }{{1, 1, 1}, {1, 8, 8}, {1, 16, 2}, {1, 16, 1}, {3, 8, 2}, {16, 3, 3}, {5, 6, 2}} {
			for _, length := range []int{1, 63, 64, 65, 700, 1024, 5000, 9000} {
				n++
				size, batch, dtype := sizes[n%len(sizes)], []int{1, 2, 3, 37}[n%4], []kernels.DType{kernels.BF16, kernels.F16}[n/2%2]
				if length > 1024 {
					batch = 1 + n%3
				}
				r := newRowwiseTest(t, "maps=%v %+v of %v keys of %v, batch %d, %v", maps, rows, length, size, batch, dtype)
				q := r.normals(dtype, 0, batch, rows.heads, rows.sq, size[0])
				k, v := r.normals(dtype, 8, batch, length, rows.keyHeads, size[0]), r.normals(dtype, 0, batch, length, rows.keyHeads, size[1])
				a := kernels.Attention{Q: q.Tensor, K: k.Tensor.Permute(0, 2, 1, 3), V: v.Tensor.Permute(0, 2, 1, 3)}
				host := kernels.Attention{Q: q.host, K: k.host.Permute(0, 2, 1, 3), V: v.host.Permute(0, 2, 1, 3)}
				options[n%len(options)](&a)
				options[n%len(options)](&host)
				if n%5 == 0 {
					sinks := r.normals(kernels.F32, 0, rows.heads)
					a.Sinks, host.Sinks = sinks.Tensor, sinks.host
				}
				if n%3 == 0 {
					for b := range batch {
						a.KVLengths = append(a.KVLengths, []int{length, 0, length / 2, length - 1}[(b+n)%4])
					}
					host.KVLengths = a.KVLengths
				}
				r.checkDecoding(&a, &host, dtype)
			}
		}
	}
}

// Attention of few rows over latent vectors, whose first columns are the values too, some of which
// are split among more blocks than one can add up.
func TestDecodingOfLatents(t *testing.T) {
	for n, c := range []struct{ batch, heads, keyHeads, rows, length, d, dv int }{
		{1, 16, 1, 1, 1000, 576, 512}, {1, 4, 1, 4, 20000, 576, 512}, {3, 16, 1, 1, 777, 576, 512}, {2, 6, 2, 2, 300, 320, 256},
		{1, 1, 1, 1, 64, 576, 512}, {40, 2, 1, 2, 130, 512, 512}, {1, 8, 1, 1, 40000, 128, 128}, {1, 2, 1, 5, 40000, 64, 64},
	} {
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			r := newRowwiseTest(t, "%v %+v", dtype, c)
			if r.d.Major < 9 && c.d > 256 {
				continue
			}
			q, k := r.normals(dtype, 0, c.batch, c.heads, c.rows, c.d), r.normals(dtype, 0, c.batch, c.length, c.keyHeads, c.d)
			a := kernels.Attention{Q: q.Tensor, K: k.Tensor.Permute(0, 2, 1, 3), Causal: kernels.CausalBottomRight, Scale: 0.7 / math.Sqrt(float64(c.d))}
			a.V = a.K.Slice(3, 0, c.dv)
			host := a
			host.Q, host.K = q.host, k.host.Permute(0, 2, 1, 3)
			host.V = host.K.Slice(3, 0, c.dv)
			if n == 2 {
				a.KVLengths = []int{c.length, 0, 500}
				host.KVLengths = a.KVLengths
			}
			r.checkDecoding(&a, &host, dtype)
		}
	}
}
