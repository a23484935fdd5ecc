package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/bench/internal/report"
)

func main() {
	regressed, err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	case regressed:
		os.Exit(1)
	}
}

// options are what to measure, and how.
type options struct {
	quick         bool
	sweeps        int           // how often everything is measured
	budget        time.Duration // for the samples of a case
	match         *regexp.Regexp
	threads       []int
	peers         bool
	python, gomlx string
}

// run does what the arguments say. It reports whether a comparison found a regression.
func run(args []string, out, messages io.Writer) (regressed bool, err error) {
	if len(args) > 0 && args[0] == memoryCommand {
		return false, memoryChild(args[1:], out)
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var o options
	flags.BoolVar(&o.quick, "quick", false, "fewer and smaller cases, fewer samples")
	flags.IntVar(&o.sweeps, "sweeps", 0, "how `often` to measure everything, one time after the other, with as many samples in all (default 3, with -quick 1)")
	flags.DurationVar(&o.budget, "budget", 0, "`time` for the samples of a case, which has a few in any case (default 1.5s, with -quick 0.2s)")
	folder := flags.String("out", "bench-report", "`folder` for the report")
	match := flags.String("run", "", "measure cases whose name matches this regular `expression` only")
	threads := flags.String("threads", "", "numbers of threads, such as 1,2 (default: 1 and all cores)")
	flags.BoolVar(&o.peers, "peers", false, "compare with PyTorch and GoMLX")
	flags.StringVar(&o.python, "python", "python3", "`command` for -peers that runs Python with PyTorch")
	flags.StringVar(&o.gomlx, "gomlx", "", "`program` for -peers, built from bench/gomlx (default: it is built now)")
	compare := flags.Bool("compare", false, "compare two reports: -compare old.json new.json")
	threshold := flags.String("threshold", "5%", "with -compare, fail where something became worse by more than this")
	beside := flags.Bool("of-ceiling", false, "with -compare, compare times as shares of the ceiling beside them")
	readme := flags.String("readme", "", "put this `report` into bench/results, and what is made from it into README.md")
	as := flags.String("as", "", "with -readme, the `name` of the report there")
	outputs := flags.String("outputs", "", "with -readme, the files that match this `pattern` go into the report: a line with a command behind \"$ \", and what it printed")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(messages, "bench measures Stheno on this machine, and writes a report.\n\n")
		flags.SetOutput(messages)
		flags.PrintDefaults()
		return false, err
	case err != nil:
		return false, fmt.Errorf("%w (-help lists the flags)", err)
	}
	rest := flags.Args()
	if *compare {
		limit, err := parsePercent(*threshold)
		// Flags may also follow the two files.
		if err != nil || len(rest) < 2 {
			return false, errors.Join(err, needTwo(rest))
		}
		if len(rest) > 2 {
			return run(append(append([]string{"-compare"}, rest[2:]...), rest[:2]...), out, messages)
		}
		return compareFiles(rest[0], rest[1], limit, *beside, out)
	}
	if len(rest) > 0 {
		return false, fmt.Errorf("argument %q is no flag; -help lists them", rest[0])
	}
	if *outputs != "" && *readme == "" {
		return false, fmt.Errorf("-outputs is %q without -readme, which it goes with", *outputs)
	}
	if *readme != "" {
		return false, fillReadme(*readme, *as, *outputs)
	}
	switch {
	case o.sweeps < 0:
		return false, fmt.Errorf("-sweeps is %d, it needs to be at least 1", o.sweeps)
	case o.budget < 0:
		return false, fmt.Errorf("-budget is %v, it needs to be positive", o.budget)
	case o.sweeps == 0 && o.quick:
		o.sweeps = 1
	case o.sweeps == 0:
		o.sweeps = 3
	}
	if o.match, err = regexp.Compile(*match); err != nil {
		return false, fmt.Errorf("-run: %w", err)
	}
	if o.threads, err = parseThreads(*threads, runtime.NumCPU()); err != nil {
		return false, err
	}
	return false, measureAll(o, args, *folder, messages)
}

func needTwo(files []string) error {
	if len(files) < 2 {
		return fmt.Errorf("-compare has %d files, it needs two: old.json new.json", len(files))
	}
	return nil
}

// measureAll measures and writes the report.
func measureAll(o options, args []string, folder string, messages io.Writer) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	s, err := newSession(o, args, messages)
	if err != nil {
		return err
	}
	defer s.close()
	defer s.endOnInterrupt()()
	for s.sweep = range s.sweeps {
		for _, section := range sections {
			if err := section(s); err != nil {
				return err
			}
		}
		if err := s.checkMatched(); err != nil {
			return err
		}
	}
	r := s.end()
	if err := errors.Join(r.Save(filepath.Join(folder, "report.json")), r.SaveFigures(folder),
		os.WriteFile(filepath.Join(folder, "report.md"), []byte(r.Markdown()), 0o644)); err != nil {
		return err
	}
	for _, why := range r.Noise() {
		fmt.Fprintln(messages, "noisy:", why)
	}
	_, err = fmt.Fprintln(messages, "wrote", filepath.Join(folder, "report.md"))
	return err
}

// sections are the parts of the report, in its order. Ceilings come first and last in a sweep, for
// the drift.
var sections = []func(*session) error{
	ceilings, attention, gorgoniaAttention, matmul, decoding, experts, fused, step, memory, gpu, ceilings,
}

// parsePercent reads "5%" or "0.05".
func parsePercent(s string) (float64, error) {
	digits, isPercent := strings.CutSuffix(s, "%")
	x, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(x >= 0) {
		return 0, fmt.Errorf("-threshold is %q, it needs to be a share, such as 5%% or 0.05", s)
	}
	if isPercent {
		x /= 100
	}
	return x, nil
}

// parseThreads reads "1,2"; empty means 1 and all.
func parseThreads(s string, cores int) ([]int, error) {
	if s == "" {
		return slices.Compact([]int{1, cores}), nil
	}
	var all []int
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > cores {
			return nil, fmt.Errorf("-threads has %q, it needs to be numbers from 1 to this machine's %d", word, cores)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func compareFiles(oldPath, newPath string, threshold float64, beside bool, out io.Writer) (bool, error) {
	before, err := report.Load(oldPath)
	if err != nil {
		return false, err
	}
	after, err := report.Load(newPath)
	if err != nil {
		return false, err
	}
	return report.Compare(before, after, beside).Write(out, threshold)
}

// The committed reports, and the page that shows them, as seen from the root of the module.
const (
	resultsFolder = "bench/results"
	readmeFile    = "README.md"
)

// fillReadme commits a report under a name, with the outputs of other programs that match a
// pattern, and rewrites all parts of the README.
func fillReadme(path, as, outputs string) error {
	if as == "" || as != filepath.Base(as) {
		return fmt.Errorf("-as is %q, it needs to be a name for the report, such as that of the machine", as)
	}
	r, err := report.Load(path)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(outputs)
	if err != nil {
		return fmt.Errorf("-outputs is %q: %w", outputs, err)
	}
	if outputs != "" && len(files) == 0 {
		return fmt.Errorf("-outputs is %q, which no file matches", outputs)
	}
	for _, file := range files {
		o, err := report.ReadOutput(file)
		if err != nil {
			return err
		}
		r.Outputs = append(r.Outputs, o)
	}
	r.DropUnused()
	folder := filepath.Join(resultsFolder, as)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := errors.Join(r.Save(filepath.Join(folder, "report.json")), r.SaveFigures(folder),
		os.WriteFile(filepath.Join(folder, "report.md"), []byte(r.Markdown()), 0o644)); err != nil {
		return err
	}
	page, err := os.ReadFile(readmeFile)
	if err != nil {
		return err
	}
	filled, err := filledPage(string(page), ".")
	if err != nil {
		return fmt.Errorf("%s: %w", readmeFile, err)
	}
	return os.WriteFile(readmeFile, []byte(filled), 0o644)
}

// filledPage is the README as the committed reports have it; root is where the module lies.
func filledPage(page, root string) (string, error) {
	return report.Fill(page, func(name string) (*report.Report, error) {
		return report.Load(filepath.Join(root, resultsFolder, name, "report.json"))
	}, func(name string) string { return resultsFolder + "/" + name })
}
