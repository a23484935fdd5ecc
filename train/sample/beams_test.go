package sample

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// sameLogits is a model that gives each text the same logits.
type sameLogits struct {
	texts  int
	logits []float64
}

func (d *sameLogits) Batch() int { return d.texts }

func (d *sameLogits) Logits([][]int) ([][]float64, error) {
	return slices.Repeat([][]float64{d.logits}, d.texts), nil
}

func (d *sameLogits) Fork(int, int, int) error { return nil }
func (d *sameLogits) Truncate(int, int) error  { return nil }

// Logits by which no token follows end the search as they end a Sampler's choice. A logit of −∞ is
// that of a token that never follows.
func TestBeamsOfHostileLogits(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for want, logits := range map[string][]float64{
		"the logit of token 2 is NaN or +Inf": {1, 2, nan}, "the logit of token 0 is NaN or +Inf": {inf, 2, 1},
		"all logits are -Inf": {-inf, -inf, -inf}, "": {-inf, 1, -inf},
	} {
		for texts := 1; texts < 3; texts++ {
			have, err := Beams(&sameLogits{texts, logits}, []int{1}, BeamOptions{MaxTokens: 2, End: -1})
			switch {
			case want == "" && (err != nil || !slices.Equal(have, []int{1, 1})):
				t.Errorf("%v: %v, %v, want tokens 1", logits, have, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%v: %v, %v, want %q in it", logits, have, err, want)
			}
		}
	}
}
