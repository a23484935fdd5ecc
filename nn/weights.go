package nn

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// KeepWeights keeps the weights of the [Linear] and [Embedding] layers that are made from now on in
// 16 bits, ops.BFloat16 or ops.Float16: in half the memory, and predicting a token takes little
// more than half the time, for most of that goes into reading them. A layer rounds its weight when
// it is made, to nearest; a copy in float32 that nothing else holds is freed. The other parameters,
// all that layers compute and every sum stay float32, or what a model's Compute says.
//
// Weights in 16 bits are not trained: [Scope.Trainable] leaves them out. A LoRA beside them may be.
// On a GPU, layers need to compute in their type. This comes before the first layer is made.
func (p *Parameters) KeepWeights(dtype tensor.Dtype) error {
	if !isHalf(dtype) {
		return fmt.Errorf("Parameters: dtype is %v, weights can be kept in BFloat16 or Float16", dtype)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.holders != nil:
		return errors.New("Parameters: the values are shared out over ranks, weights in 16 bits need to be whole")
	case len(p.used) > 0 && p.weights != dtype:
		return errors.New("Parameters: layers have been made already, KeepWeights needs to come before the first")
	}
	p.weights = dtype
	return nil
}

// weight is the value of a parameter that a layer may have in 16 bits, made if there is none.
func (p *Parameters) weight(name string, dtype tensor.Dtype, init Init, shape []int) (*tensor.Dense, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := p.values[name]; ok && isHalf(v.Dtype()) && v.Dtype() == p.weights && dtype == tensor.Float32 {
		if !v.Shape().Eq(tensor.Shape(shape)) {
			return nil, errShape(name, v, v.Shape(), dtype, shape)
		}
		p.use(name)
		return v, nil
	}
	v, err := p.get(name, dtype, init, shape)
	if err != nil || p.weights == (tensor.Dtype{}) {
		return v, err
	}
	if dtype != tensor.Float32 {
		return nil, fmt.Errorf("parameter %s is %v, KeepWeights is for float32", name, dtype)
	}
	if v, err = ops.Converted(v, p.weights); err != nil {
		return nil, fmt.Errorf("parameter %s: %w", name, err)
	}
	p.values[name] = v
	return v, nil
}
