package watch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/internal/filelock"
	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/train"
)

// Log is what a run was like, step by step.
type Log struct {
	Steps       []train.Step
	Evaluations []train.Evaluation
	Backs       []train.Back // where the training went back; the steps that it left are not there
}

// goBack takes out what was recorded of later steps.
func (l *Log) goBack(b train.Back) {
	l.Steps = slices.DeleteFunc(l.Steps, func(s train.Step) bool { return s.Done > b.Done })
	l.Evaluations = slices.DeleteFunc(l.Evaluations, func(e train.Evaluation) bool { return e.Done > b.Done })
	l.Backs = append(l.Backs, b)
}

// format is how a step and an evaluation become a line of text. The lines that it gives may be
// overwritten by the next call.
type format interface {
	// begin is told of a run before it is asked for anything.
	begin(train.Start)
	// header is the line before all others, "" if there is none.
	header() string
	// starts are what lines can start with, apart from the header.
	starts() []string
	step(train.Step) ([]byte, error)
	evaluation(train.Evaluation) ([]byte, error)
	back(train.Back) ([]byte, error)
	// head is what a line begins with; the line has no end of line.
	head(line []byte) (recordHead, error)
}

// textLog writes a line for each step and evaluation.
type textLog struct {
	name   string // of the function that made it
	format format
	buffer
	often  bool // the file needs each step at once
	headed bool // the header is written
}

func (l *textLog) hook() train.Hook {
	return train.Hook{
		OnStart: func(s train.Start) error { return l.wrap(l.start(s)) },
		OnStep:  func(s train.Step) error { return l.wrap(l.step(s)) },
		OnEval:  func(e train.Evaluation) error { return l.wrap(l.evaluation(e)) },
		OnBack:  func(b train.Back) error { return l.wrap(l.back(b)) },
		OnEnd:   func(train.End) error { return l.wrap(l.flush()) },

		BeforeCheckpoint: func() error { return l.wrap(l.flush()) },
	}
}

func (l *textLog) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	return nil
}

func (l *textLog) start(s train.Start) error {
	l.format.begin(s)
	l.often = s.Survives
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
	if l.often {
		return l.flush()
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

func (l *textLog) back(b train.Back) error {
	line, err := l.format.back(b)
	if err != nil {
		return err
	}
	if _, err := l.w.Write(line); err != nil {
		return err
	}
	return l.flush()
}

// nilWriter is the hook of a function that was given nothing to write to.
func nilWriter(name string) train.Hook {
	return train.Hook{OnStart: func(train.Start) error { return fmt.Errorf("%s: w is nil, it needs to be a writer", name) }}
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

// sync writes what there is to a file, and waits until it is on the disk, as the checkpoint soon
// will be. No file is open where a run has not started.
func (b *buffer) sync(file *os.File) error {
	if file == nil {
		return nil
	}
	if err := b.flush(); err != nil {
		return err
	}
	return file.Sync()
}

// end writes what there is to a file and closes it, if one is open.
func (b *buffer) end(file **os.File) error {
	if *file == nil {
		return nil
	}
	err := errors.Join(b.flush(), (*file).Close())
	*file = nil
	return err
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
	h.OnBack = func(b train.Back) error { return l.wrap(l.back(b)) }
	h.BeforeCheckpoint = func() error { return l.wrap(l.sync(l.file)) }
	h.OnEnd = func(train.End) error { return l.wrap(l.end(&l.file)) }
	return h
}

func (l *logFile) start(s train.Start) error {
	file, err := plainfile.OpenOwn(l.path)
	if err != nil {
		return err
	}
	if err := filelock.Lock(file); err != nil {
		return errors.Join(fmt.Errorf("%s: another run writes to it: %w", l.path, err), file.Close())
	}
	l.format.begin(s)
	found, err := cut(file, l.format, s)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	l.file, l.buffer, l.headed = file, newBuffer(file), found.kept > 0
	if err := l.textLog.start(s); err != nil {
		return err
	}
	return found.notice(l.path, s.Step)
}

// cut removes what does not stay, and puts what is written next in its place.
func cut(file *os.File, f format, s train.Start) (contents, error) {
	found, err := scan(file, f, s)
	if err == nil {
		err = file.Truncate(found.kept)
	}
	if err == nil {
		_, err = file.Seek(found.kept, io.SeekStart)
	}
	return found, err
}

// back removes the records of the steps that the training has left.
func (l *logFile) back(b train.Back) error {
	if l.file == nil {
		return nil
	}
	if err := l.flush(); err != nil {
		return err
	}
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := cut(l.file, l.format, train.Start{Step: b.Done, Evaluated: true}); err != nil {
		return err
	}
	return l.textLog.back(b)
}

// contents is what a run finds in its log.
type contents struct {
	kept    int64 // bytes, of the records that stay
	last    int   // the step of the last of them
	damaged int   // bytes at the end that are no record
}

// scan finds the records that stay: all but those of steps that a resumed run does again, or, where
// the run is new, none. A file with anything else in it than records, and damage at its end, is an
// error.
func scan(file *os.File, f format, s train.Start) (contents, error) {
	var found contents
	r := bufio.NewReader(file)
	stays := s.Step > 0 || s.Evaluated
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return found, err
		}
		isHeader := number == 1 && f.header() != ""
		var at recordHead
		bad := error(nil)
		switch {
		case err == io.EOF:
			bad = fmt.Errorf("%q has no end", clip(line))
		case isHeader && string(line) != f.header():
			bad = fmt.Errorf("%q needs to be %q", clip(line), f.header())
		case !isHeader:
			at, bad = f.head(line[:len(line)-1])
		}
		if bad == nil {
			if stays = stays && at.stays(s); stays {
				found.kept += int64(len(line))
				found.last = max(found.last, at.Done)
			}
			continue
		}
		if err != io.EOF || !cutShort(line, f.starts(), number == 1) {
			return found, fmt.Errorf("%s is not the log of a run, it is left as it is: line %d: %w", file.Name(), number, bad)
		}
		found.damaged = len(line)
		return found, nil
	}
}

// stays reports whether a record is not one that comes again in a run that starts there. That the
// training went back belongs to the step after.
func (r recordHead) stays(s train.Start) bool {
	switch r.Event {
	case backEvent:
		return r.Done < s.Step
	case evaluationEvent:
		return r.Done < s.Step || r.Done == s.Step && (s.Evaluated || !s.Survives)
	}
	return r.Done <= s.Step
}

// cutShort reports whether the rest of a file can be a record without its end: where a process was
// killed, the file ends within it; where power was lost, what did not reach the disk reads as
// zeros.
func cutShort(rest []byte, starts []string, first bool) bool {
	text := bytes.TrimRight(rest, "\x00")
	if len(rest) == 0 || len(text) == 0 && !first {
		return true
	}
	return slices.ContainsFunc(starts, func(start string) bool {
		// With no record before it, it needs to be clear whose it is.
		return bytes.HasPrefix(text, []byte(start)) || !first && strings.HasPrefix(start, string(text))
	})
}

// notice says what a resumed run has not found, nil if it has found all.
func (c contents) notice(path string, done int) error {
	var parts []string
	if c.damaged > 0 {
		parts = append(parts, fmt.Sprintf("its last %d bytes are no record, as after a kill or a loss of power, and are dropped", c.damaged))
	}
	if c.last < done && c.kept+int64(c.damaged) > 0 {
		parts = append(parts, fmt.Sprintf("steps %d to %d are not in it", c.last+1, done))
	}
	if done == 0 || len(parts) == 0 {
		return nil
	}
	return train.Notice(path + ": " + strings.Join(parts, "; "))
}

// clip is as much of a line as an error should show.
func clip(line []byte) string {
	const limit = 60
	if len(line) > limit {
		return string(line[:limit]) + "..."
	}
	return string(line)
}
