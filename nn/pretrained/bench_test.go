package pretrained

import (
	"flag"
	"testing"

	"github.com/stheno-ml/stheno/nn"
)

var folder = flag.String("folder", "", "the model that BenchmarkLoad reads")

// BenchmarkDecode predicts one token after another by a random model of GPT-2's smallest shape; bench/pretrained/decode.py is the
// same by transformers.
func BenchmarkDecode(b *testing.B) {
	const prompt, window = 32, 256
	text := []byte(`{"model_type": "gpt2"}`)
	family, arch, err := describe(text, Options{})
	if err != nil {
		b.Fatal(err)
	}
	m := &Model{family: family, config: text, arch: arch, parameters: nn.NewParameters(1)}
	d, err := m.NewDecoder(window)
	if err != nil {
		b.Fatal(err)
	}
	token := make([]int, 1)
	for b.Loop() {
		if d.Len() == 0 || d.Len() == window {
			b.StopTimer()
			d.Reset()
			if _, err := d.Logits(make([]int, prompt)); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
		logits, err := d.Logits(token)
		if err != nil {
			b.Fatal(err)
		}
		token[0] = largest(logits)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tok/s")
}

func largest(x []float64) int {
	best := 0
	for i := range x {
		if x[i] > x[best] {
			best = i
		}
	}
	return best
}

// BenchmarkLoad reads the model of -folder; the rate counts the bytes of its files.
func BenchmarkLoad(b *testing.B) {
	if *folder == "" {
		b.Skip("-folder names no model")
	}
	var bytes int64
	for b.Loop() {
		if _, err := Load(*folder, Options{Progress: func(_, total int64) { bytes = total }}); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(bytes)
}
