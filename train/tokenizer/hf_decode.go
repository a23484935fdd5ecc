package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// hfDecoder changes the list of tokens whose concatenation is the text.
type hfDecoder func(tokens []string) ([]string, error)

type hfDecoderJSON struct {
	Type          string
	Decoders      []hfDecoderJSON
	Pattern       hfPatternJSON
	Content       string
	Start, Stop   int
	Prefix        string
	Suffix        string
	Cleanup       bool
	PadToken      string `json:"pad_token"`
	WordDelimiter string `json:"word_delimiter_token"`
	TrimOffsets   bool   `json:"trim_offsets"`
	UseRegex      bool   `json:"use_regex"`
	hfSpacesJSON
}

// hfSpacesJSON says what stands for spaces, as Metaspace has it.
type hfSpacesJSON struct {
	Replacement    string
	PrependScheme  string `json:"prepend_scheme"`
	Split          *bool
	StrRep         string `json:"str_rep"`
	AddPrefixSpace *bool  `json:"add_prefix_space"`
}

func (d *hfDecoderJSON) decoder() (hfDecoder, error) {
	switch d.Type {
	case "Sequence":
		return d.sequence()
	case "ByteLevel":
		return decodeAlphabet, nil
	case "ByteFallback":
		return decodeBytes, nil
	case "Fuse":
		return func(tokens []string) ([]string, error) { return []string{strings.Join(tokens, "")}, nil }, nil
	case "Strip":
		return d.strip()
	case "Replace":
		return d.replace()
	case "Metaspace":
		never := d.PrependScheme == "never" || d.PrependScheme == "" && d.AddPrefixSpace != nil && !*d.AddPrefixSpace
		return d.eachToken(func(i int, s string) string {
			if i == 0 && !never {
				return strings.ReplaceAll(s, d.Replacement, "")
			}
			return strings.ReplaceAll(s, d.Replacement, " ")
		}), nil
	case "CTC":
		return d.ctc, nil
	case "WordPiece":
		return d.eachToken(func(i int, s string) string {
			if i > 0 {
				if rest, found := strings.CutPrefix(s, d.Prefix); found {
					s = rest
				} else {
					s = " " + s
				}
			}
			if d.Cleanup {
				s = cleanWord(s)
			}
			return s
		}), nil
	case "BPEDecoder":
		return func(tokens []string) ([]string, error) {
			for i, s := range tokens {
				space := " "
				if i == len(tokens)-1 {
					space = ""
				}
				tokens[i] = strings.ReplaceAll(s, d.Suffix, space)
			}
			return tokens, nil
		}, nil
	}
	return nil, fmt.Errorf("the decoder %q is not known", d.Type)
}

// wordCleanup are texts and what they become, one after the other: spaces that splitting put before
// punctuation and contractions go.
var wordCleanup = [][2]string{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"},
	{" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

func cleanWord(s string) string {
	for _, c := range wordCleanup {
		s = strings.ReplaceAll(s, c[0], c[1])
	}
	return s
}

// strip takes a character away from a token's ends, so many times at most.
func (d *hfDecoderJSON) strip() (hfDecoder, error) {
	if utf8.RuneCountInString(d.Content) != 1 || d.Start < 0 || d.Stop < 0 {
		return nil, fmt.Errorf("the decoder Strip has the content %q and the lengths %d and %d, it needs a character and lengths from 0 on",
			d.Content, d.Start, d.Stop)
	}
	return d.eachToken(func(_ int, s string) string {
		for n := 0; n < d.Start && strings.HasPrefix(s, d.Content); n++ {
			s = s[len(d.Content):]
		}
		for n := 0; n < d.Stop && strings.HasSuffix(s, d.Content); n++ {
			s = s[:len(s)-len(d.Content)]
		}
		return s
	}), nil
}

// ctc joins what a model of speech repeats: of neighbours that are the same, one stays.
func (d *hfDecoderJSON) ctc(tokens []string) ([]string, error) {
	var list []string
	for i, s := range tokens {
		if i > 0 && s == tokens[i-1] {
			continue
		}
		s = strings.ReplaceAll(s, d.PadToken, "")
		if d.Cleanup {
			s = strings.ReplaceAll(cleanWord(s), d.WordDelimiter, " ")
		}
		if s != "" {
			list = append(list, s)
		}
	}
	return list, nil
}

func (d *hfDecoderJSON) sequence() (hfDecoder, error) {
	var steps []hfDecoder
	for i := range d.Decoders {
		step, err := d.Decoders[i].decoder()
		if err != nil {
			return nil, err
		}
		steps = append(steps, step)
	}
	return func(tokens []string) ([]string, error) {
		most := mostGrown(sizeOf(tokens))
		for _, step := range steps {
			var err error
			if tokens, err = step(tokens); err != nil {
				return nil, err
			}
			if size := sizeOf(tokens); size > most {
				return nil, fmt.Errorf("decoded, the tokens become a text of more than %d bytes", most)
			}
		}
		return tokens, nil
	}, nil
}

func sizeOf(tokens []string) int {
	size := 0
	for _, s := range tokens {
		size += len(s)
	}
	return size
}

func (d *hfDecoderJSON) eachToken(f func(i int, s string) string) hfDecoder {
	return func(tokens []string) ([]string, error) {
		for i, s := range tokens {
			tokens[i] = f(i, s)
		}
		return tokens, nil
	}
}

func (d *hfDecoderJSON) replace() (hfDecoder, error) {
	pattern, err := d.Pattern.pattern()
	if err != nil {
		return nil, err
	}
	return func(tokens []string) ([]string, error) {
		most, size := mostGrown(sizeOf(tokens)), 0
		for i, s := range tokens {
			t, err := hfText{s: s, original: s}.replaced(pattern, d.Content)
			if err != nil {
				return nil, err
			}
			tokens[i] = t.s
			if size += len(t.s); t.grown || size > most {
				return nil, fmt.Errorf("decoded, the tokens become a text of more than %d bytes", most)
			}
		}
		return tokens, nil
	}, nil
}

// decodeAlphabet makes one text of tokens that write bytes as characters. A token that has other
// characters, such as an added one, is text.
func decodeAlphabet(tokens []string) ([]string, error) {
	var text strings.Builder
	for _, s := range tokens {
		if bytes, err := fromAlphabet(s); err == nil {
			s = bytes
		}
		text.WriteString(s)
	}
	return []string{text.String()}, nil
}

// decodeBytes makes bytes of tokens such as <0x0A>. Of neighbours that are no UTF-8 together, each
// is a �.
func decodeBytes(tokens []string) ([]string, error) {
	var list []string
	var bytes []byte
	flush := func() {
		switch {
		case len(bytes) == 0:
		case utf8.Valid(bytes):
			list = append(list, string(bytes))
		default:
			for range bytes {
				list = append(list, string(utf8.RuneError))
			}
		}
		bytes = bytes[:0]
	}
	for _, s := range tokens {
		if b, is := byteToken(s); is {
			bytes = append(bytes, b)
			continue
		}
		flush()
		list = append(list, s)
	}
	flush()
	return list, nil
}

// byteToken is the byte that a token such as <0x0A> stands for.
func byteToken(s string) (b byte, is bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[3:5], 16, 8)
	return byte(n), err == nil
}

func readHFDecoder(text json.RawMessage) (hfDecoder, error) {
	var d hfDecoderJSON
	if err := decodeStrictly(text, &d); err != nil {
		return nil, err
	}
	return d.decoder()
}
