package cli

import (
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
)

func someFlags() *flag.FlagSet {
	f := flag.NewFlagSet("test", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	f.Int("steps", 100, "of the training")
	f.Float64("rate", 0.5, "of learning")
	f.String("data", "", "a `file`")
	f.String("top-k", "", "")
	f.Bool("resume", false, "")
	f.String("out", "", "")
	f.Var(new(optional), "page", "")
	f.Duration("grace", 0, "")
	f.Uint64("seed", 1, "")
	return f
}

func TestParseSaysWhatWasMeant(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.WriteFile("text", nil, 0o644), os.MkdirAll("run/checkpoints", 0o755)); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-step 3":      "there is no flag -step: did you mean -steps?",
		"--lr=3":       "there is no flag -lr: did you mean -rate?",
		"-top_k 3":     "did you mean -top-k?",
		"-topk 3":      "did you mean -top-k?",
		"-Resume":      "did you mean -resume?",
		"-xyzzy":       "there is no flag -xyzzy (-help",
		"mytext.txt":   `argument "mytext.txt" is no flag: did you mean -data mytext.txt?`,
		"text":         "did you mean -data text?",
		"resume":       "did you mean -resume?",
		"what":         `argument "what" is no flag (-help`,
		"-steps nine":  `invalid value "nine" for flag -steps: it needs to be a whole number (-help`,
		"-steps 1e3":   `invalid value "1e3" for flag -steps: it needs to be a whole number (-help`,
		"-rate 1,5":    `invalid value "1,5" for flag -rate: it needs to be a number (-help`,
		"-seed -1":     `invalid value "-1" for flag -seed: it needs to be a whole number, not negative`,
		"-grace 30":    `invalid value "30" for flag -grace: it needs to be a time with its unit, such as 30s`,
		"-resume=no":   `invalid value "no" for flag -resume: it needs to be true or false`,
		"-page at:80":  `"at:80" stands behind -page, whose value needs to follow an equals sign: -page=at:80`,
		"-page at":     `"at" stands behind -page, whose value needs to follow an equals sign: it needs a port`,
		"-resume run":  `argument "run" is no flag: did you mean -out run? (-help`,
		"-resume what": `argument "what" is no flag (-help`,
		"-steps 3":     "",
	} {
		err := Parse(someFlags(), strings.Fields(args), map[string]string{"lr": "rate"}, "data")
		switch {
		case err == nil && want == "":
		case err == nil || want == "" || !strings.Contains(err.Error(), want):
			t.Errorf("%q: error %v, want one with %q", args, err, want)
		}
	}
}

// A flag behind the arguments is told of, text that only looks like one is not.
func TestFlagsStandBeforeTheRest(t *testing.T) {
	for args, want := range map[string]string{
		"what is it -steps 3": `-steps stands behind "what", flags need to stand before all else`,
		"what is -- it -x -":  "",
	} {
		f := someFlags()
		err := Flags(f, strings.Fields(args), nil)
		if err == nil {
			err = Behind(f)
		}
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%q: error %v, want %q", args, err, want)
		}
	}
}

func TestHelpHasEachFlagOnce(t *testing.T) {
	var text strings.Builder
	Help(&text, someFlags(), "about", []string{"an example"}, []Group{{"training", []string{"steps", "rate"}}, {"text", []string{"data"}}})
	for _, want := range []string{"about\n  an example\n\ntraining\n", "-steps int\n", "(default 100)", "(default 0.5)", "-data file\n", "\nmore\n", "-resume\n"} {
		if strings.Count(text.String(), want) != 1 {
			t.Errorf("help has %q %d times, want once:\n%s", want, strings.Count(text.String(), want), text.String())
		}
	}
}

// optional is a flag that may stand without a value.
type optional string

func (o *optional) String() string { return string(*o) }

func (*optional) IsBoolFlag() bool { return true }

func (o *optional) Set(text string) error {
	if *o = optional(text); text != "true" && !strings.Contains(text, ":") {
		return errors.New("it needs a port")
	}
	return nil
}

// A path that leads to nothing is told with the one that is nearly the same, beside it.
func TestMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Mkdir("folder", 0o755), os.WriteFile("folder/text.txt", nil, 0o644), os.WriteFile("mine.txt", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"mine.text": ": did you mean mine.txt?", "folder/txt.txt": ": did you mean folder/text.txt?",
		"other.bin": "", "nowhere/text.txt": "", "folder/x": "",
	} {
		_, err := os.Stat(path)
		if said := Missing(path, err); !errors.Is(said, fs.ErrNotExist) || said.Error() != err.Error()+want {
			t.Errorf("%s: %v, want %v%s", path, said, err, want)
		}
	}
	if other := errors.New("damaged"); Missing("mine.text", other) != other {
		t.Error("another error is another one now")
	}
}

// Lines end between words, and a list that is too wide stands one below the other.
func TestColumns(t *testing.T) {
	for want, text := range map[string]string{
		"one two\nthree": "one two three", "one\n\ntwo": "one\n\ntwo", "": "", "\nab": "\nab", "überaus\nlang": "überaus lang", "longerthanall\nit is": "longerthanall it is",
	} {
		if got := Wrap(text, 8); got != want {
			t.Errorf("%q is wrapped as %q, want %q", text, got, want)
		}
	}
	for line := range strings.SplitSeq(Wrap(strings.Repeat("word ", 99), 200), "\n") {
		if len(line) > 80 {
			t.Errorf("a line of a wide terminal has %d columns", len(line))
		}
	}
	for columns, want := range map[int]string{
		40: "run -out folder -steps 3", 24: "run -out folder -steps 3", 23: "run -out folder \\\n    -steps 3", 16: "run \\\n    -out folder \\\n    -steps 3",
	} {
		if got := continued("run -out folder -steps 3", columns); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
	const help = "about\n  -data file\n    \ttext to learn from, or tokens of it\n"
	for columns, want := range map[int]string{0: help, 80: help, 43: help, 30: "about\n  -data file\n    \ttext to learn from, or\n    \ttokens of it\n"} {
		if got := fitted(help, columns); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
	commands := []string{"run -a      it runs", "run -b c"}
	for columns, want := range map[int]string{
		0: "  run -a      it runs\n  run -b c\n", 21: "  run -a      it runs\n  run -b c\n", 20: "  run -a\n      it runs\n  run -b c\n",
	} {
		if got := uses(commands, columns); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
	lines := [][2]string{{"a", "one"}, {"bcd", "two"}}
	for columns, want := range map[int]string{8: "a    one\nbcd  two\n", 7: "a:\n  one\nbcd:\n  two\n"} {
		if got := List(lines, columns); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}

// What is shown as a word of a command is one to a shell.
func TestWord(t *testing.T) {
	for text, want := range map[string]string{
		"runs/first": "runs/first", "": "''", "my run": "'my run'", "it's": `'it'\''s'`, "a;b": "'a;b'", "v[1]": "'v[1]'", "läufe": "läufe", "$HOME": "'$HOME'",
	} {
		if got := Word(text); got != want {
			t.Errorf("Word(%q) is %s, it needs to be %s", text, got, want)
		}
	}
}
