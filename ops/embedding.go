package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
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

type embedding struct{ stateless }

func (embedding) shape(in []kernels.Tensor) ([]int, error) {
	e := kernels.Embedding{Table: in[0], IDs: in[1]}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	return e.OutputShape(), nil
}

func (embedding) forward(h *home, in []kernels.Tensor, out kernels.Tensor, _ []bool) error {
	return h.EmbeddingForward(&kernels.Embedding{Table: in[0], IDs: in[1]}, out)
}

func (embedding) backward(h *home, in []kernels.Tensor, dOut kernels.Tensor, d []kernels.Tensor) error {
	return h.EmbeddingBackward(&kernels.Embedding{Table: in[0], IDs: in[1]}, dOut, d[0])
}
