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
//   - vocab.txt, of a BERT, or vocab.json and merges.txt, of a GPT-2 and others
//
// Special tokens, added tokens and the options of the tokenizer's class come from
// tokenizer_config.json, special_tokens_map.json and added_tokens.json. So do add_bos_token and
// add_eos_token where there is no tokenizer.json. Where tokenizer_config.json names no class, it
// follows from config.json. A class that is not known here is an error unless there is a
// tokenizer.json.
//
// Some classes take only the tokens, the merges and the lengths from a tokenizer.json, and split
// texts in a way of their own: those of ALBERT, BART, BERT, CamemBERT, CLIP, CodeGen, Cohere,
// DeBERTa, DeBERTa-v2, DistilBERT, ELECTRA, Gemma, GPT-2, GPT-NeoX, Llama, MPNet, Qwen 2, RoBERTa,
// T5 and XLM-R. Open does the same. For any other class it reads the tokenizer.json as it is, and
// for families whose folders often name a wrong class, such as Phi-3. [OpenHuggingFace] always does
// so.
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
	extra  []hfAddedJSON              // further added tokens, with the vocabulary's ids or the next
	asItIs bool                       // whatever the class, a SentencePiece model is made as of none
	// plainSpecial is set where special tokens with names leave the white space beside them alone.
	plainSpecial bool
	around       *hfTemplate // takes the place of the file's template, nil for none
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
	model, err := f.model()
	if err != nil {
		return nil, err
	}
	rebuilt := false
	if found {
		if rebuilt, err = f.rebuild(file, model); err != nil {
			return nil, err
		}
	} else {
		f.class = cmp.Or(f.class, model.Class, hfModelClasses[model.Type])
		if model.Type == "qwen2" {
			f.class = hfModelClasses[model.Type] // its folders often name other classes
		}
		f.asItIs = hfModelClasses[model.Type] == asItIs
		if file, err = f.older(); err != nil {
			return nil, err
		}
		f.addEnds() // a tokenizer.json says it itself
	}
	changed, err := f.complete(file)
	if err != nil {
		return nil, err
	}
	var t *HuggingFace
	if found && !changed && !rebuilt {
		t, err = OpenHuggingFace(filepath.Join(path, "tokenizer.json"))
	} else {
		t, err = parseFields(file)
	}
	if err != nil {
		return nil, err
	}
	return t, f.readSide(t)
}

// readSide reads at which side texts of too many tokens are cut.
func (f *hfFolder) readSide(t *HuggingFace) error {
	text := f.fields["truncation_side"]
	if isNull(text) {
		return nil
	}
	switch string(text) {
	case `"left"`, `"right"`:
		t.cutsLeft = string(text) == `"left"`
		return nil
	}
	return fmt.Errorf("tokenizer_config.json: truncation_side is %.40s, it needs to be left or right", text)
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

// older makes a tokenizer.json of other files, as the class does. It may be empty.
func (f *hfFolder) older() (map[string]json.RawMessage, error) {
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
	c := hfClasses[f.class]
	if isBERT && (f.class == "" || c.model == "WordPiece") {
		f.class = cmp.Or(f.class, "BertTokenizer")
		return f.ofWords(string(words))
	}
	if hasVocab && hasMerges && (f.class == "" || c.inBytes) {
		f.class = cmp.Or(f.class, "GPT2Tokenizer")
		return f.ofMerges(vocab, string(merges))
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

func (f *hfFolder) ofWords(words string) (map[string]json.RawMessage, error) {
	vocab := map[string]int{}
	for id, word := range strings.Split(strings.TrimSuffix(words, "\n"), "\n") {
		vocab[strings.TrimSuffix(word, "\r")] = id
	}
	return f.of("vocab.txt", vocab, hfObject{"vocab": vocab})
}

func (f *hfFolder) ofMerges(vocab map[string]int, merges string) (map[string]json.RawMessage, error) {
	list := []string{}
	for i, line := range strings.Split(merges, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if line != "" && !(i == 0 && strings.HasPrefix(line, "#version")) {
			list = append(list, line)
		}
	}
	return f.of("vocab.json", vocab, hfObject{"vocab": vocab, "merges": list})
}

// of makes a tokenizer.json of a model's tokens, as the class does.
func (f *hfFolder) of(name string, vocab map[string]int, model hfObject) (map[string]json.RawMessage, error) {
	c := hfClasses[f.class]
	f.setDefaults(c.special)
	b := &hfBuild{f, model, hfObject{}, ""}
	if err := c.steps(b); err != nil {
		return nil, err
	}
	if f.around != nil {
		for _, part := range f.around.single {
			if _, found := vocab[part.name]; !found && part.name != "$A" {
				return nil, fmt.Errorf("%s has no token %q", name, part.name)
			}
		}
	}
	return b.file()
}
