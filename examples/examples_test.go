// Package examples_test runs the examples of models and holds them to what they show: how much is
// learnt, in how few lines.
package examples_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var losses = regexp.MustCompile(`best loss ([0-9.]+)`)

var accuracies = regexp.MustCompile(`accuracy (?:\S+ and )?([0-9.]+)`)

func TestExamples(t *testing.T) {
	for _, c := range []struct {
		name     string
		lines    int     // of its file, all counted
		accuracy float64 // of the last evaluation, on data that it was not trained on where it has such
		says     string
	}{
		{"vit", 60, 0.9, ""},
		{"classifier", 60, 0.95, ""},
		{"translation", 80, 0.97, "[1 2 3 4 5 0 0 0] is [12 11 10 9 8 0 0 0]"},
		{"lora", 40, 0.97, ""},
		{"dit", 80, 0, "done after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join(c.name, "main.go"))
			if err != nil {
				t.Fatal(err)
			}
			if lines := bytes.Count(source, []byte("\n")); lines > c.lines {
				t.Errorf("the program has %d lines, it needs to have %d or fewer", lines, c.lines)
			}
			if testing.Short() {
				t.Skip("learning takes seconds")
			}
			said, err := exec.Command("go", "run", "./"+c.name).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			all := accuracies.FindAllSubmatch(said, -1)
			if c.accuracy == 0 {
				all = [][][]byte{{nil, []byte("0")}} // it tells no classes
				if best := losses.FindSubmatch(said); best == nil || string(best[1]) > "0.12" {
					t.Errorf("the best loss is not below 0.12:\n%s", said)
				}
			}
			if len(all) == 0 {
				t.Fatalf("there is no accuracy in\n%s", said)
			}
			accuracy, err := strconv.ParseFloat(string(all[len(all)-1][1]), 64)
			if err != nil || accuracy < c.accuracy || !strings.Contains(string(said), c.says) {
				t.Errorf("the accuracy is %v, it needs to be %v or more, and the output to have %q:\n%s", accuracy, c.accuracy, c.says, said)
			}
		})
	}
}

// The library does the work of programs that people use as they are: these read from top to bottom.
func TestLengths(t *testing.T) {
	for name, most := range map[string]int{"chat/main.go": 80, "chat/conversation.go": 230, "serve/main.go": 130} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if lines := bytes.Count(source, []byte("\n")); lines > most {
			t.Errorf("%s has %d lines, it needs to have %d or fewer", name, lines, most)
		}
	}
}
