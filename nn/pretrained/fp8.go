package pretrained

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/kernels"
)

// Weights of eight bits that are numbers by themselves: floats of FP8, and integers of
// bitsandbytes' LLM.int8. Activations are not quantised here, whatever the config says of them.

const (
	fp8Type = "F8_E4M3"
	inverse = "_scale_inv" // behind a weight's name: the scales, whatever the name says
	scaled  = "_scale"     // the same of compressed-tensors
)

// fp8Numbers are the 256 numbers of F8_E4M3, which has no infinities.
var fp8Numbers = sync.OnceValue(func() *[256]float32 {
	var table [256]float32
	for code := range table {
		exponent, mantissa := code>>3&15, float64(code&7)
		x := math.Ldexp(8+mantissa, exponent-10)
		switch {
		case code&0x7f == 0x7f:
			x = math.NaN()
		case exponent == 0:
			x = math.Ldexp(mantissa, -9)
		}
		if code >= 128 {
			x = math.Copysign(x, -1)
		}
		table[code] = float32(x)
	}
	return &table
})

// fineFP8 reads the config of DeepSeek's FP8, where blocks of a weight share a scale.
func fineFP8(q *config) quantiser {
	block := []int{128, 128}
	switch {
	case q.given("weight_block_size") && !q.has("weight_block_size"):
		block = nil // one scale for a weight
	case q.has("weight_block_size"):
		block = q.block("weight_block_size")
	}
	q.oneOf("activation_scheme", "dynamic", "dynamic", "static")
	q.oneOf("fmt", "e4m3", "e4m3", "float8_e4m3fn")
	q.oneOf("scale_fmt", "float", "float", "ue8m0") // whichever it is, the files hold floats
	needs(q, "expert_dtype", "fp8")
	q.strings("modules_to_not_convert")
	q.strings("ignored_layers")
	q.passOver("dequantize")
	return func(w *weights) error { return w.joinFP8(inverse, block) }
}

// block reads the rows and columns that share a scale.
func (c *config) block(name string) []int {
	size := c.ints(name)
	if len(size) != 2 || slices.Min(size) < 1 || slices.Max(size) > maxSize {
		c.fail("field %s is %v, it needs to be two numbers from 1 to %d", c.within+name, size, maxSize)
		return nil
	}
	return size
}

// compressedTensors reads the config of compressed-tensors, of which weights of FP8 are supported.
func compressedTensors(q *config) quantiser {
	needs(q, "format", "float-quantized")
	needs(q, "quantization_status", "compressed")
	q.strings("ignore")
	q.passOver("global_compression_ratio", "version", "run_compressed", "dequantize", "use_optimized_inference")
	for _, name := range []string{"kv_cache_scheme", "sparsity_config", "transform_config"} {
		if o := q.object(name); o != nil && len(o.fields) > 0 {
			q.fail("field %s is %.60s, only an empty object is supported", q.within+name, q.fields[name])
		}
	}
	var block []int
	groups := q.object("config_groups")
	if groups == nil || len(groups.fields) == 0 {
		q.fail("field %sconfig_groups is missing", q.within)
		return nil
	}
	for i, name := range slices.Sorted(maps.Keys(groups.fields)) {
		if g := groups.object(name); g != nil {
			own := g.fp8Group()
			q.join(g)
			if i > 0 && !slices.Equal(own, block) {
				q.fail("field %sconfig_groups has blocks of %v and %v, only one size is supported", q.within, block, own)
			}
			block = own
		}
	}
	q.join(groups)
	return func(w *weights) error { return w.joinFP8(scaled, block) }
}

// fp8Group reads a group of layers, and gives the rows and columns that share a scale: none for a
// scale a row or a tensor, which the files tell apart.
func (c *config) fp8Group() (block []int) {
	if c.has("format") {
		needs(c, "format", "float-quantized")
	}
	c.strings("targets")
	c.passOver("input_activations", "output_activations")
	weights := c.object("weights")
	if weights == nil {
		c.fail("field %sweights is missing", c.within)
		return nil
	}
	needs(weights, "num_bits", 8)
	weights.oneOf("type", "int", "float")
	needs(weights, "symmetric", true)
	if weights.oneOf("strategy", "tensor", "tensor", "channel", "block") == "block" {
		block = weights.block("block_structure")
	}
	for _, name := range []string{"actorder", "group_size"} {
		if weights.has(name) {
			weights.fail("field %s is %.60s, it needs to be null", weights.within+name, weights.fields[name])
		}
	}
	weights.passOver("dynamic", "observer", "observer_kwargs", "scale_dtype", "zp_dtype", "block_structure")
	c.join(weights)
	return block
}

// fp8Matrix is a weight of FP8, whose blocks of rows and columns have a scale each. It counts as
// rounded to the type of the scales.
type fp8Matrix struct {
	codes, scales plain
	shape         []int
	rows, columns int // of a block
}

// joinFP8 gives each weight its scales.
func (w *weights) joinFP8(ending string, block []int) error {
	found := false
	for _, name := range slices.Sorted(maps.Keys(w.holder)) {
		codes, is := w.holder[name].(plain)
		if !is || codes.info.Type != fp8Type {
			continue
		}
		found = true
		m, err := w.fp8(name, ending, codes, block)
		if err != nil {
			return err
		}
		base := strings.TrimSuffix(name, ".weight")
		w.take(name, m, name+ending, base+".input_scale", base+".activation_scale")
	}
	if !found {
		return fmt.Errorf("the config says that weights are FP8, and no tensor is %s", fp8Type)
	}
	return nil
}

func (w *weights) fp8(name, ending string, codes plain, block []int) (m fp8Matrix, err error) {
	m = fp8Matrix{codes: codes, shape: codes.info.Shape}
	if len(m.shape) != 2 || slices.Min(m.shape) < 1 || slices.Max(m.shape) > maxSize {
		return m, fmt.Errorf("tensor %q is %s of shape %v, it needs two axes", name, codes.info.Type, m.shape)
	}
	m.rows, m.columns = m.shape[0], m.shape[1]
	grid := []int{1, 1}
	if block != nil {
		m.rows, m.columns = block[0], block[1]
		grid = []int{(m.shape[0] + block[0] - 1) / block[0], (m.shape[1] + block[1] - 1) / block[1]}
	}
	found, _ := w.holder[name+ending].(plain)
	switch {
	case block != nil:
	case len(found.info.Shape) < 2: // one scale, with an axis or without
		grid = []int{1}[:len(found.info.Shape)]
	case found.info.Shape[0] == m.shape[0]:
		m.rows, grid = 1, []int{m.shape[0], 1}
	}
	m.scales, err = w.shaped(name+ending, scaleTypes, grid...)
	return m, err
}

func (m fp8Matrix) describe() storedInfo {
	return storedInfo{m.shape, fileTypes[m.scales.info.Type], "FP8", m.codes.info.Bytes + m.scales.info.Bytes}
}

func (m fp8Matrix) read(first int, to []byte) error {
	dtype, columns, table := fileTypes[m.scales.info.Type], m.shape[1], fp8Numbers()
	codes, err := m.codes.bytes(first, len(to)/dtype.Size())
	if err != nil {
		return err
	}
	each := (columns + m.columns - 1) / m.columns // scales of a row
	from, n := first/columns, len(codes)/columns
	block := from / m.rows
	scales, err := m.scales.wide(block*each, ((from+n-1)/m.rows-block+1)*each)
	if err != nil {
		return err
	}
	for i := range n {
		own := scales[((from+i)/m.rows-block)*each:]
		for j, code := range codes[i*columns:][:columns] {
			put(to, i*columns+j, dtype, table[code]*own[j/m.columns])
		}
	}
	return nil
}

// int8Matrix is a weight that bitsandbytes has quantised to eight bits, each row by its largest
// element.
type int8Matrix struct{ codes, largest plain }

const (
	int8Largest = ".SCB"
	int8Format  = ".weight_format" // of how the codes lie: 0 for row by row
)

// joinInt8 gives each weight of eight bits the largest elements of its rows.
func (w *weights) joinInt8() error {
	found := false
	for _, name := range slices.Sorted(maps.Keys(w.holder)) {
		base, is := strings.CutSuffix(name, int8Largest)
		if !is {
			continue
		}
		found = true
		codes, _ := w.holder[base+".weight"].(plain)
		if codes.info.Type != "I8" || len(codes.info.Shape) != 2 || slices.Min(codes.info.Shape) < 1 {
			return fmt.Errorf("tensor %q is %s of shape %v, it needs to be I8 of two axes", base+".weight", codes.info.Type, codes.info.Shape)
		}
		largest, err := w.shaped(name, []string{"F32"}, codes.info.Shape[0])
		if err != nil {
			return err
		}
		if w.holder[base+int8Format] != nil {
			format, err := w.part(base+int8Format, "U8", 1)
			if err != nil {
				return err
			}
			if kind, err := format.bytes(0, 1); err != nil || kind[0] != 0 {
				return fmt.Errorf("tensor %q is %v, it needs to be 0, codes that lie row by row: %w", base+int8Format, kind, err)
			}
		}
		w.take(base+".weight", int8Matrix{codes, largest}, name, base+int8Format)
	}
	if !found {
		return fmt.Errorf("the config says load_in_8bit, and no tensor's name ends with %s", int8Largest)
	}
	return nil
}

func (m int8Matrix) describe() storedInfo {
	return storedInfo{m.codes.info.Shape, kernels.F32, "LLM.int8", m.codes.info.Bytes + m.largest.info.Bytes}
}

func (m int8Matrix) read(first int, to []byte) error {
	columns := m.codes.info.Shape[1]
	codes, err := m.codes.bytes(first, len(to)/4)
	if err != nil {
		return err
	}
	largest, err := m.largest.floats(first/columns, len(codes)/columns)
	if err != nil {
		return err
	}
	for i, code := range codes {
		product := float32(int8(code)) * largest[i/columns]
		put(to, i, kernels.F32, product*(1.0/127))
	}
	return nil
}
