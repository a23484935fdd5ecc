package pretrained

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// Experts in MXFP4 compute what transformers computes with them, in float32 and kept in bfloat16,
// which has all their numbers, and are saved wide.
func TestMXFP4(t *testing.T) {
	const folder = "testdata/gpt_oss-mxfp4"
	want := readGolden(t, "gpt_oss-mxfp4")
	for _, kept := range []tensor.Dtype{{}, ops.BFloat16} {
		m := load(t, folder, Options{Weights: kept})
		if have := m.Parameters().Value("blocks.0.mlp.gateup.weight").Dtype(); isGiven(kept) && have != kept {
			t.Errorf("the experts are kept in %v, want %v", have, kept)
		}
		s := m.scope()
		logits := m.LanguageModel(s).Forward(ids(s, "tokens", want.Tokens))
		run(t, s)
		near(t, "the logits", value(t, logits).Data().([]float32), want.Logits, 1e-5)
		to := t.TempDir()
		if err := m.Save(to, SaveOptions{}); err != nil {
			t.Fatal(err)
		}
		again := load(t, to, Options{})
		wide := m.Parameters().Value("blocks.1.mlp.down.weight")
		if isGiven(kept) {
			var err error
			if wide, err = ops.Converted(wide, tensor.Float32); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(again.Parameters().Value("blocks.1.mlp.down.weight").Float32s(), wide.Float32s()) {
			t.Error("what was saved is not what was read")
		}
	}
}

// Codes without scales, or of another shape, are errors that name the tensor.
func TestHostileMXFP4(t *testing.T) {
	text, err := os.ReadFile("testdata/gpt_oss-mxfp4/config.json")
	if err != nil {
		t.Fatal(err)
	}
	whole := rawTensors(t, "gpt_oss-mxfp4")
	const base = "model.layers.0.mlp.experts.down_proj"
	for _, c := range []struct {
		change func(tensors map[string]raw)
		want   string
	}{
		{func(all map[string]raw) { delete(all, base+mxScales) }, `tensor "` + base + mxScales + `" is missing`},
		{func(all map[string]raw) { delete(all, base+mxBlocks) }, `tensor "` + base + `" is missing`},
		{func(all map[string]raw) { all[base+mxBlocks] = all[base+mxScales] }, "it needs to be U8 of four axes, the last of 16"},
		{func(all map[string]raw) { all[base+mxScales] = all[base+mxBlocks] }, "it needs to be U8 of shape [5 32 1]"},
	} {
		tensors := maps.Clone(whole)
		c.change(tensors)
		if _, err := Load(rawFolder(t, text, tensors), Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %q in it", err, c.want)
		}
	}
}
