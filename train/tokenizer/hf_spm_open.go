package tokenizer

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// sentencePieceFiles are the names that a SentencePiece model has in a folder, by the class that
// reads it.
var sentencePieceFiles = []string{"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model"}

// spmModels make the model of a class's tokenizer of the pieces, by the class. The rest of it is in
// hfClasses.
var spmModels = map[string]func(*spmBuild) error{
	"LlamaTokenizer": (*spmBuild).bpe, "GemmaTokenizer": (*spmBuild).bpe, "T5Tokenizer": (*spmBuild).t5Pieces,
	"XLMRobertaTokenizer": (*spmBuild).xlmRobertaPieces, "CamembertTokenizer": (*spmBuild).camembertPieces,
	"DebertaV2Tokenizer": (*spmBuild).debertaV2Pieces, "AlbertTokenizer": (*spmBuild).albertPieces,
}

// spmBuild is a tokenizer.json while it is made of a SentencePiece model.
type spmBuild struct {
	*hfBuild
	*sentencePiece
}

// sentencePiece makes a tokenizer.json of a SentencePiece model, as the class does.
func (f *hfFolder) sentencePiece(content []byte) (map[string]json.RawMessage, error) {
	if f.asItIs {
		f.class = ""
	}
	build, found := spmModels[f.class]
	plain := f.class == "" || f.class == "TokenizersBackend" || f.class == "PreTrainedTokenizer"
	if !found && !plain {
		return nil, fmt.Errorf("the class %q is not known here for a SentencePiece model", f.class)
	}
	m, err := readSentencePiece(content)
	if err != nil {
		return nil, err
	}
	c := hfClasses[f.class]
	kind := map[string]uint64{"BPE": spBPE, "Unigram": spUnigram}[c.model]
	if kind != 0 && kind != m.kind {
		return nil, fmt.Errorf("its model_type is %d, the class %q needs %d", m.kind, f.class, kind)
	}
	f.setDefaults(c.special)
	f.extra = nil // as transformers has it: those of the model take the place of those of the folder
	for _, piece := range m.pieces {
		if piece.kind == spControl || piece.kind == spUserDefined {
			f.extra = append(f.extra, hfAddedJSON{Content: piece.text, Special: piece.kind == spControl})
		}
	}
	b := &spmBuild{&hfBuild{f, hfObject{}, hfObject{}, ""}, m}
	if len(m.charsMap) > 0 {
		b.table = base64.StdEncoding.EncodeToString(m.charsMap)
	}
	if plain {
		build, c.steps = (*spmBuild).plain, nil
	}
	if err := build(b); err != nil {
		return nil, err
	}
	if c.steps != nil {
		if err := c.steps(b.hfBuild); err != nil {
			return nil, err
		}
	}
	return b.file()
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

// bpe makes a model of merges.
func (b *spmBuild) bpe() error {
	vocab := make(map[string]int, len(b.pieces))
	for id, piece := range b.pieces {
		vocab[piece.text] = id
	}
	tokens := make([]string, len(b.pieces))
	for id, piece := range b.pieces {
		tokens[id] = piece.text
	}
	merges, err := mergesOf(tokens, vocab)
	b.model["vocab"], b.model["merges"] = vocab, merges
	return err
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

// t5Pieces are the pieces, and sentinels behind them.
func (b *spmBuild) t5Pieces() error {
	vocab := b.scores(0)
	sentinels, err := b.sentinels()
	if err != nil {
		return err
	}
	for i := len(sentinels) - 1; i >= 0; i-- {
		vocab = append(vocab, score(sentinels[i], 0))
		b.extra = append(b.extra, hfAddedJSON{Content: sentinels[i], Special: true})
	}
	if len(vocab) < 3 {
		return fmt.Errorf("it has %d pieces, T5 needs at least 3", len(vocab))
	}
	b.model["vocab"] = vocab
	return nil
}

func (b *spmBuild) xlmRobertaPieces() error {
	bos, eos := b.named["bos_token"].Content, b.named["eos_token"].Content
	vocab := [][]any{score(bos, 0), score(b.named["pad_token"].Content, 0), score(eos, 0), score(b.named["unk_token"].Content, 0)}
	b.model["vocab"] = append(append(vocab, b.scores(3)...), score(b.named["mask_token"].Content, 0))
	return nil
}

func (b *spmBuild) camembertPieces() error {
	vocab := [][]any{
		score("<s>NOTUSED", 0), score(b.named["pad_token"].Content, 0), score("</s>NOTUSED", 0), score(b.named["unk_token"].Content, 0),
		score("<unk>NOTUSED", -100),
	}
	b.model["vocab"] = append(append(vocab, b.scores(1)...), score(b.named["mask_token"].Content, 0))
	return nil
}

func (b *spmBuild) debertaV2Pieces() error {
	b.model["vocab"], b.model["unk_id"] = b.scores(0), b.unknown.id
	return nil
}

func (b *spmBuild) albertPieces() error {
	if len(b.pieces) < 2 {
		return fmt.Errorf("it has %d pieces, ALBERT needs at least 2", len(b.pieces))
	}
	b.model["vocab"] = b.scores(0)
	return nil
}

// plain is for folders that name no class. It follows the settings of the model itself.
func (b *spmBuild) plain() error {
	tokens := map[string]string{"unk_token": b.unknown.text}
	if b.begin.id >= 0 {
		tokens["bos_token"] = b.begin.text
	}
	if b.end.id >= 0 {
		tokens["eos_token"] = b.end.text
	}
	b.setDefaults(tokens)
	b.rename()
	var whole []string // pieces that are never joined or cut
	for _, piece := range b.pieces {
		if piece.kind == spUserDefined {
			whole = append(whole, piece.text)
		}
	}
	b.extra = slices.DeleteFunc(b.extra, func(a hfAddedJSON) bool { return !a.Special })
	if b.kind == spBPE {
		if err := b.ranked(); err != nil {
			return err
		}
		b.model["type"], b.model["fuse_unk"], b.model["unk_token"] = "BPE", true, b.unknown.text
		b.model["ignore_merges"] = len(whole) > 0
	} else {
		b.model["type"], b.model["vocab"], b.model["unk_id"] = "Unigram", b.scores(0), b.unknown.id
	}
	b.model["byte_fallback"] = b.byteFallback
	b.plainSteps(whole)
	return nil
}

// rename gives pieces the names that added_tokens_decoder has for their ids, unless another piece
// keeps that name.
func (b *spmBuild) rename() {
	names, kept := map[int]string{}, map[string]bool{}
	for _, a := range b.added {
		names[a.ID] = a.Content
	}
	for id, piece := range b.pieces {
		if _, renamed := names[id]; !renamed {
			kept[piece.text] = true
		}
	}
	for id := range b.pieces {
		if name := names[id]; name != "" && !kept[name] {
			b.pieces[id].text = name
		}
	}
	for i := range b.added {
		if b.dummyPrefix && !isNull(b.fields["added_tokens_decoder"]) {
			b.added[i].Normalized = false
		}
	}
}

// ranked makes a model of merges, of normal pieces alone, the best first.
func (b *spmBuild) ranked() error {
	vocab, normal := make(map[string]int, len(b.pieces)), map[string]int{}
	var tokens []string
	for id, piece := range b.pieces {
		vocab[piece.text] = id
		if piece.kind == spNormal {
			normal[piece.text] = id
			tokens = append(tokens, piece.text)
		}
	}
	slices.SortStableFunc(tokens, func(x, y string) int {
		return cmp.Compare(b.pieces[normal[y]].score, b.pieces[normal[x]].score)
	})
	merges, err := mergesOf(tokens, normal)
	b.model["vocab"], b.model["merges"] = vocab, merges
	return err
}

// plainSteps sets all but the model, with pieces that stay whole.
func (b *spmBuild) plainSteps(whole []string) {
	list := b.precompiled()
	if b.trimSpaces {
		list = append(list, replaceAll(`\A +| +\z`, ""), replaceAll(" {2,}", " "))
	}
	list = append(list, replace(" ", "▁"))
	scheme := "first"
	if b.bool("legacy", true) {
		scheme = "always"
	}
	var split []any
	decoders := []any{replace("▁", " ")}
	if b.byteFallback {
		decoders = append(decoders, hfObject{"type": "ByteFallback"})
	}
	switch {
	case b.dummyPrefix:
		if scheme == "always" {
			list = append(list, replaceAll(`\A▁`, "▁▁"))
		}
		split = append(split, metaspace(scheme, false))
		decoders = append(decoders, hfObject{"type": "Fuse"}, strip(1, 0))
	case b.byteFallback:
		decoders = append(decoders, hfObject{"type": "Fuse"})
	}
	if len(whole) > 0 {
		slices.SortStableFunc(whole, func(x, y string) int {
			return utf8.RuneCountInString(y) - utf8.RuneCountInString(x)
		})
		for i, piece := range whole {
			whole[i] = regexp.QuoteMeta(piece)
		}
		split = append(split, splitBy("Regex", strings.Join(whole, "|"), "Isolated", false))
	}
	b.steps["normalizer"] = normalizers(list...)
	if len(split) > 0 {
		b.steps["pre_tokenizer"] = preTokenizers(split...)
	}
	b.steps["decoder"] = hfObject{"type": "Sequence", "decoders": decoders}
}
