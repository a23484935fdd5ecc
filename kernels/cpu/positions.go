package cpu

import "github.com/stheno-ml/stheno/kernels"

// TokenPositions counts the tokens of each row that are not padding.
func (b *Backend) TokenPositions(p *kernels.TokenPositions, positions kernels.Tensor) (err error) {
	const kernel = "token positions"
	defer catch(kernel, &err)
	if err := checked(kernel, p.Check(positions)); err != nil {
		return err
	}
	if p.IDs.DType == kernels.I32 {
		countTokens[int32](p.IDs, positions, p.Padding)
	} else {
		countTokens[int64](p.IDs, positions, p.Padding)
	}
	return nil
}

func countTokens[T int32 | int64](ids, positions kernels.Tensor, padding int) {
	from, to := kernels.Host[T](ids), kernels.Host[T](positions)
	for row := range ids.Shape[0] {
		n := T(padding)
		for column := range ids.Shape[1] {
			position := T(padding)
			if from[ids.Offset(row, column)] != T(padding) {
				n++
				position = n
			}
			to[positions.Offset(row, column)] = position
		}
	}
}
