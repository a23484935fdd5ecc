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
	"strings"

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

func readCorpus(s settings, folder string) (*corpus, error) {
	c := &corpus{}
	var err error
	if c.tokenizer, err = tokenizer.Open(folder); err != nil {
		return nil, err
	}
	c.template, c.noTemplate = chat.Open(folder)
	if c.stop, err = c.endings(folder); err != nil {
		return nil, err
	}
	content, err := plainfile.ReadFile(s.Data, maxText)
	if err != nil {
		return nil, err
	}
	var documents []data.Document
	if strings.HasSuffix(s.Data, ".jsonl") {
		documents, err = c.lines(content)
	} else {
		documents, err = c.text(string(content), s.Context)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Data, err)
	}
	if c.training, c.validation, err = data.SplitDocuments(documents, 0.1, s.Seed); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Data, err)
	}
	return c, nil
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
		err := json.Unmarshal(lines.Bytes(), &l)
		if err == nil {
			l, err = l.usual()
		}
		if err == nil {
			var more []data.Document
			more, err = c.documents(l)
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
	ids, err := c.tokenizer.Encode(text)
	if err != nil {
		return nil, err
	}
	// With few rows, shorter ones leave something to validate on.
	length = max(2, min(length, len(ids)/10))
	var documents []data.Document
	for from := 0; from < len(ids); from += length {
		documents = append(documents, data.Document{Tokens: ids[from:min(len(ids), from+length)]})
	}
	return documents, nil
}

// prompt is what the model is given to answer, or to continue where it has no chat template.
func (c *corpus) prompt(question string) (string, error) {
	if c.template == nil || question == "" {
		return question, nil
	}
	return c.template.Render([]chat.Message{{Role: "user", Content: question}}, chat.Options{Answer: true})
}
