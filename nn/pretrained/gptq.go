package pretrained

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// GPTQ and AWQ have the codes of weights in words of 32 bits, of (in, out). Of each group of inputs
// each output has a scale and a zero: a weight is scale·(code − zero), rounded to the type of the
// scale. GPTQ packs along the inputs, AWQ along the outputs, whose order in a word is another.

// wordBits are those of the words that codes are packed in.
const wordBits = 32

// intScheme is how codes are packed.
type intScheme struct {
	bits  int
	group int // inputs; 0 for all
	awq   bool
	more  uint32 // what is added to a zero: one in GPTQ's first format
}

// inWord is how many codes a word has.
func (s intScheme) inWord() int { return wordBits / s.bits }

// awqOrder is where the codes of outputs are in a word.
var awqOrder = [8]int{0, 4, 1, 5, 2, 6, 3, 7}

// shift is where the code of an output that is packed lies in its word.
func (s intScheme) shift(output int) int {
	at := output % s.inWord()
	if s.awq {
		at = awqOrder[at]
	}
	return at * s.bits
}

// gptq reads the config of GPTQ.
func gptq(q *config) quantiser {
	s := intScheme{bits: q.size("bits", 0), more: 1}
	if !slices.Contains([]int{2, 4, 8}, s.bits) {
		q.fail("field %sbits is %d, it needs to be 2, 4 or 8", q.within, s.bits)
		s.bits = 8
	}
	s.group = q.groupSize()
	for _, name := range []string{"checkpoint_format", "format"} {
		if q.has(name) && q.oneOf(name, "", "gptq", "gptq_v2") == "gptq_v2" {
			s.more = 0
		}
	}
	needs(q, "is_marlin_format", false)
	needs(q, "pack_dtype", "int32")
	// desc_act is what the files' g_idx say, and sym what their zeros do. The others are how codes
	// were found, or with which kernels they are used.
	q.passOver("act_group_aware", "backend", "batch_size", "block_name_to_quantize", "cache_block_outputs", "damp_percent", "dataset", "desc_act",
		"lm_head", "max_input_length", "meta", "model_file_base_name", "model_name_or_path", "model_seqlen",
		"module_name_preceding_first_block", "modules_in_block_to_quantize", "pad_token_id", "static_groups", "sym", "tokenizer",
		"true_sequential", "use_cuda_fp16", "use_exllama", "exllama_config", "disable_exllama", "max_input_length")
	return func(w *weights) error { return w.joinInts(s) }
}

// awq reads the config of AWQ.
func awq(q *config) quantiser {
	s := intScheme{bits: 4, awq: true}
	needs(q, "bits", 4)
	if q.has("w_bit") {
		needs(q, "w_bit", 4)
	}
	if q.has("q_group_size") {
		q.also("group_size", "q_group_size")
	}
	s.group = q.groupSize()
	needs(q, "zero_point", true)
	for _, name := range []string{"version", "format"} {
		if have := strings.ToLower(q.string(name, "gemm")); have != "gemm" {
			q.fail("field %s is %.60q, it needs to be gemm", q.within+name, have)
		}
	}
	q.strings("modules_to_not_convert")
	q.passOver("backend", "do_fuse", "exllama_config", "fuse_max_seq_len", "modules_to_fuse")
	return func(w *weights) error { return w.joinInts(s) }
}

// groupSize reads how many inputs share a scale; 0 for all, which −1 says.
func (c *config) groupSize() int {
	n := field(c, "group_size", "an integer", 128)
	if n == -1 {
		return 0
	}
	if n < 1 || n > maxSize {
		c.fail("field %sgroup_size is %d, it needs to be positive, or -1 for all inputs", c.within, n)
		return 1
	}
	return n
}

// intMatrix is a weight of GPTQ or AWQ.
type intMatrix struct {
	intScheme
	in, out              int
	codes, zeros, scales plain
	groups               []uint32 // of each input
}

const (
	intCodes, intZeros, intScales, intGroups = ".qweight", ".qzeros", ".scales", ".g_idx"
)

// joinInts makes one tensor of the parts of each weight.
func (w *weights) joinInts(s intScheme) error {
	found := false
	for _, name := range slices.Sorted(maps.Keys(w.holder)) {
		base, is := strings.CutSuffix(name, intCodes)
		if !is {
			continue
		}
		found = true
		m, err := w.ints(base, s)
		if err != nil {
			return err
		}
		w.take(base+".weight", m, base+intCodes, base+intZeros, base+intScales, base+intGroups)
	}
	if !found {
		return fmt.Errorf("the config says that weights are quantised, and no tensor's name ends with %s", intCodes)
	}
	return nil
}

// ints is the weight of a module, whose parts are checked against each other.
func (w *weights) ints(base string, s intScheme) (m intMatrix, err error) {
	m.intScheme = s
	codes, _ := w.holder[base+intCodes].(plain)
	shape := codes.info.Shape
	if codes.info.Type != "I32" || len(shape) != 2 || min(shape[0], shape[1]) < 1 || max(shape[0], shape[1]) > maxSize {
		return m, fmt.Errorf("tensor %q is %s of shape %v, it needs to be I32 of two axes", base+intCodes, codes.info.Type, shape)
	}
	m.codes, m.in, m.out = codes, shape[0]*s.inWord(), shape[1]
	if s.awq {
		m.in, m.out = shape[0], shape[1]*s.inWord()
	}
	if m.out%s.inWord() != 0 {
		return m, fmt.Errorf("tensor %q has %d outputs, they need to be a multiple of %d", base+intCodes, m.out, s.inWord())
	}
	each := s.group
	if each == 0 {
		each = m.in
	}
	groups := (m.in + each - 1) / each
	if m.zeros, err = w.shaped(base+intZeros, []string{"I32"}, groups, m.out/s.inWord()); err != nil {
		return m, err
	}
	if m.scales, err = w.shaped(base+intScales, scaleTypes, groups, m.out); err != nil {
		return m, err
	}
	if w.holder[base+intGroups] == nil || s.awq {
		m.groups = make([]uint32, m.in)
		for i := range m.groups {
			m.groups[i] = uint32(i / each)
		}
		return m, nil
	}
	of, err := w.shaped(base+intGroups, []string{"I32"}, m.in)
	if err != nil {
		return m, err
	}
	if m.groups, err = of.words(0, m.in); err != nil {
		return m, err
	}
	for i, g := range m.groups {
		if g >= uint32(groups) {
			return m, fmt.Errorf("tensor %q has group %d for input %d, there are %d groups", base+intGroups, int32(g), i, groups)
		}
	}
	return m, nil
}

func (m intMatrix) describe() storedInfo {
	name := "GPTQ"
	if m.awq {
		name = "AWQ"
	}
	return storedInfo{[]int{m.out, m.in}, fileTypes[m.scales.info.Type], name, m.codes.info.Bytes + m.zeros.info.Bytes + m.scales.info.Bytes}
}

// read gives rows, which are outputs: of each row of the file's words the columns that they are in.
func (m intMatrix) read(first int, to []byte) error {
	dtype := fileTypes[m.scales.info.Type]
	from, n := first/m.in, len(to)/dtype.Size()/m.in
	scales, zeros, err := m.scaling(from, n)
	if err != nil {
		return err
	}
	inWord, mask := m.inWord(), uint32(1)<<m.bits-1
	if m.awq {
		column := from / inWord
		for i := range m.in {
			words, err := m.codes.words(i*m.out/inWord+column, (from+n-1)/inWord-column+1)
			if err != nil {
				return err
			}
			at := int(m.groups[i]) * n
			for j := range n {
				code := words[(from+j)/inWord-column] >> m.shift(from+j) & mask
				put(to, j*m.in+i, dtype, scales[at+j]*(float32(code)-zeros[at+j]))
			}
		}
		return nil
	}
	for row := range m.in / inWord {
		words, err := m.codes.words(row*m.out+from, n)
		if err != nil {
			return err
		}
		for k := range inWord {
			i := row*inWord + k
			at := int(m.groups[i]) * n
			for j, word := range words {
				code := word >> (k * m.bits) & mask
				put(to, j*m.in+i, dtype, scales[at+j]*(float32(code)-zeros[at+j]))
			}
		}
	}
	return nil
}

// scaling gives the scales and zeros of some outputs, group after group.
func (m intMatrix) scaling(from, n int) (scales, zeros []float32, err error) {
	inWord, mask := m.inWord(), uint32(1)<<m.bits-1
	for g := range m.scales.info.Shape[0] {
		row, err := m.scales.wide(g*m.out+from, n)
		if err != nil {
			return nil, nil, err
		}
		scales = append(scales, row...)
		column := from / inWord
		words, err := m.zeros.words(g*m.out/inWord+column, (from+n-1)/inWord-column+1)
		if err != nil {
			return nil, nil, err
		}
		for j := range n {
			zero := (words[(from+j)/inWord-column]>>m.shift(from+j) + m.more) & mask
			zeros = append(zeros, float32(zero))
		}
	}
	return scales, zeros, nil
}

// isConv reports whether a weight is one of a Conv1D, which is quantised by its columns.
func isConv(s stored, l *link) bool {
	switch s.(type) {
	case fourBitTensor, intMatrix, fp8Matrix, int8Matrix:
		return l.linear && !l.transposed
	}
	return false
}
