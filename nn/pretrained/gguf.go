package pretrained

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/stheno-ml/stheno/gguf"
	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/packed"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// ggufFamily is what a family of models is in GGUF. Its tensors there have the rows of
// transformers', unless it is said otherwise.
type ggufFamily struct {
	models     []string // model_type; files are read as the first
	neighbours bool     // pairs that RoPE turns are neighbours: the rows of queries and keys lie in another order
	plusOne    bool     // norms have 1 added
	tied       bool     // there is no head of its own
	names      map[string]string
}

var ggufFamilies = map[string]ggufFamily{
	"llama": {models: []string{"llama", "mistral"}, neighbours: true},
	"qwen2": {models: []string{"qwen2"}},
	"qwen3": {models: []string{"qwen3"}},
	"phi3":  {models: []string{"phi3"}},
	"gemma": {models: []string{"gemma"}, plusOne: true, tied: true},
	"gemma2": {models: []string{"gemma2"}, plusOne: true, tied: true, names: map[string]string{
		"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
	}},
}

// ggufNames are what the parts of a layer are called in GGUF.
var ggufNames = map[string]string{
	"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
	"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
	"self_attn.qkv_proj": "attn_qkv", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
}

// name is what a tensor of transformers is called in GGUF.
func (f ggufFamily) name(theirs string) (string, error) {
	switch theirs {
	case "model.embed_tokens.weight":
		return "token_embd.weight", nil
	case "model.norm.weight":
		return "output_norm.weight", nil
	case "lm_head.weight":
		return "output.weight", nil
	}
	layer, rest, found := strings.Cut(strings.TrimPrefix(theirs, "model.layers."), ".")
	dot := strings.LastIndexByte(rest, '.')
	if found && dot > 0 {
		if name := cmp.Or(f.names[rest[:dot]], ggufNames[rest[:dot]]); name != "" {
			return "blk." + layer + "." + name + rest[dot:], nil
		}
	}
	return "", fmt.Errorf("tensor %q has no name in GGUF", theirs)
}

// heads is how many heads' rows of a tensor lie in another order, 0 where none do.
func (f ggufFamily) heads(theirs string, d *decoder) int {
	switch {
	case !f.neighbours:
	case strings.Contains(theirs, ".q_proj."):
		return d.Block.Attention.Heads
	case strings.Contains(theirs, ".k_proj."):
		return d.Block.Attention.KVHeads
	}
	return 0
}

// added is what GGUF adds to the elements of a tensor.
func (f ggufFamily) added(theirs string) float32 {
	if f.plusOne && strings.HasSuffix(theirs, "norm.weight") {
		return 1
	}
	return 0
}

// ggufRow is the row of a tensor in GGUF that is this one of transformers': within each of the
// heads, those of the first half and of the second take turns.
func ggufRow(row, rows, heads int) int {
	if heads == 0 || rows < 2*heads {
		return row
	}
	size := rows / heads
	head, i := row/size, row%size
	return head*size + i%(size/2)*2 + i/(size/2)
}

// ggufTensor is a tensor of a GGUF file as transformers has it.
type ggufTensor struct {
	file  *gguf.File
	info  gguf.Info
	heads int
	added float32
}

func (t ggufTensor) describe() storedInfo {
	dtype := kernels.F32
	switch {
	case t.info.Type.Block() == 0:
		dtype = kernels.NoDType
	case t.added != 0:
	case t.info.Type == gguf.F16:
		dtype = kernels.F16
	case t.info.Type == gguf.BF16:
		dtype = kernels.BF16
	}
	return storedInfo{t.info.Shape, dtype, t.info.Type.String(), int64(t.info.Type.Bytes(t.info.Elements()))}
}

func (t ggufTensor) read(first int, to []byte) error {
	d, rows := t.describe().dtype, t.info.Shape[0]
	length := t.info.Elements() / rows
	switch {
	case t.heads == 0:
		return t.readRow(first, to, d)
	case length == 1:
		return t.readTurned(first, len(to)/d.Size(), to)
	}
	for row := first / length; len(to) > 0; row++ {
		n := length * d.Size()
		if err := t.readRow(ggufRow(row, rows, t.heads)*length, to[:n], d); err != nil {
			return err
		}
		to = to[n:]
	}
	return nil
}

// readTurned reads elements of a bias whose order is that of the heads' rows.
func (t ggufTensor) readTurned(first, n int, to []byte) error {
	all := make([]byte, t.info.Elements()*t.describe().dtype.Size())
	size := t.describe().dtype.Size()
	if err := t.readRow(0, all, t.describe().dtype); err != nil {
		return err
	}
	for i := range n {
		copy(to[i*size:][:size], all[ggufRow(first+i, t.info.Elements(), t.heads)*size:][:size])
	}
	return nil
}

// readRow reads elements that lie end to end.
func (t ggufTensor) readRow(from int, to []byte, d kernels.DType) error {
	if d != kernels.F32 || t.info.Type == gguf.F32 && t.added == 0 {
		return t.file.Bytes(t.info.Name, from, to)
	}
	numbers := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(to))), len(to)/4)
	if err := t.file.Elements(t.info.Name, from, numbers); err != nil {
		return err
	}
	if t.added != 0 {
		for i := range numbers {
			numbers[i] -= t.added
		}
	}
	return nil
}

func (t ggufTensor) packed(dtype tensor.Dtype, row, rows int) (*tensor.Dense, error) {
	kinds := map[kernels.DType]tensor.Dtype{kernels.Int8: ops.Int8, kernels.Int4: ops.Int4}
	if of := t.info.Type.Packed(); of == kernels.NoDType || kinds[of] != dtype || len(t.info.Shape) != 2 {
		return nil, nil
	}
	columns := t.info.Shape[1]
	r, err := packed.RowOf(t.info.Type.Packed(), columns)
	if err != nil {
		return nil, err
	}
	matrix, blocks := make([]byte, rows*r.Bytes), make([]byte, t.info.Type.Bytes(columns))
	for i := range rows {
		if err := t.file.Bytes(t.info.Name, ggufRow(row+i, t.info.Shape[0], t.heads)*columns, blocks); err != nil {
			return nil, err
		}
		r.FromBlocks(matrix[i*r.Bytes:][:r.Bytes], blocks)
	}
	return ops.PackedOf(matrix, dtype, rows)
}

// readGGUF is readFolder of a file.
func (m *Model) readGGUF(o Options) error {
	f, err := gguf.Open(m.folder)
	if err != nil {
		return err
	}
	defer f.Close()
	m.metadata = f.Metadata()
	kind, _ := m.metadata["general.architecture"].(string)
	family, known := ggufFamilies[kind]
	if !known {
		return fmt.Errorf("general.architecture is %.60q, it needs to be one of %s", kind, strings.Join(slices.Sorted(maps.Keys(ggufFamilies)), ", "))
	}
	if m.config, err = family.config(kind, f); err != nil {
		return err
	}
	if m.family, m.arch, err = describe(m.config, o); err != nil {
		return err
	}
	w := &weights{holder: map[string]stored{}}
	for i := range m.arch.links {
		theirs := m.arch.links[i].theirs
		name, err := family.name(theirs)
		if err != nil {
			return err
		}
		info, err := f.Info(name)
		if err != nil {
			return err
		}
		w.holder[theirs] = ggufTensor{f, info, family.heads(theirs, m.arch.decoder), family.added(theirs)}
	}
	if extra := len(f.Tensors()) - len(m.arch.links); extra != 0 {
		if _, err := f.Info(ropeFactors); err != nil || extra != 1 {
			return fmt.Errorf("there are %d tensors, the metadata asks for %d", len(f.Tensors()), len(m.arch.links))
		}
	}
	m.parameters, err = w.parameters(m.arch, keeping{o.Weights, o.Embeddings}, o.Progress)
	return err
}

// ropeFactors is the tensor of what frequencies are divided by.
const ropeFactors = "rope_freqs.weight"

// llama3Factors are the published ways to stretch the frequencies of Llama 3, of which a GGUF file
// has the divisors alone.
var llama3Factors = []nn.Llama3RoPE{{Factor: 8, Low: 1, High: 4, Context: 8192}, {Factor: 32, Low: 1, High: 4, Context: 8192}}

// ggufReader reads metadata and keeps the first error.
type ggufReader struct {
	metadata map[string]any
	read     map[string]bool // the keys that were looked at
	err      error
}

func (r *ggufReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// number is a number of any type.
func (r *ggufReader) number(key string) (x float64, found bool) {
	r.read[key] = true
	switch v := r.metadata[key].(type) {
	case nil:
		return 0, false
	case uint32:
		return float64(v), true
	case int32:
		return float64(v), true
	case uint64:
		return float64(v), true
	case float32:
		// As it was written: the shortest number that is this one in float32.
		var shortest float64
		text, _ := json.Marshal(v)
		if err := json.Unmarshal(text, &shortest); err != nil {
			r.fail("metadata %s is %v, it needs to be a number", key, v)
		}
		return shortest, true
	case float64:
		return v, true
	default:
		r.fail("metadata %s is a %T, it needs to be a number", key, v)
		return 0, true
	}
}

// config makes the config.json that transformers would have for a file.
func (f ggufFamily) config(kind string, file *gguf.File) ([]byte, error) {
	embedding, err := file.Info("token_embd.weight")
	if err != nil {
		return nil, err
	}
	if len(embedding.Shape) != 2 {
		return nil, fmt.Errorf("tensor %q has shape %v, it needs two axes", embedding.Name, embedding.Shape)
	}
	_, err = file.Info("output.weight")
	reader := ggufReader{metadata: file.Metadata(), read: map[string]bool{}}
	c := &ggufConfig{reader, kind, file, map[string]any{
		"model_type": f.models[0], "tie_word_embeddings": f.tied || err != nil, "vocab_size": embedding.Shape[0],
	}}
	headDim := c.sizes()
	switch kind {
	case "llama":
		c.llama()
	case "gemma", "gemma2":
		c.gemma(headDim)
	case "phi3":
		c.phi3()
	}
	c.scaling(int(headDim))
	for field, key := range map[string]string{"bos_token_id": "bos", "eos_token_id": "eos"} {
		if id, found := c.number("tokenizer.ggml." + key + "_token_id"); found {
			c.fields[field] = id
		}
	}
	c.leftOver()
	if c.err != nil {
		return nil, c.err
	}
	return json.MarshalIndent(c.fields, "", "  ")
}

// ggufConfig makes the fields of a config.json.
type ggufConfig struct {
	ggufReader
	kind   string // general.architecture
	file   *gguf.File
	fields map[string]any
}

// set is a number of the kind's metadata, which becomes a field if it is there.
func (c *ggufConfig) set(field, key string, required bool) float64 {
	x, found := c.number(c.kind + "." + key)
	if found {
		c.fields[field] = x
	} else if required {
		c.fail("metadata %s.%s is missing", c.kind, key)
	}
	return x
}

// or gives a field that is missing a value.
func (c *ggufConfig) or(field string, value any) {
	if _, found := c.fields[field]; !found {
		c.fields[field] = value
	}
}

// sizes sets what all kinds have, and returns the size of a head.
func (c *ggufConfig) sizes() float64 {
	dim, heads := c.set("hidden_size", "embedding_length", true), c.set("num_attention_heads", "attention.head_count", true)
	c.set("num_hidden_layers", "block_count", true)
	c.set("intermediate_size", "feed_forward_length", true)
	c.set("max_position_embeddings", "context_length", true)
	c.set("rms_norm_eps", "attention.layer_norm_rms_epsilon", true)
	c.set("rope_theta", "rope.freq_base", false)
	c.or("rope_theta", 10000.0)
	c.set("num_key_value_heads", "attention.head_count_kv", false)
	c.or("num_key_value_heads", heads)
	size := 0.0
	if heads > 0 {
		size = dim / heads
	}
	if given, found := c.number(c.kind + ".attention.key_length"); found {
		size = given
	}
	if c.kind != "phi3" {
		c.fields["head_dim"] = size
	}
	if turned, found := c.number(c.kind + ".rope.dimension_count"); found && turned != size {
		c.fail("metadata %s.rope.dimension_count is %v, it needs to be %v, that of a head", c.kind, turned, size)
	}
	return size
}

func (c *ggufConfig) llama() {
	_, in := c.file.Info("blk.0.attn_q.bias")
	_, out := c.file.Info("blk.0.attn_output.bias")
	if c.fields["attention_bias"] = in == nil; (in == nil) != (out == nil) {
		c.fail("some projections of attention have a bias and others have none")
	}
	if window, _ := c.number("llama.attention.sliding_window"); window > 0 {
		c.fail("metadata llama.attention.sliding_window is %v, only 0 is supported", window)
	}
}

func (c *ggufConfig) gemma(headDim float64) {
	c.fields["hidden_act"] = "gelu_pytorch_tanh"
	if c.kind == "gemma" {
		return
	}
	c.fields["hidden_activation"] = "gelu_pytorch_tanh"
	c.set("attn_logit_softcapping", "attn_logit_softcapping", true)
	c.set("final_logit_softcapping", "final_logit_softcapping", true)
	c.set("sliding_window", "attention.sliding_window", true)
	dim, _ := c.fields["hidden_size"].(float64)
	heads, _ := c.fields["num_attention_heads"].(float64)
	layers, _ := c.fields["num_hidden_layers"].(float64)
	c.fields["query_pre_attn_scalar"] = gemma2Scalar(int(layers), headDim, dim, heads)
}

// gemma2Scalar is what the root of a Gemma 2's scores is divided by. A GGUF file does not have it:
// llama.cpp knows the largest model by its number of layers, and divides by the width over the
// heads there.
func gemma2Scalar(layers int, headDim, dim, heads float64) float64 {
	const largest = 46
	if layers == largest && heads > 0 {
		return dim / heads
	}
	return headDim
}

func (c *ggufConfig) phi3() {
	c.set("original_max_position_embeddings", "rope.scaling.original_context_length", false)
	c.or("original_max_position_embeddings", c.fields["max_position_embeddings"])
	c.fields["sliding_window"] = nil
	if window, _ := c.number("phi3.attention.sliding_window"); window > 0 {
		c.fields["sliding_window"] = window
	}
}

// scaling reads how RoPE is stretched. Where a factor has no type it is linear, as in llama.cpp.
func (c *ggufConfig) scaling(headDim int) {
	key := c.kind + ".rope.scaling.type"
	how, _ := c.metadata[key].(string)
	c.read[key] = true
	factor, found := c.number(c.kind + ".rope.scaling.factor")
	if older, _ := c.number(c.kind + ".rope.scale_linear"); !found || factor == 0 {
		factor = older
	}
	stretched := how != "none" && factor != 0 && factor != 1
	_, err := c.file.Info(ropeFactors)
	switch {
	case how != "" && how != "none" && how != "linear":
		c.fail("metadata %s is %.60q, it needs to be none or linear", key, how)
	case err == nil && stretched:
		c.fail("metadata %s.rope.scaling.factor is %v beside the tensor %s, only one of them is supported",
			c.kind, factor, ropeFactors)
	case err == nil:
		c.divisors(headDim)
	case stretched:
		c.fields["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": factor}
	}
}

// divisors finds the way to stretch RoPE that has the divisors of a file.
func (c *ggufConfig) divisors(headDim int) {
	info, err := c.file.Info(ropeFactors)
	if err != nil {
		c.fail("%w", err)
		return
	}
	divisors := make([]float32, info.Elements())
	if info.Type.Block() != 1 || len(divisors) != headDim/2 {
		c.fail("tensor %s is %v of shape %v, it needs a number for each of the %d pairs of a head", ropeFactors, info.Type, info.Shape, headDim/2)
		return
	}
	if err := c.file.Elements(ropeFactors, 0, divisors); err != nil {
		c.fail("%w", err)
		return
	}
	base, _ := c.fields["rope_theta"].(float64)
	for _, l := range llama3Factors {
		o, err := l.Apply(ops.RoPEOptions{Base: base}, headDim)
		if err == nil && slices.EqualFunc(o.Divisors, divisors, func(x float64, y float32) bool { return math.Abs(x-float64(y)) <= 1e-5*x }) {
			c.fields["rope_scaling"] = map[string]any{
				"rope_type": "llama3", "factor": l.Factor, "low_freq_factor": l.Low, "high_freq_factor": l.High, "original_max_position_embeddings": l.Context,
			}
			return
		}
	}
	c.fail("tensor %s has other numbers than the published ones of Llama 3", ropeFactors)
}

// inertInGGUF are what follows the name of the kind in keys that change nothing of what is
// computed, or nothing but shapes, which are compared.
var inertInGGUF = []string{
	"attention.layer_norm_epsilon", "attention.value_length", "pooling_type", "rope.scaling.finetuned",
	"rope.scaling.original_context_length", "tensor_data_layout", "vocab_size",
}

// leftOver refuses metadata of the kind that nothing has read, unless it asks for nothing.
func (c *ggufConfig) leftOver() {
	for _, key := range slices.Sorted(maps.Keys(c.metadata)) {
		own, found := strings.CutPrefix(key, c.kind+".")
		value := fmt.Sprint(c.metadata[key])
		switch {
		case !found || c.read[key] || slices.Contains(inertInGGUF, own):
		case own == "attention.causal":
			if value != "true" {
				c.fail("metadata %.200q is %.60s, only true is supported", key, value)
			}
		case !slices.Contains([]string{"", "0", "false", "none", "[]"}, value):
			c.fail("metadata %.200q, which is %.60q, is not known", key, value)
		}
	}
}

// GGUFOptions are the options of [Model.SaveGGUF]. The zero value writes float32.
type GGUFOptions struct {
	// Type is that of the matrices. One whose rows are no whole blocks of it is written as Q8_0, or
	// as F16 where they are none of that either. Vectors are F32.
	Type gguf.Type
	// Metadata is written besides what describes the model: the tokenizer's, which package
	// tokenizer makes, and tokenizer.chat_template.
	Metadata map[string]any
}

// SaveGGUF writes the model as one file of llama.cpp, which Ollama and others read too: models of
// the families llama, mistral, qwen2, qwen3, phi3, gemma and gemma2. A program that makes texts of
// it needs a tokenizer in the metadata. A LoRA needs to be merged.
func (m *Model) SaveGGUF(path string, o GGUFOptions) error {
	if err := m.saveGGUF(path, o); err != nil {
		return fmt.Errorf("pretrained: saving to %s: %w", path, err)
	}
	return nil
}

func (m *Model) saveGGUF(path string, o GGUFOptions) error {
	if m.parameters.IsSharedOut() {
		return errors.New("the parameters are shared out over ranks, it needs those of a checkpoint, which are whole")
	}
	if set, merged := m.parameters.HasLoRA(); set && !merged {
		return errors.New("the LoRA is not merged into the weights: Parameters().MergeLoRA does it")
	}
	if !o.Type.IsWritten() {
		return fmt.Errorf("type is %v, it needs to be one that package gguf writes", o.Type)
	}
	kind := ""
	for name, f := range ggufFamilies {
		if slices.Contains(f.models, m.family) {
			kind = name
		}
	}
	if kind == "" || m.arch.decoder == nil {
		return fmt.Errorf("a %s is not written as GGUF", m.family)
	}
	switch d := m.arch.decoder; {
	case d.Classes != nil:
		return fmt.Errorf("a %s with a head for classes is not written as GGUF", m.family)
	case d.NoHead:
		return fmt.Errorf("a %s without a head for tokens is not written as GGUF", m.family)
	}
	metadata, err := m.arch.decoder.gguf(kind)
	if err != nil {
		return err
	}
	maps.Copy(metadata, o.Metadata)
	metadata["general.file_type"] = map[gguf.Type]uint32{gguf.F32: 0, gguf.F16: 1, gguf.Q4_0: 2, gguf.Q8_0: 7, gguf.Q4_K: 14, gguf.Q6_K: 18, gguf.BF16: 32}[o.Type]
	var tensors []gguf.Tensor
	for i := range m.arch.links {
		t, err := m.ggufTensor(ggufFamilies[kind], &m.arch.links[i], o.Type)
		if err != nil {
			return err
		}
		tensors = append(tensors, t)
	}
	if divisors := m.arch.decoder.rope[0].Divisors; divisors != nil {
		numbers := make([]float32, len(divisors))
		for i, x := range divisors {
			numbers[i] = float32(x)
		}
		tensors = append(tensors, gguf.Tensor{Name: ropeFactors, Type: gguf.F32, Shape: []int{len(numbers)}, Data: func(w io.Writer) error {
			return encodeRows(w, gguf.F32, numbers, 1, 0, 0)
		}})
	}
	return plainfile.Write(path, func(w io.Writer) error { return gguf.Write(w, metadata, tensors) })
}

// ggufTensor is a tensor of a file that is written.
func (m *Model) ggufTensor(f ggufFamily, l *link, kind gguf.Type) (gguf.Tensor, error) {
	name, err := f.name(l.theirs)
	if err != nil {
		return gguf.Tensor{}, err
	}
	if len(l.shape) == 1 {
		kind = gguf.F32
	} else {
		for _, other := range []gguf.Type{kind, gguf.Q8_0, gguf.F16} {
			if kind = other; l.shape[len(l.shape)-1]%kind.Block() == 0 {
				break
			}
		}
	}
	return gguf.Tensor{Name: name, Type: kind, Shape: l.shape, Data: func(w io.Writer) error {
		values := map[string]*tensor.Dense{}
		for _, p := range l.parts {
			v, err := ops.Download(m.parameters.Value(p.ours))
			if err == nil {
				v, err = widened(v, l)
			}
			if err != nil {
				return fmt.Errorf("parameter %s: %w", p.ours, err)
			}
			values[p.ours] = v
		}
		packed, err := l.pack(values)
		if err != nil {
			return err
		}
		return encodeRows(w, kind, packed.Float32s(), l.shape[0], f.heads(l.theirs, m.arch.decoder), f.added(l.theirs))
	}}, nil
}

// encodeRows writes the rows of a tensor in the order of GGUF.
func encodeRows(w io.Writer, kind gguf.Type, x []float32, rows, heads int, added float32) error {
	length := len(x) / rows
	turned := make([]float32, len(x))
	for i := range rows {
		to := turned[ggufRow(i, rows, heads)*length:][:length]
		copy(to, x[i*length:])
		if added != 0 { // which would make 0 of -0
			for j := range to {
				to[j] += added
			}
		}
	}
	const together = 1 << 16 // elements, of whole blocks
	buffer := make([]byte, kind.Bytes(together))
	for len(turned) > 0 {
		n := min(together, len(turned))
		b := buffer[:kind.Bytes(n)]
		if err := kind.Encode(b, turned[:n]); err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		turned = turned[n:]
	}
	return nil
}

// gguf is the metadata of a model, or what of it a kind of GGUF does not have.
func (d *decoder) gguf(kind string) (map[string]any, error) {
	a := &d.Block.Attention
	rope := d.rope[0]
	divisor := float64(a.HeadDim)
	if kind == "gemma2" {
		divisor = gemma2Scalar(d.Layers, divisor, float64(a.Dim), float64(a.Heads))
	}
	scale := cmp.Or(a.Options.Scale, 1/math.Sqrt(float64(a.HeadDim)))
	switch {
	case rope == nil || slices.ContainsFunc(d.rope, func(o *ops.RoPEOptions) bool { return o != rope }):
		return nil, errors.New("its layers have different RoPE, which GGUF has no place for")
	case rope.RotaryDim != 0 || rope.Interleaved || rope.Amplitude != 0 && rope.Amplitude != 1 || rope.Divisors != nil && kind != "llama":
		return nil, errors.New("its RoPE is stretched or cut short in a way that GGUF has no place for")
	case math.Abs(scale*math.Sqrt(divisor)-1) > 1e-6:
		return nil, fmt.Errorf("attention's scale is %v, GGUF has 1/√%v", scale, divisor)
	case !a.NoBias && kind != "llama" && kind != "qwen2" || d.Block.MLPBias != nil && *d.Block.MLPBias:
		return nil, errors.New("its linear layers have biases, which GGUF has no place for")
	}
	m := map[string]any{"general.architecture": kind, "general.quantization_version": uint32(2)}
	set := func(key string, n int) { m[kind+"."+key] = uint32(n) }
	set("block_count", d.Layers)
	set("context_length", d.Context)
	set("embedding_length", a.Dim)
	set("feed_forward_length", d.Block.Hidden)
	set("attention.head_count", a.Heads)
	set("attention.head_count_kv", a.KVHeads)
	set("attention.key_length", a.HeadDim)
	set("attention.value_length", a.HeadDim)
	set("rope.dimension_count", a.HeadDim)
	set("vocab_size", d.Vocab)
	m[kind+".attention.layer_norm_rms_epsilon"] = float32(d.Block.Epsilon)
	m[kind+".rope.freq_base"] = float32(cmp.Or(rope.Base, 10000))
	if rope.Scaling > 1 {
		m[kind+".rope.scaling.type"], m[kind+".rope.scaling.factor"] = "linear", float32(rope.Scaling)
	}
	if kind == "phi3" {
		set("rope.scaling.original_context_length", d.Context)
	}
	window, alternates := 0, true
	for i, w := range d.windows {
		window = max(window, w)
		alternates = alternates && (w > 0) == (i%2 == 0)
	}
	switch {
	case kind == "gemma2" && alternates:
		set("attention.sliding_window", window)
		m["gemma2.attn_logit_softcapping"], m["gemma2.final_logit_softcapping"] = float32(a.Options.SoftCap), float32(d.LogitSoftCap)
	case kind == "gemma2" || window > 0 && window < d.Context:
		return nil, fmt.Errorf("its layers see windows of %v tokens, which llama.cpp has no place for in a %s", d.windows, kind)
	}
	return m, nil
}
