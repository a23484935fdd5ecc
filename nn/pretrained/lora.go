package pretrained

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
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
	// Name tells adapters of a model apart, see [Model.UseLoRA]; empty means default.
	Name           string
	Rank           int
	Alpha          float64 // the changes count Alpha/Rank times; 0 means Rank, which is once
	Dropout        float64 // of what goes into a change, while it is trained
	RankStabilized bool    // they count Alpha/√Rank times
	Decomposed     bool    // they are DoRA's, see [nn.LoRA]
	// Targets are the linear layers to change, and embeddings, by the ends of the names that
	// transformers gives them: q_proj is that of every block, layers.3.mlp.down_proj one alone. Nil
	// means all linear layers but those that make logits of tokens or classes.
	Targets []string
	// Exclude are layers that are not changed, by the ends of their names.
	Exclude []string
	// Layers are the numbers of the blocks whose layers are changed; nil means all. Embeddings are
	// in none.
	Layers []int
	// Sizes are ranks and alphas of some layers. The first that matches counts.
	Sizes []LoRASize
	// Whole are modules that are trained as they are, by the ends of their names, such as score.
	Whole  []string
	Biases Biases // which biases are trained too
}

// LoRASize is the rank and the alpha of some layers.
type LoRASize struct {
	Module string  // the end of the layers' names
	Rank   int     // 0 means that of the LoRA
	Alpha  float64 // 0 means that of the LoRA
}

// Biases says which biases are trained beside a LoRA.
type Biases int

// The choices of biases: none, those of the layers that a LoRA changes, and all.
const (
	NoBiases Biases = iota
	ChangedBiases
	AllBiases
)

// biasNames are what peft calls the choices.
var biasNames = map[Biases]string{NoBiases: "none", ChangedBiases: "lora_only", AllBiases: "all"}

// adapter is a LoRA of a model.
type adapter struct {
	LoRA
	targets []target
	whole   []link      // of adapter files, of what is trained whole
	taken   *nn.Adapter // nil while graphs have it
}

// target is a layer that a LoRA changes.
type target struct {
	*link
	rank  int
	alpha float64 // 0 means the rank
}

func (t *target) module() string { return strings.TrimSuffix(t.theirs, ".weight") }

// defaultName is the name of an adapter that is given none, here and in peft.
const defaultName = "default"

// AddLoRA gives the model changes, which graphs made from now on have. They start out changing
// nothing; what a training differentiates and changes is what is not frozen, see
// [nn.Scope.Trainable]. The adapter that graphs had until now stays with the model, under its name.
func (m *Model) AddLoRA(l LoRA) error {
	a, err := m.arch.adapter(l, selection{
		match: endsIn(l.Targets), exclude: endsIn(l.Exclude), layers: l.Layers, size: l.size, each: l.Targets,
	})
	if err == nil {
		err = m.add(a, nil)
	}
	if err != nil {
		return fmt.Errorf("pretrained: LoRA: %w", err)
	}
	return nil
}

// LoadLoRA is [Model.LoadLoRAAs] for an adapter whose name is default.
func (m *Model) LoadLoRA(folder string) error { return m.LoadLoRAAs(defaultName, folder) }

// LoadLoRAAs gives the model the changes of an adapter's folder, as peft writes it:
// adapter_config.json and adapter_model.safetensors. Graphs made from now on have them. What the
// config asks for and there is not here is an error that names the field.
func (m *Model) LoadLoRAAs(name, folder string) error {
	if err := m.loadLoRA(name, folder); err != nil {
		return fmt.Errorf("pretrained: %s: %w", folder, err)
	}
	return nil
}

func (m *Model) loadLoRA(name, folder string) error {
	text, err := readSmallFile(folder, adapterConfigFile, maxConfig)
	if err != nil {
		return err
	}
	a, err := m.arch.readLoRA(text)
	if err != nil {
		return err
	}
	a.Name = name
	values, err := readFolder(folder, &architecture{links: a.links(), weights: adapterWeightsFile, unused: a.bases()}, keeping{}, nil)
	if err != nil {
		return err
	}
	if err := m.checkBases(folder, a); err != nil {
		return err
	}
	return m.add(a, values)
}

// checkBases makes sure that the weights of embeddings that an adapter's file has are the model's.
func (m *Model) checkBases(folder string, a *adapter) error {
	w, err := openWeights(folder, adapterWeightsFile)
	if err != nil {
		return err
	}
	defer w.close()
	for _, t := range a.targets {
		l := *t.link
		l.theirs = adapterPrefix + t.module() + baseWeight
		if w.holder[l.theirs] == nil {
			continue
		}
		values, err := w.parameters(&architecture{links: []link{l}, further: []string{""}}, keeping{}, nil)
		if err != nil {
			return err
		}
		own, err := ops.Download(m.parameters.Value(l.parts[0].ours))
		if err == nil {
			own, err = widened(own, t.link)
		}
		if err != nil {
			return err
		}
		if !slices.Equal(values.Value(l.parts[0].ours).Float32s(), own.Float32s()) {
			return fmt.Errorf("tensor %q differs from the model's %q, an adapter for another embedding is not supported", l.theirs, t.theirs)
		}
	}
	return nil
}

// add makes an adapter the model's and the one that graphs have, with values if there are any.
func (m *Model) add(a *adapter, values *nn.Parameters) error {
	if a.Name == "" {
		a.Name = defaultName
	}
	if m.adapters[a.Name] != nil {
		return fmt.Errorf("there is a LoRA already whose name is %s, it needs another", a.Name)
	}
	before := m.active
	if err := m.use(""); err != nil {
		return err
	}
	err := m.set(a)
	if err == nil && values != nil {
		for _, name := range values.Names() {
			if err = m.parameters.Set(name, values.Value(name)); err != nil {
				break
			}
		}
	}
	if err != nil {
		if set, _ := m.parameters.HasLoRA(); set {
			_, taken := m.parameters.TakeLoRA()
			err = errors.Join(err, taken)
		}
		return errors.Join(err, m.use(before))
	}
	if m.adapters == nil {
		m.adapters = map[string]*adapter{}
	}
	m.adapters[a.Name], m.active = a, a.Name
	return nil
}

// set sets the LoRA and makes its parameters.
func (m *Model) set(a *adapter) error {
	shared := map[string]string{} // the layer whose A each of ours has
	sizes := map[string]target{}
	embeddings, whole := map[string]bool{}, map[string]bool{}
	for _, t := range a.targets {
		for _, p := range t.parts {
			layer := strings.TrimSuffix(p.ours, ".weight")
			sizes[layer] = t
			if t.embedding {
				embeddings[layer] = true
			} else {
				shared[layer] = strings.TrimSuffix(t.parts[0].ours, ".weight")
			}
		}
	}
	for _, l := range a.whole {
		for _, p := range l.parts {
			whole[p.ours] = true
		}
	}
	err := m.parameters.SetLoRA(nn.LoRA{
		Rank: a.Rank, Alpha: a.Alpha, Dropout: a.Dropout, RankStabilized: a.RankStabilized, Decomposed: a.Decomposed,
		Match:      func(linear string) bool { return shared[linear] != "" },
		Shared:     func(linear string) string { return shared[linear] },
		Embeddings: func(embedding string) bool { return embeddings[embedding] },
		Sizes:      func(layer string) (int, float64) { return sizes[layer].rank, sizes[layer].alpha },
		Whole:      func(parameter string) bool { return whole[parameter] },
	})
	if err != nil {
		return err
	}
	s := nn.NewScope(gorgonia.NewGraph(), m.parameters)
	m.arch.build(s)
	return s.Err()
}

// LoRAs are the names of the model's adapters, in order. Active is that which graphs made from now
// on have, empty for none.
func (m *Model) LoRAs() (names []string, active string) {
	return slices.Sorted(maps.Keys(m.adapters)), m.active
}

// UseLoRA says which of the model's adapters graphs made from now on have; an empty name means
// none. Graphs and decoders that were made before keep theirs. A merged adapter needs to be taken
// apart first. Parameters().MergeLoRA merges the one in use.
func (m *Model) UseLoRA(name string) error {
	if err := m.use(name); err != nil {
		return fmt.Errorf("pretrained: LoRA: %w", err)
	}
	return nil
}

func (m *Model) use(name string) error {
	next := m.adapters[name]
	switch {
	case name == m.active:
		return nil
	case name != "" && next == nil:
		return fmt.Errorf("name is %q, it needs to be one of %v, or empty for none", name, slices.Sorted(maps.Keys(m.adapters)))
	}
	if m.active != "" {
		taken, err := m.parameters.TakeLoRA()
		if err != nil {
			return err
		}
		m.adapters[m.active].taken, m.active = taken, ""
	}
	if next == nil {
		return nil
	}
	if err := m.parameters.PutLoRA(next.taken); err != nil {
		return err
	}
	next.taken, m.active = nil, name
	return nil
}

// size is the rank and the alpha of a layer's change.
func (l *LoRA) size(module string) (rank int, alpha float64) {
	rank, alpha = l.Rank, l.Alpha
	sized, scaled := false, false
	for _, s := range l.Sizes {
		if !endsWith(module, s.Module) {
			continue
		}
		if s.Rank != 0 && !sized {
			rank, sized = s.Rank, true
		}
		if s.Alpha != 0 && !scaled {
			alpha, scaled = s.Alpha, true
		}
	}
	return rank, alpha
}

// selection is how layers to change are picked.
type selection struct {
	match   func(module string) bool // nil for all linear layers of the model's body
	exclude func(module string) bool // nil for none
	layers  []int                    // nil for all
	named   []string                 // modules whose whole names are given, whatever their layers
	pattern *regexp.Regexp           // what finds the number of a layer; nil for the usual one
	size    func(module string) (rank int, alpha float64)
	each    []string // ends of names of which each needs a layer
}

// endsIn matches modules whose names end so; nil for no ends.
func endsIn(ends []string) func(module string) bool {
	if ends == nil {
		return nil
	}
	return func(module string) bool {
		return slices.ContainsFunc(ends, func(end string) bool { return endsWith(module, end) })
	}
}

// endsWith reports whether the last parts of a module's name are end.
func endsWith(module, end string) bool {
	return module == end || strings.HasSuffix(module, "."+end)
}

// layerNumber is the first number in a module's name that stands behind two parts.
var layerNumber = regexp.MustCompile(`^.*?\.[^.]*\.(\d+)\.`)

// isIn reports whether a module is in one of the layers.
func (s *selection) isIn(module string) bool {
	if len(s.layers) == 0 {
		return true
	}
	pattern := s.pattern
	if pattern == nil {
		pattern = layerNumber
	}
	found := pattern.FindStringSubmatch(module)
	if found == nil {
		return false
	}
	n, err := strconv.Atoi(found[len(found)-1])
	return err == nil && slices.Contains(s.layers, n)
}

// adapter finds what a LoRA is of.
func (a *architecture) adapter(l LoRA, s selection) (*adapter, error) {
	made := &adapter{LoRA: l}
	for _, end := range s.each {
		if _, err := a.matching(func(module string) bool { return endsWith(module, end) }); err != nil {
			return nil, fmt.Errorf("target %q: %w", end, err)
		}
	}
	match := s.match
	if match == nil {
		match = func(module string) bool { return a.isLinear(module) && !slices.Contains(a.heads, module) }
	}
	links, err := a.matching(func(module string) bool {
		inWhole := slices.ContainsFunc(l.Whole, func(name string) bool { return strings.Contains("."+module+".", "."+name+".") })
		return match(module) && !inWhole && (s.isIn(module) || slices.Contains(s.named, module)) && (s.exclude == nil || !s.exclude(module))
	})
	if err != nil {
		return nil, err
	}
	for _, found := range links {
		t := target{link: found}
		if t.rank, t.alpha = s.size(t.module()); t.rank < 1 || t.rank > maxSize {
			return nil, fmt.Errorf("LoRA's rank is %d, it needs to be from 1 to %d", t.rank, maxSize)
		}
		if t.embedding && l.Decomposed {
			return nil, fmt.Errorf("%s is an embedding, DoRA changes linear layers only", t.module())
		}
		made.targets = append(made.targets, t)
	}
	made.whole, err = a.trainedWhole(&l, made.targets)
	return made, err
}

// isLinear reports whether a module is a linear layer.
func (a *architecture) isLinear(module string) bool {
	return slices.ContainsFunc(a.links, func(l link) bool { return l.linear && l.theirs == module+".weight" })
}

// linearNames are the last parts of the linear layers' names, each once.
func (a *architecture) linearNames() []string {
	names := map[string]bool{}
	for _, l := range a.links {
		if module, isWeight := strings.CutSuffix(l.theirs, ".weight"); isWeight && l.linear {
			names[module[strings.LastIndexByte(module, '.')+1:]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// matching are the tensors of linear layers and embeddings that match, at least one. Other matrices
// must not match.
func (a *architecture) matching(match func(module string) bool) ([]*link, error) {
	var list []*link
	for i := range a.links {
		l := &a.links[i]
		module, isWeight := strings.CutSuffix(l.theirs, ".weight")
		switch {
		case !isWeight && !l.experts || !match(module):
		case l.linear || l.embedding:
			list = append(list, l)
		case len(l.shape) > 1:
			return nil, fmt.Errorf("%s %s, LoRA changes linear layers and embeddings only", module, a.purpose(l, module))
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there is no such linear layer in the model, it has %s", strings.Join(a.linearNames(), ", "))
	}
	return list, nil
}

// purpose says what a matrix is that is no linear layer and no embedding.
func (a *architecture) purpose(l *link, module string) string {
	ours := l.parts[0].ours
	switch {
	case l.experts:
		return "is one of several matrices in one parameter, as those of experts are"
	case ours == "head.weight" || slices.Contains(a.heads, module):
		return "makes logits"
	case strings.Contains(ours, "positions"):
		return "makes positions"
	case strings.HasSuffix(ours, "router.weight"):
		return "chooses experts"
	}
	return fmt.Sprintf("is of shape %v and no linear layer", l.shape)
}

const (
	adapterPrefix = "base_model.model."
	baseLayer     = ".base_layer" // of a module that is changed: what it was before
	baseWeight    = baseLayer + ".weight"
)

// trainedWhole are the tensors of adapter files that are parameters trained as they are: those of
// whole modules, and biases.
func (a *architecture) trainedWhole(l *LoRA, targets []target) (list []link, err error) {
	for _, r := range a.repeats {
		module := strings.TrimSuffix(strings.TrimPrefix(r.name, "."), ".weight")
		if slices.ContainsFunc(l.Whole, func(name string) bool { return strings.HasSuffix(module, name) }) {
			return nil, fmt.Errorf("%s is tied to %s, it cannot be trained whole", module, r.of)
		}
	}
	changed := map[string]bool{}
	for _, t := range targets {
		changed[t.module()] = true
	}
	found := false
	for _, own := range a.links {
		module := own.theirs[:max(0, strings.LastIndexByte(own.theirs, '.'))]
		inWhole := isInside(module, l.Whole)
		found = found || inWhole
		isBias := strings.Contains(own.theirs, "bias")
		if !inWhole && !(isBias && (l.Biases == AllBiases || l.Biases == ChangedBiases && changed[module])) {
			continue
		}
		if inWhole && slices.ContainsFunc(a.repeats, func(r repeat) bool { return r.of == own.theirs }) {
			return nil, fmt.Errorf("%s is tied to the head, it cannot be trained whole", module)
		}
		saved := own
		if saved.theirs = adapterPrefix + own.theirs; changed[module] {
			saved.theirs = adapterPrefix + module + baseLayer + own.theirs[len(module):]
		}
		list = append(list, saved)
	}
	if len(l.Whole) > 0 && !found {
		return nil, fmt.Errorf("there is no module in the model whose name ends with one of %q, to be trained whole", l.Whole)
	}
	return list, wholeParameters(list)
}

// wholeParameters refuses tensors that are only a part of a parameter, the rest of which would be
// trained and not be in the adapter's file.
func wholeParameters(list []link) error {
	elements := map[string]int{}
	for _, l := range list {
		for _, p := range l.parts {
			elements[p.ours] += p.n * l.rowLength()
		}
	}
	for _, l := range list {
		for _, p := range l.parts {
			if elements[p.ours] < tensor.Shape(p.shape).TotalSize() {
				return fmt.Errorf("%s lies in %s beside others, it cannot be trained whole without these", strings.TrimPrefix(l.theirs, adapterPrefix), p.ours)
			}
		}
	}
	return nil
}

// isInside reports whether a module, or one that it is in, has a name with one of the ends. As in
// peft, an end may begin inside of a word.
func isInside(module string, ends []string) bool {
	for module != "" {
		if slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(module, end) }) {
			return true
		}
		module = module[:max(0, strings.LastIndexByte(module, '.'))]
	}
	return false
}

// bases are the tensors of adapter files that are weights of embeddings as they were.
func (a *adapter) bases() (names []string) {
	for _, t := range a.targets {
		if t.embedding {
			names = append(names, adapterPrefix+t.module()+baseWeight)
		}
	}
	return names
}

// links are the tensors of an adapter's file. peft's A is (rank, in) and its B (out, rank).
func (a *adapter) links() []link {
	var links []link
	for _, t := range a.targets {
		module := adapterPrefix + t.module()
		ours := func(p part, name string) string { return strings.TrimSuffix(p.ours, "weight") + name }
		in := t.parts[0].shape[0]
		var outs, lengths []output
		for _, p := range t.parts {
			out := output{ours: ours(p, "lora_b"), n: p.shape[1]}
			if t.transposed { // it may be some columns of the parameter
				out = output{out.ours, p.n, p.at, p.shape[1]}
			}
			outs = append(outs, out)
			out.ours = ours(p, "lora_m")
			lengths = append(lengths, out)
		}
		first, second := ".lora_A.weight", ".lora_B.weight"
		if t.embedding {
			first, second = ".lora_embedding_A", ".lora_embedding_B"
		}
		links = append(links, weight(module+first, ours(t.parts[0], "lora_a"), in, t.rank), joined(module+second, t.rank, outs...))
		if a.Decomposed {
			links = append(links, joinedBias(module+".lora_magnitude_vector", lengths...))
		}
	}
	return append(links, a.whole...)
}
