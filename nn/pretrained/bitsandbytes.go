package pretrained

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/packed"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

const (
	nf4State = ".quant_state.bitsandbytes__nf4"
	fp4State = ".quant_state.bitsandbytes__fp4"
	// maxState is how many bytes the JSON of a weight's state may have.
	maxState = 1 << 16

	nf4Block  = 64  // elements that share a scale
	nf4Nested = 256 // scales that share a factor
)

// fp4Table is what the codes of FP4 stand for.
var fp4Table = [16]float32{
	0, 0.0052083334885537624, 0.6666666865348816, 1, 0.3333333432674408, 0.5, 0.1666666716337204, 0.25,
	0, -0.0052083334885537624, -0.6666666865348816, -1, -0.3333333432674408, -0.5, -0.1666666716337204, -0.25,
}

// bitsAndBytes reads the config of bitsandbytes. Whether scales are quantised too, the files say.
func bitsAndBytes(q *config) quantiser {
	eight := q.bool("load_in_8bit", false)
	if !eight {
		if !q.bool("load_in_4bit", false) {
			q.fail("field %sload_in_4bit is false, it or load_in_8bit needs to be true", q.within)
		}
		q.oneOf("bnb_4bit_quant_type", "fp4", "nf4", "fp4") // the files say which
		q.oneOf("bnb_4bit_quant_storage", "uint8", "uint8")
	}
	// What layers compute in, Options.Compute says here.
	q.oneOf("bnb_4bit_compute_dtype", "float32", "float32", "bfloat16", "float16")
	q.bool("bnb_4bit_use_double_quant", false)
	q.strings("llm_int8_skip_modules")
	// The first two are the same as those without the line. The others are of how layers compute,
	// and of the weights of another type.
	q.passOver("_load_in_4bit", "_load_in_8bit", "load_in_4bit", "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight",
		"llm_int8_threshold", "bnb_4bit_quant_type", "bnb_4bit_quant_storage")
	if eight {
		if q.bool("load_in_4bit", false) {
			q.fail("fields %sload_in_4bit and load_in_8bit are true, only one may be", q.within)
		}
		return (*weights).joinInt8
	}
	return (*weights).joinFourBits
}

// fourBitTensor is a matrix that bitsandbytes has quantised: its elements, row by row, in blocks
// that may go on in the next row.
type fourBitTensor struct {
	shape         []int
	table         *[16]float32  // what codes stand for
	dtype         kernels.DType // what bitsandbytes widens it to
	offset        float32       // added to the scales
	codes, scales plain
	factors       *plain // of the scales; nil where those are float32
}

// stateTypes is what the state of a weight calls the types that it was.
var stateTypes = map[string]kernels.DType{"float32": kernels.F32, "float16": kernels.F16, "bfloat16": kernels.BF16}

// joinFourBits makes one tensor of those that are a weight in NF4 or FP4.
func (w *weights) joinFourBits() error {
	for _, name := range slices.Sorted(maps.Keys(w.holder)) {
		base, isNF4 := strings.CutSuffix(name, nf4State)
		base, isFP4 := strings.CutSuffix(base, fp4State)
		if !isNF4 && !isFP4 {
			continue
		}
		joined, err := w.fourBits(base, isNF4)
		if err != nil {
			return err
		}
		w.holder[base] = joined
		for _, part := range []string{nf4State, fp4State, ".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map"} {
			delete(w.holder, base+part)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.holder)) {
		if p, ok := w.holder[name].(plain); ok && p.info.Type == "U8" && strings.HasSuffix(name, ".weight") {
			return fmt.Errorf("tensor %q is U8, and tensor %q or %s is missing", name, name+nf4State, fp4State)
		}
	}
	return nil
}

// part is a tensor of a weight, which has so many elements.
func (w *weights) part(name, dtype string, elements int) (plain, error) {
	p, found := w.holder[name].(plain)
	if !found {
		return p, fmt.Errorf("tensor %q is missing", name)
	}
	if have := tensor.Shape(p.info.Shape).TotalSize(); p.info.Type != dtype || have != elements {
		return p, fmt.Errorf("tensor %q is %s of shape %v, it needs to be %s of %d elements", name, p.info.Type, p.info.Shape, dtype, elements)
	}
	return p, nil
}

// checkTable makes sure that codes stand for the numbers that they do here.
func (w *weights) checkTable(name string, want []float32) error {
	p, err := w.part(name, "F32", len(want))
	if err != nil {
		return err
	}
	have, err := p.floats(0, len(want))
	if err == nil && !slices.Equal(have, want) {
		err = fmt.Errorf("tensor %q has other numbers than bitsandbytes", name)
	}
	return err
}

// bytes are elements of a byte.
func (p plain) bytes(from, n int) ([]byte, error) {
	b := make([]byte, n)
	return b, p.read(from, b)
}

// floats are elements of float32.
func (p plain) floats(from, n int) ([]float32, error) {
	b := make([]byte, 4*n)
	if err := p.read(from, b); err != nil {
		return nil, err
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = math.Float32frombits(binary.NativeEndian.Uint32(b[4*i:]))
	}
	return x, nil
}

// state reads what the JSON of a weight of a kind says.
func (w *weights) state(name, kind string, nested bool) (t fourBitTensor, err error) {
	p, found := w.holder[name].(plain)
	if !found || p.info.Type != "U8" || p.info.Bytes > maxState {
		return t, fmt.Errorf("tensor %q is %s of %d bytes, it needs to be U8 of at most %d", name, p.info.Type, p.info.Bytes, maxState)
	}
	text, err := p.bytes(0, int(p.info.Bytes))
	if err != nil {
		return t, err
	}
	c, err := parseConfig(fmt.Sprintf("tensor %q", name), text)
	if err != nil {
		return t, err
	}
	if have := c.string("quant_type", ""); have != kind {
		c.fail("field quant_type is %q, it needs to be %s", have, kind)
	}
	if n := c.size("blocksize", 0); n != nf4Block {
		c.fail("field blocksize is %d, only %d is supported", n, nf4Block)
	}
	was := c.string("dtype", "")
	if t.dtype, found = stateTypes[was]; !found {
		c.fail("field dtype is %q, it needs to be float32, float16 or bfloat16", was)
	}
	t.shape = c.ints("shape")
	if len(t.shape) != 2 || slices.Min(t.shape) < 1 || slices.Max(t.shape) > maxSize {
		c.fail("field shape is %v, it needs to be two numbers from 1 to %d", t.shape, maxSize)
	}
	if nested {
		if n := c.size("nested_blocksize", 0); n != nf4Nested {
			c.fail("field nested_blocksize is %d, only %d is supported", n, nf4Nested)
		}
		needs(c, "nested_dtype", "float32")
		if !c.has("nested_offset") {
			c.fail("field nested_offset is missing")
		}
		t.offset = float32(c.float("nested_offset", 0))
	}
	return t, c.finish(nil)
}

// fourBits is the weight of a name, whose parts are checked against each other.
func (w *weights) fourBits(name string, isNF4 bool) (t fourBitTensor, err error) {
	kind, state, table := "fp4", fp4State, &fp4Table
	if isNF4 {
		kind, state, table = "nf4", nf4State, &packed.NF4Table
	}
	nested := w.holder[name+".nested_absmax"] != nil
	if t, err = w.state(name+state, kind, nested); err != nil {
		return t, err
	}
	t.table = table
	elements := t.shape[0] * t.shape[1]
	blocks := (elements + nf4Block - 1) / nf4Block
	if t.codes, err = w.part(name, "U8", (elements+1)/2); err != nil {
		return t, err
	}
	if err := w.checkTable(name+".quant_map", table[:]); err != nil {
		return t, err
	}
	if !nested {
		t.scales, err = w.part(name+".absmax", "F32", blocks)
		return t, err
	}
	if err := w.checkTable(name+".nested_quant_map", packed.NF4ScaleTable[:]); err != nil {
		return t, err
	}
	if t.scales, err = w.part(name+".absmax", "U8", blocks); err != nil {
		return t, err
	}
	factors, err := w.part(name+".nested_absmax", "F32", (blocks+nf4Nested-1)/nf4Nested)
	t.factors = &factors
	return t, err
}

func (t fourBitTensor) describe() storedInfo {
	return storedInfo{t.shape, t.dtype, "NF4", t.codes.info.Bytes + t.scales.info.Bytes}
}

// scale gives the scales of some blocks.
func (t fourBitTensor) scale(from, n int) ([]float32, error) {
	if t.factors == nil {
		return t.scales.floats(from, n)
	}
	codes, err := t.scales.bytes(from, n)
	if err != nil {
		return nil, err
	}
	group := from / nf4Nested
	factors, err := t.factors.floats(group, (from+n-1)/nf4Nested-group+1)
	if err != nil {
		return nil, err
	}
	scales := make([]float32, n)
	for i, c := range codes {
		product := packed.NF4ScaleTable[c] * factors[(from+i)/nf4Nested-group]
		scales[i] = product + t.offset
	}
	return scales, nil
}

func (t fourBitTensor) read(first int, to []byte) error {
	n := len(to) / t.dtype.Size()
	if n == 0 {
		return nil
	}
	codes, err := t.codes.bytes(first/2, (first+n-1)/2-first/2+1)
	if err != nil {
		return err
	}
	block := first / nf4Block
	scales, err := t.scale(block, (first+n-1)/nf4Block-block+1)
	if err != nil {
		return err
	}
	for i := range n {
		at := first + i
		code := codes[at/2-first/2]
		if at%2 == 0 {
			code >>= 4
		}
		x := t.table[code&15] * scales[at/nf4Block-block]
		put(to, i, t.dtype, x)
	}
	return nil
}

// packed gives rows of a matrix whose blocks are within rows and whose scales are quantised.
func (t fourBitTensor) packed(dtype tensor.Dtype, row, rows int) (*tensor.Dense, error) {
	all, columns := t.shape[0], t.shape[1]
	if dtype != ops.NF4 || t.table != &packed.NF4Table || t.factors == nil || columns%nf4Block != 0 {
		return nil, nil
	}
	m := packed.NF4Matrix{Offset: t.offset}
	var err error
	if m.Codes, err = t.codes.bytes(0, all*columns/2); err != nil {
		return nil, err
	}
	blocks := all * columns / nf4Block
	if m.Scales, err = t.scales.bytes(0, blocks); err != nil {
		return nil, err
	}
	if m.Nested, err = t.factors.floats(0, (blocks+nf4Nested-1)/nf4Nested); err != nil {
		return nil, err
	}
	r, err := packed.RowOf(kernels.NF4, columns)
	if err != nil {
		return nil, err
	}
	matrix := make([]byte, all*r.Bytes)
	if err := m.Rows(matrix, all, columns); err != nil {
		return nil, err
	}
	return ops.PackedOf(slices.Clone(matrix[row*r.Bytes:][:rows*r.Bytes]), dtype, rows)
}
