package ops_test

import (
	"fmt"
	"log"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func exampleTensor(g *gorgonia.ExprGraph, name string, shape []int, data ...float64) *gorgonia.Node {
	return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name),
		gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))))
}

func exampleIDs(g *gorgonia.ExprGraph, name string, shape []int, data ...int) *gorgonia.Node {
	return gorgonia.NewTensor(g, tensor.Int, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name),
		gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))))
}

func exampleRun(g *gorgonia.ExprGraph) {
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		log.Fatal(err)
	}
}

// A layer of two features to three, with a bias and a squared ReLU in the same pass.
func ExampleLinear() {
	g := gorgonia.NewGraph()
	x := exampleTensor(g, "x", []int{1, 2}, 1, 2)
	weight := exampleTensor(g, "weight", []int{2, 3}, 1, 0, -1, 0, 1, -1)
	bias := exampleTensor(g, "bias", []int{3}, 0, 1, 0)
	y, err := ops.Linear(x, weight, bias, ops.LinearOptions{Activation: kernels.ReLUSquared})
	if err != nil {
		log.Fatal(err)
	}
	exampleRun(g)
	fmt.Println(y.Value().Data())
	// Output: [1 9 0]
}

func ExampleLinear_error() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(8, 64), gorgonia.WithName("x"))
	weight := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(32, 64), gorgonia.WithName("weight"))
	_, err := ops.Linear(x, weight, nil, ops.LinearOptions{})
	fmt.Println(err)
	// Output: Linear: weight has shape [32 64], it needs a row for each of x's 64 features
}

// Scores of queries and keys: a product with a transpose that copies nothing.
func ExampleMatMul() {
	g := gorgonia.NewGraph()
	q := exampleTensor(g, "q", []int{2, 2}, 1, 2, 3, 4)
	k := exampleTensor(g, "k", []int{2, 2}, 1, 0, 1, 1)
	scores := gorgonia.Must(ops.MatMul(q, k, ops.MatMulOptions{TransposeB: true}))
	exampleRun(g)
	fmt.Println(scores.Value().Data())
	// Output: [1 3 3 7]
}

func ExampleLayerNorm() {
	g := gorgonia.NewGraph()
	x := exampleTensor(g, "x", []int{2, 2}, 1, 3, -10, 10)
	y := gorgonia.Must(ops.LayerNorm(x, nil, nil, ops.NormOptions{}))
	exampleRun(g)
	fmt.Printf("%.3f\n", y.Value().Data())
	// Output: [-1.000 1.000 -1.000 1.000]
}

func ExampleEmbedding() {
	g := gorgonia.NewGraph()
	table := exampleTensor(g, "table", []int{3, 2}, 0, 0.5, 1, 1.5, 2, 2.5)
	rows := gorgonia.Must(ops.Embedding(table, exampleIDs(g, "ids", []int{1, 3}, 2, 0, 2)))
	gradients, err := gorgonia.Grad(gorgonia.Must(ops.Sum(rows)), table)
	if err != nil {
		log.Fatal(err)
	}
	exampleRun(g)
	fmt.Println(rows.Shape(), rows.Value().Data())
	fmt.Println("how often each row was looked up:", gradients[0].Value().Data())
	// Output:
	// (1, 3, 2) [2 2.5 0 0.5 2 2.5]
	// how often each row was looked up: [1 1 0 0 2 2]
}

// The third row does not count. The gradient is what softmax predicts minus what is right, over the
// rows that count.
func ExampleSoftmaxCrossEntropy() {
	g := gorgonia.NewGraph()
	logits := exampleTensor(g, "logits", []int{3, 2}, 0, 0, 0, 0, 5, 1)
	loss, err := ops.SoftmaxCrossEntropy(logits, exampleIDs(g, "targets", []int{3}, 0, 1, -1), ops.CrossEntropyOptions{IgnoreIndex: new(-1)})
	if err != nil {
		log.Fatal(err)
	}
	gradients, err := gorgonia.Grad(loss, logits)
	if err != nil {
		log.Fatal(err)
	}
	exampleRun(g)
	fmt.Printf("%.4f %.2f\n", loss.Value().Data(), gradients[0].Value().Data())
	// Output: 0.6931 [-0.25 0.25 0.25 -0.25 0.00 0.00]
}

// A language model's head whose weight is the embedding table: the logits are never held all at
// once.
func ExampleLinearCrossEntropy() {
	g := gorgonia.NewGraph()
	hidden := exampleTensor(g, "hidden", []int{2, 2}, 1, 0, 0, 1)
	table := exampleTensor(g, "table", []int{3, 2}, 10, 0, 0, 10, -10, -10)
	loss := gorgonia.Must(ops.LinearCrossEntropy(hidden, table, exampleIDs(g, "targets", []int{2}, 0, 1), ops.LinearCrossEntropyOptions{}))
	exampleRun(g)
	fmt.Printf("%.5f\n", loss.Value().Data())
	// Output: 0.00005
}

// A feature that points one way is turned by one radian a position.
func ExampleRoPE() {
	g := gorgonia.NewGraph()
	x := exampleTensor(g, "x", []int{1, 1, 3, 2}, 1, 0, 1, 0, 1, 0)
	y := gorgonia.Must(ops.RoPE(x, ops.RoPEOptions{}))
	exampleRun(g)
	fmt.Printf("%.3f\n", y.Value().Data())
	// Output: [1.000 0.000 0.540 0.841 -0.416 0.909]
}

func ExampleDropout() {
	g := gorgonia.NewGraph()
	x := exampleTensor(g, "x", []int{8}, 1, 1, 1, 1, 1, 1, 1, 1)
	y := gorgonia.Must(ops.Dropout(x, ops.DropoutOptions{Drop: ops.Drop{P: 0.5, Seed: 3}}))
	ops.ModeOf(g).Train(0)
	exampleRun(g)
	fmt.Println("training:  ", y.Value().Data())
	ops.ModeOf(g).Evaluate()
	exampleRun(g)
	fmt.Println("evaluating:", y.Value().Data())
	// Output:
	// training:   [2 0 0 0 2 0 2 2]
	// evaluating: [1 1 1 1 1 1 1 1]
}

// A gradient penalty: how steep the score is at x is part of the cost.
func ExampleGradients() {
	g := gorgonia.NewGraph()
	x := exampleTensor(g, "x", []int{1, 2}, 1, 2)
	weight := exampleTensor(g, "weight", []int{2, 1}, 3, -1)
	score := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Tanh(gorgonia.Must(ops.MatMul(x, weight, ops.MatMulOptions{}))))))
	slopes, err := ops.Gradients(score, x)
	if err != nil {
		log.Fatal(err)
	}
	steep := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(slopes[0], slopes[0]))))
	cost := gorgonia.Must(ops.Add(score, steep))
	if _, err := gorgonia.Grad(cost, weight); err != nil {
		log.Fatal(err)
	}
	exampleRun(g)
	gradient, err := weight.Grad()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4f %.4f\n", steep.Value().Data(), gradient.Data())
	// Output: 1.7638 [-3.8949 -10.2591]
}

// Attention that is sparse by blocks: each block of queries reads the two blocks of keys whose mean
// fits its own mean best, among those of the past.
func ExampleListedBlocks() {
	const length, size, features, blocks = 8, 2, 2, 4
	g := gorgonia.NewGraph()
	x := make([]float64, length*features)
	for i := range x {
		x[i] = float64((i/4*5+i%3)%7) - 3
	}
	q := exampleTensor(g, "q", []int{1, 1, length, features}, x...)
	k := exampleTensor(g, "k", []int{1, 1, length, features}, x...)
	average := exampleTensor(g, "average", []int{size}, 0.5, 0.5)
	future := make([]float64, blocks*blocks)
	for i := range future {
		if i%blocks > i/blocks {
			future[i] = -1e9
		}
	}
	past := exampleTensor(g, "past", []int{1, 1, blocks, blocks}, future...)

	must := gorgonia.Must
	mean := func(n *gorgonia.Node) *gorgonia.Node { // of each block
		n = must(gorgonia.Reshape(n, tensor.Shape{1, 1, blocks, size, features}))
		return must(ops.MatMul(must(ops.Permute(n, 0, 1, 2, 4, 3)), average, ops.MatMulOptions{}))
	}
	fit := must(ops.Add(must(ops.MatMul(mean(q), mean(k), ops.MatMulOptions{TransposeB: true})), past))
	_, chosen, err := ops.TopK(fit, 2)
	if err != nil {
		log.Fatal(err)
	}
	listed, err := ops.ListedBlocks(chosen, ops.BlockLists{Queries: size, Keys: size, Count: blocks})
	if err != nil {
		log.Fatal(err)
	}
	out, err := ops.FlashAttention(q, k, k, ops.AttentionOptions{Mask: score.And(score.Causal, listed)})
	if err != nil {
		log.Fatal(err)
	}
	exampleRun(g)
	fmt.Println(chosen.Value().Data(), out.Shape())
	// Output: [0 3 1 0 1 2 0 3] (1, 1, 8, 2)
}
