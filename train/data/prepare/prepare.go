package prepare

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
)

// Tokenizer turns text into tokens. Those of package train/tokenizer are.
type Tokenizer interface {
	// Encode gives the tokens of a text. Several goroutines call it at once.
	Encode(text string) ([]int, error)
	// Size is the number of tokens.
	Size() int
}

// Options say what [Run] writes.
type Options struct {
	Tokenizer Tokenizer
	// Before and After are tokens that each document begins and ends with, such as the one that
	// ends a text.
	Before, After []int
	// Folder is where the files go. It is made if it is not there, and may not hold such files yet.
	Folder string
	// Field is the field or column that holds the text of .jsonl and .parquet files; empty means
	// text.
	Field string
	// Shard is the most tokens of a file; 0 means 100 million.
	Shard int
	// Validation is the share of documents that go to files of their own, chosen by Seed and the
	// document's number.
	Validation float64
	Seed       uint64
	// Workers is how many goroutines encode; 0 means as many as there are processors.
	Workers int
	// Progress, if it is not nil, is told how far it is, some times a second, from one goroutine.
	Progress func(Progress)
}

// Progress is how far [Run] is.
type Progress struct {
	Documents, Tokens int
	Bytes             int64   // of text
	Done              float64 // share of the files' bytes that were read
}

// Result is what [Run] has written: files in the order in which they are to be read, and their
// sums.
type Result struct {
	Train, Validation []string
	Progress
}

// Run reads files, whose names end in .txt, .jsonl or .parquet, and writes their documents as
// tokens, in files of llm.c's format: train-00000.bin and so on, each but the last of exactly Shard
// tokens, and likewise validation-00000.bin. A .txt file is one document, a line of a .jsonl file
// is an object that holds one, and so is a row of a .parquet file; those that are empty or null are
// left out. A document of more than a megabyte is encoded in pieces that begin with a line.
//
// Ids have two bytes where the tokenizer has at most 65536. When Run ends with an error, a
// cancelled context among them, it has removed what it wrote.
func Run(ctx context.Context, paths []string, o Options) (Result, error) {
	r, err := run(ctx, paths, o)
	if err != nil {
		return Result{}, fmt.Errorf("prepare: %w", err)
	}
	return r, nil
}

// group is some pieces of documents, which are encoded at once.
type group struct {
	pieces []piece
	done   float64 // share of the files' bytes up to here
	tokens [][]int // of each piece
	err    error
	ready  chan struct{}
}

// piece is a document or a part of one.
type piece struct {
	text        string
	document    int
	first, last bool // of its document
}

const (
	maxWorkers = 1 << 16
	groupBytes = 256 << 10
	pieceBytes = 1 << 20
)

func run(ctx context.Context, paths []string, o Options) (result Result, err error) {
	if err := o.check(paths); err != nil {
		return Result{}, err
	}
	_, there := os.Stat(o.Folder)
	if err := os.MkdirAll(o.Folder, 0o777); err != nil {
		return Result{}, fmt.Errorf("the folder of the files: %w", err)
	}
	train, validation := newWriter(o, "train"), newWriter(o, "validation")
	for _, w := range []*writer{train, validation} {
		if err := w.checkFree(); err != nil {
			return Result{}, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	// Groups go to the workers and, in order, to the writer. As many are under way as the second
	// has room for.
	work, ordered := make(chan *group), make(chan *group, 2*o.Workers)
	var goroutines sync.WaitGroup
	defer func() {
		cancel()
		goroutines.Wait()
		if err != nil {
			err = errors.Join(err, train.remove(), validation.remove())
			if errors.Is(there, fs.ErrNotExist) {
				os.Remove(o.Folder) // unless something else is in it by now
			}
		}
	}()
	var readError error
	goroutines.Go(func() {
		defer close(ordered)
		defer close(work)
		readError = guard.Call("reading", func() error { return read(ctx, paths, o.Field, work, ordered) })
	})
	for range o.Workers {
		goroutines.Go(func() {
			for g := range work {
				g.encode(o.Tokenizer)
			}
		})
	}
	for g := range ordered {
		select {
		case <-g.ready:
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
		if g.err != nil {
			return Result{}, g.err
		}
		if err := writeGroup(g, o, train, validation, &result); err != nil {
			return Result{}, err
		}
		result.Tokens, result.Done = train.total+validation.total, g.done
		if o.Progress != nil {
			o.Progress(result.Progress)
		}
	}
	if readError != nil { // it was set before the channel was closed
		return Result{}, readError
	}
	if result.Tokens == 0 {
		return Result{}, fmt.Errorf("there is no text in the %d files", len(paths))
	}
	if err := errors.Join(train.finish(), validation.finish()); err != nil {
		return Result{}, err
	}
	result.Train, result.Validation = train.paths, validation.paths
	return result, nil
}

// writeGroup writes the tokens of a group, each document to one of the writers.
func writeGroup(g *group, o Options, train, validation *writer, result *Result) (err error) {
	for i, p := range g.pieces {
		w := train
		if isDrawn(o.Seed, p.document, o.Validation) {
			w = validation
		}
		if p.first {
			result.Documents++
			err = w.write(o.Before)
		}
		if err == nil {
			err = w.write(g.tokens[i])
		}
		if err == nil && p.last {
			err = w.write(o.After)
		}
		if err != nil {
			return err
		}
		result.Bytes += int64(len(p.text))
	}
	return nil
}

func (o *Options) check(paths []string) error {
	if o.Shard == 0 {
		o.Shard = 100_000_000
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Field == "" {
		o.Field = "text"
	}
	switch {
	case len(paths) == 0:
		return errors.New("there are no paths, it needs at least one")
	case o.Tokenizer == nil:
		return errors.New("tokenizer is nil, it needs to be a tokenizer")
	case o.Folder == "":
		return errors.New("folder is empty, it needs to be a place for files")
	case o.Shard < 2 || o.Shard > math.MaxInt32:
		return fmt.Errorf("shard is %d tokens, it needs to be at least 2 and an int32", o.Shard)
	case o.Workers < 1 || o.Workers > maxWorkers:
		return fmt.Errorf("workers is %d, it needs to be from 1 to %d", o.Workers, maxWorkers)
	case !(o.Validation >= 0 && o.Validation < 1):
		return fmt.Errorf("validation is %v, it needs to be at least 0 and less than 1", o.Validation)
	}
	for _, tokens := range [][]int{o.Before, o.After} {
		for _, id := range tokens {
			if id < 0 || id >= o.Tokenizer.Size() {
				return fmt.Errorf("the token %d before or after documents is none of the tokenizer's %d", id, o.Tokenizer.Size())
			}
		}
	}
	return nil
}

// isDrawn reports whether a document is one of a share of them.
func isDrawn(seed uint64, document int, share float64) bool {
	const rounds, stream = 10, 0xE0000000
	words := kernels.Philox(rounds, kernels.PhiloxKey(seed), [4]uint32{uint32(document), uint32(uint64(document) >> 32), 0, stream})
	return float64(words[0]) < share*(1<<32)
}

// read makes groups of all files' documents.
func read(ctx context.Context, paths []string, field string, work, ordered chan<- *group) error {
	sizes, all, before := make([]int64, len(paths)), int64(0), int64(0)
	for i, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		sizes[i] = info.Size()
		all += sizes[i]
	}
	g, held := &group{ready: make(chan struct{})}, 0
	send := func() error {
		for _, to := range []chan<- *group{ordered, work} {
			select {
			case to <- g:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		g, held = &group{ready: make(chan struct{})}, 0
		return nil
	}
	document := 0
	for i, path := range paths {
		take := func(text string, first, last bool, done float64) error {
			g.pieces = append(g.pieces, piece{text, document, first, last})
			g.done = (float64(before) + done*float64(sizes[i])) / float64(max(1, all))
			if last {
				document++
			}
			if held += len(text); held < groupBytes {
				return nil
			}
			return send()
		}
		if err := readFile(path, field, take); err != nil {
			return err
		}
		before += sizes[i]
	}
	g.done = 1
	return send()
}

func (g *group) encode(t Tokenizer) {
	defer close(g.ready)
	defer guard.Catch(&g.err, "the tokenizer")
	for _, p := range g.pieces {
		ids, err := t.Encode(p.text)
		if err != nil {
			g.err = fmt.Errorf("document %d: %w", p.document, err)
			return
		}
		g.tokens = append(g.tokens, ids)
	}
}

// checkFree refuses a folder that holds shards of that name.
func (w *writer) checkFree() error {
	found, err := filepath.Glob(filepath.Join(escapeGlob(w.folder), w.name+"-*.bin"))
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%s is there already, the files need a folder without such", found[0])
	}
	return err
}
