package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// philox computes as many counters at a time as a vector has 32-bit lanes, the even and the odd
// lanes in a vector each: in 64-bit lanes, of which VPMULUDQ multiplies the lower halves. What the
// upper halves hold is never looked at. Only then are the halves joined and the four words of each
// counter, which lie in four vectors, brought together.
func philox(t target) {
	const rounds = 7 // kernels.DropoutRounds
	t.untyped("philox", "(n int, numbers *uint16, key, counter *uint32)",
		"draws n numbers, rounded up to whole groups of four vectors, those of one counter after the other's.")
	n, words, key, counter := integer("n"), integer("numbers"), integer("key"), integer("counter")
	parallel := t.bytes() / 4
	wide := target{avx512: t.avx512, double: true}
	// Lane 4l+r of the words is stored in part l of vector r, so that is where this counter is
	// computed.
	places := [2][]uint64{}
	for lane := range parallel {
		places[lane%2] = append(places[lane%2], uint64(lane%4*parallel/4+lane/4))
	}
	var (
		multipliers = [2]Op{wide.constantBits(0xD2511F53), wide.constantBits(0xCD9E8D57)}
		weyl        = [2]Op{wide.constantBits(0x9E3779B9), wide.constantBits(0xBB67AE85)}
		lower       = wide.constantBits(0xFFFFFFFF)
		step        = wide.constantBits(uint64(parallel))
		column      = t.vector()
	)
	VPBROADCASTD(Mem{Base: counter, Disp: 12}, column)

	Label("group")
	keys := [2]reg.VecVirtual{t.vector(), t.vector()}
	var half [2][4]reg.VecVirtual
	for w, k := range keys {
		VPBROADCASTD(Mem{Base: key, Disp: 4 * w}, k)
	}
	for h := range half {
		for w := range 4 {
			half[h][w] = t.vector()
			if w < 3 {
				VPBROADCASTD(Mem{Base: counter, Disp: 4 * w}, half[h][w])
			} else {
				VPADDD(wide.table(places[h]...), column, half[h][w])
			}
		}
	}
	for round := range rounds {
		for h, c := range half {
			// (c0, c1, c2, c3) becomes (high(p1)^c1^k0, low(p1), high(p0)^c3^k1, low(p0)).
			VPMULUDQ(multipliers[0], c[0], c[0])
			VPMULUDQ(multipliers[1], c[2], c[2])
			p0, p1, high := c[0], c[2], t.vector()
			VPSRLQ(Imm(32), p1, high)
			t.xorBoth(keys[0], high, c[1])
			high = t.vector()
			VPSRLQ(Imm(32), p0, high)
			t.xorBoth(keys[1], high, c[3])
			half[h] = [4]reg.VecVirtual{c[1], p1, c[3], p0}
		}
		if round < rounds-1 {
			for w, k := range keys {
				VPADDD(weyl[w], k, k)
			}
		}
	}
	var joined [4]reg.VecVirtual
	for w := range joined {
		even, odd := half[0][w], half[1][w]
		t.andBits(lower, even, even)
		VPSLLQ(Imm(32), odd, odd)
		t.orBits(odd, even, even)
		joined[w] = even
	}
	for pair := range 2 {
		a, b := t.vector(), t.vector()
		if pair == 0 {
			VPUNPCKLDQ(joined[1], joined[0], a)
			VPUNPCKLDQ(joined[3], joined[2], b)
		} else {
			VPUNPCKHDQ(joined[1], joined[0], a)
			VPUNPCKHDQ(joined[3], joined[2], b)
		}
		x, y := t.vector(), t.vector()
		VPUNPCKLQDQ(b, a, x)
		VPUNPCKHQDQ(b, a, y)
		t.store(x, Mem{Base: words, Disp: (2*pair + 0) * t.bytes()})
		t.store(y, Mem{Base: words, Disp: (2*pair + 1) * t.bytes()})
	}
	VPADDD(step, column, column)
	ADDQ(U32(4*t.bytes()), words)
	SUBQ(Imm(uint64(8*parallel)), n)
	JG(LabelRef("group"))
	ret()
}

// andBits and orBits exist because whole numbers have other mnemonics with AVX-512.
func (t target) andBits(x, y, to Op) {
	if t.avx512 {
		VPANDQ(x, y, to)
	} else {
		VPAND(x, y, to)
	}
}

func (t target) orBits(x, y, to Op) {
	if t.avx512 {
		VPORQ(x, y, to)
	} else {
		VPOR(x, y, to)
	}
}

// xorBoth is to ^= x ^ y.
func (t target) xorBoth(x, y, to Op) {
	if t.avx512 {
		const oddParity = 0x96 // of three bits
		VPTERNLOGQ(Imm(oddParity), x, y, to)
	} else {
		VPXOR(x, to, to)
		VPXOR(y, to, to)
	}
}

// keep multiplies the elements whose number is not below the threshold and writes zeros for the
// others.
func keep(t target) {
	t.function("keep", "(n int, to, from *T, numbers *uint16, threshold uint32, scale T)",
		"applies random numbers to n elements, a multiple of the lanes.")
	n, to, from, numbers := integer("n"), integer("to"), integer("from"), integer("numbers")
	scale, threshold := t.scalar("scale"), t.vector()
	VMOVD(Load(Param("threshold"), GP32()), threshold.AsX())
	if t.double {
		VPBROADCASTQ(threshold.AsX(), threshold)
	} else {
		VPBROADCASTD(threshold.AsX(), threshold)
	}
	i := GP64()
	XORQ(i, i)
	Label("vector")
	number, x := t.vector(), t.vector()
	// Numbers are widened to the size of an element.
	t.pick(VPMOVZXWD, VPMOVZXWQ)(Mem{Base: numbers, Index: i, Scale: 2}, number)
	if t.avx512 {
		const notLess = 5
		kept := K()
		if t.double {
			VPCMPUQ(Imm(notLess), threshold, number, kept)
			VMULPD_Z(t.element(from, i), scale, kept, x)
		} else {
			VPCMPUD(Imm(notLess), threshold, number, kept)
			VMULPS_Z(t.element(from, i), scale, kept, x)
		}
	} else {
		dropped := t.vector()
		t.pick(VPCMPGTD, VPCMPGTQ)(number, threshold, dropped) // threshold > number
		t.mul(t.element(from, i), scale, x)
		t.andNot(x, dropped, x)
	}
	t.store(x, t.element(to, i))
	ADDQ(Imm(uint64(t.lanes())), i)
	CMPQ(i, n)
	JLT(LabelRef("vector"))
	ret()
}
