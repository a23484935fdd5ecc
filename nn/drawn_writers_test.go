package nn_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// writer draws a model that reads a source and writes a text.
func (d drawer) writer() nn.EncoderDecoderConfig {
	c := nn.EncoderDecoderConfig{Encoder: d.encoder(), Decoder: d.model(), Shared: d.one(2)}
	c.Encoder.Heads = nn.EncoderHeads{}
	c.Encoder.Text.FirstPosition, c.Decoder.Block.Norms = 0, nn.NormPlace(d.IntN(int(nn.ParallelNorm)))
	if c.Shared {
		width := c.Encoder.Text.Dim
		if width == 0 {
			width = c.Encoder.Block.Attention.Dim
		}
		if c.Decoder.TokenDim = width; width == c.Decoder.Block.Attention.Dim {
			c.Decoder.TokenDim = 0
		}
	}
	return c
}

// A drawn model that reads a source writes the same to a source alone, in a batch beside padding
// that a mask hides, and token by token from a cache.
func TestDrawnWriters(t *testing.T) {
	slow.Race(t)
	slow.Emulated(t)
	refused := map[string]int{}
	for n := range *drawnModels {
		seed := *modelSeed + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			d := drawer{rand.New(rand.NewPCG(seed, 23))}
			c, p := d.writer(), nn.NewParameters(1)
			defer func() {
				if t.Failed() {
					t.Logf("%+v %+v", c, *c.Encoder.Text)
				}
			}()
			build := func(g *gorgonia.ExprGraph) (*nn.EncoderDecoder, error) {
				s := nn.NewScope(g, p).DType(tensor.Float64)
				return nn.NewEncoderDecoder(s, c), s.Err()
			}
			write := func(shown []bool, sources, texts [][]int) ([]float64, error) {
				g := gorgonia.NewGraph()
				m, err := build(g)
				if err != nil {
					return nil, err
				}
				var mask nn.Tensor
				if shown != nil {
					shape := []int{len(sources), len(sources[0])}
					mask = on(gorgonia.NewMatrix(g, tensor.Bool, gorgonia.WithName("mask"), gorgonia.WithShape(shape...),
						gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(shown)))))
				} else {
					setParameters(t, p, m.Parameters())
				}
				context := m.Encode(on(matrixOf(g, "sources", sources...)), nn.EncoderInputs{KeyMask: mask})
				logits := m.Decode(on(matrixOf(g, "texts", texts...)), nn.DecodeInputs{Context: context, ContextMask: mask})
				if logits.Err() != nil {
					return nil, logits.Err()
				}
				evaluate(t, g)
				return floats(t, logits.Node().Value()), nil
			}
			text := func(n int) (list []int) {
				for range n {
					list = append(list, d.IntN(decoderVocab))
				}
				return list
			}
			const length, long, short = 9, 11, 7
			sources, texts := [][]int{text(long), text(short)}, [][]int{text(length), text(length)}
			var alone [][]float64
			for i := range sources {
				logits, err := write(nil, sources[i:i+1], texts[i:i+1])
				if err != nil {
					refused[err.Error()]++
					return
				}
				alone = append(alone, logits)
			}
			shown := slices.Concat(slices.Repeat([]bool{true}, long+short), slices.Repeat([]bool{false}, long-short))
			both, err := write(shown, [][]int{sources[0], slices.Concat(sources[1], text(long-short))}, texts)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, "what is written in a batch", tensor.Float64, both, slices.Concat(alone...), 1)

			decoder, err := nn.NewBatchDecoder(2, nn.DecoderConfig{Parameters: p, Capacity: 20, Model: func(s *nn.Scope) nn.CachedModel {
				return nn.NewEncoderDecoder(s.DType(tensor.Float64), c)
			}})
			if err != nil {
				t.Fatal(err)
			}
			for i, source := range sources {
				if err := decoder.Read(i, tensor.New(tensor.WithShape(len(source)), tensor.WithBacking(slices.Clone(source)))); err != nil {
					t.Fatal(err)
				}
			}
			for at := 0; at < length; {
				n := min(length-at, d.of(1, 1, 3))
				logits, err := decoder.Logits([][]int{texts[0][at : at+n], texts[1][at : at+n]})
				if err != nil {
					t.Fatal(err)
				}
				at += n
				for i := range logits {
					compare(t, fmt.Sprintf("text %d from a cache, after %d tokens", i, at), tensor.Float64,
						logits[i], alone[i][(at-1)*decoderVocab:][:decoderVocab], 1)
				}
			}
		})
	}
	tellRefused(t, refused)
}
