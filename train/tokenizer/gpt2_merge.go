package tokenizer

// encoder encodes one text.
type encoder struct {
	*GPT2
	ids []int
	// seen tells where in ids a piece was encoded before, for most words of a text come many times.
	seen map[string]span

	symbols    []symbol // of the piece
	candidates mergeQueue
}

// span is ids[from:to].
type span struct{ from, to int }

// symbol is a token of a piece, at the place of its first byte. The symbols are a linked list;
// len(symbols) ends it.
type symbol struct {
	id         int32 // -1 once it was joined to the one before it
	prev, next int
}

// candidate is a merge of the symbol at a place and the next. It no longer holds if one of the two
// has changed since.
type candidate struct {
	rank int32
	at   int
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// encode appends the ids of a piece.
func (e *encoder) encode(piece string) {
	if s, found := e.seen[piece]; found {
		e.ids = append(e.ids, e.ids[s.from:s.to]...)
		return
	}
	from := len(e.ids)
	e.merge(piece)
	for at := 0; at < len(e.symbols); at = e.symbols[at].next {
		e.ids = append(e.ids, int(e.symbols[at].id))
	}
	if len(e.seen) < maxSeen {
		e.seen[piece] = span{from, len(e.ids)}
	}
}

// merge leaves the tokens of a piece in symbols. It takes time O(n log n) for n bytes: a piece may
// be long.
func (e *encoder) merge(piece string) {
	e.symbols, e.candidates = e.symbols[:0], e.candidates[:0]
	for i := range len(piece) {
		e.symbols = append(e.symbols, symbol{id: e.byteIDs[piece[i]], prev: i - 1, next: i + 1})
	}
	for at := range e.symbols {
		e.consider(at)
	}
	for len(e.candidates) > 0 {
		c := e.candidates.pop()
		left := &e.symbols[c.at]
		m := e.merges[c.rank]
		if left.id != m.left || left.next == len(e.symbols) || e.symbols[left.next].id != m.right {
			continue
		}
		right := &e.symbols[left.next]
		left.id, left.next, right.id = m.joined, right.next, -1
		if left.next < len(e.symbols) {
			e.symbols[left.next].prev = c.at
		}
		e.consider(left.prev)
		e.consider(c.at)
	}
}

// consider adds the merge of the symbol at a place with the next, if there is one.
func (e *encoder) consider(at int) {
	if at < 0 || e.symbols[at].next == len(e.symbols) {
		return
	}
	rank, found := e.ranks[pair{e.symbols[at].id, e.symbols[e.symbols[at].next].id}]
	if found {
		e.candidates.push(candidate{rank, at})
	}
}

// mergeQueue is a binary heap, the next merge first.
type mergeQueue []candidate

func (q *mergeQueue) push(c candidate) {
	h := append(*q, c)
	i := len(h) - 1
	for parent := (i - 1) / 2; i > 0 && c.before(h[parent]); parent = (i - 1) / 2 {
		h[i], i = h[parent], parent
	}
	h[i] = c
	*q = h
}

func (q *mergeQueue) pop() candidate {
	h := *q
	first, c := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for child := 1; child < len(h); child = 2*i + 1 {
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(c) {
			break
		}
		h[i], i = h[child], child
	}
	if len(h) > 0 {
		h[i] = c
	}
	*q = h
	return first
}
