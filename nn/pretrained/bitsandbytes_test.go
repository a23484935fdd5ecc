package pretrained

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels/packed"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// The folders are those that testdata/nf4.py has transformers and bitsandbytes write.
var fourBitFolders = []string{"nf4-double", "nf4-half", "nf4-single", "fp4-double", "fp4-single"}

// raw is a tensor of a file, in the bytes that the file has.
type raw struct {
	Type  string `json:"dtype"`
	Shape []int  `json:"shape"`
	At    [2]int `json:"data_offsets"`
	bytes []byte
}

// rawTensors are those of a model's one file.
func rawTensors(t *testing.T, model string) map[string]raw {
	t.Helper()
	return rawTensorsOf(t, filepath.Join("testdata", model))
}

func rawTensorsOf(t *testing.T, folder string) map[string]raw {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, weightsFile))
	if err != nil {
		t.Fatal(err)
	}
	header := 8 + int(binary.LittleEndian.Uint64(content))
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(content[8:header], &entries); err != nil {
		t.Fatal(err)
	}
	delete(entries, "__metadata__")
	all := map[string]raw{}
	for name, text := range entries {
		var x raw
		if err := json.Unmarshal(text, &x); err != nil {
			t.Fatal(err)
		}
		x.bytes = content[header:][x.At[0]:x.At[1]]
		all[name] = x
	}
	return all
}

// rawFolder is a folder with a model's config and tensors.
func rawFolder(t *testing.T, config []byte, tensors map[string]raw) string {
	t.Helper()
	var data []byte
	placed := map[string]raw{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		x.At = [2]int{len(data), len(data) + len(x.bytes)}
		placed[name], data = x, append(data, x.bytes...)
	}
	header, err := json.Marshal(placed)
	if err != nil {
		t.Fatal(err)
	}
	content := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	folder := t.TempDir()
	for name, text := range map[string][]byte{configFile: config, weightsFile: append(content, data...)} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func nf4Golden(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/nf4-double/config.json")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wideDigest is the digest of a weight as its file has it, (out, in), in float32.
func wideDigest(t *testing.T, m *Model, theirs string) string {
	t.Helper()
	at := slices.IndexFunc(m.arch.links, func(l link) bool { return l.theirs == theirs })
	l := &m.arch.links[at]
	values := map[string]*tensor.Dense{}
	for _, p := range l.parts {
		wide, err := widened(m.Parameters().Value(p.ours), l)
		if err != nil {
			t.Fatal(err)
		}
		values[p.ours] = wide
	}
	turned, err := l.pack(values)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, x := range turned.Float32s() {
		if x == 0 {
			x = 0 // of both signs: bitsandbytes has kernels that make FP4's second zero negative
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func wantedDigests(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g struct{ Digests map[string]string }
	if err := json.Unmarshal(text, &g); err != nil || len(g.Digests) != 7 {
		t.Fatalf("%s has %d digests: %v", name, len(g.Digests), err)
	}
	return g.Digests
}

func allLogits(t *testing.T, m *Model, tokens [][]int) []float32 {
	t.Helper()
	s := m.scope()
	logits := m.LanguageModel(s).Forward(ids(s, "tokens", tokens))
	run(t, s)
	return value(t, logits).Data().([]float32)
}

// Weights are those that bitsandbytes widens to, to the bit, and the logits those of transformers
// over them.
func TestBitsAndBytesGolden(t *testing.T) {
	for _, name := range fourBitFolders {
		m, want := load(t, "testdata/"+name, Options{}), readGolden(t, name)
		for theirs, digest := range wantedDigests(t, name) {
			if have := wideDigest(t, m, theirs); have != digest {
				t.Errorf("%s: %s is %s, bitsandbytes makes %s of it", name, theirs, have, digest)
			}
		}
		near(t, name, allLogits(t, m, want.Tokens), want.Logits, 1e-5)
		// What is written is a folder of wide weights.
		saved := t.TempDir()
		if err := m.Save(saved, SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		if a, b := allLogits(t, load(t, saved, Options{}), want.Tokens), allLogits(t, m, want.Tokens); !slices.Equal(a, b) {
			t.Errorf("%s: saved it gives other logits", name)
		}
	}
}

// With Weights of NF4 the codes and the scales are kept as they are where scales are quantised.
func TestBitsAndBytesKept(t *testing.T) {
	for _, name := range []string{"nf4-double", "nf4-half"} {
		m := load(t, "testdata/"+name, Options{Weights: ops.NF4})
		all, digests := rawTensors(t, name), wantedDigests(t, name)
		for _, l := range m.arch.links {
			if !l.linear {
				continue
			}
			v := m.Parameters().Value(l.parts[0].ours)
			if v.Dtype() != ops.NF4 {
				t.Errorf("%s: %s is %v", name, l.theirs, v.Dtype())
				continue
			}
			own, err := packed.NF4MatrixOf(ops.PackedBytes(v), l.shape[0], l.shape[1])
			if err != nil {
				t.Fatal(err)
			}
			var nested []byte
			for _, x := range own.Nested {
				nested = binary.LittleEndian.AppendUint32(nested, math.Float32bits(x))
			}
			if !bytes.Equal(own.Codes, all[l.theirs].bytes) || !bytes.Equal(own.Scales, all[l.theirs+".absmax"].bytes) ||
				!bytes.Equal(nested, all[l.theirs+".nested_absmax"].bytes) {
				t.Errorf("%s: %s has other codes or scales than the file", name, l.theirs)
			}
			// The weights of nf4-half are rounded to bfloat16 where bitsandbytes widens them, and
			// are not where they are kept.
			if have := wideDigest(t, m, l.theirs); name == "nf4-double" && have != digests[l.theirs] {
				t.Errorf("%s: %s counts as %s, for bitsandbytes as %s", name, l.theirs, have, digests[l.theirs])
			}
		}
		if want := readGolden(t, name); name == "nf4-double" {
			near(t, name, allLogits(t, m, want.Tokens), want.Logits, 1e-5)
		} else {
			near(t, name, allLogits(t, m, want.Tokens), want.Logits, 0x1p-6)
		}
	}
	// Weights in another type are packed of what they count as.
	m := load(t, "testdata/nf4-double", Options{Weights: ops.Int8})
	want := readGolden(t, "nf4-double")
	near(t, "in Int8", allLogits(t, m, want.Tokens), want.Logits, 0.1)
	if _, err := Load("testdata/nf4-single", Options{Weights: ops.NF4}); err == nil || !strings.Contains(err.Error(), "they need to be a multiple of 64") {
		t.Errorf("rows that share blocks, kept in NF4: %v", err)
	}
}

// A folder whose weights are kept in NF4 is written as bitsandbytes has written it, byte by byte.
func TestBitsAndBytesWrittenAgain(t *testing.T) {
	for _, name := range []string{"nf4-double", "nf4-half"} {
		m, folder := load(t, "testdata/"+name, Options{Weights: ops.NF4}), t.TempDir()
		if err := m.Save(folder, SaveOptions{DType: m.DType(), Weights: ops.NF4}); err != nil {
			t.Fatal(err)
		}
		have, want := rawTensorsOf(t, folder), rawTensors(t, name)
		for tensor, w := range want {
			h := have[tensor]
			if h.Type != w.Type || !slices.Equal(h.Shape, w.Shape) || !bytes.Equal(h.bytes, w.bytes) {
				t.Errorf("%s: %s is %s of %v, %.80q, want %s of %v, %.80q", name, tensor, h.Type, h.Shape, h.bytes, w.Type, w.Shape, w.bytes)
			}
		}
		if len(have) != len(want) {
			t.Errorf("%s: %d tensors were written, bitsandbytes wrote %d", name, len(have), len(want))
		}
		var theirs, ours map[string]any
		for place, into := range map[string]*map[string]any{"testdata/" + name: &theirs, folder: &ours} {
			text, err := os.ReadFile(filepath.Join(place, configFile))
			if err == nil {
				err = json.Unmarshal(text, into)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if !reflect.DeepEqual(theirs, ours) {
			t.Errorf("%s: the config is %v, want %v", name, ours, theirs)
		}
	}
}

// Models of several families are written in NF4, in the types that their other tensors may have and
// in shards, and read as what the same weights count as that are packed in memory.
func TestSaveNF4(t *testing.T) {
	for _, c := range []struct {
		name  string
		dtype tensor.Dtype
		shard int64
	}{
		{"nf4-double", tensor.Float32, 0}, {"nf4-double", ops.BFloat16, 9000}, {"nf4-double", ops.Float16, 0},
		{"nf4-single", tensor.Float32, 0}, {"llama3", tensor.Float32, 0}, {"phi3", tensor.Float32, 0}, {"gpt_neox", ops.BFloat16, 0},
		{"qwen3-classes", tensor.Float32, 0},
	} {
		m, folder := load(t, "testdata/"+c.name, Options{}), t.TempDir()
		if *update && c.shard == 0 {
			folder = filepath.Join("testdata", "written", "nf4", fmt.Sprint(c.name, "-", typeNames[c.dtype]))
		}
		if err := m.Save(folder, SaveOptions{DType: c.dtype, ShardSize: c.shard, Weights: ops.NF4}); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		again := load(t, folder, Options{})
		if again.DType() != c.dtype {
			t.Errorf("%s in %v: its type is %v", c.name, c.dtype, again.DType())
		}
		quantised := 0
		for i := range m.arch.links {
			l := &m.arch.links[i]
			if m.arch.isNF4(l) {
				quantised++
			}
			var rest [2]*tensor.Dense
			for j, from := range []*Model{m, again} {
				values := map[string]*tensor.Dense{}
				for _, p := range l.parts {
					values[p.ours] = from.Parameters().Value(p.ours)
				}
				wide, err := l.pack(values)
				if err != nil {
					t.Fatal(err)
				}
				rest[j] = rounded(wide, c.dtype)
			}
			if m.arch.isNF4(l) {
				rest[0] = throughNF4(t, rest[0], c.dtype)
			}
			if !reflect.DeepEqual(rest[0].Data(), rest[1].Data()) {
				t.Errorf("%s in %v: %s is another once it was written", c.name, c.dtype, l.theirs)
			}
		}
		if quantised < 4 {
			t.Errorf("%s: %d weights are in NF4", c.name, quantised)
		}
	}
	for name, want := range map[string]string{
		"gpt2": "a gpt2 is not written so", "bert": "a bert is not written so", "olmoe": "a olmoe has experts",
	} {
		if err := load(t, "testdata/"+name, Options{}).Save(t.TempDir(), SaveOptions{Weights: ops.NF4}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", name, err, want)
		}
	}
	m := load(t, "testdata/nf4-double", Options{})
	if err := m.Save(t.TempDir(), SaveOptions{Weights: ops.Int4}); err == nil || !strings.Contains(err.Error(), "it needs to be NF4") {
		t.Errorf("in Int4: %v", err)
	}
}

// throughNF4 is what a matrix counts as in NF4, each element computed by itself: blocks of 64
// whose largest magnitude is a code of 8 bits, around the mean of all.
func throughNF4(t *testing.T, wide *tensor.Dense, dtype tensor.Dtype) *tensor.Dense {
	t.Helper()
	in, err := ops.Converted(wide, tensor.Float32)
	if err != nil {
		t.Fatal(err)
	}
	x := in.Float32s()
	var scales []float32
	mean := 0.0
	for block := range slices.Chunk(x, nf4Block) {
		most := float32(0)
		for _, v := range block {
			most = max(most, max(v, -v))
		}
		scales, mean = append(scales, most), mean+float64(most)
	}
	offset := float32(mean / float64(len(scales)))
	nearest := func(table []float32, v float32) float32 {
		best := table[0]
		for _, e := range table[1:] {
			if math.Abs(float64(v)-float64(e)) < math.Abs(float64(v)-float64(best)) {
				best = e
			}
		}
		return best
	}
	out := make([]float32, len(x))
	for first := 0; first < len(scales); first += nf4Nested {
		group := scales[first:min(first+nf4Nested, len(scales))]
		most := float32(0)
		for _, s := range group {
			most = max(most, max(s-offset, offset-s))
		}
		for i, s := range group {
			code := nearest(packed.NF4ScaleTable[:], (s-offset)/max(most, 1e-38))
			scale := code*most + offset
			for at := (first + i) * nf4Block; at < min((first+i+1)*nf4Block, len(x)); at++ {
				out[at] = nearest(packed.NF4Table[:], x[at]*(1/max(s, 1e-38))) * scale
			}
		}
	}
	return rounded(tensor.New(tensor.WithShape(wide.Shape()...), tensor.WithBacking(out)), dtype)
}

// A folder that lacks a part, or has one that is another, is refused.
func TestBitsAndBytesErrors(t *testing.T) {
	const (
		weight = "model.layers.0.mlp.up_proj.weight"
		state  = weight + nf4State
	)
	inState := func(from, to string) func(raw) raw {
		return func(x raw) raw {
			changed := strings.Replace(string(x.bytes), from, to, 1)
			if changed == string(x.bytes) {
				t.Fatalf("%q is not in the state", from)
			}
			return raw{Type: "U8", Shape: []int{len(changed)}, bytes: []byte(changed)}
		}
	}
	short := func(x raw) raw {
		size := map[string]int{"U8": 1, "F32": 4}[x.Type]
		n := len(x.bytes)/size - 1
		return raw{Type: x.Type, Shape: []int{n}, bytes: x.bytes[:n*size]}
	}
	zeros := func(x raw) raw { x.bytes = make([]byte, len(x.bytes)); return x }
	set := func(dtype string, elements int, bytes []byte) func(raw) raw {
		return func(raw) raw { return raw{Type: dtype, Shape: []int{elements}, bytes: bytes} }
	}
	var gone func(raw) raw
	for _, c := range []struct {
		name   string
		change func(raw) raw // nil takes it away
		want   string
	}{
		{weight, gone, `tensor "` + weight + `" is missing`},
		{weight, short, "it needs to be U8 of 12288 elements"},
		{state, gone, `is U8, and tensor "` + state + `" or .quant_state.bitsandbytes__fp4 is missing`},
		{weight + ".absmax", gone, `.absmax" is missing`},
		{weight + ".absmax", short, "it needs to be U8 of 384 elements"},
		{weight + ".nested_absmax", gone, "field nested_"},
		{weight + ".nested_absmax", short, "it needs to be F32 of 2 elements"},
		{weight + ".quant_map", gone, `.quant_map" is missing`},
		{weight + ".quant_map", short, "it needs to be F32 of 16 elements"},
		{weight + ".quant_map", zeros, "has other numbers than bitsandbytes"},
		{weight + ".nested_quant_map", gone, `.nested_quant_map" is missing`},
		{weight + ".nested_quant_map", zeros, "has other numbers than bitsandbytes"},
		{state, set("U8", 3, []byte("nf4")), "invalid character"},
		{state, set("U8", 4, []byte("null")), "it is null, it needs to be an object"},
		{state, set("U8", maxState+1, make([]byte, maxState+1)), "it needs to be U8 of at most 65536"},
		{state, set("F32", 1, make([]byte, 4)), "it needs to be U8 of at most 65536"},
		{state, inState(`"nf4"`, `"fp4"`), `field quant_type is "fp4", it needs to be nf4`},
		{state, inState(`"blocksize": 64`, `"blocksize": 128`), "field blocksize is 128, only 64 is supported"},
		{state, inState(`"blocksize": 64`, `"shrug": 1, "blocksize": 64`), "field shrug, which is 1, is not known"},
		{state, inState(`"dtype": "float32"`, `"dtype": "float8"`), `field dtype is "float8"`},
		{state, inState(`[192, 128]`, `[128, 128]`), "it needs to be U8 of 8192 elements"},
		{state, inState(`[192, 128]`, `[128, 192]`), "has shape [128 192], the config asks for [192 128]"},
		{state, inState(`[192, 128]`, `[0, 128]`), "field shape is [0 128]"},
		{state, inState(`[192, 128]`, `[-192, -128]`), "field shape is [-192 -128]"},
		{state, inState(`[192, 128]`, `[192]`), "field shape is [192]"},
		{state, inState(`[192, 128]`, `[9223372036854775807, 2]`), "field shape is [9223372036854775807 2]"},
		{state, inState(`[192, 128]`, `"many"`), "field shape is \"many\", it needs to be a list of integers"},
		{state, inState(`"nested_blocksize": 256`, `"nested_blocksize": 64`), "field nested_blocksize is 64, only 256 is supported"},
		{state, inState(`"nested_dtype": "float32"`, `"nested_dtype": "float16"`), "field nested_dtype is float16, only float32 is supported"},
		{state, inState(`"nested_offset"`, `"dtype_"`), "field nested_offset is missing"},
	} {
		tensors := rawTensors(t, "nf4-double")
		if c.change == nil {
			delete(tensors, c.name)
		} else {
			tensors[c.name] = c.change(tensors[c.name])
		}
		folder := rawFolder(t, nf4Golden(t), tensors)
		for _, weights := range []tensor.Dtype{{}, ops.NF4} {
			if _, err := Load(folder, Options{Weights: weights}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s in it", c.name, err, c.want)
			}
		}
	}
}

// A config that asks for another way to quantise is refused by the name of its field.
func TestBitsAndBytesConfig(t *testing.T) {
	text := nf4Golden(t)
	for _, c := range []struct{ from, to, want string }{
		{`"quant_method": "bitsandbytes"`, `"quant_method": "hqq"`, `field quantization_config.quant_method is "hqq", it needs to be awq, bitsandbytes`},
		{`"load_in_4bit": true`, `"load_in_4bit": false`, "field quantization_config.load_in_4bit is false, it or load_in_8bit needs to be true"},
		{`"load_in_8bit": false`, `"load_in_8bit": true`, "fields quantization_config.load_in_4bit and load_in_8bit are true"},
		{`"bnb_4bit_quant_type": "nf4"`, `"bnb_4bit_quant_type": "int4"`, `field quantization_config.bnb_4bit_quant_type is "int4"`},
		{`"bnb_4bit_quant_type": "nf4"`, `"bnb_4bit_quant_type": "fp4"`, ""},
		{`"bnb_4bit_quant_type": "nf4"`, `"bnb_4bit_quant_type": null`, ""},
		{`"bnb_4bit_quant_storage": "uint8"`, `"bnb_4bit_quant_storage": "bfloat16"`, `field quantization_config.bnb_4bit_quant_storage is "bfloat16"`},
		{`"bnb_4bit_compute_dtype": "float32"`, `"bnb_4bit_compute_dtype": "int8"`, `field quantization_config.bnb_4bit_compute_dtype is "int8"`},
		{`"bnb_4bit_use_double_quant": true`, `"bnb_4bit_use_double_quant": 2`, "field quantization_config.bnb_4bit_use_double_quant is 2"},
		{`"llm_int8_skip_modules": null`, `"llm_int8_skip_modules": "lm_head"`, "field quantization_config.llm_int8_skip_modules is \"lm_head\""},
		{`"load_in_4bit": true`, `"load_in_4bit": true, "bits": 3`, "field quantization_config.bits, which is 3, is not known"},
		{`"quant_method": "bitsandbytes"`, `"quant_method": "bitsandbytes", "llm_int8_skip_modules": ["lm_head"]`, ""},
	} {
		// The names with a line before them are others.
		changed := strings.Replace(string(text), "    "+c.from, "    "+c.to, 1)
		if changed == string(text) {
			t.Fatalf("%s is not in the config", c.from)
		}
		switch _, a, err := describe([]byte(changed), Options{}); {
		case c.want == "" && (err != nil || a.quantised == nil):
			t.Errorf("%s: %v", c.to, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s in it", c.to, err, c.want)
		}
	}
	// Without the field, the tensors are none that the config asks for.
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, quantisation)
	plain, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	folder := rawFolder(t, plain, rawTensors(t, "nf4-double"))
	if _, err := Load(folder, Options{}); err == nil || !strings.Contains(err.Error(), "has shape") {
		t.Errorf("without the field: %v", err)
	}
}

// FuzzNF4State loads a folder one of whose weights has any state and any scales.
func FuzzNF4State(f *testing.F) {
	f.Add([]byte(`{"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [192, 128], "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.5}`), make([]byte, 384))
	f.Add([]byte(`{"quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": [4611686018427387904, 4]}`), []byte{})
	f.Add([]byte(`{"shape": [[]]}`), []byte{1})
	f.Fuzz(func(t *testing.T, state, scales []byte) {
		const weight = "model.layers.0.mlp.up_proj.weight"
		tensors := rawTensors(t, "nf4-double")
		tensors[weight+nf4State] = raw{Type: "U8", Shape: []int{len(state)}, bytes: state}
		tensors[weight+".absmax"] = raw{Type: "U8", Shape: []int{len(scales)}, bytes: scales}
		folder := rawFolder(t, nf4Golden(t), tensors)
		for _, dtype := range []tensor.Dtype{{}, ops.NF4} {
			if m, err := Load(folder, Options{Weights: dtype}); err == nil {
				t.Logf("loaded a %s", m.Family())
			}
		}
	})
}
