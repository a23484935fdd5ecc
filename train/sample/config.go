package sample

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// generationConfig is what a generation_config.json may ask for.
type generationConfig struct {
	DoSample          bool     `json:"do_sample"`
	Temperature       *float64 `json:"temperature"`
	TopK              *int     `json:"top_k"`
	TopP              float64  `json:"top_p"`
	MinP              float64  `json:"min_p"`
	RepetitionPenalty float64  `json:"repetition_penalty"`
	NoRepeat          int      `json:"no_repeat_ngram_size"`
	MaxNew            int      `json:"max_new_tokens"`
	MinNew            int      `json:"min_new_tokens"`
	EOS               ids      `json:"eos_token_id"`
	Suppress          ids      `json:"suppress_tokens"`
	StopStrings       texts    `json:"stop_strings"`
}

// ids is one id or several, texts one text or several.
type (
	ids   []int
	texts []string
)

func (l *ids) UnmarshalJSON(b []byte) error   { return oneOrMore(b, (*[]int)(l)) }
func (l *texts) UnmarshalJSON(b []byte) error { return oneOrMore(b, (*[]string)(l)) }

func oneOrMore[T any](b []byte, list *[]T) error {
	if bytes.HasPrefix(b, []byte("[")) || bytes.Equal(b, []byte("null")) {
		return json.Unmarshal(b, list)
	}
	*list = make([]T, 1)
	return json.Unmarshal(b, &(*list)[0])
}

// idle are the fields that change nothing here: tokens that prompts have anyway, how other programs
// compute, and how they would with a second model.
var idle = []string{
	"_commit_hash", "_from_model_config", "bos_token_id", "pad_token_id", "decoder_start_token_id", "transformers_version", "use_cache",
	"max_length", "return_dict_in_generate", "output_attentions", "output_hidden_states", "output_scores", "output_logits",
	"cache_implementation", "cache_config", "max_cache_len", "trust_remote_code", "compile_config", "disable_compile", "continuous_batching_config",
	"prefill_chunk_size", "low_memory", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
	"assistant_early_exit", "assistant_lookbehind", "target_lookbehind", "assistant_ensemble_weight", "speculation_type", "max_matching_ngram_size",
}

// asUsual are the values of fields with which they ask for nothing.
var asUsual = map[string]string{
	"num_beams": "1", "num_beam_groups": "1", "num_return_sequences": "1", "typical_p": "1", "epsilon_cutoff": "0", "eta_cutoff": "0", "diversity_penalty": "0",
	"encoder_repetition_penalty": "1", "length_penalty": "1", "encoder_no_repeat_ngram_size": "0", "min_length": "0", "guidance_scale": "1",
}

// maxConfig is how many bytes a file may have that is read as a whole.
const maxConfig = 16 << 20

// ReadConfig reads how a published model is to write, from the generation_config.json in its
// folder. Without one, what older models say of it in config.json counts, as in transformers:
// mostly nothing but the end of text, which means always the most probable token.
// MaxTokens is 256 where the file has no max_new_tokens; its max_length, which counts the prompt
// too, is not looked at. What it asks for and there is not here is an error that names the field.
func ReadConfig(folder string) (Options, error) {
	o := Options{MaxTokens: 256}
	path, read := filepath.Join(folder, "generation_config.json"), o.read
	content, err := plainfile.ReadFile(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		path, read = filepath.Join(folder, "config.json"), o.readModel
		if content, err = plainfile.ReadFile(path, maxConfig); errors.Is(err, fs.ErrNotExist) {
			return o, nil
		}
	}
	if err == nil {
		err = read(content)
	}
	if err != nil {
		return Options{}, fmt.Errorf("sample: %s: %w", path, err)
	}
	return o, nil
}

// inModels are the fields of how to write that a config.json may have beside those of asUsual.
var inModels = []string{
	"do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "no_repeat_ngram_size", "max_new_tokens",
	"min_new_tokens", "eos_token_id", "suppress_tokens", "stop_strings", "bad_words_ids", "begin_suppress_tokens",
	"constraints", "dola_layers", "early_stopping", "exponential_decay_length_penalty", "force_words_ids",
	"forced_bos_token_id", "forced_eos_token_id", "max_time", "penalty_alpha", "prompt_lookup_num_tokens",
	"remove_invalid_values", "renormalize_logits", "sequence_bias", "token_healing", "top_h", "use_mtp", "watermarking_config",
}

// readModel reads the fields of how to write in a config.json, and those of its text_config where
// it has none itself.
func (o *Options) readModel(content []byte) error {
	var fields, text map[string]json.RawMessage
	if err := json.Unmarshal(content, &fields); err != nil {
		return err
	}
	if json.Unmarshal(fields["text_config"], &text) != nil {
		text = nil
	}
	asked := map[string]json.RawMessage{}
	for _, field := range slices.Concat(inModels, slices.Sorted(maps.Keys(asUsual))) {
		for _, from := range []map[string]json.RawMessage{fields, text} {
			if value := from[field]; asked[field] == nil && value != nil && string(value) != "null" {
				asked[field] = value
			}
		}
	}
	content, err := json.Marshal(asked)
	if err != nil {
		return err
	}
	return o.read(content)
}

func (o *Options) read(content []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(content, &fields); err != nil {
		return err
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		value := string(fields[field])
		if slices.Contains(idle, field) || value == "null" || value == "false" || value == "[]" || value == "{}" || isNumber(value, asUsual[field]) {
			delete(fields, field)
		}
	}
	var c generationConfig
	content, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&c); err != nil {
		return fmt.Errorf("%w: what it asks for is not known here", err)
	}
	o.Stop, o.Suppress, o.StopStrings, o.MinTokens = c.EOS, c.Suppress, c.StopStrings, c.MinNew
	if c.MaxNew > 0 {
		o.MaxTokens = c.MaxNew
	}
	o.Sampler.RepetitionPenalty, o.Sampler.NoRepeat = c.RepetitionPenalty, c.NoRepeat
	if c.DoSample {
		o.Sampler.Temperature, o.Sampler.TopK, o.Sampler.TopP, o.Sampler.MinP = 1, 50, c.TopP, c.MinP
		if c.Temperature != nil {
			o.Sampler.Temperature = *c.Temperature
		}
		if c.TopK != nil {
			o.Sampler.TopK = *c.TopK
		}
	}
	_, err = NewSampler(o.Sampler)
	return err
}

// isNumber reports whether two texts are the same number.
func isNumber(a, b string) bool {
	var x, y float64
	return b != "" && json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && x == y
}
