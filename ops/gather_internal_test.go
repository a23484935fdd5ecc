package ops

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// absent are the other ranks of one that is alone: what they would send is whatever its memory
// holds.
type absent struct{}

func (absent) Rank() int                             { return 1 }
func (absent) Size() int                             { return 4 }
func (absent) CollectParts(...kernels.Tensor) error  { return nil }
func (absent) SumParts(...kernels.Tensor) error      { return nil }
func (absent) SumPartsLater(...kernels.Tensor) error { return nil }
func (absent) Join() error                           { return nil }

func (absent) CollectPartsLater(...kernels.Tensor) (kernels.Transfer, error) { return absent{}, nil }

// Weights that are collected live no longer than one layer runs, forward and backward: more layers
// need the memory of more activations, and of no more weights, in float32 and in 16 bits, where
// layers join and round weights.
func TestGatheredWeightsGoAway(t *testing.T) {
	slow.Emulated(t)
	const dim, rows = 96, 2
	layers := map[string]func(x *gorgonia.Node, weight func(columns int) *gorgonia.Node) (*gorgonia.Node, error){
		"Linear": func(x *gorgonia.Node, weight func(int) *gorgonia.Node) (*gorgonia.Node, error) {
			return Linear(x, weight(dim), nil, LinearOptions{Activation: kernels.SiLU})
		},
		"Linears": func(x *gorgonia.Node, weight func(int) *gorgonia.Node) (*gorgonia.Node, error) {
			out, err := Linears(x, gorgonia.Nodes{weight(dim), weight(dim)}, nil)
			if err != nil {
				return nil, err
			}
			return Add(out[0], out[1])
		},
		"MLP": func(x *gorgonia.Node, weight func(int) *gorgonia.Node) (*gorgonia.Node, error) {
			return MLP(x, weight(dim), nil, weight(dim), nil, MLPOptions{Activation: kernels.GELUTanh})
		},
		"SwiGLUMLP": func(x *gorgonia.Node, weight func(int) *gorgonia.Node) (*gorgonia.Node, error) {
			return SwiGLUMLP(x, weight(dim), weight(dim), weight(dim), SwiGLUMLPBiases{})
		},
	}
	for name, layer := range layers {
		for _, dtype := range []tensor.Dtype{tensor.Float32, BFloat16} {
			for _, again := range []bool{false, true} {
				used := func(count int) int {
					g := gorgonia.NewGraph()
					x := gorgonia.NewMatrix(g, dtype, gorgonia.WithShape(rows, dim), gorgonia.WithName("x"),
						gorgonia.WithValue(tensor.New(tensor.Of(dtype), tensor.WithShape(rows, dim))))
					var parts gorgonia.Nodes
					weight := func(columns int) *gorgonia.Node {
						part := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(PartShape(absent{}, dim, columns)...),
							gorgonia.WithName(fmt.Sprint("w", len(parts))), gorgonia.WithInit(gorgonia.Zeroes()))
						parts = append(parts, part)
						return gorgonia.Must(Whole(part, absent{}, dim, columns))
					}
					for range count {
						y, err := layer(x, weight)
						if again && err == nil {
							y, err = Recompute(y, x)
						}
						if err != nil {
							t.Fatal(err)
						}
						x = y
					}
					if _, err := gorgonia.Grad(gorgonia.Must(Sum(x)), parts...); err != nil {
						t.Fatal(err)
					}
					ReuseMemory(g)
					m, err := NewMachine(g, gorgonia.BindDualValues(parts...))
					if err != nil {
						t.Fatal(err)
					}
					defer m.Close()
					if err := m.RunAll(); err != nil {
						t.Fatal(err)
					}
					bytes := 0
					for b, list := range stateOf(g).pool.free {
						bytes += b.bytes * len(list)
					}
					return bytes
				}
				const few, many = 3, 11
				size := sizeClass(4 * dim * dim)
				if first, growth := used(few), (used(many)-used(few))/(many-few); growth > size/4 || first < size {
					t.Errorf("%s, %v, computed again %v: a layer more takes %d bytes more than the %d of %d, a weight has %d", name, dtype, again, growth, first, few, size)
				}
			}
		}
	}
}
