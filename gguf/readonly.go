package gguf

import (
	"encoding/binary"
)

// Types that published files have and that are read, not written. A block of Q4_1, Q5_0, Q5_1 and
// IQ4_NL has 32 elements, one of the others 256:
//
//	Q4_1    q·d + least, q of 4 bits
//	Q5_0    q·d, q from −16 to 15
//	Q5_1    q·d + least, q of 5 bits
//	Q2_K    16 parts of 16: q·(d·scale) − dmin·least, q of 2 bits, scale and least of 4
//	Q3_K    16 parts of 16: q·(d·scale), q from −4 to 3, scale from −32 to 31
//	Q5_K    as Q4_K, q of 5 bits
//	IQ4_NL  d·(one of 16 numbers)
//	IQ4_XS  8 parts of 32: (d·scale)·(one of 16 numbers), scale from −32 to 31

// The numbers that these types have in the format.
const (
	Q4_1   Type = 3
	Q5_0   Type = 6
	Q5_1   Type = 7
	Q2_K   Type = 10
	Q3_K   Type = 11
	Q5_K   Type = 13
	IQ4_NL Type = 20
	IQ4_XS Type = 23
)

// readOnly widen one block of the types that are not written.
var readOnly = map[Type]func(dst []float32, b []byte){
	Q4_1: func(dst []float32, b []byte) { decodePairs(dst, b[4:], 0, 0, getHalf(b), getHalf(b[2:])) },
	Q5_0: func(dst []float32, b []byte) {
		decodePairs(dst, b[6:], binary.LittleEndian.Uint32(b[2:]), 16, getHalf(b), 0)
	},
	Q5_1: func(dst []float32, b []byte) {
		decodePairs(dst, b[8:], binary.LittleEndian.Uint32(b[4:]), 0, getHalf(b), getHalf(b[2:]))
	},
	Q2_K:   decodeQ2K,
	Q3_K:   decodeQ3K,
	Q5_K:   decodeQ5K,
	IQ4_NL: func(dst []float32, b []byte) { decodeUneven(dst, b[2:], getHalf(b)) },
	IQ4_XS: decodeIQ4XS,
}

// decodePairs widens 32 codes: the first 16 in the lower bits of bytes, the others in the upper,
// and a fifth bit of each in fifth.
func decodePairs(dst []float32, codes []byte, fifth uint32, middle int, d, least float32) {
	for j := range dst {
		q := codes[j%16]>>(j/16*4)&15 | byte(fifth>>j&1)<<4
		product := d * float32(int(q)-middle)
		dst[j] = product + least
	}
}

func decodeQ2K(dst []float32, b []byte) {
	d, dmin := getHalf(b[80:]), getHalf(b[82:])
	for e := range dst {
		part := b[e/16]
		scale, least := d*float32(part&15), dmin*float32(part>>4)
		product := scale * float32(b[16+e/128*32+e%32]>>(e%128/32*2)&3)
		dst[e] = product - least
	}
}

func decodeQ3K(dst []float32, b []byte) {
	d, scales := getHalf(b[108:]), b[96:108]
	for e := range dst {
		part := e / 16
		s := scales[part%8]>>(part/8*4)&15 | scales[8+part%4]>>(part/4*2)&3<<4
		q := int(b[32+e/128*32+e%32] >> (e % 128 / 32 * 2) & 3)
		if b[e%32]>>(e/32)&1 == 0 {
			q -= 4
		}
		dst[e] = d * float32(int(s)-32) * float32(q)
	}
}

func decodeQ5K(dst []float32, b []byte) {
	d, dmin, fifth, codes := getHalf(b), getHalf(b[2:]), b[16:48], b[48:]
	scales, leasts := scalesQ4K(b[4:16])
	for part := range 8 {
		scale, least := d*float32(scales[part]), dmin*float32(leasts[part])
		for j := range 32 {
			q := codes[part/2*32+j]>>(part%2*4)&15 | fifth[j]>>part&1<<4
			product := scale * float32(q)
			dst[part*32+j] = product - least
		}
	}
}

// uneven are the numbers of IQ4_NL and IQ4_XS, which lie closer near zero.
var uneven = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func decodeUneven(dst []float32, codes []byte, d float32) {
	for j := range dst {
		dst[j] = d * uneven[codes[j%16]>>(j/16*4)&15]
	}
}

func decodeIQ4XS(dst []float32, b []byte) {
	d, high := getHalf(b), binary.LittleEndian.Uint16(b[2:])
	for part := range 8 {
		s := int(b[4+part/2]>>(part%2*4)&15) | int(high>>(2*part)&3)<<4
		decodeUneven(dst[part*32:][:32], b[8+part*16:][:16], d*float32(s-32))
	}
}
