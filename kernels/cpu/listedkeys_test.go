package cpu_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// Lists shorter and longer than a lot, of one head and of many, with no key among them and with a
// key twice; keys that batch items share; lists of all heads and of all batch items.
func TestListedAttention(t *testing.T) {
	bothTypes(t, testListedAttention[float32], testListedAttention[float64])
}

func testListedAttention[T kernels.Float](t *testing.T) {
	for n, c := range []struct {
		batch, keyBatch, heads, keyHeads, rows, length, d, dv, n int
		lists                                                    [2]int
		gap                                                      int
	}{
		{1, 1, 1, 1, 1, 1, 1, 1, 1, [2]int{1, 1}, 0},
		{2, 2, 4, 2, 70, 40, 24, 17, 9, [2]int{2, 2}, 3},
		{2, 1, 8, 1, 33, 300, 16, 16, 150, [2]int{1, 1}, 0},
		{1, 1, 20, 2, 5, 700, 64, 40, 257, [2]int{1, 2}, 1},
		{3, 1, 3, 3, 130, 20, 33, 8, 4, [2]int{3, 1}, 0},
		{2, 2, 2, 1, 6, 10, 8, 8, 0, [2]int{2, 1}, 0},
		{1, 1, 2, 2, 40, 200, 8, 48, 128, [2]int{1, 2}, 0},
		{1, 1, 3, 1, 40, 5000, 64, 32, 300, [2]int{1, 1}, 0},    // a few stretches of keys
		{1, 1, 1, 1, 18, 4200, 512, 512, 2200, [2]int{1, 1}, 0}, // more than sort has room for on its stack
	} {
		if slow.Racing() && c.n > 1000 { // the reference's products take long
			continue
		}
		r := newRandom()
		a := &kernels.ListedAttention{Scale: []float64{0, 0.3, -0.2}[n%3]}
		if c.d > 100 || c.length > 1000 {
			a.Scale = 0 // large scores round by more than the bound's steps
		}
		q, k := newField[T](r, c.gap, c.batch, c.heads, c.rows, c.d), newField[T](r, c.gap, c.keyBatch, c.keyHeads, c.length, c.d)
		v, dO := newField[T](r, c.gap, c.keyBatch, c.keyHeads, c.length, c.dv), newField[T](r, c.gap, c.batch, c.heads, c.rows, c.dv)
		a.Q, a.K, a.V = q.Tensor, k.Tensor, v.Tensor
		list := make([]int, c.lists[0]*c.lists[1]*c.rows*c.n)
		for i := range list {
			if list[i] = r.IntN(c.length); r.IntN(5) == 0 || i/max(1, c.n)%7 == 3 { // and lists without a key
				list[i] = -1
			}
		}
		shape := []int{c.lists[0], c.lists[1], c.rows, c.n}
		if a.Lists = int32s(list, shape...); n%2 == 1 {
			a.Lists = int64s(list, shape...)
		}
		dLSE := newField[T](r, 0, c.batch, c.heads, c.rows)
		want := reference.ListedAttention(a, dO.values(), dLSE.values())
		plain := reference.ListedAttention(a, dO.typed(), dLSE.typed())
		delta := kernels.Of(convertAll[T](want.Delta), c.batch, c.heads, c.rows)
		lse := kernels.Of(convertAll[T](want.LSE), c.batch, c.heads, c.rows)
		o, gotLSE := newField[T](r, c.gap, c.batch, c.heads, c.rows, c.dv), newField[T](r, 0, c.batch, c.heads, c.rows)
		dQ, dK, dV := newField[T](r, c.gap, q.Shape...), newField[T](r, c.gap, k.Shape...), newField[T](r, c.gap, v.Shape...)
		verify[T](t, fmt.Sprintf("%+v", c), func(b *cpu.Backend) ([]result, error) {
			err := b.ListedForward(a, kernels.AttentionOutputs{O: o.Tensor, LSE: gotLSE.Tensor})
			if err == nil {
				err = b.ListedBackward(a, kernels.AttentionGradients{DO: dO.Tensor, LSE: lse, Delta: delta, DQ: dQ.Tensor, DK: dK.Tensor, DV: dV.Tensor})
			}
			list := []result{resultOf("o", o, want.O, plain.O), resultOf("lse", gotLSE, want.LSE, plain.LSE), resultOf("dq", dQ, want.DQ, plain.DQ),
				resultOf("dk", dK, want.DK, plain.DK), resultOf("dv", dV, want.DV, plain.DV)}
			for i := range list[2:] {
				list[2+i].steps = 4 // scores are rounded once more, in units of log 2
			}
			return list, err
		})
	}
}

// convertAll converts numbers.
func convertAll[T kernels.Float](list []float64) []T {
	to := make([]T, len(list))
	for i, x := range list {
		to[i] = T(x)
	}
	return to
}

func TestListedAttentionErrors(t *testing.T) {
	problem := func() *kernels.ListedAttention {
		x := func(shape ...int) kernels.Tensor { return kernels.Contiguous(nil, kernels.F32, shape...) }
		filled := func(shape ...int) kernels.Tensor {
			return kernels.Of(make([]float32, x(shape...).Elements()), shape...)
		}
		return &kernels.ListedAttention{Q: filled(2, 4, 3, 8), K: filled(2, 2, 5, 8), V: filled(2, 2, 5, 8), Lists: int32s(make([]int, 12), 2, 1, 3, 2)}
	}
	for want, change := range map[string]func(a *kernels.ListedAttention){
		"cpu: listed attention forward: lists[1 0 2 1] is 5, it needs to be from 0 to 4, or -1, which is no key": func(a *kernels.ListedAttention) { kernels.Host[int32](a.Lists)[11] = 5 },
		"cpu: listed attention forward: lists[0 0 0 1] is -2, it needs to be from 0 to 4, or -1, which is no key": func(a *kernels.ListedAttention) {
			kernels.Host[int32](a.Lists)[1] = -2
		},
		"cpu: listed attention forward: lists has shape [3 4], it needs (1 or 2 batch items, 1 or 2 key heads, 3 queries, listed keys)": func(a *kernels.ListedAttention) {
			a.Lists = int32s(make([]int, 12), 3, 4)
		},
	} {
		a := problem()
		change(a)
		o := kernels.Of(make([]float32, a.Q.Elements()), slices.Clone(a.Q.Shape)...)
		if err := cpu.New().ListedForward(a, kernels.AttentionOutputs{O: o}); err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// BenchmarkListedAttention measures keys that are listed for each query, drawn from all of the past
// and the future, beside full attention, in turns on one thread: float32, 4096 tokens.
// ratio is the rate a visible pair, of full attention's.
func BenchmarkListedAttention(b *testing.B) {
	const length = 4096
	for _, shape := range [][2]int{{1, 64}, {4, 64}, {16, 64}, {64, 64}, {1, 128}, {4, 128}, {16, 128}} {
		heads, size := shape[0], shape[1]
		for _, n := range []int{64, 512, 2048} {
			random := rand.New(rand.NewPCG(1, 2))
			tensor := func(shape ...int) kernels.Tensor {
				data := make([]float32, kernels.Contiguous(nil, kernels.F32, shape...).Elements())
				for i := range data {
					data[i] = float32(random.NormFloat64())
				}
				return kernels.Of(data, shape...)
			}
			lists := make([]int32, length*n)
			for i := range lists {
				lists[i] = int32(random.IntN(length))
			}
			rows, keys := []int{1, heads, length, size}, []int{1, 1, length, size}
			a := &kernels.ListedAttention{Q: tensor(rows...), K: tensor(keys...), V: tensor(keys...), Lists: kernels.Of(lists, 1, 1, length, n)}
			out := kernels.AttentionOutputs{O: tensor(rows...), LSE: tensor(rows[:3]...)}
			g := kernels.AttentionGradients{DO: tensor(rows...), LSE: out.LSE, Delta: tensor(rows[:3]...),
				DQ: tensor(rows...), DK: tensor(keys...), DV: tensor(keys...)}
			backend, full := &cpu.Backend{Threads: 1}, a.Plain()
			for _, c := range []struct {
				name         string
				full, listed func() error
			}{
				{"forward", func() error { return backend.AttentionForward(full, out) }, func() error { return backend.ListedForward(a, out) }},
				{"backward", func() error { return backend.AttentionBackward(full, g) }, func() error { return backend.ListedBackward(a, g) }},
			} {
				b.Run(fmt.Sprintf("D=%d/heads=%d/keys=%d/%s", size, heads, n, c.name), func(b *testing.B) {
					var ratios []float64
					for b.Loop() {
						var took [2]float64
						for i, do := range []func() error{c.full, c.listed} {
							began := time.Now()
							if err := do(); err != nil {
								b.Fatal(err)
							}
							took[i] = time.Since(began).Seconds()
						}
						ratios = append(ratios, took[0]/took[1]*float64(n)/length)
					}
					slices.Sort(ratios)
					b.ReportMetric(ratios[len(ratios)/2], "ratio")
				})
			}
		}
	}
}

// 16-bit tensors are computed in float32, and each result is rounded once.
func TestListedAttentionOfHalves(t *testing.T) {
	random := newRandom()
	inputs, halfInputs := make([]kernels.Tensor, 4), make([]kernels.Tensor, 4)
	shapes := [][]int{{1, 6, 9, 16}, {1, 2, 30, 16}, {1, 2, 30, 8}, {1, 6, 9, 8}}
	rounded := func(x kernels.Tensor) kernels.Tensor {
		half := kernels.Of(make([]kernels.BFloat16, x.Elements()), x.Shape...)
		kernels.CopyHost(half, x)
		return half
	}
	for i, shape := range shapes {
		x := newField[float32](random, 0, shape...).Tensor
		halfInputs[i], inputs[i] = rounded(x), x
		kernels.CopyHost(x, halfInputs[i])
	}
	lists := make([]int, 9*5)
	for i := range lists {
		lists[i] = random.IntN(30)
	}
	empty := func(dtype kernels.DType, shape []int) kernels.Tensor {
		x := kernels.Of(make([]float32, kernels.Contiguous(nil, kernels.F32, shape...).Elements()), shape...)
		if dtype == kernels.BF16 {
			return rounded(x)
		}
		return x
	}
	run := func(dtype kernels.DType, in []kernels.Tensor) []kernels.Tensor {
		a := &kernels.ListedAttention{Q: in[0], K: in[1], V: in[2], Lists: int32s(lists, 1, 1, 9, 5)}
		o, lse, delta := empty(dtype, shapes[3]), empty(kernels.F32, shapes[0][:3]), empty(kernels.F32, shapes[0][:3])
		g := kernels.AttentionGradients{DO: in[3], LSE: lse, Delta: delta, DQ: empty(dtype, shapes[0]), DK: empty(dtype, shapes[1]), DV: empty(dtype, shapes[2])}
		if err := errors.Join(cpu.New().ListedForward(a, kernels.AttentionOutputs{O: o, LSE: lse}), cpu.New().ListedBackward(a, g)); err != nil {
			t.Fatal(err)
		}
		return []kernels.Tensor{o, g.DQ, g.DK, g.DV}
	}
	want := run(kernels.F32, inputs)
	for i, got := range run(kernels.BF16, halfInputs) {
		if !slices.Equal(kernels.Host[kernels.BFloat16](got), kernels.Host[kernels.BFloat16](rounded(want[i]))) {
			t.Errorf("result %d is not that of float32, rounded", i)
		}
	}
}
