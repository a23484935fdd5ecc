package docs

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
)

var update = flag.Bool("update", false, "write what the cells print into the notebooks")

// notebook is a Jupyter notebook, as far as this test reads it; the rest of a cell stays as it is.
type notebook struct {
	Cells         []cell          `json:"cells"`
	Metadata      json.RawMessage `json:"metadata"`
	Format        int             `json:"nbformat"`
	FormatChanges int             `json:"nbformat_minor"`
}

type cell struct {
	Kind     string          `json:"cell_type"`
	Count    *int            `json:"execution_count,omitempty"`
	ID       string          `json:"id"`
	Metadata json.RawMessage `json:"metadata"`
	Outputs  []output        `json:"outputs,omitempty"`
	Source   []string        `json:"source"`
}

type output struct {
	Name string   `json:"name"`
	Kind string   `json:"output_type"`
	Text []string `json:"text"`
}

// main starts a cell of GoNB that is the inside of a main function, which runs. The declarations of
// all cells before it are there.
const main = "%%"

// Every notebook's cells run, and print what the notebook says.
func TestNotebooks(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs programs")
	}
	slow.Race(t)
	paths, err := filepath.Glob("../../docs/notebooks/*.ipynb")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no notebooks: %v", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var n notebook
			if err := json.Unmarshal(text, &n); err != nil {
				t.Fatal(err)
			}
			program := build(t, n)
			number := 0
			for i := range n.Cells {
				c := &n.Cells[i]
				if c.Kind != "code" || !strings.HasPrefix(c.Source[0], main) {
					continue
				}
				number++
				printed, err := exec.Command(program, strconv.Itoa(i)).CombinedOutput()
				if err != nil {
					t.Fatalf("cell %d: %v\n%s", i, err, printed)
				}
				said := ""
				for _, o := range c.Outputs {
					said += strings.Join(o.Text, "")
				}
				if *update {
					c.Count, c.Outputs = &number, []output{{"stdout", "stream", strings.SplitAfter(strings.TrimSuffix(string(printed), "\n"), "\n")}}
				} else if !alike(string(printed), said) {
					t.Errorf("cell %d prints\n%s\nthe notebook says\n%s", i, printed, said)
				}
			}
			if *update {
				var b bytes.Buffer
				e := json.NewEncoder(&b)
				e.SetEscapeHTML(false)
				e.SetIndent("", " ")
				if err := e.Encode(n); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// build makes a program of a notebook that runs the cell whose number is its argument.
func build(t *testing.T, n notebook) string {
	t.Helper()
	var imports, declarations, cells []string
	for i, c := range n.Cells {
		var lines []string
		for _, line := range strings.Split(strings.Join(c.Source, ""), "\n") {
			if !strings.HasPrefix(line, "!") && line != main {
				lines = append(lines, line)
			}
		}
		text := strings.Join(lines, "\n")
		switch {
		case c.Kind != "code":
		case strings.HasPrefix(c.Source[0], main):
			checkFormat(t, i, text)
			cells = append(cells, fmt.Sprintf("case %q: func() {\n%s\n}()", strconv.Itoa(i), text))
		default:
			checkFormat(t, i, text)
			source := "package main\n" + text
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, "", source, parser.ImportsOnly)
			if err != nil {
				t.Fatalf("cell %d: %v", i, err)
			}
			at := func(p token.Pos) int { return set.Position(p).Offset }
			end := len("package main\n")
			for _, d := range file.Decls {
				if d := d.(*ast.GenDecl); d.Tok == token.IMPORT {
					imports = append(imports, source[at(d.Pos()):at(d.End())])
					end = at(d.End())
				}
			}
			declarations = append(declarations, source[end:])
		}
	}
	slices.Sort(imports)
	source := "package main\n" + strings.Join(slices.Compact(imports), "\n") + "\nimport theProcess \"os\"\n" + strings.Join(declarations, "\n") +
		"\nfunc main() {\nswitch theProcess.Args[1] {\n" + strings.Join(cells, "\n") + "\n}\n}\n"
	folder := t.TempDir()
	file, program := filepath.Join(folder, "main.go"), filepath.Join(folder, "notebook.exe")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	if message, err := exec.Command("go", "build", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, message, source)
	}
	return program
}

// checkFormat makes sure that a cell is formatted as Go's files are.
func checkFormat(t *testing.T, i int, text string) {
	t.Helper()
	if formatted, err := format.Source([]byte(text)); err != nil || strings.TrimSpace(string(formatted)) != strings.TrimSpace(text) {
		t.Errorf("cell %d is not gofmt-ed: %v", i, err)
	}
}

// alike compares texts, of whose numbers with a point the last digits may differ: results depend on
// the vectors that a machine has.
func alike(a, b string) bool {
	one, other := strings.Fields(a), strings.Fields(b)
	return slices.EqualFunc(one, other, func(x, y string) bool {
		p, err := strconv.ParseFloat(strings.Trim(x, "[],"), 64)
		q, also := strconv.ParseFloat(strings.Trim(y, "[],"), 64)
		if err != nil || also != nil || !strings.Contains(x, ".") {
			return x == y
		}
		return math.Abs(p-q) <= 0.02
	})
}
