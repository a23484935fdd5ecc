package ring_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/kernels/ring"
)

// member is one of several ranks in this process, which hand each other their tensors.
type member struct {
	rank, size int
	mail       [][]chan []kernels.Tensor // by sender and receiver
	sent       *int                      // elements that this one has sent
}

func (m member) Rank() int { return m.rank }
func (m member) Size() int { return m.size }

func (m member) Exchange(to int, send []kernels.Tensor, from int, receive []kernels.Tensor) (kernels.Transfer, error) {
	var copies []kernels.Tensor
	for _, t := range send {
		own, err := cpu.New().Alloc(t.DType, t.Shape...)
		if err == nil {
			err = cpu.New().Copy(own, t)
		}
		if err != nil {
			return nil, err
		}
		copies = append(copies, own)
		*m.sent += t.Elements()
	}
	m.mail[m.rank][to] <- copies
	return arrival{func() error {
		came := <-m.mail[from][m.rank]
		if len(came) != len(receive) {
			return fmt.Errorf("rank %d sent %d tensors, %d are expected", from, len(came), len(receive))
		}
		for i, t := range receive {
			if !t.IsRowMajor() || !slices.Equal(t.Shape, came[i].Shape) {
				return fmt.Errorf("rank %d sent shape %v for %v", from, came[i].Shape, t.Shape)
			}
			if err := cpu.New().Copy(t, came[i]); err != nil {
				return err
			}
		}
		return nil
	}}, nil
}

type arrival struct{ join func() error }

func (a arrival) Join() error { return a.join() }

// everyone runs a function on each of several ranks.
func everyone(t *testing.T, size int, do func(m member) error) (sent []int) {
	t.Helper()
	mail := make([][]chan []kernels.Tensor, size)
	for i := range mail {
		mail[i] = make([]chan []kernels.Tensor, size)
		for j := range mail[i] {
			mail[i][j] = make(chan []kernels.Tensor, 4)
		}
	}
	sent = make([]int, size)
	errs := make([]error, size)
	var members sync.WaitGroup
	for rank := range size {
		members.Go(func() { errs[rank] = do(member{rank, size, mail, &sent[rank]}) })
	}
	members.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return sent
}

// sharedCase is a problem over a whole sequence.
type sharedCase struct {
	name             string
	batch, heads, kv int
	rows             int
	d, dv            int
	change           func(a *kernels.Attention)
	sinks            bool
	keyBatch         int
	transposed       bool // q, k and v are views of (batch, length, heads, size)
}

var sharedCases = []sharedCase{
	{name: "full"},
	{name: "causal", change: func(a *kernels.Attention) { a.Causal = kernels.CausalBottomRight }},
	{name: "causal from the top left, views", transposed: true, change: func(a *kernels.Attention) { a.Causal = kernels.CausalTopLeft }},
	{name: "grouped heads", heads: 4, kv: 2, d: 12, dv: 20, change: func(a *kernels.Attention) { a.Causal = kernels.CausalBottomRight }},
	{name: "one key head and a batch of keys for all", heads: 3, kv: 1, keyBatch: 1, change: func(a *kernels.Attention) { a.Causal = kernels.CausalBottomRight }},
	{name: "window", change: func(a *kernels.Attention) { a.Window = &kernels.Window{Left: 17, Right: 5} }},
	{name: "causal window", change: func(a *kernels.Attention) {
		a.Causal, a.Window = kernels.CausalBottomRight, &kernels.Window{Left: 30, Right: -1}
	}},
	{name: "window to the right", change: func(a *kernels.Attention) { a.Window = &kernels.Window{Left: -1, Right: 40} }},
	{name: "window beside the diagonal", change: func(a *kernels.Attention) { a.Window = &kernels.Window{Left: 9, Right: 3, Shift: -33} }},
	{name: "narrow window", change: func(a *kernels.Attention) { a.Window = &kernels.Window{Left: 1} }},
	{name: "soft cap and scale", change: func(a *kernels.Attention) { a.SoftCap, a.Scale, a.Causal = 2, 0.7, kernels.CausalBottomRight }},
	{name: "sinks", sinks: true, change: func(a *kernels.Attention) { a.Window = &kernels.Window{Left: 3, Right: 0, Shift: -20} }},
	{name: "slopes", change: func(a *kernels.Attention) { a.ALiBi, a.Causal = []float64{0.5, 0.03}, kernels.CausalBottomRight }},
	{name: "slopes both ways", change: func(a *kernels.Attention) { a.ALiBi = []float64{0.2, 0.01} }},
	{name: "dropout", change: func(a *kernels.Attention) {
		a.Dropout, a.Causal = kernels.Dropout{P: 0.3, Seed: 5, Step: 2}, kernels.CausalBottomRight
	}},
	{name: "packed", batch: 1, change: packed(0, 10, 11, 30, 30, 71, 96)},
	{name: "packed, one through all", batch: 1, change: packed(0, 3, 93, 96)},
	{name: "packed, rows behind", batch: 1, change: packed(0, 20, 41)},
	{name: "packed, full", batch: 1, change: func(a *kernels.Attention) { packed(0, 40, 70, 96)(a); a.Causal = kernels.NotCausal }},
	{name: "packed, window, sinks, rows behind", batch: 1, sinks: true, change: func(a *kernels.Attention) {
		packed(0, 55, 80)(a)
		a.Window = &kernels.Window{Left: 13, Right: -1}
	}},
	{name: "packed, dropout and slopes", batch: 1, change: func(a *kernels.Attention) {
		packed(0, 10, 47, 90)(a)
		a.ALiBi, a.Dropout = []float64{0.1, 0.02}, kernels.Dropout{P: 0.2, Seed: 9}
	}},
	{name: "nothing but empty sequences", batch: 1, change: packed(0, 0, 0)},
}

func packed(ends ...int) func(a *kernels.Attention) {
	return func(a *kernels.Attention) { a.QLens, a.KVLens, a.Causal = ends, ends, kernels.CausalBottomRight }
}

// values are those of a problem and of its gradients' inputs, in float64.
type values struct{ q, k, v, sinks, dO, dLSE []float64 }

func (c sharedCase) values() values {
	random := rand.New(rand.NewPCG(3, uint64(len(c.name))))
	draw := func(n int) []float64 {
		list := make([]float64, n)
		for i := range list {
			list[i] = float64(kernels.ToBFloat16(float32(random.NormFloat64())).Float32())
		}
		return list
	}
	return values{
		draw(c.batch * c.heads * c.rows * c.d), draw(c.keyBatch * c.kv * c.rows * c.d), draw(c.keyBatch * c.kv * c.rows * c.dv), draw(c.heads),
		draw(c.batch * c.heads * c.rows * c.dv), draw(c.batch * c.heads * c.rows),
	}
}

// complete puts the meaning of zeros in their place.
func (c sharedCase) complete() sharedCase {
	for at, usual := range map[*int]int{&c.batch: 2, &c.heads: 2, &c.rows: 96, &c.d: 16} {
		if *at == 0 {
			*at = usual
		}
	}
	for at, usual := range map[*int]int{&c.kv: c.heads, &c.dv: c.d, &c.keyBatch: c.batch} {
		if *at == 0 {
			*at = usual
		}
	}
	return c
}

// results are what a process has computed, in float64: (batch, heads, rows, ...).
type results struct{ tensors [6]kernels.Tensor }

var resultNames = [...]string{"o", "lse", "dq", "dk", "dv", "dsinks"}

// compute runs forward, δ and backward over some rows of a case, with ranks or alone.
func (c sharedCase) compute(dtype kernels.DType, x values, m member) (r results, err error) {
	b := cpu.New()
	held, err := ring.Held(m.rank, m.size, c.rows)
	if err != nil {
		return r, err
	}
	rows := c.rows / m.size
	load := func(data []float64, dtype kernels.DType, shape ...int) kernels.Tensor {
		whole := kernels.Of(data, shape...)
		shape = slices.Clone(shape)
		if len(shape) == 1 {
			t, allocErr := b.Alloc(dtype, shape...)
			err = errors.Join(err, allocErr, b.Copy(t, whole))
			return t
		}
		shape[2] = rows
		order := []int{0, 1, 2, 3}[:len(shape)]
		if c.transposed && len(shape) == 4 {
			shape[1], shape[2] = shape[2], shape[1]
			order[1], order[2] = 2, 1
		}
		t, allocErr := b.Alloc(dtype, shape...)
		t = t.Permute(order...)
		at := 0
		for _, part := range held {
			err = errors.Join(err, allocErr, b.Copy(t.Slice(2, at, at+part.Count), whole.Slice(2, part.From, part.From+part.Count)))
			at += part.Count
		}
		return t
	}
	a := &kernels.Attention{
		Q: load(x.q, dtype, c.batch, c.heads, c.rows, c.d), K: load(x.k, dtype, c.keyBatch, c.kv, c.rows, c.d), V: load(x.v, dtype, c.keyBatch, c.kv, c.rows, c.dv),
	}
	if c.sinks {
		a.Sinks = load(x.sinks, dtype.Wide(), c.heads)
	}
	if c.change != nil {
		c.change(a)
	}
	dO, dLSE := load(x.dO, dtype, c.batch, c.heads, c.rows, c.dv), load(x.dLSE, dtype.Wide(), c.batch, c.heads, c.rows)
	make := func(dtype kernels.DType, shape ...int) kernels.Tensor {
		t, allocErr := b.Alloc(dtype, shape...)
		err = errors.Join(err, allocErr, b.Fill(t, math.NaN()))
		return t
	}
	r.tensors = [...]kernels.Tensor{
		make(dtype, a.OutputShape()...), make(dtype.Wide(), a.Q.Shape[:3]...),
		make(dtype, a.Q.Shape...), make(dtype, a.K.Shape...), make(dtype, a.V.Shape...), make(dtype.Wide(), c.heads),
	}
	if err != nil {
		return r, err
	}
	out := kernels.AttentionOutputs{O: r.tensors[0], LSE: r.tensors[1]}
	delta := make(dtype.Wide(), a.Q.Shape[:3]...)
	g := kernels.AttentionGradients{DO: dO, LSE: out.LSE, Delta: delta, DQ: r.tensors[2], DK: r.tensors[3], DV: r.tensors[4]}
	if c.sinks {
		g.DSinks = r.tensors[5]
	}
	local := *a
	local.QLens, local.KVLens = nil, nil
	if m.size == 1 {
		return r, errors.Join(b.AttentionForward(a, out), b.AttentionDelta(a, out.O, dO, dLSE, g.Delta), b.AttentionBackward(a, g))
	}
	scratch := func(dtype kernels.DType, elements int) (kernels.Tensor, error) {
		t, err := b.Alloc(dtype, elements)
		return t, errors.Join(err, b.Fill(t, math.NaN()))
	}
	if err := ring.Forward(b, m, a, out, scratch); err != nil {
		return r, err
	}
	if err := b.AttentionDelta(&local, out.O, dO, dLSE, g.Delta); err != nil {
		return r, err
	}
	return r, ring.Backward(b, m, a, g, scratch)
}

// farthest compares a rank's rows with those of the whole: the largest difference, and the largest
// number. The rest of the whole's rows are compared by other ranks.
func (c sharedCase) farthest(t *testing.T, name string, part, whole kernels.Tensor, m member) (difference, most float64) {
	t.Helper()
	held, err := ring.Held(m.rank, m.size, c.rows)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, p := range held {
		mine, theirs := part, whole
		if len(part.Shape) > 1 {
			mine, theirs = part.Slice(2, at, at+p.Count), whole.Slice(2, p.From, p.From+p.Count)
		}
		at += p.Count
		own, other := numbers(t, mine), numbers(t, theirs)
		for i, x := range own {
			y := other[i]
			if math.IsInf(y, -1) && math.IsInf(x, -1) {
				continue
			}
			if math.IsNaN(x) != math.IsNaN(y) || math.IsInf(x, 0) {
				t.Fatalf("rank %d: %s: element %d is %v, of one process %v", m.rank, name, i, x, y)
			}
			difference, most = max(difference, math.Abs(x-y)), max(most, math.Abs(y))
		}
		if len(part.Shape) == 1 {
			break
		}
	}
	return difference, most
}

// numbers are a tensor's elements in row-major order.
func numbers(t *testing.T, x kernels.Tensor) []float64 {
	t.Helper()
	list := make([]float64, x.Elements())
	if err := cpu.New().Copy(kernels.Of(list, x.Shape...), x); err != nil {
		t.Fatal(err)
	}
	return list
}

// unfused is how far the same formulas are from exact results where every step is rounded to
// bfloat16.
func (c sharedCase) unfused(t *testing.T, x values, exact results) (far [len(resultNames)]float64) {
	t.Helper()
	round := func(x float32) float32 { return kernels.ToBFloat16(x).Float32() }
	m := reference.Arithmetic[float32]{Operand: round, Result: round}
	a := &kernels.Attention{
		Q: kernels.Of(x.q, c.batch, c.heads, c.rows, c.d), K: kernels.Of(x.k, c.keyBatch, c.kv, c.rows, c.d), V: kernels.Of(x.v, c.keyBatch, c.kv, c.rows, c.dv),
	}
	if c.sinks {
		a.Sinks = kernels.Of(x.sinks, c.heads)
	}
	if c.change != nil {
		c.change(a)
	}
	o, lse := m.Attention(a, nil)
	g := m.AttentionGrad(a, x.dO, x.dLSE, nil)
	for n, list := range [...][]float64{o, lse, g.DQ, g.DK, g.DV, g.DSinks} {
		for i, y := range numbers(t, exact.tensors[n]) {
			if i < len(list) && !math.IsInf(y, 0) {
				far[n] = max(far[n], math.Abs(list[i]-y))
			}
		}
	}
	return far
}

// Ranks compute what one process computes of the whole sequence: in float64 up to the order of
// sums, in float32 as near to that as one process, within a factor of two, and in bfloat16 as near
// as an unfused program in that type.
func TestRanksAttendAsOne(t *testing.T) {
	for number, c := range sharedCases {
		c := c.complete()
		x := c.values()
		exact, err := c.compute(kernels.F64, x, member{size: 1})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, dtype := range []kernels.DType{kernels.F64, kernels.F32, kernels.BF16} {
			one, err := c.compute(dtype, x, member{size: 1})
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			bounds := c.unfused(t, x, exact)
			// Beside the order of sums, in bfloat16: each part is rounded by itself.
			unit := map[kernels.DType]float64{kernels.F64: 1e-13, kernels.F32: 1e-6, kernels.BF16: 1. / 512}[dtype]
			for n, name := range resultNames {
				if dtype != kernels.BF16 {
					bounds[n], _ = c.farthest(t, name, one.tensors[n], exact.tensors[n], member{size: 1})
				}
			}
			sizes := []int{2, 3, 4}
			if testing.Short() {
				sizes = sizes[number%3:][:1]
			}
			for _, size := range sizes {
				t.Run(fmt.Sprintf("%s, %v, %d ranks", c.name, dtype, size), func(t *testing.T) {
					all := make([]results, size)
					everyone(t, size, func(m member) (err error) {
						all[m.rank], err = c.compute(dtype, x, m)
						return err
					})
					for n, name := range resultNames {
						if name == "dsinks" {
							if !c.sinks {
								continue
							}
							sum := make([]float64, c.heads)
							for _, r := range all {
								for h, x := range numbers(t, r.tensors[n]) {
									sum[h] += x
								}
							}
							for rank := range all {
								all[rank].tensors[n] = kernels.Of(sum, c.heads)
							}
						}
						for rank := range all {
							got, most := c.farthest(t, name, all[rank].tensors[n], exact.tensors[n], member{rank: rank, size: size})
							if !(got <= 2*bounds[n]+unit*max(1, most)) {
								t.Errorf("rank %d: %s is up to %.3g from exact, the bound is twice %.3g", rank, name, got, bounds[n])
							}
						}
					}
				})
			}
		}
	}
}

// What no rank sees does not travel: with a causal mask keys of late parts stay with those that
// need none of them, and with a narrow window a rank sends the rows next to another's alone. Keys
// and values travel forward and backward, and their gradients once.
func TestWhatTravels(t *testing.T) {
	for name, want := range map[string][]int{
		"causal":        {2*3*12 + 3*24, 2*(2*12+24) + 12 + 2*24, 2*(12+2*24) + 2*12 + 24, 2*3*24 + 3*12},
		"narrow window": {2*1 + 1, 2*2 + 2, 2*2 + 2, 2*1 + 1},
		"packed":        {2*2 + 13, 2*24 + 2, 2*(6+6+6+1) + 15, 54},
	} {
		c := sharedCases[slices.IndexFunc(sharedCases, func(s sharedCase) bool { return s.name == name })].complete()
		sent := everyone(t, len(want), func(m member) error {
			_, err := c.compute(kernels.F64, c.values(), m)
			return err
		})
		for rank := range sent {
			if row := c.batch * c.kv * (c.d + c.dv); sent[rank] != want[rank]*row {
				t.Errorf("%s: rank %d sent %v rows, want %d", name, rank, float64(sent[rank])/float64(row), want[rank])
			}
		}
	}
}

// What ranks cannot share is an error that names it.
func TestErrors(t *testing.T) {
	c := sharedCase{}.complete()
	x := c.values()
	for want, change := range map[string]func(a *kernels.Attention){
		"bias is given": func(a *kernels.Attention) { a.Bias = kernels.Of(make([]float64, 48), 1, 1, 1, 48) },
		"kvLengths is given, a sequence that ranks share has as many keys as queries": func(a *kernels.Attention) { a.KVLengths = []int{3, 4} },
		"k has 40 rows, a sequence that ranks share needs q's 48": func(a *kernels.Attention) {
			a.K, a.V = a.K.Slice(2, 0, 40), a.V.Slice(2, 0, 40)
		},
		"q has 47 rows, a rank needs an even number": func(a *kernels.Attention) {
			a.Q, a.K, a.V = a.Q.Slice(2, 0, 47), a.K.Slice(2, 0, 47), a.V.Slice(2, 0, 47)
		},
		"kvLens is [0 5], a sequence that ranks share needs qLens's [0 6]": func(a *kernels.Attention) {
			a.Q, a.K, a.V = a.Q.Slice(0, 0, 1), a.K.Slice(0, 0, 1), a.V.Slice(0, 0, 1)
			a.QLens, a.KVLens = []int{0, 6}, []int{0, 5}
		},
		"qLens ends at 97, q has 96 rows": func(a *kernels.Attention) {
			a.Q, a.K, a.V = a.Q.Slice(0, 0, 1), a.K.Slice(0, 0, 1), a.V.Slice(0, 0, 1)
			a.QLens, a.KVLens = []int{0, 97}, []int{0, 97}
		},
		"soft cap is -1": func(a *kernels.Attention) { a.SoftCap = -1 },
	} {
		a := &kernels.Attention{
			Q: kernels.Of(x.q, 2, 2, 48, 16), K: kernels.Of(x.k, 2, 2, 48, 16), V: kernels.Of(x.v, 2, 2, 48, 16),
		}
		change(a)
		if err := ring.Check(a, member{size: 2}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	for _, c := range []struct {
		rank, size, length int
		want               string
	}{{2, 2, 8, "rank is 2 of 2"}, {0, 0, 8, "rank is 0 of 0"}, {0, 2, 6, "the length is 6, it needs to be a multiple of 2·2 ranks"}} {
		if _, err := ring.Held(c.rank, c.size, c.length); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}
