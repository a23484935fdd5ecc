package packed

import (
	"math"
	"testing"
)

// The code changes right behind the middle of two numbers.
func TestNF4CodesChangeAtMiddles(t *testing.T) {
	for code := range NF4Table[:15] {
		middle := (NF4Table[code] + NF4Table[code+1]) / 2
		above := math.Nextafter32(middle, 2)
		if at, next := nf4Code(middle), nf4Code(above); int(at) != code || int(next) != code+1 {
			t.Errorf("%v has code %d and %v has %d, they need to be %d and %d", middle, at, above, next, code, code+1)
		}
	}
	for x, want := range map[float32]byte{-1.0000001: 0, -1: 0, 1: 15, 1.0000001: 15} {
		if got := nf4Code(x); got != want {
			t.Errorf("%v has code %d, it needs to be %d", x, got, want)
		}
	}
}
