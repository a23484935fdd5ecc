//go:build gpu

package cuda

// matmulRows is one compiled kernel of src/matmul_rows.cu: products of a few rows, for sm_90a.
type matmulRows struct {
	element element
	bRows   bool // B's rows are contiguous, rather than its columns
}

// Sizes of src/matmul_rows.cu.
const (
	mostRows         = 16
	columnsOfCluster = 64
	threadsOfRows    = 128
)

func matmulRowsVariants() []matmulRows {
	var list []matmulRows
	for _, e := range []element{elementBF16, elementF16} {
		list = append(list, matmulRows{e, false}, matmulRows{e, true})
	}
	return list
}

func (v matmulRows) name() string {
	return "matmul_rows_sm90" + map[element]string{elementBF16: "_bf16", elementF16: "_f16"}[v.element] +
		map[bool]string{false: "_nt", true: "_nn"}[v.bRows]
}

func (v matmulRows) module() compiledModule {
	m := compiledModule{Name: v.name(), Source: "matmul_rows.cu", Arch: "compute_90a"}
	m.Defines = []string{"KERNEL=" + m.Name, "ELEMENT=" + map[element]string{elementBF16: "BF16", elementF16: "F16"}[v.element]}
	if v.bRows {
		m.Defines = append(m.Defines, "B_ROWS")
	}
	return m
}
