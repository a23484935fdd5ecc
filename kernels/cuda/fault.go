//go:build gpu

package cuda

import (
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// An index that a kernel cannot use, such as an id outside an embedding's table, is met on the
// device, where nobody can be told. The kernel leaves the element out and notes the index in memory
// of the host, and the next call that waits for the device returns it as an error.

// fault is Fault in src/elements.cuh.
type fault struct {
	taken, note writable
	kernel      faultKernel
	zero        int32
}

// faultKernel is a kernel that takes indices.
type faultKernel int32

const (
	faultEmbedding faultKernel = iota
	faultEmbeddingBackward
	faultCrossEntropy
	faultCrossEntropyBackward
	faultLinearCrossEntropy
	faultGather
	faultScatter
	faultListBlocks
	faultListedForward
	faultListedBackward
	faultBinaryTargets
)

// faultNames are what messages call the kernels and their indices.
var faultNames = [...]struct{ kernel, indices, also string }{
	faultEmbedding:            {"embedding forward", "ids", ""},
	faultEmbeddingBackward:    {"embedding backward", "ids", ""},
	faultCrossEntropy:         {"cross-entropy forward", "targets", ", or IgnoreIndex"},
	faultCrossEntropyBackward: {"cross-entropy backward", "targets", ", or IgnoreIndex"},
	faultLinearCrossEntropy:   {"linear cross-entropy", "targets", ", or IgnoreIndex"},
	faultGather:               {"gather", "ids", ""},
	faultScatter:              {"scatter", "ids", ""},
	faultListBlocks:           {"list blocks", "lists", ""},
	faultListedForward:        {"listed attention forward", "lists", ", or -1, which is no key"},
	faultBinaryTargets:        {"binary cross-entropy", "targets", ""},
	faultListedBackward:       {"listed attention backward", "lists", ", or -1, which is no key"},
}

// fault tells a kernel where to note an index.
func (d *Device) fault(kernel faultKernel) (fault, error) {
	taken, note, err := d.Fault(d.queue())
	return fault{taken: taken, note: note, kernel: kernel}, err
}

// faultError is what a kernel noted.
func faultError(n driver.Note) error {
	name := faultNames[n.Kernel]
	if faultKernel(n.Kernel) == faultBinaryTargets { // whose targets are numbers
		return fmt.Errorf("%s: element %d of %s is %v, it needs to be from 0 to 1", name.kernel, n.Position, name.indices, math.Float64frombits(uint64(n.Value)))
	}
	return fmt.Errorf("%s: element %d of %s is %d, it needs to be from 0 to %d%s",
		name.kernel, n.Position, name.indices, n.Value, n.Limit-1, name.also)
}
