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
	"gorgonia.org/tensor"
)

// Parameters holds the values of a model's parameters by name. Layers that are made over the same
// Parameters, in one graph after another, share the values: a training graph changes what an
// evaluation graph reads, without copies.
//
// A value that no one has Set is made when a layer first asks for it. Its random numbers follow
// from the seed and the name, and from nothing else. A Parameters may be used from several
// goroutines at once, its values of course not while something changes them.
type Parameters struct {
	seed uint64

	mu      sync.Mutex
	device  *ops.Device // where the values live; nil for the host
	names   []string
	values  map[string]*tensor.Dense
	used    map[string]bool        // the parameters that a layer has
	kept    keeping                // what KeepWeights and KeepEmbeddings said
	holders kernels.Holders        // of parts of the values; nil where each is whole
	wholes  map[string][]int       // the shapes of those values that are parts
	lora    *lowRank               // nil for none
	trains  func(name string) bool // nil for all
	fixed   map[string]bool        // the parameters that gradients do not train
	still   map[string][]int       // the rows of embeddings that have no gradient of what looks them up
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

// Value is the value of a parameter, not a copy, and nil if there is none of that name. After
// [Parameters.ShareOut] it may be a part.
func (p *Parameters) Value(name string) *tensor.Dense {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values[name]
}

// Values are the values by name, not copies, such as to be saved. After [Parameters.ShareOut] some
// are parts.
func (p *Parameters) Values() map[string]*tensor.Dense {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.values)
}

// Load gives all parameters of the layers that were made the values of another model of the same
// shape. What it has that no layer has, what it lacks, and what is of another shape or type is an
// error that names all of them, and changes nothing; [Parameters.Set] is for values of some.
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

// Set gives a parameter a value, such as one of a trained model. Before any layer is made, the
// value itself is kept, and the layers that are made later use it instead of random numbers.
// Afterwards its elements are copied over those of the value that layers share: shape and type need
// to be the same, and a name that no layer has is an error. Weights may be of the type in which
// [Parameters.KeepWeights] keeps them; a packed one of a Linear layer is the transpose, (out, in).
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
	if _, err := dtypeOr32(value.Dtype()); err != nil && !p.kept.has(value.Dtype()) {
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

// nearest is the name of a layer's parameter that has most in common with a wrong one, at its
// beginning and at its end.
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

// MoveTo moves all values to a device, those of parameters that are made later too, so that every
// graph over them computes there. It comes before the first layer is made: nodes of graphs keep the
// values that they have.
func (p *Parameters) MoveTo(d *ops.Device) error {
	if d == nil {
		return errors.New("Parameters: device is nil, it needs to be one that was opened")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
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

// checkSize refuses shapes whose elements this machine cannot hold, before they are the end of the
// program.
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
