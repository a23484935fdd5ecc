package pretrained

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"gorgonia.org/tensor"
)

// inertInAdapters are the fields of an adapter_config.json that change nothing of what the adapter
// computes.
var inertInAdapters = []string{
	"auto_mapping", "base_model_name_or_path", "fan_in_fan_out", "inference_mode", "megatron_core", "peft_version",
	"qalora_group_size", "revision", "task_type",
}

// readLoRA reads an adapter_config.json.
func (a *architecture) readLoRA(text []byte) (*adapter, error) {
	c, err := parseConfig(adapterConfigFile, text)
	if err != nil {
		return nil, err
	}
	if kind := c.string("peft_type", ""); kind != "LORA" && c.err == nil {
		return nil, fmt.Errorf("%s: field peft_type is %q, it needs to be LORA", adapterConfigFile, kind)
	}
	l := LoRA{
		Rank: c.size("r", 8), Alpha: c.float("lora_alpha", 8), Dropout: c.float("lora_dropout", 0),
		RankStabilized: c.bool("use_rslora", false), Decomposed: c.bool("use_dora", false), Whole: c.strings("modules_to_save"),
	}
	if l.Alpha == 0 {
		c.fail("field lora_alpha is 0, it needs to be positive: the changes would count nothing")
	}
	if l.Dropout >= 1 {
		c.fail("field lora_dropout is %v, it needs to be less than 1", l.Dropout)
	}
	l.Biases = c.biases()
	if o := c.object("loftq_config"); o != nil && len(o.fields) > 0 {
		c.fail("field loftq_config is %.60s, only an empty object is supported", c.fields["loftq_config"])
	}
	// Other ways to start than these change the weights of the model too.
	starts := []string{"true", "false", `"gaussian"`, `"orthogonal"`, "null"}
	if start, given := c.fields["init_lora_weights"]; given && !slices.Contains(starts, string(start)) {
		c.fail("field init_lora_weights is %.60s, it needs to be true, false, gaussian or orthogonal", start)
	}
	c.read["init_lora_weights"] = true
	for _, name := range inertInAdapters {
		c.read[name] = true
	}
	s := selection{exclude: c.modules("exclude_modules")}
	if !c.has("target_modules") {
		c.fail("field target_modules is missing")
	}
	all := string(bytes.ToLower(c.fields["target_modules"])) == `"all-linear"`
	if !all {
		s.match = c.modules("target_modules")
		json.Unmarshal(c.fields["target_modules"], &s.named) // a text is none of a list
	}
	c.layersOf(&s)
	ranks, alphas := c.patterns("rank_pattern"), c.patterns("alpha_pattern")
	s.size = func(module string) (int, float64) {
		rank, alpha := float64(l.Rank), l.Alpha
		for of, patterns := range map[*float64][]sizePattern{&rank: ranks, &alpha: alphas} {
			if at := slices.IndexFunc(patterns, func(p sizePattern) bool { return p.module.MatchString(module) }); at >= 0 {
				*of = patterns[at].size
			}
		}
		return int(rank), alpha
	}
	for _, p := range ranks {
		if p.size != float64(int(p.size)) || p.size > maxSize {
			c.fail("field rank_pattern has %v, it needs integers from 1 to %d", p.size, maxSize)
		}
	}
	if err := c.finish(nil); err != nil {
		return nil, err
	}
	made, err := a.adapter(l, s)
	if err != nil {
		return nil, fmt.Errorf("%s: fields target_modules and modules_to_save: %w", adapterConfigFile, err)
	}
	for _, t := range made.targets {
		made.Targets = append(made.Targets, t.module())
		if t.rank != l.Rank || t.alpha != l.Alpha {
			made.Sizes = append(made.Sizes, LoRASize{t.module(), t.rank, t.alpha})
		}
	}
	return made, nil
}

// biases reads which biases are trained.
func (c *config) biases() Biases {
	name := c.string("bias", "none")
	for b, known := range biasNames {
		if name == known {
			return b
		}
	}
	c.fail("field bias is %.60q, it needs to be none, all or lora_only", name)
	return NoBiases
}

// modules reads a list of ends of names, or a regular expression for whole names; nil for neither.
func (c *config) modules(name string) func(module string) bool {
	if !c.has(name) {
		return nil
	}
	var pattern string
	if json.Unmarshal(c.fields[name], &pattern) != nil {
		return endsIn(append([]string{}, c.strings(name)...))
	}
	r, err := regexp.Compile(`^(?:` + pattern + `)$`)
	if err != nil {
		c.fail("field %s: %w", name, err)
		return nil
	}
	return r.MatchString
}

// layersOf reads the layers that are changed: a number or a list, and the part of a name that
// stands before the number.
func (c *config) layersOf(s *selection) {
	var one int
	if !c.has("layers_to_transform") {
		if c.has("layers_pattern") && string(c.fields["layers_pattern"]) != "[]" {
			c.fail("field layers_pattern is %.60s, without layers_to_transform it needs to be null", c.fields["layers_pattern"])
		}
		return
	}
	if json.Unmarshal(c.fields["layers_to_transform"], &one) == nil {
		s.layers = []int{one}
	} else {
		s.layers = c.ints("layers_to_transform")
	}
	var text string
	if json.Unmarshal(c.fields["target_modules"], &text) == nil {
		c.fail("field layers_to_transform is %.60s, beside a target_modules that is a string it needs to be null", c.fields["layers_to_transform"])
	}
	if !c.has("layers_pattern") {
		return
	}
	var patterns []string
	if json.Unmarshal(c.fields["layers_pattern"], &text) == nil {
		patterns = []string{text}
	} else {
		patterns = c.strings("layers_pattern")
	}
	if len(patterns) == 0 || patterns[0] == "" {
		return
	}
	if len(patterns) > 1 {
		c.fail("field layers_pattern is %.60s, only one name is supported", c.fields["layers_pattern"])
	}
	r, err := regexp.Compile(`^(?:|.*?\.)(?:` + patterns[0] + `)\.(\d+)\.`)
	if err != nil {
		c.fail("field layers_pattern: %w", err)
		return
	}
	s.pattern = r
}

// sizePattern is a rank or an alpha of the layers that match.
type sizePattern struct {
	module *regexp.Regexp
	size   float64
}

// patterns reads an object of regular expressions and positive numbers. Their order counts.
func (c *config) patterns(name string) (list []sizePattern) {
	if c.object(name) == nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(c.fields[name]))
	for key := ""; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return list
		}
		if text, is := token.(string); is && text != "" && key == "" {
			key = text
			continue
		}
		switch size, is := token.(float64); {
		case err != nil, key != "" && !(is && size > 0 && size <= math.MaxFloat32), key == "" && token != json.Delim('{') && token != json.Delim('}'):
			c.fail("field %s is %.60s, it needs names and positive numbers", name, c.fields[name])
			return nil
		case is:
			r, err := regexp.Compile(`^(?:.*\.)?(?:` + key + `)$`)
			if err != nil {
				c.fail("field %s: %w", name, err)
				return nil
			}
			list, key = append(list, sizePattern{r, size}), ""
		}
	}
}

// SaveLoRA writes the changes as peft does: adapter_config.json and adapter_model.safetensors. They
// are those of the adapter in use, and need not to be merged.
func (m *Model) SaveLoRA(folder string) error {
	if err := m.saveLoRA(folder); err != nil {
		return fmt.Errorf("pretrained: saving to %s: %w", folder, err)
	}
	return nil
}

func (m *Model) saveLoRA(folder string) error {
	a := m.adapters[m.active]
	switch _, merged := m.parameters.HasLoRA(); {
	case a == nil:
		return errors.New("the model has no LoRA")
	case merged:
		return errors.New("the LoRA is merged into the weights, Parameters().UnmergeLoRA takes it out")
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	config, err := m.adapterConfig(a)
	if err != nil {
		return err
	}
	if err := plainfile.Write(filepath.Join(folder, adapterConfigFile), func(w io.Writer) error { _, err := w.Write(config); return err }); err != nil {
		return err
	}
	tensors, err := m.tensors(a.links(), SaveOptions{DType: tensor.Float32})
	if err != nil {
		return err
	}
	return writeSafetensors(folder, adapterWeightsFile, tensors)
}

// adapterConfig is an adapter_config.json.
func (m *Model) adapterConfig(a *adapter) ([]byte, error) {
	alphaOf := func(alpha float64, rank int) float64 {
		if alpha == 0 {
			return float64(rank)
		}
		return alpha
	}
	alpha := alphaOf(a.Alpha, a.Rank)
	ranks, alphas := map[string]int{}, map[string]float64{}
	for _, t := range a.targets {
		if t.rank != a.Rank {
			ranks[t.module()] = t.rank
		}
		if own := alphaOf(t.alpha, t.rank); own != alpha {
			alphas[t.module()] = own
		}
	}
	task := any(nil)
	switch {
	case strings.Contains(string(m.config), "ForCausalLM") || m.family == "gpt2":
		task = "CAUSAL_LM"
	case strings.Contains(string(m.config), classes) && len(a.Whole) > 0:
		task = "SEQ_CLS"
	}
	text, err := json.MarshalIndent(map[string]any{
		"peft_type": "LORA", "task_type": task, "base_model_name_or_path": m.folder, "inference_mode": true,
		"r": a.Rank, "lora_alpha": alpha, "lora_dropout": a.Dropout, "use_rslora": a.RankStabilized, "use_dora": a.Decomposed,
		"rank_pattern": ranks, "alpha_pattern": alphas, "target_modules": m.arch.shortest(a), "bias": biasNames[a.Biases],
		"fan_in_fan_out": m.family == "gpt2", "init_lora_weights": true, "modules_to_save": a.Whole,
	}, "", "  ")
	return append(text, '\n'), err
}

// shortest names layers by the last parts of their names, or by the whole where others end so too.
func (a *architecture) shortest(of *adapter) []string {
	ends, whole := map[string]bool{}, []string{}
	for _, t := range of.targets {
		whole = append(whole, t.module())
		ends[t.module()[strings.LastIndexByte(t.module(), '.')+1:]] = true
	}
	short := slices.Sorted(maps.Keys(ends))
	same, err := a.adapter(LoRA{Whole: of.Whole}, selection{match: endsIn(short), size: func(string) (int, float64) { return 1, 0 }})
	if err != nil || len(same.targets) != len(of.targets) {
		return whole
	}
	return short
}
