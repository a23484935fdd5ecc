package simd

import (
	"github.com/stheno-ml/stheno/kernels"
)

// Dropout drops elements of a tile whose first element is at (plane, row0, col0): s_ij ← s_ij·scale where
// d.Keep(plane, row0+i, col0+j), otherwise 0, whatever s_ij was. col0 is a multiple of 4.
func Dropout[T kernels.Float](rows, n int, s *T, ld int, d kernels.Dropout, plane, row0, col0 int, scale T) {
	if rows <= 0 || n <= 0 {
		return
	}
	var (
		key       = kernels.PhiloxKey(d.Seed)
		threshold = d.Threshold()
		words     [wordsChunk]uint32
	)
	for i := range rows {
		for from := 0; from < n; from += wordsChunk {
			count := min(wordsChunk, n-from)
			counter := [4]uint32{d.Step, uint32(plane), uint32(row0 + i), uint32((col0 + from) / 4)}
			randomWords(words[:count], &words, &key, &counter)
			keep(row(s, i, ld, n)[from:from+count], words[:count], threshold, scale)
		}
	}
}

// wordsChunk is how many random words are made at a time: a multiple of what any level makes at once.
const wordsChunk = 512

// randomWords fills need with the words of the columns from 4·counter[3] on. It is the start of all, and what follows
// it there may be overwritten.
func randomWords(need []uint32, all *[wordsChunk]uint32, key *[2]uint32, counter *[4]uint32) {
	if active != Generic {
		philoxVector(len(need), &all[0], &key[0], &counter[0])
		return
	}
	c := *counter
	for j := 0; j < len(need); j += 4 {
		four := kernels.Philox(*key, c)
		copy(need[j:], four[:])
		c[3]++
	}
}

// keep multiplies by scale where the word is not below the threshold, and writes zeros elsewhere.
func keep[T kernels.Float](s []T, words []uint32, threshold uint32, scale T) {
	if active != Generic {
		keepVector(len(s), &s[0], &words[0], threshold, scale)
		return
	}
	for j, w := range words {
		if w >= threshold {
			s[j] *= scale
		} else {
			s[j] = 0
		}
	}
}
