package kernels

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels/score"
)

// This file joins attention to the language of scores and masks.

// ScoreTables lists what Score and Mask look up. They number it alike: the mask goes on where the
// score ends.
func (a *Attention) ScoreTables() []*score.Table {
	switch {
	case a.Mask != nil:
		return a.Mask.Tables
	case a.Score != nil:
		return a.Score.Tables
	}
	return nil
}

// Where is what the pairs of a sequence and query head have in common.
func (a *Attention) Where(s Sequence, head int) score.Where {
	group := max(1, a.Q.Shape[1]/max(1, a.K.Shape[1]))
	return score.Where{Batch: s.Index, Head: head, KeyHead: head / group, QueryLength: s.Sq, KeyLength: s.Sk}
}

// validateScore checks the tables. How large they need to be is known where an index is one of the
// pair's own numbers.
func (a *Attention) validateScore() error {
	switch {
	case a.Score != nil && a.Score.Forward == nil:
		return errors.New("score is empty, it needs to be one of score.NewScore")
	case a.Mask != nil && a.Mask.Whole == nil:
		return errors.New("mask is empty, it needs to be one of score.NewMask")
	}
	tables := a.ScoreTables()
	if a.Score != nil && a.Mask != nil && (len(a.Score.Tables) > len(tables) || !slices.Equal(a.Score.Tables, tables[:len(a.Score.Tables)])) {
		return fmt.Errorf("mask numbers its tables in another order than score, it needs to be compiled with those of score")
	}
	if len(a.Tables) != len(tables) {
		return fmt.Errorf("tables has %d entries, score and mask look up %d tables", len(a.Tables), len(tables))
	}
	for n, t := range a.Tables {
		if err := a.validateTable(tables[n], t); err != nil {
			return err
		}
	}
	if a.Score != nil {
		if err := a.validateProgram("score", a.Score.Forward); err != nil {
			return err
		}
	}
	if a.Mask != nil {
		return a.validateProgram("mask", a.Mask.Whole)
	}
	return nil
}

func (a *Attention) validateProgram(name string, p *score.Program) error {
	if err := a.validateLookups(p); err != nil {
		return err
	}
	return a.validateNumbers(name, p)
}

// validateNumbers checks the floats that a program has been written with. An infinity is one in
// every type; what is finite needs to be so, and not 0, in the type that scores are computed in.
func (a *Attention) validateNumbers(name string, p *score.Program) error {
	for _, i := range p.Code {
		if i.Op != score.OpNumber || i.Type != score.Float || math.IsInf(i.Value, 0) || i.Value == 0 {
			continue
		}
		least, most := float64(math.SmallestNonzeroFloat32), math.MaxFloat32
		if a.Q.DType == F64 {
			least, most = math.SmallestNonzeroFloat64, math.MaxFloat64
		}
		if size := math.Abs(i.Value); !(size >= least && size <= most) {
			return fmt.Errorf("%s has the number %.4g, with %v its magnitude needs to be from %.3g to %.3g", name, i.Value, a.Q.DType, least, most)
		}
	}
	return nil
}

func (a *Attention) validateTable(table *score.Table, t Tensor) error {
	switch {
	case !t.IsSet():
		return fmt.Errorf("%s is missing, it is looked up", table.Name)
	case !slices.Equal(t.Shape, table.Shape):
		return fmt.Errorf("%s has shape %v, it needs %v", table.Name, t.Shape, table.Shape)
	case t.Elements() == 0:
		return fmt.Errorf("%s has shape %v, what is looked up needs elements", table.Name, t.Shape)
	case table.Type == score.Int && !t.DType.IsInteger():
		return fmt.Errorf("%s is %v, it needs to be int32 or int64", table.Name, t.DType)
	}
	if err := t.validateLayout(table.Name); err != nil {
		return err
	}
	if table.Type == score.Int {
		return nil
	}
	return a.validateAdded(table.Name, t.DType)
}

// validateLookups checks that tables are as long as what counts their elements.
func (a *Attention) validateLookups(p *score.Program) error {
	sequences, longestQ, longestK := a.Q.Shape[0], a.Q.Shape[2], a.K.Shape[2]
	if a.QLens != nil {
		sequences, longestQ, longestK = len(a.QLens)-1, longest(a.QLens), longest(a.KVLens)
	}
	needed := map[score.Op]int{
		score.OpBatch: sequences, score.OpHead: a.Q.Shape[1], score.OpKeyHead: a.K.Shape[1], score.OpQuery: longestQ, score.OpKey: longestK,
	}
	for at, i := range p.Code {
		if i.Op != score.OpLookup {
			continue
		}
		for axis, arg := range i.Args {
			if size, need := p.Tables[i.Table].Shape[axis], needed[p.Code[arg].Op]; size < need {
				return fmt.Errorf("%s: axis %d of %s has %d elements, %s goes up to %d",
					p.Text(at), axis, p.Tables[i.Table].Name, size, p.Text(arg), need-1)
			}
		}
	}
	return nil
}

// checkTableGradients checks that gradients of tables are of tables that have one.
func (a *Attention) checkTableGradients(d []Tensor) error {
	if len(d) > 0 && len(d) != len(a.Tables) {
		return fmt.Errorf("dTables has %d entries, it needs one for each of the %d tables", len(d), len(a.Tables))
	}
	for n, t := range d {
		if table := a.ScoreTables()[n]; t.IsSet() && table.Type != score.Float {
			return fmt.Errorf("d%s is there, and %s is of integers", table.Name, table.Name)
		}
	}
	return nil
}

// TableValues are the tables of a problem on the host, as the programs of its score and mask take
// them. An integer beyond 32 bits is an error.
func TableValues[T Float](a *Attention) ([]score.Values[T], error) {
	list := make([]score.Values[T], len(a.Tables))
	for n, t := range a.Tables {
		v := score.Values[T]{Shape: t.Shape}
		switch {
		case t.DType == I32 && t.IsRowMajor():
			v.Ints = Host[int32](t)
		case t.DType.IsInteger():
			v.Ints = make([]int32, t.Elements())
			wide := make([]int64, len(v.Ints))
			if t.DType == I64 {
				CopyHost(Of(wide, t.Shape...), t)
			} else {
				CopyHost(Of(v.Ints, t.Shape...), t)
				break
			}
			for i, x := range wide {
				if x < math.MinInt32 || x > math.MaxInt32 {
					return nil, fmt.Errorf("%s holds %d, what is looked up needs to be an integer of 32 bits", a.ScoreTables()[n].Name, x)
				}
				v.Ints[i] = int32(x)
			}
		case t.DType == DTypeOf[T]() && t.IsRowMajor():
			v.Floats = Host[T](t)
		default:
			v.Floats = make([]T, t.Elements())
			CopyHost(Of(v.Floats, t.Shape...), t)
		}
		list[n] = v
	}
	return list, nil
}
