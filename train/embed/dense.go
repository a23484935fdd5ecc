package embed

import (
	"fmt"
	"math"
	"path/filepath"

	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// dense is a linear layer behind the pooling.
type dense struct {
	in, out      int
	weight, bias []float32 // (out, in), and (out) or none
	activation   func(float64) float64
}

// activations are PyTorch's, by their names.
var activations = map[string]func(float64) float64{
	"torch.nn.modules.linear.Identity":    func(x float64) float64 { return x },
	"torch.nn.modules.activation.Tanh":    math.Tanh,
	"torch.nn.modules.activation.ReLU":    func(x float64) float64 { return max(x, 0) },
	"torch.nn.modules.activation.GELU":    func(x float64) float64 { return x * math.Erfc(-x/math.Sqrt2) / 2 },
	"torch.nn.modules.activation.SiLU":    func(x float64) float64 { return x / (1 + math.Exp(-x)) },
	"torch.nn.modules.activation.Sigmoid": func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
}

// maxFeatures bounds the sizes that a config can ask for.
const maxFeatures = 1 << 16

// readDense reads a layer's folder.
func readDense(folder, path string) (d dense, err error) {
	name := filepath.Join(filepath.FromSlash(path), "config.json")
	c := struct {
		In         int    `json:"in_features"`
		Out        int    `json:"out_features"`
		Bias       *bool  `json:"bias"`
		Activation string `json:"activation_function"`
		Input      string `json:"module_input_name"`
		Output     string `json:"module_output_name"`
		Residual   bool   `json:"use_residual"`
	}{Activation: "torch.nn.modules.activation.Tanh"}
	found, err := readJSON(folder, name, &c)
	if err == nil && !found {
		err = fmt.Errorf("%s is missing", name)
	}
	if err != nil {
		return d, err
	}
	d = dense{in: c.In, out: c.Out, activation: activations[c.Activation]}
	switch {
	case c.In < 1 || c.Out < 1 || c.In > maxFeatures || c.Out > maxFeatures:
		return d, fmt.Errorf("%s: in_features and out_features are %d and %d, they need to be from 1 to %d", name, c.In, c.Out, maxFeatures)
	case d.activation == nil:
		return d, fmt.Errorf("%s: activation_function is %.100q, it needs to be Identity, Tanh, ReLU, GELU, SiLU or Sigmoid of torch.nn.modules", name, c.Activation)
	case c.Input != "" && c.Input != vectors || c.Output != "" && c.Output != vectors:
		return d, fmt.Errorf("%s: module_input_name is %.100q and module_output_name %.100q, they need to be %s", name, c.Input, c.Output, vectors)
	case c.Residual:
		return d, fmt.Errorf("%s: use_residual is true, only false is supported", name)
	}
	weights := filepath.Join(filepath.FromSlash(path), "model.safetensors")
	if !filepath.IsLocal(weights) {
		return d, fmt.Errorf("%q is not the name of a file in the folder", weights)
	}
	file, err := safetensors.Open(filepath.Join(folder, weights))
	if err != nil {
		return d, err
	}
	defer file.Close()
	if d.weight, err = floats(file, "linear.weight", d.out, d.in); err == nil && (c.Bias == nil || *c.Bias) {
		d.bias, err = floats(file, "linear.bias", d.out)
	}
	if err != nil {
		return d, fmt.Errorf("%s: %w", weights, err)
	}
	return d, nil
}

// floats reads a tensor of a shape.
func floats(file *safetensors.File, name string, shape ...int) ([]float32, error) {
	value, err := file.Tensor(name)
	if err != nil {
		return nil, err
	}
	if !value.Shape().Eq(tensor.Shape(shape)) {
		return nil, fmt.Errorf("tensor %q has shape %v, the config asks for %v", name, []int(value.Shape()), shape)
	}
	if value.Dtype() != tensor.Float32 {
		return nil, fmt.Errorf("tensor %q is %v, it needs to be F32, F16 or BF16", name, value.Dtype())
	}
	return value.Float32s(), nil
}

// forward is what the layer makes of a vector.
func (d *dense) forward(v []float64) ([]float64, error) {
	if len(v) != d.in {
		return nil, fmt.Errorf("a Dense takes vectors of %d numbers, and gets one of %d", d.in, len(v))
	}
	out := make([]float64, d.out)
	for i := range out {
		sum := 0.0
		if d.bias != nil {
			sum = float64(d.bias[i])
		}
		for j, w := range d.weight[i*d.in : (i+1)*d.in] {
			sum += float64(w) * v[j]
		}
		out[i] = d.activation(sum)
	}
	return out, nil
}
