package ops

import (
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// The hash of an op's node is known before, so that an op whose hash another node has takes another
// id: a tapeMachine would take the two for one.
func TestNoTwoNodesHaveOneHash(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 3), gorgonia.WithName("x"))
	scalar := gorgonia.NewScalar(g, tensor.Float32, gorgonia.WithName("s"))
	for _, c := range []struct {
		children gorgonia.Nodes
		shape    []int
	}{{gorgonia.Nodes{x}, []int{2, 3}}, {gorgonia.Nodes{x, scalar}, []int{4}}, {gorgonia.Nodes{scalar, x}, nil}} {
		s := newSignature("op", c.children, nil, tensor.Float32, c.shape...)
		n, err := gorgonia.ApplyOp(arrived{s}, c.children...)
		if err != nil {
			t.Fatal(err)
		}
		if n.Hashcode() != s.nodeHash(c.children) {
			t.Errorf("the hash of a node of shape %v is %d, it was said to be %d", c.shape, n.Hashcode(), s.nodeHash(c.children))
		}
		taken := s
		if taken.nodeHash(c.children) != n.Hashcode() || !taken.isTaken(c.children) {
			t.Errorf("a second node of the same id has no hash that is taken")
		}
	}
}
