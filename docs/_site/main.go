// Site makes a site of the module's documentation: what go doc says of every package, with its
// examples, and the pages that are written in Markdown, with their pictures. Nothing on it comes
// from elsewhere. It fails if a link leads nowhere.
//
//	go run -C docs/_site . FOLDER
//
// FOLDER is where the site goes, seen from docs/_site; it is made, or needs to be empty.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run -C docs/_site . FOLDER")
		os.Exit(2)
	}
	faults, err := makeSite("../..", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, fault := range faults {
		fmt.Fprintln(os.Stderr, fault)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// makeSite writes the site of the module in a folder, and returns the links that lead nowhere.
func makeSite(root, folder string) (faults []string, err error) {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	if list, err := os.ReadDir(folder); err != nil || len(list) > 0 {
		return nil, errors.Join(err, fmt.Errorf("%s has %d files, it needs to be empty", folder, len(list)))
	}
	s := &site{root: root, folder: folder}
	if err := s.find(); err != nil {
		return nil, err
	}
	if err := s.writePages(); err != nil {
		return nil, err
	}
	if err := s.writePackages(); err != nil {
		return nil, err
	}
	if err := s.writeSources(); err != nil {
		return nil, err
	}
	return deadLinks(folder)
}

// site is what is written. Each folder and file of the module has its place on it: a page of
// Markdown at its name with .html, a package at index.html of its folder under packages, and other
// files at their name with .html under sources, if something links to them.
type site struct {
	root, folder string
	pages        []page // of Markdown
	packages     []pkg
	sources      map[string]bool // that something links to, by their place in the module
}

// page is a page of Markdown.
type page struct {
	Path, Title string // Path: in the module
}

// Place is where the site has the page.
func (p page) Place() string { return pageAt(p.Path) }

// find lists pages and packages, in the order of their folders.
func (s *site) find() error {
	s.sources = map[string]bool{}
	return filepath.WalkDir(s.root, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		in, err := filepath.Rel(s.root, at)
		if err != nil {
			return err
		}
		in = filepath.ToSlash(in)
		if d.IsDir() {
			if name := d.Name(); in != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata") {
				return fs.SkipDir
			}
			return s.addPackage(in)
		}
		if path.Ext(in) != ".md" {
			return nil
		}
		title, err := titleOf(at)
		s.pages = append(s.pages, page{in, title})
		return err
	})
}

//go:embed style.css
var style string

//go:embed layout.html
var layoutText string

var layout = template.Must(template.New("layout").Parse(layoutText))

// write writes a page of the site. Its content's links are seen from where it is.
func (s *site) write(at, title string, content template.HTML) error {
	file := filepath.Join(s.folder, filepath.FromSlash(at))
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	err = layout.Execute(out, map[string]any{
		"Title": title, "Content": content, "Style": template.CSS(style), "Up": template.URL(strings.Repeat("../", strings.Count(at, "/"))),
		"Pages": s.pages, "Packages": s.packages,
	})
	return errors.Join(err, out.Close())
}

// placeOf is where the site has a file or a folder of the module, if it has it; files that are
// neither pages nor packages are remembered, to be written.
func (s *site) placeOf(in string) (at string, err error) {
	info, err := os.Stat(filepath.Join(s.root, filepath.FromSlash(in)))
	if err != nil {
		return "", err
	}
	switch ext := path.Ext(in); {
	case ext == ".md":
		return pageAt(in), nil
	case ext == ".svg" || ext == ".png":
		return in, s.copy(in)
	case info.IsDir() && s.hasPackage(in):
		return packageAt(in), nil
	case path.Base(in) == "doc.go" && s.hasPackage(path.Dir(in)):
		return packageAt(path.Dir(in)), nil
	}
	s.sources[in] = true
	return sourceAt(in), nil
}

// pageAt is where a page of Markdown is.
func pageAt(in string) string {
	if in == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(in, ".md") + ".html"
}

func packageAt(in string) string { return path.Join("packages", in, "index.html") }
func sourceAt(in string) string  { return path.Join("sources", in+".html") }

// copy copies a picture.
func (s *site) copy(in string) error {
	content, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(in)))
	if err != nil {
		return err
	}
	to := filepath.Join(s.folder, filepath.FromSlash(in))
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o777), os.WriteFile(to, content, 0o666))
}

// from is a place on the site as a page at another one links to it.
func from(at, to string) string {
	up := strings.Repeat("../", strings.Count(at, "/"))
	return up + to
}

// writeSources writes the files and folders that something links to, as they are.
func (s *site) writeSources() error {
	for len(s.sources) > 0 {
		list := s.sources
		s.sources = map[string]bool{}
		for in := range list {
			at := sourceAt(in)
			if _, err := os.Stat(filepath.Join(s.folder, filepath.FromSlash(at))); err == nil {
				continue
			}
			content, err := s.source(in, at)
			if err != nil {
				return err
			}
			if err := s.write(at, in, content); err != nil {
				return err
			}
		}
	}
	return nil
}

// source is a file's text, or links to what a folder has.
func (s *site) source(in, at string) (template.HTML, error) {
	file := filepath.Join(s.root, filepath.FromSlash(in))
	heading := "<h1>" + template.HTMLEscapeString(in) + "</h1>\n"
	if info, err := os.Stat(file); err != nil || !info.IsDir() {
		text, err := os.ReadFile(file)
		return template.HTML(heading + "<pre>" + template.HTMLEscapeString(string(text)) + "</pre>\n"), err
	}
	list, err := os.ReadDir(file)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(heading + "<ul>\n")
	for _, entry := range list {
		to, err := s.placeOf(path.Join(in, entry.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "<li><a href=\"%s\">%s</a></li>\n", template.HTMLEscapeString(from(at, to)), template.HTMLEscapeString(entry.Name()))
	}
	b.WriteString("</ul>\n")
	return template.HTML(b.String()), nil
}
