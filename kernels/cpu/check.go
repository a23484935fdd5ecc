package cpu

import (
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu/internal/simd"
)

// checked returns the error of a call of a kernel: what the kernel's own check found, or that the
// environment asks for instructions that there are not.
func checked(kernel string, err error) error {
	if err == nil {
		err = simd.Check()
	}
	if err != nil {
		return callError(kernel, err)
	}
	return nil
}

func callError(kernel string, err error) error {
	return &kernels.CallError{Device: "cpu", Kernel: kernel, Err: err}
}

// inTypeOf returns that version of a function which computes in the type of t, of float32 or
// float64.
func inTypeOf[F any](t kernels.Tensor, single, double F) F {
	if t.DType == kernels.F32 {
		return single
	}
	return double
}
