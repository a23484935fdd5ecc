package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels/cpu"
)

// session is one run of the program: what it measures with, and what it has found.
type session struct {
	options
	report   *report.Report
	clock    measure.Clock
	plan     measure.Plan // of a sweep
	sweep    int          // which one it is, from 0 on
	peerList []*peer
	from, to []byte                  // what the ceiling of memory copies
	large    []float32               // what the ceiling of reading reads; see matrix
	gemm16   func() (float64, error) // the ceiling of 16-bit products on the GPU, nil where nothing measures it
	messages io.Writer

	interrupted atomic.Bool
	matched     bool // some case is what -run asks for
}

// The names of ceilings.
const (
	fma      = "FMA peak"
	copying  = "copy"
	reading  = "read"
	gemmRate = "GEMM 1024³"
	gemm16   = "bf16 GEMM" // of the GPU, by PyTorch
)

const (
	// turn is the shortest time of a sample in seconds; shorter work is repeated.
	turn = 2e-3
	// copySize is the bytes that a sample of the copy's rate reads: more than the caches hold.
	copySize = 64 << 20
)

func newSession(o options, args []string, messages io.Writer) (*session, error) {
	o.sweeps = max(1, o.sweeps)
	s := &session{
		options: o, clock: measure.SystemClock(), messages: messages,
		plan: measure.Plan{Least: 6, Most: 20, Budget: 1500 * time.Millisecond},
		from: make([]byte, copySize), to: make([]byte, copySize),
		report: &report.Report{Format: report.Format, Machine: thisMachine(), Go: runtime.Version(), Revision: revision(), Arguments: args, Started: time.Now()},
	}
	if o.quick {
		s.plan = measure.Plan{Least: 3, Most: 6, Budget: 200 * time.Millisecond}
	}
	if o.budget > 0 {
		s.plan.Budget = o.budget
	}
	s.plan = s.plan.Divided(o.sweeps)
	for i := range s.from {
		s.from[i] = byte(i)
	}
	if o.peers {
		s.openPeers()
	}
	return s, nil
}

func (s *session) close() {
	for _, p := range s.peerList {
		p.close()
	}
}

// end completes the report.
func (s *session) end() *report.Report {
	s.report.Took = time.Since(s.report.Started)
	s.report.DropUnused()
	return s.report
}

// section begins a part of the report, or goes on with it in a later sweep.
func (s *session) section(name, title, text string) {
	if s.sweep > 0 {
		return
	}
	s.report.Sections = append(s.report.Sections, report.Section{Name: name, Title: title, Text: text})
}

// missing notes what could not be measured, once.
func (s *session) missing(what string, why error) {
	m := report.Missing{What: what, Why: strings.TrimSpace(why.Error())}
	for _, known := range s.report.Missing {
		if known == m {
			return
		}
	}
	s.report.Missing = append(s.report.Missing, m)
}

// wants reports whether -run asks for a case, and there is time for it.
func (s *session) wants(c report.Case) bool {
	if !s.match.MatchString(c.Key()) {
		return false
	}
	s.matched = true
	if s.interrupted.Load() {
		s.missing("some of what was asked for", errors.New("the run was interrupted"))
		return false
	}
	return true
}

// checkMatched returns an error if -run matched no case.
func (s *session) checkMatched() error {
	if s.matched {
		return nil
	}
	return fmt.Errorf("-run is %q, which no case's name matches: it needs to be part of one, such as attention/forward", s.match)
}

// endOnInterrupt makes the first interrupt end the run after the case that is being measured, with
// a report; the second one ends the program.
func (s *session) endOnInterrupt() (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	go func() {
		if _, ok := <-signals; ok {
			s.interrupted.Store(true)
			signal.Stop(signals)
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
	}
}

// contender is one of those that do the work of a case.
type contender struct {
	by  string
	run func(times int) (seconds float64, err error)
	// differs, if given, is how far its results are from ours, asked once the samples are taken.
	differs func() (float64, error)
	// most bounds the number of its samples, which are all taken in the first sweep; 0 does not.
	most int
}

// ours makes a contender of a function of this module.
func (s *session) ours(do func() error) contender {
	return contender{by: report.Ours, run: measure.Timed(s.clock, do)}
}

// measure samples the contenders of a case in turns with its ceiling. A peer that fails is noted as
// missing; if the first contender, ours, fails, that is an error.
func (s *session) measure(c report.Case, contenders ...contender) error {
	defer s.useThreads(c.Threads)()
	var list []measure.Contender
	ceiling, unit := s.ceiling(c.Ceiling, c.Threads)
	if ceiling != nil {
		list = append(list, measure.Contender{Name: c.Ceiling, Sample: ceiling})
	}
	if s.sweep > 0 {
		contenders = slices.DeleteFunc(contenders, func(x contender) bool { return x.most > 0 })
	}
	for _, x := range contenders {
		list = append(list, measure.Contender{Name: x.by, Sample: measure.Repeated(turn, x.run), Most: x.most})
	}
	series := measure.Interleave(s.clock, s.plan, list...)
	var beside []float64
	if ceiling != nil {
		if err := series[0].Err; err != nil {
			return fmt.Errorf("%s: %s: %w", c.Key(), c.Ceiling, err)
		}
		beside = series[0].Samples
		s.report.AddRates(c.Ceiling, c.Threads, unit, beside)
		series = series[1:]
	}
	for i, x := range series {
		if x.Err != nil {
			if i == 0 {
				return fmt.Errorf("%s: %w", c.Key(), x.Err)
			}
			s.missing(fmt.Sprintf("%s, %s, %s", x.Name, c.Section, c.Series), x.Err)
			continue
		}
		r := report.Result{Case: c, By: x.Name, Quantity: report.Seconds, Samples: x.Samples, Beside: beside[:min(len(beside), len(x.Samples))]}
		if differs := contenders[i].differs; differs != nil {
			d, err := differs()
			if err != nil {
				s.missing("results of "+x.Name+", "+c.Key(), err)
			} else {
				r.Differs = &d
			}
		}
		s.add(r)
	}
	return nil
}

// add notes a result, or a sweep's part of it, and shows it.
func (s *session) add(r report.Result) {
	fmt.Fprintln(s.messages, s.report.Add(r).Line())
}

// ceiling is the sample of a ceiling's rate, nil for a case that has none.
func (s *session) ceiling(name string, threads int) (sample func() (float64, error), unit string) {
	switch name {
	case fma:
		return func() (float64, error) { return cpu.PeakRate[float32](threads, 2*time.Millisecond) }, "FLOP"
	case copying:
		return func() (float64, error) { return copyRate(threads, s.to, s.from), nil }, "B"
	case reading:
		return func() (float64, error) { return cpu.ReadRate(threads, s.large) }, "B"
	case gemmRate:
		return gemmSample(s.clock, threads), "FLOP"
	case gemm16:
		return s.gemm16, "FLOP"
	}
	return nil, ""
}

// useThreads sets how many threads Go has, for what takes it from there, and clears garbage out of
// the way.
func (s *session) useThreads(n int) (restore func()) {
	runtime.GC()
	if n < 1 {
		return func() {}
	}
	before := runtime.GOMAXPROCS(n)
	return func() { runtime.GOMAXPROCS(before) }
}

// ceilings samples every ceiling on every number of threads.
func ceilings(s *session) error {
	rounds := max(1, 12/s.sweeps)
	for _, threads := range s.threads {
		restore := s.useThreads(threads)
		var list []measure.Contender
		var units []string
		for _, name := range []string{fma, gemmRate, copying} {
			sample, unit := s.ceiling(name, threads)
			list, units = append(list, measure.Contender{Name: name, Sample: sample}), append(units, unit)
		}
		for i, x := range measure.Interleave(s.clock, measure.Plan{Least: rounds, Most: rounds}, list...) {
			if x.Err != nil {
				return x.Err
			}
			s.report.AddRates(x.Name, threads, units[i], x.Samples)
		}
		restore()
	}
	return nil
}

// revision is that of the source, as far as the build knows it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", with changes"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}

// thisMachine describes the machine as far as the operating system tells.
func thisMachine() report.Machine {
	m := report.Machine{CPU: "unknown CPU", OS: runtime.GOOS, Arch: runtime.GOARCH, Vectors: cpu.VectorLevel(), Cores: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		field := func(name string) string {
			found := regexp.MustCompile(`(?m)^` + name + `\s*: (.*)$`).FindSubmatch(text)
			if found == nil {
				return ""
			}
			return string(found[1])
		}
		if name := field("model name"); name != "" {
			m.CPU = fmt.Sprintf("%s (family %s, model %s)", name, field("cpu family"), field("model"))
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kilobytes int64
		if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kilobytes); err == nil {
			m.Memory = kilobytes << 10
		}
	}
	m.GPU = gpuName()
	return m
}
