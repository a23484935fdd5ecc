// Serve answers OpenAI's clients by a published model, many at once:
//
//	go run ./examples/serve -model hub:HuggingFaceTB/SmolLM2-135M-Instruct
//	curl localhost:8080/v1/chat/completions -d '{"model": "SmolLM2-135M-Instruct", "messages": [{"role": "user", "content": "Hello!"}]}'
//
// Package openai has the list of paths and of what requests may ask for. With STHENO_API_KEY in the environment, requests need to have
// that key. An interrupt or SIGTERM lets the answers that are being written end, for as long as -grace says; a second one ends the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/train/embed"
	"github.com/stheno-ml/stheno/train/serve"
	"github.com/stheno-ml/stheno/train/serve/openai"
)

type settings struct {
	model                    serve.ModelConfig
	api                      openai.Config
	address, embedder        string
	places, context, waiting int
	grace                    time.Duration
}

func main() {
	s := settings{model: serve.ModelConfig{Screen: os.Stderr}, api: openai.Config{Key: os.Getenv("STHENO_API_KEY")}}
	s.model.Flags(flag.CommandLine)
	flag.StringVar(&s.address, "address", "localhost:8080", "where to listen")
	flag.StringVar(&s.api.Name, "name", "", "what requests call the model; empty for the last part of its folder's or hub's name")
	flag.StringVar(&s.embedder, "embedder", "", "a model for embeddings: its folder, or hub:NAME")
	flag.IntVar(&s.places, "places", 8, "how many texts are written at once")
	flag.IntVar(&s.context, "context", 2048, "tokens of a text with its prompt; 0 for the model's context")
	flag.IntVar(&s.waiting, "waiting", 0, "how many texts may wait for a place; 0 for 4 a place")
	flag.IntVar(&s.api.Limits.Tokens, "max-tokens", 0, "how many tokens a text may have; 0 for as many as fit")
	flag.Int64Var(&s.api.Limits.Body, "max-body", 4<<20, "how many bytes a request may have")
	flag.DurationVar(&s.api.Limits.Time, "max-time", 10*time.Minute, "how long a request may take")
	flag.DurationVar(&s.grace, "grace", 30*time.Second, "how long answers may still take when the program is to end")
	flag.Parse()
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
	decoder, err := m.NewBatchDecoder(s.places, s.context)
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
