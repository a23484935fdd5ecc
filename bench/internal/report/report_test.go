package report_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/bench/internal/report"
)

// made is a report of a machine that does not exist. Times are around what they should be, times a
// factor.
func made(factor float64) *report.Report {
	random := rand.New(rand.NewPCG(1, 1))
	samples := func(around float64) report.Numbers {
		list := make(report.Numbers, 12)
		for i := range list {
			list[i] = around * (1 + 0.01*random.Float64())
		}
		return list
	}
	r := &report.Report{
		Format:  report.Format,
		Machine: report.Machine{CPU: "Test CPU", OS: "linux", Arch: "amd64", Vectors: "avx512", Cores: 2, Memory: 8 << 30},
		Go:      "go1.26", Revision: "0123456789ab", Arguments: []string{"-quick"},
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 61 * time.Second,
		Peers: []string{"PyTorch 9"}, Missing: []report.Missing{{What: "GPU", Why: "there is none"}},
		Sections: []report.Section{
			{Name: "attention", Title: "Attention", Text: "How it goes."}, {Name: "step", Title: "A step", Text: "One."},
			{Name: "memory", Title: "Memory", Text: "Bytes."}, {Name: "fused", Title: "Fused", Text: "None here."},
		},
	}
	r.AddRates("FMA peak", 2, "FLOP", samples(200e9))
	for _, length := range []int{512, 1024} {
		for _, by := range []string{report.Ours, "PyTorch"} {
			c := report.Case{Section: "attention", Series: "forward, causal", Name: fmt.Sprintf("S=%d", length), Threads: 2, Figure: "attention-forward",
				X: float64(length), Work: 1e9, Unit: "FLOP", Ceiling: "FMA peak"}
			x := report.Result{Case: c, By: by, Quantity: report.Seconds, Samples: samples(0.01 * factor), Beside: samples(200e9)}
			if by != report.Ours {
				differs := 1.5e-6
				x.Differs, x.Samples = &differs, samples(0.02)
			}
			r.Results = append(r.Results, x)
			m := report.Case{Section: "memory", Name: c.Name, Figure: "memory", X: c.X}
			r.Results = append(r.Results, report.Result{Case: m, By: by, Quantity: report.Bytes, Samples: samples(float64(length) * 1e5)})
		}
	}
	for _, by := range []string{report.Ours, "PyTorch"} {
		c := report.Case{Section: "step", Name: "small", Threads: 2, Figure: "step-time", Work: 768, Unit: "token", Ceiling: "FMA peak", Limit: 1e9}
		r.Results = append(r.Results, report.Result{Case: c, By: by, Quantity: report.Seconds, Samples: samples(0.02), Beside: samples(200e9)})
	}
	r.Outputs = []report.Output{{Command: "go test -bench Ranks", Text: "BenchmarkRanks/2-copied 1 61 ms/step"}}
	return r
}

func TestSaveAndLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	r := made(1)
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := report.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	second := path + ".2"
	if err := again.Save(second); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(path)
	b, _ := os.ReadFile(second)
	if string(a) != string(b) {
		t.Error("a report that was loaded is not saved as it was")
	}
	if again.Markdown() == "" || !reflect.DeepEqual(again.Machine, r.Machine) || len(again.Results) != len(r.Results) {
		t.Errorf("loaded %+v with %d results, saved %+v with %d", again.Machine, len(again.Results), r.Machine, len(r.Results))
	}
	for name, text := range map[string]string{"no JSON": "x", "another format": `{"Format":99}`} {
		os.WriteFile(path, []byte(text), 0o600)
		if _, err := report.Load(path); err == nil {
			t.Errorf("%s: loaded", name)
		}
	}
	if _, err := (report.Numbers{math.NaN()}).MarshalJSON(); err == nil {
		t.Error("a NaN was written")
	}
}

func TestMarkdown(t *testing.T) {
	page := made(1).Markdown()
	for _, want := range []string{
		"Test CPU, 2 cores", "revision 0123456789ab", "2026-01-02 03:04 UTC", "`bench -quick`", "Compared with PyTorch 9", "GPU: there is none",
		"| FMA peak | 2 | 201 GFLOP/s |", "## Attention", "![Attention](attention-forward.svg)", "50% of FMA peak", "0.499 of it", "1.5e-06",
		"tokens/s", "`go test -bench Ranks`\n\n```\nBenchmarkRanks/2-copied 1 61 ms/step\n```\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, not := range []string{"noisy", "None here", "NaN"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestNoise(t *testing.T) {
	const n = 40
	for _, c := range []struct {
		name string
		rate func(i int) float64
		want string
	}{
		{"quiet", func(i int) float64 { return 100 + float64(i%3) }, ""},
		{"spread", func(i int) float64 { return 100 + 20*float64(i%2) }, "quartiles"},
		{"drift", func(i int) float64 { return 100 + float64(i)*8/n }, "moved by +6%"},
	} {
		r := &report.Report{}
		for i := range n {
			r.AddRates("copy", 1, "B", []float64{c.rate(i)})
		}
		noise := strings.Join(r.Noise(), "; ")
		if (noise == "") != (c.want == "") || !strings.Contains(noise, c.want) {
			t.Errorf("%s: noise is %q, want %q", c.name, noise, c.want)
		}
		if page := r.Markdown(); strings.Contains(page, "**This run was noisy**") != (c.want != "") {
			t.Errorf("%s: whether the page says that the run was noisy is wrong:\n%s", c.name, page)
		}
	}
}

// Pictures are XML that names every contender.
func TestFigures(t *testing.T) {
	folder := t.TempDir()
	r := made(1)
	if err := r.SaveFigures(folder); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"attention-forward", "memory", "step-time"} {
		text, err := os.ReadFile(filepath.Join(folder, name+".svg"))
		if err != nil {
			t.Error(err)
			continue
		}
		d := xml.NewDecoder(strings.NewReader(string(text)))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		for _, by := range []string{report.Ours, "PyTorch"} {
			if !strings.Contains(string(text), by) {
				t.Errorf("%s does not name %s", name, by)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name      string
		factor    float64
		threshold float64
		regressed bool
		want      string
	}{
		{"the same", 1, 0.05, false, "5 with medians whose intervals overlap, 0 of the others worse"},
		{"slower", 1.2, 0.05, true, "REGRESSION"},
		{"slower than before, within the threshold", 1.2, 0.25, false, "+20.0%"},
		{"faster", 0.8, 0.05, false, "-20.0%"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			regressed, err := report.Compare(made(1), made(c.factor), false).Write(&out, c.threshold)
			if err != nil || regressed != c.regressed || !strings.Contains(out.String(), c.want) {
				t.Errorf("regressed %v, error %v, want %v and %q:\n%s", regressed, err, c.regressed, c.want, out.String())
			}
		})
	}
}

// What sweeps found of one contender and case is one result.
func TestAdd(t *testing.T) {
	small, large := 0.1, 0.2
	part := func(by string, sample, beside float64, differs *float64) report.Result {
		return report.Result{Case: report.Case{Section: "zoo", Name: "bear"}, By: by, Quantity: report.Seconds,
			Samples: report.Numbers{sample}, Beside: report.Numbers{beside}, Differs: differs}
	}
	var r report.Report
	r.Add(part(report.Ours, 1, 10, nil))
	r.Add(part("Peer", 2, 20, &small))
	r.Add(part(report.Ours, 3, 30, nil))
	got := r.Add(part("Peer", 4, 40, &large))
	if len(r.Results) != 2 || !slices.Equal(r.Results[0].Samples, report.Numbers{1, 3}) || !slices.Equal(r.Results[0].Beside, report.Numbers{10, 30}) {
		t.Errorf("ours: %+v", r.Results)
	}
	if !slices.Equal(got.Samples, report.Numbers{2, 4}) || !slices.Equal(got.Sweeps, []int{1, 1}) || *got.Differs != large {
		t.Errorf("the peer's whole is %+v", got)
	}
}

func TestDropUnused(t *testing.T) {
	r := made(1)
	r.AddRates("copy", 2, "B", []float64{1, 2, 3})
	want := len(r.Ceilings)
	r.AddRates("copy", 7, "B", []float64{1, 2, 3})
	r.DropUnused()
	if len(r.Ceilings) != want {
		t.Errorf("%d ceilings are left, want %d: %+v", len(r.Ceilings), want, r.Ceilings)
	}
}

// What the sweeps of one run differ by is no regression.
func TestCompareSweeps(t *testing.T) {
	run := func(sweeps ...float64) *report.Report {
		r := &report.Report{}
		for _, middle := range sweeps {
			r.Add(report.Result{Case: report.Case{Section: "zoo", Name: "bear"}, By: report.Ours, Quantity: report.Seconds,
				Samples: report.Numbers{0.98 * middle, 0.99 * middle, middle, 1.01 * middle, 1.02 * middle}})
		}
		return r
	}
	for _, c := range []struct {
		name      string
		old, new  *report.Report
		agree     bool
		regressed bool
	}{
		{"a steady machine", run(1, 1, 1), run(1.2, 1.2, 1.2), false, true},
		{"one sweep of the old run was as slow", run(1, 1, 1.2), run(1.2, 1.2, 1.2), true, false},
		{"one sweep of the new run was as fast", run(1, 1, 1), run(1.2, 1.2, 1), true, false},
		{"slower than any sweep", run(1, 1, 1.1), run(1.2, 1.2, 1.3), false, true},
	} {
		change := report.Compare(c.old, c.new, false).Changes[0]
		if change.Agrees() != c.agree || change.Regression(0.05) != c.regressed {
			t.Errorf("%s: agrees %v, regression %v: %+v", c.name, change.Agrees(), change.Regression(0.05), change)
		}
	}
}

// A machine that is slower by a fifth slows the ceiling too, so that shares of it do not change.
func TestCompareOfCeiling(t *testing.T) {
	slower := made(1)
	for i := range slower.Results {
		for j := range slower.Results[i].Samples {
			slower.Results[i].Samples[j] *= 1.2
		}
		for j := range slower.Results[i].Beside {
			slower.Results[i].Beside[j] /= 1.2
		}
	}
	times, shares := report.Compare(made(1), slower, false), report.Compare(made(1), slower, true)
	for i := range times.Changes {
		if !times.Changes[i].Regression(0.05) {
			t.Errorf("%s: times changed by %+v, which is not seen", times.Changes[i].Key, times.Changes[i])
		}
		if c := shares.Changes[i]; c.Quantity != report.Bytes && c.Regression(0.05) {
			t.Errorf("%s: the share of the ceiling has not changed, %+v says so", c.Key, c)
		}
	}
}

func TestCompareOthers(t *testing.T) {
	before, after := made(1), made(1)
	before.Results[0].Name, after.Machine.CPU = "S=7", "Other CPU"
	c := report.Compare(before, after, false)
	if len(c.OnlyOld) != 1 || len(c.OnlyNew) != 1 || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "Other CPU") {
		t.Errorf("only old %v, only new %v, warnings %v", c.OnlyOld, c.OnlyNew, c.Warnings)
	}
}

func TestFill(t *testing.T) {
	load := func(name string) (*report.Report, error) {
		if name != "cpu" {
			return nil, fmt.Errorf("there is no report %q", name)
		}
		return made(1), nil
	}
	folder := func(name string) string { return "results/" + name }
	page, err := os.ReadFile("testdata/readme.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/filled.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, start := range []string{string(page), string(want)} { // filling twice changes nothing
		got, err := report.Fill(start, load, folder)
		if err != nil || got != string(want) {
			t.Errorf("error %v; filled:\n%s", err, got)
		}
	}
	for marker, message := range map[string]string{
		"<!-- bench:begin machine -->":                                                                               "line 1",
		"<!-- bench:begin machine cpu -->":                                                                           "has no line",
		"<!-- bench:begin machine gpu -->\n<!-- bench:end machine gpu -->":                                           `no report "gpu"`,
		"<!-- bench:begin poem cpu -->\n<!-- bench:end poem cpu -->":                                                 `no part "poem"`,
		"<!-- bench:begin list zoo cpu -->\n<!-- bench:end list zoo cpu -->":                                         `no section "zoo"`,
		"<!-- bench:begin figure zoo cpu -->\n<!-- bench:end figure zoo cpu -->":                                     `no figure "zoo"`,
		"<!-- bench:begin beside step JAX cpu -->\n<!-- bench:end beside step JAX cpu -->":                           `nothing of "JAX"`,
		"<!-- bench:begin beside attention/D=7 PyTorch cpu -->\n<!-- bench:end beside attention/D=7 PyTorch cpu -->": `has nothing of "PyTorch"`,
	} {
		if _, err := report.Fill(marker, load, folder); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%q: error %v, it needs to say %q", marker, err, message)
		}
	}
}
