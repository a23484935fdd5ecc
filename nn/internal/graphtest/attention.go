package graphtest

import (
	"cmp"
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/score"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// attending is what attention is told. Inputs of the node are q, k and v, or one projection, then
// what it has of these: the bias, the sinks, the table of a relative bias, the lists of blocks, the
// lengths.
type attending struct {
	Heads, KeyHeads int // of a projection
	Layout          ops.Layout
	Scale           float64 // 0 for that of every attention
	Causal          kernels.Causal
	Windowed        bool
	Window          kernels.Window
	SoftCap         float64
	Slopes          bool
	Bias, Sinks     bool
	Relative        relative // without buckets there is none
	Scored, Masked  bool
	Blocks          ops.BlockLists // without sizes there are none
	Lengths         bool           // of the keys of each batch item
	Packed          []int          // ends of the sequences of queries and keys
	Dropout         drop
}

// relative is what a relative bias is told.
type relative struct {
	Buckets, Most int
	Both          bool
}

func (d *drawer) attending() attending {
	p := attending{Causal: kernels.Causal(d.IntN(3)), Slopes: d.IntN(4) == 0, Bias: d.IntN(3) == 0, Sinks: d.IntN(4) == 0,
		Scored: d.IntN(5) == 0, Masked: d.IntN(5) == 0}
	if d.IntN(4) == 0 {
		p.Windowed, p.Window = true, kernels.Window{Left: d.IntN(4) - 1, Right: d.IntN(3) - 1}
	}
	if d.IntN(4) == 0 {
		p.SoftCap = 2
	}
	if d.IntN(4) == 0 {
		p.Scale = []float64{0.3, 1, -0.5}[d.IntN(3)]
	}
	if d.IntN(5) == 0 {
		p.Relative = relative{Buckets: 1 + d.IntN(6), Both: d.IntN(2) == 0}
		p.Relative.Most = p.Relative.Buckets/2 + 1 + d.IntN(4)
		if p.Relative.Both {
			p.Relative.Buckets *= 2
		}
	}
	if d.IntN(5) == 0 {
		p.Blocks = ops.BlockLists{Queries: 1 + d.IntN(3), Keys: 1 + d.IntN(3), ByKeyHead: d.IntN(2) == 0}
	}
	p.Lengths = d.IntN(5) == 0
	if d.IntN(4) == 0 {
		p.Dropout = drop{0.3, d.Uint64()}
	}
	return p
}

func (p attending) slopes(heads int) (list []float64) {
	for h := range heads {
		if p.Slopes {
			list = append(list, 0.25/float64(h+1))
		}
	}
	return list
}

// besides are the inputs behind the rows.
type besides[T any] struct{ bias, sinks, table, lists, lengths T }

func besidesOf[T any](p attending, rest []T) (b besides[T]) {
	for _, to := range []struct {
		is bool
		at *T
	}{{p.Bias, &b.bias}, {p.Sinks, &b.sinks}, {p.Relative.Buckets > 0, &b.table}, {p.Blocks.Queries > 0, &b.lists}, {p.Lengths, &b.lengths}} {
		if to.is {
			*to.at, rest = rest[0], rest[1:]
		}
	}
	return b
}

// options are what ops is told, of rest, the inputs behind the rows.
func (p attending) options(b *builder, rest gorgonia.Nodes, heads int) (ops.AttentionOptions, error) {
	in := besidesOf(p, rest)
	o := ops.AttentionOptions{Layout: p.Layout, Scale: p.Scale, Causal: p.Causal, SoftCap: p.SoftCap, ALiBi: p.slopes(heads),
		Bias: in.bias, Sinks: in.sinks, Dropout: ops.Drop{P: p.Dropout.P, Seed: p.Dropout.Seed}}
	if p.Windowed {
		o.Window = &p.Window
	}
	if p.Relative.Buckets > 0 {
		o.Score = ops.RelativeBias(in.table, p.Relative.Most, p.Relative.Both)
	}
	if p.Scored {
		first := o.Score
		o.Score = func(p ops.Pair) ops.Expr {
			if first != nil {
				p.Score = first(p)
			}
			return p.Score.Sigmoid().Add(p.Score.Mul(0.5))
		}
	}
	var masks []func(ops.Pair) ops.Cond
	if p.Masked {
		masks = append(masks, func(p ops.Pair) ops.Cond { return p.Key.Add(p.Query).Rem(3).NotEqual(1) })
	}
	if p.Blocks.Queries > 0 {
		listed, err := ops.ListedBlocks(in.lists, p.Blocks)
		if err != nil {
			return o, err
		}
		masks = append(masks, listed)
	}
	if masks != nil {
		o.Mask = score.And(masks[0], masks[1:]...)
	}
	if p.Packed != nil {
		ends := b.ends(p.Packed)
		o.Lengths = ops.Lengths{QLens: ends, KVLens: ends}
	}
	o.KVLengths = in.lengths
	return o, nil
}

// bucket is the number of a distance, as T5 counts it.
func (p relative) bucket(behind int) int {
	buckets, first := p.Buckets, 0
	distance := max(0, -behind)
	if p.Both {
		buckets /= 2
		distance = max(behind, -behind)
		if behind > 0 {
			first = buckets
		}
	}
	near := buckets / 2
	if distance <= near || buckets == 1 {
		return first + min(distance, buckets-1)
	}
	far := math.Log(float64(distance)/float64(near)) / math.Log(float64(p.Most)/float64(near)) * float64(buckets-near)
	return first + min(near+int(far+1e-9), buckets-1)
}

// each has a function called with each row of queries of q, (B, H, S, D), and its scores with the
// keys of k: with the place of the query, and where the keys of its sequence begin.
func (p attending) each(e *evaluation, q, k array, rest []array, do func(r attendRow, at []int, first int, scores []jet)) {
	in := besidesOf(p, rest)
	scale := p.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(q.last()))
	}
	for n := range q.shape[0] {
		for h := range q.shape[1] {
			ends := []int{0, q.shape[2]}
			if p.Packed != nil {
				ends = slices.Concat([]int{0}, p.Packed)
			}
			for s := range len(ends) - 1 {
				r := attendRow{attending: p, evaluation: e, besides: in, sequence: n, head: h, queries: q.shape[2], keys: k.shape[2]}
				if p.Packed != nil {
					r.sequence, r.queries = s, ends[s+1]-ends[s]
					r.keys = r.queries
				}
				if p.Lengths {
					r.keys = in.lengths.ints[n]
				}
				for r.i = range r.queries {
					at := []int{n, h, ends[s] + r.i}
					do(r, at, ends[s], r.scores(func(j int) (dot jet) {
						row, key := append(at, 0), []int{n, h / (q.shape[1] / k.shape[1]), ends[s] + j, 0}
						for c := range q.last() {
							row[3], key[3] = c, c
							dot = dot.add(q.x[q.strictly(row)].mul(k.x[k.at(key)]))
						}
						return dot.times(scale)
					}))
				}
			}
		}
	}
}

// of computes attention over q, k and v, (B, H, S, D).
func (p attending) of(e *evaluation, q, k, v array, rest []array) (out, lse array) {
	out, lse = newArray(withLast(q.shape, v.last())...), newArray(q.shape[:3]...)
	p.each(e, q, k, rest, func(r attendRow, at []int, first int, scores []jet) {
		weights, l := r.weigh(scores)
		lse.x[lse.strictly(at)] = l
		for c := range v.last() {
			to := &out.x[out.strictly(append(slices.Clone(at), c))]
			for j, weight := range weights {
				*to = to.add(weight.mul(v.x[v.at([]int{at[0], at[1] / (q.shape[1] / v.shape[1]), first + j, c})]))
			}
		}
	})
	return out, lse
}

// attendRow is a row of scores.
type attendRow struct {
	attending
	*evaluation
	besides[array]
	sequence, head, i, queries, keys int
}

// position is where the query is among the keys.
func (r attendRow) position() int { return r.i + r.keys - r.queries }

// sees reports whether the query sees key j.
func (r attendRow) sees(j int) bool {
	at := r.position()
	switch {
	case r.Causal == kernels.CausalBottomRight && j > at,
		r.Causal == kernels.CausalTopLeft && j > r.i,
		r.Windowed && r.Window.Left >= 0 && j < at-r.Window.Left,
		r.Windowed && r.Window.Right >= 0 && j > at+r.Window.Right,
		r.Masked && (r.i+j)%3 == 1:
		return false
	case r.Blocks.Queries == 0:
		return true
	}
	head := r.head
	if r.Blocks.ByKeyHead {
		head /= r.Heads / r.KeyHeads
	}
	lists := r.lists
	listed := array{shape: lists.shape[:3]}.at([]int{r.sequence, head, min(r.i/r.Blocks.Queries, lists.shape[2]-1)}) * lists.last()
	return slices.Contains(lists.ints[listed:listed+lists.last()], j/r.Blocks.Keys)
}

// scores gives the scores of all keys, −∞ for those that are hidden.
func (r attendRow) scores(score func(j int) jet) []jet {
	list := make([]jet, r.keys)
	for j := range list {
		s := score(j)
		if r.SoftCap > 0 {
			s = s.times(1 / r.SoftCap).tanh().times(r.SoftCap)
		}
		if r.Slopes {
			s = s.plus(-0.25 / float64(r.head+1) * math.Abs(float64(r.position()-j)))
		}
		if r.Bias {
			s = s.add(r.bias.x[r.bias.at([]int{r.sequence, r.head, r.i, j})])
		}
		if r.Relative.Buckets > 0 {
			s = s.add(r.table.x[r.table.strictly([]int{r.Relative.bucket(j - r.position()), r.head})])
		}
		if hidden := math.IsInf(s.x, -1); hidden || !r.sees(j) {
			list[j] = number(math.Inf(-1))
			continue
		}
		if r.Scored {
			s = s.sigmoid().add(s.times(0.5))
		}
		list[j] = s
	}
	return list
}

// weigh gives the weights of all keys, and the logsumexp.
func (r attendRow) weigh(scores []jet) (weights []jet, lse jet) {
	weights = make([]jet, len(scores))
	var visible []jet
	var seen []int
	for j, s := range scores {
		if !math.IsInf(s.x, -1) {
			visible, seen = append(visible, s), append(seen, j)
		}
	}
	if r.Sinks {
		visible = append(visible, r.sinks.x[r.head])
	}
	if len(visible) == 0 {
		return weights, number(math.Inf(-1))
	}
	p, lse := softmax(visible)
	drop := r.Dropout.at(r.evaluation)
	for n, j := range seen {
		switch {
		case drop.P == 0:
			weights[j] = p[n]
		case drop.Keep(r.sequence*r.Heads+r.head, r.i, j):
			weights[j] = p[n].times(drop.Scale())
		}
	}
	return weights, lse
}

// more draws the inputs behind the rows, of so many sequences, which lie end to end or not.
func (d *drawer) more(p *attending, sequences, queries, keys int) (rest []Ref) {
	someOf := func(shape ...int) []int {
		for i := range 3 {
			if d.IntN(2) == 0 {
				shape[i] = 1
			}
		}
		return shape
	}
	if p.Bias {
		bias := d.input(someOf(sequences, p.Heads, queries, keys)[d.IntN(3):]...)
		if d.IntN(2) == 0 && p.Packed == nil {
			bias = d.keyMask(bias, sequences, keys)
		}
		rest = append(rest, bias)
	}
	if p.Sinks {
		rest = append(rest, d.input(p.Heads))
	}
	if p.Relative.Buckets > 0 {
		rest = append(rest, d.weight(p.Relative.Buckets, p.Heads))
	}
	if p.Blocks.Queries > 0 {
		rest = append(rest, d.blocks(p, sequences, queries, keys))
	}
	if p.Lengths = p.Lengths && p.Packed == nil; p.Lengths {
		rest = append(rest, d.ids(0, keys+1, nil, sequences))
	}
	return rest
}

// blocks draws lists of blocks.
func (d *drawer) blocks(p *attending, sequences, queries, keys int) Ref {
	p.Blocks.Count = (keys + p.Blocks.Keys - 1) / p.Blocks.Keys
	shape := []int{sequences, p.Heads, (queries + p.Blocks.Queries - 1) / p.Blocks.Queries, 1 + d.IntN(3)}
	if p.Blocks.ByKeyHead {
		shape[1] = p.KeyHeads
	}
	for i := range 2 {
		if d.IntN(2) == 0 {
			shape[i] = 1
		}
	}
	shape[2] = max(1, shape[2]-d.IntN(2)) // the last list is for all behind it
	return d.choice(p.Blocks.Count, shape...)
}

// choice draws a choice of some of so many things, at times by the size of a score.
func (d *drawer) choice(count int, shape ...int) Ref {
	if k := shape[len(shape)-1]; k <= count && d.IntN(2) == 0 {
		scores := d.input(withLast(shape, count)...)
		return Ref{d.node(Node{Op: "TopK", Args: []Ref{scores}, Shapes: [][]int{shape, shape}, Bound: count}), 1}
	}
	return d.ids(-1, count, nil, shape...)
}

func init() {
	register(attention("FlashAttention", 1), attention("FlashAttentionLSE", 2), attentionQKV, weightsQKV, rope, keyMask,
		shown("AttentionWeights"), shown("AttentionScores"), listedKeys)
}

// attended draws q and k in a layout, and how heads, lengths and the rest are.
func (d *drawer) attended(p *attending) (q, k Ref, ok bool) {
	if q, ok = d.pick(func(shape []int) bool { return len(shape) == 4 }); !ok {
		q = d.floatsOf(1+d.IntN(2), 2, 2, 1+d.IntN(4))
	}
	shape := d.shape(q)
	heads, length := 1, 2
	if p.Layout == ops.BSHD {
		heads, length = 2, 1
	}
	p.Heads = shape[heads]
	kv := slices.Clone(shape)
	kv[length] = max(1, shape[length]+d.IntN(3)-1)
	if shape[heads]%2 == 0 && d.IntN(2) == 0 {
		kv[heads] /= 2
	}
	if d.IntN(6) == 0 {
		kv[0] = 1 // for all items of the batch
	}
	p.KeyHeads = kv[heads]
	return q, d.likeShape(kv), true
}

// lengths are the numbers of batch items, of heads and of rows of q, and of those of k.
func (d *drawer) lengths(p *attending, q, k Ref) (batch, queries, keys int) {
	length := 2
	if p.Layout == ops.BSHD {
		length = 1
	}
	return d.shape(q)[0], d.shape(q)[length], d.shape(k)[length]
}

// inHeads brings rows into the layout (B, H, S, D), or back.
func (p attending) inHeads(list ...array) []array {
	if p.Layout == ops.BSHD {
		for i := range list {
			list[i] = list[i].permuted(0, 2, 1, 3)
		}
	}
	return list
}

// attention is that of q, k and v, with one result or the logsumexp too.
func attention(name string, results int) kind {
	return kind{name: name, weight: 6, half: results == 1,
		draw: func(d *drawer) *Node {
			p := d.attending()
			p.Layout = ops.Layout(d.IntN(2))
			q, k, _ := d.attended(&p)
			batch, queries, keys := d.lengths(&p, q, k)
			v := d.likeShape(withLast(d.shape(k), []int{d.shape(k)[3], 1 + d.IntN(d.shape(k)[3])}[d.IntN(2)]))
			args := append([]Ref{q, k, v}, d.more(&p, batch, queries, keys)...)
			return &Node{Args: args, Shapes: [][]int{withLast(d.shape(q), d.shape(v)[3]), {batch, p.Heads, queries}}[:results], P: p}
		},
		build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			p := n.P.(attending)
			o, err := p.options(b, in[3:], p.Heads)
			if err != nil {
				return nil, err
			}
			if results == 2 {
				return two(ops.FlashAttentionLSE(in[0], in[1], in[2], o))
			}
			return one(ops.FlashAttention(in[0], in[1], in[2], o))
		},
		eval: func(e *evaluation, n *Node, in []array) []array {
			p := n.P.(attending)
			rows := p.inHeads(in[0], in[1], in[2])
			out, l := p.of(e, rows[0], rows[1], rows[2], in[3:])
			return []array{p.inHeads(out)[0], l}[:results]
		},
	}
}

// allInputs are the inputs that get no gradient where none does.
var allInputs = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}

// looking is what attention is told whose weights or scores are looked at.
type looking struct {
	attending
	Rows []int // of the queries whose scores are shown
	Exp  bool  // what is looked at are the exponentials of scores, of which none is infinite
}

// shown is what is there to look at, and gives no gradient: weights, or scores.
func shown(name string) kind {
	scores := name == "AttentionScores"
	return kind{name: name, weight: 3, half: !scores, constants: allInputs,
		draw: func(d *drawer) *Node {
			p := looking{attending: d.attending(), Exp: d.IntN(2) == 0}
			p.Layout = ops.Layout(d.IntN(2))
			q, k, _ := d.attended(&p.attending)
			batch, queries, keys := d.lengths(&p.attending, q, k)
			args := append([]Ref{q, k}, d.more(&p.attending, batch, queries, keys)...)
			rows := queries
			if d.IntN(2) == 0 && scores {
				rows = 1 + d.IntN(3)
				for range rows {
					p.Rows = append(p.Rows, d.IntN(queries))
				}
			}
			return &Node{Args: args, Shapes: [][]int{{batch, p.Heads, rows, keys}}, P: p}
		},
		build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			p := n.P.(looking)
			o, err := p.options(b, in[2:], p.Heads)
			if err != nil {
				return nil, err
			}
			if !scores {
				return one(ops.AttentionWeights(in[0], in[1], o))
			}
			y, err := ops.AttentionScores(in[0], in[1], o, p.Rows...)
			if err == nil && p.Exp {
				y, err = ops.Exp(y)
			}
			return gorgonia.Nodes{y}, err
		},
		eval: func(e *evaluation, n *Node, in []array) []array {
			p := n.P.(looking)
			rows := p.inHeads(in[0], in[1])
			whole := newArray(append(slices.Clone(rows[0].shape[:3]), rows[1].shape[2])...)
			for i := range whole.x {
				if scores {
					whole.x[i] = number(math.Inf(-1)) // also of keys behind the last of an item
				}
			}
			p.each(e, rows[0], rows[1], in[2:], func(r attendRow, at []int, _ int, list []jet) {
				if !scores {
					list, _ = r.weigh(list)
				}
				for j, y := range list {
					whole.x[whole.strictly(append(slices.Clone(at), j))] = number(y.x)
				}
			})
			if scores && p.Exp {
				whole = whole.each(jet.exp)
			}
			if p.Rows == nil {
				return []array{whole}
			}
			return []array{whole.rearranged(n.Shapes[0], 0, func(at []int) []int { return []int{at[0], at[1], p.Rows[at[2]], at[3]} })}
		},
	}
}

// listing is what attention to listed keys is told.
type listing struct {
	attending
	Deterministic bool
}

var listedKeys = kind{name: "ListedKeysAttention", weight: 6, half: true,
	draw: func(d *drawer) *Node {
		p := listing{Deterministic: d.IntN(2) == 0}
		p.Layout = ops.Layout(d.IntN(2))
		if d.IntN(3) == 0 {
			p.Scale = 0.4
		}
		q, k, _ := d.attended(&p.attending)
		batch, queries, keys := d.lengths(&p.attending, q, k)
		v := d.likeShape(withLast(d.shape(k), []int{d.shape(k)[3], 1 + d.IntN(d.shape(k)[3])}[d.IntN(2)]))
		lists := d.choice(keys, []int{1, batch}[d.IntN(2)], []int{1, p.KeyHeads}[d.IntN(2)], queries, 1+d.IntN(4))
		return &Node{Args: []Ref{q, k, v, lists}, Shapes: [][]int{withLast(d.shape(q), d.shape(v)[3])}, P: p}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		p := n.P.(listing)
		return one(ops.ListedKeysAttention(in[0], in[1], in[2], in[3], ops.ListedKeysOptions{Layout: p.Layout, Scale: p.Scale, Deterministic: p.Deterministic}))
	},
	eval: func(e *evaluation, n *Node, in []array) []array {
		p, lists := n.P.(listing), in[3]
		rows := p.inHeads(in[0], in[1], in[2])
		v := rows[2]
		out := newArray(withLast(rows[0].shape, v.last())...)
		p.each(e, rows[0], rows[1], nil, func(r attendRow, at []int, _ int, scores []jet) {
			head := r.head / (r.Heads / r.KeyHeads)
			from := array{shape: lists.shape[:3]}.at([]int{at[0], head, r.i}) * lists.last()
			var listed []int
			var chosen []jet
			for _, j := range lists.ints[from : from+lists.last()] {
				if j >= 0 {
					listed, chosen = append(listed, j), append(chosen, scores[j])
				}
			}
			weights, _ := r.weigh(chosen)
			for c := range v.last() {
				to := &out.x[out.strictly(append(slices.Clone(at), c))]
				for i, j := range listed {
					*to = to.add(weights[i].mul(v.x[v.at([]int{at[0], head, j, c})]))
				}
			}
		})
		return p.inHeads(out)
	},
}

// keyMask is a bias that hides keys. It is drawn with what reads it: nothing else takes −∞.
var keyMask = kind{name: "KeyMask", weight: -1, constants: []int{0},
	build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		var bias node
		if len(in) > 1 {
			bias = in[1]
		}
		return one(ops.KeyMask(in[0], bias, b.dtype))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		y := newArray(n.Shapes[0]...)
		for i := range y.x {
			at := place(i, y.shape)
			switch mask := in[0]; {
			case mask.ints[mask.strictly([]int{at[0], at[3]})] == 0:
				y.x[i] = number(math.Inf(-1))
			case len(in) > 1:
				y.x[i] = in[1].x[in[1].at(at)]
			}
		}
		return []array{y}
	},
}

// keyMask draws a mask of keys, which hides some of a bias or is one alone.
func (d *drawer) keyMask(bias Ref, batch, keys int) Ref {
	n := Node{Op: "KeyMask", Args: []Ref{d.mask(batch, keys)}, Shapes: [][]int{{batch, 1, 1, keys}}}
	if shape := d.shape(bias); len(shape) == 4 {
		n.Args = append(n.Args, bias)
		copy(n.Shapes[0][1:], shape[1:])
	}
	return Ref{Node: d.node(n)}
}

var attentionQKV = kind{name: "FlashAttentionQKV", weight: 6, half: true,
	draw: func(d *drawer) *Node {
		p := d.attending()
		p.Heads, p.KeyHeads = 2, 1+d.IntN(2)
		parts := p.Heads + 2*p.KeyHeads
		packed := d.IntN(3) == 0
		x, ok := d.pick(func(shape []int) bool {
			return len(shape) == 3 && shape[2]%parts == 0 && !packed || packed && len(shape) == 2 && shape[1]%parts == 0
		})
		if !ok {
			if x = d.floatsOf(1+d.IntN(2), 1+d.IntN(3), parts*(1+d.IntN(2))); packed {
				x = d.floatsOf(2+d.IntN(3), parts*(1+d.IntN(2)))
			}
		}
		shape := d.shape(x)
		batch, length := shape[0], shape[len(shape)-2]
		if packed {
			p.Packed = []int{d.IntN(length + 1), length - d.IntN(2)}
			slices.Sort(p.Packed)
			if batch = 2; p.Bias {
				p.Bias = false
			}
		}
		args := append([]Ref{x}, d.more(&p, batch, length, length)...)
		return &Node{Args: args, Shapes: [][]int{withLast(shape, shape[len(shape)-1]/parts*p.Heads)}, P: p}
	},
	build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		p := n.P.(attending)
		o, err := p.options(b, in[1:], p.Heads)
		if err != nil {
			return nil, err
		}
		return one(ops.FlashAttentionQKV(in[0], p.Heads, p.KeyHeads, o))
	},
	eval: func(e *evaluation, n *Node, in []array) []array {
		p, x := n.P.(attending), in[0]
		if p.Packed != nil {
			x = x.reshaped(1, x.shape[0], x.shape[1])
		}
		q, k, v := p.parts(x)
		out, _ := p.of(e, q, k, v, in[1:])
		return []array{out.permuted(0, 2, 1, 3).reshaped(n.Shapes[0]...)}
	},
}

// parts are q, k and v of a projection, (B, S, (Heads+2·KeyHeads)·D).
func (p attending) parts(x array) (q, k, v array) {
	d := x.last() / (p.Heads + 2*p.KeyHeads)
	part := func(from, heads int) array {
		return x.rearranged([]int{x.shape[0], heads, x.shape[1], d}, 0, func(at []int) []int {
			return []int{at[0], at[2], (from+at[1])*d + at[3]}
		})
	}
	return part(0, p.Heads), part(p.Heads, p.KeyHeads), part(p.Heads+p.KeyHeads, p.KeyHeads)
}

// weightsQKV are the weights of attention over a projection.
var weightsQKV = kind{name: "AttentionWeightsQKV", weight: 2, half: true, constants: allInputs,
	draw: func(d *drawer) *Node {
		n := attentionQKV.draw(d)
		if n == nil || n.P.(attending).Packed != nil {
			return nil
		}
		length := n.Shapes[0][1]
		n.Shapes = [][]int{{n.Shapes[0][0], n.P.(attending).Heads, length, length}}
		return n
	},
	build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		p := n.P.(attending)
		o, err := p.options(b, in[1:], p.Heads)
		if err != nil {
			return nil, err
		}
		return one(ops.AttentionWeightsQKV(in[0], p.Heads, p.KeyHeads, o))
	},
	eval: func(e *evaluation, n *Node, in []array) []array {
		p, y := n.P.(attending), newArray(n.Shapes[0]...)
		q, k, _ := p.parts(in[0])
		p.each(e, q, k, in[1:], func(r attendRow, at []int, _ int, scores []jet) {
			weights, _ := r.weigh(scores)
			for j, w := range weights {
				y.x[y.strictly(append(slices.Clone(at), j))] = number(w.x)
			}
		})
		return []array{y}
	},
}

// turning is what RoPE is told. Inputs of the node are x, and the positions if there are.
type turning struct {
	ops.RoPEOptions
	Positioned bool
}

var rope = kind{name: "RoPE", half: true, weight: 3,
	draw: func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) == 4 && shape[3]%2 == 0 })
		if !ok {
			return nil
		}
		shape := d.shape(x)
		p := turning{ops.RoPEOptions{Layout: ops.Layout(d.IntN(2)), Base: 100, Interleaved: d.IntN(2) == 0, Offset: d.IntN(3)}, d.IntN(3) == 0}
		if d.IntN(3) == 0 {
			p.RotaryDim = 2 * (1 + d.IntN(shape[3]/2))
		}
		if d.IntN(3) == 0 {
			p.Scaling, p.Amplitude = 1.5, 0.75
		}
		args := []Ref{x}
		if p.Positioned {
			args = append(args, d.ids(-4, 40, nil, shape[0], shape[2-int(p.Layout)]))
		}
		return &Node{Args: args, Shapes: [][]int{shape}, P: p}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		o := n.P.(turning).RoPEOptions
		if len(in) > 1 {
			o.Positions = in[1]
		}
		return one(ops.RoPE(in[0], o))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		o, x := n.P.(turning), in[0]
		y, d := newArray(x.shape...), cmp.Or(o.RotaryDim, x.last())
		for i := range y.x {
			at := place(i, x.shape)
			row, column := at[2-int(o.Layout)], at[3]
			if column >= d {
				y.x[i] = x.x[i]
				continue
			}
			if o.Positioned {
				row = in[1].ints[in[1].strictly([]int{at[0], row})]
			}
			pair, first, other := column%(d/2), column < d/2, (column+d/2)%d
			if o.Interleaved {
				pair, first, other = column/2, column%2 == 0, column^1
			}
			angle := float64(o.Offset+row) / cmp.Or(o.Scaling, 1) * math.Pow(o.Base, -2*float64(pair)/float64(d))
			sin := math.Sin(angle)
			if first {
				sin = -sin
			}
			y.x[i] = x.x[i].times(math.Cos(angle)).add(x.x[i-column+other].times(sin)).times(cmp.Or(o.Amplitude, 1))
		}
		return []array{y}
	},
}
