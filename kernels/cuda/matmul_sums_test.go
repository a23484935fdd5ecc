//go:build gpu

package cuda_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// summedCases have whole tiles, streamed ones and both, below each other and beside each other, and
// edges of all tiles.
var summedCases = []productCase{
	{m: 104, n: 6000, k: 1000}, {m: 104, n: 6000, k: 5000, wideC: true}, {m: 104, n: 25600, k: 200}, // beside
	{m: 304, n: 12800, k: 300}, {m: 304, n: 12800, k: 1001, wideC: true}, {m: 1600, n: 1600, k: 520}, {m: 1592, n: 1440, k: 4001, gap: 8}, // sharing A
	{m: 384, n: 1152, k: 16384, wideC: true}, {m: 520, n: 776, k: 1097}, {m: 296, n: 264, k: 20001, gap: 16}, {m: 264, n: 136, k: 5000}, // in turns
	{m: 1000, n: 5000, k: 701}, {m: 2000, n: 9000, k: 130}, {m: 1400, n: 4600, k: 1537, wideC: true}, {m: 200, n: 9000, k: 100}, {m: 760, n: 2304, k: 4001, wideC: true}, // broad
	{m: 1280, n: 3840, k: 1031, accumulate: true, wideC: true}, {m: 2048, n: 4096, k: 521}, {m: 264, n: 16896, k: 521, wideC: true}, // wide
}

// The sums of B's columns come beside a product of which they change no bit, in one order.
func TestMatMulSums(t *testing.T) {
	ran := map[string]int{}
	for i, c := range summedCases {
		checkSums(t, []kernels.DType{kernels.BF16, kernels.F16}[i%2], c, ran)
	}
	for _, tile := range []string{"wide", "turns", "broad", "side"} {
		if device(t).HasMaps() && !slices.ContainsFunc(slices.Collect(maps.Keys(ran)), func(kernel string) bool { return strings.Contains(kernel, tile) }) {
			t.Errorf("no product had the tile %s: %v", tile, ran)
		}
	}
}

// The gradients of the queries, keys and values of GPT-2.
func TestMatMulSumsOfGPT2(t *testing.T) {
	for _, c := range []productCase{{m: 768, n: 2304, k: 32768, wideC: true}, {m: 1024, n: 3072, k: 4096, wideC: true}} {
		checkSums(t, kernels.BF16, c, map[string]int{})
	}
}

// Products that no such kernel computes have the sums all the same.
func TestMatMulSumsApart(t *testing.T) {
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
		for _, c := range []productCase{
			{m: 5, n: 7, k: 3}, {m: 300, n: 263, k: 500, gap: 1}, {m: 4, n: 4096, k: 1024}, {m: 300, n: 520, k: 192, activation: kernels.SiLU, pre: true},
		} {
			checkSums(t, dtype, c, nil)
		}
	}
}

// checkSums computes the gradients of a weight and of a bias. Where there are kernels with tensor
// maps, one of those that sum must run, and is counted, unless ran is nil.
func checkSums(t *testing.T, dtype kernels.DType, c productCase, ran map[string]int) {
	t.Helper()
	c.transposeA = true
	p := newProductTest(t, dtype, c, uint64(c.m+c.n+c.k))
	var launched []string
	run := func() (product, sums []float64) {
		initial := upload(t, p.d, p.out.C.DType, p.initial, p.m, p.n)
		err := p.d.Copy(p.out.C, initial)
		if err == nil && p.out.SumsOfB.IsSet() {
			err = p.d.Fill(p.out.SumsOfB, math.NaN())
		}
		launched = nil
		p.d.Trace(func(kernel string) { launched = append(launched, kernel) })
		if err == nil {
			err = p.d.MatMul(&p.problem, p.out)
		}
		p.d.Trace(nil)
		if err != nil {
			t.Fatal(err)
		}
		if p.out.SumsOfB.IsSet() {
			sums = download(t, p.d, p.out.SumsOfB)
		}
		return download(t, p.d, p.out.C), sums
	}
	alone, _ := run()
	kind := dtype
	if c.wideC {
		kind = kernels.F32
	}
	p.out.SumsOfB = upload(t, p.d, kind, make([]float64, p.n), p.n)
	product, sums := run()
	at := slices.IndexFunc(launched, func(kernel string) bool {
		return strings.Contains(kernel, "matmul_sm90") && strings.Contains(kernel, "_sums")
	})
	switch {
	case ran != nil && p.d.HasMaps() && at < 0:
		t.Errorf("%v: %v have run, none of which sums", p, launched)
	case ran == nil && at >= 0:
		t.Errorf("%v: %s has run, which is not for it", p, launched[at])
	case at >= 0:
		ran[launched[at]]++
	}
	if !slices.Equal(product, alone) {
		t.Errorf("%v: the product beside sums has other bits", p)
	}
	for range 4 {
		if _, again := run(); !slices.Equal(again, sums) {
			t.Errorf("%v: another call gives other sums", p)
		}
	}
	host := rowMajor(p.exact.B)
	ref := reference.SumRows[float64](kernels.Of(host, p.k, p.n))
	plain := make([]float64, p.n)
	for j, x := range reference.SumRows[float32](kernels.Of(single(host), p.k, p.n)) {
		plain[j] = roundedTo(kind, float64(x))
	}
	p.compare("sums of b", []int{0}, p.out.SumsOfB, ref, plain)
}

// BenchmarkMatMulSums times gradients of weights alone, with sums of B's columns beside them, and
// with a pass for those.
func BenchmarkMatMulSums(b *testing.B) {
	d := device(b)
	for _, c := range []struct{ rows, columns, depth int }{
		{768, 2304, 32768}, {1024, 3072, 16384}, {768, 768, 32768}, {384, 1152, 16384}, {1600, 4800, 8192}, {2048, 6144, 8192}, {4096, 4096, 16384},
	} {
		x, dy := normalMatrix(b, d, c.depth, c.rows), normalMatrix(b, d, c.depth, c.columns)
		dw, err := d.Alloc(kernels.F32, c.rows, c.columns)
		if err != nil {
			b.Fatal(err)
		}
		db, err := d.Alloc(kernels.F32, c.columns)
		if err != nil {
			b.Fatal(err)
		}
		m := &kernels.MatMul{A: x.Permute(1, 0), B: dy}
		product := func() error { return d.MatMul(m, kernels.MatMulOutputs{C: dw}) }
		pass := func() error { return d.SumRows(dy, db, false) }
		beside := func() error { return d.MatMul(m, kernels.MatMulOutputs{C: dw, SumsOfB: db}) }
		b.Run(fmt.Sprintf("%dx%dx%d", c.rows, c.columns, c.depth), func(b *testing.B) {
			var least [3]float64
			for turn := range 5 {
				for i, calls := range [][]func() error{{product, product}, {product, pass, product, pass}, {beside, beside}} {
					one, err := ofRecording(b, d, calls)
					if err != nil {
						b.Fatal(err)
					}
					if one *= float64(len(calls)) / 2; turn == 0 || one < least[i] {
						least[i] = one
					}
				}
			}
			b.ReportMetric(0, "ns/op")
			for i, unit := range []string{"µs-alone", "µs-and-pass", "µs-beside"} {
				b.ReportMetric(least[i]*1e6, unit)
			}
		})
	}
}
