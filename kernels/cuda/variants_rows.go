//go:build gpu

package cuda

// matmulRows is one compiled kernel of src/matmul_rows.cu: products of a few rows, for sm_90a.
type matmulRows struct {
	element element
	bRows   bool // B's rows are contiguous, rather than its columns
	gated   bool // it is two products, of which one gates the other
}

// Sizes of src/matmul_rows.cu.
const (
	mostRows       = 16
	columnsOfPanel = 64
	depthOfStep    = 64
	threadsOfRows  = 160
)

func matmulRowsVariants() []matmulRows {
	var list []matmulRows
	for _, e := range []element{elementBF16, elementF16} {
		for _, gated := range []bool{false, true} {
			list = append(list, matmulRows{e, false, gated}, matmulRows{e, true, gated})
		}
	}
	return list
}

func (v matmulRows) name() string {
	return "matmul_rows_sm90" + map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[v.element] +
		map[bool]string{false: "_nt", true: "_nn"}[v.bRows] + map[bool]string{false: "", true: "_gated"}[v.gated]
}

func (v matmulRows) module() compiledModule {
	m := compiledModule{Name: v.name(), Source: "matmul_rows.cu", Arch: "compute_90a"}
	m.Defines = []string{"KERNEL=" + m.Name, map[element]string{elementBF16: "ELEMENT_BF16", elementF16: "ELEMENT_F16"}[v.element]}
	if v.bRows {
		m.Defines = append(m.Defines, "B_ROWS")
	}
	if v.gated {
		m.Defines = append(m.Defines, "GATES")
	}
	return m
}

// sharedBytes is Layout::bytes in the source: the ring's boxes of B and A, what the blocks of a
// cluster send each other, and barriers.
func (v matmulRows) sharedBytes() int {
	const (
		mostBlocks = 8
		boxes      = 8 // of B
		boxBytes   = 2 * depthOfStep * columnsOfPanel
		rowsBytes  = 2 * mostRows * depthOfStep
	)
	halves := 1
	if v.gated {
		halves = 2
	}
	stages := boxes / halves
	sums := halves * (mostRows*columnsOfPanel + mostBlocks)
	return boxes*boxBytes + stages*rowsBytes + 4*(sums+mostBlocks*mostRows) + 8*(2*stages+1)
}
