package cpu_test

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
)

// FuzzAttention turns bytes into a small problem and compares everything that is computed of it
// with the reference.
func FuzzAttention(f *testing.F) {
	slow.Emulated(f)
	slow.Race(f)
	f.Add(uint64(0), []byte{})
	f.Add(uint64(1), []byte{1, 40, 50, 17, 33, 2, 1, 1, 3, 0, 9})
	f.Add(uint64(2), []byte{2, 130, 20, 64, 64, 1, 2, 2, 255, 255, 1, 7, 4})
	f.Add(uint64(3), []byte{0, 99, 140, 5, 80, 0, 1, 3, 2, 1, 6, 200, 3, 1})
	f.Add(uint64(4), []byte{1, 70, 70, 48, 48, 2, 1, 4, 0, 0, 255, 10, 20, 2, 3})
	f.Add(uint64(29), []byte("0\x0500\x01000\x060001"))  // each row sees one key: dq is 0, the difference of two equal numbers
	f.Add(uint64(1), []byte("0\x820@0129\xff0010"))      // a mask that shows all, of which a head's causal band leaves half
	f.Add(uint64(29), []byte("0\x0500\x01000\x0601100")) // a bias of −∞, where the score has no derivative
	f.Add(uint64(65), []byte("1\x02\x01"))               // two rows see one key: dv is the small sum of two large numbers
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		c, levels := fuzzCase(seed, data), simd.Levels()
		c.Slack = 8
		defer simd.SetLevel(levels[int(seed%uint64(len(levels)))])()
		run[float32](t, c)
		run[float64](t, c)
	})
}

// fuzzCase reads a case from bytes; those that are missing count as 0.
func fuzzCase(seed uint64, data []byte) Case {
	next := func(n int) int {
		if len(data) == 0 {
			return 0
		}
		b := int(data[0])
		data = data[1:]
		return b % n
	}
	c := Case{Seed: seed, Batch: 1 + next(2), Sq: next(160), Sk: next(160), D: 1 + next(80), Dv: 1 + next(80)}
	c.KeyHeads = 1 + next(2)
	c.Heads = c.KeyHeads * (1 + next(3))
	c.Layout = Layout(next(5))
	if c.Layout == QKV {
		c.Sk, c.Dv = c.Sq, c.D
	}
	bits := next(256)
	choices := []Option{Causal, CausalTopLeft, SoftCap, ALiBi, Sinks, Dropout, DLSE, Scale}
	for n, option := range choices {
		if bits>>n&1 == 1 {
			c.Options = append(c.Options, option)
		}
	}
	if next(2) == 1 {
		c.Options = append(c.Options, WindowOf(next(170)-1, next(170)-1))
	}
	if bias := next(10); bias > 0 {
		axes := ""
		for n, axis := range []string{"B", "H", "Q"} {
			if (bias-1)>>n&1 == 1 {
				axes += axis
			}
		}
		c.Options = append(c.Options, BiasOver(axes))
		if bias == 9 {
			c.Options = append(c.Options, MaskingBias(0.5))
		}
	}
	if next(3) == 1 {
		c.Options = append(c.Options, RandomRules(seed+uint64(next(256))))
	}
	if n := 1 + next(5); n > 1 && c.Layout != Broadcast && c.Sq >= n && c.Sk >= n {
		c.Batch = 1
		c.QLens, c.KVLens = PackedLens(seed, n, c.Sq, c.Sk)
	}
	return c
}
