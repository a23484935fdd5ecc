//go:build gpu

package cuda_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels/cuda"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
)

// compiles skips a test where there is no GPU, or no compiler for what users write.
func compiles(t *testing.T) {
	d := device(t)
	p := New[float32](Case{Batch: 1, Heads: 1, KeyHeads: 1, Sq: 1, Sk: 1, D: 32, Dv: 32, Options: []Option{Documents}})
	if err := p.Run(mirrored{Device: d}); errors.As(err, new(cuda.NoCompiler)) {
		t.Skip(err)
	}
}

// Scores and masks that users write, with everything else, in every arithmetic and at every size of a head.
func TestAttentionScores(t *testing.T) {
	compiles(t)
	for m, a := range arithmetics {
		for n, options := range ScoreSets() {
			if (n+m)%2 == 1 && !*grid {
				continue
			}
			heads, size := HeadCounts[n%len(HeadCounts)], HeadSizes[(n+5*m)%len(HeadSizes)]
			c := Case{Batch: 2, Heads: heads[0], KeyHeads: heads[1], Sq: 101 + 60*(n%3), Sk: 305 - 90*(n%4), D: size[0], Dv: size[1],
				Layout: []Layout{BHSD, BSHD, Padded}[n%3], Options: options, Seed: uint64(n)}
			if (n+m)%3 == 0 {
				c.Batch, c.Sq, c.Sk = 1, 250, 200
				c.QLens, c.KVLens = PackedLens(uint64(n), 3, c.Sq, c.Sk)
			}
			t.Run(a.name+"/"+c.String(), func(t *testing.T) {
				t.Parallel()
				a.runCheaply(t, affordable(c))
				p := a.newProblem(affordable(c))
				p.Attention.Deterministic = true
				a.check(t, p)
			})
		}
	}
}

// Keys of a length of their own, of one for all, a single query, and nothing at all.
func TestAttentionScoresOfUnevenSequences(t *testing.T) {
	compiles(t)
	for n, options := range ScoreSets() {
		if n%3 != 0 && !*grid {
			continue
		}
		a := arithmetics[n%len(arithmetics)]
		c := Case{Batch: 3, Heads: 4, KeyHeads: 2, Sq: 70, Sk: 150, D: 24, Dv: 33, KVLengths: []int{150, 33, 0}, Options: options, Seed: uint64(n)}
		a.runCheaply(t, c)
		c.SharedKeys = true
		a.runCheaply(t, c)
		c.Sq = 1
		a.runCheaply(t, c)
		a.runCheaply(t, Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 100, Sk: 200, D: 24, Dv: 33, Options: options, Seed: uint64(n),
			QLens: []int{0, 50, 50, 83}, KVLens: []int{0, 0, 90, 131}})
	}
}

// Random scores and masks compute what the reference does.
func TestAttentionRandomScores(t *testing.T) {
	compiles(t)
	for n := range 6 {
		c := Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 53 + n, Sk: 170 - n, D: 16, Dv: 20, Options: []Option{RandomRules(uint64(n))}, Seed: uint64(n), Slack: 4}
		arithmetics[4].beside(t, c) // float32
	}
}

// Gradients are bit-equal from run to run where that is asked for, those of tables that many pairs share too.
func TestAttentionScoresAreDeterministic(t *testing.T) {
	compiles(t)
	d := device(t)
	for n, options := range [][]Option{{Learnt, Blocks}, {RelativeBias, Documents, Dropout}} {
		for _, a := range []arithmetic{arithmetics[0], arithmetics[4]} {
			c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 333, D: 64, Dv: 64, Options: options, Seed: uint64(n)}
			var want []float32
			for range min(*repeats, 50) {
				p := a.newProblem(c)
				p.Attention.Deterministic = true
				if err := p.Run(mirrored{Device: d, half: a.half}); err != nil {
					t.Fatal(err)
				}
				got := p.Bits()
				for i, x := range want {
					if math.Float32bits(x) != math.Float32bits(got[i]) {
						t.Fatalf("%s: %v: element %d of the outputs is %v, and was %v", a.name, c, i, got[i], x)
					}
				}
				want = slices.Clone(got)
			}
		}
	}
}
