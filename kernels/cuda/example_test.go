//go:build gpu

package cuda_test

import (
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// One query of zeros attends equally to two keys: the result is the mean of their values.
func ExampleDevice_AttentionForward() {
	device, err := cuda.Default()
	if err != nil {
		log.Fatal(err)
	}
	upload := func(rows int, values ...float32) kernels.Tensor {
		t, err := device.Upload(kernels.Of(values, 1, 1, rows, 2)) // (batch, heads, length, head size)
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	problem := kernels.Attention{Q: upload(1, 0, 0), K: upload(2, 1, 2, 3, 4), V: upload(2, 10, 20, 30, 40)}
	o, err := device.Alloc(kernels.F32, 1, 1, 1, 2)
	if err != nil {
		log.Fatal(err)
	}
	if err := device.AttentionForward(&problem, kernels.AttentionOutputs{O: o}); err != nil {
		log.Fatal(err)
	}
	result := make([]float32, 2)
	if err := device.Copy(kernels.Of(result, 1, 1, 1, 2), o); err != nil {
		log.Fatal(err)
	}
	fmt.Println(result)
	// Output: [20 30]
}
