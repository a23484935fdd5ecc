package embed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/stheno-ml/stheno/internal/plainfile"
)

// settings are what the small files of a folder say.
type settings struct {
	longest    int // how many tokens a text may have; 0 for any number
	lower      bool
	pooling    pooling
	dense      []dense
	normalises bool
	prompts    map[string]string
	usual      string // the name of the prompt of texts of which nothing is said
}

// pooling is how one vector is made of those of the tokens; of several ways, one after the other.
type pooling struct {
	ways          []string
	withoutPrompt bool
}

// maxFile bounds the files that are read as a whole.
const maxFile = 1 << 20

// readJSON reads a file of the folder, and reports whether there is one.
func readJSON(folder, name string, into any) (found bool, err error) {
	if !filepath.IsLocal(name) {
		return false, fmt.Errorf("%.300q is not the name of a file in the folder", name)
	}
	text, err := plainfile.ReadFile(filepath.Join(folder, name), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

func readSettings(folder string, decodes bool) (s settings, err error) {
	var modules []struct{ Path, Type string }
	found, err := readJSON(folder, "modules.json", &modules)
	if err != nil {
		return s, err
	}
	if !found && decodes {
		return s, errors.New("there is no modules.json, which says how a decoder's vectors are pooled")
	}
	for i, m := range modules {
		if len(m.Path) > 255 || strings.ContainsFunc(m.Path, unicode.IsControl) {
			return s, fmt.Errorf("modules.json: the path of module %d is %.100q, it needs to be the name of a folder", i, m.Path)
		}
		if err := s.addModule(folder, i, m.Path, m.Type); err != nil {
			return s, err
		}
	}
	if !found {
		s.pooling.ways = []string{"mean"}
	}
	if s.pooling.ways == nil {
		return s, errors.New("modules.json: there is no Pooling, it needs one")
	}
	if err := s.readLimits(folder); err != nil {
		return s, err
	}
	var c struct {
		Model   string `json:"model_type"`
		Prompts map[string]string
		Usual   *string `json:"default_prompt_name"`
	}
	if _, err := readJSON(folder, "config_sentence_transformers.json", &c); err != nil {
		return s, err
	}
	if c.Model != "" && c.Model != "SentenceTransformer" {
		return s, fmt.Errorf("config_sentence_transformers.json: model_type is %.100q, it needs to be SentenceTransformer", c.Model)
	}
	if s.prompts = c.Prompts; c.Usual != nil {
		if _, found := s.prompts[*c.Usual]; !found {
			return s, fmt.Errorf("config_sentence_transformers.json: default_prompt_name is %.100q, it needs to be one of prompts", *c.Usual)
		}
		s.usual = *c.Usual
	}
	return s, nil
}

// addModule reads a module. Other packages have classes of these names that do something else.
func (s *settings) addModule(folder string, i int, path, class string) (err error) {
	kind := class[strings.LastIndexByte(class, '.')+1:]
	if !strings.HasPrefix(class, "sentence_transformers.") {
		kind = ""
	}
	switch {
	case i == 0 && kind == "Transformer" && path == "":
	case i > 0 && kind == "Pooling" && s.pooling.ways == nil && !s.normalises:
		s.pooling, err = readPooling(folder, filepath.Join(filepath.FromSlash(path), "config.json"))
	case i > 0 && kind == "Dense" && s.pooling.ways != nil && !s.normalises:
		var d dense
		if d, err = readDense(folder, path); err == nil {
			s.dense = append(s.dense, d)
		}
	case i > 0 && kind == "Normalize" && s.pooling.ways != nil:
		s.normalises = true
		err = checkNormalize(folder, filepath.Join(filepath.FromSlash(path), "config.json"))
	default:
		return fmt.Errorf("modules.json: module %d is %.100q in folder %q, it needs to be a Transformer in the folder itself, a Pooling, a Dense or a Normalize of sentence_transformers, in that order",
			i, class, path)
	}
	return err
}

// vectors is what sentence-transformers calls the vectors of texts.
const vectors = "sentence_embedding"

// checkNormalize makes sure that vectors of texts are normalised, and not those of tokens.
func checkNormalize(folder, name string) error {
	var c struct {
		Input  string `json:"module_input_name"`
		Output string `json:"module_output_name"`
	}
	if _, err := readJSON(folder, name, &c); err != nil {
		return err
	}
	if c.Input != "" && c.Input != vectors || c.Output != "" && c.Output != vectors {
		return fmt.Errorf("%s: module_input_name is %.100q and module_output_name %.100q, they need to be %s", name, c.Input, c.Output, vectors)
	}
	return nil
}

// textConfigs are the files that say what becomes of texts before the model, of which the first
// counts.
var textConfigs = []string{
	"sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json",
	"sentence_camembert_config.json", "sentence_albert_config.json", "sentence_xlm-roberta_config.json",
	"sentence_xlnet_config.json",
}

// textUsual are the fields of such a file beside those that readLimits reads, and the values with
// which they ask for nothing.
var textUsual = map[string][]string{
	"transformer_task": {`"feature-extraction"`}, "module_output_name": {`"token_embeddings"`},
	"modality_config": {`{"text":{"method":"forward","method_output_name":"last_hidden_state"}}`},
	"unpad_inputs":    {"true"}, "processing_kwargs": nil, "query_length": nil, "document_length": nil,
	"query_expansion": nil, "tokenizer_name_or_path": nil, "model_args": trusts, "model_kwargs": trusts,
	"tokenizer_args": trusts, "processor_kwargs": trusts, "config_args": trusts, "config_kwargs": trusts,
}

// trusts are options that files may not set.
var trusts = []string{`{"trust_remote_code":true}`, `{"trust_remote_code":false}`}

// readLimits finds how long a text may be: what such a file says, or what the tokenizer and the
// model take.
func (s *settings) readLimits(folder string) error {
	name, fields := "", map[string]json.RawMessage(nil)
	for _, name = range textConfigs {
		found, err := readJSON(folder, name, &fields)
		if err != nil {
			return err
		}
		if found && len(fields) > 0 {
			break
		}
	}
	var c struct {
		Longest *int
		Lower   bool
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		value, err := fields[field], error(nil)
		switch usual, known := textUsual[field]; {
		case field == "max_seq_length":
			err = json.Unmarshal(value, &c.Longest)
		case field == "do_lower_case":
			err = json.Unmarshal(value, &c.Lower)
		case known && asksNothing(value, usual):
		default:
			err = errors.New("is not supported")
		}
		if err != nil {
			return fmt.Errorf("%s: field %.100q, which is %.60q, %w", name, field, value, err)
		}
	}
	var model struct {
		Positions float64 `json:"max_position_embeddings"`
	}
	var tokens struct {
		Longest float64 `json:"model_max_length"`
	}
	for name, into := range map[string]any{"config.json": &model, "tokenizer_config.json": &tokens} {
		if _, err := readJSON(folder, name, into); err != nil {
			return err
		}
	}
	longest := math.Inf(1)
	for _, n := range []float64{model.Positions, tokens.Longest} {
		if n >= 1 {
			longest = min(longest, n)
		}
	}
	if c.Longest != nil {
		if *c.Longest < 1 {
			return fmt.Errorf("%s: max_seq_length is %d, it needs to be positive", name, *c.Longest)
		}
		longest = float64(*c.Longest)
	}
	if longest < 1<<30 {
		s.longest = int(longest)
	}
	s.lower = c.Lower
	return nil
}

// asksNothing reports whether a value is none, empty or a usual one.
func asksNothing(value json.RawMessage, usual []string) bool {
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return false
	}
	return slices.Contains(append([]string{"null", "false", "{}", "[]"}, usual...), b.String())
}

// poolingModes are the ways in files from before they were called by one name.
var poolingModes = []struct{ field, way string }{
	{"pooling_mode_cls_token", "cls"}, {"pooling_mode_max_tokens", "max"}, {"pooling_mode_mean_tokens", "mean"},
	{"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"}, {"pooling_mode_weightedmean_tokens", "weightedmean"},
	{"pooling_mode_lasttoken", "lasttoken"},
}

func readPooling(folder, name string) (p pooling, err error) {
	fields := map[string]json.RawMessage{}
	found, err := readJSON(folder, name, &fields)
	if err == nil && !found {
		err = fmt.Errorf("%s is missing", name)
	}
	if err != nil {
		return p, err
	}
	p.withoutPrompt = string(fields["include_prompt"]) == "false"
	mode, named := fields["pooling_mode"]
	if named {
		var one string
		if json.Unmarshal(mode, &one) == nil {
			p.ways = []string{one}
		} else if err := json.Unmarshal(mode, &p.ways); err != nil {
			return p, fmt.Errorf("%s: pooling_mode is %.40q, it needs to be a name or a list of names", name, mode)
		}
	}
	for _, m := range poolingModes {
		if !named && string(fields[m.field]) == "true" {
			p.ways = append(p.ways, m.way)
		}
	}
	for _, way := range p.ways {
		if pools[way] == nil {
			return p, fmt.Errorf("%s: pooling_mode is %.100q, it needs to be cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken", name, way)
		}
	}
	if len(p.ways) == 0 && named {
		return p, fmt.Errorf("%s: pooling_mode is empty, it needs the name of a way", name)
	}
	if len(p.ways) == 0 {
		p.ways = []string{"mean"}
	}
	return p, nil
}

// finish makes the vector of a text of those of its tokens, (tokens, dim).
func (s *settings) finish(h []float32, dim int) (vector []float32, err error) {
	var v []float64
	for _, way := range s.pooling.ways {
		v = append(v, pools[way](h, dim)...)
	}
	for i := range s.dense {
		if v, err = s.dense[i].forward(v); err != nil {
			return nil, err
		}
	}
	divisor := 1.0
	if s.normalises {
		sum := 0.0
		for _, x := range v {
			sum += x * x
		}
		divisor = max(math.Sqrt(sum), 1e-12)
	}
	narrow := make([]float32, len(v))
	for i, x := range v {
		narrow[i] = float32(x / divisor)
	}
	return narrow, nil
}

// pools are the ways of pooling (tokens, dim), by their names.
var pools = map[string]func(h []float32, dim int) []float64{
	"cls":       func(h []float32, dim int) []float64 { return weighted(h[:dim], dim, one) },
	"lasttoken": func(h []float32, dim int) []float64 { return weighted(h[len(h)-dim:], dim, one) },
	"mean":      func(h []float32, dim int) []float64 { return weighted(h, dim, one) },
	"mean_sqrt_len_tokens": func(h []float32, dim int) []float64 {
		v := weighted(h, dim, one)
		for i := range v {
			v[i] *= math.Sqrt(float64(len(h) / dim))
		}
		return v
	},
	"weightedmean": func(h []float32, dim int) []float64 {
		return weighted(h, dim, func(at int) float64 { return float64(at + 1) })
	},
	"max": func(h []float32, dim int) []float64 {
		v := weighted(h[:dim], dim, one)
		for i, x := range h {
			v[i%dim] = max(v[i%dim], float64(x))
		}
		return v
	},
}

func one(int) float64 { return 1 }

// weighted is the mean of vectors, by a weight for each.
func weighted(h []float32, dim int, weight func(at int) float64) []float64 {
	v, all := make([]float64, dim), 0.0
	for at := range len(h) / dim {
		w := weight(at)
		all += w
		for i, x := range h[at*dim : (at+1)*dim] {
			v[i] += w * float64(x)
		}
	}
	for i := range v {
		v[i] /= all
	}
	return v
}
