package data

import "gorgonia.org/tensor"

// Floats is an array of a batch, such as images or targets that are numbers: values row by row in a
// shape, of which one axis may be -1, which stands for what is left. The array has the memory of
// values. It is nil, which a Loop reports, where they do not fill the shape.
func Floats[T float32 | float64](values []T, shape ...int) *tensor.Dense {
	return shaped(values, shape)
}

// Ints is [Floats] of integers, such as tokens or classes.
func Ints[T int | int32 | int64](values []T, shape ...int) *tensor.Dense {
	return shaped(values, shape)
}

// Bools is [Floats] of what is true or not, such as a mask.
func Bools(values []bool, shape ...int) *tensor.Dense { return shaped(values, shape) }

// shaped is an array of a shape, nil where values do not fill it.
func shaped[T any](values []T, shape []int) *tensor.Dense {
	whole, left, known := make([]int, len(shape)), -1, 1
	for i, d := range shape {
		switch whole[i] = d; {
		case d == -1 && left < 0:
			left = i
		case d < 1 || known > len(values)/d:
			return nil
		default:
			known *= d
		}
	}
	if left >= 0 && len(values)%known == 0 {
		whole[left] = len(values) / known
		known *= whole[left]
	}
	if len(shape) == 0 || len(values) == 0 || known != len(values) {
		return nil
	}
	return tensor.New(tensor.WithShape(whole...), tensor.WithBacking(values))
}
