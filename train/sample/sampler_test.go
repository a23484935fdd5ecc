package sample_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/train/sample"
	"pgregory.net/rapid"
)

func newSampler(t rapid.TB, o sample.SamplerOptions) *sample.Sampler {
	t.Helper()
	s, err := sample.NewSampler(o)
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	return s
}

// probabilities is the definition: sort, cut, normalise.
func probabilities(logits []float64, o sample.SamplerOptions) []float64 {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	p := make([]float64, len(logits))
	if o.Temperature == 0 {
		p[order[0]] = 1
		return p
	}
	if o.TopK > 0 {
		k := min(o.TopK, len(order))
		for k < len(order) && logits[order[k]] == logits[order[k-1]] { // what is as probable as the last
			k++
		}
		order = order[:k]
	}
	normalise := func() {
		sum := 0.0
		for _, id := range order {
			sum += math.Exp((logits[id] - logits[order[0]]) / o.Temperature)
		}
		clear(p)
		for _, id := range order {
			p[id] = math.Exp((logits[id]-logits[order[0]])/o.Temperature) / sum
		}
	}
	normalise()
	if o.TopP > 0 && o.TopP < 1 {
		sum := 0.0
		for i, id := range order {
			if sum += p[id]; sum >= o.TopP {
				order = order[:i+1]
				break
			}
		}
		normalise()
	}
	return p
}

// TestFrequencies compares how often each token is chosen with its probability.
func TestFrequencies(t *testing.T) {
	logits := []float64{1, -0.5, 2, 0.3, 1.9, -3, math.Inf(-1), 0.3}
	const draws = 20_000
	for i, o := range []sample.SamplerOptions{
		{}, {TopK: 3, TopP: 0.5},
		{Temperature: 1}, {Temperature: 0.4}, {Temperature: 3}, {Temperature: 1e-9}, {Temperature: math.MaxFloat64},
		{Temperature: 1, TopK: 1}, {Temperature: 1, TopK: 3}, {Temperature: 1, TopK: 4}, {Temperature: 1, TopK: 8}, {Temperature: 1, TopK: 100},
		{Temperature: 1, TopP: 0.2}, {Temperature: 1, TopP: 0.75}, {Temperature: 1, TopP: 0.999}, {Temperature: 1, TopP: 1},
		{Temperature: 0.8, TopK: 4, TopP: 0.8}, {Temperature: 2, TopK: 4, TopP: 0.6},
	} {
		o.Seed = uint64(i)
		s, counts := newSampler(t, o), make([]int, len(logits))
		for range draws {
			id, err := s.Next(logits)
			if err != nil {
				t.Fatalf("%+v: %v", o, err)
			}
			counts[id]++
		}
		// The statistic has a chi-squared distribution with at most 7 degrees of freedom, which
		// exceeds 30 once in ten thousand times.
		statistic := 0.0
		for id, p := range probabilities(logits, o) {
			expected := p * draws
			if expected == 0 {
				if counts[id] > 0 {
					t.Errorf("%+v: token %d, which cannot be chosen, was %d times", o, id, counts[id])
				}
				continue
			}
			statistic += (float64(counts[id]) - expected) * (float64(counts[id]) - expected) / expected
		}
		if statistic > 30 {
			t.Errorf("%+v: chosen %v times of %d, the probabilities are %.4f: chi-squared is %.1f", o, counts, draws, probabilities(logits, o), statistic)
		}
	}
}

// TestSamplerChoosesWhatIsLeft checks that tokens outside the definition's set are never chosen,
// and that one seed gives one sequence.
func TestSamplerChoosesWhatIsLeft(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float64Range(-5, 5), rapid.SampledFrom([]float64{0, 1, math.Inf(-1), -1e300, 700, 1e300}))
		logits := rapid.SliceOfN(value, 1, 40).Draw(t, "logits")
		logits = append(logits, rapid.Float64Range(-1, 1).Draw(t, "finite"))
		for i, x := range logits { // as the sampler takes them
			if logits[i] = float64(float32(x)); math.Abs(x) == 1e300 {
				logits[i] = math.Copysign(math.MaxFloat32, x)
			}
		}
		o := sample.SamplerOptions{
			Temperature: rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0.01, 10), rapid.Float64Range(0, 1e-300)).Draw(t, "temperature"),
			TopK:        rapid.IntRange(0, 50).Draw(t, "topK"),
			TopP:        rapid.Float64Range(0, 1).Draw(t, "topP"),
			Seed:        rapid.Uint64().Draw(t, "seed"),
		}
		// Where a sum of probabilities is TopP but for rounding, one more token may be left.
		rounded := o
		rounded.TopP = min(1, o.TopP*(1+1e-5))
		p := probabilities(logits, rounded)
		s, again := newSampler(t, o), newSampler(t, o)
		for range 20 {
			id, err := s.Next(logits)
			if err != nil {
				t.Fatal(err)
			}
			if !(p[id] > 0) {
				t.Fatalf("token %d was chosen, its probability is %v of %v", id, p[id], p)
			}
			if other, err := again.Next(logits); err != nil || other != id {
				t.Fatalf("the same seed gives %d, %v after %d", other, err, id)
			}
		}
	})
}

func TestSamplerErrors(t *testing.T) {
	build := func(o sample.SamplerOptions) error { _, err := sample.NewSampler(o); return err }
	next := func(logits ...float64) error {
		_, err := newSampler(t, sample.SamplerOptions{Temperature: 1}).Next(logits)
		return err
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		err  error
		want string
	}{
		{build(sample.SamplerOptions{Temperature: -1}), "Sampler: temperature is -1, it needs to be positive, or 0 for the most probable token"},
		{build(sample.SamplerOptions{Temperature: nan}), "Sampler: temperature is NaN, it needs to be positive, or 0 for the most probable token"},
		{build(sample.SamplerOptions{Temperature: inf}), "Sampler: temperature is +Inf, it needs to be positive, or 0 for the most probable token"},
		{build(sample.SamplerOptions{TopK: -1}), "Sampler: top k is -1, it needs to be positive, or 0 for all tokens"},
		{build(sample.SamplerOptions{TopP: -0.1}), "Sampler: top p is -0.1, it needs to be in (0, 1], or 0 for 1"},
		{build(sample.SamplerOptions{TopP: 1.1}), "Sampler: top p is 1.1, it needs to be in (0, 1], or 0 for 1"},
		{build(sample.SamplerOptions{TopP: nan}), "Sampler: top p is NaN, it needs to be in (0, 1], or 0 for 1"},
		{next(), "Sampler: logits is empty, it needs at least one"},
		{next(1, nan), "Sampler: the logit of token 1 is NaN or +Inf, it needs to be finite or -Inf"},
		{next(nan, 1), "Sampler: the logit of token 0 is NaN or +Inf, it needs to be finite or -Inf"},
		{next(1, 2, inf), "Sampler: the logit of token 2 is NaN or +Inf, it needs to be finite or -Inf"},
		{next(-inf, -inf), "Sampler: all logits are -Inf, at least one needs to be finite"},
		{next(-inf, -1e308), "<nil>"},
	} {
		if fmt.Sprint(c.err) != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
	}
}

// BenchmarkNext has GPT-2's vocabulary.
func BenchmarkNext(b *testing.B) {
	logits := make([]float64, 50257)
	for i := range logits {
		logits[i] = 10 * math.Sin(float64(i)*1.7)
	}
	for _, o := range []sample.SamplerOptions{{}, {Temperature: 1}, {Temperature: 1, TopK: 50}, {Temperature: 1, TopP: 0.9}} {
		b.Run(fmt.Sprintf("T=%v,k=%v,p=%v", o.Temperature, o.TopK, o.TopP), func(b *testing.B) {
			s := newSampler(b, o)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Next(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
