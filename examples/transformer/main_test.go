package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// do runs the program with flags.
func do(t *testing.T, args ...string) error {
	t.Helper()
	s, o, err := parse(args, io.Discard)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	if o.sample {
		return speak(context.Background(), s, o)
	}
	return learn(context.Background(), s, o)
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// small is a run of a moment.
var small = []string{"-preset", "tiny", "-data", "text.txt", "-layers", "1", "-dim", "16", "-context", "8", "-warmup", "2",
	"-decay-steps", "20", "-eval-every", "5", "-eval-batches", "2", "-checkpoint-every", "5", "-length", "40"}

// TestRunsAreTheSameHoweverOftenTheyStop compares a run of 20 steps with one of 10 that is resumed.
func TestRunsAreTheSameHoweverOftenTheyStop(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	for _, args := range [][]string{
		append(small, "-steps", "20"), append(small, "-steps", "10"), {"-resume", "-steps", "20", "-length", "40"},
		{"-sample", "for", "-length", "5"}, {"-sample", "", "-out", "runs/1", "-temperature", "0"},
	} {
		if err := do(t, args...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	for _, file := range []string{"checkpoints/step-00000020/model.safetensors", "sample.txt", "tokenizer.json"} {
		if read(t, filepath.Join("runs/1", file)) != read(t, filepath.Join("runs/2", file)) {
			t.Errorf("%s differs between a run of 20 steps and one of 10 that was resumed", file)
		}
	}
	for _, run := range []string{"runs/1", "runs/2"} {
		if lines := strings.Count(read(t, filepath.Join(run, "log.jsonl")), "\n"); lines != 20+5 {
			t.Errorf("%s: the log has %d lines, want one for each of 20 steps and 5 evaluations", run, lines)
		}
		if curve := read(t, filepath.Join(run, "loss.png")); !strings.HasPrefix(curve, "\x89PNG") {
			t.Errorf("%s: the curve is no PNG", run)
		}
	}
}

func TestWhatCannotWorkIsSaid(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("hello world\n", 40))
	writeFile(t, "other.txt", strings.Repeat("hello there\n", 40))
	writeFile(t, "short.txt", "hello")
	writeFile(t, "empty.txt", "")
	writeFile(t, "latin1.txt", strings.Repeat("caf\xe9\n", 40))
	run := func(args ...string) []string { return append(append([]string{}, small...), args...) }
	if err := do(t, run("-steps", "5", "-decay-steps", "5", "-out", "done")...); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"missing.txt", run("-data", "missing.txt")},
		{"empty", run("-data", "empty.txt")},
		{"short.txt is too short", run("-data", "short.txt")},
		{"latin1.txt", run("-data", "latin1.txt")},
		{"-resume goes on", run("-out", "done")},
		{"text.txt", run("-out", "text.txt/run")},
		{"tokens.weight", []string{"-resume", "-out", "done", "-dim", "32"}},
		{"not what this run was started with", []string{"-resume", "-out", "done", "-data", "other.txt"}},
		{"holds no run", []string{"-resume", "-out", "nowhere"}},
		{"there is no run", []string{"-resume"}},
		{"'?'", []string{"-sample", "hello?", "-out", "done"}},
		{"vocab.json", run("-vocab", "vocab.json", "-merges", "merges.txt")},
	} {
		os.RemoveAll("runs")
		if err := do(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one with %q", c.args, err, c.want)
		}
	}
}

func TestGoSourceIsFound(t *testing.T) {
	text, origin, err := goSource()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "\npackage ") || len(text) > corpusBytes {
		t.Errorf("%s has %d bytes, want Go files of at most %d", origin, len(text), corpusBytes)
	}
	again, _, err := goSource()
	if err != nil || again != text {
		t.Errorf("read again, it differs (%v)", err)
	}
	if module, err := goFiles(thisModule()); err != nil || !strings.Contains(module, "func withoutLicence") {
		t.Errorf("this module's source has %d bytes without this program in it: %v", len(module), err)
	}
}
