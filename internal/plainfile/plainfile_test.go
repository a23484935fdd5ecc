//go:build unix

package plainfile

import (
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
