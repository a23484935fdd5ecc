package score_test

import (
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/kernels/score"
)

// A score is compiled to a program of its value and its derivatives. An Evaluator runs it as it is
// meant; backends are faster.
func ExampleNewScore() {
	s, err := score.NewScore(func(p score.Pair) score.Expr {
		distance := p.Position().Sub(p.Key).Float()
		return p.Score.Mul(2).Sub(distance.Mul(0.5))
	})
	if err != nil {
		log.Fatal(err)
	}
	// The last of four queries, and all keys.
	e := score.NewEvaluator[float64](s.Backward)
	e.Run(score.Line[float64]{
		Where: score.Where{QueryLength: 4, KeyLength: 4}, N: 4, Query: 3, KeyStep: 1, Scores: []float64{1, 1, 1, 1},
	})
	fmt.Println(s)
	fmt.Println("is", e.Floats(0), "and changes by", e.Floats(1))
	// Output:
	// (score · 2) - (float(((query + key length) - query length) - key) · 0.5)
	// is [0.5 1 1.5 2] and changes by [2 2 2 2]
}

// A mask knows which tiles of the score matrix it hides, and which of those that it shows need no
// look at their pairs.
func ExampleNewMask() {
	documents := &score.Table{Name: "documents", Type: score.Int, Shape: []int{8}}
	m, err := score.NewMask(func(p score.Pair) score.Cond {
		return score.Lookup(documents, p.Query).Equal(score.Lookup(documents, p.Key))
	})
	if err != nil {
		log.Fatal(err)
	}
	where := score.Where{QueryLength: 8, KeyLength: 8}
	lo, hi := m.Band(where)
	ids := []score.Values[float64]{{Shape: []int{8}, Ints: []int32{0, 0, 0, 0, 1, 1, 1, 2}}}
	for tile, runs := range m.Tiles(where, 2, 2, lo, hi, ids).Keys {
		for _, r := range runs {
			fmt.Printf("queries %d and %d: keys %d to %d, some of them hidden: %v\n", 2*tile, 2*tile+1, 2*r.First, 2*r.End-1, r.Partly)
		}
	}
	// Output:
	// queries 0 and 1: keys 0 to 3, some of them hidden: false
	// queries 2 and 3: keys 0 to 3, some of them hidden: false
	// queries 4 and 5: keys 4 to 5, some of them hidden: false
	// queries 4 and 5: keys 6 to 7, some of them hidden: true
	// queries 6 and 7: keys 4 to 7, some of them hidden: true
}
