package parquet_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/data/prepare/internal/parquet"
)

// field is a number of a struct, in Thrift's compact protocol, whose id is one more than that
// before.
func field(n int64) []byte { return binary.AppendVarint([]byte{0x16}, n) }

func join(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// lie is a file of one page and what it says of it.
type lie struct {
	codec, uncompressed, compressed, values, rows, chunk int64
	encoding                                             int64
	page                                                 []byte
	columns                                              []byte // the head of the list of columns
	footer                                               int
	dictionary                                           bool
	groups, elements                                     int // how often the row group is there, and columns beside its own
}

// honest is a file of one text, "hello".
func honest() lie {
	page := []byte("\x05\x00\x00\x00hello")
	return lie{uncompressed: 9, compressed: 9, values: 1, rows: 1, chunk: -1, page: page, columns: []byte{0x1c}, groups: 1}
}

func (l lie) file() []byte {
	stop := []byte{0}
	header := join(field(0), field(l.uncompressed), field(l.compressed), []byte{0x2c}, field(l.values), field(l.encoding), field(3), field(3), stop, stop)
	if l.dictionary {
		header = join(field(2), field(l.uncompressed), field(l.compressed), []byte{0x4c}, field(l.values), field(l.encoding), stop, stop)
	}
	chunk := l.chunk
	if chunk < 0 {
		chunk = int64(len(header) + len(l.page))
	}
	root := join([]byte{0x48, 4}, []byte("root"), []byte{0x15, 2}, stop)   // 4: name, 5: children
	text := join([]byte{0x15, 12, 0x25, 0, 0x18, 4}, []byte("text"), stop) // 1: type, 3: repetition, 4: name
	meta := join(field(6), []byte{0x19, 0x05, 0x19, 0x08}, field(l.codec), field(l.values), field(chunk), field(chunk), []byte{0x26}, binary.AppendVarint(nil, 4), stop)
	column := join([]byte{0x26, 8, 0x1c}, meta, stop) // 2: offset, 3: metadata
	group := join([]byte{0x19}, l.columns, column, field(chunk), field(l.rows), stop)
	schema := join([]byte{0x19, 0xfc}, binary.AppendUvarint(nil, uint64(2+l.elements)), root, text, make([]byte, l.elements))
	groups := join([]byte{0x19, 0xfc}, binary.AppendUvarint(nil, uint64(l.groups)), bytes.Repeat(group, l.groups))
	footer := join(field(1), schema, field(l.rows), groups, stop)
	length := len(footer)
	if l.footer != 0 {
		length = l.footer
	}
	return join([]byte("PAR1"), header, l.page, footer, binary.LittleEndian.AppendUint32(nil, uint32(length)), []byte("PAR1"))
}

// lies are files that say what is not so, with the error of each.
func lies() map[string][]byte {
	list := map[string][]byte{}
	say := func(want string, how func(l *lie)) {
		l := honest()
		how(&l)
		list[want] = l.file()
	}
	say("it says that its footer has 2000000000 bytes", func(l *lie) { l.footer = 2_000_000_000 })
	say("page 0 says that it has 2147483647 bytes", func(l *lie) { l.compressed = math.MaxInt32 })
	say("page 0 says that it has -5 bytes", func(l *lie) { l.compressed = -5 })
	say("column has 9000000000 bytes", func(l *lie) { l.chunk = 9_000_000_000 })
	say("it says that it has 2147483647 bytes when decompressed", func(l *lie) { l.codec, l.uncompressed = 6, math.MaxInt32 })
	say("it cannot be decompressed to 9 bytes", func(l *lie) { l.codec = 7 }) // LZ4, of which it is none
	say("it says that it has 9223372036854775807 rows", func(l *lie) { l.values, l.rows = math.MaxInt64, math.MaxInt64 })
	say("it says that it has 1200000 rows", func(l *lie) { l.values, l.rows = 1_200_000, 1_200_000 })
	say("it says that its column has 5 values, 1 rows are left", func(l *lie) { l.values = 5 })
	say("it ends before its values", func(l *lie) { l.values, l.rows = 1000, 1000 })
	say("a length is 4294967295, 5 bytes are left", func(l *lie) { l.page = []byte("\xff\xff\xff\xffhello") })
	say("a text is number 0 of a dictionary of 0", func(l *lie) { l.encoding, l.page = 8, []byte("\x01\xff\xff\xff\xff\x0f\x00\x00\x00") })
	say("it says that it has 34359738367 lengths", func(l *lie) { l.encoding, l.page = 6, []byte("\x80\x01\x04\xff\xff\xff\xff\x7f\x00") })
	say("its footer: it ends within a value", func(l *lie) { l.columns = []byte{0xfc, 0xff, 0xff, 0xff, 0xff, 0x07} })
	say("it has 2 rows, its column has 1", func(l *lie) { l.rows = 2 })
	compressed := func(l *lie, codec int64, content []byte) {
		l.codec, l.page, l.compressed = codec, content, int64(len(content))
		if l.uncompressed == honest().uncompressed {
			l.uncompressed = 1000*l.compressed + 1<<20
		}
	}
	const some = 32 << 10
	say("it cannot be decompressed to 33816576 bytes: it says itself that it has 0", func(l *lie) {
		l.uncompressed = 1000*some + 1<<20
		compressed(l, 1, make([]byte, 1600_000))
	})
	say("it says that it has 33816576 bytes when decompressed, its 32768 can become 1769472", func(l *lie) { compressed(l, 1, make([]byte, some)) })
	say("it cannot be decompressed to 33816576 bytes: brotli", func(l *lie) { compressed(l, 4, bytes.Repeat([]byte{255}, some)) })
	// A frame that is to be skipped has 32 kB, and one of 1024 bytes follows.
	padded := join([]byte{0x50, 0x2a, 0x4d, 0x18}, binary.LittleEndian.AppendUint32(nil, some), make([]byte, some))
	say("it says that it has 134217728 bytes when decompressed", func(l *lie) {
		l.uncompressed = 128 << 20
		compressed(l, 6, join(padded, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x60, 0, 3, 3, 32, 0, 'a'}))
	})
	say("it has more than 65536 columns", func(l *lie) { l.elements = 1 << 20 })
	say("it says that it has 1 rows, its column has 0", func(l *lie) {
		l.columns = join([]byte{0xfc}, binary.AppendUvarint(nil, 1+1<<20), make([]byte, 1<<20))
	})
	say("with those of the row groups before it they are more than the file has", func(l *lie) {
		l.page = join(binary.LittleEndian.AppendUint32(nil, 996), make([]byte, 996))
		l.uncompressed, l.compressed, l.groups, l.rows = 1000, 1000, 20, 20
	})
	say("its column has a dictionary already", func(l *lie) {
		l.dictionary = true
		page := l.file()[4:]
		page = page[:bytes.Index(page, l.page)+len(l.page)]
		l.page = join(l.page, page)
		l.chunk = int64(2 * len(page))
	})
	return list
}

// What a file says is compared with what it has before memory is taken for it.
func TestLies(t *testing.T) {
	if have, err := read(honest().file(), "text"); err != nil || len(have) != 1 || have[0] != "1:hello" {
		t.Fatalf("an honest file has %q: %v", have, err)
	}
	for want, content := range lies() {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := read(content, "text")
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 20<<20 {
			t.Errorf("%s: %d bytes of memory for a file of %d", want, took, len(content))
		}
	}
}

// A dictionary of many empty texts takes little more memory than what is decompressed of it.
func TestDictionaryOfEmptyTexts(t *testing.T) {
	const texts = 2 << 20
	var page bytes.Buffer
	w := gzip.NewWriter(&page)
	if _, err := w.Write(make([]byte, 4*texts)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l := honest()
	l.codec, l.dictionary, l.page, l.values, l.rows = 2, true, page.Bytes(), texts, texts
	l.uncompressed, l.compressed = 4*texts, int64(page.Len())
	content := l.file()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := read(content, "text")
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "page 1: it is missing") {
		t.Errorf("the error is %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 40<<20 {
		t.Errorf("%d bytes of memory for a dictionary of %d in a file of %d", took, 4*texts, len(content))
	}
}

// Any file is texts or an error.
func FuzzRead(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.parquet")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	for _, content := range lies() {
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		length, rows := 0, 0
		err := parquet.Read(bytes.NewReader(content), int64(len(content)), "text", func(text []byte, _, _ int64) error {
			length, rows = length+len(text), rows+1
			return nil
		})
		if rows > 1024*len(content)+1<<20 || length > 4096*len(content)+16<<20 {
			t.Errorf("%d texts of %d bytes are of a file of %d: %v", rows, length, len(content), err)
		}
	})
}
