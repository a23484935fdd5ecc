package tokenizer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// readGPT2 reads the two files.
func readGPT2(vocab, merges io.Reader) (*GPT2, error) {
	tokens, err := readVocab(vocab)
	if err != nil {
		return nil, fmt.Errorf("vocab: %w", err)
	}
	lines, err := readMerges(merges)
	if err != nil {
		return nil, fmt.Errorf("merges: %w", err)
	}
	return newGPT2(tokens, lines)
}

// readVocab reads a JSON object from tokens to ids, and gives the tokens in the order of their ids.
func readVocab(r io.Reader) ([]string, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var ids map[string]int
	if err := json.Unmarshal(content, &ids); err != nil {
		return nil, fmt.Errorf("%w; it needs to be a JSON object from tokens to ids", err)
	}
	tokens, taken := make([]string, len(ids)), make([]bool, len(ids))
	for token, id := range ids {
		if id < 0 || id >= len(ids) {
			return nil, fmt.Errorf("token %q has the id %d, the %d tokens need ids from 0 to %d", token, id, len(ids), len(ids)-1)
		}
		if taken[id] {
			return nil, fmt.Errorf("tokens %q and %q have the id %d, each needs one of its own", tokens[id], token, id)
		}
		tokens[id], taken[id] = token, true
	}
	return tokens, nil
}

// readMerges reads the lines of merges, without the version in the first.
func readMerges(r io.Reader) ([]string, error) {
	var lines []string
	scanner := bufio.NewScanner(r)
	for first := true; scanner.Scan(); first = false {
		line := scanner.Text() // without a carriage return, too
		if line == "" || first && strings.HasPrefix(line, "#version") {
			continue
		}
		lines = append(lines, line)
	}
	return lines, scanner.Err()
}

// newGPT2 makes a tokenizer of what the files hold. Tokens are still written in the byte alphabet.
func newGPT2(vocab, merges []string) (*GPT2, error) {
	if len(vocab) > math.MaxInt32 {
		return nil, errors.New("vocab: there are more tokens than an int32 can count")
	}
	t := &GPT2{endOfText: -1, ranks: make(map[pair]int32, len(merges))}
	ids := make(map[string]int32, len(vocab))
	for id, written := range vocab {
		token, err := fromAlphabet(written)
		if err != nil {
			return nil, fmt.Errorf("vocab: token %q (id %d) %w", written, id, err)
		}
		if same, found := ids[token]; found {
			return nil, fmt.Errorf("vocab: token %q has the ids %d and %d, it needs to have one", written, same, id)
		}
		ids[token] = int32(id)
		t.tokens = append(t.tokens, token)
		if token == EndOfText {
			t.endOfText = id
		}
	}
	for b := range t.byteIDs {
		id, found := ids[string([]byte{byte(b)})]
		if !found {
			return nil, fmt.Errorf("vocab: the byte %#02x, written %q, is no token, each byte needs to be one", b, alphabet[b])
		}
		t.byteIDs[b] = id
	}
	for rank, line := range merges {
		m, err := parseMerge(line, ids)
		if err != nil {
			return nil, fmt.Errorf("merges: number %d, %q, %w", rank+1, line, err)
		}
		if same, found := t.ranks[m.pair]; found {
			return nil, fmt.Errorf("merges: number %d, %q, is number %d as well, each needs to be there once", rank+1, line, same+1)
		}
		t.ranks[m.pair] = int32(rank)
		t.merges = append(t.merges, m)
	}
	return t, nil
}

// parseMerge reads a line. Its errors go on from what is wrong.
func parseMerge(line string, ids map[string]int32) (merge, error) {
	left, right, found := strings.Cut(line, " ")
	if !found || strings.Contains(right, " ") {
		return merge{}, errors.New("needs to be two tokens with a space between them")
	}
	var m [3]int32
	for i, written := range []string{left, right, left + right} {
		token, err := fromAlphabet(written)
		if err != nil {
			return merge{}, fmt.Errorf("is of %q, which %w", written, err)
		}
		if m[i], found = ids[token]; !found {
			return merge{}, fmt.Errorf("is of %q, which needs to be a token of the vocabulary", written)
		}
	}
	return merge{pair{m[0], m[1]}, m[2]}, nil
}

// The files write each byte as a character that can be seen: those of Latin-1 that can, as they
// are, and the others, in order, as the characters from U+0100 on. A space is written Ġ.
var alphabet, alphabetBytes = func() (characters [256]rune, bytes map[rune]byte) {
	bytes = map[rune]byte{}
	next := rune(256)
	for b := range characters {
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' && b <= 'ÿ' {
			characters[b] = rune(b)
		} else {
			characters[b] = next
			next++
		}
		bytes[characters[b]] = byte(b)
	}
	return characters, bytes
}()

// fromAlphabet is the bytes of a token. Its errors go on from the token.
func fromAlphabet(written string) (string, error) {
	if written == "" {
		return "", errors.New("is empty, it needs to be at least a byte")
	}
	token := make([]byte, 0, len(written))
	for _, r := range written {
		b, found := alphabetBytes[r]
		if !found {
			return "", fmt.Errorf("has the character %q, it needs to be of those that GPT-2 writes bytes with", r)
		}
		token = append(token, b)
	}
	return string(token), nil
}

// toAlphabet writes the bytes of a token.
func toAlphabet(token string) string {
	written := make([]rune, len(token))
	for i := range len(token) {
		written[i] = alphabet[token[i]]
	}
	return string(written)
}
