package kernels_test

import (
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

func TestThinProductsErrors(t *testing.T) {
	of := func(shape ...int) kernels.Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return kernels.Of(make([]float32, n), shape...)
	}
	x, right, left, across := of(6, 5), of(5, 2), of(6, 2), of(6, 2)
	whole := []kernels.ThinPart{{Out: of(2, 5)}}
	for _, c := range []struct {
		p    kernels.ThinProducts
		out  kernels.ThinOutputs
		want string
	}{
		{kernels.ThinProducts{X: x, Right: right, Left: left, Scale: 2}, kernels.ThinOutputs{Across: across, Down: whole}, ""},
		{kernels.ThinProducts{X: x, Right: right, Scale: 2}, kernels.ThinOutputs{Across: across}, ""},
		{kernels.ThinProducts{X: x, Left: left}, kernels.ThinOutputs{Down: []kernels.ThinPart{{Out: of(1, 3), Rank: 1, Column: 2}}}, ""},
		{kernels.ThinProducts{X: x, Up: of(6, 5), Left: left}, kernels.ThinOutputs{Down: whole}, ""},
		{kernels.ThinProducts{X: x, Up: of(5, 5), Left: left}, kernels.ThinOutputs{Down: whole}, "up is float32 of shape [5 5], it needs to be float32 of x's shape [6 5]"},
		{kernels.ThinProducts{X: x}, kernels.ThinOutputs{}, "right and left are missing, it needs at least one of them"},
		{kernels.ThinProducts{X: of(6), Left: left}, kernels.ThinOutputs{Down: whole}, "x has shape [6], it needs at least two axes"},
		{kernels.ThinProducts{X: of(1, 6, 5), Left: left}, kernels.ThinOutputs{Down: whole}, "x has shape [1 6 5], it needs two axes"},
		{kernels.ThinProducts{X: x, Right: of(6, 2), Scale: 1}, kernels.ThinOutputs{Across: across}, "right is float32 of shape [6 2], it needs to be float32 with a row for each of x's 5 columns"},
		{kernels.ThinProducts{X: x, Left: of(5, 2)}, kernels.ThinOutputs{Down: whole}, "left is float32 of shape [5 2], it needs to be float32 with a row for each of x's 6 rows"},
		{kernels.ThinProducts{X: x, Right: right, Left: of(6, 3), Scale: 1}, kernels.ThinOutputs{Across: across, Down: whole}, "left has 3 columns, it needs right's 2"},
		{kernels.ThinProducts{X: x, Right: right, Scale: 1}, kernels.ThinOutputs{Across: of(6, 3)}, "across has shape [6 3] and strides [3 1], it needs shape [6 2]"},
		{kernels.ThinProducts{X: x, Right: right, Scale: 1}, kernels.ThinOutputs{Across: across, Down: whole}, "down has 1 parts, it needs none without left"},
		{kernels.ThinProducts{X: x, Left: left}, kernels.ThinOutputs{Across: across, Down: whole}, "across has shape [6 2], it needs to be left out without right"},
		{kernels.ThinProducts{X: x, Left: left}, kernels.ThinOutputs{}, "down has no parts, with left it needs at least one"},
		{kernels.ThinProducts{X: x, Left: left}, kernels.ThinOutputs{Down: []kernels.ThinPart{{Out: of(2, 3), Column: 3}}}, "down[0] has shape [2 3] from rank 0 and column 3 on, it needs to be a part of (2, 5)"},
	} {
		err := c.p.Check(c.out)
		if got := ""; err != nil {
			got = err.Error()
			if got != c.want {
				t.Errorf("the error is %q, it needs to be %q", got, c.want)
			}
		} else if c.want != "" {
			t.Errorf("there is no error, it needs to be %q", c.want)
		}
	}
}
