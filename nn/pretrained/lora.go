package pretrained

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The files of an adapter, as peft has them.
const (
	adapterConfigFile  = "adapter_config.json"
	adapterWeightsFile = "adapter_model.safetensors"
)

// LoRA describes changes of low rank to a model's linear layers, which are trained in place of its
// weights; see [nn.LoRA].
type LoRA struct {
	Rank           int
	Alpha          float64 // the changes count Alpha/Rank times; 0 means Rank, which is once
	Dropout        float64 // of what goes into a change, while it is trained
	RankStabilized bool    // they count Alpha/√Rank times
	// Targets are the linear layers to change, by the ends of the names that transformers gives
	// them: q_proj is that of every block, layers.3.mlp.down_proj one alone. Nil means all but
	// those that make logits of tokens or classes.
	Targets []string
}

// AddLoRA gives the model changes, which graphs made from now on have. They start out changing
// nothing; what a training differentiates and changes is what is not frozen, see
// [nn.Scope.Trainable].
func (m *Model) AddLoRA(l LoRA) error {
	targets, err := m.arch.targets(l.Targets)
	if err != nil {
		return fmt.Errorf("pretrained: LoRA: %w", err)
	}
	if err := m.addLoRA(l, targets); err != nil {
		return fmt.Errorf("pretrained: LoRA: %w", err)
	}
	return nil
}

// LoadLoRA gives the model the changes of an adapter's folder, as peft writes it:
// adapter_config.json and adapter_model.safetensors. What the config asks for and there is not here
// is an error that names the field.
func (m *Model) LoadLoRA(folder string) error {
	if err := m.loadLoRA(folder); err != nil {
		return fmt.Errorf("pretrained: %s: %w", folder, err)
	}
	return nil
}

func (m *Model) loadLoRA(folder string) error {
	text, err := readSmallFile(folder, adapterConfigFile, maxConfig)
	if err != nil {
		return err
	}
	l, targets, err := m.arch.readLoRA(text)
	if err != nil {
		return err
	}
	links := changes(targets, l.Rank)
	values, err := readFolder(folder, &architecture{links: links, weights: adapterWeightsFile}, keeping{}, nil)
	if err != nil {
		return err
	}
	if err := m.addLoRA(l, targets); err != nil {
		return err
	}
	for _, name := range values.Names() {
		if err := m.parameters.Set(name, values.Value(name)); err != nil {
			return err
		}
	}
	return nil
}

// addLoRA sets the LoRA and makes its parameters.
func (m *Model) addLoRA(l LoRA, targets []*link) error {
	shared := map[string]string{} // the layer whose A each of ours has
	for _, t := range targets {
		for _, p := range t.parts {
			shared[strings.TrimSuffix(p.ours, ".weight")] = strings.TrimSuffix(t.parts[0].ours, ".weight")
		}
	}
	err := m.parameters.SetLoRA(nn.LoRA{
		Rank: l.Rank, Alpha: l.Alpha, Dropout: l.Dropout, RankStabilized: l.RankStabilized,
		Match:  func(linear string) bool { return shared[linear] != "" },
		Shared: func(linear string) string { return shared[linear] },
	})
	if err != nil {
		return err
	}
	m.lora, m.changed = l, targets
	s := nn.NewScope(gorgonia.NewGraph(), m.parameters)
	m.arch.build(s)
	return s.Err()
}

// targets finds the linear layers whose names end with one of the targets; nil picks all of the
// model's body.
func (a *architecture) targets(ends []string) ([]*link, error) {
	if ends == nil {
		var list []*link
		for i := range a.links {
			if l := &a.links[i]; l.linear && !slices.Contains(a.heads, strings.TrimSuffix(l.theirs, ".weight")) {
				list = append(list, l)
			}
		}
		return list, nil
	}
	for _, end := range ends {
		if _, err := a.linears(func(module string) bool { return endsWith(module, end) }); err != nil {
			return nil, fmt.Errorf("target %q: %w", end, err)
		}
	}
	return a.linears(func(module string) bool {
		return slices.ContainsFunc(ends, func(end string) bool { return endsWith(module, end) })
	})
}

// endsWith reports whether the last parts of a module's name are end.
func endsWith(module, end string) bool {
	return module == end || strings.HasSuffix(module, "."+end)
}

// linears are the tensors of linear layers that match, at least one. Other tensors must not match.
func (a *architecture) linears(match func(module string) bool) ([]*link, error) {
	var list []*link
	for i := range a.links {
		l := &a.links[i]
		module, isWeight := strings.CutSuffix(l.theirs, ".weight")
		if !isWeight || !match(module) {
			continue
		}
		if l.linear {
			list = append(list, l)
		} else if len(l.shape) > 1 {
			return nil, fmt.Errorf("%s is an embedding or makes logits, LoRA changes linear layers only", module)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("there is no such linear layer in the model")
	}
	return list, nil
}

// changes are the tensors of the changes of some layers. peft's A is (rank, in) and its B (out,
// rank).
func changes(targets []*link, rank int) []link {
	var links []link
	for _, t := range targets {
		module := "base_model.model." + strings.TrimSuffix(t.theirs, ".weight")
		ours := func(p part, name string) string { return strings.TrimSuffix(p.ours, "weight") + name }
		in := t.parts[0].shape[0]
		var outs []output
		for _, p := range t.parts {
			out := output{ours: ours(p, "lora_b"), n: p.shape[1]}
			if t.transposed { // it may be some columns of the parameter
				out = output{out.ours, p.n, p.at, p.shape[1]}
			}
			outs = append(outs, out)
		}
		links = append(links, weight(module+".lora_A.weight", ours(t.parts[0], "lora_a"), in, rank),
			joined(module+".lora_B.weight", rank, outs...))
	}
	return links
}

// readLoRA reads an adapter_config.json.
func (a *architecture) readLoRA(text []byte) (l LoRA, targets []*link, err error) {
	c, err := parseConfig(adapterConfigFile, text)
	if err != nil {
		return l, nil, err
	}
	if kind := c.string("peft_type", ""); kind != "LORA" && c.err == nil {
		return l, nil, fmt.Errorf("%s: field peft_type is %q, it needs to be LORA", adapterConfigFile, kind)
	}
	l = LoRA{
		Rank: c.size("r", 8), Alpha: c.float("lora_alpha", 8), Dropout: c.float("lora_dropout", 0),
		RankStabilized: c.bool("use_rslora", false),
	}
	if l.Alpha == 0 {
		c.fail("field lora_alpha is 0, it needs to be positive: the changes would count nothing")
	}
	needs(c, "bias", "none")
	for _, name := range []string{"rank_pattern", "alpha_pattern", "loftq_config"} {
		if o := c.object(name); o != nil && len(o.fields) > 0 {
			c.fail("field %s is %.60s, only an empty object is supported", name, c.fields[name])
		}
	}
	// Other ways to start than these change the weights of the model too.
	if start, given := c.fields["init_lora_weights"]; given && !slices.Contains([]string{"true", "false", `"gaussian"`, "null"}, string(start)) {
		c.fail("field init_lora_weights is %.60s, it needs to be true, false or gaussian", start)
	}
	for _, name := range []string{
		"auto_mapping", "base_model_name_or_path", "fan_in_fan_out", "inference_mode", "init_lora_weights", "megatron_core",
		"peft_version", "qalora_group_size", "revision", "task_type",
	} {
		c.read[name] = true
	}
	match, err := c.targetModules()
	if err == nil {
		err = c.finish(nil)
	}
	if err != nil {
		return l, nil, err
	}
	if match == nil {
		targets, err = a.targets(nil)
	} else {
		targets, err = a.linears(match)
	}
	if err != nil {
		return l, nil, fmt.Errorf("%s: field target_modules: %w", adapterConfigFile, err)
	}
	for _, t := range targets {
		l.Targets = append(l.Targets, strings.TrimSuffix(t.theirs, ".weight"))
	}
	return l, targets, nil
}

// targetModules reads a list of ends of names, or a regular expression for whole names; nil for all
// linear layers.
func (c *config) targetModules() (match func(module string) bool, err error) {
	var pattern string
	if json.Unmarshal(c.fields["target_modules"], &pattern) != nil {
		ends := c.strings("target_modules")
		return func(module string) bool {
			return slices.ContainsFunc(ends, func(end string) bool { return endsWith(module, end) })
		}, nil
	}
	c.read["target_modules"] = true
	if pattern == "all-linear" {
		return nil, nil
	}
	r, err := regexp.Compile(`^(?:` + pattern + `)$`)
	if err != nil {
		return nil, fmt.Errorf("%s: field target_modules: %w", adapterConfigFile, err)
	}
	return r.MatchString, nil
}

// SaveLoRA writes the changes as peft does: adapter_config.json and adapter_model.safetensors. They
// need not to be merged.
func (m *Model) SaveLoRA(folder string) error {
	if err := m.saveLoRA(folder); err != nil {
		return fmt.Errorf("pretrained: saving to %s: %w", folder, err)
	}
	return nil
}

func (m *Model) saveLoRA(folder string) error {
	switch set, merged := m.parameters.HasLoRA(); {
	case !set || m.changed == nil:
		return errors.New("the model has no LoRA")
	case merged:
		return errors.New("the LoRA is merged into the weights, Parameters().UnmergeLoRA takes it out")
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	config, err := m.adapterConfig()
	if err != nil {
		return err
	}
	if err := writeFile(folder, adapterConfigFile, func(w io.Writer) error { _, err := w.Write(config); return err }); err != nil {
		return err
	}
	return m.writeTensors(folder, adapterWeightsFile, changes(m.changed, m.lora.Rank), tensor.Float32)
}

// adapterConfig is an adapter_config.json.
func (m *Model) adapterConfig() ([]byte, error) {
	alpha := m.lora.Alpha
	if alpha == 0 {
		alpha = float64(m.lora.Rank)
	}
	task := any(nil)
	if strings.Contains(string(m.config), "ForCausalLM") || m.family == "gpt2" {
		task = "CAUSAL_LM"
	}
	text, err := json.MarshalIndent(map[string]any{
		"peft_type": "LORA", "task_type": task, "base_model_name_or_path": m.folder, "inference_mode": true,
		"r": m.lora.Rank, "lora_alpha": alpha, "lora_dropout": m.lora.Dropout, "use_rslora": m.lora.RankStabilized,
		"target_modules": m.arch.shortest(m.changed), "bias": "none", "fan_in_fan_out": m.family == "gpt2",
		"init_lora_weights": true, "modules_to_save": nil,
	}, "", "  ")
	return append(text, '\n'), err
}

// shortest names layers by the last parts of their names, or by the whole where others end so too.
func (a *architecture) shortest(targets []*link) []string {
	ends, whole := map[string]bool{}, []string{}
	for _, t := range targets {
		module := strings.TrimSuffix(t.theirs, ".weight")
		whole = append(whole, module)
		ends[module[strings.LastIndexByte(module, '.')+1:]] = true
	}
	short := slices.Sorted(maps.Keys(ends))
	if same, err := a.targets(short); err != nil || len(same) != len(targets) {
		return whole
	}
	return short
}
