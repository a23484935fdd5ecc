package ops

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	packing "github.com/stheno-ml/stheno/kernels/packed"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Int8, Int4 and NF4 are the types of packed matrices: weights in about 8.5, 4.5 and 4.15 bits an
// element, whose numbers count as what they were rounded to. [Packed] makes such a matrix. Its
// value has the shape (rows, bytes of a row), and package packed says what these are.
//
// [Linear] and the ops of several such layers take one of (out, in) as a weight, [MatMul] as its b,
// and [Embedding] as its table. It is a constant to a gradient. A GPU widens it to the type of what
// it is multiplied by, rounded to that, for the time of a product, and where a graph has gradients
// for that of a layer's run.
var (
	Int8 = tensor.Dtype{Type: reflect.TypeFor[packing.Int8]()}
	Int4 = tensor.Dtype{Type: reflect.TypeFor[packing.Int4]()}
	NF4  = tensor.Dtype{Type: reflect.TypeFor[packing.NF4]()}
)

func init() {
	for _, d := range []tensor.Dtype{Int8, Int4, NF4} {
		tensor.RegisterEq(d)
	}
}

// IsPacked reports whether a type is one of packed matrices.
func IsPacked(d tensor.Dtype) bool { return packedDTypeOf(d) != kernels.NoDType }

// Packed rounds a matrix of float32 on the host to a type of packed matrices. The length of its
// rows needs to be a multiple of 32, for NF4 of 64.
func Packed(v *tensor.Dense, dtype tensor.Dtype) (*tensor.Dense, error) {
	to := packedDTypeOf(dtype)
	switch {
	case to == kernels.NoDType:
		return nil, fmt.Errorf("Packed: dtype is %v, it needs to be Int8, Int4 or NF4", dtype)
	case v == nil || !v.IsNativelyAccessible():
		return nil, errors.New("Packed: the value needs to be on the host")
	}
	t, err := TensorOf(v)
	if err != nil {
		return nil, fmt.Errorf("Packed: the value %w", err)
	}
	if t.DType != kernels.F32 || len(t.Shape) != 2 || !t.IsRowMajor() {
		return nil, fmt.Errorf("Packed: the value is %v of shape %v and strides %v, it needs to be a row-major matrix of float32", t.DType, t.Shape, t.Strides)
	}
	rows, columns := t.Shape[0], t.Shape[1]
	bytes, err := packing.Pack(to, kernels.Host[float32](t), rows, columns)
	if err != nil {
		return nil, fmt.Errorf("Packed: %w", err)
	}
	return PackedOf(bytes, dtype, rows)
}

// PackedOf is the bytes of a packed matrix of so many rows as a value.
func PackedOf(bytes []byte, dtype tensor.Dtype, rows int) (*tensor.Dense, error) {
	of := packedDTypeOf(dtype)
	if of == kernels.NoDType || rows < 1 || len(bytes)%rows != 0 {
		return nil, fmt.Errorf("PackedOf: %d bytes are no matrix of %v of %d rows", len(bytes), dtype, rows)
	}
	if _, err := packing.RowOfBytes(of, len(bytes)/rows); err != nil {
		return nil, fmt.Errorf("PackedOf: %w", err)
	}
	var backing any
	switch of {
	case kernels.Int8:
		backing = asBytesOf[packing.Int8](bytes)
	case kernels.Int4:
		backing = asBytesOf[packing.Int4](bytes)
	default:
		backing = asBytesOf[packing.NF4](bytes)
	}
	return tensor.New(tensor.WithShape(rows, len(bytes)/rows), tensor.WithBacking(backing), tensor.WithEngine(engine{})), nil
}

// PackedShape is the shape of the value of a packed matrix of so many rows and columns.
func PackedShape(dtype tensor.Dtype, rows, columns int) ([]int, error) {
	r, err := packing.RowOf(packedDTypeOf(dtype), columns)
	return []int{rows, r.Bytes}, err
}

// UnpackedShape is the rows and the columns of a packed matrix whose value has a shape. Shapes of
// other types come back as they are.
func UnpackedShape(dtype tensor.Dtype, shape []int) []int {
	if unpacked, err := shapeOfPacked(packedDTypeOf(dtype), shape); err == nil {
		return unpacked
	}
	return shape
}

// Transposed is the transpose of a matrix of floats on the host, row-major.
func Transposed(v *tensor.Dense) (*tensor.Dense, error) {
	if v == nil || !v.IsNativelyAccessible() || v.Dims() != 2 || dtypeOf(v.Dtype()) == kernels.NoDType {
		return nil, fmt.Errorf("Transposed: the value is %s, it needs to be a matrix of floats on the host", kindOf(v))
	}
	t, err := TensorOf(v)
	if err != nil {
		return nil, fmt.Errorf("Transposed: the value %w", err)
	}
	to, err := copied(t.Permute(1, 0), t.DType, host, host)
	if err != nil {
		return nil, fmt.Errorf("Transposed: %w", err)
	}
	return ValueOf(to), nil
}

// Unpacked is a packed matrix in float32, (rows, columns).
func Unpacked(v *tensor.Dense) (*tensor.Dense, error) {
	if v == nil || !IsPacked(v.Dtype()) {
		return nil, fmt.Errorf("Unpacked: the value is %s, it needs to be a packed matrix", kindOf(v))
	}
	v, err := Download(v)
	if err != nil {
		return nil, fmt.Errorf("Unpacked: %w", err)
	}
	t, err := viewPacked(host, v, packedDTypeOf(v.Dtype()))
	if err != nil {
		return nil, fmt.Errorf("Unpacked: the value %w", err)
	}
	wide, err := packing.Widen(t.DType, PackedBytes(v), t.Shape[0], t.Shape[1])
	if err != nil {
		return nil, fmt.Errorf("Unpacked: %w", err)
	}
	return tensor.New(tensor.WithShape(t.Shape...), tensor.WithBacking(wide)), nil
}

// PackedBytes are the bytes of a packed matrix on the host, not a copy.
func PackedBytes(v *tensor.Dense) []byte {
	at, bytes := dataOf(v)
	return unsafe.Slice((*byte)(at), bytes)
}

// asBytesOf views bytes as those of a type.
func asBytesOf[T ~uint8](bytes []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(bytes))), len(bytes))
}

// viewPacked describes a packed matrix to a kernel, with its rows and columns.
func viewPacked(b kernels.Backend, v gorgonia.Value, dtype kernels.DType) (kernels.Tensor, error) {
	t, ok := v.(*tensor.Dense)
	if !ok || packedDTypeOf(t.Dtype()) != dtype {
		return kernels.Tensor{}, fmt.Errorf("is %v, its node promised %v", v.Dtype(), dtype)
	}
	shape, err := shapeOfPacked(dtype, t.Shape())
	if err != nil {
		return kernels.Tensor{}, err
	}
	at, bytes := dataOf(t)
	if have := t.Shape().TotalSize(); have > bytes || t.Strides()[0] != t.Shape()[1] || t.Strides()[1] != 1 {
		return kernels.Tensor{}, fmt.Errorf("has strides %v for shape %v, its rows need to lie end to end", t.Strides(), []int(t.Shape()))
	}
	seen := kernels.Contiguous(at, dtype, shape...)
	seen.Owner = b.Owner(seen)
	return seen, nil
}

// bindPacked is the value of an input that is a packed matrix, or the transpose of one.
func bindPacked(b kernels.Backend, v gorgonia.Value, as kernels.Tensor) (kernels.Tensor, error) {
	t, err := viewPacked(b, v, as.DType)
	if err == nil && as.Strides[0] == 1 {
		t = t.Permute(1, 0)
	}
	if err == nil && !slices.Equal(t.Shape, as.Shape) {
		err = fmt.Errorf("is a matrix %v, its node promised %v", t.Shape, as.Shape)
	}
	return t, err
}

// shapeOfPacked is the rows and the columns of a packed matrix from the shape of its value.
func shapeOfPacked(dtype kernels.DType, shape tensor.Shape) ([]int, error) {
	if len(shape) != 2 || shape[0] < 1 {
		return nil, fmt.Errorf("is %v of shape %v, it needs two axes (rows, bytes)", dtype, []int(shape))
	}
	r, err := packing.RowOfBytes(dtype, shape[1])
	if err != nil {
		return nil, fmt.Errorf("has shape %v: %w", []int(shape), err)
	}
	return []int{shape[0], r.Columns}, nil
}

// checkPacked is check of an input that is a packed matrix.
func (in *input) checkPacked(dtype kernels.DType) (kernels.Tensor, error) {
	shape, err := shapeOfPacked(dtype, in.node.Shape())
	if err != nil {
		return kernels.Tensor{}, fmt.Errorf("%s %w", in.name, err)
	}
	t := kernels.Contiguous(nil, dtype, shape...)
	if in.form == packedColumnsForm {
		t = t.Permute(1, 0)
	}
	return t, nil
}

// wordsOf is the memory of a packed matrix, whose value is v, as words of 32 bits, of which its
// rows are whole ones: for what moves it.
func wordsOf(t kernels.Tensor, v gorgonia.Value) kernels.Tensor {
	words := kernels.Contiguous(t.Data, kernels.I32, v.Shape().TotalSize()/4)
	words.Owner = t.Owner
	return words
}

// packedValueOf is the memory of a packed matrix as a value.
func packedValueOf(words kernels.Tensor, dtype tensor.Dtype, rows int) (*tensor.Dense, error) {
	bytes := 4 * words.Elements()
	if words.Owner == nil {
		return PackedOf(unsafe.Slice((*byte)(words.Data), bytes), dtype, rows)
	}
	return deviceValue(words, dtype, rows, bytes/rows), nil
}
