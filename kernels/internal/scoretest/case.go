package scoretest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
)

// Sizes are those of a problem of attention.
type Sizes struct {
	Batch, Heads, KeyHeads, Sq, Sk, D, Dv int
	QLens, KVLens                         []int // of packed sequences
	Causal                                bool
	DLSE                                  bool
}

// extents are how many sequences there are, and how long the longest is in queries and keys.
func (s Sizes) extents() (sequences, queries, keys int) {
	if s.QLens == nil {
		return s.Batch, s.Sq, s.Sk
	}
	for n := 1; n < len(s.QLens); n++ {
		queries, keys = max(queries, s.QLens[n]-s.QLens[n-1]), max(keys, s.KVLens[n]-s.KVLens[n-1])
	}
	return len(s.QLens) - 1, max(1, queries), max(1, keys)
}

// Case is a program and a problem of attention to compute with it.
type Case struct {
	Seed uint64
	Sizes
	*Program
}

// String is the case as one would write it down.
func (c *Case) String() string {
	return fmt.Sprintf("scoretest seed %d: %+v\n%s", c.Seed, c.Sizes, c.Program)
}

// Draw draws the case of a seed, in which most pairs can be compared. Sizes are at most as large as
// the blocks that the CPU's kernels work on, now and then a little larger.
func Draw(seed uint64) *Case {
	for stream := uint64(0); ; stream++ {
		r := rand.New(rand.NewPCG(seed, 1000+stream))
		c := &Case{Seed: seed, Sizes: drawSizes(r)}
		c.Program = drawProgram(r, c.Sizes)
		c.bound()
		if newField(c, Float32).hide() <= 0.5 && c.isValid() {
			return c
		}
	}
}

// isValid reports whether kernels take the problem: a number that the program comes to may be none,
// and an index may come to a number of the pair for which its table is too short.
func (c *Case) isValid() bool {
	if c.Score == None && c.Mask == None {
		return false
	}
	p, err := newField(c, Float32).problem()
	return err == nil && p.Validate() == nil
}

func drawSizes(r *rand.Rand) Sizes {
	heads := [][2]int{{1, 1}, {2, 1}, {2, 2}, {4, 2}}[r.IntN(4)]
	length := func() int {
		if r.IntN(12) == 0 {
			return 90 + r.IntN(40)
		}
		return 1 + r.IntN(38)
	}
	s := Sizes{Batch: 1 + r.IntN(2), Heads: heads[0], KeyHeads: heads[1], Sq: length(), Sk: length(), D: 1 + r.IntN(9), Dv: 1 + r.IntN(5),
		Causal: r.IntN(4) == 0, DLSE: r.IntN(2) == 0}
	if r.IntN(4) == 0 {
		s.Batch = 1
		cut := func(n int) []int {
			lens := []int{0, r.IntN(n + 1), n}
			slices.Sort(lens)
			return lens
		}
		s.QLens, s.KVLens = cut(s.Sq), cut(s.Sk)
	}
	return s
}

// bound wraps a score that is so large that its probabilities are 0 and 1 alone, by what an exact
// interpreter finds.
func (c *Case) bound() {
	const most = 12
	if c.Score == None {
		return
	}
	f := newField(c, exactly)
	largest := 0.0
	f.eachPair(func(at pairAt, s real, visible bool) {
		if s.known() && !math.IsInf(s.x, 0) {
			largest = max(largest, math.Abs(s.x))
		}
	})
	if largest <= most {
		return
	}
	add := func(n Node) int {
		n.Type = score.Float
		c.Nodes = append(c.Nodes, n)
		return len(c.Nodes) - 1
	}
	number := func(x float64) int { return add(Node{Op: Number, Value: x}) }
	switch s := c.Score; c.Seed % 4 {
	case 0:
		c.Score = add(Node{Op: Mul, Args: []int{add(Node{Op: Tanh, Args: []int{s}}), number(4)}})
	case 1:
		c.Score = add(Node{Op: Max, Args: []int{add(Node{Op: Min, Args: []int{s, number(5)}}), number(-5)}})
	case 2:
		if factor := float64(float32(most / 2 / largest)); factor > 1e-12 {
			c.Score = add(Node{Op: Mul, Args: []int{s, number(factor)}})
			break
		}
		c.Score = add(Node{Op: Sigmoid, Args: []int{s}})
	default:
		if largest < 1e12 {
			c.Score = add(Node{Op: Div, Args: []int{s, number(math.Ceil(largest / 4))}})
			break
		}
		c.Score = add(Node{Op: Sigmoid, Args: []int{s}})
	}
}

// Arithmetic is what a backend computes in.
type Arithmetic struct {
	Name  string
	DType kernels.DType // of q, k, v and their gradients
	Wide  bool          // tables of floats have DType's wider type
	// Round is what the values of tensors survive; nil for all that DType holds.
	Round func(float64) float64

	Unit      float64 // the rounding of scores, of sums and of what the program computes
	Functions float64 // a bound of the error of exponentials and the like, beside values of about 1
	Operands  float64 // the rounding of probabilities and dS on the way into a product
	Results   float64 // the rounding of o, dq, dk and dv
	Slopes    float64 // of the derivatives of a score
}

// exactly is an arithmetic whose rounding is nothing.
var exactly = Arithmetic{Name: "exact", DType: kernels.F64, Unit: 1e-16, Functions: 1e-15}

// The arithmetics of the CPU. An operation counts as four roundings: divisions become products,
// sums change their order, and what is fused is rounded once.
var (
	Float64  = Arithmetic{Name: "float64", DType: kernels.F64, Unit: 0x1p-51, Functions: 0x1p-48}
	Float32  = Arithmetic{Name: "float32", DType: kernels.F32, Unit: 0x1p-22, Functions: 0x1p-19}
	BFloat16 = Arithmetic{Name: "bfloat16", DType: kernels.BF16, Unit: 0x1p-22, Functions: 0x1p-19, Operands: 0x1p-8, Results: 0x1p-8}
	Float16  = Arithmetic{Name: "float16", DType: kernels.F16, Wide: true, Unit: 0x1p-22, Functions: 0x1p-19, Operands: 0x1p-11, Results: 0x1p-11}
)

func (m Arithmetic) rounding() rounding {
	r := rounding{unit: m.Unit, functions: m.Functions, least: 1e-36, most: 1e36}
	if m.DType == kernels.F64 {
		r.least, r.most = 1e-290, 1e290
	}
	return r
}

// store makes a tensor on the host.
func store(dtype kernels.DType, values []float64, shape ...int) kernels.Tensor {
	n := len(values)
	var t kernels.Tensor
	switch dtype {
	case kernels.F64:
		return kernels.Of(slices.Clone(values), shape...)
	case kernels.F32:
		t = kernels.Of(make([]float32, max(1, n)), shape...)
	case kernels.BF16:
		t = kernels.Of(make([]kernels.BFloat16, max(1, n)), shape...)
	case kernels.F16:
		t = kernels.Of(make([]kernels.Float16, max(1, n)), shape...)
	case kernels.I32:
		t = kernels.Of(make([]int32, max(1, n)), shape...)
		for i, x := range values {
			kernels.Host[int32](t)[i] = int32(x)
		}
		return t
	case kernels.I64:
		t = kernels.Of(make([]int64, max(1, n)), shape...)
		for i, x := range values {
			kernels.Host[int64](t)[i] = int64(x)
		}
		return t
	}
	kernels.CopyHost(t, kernels.Of(values, shape...))
	return t
}

// load is what a tensor on the host holds.
func load(t kernels.Tensor) []float64 {
	values := make([]float64, t.Elements())
	kernels.CopyHost(kernels.Of(values, t.Shape...), t)
	return values
}

// field is a case with its inputs, computed pair by pair.
type field struct {
	*Case
	Arithmetic
	rounding
	*interpreter
	q, k, v, dO, dLSE []float64 // row-major
	scale             float64
	sequences         []kernels.Sequence
	hidden            map[pairAt]bool // pairs for which rounding decides something
}

// pairAt says which pair: sequence, head, query and key.
type pairAt struct{ sequence, head, i, j int }

func newField(c *Case, m Arithmetic) *field {
	r := rand.New(rand.NewPCG(c.Seed, 7))
	f := &field{Case: c, Arithmetic: m, rounding: m.rounding(), scale: 1 / math.Sqrt(float64(c.D)), hidden: map[pairAt]bool{}}
	f.interpreter = newInterpreter(c.Program, f.rounding)
	draw := func(n int) []float64 {
		list := make([]float64, n)
		for i := range list {
			// Values that float16 and bfloat16 hold, so that one case is the same problem in all
			// types.
			list[i] = float64(kernels.ToBFloat16(float32(r.NormFloat64())).Float32())
		}
		return list
	}
	f.q, f.k = draw(c.Batch*c.Heads*c.Sq*c.D), draw(c.Batch*c.KeyHeads*c.Sk*c.D)
	f.v, f.dO = draw(c.Batch*c.KeyHeads*c.Sk*c.Dv), draw(c.Batch*c.Heads*c.Sq*c.Dv)
	f.dLSE = draw(c.Batch * c.Heads * c.Sq)
	a := kernels.Attention{Q: kernels.Contiguous(nil, kernels.F64, c.Batch, c.Heads, c.Sq, c.D),
		K:       kernels.Contiguous(nil, kernels.F64, c.Batch, c.KeyHeads, c.Sk, c.D),
		Lengths: kernels.Lengths{QLens: c.QLens, KVLens: c.KVLens}}
	f.sequences = a.Sequences()
	return f
}

// dot is a sum of products.
func dot(x, y []float64) (sum, size float64) {
	for n := range x {
		sum += x[n] * y[n]
		size += math.Abs(x[n] * y[n])
	}
	return sum, size
}

// row is a vector of a tensor (batch, heads, length, size).
func row(list []float64, heads, length, size, b, h, i int) []float64 {
	return list[((b*heads+h)*length+i)*size:][:size]
}

// eachPair interprets the program for all pairs that the case's causal mask shows, and calls do
// with the score and whether the program's mask shows the pair, before the interpreter goes on.
func (f *field) eachPair(do func(at pairAt, s real, visible bool)) {
	for _, s := range f.sequences {
		for h := range f.Heads {
			for i := range s.Sq {
				for j := range s.Sk {
					if f.Causal && j > i+s.Sk-s.Sq {
						continue
					}
					f.pair(s, pairAt{s.Index, h, i, j}, do)
				}
			}
		}
	}
}

func (f *field) pair(s kernels.Sequence, at pairAt, do func(at pairAt, s real, visible bool)) {
	keyHead := at.head / (f.Heads / f.KeyHeads)
	q := row(f.q, f.Heads, f.Sq, f.D, s.Batch, at.head, s.Q0+at.i)
	k := row(f.k, f.KeyHeads, f.Sk, f.D, s.KeyBatch, keyHead, s.K0+at.j)
	sum, size := dot(q, k)
	raw := f.result(f.scale*sum, float64(f.D)*f.unit*f.scale*size, 0)
	f.run(place{s.Index, at.head, keyHead, at.i, at.j, s.Sq, s.Sk}, raw)
	changed, visible := raw, true
	if f.Program.Score != None {
		changed = f.values[f.Program.Score].real
	}
	if f.Program.Mask != None {
		m := f.values[f.Program.Mask]
		if visible = m.bool; !m.sure {
			changed = unknown
		}
	}
	do(at, changed, visible)
}

// hide finds the pairs for which rounding decides a comparison, or makes so large an error that
// nothing can be asked, and those whose score or derivative is not finite. Problems hide them by a
// table, whatever the drawn mask says. The share of all is returned.
func (f *field) hide() float64 {
	const coarse, large = 1 << 17, 1e5 // errors in units, values
	bad := func(x real) bool {
		return !x.known() || !(math.Abs(x.x) < large) || x.e > coarse*f.unit*(1+math.Abs(x.x))
	}
	pairs := 0
	f.eachPair(func(at pairAt, s real, visible bool) {
		pairs++
		sure := f.Program.Mask == None || f.values[f.Program.Mask].sure
		if sure && !visible {
			return
		}
		byScore, lookups := f.derive()
		hidden := !sure || bad(s) || bad(byScore)
		for _, l := range lookups {
			hidden = hidden || bad(l.slope)
		}
		if hidden {
			f.hidden[at] = true
		}
	})
	return float64(len(f.hidden)) / float64(max(1, pairs))
}
