package checkpoint

import (
	"crypto/sha256"
	"testing"

	"github.com/stheno-ml/stheno/safetensors"
)

// The checkpoint of the benchmarks has 10 MB: a third of it is weights, the rest what AdamW keeps.
func benchmarked() Checkpoint {
	part := func(name string) safetensors.Tensor {
		return safetensors.Tensor{Name: name, Value: dense(make([]float32, 833_333), 833_333)}
	}
	return Checkpoint{Step: 1, Weights: safetensors.Tensors{part("w")}, Optimizer: safetensors.Tensors{part("m.w"), part("v.w")}}
}

func BenchmarkSave(b *testing.B) {
	f, c := mustOpen(b, b.TempDir(), 2), benchmarked()
	b.SetBytes(10_000_000)
	b.ReportAllocs()
	for b.Loop() {
		c.Step++
		mustSave(b, f, c)
	}
}

func BenchmarkLoad(b *testing.B) {
	path := mustSave(b, mustOpen(b, b.TempDir(), 1), benchmarked())
	b.SetBytes(10_000_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(path); err != nil {
			b.Fatal(err)
		}
	}
}

// What of the two before is the checksum.
func BenchmarkChecksum(b *testing.B) {
	data := make([]byte, 10_000_000)
	b.SetBytes(10_000_000)
	for b.Loop() {
		sha256.Sum256(data)
	}
}
