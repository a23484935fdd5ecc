package score

// grid is a condition that a table of blocks decides: one integer for each block of queries and of
// keys, compared with a number.
type grid struct {
	lookup        Instr
	code          []Instr
	query, key    int // the axes of the table that count blocks
	rows, columns int // of a block
	number        int32
	rest          int // the instruction of the other condition that needs to hold; −1 for none
}

// gridOf finds the table of blocks of a mask, if its program looks up one and nothing else differs
// from pair to pair, or another condition needs to hold beside it.
func gridOf(p *Program) *grid {
	result := p.Results[0]
	if g := gridAt(p, result); g != nil {
		return g
	}
	if i := p.Code[result]; i.Op == OpAnd {
		for n, arg := range i.Args {
			if g := gridAt(p, arg); g != nil {
				g.rest = i.Args[1-n]
				return g
			}
		}
	}
	return nil
}

func gridAt(p *Program, at int) *grid {
	i := p.Code[at]
	if i.Op != OpEqual || i.Varies != Pairs {
		return nil
	}
	lookup, number := p.Code[i.Args[0]], p.Code[i.Args[1]]
	if lookup.Op != OpLookup {
		lookup, number = number, lookup
	}
	if lookup.Op != OpLookup || lookup.Type != Int || number.Op != OpNumber {
		return nil
	}
	g := &grid{lookup: lookup, code: p.Code, query: -1, key: -1, number: int32(number.Value), rest: -1}
	for axis, arg := range lookup.Args {
		x := p.Code[arg]
		if x.Op == OpDiv && p.Code[x.Args[1]].Op == OpNumber && p.Code[x.Args[1]].Value >= 1 {
			size := int(p.Code[x.Args[1]].Value)
			switch p.Code[x.Args[0]].Op {
			case OpQuery:
				g.query, g.rows = axis, size
				continue
			case OpKey:
				g.key, g.columns = axis, size
				continue
			}
		}
		switch x.Op {
		case OpBatch, OpHead, OpKeyHead, OpNumber:
		default:
			return nil
		}
	}
	if g.query < 0 || g.key < 0 {
		return nil
	}
	return g
}

// Blocks are the queries and the keys of a block where a table of blocks says what the mask shows,
// and 0 elsewhere; alone reports whether nothing else does, apart from bands.
func (m *Mask) Blocks() (queries, keys int, alone bool) {
	if m == nil || m.Rest == nil {
		return 0, 0, false
	}
	if g := gridOf(m.Rest); g != nil {
		return g.rows, g.columns, g.rest < 0
	}
	return 0, 0, false
}

// find lists the tiles that the table shows.
func (g *grid) find(s *search, p *Program) {
	table := s.tables[g.lookup.Table]
	start, strides := 0, make([]int, len(table.Shape))
	for axis, stride := len(strides)-1, 1; axis >= 0; axis-- {
		strides[axis] = stride
		stride *= table.Shape[axis]
		index := 0
		switch x := g.code[g.lookup.Args[axis]]; x.Op {
		case OpBatch:
			index = s.w.Batch
		case OpHead:
			index = s.w.Head
		case OpKeyHead:
			index = s.w.KeyHead
		case OpNumber:
			index = int(x.Value)
		}
		start += Clamp(int32(index), table.Shape[axis]) * strides[axis]
	}
	var rest *search
	if g.rest >= 0 {
		other := p.Part(g.rest)
		rest = &search{matrix: s.matrix, ranges: newRanges(other, s.w, s.tables), pairs: NewEvaluator[float64](other), tables: s.tables}
	}
	queries, keys := table.Shape[g.query], table.Shape[g.key]
	for q := range s.found {
		first, end := q*s.rows, min((q+1)*s.rows, s.w.QueryLength)
		fromKey, toKey := max(0, first+s.lo), min(s.w.KeyLength, end-1+s.hi)
		for k := fromKey / s.columns; k*s.columns < toKey; k++ {
			key, keyEnd := k*s.columns, min((k+1)*s.columns, s.w.KeyLength)
			shown, all := 0, 0
			for row := min(first/g.rows, queries-1); row <= min((end-1)/g.rows, queries-1); row++ {
				for column := min(key/g.columns, keys-1); column <= min((keyEnd-1)/g.columns, keys-1); column++ {
					if all++; table.Ints[start+row*strides[g.query]+column*strides[g.key]] == g.number {
						shown++
					}
				}
			}
			if shown == 0 {
				continue
			}
			run := Run{int32(k), int32(k + 1), shown < all}
			if rest != nil {
				switch rest.state(area{query: first, queryEnd: end, key: key, keyEnd: keyEnd}) {
				case hidden:
					continue
				case unknown:
					run.Partly = true
				}
			}
			s.found.add(q, run)
		}
	}
}
