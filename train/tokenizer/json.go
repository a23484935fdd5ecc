package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// saved is how a tokenizer is written.
type saved struct {
	Kind       string   `json:"kind"`
	Characters string   `json:"characters,omitempty"` // in the order of their ids
	Vocab      []string `json:"vocab,omitempty"`      // in the order of their ids, written as in vocab.json
	Merges     []string `json:"merges,omitempty"`     // as in merges.txt
	EndOfText  bool     `json:"endOfText,omitempty"`  // see WithEndOfText

	HuggingFace json.RawMessage `json:"tokenizer,omitempty"` // a tokenizer.json
	CutsLeft    bool            `json:"cutsLeft,omitempty"`  // texts of too many tokens lose the first of them
}

const (
	bytesKind      = "bytes"
	charactersKind = "characters"
	gpt2Kind       = "gpt2"

	huggingFaceKind = "huggingface"
)

// Save writes a tokenizer of this package as a JSON object that [Load] reads. Its "kind" is bytes,
// characters, gpt2 or huggingface; it holds all that the tokenizer was made of.
func Save(w io.Writer, t Tokenizer) error {
	switch t.(type) {
	case Bytes, *Bytes, *Characters, *GPT2, *HuggingFace:
	default:
		return fmt.Errorf("Save: t is a %T, it needs to be one of package tokenizer", t)
	}
	content, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("Save: %w", err)
	}
	if _, err := w.Write(append(content, '\n')); err != nil {
		return fmt.Errorf("Save: %w", err)
	}
	return nil
}

// Load reads what [Save] wrote, to the end of r: a Bytes, a *Characters, a *GPT2 or a *HuggingFace.
func Load(r io.Reader) (Tokenizer, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("Load: %w", err)
	}
	var s saved
	if err := json.Unmarshal(content, &s); err != nil {
		return nil, fmt.Errorf("Load: %w", err)
	}
	t, err := s.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("Load: %w", err)
	}
	return t, nil
}

func (s *saved) tokenizer() (Tokenizer, error) {
	switch s.Kind {
	case bytesKind:
		return Bytes{}, nil
	case charactersKind:
		return s.characters()
	case gpt2Kind:
		return s.gpt2()
	case huggingFaceKind:
		t, err := parseHuggingFace(s.HuggingFace)
		if err != nil {
			return nil, err
		}
		t.cutsLeft = t.cutsLeft || s.CutsLeft
		return t, nil
	}
	return nil, fmt.Errorf("kind is %q, it needs to be %s, %s, %s or %s", s.Kind, bytesKind, charactersKind, gpt2Kind, huggingFaceKind)
}

func (s *saved) characters() (*Characters, error) {
	characters := []rune(s.Characters)
	if len(characters) == 0 {
		return nil, errors.New("characters is empty, it needs to hold at least one")
	}
	for i, r := range characters[1:] {
		if r <= characters[i] {
			return nil, fmt.Errorf("characters has %q before %q, they need to be in order and each there once", characters[i], r)
		}
	}
	return newCharacters(characters), nil
}

func (s *saved) gpt2() (*GPT2, error) {
	t, err := newGPT2(s.Vocab, s.Merges)
	if err == nil && s.EndOfText {
		t, err = t.WithEndOfText()
	}
	return t, err
}

// MarshalJSON is what [Save] writes.
func (Bytes) MarshalJSON() ([]byte, error) { return json.Marshal(saved{Kind: bytesKind}) }

// MarshalJSON is what [Save] writes.
func (c *Characters) MarshalJSON() ([]byte, error) {
	return json.Marshal(saved{Kind: charactersKind, Characters: string(c.characters)})
}

// MarshalJSON is what [Save] writes.
func (t *GPT2) MarshalJSON() ([]byte, error) {
	s := saved{Kind: gpt2Kind, EndOfText: t.special}
	for _, token := range t.tokens {
		s.Vocab = append(s.Vocab, toAlphabet(token))
	}
	for _, m := range t.merges {
		s.Merges = append(s.Merges, s.Vocab[m.left]+" "+s.Vocab[m.right])
	}
	return json.Marshal(s)
}

// UnmarshalJSON makes b what was written, which needs to be of its kind.
func (b *Bytes) UnmarshalJSON(content []byte) error { return unmarshal(content, b) }

// UnmarshalJSON makes c what was written, which needs to be of its kind. Nothing else may be using
// it.
func (c *Characters) UnmarshalJSON(content []byte) error {
	var loaded *Characters
	err := unmarshal(content, &loaded)
	if err == nil {
		*c = *loaded
	}
	return err
}

// UnmarshalJSON makes t what was written, which needs to be of its kind. Nothing else may be using
// it.
func (t *GPT2) UnmarshalJSON(content []byte) error {
	var loaded *GPT2
	err := unmarshal(content, &loaded)
	if err == nil {
		*t = *loaded
	}
	return err
}

// unmarshal reads a tokenizer of the kind that is wanted.
func unmarshal[T Tokenizer](content []byte, into *T) error {
	loaded, err := Load(bytes.NewReader(content))
	if err != nil {
		return err
	}
	t, ok := loaded.(T)
	if !ok {
		return fmt.Errorf("Load: it is a %T, it needs to be a %T", loaded, *into)
	}
	*into = t
	return nil
}
