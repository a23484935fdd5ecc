//go:build gpu

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// roundedTest is weights whose copies a device keeps side by side, and what a step of AdamW has
// beside them.
type roundedTest struct {
	*testing.T
	d       *cuda.Device
	dtype   kernels.DType
	layout  kernels.RoundedLayout
	weights []kernels.Tensor
	g, m, v []kernels.Tensor
	control kernels.Tensor
	random  *rand.Rand
}

func newRoundedTest(t *testing.T, dtype kernels.DType, rows int, columns ...int) *roundedTest {
	r := &roundedTest{T: t, d: device(t), dtype: dtype, random: rand.New(rand.NewPCG(7, uint64(rows)))}
	for _, n := range columns {
		for _, list := range []*[]kernels.Tensor{&r.weights, &r.g, &r.m, &r.v} {
			*list = append(*list, r.tensor(rows, n))
		}
	}
	for _, v := range r.v {
		r.do(r.d.Fill(v, 1))
	}
	r.control = newControl(t, r.d, make([]float64, kernels.ControlSize)...)
	r.decide(true)
	return r
}

func (r *roundedTest) do(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// tensor is a matrix of random numbers.
func (r *roundedTest) tensor(rows, columns int) kernels.Tensor {
	r.Helper()
	x, list := alloc(r.T, r.d, kernels.F32, rows, columns), make([]float32, rows*columns)
	for i := range list {
		list[i] = float32(r.random.NormFloat64())
	}
	r.do(r.d.Copy(x, kernels.Of(list, rows, columns)))
	return x
}

// decide says whether the steps to come are made.
func (r *roundedTest) decide(made bool) {
	r.Helper()
	list := make([]float64, kernels.ControlSize)
	list[kernels.ControlSteps], list[kernels.ControlRate], list[kernels.ControlScale] = 1, 1, 1
	if list[kernels.ControlVerdict] = kernels.StepMade; !made {
		list[kernels.ControlVerdict] = 0
	}
	r.do(r.d.Copy(r.control, kernels.Of(list, len(list))))
}

func (r *roundedTest) update() error {
	o := kernels.AdamW{Update: kernels.Update{LearningRate: 0.1, Control: r.control}, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8}
	return r.d.AdamW(o, r.weights, r.g, r.m, r.v)
}

// factored is a step of Adafactor, whose means are zero before it.
func (r *roundedTest) factored() error {
	o := kernels.Adafactor{Update: kernels.Update{LearningRate: 0.1, Control: r.control}, Beta2Decay: -0.8, Epsilon: 1e-3, Clip: 1}
	var rows, columns []kernels.Tensor
	for _, w := range r.weights {
		rows, columns = append(rows, alloc(r.T, r.d, kernels.F32, w.Shape[0])), append(columns, alloc(r.T, r.d, kernels.F32, w.Shape[1]))
	}
	if err := errors.Join(r.d.Zero(rows), r.d.Zero(columns)); err != nil {
		return err
	}
	return r.d.Adafactor(o, r.weights, r.g, rows, columns, make([]kernels.Tensor, len(r.weights)))
}

// check compares the copies with the weights, and says how many kernels copied weights meanwhile.
func (r *roundedTest) check(what string) (copies int) {
	r.Helper()
	r.d.Trace(func(kernel string) {
		if strings.HasPrefix(kernel, "copy_") && strings.HasSuffix(kernel, "16_f32") {
			copies++
		}
	})
	all, err := r.d.Rounded(r.dtype, r.layout, r.weights...)
	r.d.Trace(nil)
	r.do(err)
	r.compare(what, all)
	return copies
}

// compare compares a matrix with the weights as they are.
func (r *roundedTest) compare(what string, all kernels.Tensor) {
	r.Helper()
	if all.IsTransposed() != r.layout.Transposed {
		r.Fatalf("%v, %s: the copy has strides %v, asked was %+v", r.dtype, what, all.Strides, r.layout)
	}
	at := 0
	for i, w := range r.weights {
		want := download(r.T, r.d, w)
		for j, x := range want {
			want[j] = roundedTo(r.dtype, x)
		}
		if got := download(r.T, r.d, all.Slice(1, at, at+w.Shape[1])); !slices.Equal(got, want) {
			r.Fatalf("%v of %v, %s: the copy of weight %d is not the weight", r.dtype, w.Shape, what, i)
		}
		at += w.Shape[1]
	}
}

// Copies of weights in 16 bits have the weights' numbers, whoever has changed these: optimisers
// write both, and what anyone else has changed is copied again.
func TestRounded(t *testing.T) {
	for n, dtype := range []kernels.DType{kernels.BF16, kernels.F16, kernels.BF16, kernels.F16} {
		for _, columns := range [][]int{{64}, {48, 16, 32}, {4, 8}, {33}, {20, 7}} {
			r := newRoundedTest(t, dtype, 260, columns...)
			r.layout.Transposed = n > 1
			if n := r.check("first"); n == 0 {
				t.Fatal("no kernel copied the weights when the copy was made: the counting is wrong")
			}
			if n := r.check("again"); n > 0 {
				t.Errorf("%v: %d kernels copied weights that nobody has changed", columns, n)
			}
			ids, y := alloc(t, r.d, kernels.I32, 3), alloc(t, r.d, kernels.F32, 3, columns[0])
			r.do(errors.Join(r.d.Copy(ids, kernels.Of([]int32{2, 0, 259}, 3)), r.d.EmbeddingForward(&kernels.Embedding{Table: r.weights[0], IDs: ids}, y)))
			if n := r.check("looked up"); n > 0 {
				t.Errorf("%v: %d kernels copied weights of which rows were looked up", columns, n)
			}
			aligned := !slices.ContainsFunc(columns, func(n int) bool { return n%4 != 0 })
			r.do(r.update())
			if n := r.check("updated"); aligned && n > 0 {
				t.Errorf("%v: %d kernels copied weights that an update has changed", columns, n)
			}
			r.do(r.factored())
			if n := r.check("updated by Adafactor"); aligned && n > 0 {
				t.Errorf("%v: %d kernels copied weights that Adafactor has changed", columns, n)
			}
			r.decide(false)
			r.do(errors.Join(r.update(), r.factored()))
			r.check("after a skipped step")
			for what, write := range map[string]func(w kernels.Tensor) error{
				"filled":   func(w kernels.Tensor) error { return r.d.Fill(w, 3.14159) },
				"assigned": func(w kernels.Tensor) error { return r.d.Copy(w, r.tensor(w.Shape[0], w.Shape[1])) },
				"zeroed":   func(w kernels.Tensor) error { return r.d.Zero([]kernels.Tensor{w}) },
				"uploaded": func(w kernels.Tensor) error {
					return r.d.Copy(w, kernels.Of(make([]float32, w.Elements()), w.Shape...))
				},
				"added to":          func(w kernels.Tensor) error { return r.d.Add(w, w, w) },
				"written by a view": func(w kernels.Tensor) error { return r.d.Fill(w.Slice(0, 3, 5).Slice(1, 1, 3), 7) },
				"a product": func(w kernels.Tensor) error {
					return r.d.MatMul(&kernels.MatMul{A: r.tensor(w.Shape[0], 8), B: r.tensor(8, w.Shape[1])}, kernels.MatMulOutputs{C: w})
				},
			} {
				r.do(write(r.weights[len(columns)-1]))
				r.do(r.update()) // which is skipped, and leaves a stale copy stale
				r.check(what)
			}
			r.decide(true)
			for i, w := range r.weights { // halves, as ranks that share an optimiser's state update them
				n := w.Elements()
				part := func(list []kernels.Tensor) []kernels.Tensor {
					return []kernels.Tensor{list[i].Reshape(n).Slice(0, n/8*4, n)}
				}
				r.do(r.d.SGD(kernels.SGD{Update: kernels.Update{LearningRate: 0.1, Control: r.control}}, part(r.weights), part(r.g), nil))
			}
			if n := r.check("updated in part"); aligned && n > 0 {
				t.Errorf("%v: %d kernels copied weights that updates of parts have changed", columns, n)
			}
		}
	}
}

// Weights of 16 bits lie side by side in a copy until someone changes them.
func TestRoundedOfOneType(t *testing.T) {
	r := newRoundedTest(t, kernels.BF16, 24, 40, 16)
	for i, w := range r.weights {
		narrow := alloc(t, r.d, r.dtype, w.Shape...)
		r.do(r.d.Copy(narrow, w))
		r.weights[i] = narrow
	}
	copies := func() (n int) {
		t.Helper()
		r.d.Trace(func(string) { n++ })
		all, err := r.d.Rounded(r.dtype, r.layout, r.weights...)
		r.d.Trace(nil)
		r.do(err)
		r.compare("as they are", all)
		return n
	}
	if n := copies(); n == 0 {
		t.Fatal("no kernel copied the weights when the copy was made: the counting is wrong")
	}
	if n := copies(); n > 0 {
		t.Errorf("%d kernels copied weights that nobody has changed", n)
	}
	r.do(r.d.Fill(r.weights[1], 3))
	if n := copies(); n == 0 {
		t.Error("no kernel copied a weight that was filled")
	}
}

// Copies that are the blocks of a matrix have the weights' numbers behind an update and behind
// other changes, and nothing else is in the matrix.
func TestRoundedBlocks(t *testing.T) {
	for n, dtype := range []kernels.DType{kernels.BF16, kernels.F16, kernels.BF16, kernels.F16} {
		r := newRoundedTest(t, dtype, 8, 64)
		r.layout = kernels.RoundedLayout{Blocks: true, Transposed: n > 1}
		for _, shape := range [][2]int{{3, 48}, {16, 20}} {
			for _, list := range []*[]kernels.Tensor{&r.weights, &r.g, &r.m, &r.v} {
				*list = append(*list, r.tensor(shape[0], shape[1]))
			}
			r.do(r.d.Fill(r.v[len(r.v)-1], 1))
		}
		check := func(what string, mayCopy bool) {
			t.Helper()
			kernelsBefore := 0
			r.d.Trace(func(string) { kernelsBefore++ })
			all, err := r.d.Rounded(dtype, r.layout, r.weights...)
			r.d.Trace(nil)
			r.do(err)
			if !mayCopy && kernelsBefore > 0 {
				t.Errorf("%v, %s: %d kernels ran for copies that are there", dtype, what, kernelsBefore)
			}
			const rows, columns = 8 + 8 + 16, 64 + 48 + 20
			want := make([]float64, rows*columns)
			below, beside := 0, 0
			for _, w := range r.weights {
				for i, x := range download(t, r.d, w) {
					want[(below+i/w.Shape[1])*columns+beside+i%w.Shape[1]] = roundedTo(dtype, x)
				}
				below, beside = below+(w.Shape[0]+7)/8*8, beside+w.Shape[1]
			}
			if got := download(t, r.d, all); all.IsTransposed() != r.layout.Transposed || !slices.Equal(all.Shape, []int{rows, columns}) || !slices.Equal(got, want) {
				t.Fatalf("%v, %s: the matrix of shape %v is not that of the blocks", dtype, what, all.Shape)
			}
		}
		check("first", true)
		check("again", false)
		r.do(r.update())
		check("updated", false)
		r.do(r.d.Fill(r.weights[1], 0.3))
		check("filled", true)
		beside, err := r.d.Rounded(dtype, kernels.RoundedLayout{}, r.weights[0])
		r.do(err)
		if !slices.Equal(beside.Shape, r.weights[0].Shape) {
			t.Errorf("%v: the copy beside the blocks has shape %v", dtype, beside.Shape)
		}
	}
}

// Recorded work finds copies that have the weights' numbers when it is launched.
func TestRoundedInRecordings(t *testing.T) {
	r := newRoundedTest(t, kernels.BF16, 260, 40, 24)
	unknown := newRoundedTest(t, kernels.BF16, 30, 8)
	r.check("first")
	found := alloc(t, r.d, kernels.BF16, 260, 64)
	read := func() error {
		all, err := r.d.Rounded(r.dtype, r.layout, r.weights...)
		if err != nil {
			return err
		}
		return r.d.Copy(found, all)
	}
	record := func(work ...func() error) kernels.Recording {
		t.Helper()
		recording, err := r.d.Capture(func() error {
			for _, f := range work {
				if err := f(); err != nil {
					return err
				}
			}
			return nil
		})
		r.do(err)
		return recording
	}
	step, reading := record(read, r.update), record(read)
	writing := record(func() error { return r.d.MulScalar(2, r.weights[0], r.weights[0]) }, read)
	record(func() error {
		all, err := unknown.d.Rounded(unknown.dtype, unknown.layout, unknown.weights...)
		if err == nil && all.IsSet() {
			err = fmt.Errorf("a copy was made in a recording")
		}
		return err
	}, read)
	for round := range 3 {
		what := fmt.Sprint("round ", round)
		r.do(reading.Launch())
		r.compare(what+", read", found)
		r.do(step.Launch())
		r.do(reading.Launch())
		r.compare(what+", read after a step", found)
		r.do(r.d.Copy(r.weights[round%2], r.tensor(260, r.weights[round%2].Shape[1])))
		before := download(t, r.d, r.weights[0])
		r.do(step.Launch()) // reads the weights before it changes them
		if got := download(t, r.d, found.Slice(1, 0, 40)); !slices.EqualFunc(got, before, func(x, w float64) bool { return x == roundedTo(kernels.BF16, w) }) {
			t.Fatalf("%s: a recorded step has read a copy of what the weight was", what)
		}
		if slices.Equal(before, download(t, r.d, r.weights[0])) || math.IsNaN(before[0]) {
			t.Fatalf("%s: the recorded step has changed nothing", what)
		}
		r.check(what + ", after an assignment and a step")
		r.do(writing.Launch())
		r.compare(what+", written in the recording", found)
		r.check(what + ", after that")
	}
}

func TestRoundedErrors(t *testing.T) {
	d := device(t)
	w := alloc(t, d, kernels.F32, 4, 8)
	blocks, plain := kernels.RoundedLayout{Blocks: true}, kernels.RoundedLayout{}
	if _, err := d.Rounded(kernels.BF16, blocks, w, w.Reshape(32)); err == nil || err.Error() != "cuda:0: rounded: weights[1] has shape [32], it needs two axes" {
		t.Errorf("the error is %v", err)
	}
	for want, call := range map[string]func() (kernels.Tensor, error){
		"dtype is float32, it needs to be bfloat16 or float16":                          func() (kernels.Tensor, error) { return d.Rounded(kernels.F32, plain, w) },
		"there are no weights, it needs at least one":                                   func() (kernels.Tensor, error) { return d.Rounded(kernels.BF16, plain) },
		"weights[1] has shape [8 4], it needs two axes, and as many rows as all others": func() (kernels.Tensor, error) { return d.Rounded(kernels.BF16, plain, w, w.Reshape(8, 4)) },
		"weights[0] is not in the memory of this device, it needs to be": func() (kernels.Tensor, error) {
			return d.Rounded(kernels.BF16, plain, kernels.Of(make([]float32, 4), 2, 2))
		},
		"weights[0] has strides [1 8] for shape [8 4], it needs a stride of 1 on axis 1": func() (kernels.Tensor, error) { return d.Rounded(kernels.BF16, plain, w.Permute(1, 0)) },
		"weights[0] is float16, it needs to be float32 or bfloat16":                      func() (kernels.Tensor, error) { return d.Rounded(kernels.BF16, plain, alloc(t, d, kernels.F16, 4, 8)) },
	} {
		if _, err := call(); err == nil || err.Error() != "cuda:0: rounded: "+want {
			t.Errorf("the error is %v, it needs to be %q", err, "cuda:0: rounded: "+want)
		}
	}
}
