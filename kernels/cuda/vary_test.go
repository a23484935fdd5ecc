//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/score"
)

// cut says where so many sequences end that lie end to end in some rows: at random, most launches
// in another way.
func cut(random *rand.Rand, launch, rows, sequences int) []int {
	ends := make([]int, sequences+1)
	for i := 1; i <= sequences; i++ {
		ends[i] = random.IntN(rows + 1)
	}
	slices.Sort(ends)
	ends[sequences] = rows
	switch launch % 6 {
	case 1: // one sequence
		for i := 1; i < sequences; i++ {
			ends[i] = rows
		}
	case 2: // none
		clear(ends)
	case 3: // rows behind the last
		for i := range ends {
			ends[i] = min(ends[i], 2*rows/3)
		}
	case 4: // the first ones are empty, the others short
		for i := range ends {
			ends[i] = max(0, 2*i-sequences) * rows / sequences
		}
	}
	return ends
}

// varying is a problem whose lengths change from launch to launch of a recording.
type varying struct {
	name                string
	half                kernels.DType // of the operands, NoDType for float32
	c                   Case
	packed              int  // sequences, 0 for keys of several lengths
	anyOrder            bool // of the sums of dq, whose bits differ then
	launch              func(launch int) []int
	anyDevice, compiled bool
}

func varyingCases() (list []varying) {
	base := Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 500, Sk: 500, D: 64, Dv: 64}
	with := func(change func(c *Case)) Case {
		c := base
		change(&c)
		return c
	}
	strided := MaskOf("strided", func(p score.Pair) score.Cond {
		return p.Key.Div(64).Rem(3).Equal(0).Or(p.Key.GreaterEqual(p.KeyLength.Sub(100)))
	})
	tables := with(func(c *Case) { // tables have the sizes that these lengths ask for, the longest that there can be
		c.QLens = []int{0, c.Sq, c.Sq, c.Sq, c.Sq}
		c.KVLens = c.QLens
		c.Options = []Option{RelativeBias, Documents}
	})
	batch := with(func(c *Case) { c.Batch, c.Sq = 3, 150 })
	for _, half := range []kernels.DType{kernels.BF16, kernels.NoDType} {
		list = append(list,
			varying{name: "causal", half: half, c: with(func(c *Case) { c.Options = []Option{Causal} }), packed: 7},
			varying{name: "dropout and sinks", half: half, c: with(func(c *Case) { c.Options = []Option{Dropout, Sinks, Causal} }), packed: 5},
			varying{name: "slopes", half: half, c: with(func(c *Case) { c.Options = []Option{ALiBi, SoftCap}; c.D, c.Dv = 40, 59 }), packed: 5},
			varying{name: "any device", half: half, c: with(func(c *Case) { c.Options = []Option{Causal} }), packed: 7, anyDevice: true},
			varying{name: "a mask with holes", half: half, c: with(func(c *Case) { c.Options = []Option{strided} }), packed: 4, compiled: true},
			varying{name: "a mask with holes, in any order", half: half, c: with(func(c *Case) { c.Options = []Option{strided} }), packed: 4, compiled: true, anyOrder: true},
			varying{name: "tables", half: half, c: tables, packed: 4, compiled: true},
			varying{name: "lengths of keys", half: half, c: batch},
			varying{name: "lengths of shared keys", half: half, c: func() Case { c := batch; c.SharedKeys = true; return c }()})
	}
	// Kernels for short sequences and for others, with counters that fit where they usually lie and
	// that do not.
	long := with(func(c *Case) {
		c.Heads, c.KeyHeads, c.Sq, c.Sk, c.D, c.Dv = 64, 2, 16384, 16384, 128, 128
		c.Options = []Option{Causal}
	})
	return append(list, varying{name: "long and short", half: kernels.BF16, c: long, packed: 40, launch: func(launch int) []int {
		ends := make([]int, 41)
		for i := range ends {
			ends[i] = min(i*(400+700*(launch%2)), 16384)
		}
		return ends
	}})
}

// Recorded attention follows the lengths that the host reads in each launch, with the bits of calls
// that are not recorded, and in the memory that its first launches took.
func TestVaryingLengths(t *testing.T) {
	d := device(t)
	for _, v := range varyingCases() {
		for _, first := range []int{0, 2} { // recorded with sequences, and with none
			t.Run(fmt.Sprintf("%s/%v/%d", v.name, v.half, first), func(t *testing.T) { v.run(t, d, first) })
		}
	}
}

func (v varying) run(t *testing.T, d *cuda.Device, first int) {
	if v.compiled {
		compiles(t)
	}
	if v.anyDevice {
		defer d.WithoutMaps()()
	}
	random := rand.New(rand.NewPCG(8, uint64(first)))
	p := New[float32](v.c)
	p.Attention.Deterministic = !v.anyOrder
	r, err := newResident(mirrored{Device: d, half: v.half}, p)
	if err != nil {
		t.Fatal(err)
	}
	prepare := func(launch int) {
		switch {
		case v.launch != nil:
			r.p.QLens = v.launch(launch)
			r.p.KVLens = r.p.QLens
		case v.packed > 0:
			r.p.QLens = cut(random, launch, v.c.Sq, v.packed)
			r.p.KVLens = r.p.QLens
			if launch%3 == 0 {
				r.p.KVLens = cut(random, launch, v.c.Sk, v.packed)
			}
		default:
			ends := cut(random, launch, v.c.Sk, v.c.Batch)
			r.p.KVLengths = ends[1:]
		}
		for name, x := range r.outputs() {
			if err := d.Fill(x, math.NaN()); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	prepare(first)
	recording, err := d.Capture(func() error {
		return errors.Join(
			d.Vary(func(b kernels.Backend) error { return b.AttentionForward(r.p, r.out) }),
			d.AttentionDelta(r.p, r.out.O, r.g.DO, r.dLSE, r.g.Delta),
			d.Vary(func(b kernels.Backend) error { return b.AttentionBackward(r.p, r.g) }))
	})
	if err != nil {
		t.Fatal(err)
	}
	launches := 13
	if v.launch != nil {
		launches = 4
	}
	for n := range launches {
		prepare(first + n)
		if p.Attention.Dropout.P > 0 {
			r.p.Dropout.Step = uint32(n)
			if err := recording.SetDropoutStep(uint32(n)); err != nil {
				t.Fatal(err)
			}
			r.p.Dropout.Step = 77 // which the recording does not ask for
		}
		if err := recording.Launch(); err != nil {
			t.Fatalf("launch %d, %v and %v: %v", n, r.p.QLens, r.p.KVLens, err)
		}
		got, err := r.results()
		if err != nil {
			t.Fatal(err)
		}
		r.p.Dropout.Step = uint32(n)
		for name, x := range r.outputs() {
			if err := d.Fill(x, math.NaN()); err != nil {
				t.Fatal(name, err)
			}
		}
		want, err := r.run()
		if err != nil {
			t.Fatal(err)
		}
		if v.anyOrder {
			delete(want, "dq")
		}
		if name := differs(want, got); name != "" {
			t.Fatalf("launch %d, lengths %v, %v, %v: recorded, %s has other bits", n, r.p.QLens, r.p.KVLens, r.p.KVLengths, name)
		}
		if n < 2 {
			spoil(t, d)
		}
	}
	before := d.Memory()
	for n := range 30 {
		prepare(first + n)
		if err := recording.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	if now := d.Memory(); now.Allocations != before.Allocations || now.Live > before.Live {
		t.Errorf("%d launches more took %d bytes, and asked the driver for memory %d times", 30, now.Live-before.Live, now.Allocations-before.Allocations)
	}
}

// A part of a recording that comes to need more kernels than were recorded says so, and nothing is
// launched; with fewer, what is left over does nothing.
func TestOutgrownRecording(t *testing.T) {
	d := device(t)
	x := alloc(t, d, kernels.F32, 4)
	if err := d.Fill(x, 0); err != nil {
		t.Fatal(err)
	}
	fills := 2
	failed := errors.New("not now")
	var err error
	r, captureErr := d.Capture(func() error {
		return d.Vary(func(b kernels.Backend) error {
			for i := range fills {
				if err := b.Fill(x.Slice(0, i, i+1), float64(10*fills+i)); err != nil {
					return err
				}
			}
			return err
		})
	})
	if captureErr != nil {
		t.Fatal(captureErr)
	}
	for _, step := range []struct {
		fills int
		err   error
		want  []float32
	}{
		{1, nil, []float32{10, 0, 0, 0}}, {0, nil, []float32{10, 0, 0, 0}}, {2, nil, []float32{20, 21, 0, 0}},
		{3, kernels.ErrOutgrown, []float32{20, 21, 0, 0}}, {1, failed, []float32{20, 21, 0, 0}}, {1, nil, []float32{10, 21, 0, 0}},
	} {
		fills = step.fills
		if err = nil; step.err == failed {
			err = failed
		}
		if got := r.Launch(); !errors.Is(got, step.err) {
			t.Errorf("%d kernels: the error is %v, want %v", fills, got, step.err)
		}
		if got := down(t, d, x); !slices.Equal(got, step.want) {
			t.Errorf("%d kernels left %v, want %v", fills, got, step.want)
		}
	}
}
