package graphtest

import (
	"errors"
	"slices"
)

// Shrink makes a graph smaller that fails, as long as it fails in the same way.
func (g *Graph) Shrink() *Graph {
	way := g.way()
	for tries := 0; tries < 400; {
		smaller := (*Graph)(nil)
		for _, candidate := range g.smaller() {
			tries++
			if candidate.way() == way {
				smaller = candidate
				break
			}
		}
		if smaller == nil {
			return g
		}
		g = smaller
	}
	return g
}

// way is the way in which a graph fails, if any.
func (g *Graph) way() string {
	f := (*Failure)(nil)
	if _, err := g.Check(); errors.As(err, &f) {
		return f.Way
	}
	return ""
}

// smaller are graphs with something less.
func (g *Graph) smaller() (list []*Graph) {
	for k := range g.Losses {
		c := g.clone()
		c.Losses = slices.Delete(c.Losses, k, k+1)
		list = append(list, c.pruned())
	}
	for k := range g.Read {
		c := g.clone()
		c.Read = slices.Delete(c.Read, k, k+1)
		list = append(list, c.pruned())
	}
	for k := range g.Regions {
		c := g.clone()
		c.Regions = slices.Delete(c.Regions, k, k+1)
		list = append(list, c)
	}
	e := newEvaluation(g, 0)
	e.run()
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if n.isInput() {
			if n.Trained {
				c := g.clone()
				c.Nodes[i].Trained = false
				list = append(list, c)
			}
			continue
		}
		if len(n.Shapes) > 1 || n.Half || !g.isPlain(Ref{Node: i}) {
			continue
		}
		c := g.clone()
		if len(n.Shapes[0]) == 0 {
			continue
		}
		c.Nodes[i] = Node{ID: n.ID, Op: "input", Shapes: n.Shapes, Data: e.values[i][0].plain(), Trained: true}
		list = append(list, c.pruned())
		// one of its arguments in its place
		for _, arg := range n.Args {
			if slices.Equal(g.shape(arg), n.Shapes[0]) && !g.Nodes[arg.Node].Half && g.isPlain(arg) {
				c := g.clone()
				c.replace(Ref{Node: i}, arg)
				list = append(list, c.pruned())
			}
		}
	}
	return list
}

// replace has everything read another value.
func (g *Graph) replace(old, by Ref) {
	change := func(list []Ref) {
		for i := range list {
			if list[i] == old {
				list[i] = by
			}
		}
	}
	change(g.Losses)
	change(g.Read)
	for i := range g.Nodes {
		change(g.Nodes[i].Args)
	}
	slices.SortFunc(g.Losses, func(a, b Ref) int { return a.Node - b.Node })
	g.Losses, g.Read = slices.Compact(g.Losses), slices.Compact(g.Read)
}

func (g *Graph) clone() *Graph {
	c := *g
	c.Nodes, c.Losses, c.Read, c.Regions = slices.Clone(g.Nodes), slices.Clone(g.Losses), slices.Clone(g.Read), slices.Clone(g.Regions)
	for i := range c.Nodes {
		c.Nodes[i].Args = slices.Clone(c.Nodes[i].Args)
	}
	return &c
}

// pruned is the graph without what nothing reads.
func (g *Graph) pruned() *Graph {
	reached := g.reached()
	at := make([]int, len(g.Nodes))
	c := &Graph{Seed: g.Seed, Empty: g.Empty}
	for i, n := range g.Nodes {
		if at[i] = len(c.Nodes); reached[i] {
			c.Nodes = append(c.Nodes, n)
		}
	}
	moved := func(list []Ref) (to []Ref) {
		for _, r := range list {
			to = append(to, Ref{at[r.Node], r.Out})
		}
		return to
	}
	for i := range c.Nodes {
		c.Nodes[i].Args = moved(c.Nodes[i].Args)
	}
	c.Losses, c.Read = moved(g.Losses), moved(g.Read)
	for _, r := range g.Regions {
		if reached[r.Out] && !c.Nodes[at[r.Out]].isInput() {
			c.Regions = append(c.Regions, Region{at[r.Out], min(at[r.From], at[r.Out]-1)})
		}
	}
	return c
}
