package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data/prepare"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// do runs the program with flags.
func do(t *testing.T, args ...string) error {
	t.Helper()
	s, o, err := parse(args, io.Discard)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return start(context.Background(), s, o)
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
	for _, file := range []string{"checkpoints/step-00000020/model.safetensors", "sample.txt", tokenizerFile} {
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

// A run whose tokenizer is learnt from its text is the same however often it stops, and writes with
// that tokenizer.
func TestLearntTokenizer(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	given := slices.Clip(slices.Concat(small, []string{"-bpe", "280"}))
	for _, args := range [][]string{append(given, "-steps", "20"), append(given, "-steps", "10"), {"-resume", "-steps", "20", "-length", "40"}, {"-sample", "für", "-length", "5"}} {
		if err := do(t, args...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	for _, file := range []string{"checkpoints/step-00000020/model.safetensors", "sample.txt", tokenizerFile} {
		if read(t, filepath.Join("runs/1", file)) != read(t, filepath.Join("runs/2", file)) {
			t.Errorf("%s differs between a run of 20 steps and one of 10 that was resumed", file)
		}
	}
	if kept := read(t, filepath.Join("runs/1", tokenizerFile)); !strings.Contains(kept, "rang") {
		t.Errorf("the tokenizer has learnt nothing: %s", kept)
	}
}

// A run whose validation has become worse writes by the best of its models, which -sample has too.
func TestTextIsByTheBest(t *testing.T) {
	t.Chdir(t.TempDir())
	// What is held back is as likely as any other text to a model that has learnt nothing.
	writeFile(t, "text.txt", strings.Repeat("hello world\n", 100)+strings.Repeat("dlrow olleh ", 11))
	said := printed(t, func() error { return do(t, append(slices.Clip(small), "-steps", "60", "-decay-steps", "60")...) })
	_, after, was := strings.Cut(said, "Validation was best after step ")
	if !was {
		t.Fatalf("validation was best at the end:\n%s", said)
	}
	step, _, _ := strings.Cut(after, ":")
	again := printed(t, func() error { return do(t, "-sample", "", "-length", "40") })
	if text := read(t, "runs/1/sample.txt"); text != again {
		t.Errorf("after step %s it writes %q, the best %q", step, text, again)
	}
}

// gpt2Files are the files of a small tokenizer of GPT-2's kind.
func gpt2Files(t *testing.T) (vocab, merges string) {
	t.Helper()
	folder, err := filepath.Abs("../../train/tokenizer/testdata")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, "vocab.json"), filepath.Join(folder, "merges.txt")
}

// A run over shards, each read when a batch needs it, is the same however often it stops, and knows
// when the shards are others.
func TestShards(t *testing.T) {
	vocab, merges := gpt2Files(t)
	t.Chdir(t.TempDir())
	tokens, err := tokenizer.OpenGPT2(vocab, merges)
	if err != nil {
		t.Fatal(err)
	}
	prepared := func(folder, text string) {
		t.Helper()
		for i := range 20 {
			writeFile(t, fmt.Sprintf("text%02d.txt", i), strings.Repeat(text, 10+i))
		}
		paths, err := filepath.Glob("text*.txt")
		if err != nil {
			t.Fatal(err)
		}
		o := prepare.Options{Tokenizer: tokens, Folder: folder, Shard: 200, Validation: 0.2}
		if result, err := prepare.Run(t.Context(), paths, o); err != nil || len(result.Train) < 3 || len(result.Validation) == 0 {
			t.Fatalf("the shards are %v: %v", result, err)
		}
	}
	prepared("shards", "for i in range(10): print(i)\n")
	prepared("others", "if i in range(10): print(j)\n")
	given := slices.Clip(slices.Concat(small, []string{"-data", "shards", "-vocab", vocab, "-merges", merges}))
	for _, args := range [][]string{append(given, "-steps", "20"), append(given, "-steps", "10"), {"-resume", "-steps", "20", "-length", "40"}} {
		if err := do(t, args...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	const model = "checkpoints/step-00000020/model.safetensors"
	if read(t, filepath.Join("runs/1", model)) != read(t, filepath.Join("runs/2", model)) {
		t.Error("the model differs between a run of 20 steps and one of 10 that was resumed")
	}
	err = do(t, "-resume", "-steps", "21", "-data", "others")
	if err == nil || !strings.Contains(err.Error(), "others is not what this run was started with") {
		t.Errorf("resumed with other shards: %v", err)
	}
}

func TestWhatCannotWorkIsSaid(t *testing.T) {
	vocab, merges := gpt2Files(t)
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("hello world\n", 40))
	writeFile(t, "other.txt", strings.Repeat("hello there\n", 40))
	writeFile(t, "short.txt", "hello")
	writeFile(t, "shortish.txt", strings.Repeat("a b\n", 20))
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
		{"short.txt is too short for -context 8: 4 of its 5 tokens are to train on, which takes at least 9", run("-data", "short.txt")},
		{"8 of its 80 tokens are to validate on, which takes at least 9", run("-data", "shortish.txt")},
		{"latin1.txt", run("-data", "latin1.txt")},
		{"-resume goes on", run("-out", "done")},
		{`-shard is "state", it needs several GPUs`, run("-shard", "state")},
		{"-out text.txt is a file, it needs to be a folder", run("-out", "text.txt")},
		{"-out: stat text.txt/run", run("-out", "text.txt/run")},
		{" is a folder without the tokenizer.json that examples/prepare leaves beside tokens", run("-data", ".")},
		{" has no file train-00000.bin", run("-data", ".", "-vocab", vocab, "-merges", merges)},
		{"tokens.weight", []string{"-resume", "-out", "done", "-dim", "32"}},
		{"not what this run was started with", []string{"-resume", "-out", "done", "-data", "other.txt"}},
		{"holds no run", []string{"-resume", "-out", "nowhere"}},
		{"there is no run", []string{"-resume"}},
		{"'?'", []string{"-sample", "hello?", "-out", "done"}},
		{"vocab.json", run("-vocab", "vocab.json", "-merges", "merges.txt")},
	} {
		os.RemoveAll("runs")
		if err := do(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with %q", c.args, err, c.want)
		}
		if _, err := os.Stat("runs"); err == nil {
			t.Errorf("%q: a run's folder is there", c.args)
		}
	}
}

// TestSamplesObeyTheSeed looks at what is printed: the same text for a seed, another for another.
func TestSamplesObeyTheSeed(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	if err := do(t, append(small, "-steps", "5", "-out", "run")...); err != nil {
		t.Fatal(err)
	}
	said := func(seed string) string {
		return printed(t, func() error {
			return do(t, "-sample", "for", "-out", "run", "-length", "60", "-temperature", "2", "-seed", seed)
		})
	}
	if one, again, other := said("1"), said("1"), said("2"); one != again || one == other {
		t.Errorf("seed 1 says %q and %q, seed 2 %q", one, again, other)
	}
}

// printed returns what a function prints.
func printed(t *testing.T, f func() error) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "printed"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	defer func(stdout *os.File) { os.Stdout = stdout }(os.Stdout)
	os.Stdout = file
	if err := f(); err != nil {
		t.Fatal(err)
	}
	return read(t, file.Name())
}

// TestWhatTakesLongIsSaidFirst cancels a run before its first step.
func TestWhatTakesLongIsSaidFirst(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("for i := range 10 {\n\tprint(i)\n}\n", 40))
	for steps, long := range map[string]bool{"20": false, "1000000000": true} {
		s, o, err := parse(append(small, "-device", "cpu", "-yes", "-out", steps, "-steps", steps), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		text := printed(t, func() error { return start(cancelled, s, o) })
		if strings.Contains(text, "On a CPU like this one it takes about") != long || !strings.Contains(text, "Stopped after step 0") {
			t.Errorf("%s steps: %s", steps, text)
		}
	}
}

// TestEmptyRunsAreNotPicked has folders of runs that never wrote a checkpoint, and programs that
// start at once.
func TestEmptyRunsAreNotPicked(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("hello world\n", 40))
	tiny := append(append([]string{}, small...), "-steps", "5", "-decay-steps", "5")
	const programs = 3
	errs := make(chan error)
	for range programs {
		go func() {
			s, o, err := parse(tiny, io.Discard)
			if err == nil {
				err = start(context.Background(), s, o)
			}
			errs <- err
		}()
	}
	for range programs {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if err := os.MkdirAll("runs/7/checkpoints", 0o777); err != nil {
		t.Fatal(err)
	}
	if got := newestRun(); got != filepath.Join("runs", "3") {
		t.Errorf("the newest run is %q, want the third", got)
	}
	if err := do(t, tiny...); err != nil {
		t.Fatal(err)
	}
	if got := newestRun(); got != filepath.Join("runs", "8") {
		t.Errorf("the newest run is %q, want one after the empty one", got)
	}
}

// TestResumeFromElsewhereAndFromTheBest moves to another folder, where the text has another name,
// and goes back to the best.
func TestResumeFromElsewhereAndFromTheBest(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("hello world\n", 40))
	if err := do(t, append(append([]string{}, small...), "-steps", "10", "-out", "one")...); err != nil {
		t.Fatal(err)
	}
	before := read(t, filepath.Join("one", tokenizerFile))
	if err := os.Mkdir("elsewhere", 0o777); err != nil {
		t.Fatal(err)
	}
	t.Chdir("elsewhere")
	for _, args := range [][]string{{"-resume", "-out", "../one", "-steps", "12"}, {"-resume", "-best", "-out", "../one", "-steps", "13"}} {
		if err := do(t, args...); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}
	if steps, err := filepath.Glob("../one/checkpoints/step-00000013"); err != nil || len(steps) != 1 {
		t.Errorf("the last step is not there: %v, %v", steps, err)
	}
	if read(t, filepath.Join("../one", tokenizerFile)) != before {
		t.Error("the tokenizer's file was written again")
	}
	leftovers, err := filepath.Glob("../one/" + tokenizerFile + ".*")
	if err != nil || len(leftovers) > 0 {
		t.Errorf("beside it are %v, %v", leftovers, err)
	}
}

func TestGoSourceIsFound(t *testing.T) {
	text, origin, err := goSource(corpusBytes)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "\npackage ") || len(text) > corpusBytes {
		t.Errorf("%s has %d bytes, want Go files of at most %d", origin, len(text), corpusBytes)
	}
	again, _, err := goSource(corpusBytes)
	if err != nil || again != text {
		t.Errorf("read again, it differs (%v)", err)
	}
	if large, _, err := goSource(32 << 20); err != nil || len(large) < 2*len(text) || len(large) > 32<<20 {
		t.Errorf("there are %d bytes for a GPU (%v), want those of commands and tests too", len(large), err)
	}
	if module, err := goFiles(thisModule(), corpusBytes); err != nil || !strings.Contains(module, "func withoutLicence") {
		t.Errorf("this module's source has %d bytes without this program in it: %v", len(module), err)
	}
}

// TestNothingStaysOfARunThatNeverStarted opens a run and closes it before its first step.
func TestNothingStaysOfARunThatNeverStarted(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("hello world\n", 40))
	if err := os.MkdirAll("there", 0o777); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{"", "new", "there"} {
		s, o, err := parse(append(slices.Clip(small), "-device", "cpu", "-out", out), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		err = o.place.Run(t.Context(), func(_ context.Context, place *train.Place) error {
			r, err := openRun(place, &s, o)
			if err == nil {
				r.close()
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	found, err := filepath.Glob("*")
	if want := []string{"text.txt", "there"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("there are %v, want %v (%v)", found, want, err)
	}
}

// TestSampleTakesTheNewestRunThatCanBeRead damages the checkpoints of the newest one.
func TestSampleTakesTheNewestRunThatCanBeRead(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "text.txt", strings.Repeat("hello world\n", 40))
	for range 2 {
		if err := do(t, append(slices.Clip(small), "-steps", "5")...); err != nil {
			t.Fatal(err)
		}
	}
	models, err := filepath.Glob("runs/2/checkpoints/*/model.safetensors")
	if err != nil || len(models) == 0 {
		t.Fatalf("the second run has the models %v: %v", models, err)
	}
	for _, model := range models {
		writeFile(t, model, "damaged")
	}
	if text := printed(t, func() error { return do(t, "-sample", "hello", "-length", "5") }); !strings.HasPrefix(text, "hello") {
		t.Errorf("it writes %q", text)
	}
	if err := do(t, "-sample", "hello", "-out", "runs/2"); err == nil {
		t.Error("a run that is named and cannot be read writes")
	}
}

// TestDaysOnACPUAreAskedFor has a training of years, on a machine of any speed.
func TestDaysOnACPUAreAskedFor(t *testing.T) {
	t.Chdir(t.TempDir())
	err := do(t, "-preset", "gpt2", "-device", "cpu")
	if err == nil || !strings.Contains(err.Error(), "years on a CPU like this one: -yes begins all the same") {
		t.Errorf("-preset gpt2 on a CPU: %v", err)
	}
	if _, err := os.Stat("runs"); err == nil {
		t.Error("a run's folder is there")
	}
}

// TestPreparedTokens trains on a folder as examples/prepare leaves it, with the tokenizer beside
// the tokens, and writes by it.
func TestPreparedTokens(t *testing.T) {
	var golden struct{ Tokenizer json.RawMessage }
	if err := json.Unmarshal([]byte(read(t, "../../train/tokenizer/testdata/huggingface/llama3.json")), &golden); err != nil {
		t.Fatal(err)
	}
	tokens, err := tokenizer.ReadHuggingFace(bytes.NewReader(golden.Tokenizer))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	var paths []string
	for i := range 20 {
		paths = append(paths, fmt.Sprintf("text%02d.txt", i))
		writeFile(t, paths[i], strings.Repeat("for i := range 10 { print(i) }\n", 10+i))
	}
	result, err := prepare.Run(t.Context(), paths, prepare.Options{Tokenizer: tokens.WithoutSpecial(), Folder: "tokens", Validation: 0.2})
	if err != nil || len(result.Validation) == 0 {
		t.Fatalf("the shards are %v: %v", result, err)
	}
	writeFile(t, "tokens/tokenizer.json", string(golden.Tokenizer))
	if err := do(t, slices.Concat(small, []string{"-data", "tokens", "-steps", "5"})...); err != nil {
		t.Fatal(err)
	}
	if text := printed(t, func() error { return do(t, "-sample", "for i", "-length", "5") }); !strings.HasPrefix(text, "for i") {
		t.Errorf("it writes %q", text)
	}
}
