package tokenizer

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
)

// sentencePieceFiles are the names that a SentencePiece model has in a folder, by the class that
// reads it.
var sentencePieceFiles = []string{"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model"}

// spmClass is how one of transformers' classes makes a tokenizer of a SentencePiece model.
type spmClass struct {
	kind    uint64            // of model that it needs, 0 for either
	special map[string]string // its special tokens by name, where the folder says nothing of them
	build   func(*spmBuild) error
}

// spmClasses are by the class that tokenizer_config.json names.
var spmClasses = map[string]spmClass{
	"":                    {0, nil, (*spmBuild).plain},
	"TokenizersBackend":   {0, nil, (*spmBuild).plain},
	"PreTrainedTokenizer": {0, nil, (*spmBuild).plain},
	"LlamaTokenizer":      {spBPE, map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, (*spmBuild).llama},
	"GemmaTokenizer": {
		spBPE, map[string]string{
			"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>",
		},
		(*spmBuild).gemma,
	},
	"T5Tokenizer":         {spUnigram, map[string]string{"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}, (*spmBuild).t5},
	"XLMRobertaTokenizer": {spUnigram, robertaTokens, (*spmBuild).xlmRoberta},
	"CamembertTokenizer":  {spUnigram, robertaTokens, (*spmBuild).camembert},
	"DebertaV2Tokenizer":  {spUnigram, bracketTokens("[UNK]", "[PAD]"), (*spmBuild).debertaV2},
	"AlbertTokenizer":     {spUnigram, bracketTokens("<unk>", "<pad>"), (*spmBuild).albert},
}

var robertaTokens = map[string]string{
	"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>",
	"mask_token": "<mask>",
}

func bracketTokens(unk, pad string) map[string]string {
	return map[string]string{
		"bos_token": "[CLS]", "eos_token": "[SEP]", "sep_token": "[SEP]", "cls_token": "[CLS]", "unk_token": unk, "pad_token": pad,
		"mask_token": "[MASK]",
	}
}

// spmBuild is a tokenizer.json while it is made of a SentencePiece model.
type spmBuild struct {
	*hfFolder
	*sentencePiece
	json hfObject
}

// sentencePiece makes a tokenizer.json of a SentencePiece model, as the class does.
func (f *hfFolder) sentencePiece(content []byte) (map[string]json.RawMessage, error) {
	c, found := spmClasses[f.class]
	if !found {
		return nil, fmt.Errorf("the class %q is not known here for a SentencePiece model", f.class)
	}
	m, err := readSentencePiece(content)
	if err != nil {
		return nil, err
	}
	if c.kind != 0 && c.kind != m.kind {
		return nil, fmt.Errorf("its model_type is %d, the class %q needs %d", m.kind, f.class, c.kind)
	}
	f.setDefaults(c.special)
	f.extra = nil // as transformers has it: those of the model take the place of those of the folder
	for _, piece := range m.pieces {
		if piece.kind == spControl || piece.kind == spUserDefined {
			f.extra = append(f.extra, hfAddedJSON{Content: piece.text, Special: piece.kind == spControl})
		}
	}
	b := &spmBuild{f, m, hfObject{}}
	if err := c.build(b); err != nil {
		return nil, err
	}
	return b.json.file()
}

// score is a token of a Unigram model.
func score(token string, score float64) []any { return []any{token, score} }

// scores are the pieces from the first on, with their scores.
func (b *spmBuild) scores(first int) [][]any {
	list := [][]any{}
	for _, piece := range b.pieces[min(first, len(b.pieces)):] {
		list = append(list, score(piece.text, float64(piece.score)))
	}
	return list
}

// unigram sets the model; unknown is the place of the unknown token in vocab.
func (b *spmBuild) unigram(vocab [][]any, unknown int, byteFallback bool) {
	b.json["model"] = hfObject{"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": byteFallback}
}

// bpe sets the model; unknown is a token, or empty for none.
func (b *spmBuild) bpe(unknown string) error {
	vocab := make(map[string]int, len(b.pieces))
	for id, piece := range b.pieces {
		vocab[piece.text] = id
	}
	tokens := make([]string, len(b.pieces))
	for id, piece := range b.pieces {
		tokens[id] = piece.text
	}
	merges, err := mergesOf(tokens, vocab)
	if err != nil {
		return err
	}
	model := hfObject{"type": "BPE", "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": merges}
	if unknown != "" {
		model["unk_token"] = unknown
	}
	b.json["model"] = model
	return nil
}

// mergesOf lists the pairs of tokens that make a token. SentencePiece keeps no merges: it joins the
// pair whose token is best, and tokens are in that order.
func mergesOf(tokens []string, ids map[string]int) ([][2]string, error) {
	merges := newMerges(tokens)
	for _, token := range tokens {
		for at := range token {
			if at == 0 {
				continue
			}
			_, left := ids[token[:at]]
			_, right := ids[token[at:]]
			if left && right {
				merges.add(token[:at], token[at:])
			}
		}
		if merges.err != nil {
			break
		}
	}
	return merges.list, merges.err
}

// merges are pairs that make tokens. A token of n bytes can be made in n−1 ways, so that a file of
// few tokens could ask for very many.
type merges struct {
	list [][2]string
	left int // bytes
	err  error
}

// mergeBytes is how many bytes of merges there can be for each of the tokens.
const mergeBytes = 64

func newMerges(tokens []string) *merges {
	m := &merges{list: [][2]string{}, left: 1 << 20}
	for _, token := range tokens {
		m.left += mergeBytes * len(token)
	}
	return m
}

func (m *merges) add(left, right string) {
	if m.left -= len(left) + len(right); m.left < 0 {
		m.err = fmt.Errorf("its tokens can be made of each other in too many ways: merges would have more than %d times their bytes", mergeBytes)
		return
	}
	m.list = append(m.list, [2]string{left, right})
}

// precompiled is the model's own normaliser, if it has one.
func (b *spmBuild) precompiled() []any {
	if len(b.charsMap) == 0 {
		return nil
	}
	return []any{hfObject{"type": "Precompiled", "precompiled_charsmap": base64.StdEncoding.EncodeToString(b.charsMap)}}
}

func replace(from, to string) hfObject {
	return hfObject{"type": "Replace", "pattern": hfObject{"String": from}, "content": to}
}

func metaspace(scheme string, split bool) hfObject {
	return hfObject{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
}

func normalizers(list ...any) hfObject { return hfObject{"type": "Sequence", "normalizers": list} }

func preTokenizers(list ...any) hfObject { return hfObject{"type": "Sequence", "pretokenizers": list} }

// bytesDecoder makes text of pieces and byte tokens.
func bytesDecoder(more ...any) hfObject {
	list := []any{replace("▁", " "), hfObject{"type": "ByteFallback"}, hfObject{"type": "Fuse"}}
	return hfObject{"type": "Sequence", "decoders": append(list, more...)}
}

// inWords is what the encoders do: white space cuts a text into words, each with a space before it.
func (b *spmBuild) inWords() {
	scheme := "never"
	if b.bool("add_prefix_space", true) {
		scheme = "always"
	}
	b.json["pre_tokenizer"] = preTokenizers(hfObject{"type": "WhitespaceSplit"}, metaspace(scheme, true))
	b.json["decoder"] = metaspace(scheme, true)
}

func (b *spmBuild) llama() error {
	if err := b.bpe(""); err != nil {
		return err
	}
	space := b.bool("add_prefix_space", true)
	scheme := "never"
	switch {
	case space && b.bool("legacy", false):
		scheme = "always"
	case space:
		scheme = "first"
	}
	b.json["pre_tokenizer"], b.json["decoder"] = metaspace(scheme, false), bytesDecoder()
	if space {
		b.json["decoder"] = bytesDecoder(hfObject{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	return nil
}

func (b *spmBuild) gemma() error {
	if err := b.bpe(b.named["unk_token"].Content); err != nil {
		return err
	}
	b.json["normalizer"] = replace(" ", "▁")
	b.json["pre_tokenizer"] = hfObject{
		"type": "Split", "pattern": hfObject{"String": " "}, "behavior": "MergedWithPrevious", "invert": false,
	}
	b.json["decoder"] = bytesDecoder()
	return nil
}

func (b *spmBuild) t5() error {
	vocab := b.scores(0)
	sentinels := b.number("extra_ids", 100)
	if sentinels < 0 || sentinels > mostFiller {
		return fmt.Errorf("extra_ids is %d, it needs to be from 0 to %d", sentinels, mostFiller)
	}
	for i := sentinels - 1; i >= 0; i-- {
		token := fmt.Sprintf("<extra_id_%d>", i)
		b.extra = append(b.extra, hfAddedJSON{Content: token, Special: true})
		vocab = append(vocab, score(token, 0))
	}
	if len(vocab) < 3 {
		return fmt.Errorf("it has %d pieces, T5 needs at least 3", len(vocab))
	}
	b.unigram(vocab, 2, false)
	if list := b.precompiled(); list != nil {
		b.json["normalizer"] = list[0]
	}
	b.inWords()
	eos := b.named["eos_token"].Content
	b.around = inTemplate([]string{"$A", eos}, []string{"$A", eos, "$B", eos})
	return nil
}

func (b *spmBuild) xlmRoberta() error {
	bos, eos := b.named["bos_token"].Content, b.named["eos_token"].Content
	vocab := [][]any{score(bos, 0), score(b.named["pad_token"].Content, 0), score(eos, 0), score(b.named["unk_token"].Content, 0)}
	vocab = append(append(vocab, b.scores(3)...), score(b.named["mask_token"].Content, 0))
	b.unigram(vocab, 3, false)
	return b.roberta(bos, eos)
}

func (b *spmBuild) camembert() error {
	vocab := [][]any{
		score("<s>NOTUSED", 0), score(b.named["pad_token"].Content, 0), score("</s>NOTUSED", 0), score(b.named["unk_token"].Content, 0),
		score("<unk>NOTUSED", -100),
	}
	vocab = append(append(vocab, b.scores(1)...), score(b.named["mask_token"].Content, 0))
	b.unigram(vocab, 3, false)
	var object map[string]json.RawMessage
	if mask := b.named["mask_token"]; json.Unmarshal(b.fields["mask_token"], &object) != nil {
		mask.LStrip = true
		b.named["mask_token"] = mask
	}
	return b.roberta(b.named["bos_token"].Content, b.named["eos_token"].Content)
}

// roberta is what XLM-R and CamemBERT share.
func (b *spmBuild) roberta(bos, eos string) error {
	if list := b.precompiled(); list != nil {
		b.json["normalizer"] = list[0]
	}
	b.inWords()
	b.around = inTemplate([]string{bos, "$A", eos}, []string{bos, "$A", eos, eos, "$B", eos})
	return nil
}

func (b *spmBuild) debertaV2() error {
	unknown := slices.IndexFunc(b.pieces, func(p spPiece) bool { return p.text == b.named["unk_token"].Content && p.score == 0 })
	if unknown < 0 {
		unknown = b.unknown.id
	}
	b.unigram(b.scores(0), unknown, false)
	list := []any{
		hfObject{"type": "Replace", "pattern": hfObject{"Regex": `\s{2,}|[\n\r\t]`}, "content": " "}, hfObject{"type": "NFC"},
		hfObject{"type": "Strip", "strip_left": false, "strip_right": true},
	}
	if b.bool("do_lower_case", false) {
		list = append([]any{hfObject{"type": "Lowercase"}}, list...)
	}
	b.json["normalizer"] = normalizers(list...)
	scheme := "first"
	if b.bool("add_prefix_space", true) {
		scheme = "always"
	}
	steps := []any{metaspace(scheme, true)}
	if b.bool("split_by_punct", false) {
		steps = append([]any{hfObject{"type": "Punctuation", "behavior": "Isolated"}}, steps...)
	}
	b.json["pre_tokenizer"], b.json["decoder"] = preTokenizers(steps...), metaspace(scheme, true)
	b.around = bracketed(b.named["cls_token"].Content, b.named["sep_token"].Content)
	return nil
}

func (b *spmBuild) albert() error {
	if len(b.pieces) < 2 {
		return fmt.Errorf("it has %d pieces, ALBERT needs at least 2", len(b.pieces))
	}
	b.unigram(b.scores(0), 1, false)
	list := []any{replace("``", `"`), replace("''", `"`)}
	if !b.bool("keep_accents", false) {
		list = append(list, hfObject{"type": "NFKD"}, hfObject{"type": "StripAccents"})
	}
	if b.bool("do_lower_case", true) {
		list = append(list, hfObject{"type": "Lowercase"})
	}
	b.json["normalizer"] = normalizers(append(list, b.precompiled()...)...)
	b.inWords()
	b.around = bracketed(b.named["cls_token"].Content, b.named["sep_token"].Content)
	return nil
}

// plain is for folders that name no class.
func (b *spmBuild) plain() error {
	tokens := map[string]string{"unk_token": b.unknown.text}
	if b.begin.id >= 0 {
		tokens["bos_token"] = b.begin.text
	}
	if b.end.id >= 0 {
		tokens["eos_token"] = b.end.text
	}
	b.setDefaults(tokens)
	if b.kind == spBPE {
		if err := b.bpe(b.unknown.text); err != nil {
			return err
		}
		b.json["model"].(hfObject)["byte_fallback"] = b.byteFallback
	} else {
		b.unigram(b.scores(0), b.unknown.id, b.byteFallback)
	}
	b.json["normalizer"] = normalizers(append(b.precompiled(), replace(" ", "▁"))...)
	b.json["decoder"] = hfObject{"type": "Sequence", "decoders": []any{replace("▁", " ")}}
	if b.byteFallback {
		b.json["decoder"] = bytesDecoder()
	}
	return nil
}
