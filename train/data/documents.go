package data

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/nn"
)

// Document is a text as tokens, and which of them a model is to learn to write after those before;
// nil means all. It makes a conversation a lesson in answering, not in asking.
type Document struct {
	Tokens []int
	Learn  []bool
}

// DocumentBatches are [Batches] of documents, each of which comes once an epoch.
type DocumentBatches struct {
	documents    []Document
	rows, length int
	seed         uint64
	packed       bool
	most         int       // pieces in a row
	bins         [][]piece // what a row may hold
}

// piece is a part of a document that has a row, or a part of one.
type piece struct{ document, from, n int }

// Pack makes batches of rows·length tokens, in which documents lie end to end, as many in each row
// as fit. What is longer than a row is cut. A batch has, of int:
//
//	tokens, targets   (rows·length)   a target is the token after, or nn.IgnoreTarget where that is not to be learnt
//	positions         (rows·length)   of each token, counted from the first of its piece
//	ends              (pieces+1)      0 and then where each piece ends, as attention to packed sequences takes it
//
// The rest of a row is a piece of its own, of which nothing is learnt. Which documents share a row
// follows from their lengths; the order of the rows in each epoch follows from the seed and the
// epoch.
func Pack(documents []Document, rows, length int, seed uint64) (*DocumentBatches, error) {
	return newDocuments("Pack", documents, rows, length, seed, true)
}

// Pad makes batches of (rows, length) tokens and targets with one document a row, or a piece of
// one, from its first token on. Behind its end nothing is learnt, and a causal model does not look
// there.
func Pad(documents []Document, rows, length int, seed uint64) (*DocumentBatches, error) {
	return newDocuments("Pad", documents, rows, length, seed, false)
}

func newDocuments(name string, documents []Document, rows, length int, seed uint64, packed bool) (*DocumentBatches, error) {
	d := &DocumentBatches{documents: documents, rows: rows, length: length, seed: seed, packed: packed}
	if err := d.build(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return d, nil
}

func (d *DocumentBatches) build() error {
	if d.rows < 1 || d.length < 1 || d.rows > math.MaxInt32/d.length {
		return fmt.Errorf("rows is %d and length is %d, each needs to be at least 1 and their product an int32", d.rows, d.length)
	}
	var pieces []piece
	for i, doc := range d.documents {
		if doc.Learn != nil && len(doc.Learn) != len(doc.Tokens) {
			return fmt.Errorf("document %d has %d tokens and says of %d whether to learn them", i, len(doc.Tokens), len(doc.Learn))
		}
		for from := 0; from < len(doc.Tokens); from += d.length {
			if p := (piece{i, from, min(d.length, len(doc.Tokens)-from)}); d.teaches(p) {
				pieces = append(pieces, p)
			}
		}
	}
	if len(pieces) == 0 {
		return fmt.Errorf("there is nothing to learn in %d documents, it needs a token after another", len(d.documents))
	}
	d.fill(pieces)
	return nil
}

// teaches reports whether a piece has a target.
func (d *DocumentBatches) teaches(p piece) bool {
	for i := range p.n {
		if d.target(p, i) != nn.IgnoreTarget {
			return true
		}
	}
	return false
}

// target is the token after the i-th of a piece.
func (d *DocumentBatches) target(p piece, i int) int {
	doc, next := d.documents[p.document], p.from+i+1
	if next >= len(doc.Tokens) || doc.Learn != nil && !doc.Learn[next] {
		return nn.IgnoreTarget
	}
	return doc.Tokens[next]
}

// fill puts pieces into rows: the longest first, each where the least room is left behind it.
func (d *DocumentBatches) fill(pieces []piece) {
	slices.SortStableFunc(pieces, func(a, b piece) int { return b.n - a.n })
	withRoom := make([][]int, d.length+1) // the rows with so many places
	for _, p := range pieces {
		room := p.n
		for d.packed && room <= d.length && len(withRoom[room]) == 0 {
			room++
		}
		bin := len(d.bins)
		if d.packed && room <= d.length {
			last := len(withRoom[room]) - 1
			bin, withRoom[room] = withRoom[room][last], withRoom[room][:last]
		} else {
			d.bins, room = append(d.bins, nil), d.length
		}
		d.bins[bin] = append(d.bins[bin], p)
		d.most = max(d.most, len(d.bins[bin]))
		withRoom[room-p.n] = append(withRoom[room-p.n], bin)
	}
}

// Count is the number of rows of one epoch.
func (d *DocumentBatches) Count() int { return len(d.bins) }

// Batch returns batch n. Where rows do not divide Count, a batch holds the end of one epoch and the
// beginning of the next.
func (d *DocumentBatches) Batch(n int) (Batch, error) {
	if err := checkNumber(n, d.rows); err != nil {
		return nil, fmt.Errorf("documents: %w", err)
	}
	total := d.rows * d.length
	tokens, targets, positions, ends := make([]int, total), make([]int, total), make([]int, total), []int{0}
	for i := range targets {
		targets[i] = nn.IgnoreTarget
	}
	for row := range d.rows {
		at, i := row*d.length, n*d.rows+row
		for _, p := range d.bins[permute(d.seed, i/len(d.bins), len(d.bins), i%len(d.bins))] {
			copy(tokens[at:], d.documents[p.document].Tokens[p.from:p.from+p.n])
			for i := range p.n {
				targets[at+i], positions[at+i] = d.target(p, i), i
			}
			at += p.n
			ends = append(ends, at)
		}
		if rest := (row + 1) * d.length; at < rest {
			for i := range rest - at {
				positions[at+i] = i
			}
			ends = append(ends, rest)
		}
	}
	if !d.packed {
		return Batch{"tokens": Ints(tokens, d.rows, d.length), "targets": Ints(targets, d.rows, d.length)}, nil
	}
	for len(ends) < d.rows*(d.most+1)+1 {
		ends = append(ends, total) // pieces without tokens, so that all batches have one shape
	}
	return Batch{
		"tokens": Ints(tokens, total), "targets": Ints(targets, total), "positions": Ints(positions, total), "ends": Ints(ends, len(ends)),
	}, nil
}

// SplitDocuments divides documents at random, by the seed, into those to train on and those to
// validate on: the given share of them, at least one of each.
func SplitDocuments(documents []Document, validation float64, seed uint64) (train, validate []Document, err error) {
	if !(validation > 0 && validation < 1) {
		return nil, nil, fmt.Errorf("SplitDocuments: validation is %v, it needs to be more than 0 and less than 1", validation)
	}
	if len(documents) < 2 {
		return nil, nil, errors.New("SplitDocuments: there are fewer than two documents, it needs one for each part")
	}
	n := min(max(1, int(validation*float64(len(documents)))), len(documents)-1)
	for i := range documents {
		d := documents[permute(seed, 0, len(documents), i)]
		if i < n {
			validate = append(validate, d)
		} else {
			train = append(train, d)
		}
	}
	return train, validate, nil
}
