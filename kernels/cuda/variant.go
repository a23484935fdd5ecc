//go:build gpu

package cuda

//go:generate go run ./_gen/ptx

// variant is one compiled attention kernel: a module with one entry point, both called name. The
// tables of variants are the one list of what the generator compiles and what the launchers choose
// from.
type variant struct {
	name        string
	source      string  // the file of src that it is compiled from, without .cu
	d, dv       int     // sizes of a head that it is compiled for; it also serves smaller ones
	element     element // of q, k, v and what goes with them
	tileQ       int     // query rows of a tile
	tileK       int     // keys of a tile
	threads     int
	sharedBytes int      // dynamic shared memory
	defines     []string // what else the compiler is told of the tile

	options
	parts
	boxes
}

// options are those that a variant knows, of all that change scores: none, or one of these sets.
type options struct {
	mod      bool // soft cap, slopes, bias and dropout
	drops    bool // dropout
	unbiased bool // soft cap and slopes
	slopes   bool // slopes
	bias     bool // a bias that a tensor map describes, and its gradient if one does
}

// count is how many they are.
func (o options) count() int {
	switch {
	case o.mod:
		return 4
	case o.unbiased:
		return 2
	case o.drops, o.slopes, o.bias:
		return 1
	}
	return 0
}

// parts are those of heads in kernels whose blocks compute some of their columns.
type parts struct {
	part  int  // columns, 0 for those of a whole head
	keeps bool // a block uses all shared memory that it is given: Pieces in src/attention_sm80.cuh
}

// ofDriver is the shared memory of a block that the driver takes.
const ofDriver = 1 << 10

// boxes are those of a variant's tensor maps.
type boxes struct {
	boxCols    int // 16-bit columns: 64 with 128-byte swizzle, 32 with 64-byte swizzle, 0 without maps
	boxQ, boxK int // rows of the boxes of q and dO, and of k and v
	boxBias    int // rows of the boxes of the bias, whose map comes after the others, and of its gradient; 0: the kernel takes none
}

// tilesOf is how many tiles of size cover n.
func tilesOf(n int32, size int) int { return (int(n) + size - 1) / size }

// element is a type of elements as kernels know it: Element in arguments.cuh, and two that only
// choose a kernel or a tensor map.
type element int32

const (
	elementF32 element = iota
	elementBF16
	elementF16
	elementTF32   // float32 tensors, products in TF32
	elementFloat8 // operands that a product has rounded
)
