package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/bench/internal/measure"
)

// Ours is the name of this module among those that are compared.
const Ours = "stheno"

// Format is the version of the file's form.
const Format = 1

// Report is one run on one machine.
type Report struct {
	Format    int
	Machine   Machine
	Go        string   // the version that the program was built with
	Revision  string   `json:",omitempty"` // of the source, where the build knows it
	Arguments []string // of the program
	Started   time.Time
	Took      time.Duration
	Peers     []string  `json:",omitempty"` // what was compared with, with versions
	Missing   []Missing `json:",omitempty"`
	Outputs   []Output  `json:",omitempty"`
	Sections  []Section
	Ceilings  []Ceiling
	Results   []Result
}

// Machine is where the run took place.
type Machine struct {
	CPU, OS, Arch string
	Vectors       string // the vector instructions in use
	Cores         int    // that the program could use
	Memory        int64  `json:",omitempty"` // bytes, 0 where unknown
	GPU           string `json:",omitempty"`
}

func (m Machine) String() string {
	s := fmt.Sprintf("%s, %d cores, %s/%s, vectors %s", m.CPU, m.Cores, m.OS, m.Arch, m.Vectors)
	if m.Memory > 0 {
		s += fmt.Sprintf(", %.0f GiB", float64(m.Memory)/(1<<30))
	}
	if m.GPU != "" {
		s += "; " + m.GPU
	}
	return s
}

// Output is what another program printed that measured in the same job.
type Output struct {
	Command string
	Text    string
}

// ReadOutput reads a file whose first line is a command behind "$ ", and whose other lines are what
// it printed.
func ReadOutput(path string) (Output, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Output{}, err
	}
	first, text, _ := strings.Cut(string(raw), "\n")
	command, isCommand := strings.CutPrefix(first, "$ ")
	if text = strings.Trim(text, "\n"); !isCommand || text == "" {
		return Output{}, fmt.Errorf("%s: it begins with %.40q, it needs to be a line of a command behind \"$ \", and what that printed", path, first)
	}
	return Output{command, text}, nil
}

// Missing is something that was not measured, and why.
type Missing struct{ What, Why string }

// Section is a part of the report: what its results have in common.
type Section struct {
	Name  string
	Title string
	Text  string // what was measured, and how
}

// Ceiling is all samples of what the machine can do at best, taken throughout the run.
type Ceiling struct {
	Name    string // FMA peak, copy
	Threads int    `json:",omitempty"`
	Unit    string // FLOP or B, a second
	Rates   Numbers
}

// Case is what was measured.
type Case struct {
	Section string
	Series  string  // what the case is one of: "forward, D=64, causal"
	Name    string  // within the series: "S=1024"
	Setup   string  `json:",omitempty"` // the sizes that Series and Name leave open
	Threads int     `json:",omitempty"`
	Figure  string  `json:",omitempty"` // the plot that shows it
	X       float64 `json:",omitempty"` // where in the plot
	Work    float64 `json:",omitempty"` // done by one call, in Unit
	Unit    string  `json:",omitempty"` // FLOP, B, token
	Ceiling string  `json:",omitempty"` // the name of what bounds it
	Limit   float64 `json:",omitempty"` // work that is counted against the ceiling, where it is not Work
}

// Result is the samples of one contender of a case.
type Result struct {
	Case
	By       string  // Ours, or what it is compared with
	Quantity string  // Seconds, or Bytes
	Samples  Numbers // of one call each
	Sweeps   []int   `json:",omitempty"` // how many of the samples each sweep took
	Beside   Numbers `json:",omitempty"` // the ceiling's rate in the round of each sample
	// Differs is the largest difference between the peer's results and ours, as a share of the
	// largest value.
	Differs *float64 `json:",omitempty"`
}

// Quantities of a Result.
const (
	Seconds = "seconds"
	Bytes   = "bytes"
)

// Key tells results apart within a report.
func (r Result) Key() string {
	key := r.Case.Key()
	if r.By != Ours {
		key += "/" + r.By
	}
	return key
}

// Key tells cases apart.
func (c Case) Key() string {
	key := c.Section
	for _, part := range []string{c.Series, c.Name} {
		if part != "" {
			key += "/" + part
		}
	}
	if c.Threads > 0 {
		key += fmt.Sprintf("/threads=%d", c.Threads)
	}
	return key
}

// Rate is the work a second, at the median time.
func (r Result) Rate() float64 { return r.Work / measure.Median(r.Samples) }

// Share is the median of the rates as shares of the ceiling beside them; NaN where there is none.
func (r Result) Share() float64 {
	if r.Quantity != Seconds || len(r.Beside) == 0 {
		return math.NaN()
	}
	work := r.Work
	if r.Limit > 0 {
		work = r.Limit
	}
	shares := make([]float64, min(len(r.Samples), len(r.Beside)))
	for i := range shares {
		shares[i] = work / r.Samples[i] / r.Beside[i]
	}
	return measure.Median(shares)
}

// Add adds a result, or its samples to those that are there of the same contender and case, and
// gives the whole.
func (r *Report) Add(x Result) Result {
	for i := range r.Results {
		known := &r.Results[i]
		if known.Key() != x.Key() {
			continue
		}
		known.Samples = append(known.Samples, x.Samples...)
		known.Sweeps = append(known.Sweeps, len(x.Samples))
		known.Beside = append(known.Beside, x.Beside...)
		if x.Differs != nil && (known.Differs == nil || *known.Differs < *x.Differs) {
			known.Differs = x.Differs
		}
		return *known
	}
	x.Sweeps = []int{len(x.Samples)}
	r.Results = append(r.Results, x)
	return x
}

// AddRates adds samples to a ceiling, which the first ones make.
func (r *Report) AddRates(name string, threads int, unit string, rates []float64) {
	for i := range r.Ceilings {
		if c := &r.Ceilings[i]; c.Name == name && c.Threads == threads {
			c.Rates = append(c.Rates, rates...)
			return
		}
	}
	r.Ceilings = append(r.Ceilings, Ceiling{Name: name, Threads: threads, Unit: unit, Rates: append(Numbers(nil), rates...)})
}

// DropUnused leaves out the ceilings of as many threads as no result has: those of the CPU where
// only a GPU was measured.
func (r *Report) DropUnused() {
	r.Ceilings = slices.DeleteFunc(r.Ceilings, func(c Ceiling) bool {
		return !slices.ContainsFunc(r.Results, func(x Result) bool { return x.Threads == c.Threads })
	})
}

// The bounds beyond which a run is called noisy: the distance of a ceiling's quartiles, and how far
// its median moved between the first and the last quarter of the run, as shares of its median.
const (
	MaxSpread = 0.10
	MaxDrift  = 0.05
)

// Spread is the distance of the quartiles as a share of the median.
func (c Ceiling) Spread() float64 { return measure.Summarize(c.Rates).Spread() }

// Drift is how far the median of the last quarter of the samples is from that of the first.
func (c Ceiling) Drift() float64 {
	quarter := (len(c.Rates) + 3) / 4
	if quarter == 0 {
		return math.NaN()
	}
	return measure.Median(c.Rates[len(c.Rates)-quarter:])/measure.Median(c.Rates[:quarter]) - 1
}

// Noise lists what makes the run a noisy one; a quiet run has none.
func (r *Report) Noise() []string {
	var all []string
	for _, c := range r.Ceilings {
		if spread := c.Spread(); spread > MaxSpread {
			all = append(all, fmt.Sprintf("the quartiles of %s are %.0f%% apart", c.title(), 100*spread))
		}
		if drift := c.Drift(); math.Abs(drift) > MaxDrift {
			all = append(all, fmt.Sprintf("%s moved by %+.0f%% from the first to the last quarter of the run", c.title(), 100*drift))
		}
	}
	return all
}

func (c Ceiling) title() string {
	if c.Threads == 0 {
		return c.Name
	}
	return fmt.Sprintf("%s on %s", c.Name, threads(c.Threads))
}

func threads(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}

// Numbers are written with six digits, which is more than any clock gives.
type Numbers []float64

// MarshalJSON writes a list on one line.
func (n Numbers) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	b.WriteByte('[')
	for i, x := range n {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, fmt.Errorf("sample %d is %v, it needs to be finite", i, x)
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatFloat(x, 'g', 6, 64))
	}
	b.WriteByte(']')
	return []byte(b.String()), nil
}

// Save writes the report, one result a line so that versions can be compared.
func (r *Report) Save(path string) error {
	var head, out bytes.Buffer
	short := *r
	short.Results, short.Ceilings = nil, nil
	if err := encode(&head, short); err != nil {
		return err
	}
	text := strings.TrimSuffix(strings.TrimSpace(head.String()), `,"Ceilings":null,"Results":null}`)
	out.WriteString(text + ",\n")
	if err := writeList(&out, "Ceilings", r.Ceilings); err != nil {
		return err
	}
	out.WriteString(",\n")
	if err := writeList(&out, "Results", r.Results); err != nil {
		return err
	}
	out.WriteString("}\n")
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// writeList writes a field of the file with each element on a line.
func writeList[T any](out *bytes.Buffer, name string, list []T) error {
	fmt.Fprintf(out, "%q:[", name)
	for i, x := range list {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('\n')
		if err := encode(out, x); err != nil {
			return err
		}
		out.Truncate(out.Len() - 1) // the line's end, which the encoder adds
	}
	out.WriteString("]")
	return nil
}

func encode(out *bytes.Buffer, x any) error {
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	return e.Encode(x)
}

// Load reads a report.
func Load(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Format != Format {
		return nil, fmt.Errorf("%s has format %d, it needs to be %d", path, r.Format, Format)
	}
	return r, nil
}
