package cpu_test

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
)

func TestAdafactor(t *testing.T) {
	slow.Emulated(t)
	bothTypes(t, testAdafactor[float32], testAdafactor[float64])
}

func testAdafactor[T kernels.Float](t *testing.T) {
	epsilon := map[kernels.DType]float64{kernels.F32: 0x1p-23, kernels.F64: 0x1p-52}[kernels.DTypeOf[T]()]
	shapes := [][]int{{3}, {16, 33}, {}, {1, 1}, {0, 4}, {4097}, {2, 3, 5, 7}, {300, 70}, {1, 9}, {9, 1}}
	for i, u := range updates {
		o := kernels.Adafactor{Update: u, Beta2Decay: -0.8, Epsilon: 1e-3, Clip: 1, Step: []int{3, 1}[i]}
		if i == 1 {
			o.Epsilon, o.Clip = 2, 0.5 // which both count
		}
		var lists, before [5][]field[T] // w, g, r, c, v
		r := newRandom()
		for k, shape := range shapes {
			rows, columns, all := o.StateShapes(shape)
			for l, shape := range [][]int{shape, shape, rows, columns, all} {
				if shape == nil {
					lists[l], before[l] = append(lists[l], field[T]{}), append(before[l], field[T]{})
					continue
				}
				f := newField[T](r, 0, shape...)
				f.each(func(at *T) {
					if *at *= 0.1; l > 1 {
						*at *= *at
					}
				})
				if l == 1 && k == 7 { // gradients far below the means' least, and none
					f.each(func(at *T) { *at *= T(epsilon) })
					clear(f.memory[:70])
				}
				if l > 1 && k == 7 {
					clear(f.memory)
				}
				lists[l], before[l] = append(lists[l], f), append(before[l], field[T]{memory: append([]T{}, f.memory...)})
			}
		}
		what := fmt.Sprintf("%+v shapes=%v seed=%d", o, shapes, rowwiseSeed)
		verify[T](t, what, func(b *cpu.Backend) (all []result, err error) {
			for l, list := range lists {
				for k, f := range list {
					copy(f.memory, before[l][k].memory)
				}
			}
			if err := b.Adafactor(o, tensors(lists[0]), tensors(lists[1]), tensors(lists[2]), tensors(lists[3]), tensors(lists[4])); err != nil {
				return nil, err
			}
			for k, shape := range shapes {
				var in [5][]T
				var wide [5][]float64
				for l := range in {
					in[l], wide[l] = before[l][k].memory, widened(before[l][k].memory)
				}
				w, r, c, v := reference.Adafactor(o, epsilon, shape, in[0], in[1], in[2], in[3], in[4])
				w64, r64, c64, v64 := reference.Adafactor(o, epsilon, shape, wide[0], wide[1], wide[2], wide[3], wide[4])
				g := make([]T, len(in[1]))
				if !o.ClearGradients {
					g = in[1]
				}
				for l, want := range []struct {
					ref []float64
					pt  []T
				}{{w64, w}, {widened(g), g}, {r64, r}, {c64, c}, {v64, v}} {
					name := fmt.Sprintf("%s of %v", []string{"w", "g", "r", "c", "v"}[l], shape)
					all = append(all, result{name: name, got: widened(lists[l][k].memory), ref: want.ref, pt: widened(want.pt)})
				}
			}
			return all, nil
		})
	}
}

// A step that the control vector skips changes nothing; one that it decides about has its rate, its
// scale and its number.
func TestAdafactorByControl(t *testing.T) {
	for verdict, made := range map[float64]bool{kernels.StepMade: true, 0: false} {
		control := make([]float64, kernels.ControlSize)
		control[kernels.ControlSteps], control[kernels.ControlRate], control[kernels.ControlScale], control[kernels.ControlVerdict] = 4, 0.02, 0.5, verdict
		w, g, v := []float64{1, -2, 3}, []float64{0.5, 0.25, -4}, []float64{1, 2, 3}
		o := kernels.Adafactor{Update: kernels.Update{LearningRate: 0.04, GradientScale: 0.25}, Beta2Decay: -0.8, Epsilon: 1e-3, Clip: 1, Step: 4}
		wantW, _, _, wantV := reference.Adafactor(o, 0x1p-52, []int{3}, w, g, nil, nil, v)
		if !made {
			wantW, wantV = append([]float64{}, w...), append([]float64{}, v...)
		}
		o.Update, o.Step = kernels.Update{LearningRate: 2, GradientScale: 0.5, ClearGradients: true, Control: kernels.Of(control, len(control))}, 0
		none := []kernels.Tensor{{}}
		of := func(list []float64) []kernels.Tensor { return []kernels.Tensor{kernels.Of(list, 3)} }
		if err := cpu.New().Adafactor(o, of(w), of(g), none, none, of(v)); err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(w, v, g), fmt.Sprint(wantW, wantV, []float64{0, 0, 0}); got != want {
			t.Errorf("verdict %v: got %s, want %s", verdict, got, want)
		}
	}
}

func TestAdafactorErrors(t *testing.T) {
	o := kernels.Adafactor{Clip: 1, Step: 1}
	x := []kernels.Tensor{kernels.Of(make([]float32, 6), 2, 3)}
	none := []kernels.Tensor{{}}
	rows, columns := []kernels.Tensor{kernels.Of(make([]float32, 2), 2)}, []kernels.Tensor{kernels.Of(make([]float32, 3), 3)}
	late := o
	late.Step = 0
	forward := o
	forward.Beta2Decay = 0.8
	for want, err := range map[string]error{
		"cpu: adafactor: v[0] is set, it needs to be left out beside weights of shape [2 3]": cpu.New().Adafactor(o, x, x, rows, columns, x),
		"cpu: adafactor: c[0] is missing, it needs shape [3]":                                cpu.New().Adafactor(o, x, x, rows, none, none),
		"cpu: adafactor: r[0] has shape [3] and strides [1], it needs shape [2]":             cpu.New().Adafactor(o, x, x, columns, columns, none),
		"cpu: adafactor: v has 0 tensors, it needs one for each of the 1 of w":               cpu.New().Adafactor(o, x, x, rows, columns, nil),
		"cpu: adafactor: step is 0, it needs to be at least 1":                               cpu.New().Adafactor(late, x, x, rows, columns, none),
		"cpu: adafactor: beta2 decay is 0.8, it needs to be finite and not positive":         cpu.New().Adafactor(forward, x, x, rows, columns, none),
		"cpu: adafactor: clip is 0, it needs to be finite and positive":                      cpu.New().Adafactor(kernels.Adafactor{Step: 1}, x, x, rows, columns, none),
		"cpu: adafactor: epsilon is -1, it needs to be finite and not negative":              cpu.New().Adafactor(kernels.Adafactor{Epsilon: -1, Clip: 1, Step: 1}, x, x, rows, columns, none),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("the error is %v, it needs to be: %s", err, want)
		}
	}
}
