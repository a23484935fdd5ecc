package pretrained

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
)

// testdata/lora.py is the other side of these tests: adapters that peft wrote, trained and reads.

var adapters = []string{"gpt2", "gpt_neox", "llama3", "phi3"}

// trainer trains a model by next tokens.
type trainer struct {
	tokens, targets []int
	loss            *gorgonia.Node
	optimizer       *train.Stepper
	machine         gorgonia.VM
}

func newTrainer(t *testing.T, m *Model, rows, length int) *trainer {
	t.Helper()
	r := &trainer{tokens: make([]int, rows*length), targets: make([]int, rows*length)}
	s := m.scope()
	input := func(name string, ids []int) nn.Tensor { return s.Constant(name, data.Ints(ids, rows, length)) }
	r.loss = m.LanguageModel(s).Loss(input("tokens", r.tokens), input("targets", r.targets)).Node()
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	g, trainable := s.Graph(), s.Trainable()
	if _, err := gorgonia.Grad(r.loss, trainable...); err != nil {
		t.Fatal(err)
	}
	ops.ReuseMemory(g)
	ops.ModeOf(g).Evaluate() // without the dropout that configs have by default
	r.machine = gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(trainable...))
	var err error
	r.optimizer, err = train.NewStepper(trainable, train.AdamW{Beta2: 0.999, WeightDecay: 0.01}, train.Options{Schedule: train.ConstantRate(1e-3)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// step learns from golden.py's token ids, each some higher.
func (r *trainer) step(t *testing.T, higher int) float64 {
	t.Helper()
	rows := readGolden(t, "gpt2").Tokens
	length := len(r.tokens) / len(rows)
	for i, row := range rows {
		for at := range row {
			r.tokens[i*length+at] = (row[at] + higher) % 48
			if r.targets[i*length+at] = nn.IgnoreTarget; at+1 < len(row) {
				r.targets[i*length+at] = (row[at+1] + higher) % 48
			}
		}
	}
	if err := r.machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	r.machine.Reset()
	if _, err := r.optimizer.Step(); err != nil {
		t.Fatal(err)
	}
	return float64(r.loss.Value().Data().(float32))
}

// logitsOf is what a model computes for golden.py's token ids.
func logitsOf(t *testing.T, m *Model) []float32 {
	t.Helper()
	s := m.scope()
	logits := m.LanguageModel(s).Forward(ids(s, "tokens", readGolden(t, "gpt2").Tokens))
	run(t, s)
	return value(t, logits).Data().([]float32)
}

// 20 steps of an adapter have the losses that peft's have, and end at the same parameters.
func TestLoRATrainsAsPEFT(t *testing.T) {
	for _, name := range adapters {
		t.Run(name, func(t *testing.T) {
			var want struct {
				Losses, Logits []float64 // in float64
				Rounding       float64   // by how much peft's logits differ in float32
			}
			text, err := os.ReadFile(filepath.Join("testdata", "lora", name, "golden.json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &want); err != nil {
				t.Fatal(err)
			}
			m := load(t, filepath.Join("testdata", name), Options{})
			if err := m.LoadLoRA(filepath.Join("testdata", "lora", name, "start")); err != nil {
				t.Fatal(err)
			}
			before := clones(m)
			r := newTrainer(t, m, 2, 11)
			for step, loss := range want.Losses {
				if have := r.step(t, step); !(math.Abs(have-loss) <= 1e-5*loss) {
					t.Errorf("the loss of step %d is %v, peft's %v", step, have, loss)
				}
			}
			// AdamW divides by the size of a gradient: near zero its rounding is a step.
			near(t, "the logits", logitsOf(t, m), want.Logits, 4*want.Rounding)

			folder := t.TempDir()
			if *update {
				folder = filepath.Join("testdata", "written", "lora", name)
			}
			if err := m.SaveLoRA(folder); err != nil {
				t.Fatal(err)
			}
			end := tensorsOf(t, filepath.Join("testdata", "lora", name, "end"))
			have := tensorsOf(t, folder)
			if len(have) != len(end) {
				t.Errorf("%d tensors were written, peft wrote %d", len(have), len(end))
			}
			for tensor, value := range end {
				near(t, tensor, have[tensor], wide(value), 1e-5)
			}
			for name, value := range before {
				if same := slices.Equal(value, m.Parameters().Value(name).Float32s()); same == strings.Contains(name, "lora") {
					t.Errorf("whether %s stayed as it was: %t", name, same)
				}
			}
			again := load(t, filepath.Join("testdata", name), Options{})
			if err := again.LoadLoRA(folder); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(logitsOf(t, again), logitsOf(t, m)) {
				t.Error("the adapter as saved and loaded computes something else")
			}
		})
	}
}

func clones(m *Model) map[string][]float32 {
	all := map[string][]float32{}
	for _, name := range m.Parameters().Names() {
		all[name] = slices.Clone(m.Parameters().Value(name).Float32s())
	}
	return all
}

func wide(x []float32) []float64 {
	w := make([]float64, len(x))
	for i := range x {
		w[i] = float64(x[i])
	}
	return w
}

// A merged model computes what it did before, saves as one without an adapter, and can be taken
// apart again.
func TestMergeLoRA(t *testing.T) {
	for _, name := range adapters {
		t.Run(name, func(t *testing.T) {
			m := load(t, filepath.Join("testdata", name), Options{})
			plain := logitsOf(t, m)
			if err := m.LoadLoRA(filepath.Join("testdata", "lora", name, "end")); err != nil {
				t.Fatal(err)
			}
			if err := m.Save(t.TempDir(), SaveOptions{}); err == nil || !strings.Contains(err.Error(), "not merged") {
				t.Errorf("saving with an adapter that is not merged: %v", err)
			}
			want, before := logitsOf(t, m), clones(m)
			if slices.Equal(want, plain) {
				t.Fatal("the adapter changes nothing")
			}
			if err := m.Parameters().MergeLoRA(); err != nil {
				t.Fatal(err)
			}
			near(t, "the merged model's logits", logitsOf(t, m), wide(want), 1e-5)
			if err := m.SaveLoRA(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is merged") {
				t.Errorf("saving an adapter that is merged: %v", err)
			}
			folder := t.TempDir()
			if err := m.Save(folder, SaveOptions{}); err != nil {
				t.Fatal(err)
			}
			near(t, "the saved model's logits", logitsOf(t, load(t, folder, Options{})), wide(want), 1e-5)
			if err := m.Parameters().MergeLoRA(); err == nil {
				t.Error("an adapter was merged twice")
			}
			if err := m.Parameters().UnmergeLoRA(); err != nil {
				t.Fatal(err)
			}
			for parameter, value := range before {
				near(t, parameter, m.Parameters().Value(parameter).Float32s(), wide(value), 1e-6)
			}
			if err := m.Parameters().UnmergeLoRA(); err == nil {
				t.Error("an adapter was taken out twice")
			}
		})
	}
}

// A new adapter changes nothing, whatever its targets are; what they can be follows from the model.
func TestAddLoRA(t *testing.T) {
	encoder := load(t, "testdata/bert-classes", Options{})
	if err := encoder.AddLoRA(LoRA{Rank: 2, Targets: []string{"query", "value"}}); err != nil {
		t.Fatal(err)
	}
	s := encoder.scope()
	encoder.Encoder(s)
	if n := len(s.Trainable()); s.Err() != nil || n != 2*2*2 {
		t.Errorf("%d parameters are trained, want A and B of two matrices of two layers", n)
	}
	m := load(t, "testdata/llama3", Options{})
	want := logitsOf(t, m)
	if err := m.AddLoRA(LoRA{Rank: 4}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(logitsOf(t, m), want) {
		t.Error("a new adapter changes the logits")
	}
	folder := t.TempDir()
	if err := m.SaveLoRA(folder); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, adapterConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Targets []string `json:"target_modules"`
		Alpha   float64  `json:"lora_alpha"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	all := []string{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"}
	if !slices.Equal(c.Targets, all) || c.Alpha != 4 {
		t.Errorf("the targets are %v and alpha is %v", c.Targets, c.Alpha)
	}
	for _, c := range []struct {
		lora LoRA
		want string
	}{
		{LoRA{Rank: 2}, "there is a LoRA already"},
		{LoRA{}, "rank is 0"},
		{LoRA{Name: "b", Rank: 2, Alpha: -1}, "alpha is -1"},
		{LoRA{Name: "b", Rank: 2, Dropout: 1}, "dropout is 1"},
		{LoRA{Name: "b", Rank: 2, Targets: []string{"q_proj", "qproj"}}, `target "qproj": there is no such linear layer`},
		{LoRA{Name: "b", Rank: 2, Decomposed: true, Targets: []string{"embed_tokens"}}, "model.embed_tokens is an embedding, DoRA changes linear"},
		{LoRA{Name: "b", Rank: 2, Whole: []string{"embed_tokens"}}, "model.embed_tokens is tied to the head"},
		{LoRA{Name: "b", Rank: 2, Whole: []string{"no_such"}}, `whose name ends with one of ["no_such"]`},
		{LoRA{Name: "b", Rank: 2, Layers: []int{7}}, "there is no such linear layer"},
		{LoRA{Name: "b", Rank: 2, Sizes: []LoRASize{{Module: "q_proj", Rank: -1}}}, "rank is -1"},
	} {
		if err := m.AddLoRA(c.lora); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: the error is %v, want %q", c.lora, err, c.want)
		}
		if names, active := m.LoRAs(); len(names) != 1 || active != "default" {
			t.Errorf("%+v: after the error the adapters are %v, of which %q is in use", c.lora, names, active)
		}
	}
}

// An adapter that asks for what there is not, or that does not fit, is refused with the reason.
func TestLoadLoRAErrors(t *testing.T) {
	config, err := os.ReadFile("testdata/lora/llama3/end/adapter_config.json")
	if err != nil {
		t.Fatal(err)
	}
	weights, err := os.ReadFile("testdata/lora/llama3/end/adapter_model.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{`"use_dora": false`, `"use_dora": true`, `q_proj.lora_magnitude_vector" is missing`},
		{`"bias": "none"`, `"bias": "some"`, `field bias is "some", it needs to be none, all or lora_only`},
		{`"peft_type": "LORA"`, `"peft_type": "IA3"`, `field peft_type is "IA3"`},
		{`"rank_pattern": {}`, `"rank_pattern": {"q_proj": 2}`, `lora_A.weight" has shape [3 24], the config asks for [2 24]`},
		{`"rank_pattern": {}`, `"rank_pattern": {"q_proj": 2.5}`, "field rank_pattern has 2.5"},
		{`"rank_pattern": {}`, `"rank_pattern": {"q_proj": "x"}`, "field rank_pattern is"},
		{`"rank_pattern": {}`, `"rank_pattern": {"": {"q_proj": 1}}`, "field rank_pattern is"},
		{`"alpha_pattern": {}`, `"alpha_pattern": {"q_proj": 0}`, "field alpha_pattern is"},
		{`"alpha_pattern": {}`, `"alpha_pattern": {"(": 1}`, "field alpha_pattern: error parsing regexp"},
		{`"modules_to_save": null`, `"modules_to_save": ["lm_head"]`, "lm_head is tied to model.embed_tokens.weight"},
		{`"modules_to_save": null`, `"modules_to_save": "norm"`, "field modules_to_save is"},
		{`"layers_pattern": null`, `"layers_pattern": "layers"`, "field layers_pattern is"},
		{`"layers_to_transform": null`, `"layers_to_transform": "1"`, "field layers_to_transform is"},
		{`"exclude_modules": null`, `"exclude_modules": ["q_proj"]`, "is none that the config asks for"},
		{`"lora_dropout": 0.0`, `"lora_dropout": 1.0`, "field lora_dropout is 1"},
		{`"init_lora_weights": false`, `"init_lora_weights": "pissa"`, "field init_lora_weights is"},
		{`"r": 3`, `"r": 4`, `lora_A.weight" has shape [3 24], the config asks for [4 24]`},
		{`"lora_alpha": 16`, `"lora_alpha": 0`, "field lora_alpha is 0, it needs to be positive"},
		{`"r": 3`, `"r": -3`, "field r is -3"},
		{`"model.layers.1.mlp.up_proj"`, `"z_proj"`, "is none that the config asks for"},
		{`"target_modules": [`, `"target_modules": "(", "z": [`, "field target_modules: error parsing regexp"},
		{`"target_modules": [`, `"target_modules": "z", "z": null, "y": [`, "field y"},
	} {
		folder := t.TempDir()
		changed := strings.Replace(string(config), c.from, c.to, 1)
		if changed == string(config) {
			t.Fatalf("the config has no %s", c.from)
		}
		for name, content := range map[string][]byte{adapterConfigFile: []byte(changed), adapterWeightsFile: weights} {
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		m := load(t, "testdata/llama3", Options{})
		if err := m.LoadLoRA(folder); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q", c.to, err, c.want)
		}
		if set, _ := m.Parameters().HasLoRA(); set {
			t.Errorf("%s: an adapter that was refused is there", c.to)
		}
	}
}

// As in peft, a layer whose whole name is given is changed whatever layers_to_transform says.
func TestLoRAWholeNames(t *testing.T) {
	_, arch, err := describe([]byte(blockConfigs["llama"]), Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, err := arch.readLoRA([]byte(`{"peft_type": "LORA", "r": 2, "layers_to_transform": [1],
		"target_modules": ["model.layers.0.mlp.up_proj", "q_proj"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj"}; !slices.Equal(slices.Sorted(slices.Values(a.Targets)), want) {
		t.Errorf("the targets are %v, want %v", a.Targets, want)
	}
}

// A target that is a matrix of something else is refused, and the error says of what.
func TestLoRAOfOtherMatrices(t *testing.T) {
	for _, c := range []struct{ model, target, want string }{
		{"mixtral", "w1", "experts.0.w1 is one of several matrices in one parameter, as those of experts are"},
		{"gpt_oss", "experts.gate_up_proj", "experts.gate_up_proj is one of several matrices in one parameter, as those of experts are"},
		{"deepseek_v2", "kv_b_proj", "kv_b_proj is one of several matrices in one parameter, as those of experts are"},
		{"mixtral", "gate", "gate chooses experts"},
		{"arcee", "lm_head", "lm_head makes logits"},
		{"gpt2", "wpe", "wpe makes positions"},
		{"cohere-heads", "q_norm", "q_norm is of shape [4 10] and no linear layer"},
	} {
		m := load(t, "testdata/"+c.model, Options{})
		err := m.AddLoRA(LoRA{Rank: 2, Targets: []string{c.target}})
		if err == nil || !strings.Contains(err.Error(), c.want+", LoRA changes linear layers and embeddings only") {
			t.Errorf("%s: %s: %v, want %q", c.model, c.target, err, c.want)
		}
	}
}

// What lies in one parameter with others, as the gates of experts do, cannot be trained whole
// alone: adapters' files would lack what is trained of the others, and those that were loaded set
// it to zero.
func TestLoRAOfPartsOfParameters(t *testing.T) {
	m := load(t, "testdata/mixtral", Options{})
	want := "experts.0.w1.weight lies in blocks.0.mlp.gateup.weight beside others, it cannot be trained whole without these"
	if err := m.AddLoRA(LoRA{Rank: 2, Targets: []string{"q_proj"}, Whole: []string{"w1"}}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("training gates alone: %v", err)
	}
	if err := m.AddLoRA(LoRA{Rank: 2, Targets: []string{"q_proj"}, Whole: []string{"w1", "w2", "w3"}}); err != nil {
		t.Errorf("training experts: %v", err)
	}
}

// Frozen weights have neither gradients nor moments: with an adapter a run needs little more than
// the weights.
func TestLoRAMemory(t *testing.T) {
	live := func(adapter bool) int64 {
		before := held()
		m := wideModel(t)
		if adapter {
			if err := m.AddLoRA(LoRA{Rank: 8}); err != nil {
				t.Fatal(err)
			}
		}
		r := newTrainer(t, m, 2, 11)
		for step := range 2 {
			r.step(t, step)
		}
		after := held()
		runtime.KeepAlive(r)
		runtime.KeepAlive(m)
		return after - before
	}
	full, adapted := live(false), live(true)
	t.Logf("full fine-tuning holds %d bytes, an adapter of rank 8 %d: %.0f %%", full, adapted, 100*float64(adapted)/float64(full))
	if float64(adapted) > 0.6*float64(full) {
		t.Errorf("a run with an adapter holds %d bytes, full fine-tuning %d: more than 60 %%", adapted, full)
	}
}

// held is how much memory is in use, once finalizers and pools have let go of theirs.
func held() int64 {
	var stats runtime.MemStats
	for range 4 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// wideModel is a Llama whose weights are more than what it computes.
func wideModel(t *testing.T) *Model {
	t.Helper()
	text := []byte(`{"model_type": "llama", "vocab_size": 48, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 2,
		"num_attention_heads": 4, "max_position_embeddings": 32}`)
	family, arch, err := describe(text, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &Model{family: family, config: text, arch: arch, parameters: nn.NewParameters(1)}
}

// kinds are the further kinds of adapters that lora.py made.
var kinds = []string{"classes", "dora", "dora-gpt2", "embeddings", "embeddings-phi3", "layers"}

type kindGolden struct {
	Base                    string
	Logits, Losses, Trained []float64 // the last two in float64
	Rounding                float64   // by how much peft's trained logits differ in float32
}

// loadKind loads such an adapter and its base.
func loadKind(t *testing.T, kind string) (m *Model, folder string, want kindGolden) {
	t.Helper()
	folder = filepath.Join("testdata", "lora", "kinds", kind)
	text, err := os.ReadFile(filepath.Join(folder, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	m = load(t, filepath.Join("testdata", want.Base), Options{})
	if err := m.LoadLoRA(folder); err != nil {
		t.Fatal(err)
	}
	return m, folder, want
}

// kindLogits is what a model with such an adapter computes: logits, or those of classes.
func kindLogits(t *testing.T, m *Model) []float32 {
	t.Helper()
	if !strings.Contains(string(m.config), classes) {
		return logitsOf(t, m)
	}
	s := m.scope()
	model, tokens := m.LanguageModel(s), ids(s, "tokens", readGolden(t, "gpt2").Tokens)
	logits := model.Classify(model.Hidden(tokens), tokens)
	run(t, s)
	return value(t, logits).Data().([]float32)
}

// An adapter of any kind computes what it does in peft, trains as there, and is saved as it was:
// same tensors, same bits.
func TestKindsOfLoRA(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			m, from, want := loadKind(t, kind)
			near(t, "the logits", kindLogits(t, m), want.Logits, 1e-5)
			folder := t.TempDir()
			if *update {
				folder = filepath.Join("testdata", "written", "lora", "kinds", kind)
			}
			if err := m.SaveLoRA(folder); err != nil {
				t.Fatal(err)
			}
			have, theirs := tensorsOf(t, folder), tensorsOf(t, from)
			for name, value := range theirs {
				if !strings.HasSuffix(name, baseWeight) && !slices.Equal(have[name], value) {
					t.Errorf("%s was written as %v, peft wrote %v", name, have[name], value)
				}
				delete(have, name)
			}
			for name := range have {
				t.Errorf("%s was written, and not by peft", name)
			}
			again := load(t, filepath.Join("testdata", want.Base), Options{})
			if err := again.LoadLoRA(folder); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(kindLogits(t, again), kindLogits(t, m)) {
				t.Error("the adapter as saved and loaded computes something else")
			}
			if len(want.Losses) == 0 {
				return
			}
			r := newTrainer(t, m, 2, 11)
			for step, loss := range want.Losses {
				if have := r.step(t, step); !(math.Abs(have-loss) <= 1e-5*loss) {
					t.Errorf("the loss of step %d is %v, peft's %v", step, have, loss)
				}
			}
			near(t, "the logits after training", logitsOf(t, m), want.Trained, 4*want.Rounding)
		})
	}
}

// Merging keeps what an adapter computes, but where that cannot be: with a head that is tied to the
// embedding.
func TestMergeKindsOfLoRA(t *testing.T) {
	for _, kind := range kinds {
		m, _, want := loadKind(t, kind)
		before := clones(m)
		err := m.Parameters().MergeLoRA()
		if kind == "embeddings" {
			if err == nil || !strings.Contains(err.Error(), "tokens.weight makes logits too") {
				t.Errorf("%s: merging gives %v", kind, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		near(t, kind+": the merged model's logits", kindLogits(t, m), want.Logits, 1e-5)
		folder := t.TempDir()
		if err := m.Save(folder, SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		near(t, kind+": the saved model's logits", kindLogits(t, load(t, folder, Options{})), want.Logits, 1e-5)
		if err := m.Parameters().UnmergeLoRA(); err != nil {
			t.Fatal(err)
		}
		for parameter, value := range before {
			near(t, kind+": "+parameter, m.Parameters().Value(parameter).Float32s(), wide(value), 2e-6)
		}
	}
}

// Of several adapters graphs have the one that was asked for, whatever was used before, and none
// leaves anything behind.
func TestAdaptersByName(t *testing.T) {
	m, _, dora := loadKind(t, "dora")
	plain := logitsOf(t, load(t, "testdata/llama3", Options{}))
	if err := m.LoadLoRAAs("other", "testdata/lora/llama3/end"); err != nil {
		t.Fatal(err)
	}
	other := logitsOf(t, m)
	if err := m.AddLoRA(LoRA{Name: "whole", Rank: 2, Targets: []string{"q_proj"}, Whole: []string{"model.norm"}, Biases: AllBiases}); err != nil {
		t.Fatal(err)
	}
	norm := m.Parameters().Value("norm.weight").Float32s()
	for i := range norm {
		norm[i] *= 1.5
	}
	whole := logitsOf(t, m)
	if slices.Equal(whole, plain) || slices.Equal(other, plain) {
		t.Fatal("an adapter changes nothing")
	}
	if err := m.Parameters().MergeLoRA(); err != nil {
		t.Fatal(err)
	}
	if err := m.UseLoRA("other"); err == nil || !strings.Contains(err.Error(), "is merged") {
		t.Errorf("another adapter beside a merged one: %v", err)
	}
	if err := m.Parameters().UnmergeLoRA(); err != nil {
		t.Fatal(err)
	}
	if err := m.UseLoRA("nobody"); err == nil || !strings.Contains(err.Error(), `name is "nobody", it needs to be one of [default other whole]`) {
		t.Errorf("an adapter that there is not: %v", err)
	}
	for _, name := range []string{"other", "", "whole", "default", "whole", "other", "default", ""} {
		if err := m.UseLoRA(name); err != nil {
			t.Fatal(err)
		}
		if _, active := m.LoRAs(); active != name {
			t.Errorf("%q is in use, want %q", active, name)
		}
		have := logitsOf(t, m)
		if name == "default" {
			near(t, name, have, dora.Logits, 1e-5)
		} else if want := map[string][]float32{"other": other, "": plain, "whole": whole}[name]; !slices.Equal(have, want) {
			t.Errorf("with %q in use the logits are others than before", name)
		}
	}
	folder := t.TempDir()
	if err := m.SaveLoRA(folder); err == nil || !strings.Contains(err.Error(), "has no LoRA") {
		t.Errorf("saving none: %v", err)
	}
	if err := m.UseLoRA("default"); err != nil {
		t.Fatal(err)
	}
	if err := m.SaveLoRA(folder); err != nil {
		t.Fatal(err)
	}
	want := tensorsOf(t, "testdata/lora/kinds/dora")
	for name, value := range tensorsOf(t, folder) {
		if !slices.Equal(value, want[name]) {
			t.Errorf("%s is not what it was", name)
		}
	}
}

// adapterFields are the fields of peft 0.21's adapter_config.json, each with another value than
// testdata/lora/kinds/dora has.
var adapterFields = []configField{
	{"alora_invocation_tokens", `[1, 2]`, refused, ""},
	{"alpha_pattern", `{"v_proj": 2}`, works, ""},
	{"arrow_config", `{"top_k": 1}`, refused, ""},
	{"auto_mapping", `{"base_model_class": "A"}`, idle, ""},
	{"base_model_name_or_path", `"other"`, idle, ""},
	{"bias", `"all"`, idle, ""}, // the model has none
	{"corda_config", `{}`, refused, ""},
	{"ensure_weight_tying", `true`, refused, ""},
	{"eva_config", `{}`, refused, ""},
	{"exclude_modules", `["v_proj"]`, works, ""},
	{"fan_in_fan_out", `true`, idle, ""}, // peft sets what the layers are
	{"inference_mode", `false`, idle, ""},
	{"init_lora_weights", `"pissa"`, refused, ""},
	{"kasa_config", `{}`, refused, ""},
	{"layer_replication", `[[0, 2]]`, refused, ""},
	{"layers_pattern", `"layers"`, refused, ""},
	{"layers_to_transform", `[0]`, works, ""},
	{"loftq_config", `{"loftq_bits": 4}`, refused, ""},
	{"lora_alpha", `9`, works, ""},
	{"lora_bias", `true`, refused, ""},
	{"lora_dropout", `0.5`, idle, ""}, // while it evaluates
	{"lora_ga_config", `{}`, refused, ""},
	{"megatron_config", `{}`, refused, ""},
	{"megatron_core", `"other"`, idle, ""}, // read beside megatron_config alone
	{"modules_to_save", `["norm"]`, works, ""},
	{"monteclora_config", `{}`, refused, ""},
	{"peft_type", `"LOHA"`, refused, ""},
	{"peft_version", `"0.1"`, idle, ""},
	{"qalora_group_size", `8`, idle, ""}, // read beside use_qalora alone
	{"r", `2`, works, ""},
	{"rank_pattern", `{}`, works, ""},
	{"revision", `"other"`, idle, ""},
	{"target_modules", `["q_proj"]`, works, ""},
	{"target_parameters", `["experts.gate_up_proj"]`, refused, ""},
	{"task_type", `"FEATURE_EXTRACTION"`, idle, ""},
	{"trainable_token_indices", `[1]`, refused, ""},
	{"use_bdlora", `{}`, refused, ""},
	{"use_dora", `false`, works, ""},
	{"use_qalora", `true`, refused, ""},
	{"use_rslora", `true`, works, ""},
	{"velora_config", `{}`, refused, ""},
}

// Each field of an adapter's config changes what is read or computed, is refused by its name, or is
// known to change nothing.
func TestFieldsOfAdapters(t *testing.T) {
	_, from, want := loadKind(t, "dora")
	text, err := os.ReadFile(filepath.Join(from, adapterConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	weights, err := os.ReadFile(filepath.Join(from, adapterWeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		t.Fatal(err)
	}
	for name := range given {
		if !slices.ContainsFunc(adapterFields, func(f configField) bool { return f.name == name }) {
			t.Errorf("field %s is not in the list", name)
		}
	}
	m, _, _ := loadKind(t, "dora")
	same := logitsOf(t, m)
	near(t, "the logits", same, want.Logits, 1e-5)
	for _, f := range adapterFields {
		if _, found := given[f.name]; !found {
			t.Errorf("%s is no field of the config", f.name)
		}
		changed := maps.Clone(given)
		changed[f.name] = json.RawMessage(f.value)
		text, err := json.Marshal(changed)
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		for name, content := range map[string][]byte{adapterConfigFile: text, adapterWeightsFile: weights} {
			if err := os.WriteFile(filepath.Join(folder, name), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		m := load(t, filepath.Join("testdata", want.Base), Options{})
		err = m.LoadLoRA(folder)
		switch named := err != nil && strings.Contains(err.Error(), "field "+f.name); {
		case f.effect == refused:
			if !named {
				t.Errorf("%s of %s: the error is %v, want one that names it", f.name, f.value, err)
			}
		case f.effect == works && err != nil:
			if named || !strings.Contains(err.Error(), "tensor ") {
				t.Errorf("%s of %s: %v", f.name, f.value, err)
			}
		case err != nil:
			t.Errorf("%s of %s: %v", f.name, f.value, err)
		case f.effect == idle:
			near(t, f.name, logitsOf(t, m), wide(same), 1e-6)
		case slices.Equal(logitsOf(t, m), same):
			t.Errorf("%s of %s changes nothing", f.name, f.value)
		}
	}
}
