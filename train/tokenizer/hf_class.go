package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// hfClass is how one of transformers' classes makes a tokenizer. It takes the model's tokens and
// merges from a file, all else is its own.
type hfClass struct {
	model   string            // the type that its model needs
	special map[string]string // its special tokens by name, where the folder says nothing of them
	steps   func(*hfBuild) error
	// extra are further special tokens, where the folder says nothing of those.
	extra func(*hfBuild) ([]string, error)
	// template is set where its own template counts only if a tokenizer.json has none.
	template bool
	inBytes  bool // its tokens are of bytes, older files of it vocab.json and merges.txt
}

// hfClasses are the classes that are known here, by their names without Fast.
var hfClasses = map[string]hfClass{
	"AlbertTokenizer": {
		model: "Unigram", special: bracketTokens("<unk>", "<pad>"), steps: (*hfBuild).albert,
		template: true,
	},
	"BartTokenizer": {
		model: "BPE", special: robertaTokens, steps: (*hfBuild).roberta, inBytes: true,
	},
	"BertTokenizer": {model: "WordPiece", special: bertTokens, steps: (*hfBuild).bert},
	"CamembertTokenizer": {
		model: "Unigram", special: robertaTokens, steps: (*hfBuild).camembert,
		extra: func(*hfBuild) ([]string, error) {
			return []string{"<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"}, nil
		},
	},
	"CLIPTokenizer":    {model: "BPE", special: clipTokens, steps: (*hfBuild).clip, inBytes: true},
	"CodeGenTokenizer": {model: "BPE", special: gpt2Tokens, steps: (*hfBuild).gpt2, inBytes: true},
	"CohereTokenizer":  {model: "BPE", special: cohereTokens, steps: (*hfBuild).cohere},
	"DebertaTokenizer": {
		model: "BPE", special: debertaTokens, steps: (*hfBuild).deberta, inBytes: true,
	},
	"DebertaV2Tokenizer":  {model: "Unigram", special: debertaTokens, steps: (*hfBuild).debertaV2},
	"DistilBertTokenizer": {model: "WordPiece", special: bertTokens, steps: (*hfBuild).bert},
	"ElectraTokenizer":    {model: "WordPiece", special: bertTokens, steps: (*hfBuild).bert},
	"GemmaTokenizer":      {model: "BPE", special: gemmaTokens, steps: (*hfBuild).gemma},
	"GPT2Tokenizer": {
		model: "BPE", special: gpt2Tokens, steps: (*hfBuild).gpt2, inBytes: true,
	},
	"GPTNeoXTokenizer": {model: "BPE", special: neoxTokens, steps: (*hfBuild).neox},
	"LlamaTokenizer":   {model: "BPE", special: llamaTokens, steps: (*hfBuild).llama},
	"MPNetTokenizer":   {model: "WordPiece", special: mpnetTokens, steps: (*hfBuild).mpnet},
	"Qwen2Tokenizer": {
		model: "BPE", special: qwen2Tokens, steps: (*hfBuild).qwen2, inBytes: true,
	},
	"RobertaTokenizer": {
		model: "BPE", special: robertaTokens, steps: (*hfBuild).roberta, inBytes: true,
	},
	"T5Tokenizer": {
		model: "Unigram", special: t5Tokens, steps: (*hfBuild).t5, extra: (*hfBuild).sentinels,
	},
	"XLMRobertaTokenizer": {model: "Unigram", special: robertaTokens, steps: (*hfBuild).xlmRoberta},
}

var (
	bertTokens = map[string]string{
		"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
		"mask_token": "[MASK]",
	}
	clipTokens = map[string]string{
		"unk_token": EndOfText, "bos_token": "<|startoftext|>", "eos_token": EndOfText,
		"pad_token": EndOfText,
	}
	cohereTokens = map[string]string{
		"unk_token": "<UNK>", "bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>",
		"pad_token": "<PAD>", "cls_token": "<CLS>", "sep_token": "<SEP>",
		"mask_token": "<MASK_TOKEN>",
	}
	gemmaTokens = map[string]string{
		"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>",
		"mask_token": "<mask>",
	}
	debertaTokens = bracketTokens("[UNK]", "[PAD]")
	gpt2Tokens    = map[string]string{
		"unk_token": EndOfText, "bos_token": EndOfText, "eos_token": EndOfText,
	}
	llamaTokens = map[string]string{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
	mpnetTokens = map[string]string{
		"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>",
		"unk_token": "[UNK]", "pad_token": "<pad>", "mask_token": "<mask>",
	}
	neoxTokens = map[string]string{
		"unk_token": EndOfText, "bos_token": EndOfText, "eos_token": EndOfText,
		"pad_token": "<|padding|>",
	}
	qwen2Tokens = map[string]string{
		"unk_token": EndOfText, "eos_token": EndOfText, "pad_token": EndOfText,
	}
	robertaTokens = map[string]string{
		"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>",
		"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>",
	}
	t5Tokens = map[string]string{"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
)

// clipPattern finds what CLIP takes for words.
const clipPattern = `<\|startoftext\|>|<\|endoftext\|>` +
	`|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`

// pythonSpaces finds what Python's strip takes away.
const pythonSpaces = `\A[\s\x1c-\x1f]+|[\s\x1c-\x1f]+\z`

func bracketTokens(unk, pad string) map[string]string {
	return map[string]string{
		"bos_token": "[CLS]", "eos_token": "[SEP]", "sep_token": "[SEP]", "cls_token": "[CLS]",
		"unk_token": unk, "pad_token": pad, "mask_token": "[MASK]",
	}
}

// asItIs is the class of tokenizers that are read from tokenizer.json without a change. For a model
// to which hfModelClasses gives this class, the class that its folder names does not count.
const asItIs = "TokenizersBackend"

// hfModelClasses are transformers' classes by model_type.
var hfModelClasses = listed(map[string]string{
	asItIs: `EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm
		cohere_asr ernie4_5 ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe glm4_moe_lite
		glm4v glm4v_moe glm_image glmasr got_ocr2 gpt_bigcode granite granitemoe
		granitemoehybrid granitemoeshared h2ovl_chat hyperclovax hyperclovax_vlm internlm2
		internlm3 iquestcoder jamba kimi_k25 kimi_linear kosmos-2 llava llava_next
		mimo_v2_flash minicpm3 minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2
		ministral ministral3 mistral mistral3 mistral_large4 mixtral modernbert
		modernbert-decoder molmo molmo2 nemo_speechlm nemotron nvfp4 nystromformer olmo2
		olmo3 olmo_hybrid omniasr opencua openvla paddleocr_vl pegasus_x persimmon phi3
		phi3_v phimoe pix2struct pixtral smolvlm stablelm step3_vl umt5 vipllava voxtral
		voxtral_realtime xlm-roberta-xl`,
	"AlbertTokenizer": "albert yoso",
	"BertTokenizer": `align bark bert blip bros chinese_clip convbert distilbert electra ernie flava git
		grounding-dino layoutlm megatron-bert mm-grounding-dino nezha nomic_bert qdqbert
		realm retribert squeezebert tvp vilt visual_bert`,
	"BigBirdTokenizer":   "big_bird",
	"CamembertTokenizer": "camembert",
	"CLIPTokenizer":      `aimv2 clip clipseg groupvit omdet-turbo oneformer owlv2 owlvit sam3 sam3_video xclip`,
	"CohereTokenizer":    "aya_vision cohere cohere2",
	"DebertaTokenizer":   "deberta",
	"DebertaV2Tokenizer": "deberta-v2",
	"GemmaTokenizer": `diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma
		shieldgemma2 t5gemma zaya`,
	"GPT2Tokenizer": `blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip
		instructblipvideo jais2 opt phi starcoder2`,
	"GPTNeoXTokenizer": "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm",
	"LlamaTokenizer":   "idefics idefics2",
	"MarianTokenizer":  "marian",
	"MBartTokenizer":   "mbart",
	"MPNetTokenizer":   "mpnet",
	"PegasusTokenizer": "pegasus",
	"Qwen2Tokenizer": `audioflamingo3 colqwen2 dots3_note hunyuan_vl internvl lighton_ocr ovis2 qianfan_ocr
		qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_asr
		qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice`,
	"RobertaTokenizer": `bart bridgetower clap data2vec-text ibert lilt longformer mega mra roberta
		roberta-prelayernorm`,
	"SiglipTokenizer":     "siglip",
	"T5Tokenizer":         "mt5 musicgen musicgen_melody switch_transformers t5",
	"WhisperTokenizer":    "whisper",
	"XLMRobertaTokenizer": "gte jina_embeddings_v3 metaclip_2 trocr xlm-roberta xmod",
	"XLNetTokenizer":      "xlnet",
})

func listed(models map[string]string) map[string]string {
	classes := map[string]string{}
	for class, list := range models {
		for _, model := range strings.Fields(list) {
			classes[model] = class
		}
	}
	return classes
}

// hfModelConfig is what config.json says of the tokenizer.
type hfModelConfig struct {
	Class string `json:"tokenizer_class"`
	Type  string `json:"model_type"`
}

func (f *hfFolder) model() (m hfModelConfig, err error) {
	_, err = f.read("config.json", &m)
	m.Class = strings.TrimSuffix(m.Class, "Fast")
	return m, err
}

// classOf is the class that AutoTokenizer takes for a folder with a tokenizer.json. That is read as
// it is if the class is not in hfClasses. inBytes says whether the file names ByteLevel.
func (f *hfFolder) classOf(m hfModelConfig, inBytes bool) string {
	named, registered := cmp.Or(f.class, m.Class), hfModelClasses[m.Type]
	switch {
	case named == "" || m.Type == "qwen2": // whose folders often name other classes
		return registered
	case registered == asItIs || named == "LlamaTokenizer" && inBytes:
		return asItIs
	}
	return named
}

// rebuild makes a tokenizer.json anew if the folder's class does so: it keeps the tokens, the
// merges, the lengths and, of some classes, the template.
func (f *hfFolder) rebuild(file map[string]json.RawMessage, m hfModelConfig) (bool, error) {
	inBytes := false
	for _, part := range file {
		inBytes = inBytes || bytes.Contains(part, []byte(`"ByteLevel"`))
	}
	class := f.classOf(m, inBytes)
	c, found := hfClasses[class]
	if !found {
		return false, nil
	}
	f.class = class
	var model struct {
		Type          string
		Vocab, Merges json.RawMessage
	}
	if err := json.Unmarshal(file["model"], &model); err != nil {
		return false, fmt.Errorf("tokenizer.json: model: %w", err)
	}
	if model.Type == "" {
		model.Type = c.model // as the first versions of the library wrote it
	}
	if model.Type != c.model {
		return false, fmt.Errorf("tokenizer.json: its model is a %.40s, the class %q needs a %s",
			model.Type, class, c.model)
	}
	f.setDefaults(c.special)
	b := &hfBuild{f, hfObject{"vocab": model.Vocab}, hfObject{}, charsMapOf(file["normalizer"])}
	if c.model == "BPE" {
		b.model["merges"] = model.Merges
	}
	if err := c.steps(b); err != nil {
		return false, err
	}
	if c.template && !isNull(file["post_processor"]) {
		f.around = nil
	}
	older, newer := f.fields["additional_special_tokens"], f.fields["extra_special_tokens"]
	if c.extra != nil && isNull(older) && isNull(newer) {
		more, err := c.extra(b)
		if err != nil {
			return false, err
		}
		for _, token := range more {
			f.extra = append(f.extra, hfAddedJSON{Content: token, Special: true})
		}
	}
	made, err := b.file()
	if err != nil {
		return false, err
	}
	for _, name := range []string{"normalizer", "pre_tokenizer", "decoder", "model"} {
		file[name] = made[name]
	}
	if text, found := made["post_processor"]; found {
		file["post_processor"] = text
	}
	return true, f.addAgain(file)
}

// addAgain gives the added tokens of a tokenizer.json, or of added_tokens_decoder if that is there,
// the ids of the model's tokens, or the next ones behind these.
func (f *hfFolder) addAgain(file map[string]json.RawMessage) error {
	if text := file["added_tokens"]; isNull(f.fields["added_tokens_decoder"]) && !isNull(text) {
		if err := json.Unmarshal(text, &f.added); err != nil {
			return fmt.Errorf("tokenizer.json: added_tokens: %w", err)
		}
		slices.SortStableFunc(f.added, func(a, b hfAddedJSON) int { return a.ID - b.ID })
	}
	v := &hfVocabulary{file: file}
	if err := v.read(); err != nil {
		return err
	}
	added, had := make([]hfAddedJSON, 0, len(f.added)), map[string]bool{"": true}
	for _, a := range f.added {
		if had[a.Content] {
			continue
		}
		had[a.Content] = true
		id, err := v.id(a.Content)
		if err != nil {
			return err
		}
		a.ID = id
		added = append(added, a)
	}
	f.added = nil
	var err error
	file["added_tokens"], err = json.Marshal(added)
	return err
}

// charsMapOf is the table of the first Precompiled in a normaliser, in base64, empty for none.
func charsMapOf(normalizer json.RawMessage) string {
	type step struct {
		Type string
		Map  string `json:"precompiled_charsmap"`
	}
	var n struct {
		step
		Normalizers []step
	}
	if json.Unmarshal(normalizer, &n) != nil {
		return ""
	}
	for _, s := range append([]step{n.step}, n.Normalizers...) {
		if s.Type == "Precompiled" && s.Map != "" {
			return s.Map
		}
	}
	return ""
}

// hfBuild is a tokenizer.json while a class makes it.
type hfBuild struct {
	*hfFolder
	model hfObject // it has the tokens and the merges
	steps hfObject // all else
	table string   // the normaliser of a SentencePiece model in base64, empty for none
}

func (b *hfBuild) file() (map[string]json.RawMessage, error) {
	b.steps["model"] = b.model
	return b.steps.file()
}

// precompiled is the file's own normaliser, if it has one.
func (b *hfBuild) precompiled() []any {
	if b.table == "" {
		return nil
	}
	return []any{hfObject{"type": "Precompiled", "precompiled_charsmap": b.table}}
}

func replace(from, to string) hfObject {
	return hfObject{"type": "Replace", "pattern": hfObject{"String": from}, "content": to}
}

func replaceAll(pattern, to string) hfObject {
	return hfObject{"type": "Replace", "pattern": hfObject{"Regex": pattern}, "content": to}
}

func metaspace(scheme string, split bool) hfObject {
	return hfObject{
		"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split,
	}
}

func normalizers(list ...any) hfObject { return hfObject{"type": "Sequence", "normalizers": list} }

func preTokenizers(list ...any) hfObject {
	return hfObject{"type": "Sequence", "pretokenizers": list}
}

// bytesDecoder makes text of pieces and byte tokens.
func bytesDecoder(more ...any) hfObject {
	list := []any{replace("▁", " "), hfObject{"type": "ByteFallback"}, hfObject{"type": "Fuse"}}
	return hfObject{"type": "Sequence", "decoders": append(list, more...)}
}

// strip takes at most so many spaces from either end of what is decoded.
func strip(start, stop int) hfObject {
	return hfObject{"type": "Strip", "content": " ", "start": start, "stop": stop}
}

func splitBy(kind, pattern, behavior string, invert bool) hfObject {
	return hfObject{
		"type": "Split", "pattern": hfObject{kind: pattern}, "behavior": behavior, "invert": invert,
	}
}

func byteLevel(prefixSpace, pattern bool) hfObject {
	return hfObject{
		"type": "ByteLevel", "add_prefix_space": prefixSpace, "trim_offsets": true,
		"use_regex": pattern,
	}
}

// inWords is what the encoders do: white space cuts a text into words, each with a space before it
// if so asked.
func (b *hfBuild) inWords(space bool) {
	scheme := "never"
	if space {
		scheme = "always"
	}
	b.steps["pre_tokenizer"] = preTokenizers(
		hfObject{"type": "WhitespaceSplit"}, metaspace(scheme, true))
	b.steps["decoder"] = metaspace(scheme, true)
}

// unigram sets the model; unknown is the place of the unknown token.
func (b *hfBuild) unigram(unknown int) {
	b.model["type"], b.model["unk_id"], b.model["byte_fallback"] = "Unigram", unknown, false
}

// byPieces sets a BPE of SentencePiece's.
func (b *hfBuild) byPieces() {
	b.model["type"], b.model["fuse_unk"], b.model["byte_fallback"] = "BPE", true, true
}

func (b *hfBuild) llama() error {
	b.byPieces()
	space := b.bool("add_prefix_space", true)
	scheme := "never"
	switch {
	case space && b.bool("legacy", false):
		scheme = "always"
	case space:
		scheme = "first"
	}
	b.steps["pre_tokenizer"], b.steps["decoder"] = metaspace(scheme, false), bytesDecoder()
	if space {
		b.steps["decoder"] = bytesDecoder(strip(1, 0))
	}
	return nil
}

func (b *hfBuild) gemma() error {
	b.byPieces()
	b.model["unk_token"] = b.named["unk_token"].Content
	b.steps["normalizer"] = replace(" ", "▁")
	b.steps["pre_tokenizer"] = splitBy("String", " ", "MergedWithPrevious", false)
	b.steps["decoder"] = bytesDecoder()
	return nil
}

// sentinels are T5's tokens of places that were cut out.
func (b *hfBuild) sentinels() ([]string, error) {
	n := b.number("extra_ids", 100)
	if n < 0 || n > mostFiller {
		return nil, fmt.Errorf("extra_ids is %d, it needs to be from 0 to %d", n, mostFiller)
	}
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("<extra_id_%d>", i)
	}
	return list, nil
}

func (b *hfBuild) t5() error {
	b.unigram(2)
	if list := b.precompiled(); list != nil {
		b.steps["normalizer"] = list[0]
	}
	b.inWords(true)
	eos := b.named["eos_token"].Content
	b.around = inTemplate([]string{"$A", eos}, []string{"$A", eos, "$B", eos})
	return nil
}

func (b *hfBuild) xlmRoberta() error {
	b.unigram(3)
	return b.ofRoberta()
}

func (b *hfBuild) camembert() error {
	unknown, err := b.find(b.named["unk_token"].Content, nil, 0)
	if err != nil {
		return err
	}
	b.unigram(unknown)
	var object map[string]json.RawMessage
	if mask := b.named["mask_token"]; json.Unmarshal(b.fields["mask_token"], &object) != nil {
		mask.LStrip = true
		b.named["mask_token"] = mask
	}
	return b.ofRoberta()
}

// find is the place of the first token in a Unigram's vocabulary that has the name and, unless it
// is nil, the score.
func (b *hfBuild) find(token string, score *float64, otherwise int) (int, error) {
	text, err := json.Marshal(b.model["vocab"])
	if err != nil {
		return 0, err
	}
	var list []hfScoreJSON
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, fmt.Errorf("model: vocab: %w", err)
	}
	for i, entry := range list {
		if entry.token == token && (score == nil || entry.score == *score) {
			return i, nil
		}
	}
	return otherwise, nil
}

// ofRoberta is what XLM-R and CamemBERT share.
func (b *hfBuild) ofRoberta() error {
	if list := b.precompiled(); list != nil {
		b.steps["normalizer"] = list[0]
	}
	b.inWords(b.bool("add_prefix_space", true))
	bos, eos := b.named["bos_token"].Content, b.named["eos_token"].Content
	b.around = inTemplate([]string{bos, "$A", eos}, []string{bos, "$A", eos, eos, "$B", eos})
	return nil
}

func (b *hfBuild) debertaV2() error {
	unknown, given := b.model["unk_id"].(int)
	if !given {
		unknown = b.number("unk_id", 1)
	}
	unknown, err := b.find(b.named["unk_token"].Content, new(float64), unknown)
	if err != nil {
		return err
	}
	b.unigram(unknown)
	list := []any{
		replaceAll(`\s{2,}|[\n\r\t]`, " "), hfObject{"type": "NFC"},
		hfObject{"type": "Strip", "strip_left": false, "strip_right": true},
	}
	if b.bool("do_lower_case", false) {
		list = append([]any{hfObject{"type": "Lowercase"}}, list...)
	}
	b.steps["normalizer"] = normalizers(list...)
	scheme := "first"
	if b.bool("add_prefix_space", true) {
		scheme = "always"
	}
	steps := []any{metaspace(scheme, true)}
	if b.bool("split_by_punct", false) {
		steps = append([]any{hfObject{"type": "Punctuation", "behavior": "Isolated"}}, steps...)
	}
	b.steps["pre_tokenizer"], b.steps["decoder"] = preTokenizers(steps...), metaspace(scheme, true)
	b.around = bracketed(b.named["cls_token"].Content, b.named["sep_token"].Content)
	return nil
}

func (b *hfBuild) albert() error {
	b.unigram(1)
	list := []any{replace("``", `"`), replace("''", `"`)}
	if !b.bool("keep_accents", false) {
		list = append(list, hfObject{"type": "NFKD"}, hfObject{"type": "StripAccents"})
	}
	if b.bool("do_lower_case", true) {
		list = append(list, hfObject{"type": "Lowercase"})
	}
	b.steps["normalizer"] = normalizers(append(list, b.precompiled()...)...)
	b.inWords(b.bool("add_prefix_space", true))
	b.around = bracketed(b.named["cls_token"].Content, b.named["sep_token"].Content)
	return nil
}

// words is what BERT and MPNet share.
func (b *hfBuild) words() {
	normalizer := hfObject{
		"type": "BertNormalizer", "clean_text": true,
		"handle_chinese_chars": b.bool("tokenize_chinese_chars", true),
		"lowercase":            b.bool("do_lower_case", true),
	}
	if text := b.fields["strip_accents"]; !isNull(text) {
		normalizer["strip_accents"] = b.bool("strip_accents", true)
	}
	b.steps["normalizer"] = normalizer
	b.steps["pre_tokenizer"] = hfObject{"type": "BertPreTokenizer"}
	b.steps["decoder"] = hfObject{"type": "WordPiece", "prefix": "##", "cleanup": true}
	b.model["type"], b.model["unk_token"] = "WordPiece", b.named["unk_token"].Content
	b.model["continuing_subword_prefix"], b.model["max_input_chars_per_word"] = "##", 100
}

func (b *hfBuild) bert() error {
	b.words()
	b.around = bracketed(b.named["cls_token"].Content, b.named["sep_token"].Content)
	return nil
}

func (b *hfBuild) mpnet() error {
	b.words()
	b.robertaEnds("cls_token", "sep_token", true, false)
	return nil
}

// robertaEnds is the template of RoBERTa, of the tokens that have these names.
func (b *hfBuild) robertaEnds(first, last string, trim, space bool) {
	cls, sep := b.named[first].Content, b.named[last].Content
	b.around = inTemplate([]string{cls, "$A", sep}, []string{cls, "$A", sep, sep, "$B", sep})
	b.around.roberta = hfObject{
		"type": "RobertaProcessing", "trim_offsets": trim, "add_prefix_space": space,
	}
}

// inBytes is what the byte-level classes share.
func (b *hfBuild) inBytes(space bool) {
	b.model["type"] = "BPE"
	b.steps["pre_tokenizer"], b.steps["decoder"] = byteLevel(space, true), byteLevel(true, true)
}

func (b *hfBuild) gpt2() error {
	b.inBytes(b.bool("add_prefix_space", false))
	return nil
}

func (b *hfBuild) neox() error {
	b.inBytes(b.bool("add_prefix_space", false))
	b.steps["normalizer"] = hfObject{"type": "NFC"}
	b.around = aroundEach("", "")
	return nil
}

func (b *hfBuild) cohere() error {
	b.inBytes(false)
	b.steps["normalizer"] = hfObject{"type": "NFC"}
	b.steps["pre_tokenizer"] = preTokenizers(
		hfObject{"type": "Digits", "individual_digits": true},
		byteLevel(b.bool("add_prefix_space", false), true))
	return nil
}

func (b *hfBuild) qwen2() error {
	b.inBytes(false)
	b.steps["normalizer"] = hfObject{"type": "NFC"}
	b.steps["pre_tokenizer"] = preTokenizers(
		splitBy("Regex", qwen2Pattern, "Isolated", false),
		byteLevel(b.bool("add_prefix_space", false), false))
	b.plainSpecial = true
	return nil
}

func (b *hfBuild) roberta() error {
	space := b.bool("add_prefix_space", false)
	b.inBytes(space)
	b.robertaEnds("cls_token", "sep_token", b.bool("trim_offsets", true), space)
	return nil
}

func (b *hfBuild) deberta() error {
	b.inBytes(b.bool("add_prefix_space", false))
	cls, sep := b.named["cls_token"].Content, b.named["sep_token"].Content
	b.around = inTemplate([]string{cls, "$A", sep}, []string{cls, "$A", sep, sep, "$B", sep})
	return nil
}

func (b *hfBuild) clip() error {
	b.inBytes(false)
	b.model["unk_token"], b.model["end_of_word_suffix"] = b.named["unk_token"].Content, "</w>"
	b.steps["normalizer"] = normalizers(
		hfObject{"type": "NFC"}, replaceAll(`\s+`, " "), hfObject{"type": "Lowercase"})
	b.steps["pre_tokenizer"] = preTokenizers(
		splitBy("Regex", clipPattern, "Removed", true), byteLevel(false, true))
	b.robertaEnds("bos_token", "eos_token", false, false)
	b.steps["decoder"] = hfObject{"type": "Sequence", "decoders": []any{
		byteLevel(true, true), replace("</w>", " "), replaceAll(pythonSpaces, ""),
	}}
	return nil
}
