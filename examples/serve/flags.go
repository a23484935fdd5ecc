package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/train/serve"
	"github.com/stheno-ml/stheno/train/serve/openai"
)

// groups are the flags as help shows them.
var groups = []cli.Group{
	{Title: "the model", Flags: []string{"model", "weights", "embeddings", "context", "device", "name", "embedder"}},
	{Title: "who is answered", Flags: []string{"address", "places", "waiting"}},
	{Title: "limits", Flags: []string{"max-tokens", "max-body", "max-time", "grace"}},
}

// uses are examples for help.
var uses = []string{
	"go run ./examples/serve -model hub:HuggingFaceTB/SmolLM2-135M-Instruct",
	"go run ./examples/serve -model qwen3.gguf -weights int8 -places 16",
	"STHENO_API_KEY=secret go run ./examples/serve -model gemma -address :8080",
}

// otherNames are names of flags in other programs.
var otherNames = map[string]string{
	"m": "model", "model-path": "model", "ctx": "context", "ctx-size": "context", "max-model-len": "context", "host": "address",
	"port": "address", "listen": "address", "parallel": "places", "max-num-seqs": "places", "served-model-name": "name", "alias": "name",
	"dtype": "weights", "quantization": "weights", "gpu": "device", "embedding": "embedder", "timeout": "max-time",
}

// parse reads the flags.
func parse(args []string, screen io.Writer) (settings, error) {
	s := settings{model: serve.ModelConfig{Screen: screen}, api: openai.Config{Key: os.Getenv("STHENO_API_KEY")}}
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	s.model.Flags(f)
	f.StringVar(&s.address, "address", "localhost:8080", "where to listen")
	f.StringVar(&s.api.Name, "name", "", "what requests call the model; empty for the last part of its folder's or hub's name")
	f.StringVar(&s.embedder, "embedder", "", "a model for embeddings: its folder, or hub:NAME")
	f.IntVar(&s.places, "places", 8, "how many texts are written at once")
	f.IntVar(&s.waiting, "waiting", 0, "how many texts may wait for a place; 0 for 4 a place")
	f.IntVar(&s.api.Limits.Tokens, "max-tokens", 0, "how many tokens a text may have; 0 for as many as fit")
	f.Int64Var(&s.api.Limits.Body, "max-body", 4<<20, "how many bytes a request may have")
	f.DurationVar(&s.api.Limits.Time, "max-time", 10*time.Minute, "how long a request may take")
	f.DurationVar(&s.grace, "grace", 30*time.Second, "how long answers may still take when the program is to end")
	err := cli.Parse(f, args, otherNames, "model")
	if errors.Is(err, flag.ErrHelp) {
		cli.Help(screen, f, "serve answers OpenAI's clients by a published model, many at once.\n", uses, groups)
	}
	if err == nil {
		err = s.check()
	}
	return s, err
}

// check refuses settings that cannot work, before a model is loaded.
func (s settings) check() error {
	_, port, err := net.SplitHostPort(s.address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	switch {
	case err != nil:
		return fmt.Errorf("-address is %q, it needs to be a host and a port, such as localhost:8080, or :8080 for all hosts", s.address)
	case s.places < 1:
		return fmt.Errorf("-places is %d, it needs to be at least 1", s.places)
	case s.waiting < 0:
		return fmt.Errorf("-waiting is %d, it needs to be positive, or 0 for 4 a place", s.waiting)
	case s.api.Limits.Tokens < 0:
		return fmt.Errorf("-max-tokens is %d, it needs to be positive, or 0 for as many as fit", s.api.Limits.Tokens)
	case s.api.Limits.Body < 1:
		return fmt.Errorf("-max-body is %d, it needs to be at least 1", s.api.Limits.Body)
	case s.api.Limits.Time <= 0:
		return fmt.Errorf("-max-time is %v, it needs to be positive", s.api.Limits.Time)
	case s.grace < 0:
		return fmt.Errorf("-grace is %v, it cannot be negative", s.grace)
	case s.model.Folder == "":
		return errors.New("-model is needed: a model's folder, a GGUF file, or hub:NAME, such as hub:HuggingFaceTB/SmolLM2-135M-Instruct")
	}
	return nil
}
