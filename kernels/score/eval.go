package score

import "math"

// Values are the numbers of a table, row-major: integers or floats, as the table's type says.
type Values[T float32 | float64] struct {
	Shape  []int
	Ints   []int32
	Floats []T
}

// Where is what all pairs of a score matrix have in common.
type Where struct {
	Batch, Head, KeyHead   int
	QueryLength, KeyLength int
}

// Line is a list of pairs of one score matrix, which an [Evaluator] goes through. Pair n is (Query
// + n·QueryStep, Key + n·KeyStep).
type Line[T float32 | float64] struct {
	Where
	N                int
	Query, QueryStep int
	Key, KeyStep     int
	Scores           []T // of each pair; not looked at by programs that do without
	Tables           []Values[T]
}

// Evaluator runs a program, one instruction for all pairs of a line after the other, in the
// arithmetic of T. It is the meaning of programs; backends that are faster compute the same.
type Evaluator[T float32 | float64] struct {
	p      *Program
	floats [][]T
	ints   [][]int32
	bools  [][]bool
}

// NewEvaluator returns an evaluator, which one goroutine may use at a time.
func NewEvaluator[T float32 | float64](p *Program) *Evaluator[T] {
	n := len(p.Code)
	return &Evaluator[T]{p: p, floats: make([][]T, n), ints: make([][]int32, n), bools: make([][]bool, n)}
}

// Floats, Ints and Bools are the values of a result, by its number, of the last run's pairs. They
// hold until the next run.
func (e *Evaluator[T]) Floats(result int) []T { return e.floats[e.p.Results[result]] }

// Ints is as Floats, of integers.
func (e *Evaluator[T]) Ints(result int) []int32 { return e.ints[e.p.Results[result]] }

// Bools is as Floats, of conditions.
func (e *Evaluator[T]) Bools(result int) []bool { return e.bools[e.p.Results[result]] }

// FloatsOf and IntsOf are the values of an instruction, as Floats and Ints of a result.
func (e *Evaluator[T]) FloatsOf(at int) []T { return e.floats[at] }

// IntsOf is as FloatsOf, of integers.
func (e *Evaluator[T]) IntsOf(at int) []int32 { return e.ints[at] }

func room[E any](list *[]E, n int) []E {
	if cap(*list) < n {
		*list = make([]E, n)
	}
	*list = (*list)[:n]
	return *list
}

// Run computes the results of all pairs.
func (e *Evaluator[T]) Run(l Line[T]) {
	for at := range e.p.Code {
		i := &e.p.Code[at]
		switch i.Type {
		case Int:
			e.integers(i, room(&e.ints[at], l.N), &l)
		case Bool:
			e.conditions(i, room(&e.bools[at], l.N))
		default:
			e.reals(i, room(&e.floats[at], l.N), &l)
		}
	}
}

func (e *Evaluator[T]) integers(i *Instr, out []int32, l *Line[T]) {
	start, step := 0, 0
	switch i.Op {
	case OpNumber:
		start = int(i.Value)
	case OpBatch:
		start = l.Batch
	case OpHead:
		start = l.Head
	case OpKeyHead:
		start = l.KeyHead
	case OpQueryLength:
		start = l.QueryLength
	case OpKeyLength:
		start = l.KeyLength
	case OpQuery:
		start, step = l.Query, l.QueryStep
	case OpKey:
		start, step = l.Key, l.KeyStep
	case OpLookup:
		values := l.Tables[i.Table]
		for n := range out {
			out[n] = values.Ints[e.offset(i, values.Shape, n)]
		}
		return
	case OpSelect:
		c, x, y := e.bools[i.Args[0]], e.ints[i.Args[1]], e.ints[i.Args[2]]
		for n := range out {
			if out[n] = y[n]; c[n] {
				out[n] = x[n]
			}
		}
		return
	default:
		x, y := e.ints[i.Args[0]], e.ints[i.Args[len(i.Args)-1]]
		for n := range out {
			out[n] = integer(i.Op, x[n], y[n])
		}
		return
	}
	for n := range out {
		out[n] = int32(start + n*step)
	}
}

// integer is an operation on integers; that on one is given it twice.
func integer(op Op, x, y int32) int32 {
	switch op {
	case OpAdd:
		return x + y
	case OpSub:
		return x - y
	case OpMul:
		return x * y
	case OpDiv:
		if y == 0 {
			return 0
		}
		return x / y
	case OpRem:
		if y == 0 {
			return x
		}
		return x % y
	case OpMin:
		return min(x, y)
	case OpMax:
		return max(x, y)
	case OpNeg:
		return -x
	}
	return max(x, -x) // OpAbs
}

// offset is where the element lies that a lookup of pair n finds.
func (e *Evaluator[T]) offset(i *Instr, shape []int, n int) int {
	offset := 0
	for axis, arg := range i.Args {
		offset = offset*shape[axis] + Clamp(e.ints[arg][n], shape[axis])
	}
	return offset
}

// Clamp is the index of an axis that a lookup takes.
func Clamp(index int32, size int) int { return min(max(int(index), 0), size-1) }

func (e *Evaluator[T]) conditions(i *Instr, out []bool) {
	switch i.Op {
	case OpNot:
		for n, x := range e.bools[i.Args[0]] {
			out[n] = !x
		}
	case OpAnd, OpOr:
		y := e.bools[i.Args[1]]
		for n, x := range e.bools[i.Args[0]] {
			out[n] = x && y[n] || i.Op == OpOr && (x || y[n])
		}
	default:
		if e.p.Code[i.Args[0]].Type == Int {
			compare(i.Op, out, e.ints[i.Args[0]], e.ints[i.Args[1]])
		} else {
			compare(i.Op, out, e.floats[i.Args[0]], e.floats[i.Args[1]])
		}
	}
}

func compare[E int32 | float32 | float64](op Op, out []bool, x, y []E) {
	y, x = y[:len(out)], x[:len(out)]
	switch op {
	case OpLess:
		for n := range out {
			out[n] = x[n] < y[n]
		}
	case OpLessEqual:
		for n := range out {
			out[n] = x[n] <= y[n]
		}
	default:
		for n := range out {
			out[n] = x[n] == y[n]
		}
	}
}

func (e *Evaluator[T]) reals(i *Instr, out []T, l *Line[T]) {
	switch i.Op {
	case OpNumber:
		for n := range out {
			out[n] = T(i.Value)
		}
	case OpScore:
		copy(out, l.Scores)
	case OpFloat:
		for n, x := range e.ints[i.Args[0]] {
			out[n] = T(x)
		}
	case OpLookup:
		values := l.Tables[i.Table]
		for n := range out {
			out[n] = values.Floats[e.offset(i, values.Shape, n)]
		}
	case OpSelect:
		c, x, y := e.bools[i.Args[0]], e.floats[i.Args[1]], e.floats[i.Args[2]]
		for n := range out {
			if out[n] = y[n]; c[n] {
				out[n] = x[n]
			}
		}
	default:
		x, y := e.floats[i.Args[0]], e.floats[i.Args[len(i.Args)-1]]
		for n := range out {
			out[n] = Real(i.Op, x[n], y[n])
		}
	}
}

// Real is an operation on floats; that on one is given it twice.
func Real[T float32 | float64](op Op, x, y T) T {
	switch op {
	case OpAdd:
		return x + y
	case OpSub:
		return x - y
	case OpMul:
		return x * y
	case OpDiv:
		return x / y
	case OpMin:
		return min(x, y)
	case OpMax:
		return max(x, y)
	case OpNeg:
		return -x
	case OpAbs:
		return T(math.Abs(float64(x)))
	case OpExp:
		return T(math.Exp(float64(x)))
	case OpLog:
		return T(math.Log(float64(x)))
	case OpTanh:
		return T(math.Tanh(float64(x)))
	case OpSin:
		return T(math.Sin(float64(x)))
	case OpCos:
		return T(math.Cos(float64(x)))
	}
	// OpSigmoid, without overflow on either side
	small := math.Exp(-math.Abs(float64(x)))
	if x < 0 {
		return T(small / (1 + small))
	}
	return T(1 / (1 + small))
}
