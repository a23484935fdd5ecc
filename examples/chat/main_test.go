package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/smallmodel"
	"github.com/stheno-ml/stheno/train/serve"
)

func conversing(t *testing.T, chat bool, s settings) (c *conversation, out, notes *bytes.Buffer, interrupts chan os.Signal) {
	t.Helper()
	interrupts = make(chan os.Signal, 2)
	out, notes = &bytes.Buffer{}, &bytes.Buffer{}
	s.model.Folder, s.model.Device = smallmodel.Llama(t, chat), "cpu"
	c, err := open(interrupts, s, out, notes)
	if err != nil {
		t.Fatal(err)
	}
	return c, out, notes, interrupts
}

// A conversation has its commands. What goes beside the answers is not among them.
func TestTalk(t *testing.T) {
	lines := []string{"hello", "", "/what", "and you?", "/system Be brief.", "hello", "/quit", "never"}
	c, out, notes, _ := conversing(t, true, settings{tokens: 8, model: serve.ModelConfig{Context: 128}, temperature: 0})
	if err := c.talk(strings.NewReader(strings.Join(lines, "\n"))); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 3 || len(c.messages) != 2 || c.system != "Be brief." {
		t.Errorf("there are %d answers and %d messages are kept, told is %q, want 3, 2 and \"Be brief.\"", n, len(c.messages), c.system)
	}
	if !strings.Contains(notes.String(), "There is no command /what") || strings.Contains(out.String(), ">") {
		t.Errorf("beside the answers it says:\n%s", notes)
	}
	c, _, _, _ = conversing(t, true, settings{tokens: 8, model: serve.ModelConfig{Context: 128}, temperature: 0})
	if err := c.talk(strings.NewReader("hello\n/reset\n")); err != nil || len(c.messages) != 0 {
		t.Errorf("after /reset %d messages are kept: %v", len(c.messages), err)
	}
}

// What the decoder keeps of a conversation changes no answer.
func TestKeeping(t *testing.T) {
	c, out, _, _ := conversing(t, true, settings{tokens: 8, model: serve.ModelConfig{Context: 128}, temperature: 1, seed: 5})
	for i, question := range []string{"hello", "and you?", "why?"} {
		fresh, want, _, _ := conversing(t, true, settings{tokens: 8, model: serve.ModelConfig{Context: 128}, temperature: 1, seed: 5 + uint64(i)})
		fresh.messages = slices.Clone(c.messages)
		out.Reset()
		if err := errors.Join(c.ask(question), fresh.ask(question)); err != nil {
			t.Fatal(err)
		}
		if out.String() != want.String() || out.Len() == 0 {
			t.Errorf("question %d is answered by %q, anew by %q", i, out, want)
		}
	}
}

// A full context forgets what is oldest and says so; a question that is too long is an error, and
// is not kept.
func TestFullContext(t *testing.T) {
	c, _, notes, _ := conversing(t, true, settings{tokens: 10, model: serve.ModelConfig{Context: 96}, temperature: 0})
	for range 6 {
		if err := c.ask("who are you?"); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(notes.String(), "(the context of 96 tokens is full: the oldest 2 messages are forgotten)") || len(c.messages) >= 12 {
		t.Errorf("with %d messages it says:\n%s", len(c.messages), notes)
	}
	c.messages = nil
	if err := c.ask(strings.Repeat("gorgon ", 60)); err == nil || !strings.Contains(err.Error(), "it needs to have at most 72; see -context") || len(c.messages) != 0 {
		t.Errorf("a long question gives %v and %d messages", err, len(c.messages))
	}
}

// An interrupt stops an answer, and between answers the conversation.
func TestInterrupts(t *testing.T) {
	c, _, _, interrupts := conversing(t, true, settings{model: serve.ModelConfig{Context: 128}, temperature: 0})
	stops := &stopper{interrupts: interrupts}
	c.out = stops
	if err := c.ask("hello"); err != nil && !errors.Is(err, errInterrupted) {
		t.Fatal(err)
	}
	interrupts <- os.Interrupt
	blocked, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	defer blocked.Close()
	if err := c.talk(blocked); !errors.Is(err, errInterrupted) {
		t.Errorf("between answers an interrupt gives %v", err)
	}
}

// stopper interrupts at the first write.
type stopper struct {
	interrupts chan<- os.Signal
	wrote      bool
}

func (s *stopper) Write(p []byte) (int, error) {
	if !s.wrote {
		s.wrote = true
		s.interrupts <- os.Interrupt
	}
	return len(p), nil
}

func TestOnce(t *testing.T) {
	c, out, notes, _ := conversing(t, true, settings{tokens: 5, model: serve.ModelConfig{Context: 128}, temperature: 0, system: "Be brief."})
	if err := c.once("hello"); err != nil || out.Len() == 0 || !strings.Contains(notes.String(), "(cut after 5 tokens)") {
		t.Errorf("one question gives %q, %q and %v", out, notes, err)
	}
	if err := c.once(" \n"); err == nil {
		t.Error("no question is no error")
	}
	c, _, _, _ = conversing(t, false, settings{model: serve.ModelConfig{Context: 128}})
	if err := c.once("hello"); err == nil || !strings.Contains(err.Error(), "the model has no template of conversations") {
		t.Errorf("without a template the error is %v", err)
	}
}

// A wrong flag is answered by the one that was probably meant, and help is in groups.
func TestFlags(t *testing.T) {
	s, question, err := parse(strings.Fields("-model x -max-tokens 5 what is it"), io.Discard)
	if err != nil || s.tokens != 5 || question != "what is it" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, _, err := parse(strings.Fields("what is it -weights int8"), io.Discard); err == nil || !strings.Contains(err.Error(), "-weights stands behind") {
		t.Errorf("the error is %v", err)
	}
	if _, _, err := parse(strings.Fields("-temp 1"), io.Discard); err == nil || !strings.Contains(err.Error(), "did you mean -temperature?") {
		t.Errorf("the error is %v, it needs \"did you mean -temperature?\"", err)
	}
	var help strings.Builder
	if _, _, err := parse([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "\nthe model\n") || strings.Contains(help.String(), "\nmore\n") {
		t.Errorf("help is %v, %s", err, help.String())
	}
}

// Each mistake is told in one line that names what to change, before a model is loaded.
func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"hi":                            "-model is needed: a model's folder, a GGUF file, or hub:NAME",
		"-model x -max-tokens -1 hi":    "-max-tokens is -1, it needs to be positive, or 0 for as many as fit",
		"-model x -temperature NaN hi":  "-temperature is NaN, it needs to be a number",
		"-model x -temperature -Inf hi": "-temperature is -Inf, it needs to be a number",
		"-model x -seed -1 hi":          `invalid value "-1" for flag -seed: it needs to be a whole number, not negative`,
		"-model x hi -seed 1":           `-seed stands behind "hi", flags need to stand before all else`,
		"-modle x hi":                   "there is no flag -modle: did you mean -model?",
	} {
		_, _, err := parse(strings.Fields(args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one line with %q", args, err, want)
		}
	}
}
