package cpu_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/hostile"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/score"
)

// memory is what the tensors of a call lie in, each between bytes that no call may change.
type memory struct {
	rng     *rand.Rand
	buffers []buffer
	tensors []kernels.Tensor
}

type buffer struct{ all, before []byte }

// guard is how many bytes lie before and behind a tensor.
const guard = 256

// tensor returns a row-major tensor of small numbers.
func (m *memory) tensor(dtype kernels.DType, shape ...int) kernels.Tensor {
	t := kernels.Contiguous(nil, dtype, shape...)
	all := make([]byte, guard+t.Elements()*dtype.Size()+guard)
	for i := range all {
		all[i] = byte(m.rng.Uint32())
	}
	t.Data = unsafe.Pointer(&all[guard])
	index := make([]int, len(shape))
	for i := range t.Elements() {
		for axis, rest := len(shape)-1, i; axis >= 0; axis-- {
			index[axis], rest = rest%shape[axis], rest/shape[axis]
		}
		one := kernels.Contiguous(unsafe.Add(t.Data, t.Offset(index...)*dtype.Size()), dtype)
		if dtype.IsFloat() {
			kernels.FillHost(one, m.rng.Float64())
		} else {
			kernels.FillHost(one, float64(m.rng.IntN(3)))
		}
	}
	m.buffers, m.tensors = append(m.buffers, buffer{all: all}), append(m.tensors, t)
	return t
}

// holds reports whether a tensor's elements lie within the buffer that its data points into, and
// are few.
func (m *memory) holds(t kernels.Tensor) bool {
	const few = 2048
	if t.Elements() > few {
		return false
	}
	last := 0
	for axis, d := range t.Shape {
		if d > 1 && t.Strides[axis] > 1<<20 {
			return false
		}
		last += max(d-1, 0) * t.Strides[axis]
	}
	for _, b := range m.buffers {
		from := uintptr(t.Data) - uintptr(unsafe.Pointer(&b.all[0]))
		if from < uintptr(len(b.all)) {
			return int(from)+(last+1)*t.DType.Size() <= len(b.all)-guard
		}
	}
	return false
}

// change makes another tensor of one. What it claims to have in memory is there: a kernel could not
// know otherwise.
func (m *memory) change(b *hostile.Bytes, v reflect.Value) {
	t := v.Interface().(kernels.Tensor)
	t.Shape, t.Strides = append([]int(nil), t.Shape...), append([]int(nil), t.Strides...)
	axes := min(len(t.Shape), len(t.Strides))
	axis := b.Intn(max(1, axes))
	switch choice := b.Intn(14); {
	case choice == 0:
		t = kernels.Tensor{}
	case choice == 1:
		t.Data = nil
	case choice == 2:
		t.DType = kernels.DType(b.Intn(10))
	case choice == 3 && axes > 0:
		t.Shape[axis] = b.Int()
	case choice == 4 && axes > 0:
		t.Strides[axis] = b.Int()
	case choice == 5:
		t.Strides = t.Strides[:max(0, len(t.Strides)-1)]
	case choice == 6:
		t.Shape, t.Strides = nil, nil
	case choice == 7:
		t.Shape, t.Strides = append(t.Shape, b.Intn(3)), append(t.Strides, 1)
	case choice == 8 && axes > 0:
		t.Shape, t.Strides = t.Shape[1:], t.Strides[1:]
	case choice == 9 && axes > 0:
		t.Shape[axis], t.Shape[0] = t.Shape[0], t.Shape[axis]
		t.Strides[axis], t.Strides[0] = t.Strides[0], t.Strides[axis]
	case choice == 10 && len(m.tensors) > 0:
		t = m.tensors[b.Intn(len(m.tensors))]
	case choice == 11 && axes > 0:
		t.Shape[axis]++
	case choice == 12 && axes > 0:
		t.Shape[axis]--
	case choice == 13:
		t.Owner = "another device"
	}
	if t.Data != nil && len(t.Shape) == len(t.Strides) && !m.holds(t) && !negative(t) {
		t.Data = nil
	}
	v.Set(reflect.ValueOf(t))
}

func negative(t kernels.Tensor) bool {
	for axis, d := range t.Shape {
		if d < 0 || t.Strides[axis] < 0 {
			return true
		}
	}
	return false
}

// calls has, for each method of a backend that takes anything, arguments with which it works.
var calls = map[string]func(m *memory, of kernels.DType) []any{
	"Alloc": func(_ *memory, of kernels.DType) []any { return []any{of, []int{2, 3}} },
	"Owner": func(m *memory, of kernels.DType) []any { return []any{m.tensor(of, 2, 3)} },
	"Copy": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(kernels.F32, 2, 3), m.tensor(of, 2, 3)}
	},
	"Fill": func(m *memory, of kernels.DType) []any { return []any{m.tensor(of, 2, 3), 1.5} },
	"Read": func(m *memory, of kernels.DType) []any { return []any{m.tensor(of, 1)} },

	"AttentionForward": func(m *memory, of kernels.DType) []any {
		return []any{m.attention(of), kernels.AttentionOutputs{O: m.tensor(of, 2, 4, 5, 8), LSE: m.tensor(of.Wide(), 2, 4, 5)}}
	},
	"AttentionDelta": func(m *memory, of kernels.DType) []any {
		return []any{m.attention(of), m.tensor(of, 2, 4, 5, 8), m.tensor(of, 2, 4, 5, 8), m.tensor(of.Wide(), 2, 4, 5), m.tensor(of.Wide(), 2, 4, 5)}
	},
	"AttentionBackward": func(m *memory, of kernels.DType) []any {
		return []any{m.attention(of), kernels.AttentionGradients{
			DO: m.tensor(of, 2, 4, 5, 8), LSE: m.tensor(of.Wide(), 2, 4, 5), Delta: m.tensor(of.Wide(), 2, 4, 5),
			DQ: m.tensor(of, 2, 4, 5, 16), DK: m.tensor(of, 2, 2, 7, 16), DV: m.tensor(of, 2, 2, 7, 8),
			DBias: m.tensor(of, 1, 4, 1, 7), DSinks: m.tensor(of, 4)}}
	},
	"AttentionMerge": func(m *memory, of kernels.DType) []any {
		return []any{kernels.AttentionOutputs{O: m.tensor(of.Wide(), 2, 4, 5, 8), LSE: m.tensor(of.Wide(), 2, 4, 5)},
			kernels.AttentionOutputs{O: m.tensor(of, 2, 4, 5, 8), LSE: m.tensor(of.Wide(), 2, 4, 5)}}
	},
	"AttentionScores": func(m *memory, of kernels.DType) []any {
		return []any{m.attention(of), []int{0, 3}, m.tensor(of.Wide(), 2, 4, 2, 7)}
	},
	"Accumulate": func(m *memory, of kernels.DType) []any { return m.lists(of, 2) },
	"MatMul": func(m *memory, of kernels.DType) []any {
		epilogue := kernels.Activate{Activation: kernels.SiLU, Pre: m.tensor(of, 3, 4, 6)}
		return []any{&kernels.MatMul{A: m.tensor(of, 3, 4, 5), B: m.tensor(of, 5, 6), Bias: m.tensor(of, 6), Epilogue: epilogue},
			kernels.MatMulOutputs{C: m.tensor(of, 3, 4, 6)}}
	},
	"RoundFloat8": func(m *memory, of kernels.DType) []any {
		alloc := func(dtype kernels.DType, shape ...int) (kernels.Tensor, error) { return m.tensor(dtype, shape...), nil }
		x, r := m.tensor(of, 3, 4), kernels.Float8Rounding{}
		r.Rows, _ = kernels.NewFloat8Sides(3, 4, alloc)
		r.ColumnMost = m.tensor(kernels.F32, 4)
		return []any{x, r}
	},
	"TurnFloat8": func(m *memory, _ kernels.DType) []any {
		alloc := func(dtype kernels.DType, shape ...int) (kernels.Tensor, error) { return m.tensor(dtype, shape...), nil }
		rows, _ := kernels.NewFloat8Sides(3, 4, alloc)
		columns, _ := kernels.NewFloat8Sides(4, 3, alloc)
		return []any{rows, columns}
	},
	"SumRows":  func(m *memory, of kernels.DType) []any { return []any{m.tensor(of, 3, 4), m.tensor(of, 4), false} },
	"Activate": func(m *memory, of kernels.DType) []any { return append([]any{kernels.GELUTanh}, m.alike(of, 2)...) },
	"ActivateBackward": func(m *memory, of kernels.DType) []any {
		return append([]any{kernels.GELUErf}, m.alike(of, 3)...)
	},
	"SwiGLU":         func(m *memory, of kernels.DType) []any { return m.alike(of, 3) },
	"SwiGLUBackward": func(m *memory, of kernels.DType) []any { return m.alike(of, 5) },
	"Add":            func(m *memory, of kernels.DType) []any { return m.alike(of, 3) },
	"Mul":            func(m *memory, of kernels.DType) []any { return m.alike(of, 3) },
	"MulScalar":      func(m *memory, of kernels.DType) []any { return append([]any{2.0}, m.alike(of, 2)...) },
	"SoftCap":        func(m *memory, of kernels.DType) []any { return append([]any{2.0}, m.alike(of, 2)...) },
	"SoftCapBackward": func(m *memory, of kernels.DType) []any {
		return append([]any{2.0}, m.alike(of, 3)...)
	},
	"SoftmaxForward":  func(m *memory, of kernels.DType) []any { return m.alike(of, 2) },
	"SoftmaxBackward": func(m *memory, of kernels.DType) []any { return m.alike(of, 3) },
	"Apply":           func(m *memory, of kernels.DType) []any { return append([]any{kernels.Exp}, m.alike(of, 2)...) },
	"ApplyBackward":   func(m *memory, of kernels.DType) []any { return append([]any{kernels.Abs}, m.alike(of, 3)...) },
	"AddScalar":       func(m *memory, of kernels.DType) []any { return append([]any{2.0}, m.alike(of, 2)...) },
	"BinaryTargets":   func(m *memory, of kernels.DType) []any { return m.alike(of, 2) },
	"Div":             func(m *memory, of kernels.DType) []any { return m.alike(of, 3) },
	"DivBackward":     func(m *memory, of kernels.DType) []any { return m.alike(of, 5) },
	"TopK": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of, 3, 5), m.tensor(of, 3, 2), m.tensor(kernels.I64, 3, 2)}
	},
	"ChooseTokens": func(m *memory, _ kernels.DType) []any {
		return []any{&kernels.ChooseTokens{Logits: m.tensor(kernels.F32, 2, 7), Settings: m.tensor(kernels.F32, 2, kernels.ChoiceSettings),
			Random: m.tensor(kernels.I64, 2), Earlier: m.tensor(kernels.I32, 9)},
			kernels.ChosenTokens{IDs: m.tensor(kernels.I64, 2), LogProbs: m.tensor(kernels.F32, 2)}}
	},
	"Gather": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of, 3, 5), m.tensor(kernels.I32, 3, 2), m.tensor(of, 3, 2)}
	},
	"Scatter": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of, 3, 2), m.tensor(kernels.I64, 3, 2), m.tensor(of, 3, 5)}
	},
	"CrossEntropyForward": func(m *memory, of kernels.DType) []any {
		return []any{m.crossEntropy(of), kernels.CrossEntropyOutputs{Loss: m.tensor(of.Wide()), LSE: m.tensor(of.Wide(), 2, 3)}}
	},
	"LogSoftmaxForward":  func(m *memory, of kernels.DType) []any { return m.alike(of, 2) },
	"LogSoftmaxBackward": func(m *memory, of kernels.DType) []any { return m.alike(of, 3) },
	"CrossEntropyBackward": func(m *memory, of kernels.DType) []any {
		return []any{m.crossEntropy(of), kernels.CrossEntropyGradients{
			DLoss: m.tensor(of.Wide()), LSE: m.tensor(of.Wide(), 2, 3), DLogits: m.tensor(of, 2, 3, 5)}}
	},
	"LinearCrossEntropy": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.LinearCrossEntropy{Hidden: m.tensor(of, 3, 4), Weight: m.tensor(of, 5, 4), Targets: m.tensor(kernels.I64, 3),
			DLoss: m.tensor(of.Wide())},
			kernels.LinearCrossEntropyOutputs{Loss: m.tensor(of.Wide()), DHidden: m.tensor(of, 3, 4), DWeight: m.tensor(of, 5, 4)}}
	},
	"Dropout": func(m *memory, of kernels.DType) []any {
		return append([]any{kernels.Dropout{P: 0.5, Seed: 1}}, m.alike(of, 2)...)
	},
	"EmbeddingForward": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.Embedding{Table: m.tensor(of, 5, 4), IDs: m.tensor(kernels.I32, 2, 3)}, m.tensor(of, 2, 3, 4)}
	},
	"EmbeddingBackward": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.Embedding{Table: m.tensor(of, 5, 4), IDs: m.tensor(kernels.I32, 2, 3)}, m.tensor(of, 2, 3, 4), m.tensor(of, 5, 4)}
	},
	"ClampedGate": func(m *memory, of kernels.DType) []any {
		return []any{kernels.ClampedGate{Slope: 1, Limit: 1}, m.tensor(of, 3, 4), m.tensor(of, 3, 2)}
	},
	"ClampedGateBackward": func(m *memory, of kernels.DType) []any {
		return []any{kernels.ClampedGate{Slope: 1, Limit: 1}, m.tensor(of, 3, 4), m.tensor(of, 3, 2), m.tensor(of, 3, 4)}
	},
	"GroupedMatMul": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.GroupedMatMul{A: m.tensor(of, 6, 4), B: m.tensor(of, 3, 4, 5), Bias: m.tensor(of, 3, 5), Offsets: m.offsets(0, 4, 4, 6)},
			m.tensor(of, 6, 5)}
	},
	"GroupedMatMulGradient": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.GroupedMatMul{A: m.tensor(of, 6, 4), B: m.tensor(of, 3, 4, 5), Offsets: m.offsets(0, 4, 4, 6)},
			m.tensor(of, 6, 5), m.tensor(of, 3, 4, 5)}
	},
	"GroupedSumRows": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of, 6, 5), m.offsets(0, 4, 4, 6), m.tensor(of, 3, 5)}
	},
	"Route": func(m *memory, of kernels.DType) []any {
		return []any{m.routing(of), m.tensor(of.Wide(), 3, 2), m.assignment()}
	},
	"RouteBackward": func(m *memory, of kernels.DType) []any {
		return []any{m.routing(of), m.assignment(), m.tensor(of.Wide(), 3, 2), m.tensor(of, 3, 4)}
	},
	"Dispatch": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of, 3, 5), m.tensor(of.Wide(), 3, 2), m.assignment(), m.tensor(of, 6, 5)}
	},
	"Combine": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of, 6, 5), m.tensor(of.Wide(), 3, 2), m.assignment(), m.tensor(of, 3, 5)}
	},
	"CombineFactors": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of, 6, 5), m.tensor(of, 3, 5), m.assignment(), m.tensor(of.Wide(), 3, 2)}
	},
	"BalanceLoss": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of, 3, 4), m.tensor(kernels.I32, 2, 5), m.tensor(of.Wide())}
	},
	"BalanceLossBackward": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of, 3, 4), m.tensor(kernels.I32, 2, 5), m.tensor(of.Wide()), m.tensor(of, 3, 4)}
	},
	"TokenPositions": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.TokenPositions{IDs: m.tensor(kernels.I32, 2, 3), Padding: 1}, m.tensor(kernels.I32, 2, 3)}
	},
	"KeyMask": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(kernels.I32, 2, 5), m.tensor(of, 1, 3, 4, 5), m.tensor(of, 2, 3, 4, 5)}
	},
	"NormForward": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.Norm{X: m.tensor(of, 3, 4), Other: m.tensor(of, 3, 4), Gamma: m.tensor(of, 4), Beta: m.tensor(of, 4)},
			kernels.NormOutputs{Y: m.tensor(of, 3, 4), Sum: m.tensor(of, 3, 4), Mean: m.tensor(of.Wide(), 3), RStd: m.tensor(of.Wide(), 3)}}
	},
	"NormBackward": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.Norm{X: m.tensor(of, 3, 4), Gamma: m.tensor(of, 4), Beta: m.tensor(of, 4)},
			kernels.NormGradients{DY: m.tensor(of, 3, 4), DSum: m.tensor(of, 3, 4), Mean: m.tensor(of.Wide(), 3), RStd: m.tensor(of.Wide(), 3),
				DX: m.tensor(of, 3, 4), DGamma: m.tensor(of, 4), DBeta: m.tensor(of, 4), DXSums: m.tensor(of, 4)}}
	},
	"AdamW": func(m *memory, of kernels.DType) []any {
		return append([]any{kernels.AdamW{Update: m.update(), Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 1}}, m.lists(of, 4)...)
	},
	"SGD": func(m *memory, of kernels.DType) []any {
		return append([]any{kernels.SGD{Update: m.update(), Momentum: 0.9}}, m.lists(of, 3)...)
	},
	"Momentum": func(m *memory, of kernels.DType) []any {
		return append(append([]any{kernels.SGD{Update: m.update(), Momentum: 0.9}}, m.lists(of, 3)...), m.tensor(kernels.F64, 2))
	},
	"Normalize": func(m *memory, of kernels.DType) []any {
		lists := m.lists(of, 2)
		return []any{lists[0], m.tensor(kernels.F64, 2), 0.5, lists[1]}
	},
	"Lion": func(m *memory, of kernels.DType) []any {
		return append([]any{kernels.Lion{Update: m.update(), Beta1: 0.9, Beta2: 0.99}}, m.lists(of, 3)...)
	},
	"Adafactor": func(m *memory, of kernels.DType) []any {
		o := kernels.Adafactor{Update: m.update(), Beta2Decay: -0.8, Epsilon: 1e-3, Clip: 1, Step: 1}
		weights := m.lists(of, 2) // a matrix and a vector
		of = weights[0].([]kernels.Tensor)[0].DType
		return append([]any{o}, append(weights,
			[]kernels.Tensor{m.tensor(of, 3), {}}, []kernels.Tensor{m.tensor(of, 4), {}}, []kernels.Tensor{{}, m.tensor(of, 5)})...)
	},
	"SumSquares": func(m *memory, of kernels.DType) []any { return append(m.lists(of, 1), m.tensor(kernels.F64, 2)) },
	"PlanStep": func(m *memory, _ kernels.DType) []any {
		return []any{kernels.StepPlan{ClipNorm: 1}, m.tensor(kernels.F64, 3), m.tensor(kernels.F64, kernels.ControlSize)}
	},
	"Zero": func(m *memory, of kernels.DType) []any { return m.lists(of, 1) },
	"Sum":  func(m *memory, of kernels.DType) []any { return []any{m.tensor(of, 3, 4), m.tensor(of.Wide())} },
	"Mean": func(m *memory, of kernels.DType) []any { return []any{m.tensor(of, 3, 4), m.tensor(of.Wide())} },
	"Broadcast": func(m *memory, of kernels.DType) []any {
		return []any{m.tensor(of.Wide()), 0.5, m.tensor(of, 3, 4)}
	},
	"RoPEForward": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.RoPE{Divisors: []float64{1, 2}, RotaryDim: 4}, m.tensor(of, 2, 1, 3, 6), m.tensor(of, 2, 1, 3, 6)}
	},
	"RoPEBackward": func(m *memory, of kernels.DType) []any {
		return []any{&kernels.RoPE{Pairing: kernels.Interleaved}, m.tensor(of, 2, 1, 3, 6), m.tensor(of, 2, 1, 3, 6)}
	},
}

// withoutArguments are the methods that nothing can be wrong with.
var withoutArguments = map[string]bool{"Name": true, "Record": true, "Synchronize": true}

func (m *memory) attention(of kernels.DType) *kernels.Attention {
	return &kernels.Attention{
		Q: m.tensor(of, 2, 4, 5, 16), K: m.tensor(of, 2, 2, 7, 16), V: m.tensor(of, 2, 2, 7, 8),
		Bias: m.tensor(of, 1, 4, 1, 7), Sinks: m.tensor(of, 4),
		Lengths: kernels.Lengths{KVLengths: []int{7, 3}}, Causal: kernels.CausalBottomRight, Window: &kernels.Window{Left: 4, Right: -1},
		SoftCap: 20, ALiBi: []float64{0.5, 0.25, 0.125, 1}, Dropout: kernels.Dropout{P: 0.25, Seed: 3},
	}
}

func (m *memory) crossEntropy(of kernels.DType) *kernels.CrossEntropy {
	ignored := 2
	return &kernels.CrossEntropy{Logits: m.tensor(of, 2, 3, 5), Targets: m.tensor(kernels.I64, 2, 3),
		CrossEntropyOptions: kernels.CrossEntropyOptions{IgnoreIndex: &ignored, LabelSmoothing: 0.1, Weights: m.tensor(of.Wide(), 5)}}
}

func (m *memory) update() kernels.Update {
	control := m.tensor(kernels.F64, kernels.ControlSize)
	for i, x := range kernels.Host[float64](control) {
		kernels.Host[float64](control)[i] = float64(int(4 * x))
	}
	return kernels.Update{LearningRate: 1e-3, WeightDecay: 0.1, Control: control}
}

func (m *memory) routing(of kernels.DType) *kernels.Routing {
	return &kernels.Routing{Logits: m.tensor(of, 3, 4), Bias: m.tensor(of.Wide(), 4), RouterOptions: kernels.RouterOptions{
		Chosen: 2, Scores: kernels.SigmoidScores, Normalize: true, Groups: 2, KeptGroups: 1, GroupChoice: kernels.GroupByBestTwo,
	}}
}

func (m *memory) assignment() kernels.Assignment {
	return kernels.Assignment{Offsets: m.offsets(0, 2, 2, 5, 6), Experts: m.tensor(kernels.I32, 3, 2), Order: m.tensor(kernels.I32, 6), Places: m.tensor(kernels.I32, 3, 2)}
}

func (m *memory) offsets(list ...int32) kernels.Tensor {
	t := m.tensor(kernels.I32, len(list))
	copy(kernels.Host[int32](t), list)
	return t
}

func (m *memory) alike(of kernels.DType, n int) (list []any) {
	for range n {
		list = append(list, m.tensor(of, 3, 4))
	}
	return list
}

func (m *memory) lists(of kernels.DType, n int) (list []any) {
	if of == kernels.BF16 || of == kernels.F16 {
		of = kernels.F32
	}
	for range n {
		list = append(list, []kernels.Tensor{m.tensor(of, 3, 4), m.tensor(of, 5)})
	}
	return list
}

// FuzzCalls calls each method of a backend with arguments of which some were changed. It must work
// or return an error that says which kernel found it, and write nothing where it returns an error,
// nor ever beside its tensors.
func FuzzCalls(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	backend := reflect.TypeFor[kernels.Backend]()
	var names []string
	for i := range backend.NumMethod() {
		name := backend.Method(i).Name
		if withoutArguments[name] {
			continue
		}
		if calls[name] == nil {
			f.Errorf("there is no call of %s here", name)
		}
		names = append(names, name)
	}
	for i := range names {
		f.Add(uint8(i), []byte{}) // works as it is
		for range 40 {
			data := make([]byte, 2+rng.IntN(20))
			for k := range data {
				data[k] = byte(rng.Uint32())
			}
			f.Add(uint8(i), data)
		}
	}
	f.Fuzz(func(t *testing.T, method uint8, data []byte) {
		name := names[int(method)%len(names)]
		if err := callChanged(name, data); err != nil {
			t.Error(err)
		}
	})
}

// callChanged changes the arguments of a call and makes it.
func callChanged(name string, data []byte) error {
	b, m := hostile.Bytes(data), &memory{rng: rand.New(rand.NewPCG(3, 4))}
	of := []kernels.DType{kernels.F32, kernels.F64, kernels.BF16, kernels.F16}[b.Intn(4)]
	values := calls[name](m, of)
	arguments, pointers := make([]reflect.Value, len(values)), make([]any, len(values))
	for i, value := range values {
		arguments[i] = reflect.New(reflect.TypeOf(value)).Elem()
		arguments[i].Set(reflect.ValueOf(value))
		pointers[i] = arguments[i].Addr().Interface()
	}
	own := map[reflect.Type]func(reflect.Value){
		reflect.TypeFor[kernels.Tensor](): func(v reflect.Value) { m.change(&b, v) },
		// Programs are made by their package alone: they are there, empty or left out.
		reflect.TypeFor[*score.Score](): func(v reflect.Value) { v.Set(reflect.ValueOf([]*score.Score{nil, {}}[b.Intn(2)])) },
		reflect.TypeFor[*score.Mask]():  func(v reflect.Value) { v.Set(reflect.ValueOf([]*score.Mask{nil, {}}[b.Intn(2)])) },
	}
	works := len(data) == 0
	for changes := 0; len(b) > 0 && changes < 4; changes++ {
		hostile.Change(&b, own, pointers...)
	}
	for i := range m.buffers {
		m.buffers[i].before = bytes.Clone(m.buffers[i].all)
	}

	if name == "Alloc" && isLarge(arguments[1].Interface().([]int)) {
		return nil
	}
	call := reflect.ValueOf(cpu.New()).MethodByName(name)
	var results []reflect.Value
	if call.Type().IsVariadic() {
		results = call.CallSlice(arguments)
	} else {
		results = call.Call(arguments)
	}
	err, _ := results[len(results)-1].Interface().(error)
	for _, buffer := range m.buffers {
		data := len(buffer.all) - guard
		if !bytes.Equal(buffer.all[:guard], buffer.before[:guard]) || !bytes.Equal(buffer.all[data:], buffer.before[data:]) {
			return fmt.Errorf("%s wrote beside a tensor", name)
		}
		if err != nil && !bytes.Equal(buffer.all, buffer.before) {
			return fmt.Errorf("%s wrote to a tensor and returned an error: %w", name, err)
		}
	}
	switch {
	case err == nil:
		return nil
	case works:
		return fmt.Errorf("%s does not work as it should: %w", name, err)
	case strings.Count(err.Error(), "cpu: ") != 1 || !strings.HasPrefix(err.Error(), "cpu: "):
		return fmt.Errorf("%s's error does not name the device once: %w", name, err)
	}
	return nil
}

// isLarge reports whether a shape has so many elements that allocating them would take the
// machine's memory, or nearly so, and not so many that no machine has them.
func isLarge(shape []int) bool {
	n := kernels.Tensor{Shape: shape}.Elements()
	return n > 1<<20 && n < 1<<45
}
