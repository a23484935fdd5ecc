package nn_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Convolutions and pooling are PyTorch's, with their gradients, on both machines.
func TestConvAsInPyTorch(t *testing.T) {
	data, err := os.ReadFile("testdata/conv.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]struct {
		golden
		Shape []int
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	same := func(w ops.Sliding) []ops.Sliding { return []ops.Sliding{w, w} }
	line := func(w ops.Sliding) nn.ConvConfig { return nn.ConvConfig{Windows: []ops.Sliding{w}} }
	plane := func(w ops.Sliding) nn.ConvConfig {
		c := nn.ConvConfig{Windows: same(w)}
		c.Windows[1].Size = 2
		return c
	}
	in := func(c nn.ConvConfig, groups int) nn.ConvConfig { c.Groups = groups; return c }
	convolutions := map[string]nn.ConvConfig{
		"conv1d":                               line(ops.Sliding{Size: 3}),
		"conv1d stride 2 padding 1":            line(ops.Sliding{Size: 3, Stride: 2, Padding: 1}),
		"conv1d stride 3 padding 2 dilation 2": line(ops.Sliding{Size: 3, Stride: 3, Padding: 2, Dilation: 2}),
		"conv1d groups 2 padding 1":            in(line(ops.Sliding{Size: 3, Padding: 1}), 2),
		"conv2d":                               plane(ops.Sliding{Size: 3}),
		"conv2d stride 2 padding 1":            plane(ops.Sliding{Size: 3, Stride: 2, Padding: 1}),
		"conv2d dilation 2 padding 1 groups 2": in(plane(ops.Sliding{Size: 3, Padding: 1, Dilation: 2}), 2),
	}
	pools := map[string]func(x nn.Tensor) nn.Tensor{
		"mean pool stride 3":           func(x nn.Tensor) nn.Tensor { return x.MeanPool(same(ops.Sliding{Size: 3, Stride: 3})...) },
		"mean pool stride 2 padding 1": func(x nn.Tensor) nn.Tensor { return x.MeanPool(same(ops.Sliding{Size: 3, Stride: 2, Padding: 1})...) },
	}
	for name, window := range map[string]ops.Sliding{"max pool stride 3": {Size: 3, Stride: 3}, "max pool stride 2 padding 1": {Size: 3, Stride: 2, Padding: 1}} {
		pools[name] = func(x nn.Tensor) nn.Tensor { return x.MaxPool(same(window)...) }
	}
	for name, want := range cases {
		for _, dtype := range []tensor.Dtype{tensor.Float64, tensor.Float32} {
			for _, machine := range []string{"tape", "lisp"} {
				t.Run(name+" "+dtype.String()+" "+machine, func(t *testing.T) {
					g := gorgonia.NewGraph()
					s := nn.NewScope(g, nn.NewParameters(1)).DType(dtype)
					shape := []int{2, 9, 7, 4}
					c, convolves := convolutions[name]
					if convolves && len(c.Windows) == 1 {
						shape = []int{2, 9, 4}
					}
					x := input(g, dtype, "x", shape...)
					nodes := gorgonia.Nodes{x}
					var y nn.Tensor
					if convolves {
						c.In, c.Out = 4, 6
						y = nn.NewConv(s, c).Forward(on(x))
						for _, n := range s.Parameters() {
							v := dense(dtype, n.Shape(), func(i int) float64 { return value(n.Name(), i) })
							if err := s.Values().Set(n.Name(), v); err != nil {
								t.Fatal(err)
							}
						}
						nodes = append(nodes, s.Parameters()...)
					} else {
						y = pools[name](on(x))
					}
					if s.Err() != nil || !slices.Equal(y.Shape(), want.Shape) {
						t.Fatalf("shape %v, want %v: %v", y.Shape(), want.Shape, s.Err())
					}
					var out gorgonia.Value
					gorgonia.Read(must(y), &out)
					differentiate(t, machine, g, must(y.Mul(on(input(g, dtype, "out", want.Shape...))).Sum()), nodes)
					compare(t, "the output", dtype, floats(t, out), want.Out, 0)
					compareGradients(t, dtype, nodes, want.golden)
				})
			}
		}
	}
}

func TestConvErrors(t *testing.T) {
	for want, c := range map[string]nn.ConvConfig{
		"Conv: windows is 0, it needs to be at least 1":                                                 {In: 4, Out: 6},
		"Conv: a window's size is 0, it needs to be at least 1":                                         {In: 4, Out: 6, Windows: make([]ops.Sliding, 1)},
		"Conv: groups is 3, it needs to divide in and out, which are 4 and 6":                           {In: 4, Out: 6, Groups: 3, Windows: []ops.Sliding{{Size: 3}}},
		"Patches: x has shape [2 9 4], it needs (batch, 2 lengths, channels), a length for each window": {In: 4, Out: 6, Windows: []ops.Sliding{{Size: 3}, {Size: 3}}},
		"Patches: window 0 is {Size:12 Stride:1 Padding:1 Dilation:1}, it needs to fit into x's 9 elements with their padding": {
			In: 4, Out: 6, Windows: []ops.Sliding{{Size: 12, Padding: 1}}},
		"Patches: window 0 is {Size:3 Stride:-1 Padding:0 Dilation:1}, it needs a size of at least 1, and nothing negative": {
			In: 4, Out: 6, Windows: []ops.Sliding{{Size: 3, Stride: -1}}},
	} {
		g := gorgonia.NewGraph()
		s := nn.NewScope(g, nil)
		nn.NewConv(s, c).Forward(s.Tensor(input(g, tensor.Float32, "x", 2, 9, 4), nil))
		if err := s.Err(); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
