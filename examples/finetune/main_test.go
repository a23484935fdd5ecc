package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/smallmodel"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/watch"
)

// chats is a file of conversations.
func chats(t testing.TB) string {
	t.Helper()
	var lines strings.Builder
	for i := range 20 {
		fmt.Fprintf(&lines, `{"messages": [{"role": "user", "content": "Who is %d?"}, {"role": "assistant", "content": "She is the strong one."}]}`+"\n", i)
	}
	lines.WriteString(`{"prompt": "Who?", "completion": "Stheno."}` + "\n")
	path := filepath.Join(t.TempDir(), "chats.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	s, err := parse(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := finetune(t.Context(), s, &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A run learns, and one that goes on from an earlier checkpoint, in another folder, ends with the
// same bits.
func TestFinetune(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	model := smallmodel.Llama(t, true)
	t.Chdir(filepath.Dir(model))
	text := run(t, "-model", filepath.Base(model), "-data", chats(t), "-out", out, "-context", "64", "-steps", "24", "-eval-every", "12", "-rate", "0.02", "-merge",
		"-device", "cpu", "-sample", "Who is 3?", "-sample", "Who is 30?")
	before, after, found := strings.Cut(text, "After it:")
	if !found || !strings.Contains(strings.Join(strings.Fields(before), " "), "learns 19 documents") || !strings.Contains(before, "> Who is 3?\n") || !strings.Contains(after, "> Who is 30?\n") {
		t.Errorf("it says:\n%s", text)
	}
	file, err := os.Open(filepath.Join(out, "log.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log, err := watch.ReadJSONLines(file)
	if err != nil {
		t.Fatal(err)
	}
	first, last := log.Evaluations[0], log.Evaluations[len(log.Evaluations)-1]
	if !(last.Validation < 0.95*first.Validation) {
		t.Errorf("the loss went from %v to %v", first.Validation, last.Validation)
	}
	weights := func() []byte {
		content, err := os.ReadFile(filepath.Join(out, "adapter", "adapter_model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	want := weights()
	steps, err := filepath.Glob(filepath.Join(out, "checkpoints", "step-*24"))
	if err != nil || len(steps) != 1 {
		t.Fatalf("the last checkpoint is one of %q: %v", steps, err)
	}
	for _, path := range append(steps, filepath.Join(out, "adapter")) {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(t.TempDir())
	run(t, "-resume", "-out", out, "-device", "cpu", "-sample", "")
	if !bytes.Equal(weights(), want) {
		t.Error("a run that was resumed ended with another adapter")
	}
	for _, folder := range []string{"model", "adapter"} {
		from := model
		if folder == "model" {
			from = filepath.Join(out, folder)
		}
		m, err := pretrained.Load(from, pretrained.Options{})
		if err == nil && folder == "adapter" {
			err = m.LoadLoRA(filepath.Join(out, folder))
		}
		if err != nil {
			t.Errorf("what it wrote to %s: %v", folder, err)
		}
	}
}

// A text is learnt whole, also by all weights, and by a model without a chat template.
func TestFinetuneText(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "notes.txt")
	if err := os.WriteFile(path, []byte(strings.Repeat("The strong one of three. ", 60)), 0o666); err != nil {
		t.Fatal(err)
	}
	text := run(t, "-model", smallmodel.Llama(t, false), "-data", path, "-out", filepath.Join(folder, "run"), "-rank", "0", "-steps", "3", "-context", "32",
		"-device", "cpu")
	if strings.Count(text, "\n> ") < 2 || !strings.Contains(text, "of three.") { // how rows begin that it does not learn
		t.Errorf("it says:\n%s", text)
	}
	if _, err := pretrained.Load(filepath.Join(folder, "run", "model"), pretrained.Options{}); err != nil {
		t.Error(err)
	}
}

// Changes are trained beside weights in four bits, and a run goes on with these.
func TestFinetuneQLoRA(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	model := smallmodel.LlamaOf(t, true, smallmodel.Size{Layers: 1, Dim: 64, Hidden: 128, Heads: 2, Context: 128})
	run(t, "-model", model, "-data", chats(t), "-out", out, "-context", "32", "-steps", "2", "-weights", "nf4", "-device", "cpu", "-sample", "")
	run(t, "-out", out, "-resume", "-device", "cpu")
	s := settings{out: out}
	if err := s.readBack(); err != nil || s.types(nil).Weights != ops.NF4 {
		t.Errorf("the run has weights of %q: %v", s.Weights, err)
	}
	if _, err := os.Stat(filepath.Join(out, "adapter", "adapter_config.json")); err != nil {
		t.Error(err)
	}
}

// A DoRA is trained and added to the weights as a LoRA is.
func TestFinetuneDoRA(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	run(t, "-model", smallmodel.Llama(t, true), "-data", chats(t), "-out", out, "-context", "32", "-steps", "2", "-dora", "-merge", "-device", "cpu", "-sample", "")
	config, err := os.ReadFile(filepath.Join(out, "adapter", "adapter_config.json"))
	if err != nil || !strings.Contains(string(config), `"use_dora": true`) {
		t.Errorf("the adapter's config is %s: %v", config, err)
	}
	if _, err := pretrained.Load(filepath.Join(out, "model"), pretrained.Options{}); err != nil {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	model, folder := smallmodel.Llama(t, false), t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-ranks", "4"}, "-help lists the flags"},
		{[]string{"-data", "x"}, "-model is needed"},
		{[]string{"-model", "x", "-data", "y", "-context", "1"}, "-context is 1, it needs to be at least 2"},
		{[]string{"-model", "x", "-data", "y", "-rank", "0", "-dora"}, "-dora changes matrices by a low rank"},
		{[]string{"-model", "x", "-data", "y", "-weights", "nf5"}, `-weights is "nf5", it needs to be one of bfloat16, float16, float32, int4, int8, nf4`},
		{[]string{"-model", "x", "-data", "y", "-weights", "nf4", "-rank", "0"}, "-rank 0 trains all weights, they cannot be kept in nf4"},
		{[]string{"-model", "x", "-data", "y", "-weights", "int8", "-dora"}, "-dora needs whole weights, they cannot be kept in int8"},
		{[]string{"-model", "x", "-data", "y", "-weights", "bfloat16", "-merge"}, "-merge adds the changes to whole weights"},
		{[]string{"-resume", "-rank", "4"}, "-rank is given with -resume"},
		{[]string{"-resume", "-out", folder}, "holds no run"},
		{[]string{"-model", model, "-data", file("a.jsonl", "{\"text\": \"x\"}\n{")}, "a.jsonl: line 2"},
		{[]string{"-model", model, "-data", file("b.jsonl", `{"question": "x"}`)}, "it has neither messages or conversations, nor prompt and completion, nor instruction and output, nor text"},
		{[]string{"-model", model, "-data", file("c.jsonl", `{"messages": [{"role": "user", "content": "x"}]}`)}, "there is no chat template for it"},
		{[]string{"-model", model, "-data", file("d.txt", "x")}, "d.txt: it has too little to learn: 1 documents"},
		{[]string{"-model", model, "-data", chats(t), "-targets", "x_proj"}, `target "x_proj"`},
		{[]string{"-model", filepath.Join(folder, "none"), "-data", chats(t)}, "config.json"},
		{[]string{"-model", model, "-data", chats(t), "-device", "tpu"}, `-device: Device is "tpu"`},
	} {
		s, err := parse(append(c.args, "-sample", ""), io.Discard)
		if err == nil {
			if s.out == "finetuned" {
				s.out = filepath.Join(folder, "run")
			}
			err = finetune(t.Context(), s, io.Discard)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: the error is %v, want %q", c.args, err, c.want)
		}
	}
}

// Lines as in the data of Alpaca and ShareGPT are those that say the same in other words.
func TestLinesOfOtherForms(t *testing.T) {
	folder := smallmodel.Llama(t, true)
	documents := func(line string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "lines.jsonl")
		if err := os.WriteFile(path, []byte(strings.Repeat(line+"\n", 10)), 0o666); err != nil {
			t.Fatal(err)
		}
		c, err := readCorpus(settings{Data: path, Context: 64, Seed: 1}, folder)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(c.training)
	}
	for _, c := range []struct{ other, usual string }{
		{`{"instruction": "Who?", "input": "", "output": "Stheno."}`, `{"prompt": "Who?", "completion": "Stheno."}`},
		{`{"instruction": "Who?", "input": "You?", "output": "Stheno."}`, `{"prompt": "Who?\n\nYou?", "completion": "Stheno."}`},
		{
			`{"conversations": [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "Stheno."}]}`,
			`{"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Stheno."}]}`,
		},
	} {
		if got, want := documents(c.other), documents(c.usual); got != want || !strings.Contains(got, "true") {
			t.Errorf("%s gives %s, and %s gives %s", c.other, got, c.usual, want)
		}
	}
	if said := documents(`{"conversations": [{"from": "robot", "value": "x"}]}`); !strings.Contains(said, `line 1: a part of conversations is from "robot"`) {
		t.Errorf("a robot's line gives %s", said)
	}
}

// A model that is not there, and a context beyond the model's, are named before anything is read.
func TestModelsAreLookedAtFirst(t *testing.T) {
	folder := smallmodel.Llama(t, false)
	for want, args := range map[string][]string{
		"hub:OWNER/NAME is a model on the hub":      {"-model", "SmolLM2-135M"},
		"-context is 129, the model in " + folder:   {"-model", folder, "-context", "129"},
		"there is no flag -lr: did you mean -rate?": {"-model", folder, "-lr", "1"},
	} {
		s, err := parse(append(args, "-data", chats(t), "-out", filepath.Join(t.TempDir(), "out")), io.Discard)
		if err == nil {
			err = finetune(t.Context(), s, io.Discard)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", args, err, want)
		}
	}
}
