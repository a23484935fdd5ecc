//go:build gpu

package ops_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if ops.Devices() == 0 {
		// An example cannot skip itself.
		if err := flag.Set("test.skip", "^ExampleDevice$"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// gpu is the first GPU. Tests are skipped where there is none.
func gpu(t testing.TB) *ops.Device {
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

// single is a rank whose part is all.
type single struct{}

func (single) Rank() int                             { return 0 }
func (single) Size() int                             { return 1 }
func (single) CollectParts(...kernels.Tensor) error  { return nil }
func (single) SumParts(...kernels.Tensor) error      { return nil }
func (single) SumPartsLater(...kernels.Tensor) error { return nil }
func (single) Join() error                           { return nil }

func (single) CollectPartsLater(...kernels.Tensor) (kernels.Transfer, error) { return single{}, nil }

// On a device too, ops whose weights are collected have the results of ops that have them: the same
// numbers, up to how products are cut.
func TestWholeOnTheDevice(t *testing.T) {
	d := gpu(t)
	for name, c := range gatherings {
		for dtype, bound := range map[tensor.Dtype]float64{tensor.Float32: 1e-5, ops.BFloat16: 1e-2} {
			t.Run(fmt.Sprintf("%s, %v", name, dtype), func(t *testing.T) {
				loss, gradients := c.run(t, d, dtype, 0, nil)
				gathered, others := c.run(t, d, dtype, 0, single{})
				if !(math.Abs(gathered/loss-1) <= bound) || len(others) != len(gradients) {
					t.Errorf("the loss is %v, of whole weights %v", gathered, loss)
				}
				for i, want := range gradients {
					largest := max(slices.Max(want), -slices.Min(want))
					for k, x := range want {
						if !(math.Abs(others[i][k]-x) <= bound*largest) {
							t.Fatalf("number %d of the gradient of weight %d is %v, of whole weights %v", k, c.frozen+i, others[i][k], x)
						}
					}
				}
			})
		}
	}
}

// random is a float32 value of the host.
func random(seed uint64, shape ...int) *tensor.Dense {
	r := rand.New(rand.NewPCG(seed, 3))
	list := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range list {
		list[i] = float32(r.NormFloat64())
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(list))
}

// graphOnBoth builds a graph over inputs of the given shapes, and runs it on the host and on the
// device. build gives a node and the nodes whose gradients count.
type graphOnBoth struct {
	shapes [][]int
	build  func(in gorgonia.Nodes) (*gorgonia.Node, error)
	after  func(step int) // is told when a step is done, unless nil
}

// run gives the output and the gradients of the inputs, as float32 on the host.
func (b graphOnBoth) run(t *testing.T, d *ops.Device, steps int) (results []*tensor.Dense) {
	t.Helper()
	g := gorgonia.NewGraph()
	var in gorgonia.Nodes
	for i, shape := range b.shapes {
		value := random(uint64(i), shape...)
		if d != nil {
			var err error
			if value, err = d.Upload(value); err != nil {
				t.Fatal(err)
			}
		}
		in = append(in, gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithShape(shape...),
			gorgonia.WithName(fmt.Sprint("in", i)), gorgonia.WithValue(value)))
	}
	out, err := b.build(in)
	if err != nil {
		t.Fatal(err)
	}
	loss := gorgonia.Must(ops.Sum(out))
	gradients, err := gorgonia.Grad(loss, in...)
	if err != nil {
		t.Fatal(err)
	}
	m := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine()))
	defer m.Close()
	for step := range steps {
		m.Reset()
		if err := m.RunAll(); err != nil {
			t.Fatal(err)
		}
		if b.after != nil {
			b.after(step)
		}
	}
	for _, n := range append(gorgonia.Nodes{out}, gradients...) {
		value, err := ops.Download(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, value)
	}
	return results
}

// Graphs give on the device what they give on the host, in their first run and in later ones.
func TestGraphsOnTheDevice(t *testing.T) {
	d := gpu(t)
	causal := ops.AttentionOptions{Causal: kernels.CausalBottomRight}
	for name, b := range map[string]graphOnBoth{
		"attention": {shapes: [][]int{{2, 4, 130, 64}, {2, 2, 190, 64}, {2, 2, 190, 48}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.FlashAttention(in[0], in[1], in[2], causal)
		}},
		"attention with heads of 300 and values of 270": {shapes: [][]int{{2, 4, 130, 300}, {2, 2, 190, 300}, {2, 2, 190, 270}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.FlashAttention(in[0], in[1], in[2], causal)
		}},
		"attention of latents with sinks and dropout": {shapes: [][]int{{1, 70, 6, 576}, {1, 90, 1, 576}, {6}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			values, err := ops.Slice(in[1], 3, 0, 512)
			if err != nil {
				return nil, err
			}
			return ops.FlashAttention(in[0], in[1], values, ops.AttentionOptions{Layout: ops.BSHD, Sinks: in[2], Dropout: ops.Drop{P: 0.2, Seed: 7}})
		}},
		"one node as q, k and v, whose gradients Gorgonia adds": {shapes: [][]int{{1, 3, 100, 32}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.FlashAttention(in[0], in[0], in[0], causal)
		}},
		"two layers with a residual connection": {shapes: [][]int{{1, 2, 70, 64}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			h, err := ops.FlashAttention(in[0], in[0], in[0], causal)
			if err != nil {
				return nil, err
			}
			if h, err = ops.Add(h, in[0]); err != nil {
				return nil, err
			}
			out, err := ops.FlashAttention(h, h, h, causal)
			if err != nil {
				return nil, err
			}
			return gorgonia.Add(out, h)
		}},
		"packed projection": {shapes: [][]int{{2, 77, (4 + 2*2) * 32}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.FlashAttentionQKV(in[0], 4, 2, causal)
		}},
		"bias and sinks": {shapes: [][]int{{2, 2, 60, 64}, {2, 2, 80, 64}, {2, 2, 80, 64}, {1, 2, 60, 80}, {2}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.FlashAttention(in[0], in[1], in[2], ops.AttentionOptions{Bias: in[3], Sinks: in[4]})
		}},
		"dropout": {shapes: [][]int{{1, 90, 2, 64}, {1, 90, 2, 64}, {1, 90, 2, 64}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return ops.FlashAttention(in[0], in[1], in[2], ops.AttentionOptions{Layout: ops.BSHD, Dropout: ops.Drop{P: 0.3, Seed: 5}})
		}},
		"blocks of a top-k choice": {shapes: [][]int{{1, 2, 128, 64}, {1, 2, 160, 64}, {1, 2, 160, 64}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			const size = 32
			blocks := func(n *gorgonia.Node) *gorgonia.Node {
				return gorgonia.Must(gorgonia.Reshape(n, tensor.Shape{1, 2, n.Shape()[2] / size, size * 64}))
			}
			fit := gorgonia.Must(ops.MatMul(blocks(in[0]), blocks(in[1]), ops.MatMulOptions{TransposeB: true}))
			_, chosen, err := ops.TopK(fit, 2)
			if err != nil {
				return nil, err
			}
			listed, err := ops.ListedBlocks(chosen, ops.BlockLists{Queries: size, Keys: size, Count: 5})
			if err != nil {
				return nil, err
			}
			return ops.FlashAttention(in[0], in[1], in[2], ops.AttentionOptions{Mask: listed})
		}},
		"single keys of a top-k choice": {shapes: [][]int{{2, 6, 90, 64}, {2, 2, 90, 64}, {2, 2, 90, 48}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			fit := gorgonia.Must(ops.MatMul(in[1], in[1], ops.MatMulOptions{TransposeB: true}))
			_, chosen, err := ops.TopK(fit, 20)
			if err != nil {
				return nil, err
			}
			return ops.ListedKeysAttention(in[0], in[1], in[2], chosen, ops.ListedKeysOptions{})
		}},
		"the gradient of attention's gradient": {shapes: [][]int{{1, 4, 70, 64}, {1, 2, 90, 64}, {1, 2, 90, 48}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			out, err := ops.FlashAttention(in[0], in[1], in[2], causal)
			if err != nil {
				return nil, err
			}
			score := gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(out, out))))
			gradients, err := ops.Gradients(score, in[0], in[1])
			if err != nil {
				return nil, err
			}
			return ops.Mul(gradients[0], gradients[0])
		}},
		"the logsumexp": {shapes: [][]int{{1, 2, 50, 64}, {1, 2, 60, 64}, {1, 2, 60, 64}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			out, lse, err := ops.FlashAttentionLSE(in[0], in[1], in[2], causal)
			if err != nil {
				return nil, err
			}
			if lse, err = gorgonia.Add(lse, lse); err != nil {
				return nil, err
			}
			again, err := ops.FlashAttention(out, in[1], in[2], causal)
			_ = lse
			return again, err
		}},
	} {
		want := b.run(t, nil, 3)
		got := b.run(t, d, 3)
		for i := range want {
			x, y := want[i].Float32s(), got[i].Float32s()
			worst, largest := 0.0, 0.0
			for n := range x {
				worst = max(worst, math.Abs(float64(x[n]-y[n])))
				largest = max(largest, math.Abs(float64(x[n])))
			}
			if !(worst <= 1e-5*(largest+1)) {
				t.Errorf("%s: result %d of the device differs by %g from the host's, whose largest is %g", name, i, worst, largest)
			}
		}
	}
}

// The weights of attention are on a device what they are on the host, over more keys than a head is
// wide there. Scores, which a GPU has no kernel for, are an error that says so.
func TestAttentionIsSeenOnTheDevice(t *testing.T) {
	d := gpu(t)
	causal := ops.AttentionOptions{Causal: kernels.CausalBottomRight, Dropout: ops.Drop{P: 0.2, Seed: 3}}
	seen := func(d *ops.Device, build func(q, k *gorgonia.Node) (*gorgonia.Node, error)) ([]float32, error) {
		g := gorgonia.NewGraph()
		var in gorgonia.Nodes
		for i, shape := range [][]int{{2, 4, 20, 32}, {2, 2, 600, 32}} {
			value := random(uint64(i), shape...)
			if d != nil {
				var err error
				if value, err = d.Upload(value); err != nil {
					t.Fatal(err)
				}
			}
			in = append(in, gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(shape...), gorgonia.WithName(fmt.Sprint("in", i)), gorgonia.WithValue(value)))
		}
		out, err := build(in[0], in[1])
		if err != nil {
			t.Fatal(err)
		}
		m, err := ops.NewMachine(g)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := m.RunAll(); err != nil {
			return nil, err
		}
		value, err := ops.Download(out.Value())
		if err != nil {
			t.Fatal(err)
		}
		return value.Float32s(), nil
	}
	weights := func(q, k *gorgonia.Node) (*gorgonia.Node, error) { return ops.AttentionWeights(q, k, causal) }
	want, err := seen(nil, weights)
	if err != nil {
		t.Fatal(err)
	}
	got, err := seen(d, weights)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range want {
		if y := got[i]; !(math.Abs(float64(y-x)) <= 1e-5) {
			t.Fatalf("element %d is %v, on the host %v", i, y, x)
		}
	}
	scores := func(q, k *gorgonia.Node) (*gorgonia.Node, error) {
		return ops.AttentionScores(q, k, ops.AttentionOptions{SoftCap: 3}, 0, 7, 19)
	}
	if _, err := seen(d, scores); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the error of scores is %v, it needs to wrap %v", err, errors.ErrUnsupported)
	}
}

// Values of two places in one op are an error that names both.
func TestMixedPlaces(t *testing.T) {
	d := gpu(t)
	onDevice, err := d.Upload(random(1, 1, 1, 8, 16))
	if err != nil {
		t.Fatal(err)
	}
	g := gorgonia.NewGraph()
	node := func(name string, v *tensor.Dense) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(1, 1, 8, 16), gorgonia.WithName(name), gorgonia.WithValue(v))
	}
	q, k := node("q", onDevice), node("k", random(2, 1, 1, 8, 16))
	if _, err := ops.FlashAttention(q, k, k, ops.AttentionOptions{}); err != nil {
		t.Fatal(err)
	}
	err = gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())).RunAll()
	if err == nil || !strings.Contains(err.Error(), "FlashAttention: k is on cpu, q is on cuda:0: all inputs need one place") {
		t.Errorf("the error is %v", err)
	}
}

// A graph that runs again and again allocates in its first runs alone, and the memory of a graph
// that is gone comes back.
func TestDeviceMemoryOfGraphs(t *testing.T) {
	d := gpu(t)
	raw, err := cuda.Default()
	if err != nil {
		t.Fatal(err)
	}
	collect := func() {
		for range 5 {
			runtime.GC()
			time.Sleep(5 * time.Millisecond)
		}
	}
	collect()
	before := raw.Memory().Live
	allocations := 0
	b := graphOnBoth{shapes: [][]int{{1, 8, 1024, 64}}, build: func(in gorgonia.Nodes) (*gorgonia.Node, error) {
		return ops.FlashAttention(in[0], in[0], in[0], ops.AttentionOptions{})
	}, after: func(step int) {
		if now := raw.Memory().Allocations; step <= 2 {
			allocations = now
		} else if now != allocations {
			t.Errorf("the driver was asked for memory in step %d", step)
			allocations = now
		}
	}}
	b.run(t, d, 50)
	collect()
	if live := raw.Memory().Live; live > before+1<<20 {
		t.Errorf("%d bytes are in use after the graphs are gone, %d were before", live, before)
	}
}

// Floats and integers of the host can be uploaded, and come back as they were.
func TestUpload(t *testing.T) {
	d := gpu(t)
	for _, data := range []any{[]float32{1, 2.5, -3}, []float64{1, 2.5, -3}, []int{1, -2, 3}, []int32{1, -2, 3}, []int64{1, -2, 1 << 40}, []kernels.BFloat16{1, 2, 0xFFFF}} {
		v := tensor.New(tensor.WithBacking(data))
		up, err := d.Upload(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Upload(up); err == nil {
			t.Error("uploading a value of the device gave no error")
		}
		down, err := ops.Download(up)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(down.Data()); got != fmt.Sprint(data) {
			t.Errorf("%T %v came back as %v", data, data, got)
		}
	}
	if _, err := d.Upload(tensor.New(tensor.WithBacking([]string{"x"}))); err == nil || !strings.Contains(err.Error(), "it needs to be float32") {
		t.Errorf("the error is %v", err)
	}
}

// BenchmarkAttentionOnTheDevice is the median time from the start of an op's Do to all of its
// kernels being queued: ns/queued. The time beside it includes waiting for the device.
func BenchmarkAttentionOnTheDevice(b *testing.B) {
	d := gpu(b)
	raw, err := cuda.Default()
	if err != nil {
		b.Fatal(err)
	}
	small := random(1, 1, 1, 64, 64)
	halves := make([]kernels.BFloat16, small.DataSize())
	for i, x := range small.Data().([]float32) {
		halves[i] = kernels.ToBFloat16(x)
	}
	for _, arithmetic := range []struct {
		name      string
		of        *tensor.Dense
		precision kernels.Precision
	}{
		{"float32", small, kernels.PrecisionFloat32}, {"float32 as bfloat16", small, kernels.PrecisionBFloat16},
		{"bfloat16", tensor.New(tensor.WithShape(1, 1, 64, 64), tensor.WithBacking(halves)), kernels.PrecisionAuto},
	} {
		x, err := d.Upload(arithmetic.of)
		if err != nil {
			b.Fatal(err)
		}
		g := gorgonia.NewGraph()
		n := gorgonia.NewTensor(g, arithmetic.of.Dtype(), 4, gorgonia.WithShape(1, 1, 64, 64), gorgonia.WithName("x"), gorgonia.WithValue(x))
		out := gorgonia.Must(ops.FlashAttention(n, n, n, ops.AttentionOptions{Precision: arithmetic.precision}))
		if _, err := gorgonia.Grad(gorgonia.Must(ops.Sum(out)), n); err != nil {
			b.Fatal(err)
		}
		parts := map[string]gorgonia.Op{}
		for _, node := range g.AllNodes() {
			for part, name := range map[string]string{"forward": "FlashAttention#", "backward": "FlashAttention.gradients#"} {
				if node.Op() != nil && strings.HasPrefix(node.Op().String(), name) {
					parts[part] = node.Op()
				}
			}
		}
		y, err := parts["forward"].Do(x, x, x)
		if err != nil {
			b.Fatal(err)
		}
		for _, run := range []struct {
			part   string
			inputs []gorgonia.Value
		}{{"forward", []gorgonia.Value{x, x, x}}, {"backward", []gorgonia.Value{x, x, x, x, y}}} {
			b.Run(arithmetic.name+"/"+run.part, func(b *testing.B) {
				var times []time.Duration
				once := func() {
					start := time.Now()
					if _, err := parts[run.part].Do(run.inputs...); err != nil {
						b.Fatal(err)
					}
					times = append(times, time.Since(start))
					if err := raw.Synchronize(); err != nil {
						b.Fatal(err)
					}
				}
				once() // loads the kernels
				b.ReportAllocs()
				for b.Loop() {
					once()
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "ns/queued")
			})
		}
	}
}

// A run before the first choice was sent takes the most probable tokens, whatever was in the
// memory that the settings got.
func TestChooserBeforeItIsTold(t *testing.T) {
	d := gpu(t)
	const texts, tokens = 4, 2000
	r := rand.New(rand.NewPCG(1, 1))
	logits, want := make([]float32, texts*tokens), make([]int, texts)
	for i := range logits {
		if logits[i] = float32(r.NormFloat64()); logits[i] > logits[i/tokens*tokens+want[i/tokens]] {
			want[i/tokens] = i % tokens
		}
	}
	x, err := d.Upload(tensor.New(tensor.WithShape(texts, tokens), tensor.WithBacking(logits)))
	if err != nil {
		t.Fatal(err)
	}
	for try := range 5 {
		for range 20 { // that die: what is neither a whole number nor 0
			if _, err := d.Upload(tensor.New(tensor.WithShape(texts, kernels.ChoiceSettings), tensor.WithBacking(slices.Repeat([]float32{.3}, texts*kernels.ChoiceSettings)))); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.GC()
		time.Sleep(time.Millisecond) // for cleanups
		chooser, err := ops.NewChooser(d, texts)
		if err != nil {
			t.Fatal(err)
		}
		g := gorgonia.NewGraph()
		c, err := chooser.Add(gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(texts, tokens), gorgonia.WithValue(x), gorgonia.WithName("logits")))
		if err != nil {
			t.Fatal(err)
		}
		machine, err := ops.NewMachine(g)
		if err != nil {
			t.Fatal(err)
		}
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		chosen, err := c.Read()
		if err != nil {
			t.Fatal(err)
		}
		for text, c := range chosen {
			if c.ID != want[text] {
				t.Errorf("try %d: text %d has token %d, the most probable is %d", try, text, c.ID, want[text])
			}
		}
		machine.Close()
	}
}
