package watch

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/train"
)

// JSONLines writes one JSON object a line for each step and evaluation, as [ReadJSONLines] reads
// them:
//
//	{"event":"step","step":250,"steps":2000,"updates":250,"loss":2.5,"learning_rate":0.001,"gradient_norm":0.8, ...
//	{"event":"evaluation","step":250,"train":2.49,"validation":2.53,"best":true,"seconds":0.4}
//	{"event":"back","step":200,"from":260,"left_out":60,"why":"the loss of step 260 is NaN"}
//
// The last is of a training that went back to step 200: what was recorded of later steps counts no
// more, and [OpenJSONLines] has removed it. There are metrics of the model, if it has any, under
// metrics, train_metrics and validation_metrics, by name. JSON has no NaN and no infinities: both
// are null. Lines reach w about once a second, and at evaluations, checkpoints and the end.
func JSONLines(w io.Writer) train.Hook {
	if w == nil {
		return nilWriter("JSONLines")
	}
	return (&textLog{name: "JSONLines", format: &jsonFormat{}, buffer: newBuffer(w)}).hook()
}

// OpenJSONLines is [JSONLines] into a file, which is open and locked during a run, and on the disk
// before each checkpoint is. A run that starts anew replaces what was in it. A resumed one goes on
// with it: records of steps after the one that it resumes from, which it does again, and an end
// that was cut short are removed first, so that each step is there once; what was lost is told in a
// [train.Notice]. A file that holds anything else is left alone, and the run ends with an error
// before its first step.
func OpenJSONLines(path string) train.Hook {
	return openLog("OpenJSONLines", path, &jsonFormat{})
}

// ReadJSONLines reads what [JSONLines] wrote. Numbers that are null become NaN. Times are those of
// the log, to the nanosecond. A last line that was cut short, as a killed run leaves it, is left
// out.
func ReadJSONLines(r io.Reader) (Log, error) {
	var log Log
	if r == nil {
		return log, errors.New("ReadJSONLines: r is nil, it needs to be a reader")
	}
	lines := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return log, nil
		}
		if err != nil {
			return log, fmt.Errorf("ReadJSONLines: line %d: %w", number, err)
		}
		if err := log.add(line); err != nil {
			return log, fmt.Errorf("ReadJSONLines: line %d: %w", number, err)
		}
	}
}

func (l *Log) add(line []byte) error {
	head, err := parseHead(line)
	if err != nil {
		return err
	}
	if head.Event == stepEvent {
		var r stepRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		l.Steps = append(l.Steps, r.record())
		return nil
	}
	if head.Event == backEvent {
		var r backRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		l.goBack(train.Back{From: r.From, Done: r.Done, LeftOut: r.LeftOut, Why: r.Why})
		return nil
	}
	var r evaluationRecord
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	l.Evaluations = append(l.Evaluations, r.record())
	return nil
}

const (
	stepEvent       = "step"
	evaluationEvent = "evaluation"
	backEvent       = "back"
)

var events = []string{stepEvent, evaluationEvent, backEvent}

// recordHead is what all records start with.
type recordHead struct {
	Event string `json:"event"`
	Done  int    `json:"step"` // steps that are done
}

// stepRecord is a train.Step in JSON.
type stepRecord struct {
	recordHead
	Steps        int    `json:"steps"`
	Updates      int    `json:"updates"` // steps that were not skipped
	Loss         number `json:"loss"`
	LearningRate number `json:"learning_rate"`
	GradientNorm number `json:"gradient_norm"`
	Clipped      bool   `json:"clipped"`
	Skipped      bool   `json:"skipped"`
	NonFinite    string `json:"non_finite,omitempty"`
	Tokens       int    `json:"tokens"`
	Examples     int    `json:"examples,omitempty"`
	Seconds      number `json:"seconds"`
	Elapsed      number `json:"elapsed_seconds"`

	Metrics map[string]number `json:"metrics,omitempty"`
	Waited  []number          `json:"waited_seconds,omitempty"` // by rank
}

// backRecord is a train.Back in JSON.
type backRecord struct {
	recordHead
	From    int    `json:"from"`
	LeftOut int    `json:"left_out"`
	Why     string `json:"why"`
}

// evaluationRecord is a train.Evaluation in JSON.
type evaluationRecord struct {
	recordHead
	Train      number `json:"train"`
	Validation number `json:"validation"`
	Best       bool   `json:"best"`
	Seconds    number `json:"seconds"`

	TrainMetrics      map[string]number `json:"train_metrics,omitempty"`
	ValidationMetrics map[string]number `json:"validation_metrics,omitempty"`
}

func (r stepRecord) record() train.Step {
	var waited []time.Duration
	for _, n := range r.Waited {
		waited = append(waited, n.duration())
	}
	return train.Step{
		Waited: waited,
		Report: train.Report{
			Step: r.Updates, LearningRate: float64(r.LearningRate), GradientNorm: float64(r.GradientNorm),
			Clipped: r.Clipped, Skipped: r.Skipped, NonFinite: r.NonFinite,
		},
		Done: r.Done, Steps: r.Steps, Loss: float64(r.Loss), Tokens: r.Tokens, Examples: r.Examples, Duration: r.Seconds.duration(),
		Elapsed: r.Elapsed.duration(), Metrics: converted[float64](r.Metrics),
	}
}

func (r evaluationRecord) record() train.Evaluation {
	return train.Evaluation{
		Done: r.Done, Train: float64(r.Train), Validation: float64(r.Validation), Best: r.Best, Duration: r.Seconds.duration(),
		TrainMetrics: converted[float64](r.TrainMetrics), ValidationMetrics: converted[float64](r.ValidationMetrics),
	}
}

// converted is a map with its numbers in another type.
func converted[To, From ~float64](from map[string]From) map[string]To {
	if from == nil {
		return nil
	}
	to := map[string]To{}
	for name, x := range from {
		to[name] = To(x)
	}
	return to
}

// jsonFormat encodes into a buffer that it keeps.
type jsonFormat struct{ line bytes.Buffer }

func (*jsonFormat) begin(train.Start) {}

func (*jsonFormat) header() string { return "" }

func (*jsonFormat) starts() []string {
	return []string{`{"event":"` + stepEvent + `","step":`, `{"event":"` + evaluationEvent + `","step":`, `{"event":"` + backEvent + `","step":`}
}

func (f *jsonFormat) step(s train.Step) ([]byte, error) {
	var waited []number
	for _, d := range s.Waited {
		waited = append(waited, number(d.Seconds()))
	}
	return f.encode(stepRecord{
		Waited:     waited,
		recordHead: recordHead{stepEvent, s.Done}, Steps: s.Steps, Updates: s.Report.Step, Loss: number(s.Loss),
		LearningRate: number(s.LearningRate), GradientNorm: number(s.GradientNorm), Clipped: s.Clipped, Skipped: s.Skipped,
		NonFinite: s.NonFinite, Tokens: s.Tokens, Examples: s.Examples, Seconds: number(s.Duration.Seconds()),
		Elapsed: number(s.Elapsed.Seconds()), Metrics: converted[number](s.Metrics),
	})
}

func (f *jsonFormat) evaluation(e train.Evaluation) ([]byte, error) {
	return f.encode(evaluationRecord{
		recordHead: recordHead{evaluationEvent, e.Done}, Train: number(e.Train), Validation: number(e.Validation), Best: e.Best,
		Seconds: number(e.Duration.Seconds()), TrainMetrics: converted[number](e.TrainMetrics), ValidationMetrics: converted[number](e.ValidationMetrics),
	})
}

func (f *jsonFormat) back(b train.Back) ([]byte, error) {
	return f.encode(backRecord{recordHead{backEvent, b.Done}, b.From, b.LeftOut, b.Why})
}

func (f *jsonFormat) encode(record any) ([]byte, error) {
	f.line.Reset()
	err := json.NewEncoder(&f.line).Encode(record)
	return f.line.Bytes(), err
}

func (*jsonFormat) head(line []byte) (recordHead, error) { return parseHead(line) }

func parseHead(line []byte) (recordHead, error) {
	var head recordHead
	if err := json.Unmarshal(line, &head); err != nil {
		return head, fmt.Errorf("%q is no record: %w", clip(line), err)
	}
	if !slices.Contains(events, head.Event) {
		return head, fmt.Errorf("%q has the event %q, it needs to be one of %q", clip(line), head.Event, events)
	}
	if head.Done < 0 {
		return head, fmt.Errorf("%q has the step %d, it needs to be at least 0", clip(line), head.Done)
	}
	return head, nil
}

// number is null in JSON where it is not finite, and NaN where JSON has null.
type number float64

// MarshalJSON gives null for what JSON cannot hold.
func (n number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON takes null for NaN.
func (n *number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = number(math.NaN())
		return nil
	}
	var x float64
	if err := json.Unmarshal(text, &x); err != nil {
		return errors.New(string(clip(text)) + " is no number")
	}
	*n = number(x)
	return nil
}

// duration is that of so many seconds.
func (n number) duration() time.Duration {
	return time.Duration(math.Round(float64(n) * float64(time.Second)))
}
