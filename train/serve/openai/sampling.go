package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/train/sample"
)

// sampling is what requests for texts have in common.
type sampling struct {
	Model            string         `json:"model"`
	MaxTokens        *int           `json:"max_tokens"`
	Temperature      *float64       `json:"temperature"`
	TopP             *float64       `json:"top_p"`
	N                *int           `json:"n"`
	Stop             texts          `json:"stop"`
	Seed             *int64         `json:"seed"`
	PresencePenalty  *float64       `json:"presence_penalty"`
	FrequencyPenalty *float64       `json:"frequency_penalty"`
	Stream           bool           `json:"stream"`
	StreamOptions    *streamOptions `json:"stream_options"`

	added
	unsupported
	ignored
}

// added are fields that servers of open models take and OpenAI's does not.
type added struct {
	TopK              *int     `json:"top_k"`
	MinP              *float64 `json:"min_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
	StopTokenIDs      []int    `json:"stop_token_ids"`
}

type streamOptions struct {
	IncludeUsage       bool `json:"include_usage"`
	IncludeObfuscation bool `json:"include_obfuscation"` // which is for networks that others watch
}

// unsupported are fields that would change the answer in a way that is not done here.
type unsupported struct {
	LogitBias json.RawMessage `json:"logit_bias"`
}

// ignored are fields that change no answer.
type ignored struct {
	User             json.RawMessage `json:"user"`
	Metadata         json.RawMessage `json:"metadata"`
	Store            json.RawMessage `json:"store"`
	ServiceTier      json.RawMessage `json:"service_tier"`
	SafetyIdentifier json.RawMessage `json:"safety_identifier"`
	PromptCacheKey   json.RawMessage `json:"prompt_cache_key"`
}

// texts is one text or several.
type texts []string

// UnmarshalJSON reads both.
func (t *texts) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte(`"`)) {
		*t = make([]string, 1)
		return json.Unmarshal(b, &(*t)[0])
	}
	return json.Unmarshal(b, (*[]string)(t))
}

// choices is how many are asked for of each prompt.
func (s *sampling) choices() int {
	if s.N == nil {
		return 1
	}
	return *s.N
}

// asksForNothing reports whether a field is left out, or has a value that stands for that.
func asksForNothing(field json.RawMessage, none ...string) bool {
	return slices.Contains(append(none, "", "null", "{}", "[]"), string(field))
}

// check finds what a request has that it cannot have.
func (s *sampling) check(h *handler, prompts int) error {
	inRange := func(name string, x *float64, least, most float64) error {
		if x != nil && !(*x >= least && *x <= most) {
			return wrong(name, "%s is %v, it needs to be from %v to %v", name, *x, least, most)
		}
		return nil
	}
	switch n := s.choices(); {
	case h.Model == nil || s.Model != h.Name:
		return noModel(s.Model)
	case n < 1 || n > h.Limits.Choices:
		return wrong("n", "n is %d, it needs to be from 1 to %d", n, h.Limits.Choices)
	case n*prompts > h.Limits.Choices:
		return wrong("n", "there are %d prompts and n is %d, together they may ask for %d choices", prompts, n, h.Limits.Choices)
	case s.MaxTokens != nil && *s.MaxTokens < 1:
		return wrong("max_tokens", "max_tokens is %d, it needs to be at least 1", *s.MaxTokens)
	case len(s.Stop) > 16:
		return wrong("stop", "there are %d stop strings, there may be 16", len(s.Stop))
	case slices.Contains(s.Stop, ""):
		return wrong("stop", "a stop string is empty, it needs to have characters")
	case len(s.StopTokenIDs) > 256:
		return wrong("stop_token_ids", "there are %d stop tokens, there may be 256", len(s.StopTokenIDs))
	case s.StreamOptions != nil && !s.Stream:
		return wrong("stream_options", "stream_options is given, it is for streams")
	case !asksForNothing(s.LogitBias):
		return wrong("logit_bias", "logit_bias is given, it is not supported")
	}
	const most = math.MaxFloat64
	for _, err := range []error{
		inRange("temperature", s.Temperature, 0, 2), inRange("top_p", s.TopP, 0, 1), inRange("min_p", s.MinP, 0, 1),
		inRange("presence_penalty", s.PresencePenalty, -2, 2), inRange("frequency_penalty", s.FrequencyPenalty, -2, 2),
		inRange("repetition_penalty", s.RepetitionPenalty, math.SmallestNonzeroFloat64, most),
	} {
		if err != nil {
			return err
		}
	}
	if s.TopK != nil && *s.TopK < -1 {
		return wrong("top_k", "top_k is %d, it needs to be positive, or 0 or -1 for all", *s.TopK)
	}
	return nil
}

// options are those of one choice.
func (s *sampling) options(h *handler) sample.Options {
	o := h.Model.Options
	o.Stop = slices.Concat(o.Stop, s.StopTokenIDs)
	o.StopStrings = slices.Concat(o.StopStrings, s.Stop)
	if s.MaxTokens != nil {
		o.MaxTokens = *s.MaxTokens
	}
	set := func(to, from *float64) {
		if from != nil {
			*to = *from
		}
	}
	p := &o.Sampler
	set(&p.Temperature, s.Temperature)
	set(&p.TopP, s.TopP)
	set(&p.MinP, s.MinP)
	set(&p.PresencePenalty, s.PresencePenalty)
	set(&p.FrequencyPenalty, s.FrequencyPenalty)
	set(&p.RepetitionPenalty, s.RepetitionPenalty)
	if s.TopP != nil && *s.TopP == 0 {
		p.TopP = math.SmallestNonzeroFloat64 // the most probable token alone
	}
	if s.TopK != nil {
		p.TopK = max(0, *s.TopK)
	}
	p.Seed = rand.Uint64()
	if s.Seed != nil {
		p.Seed = uint64(*s.Seed)
	}
	return o
}

// jobs are the choices of all prompts. Those of one differ by their seeds.
func (s *sampling) jobs(h *handler, prompts [][]int, o sample.Options) ([]job, error) {
	var list []job
	for _, prompt := range prompts {
		own := o
		left := h.Scheduler.Stats().Capacity - len(prompt)
		if most := h.Limits.Tokens; most > 0 && s.MaxTokens == nil && o.MaxTokens == 0 && left > most {
			own.MaxTokens = most
		} else if most > 0 && own.MaxTokens > most {
			return nil, wrong("max_tokens", "max_tokens is %d, it needs to be at most %d", own.MaxTokens, most)
		}
		for i := range s.choices() {
			own.Sampler.Seed = o.Sampler.Seed + uint64(i)
			list = append(list, job{prompt, own})
		}
	}
	return list, nil
}
