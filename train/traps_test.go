package train_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// trapConfig trains a model of a linear layer on one batch.
func trapConfig(model train.Model) train.LoopConfig {
	batch := data.Batch{"x": data.Floats([]float32{1, 2, 3, 4, 5, 6}, 2, 3)}
	return train.LoopConfig{
		Model: model, Parameters: nn.NewParameters(1), Optimizer: train.SGD{},
		Options: train.Options{Schedule: train.ConstantRate(0.1)}, Steps: 3,
		Data: data.Func(func(int) (data.Batch, error) { return batch, nil }),
	}
}

func weight(t *testing.T, l *train.Loop, name string) []float32 {
	t.Helper()
	for _, n := range l.Parameters() {
		if n.Name() == name {
			return slices.Clone(n.Value().Data().([]float32))
		}
	}
	t.Fatalf("there is no parameter %s in %v", name, l.Parameters())
	return nil
}

// A parameter that the loss does not use stays as it is. That is said once.
func TestLossesMayLeaveParametersOut(t *testing.T) {
	c := trapConfig(func(s *nn.Scope, in train.Inputs) train.Outputs {
		s.Linear("unused", in.Get("x"), 2)
		return train.Outputs{Loss: s.Linear("used", in.Get("x"), 2).Square().Mean()}
	})
	told := 0
	c.Hooks = []train.Hook{{OnNotice: func(n train.Notice) error {
		if strings.Contains(string(n), "the loss does not use 2 of the 4 parameters that are trained, such as unused.") {
			told++
		}
		return nil
	}}}
	l, err := train.NewLoop(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	unused, used := weight(t, l, "unused.weight"), weight(t, l, "used.weight")
	end, err := l.Run(context.Background())
	if err != nil || told != 1 || len(end.Notices) != 1 {
		t.Errorf("it is said %d times, the notices are %q, the error is %v", told, end.Notices, err)
	}
	if !slices.Equal(unused, weight(t, l, "unused.weight")) || slices.Equal(used, weight(t, l, "used.weight")) {
		t.Error("what is not used has changed, or what is used has not")
	}
}

// A weight that was made without the model's scope is not trained. That is said once; what a scope
// made, and the arrays of a batch, are not meant.
func TestWeightsOutsideOfTheScopeAreTold(t *testing.T) {
	for name, hidden := range map[string]func(s *nn.Scope, x nn.Tensor) nn.Tensor{
		"": func(s *nn.Scope, x nn.Tensor) nn.Tensor {
			return x.Add(s.Constant("shift", data.Floats([]float32{1, 2, 3}, 3))).Mul(s.Parameter("scale", nn.Normal(1), 3))
		},
		"weight of shape [3 3]": func(s *nn.Scope, x nn.Tensor) nn.Tensor {
			elsewhere := nn.NewScope(s.Graph(), nn.NewParameters(2))
			h := nn.NewLinear(elsewhere, nn.LinearConfig{In: 3, Out: 3, NoBias: true}).Forward(x)
			return s.Tensor(h.Node(), h.Err())
		},
		"w of shape [3 3]": func(s *nn.Scope, x nn.Tensor) nn.Tensor {
			w := gorgonia.NewMatrix(s.Graph(), tensor.Float32, gorgonia.WithShape(3, 3), gorgonia.WithName("w"), gorgonia.WithInit(gorgonia.GlorotN(1)))
			return s.Tensor(gorgonia.Mul(x.Node(), w))
		},
	} {
		c := trapConfig(func(s *nn.Scope, in train.Inputs) train.Outputs {
			return train.Outputs{Loss: s.Linear("head", hidden(s, in.Get("x")), 2).Square().Mean()}
		})
		end, err := train.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		told := len(end.Notices) > 0 && name != "" && strings.HasPrefix(string(end.Notices[0]), name+" was made outside of the model's scope")
		if told != (name != "") || len(end.Notices) > 1 {
			t.Errorf("the notices are %q, want one of %q", end.Notices, name)
		}
	}
}

// A loss that uses no parameter cannot be trained.
func TestLossesNeedAParameter(t *testing.T) {
	_, err := train.NewLoop(trapConfig(func(s *nn.Scope, in train.Inputs) train.Outputs {
		s.Linear("unused", in.Get("x"), 2)
		return train.Outputs{Loss: in.Get("x").Square().Mean()}
	}))
	if err == nil || !strings.Contains(err.Error(), "a loss that uses none of the 2 parameters that are trained") {
		t.Errorf("the error is %v", err)
	}
}

// What is frozen keeps its value, without another word in the loop's config.
func TestFrozenParametersStay(t *testing.T) {
	c := trapConfig(func(s *nn.Scope, in train.Inputs) train.Outputs {
		return train.Outputs{Loss: s.Linear("head", s.Linear("body", in.Get("x"), 4), 2).Square().Mean()}
	})
	c.Parameters.Freeze(func(name string) bool { return strings.HasPrefix(name, "body") })
	l, err := train.NewLoop(c)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	body, head := weight(t, l, "body.weight"), weight(t, l, "head.weight")
	if _, err := l.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(body, weight(t, l, "body.weight")) || slices.Equal(head, weight(t, l, "head.weight")) {
		t.Error("what is frozen has changed, or what is not has not")
	}
}

// A group that matches nothing is refused; Vectors may match nothing, as not every model has any.
func TestGroupsMatchSomething(t *testing.T) {
	model := func(s *nn.Scope, in train.Inputs) train.Outputs {
		return train.Outputs{Loss: s.Linear("head", in.Get("x"), 2, nn.NoBias).Square().Mean()}
	}
	for want, group := range map[string]train.Group{
		"":                            {Match: train.Vectors, NoDecay: true},
		"group 0 matches none of the": {Match: train.Named("haed.*"), NoDecay: true},
	} {
		c := trapConfig(model)
		c.Options.Groups = []train.Group{group}
		l, err := train.NewLoop(c)
		if err == nil {
			l.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, it needs to have %q", err, want)
		}
	}
}

// A model that panics gives an error with its line.
func TestModelsThatPanic(t *testing.T) {
	for name, panics := range map[string]func(in train.Inputs){
		"index out of range [9]": func(in train.Inputs) { _ = in.Get("x").Shape()[len(in.Get("x").Shape())+7] },
		"divide by zero":         func(in train.Inputs) { _ = 1 / (len(in.Get("x").Shape()) - 2) },
		"no such layer":          func(train.Inputs) { panic("no such layer") },
	} {
		_, err := train.NewLoop(trapConfig(func(s *nn.Scope, in train.Inputs) train.Outputs {
			panics(in)
			return train.Outputs{Loss: in.Get("x").Mean()}
		}))
		if err == nil || !strings.Contains(err.Error(), "traps_test.go:") || !strings.Contains(err.Error(), name) {
			t.Errorf("the error is %v, it needs to have %q and this file's line", err, name)
		}
	}
}
