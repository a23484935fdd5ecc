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

// Templates of published models write what transformers writes with them; testdata/chat.py is the
// other side.
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
		`{"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ messages[0].content }}"}`:                                                            "<s>hi",
		`{"bos_token": {"content": "<b>"}, "chat_template": [{"name": "default", "template": "{{ bos_token }}"}]}`:                                     "<b>",
		`{"chat_template": "{{ messages[0].name }} {{ tools | length }} {% for i in range(3, 0, -1) %}{{ i }}{% endfor %}"}`:                           "Ada 2 321",
		`{"bos_token": null, "chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "{{ bos_token is defined }}"}]}`: "False",
		`{"chat_template": "{% if undefined_one is defined %}no{% endif %}{{ strftime_now('%Y') | length }}"}`:                                         "4",
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
	both := t.TempDir()
	write(both, "tokenizer_config.json", `{"chat_template": {"default": "plain", "tool_use": "tools"}}`)
	for value, want := range map[any]string{nil: "plain", "null": "plain", "[]": "tools"} {
		variables := map[string]any{"tools": value}
		if text, isText := value.(string); isText {
			variables["tools"] = json.RawMessage(text)
		}
		template, err := chat.Open(both)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := template.Render(nil, chat.Options{Variables: variables}); err != nil || text != want {
			t.Errorf("with the tools %v: %q, %v, want %q", value, text, err, want)
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

// A template with the same words on all kinds of messages and tools as with transformers.
func TestVariables(t *testing.T) {
	var read chat.Message
	const source = `{"content": [{"type": "text", "text": "Hi"}], "role": "user", "b": 1.0, "a": {"z": 1, "y": []}}`
	if err := json.Unmarshal([]byte(source), &read); err != nil {
		t.Fatal(err)
	}
	written, err := json.Marshal(read)
	if want := strings.NewReplacer(": ", ":", ", ", ",").Replace(source); err != nil || string(written) != want {
		t.Errorf("a message is written as %s, %v, want %s", written, err, want)
	}
	call := map[string]any{"tool_calls": []any{map[string]any{"name": "f"}}}
	tools := json.RawMessage(`[{"name": "f", "args": {"z": 1, "a": 2.0}}]`)
	for _, c := range []struct {
		template string
		message  chat.Message
		tools    any
		want     string
	}{
		{"{{ messages[0] | tojson }}", read, nil, source},
		{"{{ messages[0] }}", chat.Message{Role: "assistant", Fields: call}, nil,
			"{'role': 'assistant', 'content': None, 'tool_calls': [{'name': 'f'}]}"},
		{"{{ tools is none }}{{ documents is none }}{{ bos_token is defined }}", read, nil, "TrueTrueFalse"},
		{"{{ tools | tojson }}", read, tools, string(tools)},
		{"{{ messages[0] }}", chat.Message{Role: "a", Content: 5.0, Fields: map[string]any{"reasoning": "r"}}, nil,
			"{'thinking': 'r', 'role': 'a', 'content': 5, 'reasoning': 'r', 'reasoning_content': 'r'}"},
		{"{{ messages[0] }}", chat.Message{Role: "a", Fields: map[string]any{"reasoning": "r", "thinking": nil}}, nil,
			"{'thinking': None, 'role': 'a', 'content': None, 'reasoning': 'r', 'reasoning_content': 'r'}"},
		{"{{ messages[0] }}", chat.Message{Role: "a", Fields: map[string]any{"thinking": "t"}}, nil,
			"{'thinking': 't', 'role': 'a', 'content': None, 'reasoning_content': 't'}"},
		{"{{ messages[0].content }}", chat.Message{Content: "a\xffb"}, nil, "a\ufffdb"},
	} {
		template, err := chat.New(c.template, nil)
		if err != nil {
			t.Fatal(err)
		}
		o := chat.Options{}
		if c.tools != nil {
			o.Variables = map[string]any{"tools": c.tools}
		}
		if text, err := template.Render([]chat.Message{c.message}, o); err != nil || text != c.want {
			t.Errorf("%s of %v gives %q, %v, want %q", c.template, c.message, text, err, c.want)
		}
	}
	for _, bad := range []string{`[]`, `{"role": 1}`, `{"role": "a"`, `"a"`} {
		if err := json.Unmarshal([]byte(bad), &chat.Message{}); err == nil {
			t.Errorf("%s is read as a message", bad)
		}
	}
	template, err := chat.New("{{ messages }}", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []any{func() {}, json.RawMessage(`{`), json.RawMessage(`1 2`), 1 << 62, json.RawMessage(`1e5`)} {
		_, err := template.Render([]chat.Message{{Content: content}}, chat.Options{})
		raw, _ := content.(json.RawMessage)
		if good := content == 1<<62 || string(raw) == "1e5"; (err == nil) != good {
			t.Errorf("the content %v gives %v", content, err)
		}
	}
	if _, err := chat.New("{% for %}", nil); err == nil || !strings.Contains(err.Error(), "chat: line 1 of the template") {
		t.Errorf("a malformed template gives %v", err)
	}
	if _, err := new(chat.Template).Render(nil, chat.Options{}); err == nil {
		t.Error("an empty template renders")
	}
}

// What a template asks for within reason is not refused: here a conversation of a thousand messages
// that loops go over.
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
