package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/cli"
)

// groups are the flags as help shows them.
var groups = []cli.Group{
	{Title: "the model", Flags: []string{"model", "weights", "embeddings", "context", "device"}},
	{Title: "what it answers", Flags: []string{"system", "max-tokens", "temperature", "seed"}},
}

// uses are examples for help.
var uses = []string{
	"go run ./examples/chat -model hub:HuggingFaceTB/SmolLM2-135M-Instruct",
	"go run ./examples/chat -model qwen3.gguf -weights int8 'What is a gorgon?'",
	"git diff | go run ./examples/chat -model gemma 'Say in one sentence what this changes.'",
}

// otherNames are names of flags in other programs.
var otherNames = map[string]string{
	"m": "model", "model-path": "model", "ctx": "context", "ctx-size": "context", "c": "context", "n": "max-tokens", "n-predict": "max-tokens",
	"max-new-tokens": "max-tokens", "temp": "temperature", "sys": "system", "system-prompt": "system", "dtype": "weights", "quant": "weights",
	"gpu": "device",
}

// parse reads the flags, and the question behind them.
func parse(args []string, screen io.Writer) (s settings, question string, err error) {
	s.model.Screen = screen
	f := flag.NewFlagSet("chat", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	s.model.Flags(f)
	f.StringVar(&s.system, "system", "", "what the model is told before all")
	f.IntVar(&s.tokens, "max-tokens", 0, "tokens of an answer; 0 for as many as fit")
	f.Float64Var(&s.temperature, "temperature", -1, "0 for the most probable answer; negative for what the model's folder says")
	f.Uint64Var(&s.seed, "seed", 1, "of what is random")
	if err = cli.Flags(f, args, otherNames); errors.Is(err, flag.ErrHelp) {
		cli.Help(screen, f, "chat talks with a published model in the terminal.\n", uses, groups)
	}
	if err == nil {
		err = cli.Behind(f)
	}
	switch {
	case err != nil:
	case s.model.Folder == "":
		err = errors.New("-model is needed: a model's folder, a GGUF file, or hub:NAME, such as hub:HuggingFaceTB/SmolLM2-135M-Instruct")
	case s.tokens < 0:
		err = fmt.Errorf("-max-tokens is %d, it needs to be positive, or 0 for as many as fit", s.tokens)
	case math.IsNaN(s.temperature) || math.IsInf(s.temperature, 0):
		err = fmt.Errorf("-temperature is %v, it needs to be a number", s.temperature)
	}
	return s, strings.Join(f.Args(), " "), err
}
