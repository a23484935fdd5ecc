package gguf_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/gguf"
)

// Two tensors cannot have the same data: a small file would make a large model.
func TestTensorsThatOverlap(t *testing.T) {
	data := func(w io.Writer) error { _, err := w.Write(make([]byte, 64)); return err }
	var out bytes.Buffer
	err := gguf.Write(&out, nil, []gguf.Tensor{{Name: "first", Shape: []int{16}, Data: data}, {Name: "second", Shape: []int{16}, Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	behind := func(offset uint64) []byte {
		of := append([]byte("second"), 1, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		return binary.LittleEndian.AppendUint64(of, offset)
	}
	for offset, want := range map[uint64]string{64: "", 32: `has tensor "second" at`, 0: `where tensor "first" has 64 bytes`} {
		content := bytes.Replace(out.Bytes(), behind(64), behind(offset), 1)
		_, err := gguf.Read(bytes.NewReader(content), int64(len(content)))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("at %d: %v, want %q", offset, err, want)
		}
	}
}

// An error quotes little of what a file has.
func TestLongMetadata(t *testing.T) {
	long := strings.Repeat("q", 1<<20)
	for _, metadata := range []map[string]any{
		{"general.alignment": []string{long}}, {"general.alignment": long}, {strings.Repeat("k", 60000): []string{long}},
	} {
		var out bytes.Buffer
		if err := gguf.Write(&out, metadata, nil); err != nil {
			// Alignments are not written: another key of that length takes its place.
			other := map[string]any{"general.alignmenu": metadata["general.alignment"]}
			if err := gguf.Write(&out, other, nil); err != nil {
				t.Fatal(err)
			}
		}
		content := bytes.Replace(out.Bytes(), []byte("general.alignmenu"), []byte("general.alignment"), 1)
		content = content[:len(content)-1<<19] // or a value that ends too early
		if _, err := gguf.Read(bytes.NewReader(content), int64(len(content))); err == nil || len(err.Error()) > 1000 {
			t.Errorf("the error is %.100v", err)
		}
	}
}

// A path that is no file is told from one before it is opened.
func TestNoFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no devices with a path")
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if err := os.Symlink("/dev/zero", path); err != nil {
		t.Skip(err)
	}
	if _, err := gguf.Open(path); err == nil || !strings.Contains(err.Error(), "is a device, it needs to be a file") {
		t.Errorf("the error is %v", err)
	}
}
