package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// run is a folder that the results of a training go to.
type run struct {
	place       *train.Place
	folder      string             // empty for a new one that will have a number
	checkpoints *checkpoint.Folder // nil until it is open, and where this process is not the one that writes
	text        corpus
	resumed     bool
	made        bool // its folder is new
	started     bool
	fromBest    bool // whether a resumed run goes on from its best checkpoint
}

// runsFolder is where runs go that have no -out; they are numbered.
const runsFolder = "runs"

// keptCheckpoints is how many checkpoints a run keeps, besides the best.
const keptCheckpoints = 3

func (r *run) file(name string) string { return filepath.Join(r.folder, name) }

// openRun finds or makes a run and loads its text.
func openRun(place *train.Place, s *settings, o options) (*run, error) {
	r, err := findRun(place, s, o)
	if err != nil {
		return nil, err
	}
	if r.text, err = loadCorpus(s); err != nil {
		return nil, err
	}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, r.text.Close())
	}
	return r, nil
}

// close gives back what the run holds. A folder that was made for nothing goes.
func (r *run) close() {
	r.text.Close()
	if r.checkpoints != nil {
		r.checkpoints.Close()
		if !r.started {
			r.abandon()
		}
	}
}

// findRun finds the run to resume, and reads its settings, over which flags go; a new run is
// nowhere yet. Every rank does so: none reads tensors before all of them share that out.
func findRun(place *train.Place, s *settings, o options) (*run, error) {
	r := &run{place: place, folder: o.out, resumed: o.resume}
	if !o.resume {
		if place.Late() { // in the place of a rank that is lost: the run is there already
			return r, s.absolute()
		}
		return r, errors.Join(r.checkFree(), s.absolute())
	}
	if r.folder == "" {
		r.folder = newestRun()
	}
	r.fromBest = o.best
	latest := func(f *checkpoint.Folder) (checkpoint.Checkpoint, []error, error) {
		return f.LatestBy(checkpoint.LoadState)
	}
	best := func(f *checkpoint.Folder) (checkpoint.Checkpoint, []error, error) {
		return f.BestBy(checkpoint.LoadState)
	}
	var err error
	if !r.fromBest {
		_, err = r.read(latest, s)
		r.fromBest = errors.Is(err, checkpoint.ErrNone) // a run that was killed early has no other
	}
	if r.fromBest {
		_, err = r.read(best, s)
	}
	if err != nil {
		return nil, err
	}
	o.explicit(s)
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("the settings of %s with these flags: %w", r.folder, err)
	}
	return r, errors.Join(s.absolute(), s.checkMemory(place.Device() != nil, o))
}

// checkFree makes sure that a folder that was named can become a run's.
func (r *run) checkFree() error {
	if r.folder == "" {
		return nil
	}
	switch info, err := os.Stat(r.folder); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("-out: %w", err)
	case !info.IsDir():
		return fmt.Errorf("-out %s is a file, it needs to be a folder, or the name of a new one", r.folder)
	case hasCheckpoints(r.folder):
		return fmt.Errorf("-out %s holds a run already: -resume goes on with it, another -out begins a new one", r.folder)
	}
	return nil
}

// open makes the folder of a new run, lets no other program write to that of any, and keeps the
// tokenizer there. Of several processes one does so.
func (r *run) open() (err error) {
	if !r.place.Leads() {
		return nil
	}
	for r.folder == "" {
		if err := os.MkdirAll(runsFolder, 0o777); err != nil {
			return fmt.Errorf("%w; -out names another folder", err)
		}
		next := filepath.Join(runsFolder, strconv.Itoa(highestNumber()+1))
		if err := os.Mkdir(next, 0o777); errors.Is(err, fs.ErrExist) {
			continue // another program was faster
		} else if err != nil {
			return fmt.Errorf("%w; -out names another folder", err)
		}
		r.folder, r.made = next, true
	}
	if _, err := os.Stat(r.folder); errors.Is(err, fs.ErrNotExist) {
		r.made = true
	}
	if r.checkpoints, err = checkpoint.Open(r.file("checkpoints"), keptCheckpoints); err != nil {
		return fmt.Errorf("-out: %w", err)
	}
	if !r.resumed && !r.place.Late() {
		err = r.checkFree() // another program may have been there since the first look
	}
	if err == nil {
		err = r.keepTokenizer()
	}
	if err != nil {
		err = errors.Join(err, r.checkpoints.Close())
		r.abandon()
		return err
	}
	return nil
}

// read reads a checkpoint of the run and the settings in it.
func (r *run) read(which func(*checkpoint.Folder) (checkpoint.Checkpoint, []error, error), s *settings) (checkpoint.Checkpoint, error) {
	if r.folder == "" {
		return checkpoint.Checkpoint{}, fmt.Errorf("there is no run in folder %s; name one with -out", runsFolder)
	}
	folder, err := checkpoint.View(r.file("checkpoints"))
	if err != nil {
		for folder := filepath.Clean(r.folder); folder != filepath.Dir(folder); folder = filepath.Dir(folder) {
			if hasCheckpoints(folder) {
				return checkpoint.Checkpoint{}, fmt.Errorf("%s is a part of a run: did you mean -out %s?", r.folder, folder)
			}
		}
		return checkpoint.Checkpoint{}, fmt.Errorf("%s holds no run: %w", r.folder, err)
	}
	c, refused, err := which(folder)
	if err != nil {
		return c, errors.Join(append(refused, err)...)
	}
	return c, train.ReadSettings(c, s)
}

// resume makes the loop of a resumed run go on.
func (r *run) resume(loop *train.Loop, o options) error {
	if !o.resume {
		return nil
	}
	if o.newMasks {
		loop.AllowNewMasks()
	}
	if !r.fromBest {
		refused, err := loop.Resume()
		for _, damaged := range refused {
			fmt.Println("Passed over:", damaged)
		}
		if !errors.Is(err, checkpoint.ErrNone) {
			return err
		}
	}
	var best checkpoint.Checkpoint
	if r.checkpoints != nil { // the other ranks get it from the first
		var err error
		if best, err = r.read((*checkpoint.Folder).Best, new(settings)); err != nil {
			return err
		}
	}
	return loop.ResumeFrom(best)
}

// tokenizerFile is the name of the tokenizer in a run's folder, in the form of package tokenizer.
const tokenizerFile = "vocabulary.json"

// keepTokenizer keeps the tokenizer with the run, whose model is of no use without it. It is
// written once, in one piece.
func (r *run) keepTokenizer() error {
	path := r.file(tokenizerFile)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return plainfile.Write(path, func(w io.Writer) error { return tokenizer.Save(w, r.text.tokenizer) })
}

// use writes text by the best checkpoint of a run, or exports it, and says which it is. Where no
// run is named it is the newest that can be read.
func use(ctx context.Context, place *train.Place, s settings, o options) error {
	folders := []string{o.out}
	if o.out == "" {
		folders = allRuns()
	}
	if len(folders) == 0 {
		return fmt.Errorf("there is no run in folder %s; name one with -out, or train one first", runsFolder)
	}
	for i, folder := range folders {
		r, own := &run{folder: folder}, s
		t, c, err := r.readBest(&own)
		if err != nil && i+1 < len(folders) {
			fmt.Fprintf(os.Stderr, "Passed over %s: %v\n", folder, err)
			continue
		}
		if err != nil {
			return err
		}
		by := fmt.Sprintf("By %s, step %d:\n", folder, c.Step)
		if o.export != "" {
			return own.export(o.export, t, c, by)
		}
		o.explicit(&own)
		return write(ctx, place, own, o, t, c, by)
	}
	return nil
}

// readBest reads the best checkpoint of a run, or the latest, and its tokenizer.
func (r *run) readBest(s *settings) (tokenizer.Tokenizer, checkpoint.Checkpoint, error) {
	c, err := r.read((*checkpoint.Folder).Best, s)
	if errors.Is(err, checkpoint.ErrNone) {
		c, err = r.read((*checkpoint.Folder).Latest, s)
	}
	if err != nil {
		return nil, c, err
	}
	file, err := os.Open(r.file(tokenizerFile))
	if err != nil {
		return nil, c, err
	}
	defer file.Close()
	t, err := tokenizer.Load(file)
	return t, c, err
}

// write first says by which checkpoint it writes, and then writes text by its weights.
func write(ctx context.Context, place *train.Place, s settings, o options, t tokenizer.Tokenizer, c checkpoint.Checkpoint, by string) error {
	parameters, err := place.NewParameters(s.Seed)
	if err != nil {
		return err
	}
	if err := setWeights(parameters, c); err != nil {
		return err
	}
	if o.weights != "" {
		if err := parameters.KeepWeights(computeTypes[o.weights]); err != nil {
			return err
		}
	}
	a, err := newAuthor(s, o, parameters, t)
	if err != nil {
		return err
	}
	fmt.Fprint(os.Stderr, by)
	return a.write(ctx, screen())
}

// newestRun is the folder of the last numbered run that has a checkpoint, empty if there is none.
func newestRun() string {
	for _, folder := range allRuns() {
		return folder
	}
	return ""
}

// allRuns are the folders of numbered runs that have a checkpoint, the newest first.
func allRuns() (folders []string) {
	for n := highestNumber(); n > 0; n-- {
		if folder := filepath.Join(runsFolder, strconv.Itoa(n)); hasCheckpoints(folder) {
			folders = append(folders, folder)
		}
	}
	return folders
}

// highestNumber is that of the last folder of a run, 0 if there is none.
func highestNumber() int {
	entries, err := os.ReadDir(runsFolder)
	if err != nil {
		return 0 // there is no such folder, or making it will say what is wrong
	}
	last := 0
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() {
			last = max(last, n)
		}
	}
	return last
}

// hasCheckpoints reports whether there is something to resume, or to write text by, in the folder
// of a run.
func hasCheckpoints(folder string) bool {
	entries, err := os.ReadDir(filepath.Join(folder, "checkpoints"))
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "step-") || strings.HasPrefix(e.Name(), "best-")
	})
}
