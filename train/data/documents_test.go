package data_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/train/data"
	"pgregory.net/rapid"
)

// corpus is documents whose tokens tell what they are: the document's number times 1000, plus the
// place.
func corpus(t *rapid.T) []data.Document {
	documents := make([]data.Document, rapid.IntRange(1, 12).Draw(t, "documents"))
	for i := range documents {
		n := rapid.IntRange(0, 30).Draw(t, "n")
		for at := range n {
			documents[i].Tokens = append(documents[i].Tokens, 1000*i+at)
		}
		if rapid.Bool().Draw(t, "masked") {
			documents[i].Learn = rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "learn")
		}
	}
	return documents
}

// In an epoch each token that is to be learnt is the target of the one before it once, and no other
// is.
func TestPackAndPad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		documents := corpus(t)
		rows, length := rapid.IntRange(1, 4).Draw(t, "rows"), rapid.IntRange(1, 12).Draw(t, "length")
		packed, seed := rapid.Bool().Draw(t, "packed"), rapid.Uint64().Draw(t, "seed")
		makeBatches := data.Pad
		if packed {
			makeBatches = data.Pack
		}
		b, err := makeBatches(documents, rows, length, seed)
		want := map[[2]int]int{}
		for _, d := range documents {
			for i := 1; i < len(d.Tokens); i++ {
				if d.Learn == nil || d.Learn[i] {
					want[[2]int{d.Tokens[i-1], d.Tokens[i]}] = 1
				}
			}
		}
		if len(want) == 0 {
			if err == nil || !strings.Contains(err.Error(), "there is nothing to learn") {
				t.Fatalf("without anything to learn: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		epochs := rapid.IntRange(1, 3).Draw(t, "epochs")
		seen := map[[2]int]int{}
		shape := ""
		for row := 0; row < epochs*b.Count(); row++ {
			batch, err := b.Batch(row / rows)
			if err != nil {
				t.Fatal(err)
			}
			if shape == "" {
				shape = batch.String()
			}
			if batch.String() != shape {
				t.Fatalf("batch %d is %v, the first %v", row/rows, batch, shape)
			}
			at := row % rows * length
			checkRow(t, batch, packed, at, at+length, seen)
		}
		for pair, n := range seen {
			if n != epochs*want[pair] {
				t.Fatalf("%v came %d times in %d epochs, want %d a epoch", pair, n, epochs, want[pair])
			}
		}
		if len(seen) != len(want) {
			t.Fatalf("%d targets came, want %d", len(seen), len(want))
		}
	})
}

// checkRow looks at the places of a row, and counts what is to be learnt.
func checkRow(t *rapid.T, b data.Batch, packed bool, from, to int, seen map[[2]int]int) {
	tokens, targets := b["tokens"].Ints(), b["targets"].Ints()
	position := 0
	for i := from; i < to; i++ {
		if packed {
			ends := b["ends"].Ints()
			if !slices.IsSorted(ends) || ends[0] != 0 || ends[len(ends)-1] != len(tokens) {
				t.Fatalf("the pieces of %d tokens end at %v", len(tokens), ends)
			}
			if slices.Contains(ends, i) {
				position = 0
			} else if i == from {
				t.Fatalf("no piece begins at %d, where a row does: %v", i, ends)
			}
			if have := b["positions"].Ints()[i]; have != position {
				t.Fatalf("the position of token %d is %d, want %d", i, have, position)
			}
			if position > 0 && targets[i-1] != nn.IgnoreTarget && targets[i-1] != tokens[i] {
				t.Fatalf("the target before %d is %d", tokens[i], targets[i-1])
			}
		}
		if targets[i] != nn.IgnoreTarget {
			seen[[2]int{tokens[i], targets[i]}]++
		}
		position++
	}
}

// Short documents share rows, as tightly as the longest allows.
func TestPackFills(t *testing.T) {
	var documents []data.Document
	for _, n := range []int{3, 8, 5, 2, 6, 4, 4} {
		documents = append(documents, data.Document{Tokens: make([]int, n)})
	}
	b, err := data.Pack(documents, 1, 8, 0)
	if err != nil {
		t.Fatal(err)
	}
	if b.Count() != 4 {
		t.Errorf("32 tokens take %d rows of 8", b.Count())
	}
}

func TestDocumentsErrors(t *testing.T) {
	two := []data.Document{{Tokens: []int{1, 2}}, {Tokens: []int{3, 4}}}
	of := func(_ *data.DocumentBatches, err error) error { return err }
	split := func(_, _ []data.Document, err error) error { return err }
	for _, c := range []struct {
		err  error
		want string
	}{
		{of(data.Pack(two, 0, 4, 0)), "Pack: rows is 0 and length is 4"},
		{of(data.Pad(two, 1, 0, 0)), "Pad: rows is 1 and length is 0"},
		{of(data.Pack(nil, 1, 4, 0)), "Pack: there is nothing to learn in 0 documents"},
		{of(data.Pack([]data.Document{{Tokens: []int{1, 2}, Learn: []bool{true}}}, 1, 4, 0)), "document 0 has 2 tokens and says of 1"},
		{split(data.SplitDocuments(two, 0, 0)), "validation is 0"},
		{split(data.SplitDocuments(two[:1], 0.5, 0)), "fewer than two documents"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("the error is %v, want %q", c.err, c.want)
		}
	}
	train, validate, err := data.SplitDocuments(two, 0.9, 1)
	if err != nil || len(train) != 1 || len(validate) != 1 || fmt.Sprint(train) == fmt.Sprint(validate) {
		t.Errorf("two documents are split into %v and %v: %v", train, validate, err)
	}
}
