package pretrained

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

var (
	folder  = flag.String("folder", "", "the model that BenchmarkLoad and BenchmarkDecode read")
	idsPath = flag.String("ids", "", "the file that BenchmarkDecode writes its tokens to")
	keptIn  = flag.String("weights", "float32", "what BenchmarkLoad and BenchmarkDecode keep weights in: float32, bfloat16, float16, int8, int4 or nf4")
	headIn  = flag.String("embeddings", "", "what they keep embeddings and the head in; empty for what follows from -weights")
)

// BenchmarkDecode predicts one token after another by the GPT-2 of -folder, or a random one of its
// smallest shape, and writes what it predicted to -ids; bench/pretrained/decode.py is the same by
// transformers.
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
	kept, err := keptTypes()
	if err != nil {
		return nil, err
	}
	if *folder != "" {
		return Load(*folder, Options{Weights: kept.linear, Embeddings: kept.embedding})
	}
	text := []byte(`{"model_type": "gpt2"}`)
	family, arch, err := describe(text, Options{})
	if err != nil {
		return nil, err
	}
	m := &Model{family: family, config: text, arch: arch}
	m.parameters, err = kept.parameters()
	return m, err
}

// keptTypes is what -weights and -embeddings say.
func keptTypes() (keeping, error) {
	types := map[string]tensor.Dtype{"": {}, "float32": tensor.Float32, "bfloat16": ops.BFloat16, "float16": ops.Float16, "int8": ops.Int8, "int4": ops.Int4, "nf4": ops.NF4}
	for _, name := range []string{*keptIn, *headIn} {
		if _, known := types[name]; !known {
			return keeping{}, fmt.Errorf("weights are kept in %q, it needs to be float32, bfloat16, float16, int8, int4 or nf4", name)
		}
	}
	return keeping{types[*keptIn], types[*headIn]}, nil
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

// BenchmarkLoad reads the model of -folder, and first writes one of Llama-3.2-1B's shape there if
// there is none; the rate counts the bytes of its files. A second load in one process would clear
// the memory of the first, so that it takes as many processes as runs.
func BenchmarkLoad(b *testing.B) {
	if *folder == "" {
		b.Skip("-folder names no model")
	}
	if _, err := os.Stat(*folder); errors.Is(err, fs.ErrNotExist) {
		if err := writeLarge(*folder); err != nil {
			b.Fatal(err)
		}
	}
	kept, err := keptTypes()
	if err != nil {
		b.Fatal(err)
	}
	var bytes int64
	var memory uintptr
	for b.Loop() {
		m, err := Load(*folder, Options{Weights: kept.linear, Embeddings: kept.embedding, Progress: func(_, total int64) { bytes = total }})
		if err != nil {
			b.Fatal(err)
		}
		memory = 0
		for _, p := range m.Parameters().Values() {
			memory += p.MemSize()
		}
	}
	b.SetBytes(bytes)
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		var kilobytes float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kilobytes); n == 1 {
			b.ReportMetric(kilobytes*1024/float64(memory), "peak/kept")
		}
	}
}

// writeLarge writes a folder of Llama-3.2-1B's shape in bfloat16.
func writeLarge(folder string) error {
	config := published[1].config
	_, arch, err := describe([]byte(config), Options{})
	if err != nil {
		return err
	}
	largest := 0
	for _, l := range arch.links {
		largest = max(largest, l.elements())
	}
	r := rand.New(rand.NewPCG(1, 2))
	numbers := make([]kernels.BFloat16, largest) // of all tensors
	for i := range numbers {
		numbers[i] = kernels.BFloat16(0x3c00 | r.Uint32()&0x80ff) // up to a sixteenth, of either sign
	}
	var tensors safetensors.Tensors
	for _, l := range arch.links {
		value := tensor.New(tensor.WithShape(l.shape...), tensor.WithBacking(numbers[:l.elements()]))
		tensors = append(tensors, safetensors.Tensor{Name: l.theirs, Value: value})
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, configFile), []byte(config), 0o666); err != nil {
		return err
	}
	return plainfile.Write(filepath.Join(folder, weightsFile), func(w io.Writer) error { return safetensors.Write(w, tensors, nil) })
}
