package kernels

// Philox is the counter-based generator Philox4x32 (Salmon, Moraes, Dror, Shaw, 2011): four random
// words from a key and a counter, with no state. The same rounds, key and counter give the same
// words on every device. Seven rounds are the fewest that pass all known tests of randomness; the
// authors recommend ten.
func Philox(rounds int, key [2]uint32, counter [4]uint32) [4]uint32 {
	const (
		multiplier0, multiplier1 = 0xD2511F53, 0xCD9E8D57
		weyl0, weyl1             = 0x9E3779B9, 0xBB67AE85
	)
	for range rounds {
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
