// Finetune goes on training a published model on one's own text or conversations, and lets it
// write:
//
//	go run ./examples/finetune -model hub:HuggingFaceTB/SmolLM2-135M-Instruct -data chats.jsonl
//	go run ./examples/finetune -model gpt2 -data notes.txt -sample "The weather"
//
// The data is a text, or a .jsonl file with a conversation, a question and its answer, or a text on
// each line, also as Alpaca's and ShareGPT's; see corpus.go. Of a conversation the model learns the
// answers alone. By default small changes to the model are trained (LoRA), which go to the folder
// adapter of the run as Python's peft reads them; -rank 0 trains all weights. -resume goes on with
// a run that was stopped. What the model answers to a few prompts is shown before the training and
// after it: those of -sample, which may be given several times, or some of the data that it is not
// trained on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/watch"
	"github.com/stheno-ml/stheno/train/watch/page"
	"gorgonia.org/tensor"
)

func main() {
	s, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "finetune:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := finetune(ctx, s, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "finetune:", cli.Failure(err))
		os.Exit(1)
	}
}

// finetune trains, saves and samples.
func finetune(ctx context.Context, s settings, out io.Writer) error {
	if s.resume {
		if err := s.readBack(); err != nil {
			return err
		}
	}
	place, err := train.OpenPlace(ctx, train.PlaceConfig{Device: s.device})
	if err != nil {
		return fmt.Errorf("-device: %w", err)
	}
	defer place.Close()
	model, err := load(ctx, &s, place)
	if err != nil {
		return err
	}
	corpus, err := readCorpus(s, model.Folder())
	if err != nil {
		return err
	}
	batches, validation, err := corpus.pack(s)
	if err != nil {
		return err
	}
	if s.Steps == 0 {
		s.Steps = max(1, int(s.Epochs*float64(batches.Count())/float64(s.Batch)))
	}
	folders, closeFolders, err := s.openCheckpoints()
	if err != nil {
		return err
	}
	started := false
	defer func() { closeFolders(started) }()

	before, err := newAuthor(model, corpus, s)
	if err != nil {
		return err
	}
	loop, err := train.NewLoop(train.LoopConfig{
		Model: lossOf(model), Parameters: model.Parameters(),
		Place: place, Memory: s.memory,
		Data:      batches,
		Optimizer: train.AdamW{Beta2: 0.999}, Options: train.Options{
			Schedule: train.WarmupCosine{Peak: s.Rate, Min: s.Rate / 10, Warmup: s.Steps / 10, Steps: s.Steps}, ClipNorm: 1,
		},
		Steps: s.Steps,
		Evaluations: train.Evaluations{
			Every: min(s.EvalEvery, s.Steps), Batches: min(20, max(1, validation.Count()/s.Batch)), Validation: validation,
		},
		Checkpoints: folders, CheckpointEvery: s.EvalEvery, Settings: s,
		Hooks: hooks(ctx, model, s, before, corpus, out),
	})
	if err != nil {
		return err
	}
	defer loop.Close()
	if err := resume(loop, folders, s, out); err != nil {
		return err
	}
	started = true
	fmt.Fprintln(out, cli.Wrap(fmt.Sprintf("%s, of which %d numbers are trained, learns %d documents in %d rows of %d tokens; %d validate. It all goes to %s.",
		s.Model, nn.Count(loop.Parameters()), len(corpus.training), batches.Count(), s.Context, len(corpus.validation), s.out), cli.Columns()))
	if !s.resume {
		if err := before.show(ctx, "Before the training:", out); err != nil {
			return err
		}
	}
	end, err := loop.Run(ctx)
	if err != nil {
		s.sayGoOn(err, out)
		return err
	}
	if end.Cancelled {
		if err := drawLosses(s.out); err != nil {
			return err
		}
		fmt.Fprintf(out, "Stopped after step %d. To go on: go run ./examples/finetune -resume -out %s\n", end.Done, cli.Word(s.out))
		return nil
	}
	return finish(ctx, s, model, corpus, out)
}

// sayGoOn says how a run goes on whose files could not be written.
func (s settings) sayGoOn(err error, out io.Writer) {
	if cli.IsOfFiles(err) && s.hasCheckpoints() {
		fmt.Fprintf(out, "When that is mended, to go on from the newest checkpoint: go run ./examples/finetune -resume -out %s\n", cli.Word(s.out))
	}
}

// finish saves what was learnt and shows what the model writes now.
func finish(ctx context.Context, s settings, model *pretrained.Model, corpus *corpus, out io.Writer) error {
	if err := save(model, s, out); err != nil {
		s.sayGoOn(err, out)
		return err
	}
	if err := drawLosses(s.out); err != nil {
		return err
	}
	fmt.Fprintf(out, "The losses are in %s.\n", filepath.Join(s.out, "loss.png"))
	after, err := newAuthor(model, corpus, s) // changes may be in the weights by now
	if err != nil {
		return err
	}
	return after.show(ctx, "After it:", out)
}

// drawLosses draws the losses of all steps of the run.
func drawLosses(folder string) error {
	file, err := os.Open(filepath.Join(folder, "log.jsonl"))
	if err != nil {
		return err
	}
	defer file.Close()
	log, err := watch.ReadJSONLines(file)
	if err != nil || len(log.Steps) < 2 {
		return err // one step is no curve
	}
	return watch.Draw(filepath.Join(folder, "loss.png"), log)
}

// load reads the model, downloads it first if it needs to be, and gives it a LoRA if it is to have
// one.
func load(ctx context.Context, s *settings, place *train.Place) (*pretrained.Model, error) {
	status := watch.NewStatus(os.Stderr)
	defer status.Done("")
	folder, err := pretrained.Find(ctx, s.Model, downloads(status))
	if err == nil {
		err = s.fitContext(folder)
	}
	if err != nil && !strings.HasPrefix(s.Model, "hub:") {
		if _, there := os.Stat(filepath.Join(s.Model, "config.json")); errors.Is(there, fs.ErrNotExist) || errors.Is(there, syscall.ENOTDIR) {
			return nil, fmt.Errorf("-model is %s, which is no model's folder: it needs a config.json; hub:OWNER/NAME is a model on the hub", s.Model)
		}
	}
	if err != nil {
		return nil, err
	}
	o := s.types(place.Device())
	o.Progress = func(done, total int64) {
		status.Show(fmt.Sprintf("weights: %d %% are read", 100*done/max(total, 1)))
	}
	model, err := pretrained.Load(folder, o)
	if err != nil || s.Rank == 0 {
		return model, err
	}
	l := pretrained.LoRA{Rank: s.Rank, Alpha: s.Alpha, Dropout: s.Dropout, Decomposed: s.DoRA}
	if s.Targets != "" {
		l.Targets = strings.Split(s.Targets, ",")
	}
	return model, model.AddLoRA(l)
}

// resume goes on from the newest checkpoint, or the best where there is no other, if it is to.
func resume(loop *train.Loop, folder *checkpoint.Folder, s settings, out io.Writer) error {
	if !s.resume {
		return nil
	}
	refused, err := loop.Resume()
	for _, damaged := range refused {
		fmt.Fprintln(out, "Passed over:", damaged)
	}
	if !errors.Is(err, checkpoint.ErrNone) {
		return err
	}
	best, _, err := folder.Best()
	if err != nil {
		return err
	}
	return loop.ResumeFrom(best)
}

// types says what the model computes in: by default float32 on a CPU and bfloat16 on a GPU. Weights
// that are not trained have that type on a GPU too, if -weights says no other, unless changes are
// to be added to them or they are a DoRA's.
func (s settings) types(device *ops.Device) pretrained.Options {
	o := pretrained.Options{Device: device, Compute: computeTypes[s.Compute]}
	if device != nil && s.Compute == "" {
		o.Compute = ops.BFloat16
	}
	switch {
	case s.Weights != "":
		o.Weights = weightTypes[s.Weights]
	case device != nil && s.Rank > 0 && !s.Merge && !s.DoRA && o.Compute != tensor.Float32:
		o.Weights = o.Compute
	}
	return o
}

// lossOf is the model's loss, of batches of data.Pack.
func lossOf(model *pretrained.Model) train.Model {
	return func(s *nn.Scope, in train.Inputs) train.Outputs {
		packing := nn.Packing{Ends: in.Get("ends"), Positions: in.Get("positions")}
		loss := model.LanguageModel(s).LossPacked(in.Get("tokens"), in.Get("targets"), packing)
		return train.Outputs{Loss: loss, Metrics: []train.Metric{train.Perplexity(loss)}}
	}
}

// save writes the adapter, or all of a model whose weights were trained.
func save(model *pretrained.Model, s settings, out io.Writer) error {
	if s.Rank > 0 {
		adapter := filepath.Join(s.out, "adapter")
		if err := model.SaveLoRA(adapter); err != nil {
			return err
		}
		fmt.Fprintf(out, "The adapter is in %s.\n", adapter)
		if !s.Merge {
			return nil
		}
		if err := model.Parameters().MergeLoRA(); err != nil {
			return err
		}
	}
	whole := filepath.Join(s.out, "model")
	if err := model.Save(whole, pretrained.SaveOptions{DType: model.DType()}); err != nil {
		return err
	}
	fmt.Fprintf(out, "The model is in %s.\n", whole)
	return nil
}

// author lets the model answer or continue prompts.
type author struct {
	decoder   *nn.Decoder
	corpus    *corpus
	questions []string
	prompts   []string // with what the template puts around the questions
	how       sample.Options
}

// newAuthor makes an author of the model as it is, or nil where there is no prompt.
func newAuthor(model *pretrained.Model, c *corpus, s settings) (*author, error) {
	a := &author{corpus: c, how: sample.Options{
		Sampler: sample.SamplerOptions{Temperature: 0.7, TopP: 0.9, Seed: s.Seed}, MaxTokens: min(s.Context, 200), Stop: c.stop,
	}}
	questions := []string(s.Samples)
	if questions == nil {
		questions = c.held()
	}
	for _, question := range questions {
		prompt, err := c.prompt(question)
		if err != nil {
			return nil, err
		}
		if prompt != "" {
			a.questions, a.prompts = append(a.questions, strings.TrimSpace(question)), append(a.prompts, prompt)
		}
	}
	if len(a.prompts) == 0 {
		return nil, nil
	}
	decoder, err := model.NewDecoder(min(s.Context, 1024))
	if err != nil {
		return nil, err
	}
	a.decoder = decoder
	return a, nil
}

// show writes the prompts, and what the model makes of each.
func (a *author) show(ctx context.Context, when string, out io.Writer) error {
	if a == nil {
		return nil
	}
	fmt.Fprintf(out, "\n%s\n", when)
	return a.write(ctx, watch.Printable(out))
}

func (a *author) write(ctx context.Context, w io.Writer) error {
	for i, prompt := range a.prompts {
		fmt.Fprintf(w, "> %s\n", strings.ReplaceAll(a.questions[i], "\n", "\n> "))
		err := sample.Generate(ctx, a.decoder, a.corpus.tokenizer, prompt, a.how, sample.Write(w))
		fmt.Fprint(w, "\n\n")
		if err != nil {
			return err
		}
	}
	return nil
}

// glimpse is what the model writes after an evaluation.
func (a *author) glimpse(ctx context.Context) func(train.Evaluation) (string, error) {
	if a == nil {
		return nil
	}
	return func(train.Evaluation) (string, error) {
		var text strings.Builder
		err := a.write(ctx, &text)
		if ctx.Err() != nil {
			err = nil // a run that is to stop shows what there is
		}
		return text.String(), err
	}
}

// hooks show how the run goes: in the terminal, in a file, and in a browser if it is to.
func hooks(ctx context.Context, model *pretrained.Model, s settings, a *author, c *corpus, out io.Writer) []train.Hook {
	list := []train.Hook{watch.Progress(os.Stderr), watch.OpenJSONLines(filepath.Join(s.out, "log.jsonl"))}
	if s.page == "" {
		return list
	}
	return append(list, page.Serve(page.Options{
		Address: s.page, Title: s.Model + " on " + s.Data, Sample: a.glimpse(ctx),
		Announce:  func(url string) { fmt.Fprintln(out, "A browser shows the run at", url) },
		Attention: page.Attention(model.Parameters(), model.LanguageModel, c.tokenizer),
	}))
}
