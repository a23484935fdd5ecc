package pretrained

import (
	"encoding/json"
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
			var want struct{ Losses, Logits []float64 }
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
			near(t, "the logits", logitsOf(t, m), want.Logits, 3e-5)

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

// A merged model computes what it did before, saves as one without an adapter, and can be taken apart again.
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
		{LoRA{Rank: 2, Alpha: -1}, "alpha is -1"},
		{LoRA{Rank: 2, Dropout: 1}, "dropout is 1"},
		{LoRA{Rank: 2, Targets: []string{"q_proj", "qproj"}}, `target "qproj": there is no such linear layer`},
		{LoRA{Rank: 2, Targets: []string{"embed_tokens"}}, "model.embed_tokens is an embedding or makes logits"},
	} {
		if err := m.AddLoRA(c.lora); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: the error is %v, want %q", c.lora, err, c.want)
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
		{`"use_dora": false`, `"use_dora": true`, "adapter_config.json: field use_dora, which is true, is not known"},
		{`"bias": "none"`, `"bias": "all"`, "field bias is all, only none is supported"},
		{`"peft_type": "LORA"`, `"peft_type": "IA3"`, `field peft_type is "IA3"`},
		{`"rank_pattern": {}`, `"rank_pattern": {"q_proj": 2}`, "field rank_pattern is"},
		{`"modules_to_save": null`, `"modules_to_save": ["lm_head"]`, "field modules_to_save"},
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

// Frozen weights have neither gradients nor moments: with an adapter a run needs little more than the weights.
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
