//go:build gpu

package cuda_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/internal/scoretest"
	"github.com/stheno-ml/stheno/kernels/score"
)

// compiles skips a test where there is no GPU, or no compiler for what users write.
func compiles(t *testing.T) {
	d := device(t)
	p := New[float32](Case{Batch: 1, Heads: 1, KeyHeads: 1, Sq: 1, Sk: 1, D: 32, Dv: 32, Options: []Option{Documents}})
	if err := p.Run(mirrored{Device: d}); errors.As(err, new(cuda.NoCompiler)) {
		t.Skip(err)
	}
}

// Scores and masks that users write, with everything else, in every arithmetic and at every size of
// a head.
func TestAttentionScores(t *testing.T) {
	compiles(t)
	for m, a := range arithmetics {
		for n, options := range ScoreSets() {
			if (n+m)%2 == 1 && !*grid {
				continue
			}
			heads, size := HeadCounts[n%len(HeadCounts)], HeadSizes[(n+5*m)%len(HeadSizes)]
			c := Case{Batch: 2, Heads: heads[0], KeyHeads: heads[1], Sq: 101 + 60*(n%3), Sk: 305 - 90*(n%4), D: size[0], Dv: size[1],
				Layout: []Layout{BHSD, BSHD, Padded}[n%3], Options: options, Seed: uint64(n)}
			if (n+m)%3 == 0 {
				c.Batch, c.Sq, c.Sk = 1, 250, 200
				c.QLens, c.KVLens = PackedLens(uint64(n), 3, c.Sq, c.Sk)
			}
			t.Run(a.name+"/"+c.String(), func(t *testing.T) {
				t.Parallel()
				a.runCheaply(t, affordable(c))
				p := a.newProblem(affordable(c))
				p.Attention.Deterministic = true
				a.check(t, p)
			})
		}
	}
}

// Keys of a length of their own, of one for all, a single query, and nothing at all.
func TestAttentionScoresOfUnevenSequences(t *testing.T) {
	compiles(t)
	for n, options := range ScoreSets() {
		if n%3 != 0 && !*grid {
			continue
		}
		a := arithmetics[n%len(arithmetics)]
		c := Case{Batch: 3, Heads: 4, KeyHeads: 2, Sq: 70, Sk: 150, D: 24, Dv: 33, KVLengths: []int{150, 33, 0}, Options: options, Seed: uint64(n)}
		a.cheaplyBeside(t, c)
		c.SharedKeys = true
		a.cheaplyBeside(t, c)
		c.Sq = 1
		a.cheaplyBeside(t, c)
		a.cheaplyBeside(t, Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 100, Sk: 200, D: 24, Dv: 33, Options: options, Seed: uint64(n),
			QLens: []int{0, 50, 50, 83}, KVLens: []int{0, 0, 90, 131}})
	}
}

// Masks with holes, over many tiles: what lies between the keys that are seen is passed over.
func TestMasksWithHoles(t *testing.T) {
	compiles(t)
	block := func(e score.Expr) score.Expr { return e.Div(64) }
	strided := func(p score.Pair) score.Cond {
		return block(p.Key).Rem(4).Equal(0).Or(p.Key.GreaterEqual(p.KeyLength.Sub(100)))
	}
	near := func(p score.Pair) score.Cond {
		distance := p.Position().Sub(p.Key)
		return block(p.Key).Rem(5).Equal(1).Or(distance.GreaterEqual(0).And(distance.Less(70)))
	}
	scattered := func(p score.Pair) score.Cond {
		return p.Query.Div(96).Mul(7).Add(block(p.Key).Mul(5)).Rem(6).Equal(0)
	}
	slopes := ScoreOf("slopes", func(p score.Pair) score.Expr {
		return p.Score.Sub(p.Position().Sub(p.Key).Abs().Float().Mul(0.01))
	})
	for n, options := range [][]Option{
		{MaskOf("strided", strided)}, {MaskOf("near", near)}, {MaskOf("scattered", scattered)}, {MaskOf("scattered", scattered), slopes, Dropout},
	} {
		for m, size := range []int{64, 128, 96, 256} {
			for _, a := range []arithmetic{arithmetics[0], arithmetics[2], arithmetics[4]} {
				if size > 128 && a.half == kernels.NoDType || n == 3 && size == 96 {
					continue
				}
				c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 800 + 37*m, Sk: 1000 - 41*n, D: size, Dv: size, Options: options, Seed: uint64(n)}
				if (n+m)%3 == 1 {
					c.Batch = 1
					c.QLens, c.KVLens = PackedLens(uint64(n), 3, c.Sq, c.Sk)
				}
				if (n+m)%3 == 2 {
					c.KVLengths = []int{c.Sk, 500}
				}
				a.cheaplyBeside(t, c)
			}
		}
	}
}

// Random scores and masks compute what the reference does.
func TestAttentionRandomScores(t *testing.T) {
	compiles(t)
	for n := range 6 {
		c := Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 53 + n, Sk: 170 - n, D: 16, Dv: 20, Options: []Option{RandomRules(uint64(n))}, Seed: uint64(n), Checked: Checked{Slack: 4}}
		arithmetics[4].beside(t, c) // float32
	}
}

var (
	drawnScores = flag.Int("scores", 4, "how many drawn programs of scores and masks go through attention's kernels, which are compiled for each")
	scoreSeed   = flag.Uint64("score-seed", 1, "the first seed of those programs; 0 takes the clock's")
)

// Attention with drawn programs of scores and masks computes what a plain interpreter says, in one
// arithmetic each. Many more programs are compared by TestDrawnProgramsOnTheDevice, without
// attention around them.
func TestDrawnScores(t *testing.T) {
	compiles(t)
	d := device(t)
	seed := *scoreSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%d programs from seed %d on", *drawnScores, seed)
	kinds := []struct {
		on        mirrored
		anyDevice bool
		in        scoretest.Arithmetic
	}{
		{mirrored{Device: d, half: kernels.BF16}, false, scoretest.Arithmetic{Operands: 0x1p-7, Results: 0x1p-8}},
		{mirrored{Device: d, half: kernels.F16}, false, scoretest.Arithmetic{Operands: 0x1p-10, Results: 0x1p-11}},
		{mirrored{Device: d, half: kernels.BF16}, true, scoretest.Arithmetic{Operands: 0x1p-7, Results: 0x1p-8}},
		{mirrored{Device: d}, false, scoretest.Arithmetic{}},
	}
	for n := range *drawnScores {
		kind := kinds[n%len(kinds)]
		m := kind.in
		m.Name, m.DType, m.Unit, m.Functions, m.Slopes = fmt.Sprint(kind.on.half), kernels.F32, 0x1p-20, 0x1p-13, 0x1p-10
		t.Run(fmt.Sprint(seed+uint64(n), " ", m.Name), func(t *testing.T) {
			if kind.anyDevice {
				defer d.WithoutMaps()()
			}
			if _, err := scoretest.Draw(seed+uint64(n)).Check(kind.on, m); err != nil {
				t.Error(err)
			}
		})
	}
}

// Documents in one long sequence give what packed sequences of their lengths give, in memory that
// grows with the length.
func TestAttentionOfLongDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds and gigabytes")
	}
	compiles(t)
	d := device(t)
	const heads, size, longest = 8, 128, 128 << 10
	var beside []int // bytes, at each length
	for length := longest / 4; length <= longest; length *= 2 {
		var ids []int32
		lens := []int{0}
		for n := 0; len(ids) < length; n++ {
			for range min(length-len(ids), 300+n*7919%1500) {
				ids = append(ids, int32(n))
			}
			lens = append(lens, len(ids))
		}
		documents := &score.Table{Name: "documents", Type: score.Int, Shape: []int{length}}
		mask, err := score.NewMask(func(p score.Pair) score.Cond {
			return score.And(score.Causal)(p).And(score.Lookup(documents, p.Query).Equal(score.Lookup(documents, p.Key)))
		})
		if err != nil {
			t.Fatal(err)
		}
		table, err := d.Alloc(kernels.I32, length)
		if err == nil {
			err = d.Copy(table, kernels.Of(ids, length))
		}
		if err != nil {
			t.Fatal(err)
		}
		tensor := func() kernels.Tensor { return normal(t, d, kernels.BF16, 1, heads, length, size) }
		row := func() kernels.Tensor { return normal(t, d, kernels.F32, 1, heads, length) }
		written := kernels.Attention{Q: tensor(), K: tensor(), V: tensor(), Program: kernels.Program{Mask: mask, Tables: []kernels.Tensor{table}}}
		packed := written
		packed.Mask, packed.Tables, packed.Causal, packed.QLens, packed.KVLens = nil, nil, kernels.CausalBottomRight, lens, lens
		dO := tensor()
		var results [2][]kernels.Tensor
		var took [2][2]time.Duration
		for n, p := range []*kernels.Attention{&written, &packed} {
			out := kernels.AttentionOutputs{O: tensor(), LSE: row()}
			g := kernels.AttentionGradients{DO: dO, LSE: out.LSE, Delta: row(), DQ: tensor(), DK: tensor(), DV: tensor()}
			before := held(t, d)
			for range 2 { // the second time, kernels and the mask's tiles are there
				for pass, compute := range []func() error{
					func() error { return d.AttentionForward(p, out) },
					func() error {
						return errors.Join(d.AttentionDelta(p, out.O, dO, kernels.Tensor{}, g.Delta), d.AttentionBackward(p, g))
					},
				} {
					began := time.Now()
					if err := errors.Join(compute(), d.Synchronize()); err != nil {
						t.Fatal(err)
					}
					took[n][pass] = time.Since(began)
				}
			}
			if n == 0 {
				m := d.Memory()
				beside = append(beside, m.Live+m.Cached-before)
			}
			results[n] = []kernels.Tensor{out.O, out.LSE, g.DQ, g.DK, g.DV}
		}
		t.Logf("%d tokens, %d documents: forward %v, backward %v, packed by lengths %v, %v, %.1f MiB beside the tensors' %.1f",
			length, len(lens)-1, took[0][0], took[0][1], took[1][0], took[1][1], float64(beside[len(beside)-1])/(1<<20), float64(8*heads*length*size*2)/(1<<20))
		for i, name := range []string{"o", "lse", "dq", "dk", "dv"} {
			x, y := numbers(t, d, results[0][i]), numbers(t, d, results[1][i])
			most, worst := 0.0, 0.0
			for n := range x {
				most, worst = max(most, math.Abs(float64(y[n]))), max(worst, math.Abs(float64(x[n])-float64(y[n])))
			}
			if bound := 1.0 / (1 << 7) * most; !(worst <= bound) {
				t.Errorf("%d tokens: %s differs by %.3g from that of packed sequences, at most %.3g is expected", length, name, worst, bound)
			}
		}
	}
	for n := 1; n < len(beside); n++ {
		if float64(beside[n]) > 2.1*float64(beside[n-1]) {
			t.Errorf("memory beside the tensors grows from %d to %d bytes when the length doubles", beside[n-1], beside[n])
		}
	}
}

// held are the bytes of tensors that are alive, once nothing else is kept to be used again.
func held(t *testing.T, d *cuda.Device) int {
	runtime.GC()
	if err := d.Trim(); err != nil {
		t.Fatal(err)
	}
	m := d.Memory()
	return m.Live + m.Cached
}

// numbers are a tensor's elements on the host.
func numbers(t *testing.T, d *cuda.Device, x kernels.Tensor) []float32 {
	list := make([]float32, x.Elements())
	if err := d.Copy(kernels.Of(list, x.Shape...), x); err != nil {
		t.Fatal(err)
	}
	return list
}

// What a mask looks up may change in its place, between calls and between launches of a recording.
func TestMasksFollowTheirTables(t *testing.T) {
	compiles(t)
	d := device(t)
	const length = 600
	tensor := func(dtype kernels.DType, list any) kernels.Tensor {
		x, err := d.Alloc(dtype, length)
		if err == nil {
			switch list := list.(type) {
			case []int32:
				err = d.Copy(x, kernels.Of(list, length))
			case []int64:
				err = d.Copy(x, kernels.Of(list, length))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	ids := func(size int) (short []int32, long []int64) {
		for n := range length {
			short, long = append(short, int32(n/size)), append(long, int64(n/size))
		}
		return short, long
	}
	table := &score.Table{Name: "documents", Type: score.Int, Shape: []int{length}}
	mask, err := score.NewMask(func(p score.Pair) score.Cond {
		return score.Lookup(table, p.Query).Equal(score.Lookup(table, p.Key))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dtype := range []kernels.DType{kernels.I32, kernels.I64} {
		p := New[float32](Case{Batch: 1, Heads: 2, KeyHeads: 2, Sq: length, Sk: length, D: 64, Dv: 64, Options: []Option{Plain}})
		r, err := newResident(mirrored{Device: d, half: kernels.BF16}, p)
		if err != nil {
			t.Fatal(err)
		}
		r.p.Mask = mask
		with := func(size int) any {
			short, long := ids(size)
			if dtype == kernels.I32 {
				return short
			}
			return long
		}
		computed := func() []byte {
			out, err := r.run()
			if err != nil {
				t.Fatal(err)
			}
			return slices.Concat(out["o"], out["lse"], out["dk"])
		}
		fresh := func(size int) []byte {
			r.p.Tables = []kernels.Tensor{tensor(dtype, with(size))}
			return computed()
		}
		wants := map[int][]byte{}
		for _, size := range []int{length, 100, 37, 300} {
			wants[size] = fresh(size)
		}
		same := tensor(dtype, with(100))
		r.p.Tables = []kernels.Tensor{same}
		change := func(size int) {
			if err := d.Copy(same, tensor(dtype, with(size))); err != nil {
				t.Fatal(err)
			}
		}
		for _, size := range []int{100, 100, 37, length, 300, 100} {
			change(size)
			if !slices.Equal(computed(), wants[size]) {
				t.Errorf("%v: documents of %d, written over others, are not seen", dtype, size)
			}
		}
		recording, err := d.Capture(func() error { return d.AttentionForward(r.p, r.out) })
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{100, 37, 300} {
			change(size)
			if err := recording.Launch(); err != nil {
				t.Fatal(err)
			}
			o, err := r.bytes(r.out.O)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(o, wants[size][:len(o)]) {
				t.Errorf("%v: recorded: documents of %d, written over others, are not seen", dtype, size)
			}
		}
	}
}

// Gradients are bit-equal from run to run where that is asked for, those of tables that many pairs
// share too.
func TestAttentionScoresAreDeterministic(t *testing.T) {
	compiles(t)
	d := device(t)
	for n, options := range [][]Option{{Learnt, Blocks}, {RelativeBias, Documents, Dropout}} {
		for _, a := range []arithmetic{arithmetics[0], arithmetics[4]} {
			c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 333, D: 64, Dv: 64, Options: options, Seed: uint64(n)}
			var want []float32
			for range min(*repeats, 50) {
				p := a.newProblem(c)
				p.Attention.Deterministic = true
				if err := p.Run(mirrored{Device: d, half: a.half}); err != nil {
					t.Fatal(err)
				}
				got := p.Bits()
				for i, x := range want {
					if math.Float32bits(x) != math.Float32bits(got[i]) {
						t.Fatalf("%s: %v: element %d of the outputs is %v, and was %v", a.name, c, i, got[i], x)
					}
				}
				want = slices.Clone(got)
			}
		}
	}
}
