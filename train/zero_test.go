package train_test

import (
	"github.com/stheno-ml/stheno/nn"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/hostile"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"github.com/stheno-ml/stheno/train/tokenizer/chat"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestZeroValues calls the methods of values that no constructor has made.
func TestZeroValues(t *testing.T) {
	for _, value := range []any{
		&train.Stepper{}, &train.Loop{}, &train.PendingReport{}, &checkpoint.Folder{},
		&data.Tokens{}, &data.Windows{}, &data.Prefetcher{}, &sample.Sampler{}, &sample.Text{},
		&tokenizer.Bytes{}, &tokenizer.Characters{}, &tokenizer.GPT2{}, &tokenizer.HuggingFace{}, &train.Predictor{}, &chat.Template{},
		&train.Place{}, (*train.Place)(nil), train.Update{}, train.WarmupCosine{}, train.WarmupStableDecay{}, train.LinearDecay{}, train.InverseSquareRoot{},
	} {
		for _, panicked := range hostile.CallAll(value) {
			if !strings.HasPrefix(panicked, "*data.Tokens.At:") { // which panics as an index does, and says so
				t.Error(panicked)
			}
		}
	}
}

// FuzzOptions makes optimisers and loops of changed configs. Nothing panics, and where there is an
// error there is nothing else.
func FuzzOptions(f *testing.F) {
	constructors := []string{"NewLoop", "NewPredictor", "NewStepper"}
	if declared, err := hostile.Constructors("."); err != nil || !slices.Equal(slices.Sorted(slices.Values(declared)), constructors) {
		f.Fatalf("the package has %v, this test tries %v (%v)", declared, constructors, err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	for which := range byte(len(constructors)) {
		f.Add(which, []byte{})
		for range 30 {
			data := make([]byte, 2+random.IntN(12))
			for k := range data {
				data[k] = byte(random.Uint32())
			}
			f.Add(which, data)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		b, g := hostile.Bytes(data), gorgonia.NewGraph()
		w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName("w"), gorgonia.WithInit(gorgonia.Zeroes()))
		nodes := gorgonia.Nodes{w}
		options := train.Options{Schedule: train.WarmupCosine{Peak: 1e-3, Warmup: 2, Steps: 10}, Groups: []train.Group{{}}, LossScaling: &train.LossScaling{}}
		own := map[reflect.Type]func(reflect.Value){
			reflect.TypeFor[train.Schedule](): func(v reflect.Value) {
				v.Set(reflect.ValueOf([]train.Schedule{train.ConstantRate(b.Float()), train.WarmupCosine{Peak: b.Float(), Warmup: b.Int(), Steps: b.Int()},
					train.WarmupStableDecay{}, train.LinearDecay{}, train.InverseSquareRoot{}}[b.Intn(5)]))
			},
			reflect.TypeFor[*gorgonia.Node](): func(v reflect.Value) {
				v.Set(reflect.ValueOf([]*gorgonia.Node{nil, {}, gorgonia.NewScalar(g, tensor.Float32)}[b.Intn(3)]))
			},
		}
		change := func(config any) {
			for changes := 0; len(b) > 0 && changes < 4; changes++ {
				hostile.Change(&b, own, config, &nodes)
			}
		}
		var made any
		var err error
		switch constructors[int(which)%len(constructors)] {
		case "NewStepper":
			config := struct {
				Which   int
				AdamW   train.AdamW
				SGD     train.SGD
				Lion    train.Lion
				Options train.Options
			}{Options: options, SGD: train.SGD{Momentum: 0.9}}
			change(&config)
			optimizer := []train.Optimizer{config.AdamW, config.SGD, config.Lion, nil}[uint(config.Which)%4]
			made, err = train.NewStepper(nodes, optimizer, config.Options)
		case "NewLoop":
			c := train.LoopConfig{}
			change(&c)
			made, err = train.NewLoop(c)
		case "NewPredictor":
			made, err = train.NewPredictor(nn.NewParameters(1), func(*nn.Scope, train.Inputs) nn.Tensor { return nn.Tensor{} })
		}
		if nothing := reflect.ValueOf(made).IsNil(); nothing != (err != nil) {
			t.Errorf("a %T that is nil: %v, with error %v", made, nothing, err)
		}
		if err == nil {
			for _, panicked := range hostile.CallAll(made) {
				t.Error(panicked)
			}
		}
	})
}
