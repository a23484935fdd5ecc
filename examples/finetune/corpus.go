package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"github.com/stheno-ml/stheno/train/tokenizer/chat"
)

// corpus is what there is to learn, and what makes tokens of it.
type corpus struct {
	tokenizer            *tokenizer.HuggingFace
	template             *chat.Template // nil for a model without one that can be read
	noTemplate           error          // why
	stop                 []int          // tokens that end what the model writes
	training, validation []data.Document
	questions            map[*int]string // of a document, by its first token: what asks for it, or how it begins
}

// maxText is the most bytes that a file of data may have.
const maxText = 4 << 30

// line is one line of a .jsonl file: a conversation, a question and its answer, or a text. The last
// two fields are as in the data of Alpaca and ShareGPT.
type line struct {
	Messages           []chat.Message
	Prompt, Completion string
	Text               string

	Instruction, Input, Output string
	Conversations              []struct{ From, Value string }
}

// read reads a line of JSON. What is no such line is an error that says what it is.
func (l *line) read(text []byte) error {
	err := json.Unmarshal(text, l)
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("it is a JSON %s, each line needs to be an object, such as {\"text\": \"...\"}", kind.Value)
	case errors.As(err, &kind):
		needs := "a text"
		switch kind.Field {
		case "Messages":
			needs = "a list of objects with role and content"
		case "Conversations":
			needs = "a list of objects with from and value"
		}
		return fmt.Errorf("%s is a JSON %s, it needs to be %s", strings.ToLower(kind.Field), kind.Value, needs)
	case errors.As(err, &syntax):
		return fmt.Errorf("it is no JSON, each line needs to be an object of its own: %w", err)
	}
	return err
}

// question is what the line asks the model, or how its text begins.
func (l line) question() string {
	switch {
	case l.Text != "":
		return strings.Join(first(8, strings.Fields(l.Text)), " ")
	case l.Completion != "":
		return l.Prompt
	}
	for _, m := range l.Messages {
		if text, plain := m.Content.(string); plain && m.Role == "user" {
			return text
		}
	}
	return ""
}

func first[T any](n int, list []T) []T { return list[:min(n, len(list))] }

// usual is the line in messages, or prompt and completion.
func (l line) usual() (line, error) {
	if l.Output != "" && l.Instruction != "" {
		l.Prompt, l.Completion = l.Instruction, l.Output
		if l.Input != "" {
			l.Prompt += "\n\n" + l.Input
		}
	}
	roles := map[string]string{"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
	for _, c := range l.Conversations {
		role := roles[c.From]
		if role == "" {
			return l, fmt.Errorf("a part of conversations is from %q, it needs to be from human, gpt or system", c.From)
		}
		l.Messages = append(l.Messages, chat.Message{Role: role, Content: c.Value})
	}
	return l, nil
}

// pack gives the batches to train on and those to validate on, with sequences that lie end to end.
func (c *corpus) pack(s settings) (training, validation *data.DocumentBatches, err error) {
	if training, err = data.Pack(c.training, s.Batch, s.Context, s.Seed); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.Data, err)
	}
	if validation, err = data.Pack(c.validation, s.Batch, s.Context, s.Seed); err != nil {
		return nil, nil, fmt.Errorf("%s, the part to validate on: %w", s.Data, err)
	}
	return training, validation, nil
}

func readCorpus(s settings, folder string) (*corpus, error) {
	c := &corpus{questions: map[*int]string{}}
	var err error
	if c.tokenizer, err = tokenizer.Open(folder); err != nil {
		return nil, err
	}
	c.template, c.noTemplate = chat.Open(folder)
	if c.stop, err = c.endings(folder); err != nil {
		return nil, err
	}
	documents, err := c.read(s)
	if err != nil {
		return nil, fmt.Errorf("-data: %w", err)
	}
	if c.training, c.validation, err = data.SplitDocuments(documents, 0.1, s.Seed); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Data, err)
	}
	return c, nil
}

// read makes documents of a file.
func (c *corpus) read(s settings) ([]data.Document, error) {
	content, err := plainfile.ReadFile(s.Data, maxText)
	if err != nil {
		return nil, cli.Missing(s.Data, err)
	}
	var documents []data.Document
	switch ending := strings.ToLower(filepath.Ext(s.Data)); {
	case ending == ".jsonl":
		documents, err = c.lines(content)
	case ending == ".json" || ending == ".csv" || ending == ".tsv" || ending == ".parquet":
		err = fmt.Errorf("it ends in %s, it needs to be a text, or a .jsonl file with an object on each line", ending)
	default:
		documents, err = c.text(string(content), s.Context)
	}
	if err == nil && len(documents) < 2 {
		err = fmt.Errorf("it has too little to learn: %d documents, it needs at least one to train on and one to validate on", len(documents))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Data, err)
	}
	return documents, nil
}

// endings are the tokens with which the model ends a text, as its configs say.
func (c *corpus) endings(folder string) ([]int, error) {
	for _, name := range []string{"generation_config.json", "config.json"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var config struct {
			EOS json.RawMessage `json:"eos_token_id"`
		}
		if err == nil {
			err = json.Unmarshal(content, &config)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var one int
		var several []int
		switch {
		case len(config.EOS) == 0 || string(config.EOS) == "null":
			continue
		case json.Unmarshal(config.EOS, &one) == nil:
			return []int{one}, nil
		case json.Unmarshal(config.EOS, &several) == nil:
			return several, nil
		}
		return nil, fmt.Errorf("%s: eos_token_id is %.40s, it needs to be an id or several", name, config.EOS)
	}
	return nil, nil
}

// lines reads a .jsonl file.
func (c *corpus) lines(content []byte) ([]data.Document, error) {
	var documents []data.Document
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var l line
		err := l.read(lines.Bytes())
		if err == nil {
			l, err = l.usual()
		}
		if err == nil {
			var more []data.Document
			more, err = c.documents(l)
			if len(more) > 0 && len(more[0].Tokens) > 0 {
				c.questions[&more[0].Tokens[0]] = l.question()
			}
			documents = append(documents, more...)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return documents, lines.Err()
}

func (c *corpus) documents(l line) ([]data.Document, error) {
	messages := l.Messages
	switch {
	case l.Text != "":
		ids, err := c.tokenizer.Encode(l.Text)
		return []data.Document{{Tokens: c.ended(ids)}}, err
	case l.Completion != "" && c.template == nil:
		prompt, err := c.tokenizer.Encode(l.Prompt)
		if err != nil {
			return nil, err
		}
		answer, err := c.tokenizer.Encode(l.Completion)
		answer = c.ended(answer)
		learn := make([]bool, len(prompt)+len(answer))
		for i := range answer {
			learn[len(prompt)+i] = true
		}
		return []data.Document{{Tokens: append(prompt, answer...), Learn: learn}}, err
	case l.Completion != "":
		messages = []chat.Message{{Role: "user", Content: l.Prompt}, {Role: "assistant", Content: l.Completion}}
	case len(messages) == 0 && l.Prompt != "":
		return nil, errors.New("its completion is missing or empty, it needs to be an answer to learn")
	case len(messages) == 0 && l.Instruction != "":
		return nil, errors.New("its output is missing or empty, it needs to be an answer to learn")
	case len(messages) == 0:
		return nil, errors.New("it has neither messages or conversations, nor prompt and completion, nor instruction and output, nor text")
	}
	if c.template == nil {
		return nil, fmt.Errorf("it is a conversation, and there is no chat template for it: %w", c.noTemplate)
	}
	lessons, err := c.template.Lessons(c.tokenizer, messages, chat.Options{})
	var documents []data.Document
	for _, lesson := range lessons {
		documents = append(documents, data.Document(lesson))
	}
	return documents, err
}

// ended adds the token that ends a text.
func (c *corpus) ended(ids []int) []int {
	if len(c.stop) == 0 {
		return ids
	}
	return append(ids, c.stop[0])
}

// text cuts one long text into documents of a row each.
func (c *corpus) text(text string, length int) ([]data.Document, error) {
	if !utf8.ValidString(text) {
		return nil, errors.New("it is not a text in UTF-8, it needs to be one")
	}
	ids, err := c.tokenizer.Encode(text)
	if err != nil {
		return nil, err
	}
	// With few rows, shorter ones leave something to validate on.
	length = max(2, min(length, len(ids)/10))
	var documents []data.Document
	for from := 0; from < len(ids); from += length {
		document := data.Document{Tokens: ids[from:min(len(ids), from+length)]}
		if begins, err := c.tokenizer.Decode(first(16, document.Tokens)); err == nil {
			_, begins, _ = strings.Cut(begins, " ") // rows are cut anywhere
			c.questions[&document.Tokens[0]] = strings.ToValidUTF8(begins, "")
		}
		documents = append(documents, document)
	}
	return documents, nil
}

// longestPrompt is how many bytes a prompt may have that the program chooses.
const longestPrompt = 300

// held are a few of the questions that the model is not trained on, each once.
func (c *corpus) held() []string {
	var list []string
	for _, d := range c.validation {
		q := strings.TrimSpace(c.questions[&d.Tokens[0]])
		if q != "" && len(q) <= longestPrompt && !slices.Contains(list, q) && len(list) < 3 {
			list = append(list, q)
		}
	}
	return list
}

// prompt is what the model is given to answer, or to continue where it has no chat template.
func (c *corpus) prompt(question string) (string, error) {
	if c.template == nil || question == "" {
		return question, nil
	}
	return c.template.Render([]chat.Message{{Role: "user", Content: question}}, chat.Options{Answer: true})
}
