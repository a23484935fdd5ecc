package gguf

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/stheno-ml/stheno/kernels"
)

// The types whose names end with K have blocks of 256 elements, whose parts have scales of few
// bits:
//
//	Q4_K    8 parts of 32: q·(d·scale) − dmin·least, q of 4 bits, scale and least of 6
//	Q6_K    16 parts of 16: q·(d·scale), q from −32 to 31, scale from −128 to 127

const superBlock = 256

var errNotFinite = errors.New("gguf: an element is not finite")

func getHalf(b []byte) float32 { return kernels.Float16(binary.LittleEndian.Uint16(b)).Float32() }

// putHalf stores a number and returns what it was rounded to.
func putHalf(b []byte, x float32) float32 {
	h := kernels.ToFloat16(x)
	binary.LittleEndian.PutUint16(b, uint16(h))
	return h.Float32()
}

// scalesQ4K are the numbers of six bits in 12 bytes, of which the upper two bits of the last four
// lie in the bytes of the first four.
func scalesQ4K(b []byte) (scales, leasts [8]byte) {
	for i := range 4 {
		scales[i], leasts[i] = b[i]&63, b[4+i]&63
		scales[4+i], leasts[4+i] = b[8+i]&15|b[i]>>2&48, b[8+i]>>4|b[4+i]>>2&48
	}
	return scales, leasts
}

func putScalesQ4K(b []byte, scales, leasts [8]byte) {
	for i := range 4 {
		b[i], b[4+i] = scales[i]|scales[4+i]>>4<<6, leasts[i]|leasts[4+i]>>4<<6
		b[8+i] = scales[4+i]&15 | leasts[4+i]<<4
	}
}

func decodeQ4K(dst []float32, b []byte) {
	d, dmin, codes := getHalf(b), getHalf(b[2:]), b[16:]
	scales, leasts := scalesQ4K(b[4:16])
	for part := range 8 {
		scale, least := d*float32(scales[part]), dmin*float32(leasts[part])
		for j := range 32 {
			q := codes[part/2*32+j] >> (part % 2 * 4) & 15
			product := scale * float32(q)
			dst[part*32+j] = product - least
		}
	}
}

// encodeQ4K spans each part from its least number, or 0 if that is positive, to its greatest.
func encodeQ4K(b []byte, x []float32) error {
	var scale, least [8]float32
	var d, dmin float32
	for part := range 8 {
		low, high := float32(0), float32(0)
		for _, v := range x[part*32:][:32] {
			if !(float32(math.Abs(float64(v))) <= math.MaxFloat32) {
				return errNotFinite
			}
			low, high = min(low, v), max(high, v)
		}
		scale[part], least[part] = high/15-low/15, -low
		d, dmin = max(d, scale[part]/63), max(dmin, least[part]/63)
	}
	clear(b)
	d, dmin = putHalf(b, d), putHalf(b[2:], dmin)
	var scales, leasts [8]byte
	steps := func(x, step float32) byte {
		if step == 0 {
			return 0
		}
		return byte(min(63, math.RoundToEven(float64(x/step))))
	}
	for part := range 8 {
		scales[part], leasts[part] = steps(scale[part], d), steps(least[part], dmin)
		by, from := d*float32(scales[part]), dmin*float32(leasts[part])
		for j, v := range x[part*32:][:32] {
			if by != 0 {
				q := byte(min(15, max(0, math.RoundToEven(float64((v+from)/by)))))
				b[16+part/2*32+j] |= q << (part % 2 * 4)
			}
		}
	}
	putScalesQ4K(b[4:16], scales, leasts)
	return nil
}

// placeQ6K is where an element's code lies: its lower four bits in a byte from a bit on, its upper
// two in another.
func placeQ6K(e int) (low, lowBit, high, highBit int) {
	half, i := e/128, e%128
	return half*64 + i%64, i / 64 * 4, 128 + half*32 + i%32, i / 32 * 2
}

func decodeQ6K(dst []float32, b []byte) {
	d := getHalf(b[208:])
	for e := range dst {
		low, lowBit, high, highBit := placeQ6K(e)
		q := int(b[low]>>lowBit&15|b[high]>>highBit&3<<4) - 32
		dst[e] = d * float32(int8(b[192+e/16])) * float32(q)
	}
}

// encodeQ6K makes the number of largest magnitude of each part −32.
func encodeQ6K(b []byte, x []float32) error {
	var scale [16]float32
	var most float32 // the scale of largest magnitude
	for part := range scale {
		var largest float32
		for _, v := range x[part*16:][:16] {
			if !(float32(math.Abs(float64(v))) <= math.MaxFloat32) {
				return errNotFinite
			}
			if math.Abs(float64(v)) > math.Abs(float64(largest)) {
				largest = v
			}
		}
		if scale[part] = largest / -32; math.Abs(float64(scale[part])) > math.Abs(float64(most)) {
			most = scale[part]
		}
	}
	clear(b)
	d := putHalf(b[208:], most/-128)
	for part := range scale {
		if d == 0 {
			continue
		}
		s := int8(min(127, max(-128, math.RoundToEven(float64(scale[part]/d)))))
		b[192+part] = byte(s)
		by := d * float32(s)
		for j, v := range x[part*16:][:16] {
			q := 32
			if by != 0 {
				q = int(min(31, max(-32, math.RoundToEven(float64(v/by))))) + 32
			}
			low, lowBit, high, highBit := placeQ6K(part*16 + j)
			b[low] |= byte(q&15) << lowBit
			b[high] |= byte(q>>4) << highBit
		}
	}
	return nil
}
