package ops

import (
	"errors"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// callGraph is a linear layer with an activation and a norm, and the calls behind them.
func callGraph(t *testing.T) (parameters gorgonia.Nodes, loss *gorgonia.Node, up, norm *call) {
	t.Helper()
	g := gorgonia.NewGraph()
	in := func(name string, shape ...int) *gorgonia.Node {
		n := gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(gorgonia.GlorotN(1)))
		parameters = append(parameters, n)
		return n
	}
	h, err := Linear(in("x", 3, 4), in("weight", 4, 5), in("bias", 5), LinearOptions{Activation: kernels.SiLU})
	if err != nil {
		t.Fatal(err)
	}
	y, err := LayerNorm(h, in("gamma", 5), nil, NormOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return parameters, gorgonia.Must(Sum(y)), h.Op().(*call), y.Op().(*call)
}

func TestCallsKeepNothingWithoutGradient(t *testing.T) {
	_, loss, up, norm := callGraph(t)
	if err := gorgonia.NewTapeMachine(loss.Graph()).RunAll(); err != nil {
		t.Fatal(err)
	}
	isSet := kernels.Tensor.IsSet
	if slices.Contains(up.last.wanted, true) || slices.Contains(norm.last.wanted, true) || slices.ContainsFunc(up.rooms.saved, isSet) || slices.ContainsFunc(norm.rooms.saved, isSet) {
		t.Error("a graph that no one differentiates keeps a state")
	}
}

// callRecorder is a backend that remembers which gradients it was asked for.
type callRecorder struct {
	kernels.Backend
	products int
	names    []string
}

func (r *callRecorder) MatMul(m *kernels.MatMul, out kernels.MatMulOutputs) error {
	r.products++
	if out.SumsOfB.IsSet() {
		r.names = append(r.names, "bias")
	}
	return r.Backend.MatMul(m, out)
}

func (r *callRecorder) SumRows(x, out kernels.Tensor, accumulate bool) error {
	r.names = append(r.names, "bias")
	return r.Backend.SumRows(x, out, accumulate)
}

func (r *callRecorder) NormBackward(n *kernels.Norm, g kernels.NormGradients) error {
	for name, t := range map[string]kernels.Tensor{"dx": g.DX, "gamma": g.DGamma, "beta": g.DBeta} {
		if t.IsSet() {
			r.names = append(r.names, name)
		}
	}
	return r.Backend.NormBackward(n, g)
}

func TestCallsComputeWantedGradientsOnly(t *testing.T) {
	backend := host
	defer func() { host = backend }()
	for _, c := range []struct {
		wrt      []string
		products int
		names    []string
	}{
		{[]string{"gamma"}, 1, []string{"gamma"}},
		{[]string{"weight"}, 2, []string{"dx"}},
		{[]string{"x"}, 2, []string{"dx"}},
		{[]string{"bias"}, 1, []string{"bias", "dx"}},
		{[]string{"x", "weight", "bias", "gamma"}, 3, []string{"bias", "dx", "gamma"}},
	} {
		r := &callRecorder{Backend: backend}
		host = r
		parameters, loss, _, _ := callGraph(t)
		var wrt gorgonia.Nodes
		for _, n := range parameters {
			if slices.Contains(c.wrt, n.Name()) {
				wrt = append(wrt, n)
			}
		}
		if _, err := gorgonia.Grad(loss, wrt...); err != nil {
			t.Fatal(err)
		}
		// Binding the gradients of all nodes needs each to run after the node that it is the
		// gradient of.
		if err := gorgonia.NewTapeMachine(loss.Graph(), gorgonia.BindDualValues()).RunAll(); err != nil {
			t.Fatal(err)
		}
		slices.Sort(r.names)
		if r.products != c.products || !slices.Equal(r.names, c.names) {
			t.Errorf("wrt %v: %d products and %v, want %d and %v", c.wrt, r.products, r.names, c.products, c.names)
		}
	}
}

// TestLinearCrossEntropyComputesWantedGradientsOnly looks at what the forward run prepares.
func TestLinearCrossEntropyComputesWantedGradientsOnly(t *testing.T) {
	for _, wrt := range []string{"x", "weight"} {
		g := gorgonia.NewGraph()
		in := func(name string, shape ...int) *gorgonia.Node {
			return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(gorgonia.GlorotN(1)))
		}
		x, weight := in("x", 3, 4), in("weight", 5, 4)
		targets := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(3), gorgonia.WithName("targets"), gorgonia.WithValue(tensor.New(tensor.WithBacking([]int{0, 4, 2}))))
		loss, err := LinearCrossEntropy(x, weight, targets, LinearCrossEntropyOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := gorgonia.Grad(loss, map[string]*gorgonia.Node{"x": x, "weight": weight}[wrt]); err != nil {
			t.Fatal(err)
		}
		if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
			t.Fatal(err)
		}
		saved := loss.Op().(*call).rooms.saved
		if (saved[0].IsSet()) != (wrt == "x") || (saved[1].IsSet()) != (wrt == "weight") {
			t.Errorf("wrt %s: prepared the gradient of x: %t, of the weight: %t", wrt, saved[0].IsSet(), saved[1].IsSet())
		}
	}
}

func TestGradientNeedsAForwardRun(t *testing.T) {
	_, loss, up, _ := callGraph(t)
	const want = "the gradient op ran without a forward run before it"
	if _, err := up.backward(&run{c: up, wanted: []bool{true, true, true}}, make([]gorgonia.Value, 3), []gorgonia.Value{loss.Value()}); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// withoutScores is a device that cannot show scores.
type withoutScores struct{ kernels.Backend }

func (d *withoutScores) AttentionScores(*kernels.Attention, []int, kernels.Tensor) error {
	return kernels.Unsupported{Device: "test", What: "scores"}
}

// What a device cannot compute is an error that says so, and not computed elsewhere.
func TestWhatADeviceLacks(t *testing.T) {
	backend := host
	defer func() { host = backend }()
	host = &withoutScores{backend}
	for name, op := range map[string]func(q *gorgonia.Node) error{
		"scores": func(q *gorgonia.Node) error { return errorOf(AttentionScores(q, q, AttentionOptions{}, 3, 1)) },
		"listed keys": func(q *gorgonia.Node) error {
			lists := gorgonia.NewTensor(q.Graph(), tensor.Int32, 4, gorgonia.WithShape(1, 1, 5, 1), gorgonia.WithName("lists"),
				gorgonia.WithValue(tensor.New(tensor.WithShape(1, 1, 5, 1), tensor.WithBacking(make([]int32, 5)))))
			return errorOf(ListedKeysAttention(q, q, q, lists, ListedKeysOptions{}))
		},
	} {
		g := gorgonia.NewGraph()
		q := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 2, 5, 4), gorgonia.WithName("q"), gorgonia.WithInit(gorgonia.GlorotN(1)))
		if err := op(q); err != nil {
			t.Fatal(err)
		}
		machine, err := NewMachine(g)
		if err != nil {
			t.Fatal(err)
		}
		defer machine.Close()
		if err := machine.RunAll(); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: the error is %v, it needs to wrap %v", name, err, errors.ErrUnsupported)
		}
	}
}

func errorOf(_ *gorgonia.Node, err error) error { return err }
