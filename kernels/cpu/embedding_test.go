package cpu_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
	"pgregory.net/rapid"
)

// int32s and int64s are the same ids in both types.
func int32s(ids []int, shape ...int) kernels.Tensor {
	list := make([]int32, len(ids))
	for i, id := range ids {
		list[i] = int32(id)
	}
	return kernels.Of(list, shape...)
}

func int64s(ids []int, shape ...int) kernels.Tensor {
	list := make([]int64, len(ids))
	for i, id := range ids {
		list[i] = int64(id)
	}
	return kernels.Of(list, shape...)
}

func TestEmbedding(t *testing.T) { bothTypes(t, testEmbedding[float32], testEmbedding[float64]) }

func testEmbedding[T kernels.Float](t *testing.T) {
	for _, c := range []struct {
		vocabulary, features, gap int
		shape                     []int
	}{
		{1, 1, 0, []int{3}}, {5, 3, 0, []int{2, 4}}, {7, 65, 3, []int{2, 3}}, {50, 129, 0, []int{11, 53}},
		{300, 96, 1, []int{8, 97}}, {4, 8, 0, []int{0}}, {4, 5, 0, nil},
	} {
		r := newRandom()
		table, dTable := newField[T](r, c.gap, c.vocabulary, c.features), newField[T](r, c.gap, c.vocabulary, c.features)
		yShape := append(append([]int(nil), c.shape...), c.features)
		y, dy := newField[T](r, c.gap, yShape...), newField[T](r, c.gap, yShape...)
		ids := make([]int, y.Elements()/c.features)
		for i := range ids {
			ids[i] = min(r.IntN(c.vocabulary), r.IntN(c.vocabulary)) // some more frequent than others
		}
		for name, tensor := range map[string]kernels.Tensor{"int32": int32s(ids, c.shape...), "int64": int64s(ids, c.shape...)} {
			e := &kernels.Embedding{Table: table.Tensor, IDs: tensor}
			refY, ptY := reference.Embedding[float64](e), reference.Embedding[T](e)
			refD, ptD := reference.EmbeddingGrad(e, dy.values()), reference.EmbeddingGrad(e, dy.typed())
			verify[T](t, fmt.Sprintf("%s table=%v ids=%v gap=%d seed=%d", name, table.Shape, c.shape, c.gap, rowwiseSeed), func(b *cpu.Backend) ([]result, error) {
				if err := b.EmbeddingForward(e, y.Tensor); err != nil {
					return nil, err
				}
				err := b.EmbeddingBackward(&kernels.Embedding{Table: shapeOnly(c.vocabulary, c.features), IDs: tensor}, dy.Tensor, dTable.Tensor)
				if err != nil {
					return nil, err
				}
				added := newField[T](newRandom(), c.gap, c.vocabulary, c.features)
				sums, typed := added.values(), added.typed()
				for i := range sums {
					sums[i] += refD[i]
					typed[i] += ptD[i]
				}
				err = b.EmbeddingBackward(&kernels.Embedding{Table: shapeOnly(c.vocabulary, c.features), IDs: tensor, Accumulate: true}, dy.Tensor, added.Tensor)
				return []result{resultOf("y", y, refY, ptY), resultOf("dTable", dTable, refD, ptD), resultOf("dTable, added to", added, sums, typed)}, err
			})
		}
	}
}

// The gradient of the table is the product of the ids, one-hot, with the gradient of the rows.
func TestEmbeddingGradientIsAProduct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocabulary, features := rapid.IntRange(1, 9).Draw(t, "vocabulary"), rapid.IntRange(1, 40).Draw(t, "features")
		ids := rapid.SliceOfN(rapid.IntRange(0, vocabulary-1), 1, 30).Draw(t, "ids")
		r := newRandom()
		dy, got, want := newField[float64](r, 0, len(ids), features), newField[float64](r, 0, vocabulary, features), newField[float64](r, 0, vocabulary, features)
		oneHot := newField[float64](r, 0, len(ids), vocabulary)
		clear(oneHot.memory)
		for i, id := range ids {
			oneHot.memory[i*vocabulary+id] = 1
		}
		b := cpu.New()
		if err := b.EmbeddingBackward(&kernels.Embedding{Table: shapeOnly(vocabulary, features), IDs: int32s(ids, len(ids))}, dy.Tensor, got.Tensor); err != nil {
			t.Fatal(err)
		}
		if err := b.MatMul(&kernels.MatMul{A: oneHot.Permute(1, 0), B: dy.Tensor}, kernels.MatMulOutputs{C: want.Tensor}); err != nil {
			t.Fatal(err)
		}
		if err := (result{name: "dTable", got: got.values(), ref: want.values(), pt: want.values()}).check(kernels.F64); err != nil {
			t.Fatal(err)
		}
	})
}

func TestEmbeddingErrors(t *testing.T) {
	b := cpu.New()
	table, y := kernels.Of(make([]float32, 12), 4, 3), kernels.Of(make([]float32, 18), 2, 3, 3)
	with := func(ids ...int) *kernels.Embedding {
		return &kernels.Embedding{Table: table, IDs: int64s(ids, 2, 3)}
	}
	checkErrors(t, []errorCase{
		{"cpu: embedding forward: ids[1 0] is 4, it needs to be from 0 to 3", b.EmbeddingForward(with(0, 1, 2, 4, 0, 9), y)},
		{"cpu: embedding backward: ids[0 2] is -1, it needs to be from 0 to 3", b.EmbeddingBackward(with(0, 1, -1, 0, 0, 0), y, table)},
		{"cpu: embedding forward: ids is float32, it needs to be int32 or int64", b.EmbeddingForward(&kernels.Embedding{Table: table, IDs: table}, y)},
		{"cpu: embedding forward: ids has shape [2] but no data",
			b.EmbeddingForward(&kernels.Embedding{Table: table, IDs: kernels.Contiguous(nil, kernels.I32, 2)}, kernels.Of(make([]float32, 6), 2, 3))},
		{"cpu: embedding forward: table has shape [2 3 3], it needs two axes (vocabulary, features)",
			b.EmbeddingForward(&kernels.Embedding{Table: y, IDs: with(0, 0, 0, 0, 0, 0).IDs}, y)},
		{"cpu: embedding forward: y has shape [4 3] and strides [3 1], it needs shape [2 3 3]", b.EmbeddingForward(with(0, 0, 0, 0, 0, 0), table)},
		{"cpu: embedding backward: dTable is missing, it needs shape [4 3]", b.EmbeddingBackward(with(0, 0, 0, 0, 0, 0), y, kernels.Tensor{})},
	})
}
