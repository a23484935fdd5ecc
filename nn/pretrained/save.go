package pretrained

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// companions are the files beside the weights that belong to a model and are copied with it.
var companions = []string{
	"added_tokens.json", "chat_template.jinja", "generation_config.json", "merges.txt", "preprocessor_config.json",
	"special_tokens_map.json", "spiece.model", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt",
}

// SaveOptions are the options of [Model.Save].
type SaveOptions struct {
	ShardSize int64        // a file holds at most so many bytes of tensors, unless a tensor alone has more; 0 means 5 GB
	DType     tensor.Dtype // of the files: float32 (zero), ops.BFloat16 or ops.Float16, which round to the nearest
	// Weights is the type of linear layers: the zero value for DType, or ops.NF4 for what
	// bitsandbytes makes of them, with double quantisation. The model needs to be a decoder without
	// experts, and no gpt2. Weights that are kept in NF4 are written as they are.
	Weights tensor.Dtype
}

// typeNames is what a config calls the types that files can have.
var typeNames = map[tensor.Dtype]string{tensor.Float32: "float32", ops.BFloat16: "bfloat16", ops.Float16: "float16"}

// Save writes the model as transformers does: config.json, and model.safetensors or shards and
// their index. What else belongs to the model in the folder that it was loaded from, such as the
// tokenizer's files, is copied. The folder is made if there is none; files of earlier models in it
// are replaced, the weights last. From a device the tensors of one file at a time are copied. A
// LoRA needs to be merged, or it would be missing.
func (m *Model) Save(folder string, o SaveOptions) error {
	if err := m.save(folder, o); err != nil {
		return fmt.Errorf("pretrained: saving to %s: %w", folder, err)
	}
	return nil
}

func (m *Model) save(folder string, o SaveOptions) error {
	if m.parameters.IsSharedOut() {
		return errors.New("the parameters are shared out over ranks, it needs those of a checkpoint, which are whole")
	}
	if o.ShardSize < 0 {
		return fmt.Errorf("shard size is %d, it needs to be positive, or 0 for 5 GB", o.ShardSize)
	}
	if o.ShardSize == 0 {
		o.ShardSize = 5e9
	}
	if o.DType == (tensor.Dtype{}) {
		o.DType = tensor.Float32
	}
	name, known := typeNames[o.DType]
	if !known {
		return fmt.Errorf("dtype is %v, it needs to be float32, BFloat16 or Float16", o.DType)
	}
	if err := m.checkNF4(o.Weights); err != nil {
		return err
	}
	if set, merged := m.parameters.HasLoRA(); set && !merged {
		return errors.New("the LoRA is not merged into the weights: Parameters().MergeLoRA does it, and SaveLoRA writes it alone")
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := m.copyCompanions(folder); err != nil {
		return err
	}
	config, err := inType(m.config, name, o.Weights == ops.NF4)
	if err != nil {
		return err
	}
	if err := plainfile.Write(filepath.Join(folder, configFile), func(w io.Writer) error { _, err := w.Write(config); return err }); err != nil {
		return err
	}
	return m.saveWeights(folder, o)
}

// inType is a config that says of the weights what they are, and whether they are NF4.
func inType(text []byte, dtype string, nf4 bool) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	name := "dtype"
	if _, old := fields["torch_dtype"]; old {
		name = "torch_dtype" // what transformers called it before 5
	}
	fields[name] = json.RawMessage(`"` + dtype + `"`)
	delete(fields, quantisation)
	if nf4 {
		fields[quantisation] = nf4Config(dtype)
	}
	text, err := json.MarshalIndent(fields, "", "  ")
	return append(text, '\n'), err
}

func (m *Model) copyCompanions(folder string) error {
	if m.metadata != nil {
		return nil // all that there was is in the file
	}
	for _, name := range companions {
		path, err := regularFile(m.folder, name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if same, err := filepath.Abs(folder); err != nil {
			return err
		} else if from, err := filepath.Abs(m.folder); err != nil || same == from {
			return err
		}
		from, err := os.Open(path)
		if err != nil {
			return err
		}
		err = plainfile.Write(filepath.Join(folder, name), func(w io.Writer) error { _, err := io.Copy(w, from); return err })
		from.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) saveWeights(folder string, o SaveOptions) error {
	var shards [][]link
	size, total := int64(0), int64(0)
	for _, l := range m.arch.links {
		bytes := int64(o.DType.Size()) * int64(l.elements())
		if o.Weights == ops.NF4 && m.arch.isNF4(&l) {
			bytes = nf4Bytes(l.elements())
		}
		if len(shards) == 0 || size+bytes > o.ShardSize {
			shards, size = append(shards, nil), 0
		}
		shards[len(shards)-1] = append(shards[len(shards)-1], l)
		size += bytes
	}
	weightMap, kept := map[string]string{}, []string{weightsFile}
	if len(shards) > 1 {
		kept = []string{indexFile}
	}
	for i, links := range shards {
		name := weightsFile
		if len(shards) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
			kept = append(kept, name)
		}
		tensors, err := m.tensors(links, o)
		if err != nil {
			return err
		}
		for _, t := range tensors {
			weightMap[t.Name] = name
			total += int64(t.Value.Shape().TotalSize()) * int64(t.Value.Dtype().Size())
		}
		if err := writeSafetensors(folder, name, tensors); err != nil {
			return err
		}
	}
	if len(shards) > 1 {
		index, err := json.MarshalIndent(map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": weightMap}, "", "  ")
		if err != nil {
			return err
		}
		if err := plainfile.Write(filepath.Join(folder, indexFile), func(w io.Writer) error { _, err := w.Write(append(index, '\n')); return err }); err != nil {
			return err
		}
	}
	return removeOther(folder, kept)
}

// tensors are those of a file.
func (m *Model) tensors(links []link, o SaveOptions) (tensors safetensors.Tensors, err error) {
	kept, values := map[string]*tensor.Dense{}, map[string]*tensor.Dense{}
	for i := range links {
		l := &links[i]
		for _, p := range l.parts {
			if kept[p.ours] != nil {
				continue
			}
			if kept[p.ours], err = ops.Download(m.parameters.Value(p.ours)); err != nil {
				return nil, fmt.Errorf("parameter %s: %w", p.ours, err)
			}
		}
		list, err := m.tensorsOf(l, o, kept, values)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", l.theirs, err)
		}
		tensors = append(tensors, list...)
	}
	return tensors, nil
}

// tensorsOf is the tensor of a link, or those of its NF4. Values are what is kept in float32, once
// it was needed.
func (m *Model) tensorsOf(l *link, o SaveOptions, kept, values map[string]*tensor.Dense) (safetensors.Tensors, error) {
	inNF4 := o.Weights == ops.NF4 && m.arch.isNF4(l)
	if inNF4 {
		if matrix := l.keptNF4(kept); matrix != nil {
			return nf4Tensors(l, matrix, o.DType), nil
		}
	}
	for _, p := range l.parts {
		if values[p.ours] != nil {
			continue
		}
		value, err := widened(kept[p.ours], l)
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", p.ours, err)
		}
		values[p.ours] = value
	}
	wide, err := l.pack(values)
	if err != nil {
		return nil, err
	}
	if !inNF4 {
		return safetensors.Tensors{{Name: l.theirs, Value: rounded(wide, o.DType)}}, nil
	}
	matrix, err := nf4MatrixOf(rounded(wide, o.DType))
	if err != nil {
		return nil, err
	}
	return nf4Tensors(l, matrix, o.DType), nil
}

func writeSafetensors(folder, name string, tensors safetensors.Tensors) error {
	return plainfile.Write(filepath.Join(folder, name), func(w io.Writer) error {
		return safetensors.Write(w, tensors, map[string]string{"format": "pt"})
	})
}

// widened is a parameter in float32, whatever it is kept in.
func widened(value *tensor.Dense, l *link) (*tensor.Dense, error) {
	switch d := value.Dtype(); {
	case d == tensor.Float32:
		return value, nil
	case !ops.IsPacked(d):
		return ops.Converted(value, tensor.Float32)
	}
	value, err := ops.Unpacked(value)
	if err == nil && l.linear {
		value, err = ops.Transposed(value)
	}
	return value, err
}

// rounded is a tensor of float32 in another type.
func rounded(t *tensor.Dense, dtype tensor.Dtype) *tensor.Dense {
	var data any = t.Float32s()
	switch dtype {
	case ops.BFloat16:
		data = convert(t.Float32s(), kernels.ToBFloat16)
	case ops.Float16:
		data = convert(t.Float32s(), kernels.ToFloat16)
	}
	return tensor.New(tensor.WithShape(t.Shape()...), tensor.WithBacking(data))
}

func convert[T any](from []float32, one func(float32) T) []T {
	to := make([]T, len(from))
	for i, x := range from {
		to[i] = one(x)
	}
	return to
}

// removeOther removes the weights of an earlier model: beside those of a new one they would be
// read, or be in the way.
func removeOther(folder string, kept []string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		shard, err := filepath.Match("model-?????-of-?????.safetensors", name)
		if err != nil {
			return err
		}
		if !slices.Contains(kept, name) && (shard || name == weightsFile || name == indexFile) {
			if err := os.Remove(filepath.Join(folder, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
