package neon

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"strings"
)

// kernel is an assembly function that is being written: a list of instructions whose registers have
// no numbers yet. Each method appends what it is named after. Destinations come first, as in the
// processor's own syntax.
type kernel struct {
	double     bool // elements are float64, not float32
	parameters map[string]parameter
	results    []parameter
	arguments  int // bytes
	code       []instruction
	registers  []class // of each register that has no number yet
	numbers    *numbers
	base       gp // where the numbers lie; 0 until one is used
}

// class is general or vector.
type class int

const (
	general class = iota
	vector
)

// gp and vec are registers that have no number yet.
type (
	gp  int
	vec int
)

// instruction is a line of assembly. Its text is asked for when all registers have their numbers.
type instruction struct {
	text          func(number func(register int) int) string
	reads, writes []int
	label         string // what stands here, if that is a label
	jump          string // the label that it may go to
	ends          bool   // the next line is not reached from here
}

// parameter is where an argument or a result lies, in bytes from the frame's start.
type parameter struct {
	name   string
	offset int
	kind   string // T stands for the element type
}

// newKernel parses the signature, in which T stands for the element type.
func newKernel(signature string, double bool, n *numbers) (*kernel, error) {
	k := &kernel{double: double, parameters: map[string]parameter{}, numbers: n, registers: []class{general}}
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f"+signature, 0)
	if err != nil {
		return nil, err
	}
	f := file.Decls[0].(*ast.FuncDecl).Type
	place := func(field *ast.Field, name string) parameter {
		kind, size := "*", 8
		if id, ok := field.Type.(*ast.Ident); ok {
			kind = id.Name
			size = map[string]int{"T": k.size(), "int": 8, "float64": 8, "uint32": 4, "bool": 1}[kind]
		}
		k.arguments = roundUp(k.arguments, size)
		p := parameter{name, k.arguments, kind}
		k.arguments += size
		return p
	}
	for _, field := range f.Params.List {
		for _, name := range field.Names {
			k.parameters[name.Name] = place(field, name.Name)
		}
	}
	if f.Results != nil {
		k.arguments = roundUp(k.arguments, 8)
		for _, field := range f.Results.List {
			if len(field.Names) == 0 {
				k.results = append(k.results, place(field, "ret"))
			}
			for _, name := range field.Names {
				k.results = append(k.results, place(field, name.Name))
			}
		}
	}
	return k, nil
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// bytes is the size of a vector, size that of an element, lanes how many elements a vector has.
const bytes = 16

func (k *kernel) size() int {
	if k.double {
		return 8
	}
	return 4
}

func (k *kernel) lanes() int { return bytes / k.size() }

// either is the number for the element type.
func (k *kernel) either(single, double float64) float64 {
	if k.double {
		return double
	}
	return single
}

// numbers is the read-only memory of a file, in units of a vector. Equal ones are one.
type numbers struct {
	words   []uint64
	places  map[[2]uint64]int
	hasEdge bool
	edgeAt  int
}

// place is where a vector of these bits lies, in bytes.
func (n *numbers) place(low, high uint64) int {
	if n.places == nil {
		n.places = map[[2]uint64]int{}
	}
	key := [2]uint64{low, high}
	if at, ok := n.places[key]; ok {
		return at
	}
	at := 8 * len(n.words)
	n.words = append(n.words, low, high)
	n.places[key] = at
	return at
}

// edge is where a vector of ones lies that is followed by one of zeros.
func (n *numbers) edge() int {
	if !n.hasEdge {
		n.hasEdge, n.edgeAt = true, 8*len(n.words)
		n.words = append(n.words, math.MaxUint64, math.MaxUint64, 0, 0)
	}
	return n.edgeAt
}

// numbersBase is the register that holds where the numbers lie, set where the function starts.
func (k *kernel) numbersBase() gp {
	if k.base == 0 {
		k.base = k.gp()
	}
	return k.base
}

// constant is a number in all lanes: outside of a loop one that stays in a register, inside of one
// a fresh copy from memory, into which products can be summed.
func (k *kernel) constant(x float64) vec {
	if k.double {
		return k.constantBits(math.Float64bits(x))
	}
	return k.constantBits(uint64(math.Float32bits(float32(x))))
}

// constantBits has bits in each element.
func (k *kernel) constantBits(bits uint64) vec {
	if !k.double {
		bits |= bits << 32
	}
	return k.vectorOf(bits, bits)
}

// vectorOf is a vector of these bits.
func (k *kernel) vectorOf(low, high uint64) vec {
	return k.load(k.numbersBase(), k.numbers.place(low, high))
}

func (k *kernel) gp() gp {
	k.registers = append(k.registers, general)
	return gp(len(k.registers) - 1)
}

func (k *kernel) vec() vec {
	k.registers = append(k.registers, vector)
	return vec(len(k.registers) - 1)
}

// into is the register to write to: the one that is given, or a fresh one.
func (k *kernel) into(to []vec) vec {
	if len(to) > 0 {
		return to[0]
	}
	return k.vec()
}

// general appends an instruction in Go's syntax. In its text, the registers written and then those
// read take the place of %[1]d and so on.
func (k *kernel) general(text string, writes, reads []gp) {
	all := append(append([]int{}, ints(writes)...), ints(reads)...)
	k.code = append(k.code, instruction{
		text: func(number func(int) int) string {
			numbers := make([]any, len(all))
			for i, r := range all {
				numbers[i] = number(r)
			}
			return fmt.Sprintf(text, numbers...)
		},
		reads: ints(reads), writes: ints(writes),
	})
}

func ints[R ~int](registers []R) []int {
	list := make([]int, len(registers))
	for i, r := range registers {
		list[i] = int(r)
	}
	return list
}

// integer is a parameter in a register.
func (k *kernel) integer(name string) gp {
	r, p := k.gp(), k.parameters[name]
	move := "MOVD"
	switch p.kind {
	case "uint32":
		move = "MOVWU"
	case "bool":
		move = "MOVBU"
	case "":
		panic("no parameter " + name)
	}
	k.general(fmt.Sprintf("%s %s+%d(FP), R%%[1]d", move, name, p.offset), []gp{r}, nil)
	return r
}

// elements is a parameter that counts elements, in bytes.
func (k *kernel) elements(name string) gp {
	r := k.integer(name)
	k.toBytes(r)
	return r
}

func (k *kernel) toBytes(r gp) { k.shiftLeft(r, 2+k.size()/8) }

// scalar is a parameter of the element type in all lanes.
func (k *kernel) scalar(name string) vec {
	v, p := k.vec(), k.parameters[name]
	if p.kind != "T" {
		panic("no parameter of the element type: " + name)
	}
	k.code = append(k.code, instruction{
		text: func(number func(int) int) string {
			return fmt.Sprintf("%s %s+%d(FP), F%d", k.float(), name, p.offset, number(int(v)))
		},
		writes: []int{int(v)},
	})
	return k.duplicate(v, v)
}

func (k *kernel) float() string {
	if k.double {
		return "FMOVD"
	}
	return "FMOVS"
}

// result returns the lowest lane of a vector as the result of that number.
func (k *kernel) result(n int, v vec) {
	p, move := k.results[n], k.float()
	if p.kind == "float64" {
		move = "FMOVD"
	}
	k.code = append(k.code, instruction{
		text: func(number func(int) int) string {
			return fmt.Sprintf("%s F%d, %s+%d(FP)", move, number(int(v)), p.name, p.offset)
		},
		reads: []int{int(v)},
	})
}

// resultInteger returns a whole number.
func (k *kernel) resultInteger(r gp) {
	p := k.results[0]
	k.general(fmt.Sprintf("MOVD R%%[1]d, %s+%d(FP)", p.name, p.offset), nil, []gp{r})
}

// resultIf returns whether the last comparison says so.
func (k *kernel) resultIf(c condition) {
	r, p := k.gp(), k.results[0]
	k.general("CSET "+string(c)+", R%[1]d", []gp{r}, nil)
	k.general(fmt.Sprintf("MOVB R%%[1]d, %s+%d(FP)", p.name, p.offset), nil, []gp{r})
}

func (k *kernel) ret() { k.code = append(k.code, instruction{text: constantText("RET"), ends: true}) }

func constantText(s string) func(func(int) int) string {
	return func(func(int) int) string { return s }
}

func (k *kernel) label(name string) { k.code = append(k.code, instruction{label: name}) }

func (k *kernel) goTo(label string) {
	k.code = append(k.code, instruction{text: constantText("B " + label), jump: label, ends: true})
}

// condition is what a branch asks of the last comparison: of whole numbers, or of floats.
type condition string

const (
	equal, notEqual           condition = "EQ", "NE"
	less, greater, greatEqual condition = "LT", "GT", "GE"
	ordered                   condition = "VC" // neither of two floats is NaN
)

func (k *kernel) branch(c condition, label string) {
	k.code = append(k.code, instruction{text: constantText("B" + string(c) + " " + label), jump: label})
}

// compare compares x with y, compareWith with a number.
func (k *kernel) compare(x, y gp) { k.general("CMP R%[2]d, R%[1]d", nil, []gp{x, y}) }
func (k *kernel) compareWith(x gp, y int) {
	k.general(fmt.Sprintf("CMP $%d, R%%[1]d", y), nil, []gp{x})
}

// ifZero goes to a label where a register is zero.
func (k *kernel) ifZero(x gp, label string) {
	k.general("CBZ R%[1]d, "+label, nil, []gp{x})
	k.code[len(k.code)-1].jump = label
}

// countDown takes one off and goes to the label until nothing is left.
func (k *kernel) countDown(n gp, label string) {
	k.general("SUBS $1, R%[1]d", []gp{n}, []gp{n})
	k.branch(notEqual, label)
}

func (k *kernel) move(to, from gp)       { k.general("MOVD R%[2]d, R%[1]d", []gp{to}, []gp{from}) }
func (k *kernel) zero(to gp)             { k.general("MOVD ZR, R%[1]d", []gp{to}, nil) }
func (k *kernel) plus(to, x, y gp)       { k.general("ADD R%[3]d, R%[2]d, R%[1]d", []gp{to}, []gp{x, y}) }
func (k *kernel) minus(to, x, y gp)      { k.general("SUB R%[3]d, R%[2]d, R%[1]d", []gp{to}, []gp{x, y}) }
func (k *kernel) shiftLeft(x gp, n int)  { k.withNumber("LSL", x, x, n) }
func (k *kernel) shiftRight(x gp, n int) { k.withNumber("LSR", x, x, n) }
func (k *kernel) increase(x gp, n int)   { k.withNumber("ADD", x, x, n) }
func (k *kernel) decrease(x gp, n int)   { k.withNumber("SUB", x, x, n) }

// multiplesOf clears the bits of to = x that are less than a power of two, below keeps only these.
func (k *kernel) multiplesOf(to, x gp, unit int) { k.withNumber("AND", to, x, -unit) }
func (k *kernel) below(to, x gp, unit int)       { k.withNumber("AND", to, x, unit-1) }

// masked is to = x & mask.
func (k *kernel) masked(to, x, mask gp) {
	k.general("AND R%[3]d, R%[2]d, R%[1]d", []gp{to}, []gp{x, mask})
}

// plusShifted is to = x + y·2ⁿ.
func (k *kernel) plusShifted(to, x, y gp, n int) {
	k.general(fmt.Sprintf("ADD R%%[3]d<<%d, R%%[2]d, R%%[1]d", n), []gp{to}, []gp{x, y})
}

func (k *kernel) withNumber(name string, to, x gp, n int) {
	k.general(fmt.Sprintf("%s $%d, R%%[2]d, R%%[1]d", name, n), []gp{to}, []gp{x})
}

// choose is to = x where the last comparison says so, otherwise y. Without y that is 0.
func (k *kernel) choose(c condition, to, x gp, y ...gp) {
	if len(y) == 0 {
		k.general("CSEL "+string(c)+", R%[2]d, ZR, R%[1]d", []gp{to}, []gp{x})
		return
	}
	k.general("CSEL "+string(c)+", R%[2]d, R%[3]d, R%[1]d", []gp{to}, []gp{x, y[0]})
}

// each emits a loop that counts i up to an end, by a step, as often as there is room for a whole
// step.
func (k *kernel) each(label string, i, end gp, step int, body func()) {
	k.goTo(label + "Test")
	k.label(label)
	body()
	k.increase(i, step)
	k.label(label + "Test")
	k.compare(i, end)
	k.branch(less, label)
}

// emitted is the function's assembly.
func (k *kernel) emitted(name, signature, table string) (string, error) {
	if k.base != 0 {
		start := len(k.code)
		k.general("MOVD $"+table+"(SB), R%[1]d", []gp{k.base}, nil)
		k.code = append([]instruction{k.code[start]}, k.code[:start]...)
	}
	k.ret()
	number, err := k.allocate()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\n// func %s%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", name, signature, name, k.arguments)
	for _, i := range k.code {
		if i.label != "" {
			fmt.Fprintf(&text, "\n%s:\n", i.label)
			continue
		}
		fmt.Fprintf(&text, "\t%s\n", i.text(number))
	}
	return text.String(), nil
}
