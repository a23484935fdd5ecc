package cpu_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Scores and masks that users write, with every set of instructions, in both types, one of them
// packed, and together with everything else.
func TestAttentionScores(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	for n, options := range ScoreSets() {
		if leftOut(n) {
			continue
		}
		heads := HeadCounts[n%len(HeadCounts)]
		c := Case{Batch: 2, Heads: heads[0], KeyHeads: heads[1], Sq: 101, Sk: 205, D: 43, Dv: 27, Options: options, Seed: uint64(n)}
		packed := c
		packed.Batch, packed.Sq, packed.Sk, packed.D, packed.Dv, packed.Layout = 1, 250, 200, 64, 64, BSHD
		packed.QLens, packed.KVLens = PackedLens(uint64(n), 3, packed.Sq, packed.Sk)
		if n%2 == 0 {
			c, packed = packed, c
		}
		runLevels[float32](t, c)
		runLevels[float64](t, packed)
	}
}

// A multiple of the score in a sum or a difference is fused with it.
func TestSumsOfScoreMultiples(t *testing.T) {
	for n, what := range []func(score.Pair) score.Expr{
		func(p score.Pair) score.Expr { return p.Key.Float().Mul(0.01) },
		func(p score.Pair) score.Expr { return p.Query.Mul(p.Key).Rem(7).Float().Mul(0.1) },
	} {
		for m, change := range []func(s, x score.Expr) score.Expr{
			func(s, x score.Expr) score.Expr { return s.Mul(0.7).Add(x) },
			func(s, x score.Expr) score.Expr { return x.Add(s.Mul(0.7)) },
			func(s, x score.Expr) score.Expr { return s.Div(1.5).Add(x) },
			func(s, x score.Expr) score.Expr { return x.Sub(s.Mul(0.7)) },
			func(s, x score.Expr) score.Expr { return s.Mul(0.7).Sub(x) },
		} {
			written := func(p score.Pair) score.Expr { return change(p.Score, what(p)) }
			name := fmt.Sprint("multiple ", n, m)
			c := Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 33, Sk: 70, D: 16, Dv: 8,
				Options: []Option{ScoreOf(name, written)}, Seed: uint64(10*n + m)}
			run[float32](t, c)
			run[float64](t, c)
		}
	}
}

// An integer that differs from pair to pair can depend on floats, which are written in another way
// than the user did.
func TestIntegersThatDependOnFloats(t *testing.T) {
	for n, holds := range []func(p score.Pair, x score.Expr) score.Cond{
		func(p score.Pair, x score.Expr) score.Cond { return x.Sub(0.27).Less(0) },
		func(p score.Pair, x score.Expr) score.Cond { return x.Div(2).Less(0.1) },
		func(p score.Pair, x score.Expr) score.Cond { return score.Number(2).Mul(x.Mul(3)).Less(1) },
		func(p score.Pair, x score.Expr) score.Cond { return x.Sub(p.Query.Float().Mul(0.1)).Less(0) },
		func(p score.Pair, x score.Expr) score.Cond { return x.Sub(p.Key.Float().Mul(0.1)).Less(0).Not() },
	} {
		chosen := func(p score.Pair, x score.Expr) score.Expr {
			return score.If(holds(p, x), p.Query.Mul(p.Key), p.Query.Add(p.Key))
		}
		for m, option := range []Option{
			ScoreOf(fmt.Sprint("chosen by the score ", n), func(p score.Pair) score.Expr {
				return p.Score.Add(chosen(p, p.Score).Float().Mul(0.05))
			}),
			ScoreOfTables(fmt.Sprint("looked up ", n), [][]int{{33, 70}, {11}}, func(p score.Pair, tables []*score.Table) score.Expr {
				x := score.Lookup(tables[0], p.Query, p.Key)
				return p.Score.Add(score.Lookup(tables[1], chosen(p, x).Rem(11)).Mul(x))
			}),
			MaskOfTables(fmt.Sprint("seen ", n), [][]int{{33, 70}}, func(p score.Pair, tables []*score.Table) score.Cond {
				return chosen(p, score.Lookup(tables[0], p.Query, p.Key)).Rem(3).NotEqual(1)
			}),
		} {
			c := Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 33, Sk: 70, D: 16, Dv: 8, Options: []Option{option}, Seed: uint64(10*n + m)}
			run[float32](t, c)
			run[float64](t, c)
		}
	}
}

// The grid of attention, with a set of scores and masks in place of options; in the thinned one
// each length, head size and set appears.
func TestAttentionScoreGrid(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	sets, last := ScoreSets(), 19
	if *grid {
		runGrid(t, sets)
		return
	}
	for n := range last {
		if leftOut(n) {
			continue
		}
		runNamed[float32](t, gridCase(n, Lengths[n%last], HeadSizes[n%len(HeadSizes)], sets[n%len(sets)]))
	}
}

// Keys of a length of their own, of one for all, a single query, and nothing at all.
func TestAttentionScoresOfUnevenSequences(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	for n, options := range ScoreSets() {
		if leftOut(n + 3) {
			continue
		}
		c := Case{Batch: 3, Heads: 4, KeyHeads: 2, Sq: 70, Sk: 150, D: 24, Dv: 33, KVLengths: []int{150, 33, 0}, Options: options, Seed: uint64(n)}
		run[float32](t, c)
		c.SharedKeys = true
		run[float64](t, c)
		c.Sq = 1
		run[float32](t, c)
		packed := Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 100, Sk: 200, D: 24, Dv: 33, Options: options, Seed: uint64(n),
			QLens: []int{0, 50, 50, 83}, KVLens: []int{0, 0, 90, 131}}
		run[float32](t, packed)
	}
}

// A NaN or an infinity reaches the rows that see it through a mask, and no others.
func TestAttentionScoresNonFinite(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	n := 0
	for _, options := range [][]Option{{Documents}, {Sparse}, {Blocks, Causal}, {Documents, RelativeBias}, {Blocks, Dropout}} {
		for in, name := range []string{"q", "k", "v", "dO"} {
			value := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[n%3]
			if n++; leftOut(n) {
				continue
			}
			c := Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 210, Sk: 230, D: 24, Dv: 17, Options: options, Seed: uint64(n), Checked: Checked{Slack: 2}}
			p := New[float32](c)
			target := []kernels.Tensor{p.Q, p.K, p.V, p.DO}[in]
			p.Plant(target, value, 0, n%target.Shape[1], n*31%target.Shape[2], n*7%target.Shape[3])
			if checkLevels(t, p); t.Failed() {
				t.Fatalf("with %v in %s", value, name)
			}
		}
	}
}

// Random scores and masks compute what the reference does, at every level and in both types.
func TestAttentionRandomScores(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	for n := range 12 {
		if leftOut(n) {
			continue
		}
		c := Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 53 + 2*n, Sk: 170 - 2*n, D: 16, Dv: 20, Options: []Option{RandomRules(uint64(n))}, Seed: uint64(n), Checked: Checked{Slack: 4}}
		runLevels[float64](t, c)
		run[float32](t, c)
	}
}

// Results with tables that several heads and key tiles share are bit-equal for any number of
// threads.
func TestAttentionScoresAreDeterministic(t *testing.T) {
	slow.Emulated(t)
	for n, options := range [][]Option{{Learnt, Blocks}, {RelativeBias, Documents, Dropout}} {
		c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 333, D: 24, Dv: 32, Options: options, Seed: uint64(n)}
		var want []float32
		for _, threads := range []int{1, 2, 5, 2} {
			p := New[float32](c)
			if err := p.Run(&cpu.Backend{Threads: threads}); err != nil {
				t.Fatal(err)
			}
			got := p.Bits()
			for i, x := range want {
				if math.Float32bits(x) != math.Float32bits(got[i]) {
					t.Fatalf("%v: element %d of the outputs is %v with %d threads, with one %v", c, i, got[i], threads, x)
				}
			}
			want = got
		}
	}
}
