package prepare_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/data/prepare"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// large is Bytes with more tokens than two bytes can tell, the last of which ends a document.
type large struct{ tokenizer.Bytes }

func (large) Size() int { return 100_000 }

// uneven takes longer for some texts, so that workers overtake one another.
type uneven struct{ tokenizer.Bytes }

func (u uneven) Encode(text string) ([]int, error) {
	if len(text)%7 == 0 {
		time.Sleep(time.Millisecond)
	}
	if strings.Contains(text, "unbearable") {
		panic("a word too many")
	}
	if strings.Contains(text, "unspeakable") {
		return nil, errors.New("no word for it")
	}
	return u.Bytes.Encode(text)
}

// row is a row of the tests' .parquet files.
type row struct {
	ID   int64   `parquet:"id"`
	Text *string `parquet:"text,optional"`
}

func write(t *testing.T, folder, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeParquet(t *testing.T, folder, name string, texts []string, options ...parquet.WriterOption) string {
	t.Helper()
	var rows []row
	for i, text := range texts {
		r := row{ID: int64(i), Text: &text}
		if text == "null" {
			r.Text = nil
		}
		rows = append(rows, r)
	}
	var out bytes.Buffer
	w := parquet.NewGenericWriter[row](&out, options...)
	for len(rows) > 0 {
		n := min(len(rows), 40)
		if _, err := w.Write(rows[:n]); err != nil {
			t.Fatal(err)
		}
		if err := w.Flush(); err != nil { // a row group
			t.Fatal(err)
		}
		rows = rows[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return write(t, folder, name, out.Bytes())
}

// sources are files of all kinds and the documents in them.
func sources(t *testing.T) (paths, documents []string) {
	t.Helper()
	folder := t.TempDir()
	long := strings.Repeat("A line of a text that is longer than one piece.\n\n  indented\n", 40_000)
	var lines strings.Builder
	for i := range 300 {
		text := fmt.Sprintf("line %d %s", i, strings.Repeat("x", i%50))
		fmt.Fprintf(&lines, "{\"id\": %d, \"text\": %q}\n", i, text)
		documents = append(documents, text)
		if i%100 == 0 {
			lines.WriteString("\n{\"text\": \"\"}\n{\"text\": null}\n")
		}
	}
	documents = append(documents, long)
	var rows, full []string
	for i := range 200 {
		text := fmt.Sprintf("row %d ü%s", i, strings.Repeat("é", i%90))
		if rows = append(rows, text); i%10 == 3 {
			rows = append(rows, "null", "")
		}
		full = append(full, text)
	}
	documents = append(documents, full...)
	documents = append(documents, full...)
	documents = append(documents, full...)
	documents = append(documents, long+"end")
	return []string{
		write(t, folder, "a.jsonl", []byte(lines.String())), write(t, folder, "b.txt", []byte(long)),
		writeParquet(t, folder, "c.parquet", rows), writeParquet(t, folder, "d.parquet", rows, parquet.Compression(&parquet.Zstd)),
		writeParquet(t, folder, "e.parquet", rows, parquet.Compression(&parquet.Snappy), parquet.PageBufferSize(100)),
		write(t, folder, "empty.txt", nil), writeParquet(t, folder, "f.parquet", []string{long + "end"}),
	}, documents
}

// ids are all tokens of some files.
func ids(t *testing.T, paths []string, most int) []int {
	t.Helper()
	var all []int
	for i, path := range paths {
		tokens, err := data.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := tokens.Len(); n > most || n < most && i < len(paths)-1 {
			t.Errorf("%s has %d tokens, each file but the last is to have %d", path, n, most)
		}
		for k := range tokens.Len() {
			all = append(all, tokens.At(k))
		}
		if err := tokens.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// The tokens are those of the documents in their order, whatever the number of workers.
func TestRun(t *testing.T) {
	paths, documents := sources(t)
	var want []int
	text := int64(0)
	for _, d := range documents {
		want = append(want, 99_998)
		for i := range len(d) {
			want = append(want, int(d[i]))
		}
		want = append(want, 99_999)
		text += int64(len(d))
	}
	for _, workers := range []int{1, 5} {
		folder := filepath.Join(t.TempDir(), "new", "to[k]ens")
		var last prepare.Progress
		const most = 100_001
		result, err := prepare.Run(t.Context(), paths, prepare.Options{
			Tokenizer: large{}, Before: []int{99_998}, After: []int{99_999}, Folder: folder, Shard: most, Workers: workers,
			Progress: func(p prepare.Progress) {
				if p.Done < last.Done || p.Tokens < last.Tokens {
					t.Errorf("after %+v comes %+v", last, p)
				}
				last = p
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := ids(t, result.Train, most); !slices.Equal(got, want) || len(result.Validation) != 0 {
			t.Errorf("%d workers: there are %d tokens, want %d, or they differ", workers, len(got), len(want))
		}
		if last != result.Progress || last.Done != 1 || last.Documents != len(documents) || last.Bytes != text || last.Tokens != len(want) {
			t.Errorf("%d workers: it ends with %+v and %+v", workers, last, result.Progress)
		}
		if _, err := prepare.Run(t.Context(), paths, prepare.Options{Tokenizer: large{}, Folder: folder}); err == nil || !strings.Contains(err.Error(), "is there already") {
			t.Errorf("a folder with files: %v", err)
		}
	}
}

// The share of documents to validate on is about what was asked for, and the order is kept in both.
func TestValidation(t *testing.T) {
	slow.Race(t)
	paths, documents := sources(t)
	var first []int
	for _, workers := range []int{1, 4} {
		result, err := prepare.Run(t.Context(), paths, prepare.Options{Tokenizer: uneven{}, After: []int{0}, Folder: t.TempDir(), Validation: 0.2, Workers: workers, Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		validation := ids(t, result.Validation, 100_000_000)
		n := 0
		for _, id := range validation {
			if id == 0 {
				n++
			}
		}
		if n < len(documents)/10 || n > len(documents)*3/10 || len(validation)+len(ids(t, result.Train, 100_000_000)) != result.Tokens {
			t.Errorf("%d of %d documents validate", n, len(documents))
		}
		if first != nil && !slices.Equal(first, validation) {
			t.Error("other documents validate with other workers")
		}
		first = validation
	}
}

// A run that fails or is cancelled leaves no file and no goroutine.
func TestRunErrors(t *testing.T) {
	folder := t.TempDir()
	good := write(t, folder, "good.jsonl", []byte(strings.Repeat(`{"text": "of 5 words"}`+"\n", 60_000)))
	parquetFile := writeParquet(t, folder, "good.parquet", []string{"a", "b"})
	content, err := os.ReadFile(parquetFile)
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	before := runtime.NumGoroutine()
	for i, c := range []struct {
		ctx   context.Context
		paths []string
		o     prepare.Options
		want  string
	}{
		{t.Context(), nil, prepare.Options{Tokenizer: uneven{}}, "there are no paths"},
		{t.Context(), []string{good}, prepare.Options{}, "tokenizer is nil"},
		{t.Context(), []string{good}, prepare.Options{Tokenizer: uneven{}, Shard: 1}, "shard is 1 tokens"},
		{t.Context(), []string{good}, prepare.Options{Tokenizer: uneven{}, Validation: 1}, "validation is 1"},
		{t.Context(), []string{good}, prepare.Options{Tokenizer: uneven{}, After: []int{256}}, "the token 256"},
		{cancelled, []string{good}, prepare.Options{Tokenizer: uneven{}}, "context canceled"},
		{t.Context(), []string{good, filepath.Join(folder, "none.txt")}, prepare.Options{Tokenizer: uneven{}}, "none.txt"},
		{t.Context(), []string{good, write(t, folder, "x.csv", nil)}, prepare.Options{Tokenizer: uneven{}}, "needs to end in"},
		{t.Context(), []string{write(t, folder, "e.txt", nil)}, prepare.Options{Tokenizer: uneven{}}, "there is no text"},
		{t.Context(), []string{good}, prepare.Options{Tokenizer: uneven{}, Field: "body"}, `good.jsonl: line 1 has no field "body"`},
		{t.Context(), []string{good, write(t, folder, "b.jsonl", []byte("{\"text\": \"a\"}\n{"))}, prepare.Options{Tokenizer: uneven{}}, "b.jsonl: line 2"},
		{t.Context(), []string{good, write(t, folder, "n.jsonl", []byte("{\"text\": 1}"))}, prepare.Options{Tokenizer: uneven{}}, "n.jsonl: line 1"},
		{t.Context(), []string{good, write(t, folder, "u.txt", []byte("unspeakable"))}, prepare.Options{Tokenizer: uneven{}}, "document 60000: no word"},
		{t.Context(), []string{good, write(t, folder, "p.txt", []byte("unbearable"))}, prepare.Options{Tokenizer: uneven{}}, "the tokenizer panicked: a word too many"},
		{t.Context(), []string{good, parquetFile}, prepare.Options{Tokenizer: uneven{}, Field: "text"}, ""},
		{t.Context(), []string{parquetFile}, prepare.Options{Tokenizer: uneven{}, Field: "id"}, `column "id" is`},
		{t.Context(), []string{parquetFile}, prepare.Options{Tokenizer: uneven{}, Field: "body"}, `it has no column "body"`},
		{t.Context(), []string{write(t, folder, "half.parquet", content[:len(content)/2])}, prepare.Options{Tokenizer: uneven{}}, "half.parquet"},
	} {
		c.o.Folder = filepath.Join(folder, fmt.Sprint("out", i))
		_, err := prepare.Run(c.ctx, c.paths, c.o)
		if c.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("case %d: the error is %v, want %q", i, err, c.want)
		}
		if left, _ := filepath.Glob(filepath.Join(c.o.Folder, "*")); len(left) > 0 {
			t.Errorf("case %d: it leaves %v", i, left)
		}
	}
	for runtime.NumGoroutine() > before { // one that is done may be counted for a moment longer
		time.Sleep(time.Millisecond)
	}
}

// What a file says of its footer's length takes no memory, and what a link in the folder leads to
// stays as it is.
func TestHostileFiles(t *testing.T) {
	folder := t.TempDir()
	content, err := os.ReadFile(writeParquet(t, folder, "good.parquet", []string{"a", "b"}))
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(content[len(content)-8:], 0xB0000000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = prepare.Run(t.Context(), []string{write(t, folder, "long.parquet", content)}, prepare.Options{Tokenizer: uneven{}, Folder: filepath.Join(folder, "a")})
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "it says that its footer has 2952790016 bytes, it has room for ") {
		t.Errorf("the error is %v", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 256<<20 {
		t.Errorf("a file of %d bytes takes %d", len(content), took)
	}
	to := filepath.Join(folder, "b")
	if err := os.Mkdir(to, 0o777); err != nil {
		t.Fatal(err)
	}
	kept := write(t, folder, "kept.txt", []byte("somebody's"))
	if err := os.Symlink(kept, filepath.Join(to, "train-00000.bin.part")); err != nil {
		t.Skip(err)
	}
	_, err = prepare.Run(t.Context(), []string{kept}, prepare.Options{Tokenizer: tokenizer.Bytes{}, Folder: to})
	if err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("a link: %v", err)
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "somebody's" {
		t.Errorf("what the link leads to is %q, %v", text, err)
	}
}

// A damaged .parquet file is an error or other text, never a panic.
func FuzzParquet(f *testing.F) {
	folder := f.TempDir()
	texts := []row{{ID: 1}, {ID: 2}}
	hello := "hello"
	texts[1].Text = &hello
	var out bytes.Buffer
	if err := parquet.Write(&out, texts); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	n := 0
	f.Fuzz(func(t *testing.T, content []byte) {
		n++
		path := filepath.Join(folder, "x.parquet")
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(folder, fmt.Sprint(n))
		defer os.RemoveAll(to)
		prepare.Run(t.Context(), []string{path}, prepare.Options{Tokenizer: tokenizer.Bytes{}, Folder: to})
	})
}
