package jinja_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer/chat/internal/jinja"
)

// Templates drawn from the language render as Python renders them, or are refused by both;
// testdata/drawn.py draws them and is the other side.
func TestDrawn(t *testing.T) {
	content, err := os.ReadFile("testdata/drawn.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Variables map[string]json.RawMessage
		Cases     []struct {
			Source, Text string
			Refused      bool
		}
	}
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{}
	for name, v := range golden.Variables {
		variables[name] = v
	}
	refused := 0
	for _, c := range golden.Cases {
		text, err := render(c.Source, variables)
		if c.Refused {
			refused++
		}
		if (err != nil) != c.Refused || text != c.Text {
			t.Errorf("%s gives\n%q, %v, want\n%q, refused: %v", c.Source, text, err, c.Text, c.Refused)
		}
	}
	if len(golden.Cases) < 100 || refused > len(golden.Cases)/2 {
		t.Errorf("there are %d templates, of which %d are refused", len(golden.Cases), refused)
	}
}

func render(source string, variables map[string]any) (string, error) {
	template, err := jinja.Parse(source)
	if err != nil {
		return "", err
	}
	return template.Render(variables)
}

func TestStatements(t *testing.T) {
	variables := map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": "Hi"}, map[string]any{"role": "assistant", "content": nil}},
		"tool":     json.RawMessage(`{"name":"f","args":{"z":1.0,"a":[1e20,-0.0,true,null]},"text":"<&'é\u2028\n>"}`),
		"one":      []any{1}, "tools": nil,
	}
	for source, want := range map[string]string{
		"{{ tool | tojson }}":                             `{"name": "f", "args": {"z": 1.0, "a": [1e+20, -0.0, true, null]}, "text": "<&'é` + "\u2028" + `\n>"}`,
		"{{ tool.args | tojson(indent=1) }}":              "{\n \"z\": 1.0,\n \"a\": [\n  1e+20,\n  -0.0,\n  true,\n  null\n ]\n}",
		"{{ tool.args | tojson(separators=(',', ':')) }}": `{"z":1.0,"a":[1e+20,-0.0,true,null]}`,
		"{{ tool.text | tojson(ensure_ascii=true) }}":     `"<&'\u00e9\u2028\n>"`,
		"{{ one[-1] }}{{ one[-2] is defined }}":           "1False",
		"{{ namespace }}":                                 "<class 'transformers.utils.chat_template_utils._cached_compile_jinja_template.<locals>.TemplateNamespace'>",
		"{% macro m() %}{{ caller }}{{ caller.name }}{% endmacro %}{% call m() %}{% endcall %}{{ m }}":                                             "<Macro anonymous>None<Macro 'm'>",
		"{{ [none, 1.0, 7 // -2, -7 % 3, (1,), 'it\\'s'] }}":                                                                                       `[None, 1.0, -4, 2, (1,), "it's"]`,
		"{{ 'a-b-c'.replace('-', '+', 1) }}":                                                                                                       "a+b-c",
		"{{ ' a  b '.split() }}|{{ '  x '.lstrip() }}|":                                                                                            "['a', 'b']|x |",
		"{% set a, b = 1, 2 %}{{ b }}{{ a }}":                                                                                                      "21",
		"{% macro m(x, y=2) %}[{{ x }}{{ y }}{{ caller('!') }}]{% endmacro %}{% call(s) m(1) %}in{{ s }}{% endcall %}":                             "[12in!]",
		"{% filter upper %}a{{ one }}{% endfilter %}":                                                                                              "A[1]",
		"{% generation %}{% set x = 1 %}g{% endgeneration %}{{ x is defined }}":                                                                    "gFalse",
		"{% for m in messages %}{{ loop.index }}{{ m.content }}{% if loop.last %}.{% endif %}{% endfor %}":                                         "1Hi2None.",
		"{% for m in messages if m.role == 'x' %}{% else %}none{% endfor %}":                                                                       "none",
		"{% for i in [1, [2, [3]]] recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}":                                                  "123",
		"{% set ns = namespace(n=0) %}{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}": "3",
		"a\n  {% if true %}\n  b\n  {% endif %}\nc\n":                                                                                              "a\n  b\nc",
		"a\n  {%+ if true -%}\n  b\n  {%- endif +%}\nc\n\n":                                                                                        "a\n  b\nc\n",
		"{# no #}\n {%- raw %} {{ x }} {% endraw -%} \n":                                                                                           " {{ x }} ",
		"{{ messages[0].missing }}|{{ missing is defined }}|{{ missing }}|":                                                                        "|False||",
		"{{ messages[0]['content'].upper() ~ tools ~ 1 }}":                                                                                         "HINone1",
		"{{ '<b>' + ('x' | safe) }}":                                                                                                               "&lt;b&gt;x",
		"{{ -(0.0) }} {{ +(-0.0) }} {{ -0.0 * 1 }} {{ -(0) }} {{ -true }}":                                                                         "-0.0 -0.0 -0.0 0 -1",
		"{{ '%s is %.2f and %d' % ('x', 1.005, 3.9) }}":                                                                                            "x is 1.00 and 3",
		"{{ '{:>4}|{0!r}'.format('x') if false else '{:>4}|{!r}'.format('x', 'y') }}":                                                              "   x|'y'",
		"{{ messages | selectattr('content') | map(attribute='role') | join('+') }}":                                                               "user",
		"{{ strftime_now('%Y') | length }}":                                                                                                        "4",
		"{{ 'ǅ aÀ'.swapcase() }}":                                                                                                                  "ǅ Aà",
		"{{ range(10)[3:1] }}{{ range(10)[0:9:2] }}{{ range(10)[::-4] }}":                                                                          "range(3, 1)range(0, 9, 2)range(9, -1, -4)",
		"{{ dict(tool.args, b=2) | length }}{{ tool.items() | list | length }}{{ tool.get('no') }}{{ tool.get('no', 'd') }}":                       "33Noned",
	} {
		text, err := render(source, variables)
		if err != nil || text != want {
			t.Errorf("%s gives %q, %v, want %q", source, text, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	variables := map[string]any{"none": nil, "list": []any{1}, "text": "a"}
	for source, want := range map[string]string{
		"{{ missing.role }}":                         "'missing' is undefined",
		"{{ text.role.name }}":                       "'str object' has no attribute 'role'",
		"{{ 'a' + missing }}":                        "'missing' is undefined",
		"{{ missing | tojson }}":                     "Undefined is not JSON serializable",
		"{{ 'a' + none }}":                           "can only concatenate str (not 'NoneType') to str",
		"{{ list.append(1) }}":                       "access to attribute 'append' of 'list' object is unsafe",
		"{{ raise_exception('Roles alternate!') }}":  "Roles alternate!",
		"{% include 'x' %}":                          `"include" is no statement`,
		"{% block a %}{% endblock %}":                `"block" is no statement`,
		"{% break %}":                                "break is outside of a loop",
		"{{ 1 % 0 }}":                                "integer division or modulo by zero",
		"{{ 9223372036854775807 + 1 }}":              "does not fit 64 bits",
		"{{ 'x' | nosuch }}":                         "No filter named 'nosuch'",
		"{% for %}":                                  "line 1 of the template: there is the end of the tag",
		"\n\n{{ 1 ":                                  "line 3 of the template: a tag has no end",
		"{{ ) }}":                                    "closes nothing",
		"{% if 1 %}":                                 `the template ends before "elif"`,
		"{# ":                                        "a comment has no end",
		"{% raw %}":                                  "a raw block has no end",
		"{{ '\\x1' }}":                               "an escape is too short",
		"{% set ns = namespace(_a=1) %}":             "underscore-prefixed",
		"{% filter list %}a{% endfilter %}":          "sequence item: expected str instance, list found",
		"{{ list | sort('x') }}":                     "'str' object cannot be interpreted as an integer",
		"{{ text.splitlines(none) }}":                "'NoneType' object cannot be interpreted as an integer",
		"{% set a, = [1] %}":                         `there is "="`,
		"{{ text.isdigit(1) }}":                      "takes at most 0 arguments",
		"{{ text.encode() }}":                        "the method encode of str is not known here",
		"{{ missing.__globals__ is defined }}":       "'missing' is undefined",
		"{{ text.__init__.__globals__ is defined }}": "access to attribute '__init__' of 'str' object is unsafe",
		"{% set a, b = [1] %}":                       "1 values cannot be unpacked into 2 names",
	} {
		text, err := render(source, variables)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %q, %v, want an error with %q", source, text, err, want)
		}
	}
	if text, err := render("{{ 'a' is unsafe }}", nil); err == nil {
		t.Errorf("a test that is not known gives %q", text)
	}
}

// What a template must not do is an error, and one that comes: what has no bound would never end
// here.
func TestHostile(t *testing.T) {
	const (
		many  = "{% for i in range(90000) %}"
		large = "a value of more than 16777216 bytes"
		text  = "writes more than 16777216 bytes"
		deep  = "too deep within one another"
		calls = "calls are more than 100 deep"
	)
	for source, want := range map[string]string{
		"{% for i in range(100000000) %}{% endfor %}":                                                    "Range too big",
		many + "{{ 'x' * 1000 }}{% endfor %}":                                                            text,
		many + "{% for j in range(90000) if j < 0 %}{% endfor %}{% endfor %}":                            "more than 5000000 steps",
		many + "{% if 'y' in 'x' * 9000000 %}{% endif %}{% endfor %}":                                    "goes through more than",
		"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}":                                        calls,
		"{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}":                                                calls,
		"{% macro a(n) %}{% if n > 0 %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(50) }}": "steps",
		"{% macro a(s) %}{{ a(s ~ s) }}{% endmacro %}{{ a('x') }}":                                       text,
		"{{ 'x' * 100000000000 }}":                                                                       large,
		"{{ '' * 100000000000 }}{{ [] * 100000000000 }}{{ 1 / 0 }}":                                      "division by zero",
		"{% set s = ['x'] %}" + strings.Repeat("{% set s = s + s %}", 40):                                large,
		"{% set s = ['x'] %}" + strings.Repeat("{% set s = [s, s] %}", 60) + "{{ s }}":                   "more than",
		"{% set s = ['x'] %}" + strings.Repeat("{% set s = [s, s] %}", 60) + "{{ s == s }}":              "steps",
		"{% set n = namespace(s='x') %}" + many + "{% set n.s = n.s + n.s %}{% endfor %}":                large,
		"{% set s %}" + many + "{{ 'x' * 1000 }}{% endfor %}{% endset %}":                                text,
		"{{ 'x' | center(10000000000) }}":                                                                large,
		"{{ 'x' | indent(10000000000) }}":                                                                large,
		"{{ 'x' | tojson(indent=10000000000) }}":                                                         large,
		"{{ [] | batch(10000000000, 1) | list }}{{ [1] | batch(10000000000, 1) | list }}":                large,
		"{{ ('x' * 100000) | replace('x', 'y' * 100000) }}":                                              large,
		"{{ ('x' * 100000) | list | join('y' * 100000) }}":                                               text,
		"{{ '%1000000000d' | format(1) }}":                                                               large,
		"{{ '%.1000000000f' | format(1) }}":                                                              "precision too big",
		"{{ '{:>{}}'.format(1, 1000000000) }}":                                                           large,
		"{{ '{:>99999999999999999999}'.format(1) }}":                                                     "a width is too large",
		"{{ " + strings.Repeat("(", 50000) + "1" + strings.Repeat(")", 50000) + " }}":                    "words and signs",
		"{{ " + strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500) + " }}":                        "expressions are more than 200 deep",
		"{{ " + strings.Repeat("not ", 3000) + "1 }}":                                                    "expressions are more than 200 deep",
		"{{ " + strings.Repeat("-", 3000) + "1 }}":                                                       "expressions are more than 200 deep",
		strings.Repeat("{% if 1 %}", 500):                                                                "statements are more than 100 deep",
		"{% set " + strings.Repeat("(", 3000) + "a" + strings.Repeat(")", 3000) + " = 1 %}":              "more than 200 deep",
		strings.Repeat("x", 300<<10):                                                                     "the template has 307200 bytes",
		"{% set n = namespace() %}{% set n.n = n %}{{ n }}":                                              deep,
		"{% set n = namespace() %}{% set n.n = [n] %}{{ n.n == [n] }}{{ n.n | string }}":                 deep,
	} {
		got, err := render(source, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s gives %.100q, %v, want an error with %q", source, got, err, want)
		}
	}
}

// FuzzTemplate parses and renders anything. Nothing panics, and a template that renders does so
// twice alike.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		"{% for m in messages %}{{ loop.index }}{{ m['role'] | upper }}{% else %}-{% endfor %}",
		"{% macro m(a, b=1) -%}{{ a ~ b }}{{ caller() }}{%- endmacro %}{% call m(2) %}x{% endcall %}",
		"{% set ns = namespace(a=[]) %}{% set ns.a = ns.a + [1] %}{{ ns.a[::-1] | tojson(indent=2) }}",
		"{{ '%s %5.2f' % ('a', 1.5) }}{{ '{:>5}|{a!r}'.format(1, a=2) }}{{ x if y is defined else z }}",
		"{# c #}{% raw %}{{ }}{% endraw %}{%- if not a.b and 'c' in d -%}{% elif e | length > 2 %}{% endif %}",
		"{% filter trim %} {{ 1 // 2 ** 3 % 4 - -5 }} {% endfilter %}{% with a = 1, b = (2, 3) %}{{ b }}{% endwith %}",
	} {
		f.Add(seed)
	}
	variables := map[string]any{
		"messages": []any{map[string]any{"role": "user", "content": "Hi"}}, "a": 1, "b": "x", "c": 2.5, "d": []any{}, "x": nil,
	}
	f.Fuzz(func(t *testing.T, source string) {
		template, err := jinja.Parse(source)
		if err != nil {
			return
		}
		first, err := template.Render(variables)
		second, again := template.Render(variables)
		if (err == nil) != (again == nil) || first != second && !strings.Contains(source, "strftime_now") {
			t.Errorf("%q gives %q, %v and then %q, %v", source, first, err, second, again)
		}
		if err != nil && strings.Contains(err.Error(), "runtime error") {
			t.Errorf("%q panics: %v", source, err)
		}
	})
}
