package docs

import (
	"bytes"
	"go/ast"
	gobuild "go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const apiFile = root + "/docs/api.txt"

// docs/api.txt lists all that other modules can name, a line each, so that a commit shows which of
// it changes. A line that goes or changes breaks somebody's program: CHANGELOG.md says how to go
// on.
func TestAPI(t *testing.T) {
	lines := exported(t)
	if *update {
		if err := os.WriteFile(apiFile, []byte(strings.Join(lines, "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(strings.TrimSpace(string(text)), "\n")
	for _, line := range lines {
		if _, found := slices.BinarySearch(listed, line); !found {
			t.Errorf("docs/api.txt lacks %q", line)
		}
	}
	for _, line := range listed {
		if _, found := slices.BinarySearch(lines, line); !found {
			t.Errorf("no longer in the sources: %q", line)
		}
	}
	if t.Failed() {
		t.Error("go test ./internal/docs -run TestAPI -update writes docs/api.txt; what users need to know goes into CHANGELOG.md")
	}
}

// exported lists what the packages that others can import export, sorted.
func exported(t *testing.T) (lines []string) {
	t.Helper()
	machine := gobuild.Default // the same on every machine
	machine.GOOS, machine.GOARCH, machine.CgoEnabled, machine.BuildTags = "linux", "amd64", false, nil
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		switch name := entry.Name(); {
		case path != root && strings.HasPrefix(name, "."), strings.HasPrefix(name, "_"), name == "internal", name == "testdata", name == "examples":
			return filepath.SkipDir
		}
		p, err := machine.ImportDir(path, 0)
		if err != nil || p.IsCommand() {
			return nil // a folder without a package
		}
		folder, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(set, filepath.Join(path, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, d := range file.Decls {
				for _, line := range linesOf(set, d) {
					lines = append(lines, filepath.ToSlash(folder)+": "+line)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// linesOf are the lines of a declaration.
func linesOf(set *token.FileSet, d ast.Decl) (lines []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() || d.Recv != nil && !ast.IsExported(receiver(d.Recv.List[0].Type)) {
			return nil
		}
		d.Doc, d.Body = nil, nil
		return []string{text(set, d)}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					lines = append(lines, linesOfType(set, s)...)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						lines = append(lines, d.Tok.String()+" "+name.Name)
					}
				}
			}
		}
	}
	return lines
}

// linesOfType are a line for the type, and one for each part of a struct or an interface.
func linesOfType(set *token.FileSet, s *ast.TypeSpec) []string {
	name := "type " + s.Name.Name
	if s.TypeParams != nil {
		name += "[" + fieldsText(set, s.TypeParams) + "]"
	}
	var parts *ast.FieldList
	kind := ""
	switch of := s.Type.(type) {
	case *ast.StructType:
		parts, kind = of.Fields, "struct"
	case *ast.InterfaceType:
		parts, kind = of.Methods, "interface"
	default:
		if s.Assign.IsValid() {
			name += " ="
		}
		return []string{name + " " + text(set, s.Type)}
	}
	lines := []string{name + " " + kind}
	for _, f := range parts.List {
		if len(f.Names) == 0 {
			lines = append(lines, name+" "+kind+": "+text(set, f.Type))
		}
		for _, n := range f.Names {
			if n.IsExported() {
				lines = append(lines, name+" "+kind+": "+n.Name+" "+strings.TrimPrefix(text(set, f.Type), "func"))
			}
		}
	}
	return lines
}

func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

func fieldsText(set *token.FileSet, list *ast.FieldList) string {
	var all []string
	for _, f := range list.List {
		for _, n := range f.Names {
			all = append(all, n.Name+" "+text(set, f.Type))
		}
	}
	return strings.Join(all, ", ")
}

var spaces = regexp.MustCompile(`\s+`)

// text is a part of the source on one line, without comments.
func text(set *token.FileSet, node any) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, set, node); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(spaces.ReplaceAllString(b.String(), " "))
}
