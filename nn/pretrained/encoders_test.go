package pretrained

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
)

var encoders = []string{
	"bert",
	"bert-masked",
	"bert-untied-masked",
	"bert-classes",
	"bert-tokens",
	"bert-questions",
	"roberta-masked",
	"roberta-classes",
	"xlm-roberta",
	"camembert-tokens",
	"distilbert",
	"distilbert-masked",
	"distilbert-classes",
	"distilbert-questions",
	"electra",
	"electra-masked",
	"electra-untied-masked",
	"electra-classes",
	"albert",
	"albert-masked",
	"albert-classes",
	"albert-tokens",
	"mpnet",
	"mpnet-masked",
	"mpnet-classes",
	"modernbert",
	"modernbert-masked",
	"modernbert-unbiased-masked",
	"modernbert-untied-masked",
	"gemma3-both",
	"llama-both",
	"mistral-both",
	"qwen2-both",
	"qwen3-both",
	"nomic",
	"nomic-masked",
	"nomic-classes",
	"nomic-tokens",
	"deberta",
	"deberta-masked",
	"deberta-later-masked",
	"deberta-classes",
	"deberta-tokens",
	"deberta-questions",
}

var visions = []string{"vit", "vit-classes", "vit-plain", "dinov2", "dinov2-plain", "dinov2-classes", "dinov2-registers", "dinov3", "dinov3-gated", "dinov3-plain"}

var pairs = []string{"clip", "clip-old", "siglip"}

// Encoders give the vectors, classes and predictions that transformers computes, and the gradients
// of their squares.
func TestEncoders(t *testing.T) {
	for _, name := range encoders {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{FreezePadding: true})
			s := m.scope()
			e := m.Encoder(s)
			compareOutputs(t, s, m, headsOf(e, name, s, e.ForwardWith(ids(s, "tokens", want.Tokens), want.inputs(s)), want), want)
		})
	}
}

// inputs are what is given beside the golden tokens.
func (want golden) inputs(s *nn.Scope) nn.EncoderInputs {
	in := nn.EncoderInputs{KeyMask: ids(s, "mask", want.Mask)}
	if want.Types != nil {
		in.Types = ids(s, "types", want.Types)
	}
	return in
}

// headsOf are the outputs of the model of that name, without what stands at padding, which is of no
// use.
func headsOf(e *nn.Encoder, name string, s *nn.Scope, h nn.Tensor, want golden) []nn.Tensor {
	var used [][]int
	for row, mask := range want.Mask {
		for at, visible := range mask {
			if visible == 1 {
				used = append(used, []int{row*len(mask) + at})
			}
		}
	}
	visible := func(x nn.Tensor) nn.Tensor {
		return s.Tensor(ops.Embedding(x.Reshape(-1, x.Dim(2)).Node(), ids(s, "used", used).Node()))
	}
	switch _, kind, _ := strings.Cut(name, "-"); {
	case strings.HasSuffix(kind, "masked"):
		return []nn.Tensor{visible(e.Predict(h))}
	case strings.HasSuffix(kind, "classes"):
		return []nn.Tensor{e.Classify(h)}
	case strings.HasSuffix(kind, "tokens"), strings.HasSuffix(kind, "questions"):
		return []nn.Tensor{visible(e.ClassifyTokens(h))}
	case e.Heads().Pooler:
		return []nn.Tensor{visible(h), e.Pooled(h)}
	}
	return []nn.Tensor{visible(h)}
}

// What sees images gives the vectors and classes that transformers computes, and the gradients of
// their squares.
func TestVision(t *testing.T) {
	for _, name := range visions {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			s := m.scope()
			v := m.Encoder(s)
			compareOutputs(t, s, m, seen(s, v, want), want)
		})
	}
}

// seen are the outputs for the golden images, some patches of which may be hidden.
func seen(s *nn.Scope, v *nn.Encoder, want golden) []nn.Tensor {
	in := nn.EncoderInputs{}
	if want.Mask != nil {
		var hidden []float32
		for _, x := range slices.Concat(want.Mask...) {
			hidden = append(hidden, float32(x))
		}
		in.Hidden = s.Constant("hidden", data.Floats(hidden, len(want.Mask), -1))
	}
	h := v.ForwardWith(images(s, want), in)
	switch heads := v.Heads(); {
	case heads.Classes > 0:
		return []nn.Tensor{v.Classify(h)}
	case heads.Pooler:
		return []nn.Tensor{h, v.Pooled(h)}
	}
	return []nn.Tensor{h}
}

// Pairs of texts and images get the vectors, the logits and the loss that transformers computes,
// and the gradients of that.
func TestPairs(t *testing.T) {
	for _, name := range pairs {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			s := m.scope()
			outputs, loss := paired(s, m.Contrastive(s), want)
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			if _, err := gorgonia.Grad(loss.Node(), s.Parameters()...); err != nil {
				t.Fatal(err)
			}
			run(t, s)
			var have []float32
			for _, x := range outputs {
				have = append(have, value(t, x).Data().([]float32)...)
			}
			near(t, "the outputs", have, want.Logits, 1e-5)
			near(t, "the loss", []float32{value(t, loss).Data().(float32)}, []float64{want.Loss}, 1e-5)
			compareGradients(t, m, s.Parameters(), want)
		})
	}
}

// paired is what the model makes of the golden texts and images, and the loss.
func paired(s *nn.Scope, model *nn.Contrastive, want golden) ([]nn.Tensor, nn.Tensor) {
	in := nn.EncoderInputs{}
	if want.Mask != nil {
		in.KeyMask = ids(s, "mask", want.Mask)
	}
	texts, seen := model.TextsWith(ids(s, "tokens", want.Tokens), in), model.Images(images(s, want))
	logits := model.Logits(seen, texts)
	return []nn.Tensor{texts, seen, logits}, model.Loss(logits)
}

// images is an input of the golden images.
func images(s *nn.Scope, want golden) nn.Tensor {
	return s.Constant("images", data.Floats(load32(want.Images), 2, 2, 8, 8))
}

// compareOutputs compares outputs and the gradients of the sum of their squares.
func compareOutputs(t *testing.T, s *nn.Scope, m *Model, outputs []nn.Tensor, want golden) {
	t.Helper()
	var loss nn.Tensor
	for i, x := range outputs {
		if square := x.Square().Sum(); i == 0 {
			loss = square
		} else {
			loss = loss.Add(square)
		}
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	if _, err := gorgonia.Grad(loss.Node(), s.Parameters()...); err != nil {
		t.Fatal(err)
	}
	run(t, s)
	var have []float32
	for _, x := range outputs {
		have = append(have, value(t, x).Data().([]float32)...)
	}
	near(t, "the outputs", have, want.Logits, 1e-5)
	compareGradients(t, m, s.Parameters(), want)
}
