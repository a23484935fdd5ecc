package measure

import "time"

// Clock tells the time that has passed since some moment.
type Clock func() time.Duration

// SystemClock is the machine's, from now on.
func SystemClock() Clock {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// Contender is something that is sampled in turns with others.
type Contender struct {
	Name string
	// Sample gives one sample, in a unit of its own: seconds, a rate.
	Sample func() (float64, error)
	// Most is the number of samples after which it leaves the turns, for what takes far longer than
	// the rest; 0 means all rounds.
	Most int
}

// Series is the samples of a contender, one a round.
type Series struct {
	Name    string
	Samples []float64
	// Err is why it left the turns; nil if it took part in every round.
	Err error
}

// Plan says how many rounds there are.
type Plan struct {
	Least, Most int
	Budget      time.Duration // once it is spent, and Least rounds are done, no other begins
}

// Divided is a plan for each of so many sweeps, which together take about as many samples.
func (p Plan) Divided(sweeps int) Plan {
	n := max(1, sweeps)
	return Plan{Least: (p.Least + n - 1) / n, Most: (p.Most + n - 1) / n, Budget: p.Budget / time.Duration(n)}
}

// Interleave takes samples in turns. A round before the first is not counted: it fills caches and
// finds out what does not work. The contenders take turns in being the first of a round, since what
// ran before leaves the caches and the clock's speed behind. One that fails gives no more samples,
// and its series has the error.
func Interleave(clock Clock, p Plan, contenders ...Contender) []Series {
	all := make([]Series, len(contenders))
	for i, c := range contenders {
		all[i].Name = c.Name
		_, all[i].Err = c.Sample()
	}
	start := clock()
	for round := 0; round < p.Most && (round < p.Least || clock()-start < p.Budget); round++ {
		for turn := range contenders {
			i := (round + turn) % len(contenders)
			if all[i].Err != nil || contenders[i].Most > 0 && len(all[i].Samples) == contenders[i].Most {
				continue
			}
			x, err := contenders[i].Sample()
			if err != nil {
				all[i].Err = err
				continue
			}
			all[i].Samples = append(all[i].Samples, x)
		}
	}
	return all
}

// Timed makes a function one whose time can be taken for a number of calls together.
func Timed(clock Clock, do func() error) func(times int) (seconds float64, err error) {
	return func(times int) (float64, error) {
		start := clock()
		for range times {
			if err := do(); err != nil {
				return 0, err
			}
		}
		return (clock() - start).Seconds(), nil
	}
}

// maxRepeats bounds a turn where a clock does not move.
const maxRepeats = 1 << 20

// Repeated is the sample of the seconds of one call, of work that is repeated until a turn takes at
// least the given seconds, so that the clock's step and the turn's beginning do not count. The
// first sample finds out how often.
func Repeated(turn float64, run func(times int) (seconds float64, err error)) func() (float64, error) {
	times := 0
	return func() (float64, error) {
		if times > 0 {
			seconds, err := run(times)
			return seconds / float64(times), err
		}
		for n := 1; ; {
			seconds, err := run(n)
			if err != nil {
				return 0, err
			}
			if seconds >= turn || n >= maxRepeats {
				times = n
				return seconds / float64(n), nil
			}
			more := 10.0
			if seconds > 0 {
				more = min(more, 1.2*turn/seconds)
			}
			n = min(maxRepeats, max(n+1, int(float64(n)*more)))
		}
	}
}
