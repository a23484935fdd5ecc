package tokenizer

import (
	"container/heap"
	"fmt"
	"slices"
)

// TrainGPT2 learns a tokenizer of GPT-2's kind from a text: it begins with the 256 bytes and joins,
// again and again, the two neighbours that are most frequent within the pieces of the text, of
// equally frequent ones those with the lowest ids, until there are size tokens, of which
// [EndOfText] is the last, or no pair is there twice. The same text gives the same tokenizer: that
// of tokenizers' BpeTrainer with a min_frequency of 2.
func TrainGPT2(text string, size int) (*GPT2, error) {
	if least := 257; size < least {
		return nil, fmt.Errorf("TrainGPT2: size is %d, it needs to be at least %d: the bytes and %s", size, least, EndOfText)
	}
	t := newTrainer(text)
	for len(t.tokens) < size-1 && t.join() {
	}
	vocab := make([]string, 0, len(t.tokens)+1)
	for _, token := range t.tokens {
		vocab = append(vocab, toAlphabet(token))
	}
	lines := make([]string, len(t.merges))
	for i, m := range t.merges {
		lines[i] = vocab[m.left] + " " + vocab[m.right]
	}
	if _, taken := t.ids[EndOfText]; !taken {
		vocab = append(vocab, toAlphabet(EndOfText))
	}
	learnt, err := newGPT2(vocab, lines)
	if err != nil {
		return nil, fmt.Errorf("TrainGPT2: %w", err)
	}
	return learnt, nil
}

// trainer learns merges.
type trainer struct {
	tokens []string // the bytes of each id
	ids    map[string]int32
	merges []pair
	words  []trainedWord
	pairs  map[pair]*pairUse
	queue  pairQueue
}

// trainedWord is a piece of the text, how often it is there, and the tokens that it consists of so
// far.
type trainedWord struct {
	count int
	ids   []int32
}

// pairUse is how often a pair is in the text, and in which words it may be.
type pairUse struct {
	count int
	words map[int32]struct{}
}

func newTrainer(text string) *trainer {
	t := &trainer{ids: map[string]int32{}, pairs: map[pair]*pairUse{}}
	bytes := make([]int, 256)
	for b := range bytes {
		bytes[b] = b
	}
	slices.SortFunc(bytes, func(a, b int) int { return int(alphabet[a] - alphabet[b]) }) // as in GPT-2's vocabulary
	for _, b := range bytes {
		t.add(string([]byte{byte(b)}))
	}
	counts := map[string]int{}
	for text != "" {
		n := firstPiece(text)
		counts[text[:n]]++
		text = text[n:]
	}
	for piece, count := range counts {
		w := trainedWord{count: count}
		for i := range len(piece) {
			w.ids = append(w.ids, t.ids[piece[i:i+1]])
		}
		t.words = append(t.words, w)
	}
	for i, w := range t.words {
		for at := range len(w.ids) - 1 {
			t.change(pair{w.ids[at], w.ids[at+1]}, w.count, int32(i))
		}
	}
	for p, use := range t.pairs {
		t.queue = append(t.queue, frequentPair{p, use.count})
	}
	heap.Init(&t.queue)
	return t
}

// add gives a token an id, unless it has one: two merges can make the same.
func (t *trainer) add(token string) int32 {
	id, known := t.ids[token]
	if !known {
		id = int32(len(t.tokens))
		t.ids[token] = id
		t.tokens = append(t.tokens, token)
	}
	return id
}

// change counts a pair in a word, or no longer where n is negative.
func (t *trainer) change(p pair, n int, word int32) {
	use := t.pairs[p]
	if use == nil {
		use = &pairUse{words: map[int32]struct{}{}}
		t.pairs[p] = use
	}
	if use.count += n; n > 0 {
		use.words[word] = struct{}{}
	}
}

// join joins the most frequent pair everywhere, and reports whether there was one.
func (t *trainer) join() bool {
	for t.queue.Len() > 0 {
		most := heap.Pop(&t.queue).(frequentPair)
		use := t.pairs[most.pair]
		if use.count != most.count { // others were joined since
			if most.count = use.count; most.count > 1 {
				heap.Push(&t.queue, most)
			}
			continue
		}
		if most.count < 2 {
			return false
		}
		joined := t.add(t.tokens[most.left] + t.tokens[most.right])
		t.merges = append(t.merges, most.pair)
		met := map[pair]struct{}{}
		for word := range use.words {
			t.joinIn(word, most.pair, joined, met)
		}
		clear(use.words)
		for p := range met {
			if n := t.pairs[p].count; n > 1 {
				heap.Push(&t.queue, frequentPair{p, n})
			}
		}
		return true
	}
	return false
}

// joinIn joins a pair in a word, from the left, and adds the pairs that come of it to those that
// were met.
func (t *trainer) joinIn(word int32, p pair, joined int32, met map[pair]struct{}) {
	w := &t.words[word]
	arises := func(p pair) {
		t.change(p, w.count, word)
		met[p] = struct{}{}
	}
	ids := w.ids
	for i := 0; i+1 < len(ids); i++ {
		if ids[i] != p.left || ids[i+1] != p.right {
			continue
		}
		if i > 0 {
			t.change(pair{ids[i-1], p.left}, -w.count, word)
			arises(pair{ids[i-1], joined})
		}
		ids = slices.Replace(ids, i, i+2, joined)
		if i+1 < len(ids) {
			t.change(pair{p.right, ids[i+1]}, -w.count, word)
			arises(pair{joined, ids[i+1]})
		}
	}
	w.ids = ids
}

// frequentPair is a pair, and how often it was there when it was queued.
type frequentPair struct {
	pair
	count int
}

// pairQueue is a heap, the most frequent pair first.
type pairQueue []frequentPair

func (q pairQueue) Len() int { return len(q) }
func (q pairQueue) Less(i, j int) bool {
	a, b := q[i], q[j]
	if a.count != b.count {
		return a.count > b.count
	}
	return a.left < b.left || a.left == b.left && a.right < b.right
}
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *pairQueue) Push(x any)   { *q = append(*q, x.(frequentPair)) }
func (q *pairQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
