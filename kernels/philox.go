package kernels

import "math"

// Philox is the counter-based generator Philox4x32-10 (Salmon, Moraes, Dror, Shaw, 2011): four random words from a key
// and a counter, with no state. The same key and counter give the same words on every device.
func Philox(key [2]uint32, counter [4]uint32) [4]uint32 {
	const (
		multiplier0, multiplier1 = 0xD2511F53, 0xCD9E8D57
		weyl0, weyl1             = 0x9E3779B9, 0xBB67AE85
	)
	for range 10 {
		p0 := uint64(multiplier0) * uint64(counter[0])
		p1 := uint64(multiplier1) * uint64(counter[2])
		counter = [4]uint32{
			uint32(p1>>32) ^ counter[1] ^ key[0], uint32(p1),
			uint32(p0>>32) ^ counter[3] ^ key[1], uint32(p0),
		}
		key[0] += weyl0
		key[1] += weyl1
	}
	return counter
}

// PhiloxKey is the key of a seed: its low word, then its high word.
func PhiloxKey(seed uint64) [2]uint32 { return [2]uint32{uint32(seed), uint32(seed >> 32)} }

// Dropout says which elements are dropped: a function of the seed, the step and the position alone, so that a mask is
// never stored and forward, backward, CPU and GPU agree on it.
type Dropout struct {
	P    float64 // the probability to drop an element, in [0, 1); 0 is no dropout
	Seed uint64
	Step uint32 // changes the mask from one training step to the next
}

// Threshold is the word under which a random word drops its element: P·2³², rounded.
func (d Dropout) Threshold() uint32 {
	return uint32(min(math.Round(d.P*(1<<32)), math.MaxUint32))
}

// Keep tells whether the element at (plane, row, col) is kept. A plane is a matrix of its own, such as one head of one
// batch item; four neighbouring columns share one counter (step, plane, row, col/4) and take a word each.
func (d Dropout) Keep(plane, row, col int) bool {
	words := Philox(PhiloxKey(d.Seed), [4]uint32{d.Step, uint32(plane), uint32(row), uint32(col / 4)})
	return words[col%4] >= d.Threshold()
}

// Scale is what a kept element is multiplied by, 1/(1−P), so that the mean stays.
func (d Dropout) Scale() float64 { return 1 / (1 - d.P) }
