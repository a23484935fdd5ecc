package ops

import (
	"reflect"
	"strconv"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// BFloat16 and Float16 are the types of nodes whose elements have 16 bits: values of
// [kernels.BFloat16] and [kernels.Float16]. [Cast] makes such nodes. The ops of this package take
// them; of Gorgonia's own, Reshape, Slice and Add do, the last on a machine that has this package's
// [Engine].
var (
	BFloat16 = tensor.Dtype{Type: reflect.TypeFor[kernels.BFloat16]()}
	Float16  = tensor.Dtype{Type: reflect.TypeFor[kernels.Float16]()}
)

func init() {
	tensor.RegisterFloat(BFloat16)
	tensor.RegisterFloat(Float16)
}

// floatTypes is what messages say that an input needs to be.
const floatTypes = "float32, float64, BFloat16 or Float16"

// dtypeOf is the kernels' name of a Gorgonia type, NoDType for types that no kernel computes in.
func dtypeOf(d tensor.Dtype) kernels.DType {
	switch d {
	case tensor.Float32:
		return kernels.F32
	case tensor.Float64:
		return kernels.F64
	case BFloat16:
		return kernels.BF16
	case Float16:
		return kernels.F16
	}
	return kernels.NoDType
}

// floatOf is the kernels' name of a node's type; NoDType where there is no node.
func floatOf(n *gorgonia.Node) kernels.DType {
	if n == nil || n.Type() == nil {
		return kernels.NoDType
	}
	return dtypeOf(n.Dtype())
}

// indexDTypeOf is the kernels' name of a Gorgonia type of integers, NoDType for types that no
// kernel takes as indices.
func indexDTypeOf(d tensor.Dtype) kernels.DType {
	switch {
	case d == tensor.Int32, d == tensor.Int && strconv.IntSize == 32:
		return kernels.I32
	case d == tensor.Int64, d == tensor.Int:
		return kernels.I64
	}
	return kernels.NoDType
}

// anyDTypeOf is the kernels' name of a type that tensors of a device may have.
func anyDTypeOf(d tensor.Dtype) kernels.DType {
	if dtype := dtypeOf(d); dtype != kernels.NoDType {
		return dtype
	}
	if d == tensor.Bool {
		return kernels.Bool
	}
	return indexDTypeOf(d)
}

// packedDTypeOf is the kernels' name of a type of packed matrices, NoDType for others.
func packedDTypeOf(d tensor.Dtype) kernels.DType {
	switch d {
	case Int8:
		return kernels.Int8
	case Int4:
		return kernels.Int4
	case NF4:
		return kernels.NF4
	}
	return kernels.NoDType
}

// nodeDtype is Gorgonia's name of a kernels' type.
func nodeDtype(d kernels.DType) tensor.Dtype {
	switch d {
	case kernels.F64:
		return tensor.Float64
	case kernels.BF16:
		return BFloat16
	case kernels.F16:
		return Float16
	case kernels.I32:
		return tensor.Int32
	case kernels.I64:
		return tensor.Int64
	case kernels.Bool:
		return tensor.Bool
	}
	return tensor.Float32
}
