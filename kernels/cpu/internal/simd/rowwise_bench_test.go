package simd

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// BenchmarkRow is each kernel that works on a row, on rows that stay in the caches: what it costs
// beside memory.
func BenchmarkRow(b *testing.B) { benchmarkEverywhere(b, benchmarkRow[float32], benchmarkRow[float64]) }

func benchmarkRow[T kernels.Float](b *testing.B) {
	const n = 1024
	var rows [6][]T
	for i := range rows {
		rows[i] = make([]T, n)
		for j := range rows[i] {
			rows[i][j] = T(j%13)/3 - 2
		}
	}
	x, y, z, u, v, w := &rows[0][0], &rows[1][0], &rows[2][0], &rows[3][0], &rows[4][0], &rows[5][0]
	for _, k := range []struct {
		name string
		call func()
	}{
		{"GELUTanh", func() { Activate(kernels.GELUTanh, n, y, x) }},
		{"GELUTanhGrad", func() { ActivateGrad(kernels.GELUTanh, n, y, x, z) }},
		{"GELUErf", func() { Activate(kernels.GELUErf, n, y, x) }},
		{"GELUErfGrad", func() { ActivateGrad(kernels.GELUErf, n, y, x, z) }},
		{"SiLU", func() { Activate(kernels.SiLU, n, y, x) }},
		{"SwiGLUGrad", func() { SwiGLUGrad(n, u, v, x, z, w) }},
		{"Add", func() { Add(n, y, x, z) }},
		{"Sum", func() { Sum(n, x) }},
		{"Deviations", func() { Deviations(n, x, 0) }},
		{"Normalize", func() { Normalize(n, y, x, 0, 1, 0, z, u) }},
		{"NormalizeDots", func() { NormalizeDots(n, x, z, u, 0, 1) }},
		{"NormalizeGrad", func() { NormalizeGrad(n, y, x, z, u, 0, 1, 0, 0, v, w) }},
		{"Greatest", func() { Greatest(n, x) }},
		{"SumExp", func() { SumExp(n, x, 3) }},
		{"ScaledExp", func() { ScaledExp(n, y, x, 3, 1, 0) }},
		{"Rotate", func() { Rotate(16, n/16/2, y, z, n/16, x, u, n/16, v, w, n/16/2) }},
	} {
		b.Run(k.name, func(b *testing.B) {
			const rounds = 16
			perElement(b, rounds*n, func() {
				for range rounds {
					k.call()
				}
			})
		})
	}
}
