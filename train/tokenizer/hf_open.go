package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// Open reads the tokenizer of a model's folder, as transformers' AutoTokenizer does. It reads the
// first of these that the folder has:
//
//   - tokenizer.json
//   - tekken.json, as Mistral publishes it
//   - a model of SentencePiece: tokenizer.model, spiece.model, sentencepiece.bpe.model or spm.model
//   - tokenizer.model or tiktoken.model with tokens in base64, as the first Llama 3 had it
//   - vocab.txt of a BERT
//   - vocab.json and merges.txt of GPT-2 or RoBERTa
//
// Special tokens, added tokens and the options of the tokenizer's class come from
// tokenizer_config.json, special_tokens_map.json and added_tokens.json. So do add_bos_token and
// add_eos_token where there is no tokenizer.json. Where tokenizer_config.json names no class, it
// follows from config.json. A class that is not known here is an error unless there is a
// tokenizer.json.
//
// A tokenizer.json is read as it is. For some classes, such as LlamaTokenizer, transformers 5 takes
// only its vocabulary. Where the file is an older one, texts then begin with other tokens there.
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
	class  string                     // transformers' name of the kind, without Fast
	fields map[string]json.RawMessage // of tokenizer_config.json and special_tokens_map.json
	added  []hfAddedJSON              // tokens beside the vocabulary, by their ids
	named  map[string]hfAddedJSON     // special tokens by their names, such as bos_token
	extra  []hfAddedJSON              // further added tokens, whose ids the vocabulary has or which get the next
	around *hfTemplate                // takes the place of the file's template, nil for none
}

func openFolder(path string) (*HuggingFace, error) {
	f := &hfFolder{path: path}
	if err := f.readFields(); err != nil {
		return nil, err
	}
	if err := f.readTokens(); err != nil {
		return nil, err
	}
	file := map[string]json.RawMessage{}
	found, err := f.read("tokenizer.json", &file)
	if err != nil {
		return nil, err
	}
	if !found {
		if file, err = f.older(); err != nil {
			return nil, err
		}
		f.addEnds() // a tokenizer.json says it itself
	}
	changed, err := f.complete(file)
	if err != nil {
		return nil, err
	}
	if found && !changed {
		return OpenHuggingFace(filepath.Join(path, "tokenizer.json"))
	}
	return parseFields(file)
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

// readFields reads tokenizer_config.json. What special_tokens_map.json says counts only where the
// other file has no added_tokens_decoder, and counts more there.
func (f *hfFolder) readFields() error {
	f.fields = map[string]json.RawMessage{}
	if _, err := f.read("tokenizer_config.json", &f.fields); err != nil {
		return err
	}
	var special map[string]json.RawMessage
	if _, err := f.read("special_tokens_map.json", &special); err != nil {
		return err
	}
	if isNull(f.fields["added_tokens_decoder"]) {
		if f.fields == nil {
			f.fields = map[string]json.RawMessage{}
		}
		for name, value := range special {
			f.fields[name] = value
		}
	}
	if text := f.fields["tokenizer_class"]; !isNull(text) {
		if err := json.Unmarshal(text, &f.class); err != nil {
			return fmt.Errorf("tokenizer_config.json: tokenizer_class is %.40s, it needs to be a text", text)
		}
		f.class = strings.TrimSuffix(f.class, "Fast")
	}
	return nil
}

func (f *hfFolder) bool(name string, otherwise bool) bool {
	value := otherwise
	if json.Unmarshal(f.fields[name], &value) != nil {
		return otherwise
	}
	return value
}

func (f *hfFolder) number(name string, otherwise int) int {
	value := otherwise
	if json.Unmarshal(f.fields[name], &value) != nil {
		return otherwise
	}
	return value
}

// hfClasses are the classes of families of models, by model_type, whose folders need not name one.
var hfClasses = map[string]string{
	"albert": "AlbertTokenizer", "bart": "RobertaTokenizer", "bert": "BertTokenizer", "big_bird": "BigBirdTokenizer", "camembert": "CamembertTokenizer",
	"clip": "CLIPTokenizer", "codegen": "GPT2Tokenizer", "deberta": "DebertaTokenizer", "deberta-v2": "DebertaV2Tokenizer", "distilbert": "BertTokenizer",
	"electra": "BertTokenizer", "gemma": "GemmaTokenizer", "gemma2": "GemmaTokenizer", "gemma3_text": "GemmaTokenizer", "gpt2": "GPT2Tokenizer",
	"gpt_neo": "GPT2Tokenizer", "gpt_neox": "GPTNeoXTokenizer", "gptj": "GPT2Tokenizer", "marian": "MarianTokenizer", "mbart": "MBartTokenizer",
	"mpnet": "MPNetTokenizer", "mpt": "GPTNeoXTokenizer", "mt5": "T5Tokenizer", "nomic_bert": "BertTokenizer", "opt": "GPT2Tokenizer",
	"pegasus": "PegasusTokenizer", "phi": "GPT2Tokenizer", "qwen2": "Qwen2Tokenizer", "qwen3": "Qwen2Tokenizer", "roberta": "RobertaTokenizer",
	"siglip": "SiglipTokenizer", "t5": "T5Tokenizer", "whisper": "WhisperTokenizer", "xlm-roberta": "XLMRobertaTokenizer", "xlnet": "XLNetTokenizer",
}

// classOfModel is the class that config.json names or that its model_type has, empty for none.
func (f *hfFolder) classOfModel() (string, error) {
	var model struct {
		Class string `json:"tokenizer_class"`
		Type  string `json:"model_type"`
	}
	_, err := f.read("config.json", &model)
	return cmp.Or(strings.TrimSuffix(model.Class, "Fast"), hfClasses[model.Type]), err
}

// older makes a tokenizer.json of other files.
func (f *hfFolder) older() (map[string]json.RawMessage, error) {
	if f.class == "" {
		var err error
		if f.class, err = f.classOfModel(); err != nil {
			return nil, err
		}
	}
	if content, found, err := f.text("tekken.json"); found || err != nil {
		if err != nil {
			return nil, err
		}
		file, err := f.tekken(content)
		if err != nil {
			return nil, fmt.Errorf("tekken.json: %w", err)
		}
		return file, nil
	}
	for _, name := range append(sentencePieceFiles, "tiktoken.model") {
		content, found, err := f.text(name)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		file, err := f.modelFile(content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return file, nil
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
	switch f.class {
	case "", "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer":
		if isBERT {
			return f.bert(string(words))
		}
	}
	switch f.class {
	case "", "GPT2Tokenizer", "RobertaTokenizer":
		if hasVocab && hasMerges {
			return f.byteLevel(vocab, string(merges), f.class == "RobertaTokenizer")
		}
	}
	if f.class == "" {
		return nil, errors.New("there is no tokenizer.json, it needs that, or vocab.json and merges.txt, vocab.txt or tokenizer.model")
	}
	return nil, fmt.Errorf("there is no tokenizer.json, and no other files that are known here for the class %q", f.class)
}

// modelFile makes a tokenizer.json of a file of tokens with their ranks, or of SentencePiece.
func (f *hfFolder) modelFile(content []byte) (map[string]json.RawMessage, error) {
	if ranks, isTiktoken := readTiktoken(content); isTiktoken {
		return f.tiktoken(ranks)
	}
	return f.sentencePiece(content)
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
	f.setDefaults(map[string]string{
		"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
	})
	cls, sep := f.named["cls_token"].Content, f.named["sep_token"].Content
	for _, token := range []string{cls, sep} {
		if _, found := vocab[token]; !found {
			return nil, fmt.Errorf("vocab.txt has no token %q", token)
		}
	}
	normalizer := hfObject{
		"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": f.bool("tokenize_chinese_chars", true),
		"lowercase": f.bool("do_lower_case", true),
	}
	if text := f.fields["strip_accents"]; !isNull(text) {
		normalizer["strip_accents"] = f.bool("strip_accents", true)
	}
	f.around = bracketed(cls, sep)
	return hfObject{
		"normalizer": normalizer, "pre_tokenizer": hfObject{"type": "BertPreTokenizer"},
		"decoder": hfObject{"type": "WordPiece", "prefix": "##", "cleanup": true},
		"model": hfObject{
			"type": "WordPiece", "unk_token": f.named["unk_token"].Content, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
			"vocab": vocab,
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
		f.setDefaults(map[string]string{"unk_token": EndOfText, "bos_token": EndOfText, "eos_token": EndOfText})
		return o.file()
	}
	f.setDefaults(robertaTokens)
	cls, sep := f.named["cls_token"].Content, f.named["sep_token"].Content
	for _, token := range []string{cls, sep} {
		if _, found := vocab[token]; !found {
			return nil, fmt.Errorf("vocab.json has no token %q", token)
		}
	}
	o["post_processor"] = hfObject{
		"type": "RobertaProcessing", "cls": []any{cls, vocab[cls]}, "sep": []any{sep, vocab[sep]},
		"trim_offsets": f.bool("trim_offsets", true), "add_prefix_space": space,
	}
	return o.file()
}
