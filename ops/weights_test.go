package ops_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// keptLayer is a layer of some weights, each with its shape.
type keptLayer struct {
	weights [][]int
	of      func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error)
}

func keptLayers(in, hidden int) map[string]keptLayer {
	return map[string]keptLayer{
		"Linear": {[][]int{{in, hidden}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.Linear(x, w[0], bias, ops.LinearOptions{Activation: kernels.SiLU})
		}},
		"Linears": {[][]int{{in, hidden}, {in, hidden}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			out, err := ops.Linears(x, w, gorgonia.Nodes{bias, nil})
			if err != nil {
				return nil, err
			}
			return ops.Mul(out[0], out[1])
		}},
		"MLP": {[][]int{{in, hidden}, {hidden, in}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.MLP(x, w[0], bias, w[1], nil, ops.MLPOptions{Activation: kernels.GELUTanh})
		}},
		"SwiGLUMLP": {[][]int{{in, hidden}, {in, hidden}, {hidden, in}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.SwiGLUMLP(x, w[0], w[1], w[2], ops.SwiGLUMLPBiases{Gate: bias})
		}},
		"SwiGLUMLP whose gate has no bias": {[][]int{{in, hidden}, {in, hidden}, {hidden, hidden}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			return ops.SwiGLUMLP(x, w[0], w[1], w[2], ops.SwiGLUMLPBiases{Down: bias})
		}},
		"MatMul": {[][]int{{hidden, in}}, func(x *gorgonia.Node, w gorgonia.Nodes, bias *gorgonia.Node) (*gorgonia.Node, error) {
			y, err := ops.MatMul(x, w[0], ops.MatMulOptions{TransposeB: true})
			if err != nil {
				return nil, err
			}
			return ops.MatMul(y, bias, ops.MatMulOptions{})
		}},
	}
}

// keptValue is a weight in a type, and in float32 as what it was rounded to. A matrix is packed as
// (out, in).
func keptValue(t *testing.T, name string, weight *tensor.Dense, dtype tensor.Dtype) (kept, wide *tensor.Dense) {
	t.Helper()
	var err error
	if !ops.IsPacked(dtype) {
		if kept, err = ops.Converted(weight, dtype); err == nil {
			wide, err = ops.Converted(kept, tensor.Float32)
		}
	} else {
		if name != "MatMul" {
			weight = transposedValue(weight)
		}
		if kept, err = ops.Packed(weight, dtype); err == nil {
			wide, err = ops.Unpacked(kept)
		}
		if err == nil && name != "MatMul" {
			wide = transposedValue(wide)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return kept, wide
}

func transposedValue(v *tensor.Dense) *tensor.Dense {
	rows, columns := v.Shape()[0], v.Shape()[1]
	from, to := v.Float32s(), make([]float32, rows*columns)
	for i, x := range from {
		to[i%columns*rows+i/columns] = x
	}
	return tensor.New(tensor.WithShape(columns, rows), tensor.WithBacking(to))
}

// Weights that are kept in 16 bits or packed beside an x of float32 count as what they are: layers,
// and the gradients of all else, are those of the same weights in float32. So it is where those of
// one layer have several types.
func TestKeptWeights(t *testing.T) {
	for _, types := range [][]tensor.Dtype{{ops.BFloat16}, {ops.Float16}, {ops.Int8}, {ops.Int4}, {ops.NF4},
		{ops.BFloat16, ops.Float16}, {tensor.Float32, ops.BFloat16}, {ops.Int8, ops.Int4}, {ops.NF4, tensor.Float32}, {ops.BFloat16, ops.Int8}} {
		in, hidden := 40, 70
		if slices.ContainsFunc(types, ops.IsPacked) {
			in, hidden = 64, 192
		}
		for name, layer := range keptLayers(in, hidden) {
			for _, rows := range []int{1, 3, 20} {
				var found [2][][]float32
				for kept := range found {
					r, g := rand.New(rand.NewPCG(5, 6)), gorgonia.NewGraph()
					random := func(name string, shape ...int) *gorgonia.Node {
						data := make([]float32, tensor.Shape(shape).TotalSize())
						for i := range data {
							data[i] = float32(r.NormFloat64())
						}
						return gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data)), gorgonia.WithName(name))
					}
					x, bias := random("x", rows, in), random("bias", hidden)
					var weights gorgonia.Nodes
					for i, shape := range layer.weights {
						w := random(string(rune('a'+i)), shape...)
						value, wide := keptValue(t, name, w.Value().(*tensor.Dense), types[i%len(types)])
						if kept == 0 {
							value = wide
						}
						weights = append(weights, gorgonia.NewTensor(g, value.Dtype(), 2, gorgonia.WithShape(value.Shape()...), gorgonia.WithName("kept "+w.Name()), gorgonia.WithValue(value)))
					}
					y, err := layer.of(x, weights, bias)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					gradients, err := gorgonia.Grad(gorgonia.Must(ops.Sum(gorgonia.Must(ops.Mul(y, y)))), x, bias)
					if err != nil {
						t.Fatalf("%s: %v", name, err)
					}
					run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
					for _, n := range append(gorgonia.Nodes{y}, gradients...) {
						found[kept] = append(found[kept], n.Value().Data().([]float32))
					}
				}
				for i, want := range found[0] {
					var off, size float64
					for j, x := range want {
						off, size = max(off, math.Abs(float64(x-found[1][i][j]))), max(size, math.Abs(float64(x)))
					}
					if !(off <= 1e-5*size) {
						t.Errorf("%s in %v, %d rows: result %d differs by %v of its largest element", name, types, rows, i, off/size)
					}
				}
			}
		}
	}
}

// Packed weights go with an x of 16 bits too, the layers of one x among them, and give it the
// gradient of their sum.
func TestPackedWeightsBeside16Bits(t *testing.T) {
	const in, hidden = 64, 192
	for n, name := range slices.Repeat(slices.Sorted(maps.Keys(keptLayers(in, hidden))), 3) {
		if name == "MatMul" {
			continue
		}
		layer, types := keptLayers(in, hidden)[name], [][]tensor.Dtype{{ops.Int8}, {ops.Int8, ops.Int4}, {tensor.Float32, ops.NF4}}[n/len(keptLayers(in, hidden))]
		var found [2][]float64
		for kept := range found {
			r, g := rand.New(rand.NewPCG(5, 6)), gorgonia.NewGraph()
			random := func(name string, shape ...int) *gorgonia.Node {
				data := make([]float32, tensor.Shape(shape).TotalSize())
				for i := range data {
					data[i] = float32(r.NormFloat64()) / 8
				}
				return gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data)), gorgonia.WithName(name))
			}
			x, bias := random("x", 20, in), random("bias", hidden)
			var weights gorgonia.Nodes
			for i, shape := range layer.weights {
				value, wide := keptValue(t, name, random(string(rune('a'+i)), shape...).Value().(*tensor.Dense), types[i%len(types)])
				if kept == 0 {
					value = wide
				}
				weights = append(weights, gorgonia.NewTensor(g, value.Dtype(), 2, gorgonia.WithShape(value.Shape()...), gorgonia.WithName("kept "+string(rune('a'+i))), gorgonia.WithValue(value)))
			}
			y, err := layer.of(gorgonia.Must(ops.Cast(x, ops.BFloat16)), weights, bias)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			gradients, err := gorgonia.Grad(gorgonia.Must(ops.Sum(gorgonia.Must(ops.Cast(y, tensor.Float32)))), x)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
			for _, v := range gradients[0].Value().Data().([]float32) {
				found[kept] = append(found[kept], float64(v))
			}
		}
		var off, size float64
		for j, x := range found[0] {
			off, size = max(off, math.Abs(x-found[1][j])), max(size, math.Abs(x))
		}
		if !(off <= 0x1p-6*size) { // the others are rounded to 8 bits
			t.Errorf("%s in %v: the gradient of x differs by %v of its largest element", name, types, off/size)
		}
	}
}

// An embedding whose table is packed gives its rows as they were rounded.
func TestPackedEmbedding(t *testing.T) {
	for _, dtype := range []tensor.Dtype{ops.Int8, ops.Int4, ops.NF4} {
		r, g := rand.New(rand.NewPCG(5, 6)), gorgonia.NewGraph()
		data := make([]float32, 9*128)
		for i := range data {
			data[i] = float32(r.NormFloat64())
		}
		table, err := ops.Packed(tensor.New(tensor.WithShape(9, 128), tensor.WithBacking(data)), dtype)
		if err != nil {
			t.Fatal(err)
		}
		wide, err := ops.Unpacked(table)
		if err != nil {
			t.Fatal(err)
		}
		ids := []int{8, 0, 3, 3}
		y := gorgonia.Must(ops.Embedding(
			gorgonia.NewTensor(g, dtype, 2, gorgonia.WithShape(table.Shape()...), gorgonia.WithName("table"), gorgonia.WithValue(table)),
			gorgonia.NodeFromAny(g, tensor.New(tensor.WithShape(4), tensor.WithBacking(ids)), gorgonia.WithName("ids"))))
		run(t, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine())))
		for i, x := range y.Value().Data().([]float32) {
			if want := wide.Float32s()[ids[i/128]*128+i%128]; x != want {
				t.Fatalf("%v: element %d is %v, want %v", dtype, i, x, want)
			}
		}
	}
}

// What cannot be packed, and what packed weights do not go with.
func TestPackedErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	matrix := func(rows, columns int) *tensor.Dense {
		return tensor.New(tensor.WithShape(rows, columns), tensor.Of(tensor.Float32))
	}
	value, err := ops.Packed(matrix(3, 64), ops.NF4)
	if err != nil {
		t.Fatal(err)
	}
	w := gorgonia.NewTensor(g, ops.NF4, 2, gorgonia.WithShape(value.Shape()...), gorgonia.WithName("w"), gorgonia.WithValue(value))
	linear := func(name string, dtype tensor.Dtype, features int) error {
		_, err := ops.Linear(node(g, name, dtype, 2, features), w, nil, ops.LinearOptions{})
		return err
	}
	packed := func(v *tensor.Dense, dtype tensor.Dtype) error {
		_, err := ops.Packed(v, dtype)
		return err
	}
	transposed := func() error {
		_, err := ops.MatMul(node(g, "a", tensor.Float32, 3, 2), w, ops.MatMulOptions{TransposeA: true})
		return err
	}
	other, err := ops.Packed(matrix(1, 64), ops.NF4)
	if err != nil {
		t.Fatal(err)
	}
	odd := gorgonia.NewTensor(g, ops.Int4, 2, gorgonia.WithShape(3, 40), gorgonia.WithName("odd"))
	for want, err := range map[string]error{
		"Linear: weight is NF4 in blocks, x is float64: they need one dtype":                linear("double", tensor.Float64, 64),
		"Linear: weight has shape [64 3], it needs a row for each of x's 32 features":       linear("x", tensor.Float32, 32),
		"MatMul: b is NF4 in blocks, the transpose of an a cannot be multiplied by it":      transposed(),
		"Packed: dtype is float32, it needs to be Int8, Int4 or NF4":                        packed(matrix(3, 64), tensor.Float32),
		"Packed: 40 columns cannot be int4 in blocks, they need to be a multiple of 32":     packed(matrix(3, 40), ops.Int4),
		"Linear: weight has shape [3 40]: rows of 40 bytes are no rows of int4 in blocks":   second(ops.Linear(node(g, "y", tensor.Float32, 2, 64), odd, nil, ops.LinearOptions{})),
		"Unpacked: the value is a *tensor.Dense, it needs to be a packed matrix":            second(ops.Unpacked(matrix(3, 4))),
		"PackedOf: rows of 7 bytes are no rows of int8 in blocks":                           second(ops.PackedOf(make([]byte, 14), ops.Int8, 2)),
		"Assign: a value of shape [1 48] cannot be written over one of shape [3 48]":        ops.Assign(value, other),
		"Sum: x is NF4, it needs to be float32, float64, BFloat16 or Float16":               second(ops.Sum(w)),
		"Converted: the value is NF4, it needs to be float32, float64, BFloat16 or Float16": second(ops.Converted(value, tensor.Float32)),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if _, err := gorgonia.Grad(gorgonia.Must(ops.Sum(gorgonia.Must(ops.Linear(node(g, "z", tensor.Float32, 2, 64), w, nil, ops.LinearOptions{})))), w); err == nil {
		t.Error("a packed weight has a gradient")
	}
}

func second[T any](_ T, err error) error { return err }

// A weight in 16 bits has no gradient beside float32, and goes with no other type.
func TestWeightsIn16BitsErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	x, half := node(g, "x", tensor.Float32, 2, 3), node(g, "half", ops.BFloat16, 3, 5)
	y := gorgonia.Must(ops.Linear(x, half, nil, ops.LinearOptions{}))
	if _, err := gorgonia.Grad(gorgonia.Must(ops.Sum(y)), half); err == nil {
		t.Error("a weight that is kept in 16 bits has a gradient")
	}
	_, err := ops.Linear(node(g, "double", tensor.Float64, 2, 3), half, nil, ops.LinearOptions{})
	if want := "Linear: weight is bfloat16, x is float64: they need one dtype"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for want, convert := range map[string]func() (*tensor.Dense, error){
		"Converted: the value is nil": func() (*tensor.Dense, error) { return ops.Converted(nil, ops.BFloat16) },
		"Converted: dtype is int, it needs": func() (*tensor.Dense, error) {
			return ops.Converted(tensor.New(tensor.WithBacking([]float32{1})), tensor.Int)
		},
		"Converted: the value is int, it nee": func() (*tensor.Dense, error) {
			return ops.Converted(tensor.New(tensor.WithBacking([]int{1})), ops.BFloat16)
		},
	} {
		if _, err := convert(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}
