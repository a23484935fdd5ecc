package pretrained

import (
	"encoding/json"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gguf"
	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The tests of this file read folders that transformers wrote; testdata/golden.py is the other
// side, and encoders.py that of encoders_test.go.

var update = flag.Bool("update", false, "write the models to testdata/written, for golden.py --check to read")

var languageModels = []string{
	"arcee",
	"bloom",
	"bloom-streams",
	"cohere",
	"cohere-heads",
	"cohere-norms",
	"cohere2",
	"cohere2-heads",
	"deepseek_v2",
	"deepseek_v2-biased",
	"deepseek_v2-greedy",
	"deepseek_v3",
	"deepseek_v3-halves",
	"ernie4_5",
	"falcon",
	"falcon-alibi",
	"falcon-groups",
	"gemma",
	"gemma2",
	"gemma3",
	"glm",
	"glm4",
	"glm4_moe",
	"gpt2",
	"gpt2-untied",
	"gpt_bigcode",
	"gpt_bigcode-heads",
	"gpt_neo",
	"gpt_neox",
	"gpt_neox-serial",
	"gpt_oss",
	"gptj",
	"granite",
	"llama2",
	"llama3",
	"mistral",
	"mixtral",
	"mixtral-gelu",
	"mpt",
	"mpt-clip",
	"mpt-steep",
	"olmo",
	"olmo-clip",
	"olmo2",
	"olmo3",
	"olmoe",
	"olmoe-clip",
	"opt",
	"opt-bare",
	"opt-narrow",
	"opt-post",
	"persimmon",
	"phi",
	"phi-norms",
	"phi3",
	"qwen2",
	"qwen2_moe",
	"qwen2_moe-relu",
	"qwen3",
	"qwen3_moe",
	"seed_oss",
	"smollm3",
	"stablelm",
	"stablelm-norms",
	"stablelm-parallel",
	"starcoder2",
}

// rewards are models of language with a head for classes.
var rewards = []string{
	"gemma-classes",
	"gemma2-classes",
	"gemma3-classes",
	"llama-classes",
	"mistral-classes",
	"qwen2-classes",
	"qwen3-classes",
}

// golden is what transformers computes.
type golden struct {
	Tokens    [][]int
	Mask      [][]int // of encoders: 0 for padding; of images: 1 for patches that are hidden
	Types     [][]int
	Sources   [][]int // of models that write
	Written   [][]int // what they write
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

// scope is a scope over the model's parameters.
func (m *Model) scope() *nn.Scope { return nn.NewScope(gorgonia.NewGraph(), m.Parameters()) }

// ids is an input of token ids.
func ids(s *nn.Scope, name string, rows [][]int) nn.Tensor {
	return s.Constant(name, data.Ints(slices.Concat(rows...), len(rows), -1))
}

// value is what a tensor was in the last run.
func value(t *testing.T, x nn.Tensor) gorgonia.Value {
	t.Helper()
	if x.Err() != nil {
		t.Fatal(x.Err())
	}
	return x.Node().Value()
}

// run evaluates a graph.
func run(t *testing.T, s *nn.Scope) {
	t.Helper()
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	ops.ModeOf(s.Graph()).Evaluate()
	machine := gorgonia.NewTapeMachine(s.Graph())
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
			s := m.scope()
			model := m.LanguageModel(s)
			logits := model.Forward(ids(s, "tokens", want.Tokens))
			run(t, s)
			near(t, "the logits", value(t, logits).Data().([]float32), want.Logits, 1e-5)

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
					near(t, "the decoder's logits", load32(have), want.Logits[first:first+vocab], 1e-5)
				}
			}
		})
	}
}

// The text part of a model that sees images computes what transformers computes of texts, and is
// saved as a model of its own.
func TestTextOfMultimodal(t *testing.T) {
	want := readGolden(t, "gemma3-images")
	folder := "testdata/gemma3-images"
	for range 2 {
		m := load(t, folder, Options{})
		s := m.scope()
		logits := m.LanguageModel(s).Forward(ids(s, "tokens", want.Tokens))
		run(t, s)
		near(t, "the logits", value(t, logits).Data().([]float32), want.Logits, 1e-5)
		folder = t.TempDir()
		if err := m.Save(folder, SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(folder, configFile))
	if err != nil || !strings.Contains(string(text), `"gemma3_text"`) {
		t.Errorf("the saved config is %s, %v, want one of gemma3_text", text, err)
	}
}

// Files without the head that their config has give vectors, and no predictions.
func TestNoHead(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("testdata/llama2")); err != nil {
		t.Fatal(err)
	}
	var rest safetensors.Tensors
	for name, values := range tensorsOf(t, folder) {
		if name != "lm_head.weight" {
			shape := []int{len(values)}
			for _, l := range load(t, "testdata/llama2", Options{}).arch.links {
				if l.theirs == name {
					shape = l.shape
				}
			}
			rest = append(rest, safetensors.Tensor{Name: name, Value: tensor.New(tensor.WithShape(shape...), tensor.WithBacking(values))})
		}
	}
	if err := plainfile.Write(filepath.Join(folder, weightsFile), func(w io.Writer) error { return safetensors.Write(w, rest, nil) }); err != nil {
		t.Fatal(err)
	}
	want := readGolden(t, "llama2")
	var vectors [2][]float32
	for i, place := range []string{"testdata/llama2", folder} {
		m := load(t, place, Options{})
		s := m.scope()
		h := m.LanguageModel(s).Hidden(ids(s, "tokens", want.Tokens))
		run(t, s)
		vectors[i] = value(t, h).Data().([]float32)
		if i == 0 {
			continue
		}
		if _, err := m.NewDecoder(8); err == nil || !strings.Contains(err.Error(), "there is no head for tokens") {
			t.Errorf("a decoder: %v", err)
		}
		if err := m.SaveGGUF(filepath.Join(t.TempDir(), "a.gguf"), GGUFOptions{Type: gguf.F32}); err == nil || !strings.Contains(err.Error(), "without a head") {
			t.Errorf("writing GGUF: %v", err)
		}
		saved := t.TempDir()
		if err := m.Save(saved, SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		if have := len(tensorsOf(t, saved)); have != len(rest) {
			t.Errorf("%d tensors are saved of %d", have, len(rest))
		}
	}
	if !slices.Equal(vectors[0], vectors[1]) {
		t.Error("the vectors are others without the head")
	}
}

// A decoder whose attention sees all tokens is an encoder: it predicts no tokens, and files with a
// head are refused.
func TestSightedDecoders(t *testing.T) {
	m := load(t, "testdata/llama-both", Options{})
	if _, err := m.NewDecoder(8); err == nil || !strings.Contains(err.Error(), "it predicts no next token") {
		t.Errorf("a decoder: %v", err)
	}
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS("testdata/llama2")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/llama2/config.json")
	if err != nil {
		t.Fatal(err)
	}
	config := parseFields(string(text))
	config["is_causal"] = json.RawMessage("false")
	if err := os.WriteFile(filepath.Join(folder, configFile), []byte(textOf(config)), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(folder, Options{}); err == nil || !strings.Contains(err.Error(), `tensor "lm_head.weight" is none that the config asks for`) {
		t.Errorf("a head beside it: %v", err)
	}
}

// Files of a tied model whose head adds a bias, and that lack the bias, have no head.
func TestNoHeadBias(t *testing.T) {
	for _, name := range []string{"phi", "gptj"} {
		from, folder := filepath.Join("testdata", name), t.TempDir()
		if err := os.CopyFS(folder, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(from, configFile))
		if err != nil {
			t.Fatal(err)
		}
		config := parseFields(string(text))
		config["tie_word_embeddings"] = json.RawMessage("true")
		if err := os.WriteFile(filepath.Join(folder, configFile), []byte(textOf(config)), 0o666); err != nil {
			t.Fatal(err)
		}
		var rest safetensors.Tensors
		tensors := tensorsOf(t, from)
		for _, l := range load(t, from, Options{}).arch.links {
			if !strings.HasPrefix(l.theirs, "lm_head.") {
				rest = append(rest, safetensors.Tensor{Name: l.theirs, Value: tensor.New(tensor.WithShape(l.shape...), tensor.WithBacking(tensors[l.theirs]))})
			}
		}
		if err := plainfile.Write(filepath.Join(folder, weightsFile), func(w io.Writer) error { return safetensors.Write(w, rest, nil) }); err != nil {
			t.Fatal(err)
		}
		m := load(t, folder, Options{})
		if _, err := m.NewDecoder(8); err == nil || !strings.Contains(err.Error(), "there is no head for tokens") {
			t.Errorf("a decoder of %s: %v", name, err)
		}
		s := m.scope()
		h := m.LanguageModel(s).Hidden(ids(s, "tokens", readGolden(t, name).Tokens))
		run(t, s)
		value(t, h)
	}
}

// Models of language give the classes of texts that transformers computes, with padding on either
// side, and the gradients of their squares.
func TestClasses(t *testing.T) {
	for _, name := range rewards {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			s := m.scope()
			compareOutputs(t, s, m, []nn.Tensor{classesOf(s, m.LanguageModel(s), want)}, want)
		})
	}
}

// classesOf are the logits of the golden texts' classes.
func classesOf(s *nn.Scope, model *nn.LanguageModel, want golden) nn.Tensor {
	tokens := ids(s, "tokens", want.Tokens)
	return model.Classify(model.HiddenWith(tokens, ids(s, "mask", want.Mask)), tokens)
}

// A model with a head for classes predicts no tokens, and no file of llama.cpp holds it.
func TestClassesPredictNoTokens(t *testing.T) {
	m := load(t, "testdata/llama-classes", Options{})
	s := m.scope()
	m.LanguageModel(s).Forward(ids(s, "tokens", [][]int{{3, 4}}))
	_, decoding := m.NewDecoder(8)
	for _, err := range []error{s.Err(), decoding} {
		if want := "there is no head for tokens"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("predicting: %v, want %q in it", err, want)
		}
	}
	err := m.SaveGGUF(filepath.Join(t.TempDir(), "a.gguf"), GGUFOptions{Type: gguf.F32})
	if want := "a llama with a head for classes is not written as GGUF"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("writing GGUF: %v, want %q in it", err, want)
	}
}

// Frequencies of LongRoPE hold up to a length, beyond which the model takes no text.
func TestLongRoPE(t *testing.T) {
	const folder = "testdata/llama-longrope"
	want := readGolden(t, "llama-longrope")
	for _, c := range []struct{ context, takes int }{{0, 8}, {5, 8}, {8, 8}, {9, 9}, {32, 32}} {
		m := load(t, folder, Options{Context: c.context})
		s := m.scope()
		model := m.LanguageModel(s)
		if have := model.Context(); have != c.takes {
			t.Errorf("the context is %d where %d is asked for, want %d", have, c.context, c.takes)
		}
		logits := model.Forward(ids(s, "tokens", want.Tokens))
		if c.takes < len(want.Tokens[0]) {
			if s.Err() == nil {
				t.Errorf("with a context of %d, %d tokens are taken", c.takes, len(want.Tokens[0]))
			}
			continue
		}
		run(t, s)
		near(t, "the logits", value(t, logits).Data().([]float32), want.Logits, 1e-5)
	}
}

// A model tells what its files hold.
func TestDType(t *testing.T) {
	for name, want := range map[string]tensor.Dtype{"gpt2": tensor.Float32, "llama3": ops.BFloat16, "mistral": ops.Float16} {
		if have := load(t, filepath.Join("testdata", name), Options{}).DType(); have != want {
			t.Errorf("%s has %v, want %v", name, have, want)
		}
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
	for n, name := range languageModels {
		if slow.Racing() && n%6 > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			s := m.scope()
			model := m.LanguageModel(s)
			targets := make([][]int, len(want.Tokens))
			for i, row := range want.Tokens {
				targets[i] = append(slices.Clone(row[1:]), -100)
			}
			loss := model.Loss(ids(s, "tokens", want.Tokens), ids(s, "targets", targets))
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			if _, err := gorgonia.Grad(loss.Node(), s.Trainable()...); err != nil {
				t.Fatal(err)
			}
			run(t, s)
			if have := value(t, loss).Data().(float32); !(math.Abs(float64(have)-want.Loss) <= 1e-5*want.Loss) {
				t.Errorf("the loss is %v, want %v", have, want.Loss)
			}
			compareGradients(t, m, s.Trainable(), want)
		})
	}
}

// compareGradients compares the norms of the gradients, tensor by tensor. Those that are nothing
// but for rounding, such as that of a key's bias, count beside the others.
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
		if l.copied {
			wanted, all = append(wanted, want.Gradients[l.theirs]), append(all, 0) // nothing reads it
			continue
		}
		norm, known := want.Gradients[l.theirs]
		if gradients[l.parts[0].ours] == nil { // nothing trains it, there either
			if norm != 0 {
				t.Errorf("transformers has a gradient of %s, which is not trained here", l.theirs)
			}
			if known {
				all, wanted = append(all, 0), append(wanted, 0)
			}
			continue
		}
		packed, err := l.pack(gradients)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, x := range packed.Float32s() {
			sum += float64(x) * float64(x)
		}
		if !known {
			t.Errorf("transformers has no gradient of %s", l.theirs)
		}
		all, wanted = append(all, float32(math.Sqrt(sum))), append(wanted, norm)
		if norm > 1e-4 {
			near(t, "the gradient of "+l.theirs, all[i:], wanted[i:], 1e-3)
		}
	}
	near(t, "the gradients", all, wanted, 1e-5)
	if len(all) != len(want.Gradients) {
		t.Errorf("there are %d gradients, transformers has %d", len(all), len(want.Gradients))
	}
}

// A model is asked for what it is, in a scope over its own parameters.
func TestKinds(t *testing.T) {
	bert, gpt2 := load(t, "testdata/bert", Options{}), load(t, "testdata/gpt2", Options{})
	s, other, elsewhere := bert.scope(), gpt2.scope(), bert.scope()
	bert.LanguageModel(s).Forward(nn.Tensor{})
	gpt2.Encoder(other).Forward(nn.Tensor{})
	gpt2.LanguageModel(elsewhere)
	gpt2.LanguageModel(nil)
	for _, c := range []struct {
		s    *nn.Scope
		want string
	}{
		{s, "pretrained: a bert is a *nn.Encoder, it predicts no next token"},
		{other, "pretrained: a gpt2 is a *nn.LanguageModel, it is no encoder"},
		{elsewhere, "pretrained: the scope is over other parameters, it needs to be over those of the model"},
	} {
		if err := c.s.Err(); err == nil || !strings.HasPrefix(err.Error(), "golden_test.go:") || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("got  %v\nwant %s, after its line", err, c.want)
		}
	}
}

// What is written has the tensors that were read, bit by bit, whether in one file or in shards, and
// is read again.
func TestSave(t *testing.T) {
	for n, name := range slices.Concat(languageModels, rewards, encoders, visions, pairs, writers) {
		if slow.Racing() && n%6 > 0 {
			continue // they are saved by the same goroutines
		}
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
			for i, values := 0, m.Parameters().Value(name).Float32s(); i < len(values); i++ {
				values[i] *= 1.001 // what was read has few bits
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

// A model whose weights are kept in 16 bits is saved as what a model in float32 is saved as in 16
// bits, and decodes what it computes without a cache.
func TestKeptIn16Bits(t *testing.T) {
	for _, name := range []string{"gpt2", "qwen3", "gemma3", "phi3", "olmo2", "bert", "roberta-masked", "mpnet-masked", "t5", "vit-classes"} {
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
				s := m.scope()
				model := m.LanguageModel(s)
				logits := model.Forward(ids(s, "tokens", [][]int{d.Window()}))
				run(t, s)
				all := value(t, logits).Data().([]float32)
				near(t, name+" in "+dtype.String(), all[len(all)-len(cached):], cached, 1e-5)
			}
		}
	}
	if _, err := Load("testdata/gpt2", Options{Weights: tensor.Float64}); err == nil || !strings.Contains(err.Error(), "weights can be kept in BFloat16, Float16, Int8, Int4 or NF4") {
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
