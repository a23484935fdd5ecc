package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/train/tokenizer"
)

// Lesson is a conversation as tokens, and which of them are answers: what a model is to learn to
// write.
type Lesson struct {
	Tokens []int
	Learn  []bool
}

// answerer is the role whose messages a model learns to write.
const answerer = "assistant"

// Lessons makes tokens of a conversation, to train a model on its answers: the messages of the
// assistant, with what the template writes behind them. There is one lesson, unless the template
// writes an answer otherwise once more follows, as some that leave out earlier thoughts do: then
// each answer has its own.
func (t *Template) Lessons(h *tokenizer.HuggingFace, messages []Message, o Options) ([]Lesson, error) {
	if h == nil {
		return nil, errors.New("chat: h is nil, it needs to be a tokenizer")
	}
	o.Answer = false
	whole, err := t.Render(messages, o)
	if err != nil {
		return nil, err
	}
	var lessons []Lesson
	var inOne [][2]int // the answers' places in the whole
	together := true
	for i, m := range messages {
		if m.Role != answerer {
			continue
		}
		asking := o
		asking.Answer = true
		before, err := t.Render(messages[:i], asking)
		if err != nil {
			return nil, err
		}
		after, err := t.Render(messages[:i+1], o)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(after, before) {
			return nil, fmt.Errorf("chat: the template does not begin answer %d as it asks for one, so it is not known what is to be learnt", i)
		}
		place := [2]int{len(before), len(after)}
		inOne = append(inOne, place)
		together = together && strings.HasPrefix(whole, after)
		lesson, err := encode(h, after, place)
		if err != nil {
			return nil, err
		}
		lessons = append(lessons, lesson)
	}
	if len(lessons) == 0 {
		return nil, fmt.Errorf("chat: there is no message of the role %q, there is nothing to learn", answerer)
	}
	if !together || len(lessons) == 1 {
		return lessons, nil
	}
	lesson, err := encode(h, whole, inOne...)
	return []Lesson{lesson}, err
}

// encode makes a lesson of a text, in which answers lie from one byte to another.
func encode(h *tokenizer.HuggingFace, text string, answers ...[2]int) (Lesson, error) {
	e, err := h.EncodeWith(text, tokenizer.EncodeOptions{NoSpecial: true, NoLimits: true})
	if err != nil {
		return Lesson{}, fmt.Errorf("chat: %w", err)
	}
	l := Lesson{Tokens: e.IDs, Learn: make([]bool, len(e.IDs))}
	for i, place := range e.Offsets {
		for _, a := range answers {
			l.Learn[i] = l.Learn[i] || place[1] > a[0] && place[0] < a[1]
		}
	}
	return l, nil
}
