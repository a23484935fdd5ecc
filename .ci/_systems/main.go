// Systems checks that every package of the module in the working directory, its tests and all that
// they import are whole on the systems given as GOOS/GOARCH: types are those of the sources chosen
// there, and a function without a body has assembly beside it or another package's body. It reads
// sources and compiles nothing, which takes seconds a system where a compiler takes minutes. Of the
// standard library, whose ports are tested elsewhere, it reads what packages declare.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/tools/go/packages"
)

func main() {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "go env GOROOT:", err)
		os.Exit(1)
	}
	s := &sources{library: filepath.Join(strings.TrimSpace(string(root)), "src") + string(filepath.Separator), files: token.NewFileSet()}
	faulty := false
	for _, system := range os.Args[1:] {
		faults := s.check(system)
		fmt.Printf("%s: %d faults\n", system, len(faults))
		for _, fault := range faults {
			fmt.Println("\t" + fault)
			faulty = true
		}
	}
	if faulty {
		os.Exit(1)
	}
}

// sources are files that were read once for all systems.
type sources struct {
	library string // the folder of the standard library's sources
	files   *token.FileSet
	parsed  sync.Map // by name
}

type parsed struct {
	file *ast.File
	err  error
}

func (s *sources) parse(files *token.FileSet, name string, text []byte) (*ast.File, error) {
	if kept, found := s.parsed.Load(name); found {
		return kept.(parsed).file, kept.(parsed).err
	}
	file, err := parser.ParseFile(files, name, text, parser.AllErrors|parser.ParseComments|parser.SkipObjectResolution)
	if file != nil && strings.HasPrefix(name, s.library) {
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				f.Body = nil
			}
		}
	}
	s.parsed.Store(name, parsed{file, err})
	return file, err
}

func (s *sources) check(system string) (faults []string) {
	goos, goarch, found := strings.Cut(system, "/")
	if !found {
		return []string{"a system is GOOS/GOARCH"}
	}
	all, err := packages.Load(&packages.Config{
		Mode:      packages.LoadAllSyntax | packages.NeedModule,
		Env:       append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
		Tests:     true,
		Fset:      s.files,
		ParseFile: s.parse,
	}, "./...")
	if err != nil {
		return []string{err.Error()}
	}
	packages.Visit(all, nil, func(p *packages.Package) {
		library := p.Module == nil
		for _, e := range p.Errors {
			if library && e.Kind == packages.TypeError {
				continue // imports that only the bodies use, and the like
			}
			faults = append(faults, e.Error())
		}
		if library || hasAssembly(p) {
			return
		}
		for _, file := range p.Syntax {
			linked := linkedNames(file)
			for _, d := range file.Decls {
				if f, is := d.(*ast.FuncDecl); is && f.Body == nil && !linked[f.Name.Name] {
					faults = append(faults, fmt.Sprintf("%s: %s has no body and no assembly", p.Fset.Position(f.Pos()), f.Name.Name))
				}
			}
		}
	})
	return faults
}

func hasAssembly(p *packages.Package) bool {
	for _, file := range p.OtherFiles {
		if strings.HasSuffix(file, ".s") {
			return true
		}
	}
	return false
}

// linkedNames returns the names whose bodies another package has, as the runtime does.
func linkedNames(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			if words := strings.Fields(c.Text); len(words) > 2 && words[0] == "//go:linkname" {
				names[words[1]] = true
			}
		}
	}
	return names
}
