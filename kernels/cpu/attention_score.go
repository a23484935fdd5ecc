package cpu

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	"github.com/stheno-ml/stheno/kernels/score"
)

// This file runs the score and the mask that a user wrote. A program of package score becomes a
// list of operations on vectors of a tile of scores. What does not differ from pair to pair is
// computed before, along the queries, the keys and the diagonals of each score matrix; it is a
// line, and an operand like a tile. Programs are compiled once, lines are computed once a call.

// rules are the score and the mask of one call. Programs that it does not have are nil.
type rules[T kernels.Float] struct {
	values    []score.Values[T]
	score     *pointwise       // scores, and in backward their derivatives
	hide      *pointwise       // puts the factor where the mask hides
	places    []scorePlace[T]  // a sequence and query head each
	gradients []score.Gradient // of score's lookups
}

// scorePlace is what a score matrix has of its own.
type scorePlace[T kernels.Float] struct {
	score.Where
	scoreLines, maskLines *lines[T]
	tiles                 *score.Tiles // nil where the mask is a band
	blocks                [][]blockRun // the tiles, as the backward kernel goes through them: of each tile of queries
}

// The tiles of a mask are as small as products are still fast: what a tile shows in part is
// computed as a whole. A strip is so many rows of what a task works on at once; columns are whole
// panels.
const (
	leastStrip  = 24 // rows of a mask's tiles, where no blocks say otherwise
	maskColumns = 32
	taskRows    = 96 // of a tile of the forward and the backward kernel
)

// newRules compiles what the problem needs, and computes its lines and tiles. order is how often
// scores are differentiated.
func newRules[T kernels.Float](b *Backend, p *problem[T], order int) (*rules[T], error) {
	if p.Score == nil && p.Mask == nil {
		return nil, nil
	}
	values, err := kernels.TableValues[T](p.Attention)
	if err != nil {
		return nil, err
	}
	r := &rules[T]{values: values, places: make([]scorePlace[T], len(p.sequences)*p.heads)}
	if p.Score != nil {
		program := p.Score.Forward
		outputs := program.Results
		switch order {
		case 1:
			program, r.gradients = p.Score.Backward, p.Score.Lookups
			outputs = program.Results[:2:2]
			for _, g := range r.gradients {
				outputs = append(outputs, g.Slope)
			}
		case 2:
			program = p.Score.Second
			outputs = program.Results
		}
		r.score = program.Compiled("cpu", func() any { return compileScore(program, outputs, r.gradients) }).(*pointwise)
	}
	rest := p.Mask != nil && p.Mask.Rest != nil
	if rest {
		program := p.Mask.Rest
		r.hide = program.Compiled("cpu", func() any { return compileMask(program) }).(*pointwise)
	}
	var wide []score.Values[float64]
	if rest {
		wide = r.wideValues(p.Mask.Rest)
	}
	scoreLines, maskLines, tiles := map[score.Where]*lines[T]{}, map[score.Where]*lines[T]{}, map[tilesKey]*score.Tiles{}
	var todo []func()
	for i := range r.places {
		s, h := p.sequences[i/p.heads], i%p.heads
		at := &r.places[i]
		at.Where = p.Where(s, h)
		if r.score != nil {
			at.scoreLines = linesOf(r.score, at.Where, r, scoreLines, &todo)
		}
		if !rest {
			continue
		}
		at.maskLines = linesOf(r.hide, at.Where, r, maskLines, &todo)
		key := tilesKey{w: common(at.Where, p.Mask.ByBatch, p.Mask.ByHead)}
		key.lo, key.hi = p.band(s)
		if tiles[key] == nil {
			tiles[key] = p.Mask.Tiles(key.w, p.maskStrip, maskColumns, key.lo, key.hi, wide)
		}
		at.tiles = tiles[key]
	}
	b.each(len(todo), float64(len(todo))*flopsPerThread, func(i int) { todo[i]() })
	return r, nil
}

// tilesKey is what the tiles of a score matrix depend on.
type tilesKey struct {
	w      score.Where
	lo, hi int
}

// common is what matters of a place to what may not differ by batch item or head.
func common(w score.Where, byBatch, byHead bool) score.Where {
	if !byBatch {
		w.Batch = 0
	}
	if !byHead {
		w.Head, w.KeyHead = 0, 0
	}
	return w
}

// wideValues are the tables that a mask looks up, in float64.
func (r *rules[T]) wideValues(p *score.Program) []score.Values[float64] {
	wide := make([]score.Values[float64], len(r.values))
	for n, v := range r.values {
		wide[n] = score.Values[float64]{Shape: v.Shape, Ints: v.Ints}
	}
	for _, i := range p.Code {
		if i.Op == score.OpLookup && i.Type == score.Float && wide[i.Table].Floats == nil {
			for _, x := range r.values[i.Table].Floats {
				wide[i.Table].Floats = append(wide[i.Table].Floats, float64(x))
			}
		}
	}
	return wide
}

// linesOf finds lines that an earlier place has and that do not differ from this one's, or leaves
// to do what computes them.
func linesOf[T kernels.Float](p *pointwise, w score.Where, r *rules[T], known map[score.Where]*lines[T], todo *[]func()) *lines[T] {
	key := common(w, p.byBatch, p.byHead)
	if known[key] == nil {
		made := &lines[T]{}
		known[key] = made
		*todo = append(*todo, func() { made.compute(p, w, r.values) })
	}
	return known[key]
}

// pointwise is a compiled program.
type pointwise struct {
	program         *score.Program // with what the compiler added
	multiples       []float64      // of the factor; the first is 1
	lines           []int          // instructions that differ along one line, or nowhere
	lineIndex       map[int]int    // of each of them
	ops             []pointOp
	slots           int        // tiles of a strip of rows that operations need for what comes between
	outputs         []operand  // of each output, where it is
	addresses       []*address // of each gradient's lookup
	lookups         []*address // all of them
	byBatch, byHead bool       // do lines differ
}

// pointOp is an operation on the tiles of a strip.
type pointOp struct {
	op      score.Op
	to      operand
	x, y, z operand

	// Where these are set the operation is none on vectors: an element is looked up, or an
	// instruction is evaluated.
	lookup    *address
	evaluated *score.Program
	integers  bool // both operands are lines of integers, whose vectors are good only where they are exact
}

// operand says where a tile lies.
type operand struct {
	kind  operandKind
	index int
}

type operandKind int

const (
	nowhere   operandKind = iota
	inScores              // the tile that comes in and goes out
	inFactor              // what the scores that come in are still to be multiplied with, times a number of multiples
	inLine                // by the index among the program's lines
	inSlot                // of the strip
	inDerived             // a tile of the caller's, for outputs but the first
)

// address is where the elements lie that a lookup finds: at the sum of what its indices contribute.
type address struct {
	table     int
	lines     [score.Pairs][]axis // of indices that are lines, by where they differ
	evaluated *score.Program      // the indices that differ from pair to pair
	pairs     []axis
	number    int // among all of the program
}

// axis is an axis of a table: the line of its index, if that is one.
type axis struct{ line, size, stride int }

// compiler turns a program into operations.
type compiler struct {
	*pointwise
	moved []int     // of each instruction of the program as it was, its number in the simplified one
	at    []operand // of each instruction that has a tile
	uses  []int
	free  []int // slots
	left  []int // of each slot, how many operations will still read it
}

func newCompiler(p *score.Program) *compiler {
	c := &compiler{pointwise: &pointwise{program: &score.Program{Tables: p.Tables}, lineIndex: map[int]int{}, multiples: []float64{1}}}
	c.simplify(p)
	return c
}

// renumbered are the new numbers of instructions that moved.
func renumbered(moved, list []int) []int {
	now := make([]int, len(list))
	for n, at := range list {
		now[n] = moved[at]
	}
	return now
}

// append adds an instruction behind all that it reads.
func (c *compiler) append(i score.Instr) int {
	c.program.Code = append(c.program.Code, i)
	return len(c.program.Code) - 1
}

// number adds a number to the program.
func (c *compiler) number(x float64) int {
	return c.append(score.Instr{Op: score.OpNumber, Type: score.Float, Value: x})
}

// simplify writes a program anew, with what vectors do better in another way: products with one
// number in place of several, or of a division, and sums in place of differences, for products are
// fused with these.
func (c *compiler) simplify(p *score.Program) {
	c.moved = make([]int, len(p.Code))
	for at, i := range p.Code {
		i.Args = renumbered(c.moved, i.Args)
		c.moved[at] = c.append(c.simplified(i))
	}
	c.program.Results = renumbered(c.moved, p.Results)
}

// simplified is what to write for an instruction whose operands are written. It appends what else
// that reads.
func (c *compiler) simplified(i score.Instr) score.Instr {
	if i.Varies != score.Pairs || i.Type != score.Float || len(i.Args) != 2 {
		return i
	}
	if number, of := c.multipleOf(i); of >= 0 {
		if inner, from := c.multiple(of); from != of {
			i.Op, i.Args = score.OpMul, []int{from, c.number(number * inner)}
			return i
		}
	}
	y := c.program.Code[i.Args[1]]
	switch {
	case i.Op == score.OpDiv && y.Op == score.OpNumber && math.Abs(y.Value) > 1e-30 && math.Abs(y.Value) < 1e30:
		i.Op, i.Args = score.OpMul, []int{i.Args[0], c.number(1 / y.Value)}
	case i.Op == score.OpSub && y.Varies != score.Pairs:
		y.Op, y.Args = score.OpNeg, []int{i.Args[1]}
		i.Op, i.Args = score.OpAdd, []int{i.Args[0], c.append(y)}
	}
	return i
}

// multiple is a number and what it multiplies; 1 and the instruction itself where this is no such
// product.
func (c *compiler) multiple(at int) (number float64, of int) {
	if number, of = c.multipleOf(c.program.Code[at]); of < 0 {
		return 1, at
	}
	return number, of
}

// multipleOf is as multiple, of an instruction that may not be written yet; of is −1 where it is no
// such product.
func (c *compiler) multipleOf(i score.Instr) (number float64, of int) {
	if i.Varies != score.Pairs || i.Type != score.Float || i.Op != score.OpMul && i.Op != score.OpDiv {
		return 1, -1
	}
	x, y := c.program.Code[i.Args[0]], c.program.Code[i.Args[1]]
	isFactor := func(n float64) bool { return math.Abs(n) > 1e-15 && math.Abs(n) < 1e15 }
	switch {
	case i.Op == score.OpMul && y.Op == score.OpNumber && isFactor(y.Value):
		return y.Value, i.Args[0]
	case i.Op == score.OpMul && x.Op == score.OpNumber && isFactor(x.Value):
		return x.Value, i.Args[1]
	case i.Op == score.OpDiv && y.Op == score.OpNumber && isFactor(y.Value):
		return 1 / y.Value, i.Args[0]
	}
	return 1, -1
}

func compileScore(p *score.Program, outputs []int, gradients []score.Gradient) *pointwise {
	c := newCompiler(p)
	outputs = renumbered(c.moved, outputs)
	for _, g := range gradients {
		c.addresses = append(c.addresses, c.address(g.Table, renumbered(c.moved, g.Index)))
	}
	c.compile(outputs)
	for n, at := range outputs {
		switch to := (operand{inDerived, n - 1}); {
		case n > 0 && c.program.Code[at].Varies != score.Pairs:
			c.outputs = append(c.outputs, c.operand(at))
		case n > 0:
			c.copy(at, to)
			c.outputs = append(c.outputs, to)
		default:
			c.outputs = append(c.outputs, operand{kind: inScores})
		}
	}
	c.copy(outputs[0], operand{kind: inScores})
	c.finish()
	return c.pointwise
}

// compileMask puts the factor where a condition does not hold.
func compileMask(p *score.Program) *pointwise {
	c := newCompiler(p)
	results := c.program.Results
	c.compile(results)
	in := operand{kind: inScores}
	c.ops = append(c.ops, pointOp{op: score.OpSelect, to: in, x: c.operand(results[0]), y: in, z: operand{kind: inFactor}})
	c.finish()
	return c.pointwise
}

// copy lets the operation that computes an instruction write to a place, or, where others read the
// instruction too, adds one that copies it.
func (c *compiler) copy(at int, to operand) {
	from := c.operand(at)
	if from.kind == inSlot && c.uses[at] == 1 {
		for n := len(c.ops) - 1; n >= 0; n-- {
			if c.ops[n].to == from {
				c.ops[n].to = to
				return
			}
			if to.kind == inScores && (c.ops[n].x.kind == inScores || c.ops[n].y.kind == inScores || c.ops[n].evaluated != nil) {
				break
			}
		}
	}
	c.ops = append(c.ops, pointOp{op: score.OpMax, to: to, x: from, y: from})
}

func (c *compiler) finish() {
	for _, at := range c.lines {
		i := c.program.Code[at]
		c.byBatch, c.byHead = c.byBatch || i.ByBatch, c.byHead || i.ByHead
	}
}

// compile emits the operations of all instructions that differ from pair to pair. Outputs keep
// their slots.
func (c *compiler) compile(outputs []int) {
	n := len(c.program.Code)
	needed := make([]bool, n)
	c.uses, c.at = make([]int, n+1), make([]operand, n)
	for _, at := range outputs {
		needed[at] = true
		c.uses[at]++
	}
	for at := len(c.at) - 1; at >= 0; at-- {
		i := c.program.Code[at]
		if !needed[at] || i.Varies != score.Pairs || c.isEvaluated(at) || i.Op == score.OpLookup {
			continue
		}
		for _, arg := range i.Args {
			needed[arg] = true
			c.uses[arg]++
		}
	}
	pinned := map[int]bool{}
	for _, at := range outputs {
		pinned[at] = true
	}
	// The first output, if nothing else reads it, comes last: it takes the place of the scores.
	first := outputs[0]
	order := make([]int, 0, n)
	for at := range c.at {
		if needed[at] && c.program.Code[at].Varies == score.Pairs && c.program.Code[at].Type != score.Int && (at != first || c.uses[first] > 1) {
			order = append(order, at)
		}
	}
	if c.program.Code[first].Varies == score.Pairs && c.uses[first] == 1 {
		order = append(order, first)
	}
	for _, at := range order {
		if !c.fused(at, pinned) {
			c.emit(at, pinned)
		}
	}
}

// isEvaluated reports whether an instruction has integers that differ from pair to pair among its
// operands, for which there are no vectors.
func (c *compiler) isEvaluated(at int) bool {
	i := c.program.Code[at]
	for _, arg := range i.Args {
		if a := c.program.Code[arg]; a.Type == score.Int && a.Varies == score.Pairs {
			return true
		}
	}
	return i.Type == score.Int
}

// isMultiple reports whether an instruction is the score times a number, and nothing else reads the
// score.
func (c *compiler) isMultiple(at int, pinned map[int]bool) bool {
	_, of := c.multiple(at)
	return of != at && c.program.Code[of].Op == score.OpScore && c.uses[of] == 1 && !pinned[of]
}

// fused reports whether the instruction is a product that its only reader will compute: a sum, or a
// line less the product, or a multiple of the score.
func (c *compiler) fused(at int, pinned map[int]bool) bool {
	if !c.isProduct(at, pinned) {
		return false
	}
	for reader := range c.at {
		i := c.program.Code[reader]
		if i.Varies == score.Pairs && c.uses[reader] > 0 && slices.Contains(i.Args, at) && c.isMultiple(reader, pinned) {
			return true
		}
		if i.Op == score.OpSub && i.Varies == score.Pairs && c.uses[reader] > 0 && i.Args[1] == at && c.program.Code[i.Args[0]].Varies != score.Pairs {
			return i.Type == score.Float
		}
		if i.Op != score.OpAdd || i.Type != score.Float || i.Varies != score.Pairs || c.uses[reader] == 0 {
			continue
		}
		if i.Args[0] == at || i.Args[1] == at && !c.isProduct(i.Args[0], pinned) {
			return i.Args[0] != i.Args[1]
		}
	}
	return false
}

func (c *compiler) isProduct(at int, pinned map[int]bool) bool {
	i := c.program.Code[at]
	return (i.Op == score.OpMul || i.Op == score.OpScore) && i.Type == score.Float && i.Varies == score.Pairs && c.uses[at] == 1 && !pinned[at]
}

// factors are the operands of a product. A multiple of the score has the scores' tile and one more
// factor, for the score itself has no tile then.
func (c *compiler) factors(at int, pinned map[int]bool) (x, y operand) {
	i := c.program.Code[at]
	switch {
	case i.Op == score.OpScore:
		return operand{kind: inScores}, operand{kind: inFactor}
	case c.isMultiple(at, pinned):
		return operand{kind: inScores}, c.factor(at)
	}
	return c.operand(i.Args[0]), c.operand(i.Args[1])
}

// factor is the number by which an instruction multiplies the score, times the factor.
func (c *compiler) factor(at int) operand {
	number, _ := c.multiple(at)
	c.multiples = append(c.multiples, number)
	return operand{inFactor, len(c.multiples) - 1}
}

func (c *compiler) emit(at int, pinned map[int]bool) {
	i := c.program.Code[at]
	op := pointOp{op: i.Op}
	var read []int
	arg := func(n int) operand {
		read = append(read, i.Args[n])
		return c.operand(i.Args[n])
	}
	switch {
	case c.isEvaluated(at):
		op.evaluated = c.program.Part(at)
	case i.Op == score.OpLookup:
		op.lookup = c.address(i.Table, i.Args)
	case i.Op == score.OpScore || c.isMultiple(at, pinned):
		op.op = score.OpMul
		op.x, op.y = c.factors(at, pinned)
	case i.Op == score.OpSub && c.isProduct(i.Args[1], pinned) && c.program.Code[i.Args[0]].Varies != score.Pairs:
		op.op = simd.OpSubMul
		op.x, op.y = c.factors(i.Args[1], pinned)
		if product := c.program.Code[i.Args[1]]; product.Op != score.OpScore {
			read = append(read, product.Args...)
		}
		op.z = arg(0)
	case i.Op == score.OpAdd && (c.fused(i.Args[0], pinned) || c.fused(i.Args[1], pinned)):
		product, other := i.Args[0], 1
		if !c.fused(product, pinned) {
			product, other = i.Args[1], 0
		}
		op.op = simd.OpMulAdd
		op.x, op.y = c.factors(product, pinned)
		if c.program.Code[product].Op != score.OpScore {
			read = append(read, c.program.Code[product].Args...)
		}
		op.z = arg(other)
	case i.Op == score.OpNot:
		op.op, op.x, op.y = score.OpEqual, arg(0), c.operand(c.number(0))
	default:
		if op.x = arg(0); len(i.Args) > 1 {
			op.y = arg(1)
		}
		if len(i.Args) > 2 {
			op.z = arg(2)
		}
		switch i.Op {
		case score.OpAnd:
			op.op = score.OpMul
		case score.OpOr:
			op.op = score.OpMax
		}
		op.integers = i.Type == score.Bool && c.program.Code[i.Args[0]].Type == score.Int
	}
	for _, arg := range read {
		if o := c.at1(arg); o.kind == inSlot {
			if c.left[o.index]--; c.left[o.index] == 0 {
				c.free = append(c.free, o.index)
			}
		}
	}
	op.to = c.newSlot(c.uses[at])
	c.at[at] = op.to
	c.ops = append(c.ops, op)
}

// at1 is where an instruction's tile lies, if it has one.
func (c *compiler) at1(at int) operand {
	if at < len(c.at) {
		return c.at[at]
	}
	return operand{}
}

func (c *compiler) newSlot(readers int) operand {
	if n := len(c.free); n > 0 {
		index := c.free[n-1]
		c.free = c.free[:n-1]
		c.left[index] = readers
		return operand{inSlot, index}
	}
	c.left = append(c.left, readers)
	c.slots++
	return operand{inSlot, c.slots - 1}
}

// operand is where the value of an instruction lies.
func (c *compiler) operand(at int) operand {
	if c.program.Code[at].Varies == score.Pairs {
		return c.at1(at)
	}
	return operand{inLine, c.line(at)}
}

func (c *compiler) line(at int) int {
	if n, ok := c.lineIndex[at]; ok {
		return n
	}
	c.lineIndex[at] = len(c.lines)
	c.lines = append(c.lines, at)
	return len(c.lines) - 1
}

// address is where a lookup with the given indices finds its elements.
func (c *compiler) address(table int, index []int) *address {
	a := &address{table: table, number: len(c.lookups)}
	stride := 1
	var evaluated []int
	shape := c.program.Tables[table].Shape
	for n := len(index) - 1; n >= 0; n-- {
		at, to := index[n], axis{size: shape[n], stride: stride}
		if varies := c.program.Code[at].Varies; varies == score.Pairs {
			evaluated, a.pairs = append(evaluated, at), append(a.pairs, to)
		} else {
			to.line = c.line(at)
			a.lines[varies] = append(a.lines[varies], to)
		}
		stride *= shape[n]
	}
	if evaluated != nil {
		a.evaluated = c.program.Part(evaluated...)
	}
	c.lookups = append(c.lookups, a)
	return a
}
