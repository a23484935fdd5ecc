package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"github.com/stheno-ml/stheno/train/watch"
)

// run is a folder that the results of a training go to.
type run struct {
	folder      string
	checkpoints *checkpoint.Folder
}

// runsFolder is where runs go that have no -out; they are numbered.
const runsFolder = "runs"

// keptCheckpoints is how many checkpoints a run keeps, besides the best.
const keptCheckpoints = 3

func (r *run) file(name string) string { return filepath.Join(r.folder, name) }

// openRun makes the folder of a new run. That of a resumed one exists and has settings, over which flags go.
func openRun(s *settings, o options) (*run, error) {
	r := &run{folder: o.out}
	if o.resume {
		if r.folder == "" {
			r.folder = newestRun()
		}
		c, err := r.read((*checkpoint.Folder).Latest, s)
		if err != nil {
			return nil, err
		}
		o.explicit(s)
		if err := s.validate(); err != nil {
			return nil, fmt.Errorf("the settings of %s with these flags: %w", c.Path, err)
		}
	} else if r.folder == "" {
		r.folder = filepath.Join(runsFolder, strconv.Itoa(lastRun()+1))
	} else if steps, err := stepsIn(r.file("checkpoints")); err != nil || len(steps) > 0 {
		return nil, errors.Join(err, fmt.Errorf("-out %s holds a run already: -resume goes on with it, another -out begins a new one", r.folder))
	}
	var err error
	r.checkpoints, err = checkpoint.Open(r.file("checkpoints"), keptCheckpoints)
	return r, err // Open makes the run's folder too
}

// read reads a checkpoint of the run and the settings in it.
func (r *run) read(which func(*checkpoint.Folder) (checkpoint.Checkpoint, []error, error), s *settings) (checkpoint.Checkpoint, error) {
	if r.folder == "" {
		return checkpoint.Checkpoint{}, fmt.Errorf("there is no run in folder %s; name one with -out", runsFolder)
	}
	folder, err := checkpoint.View(r.file("checkpoints"))
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("%s holds no run: %w", r.folder, err)
	}
	c, refused, err := which(folder)
	if err != nil {
		return c, errors.Join(append(refused, err)...)
	}
	return c, train.ReadSettings(c, s)
}

// setTokenizer keeps the tokenizer with the run, whose model is of no use without it.
func (r *run) setTokenizer(t tokenizer.Tokenizer) error {
	file, err := os.Create(r.file("tokenizer.json"))
	if err != nil {
		return err
	}
	return errors.Join(tokenizer.Save(file, t), file.Close())
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
	return watch.Draw(r.file("loss.png"), log)
}

// speak writes text by the best checkpoint of a run.
func speak(ctx context.Context, s settings, o options) error {
	r := &run{folder: o.out}
	if r.folder == "" {
		r.folder = newestRun()
	}
	c, err := r.read((*checkpoint.Folder).Best, &s)
	if errors.Is(err, checkpoint.ErrNone) {
		c, err = r.read((*checkpoint.Folder).Latest, &s)
	}
	if err != nil {
		return err
	}
	file, err := os.Open(r.file("tokenizer.json"))
	if err != nil {
		return err
	}
	defer file.Close()
	t, err := tokenizer.Load(file)
	if err != nil {
		return err
	}
	parameters := nn.NewParameters(s.Seed)
	for _, w := range c.Weights {
		if err := parameters.Set(w.Name, w.Value); err != nil {
			return err
		}
	}
	a, err := newAuthor(s, o, parameters, t)
	if err != nil {
		return err
	}
	return a.write(ctx, os.Stdout)
}

// newestRun is the folder of the last numbered run, empty if there is none.
func newestRun() string {
	if n := lastRun(); n > 0 {
		return filepath.Join(runsFolder, strconv.Itoa(n))
	}
	return ""
}

// lastRun is the highest number of a run, 0 if there is none.
func lastRun() int {
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

// stepsIn lists the checkpoints in a folder that may not exist.
func stepsIn(path string) ([]int, error) {
	folder, err := checkpoint.View(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return folder.Steps()
}
