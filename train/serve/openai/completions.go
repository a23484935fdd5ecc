package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/train/sample"
)

type completionRequest struct {
	sampling
	Prompt   prompts `json:"prompt"`
	LogProbs *int    `json:"logprobs"`

	Echo   bool            `json:"echo"`
	BestOf *int            `json:"best_of"`
	Suffix json.RawMessage `json:"suffix"`
}

// prompts are texts or lists of tokens.
type prompts struct {
	texts  []string
	tokens [][]int
}

// UnmarshalJSON reads a text, several, a list of tokens, or several of these.
func (p *prompts) UnmarshalJSON(b []byte) error {
	first := bytes.TrimLeft(bytes.TrimPrefix(b, []byte("[")), " \t\r\n")
	switch {
	case b[0] != '[', bytes.HasPrefix(first, []byte(`"`)), bytes.HasPrefix(first, []byte("]")):
		return json.Unmarshal(b, (*texts)(&p.texts))
	case bytes.Contains(b, []byte("null")): // which would be token 0
		return errors.New("prompt has a null among its tokens")
	case bytes.HasPrefix(first, []byte("[")):
		return json.Unmarshal(b, &p.tokens)
	}
	p.tokens = make([][]int, 1)
	return json.Unmarshal(b, &p.tokens[0])
}

func (h *handler) completions(w *response, r *http.Request) error {
	c := completionRequest{}
	if err := h.read(w, r, &c); err != nil {
		return err
	}
	if c.MaxTokens == nil {
		usual := 16
		c.MaxTokens = &usual
	}
	if err := c.check(h); err != nil {
		return err
	}
	list := c.Prompt.tokens
	for _, text := range c.Prompt.texts {
		ids, err := h.Model.Continue(text)
		if err != nil {
			return wrong("prompt", "the prompt has no tokens: %v", err)
		}
		list = append(list, ids)
	}
	o := c.options(h)
	if c.LogProbs != nil {
		o.LogProbs, o.TopLogProbs = true, *c.LogProbs
	}
	jobs, err := c.jobs(h, list, o)
	if err != nil {
		return err
	}
	f := &completionForm{handler: h, header: h.header("cmpl-", "text_completion"), jobs: jobs, offsets: make([]int, len(jobs))}
	return h.answer(w, r, &c.sampling, jobs, f)
}

func (c *completionRequest) check(h *handler) error {
	n := len(c.Prompt.texts) + len(c.Prompt.tokens)
	switch {
	case n == 0:
		return wrong("prompt", "prompt is empty, it needs to be a text, tokens, or several of these")
	case c.Echo:
		return wrong("echo", "echo is given, it is not supported")
	case c.BestOf != nil && *c.BestOf != c.choices():
		return wrong("best_of", "best_of is given, it is not supported")
	case !asksForNothing(c.Suffix, `""`):
		return wrong("suffix", "suffix is given, it is not supported")
	case c.LogProbs != nil && (*c.LogProbs < 0 || *c.LogProbs > 20):
		return wrong("logprobs", "logprobs is %d, it needs to be from 0 to 20", *c.LogProbs)
	}
	return c.sampling.check(h, n)
}

// completionForm writes what follows texts.
type completionForm struct {
	*handler
	header
	jobs    []job
	offsets []int // of what was written of each choice, in characters
}

type completionAnswer struct {
	header
	Choices []completionChoice `json:"choices"`
	Usage   *usage             `json:"usage,omitempty"`
}

type completionChoice struct {
	Text     string              `json:"text"`
	Index    int                 `json:"index"`
	LogProbs *completionLogProbs `json:"logprobs"`
	Finish   reason              `json:"finish_reason"`
}

type completionLogProbs struct {
	Tokens   []string             `json:"tokens"`
	LogProbs []logProb            `json:"token_logprobs"`
	Top      []map[string]logProb `json:"top_logprobs"`
	Offsets  []int                `json:"text_offset"`
}

func (f *completionForm) begin(int) any { return nil }

func (f *completionForm) part(index int, t sample.Token) any {
	c := completionChoice{Text: t.Text, Index: index, Finish: reason(t.End)}
	if f.jobs[index].options.LogProbs && !isStop(f.jobs[index], t) {
		c.LogProbs = f.logProbs(index, []sample.Token{t})
	}
	if t.Text == "" && t.End == "" && c.LogProbs == nil {
		return nil
	}
	return completionAnswer{header: f.header, Choices: []completionChoice{c}}
}

func (f *completionForm) tell(u usage) any {
	return completionAnswer{header: f.header, Choices: []completionChoice{}, Usage: &u}
}

func (f *completionForm) whole(choices []choice, u usage) any {
	answer := completionAnswer{header: f.header, Usage: &u}
	for i, c := range choices {
		list := completionChoice{Text: string(c.text), Index: i, Finish: reason(c.end)}
		if f.jobs[i].options.LogProbs {
			list.LogProbs = f.logProbs(i, c.tokens)
		}
		answer.Choices = append(answer.Choices, list)
	}
	return answer
}

func (f *completionForm) logProbs(index int, tokens []sample.Token) *completionLogProbs {
	p := &completionLogProbs{Tokens: []string{}, LogProbs: []logProb{}, Top: []map[string]logProb{}, Offsets: []int{}}
	for _, t := range tokens {
		text := f.tokenText(t.ID)
		top := map[string]logProb{}
		for _, c := range t.Top {
			top[string(f.tokenText(c.ID))] = logProb(c.LogProb)
		}
		p.Tokens, p.LogProbs = append(p.Tokens, string(text)), append(p.LogProbs, logProb(t.LogProb))
		p.Top, p.Offsets = append(p.Top, top), append(p.Offsets, f.offsets[index])
		f.offsets[index] += utf8.RuneCount(text)
	}
	return p
}
