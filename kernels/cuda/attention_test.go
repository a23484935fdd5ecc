//go:build gpu

package cuda_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
)

var (
	grid     = flag.Bool("grid", false, "run every length with every head size, every length with every set of options, and every head size with every set")
	sanitize = flag.Bool("sanitize", false, "run a small problem on every kernel of attention, and few choices of tokens, for compute-sanitizer")
	repeats  = flag.Int("repeats", 1000, "how often a computation is repeated whose results must not change")
)

// device is the first GPU. Tests are skipped where there is none.
func device(t testing.TB) *cuda.Device {
	t.Helper()
	if cuda.Count() == 0 {
		t.Skip("this machine has no GPU")
	}
	d, err := cuda.Default()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// arithmetic is a way to compute: the type of the tensors, the precision asked for, and the errors
// of an unfused program.
type arithmetic struct {
	name      string
	half      kernels.DType // of the tensors, NoDType for float32
	precision kernels.Precision
	rounding  *Rounding // nil: float32
	anyDevice bool      // on the kernels for any device since Ampere
	wide      bool      // bias and sinks are float32 beside tensors of 16 bits
}

func exact(x float32) float32 { return x }

func rounded(dtype kernels.DType) func(float32) float32 {
	return func(x float32) float32 { return fromHalf(dtype, toHalf(dtype, x)) }
}

// tf32 keeps ten bits of fraction, as the tensor cores do that read a float32.
func tf32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ 0x1fff) }

var (
	bf16Rounding = &Rounding{Operand: rounded(kernels.BF16), Result: rounded(kernels.BF16), Unit: 1.0 / (1 << 7)}
	f16Rounding  = &Rounding{Operand: rounded(kernels.F16), Result: rounded(kernels.F16), Unit: 1.0 / (1 << 10)}
	tf32Rounding = &Rounding{Operand: tf32, Result: exact, Unit: 1.0 / (1 << 10)}
)

var arithmetics = []arithmetic{
	{name: "bfloat16", half: kernels.BF16, rounding: bf16Rounding},
	{name: "float16", half: kernels.F16, rounding: f16Rounding},
	{name: "bfloat16 on any device", half: kernels.BF16, rounding: bf16Rounding, anyDevice: true},
	{name: "float16 on any device", half: kernels.F16, rounding: f16Rounding, anyDevice: true},
	{name: "float32"},
	{name: "float32 as TF32", precision: kernels.PrecisionTF32, rounding: tf32Rounding},
	{name: "float32 as bfloat16", precision: kernels.PrecisionBFloat16, rounding: bf16Rounding},
	{name: "float32 as float16", precision: kernels.PrecisionFloat16, rounding: f16Rounding},
}

// newProblem makes a case a problem of the arithmetic.
func (a arithmetic) newProblem(c Case) *Problem[float32] {
	p := New[float32](c)
	p.Attention.Precision = a.precision
	if a.half != kernels.NoDType {
		p.Round(a.rounding.Operand)
	}
	return p
}

// oneAtATime is held by a test that uses the device beside others.
var oneAtATime sync.Mutex

// compile compiles what attention to a problem takes, beside other tests.
func (a arithmetic) compile(d *cuda.Device, p *Problem[float32]) error {
	if p.Attention.Score == nil && p.Attention.Mask == nil && p.Attention.Places == nil {
		return nil // all of it is there
	}
	return d.Rehearse(a.anyDevice, func(d *cuda.Device) error {
		m := mirrored{Device: d, half: a.half, wide: a.wide, dry: true}
		return errors.Join(
			m.AttentionForward(&p.Attention, kernels.AttentionOutputs{O: p.O, LSE: p.LSE}), m.AttentionBackward(&p.Attention, p.Gradients()))
	})
}

// judge computes a problem and compares the results. What they are compared with is computed beside
// other tests.
func (a arithmetic) judge(t testing.TB, p *Problem[float32]) error {
	d := device(t)
	Expect(p, a.rounding)
	if err := a.compile(d, p); err != nil {
		return err
	}
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	if a.anyDevice {
		defer d.WithoutMaps()()
	}
	err := p.Run(mirrored{Device: d, half: a.half, wide: a.wide})
	switch {
	case err != nil:
		return err
	case a.rounding != nil:
		return CheckRounded(p, a.rounding)
	}
	return p.Check()
}

func (a arithmetic) check(t testing.TB, p *Problem[float32]) {
	t.Helper()
	if err := a.judge(t, p); err != nil {
		t.Errorf("%s: %v", a.name, err)
	}
}

func (a arithmetic) run(t testing.TB, c Case) {
	t.Helper()
	a.check(t, a.newProblem(c))
}

// beside runs a case as a subtest beside others.
func (a arithmetic) beside(t *testing.T, c Case) {
	t.Run(a.name+"/"+c.String(), func(t *testing.T) {
		t.Parallel()
		a.run(t, c)
	})
}

// runCheaply compares few rows, and many where these few make an error look too large: the
// criterion is about the largest of many errors. Even of many the factor of two is passed by chance
// in a few of 69,000 problems, most of them tiny, so there it is four. Others compute the same
// problem in the same arithmetic, on other kernels.
func (a arithmetic) runCheaply(t testing.TB, c Case, others ...arithmetic) {
	t.Helper()
	p := a.newProblem(withRows(c, 2e7))
	many := c
	many.Slack = 2
	if c.Rows > 0 {
		many.Rows = min(max(c.Rows, 100), c.Sq-1)
	}
	for _, b := range append([]arithmetic{a}, others...) {
		err := b.judge(t, p)
		if err != nil {
			t.Logf("%s: at first: %v", b.name, err)
			b.run(t, many)
		}
	}
}

// cheaplyBeside is runCheaply as a subtest beside others.
func (a arithmetic) cheaplyBeside(t *testing.T, c Case, others ...arithmetic) {
	t.Run(a.name+"/"+c.String(), func(t *testing.T) {
		t.Parallel()
		a.runCheaply(t, c, others...)
	})
}

// affordable limits the rows that are compared, so that the reference takes some tenths of a
// second.
func affordable(c Case) Case { return withRows(c, 2e8) }

// withRows limits the rows that are compared to so many that the reference takes about so many
// products.
func withRows(c Case, products float64) Case {
	if rows := int(products / float64(16*c.Batch*c.Heads*c.Sk*(c.D+c.Dv))); rows < c.Sq {
		c.Rows = max(rows, 1)
	}
	return c
}

// gridCase is the n-th case of the grid: options and sizes as given, the rest in turn.
func gridCase(n int, length, size [2]int, options []Option) Case {
	heads := HeadCounts[n%len(HeadCounts)]
	c := Case{
		Batch: 1, Heads: heads[0], KeyHeads: heads[1], Sq: length[0], Sk: length[1], D: size[0], Dv: size[1],
		Layout: []Layout{BHSD, BSHD, Padded}[n%4%3], Options: options, Seed: uint64(n),
	}
	switch pairs := length[0] * length[1]; {
	case pairs <= 512*512:
		c.Batch = 2
	case pairs > 2048*2048: // preparing a gigabyte takes longer than its kernels
		c.Heads, c.KeyHeads = 2, 1
	}
	return affordable(c)
}

// In the full grid every two of a length, a head size and a set of options meet; in the thinned one
// each of them appears several times, in pairs that change. (All three meet on the CPU: here an
// arithmetic's twin on the host takes ten times as long as float32's, and there are eight.)
func TestAttentionGrid(t *testing.T) {
	device(t)
	sets := OptionSets()
	for m, a := range arithmetics {
		if *grid && a.anyDevice {
			continue // done with the one whose problems it has
		}
		var others []arithmetic
		for _, b := range arithmetics {
			if b.anyDevice && b.half == a.half {
				others = append(others, b)
			}
		}
		if *grid {
			for l, length := range Lengths {
				for o, options := range sets { // of both there are more than head sizes, so that either meets them all
					d := (l + o) % len(HeadSizes)
					c := gridCase((l*len(HeadSizes)+d)*len(sets)+o+l+d, length, HeadSizes[d], options)
					a.cheaplyBeside(t, c, others...)
				}
			}
			continue
		}
		short := Lengths[:slices.Index(Lengths, [2]int{2048, 2048})]
		for n := range 2 * len(sets) {
			a.beside(t, gridCase(n, short[(n+m)%len(short)], HeadSizes[(n+n/13)%len(HeadSizes)], sets[n%len(sets)]))
		}
		for n, length := range Lengths[len(short):] {
			c := gridCase(3*n, length, HeadSizes[n], []Option{Plain})
			c.Heads, c.KeyHeads = 1, 1
			a.beside(t, c)
			a.beside(t, gridCase(3*n, length, HeadSizes[3], []Option{Causal, WindowOf(400, 0), ALiBi}))
		}
	}
}

// Dropout in every kernel, with a threshold in the lower and in the upper half of the numbers.
func TestAttentionDropout(t *testing.T) {
	device(t)
	for _, a := range arithmetics {
		for n, size := range [][2]int{{32, 32}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}} {
			for _, options := range [][]Option{{DropoutOf(0.1)}, {DropoutOf(0.7), Causal}} {
				c := affordable(Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 277, D: size[0], Dv: size[1], Options: options, Seed: uint64(n)})
				a.beside(t, c)
			}
		}
	}
}

// Parts that differ in length or share their keys, windows beside the diagonal, biases that are the
// same for all keys, and float32 biases and sinks beside tensors of 16 bits.
func TestAttentionOfUnevenParts(t *testing.T) {
	device(t)
	for _, a := range append(slices.Clone(arithmetics),
		arithmetic{name: "bfloat16 beside float32", half: kernels.BF16, rounding: bf16Rounding, wide: true},
		arithmetic{name: "float16 beside float32 on any device", half: kernels.F16, rounding: f16Rounding, wide: true, anyDevice: true}) {
		for _, c := range UnevenCases() {
			a.cheaplyBeside(t, c)
		}
		for n, size := range [][2]int{{64, 64}, {128, 128}, {192, 192}} {
			for _, options := range [][]Option{{BiasOver("HQ"), Sinks}, {BiasOver("BH"), Causal}, {BiasOver("BHQ"), SoftCap}} {
				a.beside(t, affordable(Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 270, Sk: 300, D: size[0], Dv: size[1], Options: options, Seed: uint64(n)}))
			}
		}
	}
}

// Attention of few rows over many keys: as many rows as a kernel for them takes, and one more.
func TestAttentionOfFewRows(t *testing.T) {
	device(t)
	options := [][]Option{{Plain}, {Causal}, {Causal, WindowOf(200, -1), Sinks}, {SoftCap, Causal}, {ALiBi, Causal}, {CausalTopLeft}, {Sinks}}
	sizes := [][2]int{{64, 64}, {128, 128}, {40, 56}, {256, 256}, {192, 128}, {80, 80}}
	for m, a := range arithmetics[:2] {
		for n, rows := range []struct{ sq, heads, keyHeads int }{{1, 1, 1}, {1, 8, 8}, {1, 16, 2}, {1, 16, 1}, {1, 17, 1}, {3, 8, 2}, {16, 3, 3}, {17, 2, 2}, {5, 6, 2}} {
			for k, length := range []int{1, 15, 64, 65, 700, 1024, 5000} {
				size := sizes[(n+k+m)%len(sizes)]
				c := Case{Batch: 1 + (n+k)%3, Heads: rows.heads, KeyHeads: rows.keyHeads, Sq: rows.sq, Sk: length, D: size[0], Dv: size[1],
					Layout: []Layout{BSHD, BHSD, Padded}[(n+k)%3], Options: options[(n+2*k+m)%len(options)], Seed: uint64(100*n + k)}
				if c.Batch == 3 && k%2 == 0 {
					c.KVLengths = []int{length, 0, length / 2}
				}
				a.beside(t, affordable(c))
			}
		}
	}
}

// The gradient of a bias that is the same for all keys, summed in one order.
func TestAttentionSumsOverKeysInOrder(t *testing.T) {
	device(t)
	for _, a := range arithmetics {
		for n, axes := range []string{"BHQ", "BQ", "Q", "H", ""} {
			c := affordable(Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 270, Sk: 300, D: 64, Dv: 64, Options: []Option{RowBiasOver(axes), Causal}, Seed: uint64(n)})
			p := a.newProblem(c)
			p.Attention.Deterministic = true
			a.check(t, p)
		}
	}
}

// Biases whose rows begin at multiples of 16 bytes, which tensor maps describe: alone and beside
// other options, the same for all queries, for all heads, and for all sequences, with gradients
// that are elements of their own or sums.
func TestAttentionOfMappedBiases(t *testing.T) {
	device(t)
	for m, a := range append(slices.Clone(arithmetics),
		arithmetic{name: "bfloat16 beside float32", half: kernels.BF16, rounding: bf16Rounding, wide: true}) {
		for n, options := range [][]Option{
			{BiasOver("BHQ")}, {BiasOver("BHQ"), Causal, DLSE}, {BiasOver("BHQ"), WindowOf(90, 130), Sinks}, {BiasOver("HQ")},
			{BiasOver("BHQ"), NegativeScale}, {BiasOver("BH")}, {BiasOver(""), Causal}, {BiasOver("H"), WindowOf(70, -1), DLSE},
			{BiasOver("B"), SoftCap}, {BiasOver("BHQ"), ALiBi}, {BiasOver("BH"), Dropout}, {PaddingBias(-1e9)},
			{PaddingBias(-3e38), Causal, Sinks}, {MaskingBias(0.3), Causal},
		} {
			for k, size := range [][2]int{{64, 64}, {128, 128}, {96, 96}, {192, 128}, {256, 256}, {192, 192}} {
				if k > 1 && (n+k+m)%3 != 0 {
					continue
				}
				c := Case{Batch: 1 + (n+k)%2, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 408, D: size[0], Dv: size[1],
					Layout: []Layout{BHSD, BSHD, Padded}[(n+k)%3], Options: options, Seed: uint64(100*n + k)}
				switch (n + k + m) % 4 {
				case 0:
					c.Sq, c.Sk = 408, 304
				case 1:
					c.Batch, c.QLens, c.KVLens = 1, []int{0, 40, 41, 41, 300}, []int{0, 3, 199, 220, 400}
				}
				a.cheaplyBeside(t, affordable(c))
			}
		}
	}
}

// Packed sequences, with every option.
func TestAttentionPacked(t *testing.T) {
	device(t)
	for m, a := range arithmetics {
		for n, options := range OptionSets() {
			if (n+m)%2 == 1 {
				continue
			}
			if n%3 != 0 {
				options = append(slices.Clone(options), Causal)
			}
			heads, size := HeadCounts[n%len(HeadCounts)], HeadSizes[(n*5+m)%len(HeadSizes)]
			c := Case{Batch: 1, Heads: heads[0], KeyHeads: heads[1], Sq: 301, Sk: 407, D: size[0], Dv: size[1],
				Layout: []Layout{BSHD, BHSD, Padded}[n%4%3], Options: options, Seed: uint64(n)}
			c.QLens, c.KVLens = PackedLens(uint64(n), 2+n%6, c.Sq, c.Sk)
			a.beside(t, affordable(c))
		}
	}
}

// Slopes fall and rise, gently and steeply, on either side of the diagonal, scores are capped that
// are small or large beside the cap, and padding is far below all scores. Rows that see nothing but
// padding have a logsumexp of -1e9 in float32, which does not tell how many keys they see.
func TestAttentionOfSlopesAndCaps(t *testing.T) {
	device(t)
	for m, a := range arithmetics {
		for n, options := range [][]Option{
			{SlopesOf(0.37)}, {SlopesOf(0.011, -0.013)}, {SlopesOf(-0.02), CausalTopLeft}, {SlopesOf(0.003, 0), Causal, DLSE},
			{SlopesOf(1e6, 0.2), Causal, DLSE}, {SlopesOf(21, 0.01)}, {SlopesOf(0.05, -0.07), WindowOf(90, 130), Sinks},
			{SlopesOf(0.3, -0.01), BiasOver("HQ"), DLSE}, {SlopesOf(0.02, 0.3), SoftCap, Causal, Dropout}, {SlopesOf(0.1, -0.1), NegativeScale},
			{CapOf(3, 50)}, {CapOf(0.3, 1), Causal, Sinks}, {CapOf(-0.5, 3), DLSE}, {SlopesOf(1e6)}, {PaddingBias(-1e9)},
			{PaddingBias(-3e38), DLSE}, {PaddingBias(-1e9), WindowOf(200, 200)}, {PaddingBias(-3e38), Causal, Sinks},
		} {
			size := [][2]int{{64, 64}, {128, 128}, {96, 96}, {192, 128}, {256, 256}, {192, 192}}[(n+m)%6]
			c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 407, D: size[0], Dv: size[1], Options: options, Seed: uint64(n)}
			if n%2 == 1 {
				c.Sq, c.Sk = 407, 300
			}
			a.beside(t, affordable(c))
		}
	}
}

// Slopes over many tiles, most of which lie on one side of a tile's queries.
func TestAttentionOfSlopesOverManyTiles(t *testing.T) {
	device(t)
	for m, a := range arithmetics[:2] {
		for k, size := range [][2]int{{64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}} {
			for n, options := range [][]Option{
				{SlopesOf(0.03, -0.002)}, {SlopesOf(0.3, 0.0007), Causal, DLSE}, {SlopesOf(-0.04, 1.7), CausalTopLeft, Sinks},
				{SlopesOf(0.01, 0.5), WindowOf(300, 150)}, {SlopesOf(7.9, -0.3)}, {SlopesOf(0.02, 0.1), NegativeScale},
			} {
				c := Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 700, Sk: 1101, D: size[0], Dv: size[1], Layout: BSHD, Options: options, Seed: uint64(6*k + n)}
				switch (n + k + m) % 3 {
				case 1:
					c.Sq, c.Sk = 1101, 700
					c.QLens, c.KVLens = []int{0, 300, 1090}, []int{0, 120, 700}
				case 2:
					c.Batch, c.KVLengths = 2, []int{900, 333}
				}
				a.cheaplyBeside(t, affordable(c))
			}
		}
	}
}

// Tensors may lie in memory in any way; gradients are written in the layout of their inputs and
// gaps are left alone.
func TestAttentionLayouts(t *testing.T) {
	device(t)
	for m, a := range arithmetics {
		for layout := BHSD; layout <= Broadcast; layout++ {
			for n, options := range [][]Option{{Plain}, {Causal, DLSE}, {BiasOver("BHQ"), Sinks}, {WindowOf(9, 4), Dropout}} {
				if (n+m+int(layout))%2 == 1 {
					continue
				}
				for _, size := range []int{64, 53} {
					a.beside(t, Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 151, Sk: 151, D: size, Dv: size, Layout: layout, Options: options, Seed: uint64(n)})
				}
			}
		}
	}
}

// Rows without a key give O = 0, LSE = −∞ (or the sink) and no gradient.
func TestAttentionEmptyRows(t *testing.T) {
	device(t)
	infinity := math.Inf(1)
	for n, c := range []struct {
		sq, sk  int
		options []Option
	}{
		{300, 3, []Option{Causal}},
		{200, 90, []Option{CausalTopLeft, WindowOf(5, -1)}},
		{30, 200, []Option{CausalTopLeft, WindowOf(100, -1)}}, // the window lies behind the diagonal: no row sees a key
		{200, 90, []Option{WindowOf(0, 0), DLSE}},
		{65, 1, []Option{WindowOf(-1, 0), Sinks, DLSE}},
		{40, 0, []Option{Plain}},
		{40, 0, []Option{Sinks, DLSE}},
		{0, 40, []Option{Plain}},
		{0, 40, []Option{BiasOver("BH"), Sinks}},
		{0, 0, []Option{Causal}},
		{70, 150, []Option{MaskingBias(0.3)}},
		{70, 150, []Option{MaskingBias(0.97), WindowOf(30, 3), DLSE}},
		{70, 150, []Option{MaskingBias(1), Dropout}},
		{70, 150, []Option{MaskingBias(1), SoftCap, SinksOf(-3)}},
		{70, 50, []Option{SinksOf(-infinity), Causal}},
		{70, 50, []Option{SinksOf(16), Causal, DLSE}}, // a power of two of a larger one has fewer digits than the logsumexp
		{70, 50, []Option{SinksOf(3000)}},
	} {
		for m, a := range arithmetics {
			if size := 64; (n+m)%2 == 0 {
				a.run(t, Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: c.sq, Sk: c.sk, D: size, Dv: size, Options: c.options, Seed: uint64(n)})
			} else {
				a.run(t, Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: c.sq, Sk: c.sk, D: 24, Dv: 40, Options: c.options, Seed: uint64(n)})
			}
		}
	}
	for _, a := range arithmetics {
		a.run(t, Case{Batch: 0, Heads: 2, KeyHeads: 1, Sq: 5, Sk: 6, D: 8, Dv: 8, Options: []Option{Plain}})
		// Of packed sequences: more queries than keys, so the first rows of each see nothing.
		a.run(t, Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 100, Sk: 12, D: 64, Dv: 64, Layout: BSHD, Options: []Option{Causal},
			QLens: []int{0, 40, 41, 100}, KVLens: []int{0, 1, 7, 12}})
	}
}

// Axes of length 0 give results of length 0, rows that see no keys, and gradients of 0.
func TestAttentionOfNothing(t *testing.T) {
	device(t)
	for n, c := range EmptyCases() {
		arithmetics[n%len(arithmetics)].run(t, c)
	}
}

// A sink counts as one more score. One of NaN or +∞ leaves its head no numbers, one far beyond all
// scores takes everything and has the gradient of the logsumexp, and one of −∞ takes nothing.
func TestAttentionOfLargeSinks(t *testing.T) {
	device(t)
	for m, a := range append(slices.Clone(arithmetics),
		arithmetic{name: "bfloat16 beside float32", half: kernels.BF16, rounding: bf16Rounding, wide: true},
		arithmetic{name: "float16 beside float32 on any device", half: kernels.F16, rounding: f16Rounding, wide: true, anyDevice: true}) {
		for n, sink := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e8, -1e8, 12345678, -12345678, 3e38, -3e38} {
			c := Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 70, Sk: 90, D: 64, Dv: 64, Options: []Option{Causal, SinksOf(sink), DLSE}, Checked: Checked{Slack: 2}, Seed: uint64(n)}
			if (n+m)%2 == 1 {
				c.D, c.Dv = 128, 128
			}
			a.run(t, c)
			if c.Sk = 0; math.Abs(sink) < 1e38 { // nothing but the sink
				a.run(t, c)
			}
		}
	}
}

// Long sequences with enough heads to keep the device busy are the business of other tiles.
func TestAttentionOfLongSequences(t *testing.T) {
	d := device(t)
	heads := d.HeadsOfLongTiles(2048)
	if heads == 0 {
		t.Skip("this GPU has no such tiles")
	}
	for m, a := range arithmetics {
		if a.half == kernels.NoDType && a.precision < kernels.PrecisionBFloat16 || a.anyDevice {
			continue
		}
		for n, c := range []Case{
			{Sq: 2048, Sk: 2048, Options: []Option{Plain}},
			{Sq: 2048, Sk: 2048, Options: []Option{Causal, DLSE}},
			{Sq: 2049, Sk: 2207, D: 111, Layout: Padded, Options: []Option{Sinks, DLSE}},
			{Sq: 2049, Sk: 2207, D: 111, Layout: Padded, Options: []Option{CausalTopLeft, Sinks}},
			{Sq: 2300, Sk: 2048, Layout: BSHD, Options: []Option{Plain}},
			{Sq: 2300, Sk: 2048, Layout: BSHD, Options: []Option{Causal}},
			{Sq: 2100, Sk: 2500, Options: []Option{Causal, WindowOf(700, -1)}},
			{Sq: 2100, Sk: 2051, Layout: BSHD, Options: []Option{SlopesOf(0.004, -0.02, 0.9)}},
			{Sq: 4200, Sk: 4100, D: 104, Layout: BSHD, Options: []Option{Causal}, QLens: []int{0, 1900, 4200}, KVLens: []int{0, 2150, 4100}},
			{Sq: 4100, Sk: 4500, Layout: BHSD, Options: []Option{Plain}, QLens: []int{0, 4090, 4100}, KVLens: []int{0, 17, 4500}},
		} {
			if c.D == 0 {
				c.D = 128
			}
			c.Batch, c.Heads, c.KeyHeads, c.Dv, c.Seed = 1, heads, heads/2, c.D, uint64(10*m+n)
			a.cheaplyBeside(t, c)
		}
	}
}

// With -sanitize every kernel of attention computes something small, with all options between them.
func TestAttentionKernels(t *testing.T) {
	if !*sanitize {
		t.Skip("runs with -sanitize")
	}
	d := device(t)
	for m, a := range arithmetics {
		t.Run(a.name, func(t *testing.T) {
			seen, asked, ran := map[string]bool{}, 0, 0
			d.Trace(func(kernel string) { seen[kernel] = true })
			defer d.Trace(nil)
			compute := func(c Case, inOrder bool) {
				asked++
				t.Run(c.String(), func(t *testing.T) {
					ran++
					if a.anyDevice {
						defer d.WithoutMaps()()
					}
					p := a.newProblem(c)
					p.Attention.Deterministic = inOrder
					if err := p.Run(mirrored{Device: d, half: a.half, wide: a.wide}); err != nil {
						t.Error(err)
					}
				})
			}
			for n, size := range [][2]int{{32, 32}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}, {576, 512}} {
				for k, options := range [][]Option{
					{Plain}, {Causal, DLSE, Sinks}, {WindowOf(37, 5), SoftCap}, {ALiBi, Dropout}, {BiasOver("HQ"), Causal, DropoutOf(0.7)},
					{BiasOver("BHQ"), SoftCap}, {RowBiasOver("BH"), Sinks}, {WindowOf(50, -1), Dropout}, {Dropout}, {ALiBi, Sinks},
				} {
					c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 130, Sk: 199, D: size[0], Dv: size[1], Layout: []Layout{BHSD, BSHD, Padded}[(n+k)%3],
						Options: options, Seed: uint64(10*m + k)}
					if (n+k)%2 == 1 {
						c.Batch, c.QLens, c.KVLens = 1, []int{0, 40, 41, 41, 130}, []int{0, 3, 99, 120, 180}
					}
					compute(c, k%2 == 0)
				}
				// No more keys than the smallest tile has.
				compute(Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 130, Sk: 64, D: size[0], Dv: size[1], Options: []Option{Plain}}, false)
				// Biases whose rows tensor maps describe.
				for k, options := range [][]Option{{BiasOver("BHQ"), Causal}, {BiasOver("H"), WindowOf(50, 70)}, {BiasOver("BHQ"), SoftCap}} {
					compute(Case{Batch: 1 + k%2, Heads: 4, KeyHeads: 2, Sq: 130, Sk: 200, D: size[0], Dv: size[1], Options: options}, false)
				}
				// Longer than what shorter tiles are for, and a head of another size than the
				// kernel's.
				for _, option := range []Option{Plain, ALiBi, SoftCap} {
					compute(Case{Batch: 1, Heads: 1, KeyHeads: 1, Sq: 1100, Sk: 1051, D: size[0] - 8, Dv: size[1] - 8, Options: []Option{option}}, false)
				}
			}
			// In as little shared memory as GPUs before Hopper have.
			for size, memory := range map[int]int{128: 100 << 10, 256: 164 << 10} {
				restore := d.WithSharedMemory(memory)
				for _, options := range [][]Option{{Plain}, {Causal, DLSE}} {
					compute(Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 130, Sk: 199, D: size, Dv: size, Options: options}, false)
				}
				restore()
			}
			maps := !a.anyDevice && (a.half != kernels.NoDType || a.precision >= kernels.PrecisionBFloat16)
			if heads := d.HeadsOfLongTiles(2048); heads > 0 && maps {
				for _, options := range [][]Option{{Plain}, {ALiBi}, {Causal, WindowOf(300, -1)}} {
					compute(Case{Batch: 1, Heads: heads, KeyHeads: 2, Sq: 2048, Sk: 2048, D: 128, Dv: 128, Options: options}, false)
				}
			}
			if ran < asked {
				return // -run has left some out
			}
			operands := "f32"
			switch {
			case a.half == kernels.BF16 || a.precision == kernels.PrecisionBFloat16:
				operands = "bf16"
			case a.half == kernels.F16 || a.precision == kernels.PrecisionFloat16:
				operands = "f16"
			case a.precision == kernels.PrecisionTF32:
				operands = "tf32"
			}
			for _, kernel := range cuda.AttentionKernels(operands, maps) {
				// That of a bias alone takes it in the type that it computes in.
				cannot := a.half == kernels.NoDType && strings.HasPrefix(kernel, "attention_backward") && strings.HasSuffix(kernel, "_bias")
				if !seen[kernel] && !cannot {
					t.Errorf("%s has not run", kernel)
				}
			}
		})
	}
}

// deterministic are problems with several tiles in each direction.
func deterministic() []Case {
	return []Case{
		{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 500, Sk: 700, D: 64, Dv: 64, Options: []Option{Causal, DLSE}},
		{Batch: 1, Heads: 4, KeyHeads: 1, Sq: 700, Sk: 500, D: 128, Dv: 128, Options: []Option{Plain}},
		{Batch: 2, Heads: 2, KeyHeads: 2, Sq: 300, Sk: 333, D: 96, Dv: 96, Options: []Option{Causal, BiasOver("Q"), Sinks, Dropout}},
		{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 500, Sk: 600, D: 64, Dv: 64, Options: []Option{SoftCap, ALiBi}},
		{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 1100, Sk: 600, D: 128, Dv: 128, Options: []Option{ALiBi}},
		{Batch: 1, Heads: 2, KeyHeads: 2, Sq: 400, Sk: 520, D: 256, Dv: 256, Layout: BSHD, Options: []Option{WindowOf(90, 20)},
			QLens: []int{0, 10, 180, 400}, KVLens: []int{0, 200, 333, 520}},
		{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 300, Sk: 410, D: 576, Dv: 512, Options: []Option{Causal, BiasOver("Q"), DLSE}},
	}
}

// Results are bit-equal from run to run: those of forward always, gradients where that is asked
// for.
func TestAttentionIsDeterministic(t *testing.T) {
	d := device(t)
	for _, a := range arithmetics {
		if a.half == kernels.F16 || a.precision >= kernels.PrecisionBFloat16 {
			continue // the kernels of bfloat16 in all but the type
		}
		for _, c := range deterministic() {
			t.Run(a.name+"/"+c.String(), func(t *testing.T) {
				if a.anyDevice {
					defer d.WithoutMaps()()
				}
				p := a.newProblem(c)
				p.Attention.Deterministic = true
				r, err := newResident(mirrored{Device: d, half: a.half, wide: a.wide}, p)
				if err != nil {
					t.Fatal(err)
				}
				want, err := r.run()
				if err != nil {
					t.Fatal(err)
				}
				for n := range *repeats {
					got, err := r.run()
					if err != nil {
						t.Fatal(err)
					}
					if name := differs(want, got); name != "" {
						t.Fatalf("in repeat %d %s is not what it was", n+1, name)
					}
				}
			})
		}
	}
}

// The order in which blocks draw tiles leaves none out and takes none twice, however many heads are
// visited together. Where gradients are summed in order it is another one.
func TestAttentionDrawsEveryTile(t *testing.T) {
	d := device(t)
	cases := []Case{
		{Batch: 8, Heads: 15, KeyHeads: 15, Sq: 1024, D: 64}, {Batch: 4, Heads: 42, KeyHeads: 21, Sq: 1024, D: 64}, {Batch: 13, Heads: 16, KeyHeads: 4, Sq: 1024, D: 64},
		{Batch: 7, Heads: 40, KeyHeads: 10, Sq: 500, D: 128}, {Batch: 1, Heads: 16, KeyHeads: 2, Sq: 2048, D: 128}, {Batch: 3, Heads: 12, KeyHeads: 3, Sq: 900, D: 256},
		{Batch: 1, Heads: 16, KeyHeads: 16, Sq: 2048, D: 256}, {Batch: 1, Heads: 4, KeyHeads: 4, Sq: 4096, D: 256, Options: []Option{Plain}},
	}
	for _, a := range arithmetics {
		if a.half != kernels.BF16 {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			for n, c := range cases {
				c.Sk, c.Dv, c.Seed = c.Sq, c.D, uint64(n)
				if c.Options == nil {
					c.Options = []Option{Causal}
				}
				drawsEveryTile(t, d, a, c)
			}
		})
	}
}

func drawsEveryTile(t *testing.T, d *cuda.Device, a arithmetic, c Case) {
	if a.anyDevice {
		defer d.WithoutMaps()()
	}
	r, err := newResident(mirrored{Device: d, half: a.half}, a.newProblem(c))
	if err != nil {
		t.Fatal(err)
	}
	gradients := func(inOrder bool) (list [][]float64) {
		r.p.Deterministic = inOrder
		for _, g := range []kernels.Tensor{r.out.O, r.g.DQ, r.g.DK, r.g.DV} {
			if err := d.Fill(g, math.NaN()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.run(); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(download(t, d, r.out.O), math.IsNaN) {
			t.Errorf("%v: o is not written everywhere", c)
		}
		for _, g := range []kernels.Tensor{r.g.DQ, r.g.DK, r.g.DV} {
			list = append(list, download(t, d, g))
		}
		return list
	}
	want, got := gradients(true), gradients(false)
	for i, name := range []string{"dq", "dk", "dv"} {
		largest, worst := greatest(want[i]), 0.0
		for n, x := range want[i] {
			e := math.Abs(got[i][n] - x)
			if math.IsNaN(e) {
				e = math.Inf(1)
			}
			worst = max(worst, e)
		}
		if !(worst <= largest/128) || largest == 0 {
			t.Errorf("%v: %s is up to %v, and %v from that summed in order", c, name, largest, worst)
		}
	}
}

// Pieces of a bias pass through shared memory, where none may be overwritten before it is read.
func TestAttentionReadsABiasInTime(t *testing.T) {
	d := device(t)
	a := arithmetics[0]
	for _, size := range []int{64, 256} {
		heads := 2048 / size
		p := a.newProblem(Case{Batch: 1, Heads: heads, KeyHeads: heads, Sq: 2048, Sk: 2048, D: size, Dv: size, Options: []Option{BiasOver("Q")}, Seed: 1})
		r, err := newResident(mirrored{Device: d, half: a.half}, p)
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for n := range min(*repeats, 100) {
			for range 4 { // on each other's heels
				if err := d.AttentionForward(r.p, r.out); err != nil {
					t.Fatal(err)
				}
			}
			got, err := r.bytes(r.out.O)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				want = got
			}
			if !slices.Equal(want, got) {
				t.Errorf("heads of %d: in repeat %d o is not what it was", size, n)
				break
			}
		}
	}
}

// resident is a problem on the device.
type resident struct {
	*copied
	p    *kernels.Attention
	out  kernels.AttentionOutputs
	g    kernels.AttentionGradients
	dLSE kernels.Tensor
}

func newResident(m mirrored, p *Problem[float32]) (*resident, error) {
	a, g := &p.Attention, p.Gradients()
	c, err := m.newCopied([]kernels.Tensor{a.Q, a.K, a.V, a.Bias, a.Sinks, p.O, g.DO, g.DQ, g.DK, g.DV, g.DBias, g.DSinks},
		slices.Concat([]kernels.Tensor{p.LSE, p.Delta, p.DLSE}, a.Tables, g.DTables))
	if err != nil {
		return nil, err
	}
	r := &resident{copied: c, p: c.problem(a), out: kernels.AttentionOutputs{O: c.typed(p.O), LSE: c.on(p.LSE)}, dLSE: c.on(p.DLSE)}
	r.g = kernels.AttentionGradients{DO: c.typed(g.DO), LSE: r.out.LSE, Delta: c.on(p.Delta), DQ: c.typed(g.DQ), DK: c.typed(g.DK),
		DV: c.typed(g.DV), DBias: c.typed(g.DBias), DSinks: c.typed(g.DSinks), DTables: c.lookedUp(g.DTables)}
	return r, nil
}

// run computes everything and gives the bytes of all outputs.
func (r *resident) run() (map[string][]byte, error) {
	for err := range r.steps() {
		if err != nil {
			return nil, err
		}
	}
	return r.results()
}

// outputs are those that there are.
func (r *resident) outputs() map[string]kernels.Tensor {
	all := map[string]kernels.Tensor{"o": r.out.O, "lse": r.out.LSE, "dq": r.g.DQ, "dk": r.g.DK, "dv": r.g.DV, "dbias": r.g.DBias, "dsinks": r.g.DSinks}
	for i, t := range r.g.DTables {
		all[fmt.Sprint("dtable ", i)] = t
	}
	maps.DeleteFunc(all, func(_ string, t kernels.Tensor) bool { return !t.IsSet() })
	return all
}

// results are the bytes of the outputs.
func (r *resident) results() (map[string][]byte, error) {
	results := map[string][]byte{}
	for name, t := range r.outputs() {
		var err error
		if results[name], err = r.bytes(t); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// bytes are those of a tensor, row-major.
func (r *resident) bytes(t kernels.Tensor) ([]byte, error) {
	dense, err := r.Alloc(t.DType, t.Shape...)
	if err != nil {
		return nil, err
	}
	if err := r.Copy(dense, t); err != nil {
		return nil, err
	}
	list := make([]byte, t.Elements()*t.DType.Size())
	return list, r.DownloadBytes(dense, pointerTo(list))
}

// steps runs the three kernels.
func (r *resident) steps() func(yield func(error) bool) {
	return func(yield func(error) bool) {
		_ = yield(r.Device.AttentionForward(r.p, r.out)) &&
			yield(r.Device.AttentionDelta(r.p, r.out.O, r.g.DO, r.dLSE, r.g.Delta)) &&
			yield(r.Device.AttentionBackward(r.p, r.g))
	}
}

func differs(want, got map[string][]byte) string {
	for name := range want {
		if !slices.Equal(want[name], got[name]) {
			return name
		}
	}
	return ""
}

// Several goroutines use a device at once, and each gets what it would get alone.
func TestAttentionBesideOthers(t *testing.T) {
	d := device(t)
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			a := arithmetics[n%2*4]
			for _, c := range deterministic() {
				c.Seed = uint64(n)
				p := a.newProblem(c)
				p.Attention.Deterministic = true
				r, err := newResident(mirrored{Device: d, half: a.half, wide: a.wide}, p)
				if err != nil {
					t.Error(err)
					return
				}
				var want map[string][]byte
				for range 5 {
					got, err := r.run()
					if err != nil {
						t.Error(err)
						return
					}
					if want == nil {
						want = got
					}
					if name := differs(want, got); name != "" {
						t.Errorf("%s %v: %s changed beside other goroutines", a.name, c, name)
					}
				}
			}
		})
	}
	group.Wait()
}

// After the first step, nothing is allocated.
func TestAttentionAllocatesOnce(t *testing.T) {
	d := device(t)
	for _, a := range arithmetics {
		p := a.newProblem(deterministic()[2])
		r, err := newResident(mirrored{Device: d, half: a.half, wide: a.wide}, p)
		if err != nil {
			t.Fatal(err)
		}
		before := 0
		for n := range 10 {
			for err := range r.steps() {
				if err != nil {
					t.Fatal(err)
				}
			}
			if now := d.Memory().Allocations; n == 0 {
				before = now
			} else if now != before {
				t.Errorf("%s: the driver was asked for memory in step %d", a.name, n)
			}
		}
	}
}

// Gradients can be asked for in parts, and a part is the same as in the whole.
func TestAttentionGradientsInParts(t *testing.T) {
	d := device(t)
	for _, a := range []arithmetic{arithmetics[0], arithmetics[4]} {
		p := a.newProblem(Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 200, Sk: 150, D: 64, Dv: 64, Options: []Option{BiasOver("BHQ"), Sinks, Causal}})
		p.Attention.Deterministic = true
		m := mirrored{Device: d, half: a.half, wide: a.wide}
		if err := p.Run(m); err != nil {
			t.Fatal(err)
		}
		want := p.Bits()
		for name, ask := range map[string]kernels.AttentionGradients{
			"dq, dk and dv": {DQ: p.DQ, DK: p.DK, DV: p.DV}, "dbias": {DBias: p.DBias}, "dsinks": {DSinks: p.DSinks}, "nothing": {},
		} {
			for _, out := range []kernels.Tensor{ask.DQ, ask.DK, ask.DV, ask.DBias, ask.DSinks} {
				clear(kernels.Host[float32](out))
			}
			ask.DO, ask.LSE, ask.Delta = p.DO, p.LSE, p.Delta
			if err := m.AttentionBackward(&p.Attention, ask); err != nil {
				t.Errorf("%s: %s: %v", a.name, name, err)
			}
			for i, x := range p.Bits() {
				if math.Float32bits(x) != math.Float32bits(want[i]) {
					t.Fatalf("%s: %s alone: element %d of the outputs is %v, in the whole run it was %v", a.name, name, i, x, want[i])
				}
			}
		}
	}
}

// Wrong arguments give errors that name the call and the argument.
func TestAttentionErrors(t *testing.T) {
	d := device(t)
	c := Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 20, Sk: 30, D: 64, Dv: 64, Options: []Option{Plain}}
	for _, test := range []struct {
		change func(p *kernels.Attention, out *kernels.AttentionOutputs)
		want   string
	}{
		{func(p *kernels.Attention, out *kernels.AttentionOutputs) { p.Scale = math.NaN() }, "cuda:0: attention forward: scale is NaN"},
		{func(p *kernels.Attention, out *kernels.AttentionOutputs) { out.O.DType = kernels.F64 }, "o is float64, it needs to be float32"},
		{func(p *kernels.Attention, out *kernels.AttentionOutputs) { out.LSE.DType = kernels.BF16 }, "lse is bfloat16, it needs to be float32"},
		{func(p *kernels.Attention, out *kernels.AttentionOutputs) { out.O = kernels.Tensor{} }, "o is missing, it needs shape [1 2 20 64]"},
		{func(p *kernels.Attention, out *kernels.AttentionOutputs) { out.O.Strides = []int{0, 0, 64, 1} }, "would lie in the same place"},
		{func(p *kernels.Attention, out *kernels.AttentionOutputs) { p.Q.Data = nil }, "q has shape [1 2 20 64] but no data"},
		{func(p *kernels.Attention, out *kernels.AttentionOutputs) {
			p.Q.DType, p.K.DType, p.V.DType, out.O.DType, out.LSE.DType = kernels.F64, kernels.F64, kernels.F64, kernels.F64, kernels.F64
		}, "cuda:0: attention of float64 is not supported there"},
	} {
		r, err := newResident(mirrored{Device: d}, New[float32](c))
		if err != nil {
			t.Fatal(err)
		}
		test.change(r.p, &r.out)
		if err := d.AttentionForward(r.p, r.out); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("the error is %v, it needs to contain %q", err, test.want)
		}
	}
}

// A million rows in one head: forward and backward work in memory that grows with the length, and
// are right at both ends and between.
func TestAttentionOfAMillionRows(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds and gigabytes")
	}
	d := device(t)
	const rows, size = 1_000_000, 128
	random := rand.New(rand.NewPCG(5, 6))
	noise, exactly := make([]uint16, rows*size+4096), make([]float32, rows*size+4096)
	for i := range noise {
		noise[i] = toHalf(kernels.BF16, float32(random.NormFloat64()))
		exactly[i] = fromHalf(kernels.BF16, noise[i])
	}
	new := func(shift int, dtype kernels.DType, shape ...int) kernels.Tensor {
		x, err := d.Alloc(dtype, shape...)
		if err == nil && shift >= 0 {
			err = d.UploadBytes(x, unsafe.Pointer(&noise[shift]))
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	shifts := map[string]int{"q": 0, "k": 1001, "v": 2003, "dO": 3007}
	input := func(name string) kernels.Tensor { return new(shifts[name], kernels.BF16, 1, 1, rows, size) }
	a := kernels.Attention{Q: input("q"), K: input("k"), V: input("v")}
	out := kernels.AttentionOutputs{O: new(-1, kernels.BF16, 1, 1, rows, size), LSE: new(-1, kernels.F32, 1, 1, rows)}
	g := kernels.AttentionGradients{DO: input("dO"), LSE: out.LSE, Delta: new(-1, kernels.F32, 1, 1, rows),
		DQ: new(-1, kernels.BF16, 1, 1, rows, size), DK: new(-1, kernels.BF16, 1, 1, rows, size), DV: new(-1, kernels.BF16, 1, 1, rows, size)}
	before := d.Memory()
	if err := errors.Join(d.AttentionForward(&a, out), d.AttentionDelta(&a, out.O, g.DO, kernels.Tensor{}, g.Delta), d.AttentionBackward(&a, g), d.Synchronize()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB of tensors, at most %d MiB beside them", before.Live>>20, (d.Memory().Peak-before.Live)>>20)

	down := func(x kernels.Tensor) []uint16 {
		list := make([]uint16, rows*size)
		if err := d.DownloadBytes(x, unsafe.Pointer(&list[0])); err != nil {
			t.Fatal(err)
		}
		return list
	}
	o, dQ := down(out.O), down(g.DQ)
	row := func(name string, i int) []float32 { return exactly[shifts[name]+i*size:][:size] }
	dot := func(x, y []float32) (sum float64) {
		for c := range x {
			sum += float64(x[c]) * float64(y[c])
		}
		return sum
	}
	for _, i := range []int{0, 500_001, rows - 1} {
		scores, most, total := make([]float64, rows), math.Inf(-1), 0.0
		for j := range scores {
			scores[j] = dot(row("q", i), row("k", j)) / math.Sqrt(size)
			most = max(most, scores[j])
		}
		var wantO, wantDQ, mean [size]float64
		for j, s := range scores {
			scores[j] = math.Exp(s - most)
			total += scores[j]
		}
		delta := 0.0
		for j := range scores {
			scores[j] /= total
			dP := dot(row("dO", i), row("v", j))
			delta += scores[j] * dP
			key, value := row("k", j), row("v", j)
			for c := range size {
				wantO[c] += scores[j] * float64(value[c])
				mean[c] += scores[j] * float64(key[c])
				wantDQ[c] += scores[j] * dP * float64(key[c]) / math.Sqrt(size)
			}
		}
		for c := range size {
			wantDQ[c] -= delta * mean[c] / math.Sqrt(size)
			gotO, gotDQ := float64(fromHalf(kernels.BF16, o[i*size+c])), float64(fromHalf(kernels.BF16, dQ[i*size+c]))
			if !(math.Abs(gotO-wantO[c]) <= 3e-5) || !(math.Abs(gotDQ-wantDQ[c]) <= 3e-5) {
				t.Errorf("row %d, column %d: o is %g instead of %g, dq is %g instead of %g", i, c, gotO, wantO[c], gotDQ, wantDQ[c])
			}
		}
	}
}

// Kernels are compiled by the driver when they are first used; later uses find them in its cache.
// This test logs how long the first and a later call take to queue their work, and asserts nothing
// about that.
func TestLoading(t *testing.T) {
	d := device(t)
	for _, a := range arithmetics[:6] {
		func() {
			if a.anyDevice {
				defer d.WithoutMaps()()
			}
			p := a.newProblem(Case{Batch: 1, Heads: 1, KeyHeads: 1, Sq: 64, Sk: 64, D: 64, Dv: 64, Options: []Option{Plain}})
			r, err := newResident(mirrored{Device: d, half: a.half, wide: a.wide}, p)
			if err != nil {
				t.Fatal(err)
			}
			var times [3][]time.Duration // of each kernel
			for range 20 {
				kernel, start := 0, time.Now()
				for err := range r.steps() {
					if err != nil {
						t.Fatal(err)
					}
					times[kernel] = append(times[kernel], time.Since(start))
					kernel, start = kernel+1, time.Now()
				}
				if err := d.Synchronize(); err != nil {
					t.Fatal(err)
				}
			}
			for kernel, name := range []string{"forward", "delta", "backward"} {
				slices.Sort(times[kernel])
				t.Logf("%s: %s takes %v the first time and %v the median time", a.name, name, times[kernel][19], times[kernel][10])
			}
		}()
	}
}
