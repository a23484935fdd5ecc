//go:build gpu

package cuda_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// indices makes a tensor of integers on the device, and as the host has it.
func (r *rowwiseTest) indices(dtype kernels.DType, next func() int, shape ...int) (onDevice, onHost kernels.Tensor) {
	r.Helper()
	onHost = hostTensor(dtype, shape...)
	for i := range onHost.Elements() {
		kernels.FillHost(kernels.Tensor{Data: onHost.Data, DType: dtype, Shape: []int{onHost.Elements()}, Strides: []int{1}}.Slice(0, i, i+1), float64(next()))
	}
	onDevice = alloc(r.T, r.d, dtype, shape...)
	r.must(r.d.Copy(onDevice, onHost))
	return onDevice, onHost
}

// Rows of a packed table are the floats that the host widens them to, bit by bit.
func TestEmbeddingOfPackedTables(t *testing.T) {
	for _, dtype := range packedTypes {
		for i, c := range []struct {
			vocabulary, features, gap int
			ids                       []int
		}{{1, 64, 0, []int{3}}, {50, 448, 8, []int{2, 33}}, {300, 4096, 0, []int{5000}}, {4, 16384, 4, []int{2}}, {9, 128, 0, []int{0}}} {
			r := newRowwiseTest(t, "%v %+v", dtype, c)
			integers := []kernels.DType{kernels.I32, kernels.I64}[i%2]
			ids, hostIDs := r.indices(integers, func() int { return r.random.IntN(c.vocabulary) }, c.ids...)
			table, wide := packedMatrix(t, r.d, dtype, c.vocabulary, c.features, uint64(i))
			e := &kernels.Embedding{Table: table, IDs: ids}
			y := r.empty(kernels.F32, c.gap, e.OutputShape()...)
			r.must(r.d.EmbeddingForward(e, y.Tensor))
			floats := make([]float64, len(wide))
			for i, v := range wide {
				floats[i] = float64(v)
			}
			r.checkSame("y", y, reference.Embedding[float64](&kernels.Embedding{Table: kernels.Of(floats, c.vocabulary, c.features), IDs: hostIDs}))
		}
	}
	r := newRowwiseTest(t, "an id outside a packed table")
	table, _ := packedMatrix(t, r.d, kernels.Int4, 3, 64, 1)
	ids, _ := r.indices(kernels.I32, func() int { return 3 }, 2)
	err := errors.Join(r.d.EmbeddingForward(&kernels.Embedding{Table: table, IDs: ids}, r.empty(kernels.F32, 0, 2, 64).Tensor), r.d.Synchronize())
	if err == nil || !strings.Contains(err.Error(), "ids is 3, it needs to be from 0 to 2") {
		t.Errorf("the error is %v", err)
	}
}

// Few ids and many, each often or seldom, of either integer type, and rows that 16 bytes divide or
// not.
func TestEmbedding(t *testing.T) {
	types := [][2]kernels.DType{ // of the table and y, and for backward of the gradient and dy
		{kernels.F32, kernels.F32}, {kernels.BF16, kernels.BF16}, {kernels.F16, kernels.F16}, {kernels.F32, kernels.BF16}, {kernels.F32, kernels.F16},
	}
	cases := []struct {
		vocabulary, features, gap int
		ids                       []int
	}{
		{1, 1, 0, []int{3}}, {5, 7, 1, []int{2, 3}}, {50, 64, 0, []int{4, 33}}, {1000, 72, 8, []int{300}}, {3, 769, 0, []int{2, 500}},
		{65, 384, 0, []int{16, 256}}, {90, 800, 0, []int{700}}, {7, 8, 0, []int{0}}, {4, 16, 0, []int{}},
	}
	for _, dtypes := range types {
		for i, c := range cases {
			table, rows := dtypes[0], dtypes[1]
			r := newRowwiseTest(t, "%v %v %+v", table, rows, c)
			integers := []kernels.DType{kernels.I32, kernels.I64}[i%2]
			// Some ids are frequent, and half of the table is never looked up.
			next := func() int { return int(float64((c.vocabulary+1)/2) * math.Pow(r.random.Float64(), 3)) }
			ids, hostIDs := r.indices(integers, next, c.ids...)
			weights := r.normals(table, c.gap, c.vocabulary, c.features)
			e, host := &kernels.Embedding{Table: weights.Tensor, IDs: ids}, &kernels.Embedding{Table: weights.host, IDs: hostIDs}
			y := r.empty(rows, c.gap, e.OutputShape()...)
			r.must(r.d.EmbeddingForward(e, y.Tensor))
			r.check("y", y, reference.Embedding[float64](host), reference.Embedding[float32](host))

			dy, dTable := r.normals(rows, c.gap, e.OutputShape()...), r.empty(table, c.gap, c.vocabulary, c.features)
			r.must(r.d.EmbeddingBackward(e, dy.Tensor, dTable.Tensor))
			r.check("dTable", dTable, reference.EmbeddingGrad(host, dy.values()), reference.EmbeddingGrad(host, single(dy.values())))
			first := r.values(dTable)
			for range 3 {
				r.must(errors.Join(r.d.Fill(dTable.Tensor, math.NaN()), r.d.EmbeddingBackward(e, dy.Tensor, dTable.Tensor)))
				r.checkSame("dTable", dTable, first)
			}
			e.Accumulate = true // to what is there
			before := r.normals(table, c.gap, c.vocabulary, c.features)
			r.must(r.d.Copy(dTable.Tensor, before.Tensor))
			r.must(r.d.EmbeddingBackward(e, dy.Tensor, dTable.Tensor))
			sums, singles := reference.EmbeddingGrad(host, dy.values()), reference.EmbeddingGrad(host, single(dy.values()))
			for i, x := range before.values() {
				sums[i] += x
				singles[i] += float32(x)
			}
			r.check("dTable, added to", dTable, sums, singles)
		}
	}
}

// An id outside the table is reported by the next wait, once, and reads nothing.
func TestFaults(t *testing.T) {
	r := newRowwiseTest(t, "faults")
	weights, y := r.normals(kernels.F32, 0, 3, 8), r.empty(kernels.F32, 0, 2, 2, 8)
	list, at := []int{0, 1, 2, 0}, -1
	set := func(values ...int) kernels.Tensor {
		list, at = values, -1
		ids, _ := r.indices(kernels.I64, func() int { at++; return list[at] }, 2, 2)
		return ids
	}
	logits, loss, dLogits, lse := r.normals(kernels.F32, 0, 2, 2, 5), r.empty(kernels.F32, 0), r.empty(kernels.F32, 0, 2, 2, 5), r.normals(kernels.F32, 0, 2, 2)
	answers := func(dtype kernels.DType, values ...float32) kernels.Tensor {
		x := r.empty(dtype, 0, len(values)).Tensor
		r.must(r.d.Copy(x, kernels.Of(values, len(values))))
		return x
	}
	pad := -100
	entropy := func(targets kernels.Tensor) *kernels.CrossEntropy {
		return &kernels.CrossEntropy{Logits: logits.Tensor, Targets: targets, CrossEntropyOptions: kernels.CrossEntropyOptions{IgnoreIndex: &pad}}
	}
	for _, c := range []struct {
		want string
		call func() error
	}{
		{"embedding forward: element 2 of ids is 3, it needs to be from 0 to 2", func() error {
			return r.d.EmbeddingForward(&kernels.Embedding{Table: weights.Tensor, IDs: set(0, 1, 3, 0)}, y.Tensor)
		}},
		{"embedding backward: element 1 of ids is -1, it needs to be from 0 to 2", func() error {
			return r.d.EmbeddingBackward(&kernels.Embedding{Table: weights.Tensor, IDs: set(0, -1, 2, 0)}, y.Tensor, weights.Tensor)
		}},
		{"cross-entropy forward: element 3 of targets is 5, it needs to be from 0 to 4, or IgnoreIndex", func() error {
			return r.d.CrossEntropyForward(entropy(set(0, -100, 2, 5)), kernels.CrossEntropyOutputs{Loss: loss.Tensor})
		}},
		{"cross-entropy backward: element 0 of targets is 1099511627776, it needs to be from 0 to 4, or IgnoreIndex", func() error {
			return r.d.CrossEntropyBackward(entropy(set(1<<40, 1, 2, 4)), kernels.CrossEntropyGradients{LSE: lse.Tensor, DLogits: dLogits.Tensor})
		}},
		{"binary cross-entropy: element 6 of targets is 1.5, it needs to be from 0 to 1", func() error {
			return r.d.BinaryTargets(answers(kernels.F32, 0, 1, 0.5, 1, 0, 0, 1.5, 1), r.empty(kernels.F32, 0, 8).Tensor)
		}},
		{"binary cross-entropy: element 2 of targets is -0.5, it needs to be from 0 to 1", func() error {
			return r.d.BinaryTargets(answers(kernels.BF16, 0, 1, -0.5), r.empty(kernels.BF16, 0, 3).Tensor)
		}},
	} {
		for _, wait := range []func() error{r.d.Synchronize, func() error {
			number, err := r.d.Read(loss.Tensor)
			r.must(err)
			_, err = number.Float64()
			return err
		}} {
			r.must(c.call())
			if err := wait(); err == nil || !strings.HasSuffix(err.Error(), c.want) || !strings.HasPrefix(err.Error(), r.d.Name()) {
				t.Errorf("the error is %v, it needs to be %s: %s", err, r.d.Name(), c.want)
			}
			r.must(r.d.Synchronize())
		}
	}
}

// A recorded embedding looks up what the ids are when it is launched, and its gradient's scratch is
// clean each time.
func TestEmbeddingRecorded(t *testing.T) {
	r := newRowwiseTest(t, "recorded")
	ids, hostIDs := r.indices(kernels.I32, func() int { return r.random.IntN(40) }, 5000)
	weights := r.normals(kernels.F32, 0, 40, 64)
	e, host := &kernels.Embedding{Table: weights.Tensor, IDs: ids}, &kernels.Embedding{Table: weights.host, IDs: hostIDs}
	y, dTable := r.empty(kernels.F32, 0, 5000, 64), r.empty(kernels.F32, 0, 40, 64)
	var recording kernels.Recording
	for range 2 {
		var err error
		recording, err = r.d.Capture(func() error {
			return errors.Join(r.d.EmbeddingForward(e, y.Tensor), r.d.EmbeddingBackward(e, y.Tensor, dTable.Tensor))
		})
		r.must(err)
	}
	for range 3 {
		for i, list := 0, kernels.Host[int32](hostIDs); i < len(list); i++ {
			list[i] = int32(r.random.IntN(40))
		}
		r.must(errors.Join(r.d.Copy(ids, hostIDs), recording.Launch()))
		r.check("y", y, reference.Embedding[float64](host), reference.Embedding[float32](host))
		r.check("dTable", dTable, reference.EmbeddingGrad(host, reference.Embedding[float64](host)), reference.EmbeddingGrad(host, reference.Embedding[float32](host)))
	}
}
