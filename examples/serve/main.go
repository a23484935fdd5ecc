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
		fmt.Fprintln(os.Stderr, "serve:", cli.Failure(err))
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
		return fmt.Errorf("-places is %d: %w", s.places, err)
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
			return fmt.Errorf("-embedder: %w", err)
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
		return fmt.Errorf("-address: %w", err)
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
