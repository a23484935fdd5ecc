// Chat talks with a published model in the terminal:
//
//	go run ./examples/chat -model hub:HuggingFaceTB/SmolLM2-135M-Instruct
//	go run ./examples/chat -model qwen3.gguf -weights int8 "What is a gorgon?"
//	git diff | go run ./examples/chat -model gemma "Say in one sentence what this changes."
//
// With a question behind the flags, or text from a pipe, there is one answer and nothing else on the output. In a conversation,
// /reset begins anew, /system TEXT sets what the model is told before all, and /quit or the end of the input ends. Ctrl-C stops an answer,
// and where there is none the program.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stheno-ml/stheno/train/serve"
	"golang.org/x/term"
)

type settings struct {
	model           serve.ModelConfig
	system          string
	context, tokens int
	seed            uint64
	temperature     float64 // negative for the model's own
}

func main() {
	s := settings{model: serve.ModelConfig{Screen: os.Stderr}}
	s.model.Flags(flag.CommandLine)
	flag.StringVar(&s.system, "system", "", "what the model is told before all")
	flag.IntVar(&s.context, "context", 2048, "tokens of the conversation; 0 for the model's context")
	flag.IntVar(&s.tokens, "max-tokens", 0, "tokens of an answer; 0 for as many as fit")
	flag.Float64Var(&s.temperature, "temperature", -1, "0 for the most probable answer; negative for what the model's folder says")
	flag.Uint64Var(&s.seed, "seed", 1, "of what is random")
	flag.Parse()
	question, talks := strings.Join(flag.Args(), " "), term.IsTerminal(int(os.Stdin.Fd()))
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	err := func() error {
		c, err := open(interrupts, s, os.Stdout, os.Stderr)
		switch {
		case err != nil:
			return err
		case question == "" && talks:
			return c.talk(os.Stdin)
		case !talks:
			piped, err := io.ReadAll(io.LimitReader(os.Stdin, 16<<20))
			if err != nil {
				return err
			}
			question = strings.TrimSpace(question + "\n\n" + string(piped))
		}
		return c.once(question)
	}()
	switch {
	case errors.Is(err, errInterrupted):
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "chat:", err)
		os.Exit(1)
	}
}
