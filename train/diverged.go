package train

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/train/data"
)

// diverged is the error of a training whose last steps had losses that are not finite, or of which
// no step changed the weights. One such step may be its batch's fault, and has left the weights as
// they were.
func (l *Loop) diverged() error {
	skipped := l.stepper.skippedInARow
	switch {
	case skipped > 0 && skipped == l.done && l.c.Options.LossScaling == nil:
		return fmt.Errorf("no step changed the weights: none of %d had finite gradients%s", l.done, l.notFinite())
	case l.badSteps < 2:
		return nil
	}
	return fmt.Errorf("the losses of the last %d steps are not finite, so the weights are of no use: a smaller learning rate, "+
		"a warmup or clipped gradients may keep them so%s", l.badSteps, l.notFinite())
}

// notFinite says where this rank's batch of the last step holds what is not finite.
func (l *Loop) notFinite() string {
	n := l.stepper.batch(l.done-1+l.course.LeftOut, 0)
	b, err := batchOf(l.c.Data, n)
	if err != nil {
		return "" // it was read before, and what is told is another error
	}
	for _, name := range slices.Sorted(maps.Keys(b)) {
		if at, x, found := firstNotFinite(b, name); found {
			return fmt.Sprintf("; element %d of %s of batch %d is %v", at, name, n, x)
		}
	}
	return ""
}

func firstNotFinite(b data.Batch, name string) (at int, x float64, found bool) {
	isBad := func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) }
	switch list := b[name].Data().(type) {
	case []float32:
		if at = slices.IndexFunc(list, func(x float32) bool { return isBad(float64(x)) }); at >= 0 {
			return at, float64(list[at]), true
		}
	case []float64:
		if at = slices.IndexFunc(list, isBad); at >= 0 {
			return at, list[at], true
		}
	}
	return 0, 0, false
}
