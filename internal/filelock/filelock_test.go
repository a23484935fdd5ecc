package filelock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// ownerPath is the environment variable that makes the test binary a process that holds the lock of
// a file until it ends.
const ownerPath = "STHENO_TEST_FILELOCK"

func TestMain(m *testing.M) {
	if path := os.Getenv(ownerPath); path != "" {
		if _, err := Create(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("locked")
		bufio.NewReader(os.Stdin).ReadByte() // until it is killed
		return
	}
	os.Exit(m.Run())
}

func TestLockOfAProcessEndsWithIt(t *testing.T) {
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" && runtime.GOOS != "windows" {
		t.Skip("there may be no locks")
	}
	path := filepath.Join(t.TempDir(), "lock")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), ownerPath+"="+path)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.StdinPipe(); err != nil { // never written to
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "locked\n" {
		t.Fatalf("the other process said %q, %v", line, err)
	}
	_, err = Create(path)
	if want := fmt.Sprintf("process %d", child.Process.Pid); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), want) {
		t.Errorf("locked by another process: error %v, want ErrLocked with %q", err, want)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	file, err := Create(path)
	if err != nil {
		t.Fatalf("locked by a process that was killed: %v", err)
	}
	if _, err := Create(path); !errors.Is(err, ErrLocked) {
		t.Errorf("locked by this process: error %v, want ErrLocked", err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if file, err = Create(path); err != nil {
		t.Fatalf("unlocked by closing: %v", err)
	}
	file.Close()
}
