package watch

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/train"
	"pgregory.net/rapid"
)

// wantError tests that an error contains all of some texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error is %v, it needs to contain %q", err, text)
		}
	}
}

// What is written as JSON is read again bit for bit, apart from numbers that are not finite, which
// become NaN.
func TestJSONLinesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anyLoss := rapid.OneOf(rapid.Float64(),
			rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, 1e300}))
		duration := rapid.Map(rapid.Int64Range(0, int64(1000*time.Hour)), func(n int64) time.Duration { return time.Duration(n) })
		count := rapid.IntRange(0, math.MaxInt32)
		steps := rapid.SliceOf(rapid.Custom(func(t *rapid.T) train.Step {
			return train.Step{
				Report: train.Report{
					Step: count.Draw(t, "updates"), LearningRate: anyLoss.Draw(t, "learning rate"), GradientNorm: anyLoss.Draw(t, "norm"),
					Clipped: rapid.Bool().Draw(t, "clipped"), Skipped: rapid.Bool().Draw(t, "skipped"), NonFinite: rapid.String().Draw(t, "name"),
				},
				Done: count.Draw(t, "done"), Steps: count.Draw(t, "steps"), Loss: anyLoss.Draw(t, "loss"), Tokens: count.Draw(t, "tokens"), Examples: count.Draw(t, "examples"),
				Metrics:  map[string]float64{"m": rapid.Float64Range(-1e300, 1e300).Draw(t, "metric")},
				Duration: duration.Draw(t, "duration"), Elapsed: duration.Draw(t, "elapsed"),
			}
		})).Draw(t, "run")
		evaluation := train.Evaluation{
			Done: count.Draw(t, "done"), Train: anyLoss.Draw(t, "train"), Validation: anyLoss.Draw(t, "validation"),
			Best: rapid.Bool().Draw(t, "best"), Duration: duration.Draw(t, "duration"),
			TrainMetrics: map[string]float64{"a": rapid.Float64Range(-1e300, 1e300).Draw(t, "a"), "b": 1}, ValidationMetrics: map[string]float64{"a": 2},
		}
		var file bytes.Buffer
		events := []any{train.Start{}}
		for _, s := range steps {
			events = append(events, s)
		}
		if err := play(JSONLines(&file), append(events, evaluation, train.End{})...); err != nil {
			t.Fatal(err)
		}
		log, err := ReadJSONLines(&file)
		if err != nil {
			t.Fatal(err)
		}
		want := Log{Evaluations: []train.Evaluation{evaluation}}
		want.Steps = append(want.Steps, steps...)
		// NaN is not equal to itself, but its text is.
		if got, want := fmt.Sprintf("%+v", log), fmt.Sprintf("%+v", finiteOrNaN(want)); got != want {
			t.Fatalf("read\n%s\nwrote\n%s", got, want)
		}
	})
}

func finiteOrNaN(log Log) Log {
	fix := func(x *float64) {
		if !finite(*x) {
			*x = math.NaN()
		}
	}
	for i := range log.Steps {
		s := &log.Steps[i]
		s.NonFinite = strings.ToValidUTF8(s.NonFinite, "\ufffd")
		fix(&s.LearningRate)
		fix(&s.GradientNorm)
		fix(&s.Loss)
	}
	for i := range log.Evaluations {
		fix(&log.Evaluations[i].Train)
		fix(&log.Evaluations[i].Validation)
	}
	return log
}

func TestReadJSONLinesBad(t *testing.T) {
	const good = `{"event":"step","step":1,"loss":2.5}` + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"no JSON", good + "step 2\n", "line 2"},
		{"another event", `{"event":"epoch","step":1}` + "\n", `"epoch"`},
		{"no event", "{}\n", "line 1"},
		{"a negative step", `{"event":"step","step":-1}` + "\n", "-1"},
		{"a loss in words", `{"event":"step","step":1,"loss":"low"}` + "\n", "low"},
		{"a list", "[1]\n", "line 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ReadJSONLines(strings.NewReader(c.text))
			wantError(t, err, "ReadJSONLines: ", c.want)
		})
	}
	log, err := ReadJSONLines(strings.NewReader(good + `{"event":"st`))
	if err != nil || len(log.Steps) != 1 {
		t.Errorf("a line that is cut short: %d steps, %v, it needs to be 1 and no error", len(log.Steps), err)
	}
}

func FuzzReadJSONLines(f *testing.F) {
	var b bytes.Buffer
	if err := play(JSONLines(&b), run(0, 4, 4)...); err != nil {
		f.Fatal(err)
	}
	f.Add(b.String())
	f.Add(`{"event":"step","step":1,"seconds":1e300}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		log, err := ReadJSONLines(strings.NewReader(text))
		if err != nil && !strings.HasPrefix(err.Error(), "ReadJSONLines: line ") {
			t.Errorf("error is %v", err)
		}
		if most := strings.Count(text, "\n"); len(log.Steps)+len(log.Evaluations) > most {
			t.Errorf("%d steps and %d evaluations in %d lines", len(log.Steps), len(log.Evaluations), most)
		}
	})
}

func TestCSV(t *testing.T) {
	var file bytes.Buffer
	odd := stepAt(2, 4)
	odd.Loss, odd.GradientNorm, odd.LearningRate = math.NaN(), math.Inf(1), math.Inf(-1)
	measured := stepAt(2, 4)
	measured.Metrics = map[string]float64{"z loss": 0.5}
	start := train.Start{Steps: 4, Metrics: []string{"accuracy", "z loss"}}
	events := []any{
		start, stepAt(1, 4), odd, measured, train.Evaluation{Done: 2, Train: 2.5, Validation: 2.75, Duration: time.Second / 2,
			TrainMetrics: map[string]float64{"accuracy": 0.75}, ValidationMetrics: map[string]float64{"accuracy": 0.7}},
		train.Evaluation{Done: 2, Train: 2.5, Validation: math.NaN(), Duration: time.Second / 2}, train.End{},
		train.Start{Step: 2, Steps: 4, Metrics: start.Metrics}, skippedAt(3, 4), train.End{}, // the same writer gets no second header
	}
	if err := play(CSV(&file), events...); err != nil {
		t.Fatal(err)
	}
	const want = `event,step,loss,validation_loss,learning_rate,gradient_norm,clipped,skipped,tokens,seconds,elapsed_seconds,examples,accuracy,validation_accuracy,z loss,validation_z loss
step,1,4,,0.001,2,true,false,768,0.02,0.025,12,,,,
step,2,NaN,,-Inf,Inf,false,false,768,0.02,0.05,12,,,,
step,2,3,,0.0005,1.5,false,false,768,0.02,0.05,12,,,0.5,
evaluation,2,2.5,2.75,,,,,,0.5,,,0.75,0.7,,
evaluation,2,2.5,,,,,,,0.5,,,,,,
step,3,NaN,,0.0003333333333333333,Inf,true,true,768,0.02,0.075,12,,,,
`
	if got := file.String(); got != want {
		t.Errorf("got\n%s\nit needs to be\n%s", got, want)
	}
	if _, err := csv.NewReader(&file).ReadAll(); err != nil {
		t.Errorf("encoding/csv: %v", err)
	}
}

// A run that was interrupted anywhere and resumed from an earlier step has the log of one that was
// not.
func TestResumedLog(t *testing.T) {
	const steps = 12
	for name, open := range map[string]func(string) train.Hook{"JSONLines": OpenJSONLines, "CSV": OpenCSV} {
		path := func(t interface{ TempDir() string }) string { return filepath.Join(t.TempDir(), "log") }
		whole := path(t)
		if err := play(open(whole), run(0, steps, steps)...); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(whole)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			interrupted, resumed int
			lost                 int // bytes of the interrupted log
		}{
			{5, 5, 0}, {5, 3, 0}, {8, 8, 0}, {8, 4, 0}, {8, 0, 0}, {12, 11, 0}, {12, 0, 0}, {0, 0, 0},
			{7, 3, 1}, {7, 3, 30}, {7, 0, 999999},
		} {
			t.Run(fmt.Sprintf("%s/%+v", name, c), func(t *testing.T) {
				file := path(t)
				if err := play(open(file), run(0, c.interrupted, steps)...); err != nil {
					t.Fatal(err)
				}
				info, err := os.Stat(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(file, max(info.Size()-int64(c.lost), 0)); err != nil {
					t.Fatal(err)
				}
				if err := play(open(file), run(c.resumed, steps, steps)...); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != string(want) {
					t.Errorf("got\n%s\nit needs to be\n%s", got, want)
				}
			})
		}
	}
}

// A file of something else is not touched.
func TestForeignFile(t *testing.T) {
	for name, open := range map[string]func(string) train.Hook{"OpenJSONLines": OpenJSONLines, "OpenCSV": OpenCSV} {
		for _, text := range []string{
			"a letter", "a letter\n", "\x00\x01", "{}\n", csvHeader[1:], csvHeader + "a letter\n", csvHeader + "a letter",
			"{", `{"event":"login","step":1}`, "\x00\x00\x00", // which do not tell whose they are
			`{"event":"step","step":1}` + "\nmy notes\n" + `{"event":"step","step":2}` + "\n",
			`{"event":"step","step":9}` + "\nmy notes\n", csvHeader + "step,9,\nmy notes\n",
			`{"event":"step","step":1}` + "\n\x00\x00mine", csvHeader + "step,1,\n\x00\x00mine",
		} {
			for _, done := range []int{0, 3} {
				file := filepath.Join(t.TempDir(), "log")
				if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
				wantError(t, open(file).OnStart(train.Start{Step: done}), name+": ", file, "line ")
				if got, err := os.ReadFile(file); err != nil || string(got) != text {
					t.Errorf("%s of a file with %q made it %q, %v", name, text, got, err)
				}
			}
		}
	}
}

// What a loss of power leaves at the end of a log, a line cut short and then zeros, is dropped with
// a notice that says what is missing. The records before stay.
func TestDamagedEnd(t *testing.T) {
	for name, open := range map[string]func(string) train.Hook{"OpenJSONLines": OpenJSONLines, "OpenCSV": OpenCSV} {
		for _, c := range []struct {
			cut, zeros int    // bytes
			want       string // after the name of the file
		}{
			{0, 4096, "its last 4096 bytes are no record, as after a kill or a loss of power, and are dropped"},
			{1, 0, "are dropped; steps 7 to 7 are not in it"},
			{3, 5000, "are dropped; steps 7 to 7 are not in it"},
		} {
			file := filepath.Join(t.TempDir(), "log")
			if err := play(open(file), run(0, 7, 12)...); err != nil {
				t.Fatal(err)
			}
			whole, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			damaged := append(bytes.Clone(whole[:len(whole)-c.cut]), make([]byte, c.zeros)...)
			if err := os.WriteFile(file, damaged, 0o666); err != nil {
				t.Fatal(err)
			}
			h := open(file)
			err = h.OnStart(train.Start{Step: 7, Steps: 12})
			wantError(t, err, name+": "+file+": ", c.want)
			if !errors.As(err, new(train.Notice)) {
				t.Errorf("%v is no notice", err)
			}
			if err := h.OnEnd(train.End{}); err != nil {
				t.Fatal(err)
			}
			lines := whole
			if c.cut > 0 {
				lines = whole[:1+bytes.LastIndexByte(whole[:len(whole)-1], '\n')]
			}
			if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, lines) {
				t.Errorf("%s, %+v: the file has %d bytes, %v, its whole lines have %d", name, c, len(got), err, len(lines))
			}
		}
	}
}

// One run at a time writes a log.
func TestOneWriter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	first, second := OpenJSONLines(file), OpenJSONLines(file)
	if err := play(first, run(0, 3, 9)[:4]...); err != nil {
		t.Fatal(err)
	}
	wantError(t, second.OnStart(train.Start{}), "OpenJSONLines: "+file, "another run writes to it")
	if err := play(first, train.End{}); err != nil {
		t.Fatal(err)
	}
	if err := play(second, run(0, 3, 9)...); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

// What is no file is refused before it is opened, which for a pipe would take for ever.
func TestNoFile(t *testing.T) {
	for _, open := range []func(string) train.Hook{OpenJSONLines, OpenCSV} {
		wantError(t, open(os.DevNull).OnStart(train.Start{}), os.DevNull+" is a device, it needs to be a file")
	}
}

// What a link leads to belongs to somebody else.
func TestLogIsNoLink(t *testing.T) {
	folder := t.TempDir()
	kept, link := filepath.Join(folder, "kept"), filepath.Join(folder, "log.jsonl")
	text := `{"event":"step","step":1}` + "\n"
	if err := os.WriteFile(kept, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, link); err != nil {
		t.Skip(err)
	}
	wantError(t, OpenJSONLines(link).OnStart(train.Start{}), link+" is a link")
	if got, err := os.ReadFile(kept); err != nil || string(got) != text {
		t.Errorf("what the link leads to is %q, %v", got, err)
	}
}

// The evaluation before the first step stays where a run goes on from there.
func TestEvaluationOfStep0(t *testing.T) {
	for name, open := range map[string]func(string) train.Hook{"JSONLines": OpenJSONLines, "CSV": OpenCSV} {
		file := filepath.Join(t.TempDir(), "log")
		events := run(0, 2, 9)
		if err := play(open(file), append(events[:2:2], train.End{})...); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := play(open(file), train.Start{Resumed: true, Evaluated: true}, train.End{}); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != string(want) || len(want) == 0 {
			t.Errorf("%s: resumed from step 0 it has %q, it had %q, %v", name, got, want, err)
		}
	}
}

// A log that people look at while the run goes on is at most about a second behind.
func TestFlush(t *testing.T) {
	var file bytes.Buffer
	l := &textLog{name: "JSONLines", format: &jsonFormat{}, buffer: newBuffer(&file)}
	if err := l.step(stepAt(1, 9)); err != nil || file.Len() > 0 {
		t.Errorf("the first step: %d bytes and %v, it needs to wait", file.Len(), err)
	}
	l.flushed = l.flushed.Add(-flushInterval)
	if err := l.step(stepAt(2, 9)); err != nil {
		t.Fatal(err)
	}
	if log, err := ReadJSONLines(&file); err != nil || len(log.Steps) != 2 {
		t.Errorf("a second later: %d steps and %v, it needs to be 2", len(log.Steps), err)
	}
	for name, call := range map[string]func() error{
		"evaluation": func() error { return l.hook().OnEval(train.Evaluation{}) },
		"checkpoint": l.hook().BeforeCheckpoint,
		"end":        func() error { return l.hook().OnEnd(train.End{}) },
	} {
		file.Reset()
		if err := l.step(stepAt(3, 9)); err != nil {
			t.Fatal(err)
		}
		if err := call(); err != nil || file.Len() == 0 {
			t.Errorf("%s: %d bytes and %v, it needs to write what there is", name, file.Len(), err)
		}
	}
}

// The log says what train.Step and train.Evaluation say: who adds a field there is told here.
func TestRecordsAreWhole(t *testing.T) {
	for _, c := range []struct {
		of     any
		fields int
	}{{train.Step{}, 10}, {train.Report{}, 6}, {train.Evaluation{}, 7}, {train.Back{}, 4}} {
		if n := reflect.TypeOf(c.of).NumField(); n != c.fields {
			t.Errorf("%T has %d fields, the log writes %d", c.of, n, c.fields)
		}
	}
}
