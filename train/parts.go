package train

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"gorgonia.org/gorgonia"
)

// This file is checkpoints of which each rank writes its part (PlaceConfig.SharedFiles): rank 0 makes the folder and tells the
// others where it is, each writes some of the weights and a piece of each tensor of the optimiser's state, and rank 0
// collects the checksums and gives the folder its name.

// inParts reports whether the ranks write checkpoints together, which they do as long as there are all of them.
func (l *Loop) inParts() bool { return l.shares && l.ranks().Err() == nil }

// saveParts has a checkpoint without tensors written together.
func (l *Loop) saveParts(c checkpoint.Checkpoint, save saver) (string, error) {
	begun := false
	c.Parts = func(folder string) ([]string, error) {
		begun = true
		folder, err := filepath.Abs(folder)
		if err != nil {
			return nil, errors.Join(err, l.callOff())
		}
		if _, err := l.shareText(0, folder); err != nil {
			return nil, err
		}
		return l.shareTexts(l.writePart(folder))
	}
	path, err := save(c)
	if !begun {
		err = errors.Join(err, l.callOff())
	}
	return path, err
}

// callOff tells the others, who wait for a folder, that there is none.
func (l *Loop) callOff() error {
	_, err := l.shareText(0, "")
	return err
}

// helpSave is another rank's part in a checkpoint of rank 0.
func (l *Loop) helpSave() error {
	folder, err := l.shareText(0, "")
	if err != nil || folder == "" {
		return err
	}
	_, err = l.shareTexts(l.writePart(folder))
	return err
}

// writePart writes this rank's part, and returns its checksums.
func (l *Loop) writePart(folder string) (sums string, err error) {
	var p checkpoint.Part
	own := l.ownWeights()
	err = l.eachWeight(func(n *gorgonia.Node) bool { return slices.Contains(own, n) }, func(t safetensors.Tensor) {
		p.Weights = append(p.Weights, t)
	})
	if err != nil {
		return "", err
	}
	if err := finiteWeights(p.Weights); err != nil {
		return "", err
	}
	if p.Optimizer, err = l.optimizer.pieces(); err != nil {
		return "", err
	}
	return p.Write(folder, l.ranks().Rank(), l.ranks().Size())
}

// ownWeights are those parameters that this rank writes: the largest are dealt out first, each to the rank with the least so far.
func (l *Loop) ownWeights() gorgonia.Nodes {
	size := func(n *gorgonia.Node) int {
		whole, _ := ops.WholeOf(n)
		return whole.Shape().TotalSize()
	}
	nodes := slices.SortedStableFunc(slices.Values(l.Parameters()), func(a, b *gorgonia.Node) int { return cmp.Compare(size(b), size(a)) })
	var own gorgonia.Nodes
	load := make([]int, l.ranks().Size())
	for _, n := range nodes {
		rank := slices.Index(load, slices.Min(load))
		if load[rank] += size(n); rank == l.ranks().Rank() {
			own = append(own, n)
		}
	}
	return own
}

// pieces are this rank's parts of the state's tensors, which it has alone or of which it has all.
func (o *Stepper) pieces() (list []checkpoint.Piece, err error) {
	if err := o.settle(len(o.pending)); err != nil {
		return nil, err
	}
	if err := o.ready(); err != nil {
		return nil, o.errorf("%w", err)
	}
	ranks := o.ranks()
	err = o.eachState(func(name string, p parameter, view kernels.Tensor) error {
		own := view
		if !o.isSharded() {
			own = o.part(view)
		}
		if own.Elements() == 0 {
			return nil
		}
		value, err := ops.Download(ops.ValueOf(own))
		from, _ := ranks.Part(ranks.Rank(), kernels.Tensor{Shape: p.whole}.Elements())
		list = append(list, checkpoint.Piece{Name: name, Shape: p.whole, From: from, Value: value})
		return err
	})
	if err != nil {
		return nil, o.errorf("%w", err)
	}
	return list, nil
}

// shareTexts gives all ranks a text of each, or the error of the first rank that has one. A rank with an error of its own takes part
// too.
func (l *Loop) shareTexts(own string, err error) ([]string, error) {
	const good, bad = "+", "-"
	text := good + own
	if err != nil {
		text = bad + err.Error()
	}
	texts := make([]string, l.ranks().Size())
	for rank := range texts {
		shared, shareErr := l.shareText(rank, text)
		if shareErr != nil {
			return nil, errors.Join(err, shareErr)
		}
		what, failed := strings.CutPrefix(shared, bad)
		if failed && err == nil {
			err = fmt.Errorf("rank %d: %s", rank, what)
		}
		texts[rank] = strings.TrimPrefix(what, good)
	}
	return texts, err
}

// shareText gives all ranks the text of one. Every rank calls it.
func (l *Loop) shareText(from int, text string) (string, error) {
	ranks := l.ranks()
	length := []int64{int64(len(text))}
	if err := ranks.Broadcast(from, kernels.Of(length, 1)); err != nil || length[0] == 0 {
		return "", err
	}
	bytes := make([]byte, length[0])
	if ranks.Rank() == from {
		copy(bytes, text)
	}
	err := ranks.Broadcast(from, kernels.Contiguous(unsafe.Pointer(unsafe.SliceData(bytes)), kernels.Bool, len(bytes)))
	return string(bytes), err
}
