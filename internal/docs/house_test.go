package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mostFields = 15 // of a struct
	mostLines  = 80 // of a function
)

// Structs of ops, train and kernels hold one idea: at most 15 fields, but for those that a device's
// kernel reads, which are called arguments. Functions have at most 80 lines, but for tests and what
// writes code.
func TestStructsAndFunctionsAreSmall(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && (name == ".git" || name == "_gen") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		checkSizes(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkSizes(t *testing.T, path string) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Error(err)
		return
	}
	room, _, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(root)+"/"), "/")
	small := room == "ops" || room == "train" || room == "kernels"
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if lines := files.Position(n.End()).Line - files.Position(n.Pos()).Line + 1; lines > mostLines {
				t.Errorf("%s: %s has %d lines, at most %d are read at once", files.Position(n.Pos()), n.Name.Name, lines, mostLines)
			}
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok && small && !strings.HasSuffix(strings.ToLower(n.Name.Name), "arguments") {
				if fields := s.Fields.NumFields(); fields > mostFields {
					t.Errorf("%s: %s has %d fields, more than %d hold a second idea", files.Position(n.Pos()), n.Name.Name, fields, mostFields)
				}
			}
		}
		return true
	})
}
