package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// hfProcessor adds special tokens to encoded texts. It sees a list that begins as one or two texts,
// and gives one whose parts together are the result.
type hfProcessor struct {
	// added is how many tokens it adds to one text, and to two.
	added func(texts int) int
	// process may change the parts. Without special it adds no tokens.
	process func(parts []*hfPart, special bool) ([]*hfPart, error)
	// ids are of all tokens that it may add.
	ids []int
	// spells is set where it needs to know how tokens are written.
	spells bool
}

// hfPart is tokens, and the text that those which are no special ones come from.
type hfPart struct {
	Encoding
	text  string
	spell []string // each token as the vocabulary writes it, or as the text has it, if anyone asks
}

// special is a part of special tokens.
func specialPart(ids []int, typeID int) *hfPart {
	p := &hfPart{}
	for _, id := range ids {
		p.add(id, typeID, [2]int{}, false, true)
		p.spell = append(p.spell, "")
	}
	return p
}

// around puts tokens before and behind a part. As in the library, all others count as the text's.
func (p *hfPart) around(before, behind []int, typeID int) {
	clear(p.Special)
	first, last := specialPart(before, typeID), specialPart(behind, typeID)
	first.append(p)
	first.append(last)
	first.text = p.text
	*p = *first
}

func (p *hfPart) append(other *hfPart) {
	p.Encoding.append(&other.Encoding)
	p.spell = append(p.spell, other.spell...)
}

func (p *hfPart) setTypes(typeID int) {
	for i := range p.TypeIDs {
		p.TypeIDs[i] = typeID
	}
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
	return &hfProcessor{
		added:   func(int) int { return 0 },
		process: func(parts []*hfPart, _ bool) ([]*hfPart, error) { return parts, nil },
	}
}

func readHFProcessor(text json.RawMessage) (*hfProcessor, error) {
	var j hfProcessorJSON
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, err
	}
	switch j.Type {
	case "Sequence":
		return j.sequence()
	case "ByteLevel":
		p := plainProcessor()
		p.spells = j.TrimOffsets
		p.process = func(parts []*hfPart, _ bool) ([]*hfPart, error) {
			j.trim(parts)
			return parts, nil
		}
		return p, nil
	case "BertProcessing":
		return j.bert(), nil
	case "RobertaProcessing":
		return j.roberta(), nil
	case "TemplateProcessing":
		return j.template()
	}
	return nil, fmt.Errorf("the post-processor %q is not known", j.Type)
}

func (j *hfProcessorJSON) sequence() (*hfProcessor, error) {
	var steps []*hfProcessor
	all := &hfProcessor{}
	for _, inner := range j.Processors {
		step, err := readHFProcessor(inner)
		if err != nil {
			return nil, err
		}
		steps, all.ids = append(steps, step), append(all.ids, step.ids...)
		all.spells = all.spells || step.spells
	}
	all.added = func(texts int) int {
		n := 0
		for _, step := range steps {
			n += step.added(texts)
		}
		return n
	}
	all.process = func(parts []*hfPart, special bool) ([]*hfPart, error) {
		var err error
		for _, step := range steps {
			if parts, err = step.process(parts, special); err != nil {
				return nil, err
			}
		}
		return parts, nil
	}
	return all, nil
}

func (j *hfProcessorJSON) bert() *hfProcessor {
	cls, sep := []int{j.Cls.id}, []int{j.Sep.id}
	return &hfProcessor{
		added: func(texts int) int { return 1 + texts },
		process: func(parts []*hfPart, special bool) ([]*hfPart, error) {
			for i, part := range parts {
				switch {
				case !special:
				case i == 0:
					part.around(cls, sep, 0)
				default:
					part.around(nil, sep, 1)
				}
			}
			return parts, nil
		},
		ids: []int{j.Cls.id, j.Sep.id},
	}
}

func (j *hfProcessorJSON) roberta() *hfProcessor {
	cls, sep := []int{j.Cls.id}, []int{j.Sep.id}
	return &hfProcessor{
		added: func(texts int) int { return 2 * texts },
		process: func(parts []*hfPart, special bool) ([]*hfPart, error) {
			j.trim(parts)
			for i, part := range parts {
				part.setTypes(0)
				switch {
				case !special:
				case i == 0:
					part.around(cls, sep, 0)
				default:
					part.around(sep, sep, 0)
				}
			}
			return parts, nil
		},
		ids:    []int{j.Cls.id, j.Sep.id},
		spells: j.TrimOffsets,
	}
}

// hfPiece is a part of a template: a text, or special tokens.
type hfPiece struct {
	sequence int // 0 or 1 for a text, −1 for tokens
	ids      []int
	typeID   int
}

func (j *hfProcessorJSON) template() (*hfProcessor, error) {
	p := &hfProcessor{}
	var templates [2][]hfPiece
	var added [2]int
	for i, pieces := range [][]hfTemplateJSON{j.Single, j.Pair} {
		var err error
		if templates[i], err = j.pieces(pieces); err != nil {
			return nil, err
		}
		for _, piece := range templates[i] {
			if piece.sequence > i {
				return nil, errors.New("the template of one text has the sequence B")
			}
			added[i] += len(piece.ids)
			p.ids = append(p.ids, piece.ids...)
		}
	}
	p.added = func(texts int) int { return added[texts-1] }
	p.process = func(parts []*hfPart, special bool) ([]*hfPart, error) {
		if len(parts) > 2 {
			return nil, fmt.Errorf("a template sees %d parts, after the post-processors before it, it needs one or two", len(parts))
		}
		var list []*hfPart
		for _, piece := range templates[len(parts)-1] {
			switch {
			case piece.sequence >= 0:
				part := &hfPart{}
				part.append(parts[piece.sequence])
				part.text = parts[piece.sequence].text
				part.setTypes(piece.typeID)
				list = append(list, part)
			case special:
				list = append(list, specialPart(piece.ids, piece.typeID))
			}
		}
		return list, nil
	}
	return p, nil
}

func (j *hfProcessorJSON) pieces(pieces []hfTemplateJSON) ([]hfPiece, error) {
	var list []hfPiece
	for _, piece := range pieces {
		switch {
		case piece.Sequence != nil && (piece.Sequence.ID == "A" || piece.Sequence.ID == "B"):
			list = append(list, hfPiece{sequence: int(piece.Sequence.ID[0] - 'A'), typeID: piece.Sequence.TypeID})
		case piece.SpecialToken != nil:
			tokens, found := j.SpecialTokens[piece.SpecialToken.ID]
			if !found {
				return nil, fmt.Errorf("the template has the token %q, it needs to be one of special_tokens", piece.SpecialToken.ID)
			}
			list = append(list, hfPiece{sequence: -1, ids: tokens.IDs, typeID: piece.SpecialToken.TypeID})
		default:
			return nil, fmt.Errorf("a part of the template is neither a special token nor the sequence A or B")
		}
	}
	return list, nil
}

// trim leaves as many characters out of tokens' spans as the tokens have spaces at their ends.
func (j *hfProcessorJSON) trim(parts []*hfPart) {
	if !j.TrimOffsets {
		return
	}
	isSpace := func(r rune) bool { return r == alphabet[' '] || unicode.IsSpace(r) }
	for _, part := range parts {
		for i, spell := range part.spell {
			leading, trailing := 0, 0
			for rest := spell; rest != ""; leading++ {
				r, n := utf8.DecodeRuneInString(rest)
				if !isSpace(r) {
					break
				}
				rest = rest[n:]
			}
			for rest := spell; rest != ""; trailing++ {
				r, n := utf8.DecodeLastRuneInString(rest)
				if !isSpace(r) {
					break
				}
				rest = rest[:len(rest)-n]
			}
			if j.AddPrefixSpace && leading == 1 && (i == 0 || part.Offsets[i][0] == 0) {
				leading = 0 // it was put there
			}
			part.Offsets[i] = trimSpan(part.text, part.Offsets[i], leading, trailing)
		}
	}
}

// trimSpan leaves so many characters out of a span of a text.
func trimSpan(text string, span [2]int, leading, trailing int) [2]int {
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
