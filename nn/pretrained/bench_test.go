package pretrained

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/stheno-ml/stheno/nn"
)

var (
	folder  = flag.String("folder", "", "the model that BenchmarkLoad and BenchmarkDecode read")
	idsPath = flag.String("ids", "", "the file that BenchmarkDecode writes its tokens to")
)

// BenchmarkDecode predicts one token after another by the GPT-2 of -folder, or a random one of its smallest shape, and writes what it
// predicted to -ids; bench/pretrained/decode.py is the same by transformers.
func BenchmarkDecode(b *testing.B) {
	const prompt, window = 32, 256
	m, err := decoded()
	if err != nil {
		b.Fatal(err)
	}
	d, err := m.NewDecoder(window)
	if err != nil {
		b.Fatal(err)
	}
	token, predicted := make([]int, 1), []int(nil)
	for b.Loop() {
		if d.Len() == 0 || d.Len() == window {
			b.StopTimer()
			d.Reset()
			logits, err := d.Logits(make([]int, prompt))
			if err != nil {
				b.Fatal(err)
			}
			token[0], predicted = largest(logits), nil
			b.StartTimer()
		}
		predicted = append(predicted, token[0])
		logits, err := d.Logits(token)
		if err != nil {
			b.Fatal(err)
		}
		token[0] = largest(logits)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tok/s")
	if *idsPath != "" {
		if err := os.WriteFile(*idsPath, fmt.Appendln(nil, predicted), 0o666); err != nil {
			b.Fatal(err)
		}
	}
}

// decoded is the model that BenchmarkDecode runs.
func decoded() (*Model, error) {
	if *folder != "" {
		return Load(*folder, Options{})
	}
	text := []byte(`{"model_type": "gpt2"}`)
	family, arch, err := describe(text, Options{})
	return &Model{family: family, config: text, arch: arch, parameters: nn.NewParameters(1)}, err
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
