//go:build ignore

// Highest prints the highest vector level of the machine, at which tests run unless STHENO_SIMD
// says another.
package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/kernels/cpu"
)

func main() { fmt.Println(cpu.VectorLevel()) }
