//go:build gpu

package cuda_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// integers is a tensor of int32 on the device, and as the host has it.
func (r *rowwiseTest) integers(list []int, shape ...int) (onDevice, onHost kernels.Tensor) {
	numbers := make([]int32, len(list))
	for i, x := range list {
		numbers[i] = int32(x)
	}
	onHost = kernels.Of(numbers, shape...)
	onDevice = alloc(r.T, r.d, kernels.I32, shape...)
	r.must(r.d.Copy(onDevice, onHost))
	return onDevice, onHost
}

// assignments is what the reference chose, on the device and on the host.
func (r *rowwiseTest) assignments(c reference.Chosen[float64], tokens int) (onDevice, onHost kernels.Assignment) {
	chosen := len(c.Experts) / tokens
	onDevice.Offsets, onHost.Offsets = r.integers(c.Offsets, len(c.Offsets))
	onDevice.Experts, onHost.Experts = r.integers(c.Experts, tokens, chosen)
	onDevice.Order, onHost.Order = r.integers(c.Order, len(c.Order))
	onDevice.Places, onHost.Places = r.integers(c.Places, tokens, chosen)
	return onDevice, onHost
}

var routers = []kernels.RouterOptions{
	{Chosen: 1}, {Chosen: 2, Normalize: true}, {Chosen: 8, Scale: 2.5},
	{Chosen: 6, Scores: kernels.SigmoidScores, Normalize: true, Epsilon: 1e-20},
	{Chosen: 3, Groups: 4, KeptGroups: 2},
	{Chosen: 5, Scores: kernels.SigmoidScores, Groups: 8, KeptGroups: 3, GroupChoice: kernels.GroupByBestTwo, Normalize: true, Scale: 1.5},
}

func TestRoute(t *testing.T) {
	for n, o := range routers {
		for i, shape := range [][2]int{{1, 16}, {37, 40}, {700, 128}} {
			dtype := []kernels.DType{kernels.F32, kernels.BF16, kernels.F16}[(n+i)%3]
			r := newRowwiseTest(t, "%v %+v %v", dtype, o, shape)
			tokens, experts := shape[0], shape[1]
			logits := r.normals(dtype, i, tokens, experts)
			device, host := &kernels.Routing{Logits: logits.Tensor, RouterOptions: o}, &kernels.Routing{Logits: logits.host, RouterOptions: o}
			if n%2 == 1 {
				bias := r.normals(kernels.F32, 0, experts)
				device.Bias, host.Bias = bias.Tensor, bias.host
			}
			want, plain := reference.Route[float64](host), reference.Route[float32](host)
			all := alloc(t, r.d, kernels.I32, kernels.AssignmentSize(tokens, experts, o.Chosen))
			a, weights := kernels.AssignmentOf(all, experts, o.Chosen), r.empty(kernels.F32, 0, tokens, o.Chosen)
			r.must(r.d.Route(device, weights.Tensor, a))
			if !slices.Equal(want.Experts, plain.Experts) {
				continue // scores so near each other that rounding decides
			}
			r.check("weights", weights, want.Weights, plain.Weights)
			got := kernels.Of(make([]int32, all.Elements()), all.Elements())
			r.must(r.d.Copy(got, all))
			have := kernels.AssignmentOf(got, experts, o.Chosen)
			for name, lists := range map[string]struct {
				got  kernels.Tensor
				want []int
			}{"experts": {have.Experts, want.Experts}, "offsets": {have.Offsets, want.Offsets}, "order": {have.Order, want.Order}, "places": {have.Places, want.Places}} {
				if got := kernels.Host[int32](lists.got); !slices.EqualFunc(got, lists.want, func(a int32, b int) bool { return int(a) == b }) {
					t.Errorf("%s: %s are %v, want %v", r.name, name, got[:min(20, len(got))], lists.want[:min(20, len(lists.want))])
				}
			}
			dWeights, dLogits := r.normals(kernels.F32, 0, tokens, o.Chosen), r.empty(dtype, i, tokens, experts)
			r.must(r.d.RouteBackward(device, a, dWeights.Tensor, dLogits.Tensor))
			r.check("dLogits", dLogits, reference.RouteGrad(host, dWeights.values()), reference.RouteGrad(host, single(dWeights.values())))
		}
	}
}

func TestMoves(t *testing.T) {
	for n, shape := range [][4]int{{1, 1, 1, 1}, {5, 4, 2, 3}, {37, 8, 3, 64}, {300, 64, 8, 257}, {200, 16, 4, 768}} {
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
			r := newRowwiseTest(t, "%v %v", dtype, shape)
			tokens, experts, chosen, features := shape[0], shape[1], shape[2], shape[3]
			logits, factors := r.normals(dtype, 0, tokens, experts), r.normals(kernels.F32, 0, tokens, chosen)
			a, host := r.assignments(reference.Route[float64](&kernels.Routing{Logits: logits.host, RouterOptions: kernels.RouterOptions{Chosen: chosen}}), tokens)
			gap := n % 2 * 8
			x, rows := r.normals(dtype, gap, tokens, features), r.normals(dtype, gap, tokens*chosen, features)
			there, weighted, back, summed := r.empty(dtype, gap, tokens*chosen, features), r.empty(dtype, 0, tokens*chosen, features), r.empty(dtype, gap, tokens, features), r.empty(dtype, 0, tokens, features)
			d, loss, dLogits := r.empty(kernels.F32, 0, tokens, chosen), r.empty(kernels.F32, 0), r.empty(dtype, 0, tokens, experts)
			w, plainW := factors.values(), single(factors.values())
			r.must(r.d.Dispatch(x.Tensor, kernels.Tensor{}, a, there.Tensor))
			r.check("dispatched", there, reference.Dispatch(x.values(), nil, host), reference.Dispatch(single(x.values()), nil, host))
			r.must(r.d.Dispatch(x.Tensor, factors.Tensor, a, weighted.Tensor))
			r.check("weighted", weighted, reference.Dispatch(x.values(), w, host), reference.Dispatch(single(x.values()), plainW, host))
			r.must(r.d.Combine(rows.Tensor, factors.Tensor, a, back.Tensor))
			r.check("combined", back, reference.Combine(rows.values(), w, host), reference.Combine(single(rows.values()), plainW, host))
			r.must(r.d.Combine(rows.Tensor, kernels.Tensor{}, a, summed.Tensor))
			r.check("summed", summed, reference.Combine(rows.values(), nil, host), reference.Combine(single(rows.values()), nil, host))
			r.must(r.d.CombineFactors(rows.Tensor, x.Tensor, a, d.Tensor))
			r.checkSum("factors", d, reference.CombineFactors(rows.values(), x.values(), host), reference.CombineFactors(single(rows.values()), single(x.values()), host), 10)

			dLoss := r.filled(kernels.F32, 0, func() float64 { return -1.5 })
			layers, hostLayers := a.Offsets.Reshape(1, experts+1), host.Offsets.Reshape(1, experts+1)
			want, wantD := reference.BalanceLoss(logits.host, hostLayers, -1.5)
			plain, plainD := reference.BalanceLoss[float32](logits.host, hostLayers, -1.5)
			r.must(r.d.BalanceLoss(logits.Tensor, layers, loss.Tensor))
			r.check("loss", loss, []float64{want}, []float32{plain})
			r.must(r.d.BalanceLossBackward(logits.Tensor, layers, dLoss.Tensor, dLogits.Tensor))
			r.checkSum("dLogits", dLogits, wantD, plainD, 1.5*float64(experts)/float64(tokens))
		}
	}
}

// groupSizes are the rows of groups: of one size, none at all, and most of all in one group.
func (r *rowwiseTest) groupSizes(groups, rows int) []int {
	sizes := make([]int, groups)
	for range rows {
		sizes[int(float64(groups)*math.Pow(r.random.Float64(), 2))]++
	}
	return sizes
}

// groupedCase is a grouped product and its gradients.
type groupedCase struct {
	groups, rows, k, n, gap int
	transposed, bias, add   bool
	more                    int // rows and columns of the matrices in memory
}

// checkGrouped compares a product of groups of some sizes, and its gradients. Every second case has
// results of the wide type.
func (r *rowwiseTest) checkGrouped(number int, dtype kernels.DType, c groupedCase, sizes []int) {
	offsets := []int{0}
	for _, size := range sizes {
		offsets = append(offsets, offsets[len(offsets)-1]+size)
	}
	where, hostWhere := r.integers(offsets, len(offsets))
	a, dC, b := r.normals(dtype, c.gap, c.rows, c.k), r.normals(dtype, c.gap, c.rows, c.n), r.normals(dtype, c.gap, c.groups, c.k+c.more, c.n+c.more)
	matrices, hostMatrices := b.Tensor, b.host
	if c.transposed {
		b = r.normals(dtype, c.gap, c.groups, c.n+c.more, c.k+c.more)
		matrices, hostMatrices = b.Permute(0, 2, 1), b.host.Permute(0, 2, 1)
	}
	part := func(t kernels.Tensor) kernels.Tensor { return t.Slice(1, 0, c.k).Slice(2, 0, c.n) }
	matrices, hostMatrices = part(matrices), part(hostMatrices)
	of := []kernels.DType{dtype, dtype.Wide()}[number%2] // of C
	m, host := &kernels.GroupedMatMul{A: a.Tensor, B: matrices, Offsets: where, Accumulate: c.add}, &kernels.GroupedMatMul{A: a.host, B: hostMatrices, Offsets: hostWhere, Accumulate: c.add}
	if c.bias {
		bias := r.normals([]kernels.DType{kernels.F32, dtype}[number%2], 0, c.groups, c.n)
		m.Bias, host.Bias = bias.Tensor, bias.host
	}
	initial := r.normals(of, c.gap, c.rows, c.n)
	out := initial
	if !c.add {
		out = r.empty(of, c.gap, c.rows, c.n)
	}
	r.must(r.d.GroupedMatMul(m, out.Tensor))
	terms := 4 * math.Sqrt(float64(c.k))
	r.checkSum("c", out, reference.GroupedMatMul[float64](host, initial.values()), reference.GroupedMatMul[float32](host, single(initial.values())), terms)

	dB, sums := r.empty([]kernels.DType{dtype.Wide(), dtype}[number%2], 0, c.groups, c.k, c.n), r.empty(kernels.F32, 0, c.groups, c.n)
	r.must(r.d.GroupedMatMulGradient(m, dC.Tensor, dB.Tensor))
	r.checkSum("dB", dB, reference.GroupedMatMulGradient(host, dC.values()), reference.GroupedMatMulGradient(host, single(dC.values())), 4*math.Sqrt(float64(c.rows)))
	r.must(r.d.GroupedSumRows(dC.Tensor, where, sums.Tensor))
	r.checkSum("sums", sums, reference.GroupedSumRows[float64](dC.host, hostWhere), reference.GroupedSumRows[float32](dC.host, hostWhere), 4*math.Sqrt(float64(c.rows)))
}

func TestGroupedMatMul(t *testing.T) {
	for n, c := range []groupedCase{
		{1, 1, 1, 1, 0, false, false, false, 0}, {4, 9, 5, 7, 0, false, true, false, 0}, {5, 40, 64, 64, 0, true, false, false, 0}, {8, 300, 72, 136, 8, false, true, false, 0},
		{16, 700, 128, 256, 0, true, true, true, 0}, {16, 1000, 264, 200, 0, false, false, true, 0}, {128, 600, 96, 128, 0, false, true, false, 0},
		{128, 600, 128, 96, 0, true, false, false, 0}, {300, 500, 64, 64, 0, false, true, false, 0}, {3, 513, 1024, 384, 0, true, false, false, 0}, {2, 130, 100, 90, 1, false, true, false, 0},
	} {
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
			restoreDeep, restoreTile := cuda.DeepGroups([]int{1, 1 << 20}[(n+int(dtype))%2]), cuda.GroupedTile(groupedTiles[n%len(groupedTiles)])
			r := newRowwiseTest(t, "%v %+v", dtype, c)
			r.checkGrouped(n, dtype, c, r.groupSizes(c.groups, c.rows))
			restoreTile()
			restoreDeep()
		}
	}
}

// groupedTiles are the tiles that grouped products have on Hopper; the kernels for any device have
// no name.
var groupedTiles = []string{"", "broad", "wide"}

// unevenSizes draws the rows of groups: none, one, a few, as many as tiles or slices end with and
// one more or less, any number, and perhaps all the others in one group.
func (r *rowwiseTest) unevenSizes() (sizes []int, rows int) {
	sizes = make([]int, 1+r.random.IntN(12))
	for i := range sizes {
		switch r.random.IntN(6) {
		case 0:
		case 1:
			sizes[i] = 1
		case 2:
			sizes[i] = r.random.IntN(20)
		case 3:
			sizes[i] = 64*(1+r.random.IntN(6)) + r.random.IntN(3) - 1
		default:
			sizes[i] = r.random.IntN(300)
		}
	}
	if r.random.IntN(4) == 0 {
		clear(sizes)
		sizes[r.random.IntN(len(sizes))] = 1 + r.random.IntN(700)
	}
	for _, size := range sizes {
		rows += size
	}
	return sizes, rows
}

func TestGroupedTiles(t *testing.T) {
	const cases = 12
	for _, tile := range groupedTiles {
		t.Run(tile, func(t *testing.T) {
			defer cuda.GroupedTile(tile)()
			for n := range cases {
				dtype := []kernels.DType{kernels.BF16, kernels.F16}[n/2%2]
				r := newRowwiseTest(t, "%v, case %d", dtype, n)
				sizes, rows := r.unevenSizes()
				size := func() int { return 8 * (1 + r.random.IntN(50)) }
				c := groupedCase{groups: len(sizes), rows: rows, k: size(), n: size(), gap: 8 * r.random.IntN(2)}
				c.transposed, c.bias, c.add = n%3 == 0, r.random.IntN(2) == 0, r.random.IntN(3) == 0
				if n%5 == 0 { // rows of operands that end within 16 bytes
					c.k, c.n, c.gap, c.more = c.k-3, c.n-3, 3, 3
				}
				r.name += fmt.Sprintf(": %+v, groups of %v", c, sizes)
				r.checkGrouped(n, dtype, c, sizes)
			}
		})
	}
}

// Blocks that have many tiles, of groups large and small, compute what the kernels for any device
// do.
func TestGroupedTilesAlike(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 10 s")
	}
	const groups = 8
	for number, c := range []groupedCase{{rows: 3000, k: 776, n: 1000}, {rows: 5000, k: 1024, n: 520, transposed: true}, {rows: 2500, k: 2056, n: 384}} {
		var ofC, ofB []float64
		for _, tile := range groupedTiles {
			restore := cuda.GroupedTile(tile)
			r := newRowwiseTest(t, "case %d", number) // the same numbers for all
			offsets := []int{0}
			for _, size := range r.groupSizes(groups, c.rows) {
				offsets = append(offsets, offsets[len(offsets)-1]+size)
			}
			r.name += fmt.Sprintf(", tile %q", tile)
			where, _ := r.integers(offsets, len(offsets))
			a, dC := r.normals(kernels.BF16, 0, c.rows, c.k), r.normals(kernels.BF16, 0, c.rows, c.n)
			m := &kernels.GroupedMatMul{A: a.Tensor, Offsets: where}
			if c.transposed {
				m.B = r.normals(kernels.BF16, 0, groups, c.n, c.k).Permute(0, 2, 1)
			} else {
				m.B = r.normals(kernels.BF16, 0, groups, c.k, c.n).Tensor
			}
			product, dB := r.empty(kernels.F32, 0, c.rows, c.n), r.empty(kernels.F32, 0, groups, c.k, c.n)
			r.must(r.d.GroupedMatMul(m, product.Tensor))
			r.must(r.d.GroupedMatMulGradient(m, dC.Tensor, dB.Tensor))
			if tile == "" {
				ofC, ofB = r.values(product), r.values(dB)
			}
			near := func(what string, got, want []float64, terms int) {
				for i := range want {
					if bound := 2e-6 * float64(terms); !(math.Abs(got[i]-want[i]) <= bound) {
						t.Errorf("%s: %s[%d] is %v, the kernels for any device have %v, which is more than %v away", r.name, what, i, got[i], want[i], bound)
						return
					}
				}
			}
			near("c", r.values(product), ofC, c.k)
			near("dB", r.values(dB), ofB, c.rows)
			restore()
		}
	}
}

// What a group's rows hold reaches no other group.
func TestGroupsApart(t *testing.T) {
	for _, tile := range groupedTiles {
		restore := cuda.GroupedTile(tile)
		r := newRowwiseTest(t, "tile %q", tile)
		sizes := []int{70, 0, 33, 130, 64, 1, 90}
		offsets := []int{0}
		for _, size := range sizes {
			offsets = append(offsets, offsets[len(offsets)-1]+size)
		}
		const k, n, poisoned = 136, 200, 3
		rows := offsets[len(sizes)]
		where, _ := r.integers(offsets, len(offsets))
		a, dC, b := r.normals(kernels.BF16, 0, rows, k), r.normals(kernels.BF16, 0, rows, n), r.normals(kernels.BF16, 0, len(sizes), k, n)
		c, dB := r.empty(kernels.BF16, 0, rows, n), r.empty(kernels.F32, 0, len(sizes), k, n)
		m := &kernels.GroupedMatMul{A: a.Tensor, B: b.Tensor, Offsets: where}
		run := func() (ofC, ofB []float64) {
			r.must(r.d.GroupedMatMul(m, c.Tensor))
			r.must(r.d.GroupedMatMulGradient(m, dC.Tensor, dB.Tensor))
			return r.values(c), r.values(dB)
		}
		wantC, wantB := run()
		from, to := offsets[poisoned], offsets[poisoned+1]
		for _, x := range []kernels.Tensor{a.Tensor, dC.Tensor} {
			r.must(r.d.Fill(x.Slice(0, from, to), math.NaN()))
		}
		gotC, gotB := run()
		same := func(what string, got, want []float64, from, to int) {
			for i := range want {
				if inside := from <= i && i < to; inside != math.IsNaN(got[i]) || !inside && got[i] != want[i] {
					t.Errorf("%s: %s[%d] is %v beside a group of NaN in [%d, %d), %v without it", r.name, what, i, got[i], from, to, want[i])
					return
				}
			}
		}
		same("c", gotC, wantC, from*n, to*n)
		same("dB", gotB, wantB, poisoned*k*n, (poisoned+1)*k*n)
		restore()
	}
}

func TestClampedGate(t *testing.T) {
	gate := kernels.ClampedGate{Slope: 1.702, Limit: 1.25} // which is beside many numbers
	for i, shape := range [][]int{{2}, {3, 66}, {2, 5, 1030}, {300, 64}} {
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
			r := newRowwiseTest(t, "%v %v", dtype, shape)
			half := append([]int(nil), shape...)
			half[len(half)-1] /= 2
			x, y, dy, dx := r.normals(dtype, i%2*4, shape...), r.empty(dtype, i%2*2, half...), r.normals(dtype, 0, half...), r.empty(dtype, i%2*8, shape...)
			want, wantD := reference.ClampedGate(gate, x.values(), dy.values())
			plain, plainD := reference.ClampedGate(gate, single(x.values()), single(dy.values()))
			r.must(r.d.ClampedGate(gate, x.Tensor, y.Tensor))
			r.checkSum("y", y, want, plain, 8)
			r.must(r.d.ClampedGateBackward(gate, x.Tensor, dy.Tensor, dx.Tensor))
			r.checkSum("dx", dx, wantD, plainD, 8)
		}
	}
}

// BenchmarkExperts times what the experts of a layer do beside the same products of one matrix, in
// TFLOP/s.
func BenchmarkExperts(b *testing.B) {
	d := device(b)
	alloc := func(dtype kernels.DType, shape ...int) kernels.Tensor {
		t, err := d.Alloc(dtype, shape...)
		if err == nil && dtype != kernels.I32 {
			const length = 2048 // numbers that are repeated: of equal ones, products take less power
			list := make([]float32, length)
			for i := range list {
				list[i] = float32(math.Sin(float64(i * i)))
			}
			noise, failed := d.Alloc(dtype, length)
			if err = failed; err == nil {
				err = d.Copy(noise, kernels.Of(list, length))
			}
			rows := noise.Reshape(1, length)
			rows.Shape[0], rows.Strides[0] = t.Elements()/length, 0
			if err == nil {
				err = d.Copy(t.Reshape(rows.Shape...), rows)
			}
		}
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	for _, c := range []struct{ groups, rows, k, n int }{{16, 16384, 2048, 2816}, {128, 32768, 2048, 1536}, {16, 16, 2048, 2816}, {128, 8, 2048, 1536}, {512, 20, 2048, 1024}} {
		offsets := make([]int32, c.groups+1)
		for i := range offsets {
			offsets[i] = int32(i * c.rows / c.groups)
			if i > 0 && i < c.groups {
				offsets[i] += int32(c.rows / c.groups / 3 * (i%3 - 1)) // uneven
			}
		}
		where := alloc(kernels.I32, len(offsets))
		if err := d.Copy(where, kernels.Of(offsets, len(offsets))); err != nil {
			b.Fatal(err)
		}
		made := func(shape ...int) kernels.Tensor { return alloc(kernels.BF16, shape...) }
		x, w, y, dw := made(c.rows, c.k), made(c.groups, c.k, c.n), made(c.rows, c.n), made(c.groups, c.k, c.n)
		m := &kernels.GroupedMatMul{A: x, B: w, Offsets: where}
		back := &kernels.GroupedMatMul{A: y, B: w.Permute(0, 2, 1), Offsets: where}
		one := w.Slice(0, 0, 1).Reshape(c.k, c.n)
		type run struct {
			name string
			call func() error
		}
		runs := []run{
			{"forward", func() error { return d.GroupedMatMul(m, y) }},
			{"dx", func() error { return d.GroupedMatMul(back, x) }},
			{"dw", func() error { return d.GroupedMatMulGradient(m, y, dw) }},
			{"dense-forward", func() error { return d.MatMul(&kernels.MatMul{A: x, B: one}, kernels.MatMulOutputs{C: y}) }},
			{"dense-dx", func() error {
				return d.MatMul(&kernels.MatMul{A: y, B: one.Permute(1, 0)}, kernels.MatMulOutputs{C: x})
			}},
			{"dense-dw", func() error {
				return d.MatMul(&kernels.MatMul{A: x.Permute(1, 0), B: y}, kernels.MatMulOutputs{C: dw.Slice(0, 0, 1).Reshape(c.k, c.n)})
			}},
			{"dense-sm80-forward", func() error {
				defer d.WithoutMaps()()
				return d.MatMul(&kernels.MatMul{A: x, B: one}, kernels.MatMulOutputs{C: y})
			}},
		}
		for _, tile := range groupedTiles {
			name := cmp.Or(tile, "any-device")
			for _, own := range runs[:3] {
				runs = append(runs, run{name + "-" + own.name, func() error {
					defer cuda.GroupedTile(tile)()
					return own.call()
				}})
			}
		}
		for _, run := range runs {
			b.Run(fmt.Sprintf("%d-groups/%dx%dx%d/%s", c.groups, c.rows, c.k, c.n, run.name), func(b *testing.B) {
				seconds, err := ofRecording(b, d, slices.Repeat([]func() error{run.call}, 4))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(m.FLOPs()/seconds/1e12, "TFLOP/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
	tokens, experts, chosen, features := 8192, 128, 8, 2048
	logits, x := alloc(kernels.BF16, tokens, experts), alloc(kernels.BF16, tokens, features)
	rows, weights := alloc(kernels.BF16, tokens*chosen, features), alloc(kernels.F32, tokens, chosen)
	a := kernels.AssignmentOf(alloc(kernels.I32, kernels.AssignmentSize(tokens, experts, chosen)), experts, chosen)
	for name, call := range map[string]func() error{
		"route": func() error {
			return d.Route(&kernels.Routing{Logits: logits, RouterOptions: kernels.RouterOptions{Chosen: chosen}}, weights, a)
		},
		"dispatch": func() error { return d.Dispatch(x, kernels.Tensor{}, a, rows) },
		"combine":  func() error { return d.Combine(rows, weights, a, x) },
	} {
		b.Run(fmt.Sprintf("8192-tokens-8-of-128/%s", name), func(b *testing.B) {
			if err := d.Route(&kernels.Routing{Logits: logits, RouterOptions: kernels.RouterOptions{Chosen: chosen}}, weights, a); err != nil {
				b.Fatal(err)
			}
			seconds, err := ofRecording(b, d, slices.Repeat([]func() error{call}, 4))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(seconds*1e6, "µs")
			b.ReportMetric(0, "ns/op")
		})
	}
}
