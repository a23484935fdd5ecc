package openai

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/tokenizer/chat"
)

type chatRequest struct {
	sampling
	Messages            messages `json:"messages"`
	MaxCompletionTokens *int     `json:"max_completion_tokens"`
	LogProbs            bool     `json:"logprobs"`
	TopLogProbs         *int     `json:"top_logprobs"`

	Tools             json.RawMessage `json:"tools"`
	ToolChoice        json.RawMessage `json:"tool_choice"`
	ParallelToolCalls json.RawMessage `json:"parallel_tool_calls"` // there are no tools
	ResponseFormat    json.RawMessage `json:"response_format"`
}

// mostMessages and mostFields bound what a template goes through: a few bytes each would take it
// seconds.
const mostMessages, mostFields = 1 << 14, 64

type messages []chat.Message

// UnmarshalJSON reads no more of them than there may be.
func (m *messages) UnmarshalJSON(b []byte) error {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	if len(list) > mostMessages {
		return fmt.Errorf("there are %d messages, there may be %d", len(list), mostMessages)
	}
	*m = make(messages, len(list))
	for i, text := range list {
		if err := (*m)[i].UnmarshalJSON(text); err != nil {
			return err
		}
		if n := len((*m)[i].Fields); n > mostFields {
			return fmt.Errorf("message %d has %d fields, it may have %d", i, n, mostFields)
		}
	}
	return nil
}

func (h *handler) chat(w *response, r *http.Request) error {
	var c chatRequest
	if err := h.read(w, r, &c); err != nil {
		return err
	}
	if c.MaxCompletionTokens != nil {
		c.MaxTokens = c.MaxCompletionTokens
	}
	if err := c.check(h); err != nil {
		return err
	}
	messages, err := plain(c.Messages)
	if err != nil {
		return err
	}
	prompt, err := h.Model.Prompt(messages)
	if err != nil {
		return wrong("messages", "the messages cannot be written as the model's template has it: %v", err)
	}
	o := c.options(h)
	o.LogProbs = c.LogProbs
	if c.TopLogProbs != nil {
		o.TopLogProbs = *c.TopLogProbs
	}
	jobs, err := c.jobs(h, [][]int{prompt}, o)
	if err != nil {
		return err
	}
	f := &chatForm{handler: h, header: h.header("chatcmpl-", "chat.completion"), jobs: jobs}
	if c.Stream {
		f.Object += ".chunk"
	}
	return h.answer(w, r, &c.sampling, jobs, f)
}

func (c *chatRequest) check(h *handler) error {
	var format struct{ Type string }
	_ = json.Unmarshal(c.ResponseFormat, &format) // another form asks for something that is not done
	switch {
	case len(c.Messages) == 0:
		return wrong("messages", "messages is empty, it needs at least one")
	case !asksForNothing(c.Tools):
		return wrong("tools", "tools is given, it is not supported")
	case !asksForNothing(c.ToolChoice, `"none"`, `"auto"`):
		return wrong("tool_choice", "tool_choice is given, it is not supported")
	case !asksForNothing(c.ResponseFormat) && format.Type != "text":
		return wrong("response_format", "response_format is given, only that of type text is supported")
	case c.TopLogProbs != nil && !c.LogProbs:
		return wrong("top_logprobs", "top_logprobs is given, it needs logprobs to be true")
	case c.TopLogProbs != nil && (*c.TopLogProbs < 0 || *c.TopLogProbs > 20):
		return wrong("top_logprobs", "top_logprobs is %d, it needs to be from 0 to 20", *c.TopLogProbs)
	}
	return c.sampling.check(h, 1)
}

// plain makes the parts of contents one text.
func plain(messages []chat.Message) ([]chat.Message, error) {
	for i := range messages {
		m := &messages[i]
		if m.Role == "developer" { // the later name
			m.Role = "system"
		}
		switch m.Content.(type) {
		case string, nil:
			continue
		}
		var parts []struct{ Type, Text string }
		content, err := json.Marshal(m.Content)
		if err == nil {
			err = json.Unmarshal(content, &parts)
		}
		if err != nil {
			return nil, wrong("messages", "the content of message %d needs to be a text or parts of it", i)
		}
		var text strings.Builder
		for _, part := range parts {
			if part.Type != "text" {
				return nil, wrong("messages", "message %d has a part of type %q, it needs to be text", i, part.Type)
			}
			text.WriteString(part.Text)
		}
		m.Content = text.String()
	}
	return messages, nil
}

// chatForm writes answers in conversations.
type chatForm struct {
	*handler
	header
	jobs []job
}

type chatAnswer struct {
	header
	Choices []chatChoice `json:"choices"`
	Usage   *usage       `json:"usage,omitempty"`
}

type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMessage  `json:"message,omitempty"`
	Delta    *chatDelta    `json:"delta,omitempty"`
	LogProbs *chatLogProbs `json:"logprobs"`
	Finish   reason        `json:"finish_reason"`
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

type chatDelta struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

type chatLogProbs struct {
	Content []chatLogProb `json:"content"`
	Refusal *string       `json:"refusal"`
}

type chatLogProb struct {
	tokenLogProb
	Top []tokenLogProb `json:"top_logprobs"`
}

type tokenLogProb struct {
	Token   string  `json:"token"`
	LogProb logProb `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func (f *chatForm) begin(index int) any {
	empty := ""
	return chatAnswer{header: f.header, Choices: []chatChoice{{Index: index, Delta: &chatDelta{Role: "assistant", Content: &empty}}}}
}

func (f *chatForm) part(index int, t sample.Token) any {
	c := chatChoice{Index: index, Delta: &chatDelta{}, Finish: reason(t.End)}
	if t.Text != "" {
		c.Delta.Content = &t.Text
	}
	if f.jobs[index].options.LogProbs && !isStop(f.jobs[index], t) {
		c.LogProbs = f.logProbs([]sample.Token{t})
	}
	if t.Text == "" && t.End == "" && c.LogProbs == nil {
		return nil
	}
	return chatAnswer{header: f.header, Choices: []chatChoice{c}}
}

func (f *chatForm) tell(u usage) any {
	return chatAnswer{header: f.header, Choices: []chatChoice{}, Usage: &u}
}

func (f *chatForm) whole(choices []choice, u usage) any {
	answer := chatAnswer{header: f.header, Usage: &u}
	for i, c := range choices {
		list := chatChoice{Index: i, Message: &chatMessage{Role: "assistant", Content: string(c.text)}, Finish: reason(c.end)}
		if f.jobs[i].options.LogProbs {
			list.LogProbs = f.logProbs(c.tokens)
		}
		answer.Choices = append(answer.Choices, list)
	}
	return answer
}

func (f *chatForm) logProbs(tokens []sample.Token) *chatLogProbs {
	one := func(id int, p float64) tokenLogProb {
		text := f.tokenText(id)
		list := make([]int, len(text))
		for i, b := range text {
			list[i] = int(b)
		}
		return tokenLogProb{string(text), logProb(p), list}
	}
	all := &chatLogProbs{Content: []chatLogProb{}}
	for _, t := range tokens {
		p := chatLogProb{one(t.ID, t.LogProb), []tokenLogProb{}}
		for _, c := range t.Top {
			p.Top = append(p.Top, one(c.ID, c.LogProb))
		}
		all.Content = append(all.Content, p)
	}
	return all
}
