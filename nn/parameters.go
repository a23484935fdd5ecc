package nn

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/internal/memory"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Parameters holds the values of a model's parameters by name. Layers that are made over the same Parameters, in one
// graph after another, share the values: a training graph changes what an evaluation graph reads, without copies.
//
// A value that no one has Set is made when a layer first asks for it. Its random numbers follow from the seed and the
// name, and from nothing else. A Parameters may be used from several goroutines at once, its values of course not while
// something changes them.
type Parameters struct {
	seed uint64

	mu      sync.Mutex
	device  *ops.Device // where the values live; nil for the host
	names   []string
	values  map[string]*tensor.Dense
	used    map[string]bool        // the parameters that a layer has
	weights tensor.Dtype           // what KeepWeights said, none if it did not
	holders kernels.Holders        // of parts of the values; nil where each is whole
	wholes  map[string][]int       // the shapes of those values that are parts
	lora    *lowRank               // nil for none
	trains  func(name string) bool // nil for all
}

// NewParameters is a Parameters without values yet. The zero value is NewParameters(0).
func NewParameters(seed uint64) *Parameters { return &Parameters{seed: seed} }

// add appends a parameter that has no value yet.
func (p *Parameters) add(name string, value *tensor.Dense) {
	if p.values == nil {
		p.values = map[string]*tensor.Dense{}
	}
	p.names, p.values[name] = append(p.names, name), value
}

// use notes that a layer has a parameter.
func (p *Parameters) use(name string) {
	if p.used == nil {
		p.used = map[string]bool{}
	}
	p.used[name] = true
}

// Names lists the parameters that have a value, in the order in which they got it.
func (p *Parameters) Names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.names)
}

// Value is the value of a parameter, not a copy, and nil if there is none of that name. After [Parameters.ShareOut] it may be a part.
func (p *Parameters) Value(name string) *tensor.Dense {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values[name]
}

// Nodes lists the parameters' nodes of a graph, in the order in which the parameters were made: all that there is to train in
// whatever was built there.
func (p *Parameters) Nodes(g *gorgonia.ExprGraph) gorgonia.Nodes {
	if g == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	byName := map[string]*gorgonia.Node{}
	for _, n := range g.AllNodes() {
		if v := p.values[n.Name()]; v != nil && n.Value() == gorgonia.Value(v) {
			byName[n.Name()] = n
		}
	}
	var nodes gorgonia.Nodes
	for _, name := range p.names {
		if n := byName[name]; n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Values are the values by name, not copies, such as to be saved. After [Parameters.ShareOut] some are parts.
func (p *Parameters) Values() map[string]*tensor.Dense {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.values)
}

// Load gives all parameters of the layers that were made the values of another model of the same shape. What it has that no layer
// has, what it lacks, and what is of another shape or type is an error that names all of them, and changes nothing; [Parameters.Set]
// is for values of some.
func (p *Parameters) Load(values map[string]*tensor.Dense) error {
	if err := p.fit(values); err != nil {
		return fmt.Errorf("Parameters: %w", err)
	}
	for name, value := range values {
		if err := p.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}

// fit returns all that is wrong with the values of a whole model.
func (p *Parameters) fit(values map[string]*tensor.Dense) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.used) == 0 {
		return errors.New("no layer was made over them yet, Load needs to come after that")
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch value := values[name]; {
		case !p.used[name]:
			wrong = append(wrong, name+" is no layer's")
		case value == nil:
			wrong = append(wrong, name+" is nil, it needs to be a value")
		default:
			if err := p.likeOwn(name, value); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
	}
	for _, name := range p.names {
		if _, ok := values[name]; p.used[name] && !ok {
			wrong = append(wrong, name+" is missing")
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the values do not fit: %s", strings.Join(wrong, "; "))
	}
	return nil
}

// likeOwn makes sure that a value is like the one that layers have.
func (p *Parameters) likeOwn(name string, value *tensor.Dense) error {
	own, shape := p.values[name], p.shapeOf(name)
	if value.Dtype() != own.Dtype() || !slices.Equal(value.Shape(), shape) {
		return fmt.Errorf("%s is %v of shape %v, its layers need %v of shape %v", name, value.Dtype(), []int(value.Shape()), own.Dtype(), shape)
	}
	return nil
}

// shapeOf is the shape of a value, or of what it is a part of.
func (p *Parameters) shapeOf(name string) []int {
	if whole := p.wholes[name]; whole != nil {
		return whole
	}
	return p.values[name].Shape()
}

// Set gives a parameter a value, such as one of a trained model. Before any layer is made, the value itself is kept, and the layers
// that are made later use it instead of random numbers. Afterwards its elements are copied over those of the value that layers
// share: shape and type need to be the same, and a name that no layer has is an error. Weights may be of the type in which
// [Parameters.KeepWeights] keeps them.
func (p *Parameters) Set(name string, value *tensor.Dense) error {
	if err := p.set(name, value); err != nil {
		return fmt.Errorf("Parameters: %w", err)
	}
	return nil
}

func (p *Parameters) set(name string, value *tensor.Dense) error {
	if name == "" {
		return errors.New("name is empty, it needs to be a parameter's")
	}
	if value == nil {
		return fmt.Errorf("%s is nil, it needs to be a value", name)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := dtypeOr32(value.Dtype()); err != nil && value.Dtype() != p.weights {
		return fmt.Errorf("%s %w", name, err)
	}
	old, ok := p.values[name]
	if !p.used[name] && len(p.used) > 0 {
		return fmt.Errorf("no layer has a parameter %s, it needs to be one such as %s", name, p.nearest(name))
	}
	if ok {
		if err := p.likeOwn(name, value); err != nil {
			return err
		}
	}
	value, err := p.partOf(name, value)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	case ok:
		return ops.Assign(old, value)
	case p.device != nil:
		if value, err = p.device.Upload(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	p.add(name, value)
	return nil
}

// nearest is the name of a layer's parameter that has most in common with a wrong one, at its beginning and at its end.
func (p *Parameters) nearest(name string) string {
	best, most := "", -1
	for other := range p.used {
		begin, end := 0, 0
		for begin < min(len(name), len(other)) && name[begin] == other[begin] {
			begin++
		}
		for end < min(len(name), len(other))-begin && name[len(name)-1-end] == other[len(other)-1-end] {
			end++
		}
		if common := begin + end; common > most || common == most && other < best {
			best, most = other, common
		}
	}
	return best
}

// MoveTo moves all values to a device, those of parameters that are made later too, so that every graph over them computes
// there. It comes before the first layer is made: nodes of graphs keep the values that they have.
func (p *Parameters) MoveTo(d *ops.Device) error {
	if d == nil {
		return errors.New("Parameters: device is nil, it needs to be one that was opened")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.weights != (tensor.Dtype{}) {
		return fmt.Errorf("Parameters: weights are kept in %v, which is for the host", p.weights)
	}
	if p.device != nil && p.device != d {
		return fmt.Errorf("Parameters: the values are on %v, they cannot be moved to %v", p.device, d)
	}
	moved := map[string]*tensor.Dense{}
	for name, value := range p.values {
		var err error
		if moved[name], err = d.Upload(value); err != nil {
			return fmt.Errorf("Parameters: %s: %w", name, err)
		}
	}
	p.values, p.device = moved, d
	return nil
}

// Device is where the values live; nil for the host.
func (p *Parameters) Device() *ops.Device {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.device
}

// placed is a value of the host, moved to where the parameters live.
func (p *Parameters) placed(value *tensor.Dense) (*tensor.Dense, error) {
	if d := p.Device(); d != nil {
		return d.Upload(value)
	}
	return value, nil
}

// errShape says that a value is not the one that a layer needs.
func errShape(name string, v *tensor.Dense, have []int, dtype tensor.Dtype, shape []int) error {
	return fmt.Errorf("parameter %s exists as %v of shape %v, it needs %v of shape %v", name, v.Dtype(), have, dtype, shape)
}

// value is the value of a parameter, made if there is none.
func (p *Parameters) value(name string, dtype tensor.Dtype, init Init, shape []int) (*tensor.Dense, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.get(name, dtype, init, shape)
}

// get is value, for those who hold the lock.
func (p *Parameters) get(name string, dtype tensor.Dtype, init Init, shape []int) (*tensor.Dense, error) {
	if v, ok := p.values[name]; ok {
		if have := p.shapeOf(name); v.Dtype() != dtype || !slices.Equal(have, shape) {
			return nil, errShape(name, v, have, dtype, shape)
		}
		p.use(name)
		return v, nil
	}
	if err := checkSize(dtype, shape); err != nil {
		return nil, fmt.Errorf("parameter %s: %w", name, err)
	}
	v, err := init.first(p.derive("init "+name), dtype, shape)
	if err == nil {
		v, err = p.partOf(name, v)
	}
	if err != nil {
		return nil, fmt.Errorf("parameter %s: %w", name, err)
	}
	if p.device != nil {
		if v, err = p.device.Upload(v); err != nil {
			return nil, fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	p.add(name, v)
	p.use(name)
	return v, nil
}

// checkSize refuses shapes whose elements this machine cannot hold, before they are the end of the program.
func checkSize(dtype tensor.Dtype, shape []int) error {
	elements := uint64(kernels.Tensor{Shape: shape}.Elements())
	most := uint64(math.MaxInt)
	if total, known := memory.Total(); known {
		most = total
	}
	if element := uint64(dtype.Size()); elements > most/element {
		return fmt.Errorf("shape %v of %v takes more than this machine's memory", shape, dtype)
	}
	return nil
}

// derive gives two words that follow from the seed and what they are for.
func (p *Parameters) derive(purpose string) [2]uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", p.seed, purpose))
	return [2]uint64{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

// scope is where a layer is made: its graph, its name, and what it passes on to the layers that it consists of.
type scope struct {
	layer  string // what it is, for messages
	g      *gorgonia.ExprGraph
	name   string
	dtype  tensor.Dtype
	store  *Parameters
	params gorgonia.Nodes // of the layer, in the order in which they were made
}

// newScope checks what the configs of all layers have in common. Without Parameters, values are made from seed 0.
func newScope(layer string, g *gorgonia.ExprGraph, name string, dtype tensor.Dtype, store *Parameters) (*scope, error) {
	if g == nil {
		return nil, fmt.Errorf("%s: g is nil, it needs to be a graph", layer)
	}
	dtype, err := dtypeOr32(dtype)
	if err != nil {
		return nil, fmt.Errorf("%s: dtype %w", layer, err)
	}
	if store == nil {
		store = NewParameters(0)
	}
	return &scope{layer: layer, g: g, name: name, dtype: dtype, store: store}, nil
}

// dtypeOr32 is the type of parameters: float32 if none is given.
func dtypeOr32(d tensor.Dtype) (tensor.Dtype, error) {
	switch d {
	case tensor.Dtype{}:
		return tensor.Float32, nil
	case tensor.Float32, tensor.Float64:
		return d, nil
	}
	return d, fmt.Errorf("is %v, it needs to be float32 or float64", d)
}

// computeType is the type of activations, that of the parameters if none is given.
func (s *scope) computeType(d tensor.Dtype) (tensor.Dtype, error) {
	switch {
	case d == tensor.Dtype{}, d == s.dtype:
		return s.dtype, nil
	case s.dtype == tensor.Float32 && (d == ops.BFloat16 || d == ops.Float16):
		return d, nil
	}
	return d, s.errorf("compute is %v, beside parameters of %v it needs to be %v, or BFloat16 or Float16 beside float32", d, s.dtype, s.dtype)
}

// errUnmade is what is wrong with a layer that is the zero value of its type.
var errUnmade = errors.New("nn: the layer is a zero value, it needs to be what its New function gave")

// isMade returns an error unless a constructor has made the layer.
func (s *scope) isMade() error {
	if s == nil {
		return errUnmade
	}
	return nil
}

// errorf is an error of the layer.
func (s *scope) errorf(format string, args ...any) error {
	if s == nil {
		return errUnmade
	}
	return fmt.Errorf(s.layer+": "+format, args...)
}

// child is the name of a part of the layer.
func (s *scope) child(part string) string {
	if s.name == "" {
		return part
	}
	return s.name + "." + part
}

// parameter adds a parameter to the graph.
func (s *scope) parameter(part string, init Init, shape ...int) (*gorgonia.Node, error) {
	return s.named(s.child(part), init, shape...)
}

// named adds a parameter of the given name to the graph.
func (s *scope) named(name string, init Init, shape ...int) (*gorgonia.Node, error) {
	return s.with(name, s.store.value, init, shape...)
}

// with adds a parameter to the graph whose value is what a method of its Parameters gives.
func (s *scope) with(
	name string, get func(string, tensor.Dtype, Init, []int) (*tensor.Dense, error), init Init, shape ...int,
) (*gorgonia.Node, error) {
	if len(s.g.ByName(name)) > 0 {
		return nil, s.errorf("the graph already has a parameter or input called %s, each layer needs a Name of its own", name)
	}
	value, err := get(name, s.dtype, init, shape)
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	n := gorgonia.NewTensor(s.g, value.Dtype(), value.Dims(), gorgonia.WithShape(value.Shape()...), gorgonia.WithName(name), gorgonia.WithValue(value))
	s.params = append(s.params, n)
	return s.store.whole(n)
}

// positive checks the sizes of a config: pairs of a name and a value.
func (s *scope) positive(sizes ...size) error {
	for _, z := range sizes {
		if z.n < 1 {
			return s.errorf("%s is %d, it needs to be at least 1", z.name, z.n)
		}
	}
	return nil
}

type size struct {
	name string
	n    int
}

// epsilon checks what a norm adds to a variance or mean square.
func (s *scope) epsilon(x float64) error {
	if !(x >= 0) || math.IsInf(x, 0) {
		return s.errorf("epsilon is %v, it needs to be positive, or 0 for 1e-5", x)
	}
	return nil
}

// dropoutSeed is the seed of the masks of a dropout in the layer.
func (s *scope) dropoutSeed(part string) uint64 { return s.store.derive("dropout " + s.child(part))[0] }

// given checks that there is a node, and that it belongs to the layer's graph.
func (s *scope) given(name string, x *gorgonia.Node) error {
	switch {
	case s == nil:
		return errUnmade
	case x == nil:
		return s.errorf("%s is nil, it needs to be a node", name)
	case x.Type() == nil:
		return s.errorf("%s is a zero node, it needs to be one of a graph", name)
	case x.Graph() != nil && x.Graph() != s.g:
		return s.errorf("%s belongs to another graph than the layer", name)
	}
	return nil
}

// input checks a node that a layer is applied to: its graph, its type and, where features is positive, its last axis.
func (s *scope) input(name string, x *gorgonia.Node, features int) error {
	if err := s.given(name, x); err != nil {
		return err
	}
	if d := x.Dtype(); d != s.dtype && (s.dtype != tensor.Float32 || d != ops.BFloat16 && d != ops.Float16) {
		return s.errorf("%s is %v, it needs to go with the layer's parameters, which are %v", name, x.Dtype(), s.dtype)
	}
	switch shape := x.Shape(); {
	case len(shape) == 0:
		return s.errorf("%s is a scalar, it needs at least one axis", name)
	case features > 0 && shape[len(shape)-1] != features:
		return s.errorf("%s has shape %v, it needs a last axis of %d", name, []int(shape), features)
	}
	return nil
}

// Parameters lists the layer's parameters.
func (s *scope) Parameters() gorgonia.Nodes {
	if s == nil {
		return nil
	}
	return slices.Clone(s.params)
}

// linear makes a linear layer that is a part of this one, by a maker, or as usual where that is nil.
func (s *scope) linear(part string, maker Maker[LinearConfig], c LinearConfig) (Layer, error) {
	c.Name, c.DType, c.Parameters = s.child(part), s.dtype, s.store
	if maker == nil {
		return NewLinear(s.g, c)
	}
	return makeBy(s, c.Name, maker, c)
}

// norm makes a norm that is a part of this layer.
func (s *scope) norm(part string, dim int, k normKind) (Layer, error) {
	name := s.child(part)
	if k.maker != nil {
		return makeBy(s, name, k.maker, NormConfig{Name: name, DType: s.dtype, Parameters: s.store, Dim: dim, Epsilon: k.epsilon})
	}
	if k.rms {
		return NewRMSNorm(s.g, RMSNormConfig{Name: name, DType: s.dtype, Parameters: s.store, Dim: dim, Epsilon: k.epsilon, PlusOne: k.plusOne})
	}
	if k.plusOne {
		return nil, s.errorf("NormPlusOne is set, it needs RMSNorm")
	}
	return NewLayerNorm(s.g, LayerNormConfig{Name: name, DType: s.dtype, Parameters: s.store, Dim: dim, Epsilon: k.epsilon, NoBias: k.noBias})
}

// normKind is what the norms of a layer have in common.
type normKind struct {
	epsilon float64
	rms     bool
	noBias  bool // of LayerNorms
	plusOne bool // of RMSNorms

	maker Maker[NormConfig] // in place of all that; nil for none
}

// NormConfig describes a norm to a [Maker].
type NormConfig struct {
	Name       string       // prefix of the parameters' names
	DType      tensor.Dtype // Float32 or Float64
	Parameters *Parameters  // where the values live

	Dim     int
	Epsilon float64 // as the block's config has it
}

// dropout makes a dropout that is a part of this layer.
func (s *scope) dropout(part string, p float64, ranks kernels.Ranks) (*Dropout, error) {
	return NewDropout(s.g, DropoutConfig{Name: s.child(part), Parameters: s.store, P: p, Ranks: ranks})
}

// makeBy makes a part of a layer by a maker of the user's.
func makeBy[Config any](s *scope, name string, maker Maker[Config], c Config) (Layer, error) {
	l, err := maker(s.g, c)
	if err == nil && l == nil {
		err = s.errorf("the maker of %s gave nil, it needs to give a layer", name)
	}
	return l, err
}

// ParameterConfig describes a parameter of a layer of one's own.
type ParameterConfig struct {
	Name       string       // in its graph, such as adapter.weight
	DType      tensor.Dtype // Float32 (zero) or Float64
	Parameters *Parameters  // where the value lives; nil: new ones, from seed 0

	Shape []int
	Init  Init // nil means FanIn
}

// NewParameter adds a parameter to a graph, for a layer of one's own.
func NewParameter(g *gorgonia.ExprGraph, c ParameterConfig) (*gorgonia.Node, error) {
	s, err := newScope("Parameter", g, "", c.DType, c.Parameters)
	if err != nil {
		return nil, err
	}
	if c.Name == "" {
		return nil, s.errorf("name is empty, it needs to be one that no other parameter of the graph has")
	}
	if len(c.Shape) == 0 || slices.Min(c.Shape) < 1 {
		return nil, s.errorf("%s has shape %v, it needs at least one axis, and none that is empty", c.Name, c.Shape)
	}
	return s.parameter(c.Name, initOr(c.Init, FanIn), slices.Clone(c.Shape)...)
}
