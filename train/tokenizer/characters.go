package tokenizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Characters is a [Tokenizer] with an id for each of some characters (code points), in their order.
type Characters struct {
	characters []rune // ascending
	ids        map[rune]int
	ascii      [utf8.RuneSelf]int // ids of ASCII characters, -1 for those that are not there; the map is slower
}

// NewCharacters makes a tokenizer of the characters that a text holds.
func NewCharacters(text string) (*Characters, error) {
	if text == "" {
		return nil, errors.New("NewCharacters: text is empty, it needs to hold the characters")
	}
	seen := map[rune]bool{}
	for at, r := range text {
		if invalid(text, at, r) {
			return nil, fmt.Errorf("NewCharacters: text has the byte %#x at %s, it needs to be UTF-8", text[at], position(text, at))
		}
		seen[r] = true
	}
	characters := make([]rune, 0, len(seen))
	for r := range seen {
		characters = append(characters, r)
	}
	slices.Sort(characters)
	return newCharacters(characters), nil
}

func newCharacters(characters []rune) *Characters {
	c := &Characters{characters: characters, ids: map[rune]int{}}
	for r := range c.ascii {
		c.ascii[r] = -1
	}
	for id, r := range characters {
		c.ids[r] = id
		if r < utf8.RuneSelf {
			c.ascii[r] = id
		}
	}
	return c
}

// invalid tells a byte that is not UTF-8 from the character U+FFFD, which a loop over a string
// gives for both.
func invalid(text string, at int, r rune) bool {
	return r == utf8.RuneError && !strings.HasPrefix(text[at:], string(utf8.RuneError))
}

// position is where a byte of a text is, for people.
func position(text string, at int) string {
	before := text[:at]
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return fmt.Sprintf("byte %d (line %d, character %d)",
		at, 1+strings.Count(before, "\n"), 1+utf8.RuneCountInString(line))
}

// Encode is the ids of a text's characters. A text with another character is refused.
func (c *Characters) Encode(text string) ([]int, error) {
	ids := make([]int, 0, len(text))
	for at, r := range text {
		id := -1
		if r < utf8.RuneSelf {
			id = c.ascii[r]
		} else if known, found := c.ids[r]; found && !invalid(text, at, r) {
			id = known
		}
		if id < 0 {
			return nil, c.unknown(text, at, r)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// unknown is the error for a character that is not there.
func (c *Characters) unknown(text string, at int, r rune) error {
	if invalid(text, at, r) {
		return fmt.Errorf("Characters: text has the byte %#x at %s, it needs to be UTF-8", text[at], position(text, at))
	}
	known := "one of the " + fmt.Sprint(len(c.characters)) + " known characters"
	if len(c.characters) <= maxListed {
		known = fmt.Sprintf("one of %q", string(c.characters))
	}
	return fmt.Errorf("Characters: text has %q at %s, it needs to be %s", r, position(text, at), known)
}

// maxListed is how many characters an error lists at most.
const maxListed = 100

// Decode is the text of ids.
func (c *Characters) Decode(ids []int) (string, error) {
	var text strings.Builder
	for _, id := range ids {
		if err := checkID("Characters", id, c.Size()); err != nil {
			return "", err
		}
		text.WriteRune(c.characters[id])
	}
	return text.String(), nil
}

// Bytes is the UTF-8 encoding of a character.
func (c *Characters) Bytes(id int) ([]byte, error) {
	if err := checkID("Characters", id, c.Size()); err != nil {
		return nil, err
	}
	return utf8.AppendRune(nil, c.characters[id]), nil
}

// Size is the number of characters.
func (c *Characters) Size() int { return len(c.characters) }

// String is all characters in the order of their ids.
func (c *Characters) String() string { return string(c.characters) }
