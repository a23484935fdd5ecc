package reference

import "github.com/stheno-ml/stheno/kernels"

// TokenPositions returns the position of each token behind that of padding, row by row.
func TokenPositions(p *kernels.TokenPositions) []int {
	length, n := lastAxis(p.IDs), 0
	var positions []int
	for i, id := range indices(p.IDs) {
		if i%length == 0 {
			n = 0
		}
		if id == p.Padding {
			positions = append(positions, p.Padding)
			continue
		}
		n++
		positions = append(positions, p.Padding+n)
	}
	return positions
}
