package nn_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// values runs a graph once and gives what nodes are.
func values(t *testing.T, nodes ...*gorgonia.Node) [][]float64 {
	t.Helper()
	machine, err := ops.NewMachine(nodes[0].Graph())
	if err != nil {
		t.Fatal(err)
	}
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	var all [][]float64
	for _, n := range nodes {
		all = append(all, slices.Clone(n.Value().Data().([]float64)))
	}
	return all
}

// sequence is an input of numbers that are alike nowhere.
func sequence(g *gorgonia.ExprGraph, name string, shape ...int) *gorgonia.Node {
	data := make([]float64, tensor.Shape(shape).TotalSize())
	for i := range data {
		data[i] = math.Sin(float64(i*i%101) + float64(len(name)))
	}
	return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name),
		gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))))
}

// A decoder's output is what its definition says: the parts of its block applied one by one. What
// its context's mask hides does not matter, and with a cache the last token's vector is the same.
func TestStackWithContext(t *testing.T) {
	const batch, length, seen, dim = 2, 5, 7, 8
	for _, norms := range []nn.NormPlace{nn.PreNorm, nn.PostNorm, nn.BranchNorm, nn.SandwichNorm, nn.StreamNorm} {
		g, store := gorgonia.NewGraph(), nn.NewParameters(1)
		causal := ops.AttentionOptions{Causal: kernels.CausalBottomRight}
		stack := nn.NewStack(nn.NewScope(g, store).DType(tensor.Float64), nn.StackConfig{Layers: 2, Block: nn.BlockConfig{
			Attention: nn.MultiHeadAttentionConfig{Dim: dim, Heads: 2, Options: causal}, Cross: true, ContextDim: 6, Norms: norms,
		}})
		x, context := sequence(g, "x", batch, length, dim), sequence(g, "context", batch, seen, 6)
		mask := gorgonia.NewMatrix(g, tensor.Bool, gorgonia.WithShape(batch, seen), gorgonia.WithName("mask"),
			gorgonia.WithValue(tensor.New(tensor.WithShape(batch, seen), tensor.WithBacking(slices.Repeat([]bool{true, true, true, true, true, false, false}, 2)))))
		lengths := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(batch), gorgonia.WithName("lengths"),
			gorgonia.WithValue(tensor.New(tensor.WithShape(batch), tensor.WithBacking([]int{5, 5}))))
		in := nn.BlockInputs{Context: on(context), ContextMask: on(mask)}
		whole := must(stack.ForwardWith(on(x), in))
		short := must(stack.ForwardWith(on(x), nn.BlockInputs{Context: on(context), ContextLengths: on(lengths)}))
		caches, err := stack.NewCaches(batch, length)
		if err != nil {
			t.Fatal(err)
		}
		last := must(stack.ForwardCached(on(x), caches, in))
		got := values(t, whole, short, last)
		for i := range got[0] {
			if !(math.Abs(got[0][i]-got[1][i]) <= 1e-12) {
				t.Errorf("norms %d: element %d is %v with a mask of the context and %v with its lengths", norms, i, got[0][i], got[1][i])
			}
		}
		for i := range got[2] {
			if want := got[0][(i/dim*length+length-1)*dim+i%dim]; !(math.Abs(got[2][i]-want) <= 1e-12) {
				t.Errorf("norms %d: element %d is %v with a cache and %v without", norms, i, got[2][i], want)
			}
		}
		parameters := stack.Parameters()
		if n := len(store.Names()); n != len(parameters) {
			t.Errorf("norms %d: the stack lists %d parameters, there are %d", norms, len(parameters), n)
		}
	}
}

// countingLayer is a layer that counts what goes through it.
type countingLayer struct {
	nn.Layer
	calls *[]string
	name  string
}

func (l countingLayer) Forward(x nn.Tensor) nn.Tensor {
	*l.calls = append(*l.calls, l.name)
	return l.Layer.Forward(x)
}

// countingAttention is attention that counts too.
type countingAttention struct {
	nn.Attention
	calls *[]string
}

func (a countingAttention) ForwardWith(x nn.Tensor, in nn.AttentionInputs) nn.Tensor {
	*a.calls = append(*a.calls, "attention")
	return a.Attention.ForwardWith(x, in)
}

// Makers take the place of all linear layers, norms, attentions and MLPs of a model; with what they
// would have made, nothing changes.
func TestMakers(t *testing.T) {
	var calls []string
	output := func(change func(*nn.BlockConfig)) []float64 {
		g := gorgonia.NewGraph()
		m := nn.NewGPT(nn.NewScope(g, nn.NewParameters(1)).DType(tensor.Float64), nn.GPTConfig{Vocab: 11, Context: 4, Layers: 1, Heads: 2, Dim: 8, Block: func(_ int, c *nn.BlockConfig) { change(c) }})
		tokens := gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(1, 4), gorgonia.WithName("tokens"),
			gorgonia.WithValue(tensor.New(tensor.WithShape(1, 4), tensor.WithBacking([]int{1, 2, 3, 4}))))
		return values(t, must(m.Forward(on(tokens))))[0]
	}
	plain := output(func(*nn.BlockConfig) {})
	made := output(func(c *nn.BlockConfig) {
		c.NewLinear = func(s *nn.Scope, c nn.LinearConfig) nn.Layer {
			return countingLayer{nn.NewLinear(s, c), &calls, s.Name()}
		}
		c.NewNorm = func(s *nn.Scope, c nn.NormConfig) nn.Layer { return countingLayer{nn.NewNorm(s, c), &calls, s.Name()} }
		c.NewMLP = func(s *nn.Scope, c nn.MLPConfig) nn.Layer { return countingLayer{nn.NewMLP(s, c), &calls, s.Name()} }
		c.NewAttention = func(s *nn.Scope, c nn.MultiHeadAttentionConfig) nn.Attention {
			return countingAttention{nn.NewMultiHeadAttention(s, c), &calls}
		}
	})
	if !slices.Equal(plain, made) {
		t.Error("a model whose parts are made by makers computes something else")
	}
	want := []string{"blocks.0.norm1", "attention", "blocks.0.attn.qkv", "blocks.0.attn.proj", "blocks.0.norm2", "blocks.0.mlp", "blocks.0.mlp.fc", "blocks.0.mlp.proj"}
	if !slices.Equal(calls, want) {
		t.Errorf("what makers made was called as\n%v\nwant\n%v", calls, want)
	}
	checkScope(t, "Block: the maker of mlp gave nil, it needs to give a layer", func(s *nn.Scope) {
		nn.NewBlock(s, nn.BlockConfig{
			Attention: nn.MultiHeadAttentionConfig{Dim: 8, Heads: 2}, NewMLP: func(*nn.Scope, nn.MLPConfig) nn.Layer { return nil },
		})
	})
}

// The means over what a mask shows are means, also over more features than a head can have, and
// have their gradients.
func TestMeanPool(t *testing.T) {
	const batch, length, dim = 2, 3, 130
	g := gorgonia.NewGraph()
	x := sequence(g, "x", batch, length, dim)
	shown := []bool{true, true, false, false, true, true}
	mask := gorgonia.NewMatrix(g, tensor.Bool, gorgonia.WithShape(batch, length), gorgonia.WithName("mask"),
		gorgonia.WithValue(tensor.New(tensor.WithShape(batch, length), tensor.WithBacking(shown))))
	mean := must(nn.Pool(on(x), nn.MeanPool, on(mask)))
	d, err := gorgonia.Grad(gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(mean)))), x)
	if err != nil {
		t.Fatal(err)
	}
	again := must(nn.Pool(on(x), nn.MeanPool, on(mask))) // Gorgonia squares a mean in its place
	got := values(t, again, d[0])
	data := x.Value().Data().([]float64)
	for i := range got[0] {
		item, feature, want := i/dim, i%dim, 0.0
		for row := range length {
			if shown[item*length+row] {
				want += data[(item*length+row)*dim+feature] / 2
			}
		}
		if !(math.Abs(got[0][i]-want) <= 1e-12) {
			t.Fatalf("element %d is %v, the mean is %v", i, got[0][i], want)
		}
		for row := range length {
			wantD := 0.0
			if shown[item*length+row] {
				wantD = want // of the square, over two rows
			}
			if has := got[1][(item*length+row)*dim+feature]; !(math.Abs(has-wantD) <= 1e-12) {
				t.Fatalf("the gradient of row %d, feature %d is %v, want %v", item*length+row, feature, has, wantD)
			}
		}
	}
}

// A patch's vector is the patch's elements, channel by channel, through the linear layer.
func TestPatchEmbedding(t *testing.T) {
	g, store := gorgonia.NewGraph(), nn.NewParameters(2)
	identity := tensor.New(tensor.WithShape(8, 8), tensor.WithBacking(make([]float64, 64)))
	for i := range 8 {
		identity.Float64s()[9*i] = 1
	}
	if err := store.Set("patches.weight", identity); err != nil {
		t.Fatal(err)
	}
	p := nn.NewPatchEmbedding(nn.NewScope(g, store).DType(tensor.Float64), nn.PatchEmbeddingConfig{Channels: 2, Height: 4, Width: 6, Patch: 2, Dim: 8, ClassToken: true, NoPositions: true})
	images := sequence(g, "images", 3, 2, 4, 6)
	out := must(p.Forward(on(images)))
	if want := (tensor.Shape{3, 7, 8}); !out.Shape().Eq(want) || p.Len() != 7 {
		t.Fatalf("the shape is %v, want %v", out.Shape(), want)
	}
	got, data, class := values(t, out)[0], images.Value().Data().([]float64), store.Value("class").Float64s()
	for i, has := range got {
		item, token, feature := i/56, i/8%7, i%8
		want := class[feature]
		if token > 0 {
			row, column := (token-1)/3*2+feature/2%2, (token-1)%3*2+feature%2
			want = data[((item*2+feature/4)*4+row)*6+column]
		}
		if !(math.Abs(has-want) <= 1e-12) {
			t.Fatalf("image %d, token %d, feature %d is %v, want %v", item, token, feature, has, want)
		}
	}
	checkScope(t, "PatchEmbedding: patch is 3, it needs to divide the images' height and width, which are 4 and 6", func(s *nn.Scope) {
		nn.NewPatchEmbedding(s, nn.PatchEmbeddingConfig{Channels: 1, Height: 4, Width: 6, Patch: 3, Dim: 8})
	})
	checkScope(t, "PositionalEmbedding: kind is 7, it needs to be LearnedPositions, SinusoidalPositions or SinusoidalHalves", func(s *nn.Scope) {
		nn.NewPatchEmbedding(s, nn.PatchEmbeddingConfig{Channels: 1, Height: 4, Width: 6, Patch: 2, Dim: 8, Positions: 7})
	})
}

// The table of sines and cosines turns by the same angle from each position to the next.
func TestSinusoidalPositions(t *testing.T) {
	g := gorgonia.NewGraph()
	p := nn.NewPositionalEmbedding(nn.NewScope(g, nil).DType(tensor.Float64), nn.PositionalEmbeddingConfig{Context: 50, Dim: 6, Kind: nn.SinusoidalPositions})
	x := gorgonia.NewTensor(g, tensor.Float64, 3, gorgonia.WithShape(1, 40, 6), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.Zeroes()))
	got := values(t, must(p.Forward(on(x))))[0]
	for i, has := range got {
		angle := float64(i/6) * math.Pow(10000, -float64(i%6/2)/3)
		if want := []float64{math.Sin(angle), math.Cos(angle)}[i%2]; !(math.Abs(has-want) <= 1e-12) {
			t.Fatalf("position %d, feature %d is %v, want %v", i/6, i%6, has, want)
		}
	}
	if n := len(p.Parameters()); n != 0 {
		t.Errorf("there are %d parameters, want none", n)
	}
}

// Load takes what fits in every name and shape, and names all that does not; Set takes no name that
// no layer has.
func TestLoad(t *testing.T) {
	build := func(seed uint64, out int) *nn.Parameters {
		p := nn.NewParameters(seed)
		s := nn.NewScope(gorgonia.NewGraph(), p)
		nn.NewLinear(s.Sub("a"), nn.LinearConfig{In: 3, Out: out})
		nn.NewNorm(s.Sub("b"), nn.NormConfig{Dim: 3})
		return p
	}
	one, two := build(1, 4), build(2, 4)
	if err := two.Load(one.Values()); err != nil {
		t.Fatal(err)
	}
	for name, value := range one.Values() {
		if !slices.Equal(two.Value(name).Float32s(), value.Float32s()) {
			t.Errorf("%s was not loaded", name)
		}
	}
	before := slices.Clone(two.Value("b.bias").Float32s())
	wrong := build(3, 5).Values()
	delete(wrong, "b.weight")
	wrong["a.wieght"] = wrong["a.weight"]
	wrong["b.bias"].Float32s()[0] = 7
	const want = "Parameters: the values do not fit: a.bias is float32 of shape [5], its layers need float32 of shape [4]; " +
		"a.weight is float32 of shape [3 5], its layers need float32 of shape [3 4]; a.wieght is no layer's; b.weight is missing"
	if err := two.Load(wrong); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if !slices.Equal(two.Value("b.bias").Float32s(), before) {
		t.Error("values that do not fit changed something")
	}
	if err := nn.NewParameters(1).Load(wrong); err == nil || !strings.Contains(err.Error(), "no layer was made") {
		t.Errorf("before any layer: error %v", err)
	}
	const unknown = "Parameters: no layer has a parameter a.wieght, it needs to be one such as a.weight"
	if err := two.Set("a.wieght", wrong["a.weight"]); err == nil || err.Error() != unknown {
		t.Errorf("got  %v\nwant %s", err, unknown)
	}
}

// A parameter of one's own is made as layers' are, and first values follow the fan-in unless told.
func TestNewParameter(t *testing.T) {
	g, store := gorgonia.NewGraph(), nn.NewParameters(1)
	for _, c := range []struct {
		init nn.Init
		std  float64
	}{{nil, 0.1}, {nn.Normal(3), 3}, {nn.Uniform(3), math.Sqrt(3)}, {nn.Constant(5), 5}} {
		name := "p" + string(rune('0'+len(store.Names())))
		n := must(nn.NewScope(g, store).Parameter(name, c.init, 100, 90))
		square := 0.0
		for _, x := range n.Value().Data().([]float32) {
			square += float64(x) * float64(x) / 9000
		}
		if std := math.Sqrt(square); !(math.Abs(std/c.std-1) <= 0.03) {
			t.Errorf("%s has a root mean square of %v, want %v", name, std, c.std)
		}
	}
	for want, make := range map[string]func(s *nn.Scope){
		"Parameter: name is empty, it needs to be one that no other parameter of the scope has": func(s *nn.Scope) { s.Parameter("", nil, 1) },
		"Parameter: x has shape [2 0], it needs at least one axis, and none that is empty":      func(s *nn.Scope) { s.Parameter("x", nil, 2, 0) },
		"Parameter: the graph already has a parameter or input called p0, each layer needs a scope of its own: Sub makes one; a layer to apply more than once is a value, as NewLinear gives": func(s *nn.Scope) {
			s.Parameter("p0", nil, 1)
			s.Parameter("p0", nil, 1)
		},
	} {
		checkScope(t, want, make)
	}
}
