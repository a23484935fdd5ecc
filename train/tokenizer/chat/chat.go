package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// Message is what someone said.
type Message struct {
	Role    string // such as "system", "user" or "assistant"
	Content string
	// Fields are further fields that the template knows, such as tool_calls: values that JSON can hold.
	Fields map[string]any
}

// Options are the options of [Template.Render].
type Options struct {
	Answer bool // the text ends where the model's answer begins
	// Variables are further variables that the template knows, such as tools or enable_thinking: values that JSON can hold.
	Variables map[string]any
}

// Template writes conversations. It may be used by several goroutines at once.
type Template struct {
	source string
	tokens map[string]string // bos_token and the like
	parsed sync.Pool         // of *counted, each for one Render at a time
}

// counted is a parsed template with the meter that counts what it does.
type counted struct {
	template *exec.Template
	meter    *meter
}

// Open reads the template of a model's folder: chat_template.jinja, or chat_template in tokenizer_config.json.
func Open(folder string) (*Template, error) {
	t, err := open(folder)
	if err != nil {
		return nil, fmt.Errorf("chat: %s: %w", folder, err)
	}
	return t, nil
}

func open(folder string) (*Template, error) {
	text, err := os.ReadFile(filepath.Join(folder, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("tokenizer_config.json: %w", err)
	}
	source, err := os.ReadFile(filepath.Join(folder, "chat_template.jinja"))
	if errors.Is(err, fs.ErrNotExist) {
		var s string
		s, err = sourceIn(fields["chat_template"])
		source = []byte(s)
	}
	if err != nil {
		return nil, err
	}
	return newTemplate(string(source), tokensIn(fields))
}

// sourceIn is a template, or the one called default of a list of them.
func sourceIn(field json.RawMessage) (string, error) {
	var source string
	if len(field) > 0 && json.Unmarshal(field, &source) == nil && source != "" {
		return source, nil
	}
	var list []struct{ Name, Template string }
	if len(field) > 0 && json.Unmarshal(field, &list) == nil {
		for _, named := range list {
			if named.Name == "default" {
				return named.Template, nil
			}
		}
	}
	return "", errors.New("there is neither chat_template.jinja nor a default chat_template in tokenizer_config.json")
}

// tokensIn is the special tokens of a tokenizer_config.json, each a text or an object with its content.
func tokensIn(fields map[string]json.RawMessage) map[string]string {
	tokens := map[string]string{}
	for name, value := range fields {
		if !strings.HasSuffix(name, "_token") {
			continue
		}
		var token struct{ Content string }
		if json.Unmarshal(value, &token.Content) == nil || json.Unmarshal(value, &token) == nil {
			tokens[name] = token.Content
		}
	}
	return tokens
}

// New makes a template of its source. Tokens are the variables that it has for special tokens, such as bos_token.
func New(source string, tokens map[string]string) (*Template, error) {
	t, err := newTemplate(source, tokens)
	if err != nil {
		return nil, fmt.Errorf("chat: %w", err)
	}
	return t, nil
}

func newTemplate(source string, tokens map[string]string) (*Template, error) {
	t := &Template{source: withChoices(indented.ReplaceAllString(source, "$1")), tokens: tokens}
	first, err := t.parse()
	if err != nil {
		return nil, err
	}
	t.parsed.Put(first)
	return t, nil
}

func (t *Template) parse() (*counted, error) {
	c := config.New()
	c.TrimBlocks = true
	if err := checkSource(t.source, c); err != nil {
		return nil, err
	}
	const name = "/chat"
	loader, err := loaders.NewMemoryLoader(map[string]string{name: t.source})
	if err != nil {
		return nil, err
	}
	m := &meter{source: len(t.source)}
	template, err := exec.NewTemplate(name, c, loader, m.environment())
	if err != nil {
		// The error begins with all of the template.
		message := err.Error()
		return nil, fmt.Errorf("the template cannot be read: %s", message[strings.LastIndex(message, "':")+1:])
	}
	if chained := (walker{}).walk(reflect.ValueOf(template.Root())); chained > maxChain {
		return nil, fmt.Errorf("the template chains %d method calls, it can chain %d", chained, maxChain)
	}
	return &counted{template, m}, nil
}

// indented is the white space between the start of a line and a block or comment, which does not count. The library's own
// setting for it takes the white space between an expression and a block as well.
var indented = regexp.MustCompile(`(?m)^[ \t]+(\{[%#][^+])`)

// functions are those that templates expect beside Jinja's own.
var functions = exec.NewContext(map[string]any{
	"raise_exception": func(message string) (string, error) { return "", errors.New(message) },
	"strftime_now":    func(format string) string { return strftime(time.Now(), format) },
})

const maxRange = 100_000

func (m *meter) numbers(params *exec.VarArgs) (*exec.Value, error) {
	start, stop, step := 0, 0, 1
	numbers := []*int{&start, &stop, &step}
	if len(params.Args) == 1 {
		numbers = numbers[1:]
	}
	if len(params.Args) == 0 || len(params.Args) > len(numbers) {
		return nil, fmt.Errorf("range has %d arguments, it needs one to three", len(params.Args))
	}
	for i, arg := range params.Args {
		if !arg.IsInteger() {
			return nil, fmt.Errorf("argument %d of range is %s, it needs to be an integer", i+1, arg.String())
		}
		*numbers[i] = arg.Integer()
	}
	if step == 0 {
		return nil, errors.New("the step of range is 0")
	}
	list := []int{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(list) == maxRange {
			return nil, fmt.Errorf("range has more than %d numbers", maxRange)
		}
		list = append(list, i)
	}
	m.step(1, 16*len(list))
	return exec.AsValue(list), nil
}

// strftime writes a time by the directives that templates use.
func strftime(t time.Time, format string) string {
	return strings.NewReplacer(
		"%Y", t.Format("2006"), "%y", t.Format("06"), "%m", t.Format("01"), "%d", t.Format("02"), "%B", t.Format("January"),
		"%b", t.Format("Jan"), "%A", t.Format("Monday"), "%a", t.Format("Mon"), "%H", t.Format("15"), "%M", t.Format("04"),
		"%S", t.Format("05"), "%%", "%").Replace(format)
}

// maxText bounds what a template writes, in bytes.
const maxText = 16 << 20

// Render writes a conversation. What the template objects to, such as two answers in a row, is an error.
func (t *Template) Render(messages []Message, o Options) (string, error) {
	variables := map[string]any{"add_generation_prompt": o.Answer}
	for name, token := range t.tokens {
		variables[name] = token
	}
	for name, value := range o.Variables {
		variables[name] = value
	}
	var list []any
	for _, m := range messages {
		fields := map[string]any{}
		for name, value := range m.Fields {
			fields[name] = value
		}
		fields["role"], fields["content"] = m.Role, m.Content
		list = append(list, fields)
	}
	variables["messages"] = list
	parsed, _ := t.parsed.Get().(*counted)
	if parsed == nil {
		var err error
		if parsed, err = t.parse(); err != nil {
			return "", fmt.Errorf("chat: %w", err)
		}
	}
	text, err := parsed.render(exec.NewContext(variables))
	if err != nil {
		return "", fmt.Errorf("chat: %w", err)
	}
	t.parsed.Put(parsed)
	return text, nil
}

// render writes the template's text. What ends it early is an error, and so is a panic: gonja has some, for a division by zero and
// the like.
func (c *counted) render(variables *exec.Context) (text string, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case abort:
			err = p.error
		default:
			err = fmt.Errorf("the template cannot be rendered: %v", p)
		}
	}()
	c.meter.steps, c.meter.work, c.meter.depth = 0, 0, 0
	var out limited
	err = c.template.Execute(&out, variables)
	return out.String(), err
}

// limited is a text that grows up to maxText.
type limited struct{ strings.Builder }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxText {
		return 0, fmt.Errorf("the template writes more than %d bytes", maxText)
	}
	return l.Builder.Write(p)
}

// WriteString keeps writers from going around Write.
func (l *limited) WriteString(s string) (int, error) { return l.Write([]byte(s)) }
