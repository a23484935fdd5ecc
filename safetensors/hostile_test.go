package safetensors_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/safetensors"
)

// madeUp is a file whose contents nobody holds: a header's length, its beginning, one byte over and
// over, and its end.
type madeUp struct {
	length     uint64
	begin, end string
	fill       byte
	size       int64
}

func (m *madeUp) ReadAt(p []byte, at int64) (int, error) {
	var start [8]byte
	binary.LittleEndian.PutUint64(start[:], m.length)
	head := string(start[:]) + m.begin
	for i := range p {
		p[i] = m.fill
	}
	if at < int64(len(head)) {
		copy(p, head[at:])
	}
	if tail := m.size - int64(len(m.end)); at+int64(len(p)) > tail {
		copy(p[max(0, tail-at):], m.end[max(0, at-tail):])
	}
	return len(p), nil
}

// A header that lies is refused before memory is taken for what it claims, and one that is enormous
// takes little beside itself.
func TestHostileHeaders(t *testing.T) {
	const (
		most  = 100_000_000
		large = most / 20 // more only takes longer
	)
	var tensors strings.Builder
	const many = 10_000
	for i := range many {
		fmt.Fprintf(&tensors, `"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},`, i)
	}
	million := tensors.String()
	var empty strings.Builder
	for i := range 400_000 {
		fmt.Fprintf(&empty, `,"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	flood := "{" + empty.String()[1:] + "}"
	for name, c := range map[string]struct {
		file    madeUp
		want    string // of the error
		allowed uint64 // bytes
	}{
		"a length of 2^63":      {madeUp{length: 1 << 63, size: 1 << 40}, "the format allows 100000000", 1 << 20},
		"a length of 2^64-1":    {madeUp{length: 1<<64 - 1, size: 1 << 40}, "the format allows 100000000", 1 << 20},
		"longer than the file":  {madeUp{length: most, size: 1000}, "only 992 follow", 1 << 20},
		"no object":             {madeUp{length: most, size: 1 << 40}, "it does not begin with {", 1 << 20},
		"nested lists":          {madeUp{length: large, begin: `{"a":{"x":`, fill: '[', size: large + 8}, "exceeded max depth", large + 4<<20},
		"nested in a shape":     {madeUp{length: large, begin: `{"a":{"shape":`, fill: '[', size: large + 8}, "where a number needs to be", large + 4<<20},
		"a dimension's digits":  {madeUp{length: large, begin: `{"a":{"shape":[`, fill: '9', end: "]}}", size: large + 8}, "is not an integer", 8 * large},
		"a name without an end": {madeUp{length: large, begin: `{"`, fill: 'a', size: large + 8}, "unexpected EOF", 8 * large},
		"a shape of terabytes": {madeUp{length: 200, begin: `{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}`, fill: ' ', size: 1000},
			"the file is cut short", 1 << 20},
		"400,000 tensors": {madeUp{length: uint64(len(flood)), begin: flood, size: int64(len(flood)) + 8}, "one tensor more than 65536", 9 * uint64(len(flood))},
		"many tensors":    {madeUp{length: uint64(len(million)), begin: million, size: int64(len(million)) + 8}, "is not valid", 40 * uint64(len(million))},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := safetensors.Read(&c.file, c.file.size)
		runtime.ReadMemStats(&after)
		if text := fmt.Sprint(err); err == nil || !strings.Contains(text, c.want) {
			t.Errorf("%s: %.200s, want an error with %q", name, text, c.want)
		} else if len(text) > 1000 {
			t.Errorf("%s: the error has %d bytes", name, len(text))
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > c.allowed {
			t.Errorf("%s takes %d bytes, want at most %d", name, taken, c.allowed)
		}
	}
}
