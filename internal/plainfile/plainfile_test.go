//go:build unix

package plainfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWhatIsNoFileIsRefused(t *testing.T) {
	folder := t.TempDir()
	plain, link, pipe := filepath.Join(folder, "plain"), filepath.Join(folder, "link"), filepath.Join(folder, "pipe")
	if err := os.WriteFile(plain, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(plain, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{plain, link} {
		if content, err := ReadFile(path, 5); err != nil || string(content) != "hello" {
			t.Errorf("%s holds %q, %v", path, content, err)
		}
	}
	for path, want := range map[string]string{
		pipe: pipe + " is a named pipe", folder: folder + " is a folder", os.DevNull: os.DevNull + " is a device",
		filepath.Join(folder, "none"): "none",
	} {
		if _, err := ReadFile(path, 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", path, err, want)
		}
	}
	if _, err := ReadFile(plain, 4); err == nil || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("a file that is too large: error %v", err)
	}
}

// A file that cannot be written leaves what was there, and nothing beside it. One that is a link is
// replaced, and what it leads to stays.
func TestWrite(t *testing.T) {
	folder := t.TempDir()
	path, other := filepath.Join(folder, "a.json"), filepath.Join(folder, "other")
	if err := os.WriteFile(other, []byte("of somebody else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, path); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second"} {
		if err := Write(path, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
			t.Fatal(err)
		}
		full := Write(path, func(w io.Writer) error {
			_, err := io.WriteString(w, "half")
			return errors.Join(err, syscall.ENOSPC)
		})
		if !errors.Is(full, syscall.ENOSPC) || !strings.HasPrefix(full.Error(), path+" cannot be written: ") {
			t.Errorf("on a full disk: %v", full)
		}
		if content, err := os.ReadFile(path); err != nil || string(content) != text {
			t.Errorf("the file is %q, %v, want %q", content, err, text)
		}
	}
	if content, err := os.ReadFile(other); err != nil || string(content) != "of somebody else" {
		t.Errorf("what the link led to is %q, %v", content, err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 2 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if err := Write(filepath.Join(folder, "none", "b"), nil); err == nil || !strings.Contains(err.Error(), filepath.Join("none", "b")+" cannot be written") {
		t.Errorf("without a folder: %v", err)
	}
}
