package prepare

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/filelock"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// Of two that write into one folder the second ends, and the first's files are as they were to be.
func TestTwoWriters(t *testing.T) {
	o := Options{Folder: t.TempDir(), Tokenizer: tokenizer.Bytes{}, Shard: 4}
	first, second := newWriter(o, "train"), newWriter(o, "train")
	if err := first.write([]int{1, 2}); err != nil {
		t.Fatal(err)
	}
	err := second.write([]int{7, 8})
	if err == nil {
		t.Skip("there are no locks here")
	}
	if !errors.Is(err, filelock.ErrLocked) || !strings.Contains(err.Error(), "train-00000.bin, it needs a folder of its own") {
		t.Errorf("while the first writes: %v", err)
	}
	if err := errors.Join(second.remove(), first.write([]int{3, 4})); err != nil { // a whole file
		t.Fatal(err)
	}
	if err := newWriter(o, "train").write([]int{9}); err == nil || !strings.Contains(err.Error(), "another process has written") {
		t.Errorf("when the first has written a file: %v", err)
	}
	entries, err := os.ReadDir(o.Folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	content, err := os.ReadFile(filepath.Join(o.Folder, "train-00000.bin"))
	if err != nil || string(content[headerBytes:]) != "\x01\x00\x02\x00\x03\x00\x04\x00" {
		t.Errorf("the file ends with %q, %v", content[headerBytes:], err)
	}
}

// A file that cannot be made whole is one error, and nothing of it stays.
func TestWriteFails(t *testing.T) {
	folder := t.TempDir()
	w := newWriter(Options{Folder: folder, Tokenizer: tokenizer.Bytes{}, Shard: 8}, "train")
	if err := w.write([]int{0, 1, 0}); err != nil {
		t.Fatal(err)
	}
	if err := w.file.Close(); err != nil {
		t.Fatal(err)
	}
	err := w.write([]int{0, 1, 0, 1, 0})
	if !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "train-00000.bin.part") {
		t.Errorf("writing: %v", err)
	}
	if err := w.remove(); err != nil {
		t.Errorf("what is gone is removed again: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(folder, "*")); err != nil || len(left) > 0 {
		t.Errorf("there are %v, %v", left, err)
	}
}
