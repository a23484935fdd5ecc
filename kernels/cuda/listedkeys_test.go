//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	. "github.com/stheno-ml/stheno/kernels/internal/attentiontest"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// listing computes problems whose mask is a table of single keys for each key head, as attention to
// the keys that the table lists.
type listing struct {
	mirrored
	dtype         kernels.DType // of the lists
	deterministic bool
}

// problem makes lists of a table. Lists are as long as the longest, with −1 in between.
func (l listing) problem(c *copied, a *kernels.Attention) (*kernels.ListedAttention, error) {
	grid, shape := kernels.Host[int32](a.Tables[0]), a.Tables[0].Shape
	batch, keyHeads, queries, keys := shape[0], a.K.Shape[1], shape[2], shape[3]
	var lists [][]int
	longest := 0
	for b := range batch {
		for h := range keyHeads {
			for i := range queries {
				var list []int
				for j, shown := range grid[((b*shape[1]+h)*queries+i)*keys:][:keys] {
					if shown != 0 {
						list = append(list, j)
					}
				}
				lists, longest = append(lists, list), max(longest, len(list))
			}
		}
	}
	random := rand.New(rand.NewPCG(3, uint64(longest)))
	longest += 2
	host := hostTensor(l.dtype, len(lists)*longest)
	for n, list := range lists {
		for len(list) < longest {
			list = append(list, -1)
		}
		random.Shuffle(longest, func(i, j int) { list[i], list[j] = list[j], list[i] })
		for i, key := range list {
			kernels.FillHost(host.Slice(0, n*longest+i, n*longest+i+1), float64(key))
		}
	}
	there, err := l.Alloc(l.dtype, batch, keyHeads, queries, longest)
	if err == nil {
		err = l.Copy(there, host.Reshape(there.Shape...))
	}
	return &kernels.ListedAttention{Q: c.typed(a.Q), K: c.typed(a.K), V: c.typed(a.V), Lists: there, Scale: a.Scale, Deterministic: l.deterministic}, err
}

func (l listing) AttentionForward(a *kernels.Attention, out kernels.AttentionOutputs) error {
	c, err := l.newAttention([]kernels.Tensor{a.Q, a.K, a.V, out.O}, nil, []kernels.Tensor{out.LSE})
	if err != nil {
		return err
	}
	p, err := l.problem(c, a)
	if err == nil {
		err = l.ListedForward(p, kernels.AttentionOutputs{O: c.typed(out.O), LSE: c.on(out.LSE)})
	}
	return errors.Join(err, c.download())
}

func (l listing) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) error {
	c, err := l.newAttention([]kernels.Tensor{a.Q, a.K, a.V, g.DO, g.DQ, g.DK, g.DV}, nil, []kernels.Tensor{g.LSE, g.Delta})
	if err != nil {
		return err
	}
	p, err := l.problem(c, a)
	if err == nil {
		err = l.ListedBackward(p, kernels.AttentionGradients{DO: c.typed(g.DO), LSE: c.on(g.LSE), Delta: c.on(g.Delta), DQ: c.typed(g.DQ), DK: c.typed(g.DK), DV: c.typed(g.DV)})
	}
	return errors.Join(err, c.download())
}

// Lists shorter and longer than a tile and a few, some empty; groups of one head, of a tile's rows,
// of several tiles' and of more than a block has; heads of every kernel's size and of others; keys
// that batch items share.
func TestListedKeys(t *testing.T) {
	d := device(t)
	for n, group := range []int{1, 3, 16, 20, 33, 70, 150} {
		for m, size := range [][2]int{{64, 64}, {24, 17}, {128, 128}, {96, 40}, {256, 256}, {130, 200}} {
			for k, share := range []float64{0.1, 0.7} {
				for i, a := range arithmetics[:5] {
					if (n+m+k+i)%4 != 0 && !*grid {
						continue
					}
					c := Case{Batch: 1 + m%2, Heads: 2 * group, KeyHeads: 2, Sq: 1 + 60/(4+group), Sk: 150 + 31*n, D: size[0], Dv: size[1],
						Options: []Option{ListedBlocksByKeyHead(1, 1, share, nil)}, Seed: uint64(10*n + m), Layout: []Layout{BHSD, BSHD, Padded}[(n+k)%3]}
					if (n+k)%2 == 0 {
						c.SharedKeys = true
					}
					if n%2 == 0 {
						c.Options = append(c.Options, DLSE)
					}
					if m == 1 {
						c.Options = append(c.Options, NegativeScale)
					}
					t.Run(a.name+"/"+c.String(), func(t *testing.T) {
						t.Parallel()
						p := a.newProblem(c)
						Expect(p, a.rounding)
						oneAtATime.Lock()
						defer oneAtATime.Unlock()
						if a.anyDevice {
							defer d.WithoutMaps()()
						}
						for name, way := range cuda.WaysOfLists {
							restore := cuda.WayOfLists(way)
							err := p.Run(listing{mirrored{Device: d, half: a.half}, []kernels.DType{kernels.I32, kernels.I64}[k], (n+m+k)%2 == 0})
							restore()
							if err == nil && a.rounding != nil {
								err = CheckRounded(p, a.rounding)
							} else if err == nil {
								err = p.Check()
							}
							if err != nil {
								t.Errorf("%s: %v", name, err)
							}
							if a.anyDevice || a.half == kernels.NoDType {
								break // there is one way
							}
						}
					})
				}
			}
		}
	}
}

// Lists that all heads or all batch items share, with gaps between them, keys that are listed
// several times, lists without a key, and none at all.
func TestListedKeysOfLists(t *testing.T) {
	for n, c := range []struct {
		batch, keyBatch, heads, keyHeads, rows, length, d, dv, n int
		lists                                                    [2]int
		gap                                                      int
	}{
		{1, 1, 1, 1, 1, 1, 1, 1, 1, [2]int{1, 1}, 0}, {2, 2, 4, 2, 70, 40, 24, 17, 9, [2]int{2, 2}, 3}, {2, 1, 8, 1, 33, 300, 16, 16, 150, [2]int{1, 1}, 0},
		{1, 1, 20, 2, 5, 700, 64, 40, 257, [2]int{1, 2}, 4}, {3, 1, 3, 3, 130, 20, 33, 8, 4, [2]int{3, 1}, 0}, {2, 2, 2, 1, 6, 10, 8, 8, 0, [2]int{2, 1}, 0},
	} {
		r := newRowwiseTest(t, "%+v", c)
		q, dO := r.normals(kernels.F32, c.gap, c.batch, c.heads, c.rows, c.d), r.normals(kernels.F32, c.gap, c.batch, c.heads, c.rows, c.dv)
		k, v := r.normals(kernels.F32, c.gap, c.keyBatch, c.keyHeads, c.length, c.d), r.normals(kernels.F32, c.gap, c.keyBatch, c.keyHeads, c.length, c.dv)
		at := -1
		lists, host := r.indices([]kernels.DType{kernels.I32, kernels.I64}[n%2], func() int {
			if at++; r.random.IntN(5) == 0 || at/max(1, c.n+c.gap)%7 == 3 {
				return -1
			}
			return min(r.random.IntN(c.length), r.random.IntN(c.length))
		}, c.lists[0], c.lists[1], c.rows, c.n+c.gap)
		a := &kernels.ListedAttention{Q: q.Tensor, K: k.Tensor, V: v.Tensor, Lists: lists.Slice(3, 0, c.n), Scale: []float64{0, 0.3, -0.2}[n%3]}
		on := *a
		on.Q, on.K, on.V = q.host, k.host, v.host
		cut := hostTensor(kernels.I64, c.lists[0], c.lists[1], c.rows, c.n)
		for row := range c.lists[0] * c.lists[1] * c.rows {
			for i := range c.n {
				one := cut
				one.Shape, one.Strides = []int{cut.Elements()}, []int{1}
				kernels.FillHost(one.Slice(0, row*c.n+i, row*c.n+i+1), kernels.HostElement(host, row*(c.n+c.gap)+i))
			}
		}
		on.Lists = cut
		dLSE := make([]float64, c.batch*c.heads*c.rows)
		want := reference.ListedAttention(&on, dO.values(), dLSE)
		narrow := on
		narrow.Q, narrow.K, narrow.V = singleOf(q.host), singleOf(k.host), singleOf(v.host)
		plain := reference.ListedAttention(&narrow, single(dO.values()), single(dLSE))
		o, lse := r.empty(kernels.F32, c.gap, c.batch, c.heads, c.rows, c.dv), r.empty(kernels.F32, 0, c.batch, c.heads, c.rows)
		dQ, dK, dV := r.empty(kernels.F32, c.gap, q.Shape...), r.empty(kernels.F32, c.gap, k.Shape...), r.empty(kernels.F32, c.gap, v.Shape...)
		r.must(r.d.ListedForward(a, kernels.AttentionOutputs{O: o.Tensor, LSE: lse.Tensor}))
		g := kernels.AttentionGradients{DO: dO.Tensor, DQ: dQ.Tensor, DK: dK.Tensor, DV: dV.Tensor,
			LSE: tensorOf(t, kernels.F32, want.LSE, c.batch, c.heads, c.rows), Delta: tensorOf(t, kernels.F32, want.Delta, c.batch, c.heads, c.rows)}
		r.must(r.d.ListedBackward(a, g))
		r.must(r.d.ListedForward(a, kernels.AttentionOutputs{O: o.Tensor}))
		terms := greatest(want.Delta) * math.Sqrt(float64(c.n))
		r.checkSum("o", o, want.O, plain.O, 1)
		r.checkSum("lse", lse, want.LSE, plain.LSE, 8)
		r.checkSum("dq", dQ, want.DQ, plain.DQ, 8*terms)
		r.checkSum("dk", dK, want.DK, plain.DK, 8*terms)
		r.checkSum("dv", dV, want.DV, plain.DV, 8)
	}
}

// In the deterministic mode gradients are the same from call to call, however many queries list a
// key; a NaN in what they are computed from makes all of dk and dv NaN.
func TestListedKeysRepeats(t *testing.T) {
	for n, dtype := range halfAndFull {
		r := newRowwiseTest(t, "%v", dtype)
		const batch, heads, rows, length, size, listed = 2, 8, 400, 64, 64, 48
		lists, _ := r.indices(kernels.I32, func() int { return r.random.IntN(length) }, batch, 1, rows, listed)
		q, dO := r.normals(dtype, 0, batch, heads, rows, size), r.normals(dtype, 0, batch, heads, rows, size)
		k, v := r.normals(dtype, 0, 1, 1, length, size), r.normals(dtype, 0, 1, 1, length, size)
		a := &kernels.ListedAttention{Q: q.Tensor, K: k.Tensor, V: v.Tensor, Lists: lists, Deterministic: true}
		o, lse, delta := r.empty(dtype, 0, batch, heads, rows, size), r.empty(kernels.F32, 0, batch, heads, rows), r.empty(kernels.F32, 0, batch, heads, rows)
		dQ, dK, dV := r.empty(dtype, 0, q.Shape...), r.empty(dtype, 0, k.Shape...), r.empty(dtype, 0, v.Shape...)
		r.must(r.d.ListedForward(a, kernels.AttentionOutputs{O: o.Tensor, LSE: lse.Tensor}))
		r.must(r.d.AttentionDelta(a.Plain(), o.Tensor, dO.Tensor, kernels.Tensor{}, delta.Tensor))
		g := kernels.AttentionGradients{DO: dO.Tensor, LSE: lse.Tensor, Delta: delta.Tensor, DQ: dQ.Tensor, DK: dK.Tensor, DV: dV.Tensor}
		r.must(r.d.ListedBackward(a, g))
		first := [][]float64{r.values(dQ), r.values(dK), r.values(dV)}
		for range 20 {
			r.must(errors.Join(r.d.Fill(dK.Tensor, math.NaN()), r.d.ListedBackward(a, g)))
			r.checkSame("dq", dQ, first[0])
			r.checkSame("dk", dK, first[1])
			r.checkSame("dv", dV, first[2])
		}
		r.must(r.d.Fill(v.Tensor.Slice(2, n, n+1).Slice(3, 5, 6), math.NaN()))
		r.must(r.d.ListedBackward(a, g))
		for what, list := range map[string][]float64{"dk": r.values(dK), "dv": r.values(dV)} {
			if slices.ContainsFunc(list, func(x float64) bool { return x == x }) {
				t.Errorf("%s: elements of %s are not NaN", r.name, what)
			}
		}
	}
}

// What full attention and the kernels for many heads compute is what gathering keys gives: in parts
// of batch items, heads and queries, with more queries than blocks run at a time, lists with gaps,
// empty ones and keys that are listed twice, and rows of NaN that no list has.
func TestListedKeysWays(t *testing.T) {
	d := device(t)
	if !d.HasMaps() {
		t.Skip("there is one way")
	}
	for n, c := range []struct{ batch, keyBatch, heads, keyHeads, listBatch, listHeads, rows, keys, n, d, dv int }{
		{1, 1, 4, 4, 1, 4, 300, 1000, 200, 128, 128}, {2, 2, 4, 2, 2, 2, 257, 700, 90, 64, 64}, {2, 1, 4, 4, 2, 1, 130, 515, 60, 64, 64},
		{3, 3, 2, 1, 1, 1, 140, 300, 33, 256, 256}, {1, 1, 64, 1, 1, 1, 330, 2000, 300, 128, 128}, {2, 2, 128, 1, 2, 1, 170, 1500, 257, 128, 128},
		{1, 1, 70, 1, 1, 1, 170, 900, 130, 64, 64}, {1, 1, 300, 2, 1, 2, 60, 800, 128, 128, 64}, {1, 1, 40, 1, 1, 1, 400, 3000, 64, 64, 64},
		{1, 1, 128, 1, 1, 1, 150, 600, 1, 64, 64}, {1, 1, 100, 1, 1, 1, 64, 512, 500, 80, 112}, {1, 1, 48, 1, 1, 1, 150, 400, 100, 256, 192},
	} {
		for k, kind := range []string{"distinct", "gaps", "twice", "NaN"} {
			t.Run(fmt.Sprintf("heads=%d/D=%d/%s", c.heads, c.d, kind), func(t *testing.T) {
				r := newRowwiseTest(t, "%+v, %s", c, kind)
				dtype := []kernels.DType{kernels.BF16, kernels.F16}[(n+k)%2]
				const hidden = 7 // a key that no list has, if it is a NaN
				keys, at := []int{}, 0
				lists, _ := r.indices([]kernels.DType{kernels.I32, kernels.I64}[n%2], func() int {
					place := at % c.n
					if at++; place == 0 {
						keys = r.random.Perm(c.keys)
					}
					switch key := keys[place]; {
					case kind == "gaps" && (place%3 == 1 || at/c.n%9 == 0), kind == "NaN" && key == hidden:
						return -1
					case kind == "twice" && place > 0 && r.random.IntN(200) == 0:
						return keys[place-1]
					default:
						return key
					}
				}, c.listBatch, c.listHeads, c.rows, c.n)
				a := &kernels.ListedAttention{Lists: lists, Deterministic: k == 1, Scale: []float64{0, 0.2}[k%2],
					Q: r.normals(dtype, 0, c.batch, c.heads, c.rows, c.d).Tensor, K: r.normals(dtype, 0, c.keyBatch, c.keyHeads, c.keys, c.d).Tensor,
					V: r.normals(dtype, 0, c.keyBatch, c.keyHeads, c.keys, c.dv).Tensor}
				dO := r.normals(dtype, 0, c.batch, c.heads, c.rows, c.dv)
				if kind == "NaN" {
					r.must(errors.Join(d.Fill(a.K.Slice(2, hidden, hidden+1), math.NaN()), d.Fill(a.V.Slice(2, hidden, hidden+1), math.Inf(1))))
				}
				names := []string{"o", "lse", "dq", "dk", "dv"}
				compute := func() (results [5][]float64) {
					o, lse, delta := r.empty(dtype, 0, dO.Shape...), r.empty(kernels.F32, 0, c.batch, c.heads, c.rows), r.empty(kernels.F32, 0, c.batch, c.heads, c.rows)
					dQ, dK, dV := r.empty(dtype, 0, a.Q.Shape...), r.empty(dtype, 0, a.K.Shape...), r.empty(dtype, 0, a.V.Shape...)
					r.must(d.ListedForward(a, kernels.AttentionOutputs{O: o.Tensor, LSE: lse.Tensor}))
					r.must(d.AttentionDelta(a.Plain(), o.Tensor, dO.Tensor, kernels.Tensor{}, delta.Tensor))
					r.must(d.ListedBackward(a, kernels.AttentionGradients{DO: dO.Tensor, LSE: lse.Tensor, Delta: delta.Tensor, DQ: dQ.Tensor, DK: dK.Tensor, DV: dV.Tensor}))
					return [5][]float64{r.values(o), r.values(lse), r.values(dQ), r.values(dK), r.values(dV)}
				}
				restore := cuda.WayOfLists(cuda.WaysOfLists["gathered"])
				want := compute()
				restore()
				for _, way := range []struct {
					name  string
					bytes int // of a bias, 0 for the usual
				}{{"rows", 0}, {"dense", 0}, {"dense", 200 * c.keys * 2}} {
					restore, restoreRoom := cuda.WayOfLists(cuda.WaysOfLists[way.name]), func() {}
					if way.bytes > 0 {
						restoreRoom = cuda.RoomForPlanes(way.bytes)
					}
					got := compute()
					restore()
					restoreRoom()
					for i, name := range names {
						bound := max(greatest(want[i])/64, 1e-5) // of one key there is no dq but what rounding leaves
						if name == "lse" {
							bound = 2e-5 * (1 + greatest(want[i]))
						}
						for j, x := range got[i] {
							if w := want[i][j]; x != w && !(math.Abs(x-w) <= bound) {
								t.Errorf("%s: %s in %d bytes: element %d of %s is %g, gathering gives %g, within %g", r.name, way.name, way.bytes, j, name, x, w, bound)
								break
							}
						}
					}
				}
			})
		}
	}
}

// singleOf is a tensor of the host in float32.
func singleOf(t kernels.Tensor) kernels.Tensor {
	return kernels.Of(single(kernels.Host[float64](t)), t.Shape...)
}

// An index that is no row of K is no key, and is reported by the next wait.
func TestListedKeysFaults(t *testing.T) {
	for _, index := range []int{5, -2, math.MaxInt32} {
		r := newRowwiseTest(t, "faults")
		at := -1
		lists, _ := r.indices(kernels.I32, func() int {
			if at++; at == 11 {
				return index
			}
			return at % 5
		}, 2, 1, 3, 2)
		x := func(shape ...int) kernels.Tensor { return r.normals(kernels.BF16, 0, shape...).Tensor }
		rows := func() kernels.Tensor { return r.normals(kernels.F32, 0, 2, 4, 3).Tensor }
		a := &kernels.ListedAttention{Q: x(2, 4, 3, 8), K: x(2, 2, 5, 8), V: x(2, 2, 5, 8), Lists: lists}
		g := kernels.AttentionGradients{DO: x(2, 4, 3, 8), LSE: rows(), Delta: rows(), DQ: x(2, 4, 3, 8), DK: x(2, 2, 5, 8), DV: x(2, 2, 5, 8)}
		for pass, call := range map[string]func() error{
			"forward": func() error { return r.d.ListedForward(a, kernels.AttentionOutputs{O: x(2, 4, 3, 8)}) }, "backward": func() error { return r.d.ListedBackward(a, g) },
		} {
			want := fmt.Sprintf("listed attention %s: element 11 of lists is %d, it needs to be from 0 to 4, or -1, which is no key", pass, index)
			for name, way := range cuda.WaysOfLists {
				restore := cuda.WayOfLists(way)
				err := errors.Join(call(), r.d.Synchronize())
				restore()
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error is %v, want one with %q", name, err, want)
				}
				r.must(r.d.Synchronize())
			}
		}
	}
}

// What a GPU cannot do is an error that says so, before anything is queued.
func TestListedKeysErrors(t *testing.T) {
	r := newRowwiseTest(t, "errors")
	lists, _ := r.indices(kernels.I32, func() int { return 0 }, 1, 1, 3, 2)
	for want, size := range map[string]int{"listed keys: attention with heads of more than 256": 264} {
		x := r.normals(kernels.BF16, 0, 1, 1, 3, size).Tensor
		a := &kernels.ListedAttention{Q: x, K: x, V: x, Lists: lists}
		if err := r.d.ListedForward(a, kernels.AttentionOutputs{O: r.empty(kernels.BF16, 0, x.Shape...).Tensor}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}

// BenchmarkListedKeys measures attention to keys that are drawn at random for each query, beside
// full attention a visible pair, in recordings of a few calls: 8192 queries and keys, lists that
// all heads share, bfloat16.
func BenchmarkListedKeys(b *testing.B) {
	d := device(b)
	const length, calls = 8192, 3
	for _, size := range []int{64, 128, 256} {
		for _, group := range []struct{ heads, keyHeads int }{{16, 16}, {16, 2}, {16, 1}, {64, 1}, {128, 1}} {
			for _, n := range []int{64, 512, 2048} {
				b.Run(fmt.Sprintf("D=%d/heads=%d/key-heads=%d/keys=%d", size, group.heads, group.keyHeads, n), func(b *testing.B) {
					random := rand.New(rand.NewPCG(5, 6))
					chosen, keysInTurn := make([]int32, 0, length*n), make([]int32, length)
					for i := range keysInTurn {
						keysInTurn[i] = int32(i)
					}
					for range length {
						for i := range n {
							j := i + random.IntN(length-i)
							keysInTurn[i], keysInTurn[j] = keysInTurn[j], keysInTurn[i]
						}
						chosen = append(chosen, keysInTurn[:n]...)
					}
					lists, err := d.Alloc(kernels.I32, 1, 1, length, n)
					if err == nil {
						err = d.Copy(lists, kernels.Of(chosen, 1, 1, length, n))
					}
					if err != nil {
						b.Fatal(err)
					}
					queries := func() kernels.Tensor { return normal(b, d, kernels.BF16, 1, group.heads, length, size) }
					keys := func() kernels.Tensor { return normal(b, d, kernels.BF16, 1, group.keyHeads, length, size) }
					a := &kernels.ListedAttention{Q: queries(), K: keys(), V: keys(), Lists: lists}
					full := a.Plain()
					out := kernels.AttentionOutputs{O: queries(), LSE: normal(b, d, kernels.F32, 1, group.heads, length)}
					g := kernels.AttentionGradients{DO: queries(), LSE: out.LSE, Delta: normal(b, d, kernels.F32, 1, group.heads, length), DQ: queries(), DK: keys(), DV: keys()}
					for _, c := range []struct {
						name         string
						full, listed func() error
						flops        float64
					}{
						{"forward", func() error { return d.AttentionForward(full, out) }, func() error { return d.ListedForward(a, out) }, 4},
						{"backward", func() error { return d.AttentionBackward(full, g) }, func() error { return d.ListedBackward(a, g) }, 10},
					} {
						whole, err := ofRecording(b, d, slices.Repeat([]func() error{c.full}, calls))
						if err != nil {
							b.Fatal(err)
						}
						listed, err := ofRecording(b, d, slices.Repeat([]func() error{c.listed}, calls))
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(whole/listed*float64(n)/length, c.name+"-of-full")
						b.ReportMetric(c.flops*float64(group.heads*length*n*size)/listed/1e12, c.name+"-TFLOP/s")
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}
