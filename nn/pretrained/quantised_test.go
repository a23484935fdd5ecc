package pretrained

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// The folders are those that testdata/quantised.py writes.
var quantisedFolders = []string{
	"awq", "compressed-channel", "compressed-tensor", "fp8-blocks", "fp8-static", "gptq-2", "gptq-4", "gptq-4-act", "gptq-4-odd", "gptq-8", "int8",
}

func quantisedConfig(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "quantised", name, configFile))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Weights are those that the formats define, to the bit, and the logits those of transformers over
// them.
func TestQuantisedGolden(t *testing.T) {
	for _, name := range quantisedFolders {
		folder := filepath.Join("quantised", name)
		m, want := load(t, filepath.Join("testdata", folder), Options{}), readGolden(t, folder)
		for theirs, digest := range wantedDigests(t, folder) {
			if have := wideDigest(t, m, theirs); have != digest {
				t.Errorf("%s: %s is %s, it counts as %s", name, theirs, have, digest)
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
		near(t, name+" kept in BFloat16", allLogits(t, load(t, filepath.Join("testdata", folder), Options{Weights: ops.BFloat16}), want.Tokens), want.Logits, 0.02)
	}
}

// All numbers of FP8 are what the format says: a sign, four bits of exponent, three of mantissa,
// and one NaN of each sign.
func TestFP8Numbers(t *testing.T) {
	for code, have := range fp8Numbers() {
		if code&0x7f == 0x7f {
			if have == have {
				t.Errorf("code %#x is %v, want NaN", code, have)
			}
			continue
		}
		sign, exponent, mantissa := 1-2*float64(code>>7), float64(code>>3&15), float64(code&7)
		want := sign * (1 + mantissa/8) * math.Exp2(exponent-7)
		if exponent == 0 {
			want = sign * mantissa / 8 * math.Exp2(-6)
		}
		if float64(have) != want || math.Signbit(float64(have)) != (code >= 128) {
			t.Errorf("code %#x is %v, want %v", code, have, want)
		}
	}
}

// Rows are read from anywhere, as large tensors are: each alone gives what all together give.
func TestQuantisedRows(t *testing.T) {
	for _, name := range quantisedFolders {
		folder := filepath.Join("testdata", "quantised", name)
		_, a, err := describe(quantisedConfig(t, name), Options{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := openWeights(folder, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := a.quantised(w); err != nil {
			t.Fatal(err)
		}
		s := w.holder["model.layers.0.mlp.down_proj.weight"]
		info := s.describe()
		row := info.shape[1] * info.dtype.Size()
		whole := make([]byte, info.shape[0]*row)
		if err := s.read(0, whole); err != nil {
			t.Fatal(err)
		}
		for first := range info.shape[0] {
			for _, n := range []int{1, 3} {
				n = min(n, info.shape[0]-first)
				part := make([]byte, n*row)
				if err := s.read(first*info.shape[1], part); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(part, whole[first*row:][:n*row]) {
					t.Errorf("%s: %d rows from %d on are others than in the whole", name, n, first)
				}
			}
		}
		w.close()
	}
}

// A folder that lacks a part, or has one of another shape or type, is refused.
func TestQuantisedErrors(t *testing.T) {
	const module = "model.layers.0.mlp.up_proj" // 48 outputs, 32 inputs
	shape := func(shape ...int) func(raw) raw {
		return func(x raw) raw {
			size := map[string]int{"I32": 4, "F32": 4, "F16": 2, "BF16": 2, "U8": 1, "I8": 1, fp8Type: 1}[x.Type]
			for _, n := range shape {
				size *= n
			}
			return raw{Type: x.Type, Shape: shape, bytes: make([]byte, size)}
		}
	}
	as := func(dtype string) func(raw) raw {
		return func(x raw) raw { x.Type = dtype; return x }
	}
	first := func(word uint32) func(raw) raw {
		return func(x raw) raw {
			x.bytes = slices.Clone(x.bytes)
			binary.LittleEndian.PutUint32(x.bytes, word)
			return x
		}
	}
	var gone func(raw) raw
	for _, c := range []struct {
		folder, part string
		change       func(raw) raw // nil takes it away
		want         string
	}{
		{"gptq-4", ".qweight", gone, `up_proj.weight" is missing`},
		{"gptq-4", ".qzeros", gone, `up_proj.qzeros" is missing`},
		{"gptq-4", ".scales", gone, `up_proj.scales" is missing`},
		{"gptq-4", ".qweight", as("F32"), "is F32 of shape [4 48], it needs to be I32 of two axes"},
		{"gptq-4", ".qweight", shape(192), "is I32 of shape [192], it needs to be I32 of two axes"},
		{"gptq-4", ".qweight", shape(0, 48), "is I32 of shape [0 48], it needs to be I32 of two axes"},
		{"gptq-4", ".qweight", shape(4, 44), "has 44 outputs, they need to be a multiple of 8"},
		{"gptq-4", ".qweight", shape(2, 48), "it needs to be I32 of shape [1 6]"},
		{"gptq-4", ".qzeros", shape(3, 6), "it needs to be I32 of shape [2 6]"},
		{"gptq-4", ".qzeros", shape(0, 6), "it needs to be I32 of shape [2 6]"},
		{"gptq-4", ".scales", shape(2, 24), "it needs to be F32 or F16 or BF16 of shape [2 48]"},
		{"gptq-4", ".scales", as("I32"), "up_proj.scales"},
		{"gptq-4", ".g_idx", shape(31), "it needs to be I32 of shape [32]"},
		{"gptq-4-act", ".g_idx", first(4), `up_proj.g_idx" has group 4 for input 0, there are 4 groups`},
		{"gptq-4-act", ".g_idx", first(math.MaxUint32), "has group -1 for input 0"},
		{"gptq-4-act", ".g_idx", first(1 << 31), "has group -2147483648 for input 0"},
		{"gptq-8", ".qweight", shape(4, 48), "it needs to be I32 of shape [16]"},
		{"awq", ".qweight", shape(32, 5), "it needs to be I32 of shape [2 5]"},
		{"awq", ".qzeros", gone, `up_proj.qzeros" is missing`},
		{"awq", ".scales", shape(1, 48), "of shape [2 48]"},
		{"fp8-blocks", ".weight_scale_inv", gone, `up_proj.weight_scale_inv" is missing`},
		{"fp8-blocks", ".weight_scale_inv", shape(2, 2), "of shape [3 2]"},
		{"fp8-blocks", ".weight", shape(48), "is F8_E4M3 of shape [48], it needs two axes"},
		{"fp8-blocks", ".weight", shape(32, 48), "of shape [2 2]"},
		{"fp8-blocks", ".weight", as("F8_E5M2"), "is F8_E5M2, it needs to be F32, F16 or BF16"},
		{"fp8-static", ".weight_scale_inv", shape(2), "of shape [1]"},
		{"compressed-channel", ".weight_scale", shape(47, 1), "of shape [1 1]"},
		{"compressed-channel", ".weight_scale", shape(48, 2), "of shape [48 1]"},
		{"compressed-tensor", ".weight_scale", gone, `up_proj.weight_scale" is missing`},
		{"int8", ".SCB", gone, "is I8, it needs to be F32, F16 or BF16"},
		{"int8", ".SCB", shape(47), "it needs to be F32 of shape [48]"},
		{"int8", ".weight", shape(48), "it needs to be I8 of two axes"},
		{"int8", ".weight_format", func(x raw) raw { x.bytes = []byte{2}; return x }, "is [2], it needs to be 0"},
	} {
		tensors := rawTensors(t, filepath.Join("quantised", c.folder))
		if _, found := tensors[module+c.part]; !found {
			t.Fatalf("%s has no %s", c.folder, c.part)
		}
		if c.change == nil {
			delete(tensors, module+c.part)
		} else {
			tensors[module+c.part] = c.change(tensors[module+c.part])
		}
		folder := rawFolder(t, quantisedConfig(t, c.folder), tensors)
		for _, weights := range []tensor.Dtype{{}, ops.Int8} {
			if _, err := Load(folder, Options{Weights: weights}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v, want %s in it", c.folder, c.part, err, c.want)
			}
		}
	}
}

// A config that asks for another way to quantise is refused by the name of its field, and one that
// says nothing of the weights is not.
func TestQuantisedConfig(t *testing.T) {
	for _, c := range []struct{ folder, field, value, want string }{
		{"gptq-4", "bits", `3`, "field quantization_config.bits is 3, it needs to be 2, 4 or 8"},
		{"gptq-4", "bits", `null`, "field quantization_config.bits is missing"},
		{"gptq-4", "group_size", `0`, "field quantization_config.group_size is 0"},
		{"gptq-4", "group_size", `-2`, "field quantization_config.group_size is -2"},
		{"gptq-4", "group_size", `"x"`, "field quantization_config.group_size is"},
		{"gptq-4", "checkpoint_format", `"marlin"`, `field quantization_config.checkpoint_format is "marlin", it needs to be gptq, gptq_v2`},
		{"gptq-4", "is_marlin_format", `true`, "field quantization_config.is_marlin_format is true"},
		{"gptq-4", "pack_dtype", `"int8"`, "field quantization_config.pack_dtype is int8"},
		{"gptq-4", "dynamic", `{"-:lm_head": {}}`, "field quantization_config.dynamic"},
		{"gptq-4", "dynamic", `null`, ""},
		{"gptq-4", "desc_act", `true`, ""}, // the groups are in the file
		{"gptq-4", "sym", `false`, ""},     // the zeros are
		{"gptq-4", "damp_percent", `0.5`, ""},
		{"gptq-4", "quant_method", `"hqq"`, `field quantization_config.quant_method is "hqq"`},
		{"awq", "bits", `8`, "field quantization_config.bits is 8"},
		{"awq", "version", `"gemv"`, `field quantization_config.version is "gemv", it needs to be gemm`},
		{"awq", "version", `"GEMM"`, ""},
		{"awq", "zero_point", `false`, "field quantization_config.zero_point is false"},
		{"awq", "shrug", `1`, "field quantization_config.shrug"},
		{"fp8-blocks", "weight_block_size", `[0, 8]`, "field quantization_config.weight_block_size is [0 8]"},
		{"fp8-blocks", "weight_block_size", `[8]`, "field quantization_config.weight_block_size is [8]"},
		{"fp8-blocks", "fmt", `"e5m2"`, `field quantization_config.fmt is "e5m2"`},
		{"fp8-blocks", "activation_scheme", `"other"`, `field quantization_config.activation_scheme is "other"`},
		{"fp8-blocks", "expert_dtype", `"fp4"`, "field quantization_config.expert_dtype is fp4"},
		{"compressed-channel", "format", `"pack-quantized"`, "field quantization_config.format is pack-quantized, only float-quantized"},
		{"compressed-channel", "quantization_status", `"initialized"`, "field quantization_config.quantization_status is initialized"},
		{"compressed-channel", "config_groups", `{}`, "field quantization_config.config_groups is missing"},
		{"compressed-channel", "config_groups", `{"a": {}}`, "config_groups.a.weights is missing"},
		{"compressed-channel", "config_groups", `{"a": {"weights": {"num_bits": 4, "type": "float"}}}`, "weights.num_bits is 4"},
		{"compressed-channel", "config_groups", `{"a": {"weights": {"num_bits": 8}}}`, `weights.type is "int"`},
		{"compressed-channel", "config_groups", `{"a": {"weights": {"num_bits": 8, "type": "float", "strategy": "group"}}}`, `weights.strategy is "group"`},
		{"compressed-channel", "config_groups", `{"a": {"weights": {"num_bits": 8, "type": "float", "group_size": 64}}}`, "weights.group_size is 64"},
		{"compressed-channel", "config_groups", `{"a": {"weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [2, 2]}}, "b": {"weights": {"num_bits": 8, "type": "float"}}}`, "only one size is supported"},
		{"compressed-channel", "kv_cache_scheme", `{"num_bits": 8}`, "field quantization_config.kv_cache_scheme"},
		{"compressed-channel", "transform_config", `{}`, ""},
		{"int8", "load_in_8bit", `false`, "field quantization_config.load_in_4bit is false"},
		{"int8", "llm_int8_threshold", `0.0`, ""},
	} {
		var fields, own map[string]json.RawMessage
		if err := json.Unmarshal(quantisedConfig(t, c.folder), &fields); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(fields[quantisation], &own); err != nil {
			t.Fatal(err)
		}
		own[c.field] = json.RawMessage(c.value)
		changed, err := json.Marshal(own)
		if err != nil {
			t.Fatal(err)
		}
		fields[quantisation] = changed
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		switch _, _, err := describe(text, Options{}); {
		case c.want == "" && err != nil:
			t.Errorf("%s, %s of %s: %v", c.folder, c.field, c.value, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s, %s of %s: %v, want %s in it", c.folder, c.field, c.value, err, c.want)
		}
	}
	// Without what the config promises there is no model.
	for _, name := range []string{"gptq-4", "fp8-blocks", "int8"} {
		tensors := maps.Clone(rawTensors(t, "nf4-single"))
		folder := rawFolder(t, quantisedConfig(t, name), tensors)
		if _, err := Load(folder, Options{}); err == nil || !strings.Contains(err.Error(), "and no tensor") {
			t.Errorf("%s over other tensors: %v", name, err)
		}
	}
}

// FuzzQuantised loads a folder of which one part of a weight, and how weights are quantised, is
// anything.
func FuzzQuantised(f *testing.F) {
	parts := []string{".qweight", ".qzeros", ".scales", ".g_idx", ".weight", ".weight_scale_inv", ".weight_scale", ".SCB", ".weight_format"}
	types := []string{"I32", "F16", "F32", "BF16", fp8Type, "I8", "U8"}
	for i, name := range quantisedFolders {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(quantisedConfig(f, name), &fields); err != nil {
			f.Fatal(err)
		}
		f.Add(i, []byte(fields[quantisation]), uint8(i), uint8(i), 48, 4, make([]byte, 4*48))
		f.Add(i, []byte(fields[quantisation]), uint8(3), uint8(0), 32, -1, []byte{1, 2, 3, 4})
	}
	f.Add(0, []byte(`{"quant_method": "gptq", "bits": 4, "group_size": 0}`), uint8(0), uint8(0), 1<<40, 1<<40, []byte{})
	f.Fuzz(func(t *testing.T, folder int, how []byte, part, dtype uint8, rows, columns int, content []byte) {
		name := quantisedFolders[uint(folder)%uint(len(quantisedFolders))]
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(quantisedConfig(t, name), &fields); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(how) {
			how = fields[quantisation]
		}
		fields[quantisation] = how
		config, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		shape := []int{rows, columns}
		if columns < 0 {
			shape = shape[:1]
		}
		tensors := rawTensors(t, filepath.Join("quantised", name))
		tensors["model.layers.0.mlp.up_proj"+parts[int(part)%len(parts)]] = raw{Type: types[int(dtype)%len(types)], Shape: shape, bytes: content}
		if m, err := Load(rawFolder(t, config, tensors), Options{}); err == nil {
			t.Logf("loaded a %s", m.Family())
		}
	})
}
