package checkpoint_test

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"gorgonia.org/tensor"
)

// A run saves three checkpoints, of which two are kept. The newest is damaged, so that the next run
// goes on from the one before, and says why.
func Example() {
	parent, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(parent)
	path := filepath.Join(parent, "run")

	folder, err := checkpoint.Open(path, 2)
	if err != nil {
		log.Fatal(err)
	}
	weight := tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{0, 0}))
	for step := 100; step <= 300; step += 100 {
		weight.Float32s()[0] = float32(step)
		_, err := folder.Save(checkpoint.Checkpoint{
			Step:    step,
			Weights: safetensors.Tensors{{Name: "weight", Value: weight}},
			Meta:    json.RawMessage(fmt.Sprintf(`{"bestLoss": %g}`, 100/float64(step))),
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := folder.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(path, "step-00000300", "model.safetensors"), 80); err != nil {
		log.Fatal(err)
	}

	again, err := checkpoint.Open(path, 2)
	if err != nil {
		log.Fatal(err)
	}
	defer again.Close()
	c, refused, err := again.Latest()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("refused:", len(refused))
	fmt.Println("step", c.Step, c.Weights.Map()["weight"])
	// Output:
	// refused: 1
	// step 200 [200    0]
}

// The checkpoint of a model with other layers is not for this one.
func ExampleMatch() {
	value := func(shape ...int) *tensor.Dense {
		return tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
	}
	saved := safetensors.Tensors{{Name: "in.weight", Value: value(8, 4)}, {Name: "out.weight", Value: value(4, 8)}}
	model := safetensors.Tensors{{Name: "in.weight", Value: value(16, 4)}, {Name: "out.weight", Value: value(4, 8)}, {Name: "out.bias", Value: value(4)}}
	fmt.Println(checkpoint.Match(saved, model))
	// Output: the checkpoint does not fit the model: in.weight is float32 [8 4], the model's is float32 [16 4]; out.bias is missing
}
