package main

import (
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A run with all changes of a recipe is the same however often it stops, and writes text.
func TestSpeedrunGoesOn(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	given := slices.Clip(slices.Concat(small, []string{"-recipe", "speedrun"}))
	for _, args := range [][]string{
		append(given, "-steps", "20"), append(given, "-steps", "10"), {"-resume", "-steps", "20", "-length", "40"}, {"-sample", "for", "-length", "5"},
	} {
		if err := do(t, args...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	for _, file := range []string{"checkpoints/step-00000020/model.safetensors", "sample.txt"} {
		if read(t, filepath.Join("runs/1", file)) != read(t, filepath.Join("runs/2", file)) {
			t.Errorf("%s differs between a run of 20 steps and one of 10 that was resumed", file)
		}
	}
}

// Each change can be made alone, and each be left out: there is a model, and its parameters have
// groups.
func TestChangesGoAlone(t *testing.T) {
	if len(changes) != len(speedrun.names()) {
		t.Errorf("there are %d changes, %s has %d of them", len(changes), speedrun, len(speedrun.names()))
	}
	for _, name := range speedrun.names() {
		without := slices.DeleteFunc(speedrun.names(), func(n string) bool { return n == name })
		for _, names := range []string{name, strings.Join(without, ",")} {
			s, _, err := parse([]string{"-preset", "tiny", "-recipe", names}, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			g := gorgonia.NewGraph()
			scope := nn.NewScope(g, nil)
			ids := func(name string) nn.Tensor {
				return scope.Tensor(gorgonia.NewMatrix(g, tensor.Int, gorgonia.WithShape(2, 3), gorgonia.WithName(name)), nil)
			}
			s.gpt(scope, 10).Loss(ids("tokens"), ids("targets"))
			if err := scope.Err(); err != nil {
				t.Fatalf("%s: %v", names, err)
			}
			if _, err := train.NewStepper(scope.Trainable(), s.optimizer(), train.Options{Schedule: s.schedule(), Groups: s.groups()}); err != nil {
				t.Errorf("%s: %v", names, err)
			}
		}
	}
}
