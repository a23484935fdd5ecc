package watch

import (
	"math"

	"github.com/stheno-ml/stheno/internal/chart"
	"github.com/stheno-ml/stheno/train"
)

// curve holds what a picture of a run's losses needs, which stops growing with the number of steps:
// the steps are in buckets of equal size, and when there are too many buckets, each takes in its
// neighbour.
type curve struct {
	buckets    []bucket
	perBucket  int     // steps
	meanSpan   float64 // steps
	validation []chart.Point
	best       float64 // the smallest of validation
	metrics    map[string]*measured
}

// measured is what evaluations made of a metric.
type measured struct{ training, validation []chart.Point }

// isCurve reports whether there is more to show than a single step.
func (c *curve) isCurve() bool { return len(c.buckets) > 1 || len(c.validation) > 1 }

// bucket is a number of steps in a row.
type bucket struct {
	step     int // the last
	steps    int
	min, max float64
	sum      float64
}

// maxBuckets is even, and so large that half of it is still one for each pixel from left to right.
const maxBuckets = 2048

// newCurve makes the curve of a run that ends at a step.
func newCurve(steps int) *curve {
	const meanShare, leastSpan = 100, 5
	return &curve{perBucket: 1, meanSpan: max(float64(steps)/meanShare, leastSpan), best: math.Inf(1)}
}

func (c *curve) step(s train.Step) {
	if !finite(s.Loss) {
		return
	}
	if n := len(c.buckets); n == 0 || c.buckets[n-1].steps == c.perBucket {
		if n == maxBuckets {
			c.halve()
		}
		c.buckets = append(c.buckets, bucket{min: s.Loss, max: s.Loss})
	}
	last := &c.buckets[len(c.buckets)-1]
	*last = last.and(bucket{step: s.Done, steps: 1, min: s.Loss, max: s.Loss, sum: s.Loss})
}

// and joins a bucket with the next.
func (b bucket) and(next bucket) bucket {
	return bucket{
		step: next.step, steps: b.steps + next.steps, min: min(b.min, next.min), max: max(b.max, next.max), sum: b.sum + next.sum,
	}
}

// halve joins neighbours. The buckets are full and even in number.
func (c *curve) halve() {
	half := c.buckets[:0]
	for i := 0; i < len(c.buckets); i += 2 {
		half = append(half, c.buckets[i].and(c.buckets[i+1]))
	}
	c.buckets = half
	c.perBucket *= 2
}

func (c *curve) evaluation(e train.Evaluation) {
	c.measure(e.Done, e.TrainMetrics, func(m *measured) *[]chart.Point { return &m.training })
	c.measure(e.Done, e.ValidationMetrics, func(m *measured) *[]chart.Point { return &m.validation })
	if !finite(e.Validation) {
		return
	}
	c.validation = append(c.validation, chart.Point{X: float64(e.Done), Y: e.Validation})
	c.best = min(c.best, e.Validation)
}

// measure adds what an evaluation made of metrics to their lines.
func (c *curve) measure(done int, metrics map[string]float64, line func(*measured) *[]chart.Point) {
	for name, x := range metrics {
		if !finite(x) {
			continue
		}
		if c.metrics == nil {
			c.metrics = map[string]*measured{}
		}
		if c.metrics[name] == nil {
			c.metrics[name] = &measured{}
		}
		points := line(c.metrics[name])
		*points = append(*points, chart.Point{X: float64(done), Y: x})
	}
}

// points are those of the lines: the training loss between its bounds, its mean, and the validation
// loss.
func (c *curve) points() (training, mean, validation []chart.Point) {
	means := c.means()
	for i, b := range c.buckets {
		x := float64(b.step)
		training = append(training, chart.Point{X: x, Y: b.min})
		if b.max != b.min {
			training = append(training, chart.Point{X: x, Y: b.max})
		}
		mean = append(mean, chart.Point{X: x, Y: means[i]})
	}
	return training, mean, c.validation
}

// means are the mean losses around each bucket. They look ahead as far as back, so that they do not
// lag behind a loss that falls, and no further than there are steps before: the first mean is the
// first loss. At the end they look back alone.
func (c *curve) means() []float64 {
	// A window of that many buckets on either side smooths about as much as weights that fall by e
	// over the span.
	reach := int(math.Ceil(c.meanSpan / float64(c.perBucket)))
	sums, steps := make([]float64, len(c.buckets)+1), make([]float64, len(c.buckets)+1)
	for i, b := range c.buckets {
		sums[i+1], steps[i+1] = sums[i]+b.sum, steps[i]+float64(b.steps)
	}
	means := make([]float64, len(c.buckets))
	for i := range means {
		back := min(reach, i)
		from, to := i-back, min(i+back+1, len(means))
		means[i] = (sums[to] - sums[from]) / (steps[to] - steps[from])
	}
	return means
}
