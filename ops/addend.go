package ops

import (
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// This file has an op add its gradient to another's, where an input has two: a table that is looked
// up and multiplied with. Gorgonia adds them up in a pass of its own, over two tables and into a
// third, of which few rows were looked up:
//
//	head's gradient ──────┐
//	embedding's gradient ─┴→ + → the table's gradient
//
// Where nothing else reads either of them, the one that is computed last adds to the memory of the
// other, and its value is that memory. The addition is told so and does nothing.

// addend is the result to which the gradients of a step may add theirs, nil if there is none: in a
// graph that reuses memory, since nobody looks at either then.
func (p *plan) addend(f *finder, s *step) *result {
	g, ok := s.op().(*gradients)
	if !ok || g.alone != 0 || !s.c.kernel.accumulates || f.isLookedAt(s.node) {
		return nil
	}
	parents := f.graph.To(s.node.ID())
	if parents == nil || parents.Len() != 1 || !parents.Next() {
		return nil
	}
	sum := parents.Node().(*gorgonia.Node)
	terms := childrenOf(sum)
	if !isAddition(sum.Op()) || len(terms) != 2 || terms[0] == terms[1] {
		return nil
	}
	other := terms[0]
	if other == s.node {
		other = terms[1]
	}
	of, input := gradientsBehind(other)
	if of == nil || input < 0 || f.isLookedAt(other) || f.graph.To(other.ID()).Len() != 1 {
		return nil
	}
	before, own, there := p.of[of.id], &s.c.operands[0].dShape, &of.c.operands[input].dShape
	if before == nil || before.at >= s.at || own.DType != there.DType || !slices.Equal(own.Shape, there.Shape) {
		return nil
	}
	return &of.c.operands[input].d
}

// isAddition reports whether an op is Gorgonia's a + b.
func isAddition(op gorgonia.Op) bool {
	binary, ok := op.(gorgonia.BinaryOp)
	return ok && binary.IsBinary() && strings.HasPrefix(op.String(), "+ ")
}

// isLookedAt reports whether someone may ask for the value of a gradient, be it the graph's user.
func (f *finder) isLookedAt(n *gorgonia.Node) bool { return f.isKept(n) || isGradientOfInput(n) }

// addend is the tensor to which the step may add its gradient in this run. It is not set otherwise.
func (r *run) addend() (none kernels.Tensor) {
	if r.step == nil || r.step.adds == nil || !r.shares() || r.c.state.walk.astray {
		return none
	}
	if there := r.step.adds; there.IsSet() && r.Owner(there.Tensor) == there.Owner {
		return there.Tensor
	}
	return none
}

// sums are values that are sums already, when Gorgonia comes to add them up.
var sums = summed{values: map[weak.Pointer[tensor.Dense]]bool{}}

type summed struct {
	sync.Mutex
	values map[weak.Pointer[tensor.Dense]]bool
}

// note notes a value that is the sum of itself and another.
func (s *summed) note(v *tensor.Dense) {
	s.Lock()
	defer s.Unlock()
	s.values[weak.Make(v)] = true
}

// isSum reports whether one of two values of one memory is their sum. It is asked once of each.
func (s *summed) isSum(a, b *tensor.Dense) bool {
	if a.Uintptr() != b.Uintptr() {
		return false
	}
	s.Lock()
	defer s.Unlock()
	for _, v := range []*tensor.Dense{a, b} {
		if key := weak.Make(v); s.values[key] {
			delete(s.values, key)
			return true
		}
	}
	return false
}
