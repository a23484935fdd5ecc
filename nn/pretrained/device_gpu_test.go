//go:build gpu

package pretrained

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// made is what a golden model makes of its inputs. Without a loss the squares of the outputs are
// summed.
type made func(s *nn.Scope, m *Model, want golden) (outputs []nn.Tensor, loss nn.Tensor)

// goldens are all golden models, a kind after the other.
func goldens() map[string]map[string]made {
	all := map[string]map[string]made{}
	add := func(kind string, names []string, of func(name string) made) {
		all[kind] = map[string]made{}
		for _, name := range names {
			all[kind][name] = of(name)
		}
	}
	add("language", languageModels, func(string) made {
		return func(s *nn.Scope, m *Model, want golden) ([]nn.Tensor, nn.Tensor) {
			targets := make([][]int, len(want.Tokens))
			for i, row := range want.Tokens {
				targets[i] = append(slices.Clone(row[1:]), nn.IgnoreTarget)
			}
			model, tokens := m.LanguageModel(s), ids(s, "tokens", want.Tokens)
			return []nn.Tensor{model.Forward(tokens)}, model.Loss(tokens, ids(s, "targets", targets))
		}
	})
	add("classes", rewards, func(string) made {
		return func(s *nn.Scope, m *Model, want golden) ([]nn.Tensor, nn.Tensor) {
			return []nn.Tensor{classesOf(s, m.LanguageModel(s), want)}, nn.Tensor{}
		}
	})
	add("encoder", encoders, func(name string) made {
		return func(s *nn.Scope, m *Model, want golden) ([]nn.Tensor, nn.Tensor) {
			e := m.Encoder(s)
			return headsOf(e, name, s, e.ForwardWith(ids(s, "tokens", want.Tokens), want.inputs(s)), want), nn.Tensor{}
		}
	})
	add("vision", visions, func(string) made {
		return func(s *nn.Scope, m *Model, want golden) ([]nn.Tensor, nn.Tensor) {
			return seen(s, m.Encoder(s), want), nn.Tensor{}
		}
	})
	add("pair", pairs, func(string) made {
		return func(s *nn.Scope, m *Model, want golden) ([]nn.Tensor, nn.Tensor) {
			return paired(s, m.Contrastive(s), want)
		}
	})
	add("writer", writers, func(string) made {
		return func(s *nn.Scope, m *Model, want golden) ([]nn.Tensor, nn.Tensor) {
			logits, loss := written(s, m.EncoderDecoder(s), want)
			return []nn.Tensor{logits}, loss
		}
	})
	return all
}

// computed are the outputs of a golden model, one behind the other, the loss and the gradients.
type computed struct {
	outputs   []float32
	loss      float32
	gradients map[string][]float32
}

func (of made) compute(t *testing.T, name string, want golden, device *ops.Device) computed {
	t.Helper()
	m := load(t, filepath.Join("testdata", name), Options{Device: device, FreezePadding: true})
	s := m.scope()
	outputs, loss := of(s, m, want)
	if loss.IsZero() {
		loss = outputs[0].Square().Sum()
		for _, x := range outputs[1:] {
			loss = loss.Add(x.Square().Sum())
		}
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	gradients, err := gorgonia.Grad(loss.Node(), s.Trainable()...)
	if err != nil {
		t.Fatal(err)
	}
	ops.ModeOf(s.Graph()).Evaluate()
	machine, err := ops.NewMachine(s.Graph())
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	read := func(v gorgonia.Value) []float32 {
		if x, isScalar := v.(*gorgonia.F32); isScalar {
			return []float32{float32(*x)}
		}
		down, err := ops.Download(v)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(down.Float32s())
	}
	c := computed{gradients: map[string][]float32{}}
	for _, x := range outputs {
		c.outputs = append(c.outputs, read(x.Node().Value())...)
	}
	c.loss = read(loss.Node().Value())[0]
	for i, n := range s.Trainable() {
		c.gradients[n.Name()] = read(gradients[i].Value())
	}
	return c
}

// Every family computes on a device what transformers computes, and the gradients of the host.
func TestFamiliesOnTheDevice(t *testing.T) {
	device := openDevice(t)
	for kind, models := range goldens() {
		for name, of := range models {
			t.Run(kind+"/"+name, func(t *testing.T) {
				want := readGolden(t, name)
				here, there := of.compute(t, name, want, nil), of.compute(t, name, want, device)
				near(t, "the outputs", there.outputs, want.Logits, 3e-5)
				near(t, "the loss", []float32{there.loss}, []float64{float64(here.loss)}, 1e-5)
				all := 0.0
				for _, gradient := range here.gradients {
					for _, x := range gradient {
						all = max(all, math.Abs(float64(x)))
					}
				}
				for parameter, gradient := range here.gradients {
					worst, largest := 0.0, 0.0
					for i, x := range gradient {
						largest = max(largest, math.Abs(float64(x)))
						if e := math.Abs(float64(there.gradients[parameter][i] - x)); !(e <= worst) {
							worst = e
						}
					}
					if !(worst <= 2e-5*all+3e-4*largest) {
						t.Errorf("the gradient of %s is %.3g off, its largest element is %.3g, that of all %.3g", parameter, worst, largest, all)
					}
				}
			})
		}
	}
}

func openDevice(t *testing.T) *ops.Device {
	t.Helper()
	if ops.Devices() == 0 {
		t.Skip("this machine has no GPU")
	}
	d, err := ops.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// ofExperts are parts of the names of models of experts.
var ofExperts = []string{"deepseek", "moe", "gpt_oss", "mixtral"}

// A decoder of every family gives on a device, token by token, the logits that transformers gives,
// also where it computes in 16 bits.
func TestDecodersOfFamiliesOnTheDevice(t *testing.T) {
	device := openDevice(t)
	for _, name := range languageModels {
		for _, way := range []struct {
			name  string
			dtype tensor.Dtype
			bound float64
		}{{"float32", tensor.Dtype{}, 5e-5}, {"bfloat16", ops.BFloat16, 0.1}} {
			if way.dtype == ops.BFloat16 && slices.ContainsFunc(ofExperts, func(part string) bool { return strings.Contains(name, part) }) {
				continue // others may be chosen
			}
			t.Run(name+"/"+way.name, func(t *testing.T) {
				want := readGolden(t, name)
				m := load(t, filepath.Join("testdata", name), Options{Device: device, Compute: way.dtype, Weights: way.dtype})
				d, err := m.NewDecoder(16)
				if err != nil {
					t.Fatal(err)
				}
				for row, tokens := range want.Tokens {
					d.Reset()
					for at, token := range tokens {
						have, err := d.Logits([]int{token})
						if err != nil {
							t.Fatalf("row %d, token %d: %v", row, at, err)
						}
						first := (row*len(tokens) + at) * len(have)
						near(t, "the decoder's logits", load32(have), want.Logits[first:first+len(have)], way.bound)
					}
				}
			})
		}
	}
}
