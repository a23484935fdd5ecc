package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// maxDifferences is how many differences the error of Match describes.
const maxDifferences = 5

// Match compares a checkpoint's tensors with those of the model that is to take them, whose values do not matter. Names,
// types and shapes must agree, in whatever order; the error says which do not.
func Match(have, want safetensors.Tensors) error {
	var differences []string
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	values, known := have.Map(), want.Map()
	for _, w := range want {
		switch value := values[w.Name]; {
		case w.Value == nil:
			differ("%s has no value in the model", w.Name)
		case value == nil:
			differ("%s is missing", w.Name)
		case value.Dtype() != w.Value.Dtype() || !slices.Equal(value.Shape(), w.Value.Shape()):
			differ("%s is %s, the model's is %s", w.Name, describe(value), describe(w.Value))
		}
	}
	for _, h := range have {
		if _, ok := known[h.Name]; !ok {
			differ("%s is none of the model's", h.Name)
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

func describe(t *tensor.Dense) string { return fmt.Sprintf("%v %v", t.Dtype(), []int(t.Shape())) }
