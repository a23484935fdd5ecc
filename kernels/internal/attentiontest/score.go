package attentiontest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/internal/scoretest"
	"github.com/stheno-ml/stheno/kernels/score"
)

// table is something that a case's score or mask looks up: random floats, or integers.
type table struct {
	name     string
	shape    func(sizes) []int
	integers func(random *rand.Rand, n int) []int32 // nil for floats
}

// sizes are those that tables of a problem may need.
type sizes struct{ batch, heads, sq, sk int }

// MaskOf hides what a function does.
func MaskOf(name string, mask func(score.Pair) score.Cond) Option {
	return Option{name, func(o *settings) {
		o.mask = func(p score.Pair, _ []*score.Table) score.Cond { return mask(p) }
	}}
}

// ScoreOf changes scores as a function does.
func ScoreOf(name string, change func(score.Pair) score.Expr) Option {
	return Option{name, func(o *settings) {
		o.score = func(p score.Pair, _ []*score.Table) score.Expr { return change(p) }
	}}
}

// ScoreOfTables is as ScoreOf, with tables of floats of the given shapes.
func ScoreOfTables(name string, shapes [][]int, change func(score.Pair, []*score.Table) score.Expr) Option {
	return Option{name, func(o *settings) {
		find := o.floats(name, shapes)
		o.score = func(p score.Pair, tables []*score.Table) score.Expr { return change(p, find(tables)) }
	}}
}

// MaskOfTables is as MaskOf, with tables of floats of the given shapes.
func MaskOfTables(name string, shapes [][]int, mask func(score.Pair, []*score.Table) score.Cond) Option {
	return Option{name, func(o *settings) {
		find := o.floats(name, shapes)
		o.mask = func(p score.Pair, tables []*score.Table) score.Cond { return mask(p, find(tables)) }
	}}
}

// floats adds tables of the given shapes to the settings, and finds them among a problem's.
func (o *settings) floats(name string, shapes [][]int) func([]*score.Table) []*score.Table {
	var numbers []int
	for n, shape := range shapes {
		numbers = append(numbers, o.numbered(table{fmt.Sprint(name, " ", n), func(sizes) []int { return shape }, nil}))
	}
	return func(all []*score.Table) (list []*score.Table) {
		for _, n := range numbers {
			list = append(list, all[n])
		}
		return list
	}
}

// numbered is the number of a table of the given name, which it adds if the settings lack it.
func (o *settings) numbered(t table) int {
	if at := slices.IndexFunc(o.tables, func(other table) bool { return other.name == t.name }); at >= 0 {
		return at
	}
	o.tables = append(o.tables, t)
	return len(o.tables) - 1
}

// Scores and masks that look something up.
var (
	// Documents shows the keys of the query's own document, whose ids ascend along a batch item.
	Documents = Option{"documents", func(o *settings) {
		at := o.numbered(table{"documents", func(s sizes) []int { return []int{s.batch, max(s.sq, s.sk)} }, func(random *rand.Rand, n int) []int32 {
			list := make([]int32, n)
			for i := 1; i < n; i++ {
				if list[i] = list[i-1]; random.IntN(40) == 0 {
					list[i] += 1 + int32(random.IntN(1<<20))
				}
			}
			return list
		}})
		o.mask = func(p score.Pair, tables []*score.Table) score.Cond {
			return score.Lookup(tables[at], p.Batch, p.Query).Equal(score.Lookup(tables[at], p.Batch, p.Key))
		}
	}}
	// RelativeBias adds a number for each head and distance, up to 20 on both sides.
	RelativeBias = Option{"relative-bias", func(o *settings) {
		at := o.numbered(table{"relative", func(s sizes) []int { return []int{s.heads, 41} }, nil})
		o.score = func(p score.Pair, tables []*score.Table) score.Expr {
			return p.Score.Add(score.Lookup(tables[at], p.Head, p.Key.Sub(p.Query).Add(20)))
		}
	}}
	// Learnt multiplies and shifts scores by what was looked up in every way: by the query, by the
	// key, by both, and by numbers that differ from pair to pair otherwise.
	Learnt = Option{"learnt", func(o *settings) {
		rows := o.numbered(table{"rows", func(s sizes) []int { return []int{s.sq} }, nil})
		columns := o.numbered(table{"columns", func(s sizes) []int { return []int{s.heads, s.sk} }, nil})
		both := o.numbered(table{"both", func(s sizes) []int { return []int{s.sq, s.sk} }, nil})
		mixed := o.numbered(table{"mixed", func(s sizes) []int { return []int{7} }, nil})
		one := o.numbered(table{"one", func(sizes) []int { return []int{1} }, nil})
		even := func(p score.Pair) score.Cond { return p.Query.Add(p.Key).Rem(2).Equal(0) }
		o.score = func(p score.Pair, t []*score.Table) score.Expr {
			x := p.Score.Mul(score.Lookup(t[rows], p.Query).Tanh().Add(1.5)).Add(score.Lookup(t[columns], p.Head, p.Key).Mul(p.Score).Mul(0.25))
			x = x.Add(score.Lookup(t[both], p.Query, p.Key)).Sub(score.Lookup(t[mixed], p.Query.Mul(p.Key).Rem(7)).Exp())
			return score.If(even(p), x.Max(p.Score.Neg()).Add(score.Lookup(t[one], 0)), x.Min(3).Sigmoid())
		}
	}}
	// Sparse shows every third key and those of the same block of 32, of every second head.
	Sparse = MaskOf("sparse", func(p score.Pair) score.Cond {
		return p.Key.Rem(3).Equal(0).Or(p.Query.Div(32).Equal(p.Key.Div(32))).Or(p.Head.Rem(2).Equal(1))
	})
	// Blocks shows every fourth block of 64 keys, and a window.
	Blocks = MaskOf("blocks", func(p score.Pair) score.Cond {
		near := p.Position().Sub(p.Key)
		return p.Key.Div(64).Rem(4).Equal(1).Or(near.Less(50).And(near.GreaterEqual(0)))
	})
)

// ListedBlocks shows the blocks of keys that a table has for each block of queries: about the given
// share of them, other ones for each batch item and head. With another mask, both need to show a
// pair.
func ListedBlocks(queries, keys int, share float64, other func(score.Pair) score.Cond) Option {
	return listedBlocks("listed", queries, keys, share, other, func(p score.Pair) score.Expr { return p.Head })
}

// ListedBlocksByKeyHead is ListedBlocks where heads that share keys share lists.
func ListedBlocksByKeyHead(queries, keys int, share float64, other func(score.Pair) score.Cond) Option {
	return listedBlocks("listed-by-key-head", queries, keys, share, other, func(p score.Pair) score.Expr { return p.KeyHead })
}

func listedBlocks(name string, queries, keys int, share float64, other func(score.Pair) score.Cond, head func(score.Pair) score.Expr) Option {
	name = fmt.Sprintf("%s(%d,%d,%g)", name, queries, keys, share)
	return Option{name, func(o *settings) {
		blocks := func(n, size int) int { return max(1, (n+size-1)/size) }
		at := o.numbered(table{name, func(s sizes) []int { return []int{s.batch, s.heads, blocks(s.sq, queries), blocks(s.sk, keys)} }, func(random *rand.Rand, n int) []int32 {
			list := make([]int32, n)
			for i := range list {
				if random.Float64() < share {
					list[i] = 1
				}
			}
			return list
		}})
		o.mask = func(p score.Pair, tables []*score.Table) score.Cond {
			c := score.Lookup(tables[at], p.Batch, head(p), p.Query.Div(queries), p.Key.Div(keys)).Equal(1)
			if other != nil {
				c = c.And(other(p))
			}
			return c
		}
	}}
}

// ScoreSets are scores and masks of every kind, alone and with all else.
func ScoreSets() [][]Option {
	cap := ScoreOf("cap", score.SoftCap(2.5))
	slopes := ScoreOf("slopes", func(p score.Pair) score.Expr {
		return p.Score.Sub(p.Position().Sub(p.Key).Abs().Float().Mul(p.Head.Add(1).Float().Mul(0.1)))
	})
	// Compilers join these three integers, and one lost the sign.
	opposite := ScoreOf("opposite", func(p score.Pair) score.Expr {
		largest := p.Head.Max(p.Batch.Max(p.Key.Neg()))
		return p.Score.Sub(largest.Sub(p.Head.Neg().Min(p.Batch.Neg().Min(p.Key))).Float().Mul(0.1))
	})
	causal := MaskOf("causal-mask", score.Causal)
	return [][]Option{
		{causal}, {Documents}, {Sparse}, {Blocks}, {ListedBlocks(64, 64, 0.5, score.Causal)}, {ListedBlocks(48, 20, 0.3, score.Dilated(3)), Dropout},
		{ListedBlocks(32, 64, 0.4, nil), DLSE, Sinks}, {cap}, {slopes}, {opposite}, {RelativeBias}, {Learnt},
		{Documents, Causal}, {Blocks, WindowOf(70, 20), Sinks}, {RelativeBias, Documents, DLSE}, {Sparse, Learnt, Dropout},
		{MaskOf("dilated", score.And(score.Causal, score.Dilated(3)))}, {MaskOf("nothing", func(p score.Pair) score.Cond { return p.Key.Less(0) }), Sinks},
		{MaskOf("far", score.And(score.Not(score.SlidingWindow(20, 10)), score.Prefix(100)))},
		{Learnt, Blocks, SoftCap, ALiBi, BiasOver("BH"), Sinks, Dropout, DLSE, Causal},
	}
}

// RandomRules is a random score and a random mask.
func RandomRules(seed uint64) Option {
	return Option{fmt.Sprintf("random(%d)", seed), func(o *settings) {
		floats := o.numbered(table{"floats", func(sizes) []int { return []int{3, 5} }, nil})
		ints := o.numbered(table{"ints", func(sizes) []int { return []int{11} }, func(random *rand.Rand, n int) []int32 {
			list := make([]int32, n)
			for i := range list {
				list[i] = int32(random.IntN(100) - 50)
			}
			return list
		}})
		writer := func(p score.Pair, tables []*score.Table, stream uint64) *scoretest.Writer {
			w := scoretest.NewWriter(seed*2+stream, 3, 5, 11)
			w.Pair, w.Floats, w.Ints = p, tables[floats], tables[ints]
			return w
		}
		// The tanh keeps scores where exponentials are no matter of luck.
		o.score = func(p score.Pair, tables []*score.Table) score.Expr {
			return writer(p, tables, 0).Real(4).Tanh().Mul(4).Add(p.Score)
		}
		o.mask = func(p score.Pair, tables []*score.Table) score.Cond {
			w := writer(p, tables, 1)
			return w.Condition(3).Or(w.Condition(2))
		}
	}}
}

// compile makes the tables, the score and the mask of a problem.
func (p *Problem[T]) compile(o *settings, input, output func(shape ...int) kernels.Tensor) {
	s := sizes{p.Batch, p.Heads, p.Sq, p.Sk}
	if p.Case.QLens != nil {
		s = sizes{len(p.Case.QLens) - 1, p.Heads, longest(p.Case.QLens), longest(p.Case.KVLens)}
	}
	all := map[*score.Table]int{}
	var tables []*score.Table
	for n, t := range o.tables {
		described := &score.Table{Name: t.name, Shape: t.shape(s)}
		for axis := range described.Shape {
			described.Shape[axis] = max(1, described.Shape[axis])
		}
		if t.integers != nil {
			described.Type = score.Int
		}
		tables, all[described] = append(tables, described), n
	}
	var err error
	if o.score != nil {
		if p.Attention.Score, err = score.NewScore(func(pair score.Pair) score.Expr { return o.score(pair, tables) }); err != nil {
			panic(err)
		}
	}
	if o.mask != nil {
		if p.Attention.Mask, err = score.NewMask(func(pair score.Pair) score.Cond { return o.mask(pair, tables) }, p.Attention.ScoreTables()...); err != nil {
			panic(err)
		}
	}
	for _, t := range p.ScoreTables() {
		values, d := kernels.Tensor{}, kernels.Tensor{}
		if integers := o.tables[all[t]].integers; integers != nil {
			list := integers(p.random, kernels.Contiguous(nil, kernels.I32, t.Shape...).Elements())
			values = kernels.Of(list, t.Shape...)
		} else {
			values, d = input(t.Shape...), output(t.Shape...)
		}
		p.Tables, p.DTables = append(p.Tables, values), append(p.DTables, d)
	}
}
