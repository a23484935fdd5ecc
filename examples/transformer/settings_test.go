package main

import (
	"cmp"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFlagsChangeThePreset(t *testing.T) {
	ordinary := presets[onCPU].withDefaults()
	for _, c := range []struct {
		args   string
		change func(*settings)
	}{
		{"", func(*settings) {}},
		{"-data x.txt -steps 2000", func(s *settings) { s.Data, s.Steps = "x.txt", 2000 }},
		{"-layers 3 -heads 2 -dim 6 -context 5 -dropout 0.5 -batch 7 -accumulation 2", func(s *settings) {
			s.Layers, s.Heads, s.Dim, s.Context, s.Dropout, s.Batch, s.Accumulation = 3, 2, 6, 5, 0.5, 7, 2
		}},
		{"-rate 1e-4 -min-rate 0 -warmup 0 -decay-steps 9 -beta2 0.5 -decay 0 -clip 0", func(s *settings) {
			s.Rate, s.MinRate, s.Warmup, s.DecaySteps, s.Beta2, s.Decay, s.Clip = 1e-4, 0, 0, 9, 0.5, 0, 0
		}},
		{"-eval-every 3 -eval-batches 4 -checkpoint-every 0 -seed 0 -vocab v -merges m", func(s *settings) {
			s.EvalEvery, s.EvalBatches, s.CheckpointEvery, s.Seed, s.Vocab, s.Merges = 3, 4, 0, 0, "v", "m"
		}},
		{"-recipe muon,zero", func(s *settings) { s.Recipe = "muon,zero" }},
		{"-recipe speedrun", func(s *settings) { s.Recipe = speedrun }},
		{"-preset gpu -batch 8", func(s *settings) { *s = presets["gpu"].withDefaults(); s.Batch = 8 }},
	} {
		want := ordinary
		c.change(&want)
		if want.Vocab != "" {
			want.BPE = 0 // there is a tokenizer already
		}
		s, o, err := parse(strings.Fields(c.args), io.Discard)
		if err != nil || s != want || o.sample {
			t.Errorf("%q: %+v, %v, want %+v", c.args, s, err, want)
		}
		again := presets["tiny"].withDefaults()
		fromTiny := again
		o.explicit(&again)
		c.change(&fromTiny)
		if !strings.Contains(c.args, "preset") && again != fromTiny {
			t.Errorf("%q over other settings: %+v, want %+v", c.args, again, fromTiny)
		}
	}
	if _, o, err := parse([]string{"-sample", ""}, io.Discard); err != nil || !o.sample || o.prompt != "" {
		t.Errorf("an empty prompt: %+v, %v, want to write text", o, err)
	}
}

// Where no preset is named the device and the text decide, and flags still count.
func TestAutoPreset(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, size := range map[string]int64{"little.txt": 100 << 10, "less.txt": 1 << 20, "some.txt": 3 << 20, "much.txt": 20 << 20, "some.bin": 2 << 20, "prepared/train-00000.bin": 8 << 20} {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		writeFile(t, name, "")
		if err := os.Truncate(name, size); err != nil {
			t.Fatal(err)
		}
	}
	const soon = "there is a GPU, and a large model would soon know "
	for _, c := range []struct {
		args     string
		onDevice bool
		preset   string
		why      string
		change   func(*settings)
	}{
		{"", false, onCPU, "there is no GPU", func(*settings) {}},
		{"-data much.txt", false, onCPU, "there is no GPU", func(s *settings) { s.Data = "much.txt" }},
		{"-data much.txt", true, onGPU, "there is a GPU", func(s *settings) { s.Data = "much.txt" }},
		{"-data some.txt", true, onGPUOfLittle, soon + "3.1 MB of text by heart", func(s *settings) { s.Data = "some.txt" }},
		{"-data less.txt", true, onGPUOfLittle, soon + "1.0 MB of text by heart", func(s *settings) { s.Data, s.Steps = "less.txt", 213 }},
		{"-data less.txt -steps 500", true, onGPUOfLittle, soon + "1.0 MB of text by heart", func(s *settings) { s.Data, s.Steps = "less.txt", 500 }},
		{"-data little.txt", true, onCPU, soon + "0.1 MB of text by heart", func(s *settings) { s.Data = "little.txt" }},
		{"-preset auto -data much.txt -steps 20 -batch 3", true, onGPU, "there is a GPU", func(s *settings) {
			s.Data, s.Steps, s.Batch, s.Warmup = "much.txt", 20, 3, 2
		}},
		{"-data some.bin -vocab v -merges m", true, onGPUOfLittle, soon + "4.2 MB of text by heart", func(s *settings) {
			s.Data, s.Vocab, s.Merges, s.BPE = "some.bin", "v", "m", 0
		}},
		{"-data prepared", true, onGPU, "there is a GPU", func(s *settings) { s.Data, s.BPE = "prepared", 0 }},
		{"-preset tiny", true, "tiny", "", func(*settings) {}},
	} {
		want := presets[c.preset].withDefaults()
		c.change(&want)
		says := ""
		if c.why != "" {
			says = "-preset auto is " + c.preset + ": " + c.why + "."
		}
		s, o, err := parse(strings.Fields(c.args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if s, got, err := s.choose(c.onDevice, o); err != nil || s != want || got != says {
			t.Errorf("%q: %+v, %q, %v, want %+v, %q", c.args, s, got, err, want, says)
		}
	}
	s, o, err := parse([]string{"-data", "missing.txt"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.choose(true, o); err == nil || !strings.Contains(err.Error(), "-data: ") || !strings.Contains(err.Error(), "missing.txt") {
		t.Errorf("a text that is missing: %v", err)
	}
	s, o, err = parse([]string{"-layers", "5"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.given["heads"], o.explicit = true, func(s *settings) { s.Heads = 7 }
	if _, _, err := s.choose(true, o); err == nil || !strings.Contains(err.Error(), "multiple of -heads 7") {
		t.Errorf("heads that do not fit what was chosen: %v", err)
	}
}

// TestFewStepsNeedNoSecondFlag shortens the warm-up of a preset, unless it is asked for.
func TestFewStepsNeedNoSecondFlag(t *testing.T) {
	for args, want := range map[string]int{"-steps 10": 1, "-steps 1": 0, "-steps 100": 10, "-steps 101": 100, "-steps 9 -warmup 8": 8} {
		if s, _, err := parse(strings.Fields(args), io.Discard); err != nil || s.Warmup != want {
			t.Errorf("%q: warm-up of %d, %v, want %d", args, s.Warmup, err, want)
		}
	}
}

// TestHelpHasThePresetsDefaults asks for help, which is all that is printed.
func TestHelpHasThePresetsDefaults(t *testing.T) {
	for args, want := range map[string]string{
		"-help": "(default 1150)", "-preset gpu -help": "(default 5000)", "-help --preset=gpt2": "(default 600000)",
	} {
		var help strings.Builder
		if _, _, err := parse(strings.Fields(args), &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), want) {
			t.Errorf("%q: error %v, help without %q:\n%s", args, err, want, help.String())
		}
	}
	var help strings.Builder
	if _, _, err := parse([]string{"-steps", "x"}, &help); err == nil || help.Len() > 0 {
		t.Errorf("a wrong flag: error %v, beside which is printed %q", err, help.String())
	}
}

func TestPresetsAreValid(t *testing.T) {
	for name := range presets {
		if _, _, err := parse([]string{"-preset", name}, io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNonsenseFlagsAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"extra":                       `"extra"`,
		"-preset huge":                `"huge"`,
		"-recipe muon,adam":           `-recipe has "adam", it needs to be speedrun, or some of muon,`,
		"-layers 0":                   "-layers is 0",
		"-heads 3":                    "multiple of -heads 3",
		"-dim -1":                     "-dim is -1",
		"-steps x":                    "-steps",
		"-steps 50 -warmup 100":       "-warmup is 100",
		"-dropout 1":                  "-dropout is 1, it needs to be at least 0 and less than 1",
		"-rate NaN":                   "-rate is NaN, it needs to be a number and not negative",
		"-rate -1":                    "-rate is -1",
		"-clip +Inf":                  "-clip is +Inf",
		"-vocab v":                    "-merges",
		"-data x.bin":                 "-vocab",
		"-bpe 256":                    "-bpe is 256, it needs to be at least 257",
		"-bpe 300 -vocab a -merges b": "-bpe is given with -vocab",
		"-gpus 0":                     `invalid value "0" for flag -gpus: it needs to be a number and at least 1`,
		"-gpus 2 -device cuda:1":      "-device is given with -gpus",
		"-gpus 4 -share 3":            "-share is 3, it needs to divide -gpus 4",
		"-shard-ranks 2":              "-shard-ranks is 2 and -shard is empty, which says what these ranks hold their parts of",
		"-shard all":                  `-shard is "all", it needs to be state or weights`,
		"-share 0":                    `invalid value "0" for flag -share: it needs to be a number and at least 1`,
		"-gpus 2 -sample x":           "-gpus belongs to training",
		"-device tpu":                 `"tpu"`,
		"-device cuda:":               `-device is "cuda:", it needs to be auto, cpu, cuda or cuda:N`,
		"-compute int8":               `-compute is "int8", it needs to be float32, tf32, bfloat16, float16 or fp8`,
		"-length 0":                   "-length is 0",
		"-resume -sample x":           "-resume",
		"-eval-every 0":               "-eval-every is 0",
		"-nosuchflag":                 "nosuchflag (-help lists the flags)",
		"-lr 1e-3":                    "there is no flag -lr: did you mean -rate?",
		"mytext.txt":                  "did you mean -data mytext.txt?",
		"-sample x -batch 3":          "-batch belongs to training",
		"-sample x -preset tiny":      "-preset belongs to training",
		"-resume -preset tiny":        "-preset is given with -resume",
		"-best":                       "-best is given without -resume",
		"-temperature -1 -sample x":   "-temperature is -1",
		"-temperature NaN -sample x":  "-temperature is NaN",
		"-top-k -1 -sample x":         "-top-k is -1",
		"-top-p 2 -sample x":          "-top-p is 2",
		"-weights bfloat16":           "-weights is given without -sample",
		"-export":                     "-export needs a value behind it",
		"-export= -out runs/1":        "-export is empty",
		"-export x -steps 3":          "-steps is given with -export, which goes with -out alone",
		"-export x -sample y":         "-sample is given with -export",
		"-weights int8 -sample x":     `-weights is "int8", it needs to be bfloat16 or float16`,
	} {
		if _, _, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", args, err, want)
		}
	}
}

// TestSampleIgnoresNoFlag asks for a sample with every flag that help has: those that it does not
// obey are refused.
func TestSampleIgnoresNoFlag(t *testing.T) {
	var help strings.Builder
	if _, _, err := parse([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	obeyed := []string{"sample", "out", "length", "temperature", "top-k", "top-p", "no-repeat", "weights", "seed", "device"}
	values := map[string]string{"weights": "bfloat16", "preset": "tiny", "compute": "float32", "device": "cpu", "sample": "x", "serve": "localhost:0"}
	names := regexp.MustCompile(`(?m)^  -([a-z0-9-]+)`).FindAllStringSubmatch(help.String(), -1)
	if len(names) < 2*len(obeyed) {
		t.Fatalf("help has the flags %v", names)
	}
	for _, name := range names {
		value := cmp.Or(values[name[1]], "1")
		_, _, err := parse([]string{"-sample", "x", "-" + name[1] + "=" + value}, io.Discard)
		refused := err != nil && strings.Contains(err.Error(), "-"+name[1]+" belongs to training") || name[1] == "resume" || name[1] == "export"
		if refused == slices.Contains(obeyed, name[1]) {
			t.Errorf("-sample with -%s: error %v", name[1], err)
		}
	}
}

// A preset that takes long on a CPU is known to before it starts; the program says so beyond an
// hour.
func TestCost(t *testing.T) {
	for preset, c := range map[string]struct {
		parameters  float64
		least, most time.Duration
	}{"tiny": {1e6, time.Second, time.Hour}, "gpu": {10e6, time.Hour, 1000 * time.Hour}} {
		s, _, err := parse([]string{"-preset", preset}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if cost := s.cost(c.parameters); cost < c.least || cost > c.most {
			t.Errorf("%s is said to take %v, it needs to be from %v to %v", preset, cost, c.least, c.most)
		}
	}
}

// A large model writes at another temperature than a small one, and repeats nothing that is long,
// unless a flag says otherwise.
func TestSamplerSuitsTheModel(t *testing.T) {
	type how struct {
		temperature, topP float64
		noRepeat          int
	}
	for args, want := range map[string]how{
		"-preset minute":                         {0.7, 0.9, 0},
		"-preset minute -no-repeat 9":            {0.7, 0.9, 9},
		"-preset minute-gpu":                     {0.9, 0.95, 12},
		"-preset minute-gpu -temperature 0.5":    {0.5, 0.95, 12},
		"-preset minute-gpu -top-p 0.9":          {0.9, 0.9, 12},
		"-preset minute-gpu -no-repeat 0":        {0.9, 0.95, 0},
		"-preset minute -layers 12 -dim 768":     {0.9, 0.95, 12},
		"-preset minute-gpu -layers 2 -dim 96":   {0.7, 0.9, 0},
		"-preset minute-gpu -temperature 0":      {0, 0.95, 12},
		"-preset minute -top-p 1 -temperature 1": {1, 1, 0},
	} {
		s, o, err := parse(strings.Fields(args), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if o := s.sampler(o); (how{o.Temperature, o.TopP, o.NoRepeat}) != want {
			t.Errorf("%s: temperature %v, top-p %v, %d tokens, want %v", args, o.Temperature, o.TopP, o.NoRepeat, want)
		}
	}
}
