package tokenizer

import (
	"errors"
	"fmt"
)

// Encoding is what [HuggingFace.EncodeWith] gives: lists of equal length, one element for each
// token.
type Encoding struct {
	IDs     []int
	TypeIDs []int    // tells a first text from a second, as the template says
	Offsets [][2]int // in bytes of the text that the token comes from; zeros for tokens that come from none
	Second  []bool   // the token comes from the second text
	Special []bool   // the token was added by the template or is padding
	Padding []bool   // attention leaves these out
}

// EncodeOptions are the options of [HuggingFace.EncodeWith].
type EncodeOptions struct {
	Second    *string // a second text, for models that take two
	NoSpecial bool    // the template adds no tokens
	NoLimits  bool    // neither cut short nor padded, whatever the file says
	// Most is how many tokens there are at most, with those of the template; 0 means as many as the
	// file says. Texts are cut at the side that the file or the folder says, and not padded.
	Most int
}

// EncodeWith encodes one text or two as the library does: with the tokens that the template adds,
// cut short and padded where the file says so.
func (t *HuggingFace) EncodeWith(text string, o EncodeOptions) (*Encoding, error) {
	list, err := t.encodeAll([]string{text}, o)
	if err != nil {
		return nil, fmt.Errorf("HuggingFace: %w", err)
	}
	return list[0], nil
}

// EncodeBatch encodes several texts and pads them to one length, where the file says so. The second
// text goes with each.
func (t *HuggingFace) EncodeBatch(texts []string, o EncodeOptions) ([]*Encoding, error) {
	list, err := t.encodeAll(texts, o)
	if err != nil {
		return nil, fmt.Errorf("HuggingFace: %w", err)
	}
	return list, nil
}

func (t *HuggingFace) encodeAll(texts []string, o EncodeOptions) ([]*Encoding, error) {
	var list []*Encoding
	longest := 0
	for _, text := range texts {
		e, err := t.encodeOne(text, o)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		longest = max(longest, len(e.IDs))
	}
	if t.padding != nil && !o.NoLimits && o.Most == 0 {
		for _, e := range list {
			t.padding.pad(e, longest)
		}
	}
	return list, nil
}

func (t *HuggingFace) encodeOne(text string, o EncodeOptions) (*Encoding, error) {
	if err := t.isMade(); err != nil {
		return nil, err
	}
	texts := []string{text}
	if o.Second != nil {
		texts = append(texts, *o.Second)
	}
	var tokens [2][]hfToken
	var spells [2][]string
	for i, text := range texts {
		found, err := t.encode(text, true)
		if err != nil {
			return nil, err
		}
		list := found.tokens
		tokens[i] = list
		if !t.processor.spells {
			continue
		}
		spells[i] = make([]string, len(list))
		for k, token := range list {
			spells[i][k] = t.names[token.id]
			if name, other := t.unadded[token.id]; other {
				spells[i][k] = name
			}
		}
		for k, s := range found.spells {
			spells[i][k] = s
		}
	}
	if limit := t.limit(o); limit != nil {
		added := 0
		if !o.NoSpecial {
			added = t.processor.added(len(texts))
		}
		if err := limit.cut(&tokens, &spells, len(texts), added); err != nil {
			return nil, err
		}
	}
	var parts []*hfPart
	for i, text := range texts {
		part := &hfPart{text: text}
		for _, token := range tokens[i] {
			part.add(token.id, i, [2]int{token.from, token.to}, i == 1, false)
		}
		part.spell = spells[i]
		parts = append(parts, part)
	}
	parts, err := t.processor.process(parts, !o.NoSpecial)
	if err != nil {
		return nil, err
	}
	e := &Encoding{}
	for _, part := range parts {
		e.append(&part.Encoding)
	}
	return e, nil
}

// limit is how texts are cut short, nil for not at all.
func (t *HuggingFace) limit(o EncodeOptions) *hfTruncationJSON {
	switch {
	case o.Most > 0 && t.cutsLeft:
		return &hfTruncationJSON{MaxLength: o.Most, Direction: "Left"}
	case o.Most > 0:
		return &hfTruncationJSON{MaxLength: o.Most}
	case o.NoLimits:
		return nil
	}
	return t.truncate
}

func (e *Encoding) add(id, typeID int, offsets [2]int, second, special bool) {
	e.IDs, e.TypeIDs, e.Offsets = append(e.IDs, id), append(e.TypeIDs, typeID), append(e.Offsets, offsets)
	e.Second, e.Special, e.Padding = append(e.Second, second), append(e.Special, special), append(e.Padding, false)
}

func (e *Encoding) append(other *Encoding) {
	e.IDs, e.TypeIDs, e.Offsets = append(e.IDs, other.IDs...), append(e.TypeIDs, other.TypeIDs...), append(e.Offsets, other.Offsets...)
	e.Second, e.Special, e.Padding = append(e.Second, other.Second...), append(e.Special, other.Special...), append(e.Padding, other.Padding...)
}

// hfTruncationJSON cuts texts that have too many tokens.
type hfTruncationJSON struct {
	Direction string
	MaxLength int `json:"max_length"`
	Strategy  string
	Stride    int
}

func (c *hfTruncationJSON) check() error {
	if c.Direction != "" && c.Direction != "Right" && c.Direction != "Left" {
		return fmt.Errorf("direction is %q, it needs to be Right or Left", c.Direction)
	}
	if c.Strategy != "LongestFirst" && c.Strategy != "OnlyFirst" && c.Strategy != "OnlySecond" {
		return fmt.Errorf("strategy is %q, it needs to be LongestFirst, OnlyFirst or OnlySecond", c.Strategy)
	}
	if c.MaxLength < 0 {
		return fmt.Errorf("max_length is %d, it cannot be negative", c.MaxLength)
	}
	return nil
}

// cut leaves room for so many added tokens.
func (c *hfTruncationJSON) cut(tokens *[2][]hfToken, spells *[2][]string, texts, added int) error {
	most := c.MaxLength - added
	if most < 0 {
		return nil // as in the library
	}
	n := [2]int{len(tokens[0]), len(tokens[1])}
	over := n[0] + n[1] - most
	if over <= 0 {
		return nil
	}
	switch {
	case most == 0:
		n = [2]int{}
	case c.Strategy == "OnlySecond" && texts == 1:
		return errors.New("there is no second text to cut, as the file asks for")
	case c.Strategy == "OnlyFirst", c.Strategy == "OnlySecond":
		i := 0
		if c.Strategy == "OnlySecond" {
			i = 1
		}
		if n[i] <= over {
			return errors.New("one text alone cannot be cut so short that both fit")
		}
		n[i] -= over
	default:
		// The longer one is cut to the rest that the shorter leaves, or both to halves.
		short, long := 0, 1
		if n[0] > n[1] {
			short, long = 1, 0
		}
		n[long] = max(n[short], most-n[short])
		if n[short] > most {
			n[long] = n[short]
		}
		if n[short]+n[long] > most {
			n[short] = most / 2
			n[long] = n[short] + most%2
		}
	}
	for i := range tokens {
		first := 0
		if c.Direction == "Left" {
			first = len(tokens[i]) - n[i]
		}
		tokens[i] = tokens[i][first : first+n[i]]
		if spells[i] != nil {
			spells[i] = spells[i][first : first+n[i]]
		}
	}
	return nil
}

// hfPaddingJSON fills texts up to a length.
type hfPaddingJSON struct {
	Strategy   hfPaddingStrategy
	Direction  string
	MultipleOf *int   `json:"pad_to_multiple_of"`
	ID         int    `json:"pad_id"`
	TypeID     int    `json:"pad_type_id"`
	Token      string `json:"pad_token"`
}

// hfPaddingStrategy is a length, or 0 for that of the longest text of a batch.
type hfPaddingStrategy int

func (s *hfPaddingStrategy) UnmarshalJSON(text []byte) error {
	if string(text) == `"BatchLongest"` {
		*s = 0
		return nil
	}
	var fixed struct{ Fixed *int }
	if err := decodeStrictly(text, &fixed); err != nil || fixed.Fixed == nil {
		return fmt.Errorf("the padding strategy is %.40s, it needs to be BatchLongest or a Fixed length", text)
	}
	*s = hfPaddingStrategy(*fixed.Fixed)
	return nil
}

func (p *hfPaddingJSON) check() error {
	if p.Direction != "" && p.Direction != "Right" && p.Direction != "Left" {
		return fmt.Errorf("direction is %q, it needs to be Right or Left", p.Direction)
	}
	if p.Strategy < 0 || p.Strategy > maxTokens || p.MultipleOf != nil && (*p.MultipleOf < 0 || *p.MultipleOf > maxTokens) {
		return fmt.Errorf("a length needs to be from 0 to %d", maxTokens)
	}
	return nil
}

func (p *hfPaddingJSON) pad(e *Encoding, longest int) {
	length := longest
	if p.Strategy > 0 {
		length = int(p.Strategy)
	}
	if p.MultipleOf != nil && *p.MultipleOf > 0 {
		length = (length + *p.MultipleOf - 1) / *p.MultipleOf * *p.MultipleOf
	}
	var padding Encoding
	for range length - len(e.IDs) {
		padding.add(p.ID, p.TypeID, [2]int{}, false, true)
		padding.Padding[len(padding.Padding)-1] = true
	}
	before, after := &padding, e
	if p.Direction != "Left" {
		before, after = e, &padding
	}
	*e = Encoding{
		append(before.IDs, after.IDs...), append(before.TypeIDs, after.TypeIDs...), append(before.Offsets, after.Offsets...),
		append(before.Second, after.Second...), append(before.Special, after.Special...), append(before.Padding, after.Padding...),
	}
}
