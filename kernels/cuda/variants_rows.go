//go:build gpu

package cuda

import (
	"strings"

	"github.com/stheno-ml/stheno/kernels"
)

// matmulRows is one compiled kernel of src/matmul_rows.cu, or of src/matmul_rows_packed.cu:
// products of a few rows, for sm_90a.
type matmulRows struct {
	element element
	bRows   bool          // B's rows are contiguous, rather than its columns
	gated   bool          // it is two products, of which one gates the other
	packing kernels.DType // of B's columns, NoDType for none
}

// Sizes of src/matmul_rows.cuh.
const (
	mostRows       = 16
	columnsOfPanel = 64 // of a half of it
	depthOfStep    = 64
)

// packingNames are the types of packed matrices in src/matmul_rows_packed.cu.
var packingNames = map[kernels.DType]string{kernels.Int8: "Int8", kernels.Int4: "Int4", kernels.NF4: "NF4"}

func matmulRowsVariants() []matmulRows {
	var list []matmulRows
	for _, e := range []element{elementBF16, elementF16} {
		for _, gated := range []bool{false, true} {
			list = append(list, matmulRows{element: e, gated: gated}, matmulRows{element: e, bRows: true, gated: gated},
				matmulRows{element: e, gated: gated, packing: kernels.Int8}, matmulRows{element: e, gated: gated, packing: kernels.Int4},
				matmulRows{element: e, gated: gated, packing: kernels.NF4})
		}
	}
	return list
}

func (v matmulRows) name() string {
	kind := map[bool]string{false: "_nt", true: "_nn"}[v.bRows]
	if v.isPacked() {
		kind = "_" + strings.ToLower(packingNames[v.packing])
	}
	return "matmul_rows_sm90" + map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[v.element] +
		kind + map[bool]string{false: "", true: "_gated"}[v.gated]
}

func (v matmulRows) isPacked() bool { return v.packing != kernels.NoDType }

func (v matmulRows) module() compiledModule {
	m := compiledModule{Name: v.name(), Source: "matmul_rows.cu", Arch: "compute_90a"}
	m.Defines = []string{"KERNEL=" + m.Name, map[element]string{elementBF16: "ELEMENT_BF16", elementF16: "ELEMENT_F16"}[v.element]}
	if v.bRows {
		m.Defines = append(m.Defines, "B_ROWS")
	}
	if v.isPacked() {
		m.Source = "matmul_rows_packed.cu"
		m.Defines = append(m.Defines, "PACKED_KIND="+packingNames[v.packing])
	}
	if v.gated {
		m.Defines = append(m.Defines, "GATES")
	}
	return m
}

// scalesOfChunk is the bytes of a row's scales that src/matmul_rows_packed.cu reads at once.
func scalesOfChunk(d kernels.DType) int {
	if d == kernels.NF4 {
		return 16
	}
	return 64
}

// scalesOfStep is the bytes that a chain reads at once.
const scalesOfStep = 16

// depthOfPackedStep is how much of the depth a step has.
func depthOfPackedStep(d kernels.DType) int {
	if d == kernels.Int8 {
		return 128
	}
	return 256
}

// depth is how much of it a step has.
func (v matmulRows) depth() int {
	if v.isPacked() {
		return depthOfPackedStep(v.packing)
	}
	return depthOfStep
}

// columns are those of a panel, of each of two weights where they are gated.
func (v matmulRows) columns() int {
	if v.isPacked() && !v.gated {
		return 2 * columnsOfPanel
	}
	return columnsOfPanel
}

// sharedBytes is Layout::bytes in the source: the ring's boxes of B and A, scales, what the blocks
// of a cluster send each other, and barriers.
func (v matmulRows) sharedBytes() int {
	const (
		mostBlocks = 8
		boxBytes   = 128 * columnsOfPanel
	)
	halves, stages, scales := 1, 8, 0
	if v.gated || v.isPacked() {
		halves, stages = 2, 4
	}
	if v.isPacked() {
		scales = 2 * halves * columnsOfPanel * scalesOfChunk(v.packing)
	}
	if v.packing == kernels.Int4 || v.packing == kernels.NF4 {
		stages = 3
	}
	if v.packing == kernels.NF4 { // its tables, and scales that were found
		scales += 256*8*4 + 256*4 + 4*2*columnsOfPanel*4
	}
	sums := halves * (mostRows*columnsOfPanel + mostBlocks)
	return stages*(halves*boxBytes+2*mostRows*v.depth()) + scales + 4*(sums+mostBlocks*mostRows) + 8*(2*stages+1)
}

// threads are those of a block: four warps that multiply, eight of packed matrices, and one that
// moves.
func (v matmulRows) threads() int {
	if v.isPacked() {
		return 288
	}
	return 160
}
