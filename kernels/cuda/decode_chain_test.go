//go:build gpu

package cuda_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/packed"
)

// chainCase is a model of which a recording holds one token's products and attentions.
type chainCase struct {
	layers, dim, heads, keyHeads, hidden int
	vocabulary, capacity, held           int
	size                                 int           // of a head, 64 if left out
	wide, biased                         bool          // gamma and biases are float32; there are biases
	plain, transposed                    bool          // nothing is turned; weights lie (columns, depth)
	packed                               kernels.DType // of the layers' weights, none if left out
	rows                                 int           // texts, of which each holds a token less than the one before; 1 if left out
}

// chainTest is that model on the device. Layers write into the same tensors.
type chainTest struct {
	*rowwiseTest
	chainCase
	dtype    kernels.DType
	x        field
	qkv, o   field
	sums     [2]field
	inner    field
	logits   field
	keys     []field
	added    []field
	copies   []kernels.Tensor // of keys and values as they were
	states   []kernels.Tensor
	products [][]kernels.RowsProduct // of a layer: q, k and v; o; gate and up; down
	head     kernels.RowsProduct
}

func newChainTest(t *testing.T, dtype kernels.DType, c chainCase) *chainTest {
	r := &chainTest{rowwiseTest: newRowwiseTest(t, "%v %+v", dtype, c), chainCase: c, dtype: dtype}
	wide := dtype
	if c.wide {
		wide = kernels.F32
	}
	// Weights repeat some numbers, of which there is no multiple of a row's.
	numbers := r.filled(dtype, 0, func() float64 { return r.random.NormFloat64() / 64 }, 1<<18-7).Tensor
	weight := func(depth, columns int) kernels.Tensor {
		const gap = 8
		shape := []int{depth, columns + gap}
		if c.transposed {
			shape = []int{columns, depth + gap}
		}
		w := alloc(t, r.d, dtype, shape...)
		all := w.Reshape(w.Elements())
		for at := 0; at < w.Elements(); {
			from := r.random.IntN(1000)
			to := min(w.Elements(), at+numbers.Elements()-from)
			r.must(r.d.Copy(all.Slice(0, at, to), numbers.Slice(0, from, from+to-at)))
			at = to
		}
		if w = w.Slice(1, 0, shape[1]-gap); c.transposed {
			w = w.Permute(1, 0)
		}
		return w
	}
	packs := c.packed.IsPacked()
	product := func(depth int, columns ...int) (p kernels.RowsProduct) {
		for _, n := range columns {
			if packs {
				p.Weights = append(p.Weights, r.packedNumbers(c.packed, n, depth).Permute(1, 0))
			} else {
				p.Weights = append(p.Weights, weight(depth, n))
			}
			if c.biased {
				p.Biases = append(p.Biases, r.normals(wide, 0, n).Tensor)
			}
		}
		return p
	}
	norm := func() *kernels.RowNorm { return &kernels.RowNorm{Gamma: r.normals(wide, 0, c.dim).Tensor, Eps: 1e-5} }
	r.size, r.rows = max(64, r.size), max(1, r.rows)
	size, items, n := r.size, 1+r.rows, r.rows
	own, others := c.heads*size, c.keyHeads*size
	r.x, r.qkv, r.o, r.inner = r.normals(dtype, 0, n, c.dim), r.empty(dtype, 0, n, own+2*others), r.empty(dtype, 0, n, own), r.empty(dtype, 0, n, c.hidden)
	r.sums[0], r.sums[1], r.logits = r.empty(dtype, 0, n, c.dim), r.empty(dtype, 0, n, c.dim), r.empty(kernels.F32, 0, n, c.vocabulary)
	for range c.layers {
		list := []kernels.RowsProduct{product(c.dim, own, others, others), product(own, c.dim), product(c.dim, c.hidden, c.hidden), product(c.hidden, c.dim)}
		list[0].Norm, list[2].Norm, list[2].Gated = norm(), norm(), true
		r.products = append(r.products, list)
		r.keys, r.added = append(r.keys, r.normals(dtype, 8, items, c.capacity, c.keyHeads, size)), append(r.added, r.normals(dtype, 0, items, c.capacity, c.keyHeads, size))
		r.states = append(r.states, alloc(t, r.d, kernels.I32, 1+2*items))
		for _, f := range []field{r.keys[len(r.keys)-1], r.added[len(r.added)-1]} {
			r.copies = append(r.copies, alloc(t, r.d, dtype, f.Shape...))
			r.must(r.d.Copy(r.copies[len(r.copies)-1], f.Tensor))
		}
	}
	packs = false
	r.head = product(c.dim, c.vocabulary)
	r.head.Norm = norm()
	return r
}

// packedNumbers is a packed matrix of any numbers. Some of its rows are alike.
func (r *chainTest) packedNumbers(dtype kernels.DType, rows, columns int) kernels.Tensor {
	r.Helper()
	row, err := packed.RowOf(dtype, columns)
	r.must(err)
	several := make([]byte, 61*row.Bytes)
	for i := range several {
		several[i] = byte(r.random.Uint32())
	}
	largest := 128.0
	if dtype == kernels.Int4 {
		largest = 8
	}
	for n := range 61 {
		for at := row.Scales; at < row.Bytes; at += 2 {
			scale := uint16(kernels.ToFloat16(float32((r.random.Float64() - 0.5) / largest / math.Sqrt(float64(columns)))))
			several[n*row.Bytes+at], several[n*row.Bytes+at+1] = byte(scale), byte(scale>>8)
		}
	}
	all := bytes.Repeat(several, (rows+60)/61)[:rows*row.Bytes]
	memory, err := r.d.Upload(kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(all)), kernels.I32, len(all)/4))
	r.must(err)
	t := kernels.Contiguous(memory.Data, dtype, rows, columns)
	t.Owner = memory.Owner
	return t
}

// begin gives the caches the contents that they had, and a number of tokens. The last text may
// rest, and keeps what it has.
func (r *chainTest) begin(held int, rests bool) {
	r.Helper()
	state := make([]int32, 3+2*r.rows)
	state[0] = 1
	for text := range r.rows {
		state[2+text], state[3+r.rows+text] = r.tokens(held, text), 1
	}
	if rests {
		state[len(state)-1] = 0
	}
	for n := range r.states {
		r.must(r.d.Copy(r.states[n], kernels.Of(state, len(state))))
		r.must(r.d.Copy(r.keys[n].Tensor, r.copies[2*n]))
		r.must(r.d.Copy(r.added[n].Tensor, r.copies[2*n+1]))
	}
}

// tokens are those that a text holds, where the first holds so many.
func (r *chainTest) tokens(held, text int) int32 { return int32(max(0, held-text)) }

// token computes all products and attentions of one token.
func (r *chainTest) token() error {
	x := r.x.Tensor
	multiply := func(p kernels.RowsProduct, x, residual, c kernels.Tensor) error {
		p.X, p.Residual = x, residual
		return r.d.RowsProductForward(&p, c)
	}
	ofHeads := func(row kernels.Tensor) kernels.Tensor {
		return row.Unflatten(1, row.Shape[1]).Unflatten(2, r.size).Permute(0, 2, 1, 3)
	}
	part := func(from, heads int) kernels.Tensor {
		return ofHeads(r.qkv.Tensor.Slice(1, from*r.size, (from+heads)*r.size))
	}
	for n, products := range r.products {
		if err := multiply(products[0], x, kernels.Tensor{}, r.qkv.Tensor); err != nil {
			return err
		}
		a := kernels.CachedAttention{Keys: r.keys[n].Tensor.Permute(0, 2, 1, 3), Values: r.added[n].Tensor.Permute(0, 2, 1, 3), State: r.states[n]}
		a.Causal, a.RoPE = kernels.CausalBottomRight, &kernels.RoPE{Offset: 3, Amplitude: 1.25}
		if r.plain {
			a.RoPE = nil
		}
		a.Q, a.K, a.V = part(0, r.heads), part(r.heads, r.keyHeads), part(r.heads+r.keyHeads, r.keyHeads)
		if err := r.d.CachedAttentionForward(&a, ofHeads(r.o.Tensor)); err != nil {
			return err
		}
		if err := multiply(products[1], r.o.Tensor, x, r.sums[0].Tensor); err != nil {
			return err
		}
		if err := multiply(products[2], r.sums[0].Tensor, kernels.Tensor{}, r.inner.Tensor); err != nil {
			return err
		}
		if err := multiply(products[3], r.inner.Tensor, r.sums[0].Tensor, r.sums[1].Tensor); err != nil {
			return err
		}
		x = r.sums[1].Tensor
	}
	return multiply(r.head, x, kernels.Tensor{}, r.logits.Tensor)
}

// leaves are the rows that a token of each text leaves.
func (r *chainTest) leaves(rests bool) (list [][]float64) {
	for _, f := range []field{r.logits, r.sums[1], r.sums[0], r.inner, r.o, r.qkv} {
		list = append(list, r.rowwiseTest.values(f))
	}
	if rests { // what the last one attends to means nothing
		for n, row := range list {
			list[n] = row[:len(row)/r.rows*(r.rows-1)]
		}
	}
	return list
}

// results are the rows, and the caches.
func (r *chainTest) results(rests bool) (list [][]float64) {
	list = r.leaves(rests)
	for _, f := range slices.Concat(r.keys, r.added) {
		list = append(list, r.rowwiseTest.values(f))
	}
	return list
}

// The products and attentions of one row that a recording has one behind the other become one
// kernel, which gives what they give, the same bits in each launch: whatever the sizes, the length
// of the cache, and the layout of the weights.
func TestDecodeChain(t *testing.T) {
	for n, c := range []chainCase{
		{layers: 3, dim: 2048, heads: 32, keyHeads: 4, hidden: 5632, vocabulary: 8000, capacity: 1200, held: 1024},
		{layers: 2, dim: 1024, heads: 8, keyHeads: 8, hidden: 2816, vocabulary: 4000, capacity: 300, held: 31, biased: true, wide: true},
		{layers: 2, dim: 1160, heads: 16, keyHeads: 2, hidden: 3000, vocabulary: 5000, capacity: 5000, held: 4500, transposed: true},
		{layers: 4, dim: 2048, heads: 32, keyHeads: 8, hidden: 8192, vocabulary: 3000, capacity: 100, held: 0, plain: true, biased: true},
		{layers: 2, dim: 1536, heads: 12, keyHeads: 2, hidden: 8960, vocabulary: 3000, capacity: 100, held: 63, wide: true, transposed: true},
		{layers: 3, dim: 4096, size: 128, heads: 32, keyHeads: 8, hidden: 14336, vocabulary: 8000, capacity: 1200, held: 1024},
		{layers: 2, dim: 2048, size: 128, heads: 16, keyHeads: 2, hidden: 6144, vocabulary: 3000, capacity: 5000, held: 4500, biased: true, transposed: true},
		{layers: 2, dim: 1536, size: 128, heads: 12, keyHeads: 2, hidden: 8960, vocabulary: 3000, capacity: 100, held: 31, wide: true, plain: true},
		{layers: 2, dim: 4096, size: 128, heads: 32, keyHeads: 8, hidden: 14336, vocabulary: 8000, capacity: 1200, held: 1024, packed: kernels.Int8},
		{layers: 2, dim: 2048, heads: 32, keyHeads: 4, hidden: 5632, vocabulary: 3000, capacity: 100, held: 40, packed: kernels.Int4, wide: true},
		{layers: 2, dim: 1024, heads: 16, keyHeads: 16, hidden: 2816, vocabulary: 2000, capacity: 3400, held: 3300},
		{layers: 2, dim: 2048, size: 128, heads: 16, keyHeads: 16, hidden: 2816, vocabulary: 2000, capacity: 3400, held: 3300, packed: kernels.Int8},
		{layers: 2, dim: 1184, size: 128, heads: 12, keyHeads: 2, hidden: 3104, vocabulary: 3000, capacity: 100, held: 31, packed: kernels.Int8, biased: true},
		{layers: 2, dim: 1184, heads: 16, keyHeads: 2, hidden: 3104, vocabulary: 3000, capacity: 100, held: 31, packed: kernels.Int4, biased: true},
		{layers: 2, dim: 4096, size: 128, heads: 32, keyHeads: 8, hidden: 14336, vocabulary: 3000, capacity: 200, held: 100, packed: kernels.Int4, biased: true},
		{layers: 3, dim: 2048, heads: 32, keyHeads: 4, hidden: 5632, vocabulary: 8000, capacity: 1200, held: 1034, rows: 16},
		{layers: 2, dim: 1024, heads: 8, keyHeads: 8, hidden: 2816, vocabulary: 4000, capacity: 300, held: 33, biased: true, wide: true, rows: 5},
		{layers: 2, dim: 1160, heads: 16, keyHeads: 2, hidden: 2008, vocabulary: 5000, capacity: 5000, held: 4500, transposed: true, rows: 2},
		{layers: 2, dim: 1536, size: 128, heads: 12, keyHeads: 2, hidden: 2816, vocabulary: 3000, capacity: 100, held: 66, wide: true, plain: true, rows: 9},
		{layers: 2, dim: 2048, size: 128, heads: 16, keyHeads: 8, hidden: 4096, vocabulary: 8000, capacity: 200, held: 150, rows: 16},
	} {
		for _, dtype := range []kernels.DType{kernels.BF16, kernels.F16} {
			t.Run(fmt.Sprintf("%v/%d", dtype, n), func(t *testing.T) { newChainTest(t, dtype, c).compare() })
		}
	}
}

// compare runs the chain of a token beside its calls.
func (r *chainTest) compare() {
	if !r.d.HasMaps() {
		r.Skip("this GPU has no kernel for it")
	}
	var launched []string
	r.d.Trace(func(kernel string) { launched = append(launched, kernel) })
	recording, err := r.d.Capture(r.token)
	r.d.Trace(nil)
	r.must(err)
	if len(launched) != 1 || !strings.HasPrefix(launched[0], "decode_chain") {
		r.Fatalf("%s: %v were recorded, it needs to be one kernel", r.name, launched)
	}
	for step := range 3 {
		held, rests := r.held+step, step == 2
		r.begin(held, rests)
		r.must(r.token())
		want := r.results(rests)
		r.begin(held, rests)
		r.must(recording.Launch())
		got := r.results(rests)
		for n := range want {
			if len(want[n]) > 0 {
				r.close(step, n, got[n], want[n])
			}
		}
		for n, state := range r.states {
			now := kernels.Of(make([]int32, state.Elements()), state.Elements())
			r.must(r.d.Copy(now, state))
			want := make([]int32, 1+r.rows)
			for text := range r.rows {
				want[1+text] = r.tokens(held, text) + 1
			}
			if rests {
				want[r.rows]--
			}
			if list := kernels.Host[int32](now); !slices.Equal(list[1:2+r.rows], want) {
				r.Fatalf("%s: step %d: layer %d holds %v tokens, it needs to be %d", r.name, step, n, list[1:2+r.rows], want)
			}
		}
		for again := range 4 {
			r.begin(held, rests)
			r.must(recording.Launch())
			for n, list := range r.leaves(rests) {
				if !slices.EqualFunc(list, got[n], func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
					r.Fatalf("%s: step %d: result %d of launch %d has other bits", r.name, step, n, again)
				}
			}
		}
	}
}

// close compares a result of the chain with that of its calls. What is rounded one way or the other
// grows from layer to layer.
func (r *chainTest) close(step, result int, got, want []float64) {
	r.Helper()
	bound := 0.02
	if r.dtype == kernels.F16 {
		bound /= 8
	}
	var apart, size float64
	for i := range want {
		if math.IsNaN(want[i]) && math.IsNaN(got[i]) {
			continue
		}
		apart, size = apart+(got[i]-want[i])*(got[i]-want[i]), size+want[i]*want[i]
	}
	if e := math.Sqrt(apart / size); !(e <= bound) {
		r.Fatalf("%s: step %d: result %d: the difference is %.3g of what the calls give, it may be %.3g", r.name, step, result, e, bound)
	} else {
		r.Logf("%s: step %d: result %d: %.3g", r.name, step, result, e)
	}
}
