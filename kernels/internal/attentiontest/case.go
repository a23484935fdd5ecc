// Package attentiontest makes attention problems for the tests of backends and judges what a
// backend computed.
//
// A [Case] describes a problem in words that fit on one line, so that a failing test can print it;
// [New] gives it random values; [Problem.Run] lets a backend compute everything, and
// [Problem.Check] compares with package reference.
package attentiontest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Case describes a problem: its sizes, its options and the seed of its values.
type Case struct {
	Batch, Heads, KeyHeads int
	Sq, Sk, D, Dv          int
	QLens, KVLens          []int
	KVLengths              []int // of each batch item's keys
	SharedKeys             bool  // k and v have a batch of 1
	Layout                 Layout
	Options                []Option
	Seed                   uint64
	Checked
}

// Checked says how much of a case is compared with the definition. Its zero value compares all, by
// the criterion itself.
type Checked struct {
	// Rows bounds the price of checking: when it is not 0, about so many rows of each head have a
	// gradient, and the outputs of these rows alone are compared. All gradients are compared in
	// full.
	Rows int

	// Slack multiplies the criterion's factor unless it is 0. A search through millions of small
	// problems finds those whose unfused errors happen to cancel, or whose gradients do; what it
	// looks for is wrong results.
	Slack float64
}

// String is the case in one line.
func (c Case) String() string {
	names := make([]string, len(c.Options))
	for i, o := range c.Options {
		names[i] = o.Name
	}
	s := fmt.Sprintf("B=%d Hq=%d Hk=%d Sq=%d Sk=%d D=%d Dv=%d %v %s seed=%d", c.Batch, c.Heads, c.KeyHeads,
		c.Sq, c.Sk, c.D, c.Dv, c.Layout, strings.Join(names, "+"), c.Seed)
	if c.QLens != nil {
		s += fmt.Sprintf(" qLens=%v kvLens=%v", c.QLens, c.KVLens)
	}
	if c.KVLengths != nil {
		s += fmt.Sprintf(" kvLengths=%v", c.KVLengths)
	}
	if c.SharedKeys {
		s += " shared keys"
	}
	if c.Rows > 0 {
		s += fmt.Sprintf(" rows=%d", c.Rows)
	}
	return s
}

// Option is something that attention can do beside the plain softmax.
type Option struct {
	Name string
	set  func(o *settings)
}

// settings is what options set; random values are drawn when the problem is made.
type settings struct {
	kernels.Attention
	alibi, sinks, dLSE bool
	slopes             []float64 // of the heads in turn, those of powers of two if none
	// bias is the letters of the axes along which the bias differs: B, H and Q.
	bias      *string
	columns   int      // the last axis of the bias, all keys if 0
	sinkValue *float64 // of every head, random if nil
	masked    float64  // the share of the bias that is −∞
	padding   float64  // of the bias of the first and the last keys, 0 if that is random
	tables    []table  // what score and mask look up
	score     func(score.Pair, []*score.Table) score.Expr
	mask      func(score.Pair, []*score.Table) score.Cond
	place     *kernels.Place // of the first sequence in a larger problem
}

// Every option, alone.
var (
	Plain         = Option{"plain", func(*settings) {}}
	Causal        = Option{"causal", func(o *settings) { o.Causal = kernels.CausalBottomRight }}
	CausalTopLeft = Option{"causal-top-left", func(o *settings) { o.Causal = kernels.CausalTopLeft }}
	SoftCap       = Option{"softcap", func(o *settings) { o.SoftCap = 2.5 }}
	ALiBi         = Option{"alibi", func(o *settings) { o.alibi = true }}
	Sinks         = Option{"sinks", func(o *settings) { o.sinks = true }}
	Scale         = Option{"scale", func(o *settings) { o.Scale = 0.7 }} // scores of about ±6: a peaked softmax
	NegativeScale = Option{"scale<0", func(o *settings) { o.Scale = -0.1 }}
	DLSE          = Option{"dlse", func(o *settings) { o.dLSE = true }} // the logsumexp is used, so has a gradient
	Dropout       = DropoutOf(0.2)
)

// SlopesOf is ALiBi with other slopes, which heads have in turn.
func SlopesOf(slopes ...float64) Option {
	return Option{fmt.Sprintf("slopes%v", slopes), func(o *settings) { o.alibi, o.slopes = true, slopes }}
}

// CapOf caps scores that have a scale.
func CapOf(scale, softCap float64) Option {
	return Option{fmt.Sprintf("softcap(%g of %g)", softCap, scale), func(o *settings) { o.Scale, o.SoftCap = scale, softCap }}
}

// WindowOf shows left keys before and right keys behind the diagonal, −1 for all.
func WindowOf(left, right int) Option {
	return Option{fmt.Sprintf("window(%d,%d)", left, right), func(o *settings) { o.Window = &kernels.Window{Left: left, Right: right} }}
}

// ShiftedWindow is WindowOf, moved along the keys.
func ShiftedWindow(left, right, shift int) Option {
	return Option{fmt.Sprintf("window(%d,%d)%+d", left, right, shift), func(o *settings) {
		o.Window = &kernels.Window{Left: left, Right: right, Shift: shift}
	}}
}

// DropoutOf drops with probability p.
func DropoutOf(p float64) Option {
	return Option{fmt.Sprintf("dropout(%g)", p), func(o *settings) { o.Dropout = kernels.Dropout{P: p, Seed: 0x123456789abcdef, Step: 3} }}
}

// PlacedAt makes each sequence a part of a larger problem. The first begins at a row and a column
// there, each other at a row and a column that lie a little behind those of the one before.
func PlacedAt(row, column int) Option {
	return Option{fmt.Sprintf("placed(%d,%d)", row, column), func(o *settings) {
		o.place = &kernels.Place{Sequence: 3, Row: row, Column: column}
	}}
}

// BiasOver adds a bias that differs along the named axes (letters of "BHQ") and along the keys.
func BiasOver(axes string) Option {
	return Option{"bias(" + axes + "K)", func(o *settings) { o.bias = &axes }}
}

// RowBiasOver adds a bias that differs along the named axes, and is the same for all keys.
func RowBiasOver(axes string) Option {
	return Option{"bias(" + axes + ")", func(o *settings) { o.bias, o.columns = &axes, 1 }}
}

// MaskingBias is a bias in which about the given share of elements, and every element of some rows,
// is −∞.
func MaskingBias(share float64) Option {
	return Option{fmt.Sprintf("masking-bias(%g)", share), func(o *settings) {
		axes := "BHQ"
		o.bias, o.masked = &axes, share
	}}
}

// PaddingBias gives the first two and the last fifth of all keys one bias: models hide padding by
// numbers far below all scores.
func PaddingBias(value float64) Option {
	return Option{fmt.Sprintf("padding-bias(%g)", value), func(o *settings) {
		axes := "Q"
		o.bias, o.padding = &axes, value
	}}
}

// SinksOf gives every head the same sink.
func SinksOf(value float64) Option {
	return Option{fmt.Sprintf("sinks(%g)", value), func(o *settings) { o.sinks, o.sinkValue = true, &value }}
}

// OptionSets are all options alone and the combinations that people use.
func OptionSets() [][]Option {
	return [][]Option{
		{Plain}, {Causal}, {CausalTopLeft},
		{WindowOf(37, 5)}, {WindowOf(64, -1)}, {WindowOf(-1, 0)}, {WindowOf(0, 0)},
		{SoftCap}, {ALiBi}, {Sinks}, {Scale}, {NegativeScale}, {DLSE}, {Dropout},
		{BiasOver("BHQ")}, {BiasOver("Q")}, {BiasOver("H")}, {BiasOver("BQ")}, {BiasOver("")}, {BiasOver("HQ")},
		{Causal, WindowOf(50, 0)}, {CausalTopLeft, WindowOf(20, 20)},
		{BiasOver("HQ"), Causal, Dropout}, {ALiBi, SoftCap}, {Sinks, WindowOf(31, 31)},
		{Causal, ALiBi, DLSE}, {Sinks, DLSE, Causal}, {SoftCap, BiasOver("BH"), DLSE},
		{NegativeScale, DLSE}, {NegativeScale, Causal, Sinks}, {NegativeScale, WindowOf(31, 9), ALiBi, Dropout},
		{Causal, WindowOf(100, -1), SoftCap, ALiBi, BiasOver("BHQ"), Sinks, Dropout, DLSE},
	}
}

// UnevenCases are problems whose parts differ in length or share their keys, windows beside the
// diagonal, and biases that are the same for all keys. Each spans several tiles of any device.
func UnevenCases() []Case {
	var list []Case
	add := func(c Case, options ...Option) {
		c.Heads, c.KeyHeads, c.D, c.Dv, c.Rows = 4, 2, 64, 64, 16
		if len(list)%2 == 1 {
			c.D, c.Dv = 40, 56
		}
		c.Options, c.Seed, c.Layout = append(options, Plain), uint64(len(list)), []Layout{BHSD, BSHD, Padded}[len(list)%3]
		list = append(list, c)
	}
	batch := Case{Batch: 3, Sq: 150, Sk: 333}

	shared := batch
	shared.SharedKeys = true
	lengths := batch
	lengths.KVLengths = []int{333, 0, 71}
	both := lengths
	both.SharedKeys = true
	for _, c := range []Case{shared, lengths, both} {
		for _, options := range [][]Option{{}, {Causal}, {WindowOf(60, 20), Sinks, DLSE}, {BiasOver("BHQ"), Causal}, {BiasOver("Q")}, {BiasOver("H"), Dropout}, {ALiBi, SoftCap}} {
			add(c, options...)
		}
	}
	decoding := both
	decoding.Sq = 1
	add(decoding, Causal)
	decoding.SharedKeys = false
	add(decoding, Causal, Sinks)

	packed := Case{Batch: 1, Sq: 300, Sk: 400}
	packed.QLens, packed.KVLens = []int{0, 100, 100, 170, 300}, []int{0, 0, 90, 250, 400} // the first has no keys, the second no queries
	behind := packed
	behind.QLens, behind.KVLens = []int{0, 0, 130, 200}, []int{0, 0, 140, 270}
	for _, c := range []Case{packed, behind} {
		for _, options := range [][]Option{{}, {Causal}, {WindowOf(60, 20), Sinks, DLSE}, {BiasOver("BHQ"), Causal}, {Dropout}} {
			add(c, options...)
		}
	}
	nothing := packed
	nothing.QLens, nothing.KVLens = []int{0, 0}, []int{0, 0}
	add(nothing, Sinks)

	for _, options := range [][]Option{
		{ShiftedWindow(9, 30, -70)}, {ShiftedWindow(0, 4, 33)}, {ShiftedWindow(20, 20, 170), Causal}, {ShiftedWindow(-1, 0, -40), Sinks},
		{ShiftedWindow(0, -1, 40), DLSE}, {ShiftedWindow(3, 3, 5), CausalTopLeft}, {ShiftedWindow(5, 5, -1000)},
	} {
		add(batch, options...)
	}
	for _, axes := range []string{"BHQ", "BQ", "Q", "H", ""} {
		add(batch, RowBiasOver(axes), Sinks)
		add(packed, RowBiasOver(axes), Causal, DLSE)
	}
	add(both, RowBiasOver("Q"), SoftCap)
	return list
}

// EmptyCases are problems without batch items, heads, queries or keys: one axis alone or several,
// and with every option that has a tensor of its own.
func EmptyCases() []Case {
	var list []Case
	for n := 1; n < 32; n++ {
		c := Case{Batch: 2, Heads: 4, KeyHeads: 2, Sq: 7, Sk: 9, D: 8, Dv: 16, Seed: uint64(n), Layout: []Layout{BHSD, BSHD, Padded}[n%3]}
		for bit, size := range []*int{&c.Batch, &c.Heads, &c.Sq, &c.Sk} {
			if n>>bit&1 == 1 {
				*size = 0
			}
		}
		if n >= 16 { // no key heads either
			if c.Heads > 0 {
				continue
			}
			c.KeyHeads = 0
		}
		for _, options := range [][]Option{{Plain}, {Causal, Sinks, DLSE}, {BiasOver("BHQ"), Dropout}, {RowBiasOver("H"), ALiBi}, {NegativeScale, WindowOf(3, 3), BiasOver("Q"), SoftCap}} {
			c.Options = options
			list = append(list, c)
		}
	}
	return list
}

// HeadCounts are query heads and key heads: one each, grouped, and all query heads on one key head.
var HeadCounts = [][2]int{{2, 2}, {4, 2}, {3, 1}}

// Lengths are the pairs (Sq, Sk) of the design.
var Lengths = [][2]int{
	{1, 1}, {1, 239}, {3, 799}, {64, 128}, {127, 512}, {127, 513}, {128, 192}, {128, 217}, {113, 203}, {113, 211},
	{108, 256}, {239, 1}, {799, 3}, {256, 512}, {384, 256}, {512, 256}, {640, 128}, {1023, 1024}, {1024, 1023},
	{1024, 1024}, {2048, 2048}, {4096, 4096}, {4224, 4224},
}

// HeadSizes are the pairs (D, Dv) of the design.
var HeadSizes = [][2]int{
	{32, 32}, {40, 40}, {59, 59}, {64, 64}, {80, 80}, {96, 96}, {111, 111}, {128, 128}, {160, 160}, {192, 192},
	{224, 224}, {256, 256}, {192, 128},
}

// WideSizes are pairs (D, Dv) of heads of more than 256.
var WideSizes = [][2]int{
	{576, 512}, {320, 320}, {512, 512}, {257, 257}, {576, 576}, {384, 384}, {448, 256}, {288, 289}, {571, 128}, {64, 300}, {1024, 1024},
}

// PackedLens cuts sq and sk rows into n sequences of random lengths, each at least 1; sq and sk
// must be at least n.
func PackedLens(seed uint64, n, sq, sk int) (qLens, kvLens []int) {
	random := rand.New(rand.NewPCG(seed, 7))
	cut := func(total int) []int {
		lens := make([]int, n+1)
		for i := 1; i < n; i++ {
			lens[i] = lens[i-1] + 1 + random.IntN((total-lens[i-1]-(n-i))*2/(n-i+1)+1)
			lens[i] = min(lens[i], total-(n-i))
		}
		lens[n] = total
		return lens
	}
	return cut(sq), cut(sk)
}
