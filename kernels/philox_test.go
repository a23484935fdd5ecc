package kernels_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// The known answers that the authors of Philox publish for Philox4x32 with seven and with ten
// rounds.
func TestPhilox(t *testing.T) {
	const ones = 0xffffffff
	zero := [4]uint32{}
	digits := [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344} // of π
	for _, c := range []struct {
		rounds  int
		key     [2]uint32
		counter [4]uint32
		want    [4]uint32
	}{
		{7, [2]uint32{}, zero, [4]uint32{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}},
		{7, [2]uint32{ones, ones}, [4]uint32{ones, ones, ones, ones}, [4]uint32{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}},
		{7, [2]uint32{0xa4093822, 0x299f31d0}, digits, [4]uint32{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}},
		{10, [2]uint32{}, zero, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{10, [2]uint32{ones, ones}, [4]uint32{ones, ones, ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{10, [2]uint32{0xa4093822, 0x299f31d0}, digits, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := kernels.Philox(c.rounds, c.key, c.counter); got != c.want {
			t.Errorf("%d rounds, key %08x, counter %08x: %08x instead of %08x", c.rounds, c.key, c.counter, got, c.want)
		}
	}
}
