package cpu_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// A program with an unknown word in STHENO_SIMD gets an error from every kernel.
func TestUnknownLevel(t *testing.T) {
	slow.Forks(t)
	program := exec.Command(os.Args[0], "-test.run", "^$")
	program.Env = append(os.Environ(), "STHENO_SIMD=fast")
	out, err := program.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	if err == nil {
		t.Error("a test with STHENO_SIMD=fast passed")
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i, kernel := range []string{"add", "matmul", "attention forward", "zero"} {
		want := "cpu: " + kernel + `: STHENO_SIMD is "fast", it needs to be one of ["generic" "avx2" "avx512" "neon" "bfmmla"]`
		if i >= len(lines) || lines[i] != want {
			t.Errorf("the program printed\n%s\nwhich lacks\n%s", out, want)
		}
	}
}

// printKernelErrors prints the errors of a call of each way to check one.
func printKernelErrors() {
	b, x := cpu.New(), kernels.Of(make([]float32, 1), 1)
	square, heads := x.Reshape(1, 1), x.Reshape(1, 1, 1, 1)
	fmt.Println(b.Add(x, x, x))
	fmt.Println(b.MatMul(&kernels.MatMul{A: square, B: square}, kernels.MatMulOutputs{C: square}))
	fmt.Println(b.AttentionForward(&kernels.Attention{Q: heads, K: heads, V: heads}, kernels.AttentionOutputs{O: heads}))
	fmt.Println(b.Zero([]kernels.Tensor{x}))
}
