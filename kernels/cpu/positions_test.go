package cpu_test

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cpu"
	"github.com/stheno-ml/stheno/kernels/reference"
	"pgregory.net/rapid"
)

func TestTokenPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch, length := rapid.IntRange(1, 4).Draw(t, "batch"), rapid.IntRange(1, 20).Draw(t, "length")
		padding := rapid.IntRange(0, 3).Draw(t, "padding")
		ids := rapid.SliceOfN(rapid.IntRange(0, 4), batch*length, batch*length).Draw(t, "ids")
		narrow, wide := make([]int32, batch*length), make([]int64, batch*length)
		p := kernels.TokenPositions{IDs: int32s(ids, batch, length), Padding: padding}
		if err := cpu.New().TokenPositions(&p, kernels.Of(narrow, batch, length)); err != nil {
			t.Fatal(err)
		}
		p.IDs = int64s(ids, batch, length)
		if err := cpu.New().TokenPositions(&p, kernels.Of(wide, batch, length)); err != nil {
			t.Fatal(err)
		}
		for i, want := range reference.TokenPositions(&p) {
			if int(narrow[i]) != want || int(wide[i]) != want {
				t.Fatalf("position %d is %d and %d, want %d", i, narrow[i], wide[i], want)
			}
		}
	})
	p := kernels.TokenPositions{IDs: int32s([]int{1, 1, 5, 1, 7, 1}, 1, 6), Padding: 1}
	if have, want := reference.TokenPositions(&p), []int{1, 1, 2, 1, 3, 1}; !slices.Equal(have, want) {
		t.Errorf("the reference has %v, want %v", have, want)
	}
}

func TestTokenPositionsErrors(t *testing.T) {
	b, ids, out := cpu.New(), int32s(make([]int, 6), 2, 3), kernels.Of(make([]int32, 6), 2, 3)
	checkErrors(t, []errorCase{
		{"cpu: token positions: padding is -1, it needs to be the id of a token", b.TokenPositions(&kernels.TokenPositions{IDs: ids, Padding: -1}, out)},
		{"cpu: token positions: ids has shape [6], it needs two axes (batch, length)",
			b.TokenPositions(&kernels.TokenPositions{IDs: int32s(make([]int, 6), 6)}, out)},
		{"cpu: token positions: positions is int64, it needs to be int32",
			b.TokenPositions(&kernels.TokenPositions{IDs: ids}, kernels.Of(make([]int64, 6), 2, 3))},
	})
}
