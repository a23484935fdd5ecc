package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stheno-ml/stheno/safetensors"
)

// maxDifferences is how many differences the error of Match describes.
const maxDifferences = 5

// Match compares a checkpoint's tensors with those of the model that is to take them, whose values
// do not matter. Names, types and shapes must agree, in whatever order; the error says which do
// not.
func Match(have, want safetensors.Tensors) error { return match(describe(have), describe(want)) }

// description is a tensor's name, and its type and shape, empty where it has no value.
type description struct{ name, text string }

func describe(list safetensors.Tensors) (all []description) {
	for _, t := range list {
		d := description{name: t.Name}
		if t.Value != nil {
			d = Whole(t.Name, t.Value.Dtype(), t.Value.Shape()).describe()
		}
		all = append(all, d)
	}
	return all
}

func (e Extent) describe() description {
	return description{e.Name, fmt.Sprintf("%s %v", e.DType, e.Shape)}
}

func match(have, want []description) error {
	var differences []string
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	values, known := map[string]string{}, map[string]bool{}
	for _, h := range have {
		values[h.name] = h.text
	}
	for _, w := range want {
		known[w.name] = true
		switch value := values[w.name]; {
		case w.text == "":
			differ("%s has no value in the model", w.name)
		case value == "":
			differ("%s is missing", w.name)
		case value != w.text:
			differ("%s is %s, the model's is %s", w.name, value, w.text)
		}
	}
	for _, h := range have {
		if !known[h.name] {
			differ("%s is none of the model's", h.name)
		}
	}
	if len(differences) == 0 {
		return nil
	}
	message := "the checkpoint does not fit the model: " + strings.Join(differences[:min(len(differences), maxDifferences)], "; ")
	if more := len(differences) - maxDifferences; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return errors.New(message)
}
