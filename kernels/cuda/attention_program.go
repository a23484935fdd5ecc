//go:build gpu

package cuda

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// This file writes a user's score and mask in CUDA C++: user_program.cuh, of which
// src/attention_user.cuh says what it has.

// mostInline is how many instructions a function may have that differ within a tile: it is repeated
// for each score a thread holds. Longer ones are called.
const mostInline = 96

// programText is a text in the making.
type programText struct {
	strings.Builder
	tables []kernels.Tensor
	axes   []int  // of each table, where its axes are among those of all
	exact  string // the argument of templates that says how exact functions are
}

// programOf writes what the kernels of a problem are compiled with: whether its scores have options
// of ours too, and whether the kernels compute the mask's bands.
func programOf(a *kernels.Attention, options, bands bool) string {
	t := &programText{tables: a.Tables}
	for axes, n := 0, 0; n < len(a.Tables); n++ {
		t.axes = append(t.axes, axes)
		axes += len(a.Tables[n].Shape)
	}
	scores, mask := a.Score, a.Mask
	visible := mask != nil && mask.Rest != nil
	gains, lookups := false, 0
	if scores != nil {
		slope := scores.Backward.Code[scores.Backward.Results[1]]
		gains, lookups = slope.Op != score.OpNumber || slope.Value != 1, len(scores.Lookups)
	}
	byScore := scores != nil && slices.ContainsFunc(scores.Lookups, func(g score.Gradient) bool { return scores.Backward.Code[g.Slope].ByScore })
	t.line("#pragma once")
	for _, flag := range []struct {
		name string
		set  bool
	}{{"USER_SCORE", scores != nil}, {"USER_MASK", visible}, {"USER_OPTIONS", options}, {"USER_MASK_BY_HEAD", visible && mask.ByHead}, {"USER_GAINS", gains}, {"USER_SLOPES_BY_SCORE", byScore}} {
		t.line("constexpr bool %s = %v;", flag.name, flag.set)
	}

	t.line("constexpr int USER_LOOKUPS = %d;", lookups)
	queries, keys, alone := mask.Blocks()
	if !alone {
		queries, keys = 1, 1
	}
	t.line("constexpr int USER_BLOCK_QUERIES = %d, USER_BLOCK_KEYS = %d;", queries, keys)

	t.exact = "EXACT"
	if scores != nil {
		back := scores.Backward
		t.function("template <bool EXACT>", "float", "userScore", "", scores.Forward, func(v []string) { t.line("  return %s;", v[0]) })
		t.function("template <bool EXACT>", "float", "userScore", ", float& slope", back.Part(back.Results[:2]...), func(v []string) {
			t.line("  slope = %s;", v[1])
			t.line("  return %s;", v[0])
		})
	} else {
		t.line("template <bool EXACT> DEVICE float userScore(const UserArguments& a, const UserPair& p) { return p.score; }")
		t.line("template <bool EXACT> DEVICE float userScore(const UserArguments& a, const UserPair& p, float& slope) { return p.score; }")
	}

	t.exact = "true"
	if visible {
		t.function("", "bool", "userVisible", "", mask.Rest, func(v []string) { t.line("  return %s;", v[0]) })
	} else {
		t.line("DEVICE bool userVisible(const UserArguments& a, const UserPair& p) { return true; }")
	}
	t.line("DEVICE void userBands(const UserArguments& a, const UserPair& p, int& lo, int& hi) {")
	if bands {
		t.line("  constexpr int64_t far = 1 << 29;")
		for _, b := range mask.Bands {
			t.band(b)
		}
	}
	t.line("}")

	var names []string
	if scores != nil {
		for n, g := range scores.Lookups {
			names = append(names, fmt.Sprintf("UserLookup%d", n))
			t.lookup(names[n], scores, g)
		}
	}
	t.line("template <class F> DEVICE void eachUserLookup(F f) {")
	for _, name := range names {
		t.line("  f(%s{});", name)
	}
	t.line("}")
	return t.String()
}

func (t *programText) line(format string, args ...any) {
	fmt.Fprintf(t, format+"\n", args...)
}

// function writes a function of a pair; end returns what it computes, given the names of the
// program's results.
func (t *programText) function(template, result, name, parameters string, p *score.Program, end func(results []string)) {
	kind, repeated := "DEVICE", 0
	for _, i := range p.Code {
		if i.Varies != score.Nowhere || i.ByScore {
			repeated++
		}
	}
	if repeated > mostInline {
		kind = "__device__ __noinline__"
	}
	t.line("%s %s %s %s(const UserArguments& a, const UserPair& p%s) {", template, kind, result, name, parameters)
	end(t.body(p))
	t.line("}")
}

// body writes a program's instructions and returns the names of its results.
func (t *programText) body(p *score.Program) []string {
	types := map[score.Type]string{score.Float: "float", score.Int: "int", score.Bool: "bool"}
	places := t.places(p)
	for at, i := range p.Code {
		if places[at] {
			args := make([]string, len(i.Args))
			for n, arg := range i.Args {
				args[n] = value(arg)
				if !places[arg] {
					args[n] = "UserPlace(" + args[n] + ")"
				}
			}
			text := "p." + pairFields[i.Op]
			if len(args) == 2 {
				text = args[0] + " " + floatInfixes[i.Op] + " " + args[1]
			}
			t.line("  const UserPlace %s = %s;", value(at), text)
			continue
		}
		args := make([]string, len(i.Args))
		for n, arg := range i.Args {
			args[n] = integer(places, arg)
		}
		text := t.operation(p, &i, args)
		if i.Op == score.OpFloat {
			if of := i.Args[0]; places[of] {
				text = value(of) + ".real()"
			} else if c := p.Code[of]; c.Op == score.OpAbs && places[c.Args[0]] {
				text = "fabsf(" + value(c.Args[0]) + ".real())"
			}
		}
		t.line("  const %s %s = %s;", types[i.Type], value(at), text)
	}
	results := make([]string, len(p.Results))
	for n, at := range p.Results {
		results[n] = integer(places, at)
	}
	return results
}

// places tells which values of a score are a query or a key plus and minus what cannot make it
// overflow. A mask has none: as floats, they are rounded by where a thread's first pair is.
func (t *programText) places(p *score.Program) []bool {
	places := make([]bool, len(p.Code))
	if t.exact == "true" {
		return places
	}
	const longest, most = 1 << 28, 1 << 31
	bounds := make([]float64, len(p.Code)) // of the size of each value, 0 for what is not known
	for at, i := range p.Code {
		switch i.Op {
		case score.OpQuery, score.OpKey:
			places[at] = true
			fallthrough
		case score.OpQueryLength, score.OpKeyLength:
			bounds[at] = longest
		case score.OpNumber:
			if i.Type == score.Int {
				bounds[at] = max(1, math.Abs(i.Value))
			}
		case score.OpAdd, score.OpSub:
			x, y := i.Args[0], i.Args[1]
			if sum := bounds[x] + bounds[y]; bounds[x] > 0 && bounds[y] > 0 && sum < most {
				bounds[at], places[at] = sum, places[x] || places[y]
			}
		}
	}
	return places
}

// integer is a value as an integer where it is a place.
func integer(places []bool, at int) string {
	if places[at] {
		return value(at) + ".value()"
	}
	return value(at)
}

func value(at int) string { return fmt.Sprintf("v%d", at) }

// pairFields are what instructions take of a pair.
var pairFields = map[score.Op]string{
	score.OpScore: "score", score.OpBatch: "batch", score.OpHead: "head", score.OpKeyHead: "keyHead", score.OpQuery: "query",
	score.OpKey: "key", score.OpQueryLength: "queryLength", score.OpKeyLength: "keyLength",
}

// infixes are operators of C++, of integers only where these need not wrap around.
var infixes = map[score.Op]string{score.OpLess: "<", score.OpLessEqual: "<=", score.OpEqual: "==", score.OpAnd: "&&", score.OpOr: "||"}

var floatInfixes = map[score.Op]string{score.OpAdd: "+", score.OpSub: "-", score.OpMul: "*"}

// roundedFunctions are those of floats that the compiler joins with nothing, so that a mask is the
// same in all kernels.
var roundedFunctions = map[score.Op]string{score.OpAdd: "__fadd_rn", score.OpSub: "__fsub_rn", score.OpMul: "__fmul_rn"}

// functions are those of attention_user.cuh and of CUDA.
var (
	intFunctions = map[score.Op]string{
		score.OpAdd: "userAdd", score.OpSub: "userSub", score.OpMul: "userMul", score.OpDiv: "userDiv", score.OpRem: "userRem",
		score.OpMin: "userMin", score.OpMax: "userMax", score.OpAbs: "userAbs",
	}
	floatFunctions = map[score.Op]string{
		score.OpMin: "userMin", score.OpMax: "userMax", score.OpAbs: "fabsf", score.OpSin: "sinf", score.OpCos: "cosf",
	}
	exactFunctions = map[score.Op]string{
		score.OpDiv: "userDivide", score.OpExp: "userExp", score.OpLog: "userLog", score.OpTanh: "userTanh", score.OpSigmoid: "userSigmoid",
	}
)

// operation is an instruction as an expression of C++.
func (t *programText) operation(p *score.Program, i *score.Instr, args []string) string {
	call := func(name string) string { return name + "(" + strings.Join(args, ", ") + ")" }
	switch {
	case i.Op == score.OpNumber && i.Type == score.Float:
		return fmt.Sprintf("__int_as_float(0x%08x)", math.Float32bits(float32(i.Value)))
	case i.Op == score.OpNumber:
		return fmt.Sprintf("(int)0x%08xu", uint32(int32(i.Value)))
	case i.Op == score.OpQuery || i.Op == score.OpKey:
		return "p." + pairFields[i.Op] + ".value()"
	case pairFields[i.Op] != "":
		return "p." + pairFields[i.Op]
	case i.Op == score.OpLookup:
		return t.element(i.Table, args)
	case infixes[i.Op] != "":
		return args[0] + " " + infixes[i.Op] + " " + args[1]
	case i.Op == score.OpNot:
		return "!" + args[0]
	case i.Op == score.OpSelect:
		return args[0] + " ? " + args[1] + " : " + args[2]
	case i.Op == score.OpFloat:
		return "(float)" + args[0]
	case i.Type == score.Int && i.Op == score.OpNeg:
		return "userSub(0, " + args[0] + ")"
	case i.Type == score.Int:
		return call(intFunctions[i.Op])
	case i.Op == score.OpNeg:
		return "-" + args[0]
	case t.exact == "true" && roundedFunctions[i.Op] != "":
		return call(roundedFunctions[i.Op])
	case floatInfixes[i.Op] != "":
		return args[0] + " " + floatInfixes[i.Op] + " " + args[1]
	case floatFunctions[i.Op] != "":
		return call(floatFunctions[i.Op])
	}
	return call(exactFunctions[i.Op] + "<" + t.exact + ">")
}

// elementTypes are the types of tables in C++.
var elementTypes = map[kernels.DType]string{
	kernels.F32: "float", kernels.BF16: "__nv_bfloat16", kernels.F16: "__half", kernels.I32: "int", kernels.I64: "int64_t",
}

// element is what a lookup finds.
func (t *programText) element(n int, index []string) string {
	tensor := t.tables[n]
	terms := make([]string, len(index))
	for axis, i := range index {
		terms[axis] = fmt.Sprintf("userIndex(%s, a.axes[%d].x) * a.axes[%d].y", i, t.axes[n]+axis, t.axes[n]+axis)
	}
	if len(terms) == 0 {
		terms = []string{"0"}
	}
	return fmt.Sprintf("userElement((const %s*)a.tables[%d] + (%s))", elementTypes[tensor.DType], n, strings.Join(terms, " + "))
}

// band narrows lo and hi to a band: see score.Mask.Band.
func (t *programText) band(b score.Band) {
	t.line("  {")
	results := t.body(b.Program)
	strict := 0
	if b.Op == score.OpLess {
		strict = 1
	}
	t.line("  const int64_t c = max(-far, min((int64_t)%s - %s - %d, far));", results[1], results[0], strict)
	if b.Direction > 0 || b.Op == score.OpEqual {
		t.line("  hi = userMin(hi, (int)(%d * c + 1));", b.Direction)
	}
	if b.Direction < 0 || b.Op == score.OpEqual {
		t.line("  lo = userMax(lo, (int)(%d * c));", b.Direction)
	}
	t.line("  }")
}

// lookup writes what UserSums takes.
func (t *programText) lookup(name string, s *score.Score, g score.Gradient) {
	code := s.Backward.Code
	varies := score.Nowhere
	for _, at := range g.Index {
		varies = score.Join(varies, code[at].Varies)
	}
	names := map[score.Varies]string{
		score.Nowhere: "UserNowhere", score.Rows: "UserRows", score.Columns: "UserColumns", score.Diagonals: "UserDiagonals", score.Pairs: "UserPairs",
	}
	t.line("struct %s {", name)
	t.line("static constexpr int TABLE = %d;", g.Table)
	t.line("static constexpr UserVaries VARIES = %s;", names[varies])
	t.exact = "EXACT"
	t.function("template <bool EXACT> static", "float", "slope", "", s.Backward.Part(g.Slope), func(v []string) { t.line("  return %s;", v[0]) })
	t.exact = "true"
	t.function("static", "int64_t", "place", "", s.Backward.Part(g.Index...), func(v []string) {
		t.line("  int64_t at = 0;")
		for axis, i := range v {
			n := t.axes[g.Table] + axis
			t.line("  at = at * a.axes[%d].x + userIndex(%s, a.axes[%d].x);", n, i, n)
		}
		t.line("  return at;")
	})
	t.line("};")
}
