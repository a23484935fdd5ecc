package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/watch"
	"github.com/stheno-ml/stheno/train/watch/page"
	"golang.org/x/term"
)

// announce says what will be trained, where, and what it costs.
func (r *run) announce(choice string, s settings, loop *train.Loop) {
	r.started = true
	parameters := nn.Count(loop.Parameters())
	if !r.place.Leads() {
		return
	}
	if choice != "" {
		say("%s", choice)
	}
	kinds := r.text.tokenizer.Size()
	say("A GPT of %d layers × %d channels, %.2f million parameters.", s.Layers, s.Dim, float64(parameters)/1e6)
	say("It learns from %s:\n%.2f million tokens of %d kinds.", r.text.origin, float64(r.text.size())/1e6, kinds)
	say("A loss says how unsure it is of the next token: guessing would be %.2f.", math.Log(float64(kinds)))
	say("It computes on %s.\nEverything goes to %s.", r.place, r.folder)
	if needs, again := loop.Memory(); needs > 0 {
		say("A step takes about %v; %d parts of its blocks are computed again.", needs, len(again))
	}
	if cost := s.cost(float64(parameters)); r.place.Device() == nil && cost > time.Hour {
		say("On a CPU like this one it takes about %s; -preset minute takes about one.", spell(cost))
	}
}

// hooks show how the run goes: in the terminal with a few lines that the model writes, in files,
// and in a browser if it is to.
func (r *run) hooks(s settings, o options, parameters *nn.Parameters, glimpse func(train.Evaluation) (string, error)) []train.Hook {
	hooks := []train.Hook{
		watch.Progress(os.Stderr, glimpse),
		watch.OpenJSONLines(r.file("log.jsonl")),
		watch.TensorBoard(r.file("tensorboard")),
	}
	if o.page == "" {
		return hooks
	}
	t := r.text.tokenizer
	return append(hooks, page.Serve(page.Options{
		Address: o.page, Title: "A GPT of " + r.text.origin, Sample: glimpse,
		Announce:  func(url string) { fmt.Println("A browser shows the run at", url) },
		Attention: page.Attention(parameters, func(scope *nn.Scope) *nn.LanguageModel { return s.gpt(scope, t.Size()) }, t),
	}))
}

// conclude draws the losses, shows what the model has learnt, and says what one can do next.
func (r *run) conclude(ctx context.Context, end train.End, err error, author *author) error {
	if !r.place.Leads() {
		return err
	}
	if err != nil && end.Done == 0 {
		r.started = false // so that no folder stays without anything in it
	}
	for _, n := range end.Notices {
		say("Notice: %s", n)
	}
	if drawErr := r.drawCurve(); err == nil {
		err = drawErr // after an error that ended the run, another of the same disk tells nothing new
	}
	if cli.IsOfFiles(err) && hasCheckpoints(r.folder) {
		fmt.Printf("When that is mended, to go on from the newest checkpoint: %s\n", r.command("-resume"))
	}
	if err != nil {
		return err
	}
	if end.Cancelled {
		fmt.Printf("Stopped after step %d. To go on: %s\n", end.Done, r.command("-resume"))
		return nil
	}
	if author != nil {
		if err := r.takeBest(end, author); err != nil {
			return err
		}
		fmt.Println()
		text, err := plainfile.CreateOwn(r.file("sample.txt"))
		if err != nil {
			return err
		}
		defer text.Close()
		err = author.write(ctx, io.MultiWriter(screen(), text))
		if stopped := context.Cause(ctx); stopped != nil { // what was to be learnt is learnt
			say("\n%v: the text ends here.", stopped)
			err = nil
		}
		if err != nil {
			return err
		}
		if err := text.Close(); err != nil {
			return err
		}
	}
	r.sayLoss(end.BestLoss)
	r.sayNext(end.Steps, author != nil)
	return nil
}

// takeBest gives a model that was better before, on text that it had not seen, its weights of then.
func (r *run) takeBest(end train.End, a *author) error {
	if math.IsNaN(end.BestLoss) || end.BestStep == end.Done {
		return nil
	}
	best, err := r.read((*checkpoint.Folder).Best, new(settings))
	if errors.Is(err, checkpoint.ErrNone) || err == nil && best.Step != end.BestStep {
		return nil // someone has removed it
	}
	if err != nil {
		return err
	}
	say("\nValidation was best after step %d: the text is by the model as it was then.", best.Step)
	return a.take(best)
}

// sayLoss says what a loss means.
func (r *run) sayLoss(loss float64) {
	kinds := r.text.tokenizer.Size()
	if guess := math.Log(float64(kinds)); loss < guess { // and a number
		say("\nIts loss is %.2f, where guessing would be %.2f: of %d tokens it is as unsure of the next one as if %.0f were equally likely.",
			loss, guess, kinds, math.Exp(loss))
	}
}

// sayNext lists what one can do with the run.
func (r *run) sayNext(steps int, wrote bool) {
	prompt := "PROMPT"
	if r.text.isGo {
		prompt = "'func main'"
	}
	lines := [][2]string{
		{"more text", r.command("-sample " + prompt)},
		{"train on", r.command(fmt.Sprintf("-resume -steps %d", 2*steps))},
		{"a text of yours", "go run ./examples/transformer -data FILE"},
		{"for transformers", r.command("-export FOLDER")},
		{"the losses", r.file("loss.png")},
		{"every number", r.file("log.jsonl")},
		{"in TensorBoard", "tensorboard --logdir " + cli.Word(r.file("tensorboard"))},
	}
	if wrote {
		lines = append(lines, [2]string{"the text above", r.file("sample.txt")})
	}
	fmt.Print("\n", cli.List(lines, cli.Columns()))
}

// say prints lines that are as wide as the terminal at most.
func say(format string, values ...any) {
	fmt.Println(cli.Wrap(fmt.Sprintf(format, values...), cli.Columns()))
}

// command is this program with flags for this run. The newest one needs no -out.
func (r *run) command(flags string) string {
	if r.folder != newestRun() {
		flags += " -out " + cli.Word(r.folder)
	}
	return "go run ./examples/transformer " + flags
}

// drawCurve draws the losses of all steps of the run, those before it was resumed too.
func (r *run) drawCurve() error {
	file, err := os.Open(r.file("log.jsonl"))
	if err != nil {
		return err
	}
	defer file.Close()
	log, err := watch.ReadJSONLines(file)
	if err != nil {
		return err
	}
	if len(log.Steps) < 2 {
		return nil // one step is no curve
	}
	return watch.Draw(r.file("loss.png"), log)
}

// screen is where text is shown: a terminal is not sent what it would obey.
func screen() io.Writer {
	if term.IsTerminal(int(os.Stdout.Fd())) {
		return watch.Printable(os.Stdout)
	}
	return os.Stdout
}

// abandon removes the folder of a run that came to nothing.
func (r *run) abandon() {
	if r.made && !hasCheckpoints(r.folder) {
		os.RemoveAll(r.folder)
		if parent := filepath.Dir(r.folder); strings.TrimSuffix(parent, "/") == runsFolder {
			os.Remove(parent) // unless there are other runs
		}
	}
}
