// Prepare makes files of tokens of texts, which package data streams batches from:
//
//	go run ./examples/prepare -tokenizer hub:openai-community/gpt2 -out tokens 'fineweb/*.parquet'
//	go run ./examples/prepare -tokenizer SmolLM2-135M -validation 0.01 -out tokens chapters.txt notes.jsonl
//
// The tokenizer is the tokenizer.json of a model's folder, of a name on the hub, or of a path. It
// is kept beside the tokens, so that examples/transformer -data tokens can train on them, given
// some to validate on. All processors encode; the files are the same whatever their number.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/nn/pretrained/hub"
	"github.com/stheno-ml/stheno/train/data/prepare"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"github.com/stheno-ml/stheno/train/watch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "prepare:", strings.TrimPrefix(cli.Failure(err), "prepare: ")) // the package has the program's name
		os.Exit(1)
	}
}

// otherNames are names of flags in other programs.
var otherNames = map[string]string{
	"output": "out", "output-dir": "out", "model": "tokenizer", "column": "field", "text-column": "field", "split": "validation", "val": "validation",
	"eos": "end", "num-workers": "workers", "jobs": "workers",
}

// groups are the flags as help shows them.
var groups = []cli.Group{
	{Title: "tokens", Flags: []string{"tokenizer", "end", "field"}},
	{Title: "files", Flags: []string{"out", "shard", "validation", "seed"}},
	{Title: "machine", Flags: []string{"workers"}},
}

// uses are examples for help.
var uses = []string{
	"go run ./examples/prepare -tokenizer hub:openai-community/gpt2 -out tokens 'fineweb/*.parquet'",
	"go run ./examples/prepare -tokenizer SmolLM2-135M -validation 0.01 -out tokens chapters.txt notes.jsonl",
}

func run(ctx context.Context, args []string, out, screen io.Writer) error {
	var o prepare.Options
	f := flag.NewFlagSet("prepare", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	place := f.String("tokenizer", "", "a tokenizer.json, a model's folder, or hub:NAME or hub:NAME@REVISION")
	end := f.String("end", "", "the token that ends each document; if empty the tokenizer's <|endoftext|>, <|end_of_text|>, </s> or <eos>")
	f.StringVar(&o.Folder, "out", "tokens", "the folder that the files go to")
	f.StringVar(&o.Field, "field", "text", "the field or column that holds the text of .jsonl and .parquet files")
	f.IntVar(&o.Shard, "shard", 100_000_000, "the most tokens of a file")
	f.Float64Var(&o.Validation, "validation", 0, "the share of documents that go to files of their own, to validate on")
	f.Uint64Var(&o.Seed, "seed", 1, "of which documents these are")
	f.IntVar(&o.Workers, "workers", 0, "how many goroutines encode; 0 means as many as there are processors")
	switch err := cli.Flags(f, args, otherNames); {
	case errors.Is(err, flag.ErrHelp):
		cli.Help(screen, f, "prepare FLAGS TEXTS makes files of tokens of texts, whose names end in .txt, .jsonl or .parquet.\n", uses, groups)
		return err
	case err != nil:
		return err
	case f.NArg() == 0:
		return errors.New("there are no texts, they are named behind the flags: files that end in .txt, .jsonl or .parquet")
	case *place == "":
		return errors.New("-tokenizer is needed: a tokenizer.json, a model's folder, or hub:NAME, such as hub:openai-community/gpt2")
	}
	if err := cli.Behind(f); err != nil {
		return err
	}
	var paths []string
	for _, pattern := range f.Args() {
		if _, err := os.Lstat(pattern); err == nil { // whatever its characters mean
			paths = append(paths, pattern)
			continue
		}
		found, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("%s: %w", pattern, err)
		}
		if len(found) == 0 {
			return fmt.Errorf("there is no %s%s", pattern, cli.Meant(pattern))
		}
		paths = append(paths, found...)
	}
	path, err := find(ctx, *place)
	if err != nil {
		return err
	}
	t, err := tokenizer.OpenHuggingFace(path)
	if err != nil {
		return fmt.Errorf("-tokenizer is %q: %w; it needs to be a tokenizer.json, a model's folder, or hub:NAME", *place, err)
	}
	last, err := endOf(t, *end)
	if err != nil {
		return err
	}
	// What looks like a special token in a text is text.
	o.Tokenizer, o.After = t.WithoutSpecial(), []int{last}
	began, status := time.Now(), watch.NewStatus(screen)
	show := func(p prepare.Progress) string {
		return fmt.Sprintf("%5.1f %%  %d documents, %.1f MB of text, %.1f million tokens, %.1f MB/s", 100*p.Done, p.Documents,
			float64(p.Bytes)/1e6, float64(p.Tokens)/1e6, float64(p.Bytes)/1e6/time.Since(began).Seconds())
	}
	o.Progress = func(p prepare.Progress) { status.Show(show(p)) }
	result, err := prepare.Run(ctx, paths, o)
	if err != nil {
		status.Done("")
		return err
	}
	status.Done(show(result.Progress))
	// A model of these tokens is of no use without it.
	if err := keep(path, filepath.Join(o.Folder, tokenizerFile)); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d documents are %d tokens in %d files to train on and %d to validate on, in %s. Each ends with token %d.\n",
		result.Documents, result.Tokens, len(result.Train), len(result.Validation), o.Folder, last)
	if len(result.Validation) > 0 {
		fmt.Fprintf(out, "To train on them: go run ./examples/transformer -data %s\n", cli.Word(o.Folder))
	}
	return nil
}

const tokenizerFile = "tokenizer.json"

// find is the path of a tokenizer: that itself, or that in a model's folder or on the hub, of which
// it downloads nothing else.
func find(ctx context.Context, place string) (string, error) {
	if name, onHub := strings.CutPrefix(place, "hub:"); onHub {
		folder, err := hub.Fetch(ctx, name, hub.Options{Want: func(name string) bool { return name == tokenizerFile }})
		if err != nil {
			return "", err
		}
		place = folder
	}
	if !strings.HasSuffix(place, ".json") {
		place = filepath.Join(place, tokenizerFile)
	}
	return place, nil
}

// keep copies a file.
func keep(from, to string) error {
	content, err := os.ReadFile(from)
	if err == nil {
		err = plainfile.Write(to, func(w io.Writer) error { _, err := w.Write(content); return err })
	}
	return err
}

// endOf is the token that ends a document.
func endOf(t *tokenizer.HuggingFace, named string) (int, error) {
	names := []string{named}
	if named == "" {
		names = []string{"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}
	}
	for _, name := range names {
		if id, found := t.ID(name); found {
			return id, nil
		}
	}
	return 0, fmt.Errorf("the tokenizer has no token %s; -end names the one that ends a document", strings.Join(names, ", "))
}
