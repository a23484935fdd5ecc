package ops

import (
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// replayer is a device of the host's memory that remembers the work that varies, and the lengths
// that it was asked for.
type replayer struct {
	kernels.Backend
	works             []func(kernels.Backend) error
	forward, backward []int
}

func (r *replayer) Capture(func() error) (kernels.Recording, error) { return nil, nil }

func (r *replayer) Vary(work func(kernels.Backend) error) error {
	r.works = append(r.works, work)
	return work(r)
}

func (r *replayer) AttentionForward(a *kernels.Attention, out kernels.AttentionOutputs) error {
	r.forward = a.KVLengths
	return r.Backend.AttentionForward(a, out)
}

func (r *replayer) AttentionBackward(a *kernels.Attention, g kernels.AttentionGradients) error {
	r.backward = a.KVLengths
	return r.Backend.AttentionBackward(a, g)
}

// Where a graph is recorded, attention is asked for again with the lengths that the graph's input
// has then; lengths that an op computes on the host cannot be recorded.
func TestLengthsAreReadAgain(t *testing.T) {
	backend := host
	defer func() { host = backend }()
	vector := func(list ...int) *tensor.Dense { return tensor.New(tensor.WithShape(2), tensor.WithBacking(list)) }
	for _, computed := range []bool{false, true} {
		device := &replayer{Backend: backend}
		host = device
		g := gorgonia.NewGraph()
		x := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(2, 1, 6, 4), gorgonia.WithName("x"), gorgonia.WithInit(gorgonia.GlorotN(1)))
		input := gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(2), gorgonia.WithName("lengths"), gorgonia.WithValue(vector(6, 3)))
		lengths := input
		if computed {
			lengths = gorgonia.Must(gorgonia.Reshape(input, tensor.Shape{2}))
		}
		out := gorgonia.Must(FlashAttention(x, x, x, AttentionOptions{Lengths: Lengths{KVLengths: lengths}}))
		if _, err := gorgonia.Grad(gorgonia.Must(Sum(out)), x); err != nil {
			t.Fatal(err)
		}
		machine := gorgonia.NewTapeMachine(g)
		recorded := &stateOf(g).pool.recording
		recorded.Store(true)
		err := machine.RunAll()
		recorded.Store(false)
		if computed {
			if err == nil || !strings.HasSuffix(err.Error(), errReadOnHost.Error()) { // Gorgonia's error wraps none
				t.Errorf("lengths that an op computes: the error is %v, want %v", err, errReadOnHost)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := out.Value().Data().([]float32)
		if err := gorgonia.Let(input, vector(1, 5)); err != nil {
			t.Fatal(err)
		}
		for _, work := range device.works {
			if err := work(device); err != nil {
				t.Fatal(err)
			}
		}
		if want := []int{1, 5}; !slices.Equal(device.forward, want) || !slices.Equal(device.backward, want) {
			t.Errorf("lengths %v and %v are asked for, want %v", device.forward, device.backward, want)
		}
		machine.Reset()
		if err := machine.RunAll(); err != nil {
			t.Fatal(err)
		}
		if want := out.Value().Data().([]float32); !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if err := gorgonia.Let(input, vector(7, 1)); err != nil {
			t.Fatal(err)
		}
		const want = "FlashAttention: cpu: kvLengths is 7 for batch item 0, it needs to be from 0 to k's 6 rows"
		if err := device.works[0](device); err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %v", err, want)
		}
	}
}
