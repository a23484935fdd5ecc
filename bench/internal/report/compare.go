package report

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/stheno-ml/stheno/bench/internal/measure"
)

// Change is what happened to a result between two reports.
type Change struct {
	Key              string
	Quantity         string
	Old, New         float64    // medians
	OldEnds, NewEnds [2]float64 // between which the true medians lie, see ends
	Shift            float64    // of the median, as a share of the old one; positive is slower, or larger
	Low, High        float64    // the interval of Shift
	P                float64    // the probability of samples that differ so much if nothing changed
}

// Significance and confidence of a comparison, as benchstat has them.
const (
	alpha      = 0.05
	confidence = 0.95
)

// Significant tells that the samples do not look like those of one distribution.
func (c Change) Significant() bool { return c.P < alpha }

// Agrees tells that the intervals of the two medians overlap.
func (c Change) Agrees() bool { return c.OldEnds[0] <= c.NewEnds[1] && c.NewEnds[0] <= c.OldEnds[1] }

// Regression tells that the result became worse, significantly, by more than a share of what it
// was, and by more than the sweeps of either run differ among themselves.
func (c Change) Regression(threshold float64) bool {
	return c.Significant() && c.Shift > threshold && !c.Agrees()
}

// Comparison is all that two reports have in common, and what only one of them has.
type Comparison struct {
	Changes          []Change
	OnlyOld, OnlyNew []string
	// Warnings are reasons to doubt it: other machines, other versions of Go, noise.
	Warnings []string
}

// Compare compares our results of two reports. With beside, times are first multiplied by the rate
// of the ceiling that was sampled in the same round: what is compared then is work that the ceiling
// could have done meanwhile, in which a clock that runs slower today does not show.
func Compare(old, new *Report, beside bool) Comparison {
	var c Comparison
	if old.Machine != new.Machine {
		c.Warnings = append(c.Warnings, fmt.Sprintf("the machines differ: %v, and %v", old.Machine, new.Machine))
	}
	if old.Go != new.Go {
		c.Warnings = append(c.Warnings, fmt.Sprintf("the versions of Go differ: %s, and %s", old.Go, new.Go))
	}
	for _, r := range []struct {
		name string
		r    *Report
	}{{"old", old}, {"new", new}} {
		for _, why := range r.r.Noise() {
			c.Warnings = append(c.Warnings, fmt.Sprintf("the %s run was noisy: %s", r.name, why))
		}
	}
	before := map[string]Result{}
	for _, r := range old.Results {
		if r.By == Ours {
			before[r.Key()] = r
		}
	}
	for _, r := range new.Results {
		if r.By != Ours {
			continue
		}
		was, ok := before[r.Key()]
		delete(before, r.Key())
		switch {
		case !ok:
			c.OnlyNew = append(c.OnlyNew, r.Key())
		case was.Quantity == r.Quantity:
			c.Changes = append(c.Changes, change(was, r, beside))
		}
	}
	for _, r := range old.Results {
		if _, left := before[r.Key()]; left && r.By == Ours {
			c.OnlyOld = append(c.OnlyOld, r.Key())
		}
	}
	return c
}

func change(was, is Result, beside bool) Change {
	a, b := []float64(was.Samples), []float64(is.Samples)
	quantity := is.Quantity
	if beside && len(was.Beside) > 0 && len(is.Beside) > 0 {
		a, b, quantity = timesCeiling(was), timesCeiling(is), "of ceiling"
	}
	c := Change{Key: is.Key(), Quantity: quantity, Old: measure.Median(a), New: measure.Median(b), P: measure.MannWhitney(a, b)}
	c.OldEnds, c.NewEnds = ends(a, was.Sweeps), ends(b, is.Sweeps)
	c.Shift, c.Low, c.High = measure.ShiftInterval(a, b, confidence, 1)
	return c
}

// ends are those of the interval that the true median lies in with some confidence, and of the
// medians of the sweeps: samples of one sweep are of one mood of the machine, and tell little about
// another.
func ends(samples []float64, sweeps []int) [2]float64 {
	low, high := measure.MedianInterval(samples, confidence)
	for _, n := range sweeps {
		n = min(n, len(samples))
		if n > 0 {
			middle := measure.Median(samples[:n])
			low, high = min(low, middle), max(high, middle)
		}
		samples = samples[n:]
	}
	return [2]float64{low, high}
}

// timesCeiling is how much the ceiling does in the time of each sample.
func timesCeiling(r Result) []float64 {
	all := make([]float64, min(len(r.Samples), len(r.Beside)))
	for i := range all {
		all[i] = r.Samples[i] * r.Beside[i]
	}
	return all
}

// Write prints the comparison and reports whether there is a regression beyond the threshold.
func (c Comparison) Write(w io.Writer, threshold float64) (regressed bool, err error) {
	for _, warning := range c.Warnings {
		fmt.Fprintln(w, "warning:", warning)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "case\told\tnew\tchange\t95% interval\tp\t")
	regressions, agree := 0, 0
	for _, x := range c.Changes {
		shift, interval, verdict := "~", "", ""
		if x.Significant() {
			shift = fmt.Sprintf("%+.1f%%", 100*x.Shift)
			interval = fmt.Sprintf("%+.1f%% to %+.1f%%", 100*x.Low, 100*x.High)
		}
		if x.Agrees() {
			agree++
		}
		if x.Regression(threshold) {
			regressions++
			verdict = "REGRESSION"
		}
		fmt.Fprintf(t, "%s\t%s %s\t%s %s\t%s\t%s\t%.3f\t%s\n", x.Key, quantity(x.Old, x.Quantity), around(x.Old, x.OldEnds),
			quantity(x.New, x.Quantity), around(x.New, x.NewEnds), shift, interval, x.P, verdict)
	}
	if err := t.Flush(); err != nil {
		return false, err
	}
	for _, key := range c.OnlyOld {
		fmt.Fprintln(w, "only in the old report:", key)
	}
	for _, key := range c.OnlyNew {
		fmt.Fprintln(w, "only in the new report:", key)
	}
	_, err = fmt.Fprintf(w, "%d compared, %d with medians whose intervals overlap, %d of the others worse by more than %.3g%% (p < %.2g)\n",
		len(c.Changes), agree, regressions, 100*threshold, alpha)
	return regressions > 0, err
}

// around writes how far the ends of an interval are from the middle, as a share of it.
func around(middle float64, ends [2]float64) string {
	off := max(middle-ends[0], ends[1]-middle) / middle
	if math.IsInf(off, 0) {
		return "± ∞"
	}
	return fmt.Sprintf("± %.0f%%", 100*off)
}

// quantity writes a number with its unit.
func quantity(x float64, of string) string {
	switch of {
	case Seconds:
		return duration(x)
	case Bytes:
		return size(x)
	}
	return fmt.Sprintf("%.4g", x)
}
