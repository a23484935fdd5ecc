package train

import (
	"fmt"
	"time"

	"github.com/stheno-ml/stheno/train/distributed"
)

// This file finds the rank that keeps the others waiting.

// waiting is how long ranks wait for each other.
type waiting struct {
	before []time.Duration // of this rank for the others, when it was last asked
	step   []time.Duration // of the others for each rank, in the step that goes on, on average
}

// share is what this rank adds to what all have waited for each rank since it was last asked, in
// seconds.
func (w *waiting) share(g *distributed.Group) []float64 {
	now := g.Waited()
	seconds := make([]float64, len(now))
	for rank, d := range now {
		if len(w.before) == len(now) {
			d -= w.before[rank]
		}
		seconds[rank] = d.Seconds() / float64(len(now)-1)
	}
	w.before = now
	return seconds
}

// add takes what all have waited.
func (w *waiting) add(seconds []float64) {
	if len(w.step) != len(seconds) {
		w.step = make([]time.Duration, len(seconds))
	}
	for rank, s := range seconds {
		w.step[rank] += time.Duration(s * float64(time.Second))
	}
}

// take ends a step.
func (w *waiting) take() []time.Duration {
	list := w.step
	w.step = nil
	return list
}

// slowest sees which rank is slow, from the reports of steps.
type slowest struct {
	steps  int             // that were seen since the last look
	took   time.Duration   // all of them
	waited []time.Duration // for each rank
	late   []int           // in how many of them each rank kept the others waiting
	said   int             // 1 + the rank that people were told of
}

const (
	slowSteps  = 100 // between two looks
	slowMargin = 0.1 // of a step, that the others wait for a rank that is slow
	slowOften  = 0.8 // of the steps: now and then any rank is late
)

// see takes a step, and says what people should know.
func (s *slowest) see(took time.Duration, waited []time.Duration) string {
	if len(waited) != len(s.waited) {
		*s = slowest{waited: make([]time.Duration, len(waited)), late: make([]int, len(waited)), said: s.said}
	}
	s.steps++
	s.took += took
	for rank, d := range waited {
		if s.waited[rank] += d; d.Seconds() > slowMargin*took.Seconds() {
			s.late[rank]++
		}
	}
	if s.steps < slowSteps {
		return ""
	}
	seen := *s
	*s = slowest{said: s.said}
	for rank, n := range seen.late {
		if float64(n) >= slowOften*float64(seen.steps) && seen.said != 1+rank {
			s.said = 1 + rank
			return fmt.Sprintf("rank %d is slow: in the last %d steps the others waited %.0f%% of the time for it",
				rank, seen.steps, 100*seen.waited[rank].Seconds()/seen.took.Seconds())
		}
	}
	return ""
}
