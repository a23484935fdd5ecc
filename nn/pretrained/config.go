package pretrained

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// config is a config.json whose fields are read one by one. The first thing that is wrong is kept
// in err, so that a family reads all its fields and looks for an error once. Fields that nobody
// reads are an error too: they may ask for what the family lacks.
type config struct {
	fields map[string]json.RawMessage
	read   map[string]bool
	file   string
	within string            // the path of an object inside the file, with a dot behind it
	names  map[string]string // what fields are called here in place of their usual names
	err    error
}

// metadata are the fields that do not change what a model computes: no code of transformers for
// these families reads them, or only to train, to save or to write texts.
var metadata = []string{
	"_num_labels", "attn_softmax_bf16", "bad_words_ids", "begin_suppress_tokens", "cls_token_id", "decoder_start_token_id",
	"directionality", "diversity_penalty", "do_sample", "early_stopping", "encoder_no_repeat_ngram_size",
	"exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id", "full_attn_mod", "interpolate_factor",
	"is_llama_config", "language", "length_penalty", "mask_token_id", "max_length", "max_sequence_length", "min_length", "model_max_length",
	"name", "neftune_noise_alpha", "no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences",
	"pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
	"repetition_penalty", "rope_interleaved", "sliding_window_size", "suppress_tokens", "temperature",
	"tie_weights_", "tokenizer_model_max_length", "top_k", "top_p", "transformers.js_config",
	"typical_p", "unsloth_fixed", "unsloth_version", "vocab_type",

	"_attn_implementation_autoset", "_commit_hash", "_name_or_path", "attn_implementation", "auto_map", "bos_token_id",
	"cache_implementation", "chunk_size_feed_forward", "dtype", "eos_token_id", "finetuning_task", "gradient_checkpointing",
	"id2label", "initializer_range", "label2id", "model_type", "output_attentions", "output_hidden_states", "output_past",
	"pad_token_id", "prefix", "pretraining_tp", "problem_type", "return_dict", "sep_token_id", "task_specific_params",
	"tokenizer_class", "torch_dtype", "torchscript", "transformers_version", "use_cache",
}

func parseConfig(file string, text []byte) (*config, error) {
	c := &config{file: file, read: map[string]bool{}}
	if err := json.Unmarshal(text, &c.fields); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if c.fields == nil {
		return nil, fmt.Errorf("%s: it is null, it needs to be an object", file)
	}
	return c, nil
}

// fail keeps the first error.
func (c *config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(c.file+": "+format, args...)
	}
}

// also says that a field may have another name.
func (c *config) also(name, other string) {
	switch {
	case c.has(name) && c.has(other) && !bytes.Equal(c.fields[name], c.fields[other]):
		c.fail("field %s is %.40s and field %s is %.40s, they need to be equal", other, c.fields[other], name, c.fields[name])
	case c.has(other) && !c.has(name):
		if c.names == nil {
			c.names = map[string]string{}
		}
		c.names[name] = other
	}
}

// called is what a field is called in this config.
func (c *config) called(name string) string { return cmp.Or(c.names[name], name) }

// has reports whether a field is given and not null.
func (c *config) has(name string) bool {
	name = c.called(name)
	c.read[name] = true
	value, found := c.fields[name]
	return found && !bytes.Equal(value, []byte("null"))
}

// given reports whether a field is there at all, if only as null: some that are null have another
// meaning than some that are left out.
func (c *config) given(name string) bool {
	_, found := c.fields[c.called(name)]
	return found
}

// field reads a field that may be left out.
func field[T any](c *config, name, kind string, otherwise T) T {
	if !c.has(name) {
		return otherwise
	}
	var value T
	name = c.called(name)
	if err := json.Unmarshal(c.fields[name], &value); err != nil {
		c.fail("field %s is %.40s, it needs to be %s", c.within+name, c.fields[name], kind)
		return otherwise
	}
	return value
}

// bool reads a choice. Null is none: in transformers it counts as false.
func (c *config) bool(name string, otherwise bool) bool {
	if otherwise && c.given(name) && !c.has(name) {
		c.fail("field %s is null, it needs to be true or false", c.within+c.called(name))
	}
	return field(c, name, "true or false", otherwise)
}
func (c *config) string(name, otherwise string) string {
	return field(c, name, "a string", otherwise)
}
func (c *config) strings(name string) []string {
	return field[[]string](c, name, "a list of strings", nil)
}
func (c *config) ints(name string) []int { return field[[]int](c, name, "a list of integers", nil) }
func (c *config) floats(name string) []float64 {
	return field[[]float64](c, name, "a list of numbers", nil)
}

// float reads a number that is not negative, and that a float32 holds.
func (c *config) float(name string, otherwise float64) float64 {
	x := field(c, name, "a number", otherwise)
	switch {
	case !(x >= 0):
		c.fail("field %s is %v, it cannot be negative", c.within+c.called(name), x)
		return otherwise
	case x > math.MaxFloat32:
		c.fail("field %s is %v, it needs to be a number that a float32 holds", c.within+c.called(name), x)
		return otherwise
	}
	return x
}

// positive reads a number that is more than 0.
func (c *config) positive(name string, otherwise float64) float64 {
	x := c.float(name, otherwise)
	if x == 0 {
		c.fail("field %s is 0, it needs to be positive", c.within+c.called(name))
		return otherwise
	}
	return x
}

// positiveOrNone reads a number that is more than 0, or gives 0 where there is none.
func (c *config) positiveOrNone(name string) float64 {
	if !c.has(name) {
		return 0
	}
	return c.positive(name, 0)
}

// maxSize bounds the sizes that a config can ask for, so that no product of a few of them
// overflows.
const maxSize = 1 << 24

// size reads a positive integer; without a value to take otherwise, 0, it needs to be there.
func (c *config) size(name string, otherwise int) int {
	n := field(c, name, "an integer", otherwise)
	switch {
	case n == 0 && !c.has(name):
		c.fail("field %s is missing", c.within+c.called(name))
	case n < 1 || n > maxSize:
		c.fail("field %s is %d, it needs to be from 1 to %d", c.within+c.called(name), n, maxSize)
	default:
		return n
	}
	return 1
}

// maxLayers bounds how many layers a config can ask for, each of which takes memory before any file
// is looked at.
const maxLayers = 1 << 12

// layers reads how many layers there are.
func (c *config) layers(name string, otherwise int) int {
	n := c.size(name, otherwise)
	if n > maxLayers {
		c.fail("field %s is %d, it needs to be from 1 to %d", c.within+c.called(name), n, maxLayers)
		return 1
	}
	return n
}

// optionalSize reads a positive integer, or gives 0 where there is none.
func (c *config) optionalSize(name string) int {
	if !c.has(name) {
		return 0
	}
	return c.size(name, 0)
}

// sizeOrNone reads a positive integer, or gives 0 where it is null.
func (c *config) sizeOrNone(name string, otherwise int) int {
	if c.given(name) {
		return c.optionalSize(name)
	}
	return otherwise
}

// object reads an object of fields, nil where there is none.
func (c *config) object(name string) *config {
	fields := field[map[string]json.RawMessage](c, name, "an object", nil)
	if fields == nil {
		return nil
	}
	return &config{file: c.file, fields: fields, read: map[string]bool{}, within: c.within + c.called(name) + "."}
}

// needs makes sure that a field, where it is given, has the one value that there is a model for.
func needs[T comparable](c *config, name string, value T) {
	if have := field(c, name, fmt.Sprintf("%v", value), value); have != value {
		c.fail("field %s is %v, only %v is supported", c.within+c.called(name), have, value)
	}
}

// unread passes over fields that no code of transformers reads, or only for what is not loaded.
func (c *config) unread(names ...string) {
	for _, name := range names {
		c.read[name] = true
	}
}

// training passes over fields by which transformers leaves out layers, or adds noise, while it
// trains. Training here does neither.
func (c *config) training(names ...string) {
	for _, name := range names {
		c.float(name, 0)
	}
}

// causal makes sure that attention sees no later positions. A config that has is_causal as null or
// false asks for attention that does.
func (c *config) causal() {
	if value, found := c.fields["is_causal"]; found && string(value) != "true" {
		c.fail("field is_causal is %.40s, only true is supported", value)
	}
	c.read["is_causal"] = true
}

// finish gives the first error, or says which fields were given and not read.
func (c *config) finish(ignored []string) error {
	if c.err != nil {
		return c.err
	}
	var unknown []string
	for name, value := range c.fields {
		empty := slices.Contains([]string{"null", "false"}, string(value)) || name == "pruned_heads" && string(compact(value)) == "{}"
		if !c.read[name] && !empty && !slices.Contains(metadata, name) && !slices.Contains(ignored, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		first := unknown[0]
		hint := ""
		if c.file == configFile {
			hint = "; if it does not change what the model computes, Options.IgnoreFields can list it"
		}
		return fmt.Errorf("%s: field %s, which is %.60s, is not known%s", c.file, c.within+first, c.fields[first], hint)
	}
	return nil
}

// ending reads which of the endings the model's class has, by which transformers knows its head;
// the first where there is none.
func (c *config) ending(of ...string) string {
	given := c.strings("architectures")
	if len(given) == 0 {
		return of[0]
	}
	for _, known := range of {
		if strings.HasSuffix(given[0], known) {
			return known
		}
	}
	last := len(of) - 1
	c.fail("field architectures is %q, it needs to end with %s or %s", given[0], strings.Join(of[:last], ", "), of[last])
	return of[0]
}

// join takes over the error, or the unread fields, of an object inside the config.
func (c *config) join(inner *config) {
	if err := inner.finish(nil); err != nil && c.err == nil {
		c.err = err
	}
}
