package main

import (
	"errors"
	"fmt"
	"go/ast"
	gobuild "go/build"
	"go/doc"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"html/template"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module is the path that packages are imported by.
const module = "github.com/stheno-ml/stheno"

// pkg is a package, or a command.
type pkg struct {
	Path, Name string // Path: in the module
	files      *token.FileSet
	doc        *doc.Package
}

// Place is where the site has the package.
func (p pkg) Place() string { return packageAt(p.Path) }

// Title is what lists call the package.
func (p pkg) Title() string {
	if p.Path == "." {
		return path.Base(module)
	}
	return p.Path
}

func (s *site) hasPackage(in string) bool {
	return slices.ContainsFunc(s.packages, func(p pkg) bool { return p.Path == path.Clean(in) })
}

// addPackage reads the package of a folder, if others may import it or it is a command: what there
// is for GPUs too.
func (s *site) addPackage(in string) error {
	if slices.Contains(strings.Split(in, "/"), "internal") {
		return nil
	}
	machine := gobuild.Default // the same on every machine
	machine.GOOS, machine.GOARCH, machine.CgoEnabled, machine.BuildTags = "linux", "amd64", true, []string{"gpu"}
	folder := filepath.Join(s.root, filepath.FromSlash(in))
	found, err := machine.ImportDir(folder, 0)
	var none *gobuild.NoGoError
	if errors.As(err, &none) {
		return nil
	}
	if err != nil {
		return err
	}
	p := pkg{Path: in, files: token.NewFileSet()}
	var files []*ast.File
	for _, name := range slices.Concat(found.GoFiles, found.CgoFiles, found.TestGoFiles, found.XTestGoFiles) {
		file, err := parser.ParseFile(p.files, filepath.Join(folder, name), nil, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	if p.doc, err = doc.NewFromFiles(p.files, files, path.Join(module, in)); err != nil {
		return err
	}
	p.Name = p.doc.Name
	s.packages = append(s.packages, p)
	return nil
}

func (s *site) writePackages() error {
	for _, p := range s.packages {
		w := &writer{pkg: p, site: s}
		w.all()
		if err := s.write(p.Place(), p.Title(), template.HTML(w.String())); err != nil {
			return err
		}
	}
	return nil
}

// writer writes the page of a package.
type writer struct {
	strings.Builder
	pkg
	site *site
}

func (w *writer) all() {
	d := w.doc
	fmt.Fprintf(w, "<h1>%s</h1>\n", escape(w.Title()))
	if d.Name != "main" {
		fmt.Fprintf(w, "<p><code>import %q</code></p>\n", d.ImportPath)
	}
	w.text(d.Doc)
	w.examples(d.Examples)
	if d.Name == "main" {
		return
	}
	w.index()
	w.values("Constants", d.Consts)
	w.values("Variables", d.Vars)
	if len(d.Funcs) > 0 {
		w.WriteString("<h2>Functions</h2>\n")
		w.functions(d.Funcs, "")
	}
	if len(d.Types) > 0 {
		w.WriteString("<h2>Types</h2>\n")
	}
	for _, t := range d.Types {
		w.heading(t.Name, "type "+t.Name)
		w.declaration(t.Decl)
		w.text(t.Doc)
		w.examples(t.Examples)
		w.values("", slices.Concat(t.Consts, t.Vars))
		w.functions(t.Funcs, "")
		w.functions(t.Methods, t.Name)
	}
}

// index links to functions and types.
func (w *writer) index() {
	var names []string
	for _, f := range w.doc.Funcs {
		names = append(names, f.Name)
	}
	for _, t := range w.doc.Types {
		names = append(names, t.Name)
		for _, f := range t.Funcs {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return
	}
	w.WriteString("<p class=\"index\">")
	for _, name := range names {
		fmt.Fprintf(w, "<a href=\"#%s\">%s</a> ", name, name)
	}
	w.WriteString("</p>\n")
}

func (w *writer) functions(list []*doc.Func, of string) {
	for _, f := range list {
		id := f.Name
		if of != "" {
			id = of + "." + f.Name
		}
		w.heading(id, "func "+id)
		w.declaration(f.Decl)
		w.text(f.Doc)
		w.examples(f.Examples)
	}
}

func (w *writer) values(heading string, list []*doc.Value) {
	if len(list) > 0 && heading != "" {
		fmt.Fprintf(w, "<h2>%s</h2>\n", heading)
	}
	for _, v := range list {
		for _, name := range v.Names {
			fmt.Fprintf(w, "<span id=\"%s\"></span>", escape(name))
		}
		w.declaration(v.Decl)
		w.text(v.Doc)
	}
}

func (w *writer) heading(id, title string) {
	fmt.Fprintf(w, "<h3 id=\"%s\">%s</h3>\n", escape(id), escape(title))
}

// declaration is the source of one, without bodies of functions. Its fields and methods can be
// linked to.
func (w *writer) declaration(d ast.Decl) {
	if f, ok := d.(*ast.FuncDecl); ok {
		f.Body, f.Doc = nil, nil
	}
	if g, ok := d.(*ast.GenDecl); ok {
		g.Doc = nil
		for _, spec := range g.Specs {
			if t, ok := spec.(*ast.TypeSpec); ok {
				t.Doc = nil
				w.members(t)
			}
		}
	}
	fmt.Fprintf(w, "<pre>%s</pre>\n", escape(w.source(d)))
}

// members are the places of a type's fields and methods.
func (w *writer) members(t *ast.TypeSpec) {
	var list *ast.FieldList
	switch x := t.Type.(type) {
	case *ast.StructType:
		list = x.Fields
	case *ast.InterfaceType:
		list = x.Methods
	}
	if list == nil {
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			fmt.Fprintf(w, "<span id=\"%s.%s\"></span>", escape(t.Name.Name), escape(name.Name))
		}
	}
}

func (w *writer) source(node any) string {
	var b strings.Builder
	if err := format.Node(&b, w.files, node); err != nil {
		return err.Error()
	}
	return b.String()
}

func (w *writer) examples(list []*doc.Example) {
	for _, e := range list {
		title := "Example"
		if e.Suffix != "" {
			title += " (" + strings.ReplaceAll(e.Suffix, "_", " ") + ")"
		}
		fmt.Fprintf(w, "<details><summary>%s</summary>\n", escape(title))
		w.text(e.Doc)
		code := w.source(e.Code)
		if body, ok := strings.CutPrefix(code, "{\n"); ok { // the block of a function
			code = strings.ReplaceAll("\n"+strings.TrimSuffix(body, "\n}"), "\n\t", "\n")[1:]
		}
		fmt.Fprintf(w, "<pre>%s</pre>\n", escape(code))
		if e.Output != "" {
			fmt.Fprintf(w, "<p>Output:</p>\n<pre>%s</pre>\n", escape(e.Output))
		}
		w.WriteString("</details>\n")
	}
}

// text is a doc comment, whose links lead to the site's packages or to those of others.
func (w *writer) text(text string) {
	p := w.doc.Printer()
	p.HeadingLevel = 3
	p.DocLinkURL = func(l *comment.DocLink) string {
		anchor := ""
		if l.Name != "" {
			anchor = "#" + strings.TrimPrefix(l.Recv+"."+l.Name, ".")
		}
		if l.ImportPath == "" || l.ImportPath == w.doc.ImportPath {
			return anchor
		}
		in, own := strings.CutPrefix(l.ImportPath, module)
		in = strings.TrimPrefix(in, "/")
		if in == "" {
			in = "."
		}
		if own && w.site.hasPackage(in) {
			return from(w.Place(), packageAt(in)) + anchor
		}
		return "https://pkg.go.dev/" + l.ImportPath + anchor
	}
	w.Write(p.HTML(w.doc.Parser().Parse(text)))
}

func escape(s string) string { return template.HTMLEscapeString(s) }
