package ops

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels/score"
	"gorgonia.org/gorgonia"
)

// Pair, Expr and Cond are what functions of scores and masks are written in; see package score,
// which also has ready-made ones.
type (
	Pair = score.Pair
	Expr = score.Expr
	Cond = score.Cond
)

// Lookup is the element of a node's value under an index for each of its axes, for a Score or a
// Mask of [AttentionOptions]: a float of a node of floats, which then has a gradient, or an
// integer. An index outside of its axis is moved to the axis's nearer end.
//
// What a score needs of a whole row, such as its sum, is an op before attention, computed once a
// row and not once a pair:
//
//	sums, err := ops.MatMul(n, ones, ops.MatMulOptions{})   // n is (H, S, D), ones (D)
//	... ops.Lookup(sums, p.Head, p.Key) ...
func Lookup(n *gorgonia.Node, index ...any) Expr {
	if n == nil || n.Type() == nil {
		return score.Lookup(&score.Table{Err: errors.New("a node that is looked up is nil or a zero node, it needs to be one of a graph")}, index...)
	}
	t := &score.Table{Name: n.Name(), Shape: n.Shape(), Source: n}
	switch {
	case dtypeOf(n.Dtype()) != 0:
	case indexDTypeOf(n.Dtype()) != 0:
		t.Type = score.Int
	default:
		t.Err = fmt.Errorf("%s is %v, what is looked up needs to be %s, or int, int32 or int64", n.Name(), n.Dtype(), floatTypes)
	}
	return score.Lookup(t, index...)
}

// Documents shows the keys of the query's own document. ids has a number for each key, the same for
// those of one document: (S), or (B, S).
func Documents(ids *gorgonia.Node) func(Pair) Cond {
	return func(p Pair) Cond {
		id := func(at Expr) Expr {
			if ids != nil && len(ids.Shape()) == 2 {
				return Lookup(ids, p.Batch, at)
			}
			return Lookup(ids, at)
		}
		return id(p.Position()).Equal(id(p.Key))
	}
}

// RelativeBias adds a learnt number for each head and distance, as T5 does: table is (buckets, Hq),
// and distances share buckets as [score.Bucket] says.
func RelativeBias(table *gorgonia.Node, most int, both bool) func(Pair) Expr {
	return func(p Pair) Expr {
		buckets := 1
		if table != nil && len(table.Shape()) > 0 {
			buckets = table.Shape()[0]
		}
		return p.Score.Add(Lookup(table, score.Bucket(p, buckets, most, both), p.Head))
	}
}

// addRules compiles a score and a mask, and adds what they look up to the inputs.
func (a *attention) addRules(o *AttentionOptions) (err error) {
	if o.Score != nil {
		if a.options.Score, err = score.NewScore(o.Score); err != nil {
			return err
		}
	}
	if o.Mask != nil {
		if a.options.Mask, err = score.NewMask(o.Mask, a.options.ScoreTables()...); err != nil {
			return err
		}
	}
	for _, t := range a.options.ScoreTables() {
		n, ok := t.Source.(*gorgonia.Node)
		if !ok {
			return fmt.Errorf("%s is no node, what is looked up needs to come from Lookup", t.Name)
		}
		form := ownRowsForm
		if t.Type == score.Int {
			form = indexForm
		}
		a.inputs = append(a.inputs, input{name: t.Name, node: n, form: form})
	}
	return nil
}
