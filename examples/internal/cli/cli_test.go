package cli

import (
	"flag"
	"io"
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
	return f
}

func TestParseSaysWhatWasMeant(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("text", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-step 3":     "there is no flag -step: did you mean -steps?",
		"--lr=3":      "there is no flag -lr: did you mean -rate?",
		"-top_k 3":    "did you mean -top-k?",
		"-topk 3":     "did you mean -top-k?",
		"-Resume":     "did you mean -resume?",
		"-xyzzy":      "there is no flag -xyzzy (-help",
		"mytext.txt":  `argument "mytext.txt" is no flag: did you mean -data mytext.txt?`,
		"text":        "did you mean -data text?",
		"resume":      "did you mean -resume?",
		"what":        `argument "what" is no flag (-help`,
		"-steps nine": `invalid value "nine" for flag -steps`,
		"-steps 3":    "",
	} {
		err := Parse(someFlags(), strings.Fields(args), map[string]string{"lr": "rate"}, "data")
		switch {
		case err == nil && want == "":
		case err == nil || want == "" || !strings.Contains(err.Error(), want):
			t.Errorf("%q: error %v, want one with %q", args, err, want)
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
