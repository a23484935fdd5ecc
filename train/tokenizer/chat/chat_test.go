package chat_test

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/tokenizer/chat"
)

// Templates of published models write what transformers writes with them; testdata/chat.py is the other side.
func TestRender(t *testing.T) {
	content, err := os.ReadFile("testdata/chat.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Templates map[string]string
		Cases     []struct {
			Template    string
			Messages    []chat.Message
			Answer      bool
			Text, Error string
		}
	}
	if err := json.Unmarshal(content, &golden); err != nil {
		t.Fatal(err)
	}
	for _, c := range golden.Cases {
		template, err := chat.New(golden.Templates[c.Template], map[string]string{"bos_token": "<s>", "eos_token": "</s>"})
		if err != nil {
			t.Fatalf("%s: %v", c.Template, err)
		}
		text, err := template.Render(c.Messages, chat.Options{Answer: c.Answer})
		if c.Error != "" {
			if err == nil || !strings.Contains(err.Error(), c.Error) {
				t.Errorf("%s: %v gives %q, %v, want the error %q", c.Template, c.Messages, text, err, c.Error)
			}
			continue
		}
		if err != nil || text != c.Text {
			t.Errorf("%s: %v gives\n%q, %v, want\n%q", c.Template, c.Messages, text, err, c.Text)
		}
	}
}

func TestOpen(t *testing.T) {
	write := func(folder, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for config, want := range map[string]string{
		`{"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"}`:                                  "<s>hi",
		`{"bos_token": {"content": "<b>"}, "chat_template": [{"name": "default", "template": "{{ bos_token }}"}]}`:           "<b>",
		`{"chat_template": "{{ messages[0].name }} {{ tools | length }} {% for i in range(3, 0, -1) %}{{ i }}{% endfor %}"}`: "Ada 2 321",
		`{"chat_template": "{% if undefined_one is defined %}no{% endif %}{{ strftime_now('%Y') | length }}"}`:               "4",
	} {
		folder := t.TempDir()
		write(folder, "tokenizer_config.json", config)
		template, err := chat.Open(folder)
		if err != nil {
			t.Errorf("%s: %v", config, err)
			continue
		}
		text, err := template.Render([]chat.Message{{Role: "user", Content: "hi", Fields: map[string]any{"name": "Ada"}}},
			chat.Options{Variables: map[string]any{"tools": []any{1, 2}}})
		if err != nil || text != want {
			t.Errorf("%s gives %q, %v, want %q", config, text, err, want)
		}
	}
	folder := t.TempDir()
	write(folder, "tokenizer_config.json", `{}`)
	if _, err := chat.Open(folder); err == nil || !strings.Contains(err.Error(), "there is neither chat_template.jinja nor") {
		t.Errorf("without a template: %v", err)
	}
	write(folder, "chat_template.jinja", "from a file")
	if template, err := chat.Open(folder); err != nil {
		t.Error(err)
	} else if text, err := template.Render(nil, chat.Options{}); err != nil || text != "from a file" {
		t.Errorf("a file gives %q, %v", text, err)
	}
}

// What a template must not do is an error, and one that comes: what has no bound would never end here.
func TestHostileTemplates(t *testing.T) {
	const many = "{% for i in range(90000) %}"
	for source, want := range map[string]string{
		"{% for %}":                                                                                      "the template cannot be read",
		"{% include '/etc/passwd' %}":                                                                    "'include' not found",
		"{% include '/chat' %}":                                                                          "'include' not found",
		"{% block a %}{{ self.a() }}{% endblock %}":                                                      "'block' not found",
		"{% for i in range(100000000) %}{% endfor %}":                                                    "range has more than 100000 numbers",
		many + "{{ 'x' * 1000 }}{% endfor %}":                                                            "the template writes more than 16777216 bytes",
		"{{ raise_exception('no system message') }}":                                                     "no system message",
		many + "{% for j in range(90000) if j < 0 %}{% endfor %}{% endfor %}":                            "more than 500000 steps",
		many + strings.Repeat("{% if i in range(90000) %}{% endif %}", 20) + "{% endfor %}":              "goes through more than",
		"{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}":                                        "recursive loop",
		"{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}":                                                "more than 64 deep",
		"{% macro a(n) %}{% if n > 0 %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(50) }}": "more than 500000 steps",
		"{% macro a(s) %}{{ a(s ~ s) }}{% endmacro %}{{ a('x') }}":                                       "a value of more than 16777216 bytes",
		"{% macro a() %}{{ 'x' * 16000000 }}{{ 'x' * 16000000 }}{% endmacro %}{{ a() }}":                 "a value of more than 16777216 bytes",
		"{{ 'x' * 100000000000 }}":                                                                       "a value of more than 16777216 bytes",
		"{{ 'x' * 4000 * 4000 * 4000 * 4000 }}":                                                          "a value of more than 16777216 bytes",
		"{% set s = 'x' %}" + strings.Repeat("{% set s = s + s %}", 40):                                  "a value of more than 16777216 bytes",
		"{% set s = 'x' %}" + strings.Repeat("{% set s = s ~ s %}", 40):                                  "a value of more than 16777216 bytes",
		"{% set s = ['x'] %}" + strings.Repeat("{% set s = s + s %}", 40):                                "a value of more than 16777216 bytes",
		"{% set s = ['x'] %}" + strings.Repeat("{% set s = [s, s] %}", 60) + "{{ s }}":                   "a value of more than 16777216 bytes",
		"{% set n = namespace(s='x') %}" + many + "{% set n.s = n.s + n.s %}{% endfor %}":                "a value of more than 16777216 bytes",
		"{% set s %}" + many + "{{ 'x' * 1000 }}{% endfor %}{% endset %}":                                "writes more than 16777216 bytes",
		"{{ 'x' | center(10000000000) }}":                                                                "goes through more than",
		"{{ 'x'.rjust(10000000000) }}":                                                                   "goes through more than",
		"{{ 1.5 | round(1000000000) }}":                                                                  "goes through more than",
		"{{ ['x'] | map('center', 10000000000) | list }}":                                                "goes through more than",
		"{% for i in range(90) %}{{ 'x' * 300000 }}{% endfor %}":                                         "the template writes more than 16777216 bytes",
		"{{ ('x' * 100000) | replace('x', 'y' * 100000) }}":                                              "goes through more than",
		"{{ ('x' * 1000000) | list | join('y' * 1000000) }}":                                             "a value of more than 16777216 bytes",
		"{{ range(100000) | unique | list }}":                                                            "goes through more than",
		"{{ '%1000000000d' | format(1) }}":                                                               "a format with a width of thousands",
		"{{ '{:>1000000000}'.format(1) }}":                                                               "a format with a width of thousands",
		"{{ '{:>{}}'.format(1, 1000000000) }}":                                                           "a format with a width of thousands",
		many + "{{ x" + strings.Repeat(".a()", 16) + " }}{% endfor %}":                                   "callable",
		"{{ x" + strings.Repeat(".a()", 60) + " }}":                                                      "chains 60 method calls",
		"{{ 'x'" + strings.Repeat(".strip()", 60) + " }}":                                                "chains 60 method calls",
		"{{ " + strings.Repeat("(", 50000) + "1" + strings.Repeat(")", 50000) + " }}":                    "more than 4096 words and signs",
		"{{ " + strings.Repeat("not ", 30000) + "1 }}":                                                   "more than 4096 words and signs",
		strings.Repeat("x", 200<<10):                                                                     "the template has 204800 bytes",
		"{% set l = [1] %}{{ l.append(l) }}":                                                             "append",
		"{% set d = {} %}{{ d.update({'a': d}) }}":                                                       "update",
		"{% set n = namespace() %}{% set n.n = n %}{{ n }}":                                              "values into values without end",
		"{% set d = {} %}{% set d['d'] = d %}{{ d.x() }}":                                                "",
		"{{ 1 % 0 }}":                           "divide by zero",
		many + "{{ lipsum(1000) }}{% endfor %}": "not callable",
	} {
		template, err := chat.New(source, nil)
		if err == nil {
			_, err = template.Render(nil, chat.Options{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %.500v, want an error with %q", source, err, want)
		}
	}
}

// What a template asks for within reason is not refused: here a conversation of a thousand messages that loops go over.
func TestLongConversation(t *testing.T) {
	const source = "{% set n = namespace(text='', last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set n.last = loop.index0 %}{% endif %}{% endfor %}" +
		"{% macro show(m) %}<{{ m.role }}>{{ m.content | trim | replace('\n', ' ') }}{% endmacro %}" +
		"{% for m in messages[1:] %}{% if loop.index0 % 2 == 1 and m.content is string %}{{ show(m).strip() + '\n' }}{% endif %}{% generation %}.{% endgeneration %}{% endfor %}{{ '=' * 20 }}{{ '=' * -1 }}"
	var messages []chat.Message
	for range 1000 {
		messages = append(messages, chat.Message{Role: "user", Content: strings.Repeat("words and\n ", 100)})
	}
	template, err := chat.New(source, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		text, err := template.Render(messages, chat.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(text, "<user>words and  words"); n != 499 || strings.Count(text, ".") != 999 || !strings.HasSuffix(text, ".===================="+"") {
			t.Errorf("there are %d messages of 499 in %d bytes", n, len(text))
		}
	}
}

// A conversation in the format that many models share.
func Example() {
	const source = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}" +
		"{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
	t, err := chat.New(source, nil)
	if err != nil {
		log.Fatal(err)
	}
	text, err := t.Render([]chat.Message{{Role: "user", Content: "What is a gorgon?"}}, chat.Options{Answer: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(text)
	// Output:
	// <|im_start|>user
	// What is a gorgon?<|im_end|>
	// <|im_start|>assistant
}
