package nn

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// KeepWeights keeps the weights of layers that are made from now on in less memory, and predicting
// a token takes little more than the part of the time that the memory is, for most of that goes
// into reading them. A layer rounds its weight when it is made, to nearest; a copy in float32 that
// nothing else holds is freed. The other parameters, all that layers compute and every sum stay
// float32, or what a model's Compute says.
//
//	ops.BFloat16, ops.Float16         of Linear and Embedding layers
//	ops.Int8, ops.Int4, ops.NF4       of Linear layers, see [Parameters.KeepEmbeddings]
//
// Weights that are kept so are not trained: [Scope.Trainable] leaves them out. A LoRA beside them
// may be. On a GPU, layers need to compute in the type of 16 bits where weights are kept in that,
// and a row of BFloat16 that holds an infinity may be NaN as a whole behind weights of Int4. This
// comes before the first layer is made.
func (p *Parameters) KeepWeights(dtype tensor.Dtype) error {
	if !isKept(dtype) {
		return fmt.Errorf("Parameters: dtype is %v, weights can be kept in BFloat16, Float16, Int8, Int4 or NF4", dtype)
	}
	keep := p.kept
	if keep.linear = dtype; isHalf(dtype) {
		keep.embedding = dtype
	}
	return p.keep("KeepWeights", keep)
}

// KeepEmbeddings is [Parameters.KeepWeights] of Embedding layers alone, the head of a language
// model among them. It takes all types that KeepWeights does.
func (p *Parameters) KeepEmbeddings(dtype tensor.Dtype) error {
	if !isKept(dtype) {
		return fmt.Errorf("Parameters: dtype is %v, embeddings can be kept in BFloat16, Float16, Int8, Int4 or NF4", dtype)
	}
	keep := p.kept
	keep.embedding = dtype
	return p.keep("KeepEmbeddings", keep)
}

// keeping is the types in which weights are kept, none for the type of the parameters.
type keeping struct{ linear, embedding tensor.Dtype }

// has reports whether weights are kept in a type.
func (k keeping) has(d tensor.Dtype) bool { return isKept(d) && (d == k.linear || d == k.embedding) }

func (p *Parameters) keep(method string, k keeping) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.holders != nil:
		return errors.New("Parameters: the values are shared out over ranks, weights in less memory need to be whole")
	case len(p.used) > 0 && p.kept != k:
		return fmt.Errorf("Parameters: layers have been made already, %s needs to come before the first", method)
	}
	p.kept = k
	return nil
}

// linearWeight is the value of a Linear's weight, (in, out), which lies as (out, in) where it is
// packed.
func (p *Parameters) linearWeight(name string, dtype tensor.Dtype, init Init, shape []int) (*tensor.Dense, error) {
	return p.weight(name, dtype, init, shape, true)
}

// embeddingWeight is the value of an Embedding's weight.
func (p *Parameters) embeddingWeight(name string, dtype tensor.Dtype, init Init, shape []int) (*tensor.Dense, error) {
	return p.weight(name, dtype, init, shape, false)
}

// weight is the value of a parameter that may be kept in another type, made if there is none.
func (p *Parameters) weight(name string, dtype tensor.Dtype, init Init, shape []int, linear bool) (*tensor.Dense, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := p.kept.embedding
	if linear {
		kept = p.kept.linear
	}
	if kept == (tensor.Dtype{}) {
		return p.get(name, dtype, init, shape)
	}
	keptShape, err := shape, error(nil)
	if ops.IsPacked(kept) && err == nil && len(shape) > 2 {
		err = fmt.Errorf("it has a matrix for each expert, which can be kept in BFloat16 or Float16, not in %v", kept)
	}
	if ops.IsPacked(kept) && err == nil {
		rows, columns := shape[0], shape[1]
		if linear {
			rows, columns = columns, rows
		}
		keptShape, err = ops.PackedShape(kept, rows, columns)
	}
	if err != nil {
		return nil, fmt.Errorf("parameter %s: %w", name, err)
	}
	if v, ok := p.values[name]; ok && v.Dtype() == kept && dtype == tensor.Float32 {
		if !v.Shape().Eq(tensor.Shape(keptShape)) {
			return nil, errShape(name, v, v.Shape(), dtype, shape)
		}
		p.use(name)
		return v, nil
	}
	v, err := p.get(name, dtype, init, shape)
	if err != nil {
		return nil, err
	}
	if dtype != tensor.Float32 {
		return nil, fmt.Errorf("parameter %s is %v, KeepWeights is for float32", name, dtype)
	}
	if v, err = p.keptOf(v, kept, linear); err != nil {
		return nil, fmt.Errorf("parameter %s: %w", name, err)
	}
	p.values[name] = v
	return v, nil
}

// keptOf is a copy of a matrix of float32 in the type that it is kept in. That of a linear layer is
// packed as (out, in), on the host.
func (p *Parameters) keptOf(v *tensor.Dense, kept tensor.Dtype, linear bool) (_ *tensor.Dense, err error) {
	if isHalf(kept) {
		return ops.Converted(v, kept)
	}
	if v, err = ops.Download(v); err == nil && linear {
		v, err = ops.Transposed(v)
	}
	if err == nil {
		v, err = ops.Packed(v, kept)
	}
	if err == nil && p.device != nil {
		v, err = p.device.Upload(v)
	}
	return v, err
}
