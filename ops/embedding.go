package ops

import (
	"cmp"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Embedding looks up the row of each id: table is (V, C), ids are int, int32 or int64 of any shape, each from 0 to V−1,
// and the result is (ids..., C). The ids may change from run to run.
//
// The gradient of the table is as large as the table.
func Embedding(table, ids *gorgonia.Node) (*gorgonia.Node, error) {
	return apply("Embedding", embedding{},
		input{name: "table", node: table, unread: true},
		input{name: "ids", node: ids, form: indexForm})
}

// EmbeddingAs is [Cast] of [Embedding] to another type of floats, in one pass where the table is float32 and the type a 16-bit one. So is
// the gradient, whose sums are float32.
func EmbeddingAs(table, ids *gorgonia.Node, dtype tensor.Dtype) (*gorgonia.Node, error) {
	to := dtypeOf(dtype)
	if table == nil || table.Dtype() != tensor.Float32 || to != kernels.BF16 && to != kernels.F16 {
		y, err := Embedding(table, ids)
		if err != nil {
			return nil, err
		}
		return Cast(y, dtype)
	}
	return apply("EmbeddingAs", embedding{to: to},
		input{name: "table", node: table, unread: true, roundsTo: to},
		input{name: "ids", node: ids, form: indexForm})
}

type embedding struct {
	stateless
	to kernels.DType // of the result; none for the table's
}

func (k embedding) outputs(in []kernels.Tensor) ([]kernels.Tensor, error) {
	e := kernels.Embedding{Table: in[0], IDs: in[1]}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	return described(cmp.Or(k.to, in[0].DType), e.OutputShape()...), nil
}

func (embedding) forward(r *run, in, out []kernels.Tensor) error {
	return r.EmbeddingForward(&kernels.Embedding{Table: in[0], IDs: in[1]}, out[0])
}

func (embedding) backward(r *run, in, dOut, d []kernels.Tensor) error {
	return r.EmbeddingBackward(&kernels.Embedding{Table: in[0], IDs: in[1]}, dOut[0], d[0])
}
