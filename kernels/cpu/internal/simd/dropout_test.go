package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestDropout(t *testing.T) { everywhere(t, testDropout[float32], testDropout[float64]) }

func testDropout[T kernels.Float](t *testing.T) {
	const seed = 9
	r := rand.New(rand.NewPCG(seed, 0))
	for _, rows := range []int{0, 1, 3} {
		for _, n := range []int{1, 4, 13, 16, 64, 68, 128, 1100} {
			for _, d := range []kernels.Dropout{
				{P: 0.1, Seed: 42, Step: 7}, {P: 0.5, Seed: math.MaxUint64, Step: math.MaxUint32}, {P: 0}, {P: 0.99999},
			} {
				for _, at := range [][3]int{{0, 0, 0}, {5, 1000, 8}, {1 << 20, 1 << 31, 1<<34 - 256}} {
					plane, row0, col0 := at[0], at[1], at[2]
					s := newRoom[T](r, rows, n)
					if rows > 1 {
						*s.at(1, 0) = T(math.NaN())
					}
					before := s.clone()
					Dropout(rows, n, s.first(), s.first(), s.stride, d, plane, row0, col0, 1.25)
					for i := range rows {
						for j := n; j < roundUp[T](n); j++ {
							*s.at(i, j) = canary
						}
					}
					s.n = n
					s.check(t, "s", fmt.Sprintf("rows=%d n=%d %+v plane=%d row0=%d col0=%d", rows, n, d, plane, row0, col0),
						func(i, j int) float64 {
							if !d.Keep(plane, row0+i, col0+j) {
								return 0
							}
							return float64(*before.at(i, j) * 1.25)
						}, same)
				}
			}
		}
	}
}
