// Package graphtest draws graphs of the ops of package ops and of the methods of nn.Tensor at
// random, computes what they give by plain loops in float64, and compares. A graph that fails is
// made smaller.
//
// What is compared, of each graph: all values; the gradients along random directions, with
// derivatives that the loops compute along; second derivatives likewise; and the bits of all of it
// between ways to run the graph that promise the same bits.
package graphtest

import (
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/tensor"
)

// Graph is a graph that was drawn. Nodes stand behind what they read.
type Graph struct {
	Seed    uint64
	Nodes   []Node
	Losses  []Ref    // what the cost is made of, each with weights of its own
	Read    []Ref    // what is looked at after a run
	Regions []Region // what may be computed again
	Empty   bool     // some axes have no elements
}

// Node is an op in a graph, or an input.
type Node struct {
	ID     int // stays the same where a graph is made smaller
	Op     string
	Args   []Ref
	Shapes [][]int // of its outputs
	Half   bool    // its outputs have 16 bits
	P      any     // what else the op is told

	Data    []float64    // of an input of floats
	IDs     []int        // of an input of integers, or a choice
	Least   int          // of these integers
	Bound   int          // is above all of them
	Type    tensor.Dtype // of an input of integers, or of one that is kept in less memory
	Trained bool         // an input whose gradient is asked for
}

// Ref is an output of a node.
type Ref struct{ Node, Out int }

// Region is what lies between a node, and what was there before another.
type Region struct{ Out, From int }

func (g *Graph) shape(r Ref) []int { return g.Nodes[r.Node].Shapes[r.Out] }

// isInput reports whether a node is an input: of floats, of integers, or of weights that are kept
// in less memory than they are computed with.
func (n *Node) isInput() bool { return n.Op == "input" || n.Op == "ids" || n.Op == "kept" }

// isIDs reports whether an output has integers.
func (g *Graph) isIDs(r Ref) bool {
	n := g.Nodes[r.Node]
	return n.Op == "ids" || n.Op == "TopK" && r.Out == 1 || n.Op == "TokenPositions"
}

// hides reports whether elements of an output may be −∞.
func (g *Graph) hides(r Ref) bool {
	p, isLooking := g.Nodes[r.Node].P.(looking)
	return g.Nodes[r.Node].Op == "KeyMask" || g.Nodes[r.Node].Op == "AttentionScores" && isLooking && !p.Exp
}

// isPlain reports whether an output has numbers that any op may read.
func (g *Graph) isPlain(r Ref) bool {
	return !g.isIDs(r) && !g.hides(r) && g.Nodes[r.Node].Op != "kept"
}

// depends marks the nodes that the gradients of trained inputs pass.
func (g *Graph) depends() []bool {
	list := make([]bool, len(g.Nodes))
	for i, n := range g.Nodes {
		if n.isInput() {
			list[i] = n.Trained
			continue
		}
		kind := kindOf[n.Op]
		for k, arg := range n.Args {
			if list[arg.Node] && !slices.Contains(kind.constants, k) && !g.isConstant(arg) {
				list[i] = true
			}
		}
	}
	return list
}

// isConstant reports whether an output has no gradient.
func (g *Graph) isConstant(r Ref) bool {
	kind := kindOf[g.Nodes[r.Node].Op]
	return r.Out > 0 && slices.Contains(kind.constantOutputs, r.Out)
}

// reached marks the nodes that something reads.
func (g *Graph) reached() []bool {
	list := make([]bool, len(g.Nodes))
	for _, r := range slices.Concat(g.Losses, g.Read) {
		list[r.Node] = true
	}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		if list[i] {
			for _, arg := range g.Nodes[i].Args {
				list[arg.Node] = true
			}
		}
	}
	return list
}

// trained lists the inputs whose gradients there are.
func (g *Graph) trained() (list []int) {
	reaches := make([]bool, len(g.Nodes))
	depends := g.depends()
	for _, r := range g.Losses {
		reaches[r.Node] = reaches[r.Node] || !g.isConstant(r)
	}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		n := g.Nodes[i]
		if !reaches[i] || n.isInput() {
			continue
		}
		for k, arg := range n.Args {
			if !slices.Contains(kindOf[n.Op].constants, k) && !g.isConstant(arg) {
				reaches[arg.Node] = true
			}
		}
	}
	for i, n := range g.Nodes {
		if n.isInput() && n.Trained && reaches[i] && depends[i] {
			list = append(list, i)
		}
	}
	return list
}

func (g *Graph) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\n", g.Seed)
	name := func(r Ref) string {
		if len(g.Nodes[r.Node].Shapes) > 1 {
			return fmt.Sprintf("%d.%d", r.Node, r.Out)
		}
		return fmt.Sprint(r.Node)
	}
	names := func(list []Ref) string {
		var all []string
		for _, r := range list {
			all = append(all, name(r))
		}
		return strings.Join(all, ", ")
	}
	for i, n := range g.Nodes {
		fmt.Fprintf(&b, "  %d = %s(%s)", i, n.Op, names(n.Args))
		for _, s := range n.Shapes {
			fmt.Fprint(&b, " ", s)
		}
		if n.Half {
			b.WriteString(" of 16 bits")
		}
		if n.Trained {
			b.WriteString(" trained")
		}
		if n.P != nil {
			fmt.Fprintf(&b, " %+v", n.P)
		}
		if n.IDs != nil {
			fmt.Fprint(&b, " ", n.IDs)
		}
		if n.Type.Type != nil {
			fmt.Fprint(&b, " ", n.Type)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "  losses %s; read %s", names(g.Losses), names(g.Read))
	for _, r := range g.Regions {
		fmt.Fprintf(&b, "; %d from what is before %d again", r.Out, r.From)
	}
	return b.String()
}
