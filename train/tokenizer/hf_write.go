package tokenizer

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// object is one of a tokenizer.json.
type object = map[string]any

// WriteHuggingFace writes a Bytes, *Characters, *GPT2 or *HuggingFace as the tokenizer.json that
// the tokenizers library reads, so that a model of one's own goes with it wherever published ones
// do. Text that a *Characters has no id for, which Encode refuses, is left out there.
func WriteHuggingFace(w io.Writer, t Tokenizer) error {
	content, err := huggingFaceJSON(t)
	if err != nil {
		return fmt.Errorf("WriteHuggingFace: %w", err)
	}
	if _, err := w.Write(append(content, '\n')); err != nil {
		return fmt.Errorf("WriteHuggingFace: %w", err)
	}
	return nil
}

// WriteFolder writes the tokenizer of a model's folder as transformers' AutoTokenizer and [Open]
// read it: tokenizer.json by [WriteHuggingFace], and a tokenizer_config.json that says how to use
// it. A *GPT2 that has [EndOfText] ends texts with it. The folder needs to be there.
func WriteFolder(folder string, t Tokenizer) error {
	if err := writeFolder(folder, t); err != nil {
		return fmt.Errorf("WriteFolder: %w", err)
	}
	return nil
}

func writeFolder(folder string, t Tokenizer) error {
	content, err := huggingFaceJSON(t)
	if err != nil {
		return err
	}
	config := object{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	if gpt2, ok := t.(*GPT2); ok && gpt2.endOfText >= 0 {
		config["bos_token"], config["eos_token"] = EndOfText, EndOfText
	}
	settings, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"tokenizer.json": content, "tokenizer_config.json": settings} {
		err := plainfile.Write(filepath.Join(folder, name), func(w io.Writer) error { _, err := w.Write(append(text, '\n')); return err })
		if err != nil {
			return err
		}
	}
	return nil
}

func huggingFaceJSON(t Tokenizer) ([]byte, error) {
	byteLevel := object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	vocab, merges := map[string]int{}, [][2]string{}
	file := object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": []object{}, "normalizer": nil, "post_processor": nil,
		"pre_tokenizer": byteLevel, "decoder": byteLevel,
	}
	switch t := t.(type) {
	case Bytes, *Bytes:
		for b := range 256 {
			vocab[toAlphabet(string([]byte{byte(b)}))] = b
		}
	case *Characters:
		for id, c := range t.characters {
			vocab[string(c)] = id
		}
		file["pre_tokenizer"], file["decoder"] = nil, object{"type": "Fuse"}
	case *GPT2:
		for id, token := range t.tokens {
			vocab[toAlphabet(token)] = id
		}
		for _, m := range t.merges {
			merges = append(merges, [2]string{toAlphabet(t.tokens[m.left]), toAlphabet(t.tokens[m.right])})
		}
		if t.endOfText >= 0 {
			delete(vocab, toAlphabet(t.tokens[t.endOfText]))
			vocab[EndOfText] = t.endOfText
			file["added_tokens"] = []object{{
				"id": t.endOfText, "content": EndOfText, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true,
			}}
		}
	case *HuggingFace:
		var s saved
		content, err := json.Marshal(t)
		if err == nil {
			err = json.Unmarshal(content, &s)
		}
		return s.HuggingFace, err
	default:
		return nil, fmt.Errorf("t is a %T, it needs to be one of package tokenizer", t)
	}
	file["model"] = object{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil, "fuse_unk": false,
		"byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": merges,
	}
	return json.Marshal(file)
}
