package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/safetensors"
)

// Checkpoint is all that training needs to go on from a step.
type Checkpoint struct {
	// Step is how many steps are done. It names the checkpoint.
	Step int
	// Weights are the model's parameters, Optimizer is the tensors that the optimiser keeps for
	// them; both may be empty.
	Weights, Optimizer safetensors.Tensors
	// Parts takes the place of both where several processes save together. It has all of them write
	// their parts into a folder, see [Part.Write], and returns what that returned, in the order of
	// the parts. Of a checkpoint that was read it is nil.
	Parts func(folder string) (sums []string, err error)
	// Meta is any JSON value: whatever else the training loop needs. Numbers in it come back digit
	// by digit, but space between its parts may differ. Nil is null.
	Meta json.RawMessage
	// Path is the folder that the checkpoint was read from. Saving does not look at it.
	Path string
}

// ErrNone is the error of looking for a checkpoint where there is none that is whole.
var ErrNone = errors.New("there is no whole checkpoint")

// ErrOpen is the error of opening a folder for writing that is open for writing already.
var ErrOpen = errors.New("another run writes to it")

// The files of a checkpoint. The last is written last and has the checksums of the others.
const (
	modelFile     = "model.safetensors"
	optimizerFile = "optimizer.safetensors"
	stateFile     = "state.json"
	sumsFile      = "SHA256SUMS"
)

// summedFiles are the files that have a checksum, in the order in which the sums are listed, where
// one process writes all.
var summedFiles = []string{modelFile, optimizerFile, stateFile}

// state is what state.json holds.
type state struct {
	Format int             `json:"format"`
	Step   int             `json:"step"`
	Meta   json.RawMessage `json:"meta"`
}

// stateFormat is the version of the layout of a checkpoint's folder.
const stateFormat = 1

// validate checks what can be wrong with a checkpoint apart from its tensors, which safetensors
// checks.
func (c Checkpoint) validate() error {
	if c.Step < 0 {
		return fmt.Errorf("step is %d, it cannot be negative", c.Step)
	}
	if c.Meta != nil && !json.Valid(c.Meta) {
		return errors.New("meta is not valid JSON")
	}
	if c.Parts != nil && len(c.Weights)+len(c.Optimizer) > 0 {
		return fmt.Errorf("there are %d tensors beside parts, it needs to be one of the two", len(c.Weights)+len(c.Optimizer))
	}
	return nil
}

// sumLine is a line of the file of checksums, as sha256sum writes it.
func sumLine(sum, file string) string { return sum + "  " + file + "\n" }
