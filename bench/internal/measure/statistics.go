package measure

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Summary is what a table shows of samples.
type Summary struct {
	N                                     int
	Median, Lower, Upper, Least, Greatest float64 // Lower and Upper are the quartiles
}

// Summarize gives NaN for everything where there are no samples.
func Summarize(samples []float64) Summary {
	s := slices.Sorted(slices.Values(samples))
	return Summary{
		N: len(s), Median: quantile(s, 0.5), Lower: quantile(s, 0.25), Upper: quantile(s, 0.75),
		Least: quantile(s, 0), Greatest: quantile(s, 1),
	}
}

// Spread is the distance of the quartiles as a share of the median.
func (s Summary) Spread() float64 { return (s.Upper - s.Lower) / s.Median }

// Median of samples, NaN if there are none.
func Median(samples []float64) float64 { return Summarize(samples).Median }

// quantile interpolates between the samples next to rank q·(n−1).
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := q * float64(len(sorted)-1)
	below := int(rank)
	if below == len(sorted)-1 {
		return sorted[below]
	}
	return sorted[below] + (rank-float64(below))*(sorted[below+1]-sorted[below])
}

// Ratios are the quotients of samples of the same round.
func Ratios(a, b []float64) []float64 {
	r := make([]float64, min(len(a), len(b)))
	for i := range r {
		r[i] = a[i] / b[i]
	}
	return r
}

// MedianInterval gives two samples between which the true median lies with at least the given
// confidence, whatever the distribution: the number of samples below it is binomial. With too few
// samples for that the interval is infinite.
func MedianInterval(samples []float64, confidence float64) (low, high float64) {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	// The interval from the k-th smallest to the k-th largest misses with probability
	// 2·P(Binomial(n, 1/2) < k).
	k, missed, next := 0, 0.0, math.Pow(0.5, float64(n))
	for 2*(missed+next) <= 1-confidence && 2*(k+1) <= n {
		missed += next
		next *= float64(n-k) / float64(k+1)
		k++
	}
	if k == 0 {
		return math.Inf(-1), math.Inf(1)
	}
	return s[k-1], s[n-k]
}

// exactSize is up to how many samples on each side MannWhitney counts arrangements instead of
// approximating.
const exactSize = 30

// MannWhitney is the probability of samples that lie at least as far apart if both came from one
// distribution: the two-sided U test, exact for few samples without ties, else by the normal
// approximation. It is 1 where a side has no samples.
func MannWhitney(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	u, ties := 0.0, false // u counts the pairs in which a is greater, ties half
	for _, x := range a {
		for _, y := range b {
			switch {
			case x > y:
				u++
			case x == y:
				u += 0.5
				ties = true
			}
		}
	}
	n, m := len(a), len(b)
	mean := float64(n) * float64(m) / 2
	distance := math.Abs(u - mean)
	if !ties && n <= exactSize && m <= exactSize {
		counts, total, beyond := arrangements(n, m), 0.0, 0.0
		for i, c := range counts {
			total += c
			if math.Abs(float64(i)-mean) >= distance {
				beyond += c
			}
		}
		return beyond / total
	}
	size := float64(n + m)
	variance := mean / 6 * (size + 1 - tieTerm(a, b)/(size*(size-1)))
	if variance <= 0 {
		return 1
	}
	z := max(0, distance-0.5) / math.Sqrt(variance)
	return min(1, math.Erfc(z/math.Sqrt2))
}

// arrangements counts, for each u, the orders of n and m different samples in which u pairs have
// the first greater.
func arrangements(n, m int) []float64 {
	// ways[j][u] for i samples of the first kind and j of the second; the greatest of all is one of
	// either kind.
	ways := make([][]float64, m+1)
	for j := range ways {
		ways[j] = make([]float64, n*m+1)
		ways[j][0] = 1
	}
	for range n {
		before := ways
		ways = make([][]float64, m+1)
		for j := range ways {
			ways[j] = make([]float64, n*m+1)
			for u := range ways[j] {
				if u >= j {
					ways[j][u] += before[j][u-j]
				}
				if j > 0 {
					ways[j][u] += ways[j-1][u]
				}
			}
		}
	}
	return ways[m]
}

// tieTerm is Σ (t³ − t) over groups of t equal samples.
func tieTerm(a, b []float64) float64 {
	all := slices.Sorted(slices.Values(append(slices.Clone(a), b...)))
	sum := 0.0
	for from := 0; from < len(all); {
		to := from
		for to < len(all) && all[to] == all[from] {
			to++
		}
		t := float64(to - from)
		sum += t*t*t - t
		from = to
	}
	return sum
}

// ShiftInterval is by what share of the old median the new one differs, and the interval that holds
// this share with the given confidence, by resampling both sides. Equal seeds give equal intervals.
func ShiftInterval(before, after []float64, confidence float64, seed uint64) (shift, low, high float64) {
	shift = Median(after)/Median(before) - 1
	if len(before) == 0 || len(after) == 0 {
		return shift, math.NaN(), math.NaN()
	}
	const resamples = 1000
	random := rand.New(rand.NewPCG(seed, 0))
	draw := func(from []float64) float64 {
		some := make([]float64, len(from))
		for i := range some {
			some[i] = from[random.IntN(len(from))]
		}
		return Median(some)
	}
	shifts := make([]float64, resamples)
	for i := range shifts {
		shifts[i] = draw(after)/draw(before) - 1
	}
	slices.Sort(shifts)
	return shift, quantile(shifts, (1-confidence)/2), quantile(shifts, (1+confidence)/2)
}
