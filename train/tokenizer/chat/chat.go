package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/train/tokenizer/chat/internal/jinja"
)

// Options are the options of [Template.Render].
type Options struct {
	Answer bool // the text ends where the model's answer begins
	// Variables are further variables that the template knows, such as tools, documents or
	// enable_thinking: values that JSON can hold. The names in an object keep the order that JSON
	// gives them, which is sorted for a map; a json.RawMessage keeps the order that it has.
	Variables map[string]any
}

// Template writes conversations. It may be used by several goroutines at once.
type Template struct {
	usual, withTools *jinja.Template   // withTools is nil unless the model has another template for tools
	tokens           map[string]string // bos_token and the like
}

// Open reads the template of a model's folder: chat_template.jinja, or chat_template in
// tokenizer_config.json. Where there are several, it takes those named default and tool_use.
func Open(folder string) (*Template, error) {
	t, err := open(folder)
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", folder, err)
	}
	return t, nil
}

func open(folder string) (*Template, error) {
	fields, err := readFields(folder, "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	sources, err := sourcesIn(fields["chat_template"])
	if err != nil {
		return nil, err
	}
	for name, file := range map[string]string{"default": "chat_template.jinja", toolUse: "additional_chat_templates/tool_use.jinja"} {
		text, err := plainfile.ReadFile(filepath.Join(folder, file), maxFile)
		switch {
		case err == nil:
			sources[name] = string(text)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	if sources["default"] == "" {
		return nil, errors.New("there is neither chat_template.jinja nor a default chat_template in tokenizer_config.json")
	}
	more, err := readFields(folder, "special_tokens_map.json")
	if err != nil {
		return nil, err
	}
	tokens := tokensIn(more)
	maps.Copy(tokens, tokensIn(fields))
	t, err := newTemplate(sources["default"], tokens)
	if err != nil || sources[toolUse] == "" {
		return t, err
	}
	if t.withTools, err = jinja.Parse(sources[toolUse]); err != nil {
		return nil, fmt.Errorf("%s: %w", toolUse, err)
	}
	return t, nil
}

// toolUse is the name of a template that is used instead of default where there are tools.
const toolUse = "tool_use"

// maxFile is how many bytes a file may have: a template, or a config that lists many tokens.
const maxFile = 64 << 20

// readFields reads a file of JSON, which may be missing.
func readFields(folder, name string) (map[string]json.RawMessage, error) {
	text, err := plainfile.ReadFile(filepath.Join(folder, name), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return fields, nil
}

// sourcesIn are the templates of a field by their names, of which one without a name is the
// default.
func sourcesIn(field json.RawMessage) (map[string]string, error) {
	sources := map[string]string{}
	var one string
	var list []struct{ Name, Template string }
	switch {
	case len(field) == 0:
	case json.Unmarshal(field, &one) == nil:
		sources["default"] = one
	case json.Unmarshal(field, &list) == nil:
		for _, named := range list {
			sources[named.Name] = named.Template
		}
	case json.Unmarshal(field, &sources) == nil:
	default:
		return nil, fmt.Errorf("tokenizer_config.json: chat_template is %.40s, it needs to be a template, or several with names", field)
	}
	return sources, nil
}

// tokensIn is the special tokens of a tokenizer_config.json, each a text or an object with its
// content.
func tokensIn(fields map[string]json.RawMessage) map[string]string {
	tokens := map[string]string{}
	for _, name := range []string{"model_specific_special_tokens", "extra_special_tokens"} {
		var more map[string]json.RawMessage
		if json.Unmarshal(fields[name], &more) == nil {
			maps.Copy(tokens, tokensIn(more))
		}
	}
	for name, value := range fields {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		var text *string
		var token struct{ Content *string }
		if json.Unmarshal(value, &text) != nil && json.Unmarshal(value, &token) == nil {
			text = token.Content
		}
		if text != nil {
			tokens[name] = *text
		}
	}
	return tokens
}

// New makes a template of its source. Tokens are the variables that it has for special tokens, such
// as bos_token.
func New(source string, tokens map[string]string) (*Template, error) {
	t, err := newTemplate(source, tokens)
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	return t, nil
}

func newTemplate(source string, tokens map[string]string) (*Template, error) {
	parsed, err := jinja.Parse(source)
	if err != nil {
		return nil, err
	}
	return &Template{usual: parsed, tokens: maps.Clone(tokens)}, nil
}

// Render writes a conversation. What the template objects to, such as two answers in a row, is an
// error.
func (t *Template) Render(messages []Message, o Options) (string, error) {
	if t.usual == nil {
		return "", errors.New("chat: the template is empty, it needs to be made by New or Open")
	}
	variables := map[string]any{"add_generation_prompt": o.Answer, "tools": nil, "documents": nil}
	for name, token := range t.tokens {
		variables[name] = token
	}
	maps.Copy(variables, o.Variables)
	list := []any{}
	for _, m := range messages {
		list = append(list, m.variable())
	}
	variables["messages"] = list
	template := t.usual
	if t.withTools != nil && !isNull(variables["tools"]) {
		template = t.withTools
	}
	text, err := template.Render(variables)
	if err != nil {
		return "", fmt.Errorf("chat: %w", err)
	}
	return text, nil
}

// thoughts are the names under which messages hold what was thought before an answer. Templates
// look for the first two, so a message that has one of them has these. The second keeps its value,
// and comes before all other fields.
var thoughts = []string{"reasoning_content", "thinking", "reasoning"}

// variable is the message as a template sees it.
func (m Message) variable() jinja.Object {
	o := m.pairs()
	index := func(name string) int { return slices.IndexFunc(o, func(p jinja.Pair) bool { return p.Name == name }) }
	for _, name := range thoughts {
		i := index(name)
		if i < 0 || isNull(o[i].Value) {
			continue
		}
		thought := o[i].Value
		first := jinja.Pair{Name: thoughts[1], Value: thought}
		if i := index(thoughts[1]); i >= 0 {
			first = o[i]
			o = slices.Delete(o, i, i+1)
		}
		if i := index(thoughts[0]); i >= 0 {
			o[i].Value = thought
		} else {
			o = append(o, jinja.Pair{Name: thoughts[0], Value: thought})
		}
		return slices.Insert(o, 0, first)
	}
	return o
}

func isNull(v any) bool {
	raw, ok := v.(json.RawMessage)
	return v == nil || ok && string(raw) == "null"
}
