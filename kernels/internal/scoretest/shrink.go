package scoretest

import (
	"slices"

	"github.com/stheno-ml/stheno/kernels/score"
)

// Shrink returns the error of the smallest case that it finds for which check gives one. It begins
// with a case whose error is err.
func Shrink(c *Case, err error, check func(*Case) error) error {
	for tries := 0; tries < 20; tries++ {
		smaller := false
		for _, next := range c.smaller() {
			if e := check(next); e != nil {
				c, err, smaller = next, e, true
				break
			}
		}
		if !smaller {
			break
		}
		tries = 0
	}
	return err
}

// smaller lists cases that have a little less than this one, those that lack most first.
func (c *Case) smaller() (list []*Case) {
	add := func(change func(*Case)) {
		next := *c
		next.QLens, next.KVLens = nil, nil
		if c.QLens != nil {
			next.QLens, next.KVLens = slices.Clone(c.QLens), slices.Clone(c.KVLens)
		}
		p := *c.Program
		p.Nodes = slices.Clone(p.Nodes)
		next.Program = &p
		change(&next)
		if next.isValid() {
			list = append(list, &next)
		}
	}
	if c.Score != None && c.Mask != None {
		add(func(c *Case) { c.Mask = None })
		add(func(c *Case) { c.Score = None })
	}
	// A root, or what a needed node stands for, becomes one of its operands.
	needed := c.reachable(c.Score, c.Mask)
	for at := len(c.Nodes) - 1; at >= 0; at-- {
		n := c.Nodes[at]
		if !needed[at] || len(n.Args) == 0 {
			continue
		}
		for _, arg := range n.Args {
			if c.Nodes[arg].Type == n.Type {
				add(func(c *Case) { c.replace(at, arg) })
			}
		}
		if n.Type != score.Bool {
			add(func(c *Case) { c.Nodes[at] = Node{Op: Number, Type: n.Type, Value: 1} })
		}
		if n.Type == score.Float && n.Op != Score {
			add(func(c *Case) { c.Nodes[at] = Node{Op: Score, Type: n.Type} })
		}
	}
	if c.QLens != nil {
		add(func(c *Case) { c.QLens, c.KVLens = nil, nil })
	}
	if c.Causal || c.DLSE {
		add(func(c *Case) { c.Causal, c.DLSE = false, false })
	}
	for _, size := range []func(*Case) *int{
		func(c *Case) *int { return &c.Batch }, func(c *Case) *int { return &c.Heads }, func(c *Case) *int { return &c.Sq },
		func(c *Case) *int { return &c.Sk }, func(c *Case) *int { return &c.D }, func(c *Case) *int { return &c.Dv },
	} {
		n := *size(c)
		if n == 1 || c.QLens != nil {
			continue
		}
		for _, to := range []int{1, n / 2, n - 1} {
			add(func(c *Case) {
				*size(c) = to
				c.KeyHeads = min(c.KeyHeads, c.Heads)
				if c.Heads%c.KeyHeads != 0 {
					c.KeyHeads = 1
				}
			})
		}
	}
	return list
}

// replace lets a node's readers read another in its place.
func (p *Program) replace(at, by int) {
	for n := range p.Nodes {
		p.Nodes[n].Args = slices.Clone(p.Nodes[n].Args)
		for k, arg := range p.Nodes[n].Args {
			if arg == at {
				p.Nodes[n].Args[k] = by
			}
		}
	}
	if p.Score == at {
		p.Score = by
	}
	if p.Mask == at {
		p.Mask = by
	}
}
