package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// This file makes tokenizers of the metadata of GGUF files, and such metadata of tokenizers. A GGUF
// file holds no tokenizer.json: it names one of the kinds that llama.cpp knows.

// ggufSplit is a kind of splitting, the value of tokenizer.ggml.pre.
type ggufSplit struct {
	names   []string // all that mean it; files are written with the first
	pattern string
	digits  bool // each digit alone before GPT-2's pattern
	whole   bool // a part that is a token is that token
	begins  bool // texts begin with a special token unless the file says otherwise
}

const (
	tekkenPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` +
		`|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	gpt4oPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?` +
		`|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

var ggufSplits = []ggufSplit{
	{names: []string{"gpt-2", "phi-2", "olmo", "jina-es", "jina-de", "gigachat", "mpt"}, pattern: gpt2Pattern},
	{names: []string{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"}, pattern: gpt2Pattern, digits: true},
	{names: []string{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"}, pattern: llama3Pattern, whole: true, begins: true},
	{names: []string{"dbrx", "smaug-bpe"}, pattern: llama3Pattern},
	{names: []string{"qwen2", "deepseek-r1-qwen", "megrez"}, pattern: qwen2Pattern},
	{names: []string{"tekken"}, pattern: tekkenPattern, whole: true, begins: true},
	{names: []string{"gpt-4o", "llama4", "kanana2"}, pattern: gpt4oPattern},
}

const ggufKey = "tokenizer.ggml."

// The kinds of tokens in GGUF are those of SentencePiece, with one more.
const ggufUnused = 5

// ggufFile is the metadata as far as it is about the tokenizer.
type ggufFile struct {
	model, pre, architecture string
	tokens, merges           []string
	scores                   []float32
	types                    []int32
	values                   map[string]any
}

// FromGGUF makes a tokenizer of a GGUF file's metadata, by the keys that begin with tokenizer.ggml.
// and general.architecture. Strings are string, arrays []string, []float32 and []int32, flags bool
// and ids uint32. The model needs to be gpt2, a BPE of bytes whose text is split as pre says, or
// llama, SentencePiece's BPE. It splits text as llama.cpp does. Other keys are ignored.
func FromGGUF(metadata map[string]any) (*HuggingFace, error) {
	t, err := fromGGUF(metadata)
	if err != nil {
		return nil, fmt.Errorf("FromGGUF: %w", err)
	}
	return t, nil
}

func fromGGUF(metadata map[string]any) (*HuggingFace, error) {
	g := &ggufFile{values: metadata}
	err := errors.Join(
		take(g, ggufKey+"model", &g.model), take(g, ggufKey+"pre", &g.pre), take(g, "general.architecture", &g.architecture),
		take(g, ggufKey+"tokens", &g.tokens), take(g, ggufKey+"merges", &g.merges), take(g, ggufKey+"scores", &g.scores),
		take(g, ggufKey+"token_type", &g.types))
	if err != nil {
		return nil, err
	}
	if len(g.tokens) == 0 || len(g.tokens) > maxTokens {
		return nil, fmt.Errorf("%stokens has %d tokens, it needs 1 to %d", ggufKey, len(g.tokens), maxTokens)
	}
	if g.types != nil && len(g.types) != len(g.tokens) {
		return nil, fmt.Errorf("%stoken_type has %d elements, it needs one for each of %d tokens", ggufKey, len(g.types), len(g.tokens))
	}
	var file hfObject
	begins := true
	switch g.model {
	case "llama":
		file, err = g.sentencePiece()
	case "gpt2":
		file, begins, err = g.byteLevel()
	default:
		err = fmt.Errorf("%smodel is %q, it needs to be gpt2 or llama", ggufKey, g.model)
	}
	if err != nil {
		return nil, err
	}
	if file["post_processor"], err = g.ends(begins); err != nil {
		return nil, err
	}
	file["added_tokens"] = g.added()
	fields, err := file.file()
	if err != nil {
		return nil, err
	}
	return parseFields(fields)
}

// take sets a value where there is one, which needs to be of its type.
func take[T any](g *ggufFile, key string, into *T) error {
	value, found := g.values[key]
	if !found {
		return nil
	}
	v, ok := value.(T)
	if !ok {
		return fmt.Errorf("%s is a %T, it needs to be a %T", key, value, *into)
	}
	*into = v
	return nil
}

// sentencePiece is a model of SentencePiece's BPE.
func (g *ggufFile) sentencePiece() (hfObject, error) {
	if len(g.scores) != len(g.tokens) {
		return nil, fmt.Errorf("%sscores has %d elements, it needs one for each of %d tokens", ggufKey, len(g.scores), len(g.tokens))
	}
	gemma := strings.HasPrefix(g.architecture, "gemma")
	tokens := slices.Clone(g.tokens)
	vocab := make(map[string]int, len(tokens))
	for id, token := range tokens {
		if len(token) > longestPiece {
			return nil, fmt.Errorf("token %d has %d bytes, it may have %d", id, len(token), longestPiece)
		}
		if gemma && token != "" && strings.Trim(token, " ") == "" {
			token = strings.Repeat("▁", len(token)) // files have spaces there
			tokens[id] = token
		}
		vocab[token] = id
	}
	order := make([]int, len(tokens))
	for id := range order {
		order[id] = id
	}
	if !gemma { // whose scores are not in the order of its merges
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case g.scores[a] > g.scores[b]:
				return -1
			case g.scores[a] < g.scores[b]:
				return 1
			}
			return 0
		})
	}
	best := make([]string, len(tokens))
	for i, id := range order {
		best[i] = tokens[id]
	}
	merges, err := mergesOf(best, vocab)
	if err != nil {
		return nil, err
	}
	model := hfObject{"type": "BPE", "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": merges}
	if unknown, found, err := g.id("unknown"); err != nil {
		return nil, err
	} else if found {
		model["unk_token"] = tokens[unknown]
	}
	space := !gemma
	if err := take(g, ggufKey+"add_space_prefix", &space); err != nil {
		return nil, err
	}
	o := hfObject{"model": model, "normalizer": replace(" ", "▁"), "decoder": bytesDecoder()}
	if space {
		o["normalizer"] = normalizers(hfObject{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁"))
		o["decoder"] = bytesDecoder(hfObject{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	return o, nil
}

// byteLevel is a BPE of bytes, and whether its texts begin with a special token.
func (g *ggufFile) byteLevel() (o hfObject, begins bool, err error) {
	i := slices.IndexFunc(ggufSplits, func(s ggufSplit) bool { return slices.Contains(s.names, g.pre) })
	if i < 0 {
		return nil, false, fmt.Errorf("%spre is %q, which is not known here", ggufKey, g.pre)
	}
	s := ggufSplits[i]
	vocab := make(map[string]int, len(g.tokens))
	for id, token := range g.tokens {
		vocab[token] = id
	}
	if g.merges == nil {
		g.merges = []string{}
	}
	model := hfObject{"type": "BPE", "ignore_merges": s.whole, "vocab": vocab, "merges": g.merges}
	o = byteLevelWith(model, s.pattern)
	if s.digits {
		level := hfObject{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true}
		o["pre_tokenizer"] = preTokenizers(hfObject{"type": "Digits", "individual_digits": true}, level)
	}
	return o, s.begins, nil
}

// id is that of a special token by GGUF's name, if the file has it.
func (g *ggufFile) id(name string) (id uint32, found bool, err error) {
	key := ggufKey + name + "_token_id"
	if _, found = g.values[key]; !found {
		return 0, false, nil
	}
	if err := take(g, key, &id); err != nil {
		return 0, false, err
	}
	if int(id) >= len(g.tokens) {
		return 0, false, fmt.Errorf("%s is %d, it needs to be one of %d tokens", key, id, len(g.tokens))
	}
	return id, true, nil
}

// ends is the template of special tokens.
func (g *ggufFile) ends(begins bool) (hfObject, error) {
	ends := false
	if err := errors.Join(take(g, ggufKey+"add_bos_token", &begins), take(g, ggufKey+"add_eos_token", &ends)); err != nil {
		return nil, err
	}
	ids := map[string]int{}
	name := func(wanted bool, name string) (string, error) {
		id, found, err := g.id(name)
		if !wanted || !found || err != nil {
			return "", err
		}
		ids[g.tokens[id]] = int(id)
		return g.tokens[id], nil
	}
	bos, err := name(begins, "bos")
	if err != nil {
		return nil, err
	}
	eos, err := name(ends, "eos")
	if err != nil {
		return nil, err
	}
	return aroundEach(bos, eos).object(func(token string) (int, bool) {
		id, found := ids[token]
		return id, found
	})
}

// added are the tokens that a text is searched for first.
func (g *ggufFile) added() []hfObject {
	list := []hfObject{}
	for id, kind := range g.types {
		if (kind == spControl || kind == spUserDefined || kind == spUnknown) && g.tokens[id] != "" {
			list = append(list, hfObject{
				"id": id, "content": g.tokens[id], "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
				"special": kind != spUserDefined,
			})
		}
	}
	return list
}

// GGUF is the tokenizer as metadata of a GGUF file, by keys as [FromGGUF] reads them. Unused tokens
// fill it up to the size of the model's vocabulary. The ids of bos and eos are there as far as the
// template adds them. A tokenizer that no kind of llama.cpp's stands for is an error. Two kinds of
// prefix are the same there: llama.cpp puts a space before a text, and behind each special token.
func (t *HuggingFace) GGUF(size int) (map[string]any, error) {
	metadata, err := t.gguf(size)
	if err != nil {
		return nil, fmt.Errorf("GGUF: %w", err)
	}
	return metadata, nil
}

func (t *HuggingFace) gguf(size int) (map[string]any, error) {
	if err := t.isMade(); err != nil {
		return nil, err
	}
	if size < len(t.names) || size > maxTokens {
		return nil, fmt.Errorf("the size is %d, it needs to be from %d to %d", size, len(t.names), maxTokens)
	}
	bpe, ok := t.model.(*hfBPE)
	if !ok || bpe.prefix != "" || bpe.suffix != "" {
		return nil, errors.New("the model needs to be a BPE without prefixes and suffixes")
	}
	j, err := readHFJSON(t.source)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	if bpe.inBytes {
		err = bpe.byteLevelGGUF(j, out)
	} else {
		err = bpe.sentencePieceGGUF(j, t.names, size, out)
	}
	if err != nil {
		return nil, err
	}
	tokens, types := make([]string, size), make([]int32, size)
	added := map[int]bool{}
	for _, id := range t.added {
		added[id] = true
	}
	for id := range tokens {
		switch {
		case id >= len(t.names) || t.names[id] == "":
			tokens[id], types[id] = fmt.Sprintf("[PAD%d]", id), ggufUnused
			continue
		case t.special[id]:
			types[id] = spControl
		case added[id]:
			types[id] = spUserDefined
		default:
			types[id] = spNormal
			if _, is := byteToken(t.names[id]); is && !bpe.inBytes {
				types[id] = spByte
			}
		}
		if id == int(bpe.unknown) {
			types[id] = spUnknown
		}
		tokens[id] = t.names[id]
	}
	out[ggufKey+"tokens"], out[ggufKey+"token_type"] = tokens, types
	if bpe.unknown >= 0 {
		out[ggufKey+"unknown_token_id"] = uint32(bpe.unknown)
	}
	return out, t.endsGGUF(out)
}

// endsGGUF sets what the template does.
func (t *HuggingFace) endsGGUF(out map[string]any) error {
	parts, err := t.processor.process([]*hfPart{{Encoding: Encoding{IDs: []int{-1}}}}, true)
	if err != nil {
		return err
	}
	var ids []int
	for _, part := range parts {
		ids = append(ids, part.IDs...)
	}
	text := slices.Index(ids, -1)
	if text < 0 || text > 1 || len(ids) > text+2 {
		return errors.New("the template needs to be a text with at most a token before it and one behind it")
	}
	out[ggufKey+"add_bos_token"], out[ggufKey+"add_eos_token"] = text == 1, len(ids) == text+2
	if text == 1 {
		out[ggufKey+"bos_token_id"] = uint32(ids[0])
	}
	if len(ids) == text+2 {
		out[ggufKey+"eos_token_id"] = uint32(ids[text+1])
	}
	return nil
}

// byteLevelGGUF finds the kind of splitting.
func (b *hfBPE) byteLevelGGUF(j *hfJSON, out map[string]any) error {
	if !isNull(j.Normalizer) {
		var n hfNormalizerJSON
		if err := decodeStrictly(j.Normalizer, &n); err != nil || n.Type != "NFC" {
			return fmt.Errorf("the normalizer %.60s has no kind there, only NFC is left to it", j.Normalizer)
		}
	}
	var p hfSplitterJSON
	if err := decodeStrictly(j.PreTokenizer, &p); err != nil {
		return err
	}
	kind := p.ggufSplit(b.ignoreMerges)
	if kind == nil {
		return fmt.Errorf("the pre_tokenizer %.100s has no kind there", j.PreTokenizer)
	}
	var model hfBPEJSON
	if err := decodeStrictly(j.Model, &model); err != nil {
		return err
	}
	merges := make([]string, len(model.Merges))
	for i, m := range model.Merges {
		if strings.Contains(m[0], " ") || strings.Contains(m[1], " ") {
			return fmt.Errorf("the merge of %q and %q has a space", m[0], m[1])
		}
		merges[i] = m[0] + " " + m[1]
	}
	out[ggufKey+"model"], out[ggufKey+"pre"], out[ggufKey+"merges"] = "gpt2", kind.names[0], merges
	return nil
}

// ggufSplit is the kind of a splitter, nil for none.
func (p *hfSplitterJSON) ggufSplit(whole bool) *ggufSplit {
	steps := p.Pretokenizers
	if p.Type != "Sequence" {
		steps = []hfSplitterJSON{*p}
	}
	if len(steps) == 0 || len(steps) > 2 {
		return nil
	}
	last := steps[len(steps)-1]
	if last.Type != "ByteLevel" || last.AddPrefixSpace == nil || *last.AddPrefixSpace {
		return nil
	}
	regex := last.UseRegex == nil || *last.UseRegex
	pattern, digits := gpt2Pattern, false
	if len(steps) == 2 {
		first := steps[0]
		switch {
		case first.Type == "Digits" && first.Individual && regex:
			digits = true
		case first.Type == "Split" && first.Behavior == "Isolated" && first.Pattern.Regex != nil && !regex:
			pattern = *first.Pattern.Regex
		default:
			return nil
		}
	} else if !regex {
		return nil
	}
	var found *ggufSplit
	for i := range ggufSplits {
		s := &ggufSplits[i]
		if s.pattern == pattern && s.digits == digits && (found == nil || s.whole == whole) {
			found = s
		}
	}
	return found
}

// sentencePieceGGUF writes merges as scores, where they are SentencePiece's.
func (b *hfBPE) sentencePieceGGUF(j *hfJSON, names []string, size int, out map[string]any) error {
	if !b.byteFallback {
		return errors.New("a BPE of characters needs byte_fallback")
	}
	space, err := j.prefixSpace()
	if err != nil {
		return err
	}
	ranks := make([]int32, size)
	for id := range ranks {
		ranks[id] = math.MaxInt32
	}
	last := int32(-1)
	joined := map[int32]bool{}
	inOrder := make([]merged, 0, b.merges.count)
	for _, m := range b.merges.all() {
		inOrder = append(inOrder, m)
	}
	slices.SortFunc(inOrder, func(x, y merged) int { return int(x.rank) - int(y.rank) })
	for _, m := range inOrder {
		if m.joined != last && joined[m.joined] {
			return fmt.Errorf("merges that make %q are not side by side, which scores cannot say", names[m.joined])
		}
		last, joined[m.joined] = m.joined, true
		ranks[m.joined] = min(ranks[m.joined], m.rank)
	}
	count := 0
	for token := range b.ids {
		for at := range token {
			left, isLeft := b.ids[token[:at]]
			right, isRight := b.ids[token[at:]]
			if at == 0 || !isLeft || !isRight {
				continue
			}
			if _, found := b.merges.find(pair{left, right}); !found {
				return fmt.Errorf("%q and %q make a token but no merge joins them, which scores cannot say", token[:at], token[at:])
			}
			count++
		}
	}
	if count != b.merges.count {
		return fmt.Errorf("%d merges are no cuts of tokens, which scores cannot say", b.merges.count-count)
	}
	scores := make([]float32, size)
	for id, name := range names {
		switch {
		case ranks[id] < math.MaxInt32:
			scores[id] = -1 - float32(ranks[id])
		case utf8.RuneCountInString(name) > 1:
			scores[id] = -1e9
		}
	}
	out[ggufKey+"model"], out[ggufKey+"pre"], out[ggufKey+"scores"] = "llama", "default", scores
	out[ggufKey+"add_space_prefix"] = space
	return nil
}

// prefixSpace reports whether a space is put before a text, for the steps of SentencePiece's BPE.
func (j *hfJSON) prefixSpace() (bool, error) {
	steps := []hfNormalizerJSON{}
	var n hfNormalizerJSON
	if !isNull(j.Normalizer) {
		if err := decodeStrictly(j.Normalizer, &n); err != nil {
			return false, err
		}
		steps = append(steps, n)
		if n.Type == "Sequence" {
			steps = n.Normalizers
		}
	}
	space, spaces := false, false
	for _, step := range steps {
		switch {
		case step.Type == "Prepend" && step.Prepend == "▁":
			space = true
		case step.Type == "Replace" && step.Pattern.String != nil && *step.Pattern.String == " " && step.Content == "▁":
			spaces = true
		default:
			return false, fmt.Errorf("the normalizer %.60s has no kind there", j.Normalizer)
		}
	}
	var p hfSplitterJSON
	if !isNull(j.PreTokenizer) {
		if err := decodeStrictly(j.PreTokenizer, &p); err != nil {
			return false, err
		}
	}
	switch {
	case p.Type == "" && spaces:
	case p.Type == "Split" && p.Pattern.String != nil && *p.Pattern.String == " " && spaces: // which is gone by then
	case p.Type == "Metaspace" && p.Replacement == "▁" && p.Split != nil && !*p.Split:
		space = space || p.PrependScheme != "never"
	default:
		return false, fmt.Errorf("the pre_tokenizer %.60s has no kind there", j.PreTokenizer)
	}
	return space, nil
}
