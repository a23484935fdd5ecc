package openai

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/train/sample"
)

// job is one choice that is to be written.
type job struct {
	prompt  []int
	options sample.Options
}

// choice is what was written of one.
type choice struct {
	text   []byte
	tokens []sample.Token
	end    sample.End
}

// form is how a path writes its answers.
type form interface {
	// begin is the first event of a choice in a stream, nil for none.
	begin(index int) any
	// part is the event of a token, nil for none.
	part(index int, t sample.Token) any
	// tell is the last event of a stream, if the client asked for it.
	tell(u usage) any
	// whole is the answer that is not a stream.
	whole(choices []choice, u usage) any
}

// header is what all answers of a request begin with.
type header struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

func (h *handler) header(prefix, object string) header {
	return header{prefix + rand.Text(), object, time.Now().Unix(), h.Name}
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func (u *usage) written() {
	u.Completion++
	u.Total++
}

// answer writes the choices of a request, whose prompts are those of the jobs, each n times.
func (h *handler) answer(w *response, r *http.Request, s *sampling, jobs []job, f form) error {
	var u usage
	for i := 0; i < len(jobs); i += s.choices() {
		u.Prompt += len(jobs[i].prompt)
	}
	u.Total = u.Prompt
	if s.Stream {
		return h.stream(w, r, s, jobs, f, u)
	}
	choices := make([]choice, len(jobs))
	err := h.generate(r.Context(), jobs, func(i int, t sample.Token) error {
		u.written()
		c := &choices[i]
		c.text, c.end = append(c.text, t.Text...), t.End
		if jobs[i].options.LogProbs && !isStop(jobs[i], t) {
			c.tokens = append(c.tokens, t)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return write(w, f.whole(choices, u))
}

// stream writes the choices as they come.
func (h *handler) stream(w *response, r *http.Request, s *sampling, jobs []job, f form, u usage) error {
	begun := make([]bool, len(jobs))
	err := h.generate(r.Context(), jobs, func(i int, t sample.Token) error {
		u.written()
		if !begun[i] {
			begun[i] = true
			if event := f.begin(i); event != nil {
				if err := w.event(event); err != nil {
					return err
				}
			}
		}
		if event := f.part(i, t); event != nil {
			return w.event(event)
		}
		return nil
	})
	if err == nil && s.StreamOptions != nil && s.StreamOptions.IncludeUsage {
		err = w.event(f.tell(u))
	}
	if err == nil {
		err = w.event("[DONE]")
	}
	return err
}

// isStop reports whether a token ends a text and is not a part of it.
func isStop(j job, t sample.Token) bool { return slices.Contains(j.options.Stop, t.ID) }

// generate writes all jobs at once and calls each for every token, one call after the other. The
// first error ends all.
func (h *handler) generate(ctx context.Context, jobs []job, each func(index int, t sample.Token) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var first error
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() {
			err := guard.Call("a text", func() error {
				return h.Scheduler.Generate(ctx, j.prompt, j.options, func(t sample.Token) error {
					mu.Lock()
					defer mu.Unlock()
					if first != nil {
						return first
					}
					return each(i, t)
				})
			})
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = err
				cancel()
			}
		})
	}
	all.Wait()
	return first
}

// tokenText is a token by itself, as logprobs show it.
func (h *handler) tokenText(id int) []byte {
	text, err := h.Model.Tokenizer.HuggingFace.Bytes(id)
	if err != nil {
		return nil
	}
	return text
}

// logProb is a number that JSON has.
type logProb float64

// MarshalJSON writes −∞ as OpenAI does.
func (p logProb) MarshalJSON() ([]byte, error) {
	return json.Marshal(math.Max(float64(p), -9999))
}

// reason is null before the end.
type reason sample.End

// MarshalJSON writes none as null.
func (r reason) MarshalJSON() ([]byte, error) {
	if r == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(r))
}
