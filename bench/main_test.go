package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels"
)

// fakePeer is the variable that makes this test's program a peer: it answers with the times and
// results it is told.
const fakePeer = "STHENO_BENCH_FAKE_PEER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(fakePeer); mode != "" {
		if err := answerAsPeer(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// answerAsPeer returns q as attention's output and every gradient, the left matrix as a product,
// and a second for each run. In mode "dies" it ends at the first problem, in mode "refuses" it says
// that it cannot.
func answerAsPeer(mode string) error {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	var problem request
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return err
		}
		var a reply
		switch {
		case r.Do == "hello":
			a.Version = "Fake 1"
		case isProblem(r) && mode == "dies":
			return fmt.Errorf("the peer fell over")
		case isProblem(r) && mode == "refuses":
			a.Error = "not today"
		case isProblem(r):
			problem = r
		case r.Do == "run":
			a.Seconds = float64(r.Times)
		case r.Do == "write":
			names, from := slices.Concat(resultFiles[:]...), "q"
			if problem.Do == "product" {
				names, from = []string{"c"}, "a"
			}
			for _, name := range names {
				b, err := os.ReadFile(filepath.Join(problem.Folder, from))
				if err == nil {
					err = os.WriteFile(filepath.Join(r.Folder, name), b, 0o600)
				}
				if err != nil {
					return err
				}
			}
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return in.Err()
}

func isProblem(r request) bool { return r.Do == "attention" || r.Do == "product" }

// newTestSession measures every case once.
func newTestSession(t *testing.T) *session {
	s, err := newSession(options{quick: true, match: regexp.MustCompile(""), threads: []int{1}}, nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s.plan = measure.Plan{Least: 1, Most: 1}
	s.from, s.to = s.from[:1<<16], s.to[:1<<16]
	t.Cleanup(s.close)
	return s
}

func (s *session) addFakePeer(t *testing.T, mode string) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(self)
	process.Env = append(os.Environ(), fakePeer+"="+mode)
	p, version, err := openPeer("Fake", process)
	if err != nil || version != "Fake 1" {
		t.Fatalf("version %q, error %v", version, err)
	}
	p.longest = 1 << 20
	s.peerList = append(s.peerList, p)
}

func TestBesidePeer(t *testing.T) {
	shape := attentionShape{batch: 1, heads: 2, keyHeads: 2, length: 16, size: 8}
	square := productShape{m: 16, n: 16, k: 16, transposeB: true}
	for name, p := range map[string]struct {
		passes  int
		measure func(*session) error
	}{
		"attention": {2, func(s *session) error { return s.attention(shape) }},
		"product": {1, func(s *session) error {
			c := report.Case{Section: "matmul", Name: square.String(), Unit: "FLOP", Ceiling: fma}
			return s.product(c, square, func() (*kernels.MatMul, kernels.MatMulOutputs) { return product(square) })
		}},
	} {
		for mode, missing := range map[string]string{"works": "", "refuses": "not today", "dies": "fell over"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				s := newTestSession(t)
				s.addFakePeer(t, mode)
				if err := p.measure(s); err != nil {
					t.Fatal(err)
				}
				want := p.passes
				if missing == "" {
					want *= 2
				}
				if len(s.report.Results) != want {
					t.Errorf("%d results, want %d", len(s.report.Results), want)
				}
				if all := fmt.Sprint(s.report.Missing); !strings.Contains(all, missing) || (missing == "") != (len(s.report.Missing) == 0) {
					t.Errorf("missing %s, want %q", all, missing)
				}
				checkFakeResults(t, s.report.Results)
			})
		}
	}
}

// checkFakeResults checks that what the fake peer said is what is reported.
func checkFakeResults(t *testing.T, results []report.Result) {
	for _, r := range results {
		if r.By != "Fake" {
			continue
		}
		if r.Samples[0] != 1 {
			t.Errorf("%s took %v s, the peer said 1", r.Key(), r.Samples[0])
		}
		if r.Differs == nil || *r.Differs < 0.01 {
			t.Errorf("%s: results that are wrong differ by %v", r.Key(), r.Differs)
		}
	}
}

// One sample of a small case of each section goes through to a page and its pictures.
func TestSweeps(t *testing.T) {
	s := newTestSession(t)
	s.options.match = regexp.MustCompile(`^matmul/64×`)
	const sweeps = 3
	for s.sweep = range sweeps {
		if err := matmul(s); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.report.Sections); n != 1 {
		t.Errorf("%d sections, want 1", n)
	}
	for _, r := range s.report.Results {
		if len(r.Samples) != sweeps || len(r.Beside) != sweeps {
			t.Errorf("%s has %d samples and %d beside them, want %d", r.Key(), len(r.Samples), len(r.Beside), sweeps)
		}
	}
	if len(s.report.Results) == 0 {
		t.Error("no results")
	}
}

// What is asked for needs to be there.
func TestNothingMatches(t *testing.T) {
	for match, want := range map[string]string{"^matmul/64×": "", "atention": `-run is "atention", which no case's name matches`} {
		s := newTestSession(t)
		s.options.match = regexp.MustCompile(match)
		if err := matmul(s); err != nil {
			t.Fatal(err)
		}
		if err := s.checkMatched(); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("-run %s: error %v, want %q", match, err, want)
		}
	}
}

func TestSections(t *testing.T) {
	s := newTestSession(t)
	s.options.match = regexp.MustCompile(`^(gorgonia/.*/S=512/|matmul/64×|decoding/1×|fused/(add|sum)/|step/cpu)`)
	sections, want := []func(*session) error{attention, gorgoniaAttention, matmul, decoding, step}, 2+1+4+2
	if !testing.Short() { // its tensors take a second to make
		sections, want = append(sections, fused), want+2
	}
	for _, section := range sections {
		if err := section(s); err != nil {
			t.Fatal(err)
		}
	}
	r := s.end()
	keys := map[string]bool{}
	for _, x := range r.Results {
		if keys[x.Key()] {
			t.Errorf("two results have the key %s", x.Key())
		}
		keys[x.Key()] = true
		if len(x.Samples) != 1 || !(x.Samples[0] > 0) || x.Work <= 0 || len(x.Beside) != 1 {
			t.Errorf("%s: samples %v, work %v, beside %v", x.Key(), x.Samples, x.Work, x.Beside)
		}
	}
	if len(r.Results) != want {
		t.Errorf("%d results, want %d: %v", len(r.Results), want, keys)
	}
	if err := r.SaveFigures(t.TempDir()); err != nil {
		t.Error(err)
	}
	if err := r.Save(filepath.Join(t.TempDir(), "report.json")); err != nil {
		t.Error(err)
	}
}

func TestAttentionGrid(t *testing.T) {
	for _, quick := range []bool{false, true} {
		seen := map[string]bool{}
		for _, a := range attentionGrid(quick) {
			for _, c := range a.cases(1) {
				if seen[c.Key()] {
					t.Errorf("quick=%v: %s is there twice", quick, c.Key())
				}
				seen[c.Key()] = true
			}
			if a.batch < 1 || a.heads < 1 || a.keyHeads < 1 || a.heads%a.keyHeads != 0 {
				t.Errorf("quick=%v: %+v is no problem", quick, a)
			}
		}
	}
}

func TestMemoryChild(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the high-water mark is read as Linux shows it")
	}
	var out strings.Builder
	if _, err := run([]string{memoryCommand, "attention", "64"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(strings.TrimSpace(out.String())); err != nil || n < 0 {
		t.Errorf("printed %q, it needs to be a number of bytes", out.String())
	}
	for _, args := range [][]string{{"attention"}, {"attention", "x"}, {"poem", "64"}, {"step", "99"}} {
		if err := memoryChild(args, io.Discard); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

func TestDifference(t *testing.T) {
	for _, c := range []struct {
		a, b []float32
		want float64
	}{
		{[]float32{1, -4}, []float32{1, -4}, 0},
		{[]float32{1, -4}, []float32{2, -4}, 0.25},
		{[]float32{0, 0}, []float32{0, 3}, 3},
	} {
		if got := difference(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string // in the error
	}{
		{[]string{"-threads", "0"}, `-threads has "0"`},
		{[]string{"-threads", "1,x"}, `-threads has "x"`},
		{[]string{"-run", "("}, "-run"},
		{[]string{"report.json"}, `argument "report.json"`},
		{[]string{"-thread", "1"}, "-help lists the flags"},
		{[]string{"-compare", "a.json"}, "it needs two"},
		{[]string{"-compare", "-threshold", "much", "a.json", "b.json"}, `-threshold is "much"`},
		{[]string{"-compare", "no.json", "such.json"}, "no.json"},
		{[]string{"-readme", "no.json"}, `-as is ""`},
		{[]string{"-readme", "no.json", "-as", "a/b"}, `-as is "a/b"`},
		{[]string{"-outputs", "*.txt"}, "without -readme"},
		{[]string{"-readme", "results/h200/report.json", "-as", "h200", "-outputs", "no*.txt"}, `-outputs is "no*.txt", which no file matches`},
		{[]string{"-readme", "results/h200/report.json", "-as", "h200", "-outputs", "doc.go"}, "doc.go: it begins with"},
	} {
		if _, err := run(c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, it needs to say %q", c.args, err, c.want)
		}
	}
	if got, err := parseThreads("2,1,2", 4); err != nil || !slices.Equal(got, []int{1, 2}) {
		t.Errorf("2,1,2 gives %v, %v", got, err)
	}
	if got, err := parseThreads("", 1); err != nil || !slices.Equal(got, []int{1}) {
		t.Errorf("the default on one core is %v, %v", got, err)
	}
}

// Flags may stand before the two files and behind them.
func TestCompareCommand(t *testing.T) {
	folder := t.TempDir()
	save := func(name string, seconds float64) string {
		r := &report.Report{Format: report.Format, Machine: thisMachine()}
		samples := report.Numbers{seconds, seconds * 1.01, seconds * 1.02, seconds * 1.03, seconds * 1.04, seconds * 1.05}
		r.Results = append(r.Results, report.Result{Case: report.Case{Section: "matmul", Name: "x"}, By: report.Ours, Quantity: report.Seconds, Samples: samples})
		path := filepath.Join(folder, name)
		if err := r.Save(path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fast, slow := save("fast.json", 1), save("slow.json", 1.2)
	for _, c := range []struct {
		args      []string
		regressed bool
	}{
		{[]string{"-compare", fast, slow}, true},
		{[]string{"-compare", slow, fast}, false},
		{[]string{"-compare", "-threshold", "30%", fast, slow}, false},
		{[]string{"-compare", fast, slow, "-threshold", "30%"}, false},
		{[]string{"-compare", fast, slow, "-threshold", "0.1"}, true},
	} {
		var out strings.Builder
		if regressed, err := run(c.args, &out, io.Discard); err != nil || regressed != c.regressed {
			t.Errorf("%q: regressed %v, error %v, want %v:\n%s", c.args, regressed, err, c.regressed, out.String())
		}
	}
}

// What the README has between the markers is what the committed reports give.
func TestReadme(t *testing.T) {
	page, err := os.ReadFile("../" + readmeFile)
	if err != nil {
		t.Fatal(err)
	}
	filled, err := filledPage(string(page), "..")
	if err != nil {
		t.Fatal(err)
	}
	if filled != string(page) {
		t.Errorf("%s is not what the reports in %s give: run go run ./bench -readme again", readmeFile, resultsFolder)
	}
}
