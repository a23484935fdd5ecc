package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// hfProcessor adds special tokens to one or two encoded texts.
type hfProcessor struct {
	single, pair []hfTemplatePart
	trim         bool // leave spaces out of the spans of byte-level tokens
	prefixSpace  bool // except the one that was put before the text
}

// hfTemplatePart is a text, or special tokens.
type hfTemplatePart struct {
	sequence int // 0 or 1 for a text, −1 for tokens
	ids      []int
	typeID   int
}

type hfProcessorJSON struct {
	Type           string
	Processors     []json.RawMessage
	Single, Pair   []hfTemplateJSON
	SpecialTokens  map[string]struct{ IDs []int } `json:"special_tokens"`
	Sep, Cls       hfNamedJSON
	TrimOffsets    bool `json:"trim_offsets"`
	AddPrefixSpace bool `json:"add_prefix_space"`
}

type hfTemplateJSON struct {
	SpecialToken, Sequence *struct {
		ID     string
		TypeID int `json:"type_id"`
	}
}

// hfNamedJSON is a token and its id.
type hfNamedJSON struct{ id int }

func (n *hfNamedJSON) UnmarshalJSON(text []byte) error {
	var token string
	list := []any{&token, &n.id}
	if err := json.Unmarshal(text, &list); err != nil || len(list) != 2 {
		return fmt.Errorf("%.60s needs to be a token and its id", text)
	}
	return nil
}

// plainProcessor adds nothing.
func plainProcessor() *hfProcessor {
	a, b := hfTemplatePart{sequence: 0}, hfTemplatePart{sequence: 1, typeID: 1}
	return &hfProcessor{single: []hfTemplatePart{a}, pair: []hfTemplatePart{a, b}}
}

func readHFProcessor(text json.RawMessage) (*hfProcessor, error) {
	p := plainProcessor()
	return p, p.read(text)
}

func (p *hfProcessor) read(text json.RawMessage) error {
	var j hfProcessorJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return err
	}
	a, b := hfTemplatePart{sequence: 0}, hfTemplatePart{sequence: 1}
	special := func(id, typeID int) hfTemplatePart {
		return hfTemplatePart{sequence: -1, ids: []int{id}, typeID: typeID}
	}
	cls, sep := special(j.Cls.id, 0), special(j.Sep.id, 0)
	switch j.Type {
	case "Sequence":
		for _, inner := range j.Processors {
			if err := p.read(inner); err != nil {
				return err
			}
		}
	case "ByteLevel":
		p.trim, p.prefixSpace = j.TrimOffsets, j.AddPrefixSpace
	case "BertProcessing":
		b.typeID = 1
		p.single, p.pair = []hfTemplatePart{cls, a, sep}, []hfTemplatePart{cls, a, sep, b, special(j.Sep.id, 1)}
	case "RobertaProcessing":
		p.trim, p.prefixSpace = j.TrimOffsets, j.AddPrefixSpace
		p.single, p.pair = []hfTemplatePart{cls, a, sep}, []hfTemplatePart{cls, a, sep, sep, b, sep}
	case "TemplateProcessing":
		var err error
		if p.single, err = j.template(j.Single); err != nil {
			return err
		}
		p.pair, err = j.template(j.Pair)
		return err
	default:
		return fmt.Errorf("the post-processor %q is not known", j.Type)
	}
	return nil
}

func (j *hfProcessorJSON) template(parts []hfTemplateJSON) ([]hfTemplatePart, error) {
	var list []hfTemplatePart
	for _, part := range parts {
		switch {
		case part.Sequence != nil && (part.Sequence.ID == "A" || part.Sequence.ID == "B"):
			list = append(list, hfTemplatePart{sequence: int(part.Sequence.ID[0] - 'A'), typeID: part.Sequence.TypeID})
		case part.SpecialToken != nil:
			tokens, found := j.SpecialTokens[part.SpecialToken.ID]
			if !found {
				return nil, fmt.Errorf("the template has the token %q, it needs to be one of special_tokens", part.SpecialToken.ID)
			}
			list = append(list, hfTemplatePart{sequence: -1, ids: tokens.IDs, typeID: part.SpecialToken.TypeID})
		default:
			return nil, fmt.Errorf("a part of the template is neither a special token nor the sequence A or B")
		}
	}
	return list, nil
}

// template is what is made of one or two texts.
func (p *hfProcessor) template(texts int, special bool) []hfTemplatePart {
	if !special {
		p = &hfProcessor{single: onlyTexts(p.single), pair: onlyTexts(p.pair)}
	}
	if texts == 1 {
		return p.single
	}
	return p.pair
}

// onlyTexts is a template without its special tokens. Without them the library gives the second
// text the type 1.
func onlyTexts(parts []hfTemplatePart) []hfTemplatePart {
	var list []hfTemplatePart
	for _, part := range parts {
		if part.sequence >= 0 {
			list = append(list, part)
		}
	}
	return list
}

// added is how many tokens a template adds.
func added(parts []hfTemplatePart) int {
	n := 0
	for _, part := range parts {
		n += len(part.ids)
	}
	return n
}

// trimSpan leaves as many characters out of a token's span as the token has spaces at its ends.
func (p *hfProcessor) trimSpan(text, bytes string, first bool, span [2]int) [2]int {
	leading := len(bytes) - len(strings.TrimLeft(bytes, " "))
	trailing := len(bytes) - len(strings.TrimRight(bytes, " "))
	if p.prefixSpace && (first || span[0] == 0) {
		leading = 0
	}
	for ; leading > 0 && span[0] < span[1]; leading-- {
		_, n := utf8.DecodeRuneInString(text[span[0]:])
		span[0] += n
	}
	for ; trailing > 0 && span[0] < span[1]; trailing-- {
		_, n := utf8.DecodeLastRuneInString(text[:span[1]])
		span[1] -= n
	}
	return span
}
