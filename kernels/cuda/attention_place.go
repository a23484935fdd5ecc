//go:build gpu

package cuda

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels"
)

// This file computes attention of a part of a larger problem, whose dropout and slopes are those of
// the whole: with the kernels of a user's score that leaves scores as they are, compiled when such
// a problem is first met. See src/attention_user_places.cuh.

// isPlaced reports whether kernels need to know where the parts of a problem lie in a larger one.
func isPlaced(a *kernels.Attention) bool {
	return isDroppedElsewhere(a) || isSlopedElsewhere(a)
}

// isDroppedElsewhere reports whether dropout's counters are not those of the problem by itself.
func isDroppedElsewhere(a *kernels.Attention) bool {
	return a.Places != nil && a.Dropout.Threshold() > 0 && slices.ContainsFunc(a.Sequences(), func(s kernels.Sequence) bool {
		return s.Place != kernels.Place{Sequence: s.Index}
	})
}

// isSlopedElsewhere reports whether distances for slopes are not those of the problem by itself.
func isSlopedElsewhere(a *kernels.Attention) bool {
	return a.Places != nil && a.ALiBi != nil && slices.ContainsFunc(a.Sequences(), func(s kernels.Sequence) bool { return s.Distance != s.Sk-s.Sq })
}

// userPlaces is how kernels are told of places: a UserPlaces of src/attention_user_places.cuh.
// Dropout draws for eight columns together.
func userPlaces(a *kernels.Attention) int {
	const byEights, anywhere = 1, 2
	if a.Dropout.P > 0 && slices.ContainsFunc(a.Places, func(p kernels.Place) bool { return p.Column%8 != 0 }) {
		return anywhere
	}
	return byEights
}

// places gives the places to the device.
func (c *attention) places() (readable, error) {
	var list []int32
	for _, s := range c.Sequences() {
		list = append(list, int32(s.Place.Sequence), int32(s.Place.Row), int32(s.Place.Column), int32(s.Distance))
	}
	return pin(c, list)
}
