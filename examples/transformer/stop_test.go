//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asProgram is the environment variable that makes the test binary the program.
const asProgram = "STHENO_TEST_TRANSFORMER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		go dieOnce()
		main()
		return
	}
	os.Exit(m.Run())
}

// TestSignalsLeaveACheckpoint sends signals to a training in its first steps, and closes the pipe
// that it writes to.
func TestSignalsLeaveACheckpoint(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	for name, c := range map[string]struct {
		signal syscall.Signal // 0: the pipe is closed
		said   string
	}{
		"Ctrl-C":  {syscall.SIGINT, "interrupt: stopping after this batch, with a checkpoint"},
		"SIGTERM": {syscall.SIGTERM, "terminated: stopping after this batch, with a checkpoint"},
		"SIGHUP":  {syscall.SIGHUP, "hangup: stopping after this batch, with a checkpoint"},
		"SIGPIPE": {0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if c.signal != 0 && signal.Ignored(c.signal) {
				t.Skip("whoever started the tests has this signal ignored, as nohup has SIGHUP")
			}
			out := strings.ReplaceAll(name, "-", "")
			program := exec.Command(os.Args[0], append(append([]string{}, small...), "-steps", "1000000", "-checkpoint-every", "0", "-out", out)...)
			program.Env = append(os.Environ(), asProgram+"=1")
			pipe, err := program.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(pipe)
			for line := ""; !strings.Contains(line, "step       1/1000000  loss"); {
				if line, err = lines.ReadString('\n'); err != nil {
					t.Fatalf("the program said %q, %v", line, err)
				}
			}
			if c.signal == 0 {
				pipe.Close()
			} else if err := program.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(lines) // of a closed pipe there is none
			if err := program.Wait(); err != nil {
				t.Errorf("the program ended with %v", err)
			}
			if !strings.Contains(string(rest), c.said) {
				t.Errorf("it said\n%s\nwithout %q", rest, c.said)
			}
			if steps, err := filepath.Glob(filepath.Join(out, "checkpoints", "step-*")); err != nil || len(steps) != 1 {
				t.Errorf("the checkpoints are %v, %v, want one", steps, err)
			}
		})
	}
}

// A signal ends the text that a trained model writes, and nothing else: the line ends, and what one
// can do next is said.
func TestASignalEndsTheText(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	program := exec.Command(os.Args[0], append(append([]string{}, small...), "-steps", "3", "-out", "run", "-length", "1000000000")...)
	program.Env = append(os.Environ(), asProgram+"=1")
	var said strings.Builder
	program.Stderr = &said
	pipe, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines, text := bufio.NewReader(pipe), ""
	for !strings.Contains(text, "\n\n") { // the text comes behind an empty line
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the program wrote %q, %v", text+line, err)
		}
		text += line
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil {
		t.Errorf("the program ended with %v and said %s", err, said.String())
	}
	for _, want := range []string{"\nterminated: the text ends here.\n", "\nmore text ", "\nthe text above "} {
		if !strings.Contains(string(rest), want) {
			t.Errorf("it wrote\n%s\nwithout %q", rest, want)
		}
	}
	if strings.Contains(said.String(), "Generate") {
		t.Errorf("it said\n%s", said.String())
	}
}

// TestNohup starts the program so that a closed terminal does not end it, and sends what such a
// terminal sends.
func TestNohup(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no shell")
	}
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("hello world\n", 40))
	args := append(append([]string{}, small...), "-steps", "20", "-out", "run")
	program := exec.Command("sh", "-c", fmt.Sprintf("trap '' HUP; kill -HUP $$; exec %s %s", os.Args[0], strings.Join(args, " ")))
	program.Env = append(os.Environ(), asProgram+"=1")
	pipe, err := program.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(pipe).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := program.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, pipe); err != nil {
		t.Fatal(err)
	}
	if err := program.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("run/checkpoints/step-00000020"); err != nil {
		t.Errorf("the last step is not there: %v", err)
	}
}
