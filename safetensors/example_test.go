package safetensors_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// Two parameters go to a file, which safetensors.torch.load_file would read as well, and one of
// them comes back.
func Example() {
	folder, err := os.MkdirTemp("", "safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "model.safetensors")

	out, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	err = safetensors.Write(out, safetensors.Tensors{
		{Name: "linear.weight", Value: tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4}))},
		{Name: "linear.bias", Value: tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{5, 6}))},
	}, map[string]string{"format": "pt"})
	if err != nil {
		log.Fatal(err)
	}
	if err := out.Close(); err != nil {
		log.Fatal(err)
	}

	file, err := safetensors.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	for _, name := range file.Names() {
		info, err := file.Info(name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, info.Type, info.Shape)
	}
	bias, err := file.Tensor("linear.bias")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bias)
	// Output:
	// linear.weight F32 [2 2]
	// linear.bias F32 [2]
	// [5  6]
}
