package pretrained

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/sample"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The folders are written by testdata/seq2seq.py.

var writers = []string{"t5", "t5-gated", "mt5", "bart", "marian", "whisper"}

// spectra are the golden ones, (2, length, bins).
func spectra(want golden) *tensor.Dense { return data.Floats(load32(want.Images), 2, 12, 5) }

// written is what the model makes of the golden sources and tokens.
func written(s *nn.Scope, m *nn.EncoderDecoder, want golden) (logits, loss nn.Tensor) {
	var in nn.DecodeInputs
	if want.Images != nil {
		in.Context = m.Encode(s.Constant("spectra", spectra(want)), nn.EncoderInputs{})
	} else {
		in.ContextMask = ids(s, "mask", want.Mask)
		in.Context = m.Encode(ids(s, "sources", want.Sources), nn.EncoderInputs{KeyMask: in.ContextMask})
	}
	tokens := ids(s, "tokens", want.Tokens)
	targets := make([][]int, len(want.Tokens))
	for i, row := range want.Tokens {
		targets[i] = append(slices.Clone(row[1:]), nn.IgnoreTarget)
	}
	return m.Decode(tokens, in), m.Loss(tokens, ids(s, "targets", targets), in)
}

// Models that read a source give the logits, the loss and the gradients that transformers computes.
func TestWriters(t *testing.T) {
	for _, name := range writers {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			s := m.scope()
			logits, loss := written(s, m.EncoderDecoder(s), want)
			if s.Err() != nil {
				t.Fatal(s.Err())
			}
			if _, err := gorgonia.Grad(loss.Node(), s.Trainable()...); err != nil {
				t.Fatal(err)
			}
			run(t, s)
			near(t, "the logits", value(t, logits).Data().([]float32), want.Logits, 1e-5)
			near(t, "the loss", []float32{value(t, loss).Data().(float32)}, []float64{want.Loss}, 1e-5)
			compareGradients(t, m, s.Trainable(), want)
		})
	}
}

// sourceOf is one golden source, without its padding.
func sourceOf(want golden, i int) *tensor.Dense {
	if want.Images != nil {
		return data.Floats(load32(want.Images)[i*60:(i+1)*60], 12, 5)
	}
	var source []int
	for at, token := range want.Sources[i] {
		if want.Mask[i][at] == 1 {
			source = append(source, token)
		}
	}
	return data.Ints(source, len(source))
}

// The most probable tokens, one by one, are those that transformers chooses, for one source and for
// two at once.
func TestWriting(t *testing.T) {
	for _, name := range writers {
		t.Run(name, func(t *testing.T) {
			want := readGolden(t, name)
			m := load(t, filepath.Join("testdata", name), Options{})
			one, err := m.NewDecoder(128)
			if err != nil {
				t.Fatal(err)
			}
			both, err := m.NewBatchDecoder(2, 128)
			if err != nil {
				t.Fatal(err)
			}
			next := make([][]int, 2)
			texts := make([][]int, 2)
			for i, text := range want.Written {
				if err := one.Read(sourceOf(want, i)); err != nil {
					t.Fatal(err)
				}
				if err := both.Read(i, sourceOf(want, i)); err != nil {
					t.Fatal(err)
				}
				next[i], texts[i] = text[:1], text[:1]
				have := slices.Clone(text[:1])
				for len(have) < len(text) {
					logits, err := one.Logits(have[len(have)-1:])
					if err != nil {
						t.Fatal(err)
					}
					have = append(have, largest(logits))
				}
				if !slices.Equal(have, text) {
					t.Errorf("alone it writes %v, want %v", have, text)
				}
			}
			const together = 30
			for len(texts[0]) < together {
				logits, err := both.Logits(next)
				if err != nil {
					t.Fatal(err)
				}
				for i := range next {
					next[i] = []int{largest(logits[i])}
					texts[i] = append(slices.Clip(texts[i]), next[i]...)
				}
			}
			for i, text := range texts {
				if !slices.Equal(text, want.Written[i][:together]) {
					t.Errorf("together with another it writes %v, want %v", text, want.Written[i][:together])
				}
			}
			if err := one.Read(sourceOf(want, 0)); err != nil {
				t.Fatal(err)
			}
			for at, token := range want.Tokens[0] {
				logits, err := one.Logits([]int{token})
				if err != nil {
					t.Fatal(err)
				}
				near(t, "the decoder's logits", load32(logits), want.Logits[at*len(logits):(at+1)*len(logits)], 3e-5)
			}
		})
	}
}

// The texts that beams find are those of transformers.
func TestBeams(t *testing.T) {
	const beams, most = 4, 12
	text, err := os.ReadFile("testdata/beams.json")
	if err != nil {
		t.Fatal(err)
	}
	var found map[string][]struct {
		Begin, Text []int
		End         int
	}
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	for _, name := range writers {
		golden := readGolden(t, name)
		m := load(t, filepath.Join("testdata", name), Options{})
		d, err := m.NewBatchDecoder(beams, 32)
		if err != nil {
			t.Fatal(err)
		}
		if len(found[name]) != 2 {
			t.Errorf("%s has %d texts, want 2", name, len(found[name]))
		}
		for i, want := range found[name] {
			for beam := range beams {
				if err := d.Read(beam, sourceOf(golden, i)); err != nil {
					t.Fatal(err)
				}
			}
			have, err := sample.Beams(d, want.Begin, sample.BeamOptions{MaxTokens: most, End: want.End, LengthPenalty: 0.7})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(have, want.Text) {
				t.Errorf("%s writes %v behind %v, want %v", name, have, want.Begin, want.Text)
			}
		}
	}
}

// A T5 whose file has a head of its own predicts by that, and is saved with it.
func TestOwnHead(t *testing.T) {
	from := "testdata/t5-gated"
	m := load(t, from, Options{})
	var all safetensors.Tensors
	for _, l := range m.arch.links {
		values := tensorsOf(t, from)[l.theirs]
		all = append(all, safetensors.Tensor{Name: l.theirs, Value: tensor.New(tensor.WithShape(l.shape...), tensor.WithBacking(values))})
	}
	head := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(48, 24))
	head.Float32s()[7*24] = 1 // the logit of token 7 is the first feature, all others are 0
	all = append(all, safetensors.Tensor{Name: "lm_head.weight", Value: head})
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := plainfile.Write(filepath.Join(folder, weightsFile), func(w io.Writer) error { return safetensors.Write(w, all, nil) }); err != nil {
		t.Fatal(err)
	}
	saved := t.TempDir()
	if err := load(t, folder, Options{}).Save(saved, SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{folder, saved} {
		m := load(t, place, Options{})
		s := m.scope()
		logits, _ := written(s, m.EncoderDecoder(s), readGolden(t, "t5-gated"))
		run(t, s)
		for i, x := range value(t, logits).Data().([]float32) {
			if (i%48 == 7) != (x != 0) {
				t.Fatalf("logit %d is %v", i, x)
			}
		}
	}
}

// What cannot be read as a source is an error that says why.
func TestReadErrors(t *testing.T) {
	d, err := load(t, "testdata/bart", Options{}).NewDecoder(16)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := load(t, "testdata/gpt2", Options{}).NewDecoder(16)
	if err != nil {
		t.Fatal(err)
	}
	for want, err := range map[string]error{
		"source is nil":             d.Read(nil),
		"the model reads none":      plain.Read(data.Ints([]int{1}, 1)),
		"it is a zero value":        new(nn.Decoder).Read(nil),
		"the second of at most 128": d.Read(data.Ints(make([]int, 129), 129)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	if _, err := d.Logits([]int{2}); err == nil || !strings.Contains(err.Error(), "the memory is empty") {
		t.Errorf("writing without a source: %v", err)
	}
}
