package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/bench/internal/measure"
)

// Markdown is the page that people read. Its plots are the files of [Report.Figures], in the same
// folder.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Benchmarks\n\n")
	if noise := r.Noise(); len(noise) > 0 {
		fmt.Fprintf(&b, "**This run was noisy**: %s. A quiet run has quartiles within %.0f%% and moves by no more than %.0f%%. "+
			"Shares of a ceiling are ratios of neighbouring samples and suffer less than times.\n\n",
			strings.Join(noise, "; "), 100*MaxSpread, 100*MaxDrift)
	}
	b.WriteString(r.Header())
	b.WriteString("\n## Ceilings\n\nWhat the machine can do at best, sampled in turns with everything below.\n\n")
	b.WriteString(r.CeilingTable())
	if len(r.Missing) > 0 {
		b.WriteString("\n## Missing\n\n")
		for _, m := range r.Missing {
			fmt.Fprintf(&b, "- %s: %s\n", m.What, m.Why)
		}
	}
	figures := r.Figures()
	for _, s := range r.Sections {
		results := r.of(s.Name)
		if len(results) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", s.Title, s.Text)
		for _, f := range figures {
			if f.section == s.Name {
				fmt.Fprintf(&b, "![%s](%s)\n\n", f.Title, f.File())
			}
		}
		b.WriteString(fullTable(results))
	}
	if len(r.Outputs) > 0 {
		b.WriteString("\n## In the same job\n\nWhat other programs printed, in the same job on the same machine where a line names no other. Where that has several GPUs, some of them ran side by side, each on a GPU of its own.\n")
	}
	for _, o := range r.Outputs {
		fmt.Fprintf(&b, "\n`%s`\n\n```\n%s\n```\n", o.Command, o.Text)
	}
	return b.String()
}

// Header is where, when and how.
func (r *Report) Header() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v. %s", r.Machine, r.Go)
	if r.Revision != "" {
		fmt.Fprintf(&b, ", revision %s", r.Revision)
	}
	fmt.Fprintf(&b, ". %s, took %v: `bench %s`.", r.Started.UTC().Format("2006-01-02 15:04 UTC"), r.Took.Round(time.Second), strings.Join(r.Arguments, " "))
	if len(r.Peers) > 0 {
		fmt.Fprintf(&b, " Compared with %s.", strings.Join(r.Peers, "; "))
	}
	b.WriteString("\n")
	return b.String()
}

// CeilingTable has a line for each ceiling.
func (r *Report) CeilingTable() string {
	var t table
	t.row("", "threads", "median", "quartiles", "drift", "samples")
	for _, c := range r.Ceilings {
		s := measure.Summarize(c.Rates)
		t.row(c.Name, count(c.Threads), rate(s.Median, c.Unit), rate(s.Lower, c.Unit)+" to "+rate(s.Upper, c.Unit),
			fmt.Sprintf("%+.1f%%", 100*c.Drift()), fmt.Sprint(s.N))
	}
	return t.String()
}

// of is the results of a section.
func (r *Report) of(section string) []Result {
	var all []Result
	for _, x := range r.Results {
		if x.Section == section {
			all = append(all, x)
		}
	}
	return all
}

// fullTable has a line for each result.
func fullTable(results []Result) string {
	ours := map[string]Result{}
	for _, r := range results {
		if r.By == Ours {
			ours[r.Case.Key()] = r
		}
	}
	var t table
	t.row("", "", "threads", "by", "median", "quartiles", "samples", "rate", "of ceiling", "ours is", "results differ by")
	for _, r := range results {
		s := measure.Summarize(r.Samples)
		work, ratio, differs := "", "", ""
		if r.Work > 0 {
			work = rate(r.Rate(), r.Unit)
		}
		if o, ok := ours[r.Case.Key()]; ok && r.By != Ours {
			ratio = number(measure.Median(measure.Ratios(o.Samples, r.Samples))) + " of it"
		}
		if r.Differs != nil {
			differs = fmt.Sprintf("%.1e", *r.Differs)
		}
		share := percent(r.Share())
		if share != "" {
			share += " of " + r.Ceiling
		}
		t.row(joined(r.Series, r.Setup), r.Name, count(r.Threads), r.By, quantity(s.Median, r.Quantity),
			quantity(s.Lower, r.Quantity)+" to "+quantity(s.Upper, r.Quantity), fmt.Sprint(s.N), work, share, ratio, differs)
	}
	t.dropEmpty()
	return t.String()
}

// Grid is a section as a table with the names of cases across, and their series and contenders
// down, at the largest number of threads. A cell has the rate and the share of the ceiling; results
// in bytes have their size.
func (r *Report) Grid(section string) string {
	results := r.most(section)
	names := unique(results, func(x Result) string { return x.Name })
	lines := unique(results, func(x Result) string { return label(x) })
	cells := map[[2]string]string{}
	for _, x := range results {
		cells[[2]string{label(x), x.Name}] = cell(x, true)
	}
	return grid(lines, names, cells)
}

// BesidePeer is a section as a table with the names of cases across and their series down, of those
// that a peer has too, at the largest number of threads. A cell has our rate and how often the
// peer's that is; it is empty where there are none. Where series is not empty, only those are in
// the table that have it between their commas.
func (r *Report) BesidePeer(section, series, peer string) string {
	results := r.most(section)
	ours := map[string]Result{}
	for _, x := range results {
		if x.By == Ours {
			ours[x.Case.Key()] = x
		}
	}
	results = slices.DeleteFunc(results, func(x Result) bool {
		among := series == "" || slices.Contains(strings.Split(x.Series, ", "), series)
		return x.By != peer || ours[x.Case.Key()].Work == 0 || !among
	})
	if len(results) == 0 {
		return ""
	}
	cells := map[[2]string]string{}
	for _, x := range results {
		o := ours[x.Case.Key()]
		cells[[2]string{x.Series, x.Name}] = fmt.Sprintf("%s (%.2f)", rate(o.Rate(), o.Unit), measure.Median(measure.Ratios(x.Samples, o.Samples)))
	}
	return grid(unique(results, func(x Result) string { return x.Series }), unique(results, func(x Result) string { return x.Name }), cells)
}

// List is a section as a table with cases down, and contenders and numbers of threads across. A
// cell has the time and the share of the ceiling.
func (r *Report) List(section string) string {
	results := r.of(section)
	column := func(x Result) string {
		if x.Threads == 0 {
			return x.By
		}
		return x.By + ", " + threads(x.Threads)
	}
	line := func(x Result) string { return joined(x.Series, x.Name) }
	cells := map[[2]string]string{}
	for _, x := range results {
		cells[[2]string{line(x), column(x)}] = cell(x, false)
	}
	return grid(unique(results, line), unique(results, column), cells)
}

// most is the results of a section at the largest number of threads that it has.
func (r *Report) most(section string) []Result {
	results, largest := r.of(section), 0
	for _, x := range results {
		largest = max(largest, x.Threads)
	}
	var all []Result
	for _, x := range results {
		if x.Threads == largest {
			all = append(all, x)
		}
	}
	return all
}

// label is the series of a result and, if it is not ours, whose it is.
func label(r Result) string {
	if r.By == Ours {
		return r.Series
	}
	return joined(r.Series, r.By)
}

func cell(r Result, byRate bool) string {
	s := quantity(measure.Median(r.Samples), r.Quantity)
	if byRate && r.Work > 0 {
		s = rate(r.Rate(), r.Unit)
	}
	if share := r.Share(); !math.IsNaN(share) {
		s += " (" + percent(share) + ")"
	}
	return s
}

func grid(lines, columns []string, cells map[[2]string]string) string {
	var t table
	t.row(append([]string{""}, columns...)...)
	for _, l := range lines {
		cols := []string{l}
		for _, c := range columns {
			cols = append(cols, cells[[2]string{l, c}])
		}
		t.row(cols...)
	}
	return t.String()
}

// unique lists the different values of a property, in the order of their first appearance.
func unique(results []Result, of func(Result) string) []string {
	seen := map[string]bool{}
	var all []string
	for _, r := range results {
		if v := of(r); !seen[v] {
			seen[v] = true
			all = append(all, v)
		}
	}
	return all
}

func joined(parts ...string) string {
	var some []string
	for _, p := range parts {
		if p != "" {
			some = append(some, p)
		}
	}
	return strings.Join(some, ", ")
}

// count writes a number of threads, and nothing for none.
func count(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// table is a table of Markdown; its first row is the head.
type table struct{ rows [][]string }

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// dropEmpty leaves out the columns that have nothing below the head.
func (t *table) dropEmpty() {
	for column := len(t.rows[0]) - 1; column >= 0; column-- {
		empty := !slices.ContainsFunc(t.rows[1:], func(row []string) bool { return row[column] != "" })
		for i := range t.rows {
			if empty {
				t.rows[i] = slices.Delete(t.rows[i], column, column+1)
			}
		}
	}
}

func (t *table) String() string {
	var b strings.Builder
	for i, row := range t.rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat(" --- |", len(row)) + "\n")
		}
	}
	return b.String()
}

// Line is a result in one line, for a terminal.
func (r Result) Line() string {
	s := measure.Summarize(r.Samples)
	line := fmt.Sprintf("%-72s %10s", r.Key(), quantity(s.Median, r.Quantity))
	if r.Work > 0 {
		line += fmt.Sprintf("  %14s", rate(r.Rate(), r.Unit))
	}
	if share := percent(r.Share()); share != "" {
		line += fmt.Sprintf("  %s of %s", share, r.Ceiling)
	}
	return line
}
