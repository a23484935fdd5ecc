//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
)

// factoredShapes are ends of tiles in both directions, lists of matrices, and matrices as narrow as
// can be.
var factoredShapes = [][]int{{3}, {16, 33}, {}, {5, 16411}, {1}, {0, 4}, {16385}, {65, 257}, {2, 3, 64, 256}, {1, 700}, {700, 1}, {1200, 520}}

// factoredCase is the lists of a step: weights, gradients, and means of rows, columns and vectors.
// The last three have a tensor for each shape that has such a mean; places says which it is, or −1.
type factoredCase struct {
	lists  [5]*parameterList
	places [5][]int
}

func newFactoredCase(t *testing.T, seed uint64) factoredCase {
	d, random := device(t), rand.New(rand.NewPCG(11, seed))
	c, shapes := factoredCase{}, [5][][]int{}
	for _, shape := range factoredShapes {
		row, column, v := kernels.Adafactor{}.StateShapes(shape)
		for l, shape := range [][]int{shape, shape, row, column, v} {
			place := -1
			if shape != nil {
				place = len(shapes[l])
				shapes[l] = append(shapes[l], shape)
			}
			c.places[l] = append(c.places[l], place)
		}
	}
	for l := range c.lists {
		c.lists[l] = newParameterList(t, d, shapes[l], l%3, func() float64 {
			x := random.NormFloat64()
			if l > 1 {
				x *= x
			}
			return x
		})
	}
	return c
}

// tensors are those of a list, the zero Tensor where there is none.
func (c factoredCase) tensors(l int) (list []kernels.Tensor) {
	for _, place := range c.places[l] {
		if place < 0 {
			list = append(list, kernels.Tensor{})
		} else {
			list = append(list, c.lists[l].tensors[place])
		}
	}
	return list
}

// host is a tensor of a list as the host has it.
func (c factoredCase) host(l, i int) []float32 {
	place := c.places[l][i]
	if place < 0 {
		return nil
	}
	return c.lists[l].host[c.lists[l].offsets[place]:][:c.lists[l].tensors[place].Elements()]
}

// want is all lists after a step in float64, and what float32 makes of it.
func (c factoredCase) want(o kernels.Adafactor) (exact [5][]float64, unfused [5][]float32) {
	for i, shape := range factoredShapes {
		var in [5][]float32
		var in64 [5][]float64
		for l := range in {
			in[l] = c.host(l, i)
			in64[l] = wide(in[l])
		}
		w, r, k, v := reference.Adafactor(o, 0x1p-23, shape, in[0], in[1], in[2], in[3], in[4])
		w64, r64, k64, v64 := reference.Adafactor(o, 0x1p-23, shape, in64[0], in64[1], in64[2], in64[3], in64[4])
		for l, part := range [][]float64{w64, nil, r64, k64, v64} {
			exact[l] = append(exact[l], part...)
		}
		for l, part := range [][]float32{w, nil, r, k, v} {
			unfused[l] = append(unfused[l], part...)
		}
	}
	return exact, unfused
}

// Adafactor has the reference's weights and means, told of a step, by a control vector, and
// recorded; the same bits each time; and changes nothing in a step that is skipped.
func TestAdafactor(t *testing.T) {
	const seed = 1
	d, c := device(t), newFactoredCase(t, seed)
	o := kernels.Adafactor{Beta2Decay: -0.8, Epsilon: 1e-3, Clip: 1}
	meant := kernels.Update{LearningRate: 1e-2, WeightDecay: 0.1, GradientScale: 0.25, ClearGradients: true}
	decided := make([]float64, kernels.ControlSize)
	decided[kernels.ControlSteps], decided[kernels.ControlVerdict] = 9, kernels.StepMade
	decided[kernels.ControlRate], decided[kernels.ControlScale] = 0.04, 0.125
	by := meant
	by.LearningRate, by.GradientScale, by.Control = 0.25, 2, newControl(t, d, decided...)
	decided[kernels.ControlVerdict] = 4
	skipped := by
	skipped.Control = newControl(t, d, decided...)
	for _, u := range []struct {
		name              string
		told, meant       kernels.Update
		steps             int
		epsilon, clip     float64
		recorded, changes bool
	}{
		{"plain", kernels.Update{LearningRate: 0.5}, kernels.Update{LearningRate: 0.5}, 1, 2, 0.5, false, true},
		{"scaled", meant, meant, 9, 1e-3, 1, false, true},
		{"decided", by, meant, 9, 1e-3, 1, false, true},
		{"recorded", by, meant, 9, 1e-3, 1, true, true},
		{"skipped", skipped, meant, 9, 1e-3, 1, true, false},
	} {
		o.Epsilon, o.Clip = u.epsilon, u.clip
		o.Update, o.Step = u.meant, u.steps
		exact, unfused := c.want(o)
		if o.Update = u.told; o.Control.IsSet() {
			o.Step = 0
		}
		var first [5][]float32
		for again := range 2 {
			for _, list := range c.lists {
				list.up(t, d)
			}
			step := func() error {
				return d.Adafactor(o, c.tensors(0), c.tensors(1), c.tensors(2), c.tensors(3), c.tensors(4))
			}
			var err error
			if u.recorded {
				var r kernels.Recording
				if r, err = d.Capture(step); err == nil {
					err = r.Launch()
				}
			} else {
				err = step()
			}
			if err != nil {
				t.Fatalf("%s: %v", u.name, err)
			}
			for l, list := range c.lists {
				what, got := fmt.Sprintf("%s, seed %d: list %d of %+v", u.name, seed, l, o), list.down(t, d)
				switch {
				case again > 0:
					if !slices.Equal(got, first[l]) {
						t.Errorf("%s has other bits than the first time", what)
					}
				case l == 1:
					want := list.elements()
					if o.ClearGradients {
						clear(want)
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s: the gradients are not what they need to be", what)
					}
				case !u.changes:
					if !slices.Equal(got, list.elements()) {
						t.Errorf("%s changed", what)
					}
				default:
					compare(t, what, got, unfused[l], exact[l])
				}
				first[l] = got
			}
		}
	}
}

func TestAdafactorErrors(t *testing.T) {
	d := device(t)
	o, none := kernels.Adafactor{Clip: 1, Step: 1}, []kernels.Tensor{{}}
	x, onHost := []kernels.Tensor{alloc(t, d, kernels.F32, 3)}, []kernels.Tensor{kernels.Of(make([]float32, 3), 3)}
	if err := d.Adafactor(o, x, onHost, none, none, x); err == nil || err.Error() != "cuda:0: adafactor: a tensor is on the host, it needs to be on the device" {
		t.Errorf("the error is %v", err)
	}
	if err := d.Adafactor(kernels.Adafactor{Clip: 1}, x, x, none, none, x); err == nil || err.Error() != "cuda:0: adafactor: step is 0, it needs to be at least 1" {
		t.Errorf("the error is %v", err)
	}
	double := []kernels.Tensor{alloc(t, d, kernels.F64, 3)}
	if err := d.Adafactor(o, double, double, none, none, double); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("the error is %v", err)
	}
}
