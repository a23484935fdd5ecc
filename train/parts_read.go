package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"gorgonia.org/tensor"
)

// This file is checkpoints that the ranks read together (PlaceConfig.SharedFiles), whoever wrote them: rank 0 says which, each reads
// some of its files and tells the others what is in them, and then sends each of them what it needs of that. All need the weights, and of
// those and of the optimiser's state that are shared out, each its part.

// reading is a checkpoint without tensors, those that this rank has read, and what all have read.
type reading struct {
	checkpoint.Checkpoint
	part    checkpoint.Part
	layouts []checkpoint.Layout // by rank
}

// readsTogether reports whether rank 0 wants it so.
func (l *Loop) readsTogether() (bool, error) {
	if l.ranks().Size() == 1 {
		return false, nil
	}
	wanted := []int64{0}
	if l.c.Place.sharedFiles {
		wanted[0] = 1
	}
	err := l.ranks().Broadcast(0, kernels.Of(wanted, 1))
	return wanted[0] == 1, err
}

// readTogether reads the newest whole checkpoint of rank 0's folder. Its weights are whole, and its optimiser's tensors are what this
// rank has of them. Rank 0 is told which checkpoints were refused.
func (l *Loop) readTogether() (c checkpoint.Checkpoint, refused []error, err error) {
	var r reading
	if l.ranks().Rank() == 0 {
		r, refused, err = l.readNewest()
	} else {
		r, err = l.helpRead()
	}
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return c, refused, err
	}
	found := []int64{1}
	if err != nil {
		found[0] = 0
	}
	if foundErr := l.ranks().Broadcast(0, kernels.Of(found, 1)); foundErr != nil {
		return c, refused, foundErr
	}
	if found[0] == 0 {
		return c, refused, errors.Join(err, noneOf(l.ranks()))
	}
	if c, err = l.exchange(r); err != nil {
		err = fmt.Errorf("the checkpoint of step %d: %w", r.Step, err)
	}
	return c, refused, err
}

// readNewest is rank 0's part: it tells the others of one checkpoint after the other, until all could read their files of it.
func (l *Loop) readNewest() (r reading, refused []error, err error) {
	_, refused, err = l.c.Checkpoints.LatestBy(func(path string) (checkpoint.Checkpoint, error) {
		absolute, err := filepath.Abs(path)
		if err == nil {
			_, err = l.shareText(0, absolute)
		}
		if err == nil {
			r, err = l.readPart(path)
		}
		return r.Checkpoint, err
	})
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return r, refused, err
	}
	if offErr := l.callOff(); offErr != nil {
		err = offErr
	}
	return r, refused, err
}

// helpRead is another rank's part: it reads its files of what rank 0 names, the last of which is the checkpoint if rank 0 has found one.
func (l *Loop) helpRead() (r reading, err error) {
	for {
		path, err := l.shareText(0, "")
		if err != nil || path == "" {
			return r, err
		}
		r, _ = l.readPart(path) // rank 0 has the error too, and goes on to the next
		r.Path = ""
	}
}

// readPart reads this rank's files of a checkpoint, and learns what the others have read. What is wrong with any is an error of all.
func (l *Loop) readPart(path string) (r reading, err error) {
	r.Checkpoint, r.part, err = checkpoint.LoadPart(path, l.ranks().Rank(), l.ranks().Size())
	text, textErr := json.Marshal(r.part.Layout())
	texts, err := l.shareTexts(string(text), errors.Join(err, textErr))
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

// exchange sends all ranks what they need of what this one has read, and returns what this one needs.
func (l *Loop) exchange(r reading) (checkpoint.Checkpoint, error) {
	ranks, c := l.ranks(), r.Checkpoint
	want, rooms, err := l.roomsFor(&c)
	if err == nil {
		err = checkpoint.MatchParts(r.layouts, want)
	}
	if err != nil {
		return c, err
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
	for _, p := range l.cuts(r.layouts[ranks.Rank()], ranks.Rank()) {
		kernels.CopyHost(room(p), read(p))
	}
	for further := 1; further < ranks.Size(); further++ {
		to, from := (ranks.Rank()+further)%ranks.Size(), (ranks.Rank()+ranks.Size()-further)%ranks.Size()
		var send, receive []kernels.Tensor
		for _, p := range l.cuts(r.layouts[ranks.Rank()], to) {
			send = append(send, read(p))
		}
		for _, p := range l.cuts(r.layouts[from], ranks.Rank()) {
			receive = append(receive, room(p))
		}
		if _, err := ranks.Exchange(to, send, from, receive); err != nil { // of the host's, which has arrived
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
func (l *Loop) cuts(layout checkpoint.Layout, rank int) (list []cut) {
	for i, e := range slices.Concat(layout.Weights, layout.Optimizer) {
		n := kernels.Tensor{Shape: e.Shape}.Elements()
		p, end := cut{Extent: e, number: i, state: i >= len(layout.Weights)}, n
		if p.state && l.optimizer.isSharded() || !p.state && l.isPart[p.Name] {
			p.at, end = l.ranks().Part(rank, n)
		}
		if p.from, p.to = max(p.at, e.From), min(end, e.From+e.Count); p.from < p.to {
			list = append(list, p)
		}
	}
	return list
}

// roomsFor gives a checkpoint the tensors that this rank needs, of zeros, and returns them as they are filled, weights and state by
// name, and the layout of a whole checkpoint.
func (l *Loop) roomsFor(c *checkpoint.Checkpoint) (want checkpoint.Layout, rooms [2]map[string]kernels.Tensor, err error) {
	rooms = [2]map[string]kernels.Tensor{{}, {}}
	add := func(kind int, list *safetensors.Tensors, name string, dtype tensor.Dtype, shape []int) error {
		if slices.Contains(shape, 0) {
			return nil // this rank has no part of so small a tensor
		}
		value := tensor.New(tensor.Of(dtype), tensor.WithShape(shape...))
		*list = append(*list, safetensors.Tensor{Name: name, Value: value})
		flat, err := appendFlat(nil, name, value, nil)
		if err == nil {
			rooms[kind][name] = flat[0]
		}
		return err
	}
	for _, n := range l.Parameters() {
		whole, _ := ops.WholeOf(n)
		want.Weights = append(want.Weights, checkpoint.Whole(n.Name(), n.Dtype(), whole.Shape()))
		if err := add(0, &c.Weights, n.Name(), n.Dtype(), n.Shape()); err != nil {
			return want, rooms, err
		}
	}
	err = l.optimizer.eachState(func(name string, p parameter, _ kernels.Tensor) error {
		want.Optimizer = append(want.Optimizer, checkpoint.Whole(name, p.node.Dtype(), p.whole))
		return add(1, &c.Optimizer, name, p.node.Dtype(), l.optimizer.stateShape(p))
	})
	return want, rooms, err
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
