//go:build gpu

package cuda

// confinedPieces and confinedRows are how many pieces a warp of src/attention_confine.cuh looks at,
// and of how many rows.
const confinedPieces, confinedRows = 8, 16

// confineVariants are its kernels, one for each type of elements.
func confineVariants() []variant {
	var list []variant
	for _, e := range []element{elementF32, elementBF16, elementF16} {
		list = append(list, variant{
			source: "attention_confine", name: "attention_confine_" + listedElements[e], element: e, threads: 128, options: options{mod: true},
			defines: append(layout80{places: 2}.defines(), "TILE_WIDE=1"),
		})
	}
	return list
}
