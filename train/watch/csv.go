package watch

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/train"
)

// csvHeader is the first line of a CSV log, up to the columns of metrics.
const csvHeader = "event,step,loss,validation_loss,learning_rate,gradient_norm,clipped,skipped,tokens,seconds,elapsed_seconds,examples"

// CSV writes a line of comma-separated values for each step and evaluation, after a header:
//
//	event             step, evaluation, or back: the training went back to the step
//	step              how many steps are done
//	loss              of the step's batches; of an evaluation, the mean on training data
//	validation_loss   evaluations: the mean on validation data; empty without such data
//	learning_rate     steps
//	gradient_norm     steps: before clipping
//	clipped, skipped  steps: true or false
//	tokens            steps: how many it took
//	seconds           how long it took
//	elapsed_seconds   steps: since the run, or its last resumption, started
//	examples          steps: how many it took
//	NAME              of a metric: of the step, or of an evaluation on training data
//	validation_NAME   of a metric: on validation data
//
// What a line has no value for is empty; numbers that are not finite are NaN, Inf and -Inf. Lines
// reach w about once a second, and at evaluations, checkpoints and the end.
func CSV(w io.Writer) train.Hook {
	if w == nil {
		return nilWriter("CSV")
	}
	return (&textLog{name: "CSV", format: &csvFormat{}, buffer: newBuffer(w)}).hook()
}

// OpenCSV is [CSV] into a file, which it treats as [OpenJSONLines] does its own.
func OpenCSV(path string) train.Hook {
	return openLog("OpenCSV", path, &csvFormat{})
}

// csvFormat needs no quotes, as no value has a comma, nor has the name of a metric.
type csvFormat struct {
	line    []byte
	metrics []string
}

func (f *csvFormat) begin(s train.Start) { f.metrics = s.Metrics }

func (f *csvFormat) header() string {
	header := csvHeader
	for _, name := range f.metrics {
		header += "," + name + ",validation_" + name
	}
	return header + "\n"
}

func (*csvFormat) starts() []string {
	return []string{stepEvent + ",", evaluationEvent + ",", backEvent + ","}
}

func (f *csvFormat) step(s train.Step) ([]byte, error) {
	f.start(stepEvent, s.Done)
	f.number(s.Loss)
	f.empty()
	f.number(s.LearningRate)
	f.number(s.GradientNorm)
	f.line = append(strconv.AppendBool(f.line, s.Clipped), ',')
	f.line = append(strconv.AppendBool(f.line, s.Skipped), ',')
	f.line = append(strconv.AppendInt(f.line, int64(s.Tokens), 10), ',')
	f.number(s.Duration.Seconds())
	f.number(s.Elapsed.Seconds())
	f.line = append(strconv.AppendInt(f.line, int64(s.Examples), 10), ',')
	f.measures(s.Metrics, nil)
	return f.end(), nil
}

func (f *csvFormat) evaluation(e train.Evaluation) ([]byte, error) {
	f.start(evaluationEvent, e.Done)
	f.number(e.Train)
	if math.IsNaN(e.Validation) {
		f.empty()
	} else {
		f.number(e.Validation)
	}
	for range 5 { // learning_rate to tokens
		f.empty()
	}
	f.number(e.Duration.Seconds())
	for range 2 { // elapsed_seconds and examples
		f.empty()
	}
	f.measures(e.TrainMetrics, e.ValidationMetrics)
	return f.end(), nil
}

func (f *csvFormat) start(event string, done int) {
	f.line = append(append(f.line[:0], event...), ',')
	f.line = append(strconv.AppendInt(f.line, int64(done), 10), ',')
}

func (f *csvFormat) number(x float64) {
	if math.IsInf(x, 1) {
		f.line = append(f.line, "Inf,"...)
		return
	}
	f.line = append(strconv.AppendFloat(f.line, x, 'g', -1, 64), ',')
}

// measures appends the values of all metrics.
func (f *csvFormat) measures(first, validation map[string]float64) {
	for _, name := range f.metrics {
		for _, values := range []map[string]float64{first, validation} {
			if x, ok := values[name]; ok {
				f.number(x)
			} else {
				f.empty()
			}
		}
	}
}

func (f *csvFormat) empty() { f.line = append(f.line, ',') }

// end puts the end of the line in the place of the last comma.
func (f *csvFormat) end() []byte {
	f.line[len(f.line)-1] = '\n'
	return f.line
}

// back has nothing but the step.
func (f *csvFormat) back(b train.Back) ([]byte, error) {
	f.start(backEvent, b.Done)
	for range strings.Count(csvHeader, ",") - 1 + 2*len(f.metrics) {
		f.empty()
	}
	return f.end(), nil
}

func (*csvFormat) head(line []byte) (recordHead, error) {
	fields := bytes.SplitN(line, []byte(","), 3)
	if len(fields) == 3 && slices.Contains(events, string(fields[0])) {
		if done, err := strconv.ParseUint(string(fields[1]), 10, 31); err == nil {
			return recordHead{string(fields[0]), int(done)}, nil
		}
	}
	return recordHead{}, fmt.Errorf("%q is no record of a step or an evaluation", clip(line))
}
