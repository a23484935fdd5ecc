package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/smallmodel"
)

// Each mistake is told in one line that names what to change, and leaves no folder behind.
func TestMistakes(t *testing.T) {
	plain, template := smallmodel.Llama(t, false), smallmodel.Llama(t, true)
	t.Chdir(t.TempDir())
	write := func(name, content string) string {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	text := write("text.txt", strings.Repeat("The strong one of three. ", 60))
	model := func(more ...string) []string {
		return append([]string{"-model", plain, "-device", "cpu", "-data", text}, more...)
	}
	of := func(name, content string) []string {
		return []string{"-model", template, "-device", "cpu", "-data", write(name, content)}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-data", text}, "-model is needed: a model's folder, or hub:NAME"},
		{[]string{"-model", plain}, "-data is needed: a text, or a .jsonl file"},
		{[]string{plain, text}, "did you mean -model " + plain},
		{[]string{"-model", "owner/name", "-data", text}, "owner/name, which is no model's folder: it needs a config.json; hub:OWNER/NAME"},
		{[]string{"-model", text, "-data", text}, "text.txt, which is no model's folder"},
		{model("-lora_r", "8"), "there is no flag -lora_r: did you mean -rank?"},
		{model("-epochs", "0"), "-epochs is 0, it needs to be positive"},
		{model("-rank", "-1"), "-rank is -1, it needs to be at least 0"},
		{model("-alpha", "0"), "-alpha is 0, it needs to be positive"},
		{model("-dropout", "1.5"), "-dropout is 1.5, it needs to be at least 0 and less than 1"},
		{model("-rate", "NaN"), "-rate is NaN, it needs to be positive"},
		{model("-steps", "1e3"), `invalid value "1e3" for flag -steps: it needs to be a whole number`},
		{model("-serve=7887"), `invalid value "7887" for flag -serve: the address "7887" needs to be a host and a port`},
		{model("-context", "9000"), "-context is 9000, the model in " + plain + " was made for at most 128 tokens"},
		{model("-targets", "wq,wv"), `target "wq": there is no such linear layer in the model, it has down_proj, gate_proj, k_proj,`},
		{model("-batch", "9000000000000000000"), "-batch is 9000000000000000000 and -context is 512, their product needs to be at most 2147483647"},
		{model("-rank", "-resume"), `invalid value "-resume" for flag -rank: it needs to be a whole number`},
		{model("-compute", "int8"), `-compute is "int8", it needs to be float32 or bfloat16`},
		{model("-resume"), "-data, -model are given with -resume"},
		{model("-dora", "-rank", "0"), "-dora changes matrices by a low rank, it needs a -rank of at least 1"},
		{model("-merge", "-rank", "0"), "-merge adds changes to the weights, of which -rank 0 makes none"},
		{model("-steps", "5", "-epochs", "2"), "-steps is given with -epochs, each says how long to train"},
		{model("-data", "https://x.y/z.txt"), "it is an address, what is there needs to be downloaded to a file first"},
		{model("-device", "tpu"), `"tpu"`},
		{model("-targets", "q_proj,"), `target "": `},
		{model("-rank", "100000000"), "rank is 100000000, it needs to be from 1 to 16777216"},
		{[]string{"-model", filepath.Join(plain, "config.json"), "-data", text}, "config.json, which is no model's folder"},
		{[]string{"-model", "hub:", "-data", text}, "hub"},
		{model("-memory", "1K"), "memory is 1K, a step on batches of"},
		{model("-out", text), "-out text.txt is a file, it needs to be a folder"},
		{model("-data", "missing.txt"), "missing.txt: no such file"},
		{of("empty.txt", ""), "empty.txt: it has too little to learn: 0 documents"},
		{of("latin.txt", "caf\xe9"), "latin.txt: it is not a text in UTF-8"},
		{of("table.csv", "a,b\n"), "it ends in .csv, it needs to be a text, or a .jsonl file"},
		{of("array.jsonl", `[{"text": "a"}]`), "line 1: it is a JSON array, each line needs to be an object"},
		{of("half.jsonl", "{\"text\": \"a\"}\n{\"text\":"), "line 2: it is no JSON, each line needs to be an object of its own"},
		{of("fields.jsonl", `{"question": "a", "answer": "b"}`), "line 1: it has neither messages or conversations, nor prompt and completion,"},
		{of("silent.jsonl", `{"prompt": "a", "completion": ""}`), "line 1: its completion is missing or empty"},
		{of("kind.jsonl", `{"messages": "a"}`), "line 1: messages is a JSON string, it needs to be a list of objects with role and content"},
		{of("from.jsonl", `{"conversations": [{"from": "bot", "value": "a"}]}`), `from "bot", it needs to be from human, gpt or system`},
		{[]string{"-resume", "-out", "nowhere"}, "nowhere holds no run"},
		{[]string{"-resume", "-rank", "4"}, "-rank is given with -resume, which goes on with the settings of the run"},
	} {
		s, err := parse(c.args, io.Discard)
		if err == nil {
			err = finetune(t.Context(), s, io.Discard)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with %q", c.args, err, c.want)
		}
	}
	if left, err := filepath.Glob("finetuned"); err != nil || len(left) > 0 {
		t.Errorf("a run that never started has left %q behind (%v)", left, err)
	}
}
