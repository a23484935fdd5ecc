package jinja

import "fmt"

// Template is a parsed template. Several goroutines may render it at once.
type Template struct{ body sequence }

// Parse reads a template. An error names the line that it cannot read.
func Parse(source string) (t *Template, err error) {
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, recovered(p)
		}
	}()
	p := &parser{tokens: lex(source), extra: map[string]bool{}}
	return &Template{p.body()}, nil
}

// Render writes the template's text. The variables are values that JSON can hold, an [Object] among
// them. What the template objects to is an error with its own words.
func (t *Template) Render(variables map[string]any) (text string, err error) {
	defer func() {
		if p := recover(); p != nil {
			text, err = "", recovered(p)
		}
	}()
	r := &run{globals: map[string]value{}}
	for name, f := range globals {
		r.globals[name] = &function{name: name, call: f}
	}
	for name, v := range variables {
		if r.globals[name], err = fromGo(v, 0); err != nil {
			return "", fmt.Errorf("the variable %s: %w", name, err)
		}
	}
	w := &writer{meter: &r.meter}
	t.body.run(&scope{run: r}, w)
	return string(w.text), nil
}
