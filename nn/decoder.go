package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
)

// CachedModel is a language model that a [Decoder] can run: a [LanguageModel] is, and so is a model
// of one's own, made of blocks, that has these methods.
type CachedModel interface {
	// Context is the longest sequence that the model takes, 0 if there is no limit.
	Context() int
	// NewCaches is an empty cache for each attention layer.
	NewCaches(batch, capacity int) ([]*ops.KVCache, error)
	// ForwardCached gives the logits of the token after the last of tokens, (B, S), which follow
	// those in the caches: (B, Vocab). Positions, (B, S), are those of tokens, counted from the
	// first in the caches.
	ForwardCached(tokens, positions Tensor, caches []*ops.KVCache) Tensor
}

// DecoderConfig describes a [Decoder].
type DecoderConfig struct {
	// Parameters are the model's, such as those that a training changes.
	Parameters *Parameters
	// Model makes the model. It is called a few times, for graphs that take one or more tokens at a
	// time.
	Model func(s *Scope) CachedModel
	// Capacity is how many tokens the decoder looks back to; 0 means the model's context, if that
	// has a limit.
	Capacity int
}

// Decoder predicts one token after another. It keeps the keys and values of the tokens that it has
// seen, so that a new token costs one row of attention and not the whole window. It has its model's
// parameters, not copies: what training changes counts from the next call on, though what is in the
// window keeps its keys and values until Reset. Dropout is off.
//
// When the window is full, the decoder starts over with its newest half: a model's positions end
// there. This happens every Capacity/2 tokens and computes as many again, so that at worst a token
// costs two.
//
// A token costs about as much as reading the parameters: [Parameters.KeepWeights] halves that.
//
// On a GPU, a run of each length is recorded once its memory is there.
//
// A Decoder is not safe for concurrent use. Do not change the parameters while it runs.
// [BatchDecoder] is for several texts at once.
type Decoder struct {
	b batchDecoder
}

// NewDecoder builds the graphs of a decoder.
func NewDecoder(c DecoderConfig) (*Decoder, error) {
	d := &Decoder{}
	if err := d.b.build(c, 1); err != nil {
		return nil, fmt.Errorf("Decoder: %w", err)
	}
	return d, nil
}

// Len is the number of tokens in the window.
func (d *Decoder) Len() int { return len(d.b.window(0)) }

// Capacity is how many tokens fit in the window.
func (d *Decoder) Capacity() int { return d.b.capacity }

// Window lists the tokens that the next one will follow.
func (d *Decoder) Window() []int { return slices.Clone(d.b.window(0)) }

// Reset empties the window.
func (d *Decoder) Reset() { d.b.reset() }

// Truncate goes back to the first n tokens of the window, to go on from there in another way: an
// answer that is taken back costs nothing to forget.
func (d *Decoder) Truncate(n int) error {
	if n < 0 || n > d.Len() {
		return fmt.Errorf("Decoder: %d tokens are to stay, it needs to be from 0 to the window's %d", n, d.Len())
	}
	if err := d.b.truncate(0, n); err != nil {
		return fmt.Errorf("Decoder: %w", err)
	}
	return nil
}

// Logits adds tokens, at least one, to the window and gives the model's logits of what comes next,
// one number for each token of the vocabulary. They hold until the next call. Tokens that do not
// fit push out the older half of the window, or as much of it as they need; of more tokens than
// Capacity only the newest count. After an error the window is empty.
func (d *Decoder) Logits(tokens []int) ([]float64, error) {
	if len(tokens) == 0 && len(d.b.graphs) > 0 {
		d.Reset()
		return nil, errors.New("Decoder: tokens is empty, it needs at least one")
	}
	f, err := d.b.feed([][]int{tokens}, nil)
	if err != nil {
		d.Reset()
		return nil, fmt.Errorf("Decoder: %w", err)
	}
	return f.logits[0], nil
}

// Choose adds tokens, at least one, to the window, as [Decoder.Logits] does, and chooses the next
// one where the logits are, so that a GPU hands over no more than a token. The choice is the same
// on every device. The chosen token is not in the window: the next call adds it.
func (d *Decoder) Choose(tokens []int, c kernels.Choice) (kernels.Chosen, error) {
	if len(tokens) == 0 && len(d.b.graphs) > 0 {
		d.Reset()
		return kernels.Chosen{}, errors.New("Decoder: tokens is empty, it needs at least one")
	}
	f, err := d.b.feed([][]int{tokens}, []kernels.Choice{c})
	if err == nil {
		err = f.chosen[0].Err
	}
	if err != nil {
		d.Reset()
		return kernels.Chosen{}, fmt.Errorf("Decoder: %w", err)
	}
	return f.chosen[0], nil
}

// BatchDecoder is a [Decoder] of several texts at once, each with a window of its own, which may be
// of any length: reading the model's parameters, which is most of the work for one token, is done
// once for all.
//
// Texts come and go between two steps. One begins when the first tokens are given for a place whose
// window is empty, as a new decoder's are, and [BatchDecoder.Truncate] to 0 ends one. Places
// without a text, and texts that rest, cost little: a run is of the places in the smallest part of
// the batch that has all texts that take part, and prompts of few texts run one by one. So take the
// lowest place that is free. [BatchDecoder.Fork] has one text go on from the tokens of another.
type BatchDecoder struct {
	b batchDecoder
}

// NewBatchDecoder builds the graphs of a decoder of so many texts.
func NewBatchDecoder(batch int, c DecoderConfig) (*BatchDecoder, error) {
	d := &BatchDecoder{}
	if err := d.b.build(c, batch); err != nil {
		return nil, fmt.Errorf("BatchDecoder: %w", err)
	}
	return d, nil
}

// Batch is how many texts there are.
func (d *BatchDecoder) Batch() int { return len(d.b.windows) }

// Capacity is how many tokens fit in the window of each text.
func (d *BatchDecoder) Capacity() int { return d.b.capacity }

// Window lists the tokens that the next one of a text will follow.
func (d *BatchDecoder) Window(text int) []int { return slices.Clone(d.b.window(text)) }

// Reset empties the windows.
func (d *BatchDecoder) Reset() { d.b.reset() }

// Truncate goes back to the first n tokens of one text's window: with 0 another text can take its
// place.
func (d *BatchDecoder) Truncate(text, n int) error {
	switch {
	case text < 0 || text >= d.Batch():
		return fmt.Errorf("BatchDecoder: text is %d, it needs to be at least 0 and less than the batch of %d", text, d.Batch())
	case n < 0 || n > len(d.b.windows[text]):
		return fmt.Errorf("BatchDecoder: %d tokens of text %d are to stay, it needs to be from 0 to the window's %d", n, text, len(d.b.windows[text]))
	}
	if err := d.b.truncate(text, n); err != nil {
		return fmt.Errorf("BatchDecoder: %w", err)
	}
	return nil
}

// Fork makes the window of one text the first n tokens of another's, in place of what it has. Their
// keys and values are copied, not computed again.
func (d *BatchDecoder) Fork(to, from, n int) error {
	for _, text := range []int{to, from} {
		if text < 0 || text >= d.Batch() {
			return fmt.Errorf("BatchDecoder: text is %d, it needs to be at least 0 and less than the batch of %d", text, d.Batch())
		}
	}
	if n < 0 || n > len(d.b.windows[from]) {
		return fmt.Errorf("BatchDecoder: %d tokens of text %d are to be copied, it needs to be from 0 to the window's %d", n, from, len(d.b.windows[from]))
	}
	if err := d.b.fork(to, from, n); err != nil {
		d.Reset()
		return fmt.Errorf("BatchDecoder: %w", err)
	}
	return nil
}

// Logits adds tokens to the window of each text, as [Decoder.Logits] does, and gives the logits of
// what comes next in those that got any; a text that gets none rests, and has nil. They hold until
// the next call. After an error all windows are empty.
func (d *BatchDecoder) Logits(tokens [][]int) ([][]float64, error) {
	f, err := d.b.feed(tokens, nil)
	if err != nil {
		d.Reset()
		return nil, fmt.Errorf("BatchDecoder: %w", err)
	}
	return f.logits, nil
}

// Choose adds tokens to the window of each text, as [BatchDecoder.Logits] does, and chooses what
// comes next in those that got any, one choice a text; see [Decoder.Choose]. A text that rests has
// no token, which is -1, and so has one whose logits allow no choice: its Err says why, and the
// others go on.
func (d *BatchDecoder) Choose(tokens [][]int, choices []kernels.Choice) ([]kernels.Chosen, error) {
	if len(choices) != d.Batch() {
		d.Reset()
		return nil, fmt.Errorf("BatchDecoder: there are %d choices, it needs one for each of the batch of %d", len(choices), d.Batch())
	}
	f, err := d.b.feed(tokens, choices)
	if err != nil {
		d.Reset()
		return nil, fmt.Errorf("BatchDecoder: %w", err)
	}
	return f.chosen, nil
}
