package score_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/internal/scoretest"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Everything that cannot be computed is an error when it is compiled, which names the expression.
func TestErrors(t *testing.T) {
	ids := &score.Table{Name: "ids", Type: score.Int, Shape: []int{7}}
	for _, c := range []struct {
		score func(score.Pair) score.Expr
		mask  func(score.Pair) score.Cond
		want  string
	}{
		{score: func(p score.Pair) score.Expr { return p.Score.Add(p.Query) }, want: "score: score + query: score is a float and query is an integer; Float converts an integer"},
		{score: func(p score.Pair) score.Expr { return p.Query.Add(0.5).Float() }, want: "score: query + 0.5: query is an integer and 0.5 is a float; Float converts an integer"},
		{score: func(p score.Pair) score.Expr { return p.Query }, want: "score: query is an integer, it needs to be a float"},
		{score: func(p score.Pair) score.Expr { return score.Expr{} }, want: "score: an expression is empty: it needs to come from a Pair, a number or a lookup"},
		{score: func(p score.Pair) score.Expr { return p.Score.Add("1") }, want: "score: 1 is a string, it needs to be an expression, an int or a float64"},
		{score: func(p score.Pair) score.Expr { return p.Score.Add(score.Lookup(ids, p.Query, 1).Float()) }, want: "score: ids[query, 1]: ids has shape [7] and there are 2 indices, it needs one for each axis"},
		{score: func(p score.Pair) score.Expr { return score.Lookup(ids, p.Score).Float() }, want: "score: ids[score]: index 0 is a float, it needs to be an integer"},
		{score: func(p score.Pair) score.Expr { return p.Query.Exp() }, want: "score: exp(query): query is an integer, it needs to be a float"},
		{score: func(p score.Pair) score.Expr { return p.Score.Rem(2) }, want: "score: score % 2: score is a float, remainders are of integers"},
		{score: func(p score.Pair) score.Expr { return p.Query.Rem(0).Float() }, want: "score: query % 0: it divides by 0"},
		{score: func(p score.Pair) score.Expr { return score.Integer(1 << 40).Float() }, want: "score: 1099511627776 is no integer of 32 bits"},
		{score: func(p score.Pair) score.Expr { return score.If(score.Cond{}, p.Score, 0) }, want: "score: a condition is empty: it needs to come from a comparison"},
		{score: func(p score.Pair) score.Expr { return score.If(p.Query.Less(p.Key), p.Score, p.Key) }, want: "score: if(query < key, score, key): score is a float and key is an integer; Float converts an integer"},
		{mask: func(p score.Pair) score.Cond { return p.Score.Greater(0) }, want: "mask: 0 < score looks at the score, what is visible can depend on positions and lookups alone"},
		{mask: func(p score.Pair) score.Cond { return p.Key.Less(p.Score) }, want: "mask: key < score: key is an integer and score is a float; Float converts an integer"},
	} {
		var err error
		if c.score != nil {
			_, err = score.NewScore(c.score)
		} else {
			_, err = score.NewMask(c.mask)
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("the error is\n%v\nit needs to be\n%s", err, c.want)
		}
	}
	long := func(p score.Pair) score.Expr {
		x := p.Score
		for range 100 {
			x = x.Add(x)
		}
		return x.Add(p.Key)
	}
	if _, err := score.NewScore(long); err == nil || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "…") {
		t.Errorf("the error of a long expression is %.2000v", err)
	}
}

func newWriter(seed uint64) *scoretest.Writer { return scoretest.NewWriter(seed, 3, 5, 11) }

func values(w *scoretest.Writer, tables []*score.Table) []score.Values[float64] {
	list := make([]score.Values[float64], len(tables))
	for n, t := range tables {
		v := score.Values[float64]{Shape: t.Shape}
		for range 15 {
			v.Floats = append(v.Floats, w.NormFloat64())
		}
		for range 11 {
			v.Ints = append(v.Ints, int32(w.IntN(20)-10))
		}
		list[n] = v
	}
	return list
}

var place = score.Where{Batch: 1, Head: 2, KeyHead: 1, QueryLength: 150, KeyLength: 210}

// The derivatives are those that finite differences give, by the score and by each element that is
// looked up.
func TestDerivatives(t *testing.T) {
	checked := 0
	for seed := range uint64(400) {
		w := newWriter(seed)
		w.Smooth = true
		s, err := score.NewScore(func(p score.Pair) score.Expr {
			w.Pair = p
			return w.Real(4)
		})
		if err != nil {
			t.Fatal(err)
		}
		line := score.Line[float64]{Where: place, N: 1, Query: w.IntN(100), Key: w.IntN(100), Scores: []float64{w.NormFloat64()}, Tables: values(w, s.Tables)}
		e := score.NewEvaluator[float64](s.Backward)
		e.Run(line)
		value := func() float64 {
			forward := score.NewEvaluator[float64](s.Forward)
			forward.Run(line)
			return forward.Floats(0)[0]
		}
		if e.Floats(0)[0] != value() {
			t.Errorf("%v: backward computes the score %v, forward %v", s, e.Floats(0)[0], value())
		}
		slope := func(x *float64) float64 {
			const h = 1e-5
			before := *x
			*x = before + h
			up := value()
			*x = before - h
			down := value()
			*x = before
			return (up - down) / (2 * h)
		}
		same := func(what string, got, want float64) {
			checked++
			if !(math.Abs(got-want) <= 1e-6*(1+math.Abs(want))) {
				t.Errorf("%v: the derivative by %s is %v, differences give %v", s, what, got, want)
			}
		}
		same("the score", e.Floats(1)[0], slope(&line.Scores[0]))
		sums := map[int]float64{}
		for _, g := range s.Lookups {
			at := score.Clamp(e.IntsOf(g.Index[0])[0], 3)*5 + score.Clamp(e.IntsOf(g.Index[1])[0], 5)
			sums[at] += e.FloatsOf(g.Slope)[0]
		}
		for n, table := range s.Tables {
			for at := range line.Tables[n].Floats {
				if table.Type == score.Float {
					same("an element", sums[at], slope(&line.Tables[n].Floats[at]))
				}
			}
		}
	}
	if checked < 1000 {
		t.Errorf("%d derivatives were checked, it should be thousands", checked)
	}
}

// Where an instruction is said not to differ, it does not.
func TestVaries(t *testing.T) {
	for seed := range uint64(300) {
		w := newWriter(seed)
		s, err := score.NewScore(func(p score.Pair) score.Expr {
			w.Pair = p
			return w.Real(4)
		})
		if err != nil {
			t.Fatal(err)
		}
		q, k, tables := w.IntN(100), w.IntN(100), values(w, s.Tables)
		at := func(query, key int) *score.Evaluator[float64] {
			e := score.NewEvaluator[float64](s.Forward)
			e.Run(score.Line[float64]{Where: place, N: 1, Query: query, Key: key, Scores: []float64{1}, Tables: tables})
			return e
		}
		value := func(e *score.Evaluator[float64], n int) float64 {
			switch s.Forward.Code[n].Type {
			case score.Int:
				return float64(e.IntsOf(n)[0])
			case score.Bool:
				return 0
			}
			return e.FloatsOf(n)[0]
		}
		here := at(q, k)
		for n, i := range s.Forward.Code {
			other := map[score.Varies]*score.Evaluator[float64]{score.Nowhere: at(q+31, k-17), score.Rows: at(q, k+9), score.Columns: at(q-7, k), score.Diagonals: at(q+13, k+13)}[i.Varies]
			if i.ByScore || other == nil {
				continue
			}
			if x, y := value(here, n), value(other, n); x != y && x == x {
				t.Errorf("seed %d: %s varies as %d, and is %v and %v", seed, s.Forward.Text(n), i.Varies, x, y)
			}
		}
	}
}

// The band and the tiles show what the mask shows: nothing that is visible lies in a hidden tile,
// and what is on a list as wholly visible is.
func TestTiles(t *testing.T) {
	const rows, columns = 24, 16
	hidden, whole, partly := 0, 0, 0
	masks := []func(score.Pair) score.Cond{score.Causal, score.SlidingWindow(30, 4), score.Prefix(50), score.Dilated(3),
		score.And(score.Causal, score.Not(score.SlidingWindow(20, -1))), score.Or(score.CausalTopLeft, score.SlidingWindow(-1, 100))}
	for n := range len(masks) + 400 {
		w := newWriter(uint64(n))
		mask, err := score.NewMask(func(p score.Pair) score.Cond {
			if n < len(masks) {
				return masks[n](p)
			}
			w.Pair = p
			return w.Condition(3)
		})
		if err != nil {
			t.Fatal(err)
		}
		tables := values(w, mask.Tables)
		lo, hi := mask.Band(place)
		if n%2 == 1 { // as beside a window
			lo, hi = max(lo, -40), min(hi, 9)
		}
		var tiles *score.Tiles
		state := map[[2]int]int{} // 1 partly, 2 wholly visible
		if mask.Rest != nil {
			tiles = mask.Tiles(place, rows, columns, lo, hi, tables)
			if again := mask.Tiles(place, rows, columns, lo, hi, tables); again != tiles {
				t.Errorf("%v: tiles were not kept", mask)
			}
			transposed := map[[2]int]int{}
			fill := func(state map[[2]int]int, lists score.Lists, swap bool) {
				for at, runs := range lists {
					for _, r := range runs {
						for other := int(r.First); other < int(r.End); other++ {
							tile := [2]int{at, other}
							if swap {
								tile = [2]int{other, at}
							}
							if state[tile] = 2; r.Partly {
								state[tile] = 1
							}
						}
					}
				}
			}
			fill(state, tiles.Keys, false)
			fill(transposed, tiles.Queries, true)
			for tile, s := range state {
				first, end := tile[0]*rows, min((tile[0]+1)*rows, place.QueryLength)
				if key := tile[1] * columns; key+columns <= first+lo || key >= end-1+hi {
					t.Fatalf("%v: tile %v is listed and lies beside the band from %d to %d", mask, tile, lo, hi)
				}
				if transposed[tile] != s || len(transposed) != len(state) {
					t.Fatalf("%v: the lists of keys and of queries differ", mask)
				}
			}
		}
		e := score.NewEvaluator[float64](mask.Whole)
		for q := range place.QueryLength {
			e.Run(score.Line[float64]{Where: place, N: place.KeyLength, Query: q, KeyStep: 1, Tables: tables})
			for k, visible := range e.Bools(0) {
				within := q+lo <= k && k < q+hi
				visible = visible && (within || n%2 == 0)
				s := 2
				if tiles != nil {
					s = state[[2]int{q / rows, k / columns}]
				}
				if visible && (!within || s == 0) || !visible && within && s == 2 {
					t.Fatalf("%v: at (%d, %d) visible is %v, within the band %v, state %d", mask, q, k, visible, within, s)
				}
				switch s {
				case 0:
					hidden++
				case 1:
					partly++
				default:
					whole++
				}
			}
		}
	}
	if hidden == 0 || whole == 0 || partly == 0 {
		t.Errorf("%d hidden, %d partly and %d wholly visible pairs: all should occur", hidden, partly, whole)
	}
}

// Conditions along the diagonal become bands, whichever way they are written.
func TestBands(t *testing.T) {
	for n, mask := range []func(score.Pair) score.Cond{
		score.Causal, score.CausalTopLeft, score.SlidingWindow(3, 4), score.And(score.Causal, score.SlidingWindow(3, -1)),
		func(p score.Pair) score.Cond { return p.Query.Less(p.Key).Or(p.Key.Add(9).Less(p.Query)).Not() },
		func(p score.Pair) score.Cond { return p.Query.Sub(p.Key).Equal(5) },
	} {
		m, err := score.NewMask(mask)
		if err != nil {
			t.Fatal(err)
		}
		if m.Rest != nil {
			t.Errorf("mask %d: %v is not a band alone", n, m)
		}
	}
}

// Tiles of a mask that looks values up are found anew when these change.
func TestTilesFollowTables(t *testing.T) {
	ids := &score.Table{Name: "ids", Type: score.Int, Shape: []int{210}}
	mask, err := score.NewMask(func(p score.Pair) score.Cond { return score.Lookup(ids, p.Query).Equal(score.Lookup(ids, p.Key)) })
	if err != nil {
		t.Fatal(err)
	}
	values := []score.Values[float64]{{Shape: ids.Shape, Ints: make([]int32, 210)}}
	all := mask.Tiles(place, 32, 32, -1000, 1000, values)
	values[0].Ints[200] = 1
	if some := mask.Tiles(place, 32, 32, -1000, 1000, values); some == all || !some.Keys[0][len(some.Keys[0])-1].Partly {
		t.Errorf("tiles are %v after a change", some.Keys)
	}
}

// A long matrix of documents takes memory and time for what is visible.
func TestTilesOfLongSequences(t *testing.T) {
	const n = 1 << 17
	ids := &score.Table{Name: "ids", Type: score.Int, Shape: []int{n}}
	mask, err := score.NewMask(func(p score.Pair) score.Cond {
		return score.Lookup(ids, p.Query).Equal(score.Lookup(ids, p.Key)).And(score.Causal(p))
	})
	if err != nil {
		t.Fatal(err)
	}
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(i / 300)
	}
	tiles := mask.Tiles(score.Where{QueryLength: n, KeyLength: n}, 96, 64, -n, 1, []score.Values[float64]{{Shape: ids.Shape, Ints: list}})
	runs := 0
	for _, l := range tiles.Keys {
		runs += len(l)
	}
	if runs > 5*len(tiles.Keys) {
		t.Errorf("%d runs of tiles for %d rows of them", runs, len(tiles.Keys))
	}
}

// Buckets are those of T5: its formula, with logarithms, for distances on both sides.
func TestBucket(t *testing.T) {
	for _, both := range []bool{false, true} {
		s, err := score.NewScore(func(p score.Pair) score.Expr { return score.Bucket(p, 32, 128, both).Float() })
		if err != nil {
			t.Fatal(err)
		}
		e := score.NewEvaluator[float64](s.Forward)
		e.Run(score.Line[float64]{Where: score.Where{QueryLength: 400, KeyLength: 400}, N: 400, Query: 200, KeyStep: 1, Scores: make([]float64, 400)})
		for key, got := range e.Floats(0) {
			buckets, first, distance := 32, 0, 200-key
			if both {
				if buckets = 16; distance < 0 {
					first, distance = 16, -distance
				}
			}
			bucket := max(0, distance)
			if near := buckets / 2; bucket >= near {
				share := math.Log(float64(bucket)/float64(near)) / math.Log(128/float64(near))
				bucket = min(buckets-1, near+int(share*float64(buckets-near)+1e-9))
			}
			if int(got) != first+bucket {
				t.Errorf("both %t: a key at %d has bucket %v, T5 has %d", both, key-200, got, first+bucket)
			}
		}
	}
}

// A soft cap is known as one, and what is near to it is not.
func TestCap(t *testing.T) {
	for name, c := range map[string]struct {
		f    func(score.Pair) score.Expr
		want float64
	}{
		"a cap":             {score.SoftCap(30), 30},
		"a small cap":       {score.SoftCap(0.5), 0.5},
		"below zero":        {score.SoftCap(-3), 0},
		"two numbers":       {func(p score.Pair) score.Expr { return p.Score.Div(30).Tanh().Mul(20) }, 0},
		"more than a cap":   {func(p score.Pair) score.Expr { return score.SoftCap(30)(p).Add(p.Key.Float()) }, 0},
		"a cap of more":     {func(p score.Pair) score.Expr { return p.Score.Add(1).Div(30).Tanh().Mul(30) }, 0},
		"a sigmoid":         {func(p score.Pair) score.Expr { return p.Score.Div(30).Sigmoid().Mul(30) }, 0},
		"the score":         {func(p score.Pair) score.Expr { return p.Score }, 0},
		"a multiple of it":  {func(p score.Pair) score.Expr { return p.Score.Mul(30) }, 0},
		"a cap of distance": {func(p score.Pair) score.Expr { return p.Key.Float().Div(30).Tanh().Mul(30) }, 0},
	} {
		s, err := score.NewScore(c.f)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Cap(); got != c.want {
			t.Errorf("%s: the cap of %v is %v, it needs to be %v", name, s, got, c.want)
		}
	}
	if cap := (*score.Score)(nil).Cap(); cap != 0 {
		t.Errorf("no score has a cap of %v", cap)
	}
}
