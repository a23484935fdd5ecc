package safetensors

import (
	"maps"
	"slices"

	"gorgonia.org/tensor"
)

// Tensor is a tensor and its name in a file.
type Tensor struct {
	Name  string
	Value *tensor.Dense
}

// Tensors is a list of tensors in the order in which a file has them.
type Tensors []Tensor

// Sorted is the list of the tensors of a map, sorted by name, so that equal maps make equal files.
func Sorted(values map[string]*tensor.Dense) Tensors {
	var list Tensors
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, Tensor{name, values[name]})
	}
	return list
}

// Map is the tensors by name. Of tensors with one name it has the last.
func (list Tensors) Map() map[string]*tensor.Dense {
	values := make(map[string]*tensor.Dense, len(list))
	for _, t := range list {
		values[t.Name] = t.Value
	}
	return values
}

// metadataName is the name in the header that is no tensor's.
const metadataName = "__metadata__"

// maxHeader is the most bytes that a header may have, the padding included.
const maxHeader = 100_000_000

// bufferSize is how many bytes are encoded or decoded at a time.
const bufferSize = 256 << 10

// elementSizes is how many bytes an element of each type has. Those smaller than a byte are left
// out.
var elementSizes = map[string]uint64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1,
	"I16": 2, "U16": 2, "F16": 2, "BF16": 2,
	"I32": 4, "U32": 4, "F32": 4,
	"I64": 8, "U64": 8, "F64": 8, "C64": 8,
}
