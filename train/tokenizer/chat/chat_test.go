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

// What a template must not do is an error.
func TestHostileTemplates(t *testing.T) {
	for source, want := range map[string]string{
		"{% for %}":                   "the template cannot be read",
		"{% include '/etc/passwd' %}": "passwd",
		"{% for i in range(100000000) %}{% endfor %}":             "range has more than 100000 numbers",
		"{% for i in range(90000) %}{{ 'x' * 1000 }}{% endfor %}": "the template writes more than 16777216 bytes",
		"{{ raise_exception('no system message') }}":              "no system message",
	} {
		template, err := chat.New(source, nil)
		if err == nil {
			_, err = template.Render(nil, chat.Options{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", source, err, want)
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
