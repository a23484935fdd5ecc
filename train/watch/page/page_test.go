package page

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// open begins a run of 100 steps with a page at a free port.
func open(t *testing.T, o Options) (h train.Hook, address string) {
	t.Helper()
	_, h, address = openPage(t, o)
	return h, address
}

func openPage(t *testing.T, o Options) (p *page, h train.Hook, address string) {
	t.Helper()
	o.Address = "127.0.0.1:0"
	o.Announce = func(url string) { address = url }
	p = newPage(o)
	h = p.hook()
	if err := h.OnStart(train.Start{Steps: 100, Parameters: 1000, TokensPerStep: 64}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.OnEnd(train.End{}) })
	return p, h, address
}

func step(done int) train.Step {
	return train.Step{
		Report: train.Report{LearningRate: 1e-3, GradientNorm: math.NaN()},
		Done:   done, Steps: 100, Loss: 4 / float64(done), Tokens: 64, Duration: 1e7,
	}
}

// ask gets something, with fields of a header that go in pairs.
func ask(t *testing.T, method, address string, header ...string) (status int, content string, got http.Header) {
	t.Helper()
	r, err := http.NewRequest(method, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text), answer.Header
}

// What is asked for is answered, and what others could make a browser ask for is refused.
func TestAnswers(t *testing.T) {
	_, address := open(t, Options{})
	for name, c := range map[string]struct {
		method, path string
		header       []string
		status       int
		content      string
	}{
		"the page":                {"GET", "/", nil, 200, "<!doctype html>"},
		"a link to the page":      {"GET", "/", []string{"Sec-Fetch-Site", "cross-site"}, 200, "<!doctype html>"},
		"localhost":               {"GET", "/", []string{"Host", "localhost:7887"}, 200, "<!doctype html>"},
		"version 6":               {"GET", "/", []string{"Host", "[::1]:7887"}, 200, "<!doctype html>"},
		"without a port":          {"GET", "/", []string{"Host", "[::1]"}, 200, "<!doctype html>"},
		"its head":                {"HEAD", "/", nil, 200, ""},
		"nothing":                 {"GET", "/other", nil, 404, "there is nothing at /other"},
		"no attention":            {"GET", "/attention?layer=0&text=a", nil, 404, "nothing"},
		"a change":                {"POST", "/", nil, 405, "needs to be GET"},
		"another host":            {"GET", "/", []string{"Host", "evil.example"}, 403, "this machine alone"},
		"one that looks like it":  {"GET", "/", []string{"Host", "localhost.evil.example:80"}, 403, "this machine alone"},
		"another machine":         {"GET", "/events", []string{"Host", "192.168.0.2"}, 403, "this machine alone"},
		"another page":            {"GET", "/events", []string{"Sec-Fetch-Site", "cross-site"}, 403, "another page"},
		"another port":            {"GET", "/events", []string{"Sec-Fetch-Site", "same-site"}, 403, "another page"},
		"a header that is a book": {"GET", "/", []string{"X-Book", strings.Repeat("a", longestHead)}, 400, "too many bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			status, content, header := ask(t, c.method, address+c.path, c.header...)
			if status != c.status || !strings.Contains(content, c.content) {
				t.Errorf("the answer is %d %.80q, it needs to be %d with %q", status, content, c.status, c.content)
			}
			if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
				t.Errorf("the policy is %q", policy)
			}
		})
	}
}

// Hosts are asked for exactly once, and what is no HTTP is no request.
func TestRequests(t *testing.T) {
	for text, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n":                       0,
		"GET /?a=b HTTP/1.0\nhOST:127.0.0.1\n\n":                          0,
		"GET / HTTP/1.1\r\n\r\n":                                          403,
		"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n": 403,
		"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n": 403,
		"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n":                       400,
		"GET\r\n\r\n":                              400,
		"GET x HTTP/1.1\r\nHost: ::1\r\n\r\n":      400,
		"GET / HTTP/1.1\r\nHost localhost\r\n\r\n": 400,
		"GET / HTTP/1.1\r\nHost: localhost\r\n":    400,
	} {
		if _, status, err := readRequest(bufio.NewReader(strings.NewReader(text))); status != want || (err != nil) != (want != 0) {
			t.Errorf("%q is answered by %d, %v, it needs to be %d", text, status, err, want)
		}
	}
}

func FuzzRequests(f *testing.F) {
	f.Add("GET /attention?layer=0&text=a HTTP/1.1\r\nHost: localhost\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, status, err := readRequest(bufio.NewReader(strings.NewReader(text)))
		if err == nil && (status != 0 || r.query == nil) {
			t.Errorf("%q is taken with %d, %v", text, status, r)
		}
	})
}

// Where there is no page, the run ends before its first step.
func TestWrongAddress(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for address, want := range map[string]string{
		"0.0.0.0:0": "this machine alone", "example.com:80": "this machine alone", ":0": "this machine alone",
		"localhost": "a host and a port", "localhost:99999": "a host and a port", busy.Addr().String(): "port 0 takes any",
	} {
		h := Serve(Options{Address: Address(address)})
		if err := h.OnStart(train.Start{}); err == nil || !strings.HasPrefix(err.Error(), "page.Serve: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, it needs %q", address, err, want)
		}
		if err := h.OnEnd(train.End{}); err != nil {
			t.Error(err)
		}
	}
}

// A flag may stand alone, and what it says is checked at once.
func TestAddressAsFlag(t *testing.T) {
	for arg, want := range map[string]Address{
		"-serve": DefaultAddress, "-serve=false": "", "-serve=[::1]:0": "[::1]:0", "-serve=0.0.0.0:80": "refused", "-serve=8080": "refused",
	} {
		var a Address
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		flags.Var(&a, "serve", "")
		err := flags.Parse([]string{arg})
		if want == "refused" && err != nil {
			continue
		}
		if err != nil || a != want {
			t.Errorf("%s gives %q, %v, it needs to give %q", arg, a, err, want)
		}
	}
}

// follower is a page that is open.
type follower struct {
	answer *http.Response
	lines  *bufio.Scanner
	all    update // what it has
}

func follow(t *testing.T, address string) *follower {
	t.Helper()
	answer, err := http.Get(address + "/events")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return &follower{answer: answer, lines: lines}
}

// until reads until the page has what is wanted, or the stream ends.
func (f *follower) until(t *testing.T, enough func(update) bool) {
	t.Helper()
	for !enough(f.all) {
		if !f.lines.Scan() {
			t.Fatalf("the stream ends with %d points, %d samples, %v", len(f.all.Points), len(f.all.Samples), f.lines.Err())
		}
		text, isData := strings.CutPrefix(f.lines.Text(), "data: ")
		if !isData {
			continue
		}
		for _, list := range []string{"points", "evaluations", "samples", "notices"} {
			if strings.Contains(text, fmt.Sprintf("%q:null", list)) {
				t.Fatalf("%s are null, which the page cannot go through: %s", list, text)
			}
		}
		var u update
		if err := json.Unmarshal([]byte(text), &u); err != nil {
			t.Fatal(err)
		}
		if u.Run != f.all.Run {
			f.all = update{}
		}
		u.Points = append(f.all.Points[:u.From], u.Points...)
		u.Evaluations = append(f.all.Evaluations, u.Evaluations...)
		u.Samples = append(f.all.Samples, u.Samples...)
		u.Notices = append(f.all.Notices, u.Notices...)
		f.all = u
	}
}

// A page that comes late has all that one has which was there from the start, and both hear the
// end.
func TestEvents(t *testing.T) {
	texts := 0
	h, address := open(t, Options{Title: "a run", Sample: func(train.Evaluation) (string, error) {
		texts++
		if texts == 3 {
			return "", errors.New("it has no words")
		}
		return strings.Repeat("text ", texts), nil
	}})
	early := follow(t, address)
	early.until(t, func(u update) bool { return u.About.Title == "a run" })
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for done := 1; done <= 60; done++ {
		must(h.OnStep(step(done)))
		if done%20 == 0 {
			must(h.OnEval(train.Evaluation{Done: done, Train: 1, Validation: 2, Best: done == 20}))
		}
	}
	early.until(t, func(u update) bool { return len(u.Samples) == 3 })
	must(h.OnBack(train.Back{From: 60, Done: 40, Why: "a spike"}))
	early.until(t, func(u update) bool { return len(u.Points) == 40 && len(u.Samples) == 2 })
	for done := 41; done <= 100; done++ {
		must(h.OnStep(step(done)))
	}
	must(h.OnNotice("look here"))
	late := follow(t, address)
	late.until(t, func(u update) bool { return u.Run != "" })
	var wait sync.WaitGroup
	wait.Go(func() { must(h.OnEnd(train.End{Done: 100, Elapsed: 5e9})) })
	for name, f := range map[string]*follower{"early": early, "late": late} {
		f.until(t, func(u update) bool { return u.Ended != nil })
		u := f.all
		if len(u.Points) != 100 || len(u.Evaluations) != 2 || len(u.Samples) != 2 || len(u.Notices) != 2 {
			t.Errorf("the %s page has %d points, %d evaluations, %d samples and %q", name, len(u.Points), len(u.Evaluations), len(u.Samples), u.Notices)
		}
		if p := u.Points[49]; p.Done != 50 || p.Loss != 0.08 || p.Rate != 1e-3 {
			t.Errorf("the %s page has %+v as step 50", name, p)
		}
		if u.Now.Done != 100 || u.Ended.Done != 100 || u.Ended.Err != "" || u.About.Steps != 100 {
			t.Errorf("the %s page ends with %+v, %+v", name, u.Now, u.Ended)
		}
		if f.lines.Scan(); f.lines.Scan() {
			t.Errorf("the stream of the %s page goes on behind the end", name)
		}
	}
	wait.Wait()
	if _, err := http.Get(address); err == nil {
		t.Error("there is a page after the end")
	}
}

// Points stay few, none is lost, and each is what its steps were.
func TestRecordOfManySteps(t *testing.T) {
	r := newRecord()
	const steps = 3*mostPoints + 7
	for done := 1; done <= steps; done++ {
		s := step(done)
		s.Loss = float64(done)
		r.step(s)
	}
	if len(r.points) > mostPoints {
		t.Errorf("there are %d points", len(r.points))
	}
	from := 1
	for _, p := range r.points {
		if p.Least != number(from) || p.Most != number(p.Done) || p.Loss != number(float64(from+p.Done)/2) || p.count != p.Done-from+1 {
			t.Fatalf("%+v is not the steps from %d", p, from)
		}
		from = p.Done + 1
	}
	if from != steps+1 {
		t.Errorf("the points end at %d", from-1)
	}
}

// What is typed has the attention of the model as it is, computed between steps.
func TestAttention(t *testing.T) {
	parameters := nn.NewParameters(1)
	model := func(s *nn.Scope) *nn.LanguageModel {
		return nn.NewGPT(s, nn.GPTConfig{Vocab: 256, Context: 6, Layers: 2, Heads: 2, Dim: 8, Dropout: 0.5})
	}
	h, address := open(t, Options{Attention: Attention(parameters, model, tokenizer.Bytes{})})
	get := func(query string) (status int, w Weights, text string) {
		var wait sync.WaitGroup
		answered := make(chan struct{})
		wait.Go(func() {
			defer close(answered)
			status, text, _ = ask(t, "GET", address+"/attention?"+query)
		})
		for stop := false; !stop; { // steps go on until there is an answer
			if err := h.OnStep(step(1)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-answered:
				stop = true
			default:
			}
		}
		wait.Wait()
		if status == 200 {
			if err := json.Unmarshal([]byte(text), &w); err != nil {
				t.Fatal(err)
			}
		}
		return status, w, text
	}
	for layer, text := range []string{"abc", "longer than six"} {
		status, w, _ := get(url.Values{"text": {text}, "layer": {string(rune('0' + layer))}}.Encode())
		want := text[:min(len(text), 6)]
		if status != 200 || w.Layer != layer || w.Layers != 2 || strings.Join(w.Tokens, "") != want || len(w.Heads) != 2 {
			t.Fatalf("%q: %d, %+v", text, status, w)
		}
		for _, rows := range w.Heads {
			for i, row := range rows {
				sum := 0.0
				for _, x := range row {
					sum += float64(x)
				}
				if len(row) != i+1 || !(math.Abs(sum-1) <= 1e-5) {
					t.Errorf("%q: row %d of %d weights sums up to %v", text, i, len(row), sum)
				}
			}
		}
	}
	for query, want := range map[string]string{
		"text=a&layer=2": "it needs to be from 0 to 1", "text=a&layer=x": "needs to be a number", "layer=0": "text is empty",
		"layer=0&text=" + strings.Repeat("a", longestText+1): "at most 2000",
	} {
		if status, _, text := get(query); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%.40s: %d %s, it needs %q", query, status, text, want)
		}
	}
}

// Who asks when the run ends has an answer.
func TestAttentionAtTheEnd(t *testing.T) {
	p, h, address := openPage(t, Options{Attention: func(string, int) (Weights, error) { return Weights{}, nil }})
	done := make(chan int)
	go func() {
		defer close(done) // also when ask ends this goroutine
		status, _, _ := ask(t, "GET", address+"/attention?layer=0&text=a")
		done <- status
	}()
	for len(p.asked) == 0 { // until the server has the question
		select {
		case status := <-done:
			t.Fatalf("the answer is %d before the end", status)
		case <-time.After(time.Millisecond):
		}
	}
	if err := h.OnEnd(train.End{}); err != nil {
		t.Fatal(err)
	}
	if status := <-done; status != 410 {
		t.Errorf("the answer is %d, it needs to be 410", status)
	}
}
