package tokenizer

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// Stream decodes ids as they come. The texts that it gives are, one behind the other, what
// [HuggingFace.Decode] gives for all ids, so that a space before the first word is not there and
// bytes of a character come together. It is not safe for concurrent use.
type Stream struct {
	tokenizer   *HuggingFace
	skipSpecial bool
	all         []int
	given       strings.Builder // of all
	window      []int           // the last of them, by which what follows is decoded
	done        string          // what was given of the window's text
}

// streamWindow is how many ids what follows is decoded with. Decoders look at neighbours only.
const streamWindow = 8

// NewStream is a stream at the start of a text. With skipSpecial it leaves special tokens out, as
// [HuggingFace.DecodeText] does.
func (t *HuggingFace) NewStream(skipSpecial bool) *Stream {
	return &Stream{tokenizer: t, skipSpecial: skipSpecial}
}

// Add is the text that an id adds. It may be empty, where it takes the next id to tell, and
// may hold the text of ids before.
func (s *Stream) Add(id int) (string, error) {
	if s.skipSpecial && s.tokenizer.special[id] {
		return "", nil
	}
	s.all, s.window = append(s.all, id), append(s.window, id)
	text, err := s.tokenizer.decodeIDs(s.window, s.skipSpecial)
	if err != nil {
		s.all, s.window = s.all[:len(s.all)-1], s.window[:len(s.window)-1]
		return "", err
	}
	if _, is := byteToken(s.tokenizer.names[id]); is && s.tokenizer.fallback {
		return "", nil // the bytes that follow decide what becomes of it
	}
	text = text[:len(text)-incomplete(text)]
	added, follows := strings.CutPrefix(text, s.done)
	if !follows {
		return "", nil // Close tells whether all are given then
	}
	s.given.WriteString(added)
	s.done = text
	if len(s.window) < 2*streamWindow {
		return added, nil
	}
	rest := s.window[len(s.window)-streamWindow:]
	if text, err = s.tokenizer.decodeIDs(rest, s.skipSpecial); err != nil {
		return "", err
	}
	text = text[:len(text)-incomplete(text)]
	if strings.HasSuffix(s.done, text) {
		s.window, s.done = append([]int(nil), rest...), text
	}
	return added, nil
}

// Close is the rest of the text. It returns an error where a decoder changes the text before in
// the light of what comes behind it, so that what was given is not what all ids are decoded to.
func (s *Stream) Close() (string, error) {
	text, err := s.tokenizer.decodeIDs(s.all, s.skipSpecial)
	if err != nil {
		return "", err
	}
	rest, follows := strings.CutPrefix(text, s.given.String())
	if !follows {
		return "", errors.New("HuggingFace: the decoder of this tokenizer cannot decode token by token")
	}
	return rest, nil
}

// incomplete is how many bytes at the end of a text begin a character that is not whole.
func incomplete(text string) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRuneInString(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
