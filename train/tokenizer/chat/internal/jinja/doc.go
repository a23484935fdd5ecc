// Package jinja renders chat templates: the part of Jinja that published models use, with Python's
// values and the environment of transformers.
//
// A template is parsed once and may be rendered by several goroutines at once:
//
//	t, err := jinja.Parse("{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}")
//	text, err := t.Render(map[string]any{"messages": messages})
//
// # Language
//
// It is that of transformers' ImmutableSandboxedEnvironment: blocks take the white space around
// them as trim_blocks and lstrip_blocks say, values print as Python prints them, objects keep the
// order of their keys, and what is undefined may be printed, iterated and tested, but fails in any
// other use. Nothing that a template can name changes its input.
//
// The statements are for, if, set, macro, call, filter, with, raw, print, break, continue and
// generation. The functions are range, dict, namespace, raise_exception and strftime_now. Templates
// that include, import or extend others are refused, and so are blocks and autoescape.
//
// # Files
//
//   - lex.go, parse.go: a template's text becomes nodes
//   - statement.go, expression.go, call.go: what the nodes do
//   - value.go, operator.go, attribute.go, print.go: values and what Python does with them
//   - strings.go, format.go, filter.go, test.go, function.go: what templates call
//   - json.go: values from Go and to JSON
//   - limit.go: how much a template may do
package jinja
