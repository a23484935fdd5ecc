package simd

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// Rows of any number of vectors, for one head and for several, by lists that have a row twice.
func TestListed(t *testing.T) { everywhere(t, testListed[float32], testListed[float64]) }

func testListed[T kernels.Float](t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	for _, heads := range []int{1, 3, 4, 9} {
		for _, vectors := range []int{0, 1, 2, 3, 4, 8, 13} {
			for _, n := range []int{0, 1, 4, 7, 21} {
				const rows = 10
				d := vectors * Lanes[T]()
				a, list := newFenced[T](r, rows, d, d+3), make([]int64, n)
				for i := range list {
					list[i] = int64(r.IntN(rows))
				}
				what := fmt.Sprintf("%d heads, %d columns, %d of the list", heads, d, n)
				b, out := newFenced[T](r, heads, d, d+5), newFenced[T](r, heads, n, n+2)
				ListedDots(heads, d, a.first(), a.stride, list, b.first(), b.stride, out.first(), out.stride)
				sum := func(terms int, of func(i int) float64) (total, size float64) {
					for i := range terms {
						total, size = total+of(i), size+math.Abs(of(i))
					}
					return total, size
				}
				check := func(f fenced[T], name string, terms int, term func(i, j, n int) float64) {
					t.Helper()
					f.check(t, name, what, func(i, j int) float64 {
						total, _ := sum(terms, func(n int) float64 { return term(i, j, n) })
						return total
					}, func(i, j int) float64 {
						_, size := sum(terms, func(n int) float64 { return term(i, j, n) })
						return epsilon[T]() * float64(2+terms/4) * size
					})
				}
				check(out, "dots", d, func(h, i, j int) float64 { return float64(*a.at(int(list[i]), j)) * float64(*b.at(h, j)) })

				c := b.clone()
				ListedCombine(heads, d, a.first(), a.stride, list, out.first(), out.stride, c.first(), c.stride)
				check(c, "sums", n+1, func(h, j, i int) float64 {
					if i == n {
						return float64(*b.at(h, j))
					}
					return float64(*out.at(h, i)) * float64(*a.at(int(list[i]), j))
				})

				added := a.clone()
				ListedAdd(heads, d, added.first(), added.stride, list, out.first(), out.stride, b.first(), b.stride)
				check(added, "rows", n*heads+1, func(l, j, i int) float64 {
					switch {
					case i == n*heads:
						return float64(*a.at(l, j))
					case list[i/heads] != int64(l):
						return 0
					}
					return float64(*out.at(i%heads, i/heads)) * float64(*b.at(i%heads, j))
				})
			}
		}
	}
}
