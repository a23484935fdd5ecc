package main

import (
	"bytes"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var firstHeading = regexp.MustCompile(`(?m)^# (.+)$`)

// titleOf is the first heading of a page.
func titleOf(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if found := firstHeading.FindSubmatch(content); found != nil {
		return string(found[1]), nil
	}
	return "", fmt.Errorf("%s has no heading", file)
}

// writePages writes the pages of Markdown.
func (s *site) writePages() error {
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	for _, p := range s.pages {
		content, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(p.Path)))
		if err != nil {
			return err
		}
		tree := markdown.Parser().Parse(text.NewReader(content))
		if err := ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			if !entering {
				return ast.WalkContinue, nil
			}
			switch n := n.(type) {
			case *ast.Link:
				return ast.WalkContinue, s.turn(p.Path, &n.Destination)
			case *ast.Image:
				return ast.WalkContinue, s.turn(p.Path, &n.Destination)
			}
			return ast.WalkContinue, nil
		}); err != nil {
			return fmt.Errorf("%s: %w", p.Path, err)
		}
		var b bytes.Buffer
		if err := markdown.Renderer().Render(&b, content, tree); err != nil {
			return err
		}
		if err := s.write(pageAt(p.Path), p.Title, template.HTML(b.String())); err != nil {
			return err
		}
	}
	return nil
}

// turn makes a link of a page in the module one of the site.
func (s *site) turn(page string, target *[]byte) error {
	in, anchor, hasAnchor := strings.Cut(string(*target), "#")
	if in == "" || strings.Contains(in, ":") { // on this page, or another site
		return nil
	}
	to, err := s.placeOf(path.Join(path.Dir(page), in))
	if err != nil {
		return err
	}
	to = from(pageAt(page), to)
	if hasAnchor {
		to += "#" + anchor
	}
	*target = []byte(to)
	return nil
}
