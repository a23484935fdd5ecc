package ops

import (
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
	if slices.Contains(up.saved, true) || slices.Contains(norm.saved, true) || up.kernel.(*linear).pre.IsSet() || norm.kernel.(*layerNorm).mean.IsSet() {
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
		// Binding the gradients of all nodes needs each to run after the node that it is the gradient of.
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
		k := loss.Op().(*call).kernel.(*linearCrossEntropy)
		if (k.dX.IsSet()) != (wrt == "x") || (k.dW.IsSet()) != (wrt == "weight") {
			t.Errorf("wrt %s: prepared the gradient of x: %t, of the weight: %t", wrt, k.dX.IsSet(), k.dW.IsSet())
		}
	}
}

func TestGradientNeedsAForwardRun(t *testing.T) {
	_, loss, up, _ := callGraph(t)
	up.asked = up.hasGradient
	const want = "the gradient op ran without a forward run before it"
	if _, err := up.backward(make([]gorgonia.Value, 3), nil, []gorgonia.Value{loss.Value()}); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// withoutScores is a device that cannot show scores, and counts what is copied from and to it.
type withoutScores struct {
	kernels.Backend
	copies int
}

func (d *withoutScores) AttentionScores(*kernels.Attention, []int, kernels.Tensor) error {
	return kernels.Unsupported{Device: "test", What: "scores"}
}

func (d *withoutScores) Copy(dst, src kernels.Tensor) error {
	d.copies++
	return d.Backend.Copy(dst, src)
}

// What a device cannot compute is computed on the host, from copies of what lies on the device, and nowhere while work is recorded.
func TestWhatADeviceLacksIsComputedOnTheHost(t *testing.T) {
	g := gorgonia.NewGraph()
	in := func(name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name), gorgonia.WithInit(gorgonia.GlorotN(1)))
	}
	q, k, bias := in("q", 1, 2, 5, 4), in("k", 1, 2, 6, 4), in("bias", 6)
	scores, err := AttentionScores(q, k, AttentionOptions{Bias: bias}, 3, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := gorgonia.NewTapeMachine(g).RunAll(); err != nil {
		t.Fatal(err)
	}
	c := scores.Op().(*call)
	_, inputs, err := c.bind([]gorgonia.Value{q.Value(), k.Value(), k.Value(), bias.Value()})
	if err != nil {
		t.Fatal(err)
	}
	out := kernels.Of(make([]float32, 1*2*2*6), 1, 2, 2, 6)
	device := &withoutScores{Backend: host}
	if err := c.kernel.forward(&run{Backend: device, c: c}, inputs, []kernels.Tensor{out}); err != nil {
		t.Fatal(err)
	}
	if got, want := kernels.Host[float32](out), scores.Value().Data().([]float32); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if device.copies != 4 {
		t.Errorf("%d tensors were copied, want q, k, the bias and the scores", device.copies)
	}
	c.memory.pool.recording.Store(true)
	if err := c.kernel.forward(&run{Backend: device, c: c}, inputs, []kernels.Tensor{out}); err != errReadOnHost {
		t.Errorf("while work is recorded, got %v, want %v", err, errReadOnHost)
	}
}
