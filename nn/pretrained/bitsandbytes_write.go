package pretrained

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/packed"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// checkNF4 makes sure that bitsandbytes would read weights in NF4 where they are written: it
// expects them in all linear layers but the head.
func (m *Model) checkNF4(weights tensor.Dtype) error {
	switch d := m.arch.decoder; {
	case weights == tensor.Dtype{}:
		return nil
	case weights != ops.NF4:
		return fmt.Errorf("weights is %v, it needs to be NF4, or the zero value for dtype", weights)
	case d == nil:
		return fmt.Errorf("weights is NF4, a %s is not written so", m.family)
	case d.mixture != nil:
		return fmt.Errorf("weights is NF4, a %s has experts, which are not written so", m.family)
	}
	return nil
}

// isNF4 reports whether a tensor is the weight of a linear layer that bitsandbytes quantises.
func (a *architecture) isNF4(l *link) bool {
	return l.linear && l.transposed && !slices.Contains(a.heads, strings.TrimSuffix(l.theirs, ".weight"))
}

// nf4Bytes is about how many bytes a weight has.
func nf4Bytes(elements int) int64 { return int64(elements/2 + elements/nf4Block + 1<<11) }

// nf4Config is what bitsandbytes says in a config.
func nf4Config(dtype string) json.RawMessage {
	return json.RawMessage(`{"_load_in_4bit": true, "_load_in_8bit": false, "bnb_4bit_compute_dtype": "` + dtype + `",
"bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true,
"llm_int8_enable_fp32_cpu_offload": false, "llm_int8_has_fp16_weight": false, "llm_int8_skip_modules": null,
"llm_int8_threshold": 6.0, "load_in_4bit": true, "load_in_8bit": false, "quant_method": "bitsandbytes"}`)
}

// keptNF4 is the matrix of a file that parameters in NF4 are the rows of, nil where they are none:
// matrices that were quantised one by one may have scales around different means.
func (l *link) keptNF4(kept map[string]*tensor.Dense) *packed.NF4Matrix {
	var rows []byte
	for _, p := range l.parts {
		value := kept[p.ours]
		if value.Dtype() != ops.NF4 {
			return nil
		}
		length := value.Shape()[1]
		rows = append(rows, ops.PackedBytes(value)[p.at*length:][:p.n*length]...)
	}
	matrix, err := packed.NF4MatrixOf(rows, l.rows(), l.rowLength())
	if err != nil {
		return nil
	}
	again := make([]byte, len(rows))
	if err := matrix.Rows(again, l.rows(), l.rowLength()); err != nil || !bytes.Equal(again, rows) {
		return nil
	}
	return matrix
}

// nf4MatrixOf quantises a matrix. Blocks go on from row to row. Where a row is not whole blocks the
// matrix counts as one row, and zeros fill the last block.
func nf4MatrixOf(wide *tensor.Dense) (*packed.NF4Matrix, error) {
	values, err := ops.Converted(wide, tensor.Float32)
	if err != nil {
		return nil, err
	}
	x, rows, columns := values.Float32s(), wide.Shape()[0], wide.Shape()[1]
	n := len(x)
	if columns%nf4Block != 0 {
		x = append(slices.Clone(x), make([]float32, (nf4Block-n%nf4Block)%nf4Block)...)
		rows, columns = 1, len(x)
	}
	codes, err := packed.Pack(kernels.NF4, x, rows, columns)
	if err != nil {
		return nil, err
	}
	m, err := packed.NF4MatrixOf(codes, rows, columns)
	if err != nil {
		return nil, err
	}
	m.Codes = m.Codes[:(n+1)/2]
	return m, nil
}

// nf4Tensors are the tensors of a weight. The dtype is what it widens to.
func nf4Tensors(l *link, m *packed.NF4Matrix, dtype tensor.Dtype) safetensors.Tensors {
	state := fmt.Sprintf(`{"quant_type": "nf4", "blocksize": %d, "dtype": %q, "shape": [%d, %d], "nested_blocksize": %d, "nested_dtype": "float32", "nested_offset": %s}`,
		nf4Block, typeNames[dtype], l.shape[0], l.shape[1], nf4Nested, strconv.FormatFloat(float64(m.Offset), 'g', -1, 64))
	vector := func(name string, backing any, shape ...int) safetensors.Tensor {
		return safetensors.Tensor{Name: l.theirs + name, Value: tensor.New(tensor.WithShape(shape...), tensor.WithBacking(backing))}
	}
	return safetensors.Tensors{
		vector("", m.Codes, len(m.Codes), 1),
		vector(".absmax", m.Scales, len(m.Scales)),
		vector(".nested_absmax", m.Nested, len(m.Nested)),
		vector(".nested_quant_map", packed.NF4ScaleTable[:], len(packed.NF4ScaleTable)),
		vector(".quant_map", packed.NF4Table[:], len(packed.NF4Table)),
		vector(nf4State, []byte(state), len(state)),
	}
}
