package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/serve"
	"github.com/stheno-ml/stheno/train/tokenizer/chat"
	"github.com/stheno-ml/stheno/train/watch"
)

var errInterrupted = errors.New("interrupted")

// conversation is what was said.
type conversation struct {
	model      *serve.Model
	decoder    keeping
	options    sample.Options
	system     string
	messages   []chat.Message
	interrupts <-chan os.Signal
	out, notes io.Writer // answers, and all else that is said
}

// open loads the model. An interrupt ends that.
func open(interrupts <-chan os.Signal, s settings, out, notes io.Writer) (*conversation, error) {
	c := &conversation{system: s.system, interrupts: interrupts, out: out, notes: notes}
	err := c.interruptible(func(ctx context.Context) (err error) {
		c.model, err = serve.Open(ctx, s.model)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.options = c.model.Options; s.temperature >= 0 {
		c.options.Sampler.Temperature = s.temperature
	}
	c.options.MaxTokens, c.options.Sampler.Seed = s.tokens, s.seed
	c.decoder.Decoder, err = c.model.NewDecoder(c.model.Capacity)
	return c, err
}

// interruptible does work with a context that the next interrupt ends.
func (c *conversation) interruptible(work func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- guard.Call("the answer", func() error { return work(ctx) }) }()
	select {
	case err := <-done:
		return err
	case <-c.interrupts:
		cancel(errInterrupted)
		return <-done
	}
}

// once answers one question.
func (c *conversation) once(question string) error {
	if strings.TrimSpace(question) == "" {
		return errors.New("there is no question")
	}
	return c.ask(question)
}

// note tells the user something, in lines that the terminal has room for.
func (c *conversation) note(format string, values ...any) {
	fmt.Fprintln(c.notes, cli.Wrap(fmt.Sprintf(format, values...), cli.Columns()))
}

// talk answers line after line, until there are no more or an interrupt comes between two answers.
func (c *conversation) talk(in io.Reader) error {
	c.note("/reset begins anew, /system TEXT instructs the model, /quit ends; Ctrl-C stops an answer.")
	lines := make(chan string)
	go func() { // ends with the program
		defer close(lines)
		for scanner := newScanner(in); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	for {
		fmt.Fprint(c.notes, "> ")
		var line string
		var more bool
		select {
		case <-c.interrupts:
			fmt.Fprintln(c.notes)
			return errInterrupted
		case line, more = <-lines:
		}
		command, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !more:
			fmt.Fprintln(c.notes)
			return nil
		case command == "":
		case command == "/quit":
			return nil
		case command == "/reset":
			c.messages = nil
		case command == "/system":
			c.system, c.messages = strings.TrimSpace(rest), nil
		case strings.HasPrefix(command, "/"):
			c.note("There is no command %s: there are /reset, /system and /quit.", command)
		default:
			switch err := c.ask(line); {
			case errors.Is(err, errInterrupted):
				fmt.Fprintln(c.notes, "(stopped)")
			case err != nil:
				fmt.Fprintln(c.notes, "chat:", err)
			}
		}
	}
}

func newScanner(in io.Reader) *bufio.Scanner {
	s := bufio.NewScanner(in)
	s.Buffer(nil, 16<<20)
	return s
}

// ask says something and writes the answer. Both then belong to what was said, unless there is no
// answer at all.
func (c *conversation) ask(question string) error {
	c.messages = append(c.messages, chat.Message{Role: "user", Content: question})
	prompt, err := c.prompt()
	if err != nil {
		c.messages = c.messages[:len(c.messages)-1]
		return err
	}
	o := c.options
	o.Start = prompt
	room := c.decoder.Capacity() - len(prompt)
	if o.MaxTokens == 0 || o.MaxTokens > room {
		o.MaxTokens = room
	}
	var answer strings.Builder
	var end sample.End
	write := sample.Write(watch.Printable(c.out))
	err = c.interruptible(func(ctx context.Context) error {
		return sample.Generate(ctx, &c.decoder, c.model.Tokenizer, "", o, func(t sample.Token) error {
			answer.WriteString(t.Text)
			end = t.End
			return write(t)
		})
	})
	fmt.Fprintln(c.out)
	c.options.Sampler.Seed++
	if end == sample.EndLength {
		fmt.Fprintf(c.notes, "(cut after %d tokens)\n", o.MaxTokens)
	}
	if answer.Len() == 0 && err != nil {
		c.messages = c.messages[:len(c.messages)-1]
	} else {
		c.messages = append(c.messages, chat.Message{Role: "assistant", Content: answer.String()})
	}
	return err
}

// prompt is the tokens of what was said, without the oldest of it that leaves too little room for
// an answer, a quarter of all.
func (c *conversation) prompt() ([]int, error) {
	forgotten := 0
	for {
		all := c.messages
		if c.system != "" {
			all = append([]chat.Message{{Role: "system", Content: c.system}}, all...)
		}
		prompt, err := c.model.Prompt(all)
		if err != nil {
			return nil, err
		}
		most := c.decoder.Capacity() * 3 / 4
		if len(prompt) <= most {
			if forgotten > 0 {
				c.note("(the context of %d tokens is full: the oldest %d messages are forgotten)", c.decoder.Capacity(), forgotten)
			}
			return prompt, nil
		}
		if len(c.messages) < 3 {
			return nil, fmt.Errorf("the question has %d tokens with what the model is told, it needs to have at most %d; see -context", len(prompt), most)
		}
		c.messages = c.messages[2:] // a question and its answer
		forgotten += 2
	}
}

// keeping is a decoder that reads of a prompt what is not in its window already, so that what was
// said before costs nothing.
type keeping struct {
	*nn.Decoder
	anew bool // the next tokens are a prompt
}

// Reset keeps the window for the prompt that comes next.
func (k *keeping) Reset() { k.anew = true }

// Logits reads a prompt, or a token behind it.
func (k *keeping) Logits(tokens []int) ([]float64, error) {
	if k.anew {
		k.anew = false
		window, n := k.Window(), 0
		for n < min(len(window), len(tokens)-1) && window[n] == tokens[n] {
			n++
		}
		if err := k.Truncate(n); err != nil {
			return nil, err
		}
		tokens = tokens[n:]
	}
	return k.Decoder.Logits(tokens)
}
