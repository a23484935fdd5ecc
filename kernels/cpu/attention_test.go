package cpu_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/score"
)

var grid = flag.Bool("grid", false, "run every length with every head size and every option, or score and mask, the two longest in turns, which takes an hour and a half on two cores (raise -timeout; -run TestAttentionGrid/64x128 takes one length)")

var part = flag.String("part", "1/1", "of the problems of -grid run those of one part: 2/16 is the second of sixteen")

var margins = flag.Bool("margins", false, "end with how the errors of attention stood to their bounds")

func TestMain(m *testing.M) {
	flag.Parse()
	if err := simd.Check(); err != nil {
		printKernelErrors()
		os.Exit(1)
	}
	code := m.Run()
	if *margins {
		ReportMargins(os.Stdout)
	}
	os.Exit(code)
}

// run computes a case and checks it.
func run[T kernels.Float](t *testing.T, c Case) {
	t.Helper()
	check(t, New[T](c))
}

// runNamed is run as a subtest with the name of the case.
func runNamed[T kernels.Float](t *testing.T, c Case) {
	t.Run(c.String(), func(t *testing.T) { run[T](t, c) })
}

// runOfMany is runNamed for one of thousands of cases. The criterion compares the largest of our
// errors with the largest of an unfused program's, and some of so many pass twice that by chance:
// these may have four times it.
func runOfMany(t *testing.T, c Case) {
	t.Run(c.String(), func(t *testing.T) {
		p := New[float32](c)
		if err := p.Run(cpu.New()); err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Logf("at first: %v", err)
			c.Slack = 2
			run[float32](t, c)
		}
	})
}

// runLevels computes a case with every set of instructions, and checks them all.
func runLevels[T kernels.Float](t *testing.T, c Case) {
	t.Helper()
	checkLevels(t, New[T](c))
}

func checkLevels[T kernels.Float](t *testing.T, p *Problem[T]) {
	t.Helper()
	for _, level := range levels() {
		restore := simd.SetLevel(level)
		check(t, p)
		restore()
	}
}

func check[T kernels.Float](t *testing.T, p *Problem[T]) {
	t.Helper()
	err := p.Run(cpu.New())
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		t.Errorf("%v: %v", simd.Active(), err)
	}
}

// affordable limits the rows that are compared so that checking takes a tenth of a second or two,
// or a tenth of that with -short, and a tenth again under the race detector. A row costs the
// reference and its float32 twin about 8 products of its keys with D and Dv each.
func affordable(c Case) Case {
	products := 1e8
	if testing.Short() {
		products /= 10
	}
	if slow.Racing() {
		products /= 10
	}
	perRow := float64(16 * c.Batch * c.Heads * c.Sk * (c.D + c.Dv))
	if rows := int(products / perRow); rows < c.Sq {
		c.Rows = max(rows, 1)
	}
	return c
}

// leftOut reports whether -short leaves out the n-th case of a table: five of six, others at each
// level. It is for the race detector, under which the reference's plain loops take ten times as
// long, and for levels of which the tests of a machine's highest have computed the most.
func leftOut(n int) bool { return testing.Short() && n%6 != int(started) }

// levels are those that tests compute at: all that the machine has, with -short the one that it
// started with.
func levels() []simd.Level {
	if testing.Short() {
		return []simd.Level{started}
	}
	return simd.Levels()
}

var started = simd.Active()

// gridCase is the n-th case of the grid: options and sizes as given, the rest in turn.
func gridCase(n int, length, size [2]int, options []Option) Case {
	heads := HeadCounts[n%len(HeadCounts)]
	c := Case{
		Batch: 1, Heads: heads[0], KeyHeads: heads[1], Sq: length[0], Sk: length[1], D: size[0], Dv: size[1],
		Layout: []Layout{BHSD, BSHD, Padded}[n%4%3], Options: options, Seed: uint64(n),
	}
	if length[0]*length[1] <= 512*512 {
		c.Batch = 2
	}
	return affordable(c)
}

// Every length, head size and option meets every other in the full grid, but that 4096² and 4224²
// share the pairs of head sizes and options; in the thinned one each of them appears, most more
// than once.
func TestAttentionGrid(t *testing.T) {
	slow.Emulated(t)
	sets := OptionSets()
	if *grid {
		runGrid(t, sets)
		return
	}
	short := Lengths[:slices.Index(Lengths, [2]int{2048, 2048})]
	for n := range 2 * len(short) {
		if leftOut(n) || slow.Racing() && n/6%2 > 0 {
			continue
		}
		runNamed[float32](t, gridCase(n, short[n%len(short)], HeadSizes[n%len(HeadSizes)], sets[n%len(sets)]))
	}
	if testing.Short() {
		return
	}
	for n, length := range Lengths[len(short):] {
		full := gridCase(3*n, length, HeadSizes[n], []Option{Plain})
		full.Heads, full.KeyHeads = 1, 1
		runNamed[float32](t, full)
		runNamed[float32](t, gridCase(3*n, length, HeadSizes[3], []Option{Causal, WindowOf(400, 0), ALiBi}))
	}
}

// runGrid computes the part of a full grid that is asked for.
func runGrid(t *testing.T, sets [][]Option) {
	var own, parts int
	if _, err := fmt.Sscanf(*part, "%d/%d", &own, &parts); err != nil || own < 1 || own > parts {
		t.Fatalf("-part is %q, it needs to be as 2/16 is", *part)
	}
	n := 0
	for l, length := range Lengths {
		t.Run(fmt.Sprintf("%dx%d", length[0], length[1]), func(t *testing.T) {
			for d, size := range HeadSizes {
				for o, options := range sets {
					if length[0] > 4000 && (l+d+o)%2 == 0 {
						continue
					}
					if n++; n%parts == own-1 {
						runOfMany(t, gridCase((l*len(HeadSizes)+d)*len(sets)+o+l+d, length, size, options))
					}
				}
			}
		})
	}
}

// Packed sequences, with every option: of different lengths, some shorter than a vector, some with
// more queries than keys.
func TestAttentionPacked(t *testing.T) {
	slow.Emulated(t)
	sizes, sets := HeadSizes, OptionSets()
	for n, options := range sets {
		if leftOut(n) {
			continue
		}
		if n%3 != 0 {
			options = append(slices.Clone(options), Causal)
		}
		heads, size := HeadCounts[n%len(HeadCounts)], sizes[n*5%len(sizes)]
		c := Case{Batch: 1, Heads: heads[0], KeyHeads: heads[1], Sq: 301, Sk: 407, D: size[0], Dv: size[1],
			Layout: []Layout{BSHD, BHSD, Padded}[n%4%3], Options: options, Seed: uint64(n)}
		c.QLens, c.KVLens = PackedLens(uint64(n), 2+n%6, c.Sq, c.Sk)
		runNamed[float32](t, affordable(c))
	}
}

func TestAttentionUneven(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	for n, c := range UnevenCases() {
		if leftOut(n) {
			continue
		}
		switch n % 8 {
		case 0:
			runLevels[float32](t, c)
		case 3:
			run[float64](t, c)
		default:
			run[float32](t, c)
		}
	}
}

// Axes of length 0 give results of length 0, rows that see no keys, and gradients of 0.
func TestAttentionOfNothing(t *testing.T) {
	for _, c := range EmptyCases() {
		run[float32](t, c)
		run[float64](t, c)
	}
	run[float32](t, Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 0, Sk: 5, D: 8, Dv: 8, Options: []Option{Causal}, QLens: []int{0, 0, 0}, KVLens: []int{0, 2, 5}})
	run[float32](t, Case{Batch: 1, Heads: 0, KeyHeads: 0, Sq: 4, Sk: 5, D: 8, Dv: 8, Options: []Option{Causal}, QLens: []int{0, 1, 4}, KVLens: []int{0, 2, 5}})
}

// What lies behind lengths and behind the last sequence is not read: NaN there reaches nothing.
func TestAttentionIgnoresUnusedRows(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	for n, options := range [][]Option{{Plain}, {Causal}, {WindowOf(40, 9), BiasOver("Q")}} {
		c := Case{Batch: 3, Heads: 4, KeyHeads: 2, Sq: 100, Sk: 200, D: 24, Dv: 33, KVLengths: []int{150, 33, 0}, Options: options, Seed: uint64(n)}
		for _, shared := range []bool{false, true} {
			c.SharedKeys = shared
			p := New[float32](c)
			p.Plant(p.K, math.NaN(), 0, 1, 150, 3)
			p.Plant(p.V, math.NaN(), 0, 1, 199, 3)
			checkLevels(t, p)
		}
		packed := Case{Batch: 1, Heads: 4, KeyHeads: 2, Sq: 100, Sk: 200, D: 24, Dv: 33, Options: options, Seed: uint64(n),
			QLens: []int{0, 50, 83}, KVLens: []int{0, 90, 131}}
		p := New[float32](packed)
		p.Plant(p.Q, math.NaN(), 0, 1, 83, 0)
		p.Plant(p.K, math.NaN(), 0, 1, 131, 3)
		p.Plant(p.V, math.NaN(), 0, 1, 199, 3)
		checkLevels(t, p)
	}
}

// Every set of instructions computes every option, in both types, one of them packed. Sizes leave a
// remainder everywhere.
func TestAttentionLevels(t *testing.T) {
	slow.Race(t)
	for n, options := range OptionSets() {
		if leftOut(n) {
			continue
		}
		heads := HeadCounts[n%len(HeadCounts)]
		c := Case{Batch: 1, Heads: heads[0], KeyHeads: heads[1], Sq: 67, Sk: 141, D: 43, Dv: 27, Options: options, Seed: uint64(n)}
		packed := c
		packed.Sq, packed.Sk, packed.D, packed.Dv, packed.Layout = 150, 131, 16, 64, BSHD
		packed.QLens, packed.KVLens = PackedLens(uint64(n), 4, packed.Sq, packed.Sk)
		if n%2 == 0 {
			c, packed = packed, c
		}
		runLevels[float32](t, c)
		runLevels[float64](t, packed)
	}
}

// Head sizes from 1 to the largest, equal and not, in both types.
func TestAttentionHeadSizes(t *testing.T) {
	slow.Race(t)
	for n, size := range [][2]int{{1, 1}, {1, 5}, {2, 3}, {7, 1}, {8, 8}, {15, 17}, {16, 16}, {31, 33}, {48, 80}, {129, 127}, {257, 255}, {511, 512}, {512, 64}, {3, 1024}, {576, 512}, {1024, 1023}} {
		c := Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 33, Sk: 45, D: size[0], Dv: size[1], Options: []Option{Causal, BiasOver("Q")}, Seed: uint64(n)}
		if c.D < 4 {
			c.Heads, c.KeyHeads = 8, 4 // or the errors of the unfused program would be too few to judge by
		}
		run[float32](t, c)
		run[float64](t, c)
	}
}

// Tensors may lie in memory in any way; gradients are written in the layout of their inputs and
// gaps are left alone.
func TestAttentionLayouts(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	for layout := BHSD; layout <= Broadcast; layout++ {
		for n, options := range [][]Option{{Plain}, {Causal, DLSE}, {BiasOver("BHQ"), Sinks}, {WindowOf(9, 4), Dropout}} {
			for _, size := range []int{64, 53} {
				if leftOut(int(layout) + n + size) {
					continue
				}
				c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 51, Sk: 51, D: size, Dv: size, Layout: layout, Options: options, Seed: uint64(n)}
				run[float32](t, c)
				run[float64](t, c)
				if layout != Broadcast {
					c.Batch = 1
					c.QLens, c.KVLens = PackedLens(uint64(n), 3, 51, 51)
					run[float32](t, c)
				}
			}
		}
	}
}

// Rows without a key give O = 0, LSE = −∞ (or the sink) and no gradient.
func TestAttentionEmptyRows(t *testing.T) {
	slow.Emulated(t)
	infinity := math.Inf(1)
	for n, c := range []struct {
		sq, sk  int
		options []Option
	}{
		{70, 30, []Option{Causal}},
		{300, 3, []Option{Causal}},
		{200, 90, []Option{CausalTopLeft}},
		{200, 90, []Option{CausalTopLeft, WindowOf(5, -1)}},
		{30, 200, []Option{CausalTopLeft, WindowOf(100, -1)}}, // the window lies behind the diagonal: no row sees a key
		{200, 90, []Option{WindowOf(10, 10)}},
		{200, 90, []Option{WindowOf(0, 0), DLSE}},
		{65, 1, []Option{WindowOf(-1, 0), Sinks, DLSE}},
		{40, 0, []Option{Plain}},
		{40, 0, []Option{Sinks, DLSE}},
		{0, 40, []Option{Plain}},
		{0, 40, []Option{BiasOver("BH"), Sinks}},
		{0, 0, []Option{Causal}},
		{70, 150, []Option{MaskingBias(0.3)}},
		{70, 150, []Option{MaskingBias(0.3), Sinks, Causal}},
		{70, 150, []Option{MaskingBias(0.97), WindowOf(30, 3), DLSE}},
		{70, 150, []Option{MaskingBias(1), Dropout}},
		{70, 150, []Option{MaskingBias(1), SoftCap, SinksOf(-3)}},
		{70, 150, []Option{PaddingBias(-1e9)}},
		{70, 150, []Option{PaddingBias(-3e38), DLSE}},
		{70, 50, []Option{SinksOf(-infinity), Causal}},
		{70, 50, []Option{SinksOf(-infinity), MaskingBias(0.5)}},
		{70, 50, []Option{SinksOf(80), Causal, DLSE}},
		{70, 50, []Option{SinksOf(3000)}},
		{70, 50, []Option{SinksOf(-3000), WindowOf(3, 3)}},
	} {
		if leftOut(n) {
			continue
		}
		problem := Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: c.sq, Sk: c.sk, D: 24, Dv: 40, Options: c.options, Seed: uint64(n)}
		runLevels[float32](t, problem)
		runLevels[float64](t, problem)
	}
	run[float32](t, Case{Batch: 0, Heads: 2, KeyHeads: 1, Sq: 5, Sk: 6, D: 8, Dv: 8, Options: []Option{Plain}})
	// Of packed sequences: more queries than keys, so the first rows of each see nothing.
	run[float32](t, Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 100, Sk: 12, D: 8, Dv: 8, Layout: BSHD, Options: []Option{Causal},
		QLens: []int{0, 40, 41, 100}, KVLens: []int{0, 1, 7, 12}})
}

// Slopes that leave a row's nearest keys far below zero, and padding far below all scores.
func TestAttentionFarFromZero(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	for n, c := range []struct {
		sq, sk  int
		options []Option
	}{
		{170, 50, []Option{SlopesOf(1e6)}},
		{170, 50, []Option{SlopesOf(21, 0.01)}},
		{170, 50, []Option{SlopesOf(21, 0.01), SoftCap}},
		{170, 50, []Option{SlopesOf(1e6, 0.2), DLSE}},
		{50, 170, []Option{SlopesOf(1e6, 0.2), Causal, DLSE}},
		{170, 50, []Option{SlopesOf(1e6), NegativeScale}},
		{70, 150, []Option{PaddingBias(-3e38), Causal, Sinks}},
	} {
		problem := Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: c.sq, Sk: c.sk, D: 24, Dv: 40, Options: c.options, Seed: uint64(n)}
		runLevels[float32](t, problem)
		runLevels[float64](t, problem)
	}
}

// A row whose keys are all padding has equal weights, however far below zero their scores are, and
// whether one query or many see them. Packed keys, a cache and a mask have kernels of their own.
func TestAttentionOfPaddingAlone(t *testing.T) {
	odd, err := score.NewMask(func(p score.Pair) score.Cond { return p.Key.Rem(2).Equal(1) })
	if err != nil {
		t.Fatal(err)
	}
	for _, bias := range []float64{-1e9, -3e38, -math.MaxFloat32} {
		for _, queries := range []int{1, 3, 40} {
			for _, mask := range []*score.Mask{nil, odd} {
				const heads, keys, size = 2, 300, 16
				r := rand.New(rand.NewPCG(uint64(queries), 1))
				tensor := func(shape ...int) kernels.Tensor {
					data := make([]float32, heads*shape[2]*size)
					for i := range data {
						data[i] = float32(r.NormFloat64())
					}
					return kernels.Of(data, shape...)
				}
				padding := kernels.Of(slices.Repeat([]float32{float32(bias)}, keys), 1, 1, 1, keys)
				a := &kernels.Attention{Q: tensor(1, heads, queries, size), K: tensor(1, heads, keys, size), V: tensor(1, heads, keys, size), Bias: padding,
					Program: kernels.Program{Mask: mask}}
				o := kernels.Of(make([]float32, heads*queries*size), 1, heads, queries, size)
				if err := cpu.New().AttentionForward(a, kernels.AttentionOutputs{O: o}); err != nil {
					t.Fatal(err)
				}
				step := 1
				if mask != nil {
					step = 2 // from the second key on
				}
				for h := range heads {
					for d := range size {
						mean := 0.0
						for j := step - 1; j < keys; j += step {
							mean += kernels.HostElement(a.V, a.V.Offset(0, h, j, d)) * float64(step) / keys
						}
						for i := range queries {
							if got := kernels.HostElement(o, o.Offset(0, h, i, d)); math.Abs(got-mean) > 1e-6 {
								t.Fatalf("bias %g, %d queries, mask %v: o[0 %d %d %d] is %v, want the mean %v", bias, queries, mask != nil, h, i, d, got, mean)
							}
						}
					}
				}
			}
		}
	}
}

// A NaN or an infinity makes exactly those rows not finite that it makes so in the reference.
func TestAttentionNonFinite(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	masks := [][]Option{{Plain}, {Causal}, {CausalTopLeft}, {WindowOf(9, 3)}, {WindowOf(40, 0), Causal}, {WindowOf(0, 20)},
		{Causal, Dropout}, {Causal, ALiBi, BiasOver("Q")}, {Sinks, Causal}, {SoftCap, WindowOf(13, 13)}}
	lengths := [][2]int{{37, 53}, {130, 129}, {65, 200}, {90, 20}}
	n := 0
	for m, mask := range masks {
		for l, length := range lengths {
			for in, name := range []string{"q", "k", "v", "dO"} {
				value := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[n%3]
				if n++; leftOut(n) {
					continue
				}
				c := Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: length[0], Sk: length[1], D: 24, Dv: 17, Options: mask, Seed: uint64(n),
					Checked: Checked{Slack: 2}} // it is about rows that are finite, and these problems are small
				if (m+l+in)%3 == 0 {
					c.QLens, c.KVLens = PackedLens(c.Seed, 3, c.Sq, c.Sk)
				}
				p := New[float32](c)
				target := []kernels.Tensor{p.Q, p.K, p.V, p.DO}[in]
				head, row, column := n%target.Shape[1], n*31%target.Shape[2], n*7%target.Shape[3]
				p.Plant(target, value, 0, head, row, column)
				if checkLevels(t, p); t.Failed() {
					t.Fatalf("with %v at %s[0 %d %d %d]", value, name, head, row, column)
				}
			}
		}
	}
}

// So it is with several of them anywhere, also in rows that no sequence has, where documents and
// lengths hide keys, and in few rows, which have kernels of their own.
func TestAttentionConfines(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	documents := MaskOf("documents", func(p score.Pair) score.Cond { return p.Key.Div(37).Equal(p.Position().Div(37)) })
	for n := range 100 {
		if leftOut(n) {
			continue
		}
		options := [][]Option{{Causal}, {documents}, {WindowOf(40, 0)}, {documents, Causal, Dropout}, {Plain}}[n%5]
		c := Case{Batch: 2, Heads: 2, KeyHeads: 1, Sq: 60 + 31*(n%4), Sk: 130 - 30*(n%3), D: 24, Dv: 17, Options: options, Seed: uint64(n), Checked: Checked{Slack: 2}}
		switch n / 25 {
		case 1:
			c.Batch, c.QLens, c.KVLens = 1, []int{0, 30, 31, 31, 50}, []int{0, 20, 40, 50, 60}
		case 2:
			c.KVLengths = []int{c.Sk, 47}
		case 3:
			c.Sq = 1 + n%2
		}
		p := New[float32](c)
		where := p.PlantNonFinite(c.Seed, math.NaN(), math.Inf(1), math.Inf(-1))
		if checkLevels(t, p); t.Failed() {
			t.Fatalf("with%s", where)
		}
	}
}

// hard is a problem with several tiles in each direction, shared key heads, and a bias whose
// gradient is summed over batch and heads.
func hard(options ...Option) Case {
	return Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 300, Sk: 333, D: 40, Dv: 56, Seed: 9, Checked: Checked{Rows: 1},
		Options: append(options, Causal, Sinks, DLSE)}
}

// Results are bit-equal for any number of threads, from run to run, and beside other calls of the
// same backend.
func TestAttentionIsDeterministic(t *testing.T) {
	slow.Emulated(t)
	for n, c := range []Case{hard(), hard(BiasOver("Q")), hard(BiasOver("BH"), Dropout), hard(BiasOver("H"), SoftCap),
		{Batch: 1, Heads: 1, KeyHeads: 1, Sq: 500, Sk: 600, D: 64, Dv: 64, Options: []Option{Plain}},
		{Batch: 5, Heads: 4, KeyHeads: 2, Sq: 200, Sk: 300, D: 40, Dv: 40, Options: []Option{RowBiasOver("Q"), Sinks},
			SharedKeys: true, KVLengths: []int{300, 200, 17, 0, 299}},
		{Batch: 1, Heads: 3, KeyHeads: 1, Sq: 400, Sk: 500, D: 33, Dv: 64, Layout: BSHD, Options: []Option{WindowOf(90, 20)},
			QLens: []int{0, 10, 180, 400}, KVLens: []int{0, 200, 333, 500}},
	} {
		if leftOut(n) {
			continue
		}
		c.Rows = 0
		want := New[float32](c)
		if err := want.Run(&cpu.Backend{Threads: 1}); err != nil {
			t.Fatal(err)
		}
		compare := func(name string, threads int, backend *cpu.Backend) {
			p := New[float32](c)
			if err := p.Run(backend); err != nil {
				t.Error(err)
				return
			}
			got, want := p.Bits(), want.Bits()
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
					t.Errorf("%v: %s with %d threads: element %d of the outputs is %v, with one thread %v", c, name, threads, i, got[i], want[i])
					return
				}
			}
		}
		for _, threads := range []int{1, 2, 3, 7, 0} {
			backend := &cpu.Backend{Threads: threads}
			compare("first run", threads, backend)
			compare("second run", threads, backend)
		}
		shared := &cpu.Backend{Threads: 3}
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() { compare("beside others", 3, shared) })
		}
		calls.Wait()
	}
}

// Gradients can be asked for in parts, and a part is the same as in the whole.
func TestAttentionGradientsInParts(t *testing.T) {
	slow.Emulated(t)
	p := New[float32](hard(BiasOver("Q")))
	backend := cpu.New()
	if err := p.Run(backend); err != nil {
		t.Fatal(err)
	}
	want := p.Bits()
	for name, leaveOut := range map[string]func(g *kernels.AttentionGradients){
		"without dBias":    func(g *kernels.AttentionGradients) { g.DBias = kernels.Tensor{} },
		"without dSinks":   func(g *kernels.AttentionGradients) { g.DSinks = kernels.Tensor{} },
		"dq, dk, dv alone": func(g *kernels.AttentionGradients) { g.DBias, g.DSinks = kernels.Tensor{}, kernels.Tensor{} },
		"dBias alone": func(g *kernels.AttentionGradients) {
			*g = kernels.AttentionGradients{DO: g.DO, LSE: g.LSE, Delta: g.Delta, DBias: g.DBias}
		},
		"dSinks alone": func(g *kernels.AttentionGradients) {
			*g = kernels.AttentionGradients{DO: g.DO, LSE: g.LSE, Delta: g.Delta, DSinks: g.DSinks}
		},
		"nothing asked for": func(g *kernels.AttentionGradients) {
			*g = kernels.AttentionGradients{DO: g.DO, LSE: g.LSE, Delta: g.Delta}
		},
	} {
		g := p.Gradients()
		for _, out := range []kernels.Tensor{g.DQ, g.DK, g.DV, g.DBias, g.DSinks} {
			fill(out, 77)
		}
		leaveOut(&g)
		if err := backend.AttentionBackward(&p.Attention, g); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, out := range []kernels.Tensor{p.DQ, p.DK, p.DV, p.DBias, p.DSinks} {
			asked := false
			for _, given := range []kernels.Tensor{g.DQ, g.DK, g.DV, g.DBias, g.DSinks} {
				asked = asked || given.Data == out.Data
			}
			if !asked {
				for i, x := range kernels.Host[float32](out) {
					if x != 77 {
						t.Fatalf("%s: %v was written to element %d of a gradient of shape %v that was not asked for", name, x, i, out.Shape)
					}
				}
				fill(out, 0)
			}
		}
		// The parts that were asked for hold what they held; the others are 0 here.
		for i, x := range p.Bits() {
			if x != 0 && math.Float32bits(x) != math.Float32bits(want[i]) {
				t.Fatalf("%s: element %d of the outputs is %v, of the whole run %v", name, i, x, want[i])
			}
		}
		if err := p.Run(backend); err != nil {
			t.Fatal(err)
		}
	}
}

func fill(t kernels.Tensor, value float32) {
	data := kernels.Host[float32](t)
	for i := range data {
		data[i] = value
	}
}

// The forward kernel computes the same O when nobody asks for the logsumexp.
func TestAttentionWithoutLSE(t *testing.T) {
	p := New[float32](hard(Dropout))
	if err := p.Run(cpu.New()); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(kernels.Host[float32](p.O))
	fill(p.O, 0)
	if err := cpu.New().AttentionForward(&p.Attention, kernels.AttentionOutputs{O: p.O}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(want, kernels.Host[float32](p.O)) {
		t.Errorf("%v: O differs without the logsumexp", p.Case)
	}
}

// Every wrong argument gives an error that names the kernel and the argument, and nothing is
// written.
func TestAttentionErrors(t *testing.T) {
	type call struct {
		*Problem[float32]
		out   kernels.AttentionOutputs
		g     kernels.AttentionGradients
		o, dO kernels.Tensor // of the delta kernel
		dLSE  kernels.Tensor
		delta kernels.Tensor
	}
	const forward, delta, backward = "forward", "delta", "backward"
	kernelsOf := map[string][]string{"all": {forward, delta, backward}, forward: {forward}, delta: {delta}, backward: {backward}}
	f64 := func(t *kernels.Tensor) { t.DType = kernels.F64 }
	noData := func(t *kernels.Tensor) { t.Data = nil }
	wrongShape := func(t *kernels.Tensor) { t.Shape = slices.Clone(t.Shape); t.Shape[len(t.Shape)-1]++ }
	fewAxes := func(t *kernels.Tensor) { t.Shape, t.Strides = t.Shape[1:], t.Strides[1:] }
	fewStrides := func(t *kernels.Tensor) { t.Strides = t.Strides[1:] }
	negative := func(t *kernels.Tensor) { t.Strides = slices.Clone(t.Strides); t.Strides[0] = -t.Strides[0] }
	apart := func(t *kernels.Tensor) { t.Strides = slices.Clone(t.Strides); t.Strides[len(t.Strides)-1] = 2 }
	overlapping := func(t *kernels.Tensor) { t.Strides = slices.Clone(t.Strides); t.Strides[0] = 0 }
	missing := func(t *kernels.Tensor) { *t = kernels.Tensor{} }
	type change = func(t *kernels.Tensor)
	usual := []change{f64, noData, wrongShape, fewAxes, fewStrides, negative, apart}
	required := append(slices.Clone(usual), missing)
	for _, c := range []struct {
		kernels string
		name    string
		tensor  func(c *call) *kernels.Tensor
		changes []change
	}{
		{"all", "q", func(c *call) *kernels.Tensor { return &c.Q }, []change{noData, fewAxes, fewStrides, negative, apart, missing}},
		{"all", "k", func(c *call) *kernels.Tensor { return &c.K }, required},
		{"all", "v", func(c *call) *kernels.Tensor { return &c.V }, []change{f64, noData, fewAxes, fewStrides, negative, apart, missing}},
		{"all", "bias", func(c *call) *kernels.Tensor { return &c.Bias }, usual},
		{"all", "sinks", func(c *call) *kernels.Tensor { return &c.Attention.Sinks }, []change{f64, noData, wrongShape, fewAxes, fewStrides, negative}},
		{forward, "o", func(c *call) *kernels.Tensor { return &c.out.O }, append(required, overlapping)},
		{forward, "lse", func(c *call) *kernels.Tensor { return &c.out.LSE }, append(usual, overlapping)},
		{delta, "o", func(c *call) *kernels.Tensor { return &c.o }, required},
		{delta, "dO", func(c *call) *kernels.Tensor { return &c.dO }, required},
		{delta, "dLSE", func(c *call) *kernels.Tensor { return &c.dLSE }, usual},
		{delta, "delta", func(c *call) *kernels.Tensor { return &c.delta }, append(required, overlapping)},
		{backward, "dO", func(c *call) *kernels.Tensor { return &c.g.DO }, required},
		{backward, "lse", func(c *call) *kernels.Tensor { return &c.g.LSE }, required},
		{backward, "delta", func(c *call) *kernels.Tensor { return &c.g.Delta }, required},
		{backward, "dq", func(c *call) *kernels.Tensor { return &c.g.DQ }, append(required, overlapping)},
		{backward, "dk", func(c *call) *kernels.Tensor { return &c.g.DK }, append(required, overlapping)},
		{backward, "dv", func(c *call) *kernels.Tensor { return &c.g.DV }, append(required, overlapping)},
		{backward, "dBias", func(c *call) *kernels.Tensor { return &c.g.DBias }, append(usual, overlapping)},
		{backward, "dSinks", func(c *call) *kernels.Tensor { return &c.g.DSinks }, []change{f64, noData, wrongShape, fewAxes, fewStrides, negative}},
		{backward, "dBias", func(c *call) *kernels.Tensor { c.Bias = kernels.Tensor{}; return &c.g.DBias }, []change{func(*kernels.Tensor) {}}},
		{backward, "dSinks", func(c *call) *kernels.Tensor { c.Attention.Sinks = kernels.Tensor{}; return &c.g.DSinks }, []change{func(*kernels.Tensor) {}}},
		{"all", "q", func(c *call) *kernels.Tensor {
			for _, t := range []*kernels.Tensor{&c.Q, &c.K, &c.V} {
				t.DType = kernels.I32
			}
			c.Bias, c.Attention.Sinks = kernels.Tensor{}, kernels.Tensor{}
			return &c.Q
		}, []change{func(*kernels.Tensor) {}}},
		{"all", "dropout", func(c *call) *kernels.Tensor { c.Attention.Dropout.P = 2; return &c.Q }, []change{func(*kernels.Tensor) {}}},
	} {
		for n, change := range c.changes {
			for _, kernel := range kernelsOf[c.kernels] {
				p := New[float32](Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 5, Sk: 7, D: 8, Dv: 6, Options: []Option{BiasOver("BHQ"), Sinks, DLSE}})
				x := &call{Problem: p, out: kernels.AttentionOutputs{O: p.O, LSE: p.LSE}, g: p.Gradients(), o: p.O, dO: p.DO, dLSE: p.DLSE, delta: p.Delta}
				change(c.tensor(x))
				var err error
				switch kernel {
				case forward:
					err = cpu.New().AttentionForward(&x.Attention, x.out)
				case delta:
					err = cpu.New().AttentionDelta(&x.Attention, x.o, x.dO, x.dLSE, x.delta)
				case backward:
					err = cpu.New().AttentionBackward(&x.Attention, x.g)
				}
				prefix := "cpu: attention " + kernel + ": " + c.name + " "
				if err == nil || !strings.HasPrefix(err.Error(), prefix) {
					t.Errorf("change %d of %s: the error is %v, it needs to begin with %q", n, c.name, err, prefix)
				}
				for _, x := range p.Bits() {
					if x != 0 {
						t.Errorf("change %d of %s: something was written in spite of the error %v", n, c.name, err)
						break
					}
				}
			}
		}
	}
}

// Memory grows with the length of a sequence, not with its square.
func TestAttentionMemory(t *testing.T) {
	slow.Emulated(t)
	slow.Race(t)
	const limit = 128 << 20
	options := []Option{Causal, WindowOf(64, 0)}
	if *grid {
		options = []Option{Plain}
	}
	p := New[float32](Case{Batch: 1, Heads: 2, KeyHeads: 2, Sq: 1 << 16, Sk: 1 << 16, D: 64, Dv: 64, Options: options})
	runtime.GC()
	runtime.GC() // twice empties every sync.Pool
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	backend := cpu.New()
	if err := backend.AttentionForward(&p.Attention, kernels.AttentionOutputs{O: p.O, LSE: p.LSE}); err != nil {
		t.Fatal(err)
	}
	if err := backend.AttentionDelta(&p.Attention, p.O, p.DO, p.DLSE, p.Delta); err != nil {
		t.Fatal(err)
	}
	if err := backend.AttentionBackward(&p.Attention, p.Gradients()); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%v: %.1f MiB beyond inputs and outputs", p.Case, float64(allocated)/(1<<20))
	if allocated > limit {
		t.Errorf("%v: %d bytes were allocated beyond inputs and outputs, the limit is %d", p.Case, allocated, limit)
	}
}

// Equal scores of any magnitude share a row evenly. Backward has what the logsumexp keeps of them.
func TestAttentionOfLargeScores(t *testing.T) {
	for _, level := range levels() {
		restore := simd.SetLevel(level)
		for _, score := range []float32{1e3, -1e3, 1e5, -1e5, 1e7, 1e9, 1e10, -1e10, 1e12} {
			const keys = 3
			tensor := func(length int, values ...float32) kernels.Tensor { return kernels.Of(values, 1, 1, length, 1) }
			rows := func() kernels.Tensor { return kernels.Of(make([]float32, 1), 1, 1, 1) }
			a := &kernels.Attention{Q: tensor(1, score), K: tensor(keys, 1, 1, 1), V: tensor(keys, 1, 2, 6), Scale: 1}
			o, lse, delta := tensor(1, 0), rows(), rows()
			g := kernels.AttentionGradients{DO: tensor(1, 1), LSE: lse, Delta: delta, DQ: tensor(1, 0), DK: tensor(keys, 0, 0, 0), DV: tensor(keys, 0, 0, 0)}
			b := cpu.New()
			for _, err := range []error{
				b.AttentionForward(a, kernels.AttentionOutputs{O: o, LSE: lse}), b.AttentionDelta(a, o, g.DO, kernels.Tensor{}, delta), b.AttentionBackward(a, g),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if mean := kernels.HostElement(o, 0); !(math.Abs(mean-3) <= 1e-6) {
				t.Errorf("%v: scores of %v: o is %v, the mean of v is 3", level, score, mean)
			}
			if got := kernels.HostElement(lse, 0); !(math.Abs(got-float64(score)-math.Log(keys)) <= 1e-7*math.Abs(float64(score))) {
				t.Errorf("%v: scores of %v: the logsumexp is %v", level, score, got)
			}
			// P is 1/3 but for a factor of 1 ± ε, where ε is small.
			epsilon := 1.2e-7 * math.Abs(float64(score))
			for j := range keys {
				p := kernels.HostElement(g.DV, j)
				if within := math.Abs(3*p-1) <= epsilon; epsilon < 0.1 && !within || !(p >= 0 && p <= 1) {
					t.Errorf("%v: scores of %v: dv of key %d is %v, it needs to be 1/3 to within a factor of 1 ± %v", level, score, j, p, epsilon)
				}
				if dk := kernels.HostElement(g.DK, j); math.IsNaN(dk) || math.IsInf(dk, 0) {
					t.Errorf("%v: scores of %v: dk of key %d is %v", level, score, j, dk)
				}
			}
		}
		restore()
	}
}

// Rows of NaN stay so whatever is dropped of them: here each has one key, and the reference and the
// kernels agree on O.
func TestAttentionDropsNoNaN(t *testing.T) {
	c := Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 40, Sk: 1, D: 8, Dv: 8, Options: []Option{DropoutOf(0.5)}, Checked: Checked{Slack: 2}}
	p := New[float32](c)
	for row := range c.Sq {
		p.Plant(p.Q, math.NaN(), 0, 1, row, 0)
	}
	checkLevels(t, p)
	for row := range c.Sq {
		if o := kernels.HostElement(p.O, (c.Sq+row)*c.Dv); !math.IsNaN(o) {
			t.Errorf("o of row %d is %v", row, o)
		}
	}
}

// A sink counts as one more score. One of +∞ leaves no numbers, and one far beyond all scores takes
// everything, whose gradient is that of the logsumexp.
func TestAttentionOfLargeSinks(t *testing.T) {
	for _, sink := range []float64{math.Inf(1), math.NaN(), 3e38, 1e8, 12345678, -12345678, -1e8, -3e38, math.Inf(-1)} {
		c := Case{Batch: 1, Heads: 2, KeyHeads: 1, Sq: 20, Sk: 30, D: 8, Dv: 8, Options: []Option{Causal, SinksOf(sink), DLSE}, Checked: Checked{Slack: 2}}
		run64, run32 := New[float64](c), New[float32](c)
		checkLevels(t, run32)
		if math.Abs(sink) < math.MaxFloat32 {
			checkLevels(t, run64)
		}
		c.Sk = 0 // nothing but the sink
		checkLevels(t, New[float32](c))
	}
}
