package nn

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
)

// Llama3RoPE stretches a context as Llama 3.1 and its successors do: pairs that turn rarely within
// the context of the first training are slowed down by Factor, those that turn often stay as they
// are, with a smooth passage between them.
type Llama3RoPE struct {
	Factor  float64
	Low     float64 // pairs that turn less often than this within Context are slowed down
	High    float64 // pairs that turn more often than this stay
	Context int     // of the first training
}

// Apply is the options with the divisors that slow down the pairs of a head of that size.
func (s Llama3RoPE) Apply(o ops.RoPEOptions, headDim int) (ops.RoPEOptions, error) {
	switch {
	case !(s.Factor >= 1):
		return o, fmt.Errorf("Llama3RoPE: factor is %v, it needs to be at least 1", s.Factor)
	case !(s.Low > 0 && s.Low < s.High):
		return o, fmt.Errorf("Llama3RoPE: low and high are %v and %v, both need to be positive and the first the smaller", s.Low, s.High)
	case s.Context < 1:
		return o, fmt.Errorf("Llama3RoPE: context is %d, it needs to be at least 1", s.Context)
	}
	turns := turnsOf(o, headDim, s.Context)
	o.Divisors = make([]float64, len(turns))
	for pair, n := range turns {
		keep := min(1, max(0, (n-s.Low)/(s.High-s.Low)))
		o.Divisors[pair] = 1 / ((1-keep)/s.Factor + keep)
	}
	return o, nil
}

// YaRN stretches a context as the paper of that name does: by the place of a pair between the one
// that turns Fast times within the context of the first training, which stays, and the one that
// turns Slow times, which is slowed down by Factor.
type YaRN struct {
	Factor     float64
	Fast, Slow float64 // 0 means 32 and 1
	Context    int     // of the first training
	Amplitude  float64 // 0 means 1 + ln(Factor)/10
	NoRounding bool    // the places are not rounded to whole pairs
}

// Apply is the options with the divisors that slow down the pairs of a head of that size, and the
// amplitude.
func (s YaRN) Apply(o ops.RoPEOptions, headDim int) (ops.RoPEOptions, error) {
	if s.Fast == 0 {
		s.Fast = 32
	}
	if s.Slow == 0 {
		s.Slow = 1
	}
	if s.Amplitude == 0 {
		s.Amplitude = 1 + math.Log(max(1, s.Factor))/10
	}
	switch {
	case !(s.Factor > 0):
		return o, fmt.Errorf("YaRN: factor is %v, it needs to be positive", s.Factor)
	case !(s.Slow > 0 && s.Slow < s.Fast):
		return o, fmt.Errorf("YaRN: fast and slow are %v and %v, both need to be positive and the second the smaller", s.Fast, s.Slow)
	case s.Context < 1:
		return o, fmt.Errorf("YaRN: context is %d, it needs to be at least 1", s.Context)
	}
	turns := turnsOf(o, headDim, s.Context)
	dim := 2 * len(turns)
	base := o.Base
	if base == 0 {
		base = 10000
	}
	// place is the pair, seldom a whole number, that turns so often within the context.
	place := func(times float64) float64 {
		return float64(dim) * math.Log(float64(s.Context)/(2*math.Pi*times)) / (2 * math.Log(base))
	}
	low, high := place(s.Fast), place(s.Slow)
	if !s.NoRounding {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dim-1))
	if low == high {
		high += 0.001
	}
	o.Amplitude = s.Amplitude
	o.Divisors = make([]float64, len(turns))
	for pair := range turns {
		slow := min(1, max(0, (float64(pair)-low)/(high-low)))
		o.Divisors[pair] = 1 / (slow/s.Factor + 1 - slow)
	}
	return o, nil
}

// turnsOf is how often each pair of a head turns within a context.
func turnsOf(o ops.RoPEOptions, headDim, context int) []float64 {
	r := kernels.RoPE{Base: o.Base, PositionScale: o.Scaling, RotaryDim: o.RotaryDim}
	dim := r.Dim(headDim)
	turns := make([]float64, dim/2)
	for pair := range turns {
		turns[pair] = float64(context) * r.Frequency(pair, dim) / (2 * math.Pi)
	}
	return turns
}
