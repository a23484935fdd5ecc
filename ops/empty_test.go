package ops_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// emptyCase is an op over inputs whose sizes are named by letters: "bmk" is (b, m, k).
type emptyCase struct {
	name    string
	inputs  []string // of floats; of indices after a #
	apply   func(in gorgonia.Nodes) (*gorgonia.Node, error)
	refuses map[rune]string // sizes of which 0 is refused, and a part of the error
}

func emptyCases() []emptyCase {
	one := func(op func(*gorgonia.Node) (*gorgonia.Node, error)) func(gorgonia.Nodes) (*gorgonia.Node, error) {
		return func(in gorgonia.Nodes) (*gorgonia.Node, error) { return op(in[0]) }
	}
	two := func(op func(a, b *gorgonia.Node) (*gorgonia.Node, error)) func(gorgonia.Nodes) (*gorgonia.Node, error) {
		return func(in gorgonia.Nodes) (*gorgonia.Node, error) { return op(in[0], in[1]) }
	}
	features := map[rune]string{'d': "at least one element along a last axis"}
	size := map[rune]string{'d': "head size of 0", 'n': "head size of 0"}
	attention := func(o ops.AttentionOptions) func(gorgonia.Nodes) (*gorgonia.Node, error) {
		return func(in gorgonia.Nodes) (*gorgonia.Node, error) { return ops.FlashAttention(in[0], in[1], in[2], o) }
	}
	return []emptyCase{
		{"GELU", []string{"mn"}, one(ops.GELU), nil},
		{"Sum", []string{"mn"}, one(ops.Sum), nil},
		{"Add", []string{"mn", "mn"}, two(ops.Add), nil},
		{"Mul", []string{"mn", "mn"}, two(ops.Mul), nil},
		{"SwiGLU", []string{"mn", "mn"}, two(ops.SwiGLU), nil},
		{"Scale", []string{"mn"}, one(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Scale(x, 2) }), nil},
		{"SoftCap", []string{"mn"}, one(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.SoftCap(x, 2) }), nil},
		{"Dropout", []string{"mn"}, one(func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Dropout(x, ops.DropoutOptions{Drop: ops.Drop{P: 0.5}})
		}), nil},
		{"Cast", []string{"mn"}, one(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Cast(x, tensor.Float64) }), nil},
		{"Permute", []string{"lmn"}, one(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Permute(x, 2, 0, 1) }), nil},
		{"Concat", []string{"lm", "ln"}, two(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return ops.Concat(1, a, b) }), nil},
		{"Pad", []string{"mn"}, one(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.Pad(x, 1, 1, 2, 5) }), nil},
		{"MatMul", []string{"bmk", "bkn"}, two(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return ops.MatMul(a, b, ops.MatMulOptions{}) }), nil},
		{"MatMul, transposed", []string{"km", "nk"}, two(func(a, b *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.MatMul(a, b, ops.MatMulOptions{TransposeA: true, TransposeB: true})
		}), nil},
		{"Linear", []string{"bmk", "kn", "n"}, func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.Linear(in[0], in[1], in[2], ops.LinearOptions{Activation: kernels.SiLU})
		}, nil},
		{"MLP", []string{"mk", "kn", "n", "nk", "k"}, func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.MLP(in[0], in[1], in[2], in[3], in[4], ops.MLPOptions{})
		}, nil},
		{"LayerNorm", []string{"bmd", "d", "d"}, func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.LayerNorm(in[0], in[1], in[2], ops.NormOptions{})
		}, features},
		{"RMSNorm", []string{"bmd", "d"}, two(func(x, gamma *gorgonia.Node) (*gorgonia.Node, error) { return ops.RMSNorm(x, gamma, ops.NormOptions{}) }), features},
		{"RMSNormOfSum", []string{"md", "md", "d"}, func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.RMSNormOfSum(in[0], in[1], in[2], ops.NormOptions{})
		}, features},
		{"LogSoftmax", []string{"md"}, one(ops.LogSoftmax), features},
		{"Embedding", []string{"kn", "#bm"}, two(ops.Embedding), map[rune]string{'k': "it needs to be from 0 to -1", 'n': "table has shape [3 0]"}},
		{"SoftmaxCrossEntropy", []string{"md", "#m"}, two(func(z, ids *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.SoftmaxCrossEntropy(z, ids, ops.CrossEntropyOptions{})
		}), features},
		{"LinearCrossEntropy", []string{"mk", "dk", "#m"}, func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.LinearCrossEntropy(in[0], in[1], in[2], ops.LinearCrossEntropyOptions{})
		}, map[rune]string{'d': "weight has shape [0 3]"}},
		{"RoPE", []string{"bhmn"}, one(func(x *gorgonia.Node) (*gorgonia.Node, error) { return ops.RoPE(x, ops.RoPEOptions{}) }), nil},
		{"FlashAttention", []string{"bhmd", "bhkd", "bhkn"}, attention(ops.AttentionOptions{Causal: kernels.CausalBottomRight}), size},
		{"FlashAttention, BSHD, dropout", []string{"bmhd", "bkhd", "bkhn"}, attention(ops.AttentionOptions{Layout: ops.BSHD, Dropout: ops.Drop{P: 0.5}}), size},
		{"FlashAttentionQKV", []string{"bmr"}, one(func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.FlashAttentionQKV(x, 1, 1, ops.AttentionOptions{})
		}),
			map[rune]string{'r': "qkv has 0 columns"}},
	}
}

// Each axis of each op may have a length of 0, where that means something: results have a length of
// 0 or are sums of nothing.
func TestAxesOfLengthZero(t *testing.T) {
	sizes := map[rune]int{'b': 2, 'h': 2, 'k': 3, 'l': 2, 'm': 4, 'n': 6, 'd': 5, 'r': 9}
	for _, c := range emptyCases() {
		letters := slices.Compact(slices.Sorted(slices.Values([]rune(strings.ReplaceAll(strings.Join(c.inputs, ""), "#", "")))))
		for _, empty := range letters {
			err := runEmpty(c, func(letter rune) int {
				if letter == empty {
					return 0
				}
				return sizes[letter]
			})
			want, refused := c.refuses[empty]
			if refused != (err != nil) || refused && !strings.Contains(err.Error(), want) {
				t.Errorf("%s without %c: the error is %v, it needs to contain %q", c.name, empty, err, want)
			}
		}
	}
}

// runEmpty computes an op and the gradients of its sum.
func runEmpty(c emptyCase, size func(letter rune) int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panics: %v", r)
		}
	}()
	g := gorgonia.NewGraph()
	var in, floats gorgonia.Nodes
	for _, letters := range c.inputs {
		dtype, shape := tensor.Float32, []int{}
		for _, letter := range letters {
			if letter == '#' {
				dtype = tensor.Int
			} else {
				shape = append(shape, size(letter))
			}
		}
		n := gorgonia.NewTensor(g, dtype, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint(letters, len(in))),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.Of(dtype))))
		if in = append(in, n); dtype == tensor.Float32 {
			floats = append(floats, n)
		}
	}
	out, err := c.apply(in)
	if err != nil {
		return err
	}
	loss := out
	if len(out.Shape()) > 0 {
		if loss, err = ops.Sum(out); err != nil {
			return err
		}
	}
	gradients, err := gorgonia.Grad(loss, floats...)
	if err != nil {
		return err
	}
	var kept gorgonia.Value
	gorgonia.Read(out, &kept)
	vm, err := ops.NewMachine(g)
	if err != nil {
		return err
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return err
	}
	if !out.Shape().Eq(kept.Shape()) {
		return fmt.Errorf("its value has shape %v, its node %v", kept.Shape(), out.Shape())
	}
	for i, gradient := range gradients {
		if !floats[i].Shape().Eq(gradient.Value().Shape()) {
			return fmt.Errorf("the gradient of %v has shape %v", floats[i].Shape(), gradient.Value().Shape())
		}
	}
	return nil
}
