package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// twins are the models that are counted beside PyTorch's: the functions of each in Go, and the
// headline that it stands under in bench/models/twins.py. A function that several models use counts
// for the first one.
var twins = []struct {
	name, file string
	functions  []string
}{
	{"ViT", "../nn/models_test.go", []string{"blocksOf", "visionTransformer"}},
	{"masked BERT", "../nn/models_test.go", []string{"maskedBERT"}},
	{"T5", "../nn/models_test.go", []string{"t5Block", "t5"}},
	{"DiT", "../examples/dit/main.go", []string{"modulate", "block", "dit"}},
	{"mixture of experts", "../nn/models_test.go", []string{"moe"}},
	{"Whisper", "../nn/models_test.go", []string{"whisper"}},
	{"CLIP", "../nn/models_test.go", []string{"clip"}},
	{"DPO", "../nn/models_test.go", []string{"dpo"}},
	{"Muon with EMA", "../train/twin_test.go", []string{"muonWithEMA"}},
	{"convolution and LSTM", "../nn/models_test.go", []string{"convolutionalLSTM"}},
}

// Models together take no more lines than their twins in PyTorch, and each at most half as many
// more. With -v the test says how many. Lines are those with code: neither empty ones nor comments
// count.
func TestTwinsAreNoLonger(t *testing.T) {
	source, err := os.ReadFile("models/twins.py")
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]int{}
	section := ""
	for line := range strings.Lines(string(source)) {
		line = strings.TrimRight(line, "\n")
		if name, is := strings.CutPrefix(line, "# "); is {
			section = name
		} else if strings.TrimSpace(line) != "" {
			theirs[section]++
		}
	}
	all, ofThem := 0, 0
	for _, m := range twins {
		ours := linesOf(t, m.file, m.functions)
		if theirs[m.name] == 0 {
			t.Errorf("twins.py has no %s", m.name)
		}
		t.Logf("%-20s %3d lines, in PyTorch %3d", m.name, ours, theirs[m.name])
		if 2*ours > 3*theirs[m.name] {
			t.Errorf("%s takes %d lines, in PyTorch %d", m.name, ours, theirs[m.name])
		}
		all, ofThem = all+ours, ofThem+theirs[m.name]
	}
	t.Logf("%-20s %3d lines, in PyTorch %3d", "together", all, ofThem)
	if all > ofThem {
		t.Errorf("the models take %d lines, those in PyTorch %d", all, ofThem)
	}
}

// linesOf counts the lines with code of functions of a file.
func linesOf(t *testing.T, file string, functions []string) int {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(source), "\n")
	count, found := 0, 0
	for _, d := range parsed.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is {
			continue
		}
		for _, name := range functions {
			if f.Name.Name != name {
				continue
			}
			found++
			for _, line := range lines[set.Position(f.Pos()).Line-1 : set.Position(f.End()).Line] {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
					count++
				}
			}
		}
	}
	if found != len(functions) {
		t.Fatalf("%s has %d of %v", file, found, functions)
	}
	return count
}
