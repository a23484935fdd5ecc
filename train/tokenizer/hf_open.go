package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// Open reads the tokenizer of a model's folder, as transformers' AutoTokenizer does: tokenizer.json
// with the tokens that tokenizer_config.json adds to it, or where there is none, a BERT's
// vocab.txt, or the vocab.json and merges.txt of GPT-2 and RoBERTa. Other kinds of files are
// refused.
func Open(folder string) (*HuggingFace, error) {
	t, err := openFolder(folder)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %s: %w", folder, err)
	}
	return t, nil
}

// hfFolder is what the small files of a folder say.
type hfFolder struct {
	path   string
	fields map[string]json.RawMessage // of tokenizer_config.json and, where it has none of the name, special_tokens_map.json
	added  map[string]hfAddedJSON     // by their texts
}

func openFolder(path string) (*HuggingFace, error) {
	f := &hfFolder{path: path, fields: map[string]json.RawMessage{}, added: map[string]hfAddedJSON{}}
	for _, name := range []string{"special_tokens_map.json", "tokenizer_config.json"} {
		if _, err := f.read(name, &f.fields); err != nil {
			return nil, err
		}
	}
	if err := f.readAdded(); err != nil {
		return nil, err
	}
	file := map[string]json.RawMessage{}
	found, err := f.read("tokenizer.json", &file)
	if err != nil {
		return nil, err
	}
	if !found {
		if file, err = f.legacy(); err != nil {
			return nil, err
		}
	}
	changed, err := f.complete(file)
	if err != nil {
		return nil, err
	}
	if found && !changed {
		return OpenHuggingFace(filepath.Join(path, "tokenizer.json"))
	}
	content, err := json.Marshal(file)
	if err != nil {
		return nil, err
	}
	return parseHuggingFace(content)
}

// text is a file of the folder, and whether there is one.
func (f *hfFolder) text(name string) ([]byte, bool, error) {
	content, err := plainfile.ReadFile(filepath.Join(f.path, name), 1<<30)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return content, err == nil, err
}

func (f *hfFolder) read(name string, into any) (found bool, err error) {
	content, found, err := f.text(name)
	if found {
		if err = json.Unmarshal(content, into); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	return found, err
}

// readAdded reads the tokens beside the vocabulary: added_tokens_decoder, or else
// added_tokens.json.
func (f *hfFolder) readAdded() error {
	type token struct {
		Content                             string
		SingleWord                          bool `json:"single_word"`
		LStrip, RStrip, Normalized, Special bool
	}
	var byID map[string]token
	if text := f.fields["added_tokens_decoder"]; !isNull(text) {
		if err := json.Unmarshal(text, &byID); err != nil {
			return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %w", err)
		}
		for id, a := range byID {
			n, err := strconv.Atoi(id)
			if err != nil {
				return fmt.Errorf("tokenizer_config.json: added_tokens_decoder: %q is no id", id)
			}
			f.added[a.Content] = hfAddedJSON{n, a.Content, a.SingleWord, a.LStrip, a.RStrip, a.Normalized, a.Special}
		}
		return nil
	}
	var ids map[string]int
	if _, err := f.read("added_tokens.json", &ids); err != nil {
		return err
	}
	for content, id := range ids {
		special := slices.Contains(f.specials(), content)
		f.added[content] = hfAddedJSON{ID: id, Content: content, Normalized: !special, Special: special}
	}
	return nil
}

// named is a special token by its name, such as unk_token.
func (f *hfFolder) named(name, otherwise string) hfAddedJSON {
	token := hfAddedJSON{Content: otherwise, Special: true}
	var content string
	var object struct {
		Content        string
		LStrip, RStrip bool
	}
	if text := f.fields[name]; json.Unmarshal(text, &content) == nil && content != "" {
		token.Content = content
	} else if json.Unmarshal(text, &object) == nil && object.Content != "" {
		token.Content, token.LStrip, token.RStrip = object.Content, object.LStrip, object.RStrip
	}
	return token
}

// specials are the texts of all special tokens.
func (f *hfFolder) specials() []string {
	var list []string
	for name := range f.fields {
		if token := f.named(name, ""); strings.HasSuffix(name, "_token") && token.Content != "" {
			list = append(list, token.Content)
		}
	}
	return list
}

// complete adds the tokens to a tokenizer.json that it lacks.
func (f *hfFolder) complete(file map[string]json.RawMessage) (changed bool, err error) {
	var list []json.RawMessage
	if text := file["added_tokens"]; !isNull(text) {
		if err := json.Unmarshal(text, &list); err != nil {
			return false, fmt.Errorf("tokenizer.json: added_tokens: %w", err)
		}
	}
	known := map[string]bool{}
	for _, text := range list {
		var a hfAddedJSON
		if err := json.Unmarshal(text, &a); err != nil {
			return false, err
		}
		known[a.Content] = true
	}
	more := slices.SortedFunc(maps.Values(f.added), func(a, b hfAddedJSON) int { return a.ID - b.ID })
	for _, a := range more {
		if known[a.Content] {
			continue
		}
		text, err := json.Marshal(map[string]any{
			"id": a.ID, "content": a.Content, "single_word": a.SingleWord, "lstrip": a.LStrip, "rstrip": a.RStrip,
			"normalized": a.Normalized, "special": a.Special,
		})
		if err != nil {
			return false, err
		}
		list, changed = append(list, text), true
	}
	if changed {
		file["added_tokens"], err = json.Marshal(list)
	}
	return changed, err
}

// legacy makes a tokenizer.json of older files.
func (f *hfFolder) legacy() (map[string]json.RawMessage, error) {
	var class string
	if text := f.fields["tokenizer_class"]; !isNull(text) {
		if err := json.Unmarshal(text, &class); err != nil {
			return nil, fmt.Errorf("tokenizer_config.json: tokenizer_class is %.40s, it needs to be a text", text)
		}
	}
	words, isBERT, err := f.text("vocab.txt")
	if err != nil {
		return nil, err
	}
	var vocab map[string]int
	hasVocab, err := f.read("vocab.json", &vocab)
	if err != nil {
		return nil, err
	}
	merges, hasMerges, err := f.text("merges.txt")
	if err != nil {
		return nil, err
	}
	class = strings.TrimSuffix(class, "Fast")
	switch {
	case isBERT && slices.Contains([]string{"", "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"}, class):
		return f.bert(string(words))
	case hasVocab && hasMerges && slices.Contains([]string{"", "GPT2Tokenizer", "RobertaTokenizer"}, class):
		return f.byteLevel(vocab, string(merges), class == "RobertaTokenizer")
	}
	return nil, fmt.Errorf("there is no tokenizer.json, and no other files that are known here for the class %q", class)
}

func (f *hfFolder) bool(name string, otherwise bool) bool {
	value := otherwise
	if json.Unmarshal(f.fields[name], &value) != nil {
		return otherwise
	}
	return value
}

// add makes special tokens of the vocabulary added ones, as far as it has them.
func (f *hfFolder) add(vocab map[string]int, tokens ...hfAddedJSON) {
	for _, a := range tokens {
		id, found := vocab[a.Content]
		if _, known := f.added[a.Content]; found && !known {
			a.ID = id
			f.added[a.Content] = a
		}
	}
}

// hfObject is an object of a tokenizer.json.
type hfObject map[string]any

func (o hfObject) file() (map[string]json.RawMessage, error) {
	file := map[string]json.RawMessage{}
	for name, part := range o {
		text, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		file[name] = text
	}
	return file, nil
}

func (f *hfFolder) bert(words string) (map[string]json.RawMessage, error) {
	vocab := map[string]int{}
	for id, word := range strings.Split(strings.TrimSuffix(words, "\n"), "\n") {
		vocab[strings.TrimSuffix(word, "\r")] = id
	}
	unk, cls, sep := f.named("unk_token", "[UNK]"), f.named("cls_token", "[CLS]"), f.named("sep_token", "[SEP]")
	f.add(vocab, unk, cls, sep, f.named("pad_token", "[PAD]"), f.named("mask_token", "[MASK]"))
	for _, token := range []hfAddedJSON{cls, sep} {
		if _, found := vocab[token.Content]; !found {
			return nil, fmt.Errorf("vocab.txt has no token %q", token.Content)
		}
	}
	normalizer := hfObject{
		"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": f.bool("tokenize_chinese_chars", true),
		"lowercase": f.bool("do_lower_case", true),
	}
	if text := f.fields["strip_accents"]; !isNull(text) {
		normalizer["strip_accents"] = f.bool("strip_accents", true)
	}
	return hfObject{
		"normalizer": normalizer, "pre_tokenizer": hfObject{"type": "BertPreTokenizer"},
		"post_processor": hfObject{"type": "BertProcessing", "cls": []any{cls.Content, vocab[cls.Content]}, "sep": []any{sep.Content, vocab[sep.Content]}},
		"decoder":        hfObject{"type": "WordPiece", "prefix": "##", "cleanup": true},
		"model": hfObject{
			"type": "WordPiece", "unk_token": unk.Content, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab,
		},
	}.file()
}

func (f *hfFolder) byteLevel(vocab map[string]int, merges string, roberta bool) (map[string]json.RawMessage, error) {
	list := []string{}
	for i, line := range strings.Split(merges, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line != "" && !(i == 0 && strings.HasPrefix(line, "#version")) {
			list = append(list, line)
		}
	}
	space := f.bool("add_prefix_space", false)
	o := hfObject{
		"pre_tokenizer": hfObject{"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": true, "use_regex": true},
		"decoder":       hfObject{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
		"model":         hfObject{"type": "BPE", "vocab": vocab, "merges": list},
	}
	if !roberta {
		for _, name := range []string{"bos_token", "eos_token", "unk_token"} {
			f.add(vocab, f.named(name, "<|endoftext|>"))
		}
		return o.file()
	}
	cls, sep, mask := f.named("cls_token", "<s>"), f.named("sep_token", "</s>"), f.named("mask_token", "<mask>")
	f.add(vocab, cls, sep, f.named("bos_token", "<s>"), f.named("eos_token", "</s>"), f.named("unk_token", "<unk>"), f.named("pad_token", "<pad>"), mask)
	for _, token := range []hfAddedJSON{cls, sep} {
		if _, found := vocab[token.Content]; !found {
			return nil, fmt.Errorf("vocab.json has no token %q", token.Content)
		}
	}
	o["post_processor"] = hfObject{
		"type": "RobertaProcessing", "cls": []any{cls.Content, vocab[cls.Content]}, "sep": []any{sep.Content, vocab[sep.Content]},
		"trim_offsets": f.bool("trim_offsets", true), "add_prefix_space": space,
	}
	return o.file()
}
