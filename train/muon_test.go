package train

import (
	"slices"
	"testing"
)

// Matrices that are computed together have one smaller side, each list of them one shape, and no
// group is larger than it may be for its ranks.
func TestMatricesTogether(t *testing.T) {
	var shapes [][]int
	for range 30 {
		shapes = append(shapes, []int{2048, 5632}, []int{5632, 2048}, []int{2048, 2048}, []int{2048, 256}, []int{7, 9}, []int{9, 7})
	}
	shapes = append(shapes, []int{20000, 30000}) // more than a group may have
	for ranks, want := range map[int]int{1: 12 + 1 + 1 + 1, 3: 4 + 1 + 1 + 1} {
		groups := together(shapes, ranks)
		if len(groups) != want {
			t.Errorf("%d ranks: there are %d groups, want %d", ranks, len(groups), want)
		}
		var all []int
		for _, lists := range groups {
			squares, side := 0, slices.Min(shapes[lists[0][0]])
			for _, list := range lists {
				for _, i := range list {
					if !slices.Equal(shapes[i], shapes[list[0]]) || slices.Min(shapes[i]) != side {
						t.Errorf("%d ranks: %v is with %v and with the smaller side %d", ranks, shapes[i], shapes[list[0]], side)
					}
					squares += side * side
				}
				all = append(all, list...)
			}
			if squares > ranks<<25 && len(lists)*len(lists[0]) > 1 {
				t.Errorf("%d ranks: squares of side %d have %d elements", ranks, side, squares)
			}
		}
		slices.Sort(all)
		for i := range all {
			if all[i] != i || len(all) != len(shapes) {
				t.Fatalf("%d ranks: matrices are %v", ranks, all)
			}
		}
	}
}
