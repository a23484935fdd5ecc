package ops_test

import (
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Three positions attend causally: the first sees only itself, so its output is its own value.
func ExampleFlashAttention() {
	g := gorgonia.NewGraph()
	rows := func(name string, data ...float64) *gorgonia.Node {
		value := tensor.New(tensor.WithShape(1, 1, 3, 2), tensor.WithBacking(data)) // batch, heads, length, head size
		return gorgonia.NewTensor(g, tensor.Float64, 4, gorgonia.WithShape(1, 1, 3, 2), gorgonia.WithName(name), gorgonia.WithValue(value))
	}
	q := rows("q", 1, 0, 0, 1, 1, 1)
	k := rows("k", 1, 0, 0, 1, 1, 1)
	v := rows("v", 1, 2, 3, 4, 5, 6)

	out, err := ops.FlashAttention(q, k, v, ops.AttentionOptions{Causal: kernels.CausalBottomRight})
	if err != nil {
		log.Fatal(err)
	}
	loss := gorgonia.Must(gorgonia.Sum(out))
	gradients, err := gorgonia.Grad(loss, v)
	if err != nil {
		log.Fatal(err)
	}
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("out %.3f\n", out.Value().Data())
	fmt.Printf("dv  %.3f\n", gradients[0].Value().Data())
	// Output:
	// out [1.000 2.000 2.340 3.340 3.510 4.510]
	// dv  [1.578 1.578 0.918 0.918 0.503 0.503]
}

// A message names the argument, what it was and what it needs to be.
func ExampleFlashAttention_error() {
	g := gorgonia.NewGraph()
	rows := func(name string, heads int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, heads, 16, 32), gorgonia.WithName(name))
	}
	_, err := ops.FlashAttention(rows("q", 8), rows("k", 3), rows("v", 3), ops.AttentionOptions{})
	fmt.Println(err)
	// Output: FlashAttention: k has 3 heads, which does not divide q's 8
}

// Attention over all keys is a mean of attention over parts of them, weighted by the exponentials
// of their logsumexps.
func ExampleFlashAttentionLSE() {
	g := gorgonia.NewGraph()
	rows := func(name string, data ...float64) *gorgonia.Node {
		shape := tensor.Shape{1, 1, len(data) / 2, 2}
		return gorgonia.NewTensor(g, tensor.Float64, 4, gorgonia.WithShape(shape...), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))))
	}
	q := rows("q", 1, 1)
	k, k1, k2 := rows("k", 1, 0, 0, 1, 1, 1), rows("k1", 1, 0, 0, 1), rows("k2", 1, 1)
	v, v1, v2 := rows("v", 1, 2, 3, 4, 5, 6), rows("v1", 1, 2, 3, 4), rows("v2", 5, 6)
	attend := func(k, v *gorgonia.Node) (out, lse *gorgonia.Node) {
		out, lse, err := ops.FlashAttentionLSE(q, k, v, ops.AttentionOptions{})
		if err != nil {
			log.Fatal(err)
		}
		return out, lse
	}
	all, allLSE := attend(k, v)
	part1, lse1 := attend(k1, v1)
	part2, lse2 := attend(k2, v2)
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		log.Fatal(err)
	}
	at := func(n *gorgonia.Node, i int) float64 { return n.Value().Data().([]float64)[i] }
	w1, w2 := math.Exp(at(lse1, 0)-at(allLSE, 0)), math.Exp(at(lse2, 0)-at(allLSE, 0))
	for i := range 2 {
		fmt.Printf("%.3f = %.3f\n", at(all, i), w1*at(part1, i)+w2*at(part2, i))
	}
	// Output:
	// 3.510 = 3.510
	// 4.510 = 4.510
}

// Two sequences of 2 and 3 positions lie end to end, and neither sees the other.
func ExampleFlashAttention_packed() {
	g := gorgonia.NewGraph()
	ones := func(name string) *gorgonia.Node { // (total length, heads, head size)
		return gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(5, 1, 4), gorgonia.WithName(name), gorgonia.WithInit(gorgonia.Ones()))
	}
	v := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithShape(5, 1, 1), gorgonia.WithName("v"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(5, 1, 1), tensor.WithBacking([]float32{1, 3, 10, 20, 30}))))
	lens := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("lens"),
		gorgonia.WithValue(tensor.New(tensor.WithBacking([]int{0, 2, 5}))))

	out := gorgonia.Must(ops.FlashAttention(ones("q"), ones("k"), v, ops.AttentionOptions{Lengths: ops.Lengths{QLens: lens, KVLens: lens}}))
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Value().Data())
	// Output: [2 2 20 20 20]
}

// A model learns to recall: it reads pairs of a letter and a digit, then a letter, and answers with
// the digit that came with it. Nothing but attention can carry the digit to the question.
//
// The projection of each position to query, key and value is one matrix; FlashAttentionQKV takes
// its output as it is.
func ExampleFlashAttentionQKV() {
	const batch, letters, width, classes = 32, 4, 16, 4
	const length = letters + 1 // the pairs, and the question
	const features = letters + classes

	g := gorgonia.NewGraph()
	r := rand.New(rand.NewPCG(1, 2))
	matrix := func(name string, rows, columns int) *gorgonia.Node {
		data := make([]float32, rows*columns)
		for i := range data {
			data[i] = float32(r.NormFloat64()) / float32(math.Sqrt(float64(rows)))
		}
		return gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(rows, columns), gorgonia.WithName(name),
			gorgonia.WithValue(tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(data))))
	}
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(batch*length, features), gorgonia.WithName("x"))
	want := gorgonia.NewTensor(g, tensor.Float32, 2, gorgonia.WithShape(batch*length, classes), gorgonia.WithName("want"))
	project, answer := matrix("project", features, 3*width), matrix("answer", width, classes)

	qkv := gorgonia.Must(gorgonia.Reshape(gorgonia.Must(gorgonia.Mul(x, project)), tensor.Shape{batch, length, 3 * width}))
	h := gorgonia.Must(ops.FlashAttentionQKV(qkv, 2, 2, ops.AttentionOptions{}))
	rows := gorgonia.Must(gorgonia.Reshape(h, tensor.Shape{batch * length, width}))
	scores := gorgonia.Must(gorgonia.Mul(rows, answer))
	var got gorgonia.Value // a copy of the scores, over which Sub writes its result
	gorgonia.Read(scores, &got)
	// The rows that ask nothing have a target of 0 for all digits; the target of a question is 1
	// for its digit.
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(scores, want))))))

	parameters := gorgonia.Nodes{project, answer}
	if _, err := gorgonia.Grad(loss, parameters...); err != nil {
		log.Fatal(err)
	}
	m := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(parameters...))
	solver := gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.02))

	right, asked := 0, 0
	for step := range 400 {
		xs, wants := make([]float32, batch*length*features), make([]float32, batch*length*classes)
		digits := make([]int, batch)
		for b := range batch {
			at := func(position, feature int) *float32 { return &xs[(b*length+position)*features+feature] }
			question := r.IntN(letters)
			for position, letter := range r.Perm(letters) {
				digit := r.IntN(classes)
				*at(position, letter), *at(position, letters+digit) = 1, 1
				if letter == question {
					digits[b] = digit
				}
			}
			*at(letters, question) = 1
			wants[(b*length+letters)*classes+digits[b]] = 1
		}
		gorgonia.Let(x, tensor.New(tensor.WithShape(batch*length, features), tensor.WithBacking(xs)))
		gorgonia.Let(want, tensor.New(tensor.WithShape(batch*length, classes), tensor.WithBacking(wants)))
		if err := m.RunAll(); err != nil {
			log.Fatal(err)
		}
		if step >= 390 {
			for b, digit := range digits {
				row := got.Data().([]float32)[(b*length+letters)*classes:][:classes]
				best := slices.Index(row, slices.Max(row))
				asked++
				if best == digit {
					right++
				}
			}
		}
		if err := solver.Step(gorgonia.NodesToValueGrads(parameters)); err != nil {
			log.Fatal(err)
		}
		m.Reset()
	}
	fmt.Println("recalls at least 95%:", float64(right) >= 0.95*float64(asked))
	// Output: recalls at least 95%: true
}

func ExampleModeOf() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 1, 8, 4), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.Ones()))
	out := gorgonia.Must(ops.FlashAttention(x, x, x, ops.AttentionOptions{Dropout: ops.Drop{P: 0.5, Seed: 1}}))
	m := gorgonia.NewTapeMachine(g)
	ones := func() bool {
		if err := m.RunAll(); err != nil {
			log.Fatal(err)
		}
		m.Reset()
		for _, x := range out.Value().Data().([]float32) {
			if !(math.Abs(float64(x)-1) <= 1e-6) {
				return false
			}
		}
		return true
	}
	ops.ModeOf(g).Train(0)
	fmt.Println("training, every output is 1:", ones())
	ops.ModeOf(g).Evaluate()
	fmt.Println("evaluating, every output is 1:", ones())
	// Output:
	// training, every output is 1: false
	// evaluating, every output is 1: true
}

// A sequence of three tokens arrives one by one. With queries of zero, each token attends equally
// to itself and to all before it.
func ExampleCachedAttention() {
	cache, err := ops.NewKVCache(ops.KVCacheConfig{DType: tensor.Float64, Heads: 1, HeadDim: 1, Capacity: 8})
	if err != nil {
		log.Fatal(err)
	}
	g := gorgonia.NewGraph()
	value := []float64{6}
	q, k := exampleTensor(g, "q", []int{1, 1, 1, 1}, 0), exampleTensor(g, "k", []int{1, 1, 1, 1}, 1)
	out, err := ops.CachedAttention(q, k, exampleTensor(g, "v", []int{1, 1, 1, 1}, value...), cache, ops.CachedAttentionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	machine := gorgonia.NewTapeMachine(g)
	for _, value[0] = range []float64{6, 2, 1} {
		if err := machine.RunAll(); err != nil {
			log.Fatal(err)
		}
		machine.Reset()
		fmt.Println(cache.Len(), "in the cache, output", out.Value().Data())
	}
	// Output:
	// 1 in the cache, output [6]
	// 2 in the cache, output [4]
	// 3 in the cache, output [3]
}

// A query sees the last 256 tokens of its own document, and scores have a learnt bias by head and
// distance. A mask that is made of ready-made ones would be score.And(score.SlidingWindow(255, 0),
// ops.Documents(ids)).
func ExampleAttentionOptions_score() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 8, 1024, 64), gorgonia.WithInit(gorgonia.Gaussian(0, 1)), gorgonia.WithName("x"))
	bias := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(8, 256), gorgonia.WithInit(gorgonia.Zeroes()), gorgonia.WithName("bias"))
	document := make([]int, 1024)
	for i := range document {
		document[i] = i / 300
	}
	ids := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(1024), gorgonia.WithName("ids"), gorgonia.WithValue(tensor.New(tensor.WithBacking(document))))

	out, err := ops.FlashAttention(x, x, x, ops.AttentionOptions{
		Mask: func(p ops.Pair) ops.Cond {
			distance := p.Query.Sub(p.Key)
			near := distance.GreaterEqual(0).And(distance.Less(256))
			return near.And(ops.Lookup(ids, p.Query).Equal(ops.Lookup(ids, p.Key)))
		},
		Score: func(p ops.Pair) ops.Expr {
			return p.Score.Add(ops.Lookup(bias, p.Head, p.Query.Sub(p.Key)))
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	gradients, err := gorgonia.Grad(gorgonia.Must(gorgonia.Sum(out)), x, bias)
	if err != nil {
		log.Fatal(err)
	}
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(out.Shape(), gradients[1].Shape())
	// Output: (1, 8, 1024, 64) (8, 256)
}
