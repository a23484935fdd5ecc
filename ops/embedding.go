package ops

import (
	"cmp"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Embedding looks up the row of each id: table is (V, C), ids are int, int32 or int64 of any shape,
// each from 0 to V−1, and the result is (ids..., C). The ids may change from run to run.
//
// The gradient of the table is as large as the table. A table that [Packed] made has none, and
// gives float32.
func Embedding(table, ids *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Embedding", embedding(kernels.NoDType, nil),
		input{name: "table", node: table, form: tableForm(table), unread: true},
		input{name: "ids", node: ids, form: indexForm})
}

// EmbeddingAs is [Cast] of [Embedding] to another type of floats, in one pass where the table is
// float32 and the type a 16-bit one. So is the gradient, whose sums are float32. Rows of the table
// that are frozen, such as that of padding, get no gradient.
func EmbeddingAs(table, ids *gorgonia.Node, dtype tensor.Dtype, frozen ...int) (*gorgonia.Node, error) {
	from, to := floatOf(table), dtypeOf(dtype)
	idsIn := input{name: "ids", node: ids, form: indexForm}
	if from == kernels.F32 && (to == kernels.BF16 || to == kernels.F16) {
		return apply("EmbeddingAs", embedding(to, frozen), input{name: "table", node: table, unread: true, roundsTo: to}, idsIn)
	}
	y, err := apply("Embedding", embedding(kernels.NoDType, frozen), input{name: "table", node: table, form: tableForm(table), unread: true}, idsIn)
	if err != nil {
		return nil, err
	}
	return Cast(y, dtype)
}

// tableForm is the form of a table, which may be packed.
func tableForm(table *gorgonia.Node) form {
	if table != nil && table.Type() != nil && packedDTypeOf(table.Dtype()) != kernels.NoDType {
		return packedForm
	}
	return rowsForm
}

// embedding is the kernel whose result has another type than the table, or with NoDType the
// table's.
func embedding(to kernels.DType, frozen []int) kernel {
	return kernel{
		linear:      len(frozen) == 0,
		accumulates: len(frozen) == 0,
		describe: func(in tensors) (description, error) {
			e := kernels.Embedding{Table: in[0], IDs: in[1]}
			if err := e.Validate(); err != nil {
				return description{}, err
			}
			for _, row := range frozen {
				if row < 0 || row >= in[0].Shape[0] {
					return description{}, fmt.Errorf("frozen has row %d, it needs to be from 0 to %d", row, in[0].Shape[0]-1)
				}
			}
			own := in[0].DType
			if own.IsPacked() {
				own = kernels.F32
			}
			return described(cmp.Or(to, own), e.OutputShape()...), nil
		},
		forward: func(r *run, in, out tensors) error {
			return r.EmbeddingForward(&kernels.Embedding{Table: in[0], IDs: in[1]}, out[0])
		},
		backward: func(r *run, in, dOut, d tensors) error {
			if err := r.EmbeddingBackward(&kernels.Embedding{Table: in[0], IDs: in[1], Accumulate: r.adds}, dOut[0], d[0]); err != nil {
				return err
			}
			for _, row := range frozen {
				if err := r.Fill(d[0].Slice(0, row, row+1), 0); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
