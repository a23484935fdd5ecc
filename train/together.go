package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file is checkpoints that all ranks write and read together, each its own files
// (PlaceConfig.SharedFiles).
//
// To write one, rank 0 makes the folder and tells the others where it is. Each writes some of the
// weights and a piece of each tensor of the optimiser's state. Rank 0 collects the checksums and
// gives the folder its name.
//
// To read one, whoever wrote it, rank 0 says which. Each rank reads some of its files and tells the
// others what is in them, and then sends each of them what that needs.

// inParts reports whether the ranks write checkpoints together, which they do as long as there are
// all of them.
func (s *saver) inParts() bool { return s.together && s.loop.ranks.Err() == nil }

// writeTogether has a checkpoint without tensors written together.
func (s *saver) writeTogether(c checkpoint.Checkpoint, write write) (string, error) {
	begun := false
	c.Parts = func(folder string) ([]string, error) {
		begun = true
		folder, err := filepath.Abs(folder)
		if err != nil {
			return nil, errors.Join(err, s.callOff())
		}
		if _, err := s.loop.ranks.share(0, folder); err != nil {
			return nil, err
		}
		return s.loop.ranks.shareAll(s.writePart(folder))
	}
	path, err := write(c)
	if !begun {
		err = errors.Join(err, s.callOff())
	}
	return path, err
}

// callOff tells the others, who wait for a folder, that there is none.
func (s *saver) callOff() error {
	_, err := s.loop.ranks.share(0, "")
	return err
}

// writeOwnFiles is another rank's part in a checkpoint of rank 0.
func (s *saver) writeOwnFiles() error {
	folder, err := s.loop.ranks.share(0, "")
	if err != nil || folder == "" {
		return err
	}
	_, err = s.loop.ranks.shareAll(s.writePart(folder))
	return err
}

// writePart writes this rank's part, and returns its checksums.
func (s *saver) writePart(folder string) (sums string, err error) {
	var p checkpoint.Part
	own := s.ownWeights()
	err = s.eachWeight(func(n *gorgonia.Node) bool { return slices.Contains(own, n) }, func(t safetensors.Tensor) {
		p.Weights = append(p.Weights, t)
	})
	if err != nil {
		return "", err
	}
	if err := finiteWeights(p.Weights); err != nil {
		return "", err
	}
	if p.Optimizer, err = s.loop.stepper.pieces(); err != nil {
		return "", err
	}
	return p.Write(folder, s.loop.ranks.Rank(), s.loop.ranks.Size())
}

// ownWeights are those parameters that this rank writes: the largest are dealt out first, each to
// the rank with the least so far.
func (s *saver) ownWeights() gorgonia.Nodes {
	size := func(n *gorgonia.Node) int {
		whole, _ := ops.WholeOf(n)
		return whole.Shape().TotalSize()
	}
	nodes := slices.SortedStableFunc(slices.Values(s.loop.Parameters()), func(a, b *gorgonia.Node) int { return cmp.Compare(size(b), size(a)) })
	var own gorgonia.Nodes
	load := make([]int, s.loop.ranks.Size())
	for _, n := range nodes {
		rank := slices.Index(load, slices.Min(load))
		if load[rank] += size(n); rank == s.loop.ranks.Rank() {
			own = append(own, n)
		}
	}
	return own
}

// pieces are this rank's parts of the state's tensors, which it has alone or of which it has all.
// Ranks that have the same parts take turns, a tensor each, so that the pieces of one follow each
// other in the order of the ranks.
func (o *Stepper) pieces() (list []checkpoint.Piece, err error) {
	if err := o.readReports(len(o.pending)); err != nil {
		return nil, err
	}
	if err := o.ready(); err != nil {
		return nil, o.wrap(err)
	}
	copies := o.copies()
	for i, t := range o.stateTensors() {
		own := *t.view
		if !o.isSharded() {
			own = o.part(own)
		}
		if own.Elements() == 0 || i%copies.Size() != copies.Rank() {
			continue
		}
		value, err := ops.Download(ops.ValueOf(own))
		if err != nil {
			return nil, o.wrap(err)
		}
		from, _ := o.partOf(o.ranks().Rank(), kernels.Tensor{Shape: t.whole}.Elements())
		list = append(list, checkpoint.Piece{Name: t.name, Shape: t.whole, From: from, Value: value})
	}
	return list, nil
}

// reading is a checkpoint without tensors, those that this rank has read, and what all have read.
type reading struct {
	checkpoint.Checkpoint
	part    checkpoint.Part
	layouts []checkpoint.Layout // by rank
}

// readTogether reads the newest whole checkpoint of at most so many steps in rank 0's folder. Its
// weights are whole, and its optimiser's tensors are what this rank has of them. Rank 0 is told
// which checkpoints were refused.
func (s *saver) readTogether(step int) (c checkpoint.Checkpoint, refused []error, err error) {
	var r reading
	if s.loop.ranks.Rank() == 0 {
		r, refused, err = s.readNewest(step)
	} else {
		r, err = s.readNamed()
	}
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return c, refused, err
	}
	found := err == nil
	if foundErr := s.loop.ranks.decide(&found); foundErr != nil {
		return c, refused, foundErr
	}
	if !found {
		return c, refused, errors.Join(err, s.loop.ranks.noCheckpoint())
	}
	if c, err = s.exchange(r); err != nil {
		err = fmt.Errorf("the checkpoint of step %d: %w", r.Step, err)
	}
	return c, refused, err
}

// readNewest is rank 0's part: it tells the others of one checkpoint after the other, until all
// could read their files of it.
func (s *saver) readNewest(step int) (r reading, refused []error, err error) {
	_, refused, err = s.loop.latest(step, func(path string) (checkpoint.Checkpoint, error) {
		absolute, err := filepath.Abs(path)
		if err == nil {
			_, err = s.loop.ranks.share(0, absolute)
		}
		if err == nil {
			r, err = s.readPart(path)
		}
		return r.Checkpoint, err
	})
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return r, refused, err
	}
	if offErr := s.callOff(); offErr != nil {
		err = offErr
	}
	return r, refused, err
}

// readNamed is another rank's part: it reads its files of what rank 0 names, the last of which is
// the checkpoint if rank 0 has found one.
func (s *saver) readNamed() (r reading, err error) {
	for {
		path, err := s.loop.ranks.share(0, "")
		if err != nil || path == "" {
			return r, err
		}
		r, _ = s.readPart(path) // rank 0 has the error too, and goes on to the next
		r.Path = ""
	}
}

// readPart reads this rank's files of a checkpoint, and learns what the others have read. What is
// wrong with any is an error of all.
func (s *saver) readPart(path string) (r reading, err error) {
	r.Checkpoint, r.part, err = checkpoint.LoadPart(path, s.loop.ranks.Rank(), s.loop.ranks.Size())
	text, textErr := json.Marshal(r.part.Layout())
	texts, err := s.loop.ranks.shareAll(string(text), errors.Join(err, textErr))
	if err != nil {
		return r, err
	}
	r.layouts = make([]checkpoint.Layout, len(texts))
	for rank, text := range texts {
		if err := json.Unmarshal([]byte(text), &r.layouts[rank]); err != nil {
			return r, fmt.Errorf("what rank %d has read: %w", rank, err)
		}
	}
	return r, nil
}

// exchange sends all ranks what they need of what this one has read, and returns what this one
// needs.
func (s *saver) exchange(r reading) (checkpoint.Checkpoint, error) {
	ranks, c := s.loop.ranks, r.Checkpoint
	if err := checkpoint.MatchParts(r.layouts, s.layout()); err != nil {
		return c, err
	}
	c.Weights, c.Optimizer = s.empty(true)
	var err error
	rooms := [2]map[string]kernels.Tensor{{}, {}} // weights and state by name
	for kind, list := range []safetensors.Tensors{c.Weights, c.Optimizer} {
		for _, t := range list {
			var flat []kernels.Tensor
			if flat, err = appendFlat(nil, t.Name, t.Value, err); err == nil {
				rooms[kind][t.Name] = flat[0]
			}
		}
	}
	var own []kernels.Tensor // in the order of the layout
	for _, w := range r.part.Weights {
		own, err = appendFlat(own, w.Name, w.Value, err)
	}
	for _, piece := range r.part.Optimizer {
		own, err = appendFlat(own, piece.Name, piece.Value, err)
	}
	if err != nil {
		return c, err
	}
	read := func(p cut) kernels.Tensor { return own[p.number].Slice(0, p.from-p.From, p.to-p.From) }
	room := func(p cut) kernels.Tensor {
		return rooms[p.kind()][p.Name].Slice(0, p.from-p.at, p.to-p.at)
	}
	for _, p := range s.cuts(r.layouts[ranks.Rank()], ranks.Rank()) {
		kernels.CopyHost(room(p), read(p))
	}
	for further := 1; further < ranks.Size(); further++ {
		to, from := (ranks.Rank()+further)%ranks.Size(), (ranks.Rank()+ranks.Size()-further)%ranks.Size()
		var send, receive []kernels.Tensor
		for _, p := range s.cuts(r.layouts[ranks.Rank()], to) {
			send = append(send, read(p))
		}
		for _, p := range s.cuts(r.layouts[from], ranks.Rank()) {
			receive = append(receive, room(p))
		}
		// Tensors of the host have arrived when Exchange returns.
		if _, err := ranks.Exchange(to, send, from, receive); err != nil {
			return c, err
		}
	}
	return c, nil
}

// cut is what a rank needs of an extent that another has read.
type cut struct {
	checkpoint.Extent
	number   int // of the extent
	state    bool
	at       int // the first element of the tensor that the rank needs
	from, to int // elements of the tensor that are sent
}

// kind is 0 for weights and 1 for the optimiser's state.
func (p cut) kind() int {
	if p.state {
		return 1
	}
	return 0
}

// cuts are what a rank needs of a layout, in its order.
func (s *saver) cuts(layout checkpoint.Layout, rank int) (list []cut) {
	shards := map[string]bool{}
	for _, n := range s.loop.Parameters() {
		shards[n.Name()] = isShard(n)
	}
	for i, e := range slices.Concat(layout.Weights, layout.Optimizer) {
		n := kernels.Tensor{Shape: e.Shape}.Elements()
		p, end := cut{Extent: e, number: i, state: i >= len(layout.Weights)}, n
		if p.state && s.loop.stepper.isSharded() || !p.state && shards[p.Name] {
			p.at, end = s.loop.stepper.partOf(rank, n)
		}
		if p.from, p.to = max(p.at, e.From), min(end, e.From+e.Count); p.from < p.to {
			list = append(list, p)
		}
	}
	return list
}

// layout is that of a whole checkpoint.
func (s *saver) layout() (want checkpoint.Layout) {
	for _, n := range s.loop.Parameters() {
		whole, _ := ops.WholeOf(n)
		want.Weights = append(want.Weights, checkpoint.Whole(n.Name(), n.Dtype(), whole.Shape()))
	}
	for _, t := range s.loop.stepper.stateTensors() {
		want.Optimizer = append(want.Optimizer, checkpoint.Whole(t.name, t.of.node.Dtype(), t.whole))
	}
	return want
}

// appendFlat adds a tensor as a single axis to a list, unless there is an error already.
func appendFlat(list []kernels.Tensor, name string, value *tensor.Dense, err error) ([]kernels.Tensor, error) {
	if err != nil {
		return list, err
	}
	view, err := viewOf(value, value.Dtype(), value.Shape())
	if err != nil {
		return list, fmt.Errorf("%s %w", name, err)
	}
	return append(list, view.Reshape(view.Elements())), nil
}
