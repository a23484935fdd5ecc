package pretrained

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The tests of this file read folders that transformers wrote; testdata/golden.py is the other side.

var update = flag.Bool("update", false, "write the models to testdata/written, for golden.py --check to read")

var languageModels = []string{
	"gpt2", "llama2", "llama3", "mistral", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "olmo2", "smollm3",
}

var encoders = []string{"bert", "bert-masked", "bert-classes", "roberta-masked", "roberta-classes"}

var visions = []string{"vit", "vit-classes"}

// golden is what transformers computes.
type golden struct {
	Tokens    [][]int
	Mask      [][]int // of encoders: 0 for padding
	Types     [][]int
	Images    []float64
	Logits    []float64
	Loss      float64
	Gradients map[string]float64 // the norm of each
}

func readGolden(t *testing.T, name string) golden {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

func load(t *testing.T, folder string, o Options) *Model {
	t.Helper()
	m, err := Load(folder, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// ids is an input of token ids.
func ids(g *gorgonia.ExprGraph, name string, rows [][]int) *gorgonia.Node {
	all := slices.Concat(rows...)
	value := tensor.New(tensor.WithShape(len(rows), len(rows[0])), tensor.WithBacking(all))
	return gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithName(name), gorgonia.WithShape(value.Shape()...), gorgonia.WithValue(value))
}

// run evaluates a graph.
func run(t *testing.T, g *gorgonia.ExprGraph) {
	t.Helper()
	ops.ModeOf(g).Evaluate()
	machine := gorgonia.NewTapeMachine(g)
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
}

// near compares numbers relative to the largest that is wanted.
func near(t *testing.T, what string, have []float32, want []float64, tolerance float64) {
	t.Helper()
	if len(have) != len(want) {
		t.Fatalf("%s has %d elements, want %d", what, len(have), len(want))
	}
	worst, largest := 0.0, 0.0
	for i := range want {
		largest = max(largest, math.Abs(want[i]))
		if e := math.Abs(float64(have[i]) - want[i]); e > worst || math.IsNaN(e) {
			worst = e
		}
	}
	if !(worst <= tolerance*largest) {
		t.Errorf("the error of %s is %.3g of its largest element %.3g, it needs to be at most %.3g", what, worst/largest, largest, tolerance)
	}
}

func TestLogits(t *testing.T) {
	for _, name := range languageModels {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			g := gorgonia.NewGraph()
			model, err := m.LanguageModel(g)
			if err != nil {
				t.Fatal(err)
			}
			logits := gorgonia.Must(model.Forward(ids(g, "tokens", want.Tokens)))
			run(t, g)
			near(t, "the logits", logits.Value().Data().([]float32), want.Logits, 1e-5)

			d, err := m.NewDecoder(16)
			if err != nil {
				t.Fatal(err)
			}
			for row, tokens := range want.Tokens {
				d.Reset()
				for at, token := range tokens {
					have, err := d.Logits([]int{token})
					if err != nil {
						t.Fatal(err)
					}
					vocab := len(have)
					first := (row*len(tokens) + at) * vocab
					near(t, "the decoder's logits", load32(have), want.Logits[first:first+vocab], 3e-5)
				}
			}
		})
	}
}

func load32(x []float64) []float32 {
	narrow := make([]float32, len(x))
	for i := range x {
		narrow[i] = float32(x[i])
	}
	return narrow
}

// The loss of each next token has the gradients that transformers computes, tensor by tensor.
func TestGradients(t *testing.T) {
	for _, name := range languageModels {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			g := gorgonia.NewGraph()
			model, err := m.LanguageModel(g)
			if err != nil {
				t.Fatal(err)
			}
			targets := make([][]int, len(want.Tokens))
			for i, row := range want.Tokens {
				targets[i] = append(slices.Clone(row[1:]), -100)
			}
			loss := gorgonia.Must(model.Loss(ids(g, "tokens", want.Tokens), ids(g, "targets", targets)))
			if _, err := gorgonia.Grad(loss, model.Parameters()...); err != nil {
				t.Fatal(err)
			}
			run(t, g)
			if have := loss.Value().Data().(float32); !(math.Abs(float64(have)-want.Loss) <= 1e-5*want.Loss) {
				t.Errorf("the loss is %v, want %v", have, want.Loss)
			}
			compareGradients(t, m, model.Parameters(), want)
		})
	}
}

// compareGradients compares the norms of the gradients, tensor by tensor. Those that are nothing but for rounding, such as
// that of a key's bias, count beside the others.
func compareGradients(t *testing.T, m *Model, parameters gorgonia.Nodes, want golden) {
	t.Helper()
	gradients := map[string]*tensor.Dense{}
	for _, n := range parameters {
		v, err := n.Grad()
		if err != nil {
			t.Fatal(err)
		}
		gradients[n.Name()] = v.(*tensor.Dense)
	}
	var all []float32
	var wanted []float64
	for i := range m.arch.links {
		l := &m.arch.links[i]
		packed, err := l.pack(gradients)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, x := range packed.Float32s() {
			sum += float64(x) * float64(x)
		}
		norm, known := want.Gradients[l.theirs]
		if !known {
			t.Errorf("transformers has no gradient of %s", l.theirs)
		}
		all, wanted = append(all, float32(math.Sqrt(sum))), append(wanted, norm)
		if norm > 1e-4 {
			near(t, "the gradient of "+l.theirs, all[i:], wanted[i:], 1e-3)
		}
	}
	near(t, "the gradients", all, wanted, 2e-5)
	if len(all) != len(want.Gradients) {
		t.Errorf("there are %d gradients, transformers has %d", len(all), len(want.Gradients))
	}
}

// Encoders give the vectors, classes and predictions that transformers computes, and the gradients of their squares.
func TestEncoders(t *testing.T) {
	for _, name := range encoders {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			g := gorgonia.NewGraph()
			e, err := m.Encoder(g)
			if err != nil {
				t.Fatal(err)
			}
			h := gorgonia.Must(e.ForwardWith(ids(g, "tokens", want.Tokens), nn.EncoderInputs{
				Types: ids(g, "types", want.Types), KeyMask: ids(g, "mask", want.Mask),
			}))
			// Without what stands at padding, which is of no use.
			var used [][]int
			for row, mask := range want.Mask {
				for at := range 7 {
					used = append(used, []int{row*len(mask) + at})
				}
			}
			visible := func(x *gorgonia.Node) *gorgonia.Node {
				rows := gorgonia.Must(gorgonia.Reshape(x, tensor.Shape{x.Shape()[0] * x.Shape()[1], x.Shape()[2]}))
				return gorgonia.Must(ops.Embedding(rows, ids(g, "used", used)))
			}
			var outputs []*gorgonia.Node
			switch {
			case strings.HasSuffix(name, "masked"):
				outputs = append(outputs, visible(gorgonia.Must(e.Predict(h))))
			case strings.HasSuffix(name, "classes"):
				outputs = append(outputs, gorgonia.Must(e.Classify(h)))
			default:
				outputs = append(outputs, visible(h), gorgonia.Must(e.Pooled(h)))
			}
			compareOutputs(t, g, m, e.Parameters(), outputs, want)
		})
	}
}

// What sees images gives the vectors and classes that transformers computes, and the gradients of their squares.
func TestVision(t *testing.T) {
	for _, name := range visions {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			g := gorgonia.NewGraph()
			v, err := m.Vision(g)
			if err != nil {
				t.Fatal(err)
			}
			h := gorgonia.Must(v.Forward(images(g, want)))
			var outputs []*gorgonia.Node
			if strings.HasSuffix(name, "classes") {
				outputs = append(outputs, gorgonia.Must(v.Classify(h)))
			} else {
				outputs = append(outputs, h, gorgonia.Must(v.Pooled(h)))
			}
			compareOutputs(t, g, m, v.Parameters(), outputs, want)
		})
	}
}

// images is an input of the golden images.
func images(g *gorgonia.ExprGraph, want golden) *gorgonia.Node {
	value := tensor.New(tensor.WithShape(2, 2, 8, 8), tensor.WithBacking(load32(want.Images)))
	return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithName("images"), gorgonia.WithShape(2, 2, 8, 8), gorgonia.WithValue(value))
}

// compareOutputs compares outputs and the gradients of the sum of their squares.
func compareOutputs(t *testing.T, g *gorgonia.ExprGraph, m *Model, parameters gorgonia.Nodes, outputs []*gorgonia.Node, want golden) {
	t.Helper()
	var loss *gorgonia.Node
	for _, x := range outputs {
		square := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(x, x))))
		if loss != nil {
			square = gorgonia.Must(gorgonia.Add(loss, square))
		}
		loss = square
	}
	if _, err := gorgonia.Grad(loss, parameters...); err != nil {
		t.Fatal(err)
	}
	run(t, g)
	var have []float32
	for _, x := range outputs {
		have = append(have, x.Value().Data().([]float32)...)
	}
	near(t, "the outputs", have, want.Logits, 1e-5)
	compareGradients(t, m, parameters, want)
}

// A model is asked for what it is.
func TestKinds(t *testing.T) {
	g := gorgonia.NewGraph()
	if _, err := load(t, "testdata/bert", Options{}).LanguageModel(g); err == nil || !strings.Contains(err.Error(), "a bert is a *nn.Encoder, it predicts no next token") {
		t.Errorf("an encoder as a language model: %v", err)
	}
	if _, err := load(t, "testdata/gpt2", Options{}).Encoder(gorgonia.NewGraph()); err == nil || !strings.Contains(err.Error(), "a gpt2 is a *nn.GPT, it is no encoder") {
		t.Errorf("a language model as an encoder: %v", err)
	}
	if _, err := load(t, "testdata/gpt2", Options{}).Vision(gorgonia.NewGraph()); err == nil || !strings.Contains(err.Error(), "a gpt2 is a *nn.GPT, it sees no images") {
		t.Errorf("a language model for images: %v", err)
	}
	if _, err := load(t, "testdata/gpt2", Options{}).LanguageModel(nil); err == nil || !strings.Contains(err.Error(), "g is nil") {
		t.Errorf("without a graph: %v", err)
	}
}

// What is written has the tensors that were read, bit by bit, whether in one file or in shards, and is read again.
func TestSave(t *testing.T) {
	for _, name := range slices.Concat(languageModels, encoders, visions) {
		t.Run(name, func(t *testing.T) {
			from := filepath.Join("testdata", name)
			m := load(t, from, Options{})
			want := tensorsOf(t, from)
			folders := []string{filepath.Join(t.TempDir(), "new"), t.TempDir()}
			if *update {
				folders[0] = filepath.Join("testdata", "written", name)
			}
			for i, folder := range folders {
				if err := m.Save(folder, SaveOptions{ShardSize: int64(i) * 9000}); err != nil {
					t.Fatal(err)
				}
				have := tensorsOf(t, folder)
				for tensor, value := range want {
					if !slices.Equal(have[tensor], value) {
						t.Errorf("%s is not what was read", tensor)
					}
				}
				if len(have) != len(want) {
					t.Errorf("%d tensors were written, %d read", len(have), len(want))
				}
				again := load(t, folder, Options{})
				for _, p := range m.Parameters().Names() {
					if !slices.Equal(m.Parameters().Value(p).Float32s(), again.Parameters().Value(p).Float32s()) {
						t.Errorf("parameter %s changed", p)
					}
				}
			}
		})
	}
}

// Files of 16 bits hold the nearest numbers, and their config says so.
func TestSaveIn16Bits(t *testing.T) {
	for dtype, round := range map[tensor.Dtype]func(float32) float32{
		ops.BFloat16: func(x float32) float32 { return kernels.ToBFloat16(x).Float32() },
		ops.Float16:  func(x float32) float32 { return kernels.ToFloat16(x).Float32() },
	} {
		m, folder := load(t, "testdata/qwen3", Options{}), t.TempDir()
		for _, name := range m.Parameters().Names() {
			for i, data := 0, m.Parameters().Value(name).Float32s(); i < len(data); i++ {
				data[i] *= 1.001 // what was read has few bits
			}
		}
		if err := m.Save(folder, SaveOptions{DType: dtype, ShardSize: 5000}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(folder, configFile))
		if err != nil {
			t.Fatal(err)
		}
		if want := `"dtype": "` + strings.ToLower(strings.TrimPrefix(dtype.String(), "kernels.")) + `"`; !strings.Contains(string(text), want) {
			t.Errorf("the config has no %s", want)
		}
		again := load(t, folder, Options{})
		for _, name := range m.Parameters().Names() {
			have, want := again.Parameters().Value(name).Float32s(), m.Parameters().Value(name).Float32s()
			for i := range want {
				if have[i] != round(want[i]) {
					t.Fatalf("%v: %s has %v for %v, want %v", dtype, name, have[i], want[i], round(want[i]))
				}
			}
		}
	}
	if err := load(t, "testdata/qwen3", Options{}).Save(t.TempDir(), SaveOptions{DType: tensor.Int}); err == nil || !strings.Contains(err.Error(), "dtype is int") {
		t.Errorf("saving as integers: %v", err)
	}
}

// A model whose weights are kept in 16 bits is saved as what a model in float32 is saved as in 16 bits, and decodes what it computes
// without a cache.
func TestKeptIn16Bits(t *testing.T) {
	for _, name := range []string{"gpt2", "qwen3", "gemma3", "phi3", "olmo2", "bert", "roberta-masked", "vit-classes"} {
		for _, dtype := range []tensor.Dtype{ops.BFloat16, ops.Float16} {
			var folders [2]string
			m := load(t, filepath.Join("testdata", name), Options{Weights: dtype})
			for i, m := range []*Model{load(t, filepath.Join("testdata", name), Options{}), m} {
				folders[i] = t.TempDir()
				if err := m.Save(folders[i], SaveOptions{DType: dtype}); err != nil {
					t.Fatal(err)
				}
			}
			have, want := tensorsOf(t, folders[1]), tensorsOf(t, folders[0])
			for name, data := range want {
				if !slices.Equal(have[name], data) {
					t.Errorf("%v: tensor %s is not that of a model that is kept in float32", dtype, name)
				}
			}
			if !slices.Contains([]string{"gpt2", "qwen3", "gemma3"}, name) {
				continue
			}
			d, err := m.NewDecoder(16)
			if err != nil {
				t.Fatal(err)
			}
			for _, tokens := range [][]int{{3, 1, 4, 1, 5}, {9}, {2}} {
				cached, err := d.Logits(tokens)
				if err != nil {
					t.Fatal(err)
				}
				g := gorgonia.NewGraph()
				model, err := m.LanguageModel(g)
				if err != nil {
					t.Fatal(err)
				}
				logits := gorgonia.Must(model.Forward(ids(g, "tokens", [][]int{d.Window()})))
				run(t, g)
				all := logits.Value().Data().([]float32)
				near(t, name+" in "+dtype.String(), all[len(all)-len(cached):], cached, 1e-5)
			}
		}
	}
	if _, err := Load("testdata/gpt2", Options{Weights: tensor.Float64}); err == nil || !strings.Contains(err.Error(), "weights can be kept in BFloat16 or Float16") {
		t.Errorf("weights in float64: %v", err)
	}
}

// tensorsOf reads all tensors of a folder.
func tensorsOf(t *testing.T, folder string) map[string][]float32 {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]float32{}
	for _, path := range paths {
		file, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for _, name := range file.Names() {
			v, err := file.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			values[name] = v.Float32s()
		}
	}
	return values
}
