package watch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/train"
)

// TensorBoard writes an event file into a folder, for
//
//	tensorboard --logdir FOLDER
//
// It has the series loss/train, learning_rate, gradient_norm and tokens_per_second, or
// examples_per_second, of each step, and loss/validation of each evaluation that has one. A metric
// has the series NAME/train and NAME/validation, of evaluations, and NAME/step if it is one of
// steps. The folder is made if it is not there. A run that is resumed adds a file, which tells
// TensorBoard to forget the steps that it does again. Events reach the file about once a second,
// and at evaluations, checkpoints and the end.
func TensorBoard(folder string) train.Hook {
	return newTensorBoard(folder, time.Now).hook()
}

// tensorBoard writes an event file: records of a protocol buffer message each, which is an Event of
// TensorFlow.
type tensorBoard struct {
	folder string
	now    func() time.Time
	buffer
	file   *os.File // nil when no run goes on
	event  []byte   // the message that is being put together
	nested []byte   // a part of it, which needs to know its length first
}

func newTensorBoard(folder string, now func() time.Time) *tensorBoard {
	return &tensorBoard{folder: folder, now: now}
}

func (t *tensorBoard) hook() train.Hook {
	return train.Hook{
		OnStart: func(s train.Start) error { return t.wrap(t.start(s)) },
		OnStep:  func(s train.Step) error { return t.wrap(t.step(s)) },
		OnEval:  func(e train.Evaluation) error { return t.wrap(t.evaluation(e)) },
		OnBack:  func(b train.Back) error { return t.wrap(t.restart(b.Done)) },
		OnEnd:   func(train.End) error { return t.wrap(t.end(&t.file)) },

		BeforeCheckpoint: func() error { return t.wrap(t.sync(t.file)) },
	}
}

func (t *tensorBoard) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("TensorBoard: %w", err)
	}
	return nil
}

// The numbers of the fields of the messages Event, Summary, Summary.Value and SessionLog, and a
// value of an enumeration.
const (
	eventWallTime    = 1
	eventStep        = 2
	eventFileVersion = 3
	eventSummary     = 5
	eventSessionLog  = 7

	summaryValue     = 1
	valueTag         = 1
	valueSimpleValue = 2

	sessionLogStatus = 1
	statusStart      = 1
)

func (t *tensorBoard) start(s train.Start) error {
	if err := os.MkdirAll(t.folder, 0o777); err != nil {
		return err
	}
	file, err := t.create()
	if err != nil {
		return err
	}
	t.file, t.buffer = file, newBuffer(file)
	t.event = appendString(appendDouble(t.event[:0], eventWallTime, t.seconds()), eventFileVersion, "brain.Event:2")
	if err := t.write(); err != nil {
		return err
	}
	if s.Step == 0 {
		return nil
	}
	return t.restart(s.Step)
}

// restart begins a session after a step, which makes readers drop what there is of later ones.
func (t *tensorBoard) restart(done int) error {
	t.nested = appendVarint(t.nested[:0], sessionLogStatus, statusStart)
	return t.add(done+1, eventSessionLog)
}

// create opens a file of its own. TensorBoard reads the files of a folder in the order of their
// names, and takes those that have tfevents in it.
func (t *tensorBoard) create() (*os.File, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	for i := 0; ; i++ {
		name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", t.now().Unix(), host, os.Getpid(), i)
		file, err := os.OpenFile(filepath.Join(t.folder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, os.ErrExist) {
			return file, err
		}
	}
}

func (t *tensorBoard) step(s train.Step) error {
	t.nested = appendValue(t.nested[:0], "loss/train", s.Loss)
	t.nested = appendValue(t.nested, "learning_rate", s.LearningRate)
	t.nested = appendValue(t.nested, "gradient_norm", s.GradientNorm)
	if s.Duration > 0 {
		count, unit := amount(s.Examples, s.Tokens)
		t.nested = appendValue(t.nested, unit+"_per_second", float64(count)/s.Duration.Seconds())
	}
	t.metrics(s.Metrics, "step")
	if err := t.add(s.Done, eventSummary); err != nil {
		return err
	}
	return t.flushIfDue()
}

func (t *tensorBoard) evaluation(e train.Evaluation) error {
	t.nested = t.nested[:0]
	if !math.IsNaN(e.Validation) {
		t.nested = appendValue(t.nested, "loss/validation", e.Validation)
	}
	t.metrics(e.TrainMetrics, "train")
	t.metrics(e.ValidationMetrics, "validation")
	if len(t.nested) > 0 {
		if err := t.add(e.Done, eventSummary); err != nil {
			return err
		}
	}
	return t.flush()
}

// metrics adds the values of metrics to nested.
func (t *tensorBoard) metrics(all map[string]float64, kind string) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.nested = appendValue(t.nested, name+"/"+kind, all[name])
	}
}

func (t *tensorBoard) seconds() float64 { return float64(t.now().UnixNano()) / 1e9 }

// add writes an event of a step, whose one other field is what nested holds.
func (t *tensorBoard) add(step, field int) error {
	t.event = appendDouble(t.event[:0], eventWallTime, t.seconds())
	t.event = appendVarint(t.event, eventStep, uint64(step))
	t.event = appendString(t.event, field, t.nested)
	return t.write()
}

// write writes the event as a record: its length, the length's checksum, the event, its checksum.
func (t *tensorBoard) write() error {
	var head [12]byte
	binary.LittleEndian.PutUint64(head[:], uint64(len(t.event)))
	binary.LittleEndian.PutUint32(head[8:], maskedChecksum(head[:8]))
	var tail [4]byte
	binary.LittleEndian.PutUint32(tail[:], maskedChecksum(t.event))
	for _, part := range [][]byte{head[:], t.event, tail[:]} {
		if _, err := t.w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedChecksum is a CRC-32C, changed so that the checksum of data that hold checksums is as good
// as any.
func maskedChecksum(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// appendValue appends a Summary.Value to a Summary.
func appendValue(summary []byte, tag string, value float64) []byte {
	size := 2 + len(tag) + 5 // a key and a length, the tag, a key and a float32
	summary = binary.AppendUvarint(appendKey(summary, summaryValue, wireBytes), uint64(size))
	summary = appendString(summary, valueTag, tag)
	return binary.LittleEndian.AppendUint32(appendKey(summary, valueSimpleValue, wireFixed32), math.Float32bits(float32(value)))
}

// How a protocol buffer holds a field.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

func appendKey(b []byte, field, wire int) []byte {
	return binary.AppendUvarint(b, uint64(field)<<3|uint64(wire))
}

func appendVarint(b []byte, field int, x uint64) []byte {
	return binary.AppendUvarint(appendKey(b, field, wireVarint), x)
}

func appendDouble(b []byte, field int, x float64) []byte {
	return binary.LittleEndian.AppendUint64(appendKey(b, field, wireFixed64), math.Float64bits(x))
}

func appendString[T string | []byte](b []byte, field int, s T) []byte {
	b = binary.AppendUvarint(appendKey(b, field, wireBytes), uint64(len(s)))
	return append(b, s...)
}
