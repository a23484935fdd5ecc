package reference

import "github.com/stheno-ml/stheno/kernels"

// Embedding returns the table's row of each id, one after the other.
func Embedding[T kernels.Float](e *kernels.Embedding) []T {
	table, c := elements[T](e.Table), lastAxis(e.Table)
	var y []T
	for _, id := range indices(e.IDs) {
		y = append(y, table[id*c:][:c]...)
	}
	return y
}

// EmbeddingGrad returns the gradient of the table for the gradient dy of the rows, without what
// Accumulate adds it to.
func EmbeddingGrad[T kernels.Float](e *kernels.Embedding, dy []T) []T {
	c := lastAxis(e.Table)
	dTable := make([]T, e.Table.Elements())
	for i, id := range indices(e.IDs) {
		add(dTable[id*c:][:c], 1, dy[i*c:][:c])
	}
	return dTable
}
