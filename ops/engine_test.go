package ops_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/tensor"
)

// On the host, the engine adds as Gorgonia's own does, whatever the types, layouts and options are.
func TestEngineAddsLikeGorgonias(t *testing.T) {
	cases := map[string]func(tensor.Engine) addition{
		"float32": func(e tensor.Engine) addition {
			return addition{counted[float32](e, 3, 5), counted[float32](e, 3, 5), counted[float32](e, 3, 5)}
		},
		"float64": func(e tensor.Engine) addition {
			return addition{counted[float64](e, 40, 501), counted[float64](e, 40, 501), counted[float64](e, 40, 501)}
		},
		"int": func(e tensor.Engine) addition {
			return addition{counted[int](e, 7), counted[int](e, 7), counted[int](e, 7)}
		},
		"transposed": func(e tensor.Engine) addition {
			a := counted[float32](e, 5, 3)
			if err := a.T(); err != nil {
				t.Fatal(err)
			}
			return addition{a, counted[float32](e, 3, 5), counted[float32](e, 3, 5)}
		},
		"shapes that do not meet": func(e tensor.Engine) addition {
			return addition{counted[float32](e, 3, 5), counted[float32](e, 4, 5), counted[float32](e, 3, 5)}
		},
	}
	options := map[string]func(addition) []tensor.FuncOpt{
		"no option": func(addition) []tensor.FuncOpt { return nil },
		"unsafe":    func(addition) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.UseUnsafe()} },
		"reuse":     func(x addition) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.WithReuse(x.other)} },
		"increment": func(x addition) []tensor.FuncOpt { return []tensor.FuncOpt{tensor.WithIncr(x.other)} },
	}
	for name, makeTerms := range cases {
		for option, of := range options {
			t.Run(name+", "+option, func(t *testing.T) {
				got, gotErr := addTerms(makeTerms(ops.Engine()), of)
				want, wantErr := addTerms(makeTerms(tensor.StdEng{}), of)
				if (gotErr == nil) != (wantErr == nil) || !slices.Equal(got, want) {
					t.Errorf("gives %v (%v), Gorgonia's engine %v (%v)", got, gotErr, want, wantErr)
				}
			})
		}
	}
}

// addition is what an addition reads and may write to.
type addition struct{ a, b, other *tensor.Dense }

// addTerms lists what an addition gives and what it leaves in its operands.
func addTerms(v addition, options func(addition) []tensor.FuncOpt) ([]string, error) {
	result, err := tensor.Add(v.a, v.b, options(v)...)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, t := range []tensor.Tensor{result, v.a, v.b, v.other} {
		list = append(list, fmt.Sprint(t.Shape(), t.Data()))
	}
	return list, nil
}

// counted is a tensor of small whole numbers.
func counted[T float32 | float64 | int](e tensor.Engine, shape ...int) *tensor.Dense {
	data := make([]T, tensor.Shape(shape).TotalSize())
	for i := range data {
		data[i] = T(i%17 - 8)
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data), tensor.WithEngine(e))
}
