package nn_test

import (
	"fmt"
	"log"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Eight query heads in groups of four share two heads of keys and values. The second sentence of
// the batch is padded: its last position is hidden from all queries.
func ExampleNewMultiHeadAttention() {
	s := nn.NewScope(gorgonia.NewGraph(), nn.NewParameters(0))
	attention := nn.NewMultiHeadAttention(s.Sub("attn"), nn.MultiHeadAttentionConfig{
		Dim: 32, Heads: 8, KVHeads: 2, Options: ops.AttentionOptions{Causal: kernels.CausalBottomRight},
	})
	x := s.Constant("x", data.Floats(slices.Repeat([]float32{1}, 2*3*32), 2, 3, 32))
	mask := s.Constant("mask", data.Bools([]bool{true, true, true, true, true, false}, 2, 3))

	out, weights := attention.ForwardWithWeights(x, nn.AttentionInputs{KeyMask: mask})
	if err := s.Err(); err != nil {
		log.Fatal(err)
	}
	if err := gorgonia.NewTapeMachine(s.Graph()).RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Print(nn.Summary(attention.Parameters()))
	fmt.Println("out", out.Shape(), "weights", weights.Shape())
	p := weights.Node().Value().Data().([]float32)
	fmt.Printf("last query of the first sentence  %.2f\n", p[6:9])
	fmt.Printf("last query of the second sentence %.2f\n", p[8*9+6:8*9+9])
	// Output:
	// name              shape  dtype    count
	// attn.qkv.weight   32×48  float32  1,536
	// attn.qkv.bias     48     float32  48
	// attn.proj.weight  32×32  float32  1,024
	// attn.proj.bias    32     float32  32
	// total                             2,640
	// out (2, 3, 32) weights (2, 8, 3, 3)
	// last query of the first sentence  [0.33 0.33 0.33]
	// last query of the second sentence [0.50 0.50 0.00]
}

// A model learns to count modulo 7. One graph trains, the other evaluates, and both have the same
// weights: not equal ones, the same memory.
func ExampleNewGPT() {
	const batch, length, vocab = 4, 8, 7
	parameters := nn.NewParameters(42)
	build := func() (*nn.Scope, *gorgonia.Node) {
		s := nn.NewScope(gorgonia.NewGraph(), parameters).DType(tensor.Float64)
		model := nn.NewGPT(s, nn.GPTConfig{Vocab: vocab, Context: length, Layers: 2, Heads: 2, Dim: 16, Dropout: 0.1})
		ids := func(name string, first int) nn.Tensor {
			list := make([]int, batch*length)
			for i := range list {
				list[i] = (i/length*3 + i%length + first) % vocab
			}
			return s.Constant(name, data.Ints(list, batch, length))
		}
		loss := model.Loss(ids("tokens", 0), ids("targets", 1))
		if err := s.Err(); err != nil {
			log.Fatal(err)
		}
		return s, loss.Node()
	}
	s, loss := build()
	if _, err := gorgonia.Grad(loss, s.Parameters()...); err != nil {
		log.Fatal(err)
	}
	trainer := gorgonia.NewTapeMachine(s.Graph(), gorgonia.BindDualValues(s.Parameters()...))

	evaluation, evalLoss := build()
	ops.ModeOf(evaluation.Graph()).Evaluate()
	evaluator := gorgonia.NewTapeMachine(evaluation.Graph())
	evaluate := func() float64 {
		if err := evaluator.RunAll(); err != nil {
			log.Fatal(err)
		}
		evaluator.Reset()
		return evalLoss.Value().Data().(float64)
	}

	fmt.Print(nn.Summary(s.Parameters()))
	fmt.Printf("before %.3f\n", evaluate()) // about log 7, of a guess
	solver := gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.01))
	for step := range uint32(100) {
		ops.ModeOf(s.Graph()).Train(step)
		if err := trainer.RunAll(); err != nil {
			log.Fatal(err)
		}
		if err := solver.Step(gorgonia.NodesToValueGrads(s.Parameters())); err != nil {
			log.Fatal(err)
		}
		trainer.Reset()
	}
	fmt.Println("after, less than 0.05:", evaluate() < 0.05)
	// Output:
	// name                       shape  dtype    count
	// tokens.weight              7×16   float64  112
	// positions.weight           8×16   float64  128
	// blocks.0.norm1.weight      16     float64  16
	// blocks.0.norm1.bias        16     float64  16
	// blocks.0.attn.qkv.weight   16×48  float64  768
	// blocks.0.attn.qkv.bias     48     float64  48
	// blocks.0.attn.proj.weight  16×16  float64  256
	// blocks.0.attn.proj.bias    16     float64  16
	// blocks.0.norm2.weight      16     float64  16
	// blocks.0.norm2.bias        16     float64  16
	// blocks.0.mlp.fc.weight     16×64  float64  1,024
	// blocks.0.mlp.fc.bias       64     float64  64
	// blocks.0.mlp.proj.weight   64×16  float64  1,024
	// blocks.0.mlp.proj.bias     16     float64  16
	// blocks.1.norm1.weight      16     float64  16
	// blocks.1.norm1.bias        16     float64  16
	// blocks.1.attn.qkv.weight   16×48  float64  768
	// blocks.1.attn.qkv.bias     48     float64  48
	// blocks.1.attn.proj.weight  16×16  float64  256
	// blocks.1.attn.proj.bias    16     float64  16
	// blocks.1.norm2.weight      16     float64  16
	// blocks.1.norm2.bias        16     float64  16
	// blocks.1.mlp.fc.weight     16×64  float64  1,024
	// blocks.1.mlp.fc.bias       64     float64  64
	// blocks.1.mlp.proj.weight   64×16  float64  1,024
	// blocks.1.mlp.proj.bias     16     float64  16
	// norm.weight                16     float64  16
	// norm.bias                  16     float64  16
	// total                                      6,832
	// before 1.966
	// after, less than 0.05: true
}

// A decoder runs the model that another graph trains: it is built over the same Parameters. Here
// the model is not trained, so what it predicts means nothing, but it is the same as that of the
// whole sequence at once.
func ExampleNewDecoder() {
	p := nn.NewParameters(1)
	gpt := func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 7, Context: 16, Layers: 2, Heads: 2, Dim: 8})
	}
	decoder, err := nn.NewDecoder(nn.DecoderConfig{Parameters: p, Model: func(s *nn.Scope) nn.CachedModel { return gpt(s) }})
	if err != nil {
		log.Fatal(err)
	}
	logits, err := decoder.Logits([]int{3, 1, 4}) // a prompt
	for range 3 {
		if err != nil {
			log.Fatal(err)
		}
		best := slices.Index(logits, slices.Max(logits))
		logits, err = decoder.Logits([]int{best}) // one more token
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("tokens", decoder.Len(), "of", decoder.Capacity())
	fmt.Printf("next   %.3f\n", logits)

	s := nn.NewScope(gorgonia.NewGraph(), p)
	whole := gpt(s).Forward(s.Constant("tokens", data.Ints(decoder.Window(), 1, -1)))
	if err := s.Err(); err != nil {
		log.Fatal(err)
	}
	if err := gorgonia.NewTapeMachine(s.Graph()).RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("whole  %.3f\n", whole.Node().Value().Data().([]float32)[5*7:])
	// Output:
	// tokens 6 of 16
	// next   [0.036 0.079 0.154 -0.021 0.027 -0.042 -0.067]
	// whole  [0.036 0.079 0.154 -0.021 0.027 -0.042 -0.067]
}
