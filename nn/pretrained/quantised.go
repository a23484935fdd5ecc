package pretrained

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/kernels"
)

const quantisation = "quantization_config" // the field of config.json

// quantiser makes one tensor of those that are a quantised weight.
type quantiser func(w *weights) error

// quantisers read how weights are quantised, by quant_method. Which of them are, the files say.
var quantisers = map[string]func(q *config) quantiser{
	"awq":                awq,
	"bitsandbytes":       bitsAndBytes,
	"compressed-tensors": compressedTensors,
	"fp8":                fineFP8,
	"gptq":               gptq,
	"mxfp4": func(q *config) quantiser {
		q.strings("modules_to_not_convert")
		return (*weights).joinMXFP4
	},
}

// quantised reads how weights are quantised, nil for not.
func (c *config) quantised() quantiser {
	q := c.object(quantisation)
	if q == nil {
		return nil
	}
	defer c.join(q)
	read := quantisers[q.oneOf("quant_method", "", "awq", "bitsandbytes", "compressed-tensors", "fp8", "gptq", "mxfp4")]
	if read == nil {
		return nil // the field is an error
	}
	return read(q)
}

// oneOf reads a string that needs to be one of some.
func (c *config) oneOf(name, otherwise string, of ...string) string {
	have := c.string(name, otherwise)
	if !slices.Contains(of, have) {
		c.fail("field %s is %.60q, it needs to be %s", c.within+name, have, strings.Join(of, ", "))
	}
	return have
}

// passOver reads fields that say nothing of what weights count as.
func (c *config) passOver(names ...string) {
	for _, name := range names {
		c.read[name] = true
	}
}

// scaleTypes are the types of scales, which are those that weights are widened to.
var scaleTypes = []string{"F32", "F16", "BF16"}

// shaped is a tensor of a weight, of one of some types and of that shape.
func (w *weights) shaped(name string, types []string, shape ...int) (plain, error) {
	p, found := w.holder[name].(plain)
	if !found {
		return p, fmt.Errorf("tensor %q is missing", name)
	}
	if !slices.Contains(types, p.info.Type) || !slices.Equal(p.info.Shape, shape) {
		return p, fmt.Errorf("tensor %q is %s of shape %v, it needs to be %s of shape %v",
			name, p.info.Type, p.info.Shape, strings.Join(types, " or "), shape)
	}
	return p, nil
}

// take removes the tensors that a weight was made of, and puts it under its name.
func (w *weights) take(name string, made stored, parts ...string) {
	for _, part := range parts {
		delete(w.holder, part)
	}
	w.holder[name] = made
}

// wide reads elements of scales as float32.
func (p plain) wide(from, n int) ([]float32, error) {
	dtype := fileTypes[p.info.Type]
	if dtype == kernels.F32 {
		return p.floats(from, n)
	}
	b := make([]byte, 2*n)
	if err := p.read(from, b); err != nil {
		return nil, err
	}
	x := make([]float32, n)
	for i := range x {
		switch bits := binary.NativeEndian.Uint16(b[2*i:]); dtype {
		case kernels.F16:
			x[i] = kernels.Float16(bits).Float32()
		default:
			x[i] = kernels.BFloat16(bits).Float32()
		}
	}
	return x, nil
}

// words reads elements of int32 as the bits that they are.
func (p plain) words(from, n int) ([]uint32, error) {
	b := make([]byte, 4*n)
	if err := p.read(from, b); err != nil {
		return nil, err
	}
	x := make([]uint32, n)
	for i := range x {
		x[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return x, nil
}

// put writes element i of a type, rounded.
func put(to []byte, i int, dtype kernels.DType, x float32) {
	switch dtype {
	case kernels.F16:
		binary.NativeEndian.PutUint16(to[2*i:], uint16(kernels.ToFloat16(x)))
	case kernels.BF16:
		binary.NativeEndian.PutUint16(to[2*i:], uint16(kernels.ToBFloat16(x)))
	default:
		binary.NativeEndian.PutUint32(to[4*i:], math.Float32bits(x))
	}
}
