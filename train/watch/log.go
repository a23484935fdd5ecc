package watch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/train"
)

// Log is what a run was like, step by step.
type Log struct {
	Steps       []train.Step
	Evaluations []train.Evaluation
}

// format is how a step and an evaluation become a line of text. The lines that it gives may be overwritten by the next
// call.
type format interface {
	// header is the line before all others, "" if there is none.
	header() string
	// starts are what the header, or any other line, can start with.
	starts(header bool) []string
	step(train.Step) ([]byte, error)
	evaluation(train.Evaluation) ([]byte, error)
	// done is how many steps were done when a line was written; the line has no end of line.
	done(line []byte) (int, error)
}

// textLog writes a line for each step and evaluation.
type textLog struct {
	name   string // of the function that made it
	format format
	buffer
	headed bool // the header is written
}

func (l *textLog) hook() train.Hook {
	return train.Hook{
		OnStart:      func(train.Start) error { return l.wrap(l.start()) },
		OnStep:       func(s train.Step) error { return l.wrap(l.step(s)) },
		OnEval:       func(e train.Evaluation) error { return l.wrap(l.evaluation(e)) },
		OnCheckpoint: func(train.Checkpoint) error { return l.wrap(l.flush()) },
		OnEnd:        func(train.End) error { return l.wrap(l.flush()) },
	}
}

func (l *textLog) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

func (l *textLog) start() error {
	if l.headed {
		return nil
	}
	l.headed = true
	_, err := l.w.WriteString(l.format.header())
	return err
}

func (l *textLog) step(s train.Step) error {
	line, err := l.format.step(s)
	if err != nil {
		return err
	}
	if _, err := l.w.Write(line); err != nil {
		return err
	}
	return l.flushIfDue()
}

func (l *textLog) evaluation(e train.Evaluation) error {
	line, err := l.format.evaluation(e)
	if err != nil {
		return err
	}
	if _, err := l.w.Write(line); err != nil {
		return err
	}
	return l.flush()
}

// buffer collects what is written for at most about a second of steps.
type buffer struct {
	w       *bufio.Writer
	flushed time.Time
}

const flushInterval = time.Second

func newBuffer(w io.Writer) buffer {
	return buffer{w: bufio.NewWriterSize(w, 1<<15), flushed: time.Now()}
}

func (b *buffer) flushIfDue() error {
	if time.Since(b.flushed) < flushInterval {
		return nil
	}
	return b.flush()
}

func (b *buffer) flush() error {
	b.flushed = time.Now()
	return b.w.Flush()
}

// logFile is a textLog over a file that is open during a run.
type logFile struct {
	textLog
	path string
	file *os.File // nil when no run goes on
}

func openLog(name, path string, f format) train.Hook {
	l := &logFile{textLog: textLog{name: name, format: f}, path: path}
	h := l.hook()
	h.OnStart = func(s train.Start) error { return l.wrap(l.start(s)) }
	h.OnEnd = func(train.End) error { return l.wrap(l.end()) }
	return h
}

func (l *logFile) start(s train.Start) error {
	file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	kept, err := cut(file, l.format, s.Step)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.buffer, l.headed = file, newBuffer(file), kept > 0
	return l.textLog.start()
}

// end is also called when start has failed or was not called, as nothing is open then.
func (l *logFile) end() error {
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.flush(), l.file.Close())
	l.file = nil
	return err
}

// cut removes the records of steps that a resumed run does again, and those of an earlier run where this one is new. It
// leaves the file at its end and gives its length. A file with anything else in it is left as it is.
func cut(file *os.File, f format, done int) (kept int64, err error) {
	r := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return 0, err
		}
		isHeader := number == 1 && f.header() != ""
		if err == io.EOF {
			// A killed run may have left the start of a line.
			if starts := f.starts(isHeader); !slices.ContainsFunc(starts, func(s string) bool { return overlap(string(line), s) }) {
				return 0, fmt.Errorf("%s: line %d is %q, it needs to start with %q", file.Name(), number, clip(line), starts)
			}
			break
		}
		if isHeader {
			if string(line) != f.header() {
				return 0, fmt.Errorf("%s: line 1 is %q, it needs to be %q", file.Name(), clip(line), f.header())
			}
			kept += int64(len(line))
			continue
		}
		at, err := f.done(line[:len(line)-1])
		if err != nil {
			return 0, fmt.Errorf("%s: line %d: %w", file.Name(), number, err)
		}
		if done == 0 || at > done {
			break
		}
		kept += int64(len(line))
	}
	if err := file.Truncate(kept); err != nil {
		return 0, err
	}
	_, err = file.Seek(kept, io.SeekStart)
	return kept, err
}

// overlap tells whether one of two strings starts with the other.
func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

// clip is as much of a line as an error should show.
func clip(line []byte) string {
	const limit = 60
	if len(line) > limit {
		return string(line[:limit]) + "..."
	}
	return string(line)
}
