package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/data"
)

// The program writes files that batches of documents are streamed from.
func TestPrepare(t *testing.T) {
	content, err := os.ReadFile("../../train/tokenizer/testdata/huggingface/llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Tokenizer json.RawMessage }
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tokenizerPath := write("tokenizer.json", golden.Tokenizer)
	write("a.jsonl", []byte(strings.Repeat(`{"text": "Stheno, the strong one of three."}`+"\n", 30)))
	write("b.jsonl", []byte(`{"text": "Medusa."}`))
	to := filepath.Join(folder, "tokens")
	var out, screen bytes.Buffer
	if err := run(t.Context(), []string{"-tokenizer", tokenizerPath, "-out", to, "-end", "<|end|>", filepath.Join(folder, "*.jsonl")}, &out, &screen); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "31 documents are") || !strings.Contains(screen.String(), "100.0 %  31 documents") {
		t.Errorf("it says %q and %q", out.String(), screen.String())
	}
	shards, err := data.OpenShards(filepath.Join(to, "train-00000.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer shards.Close()
	if _, err := data.Stream(shards, data.StreamOptions{Rows: 2, Length: 16, Packed: true}); err != nil {
		t.Error(err)
	}
	for want, args := range map[string][]string{
		"-help lists the flags":     {"-shards", "3"},
		"there are no texts":        {"-tokenizer", tokenizerPath},
		"there is no ":              {"-tokenizer", tokenizerPath, filepath.Join(folder, "*.parquet")},
		"no token <nothing>":        {"-tokenizer", tokenizerPath, "-end", "<nothing>", filepath.Join(folder, "b.jsonl")},
		"is there already":          {"-tokenizer", tokenizerPath, "-end", "<|end|>", "-out", to, filepath.Join(folder, "b.jsonl")},
		"no such file or directory": {"-tokenizer", filepath.Join(folder, "none.json"), filepath.Join(folder, "b.jsonl")},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %q", args, err, want)
		}
	}
}

// Each mistake is told in one line that names what to change.
func TestMistakes(t *testing.T) {
	content, err := os.ReadFile("../../train/tokenizer/testdata/huggingface/smollm.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Tokenizer json.RawMessage }
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("ok.json", golden.Tokenizer, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"a.txt": "a", "a[1].txt": "a", "a.jsonl": `{"body": "a"}`, "a.csv": "a,b", "tokenizer.json": "{"} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"":                                  "there are no texts, they are named behind the flags",
		"a.txt":                             "-tokenizer is needed: a tokenizer.json, a model's folder, or hub:NAME",
		"-tokenizer nowhere a.txt":          `-tokenizer is "nowhere": OpenHuggingFace: `,
		"-tokenizer nowhere a[1].txt":       `-tokenizer is "nowhere": OpenHuggingFace: `,
		"-tokenizer tokenizer.json a.txt":   `-tokenizer is "tokenizer.json": `,
		"-tokenizer x missing.txt":          "there is no missing.txt",
		"-tokenizer x a.txt -out y":         `-out stands behind "a.txt", flags need to stand before all else`,
		"-model x a.txt":                    "there is no flag -model: did you mean -tokenizer?",
		"-tokenizer x -shard 1e6 a.txt":     `invalid value "1e6" for flag -shard: it needs to be a whole number`,
		"-tokenizer x -validation 5% a.txt": `invalid value "5%" for flag -validation: it needs to be a number`,
		"-tokenizer ok.json -workers 5000000000000000000 -out y a.txt": "workers is 5000000000000000000, it needs to be from 1 to 65536",
		"-tokenizer ok.json -shard -3 -out y a.txt":                    "shard is -3 tokens, it needs to be at least 2",
		"-tokenizer ok.json -validation 2 -out y a.txt":                "validation is 2, it needs to be at least 0 and less than 1",
		"-tokenizer ok.json -field text -out y a.jsonl":                `a.jsonl: line 1 has no field "text"`,
		"-tokenizer ok.json -out y a.csv":                              "a.csv: the name needs to end in .txt, .jsonl or .parquet",
		"-tokenizer ok.json -out y .":                                  ". is a folder, it needs to be a file",
		"-tokenizer ok.json -out a.txt a.txt":                          "a.txt",
		"-tokenizer x -workers 1.5 a.txt":                              `invalid value "1.5" for flag -workers: it needs to be a whole number`,
	} {
		err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with %q", args, err, want)
		}
		if _, err := os.Stat("y"); err == nil {
			t.Errorf("%q: a folder stays behind", args)
			os.RemoveAll("y")
		}
	}
}
