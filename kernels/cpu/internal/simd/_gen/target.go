package main

import (
	"fmt"
	"math"
	"regexp"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// target is what a kernel is emitted for: an instruction set (AVX2 with FMA, or AVX-512) and an
// element type (float32, or float64 when double). Its methods are instructions that pick the right
// form of themselves; as everywhere in Go's assembly, the destination comes last.
type target struct {
	avx512, double bool
	units          bool // AMX is there too, and AVX512_BF16 with it
}

func (t target) bytes() int { // of a vector
	if t.avx512 {
		return 64
	}
	return 32
}

func (t target) size() int { // of an element
	if t.double {
		return 8
	}
	return 4
}

func (t target) lanes() int { return t.bytes() / t.size() }

// set names the instruction set, kind the element type.
func (t target) set() string {
	if t.units {
		return "AMX"
	}
	if t.avx512 {
		return "AVX512"
	}
	return "AVX2"
}

func (t target) kind() string {
	if t.double {
		return "float64"
	}
	return "float32"
}

var typeParameter = regexp.MustCompile(`\bT\b`)

// suffix names both.
func (t target) suffix() string {
	if t.double {
		return t.set() + "F64"
	}
	return t.set() + "F32"
}

// function starts a kernel. In its parameters T stands for the element type.
func (t target) function(name, parameters, doc string) {
	t.declare(name, parameters, true)
	function(name+t.suffix(), typeParameter.ReplaceAllString(parameters, t.kind()), doc)
}

// untyped starts a kernel that has nothing to do with the element type.
func (t target) untyped(name, signature, doc string) {
	t.declare(name, signature, false)
	function(name+t.set(), signature, doc)
}

func function(name, signature, doc string) {
	TEXT(name, attr.NOSPLIT, "func"+signature)
	Doc(name + " " + doc)
	Pragma("noescape")
}

// ret ends a kernel. VZEROUPPER spares the SSE code that follows a penalty.
func ret() {
	VZEROUPPER()
	RET()
}

// flushing emits what makes the processor take numbers below the smallest normal one for zero,
// until restore: each of them would cost it more than a hundred cycles, here and in the products
// that follow.
func flushing() (restore func()) {
	const flushToZero, denormalsAreZero = 1 << 15, 1 << 6
	before := AllocLocal(8)
	during := before.Offset(4)
	STMXCSR(before)
	control := GP32()
	MOVL(before, control)
	ORL(U32(flushToZero|denormalsAreZero), control)
	MOVL(control, during)
	LDMXCSR(during)
	return func() { LDMXCSR(before) }
}

// integer is a parameter in a register, address where it lies in memory.
func integer(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

func address(name string) Mem {
	p, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return p.Addr
}

// stride is a parameter counted in elements, in a register, in bytes.
func (t target) stride(name string) reg.GPVirtual {
	r := integer(name)
	t.toBytes(r)
	return r
}

func (t target) toBytes(r reg.GPVirtual) { SHLQ(Imm(uint64(2+t.size()/8)), r) }

// scalar is a parameter of the element type in all lanes.
func (t target) scalar(name string) reg.VecVirtual {
	v := t.vector()
	t.broadcast(address(name), v)
	return v
}

// element is the element i of what base points to, for an index register that counts elements.
func (t target) element(base, i reg.Register) Mem {
	return Mem{Base: base, Index: i, Scale: uint8(t.size())}
}

func (t target) vector() reg.VecVirtual {
	if t.avx512 {
		return ZMM()
	}
	return YMM()
}

// zeros is a vector of zeros.
func (t target) zeros() reg.VecVirtual {
	v := t.vector()
	t.clear(v)
	return v
}

func (t target) clear(v reg.VecVirtual) { VXORPS(v, v, v) }

func (t target) pick(single, double func(...Op)) func(...Op) {
	if t.double {
		return double
	}
	return single
}

func (t target) load(m Op, v Op)        { VMOVUPS(m, v) }
func (t target) store(v Op, m Op)       { VMOVUPS(v, m) }
func (t target) broadcast(x, v Op)      { t.pick(VBROADCASTSS, VBROADCASTSD)(x, v) }
func (t target) add(x, y, to Op)        { t.pick(VADDPS, VADDPD)(x, y, to) }
func (t target) sub(less, from, to Op)  { t.pick(VSUBPS, VSUBPD)(less, from, to) } // to = from − less
func (t target) mul(x, y, to Op)        { t.pick(VMULPS, VMULPD)(x, y, to) }
func (t target) div(by, x, to Op)       { t.pick(VDIVPS, VDIVPD)(by, x, to) }
func (t target) fma(x, y, to Op)        { t.pick(VFMADD231PS, VFMADD231PD)(x, y, to) }     // to += x·y
func (t target) fnma(x, y, to Op)       { t.pick(VFNMADD231PS, VFNMADD231PD)(x, y, to) }   // to −= x·y
func (t target) mulAdd(plus, x, to Op)  { t.pick(VFMADD213PS, VFMADD213PD)(plus, x, to) }  // to = to·x + plus
func (t target) mulSub(minus, x, to Op) { t.pick(VFMSUB213PS, VFMSUB213PD)(minus, x, to) } // to = to·x − minus
func (t target) and(x, y, to Op)        { t.pick(VANDPS, VANDPD)(x, y, to) }
func (t target) andNot(x, not, to Op)   { t.pick(VANDNPS, VANDNPD)(x, not, to) } // to = ^not & x
func (t target) or(x, y, to Op)         { t.pick(VORPS, VORPD)(x, y, to) }
func (t target) xor(x, y, to Op)        { t.pick(VXORPS, VXORPD)(x, y, to) }

// max and min give keep where one of the two is NaN.
func (t target) max(keep, x, to Op) { t.pick(VMAXPS, VMAXPD)(keep, x, to) }
func (t target) min(keep, x, to Op) { t.pick(VMINPS, VMINPD)(keep, x, to) }

// The same on the lowest lane of a vector.
func (t target) loadScalar(m, x Op)          { t.pick(VMOVSS, VMOVSD)(m, x) }
func (t target) storeScalar(x, m Op)         { t.pick(VMOVSS, VMOVSD)(x, m) }
func (t target) addScalar(x, y, to Op)       { t.pick(VADDSS, VADDSD)(x, y, to) }
func (t target) subScalar(less, from, to Op) { t.pick(VSUBSS, VSUBSD)(less, from, to) }
func (t target) mulScalar(x, y, to Op)       { t.pick(VMULSS, VMULSD)(x, y, to) }
func (t target) maxScalar(keep, x, to Op)    { t.pick(VMAXSS, VMAXSD)(keep, x, to) }

// compareScalar sets the flags: ZF where equal, and ZF and PF where one of the two is NaN.
func (t target) compareScalar(x, y Op) {
	if t.double {
		VUCOMISD(x, y)
	} else {
		VUCOMISS(x, y)
	}
}

// reduce folds the lanes of a vector with one of the operations above and gives the result in the
// lowest lane. The vector is lost.
func (t target) reduce(v reg.VecVirtual, fold func(x, y, to Op)) reg.VecVirtual {
	y, x, other := YMM(), XMM(), XMM()
	if t.avx512 {
		VEXTRACTF64X4(Imm(1), v, y)
		fold(v.AsY(), y, y)
	} else {
		y = v
	}
	VEXTRACTF128(Imm(1), y, x)
	fold(y.AsX(), x, x)
	VPERMILPD(Imm(1), x, other)
	fold(other, x, x)
	if !t.double {
		VPERMILPS(Imm(1), x, other)
		fold(other, x, x)
	}
	return x
}

// constant is a number in all lanes, as the first operand of an instruction. With AVX-512 that is a
// register, set here: call it outside of loops. AVX2 has no registers to spare and takes it from
// memory at no cost.
func (t target) constant(x float64) Op {
	bits := uint64(math.Float32bits(float32(x)))
	if t.double {
		bits = math.Float64bits(x)
	}
	return t.constantBits(bits)
}

func (t target) constantBits(bits uint64) Op {
	copies := make([]uint64, t.lanes())
	for i := range copies {
		copies[i] = bits
	}
	if t.avx512 {
		v := t.vector()
		t.broadcast(t.table(copies[:1]...), v)
		return v
	}
	return t.table(copies...)
}

// inRegister makes sure that an operand is a register.
func (t target) inRegister(x Op) Op {
	if _, ok := x.(Mem); !ok {
		return x
	}
	return t.moved(x)
}

// copy is a load where from is memory.
func (t target) copy(from, to Op) {
	if _, ok := from.(Mem); ok {
		t.load(from, to)
	} else {
		VMOVAPS(from, to)
	}
}

// moved is a copy of an operand in a register.
func (t target) moved(x Op) reg.VecVirtual {
	v := t.vector()
	t.copy(x, v)
	return v
}

var tables = map[string]Mem{}

// table is memory that holds the given bit patterns, each of an element's size. Equal tables are
// one.
func (t target) table(elements ...uint64) Mem {
	key := fmt.Sprint(t.size(), elements)
	if m, ok := tables[key]; ok {
		return m
	}
	m := GLOBL(fmt.Sprintf("table%d", len(tables)), attr.RODATA|attr.NOPTR)
	for i, bits := range elements {
		if t.double {
			DATA(8*i, U64(bits))
		} else {
			DATA(4*i, U32(bits))
		}
	}
	tables[key] = m
	return m
}

// lowestLanes is a vector whose count lowest lanes are all ones, the others zero; 0 ≤ count ≤
// lanes. count is lost.
func (t target) lowestLanes(count reg.GPVirtual) reg.VecVirtual {
	edge := make([]uint64, 2*t.lanes())
	for i := range t.lanes() {
		edge[i] = math.MaxUint64 >> (64 - 8*t.size())
	}
	// The vector is a window of a table in which ones end and zeros begin.
	at, mask := GP64(), t.vector()
	LEAQ(t.table(edge...).Offset(t.bytes()), at)
	t.toBytes(count)
	SUBQ(count, at)
	t.load(Mem{Base: at}, mask)
	return mask
}

// tail is the mask of the columns of a row that do not fill a vector, as the masked moves want it.
func (t target) tail(count reg.GPVirtual) Op {
	mask := t.lowestLanes(count)
	if !t.avx512 {
		return mask
	}
	k := K()
	if t.double {
		VPMOVQ2M(mask, k)
	} else {
		VPMOVD2M(mask, k)
	}
	return k
}

// loadTail and storeTail touch only the elements of the mask; the others load as 0.
func (t target) loadTail(m, tail, v Op) {
	switch {
	case t.avx512 && t.double:
		VMOVUPD_Z(m, tail, v)
	case t.avx512:
		VMOVUPS_Z(m, tail, v)
	case t.double:
		VMASKMOVPD(m, tail, v)
	default:
		VMASKMOVPS(m, tail, v)
	}
}

func (t target) storeTail(v, tail, m Op) {
	switch {
	case t.avx512 && t.double:
		VMOVUPD(v, tail, m)
	case t.avx512:
		VMOVUPS(v, tail, m)
	case t.double:
		VMASKMOVPD(v, tail, m)
	default:
		VMASKMOVPS(v, tail, m)
	}
}
