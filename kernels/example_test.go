package kernels_test

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

// A problem can be checked, and its cost known, before any memory exists.
func ExampleAttention() {
	shape := func(dims ...int) kernels.Tensor { return kernels.Contiguous(nil, kernels.F32, dims...) }
	a := kernels.Attention{
		Q:      shape(1, 8, 1024, 64),
		K:      shape(1, 2, 1024, 64),
		V:      shape(1, 2, 1024, 64),
		Causal: kernels.CausalBottomRight,
	}
	fmt.Println(a.Validate())
	fmt.Println(a.VisiblePairs(), "pairs")
	fmt.Println(a.ForwardFLOPs()/1e9, "GFLOP forward")
	fmt.Println(a.BackwardFLOPs()/1e9, "GFLOP backward")

	a.K, a.V = shape(1, 3, 1024, 64), shape(1, 3, 1024, 64)
	fmt.Println(a.Validate())
	// Output:
	// <nil>
	// 4198400 pairs
	// 1.0747904 GFLOP forward
	// 2.686976 GFLOP backward
	// k has 3 heads, which does not divide q's 8
}

// The packed projection of a transformer, (B, S, (Hq+2Hk)·D), holds q, k and v as views: nothing is
// transposed.
func ExampleTensor_Unflatten() {
	const batch, length, heads, keyHeads, d = 2, 16, 4, 2, 8
	qkv := kernels.Contiguous(nil, kernels.F32, batch, length, (heads+2*keyHeads)*d)
	k := qkv.Slice(2, heads*d, (heads+keyHeads)*d).Unflatten(2, d).Permute(0, 2, 1, 3)
	fmt.Println(k.Shape, k.Strides)
	// Output: [2 2 16 8] [1024 8 64 1]
}

// The mask of dropout is a function of position, so it need not be kept.
func ExampleDropout() {
	d := kernels.Dropout{P: 0.5, Seed: 1, Step: 3}
	for column := range 8 {
		fmt.Print(d.Keep(0, 5, column), " ")
	}
	fmt.Println(d.Scale())
	// Output: true true true true false true true true 2
}
