package simd

import (
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// Dropout drops elements of a tile whose first element is at (plane, row0, col0): to_ij =
// from_ij·scale where d.Keep(plane, row0+i, col0+j), otherwise 0, whatever from_ij is. Both tiles
// have the stride ld and may be one.
func Dropout[T kernels.Float](rows, n int, to, from *T, ld int, d kernels.Dropout, plane, row0, col0 int, scale T) {
	if rows <= 0 || n <= 0 {
		return
	}
	var (
		key       = kernels.PhiloxKey(d.Seed)
		threshold = d.Threshold()
		numbers   [dropoutChunk]uint16
	)
	for i := range rows {
		for start, count := 0, 0; start < n; start += count {
			first := col0 + start
			before := first % kernels.DropoutColumns // which share a counter with the first
			count = min(dropoutChunk-before, n-start)
			counter := [4]uint32{d.Step, uint32(plane), uint32(row0 + i), uint32(first / kernels.DropoutColumns)}
			drawNumbers(before+count, &numbers, &key, &counter)
			keep(row(to, i, ld, n)[start:start+count], at(from, i*ld+start), numbers[before:], threshold, scale)
		}
	}
}

// dropoutChunk is how many columns are drawn at a time: a multiple of what any level makes at once.
const dropoutChunk = 1024

// drawNumbers draws the numbers of n columns, from the counter on. What follows them may be
// overwritten.
func drawNumbers(n int, numbers *[dropoutChunk]uint16, key *[2]uint32, counter *[4]uint32) {
	if active != Generic {
		philoxVector(n, &numbers[0], &key[0], &counter[0])
		return
	}
	c := *counter
	for j := 0; j < n; j += kernels.DropoutColumns {
		for k, word := range kernels.Philox(kernels.DropoutRounds, *key, c) {
			numbers[j+2*k], numbers[j+2*k+1] = uint16(word), uint16(word>>16)
		}
		c[3]++
	}
}

// keep multiplies by scale where the number is not below the threshold, and writes zeros elsewhere.
func keep[T kernels.Float](to []T, from *T, numbers []uint16, threshold uint32, scale T) {
	if active != Generic {
		keepVector(len(to), &to[0], from, &numbers[0], threshold, scale)
		return
	}
	for j, x := range unsafe.Slice(from, len(to)) {
		if uint32(numbers[j]) >= threshold {
			to[j] = x * scale
		} else {
			to[j] = 0
		}
	}
}
