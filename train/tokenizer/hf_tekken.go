package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// This file reads byte-level tokens that are listed with their ranks and without merges: Mistral's
// tekken.json, and the files of OpenAI's tiktoken. Such a tokenizer joins the two neighbours that
// make the token of the lowest rank, so that the tokens' order is that of the merges.

// ranked makes the model of byte-level tokens in the order of their ranks. Ids begin behind so many
// special tokens.
func ranked(tokens []string, special []string) (hfObject, error) {
	ranks := make(map[string]int, len(tokens))
	for rank, token := range tokens {
		ranks[token] = rank
	}
	vocab := make(map[string]int, len(tokens)+len(special))
	for rank, token := range tokens {
		vocab[toAlphabet(token)] = rank + len(special)
	}
	for id, token := range special {
		vocab[token] = id
	}
	merges := newMerges(tokens)
	type cut struct{ left, right, at int }
	var cuts []cut
	for _, token := range tokens {
		cuts = cuts[:0]
		for at := 1; at < len(token); at++ {
			left, isLeft := ranks[token[:at]]
			right, isRight := ranks[token[at:]]
			if isLeft && isRight {
				cuts = append(cuts, cut{left, right, at})
			}
		}
		slices.SortFunc(cuts, func(a, b cut) int {
			if a.left != b.left {
				return a.left - b.left
			}
			return a.right - b.right
		})
		for _, c := range cuts {
			merges.add(token[:c.at], token[c.at:])
		}
		if merges.err != nil {
			return nil, merges.err
		}
	}
	for i, m := range merges.list {
		merges.list[i] = [2]string{toAlphabet(m[0]), toAlphabet(m[1])}
	}
	return hfObject{"type": "BPE", "ignore_merges": true, "vocab": vocab, "merges": merges.list}, nil
}

const (
	longestPiece = 1 << 9  // bytes of a token whose cuts are all tried
	mostFiller   = 1 << 16 // tokens that a file asks for by a number
)

// byteLevelWith is a tokenizer.json of such a model.
func byteLevelWith(model hfObject, pattern string) hfObject {
	level := hfObject{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}
	split := hfObject{"type": "Split", "pattern": hfObject{"Regex": pattern}, "behavior": "Isolated", "invert": false}
	return hfObject{"pre_tokenizer": preTokenizers(split, level), "post_processor": level, "decoder": level, "model": model}
}

// oldTekken are the special tokens, by rank, of the first files, which do not list them.
const oldTekken = "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG]" +
	" <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"

// tekken makes a tokenizer.json of Mistral's tekken.json.
func (f *hfFolder) tekken(content []byte) (map[string]json.RawMessage, error) {
	var j struct {
		Config struct {
			Pattern string
			Size    *int `json:"default_vocab_size"`
			Special *int `json:"default_num_special_tokens"`
		}
		Vocab []struct {
			Bytes string `json:"token_bytes"`
		}
		Special []struct {
			Rank int
			Text string `json:"token_str"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(content, &j); err != nil {
		return nil, err
	}
	special := make([]string, len(j.Special))
	if j.Special == nil {
		special = strings.Fields(oldTekken)
	}
	for _, s := range j.Special {
		if s.Rank < 0 || s.Rank >= len(special) || special[s.Rank] != "" || s.Text == "" {
			return nil, fmt.Errorf("the special token %q has the rank %d, %d of them need ranks from 0 on", s.Text, s.Rank, len(special))
		}
		special[s.Rank] = s.Text
	}
	if n := j.Config.Special; n != nil {
		if *n < len(special) || *n > mostFiller {
			return nil, fmt.Errorf("default_num_special_tokens is %d, it needs to be from %d to %d", *n, len(special), mostFiller)
		}
		for id := len(special); id < *n; id++ {
			special = append(special, fmt.Sprintf("<SPECIAL_%d>", id))
		}
	}
	if n := j.Config.Size; n != nil {
		if *n < len(special) {
			return nil, fmt.Errorf("default_vocab_size is %d, it needs to be at least %d", *n, len(special))
		}
		j.Vocab = j.Vocab[:min(len(j.Vocab), *n-len(special))]
	}
	tokens := make([]string, len(j.Vocab))
	for rank, token := range j.Vocab {
		bytes, err := base64.StdEncoding.DecodeString(token.Bytes)
		if err != nil || len(bytes) == 0 || len(bytes) > longestPiece {
			return nil, fmt.Errorf("vocab: token %d is %.60q, it needs to be 1 to %d bytes in base64", rank, token.Bytes, longestPiece)
		}
		tokens[rank] = string(bytes)
	}
	for _, token := range special {
		f.extra = append(f.extra, hfAddedJSON{Content: token, Special: true})
	}
	model, err := ranked(tokens, special)
	if err != nil {
		return nil, err
	}
	return byteLevelWith(model, j.Config.Pattern).file()
}

// readTiktoken reads lines of a token in base64 and its rank, and whether a file is of such lines.
func readTiktoken(content []byte) (tokens []string, is bool) {
	for line := range strings.SplitSeq(string(content), "\n") {
		if line = strings.TrimSuffix(line, "\r"); line == "" {
			continue
		}
		encoded, rank, found := strings.Cut(line, " ")
		bytes, err := base64.StdEncoding.DecodeString(encoded)
		n, notNumber := strconv.Atoi(rank)
		if !found || err != nil || notNumber != nil || n != len(tokens) || len(bytes) == 0 || len(bytes) > longestPiece {
			return nil, false
		}
		tokens = append(tokens, string(bytes))
	}
	return tokens, len(tokens) > 0
}

// tiktoken makes a tokenizer.json of ranked tokens, with Llama 3's pattern. Ids that
// added_tokens_decoder leaves out between them and its own are reserved.
func (f *hfFolder) tiktoken(tokens []string) (map[string]json.RawMessage, error) {
	switch f.class {
	case "", "TokenizersBackend", "PreTrainedTokenizer", "LlamaTokenizer":
	default:
		return nil, fmt.Errorf("the class %q is not known here for tokens with ranks", f.class)
	}
	last := len(tokens) - 1
	has := map[int]bool{}
	for _, a := range f.added {
		last, has[a.ID] = max(last, a.ID), true
	}
	if most := len(tokens) + mostFiller; last >= most {
		return nil, fmt.Errorf("added_tokens_decoder has the id %d, it needs to be from 0 to %d", last, most-1)
	}
	for id := len(tokens); id <= last; id++ {
		if !has[id] {
			f.added = append(f.added, hfAddedJSON{ID: id, Content: fmt.Sprintf("<|reserved_token_%d|>", id), Special: true})
		}
	}
	model, err := ranked(tokens, nil)
	if err != nil {
		return nil, err
	}
	return byteLevelWith(model, llama3Pattern).file()
}
