package graphtest

import (
	"math"
	"slices"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
)

// attending is what attention is told. Inputs of the node are q, k and v, or one projection, then
// the bias, the sinks, and the lengths that there are.
type attending struct {
	Heads, KeyHeads int // of a projection
	Layout          ops.Layout
	Causal          kernels.Causal
	Window          int // −1 for none
	SoftCap         float64
	Slopes          bool
	Bias, Sinks     bool
	Scored, Masked  bool
	Packed          []int // ends of the sequences of queries and keys
	Dropout         drop
}

func (d *drawer) attending() attending {
	p := attending{Causal: kernels.Causal(d.IntN(3)), Window: -1, Slopes: d.IntN(4) == 0, Bias: d.IntN(3) == 0, Sinks: d.IntN(4) == 0,
		Scored: d.IntN(5) == 0, Masked: d.IntN(5) == 0}
	if d.IntN(4) == 0 {
		p.Window = d.IntN(3)
	}
	if d.IntN(4) == 0 {
		p.SoftCap = 2
	}
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

// options are what ops is told, of rest, the inputs behind the rows.
func (p attending) options(b *builder, rest gorgonia.Nodes, heads int) ops.AttentionOptions {
	o := ops.AttentionOptions{Layout: p.Layout, Causal: p.Causal, SoftCap: p.SoftCap, ALiBi: p.slopes(heads), Dropout: ops.Drop{P: p.Dropout.P, Seed: p.Dropout.Seed}}
	if p.Window >= 0 {
		o.Window = &kernels.Window{Left: p.Window, Right: 1}
	}
	if p.Bias {
		o.Bias, rest = rest[0], rest[1:]
	}
	if p.Sinks {
		o.Sinks = rest[0]
	}
	if p.Scored {
		o.Score = func(p ops.Pair) ops.Expr { return p.Score.Sigmoid().Add(p.Score.Mul(0.5)) }
	}
	if p.Masked {
		o.Mask = func(p ops.Pair) ops.Cond { return p.Key.Add(p.Query).Rem(3).NotEqual(1) }
	}
	if p.Packed != nil {
		ends := b.ends(p.Packed)
		o.Lengths = ops.Lengths{QLens: ends, KVLens: ends}
	}
	return o
}

// sees reports whether query i sees key j of a sequence.
func (p attending) sees(i, j, queries, keys int) bool {
	off := keys - queries
	at := i + off
	switch {
	case p.Causal == kernels.CausalBottomRight && j > at,
		p.Causal == kernels.CausalTopLeft && j > i,
		p.Window >= 0 && (j < at-p.Window || j > at+1),
		p.Masked && (i+j)%3 == 1:
		return false
	}
	return true
}

// of computes attention over q, k and v, (B, H, S, D).
func (p attending) of(e *evaluation, q, k, v array, rest []array) (out, lse array) {
	var bias, sinks array
	if p.Bias {
		bias, rest = rest[0], rest[1:]
	}
	if p.Sinks {
		sinks = rest[0]
	}
	out, lse = newArray(withLast(q.shape, v.last())...), newArray(q.shape[:3]...)
	ends := slices.Concat([]int{0}, p.Packed)
	for n := range q.shape[0] {
		for h := range q.shape[1] {
			if p.Packed == nil {
				ends = []int{0, q.shape[2]}
			}
			for s := range len(ends) - 1 {
				sequence, shift := n, 0
				queries, keys := q.shape[2], k.shape[2]
				if p.Packed != nil {
					sequence, shift, queries = s, ends[s], ends[s+1]-ends[s]
					keys = queries
				}
				for i := range queries {
					row := attendRow{p, e, sequence, h, i, queries, keys}
					p, l := row.weigh(func(j int) jet {
						var dot jet
						for c := range q.last() {
							dot = dot.add(q.x[q.strictly([]int{n, h, shift + i, c})].mul(k.x[k.strictly([]int{n, h / (q.shape[1] / k.shape[1]), shift + j, c})]))
						}
						return dot.times(1 / math.Sqrt(float64(q.last())))
					}, bias, sinks)
					lse.x[lse.strictly([]int{n, h, shift + i})] = l
					for c := range v.last() {
						to := &out.x[out.strictly([]int{n, h, shift + i, c})]
						for j, weight := range p {
							*to = to.add(weight.mul(v.x[v.strictly([]int{n, h / (q.shape[1] / k.shape[1]), shift + j, c})]))
						}
					}
				}
			}
		}
	}
	return out, lse
}

// attendRow is a row of scores.
type attendRow struct {
	attending
	*evaluation
	sequence, head, i, queries, keys int
}

// weigh gives the weights of all keys, and the logsumexp.
func (r attendRow) weigh(score func(j int) jet, bias, sinks array) (weights []jet, lse jet) {
	weights = make([]jet, r.keys)
	var scores []jet
	var seen []int
	for j := range r.keys {
		if !r.sees(r.i, j, r.queries, r.keys) {
			continue
		}
		s := score(j)
		if r.SoftCap > 0 {
			s = s.times(1 / r.SoftCap).tanh().times(r.SoftCap)
		}
		if r.Slopes {
			s = s.plus(-0.25 / float64(r.head+1) * math.Abs(float64(r.i+r.keys-r.queries-j)))
		}
		if r.Bias {
			s = s.add(bias.x[bias.at([]int{r.sequence, r.head, r.i, j})])
		}
		if r.Scored {
			s = s.sigmoid().add(s.times(0.5))
		}
		scores, seen = append(scores, s), append(seen, j)
	}
	if r.Sinks {
		scores = append(scores, sinks.x[r.head])
	}
	if len(scores) == 0 {
		return weights, number(math.Inf(-1))
	}
	p, lse := softmax(scores)
	drop := r.Dropout.at(r.evaluation)
	for n, j := range seen {
		switch heads := r.headCount(); {
		case drop.P == 0:
			weights[j] = p[n]
		case drop.Keep(r.sequence*heads+r.head, r.i, j):
			weights[j] = p[n].times(drop.Scale())
		}
	}
	return weights, lse
}

func (r attendRow) headCount() int { return r.Heads }

// more draws the inputs behind the rows.
func (d *drawer) more(p attending, batch, heads, queries, keys int) (rest []Ref) {
	if p.Bias {
		shape := []int{batch, heads, queries, keys}
		for i := range 3 {
			if d.IntN(2) == 0 {
				shape[i] = 1
			}
		}
		rest = append(rest, d.input(shape[d.IntN(3):]...))
	}
	if p.Sinks {
		rest = append(rest, d.input(heads))
	}
	return rest
}

func init() {
	register(attention("FlashAttention", false), attention("FlashAttentionLSE", true), attentionQKV, rope)
}

// attention is that of q, k and v.
func attention(name string, lse bool) kind {
	return kind{name: name, weight: 6,
		draw: func(d *drawer) *Node {
			p := d.attending()
			p.Layout = ops.Layout(d.IntN(2))
			q, ok := d.pick(func(shape []int) bool { return len(shape) == 4 })
			if !ok {
				q = d.input(1+d.IntN(2), 2, 2, 1+d.IntN(4))
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
			p.KeyHeads = kv[heads]
			k := d.likeShape(kv)
			v := d.likeShape(withLast(kv, []int{shape[3], 1 + d.IntN(shape[3])}[d.IntN(2)]))
			args := append([]Ref{q, k, v}, d.more(p, shape[0], shape[heads], shape[length], kv[length])...)
			shapes := [][]int{withLast(shape, d.shape(v)[3])}
			if lse {
				shapes = append(shapes, []int{shape[0], shape[heads], shape[length]})
			}
			return &Node{Args: args, Shapes: shapes, P: p}
		},
		build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			p := n.P.(attending)
			o := p.options(b, in[3:], p.Heads)
			if lse {
				return two(ops.FlashAttentionLSE(in[0], in[1], in[2], o))
			}
			return one(ops.FlashAttention(in[0], in[1], in[2], o))
		},
		eval: func(e *evaluation, n *Node, in []array) []array {
			p, q, k, v := n.P.(attending), in[0], in[1], in[2]
			if p.Layout == ops.BSHD {
				q, k, v = q.permuted(0, 2, 1, 3), k.permuted(0, 2, 1, 3), v.permuted(0, 2, 1, 3)
			}
			out, l := p.of(e, q, k, v, in[3:])
			if p.Layout == ops.BSHD {
				out = out.permuted(0, 2, 1, 3)
			}
			return []array{out, l}[:len(n.Shapes)]
		},
	}
}

var attentionQKV = kind{name: "FlashAttentionQKV", weight: 6,
	draw: func(d *drawer) *Node {
		p := d.attending()
		p.Heads, p.KeyHeads = 2, 1+d.IntN(2)
		parts := p.Heads + 2*p.KeyHeads
		packed := d.IntN(3) == 0
		x, ok := d.pick(func(shape []int) bool {
			return len(shape) == 3 && shape[2]%parts == 0 && !packed || packed && len(shape) == 2 && shape[1]%parts == 0
		})
		if !ok {
			if x = d.input(1+d.IntN(2), 1+d.IntN(3), parts*(1+d.IntN(2))); packed {
				x = d.input(2+d.IntN(3), parts*(1+d.IntN(2)))
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
		args := append([]Ref{x}, d.more(p, batch, p.Heads, length, length)...)
		return &Node{Args: args, Shapes: [][]int{withLast(shape, shape[len(shape)-1]/parts*p.Heads)}, P: p}
	},
	build: func(b *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		p := n.P.(attending)
		return one(ops.FlashAttentionQKV(in[0], p.Heads, p.KeyHeads, p.options(b, in[1:], p.Heads)))
	},
	eval: func(e *evaluation, n *Node, in []array) []array {
		p, x := n.P.(attending), in[0]
		if p.Packed != nil {
			x = x.reshaped(1, x.shape[0], x.shape[1])
		}
		d := x.last() / (p.Heads + 2*p.KeyHeads)
		part := func(from, heads int) array {
			return x.rearranged([]int{x.shape[0], heads, x.shape[1], d}, 0, func(at []int) []int {
				return []int{at[0], at[2], (from+at[1])*d + at[3]}
			})
		}
		out, _ := p.of(e, part(0, p.Heads), part(p.Heads, p.KeyHeads), part(p.Heads+p.KeyHeads, p.KeyHeads), in[1:])
		return []array{out.permuted(0, 2, 1, 3).reshaped(n.Shapes[0]...)}
	},
}

var rope = kind{name: "RoPE", half: true, weight: 3,
	draw: func(d *drawer) *Node {
		x, ok := d.pick(func(shape []int) bool { return len(shape) == 4 && shape[3]%2 == 0 })
		if !ok {
			return nil
		}
		return &Node{Args: []Ref{x}, Shapes: [][]int{d.shape(x)}, P: ops.RoPEOptions{Layout: ops.Layout(d.IntN(2)), Base: 100, Interleaved: d.IntN(2) == 0, Offset: d.IntN(3)}}
	},
	build: func(_ *builder, n *Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return one(ops.RoPE(in[0], n.P.(ops.RoPEOptions)))
	},
	eval: func(_ *evaluation, n *Node, in []array) []array {
		o, x := n.P.(ops.RoPEOptions), in[0]
		y, d := newArray(x.shape...), x.last()
		for i := range y.x {
			at := place(i, x.shape)
			row := at[2]
			if o.Layout == ops.BSHD {
				row = at[1]
			}
			column := at[3]
			pair, first, other := column%(d/2), column < d/2, (column+d/2)%d
			if o.Interleaved {
				pair, first, other = column/2, column%2 == 0, column^1
			}
			angle := float64(o.Offset+row) * math.Pow(o.Base, -2*float64(pair)/float64(d))
			sin := math.Sin(angle)
			if first {
				sin = -sin
			}
			y.x[i] = x.x[i].times(math.Cos(angle)).add(x.x[i-column+other].times(sin))
		}
		return []array{y}
	},
}
