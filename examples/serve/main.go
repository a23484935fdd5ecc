// Serve answers OpenAI's clients by a published model, many at once:
//
//	go run ./examples/serve -model hub:HuggingFaceTB/SmolLM2-135M-Instruct
//	curl localhost:8080/v1/chat/completions -d '{"model": "SmolLM2-135M-Instruct", "messages": [{"role": "user", "content": "Hello!"}]}'
//
// Package openai has the list of paths and of what requests may ask for. With STHENO_API_KEY in the
// environment, requests need to have that key. An interrupt or SIGTERM lets the answers that are
// being written end, for as long as -grace says; a second one ends the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/train/embed"
	"github.com/stheno-ml/stheno/train/serve"
	"github.com/stheno-ml/stheno/train/serve/openai"
)

type settings struct {
	model             serve.ModelConfig
	api               openai.Config
	address, embedder string
	places, waiting   int
	grace             time.Duration
}

// groups are the flags as help shows them.
var groups = []cli.Group{
	{Title: "the model", Flags: []string{"model", "weights", "context", "device", "name", "embedder"}},
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
	return s, err
}

func main() {
	s, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	listening := func(a net.Addr, name string) { fmt.Fprintf(os.Stderr, "%s is at http://%s/v1\n", name, a) }
	if err := run(ctx, s, listening); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

// nameOf is what requests call the model of a folder or of the hub.
func nameOf(folder string) string {
	folder, _, _ = strings.Cut(folder, "@")
	return path.Base(strings.ReplaceAll(folder, "\\", "/"))
}

// run serves until the context ends.
func run(ctx context.Context, s settings, listening func(net.Addr, string)) error {
	m, err := serve.Open(ctx, s.model)
	if err != nil {
		return err
	}
	decoder, err := m.NewBatchDecoder(s.places, m.Capacity)
	if err != nil {
		return err
	}
	scheduler, err := serve.NewScheduler(serve.SchedulerConfig{Decoder: decoder, Tokenizer: m.Tokenizer, Waiting: s.waiting})
	if err != nil {
		return err
	}
	if s.api.Model, s.api.Scheduler = m, scheduler; s.api.Name == "" {
		s.api.Name = nameOf(s.model.Folder)
	}
	if s.embedder != "" {
		e, err := embed.Load(s.embedder, pretrained.Options{})
		if err != nil {
			return err
		}
		defer e.Close()
		if s.api.Embed, err = openai.EmbedBy(e); err != nil {
			return err
		}
		s.api.EmbedName = nameOf(s.embedder)
	}
	handler, err := openai.NewHandler(s.api)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.address)
	if err != nil {
		return err
	}
	listening(listener.Addr(), s.api.Name)

	working, finish := context.WithCancel(context.Background()) // longer than ctx, so that answers can end
	ended := make(chan error, 1)
	go func() { ended <- guard.Call("the scheduler", func() error { return scheduler.Run(working) }) }()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	drained := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.Background(), s.grace)
		defer cancel()
		err := server.Shutdown(grace)
		finish() // what is not done yet is told so
		drained <- errors.Join(err, server.Close())
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		finish()
		return errors.Join(err, <-ended)
	}
	return errors.Join(<-drained, <-ended)
}
