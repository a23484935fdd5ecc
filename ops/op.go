package ops

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"slices"
	"sync/atomic"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// signature answers what Gorgonia asks of every op besides what it computes. Each op of this
// package embeds one and adds Do; an op with gradients adds SymDiff and DoDiff as well.
//
// An op of ours is never merged with another and never works in place: it may share memory with the
// ops around it, and its inputs and output may be views that Gorgonia knows nothing about.
type signature struct {
	name           string
	id             uint64
	in             []hm.Type
	out            hm.Type
	shape          tensor.Shape
	differentiable []bool // one an input
}

var lastID atomic.Uint64

// newSignature describes an op over the given children that results in a tensor of the given type
// and shape, or in a scalar if there are no axes.
func newSignature(name string, children gorgonia.Nodes, differentiable []bool, dtype tensor.Dtype, shape ...int) signature {
	in := make([]hm.Type, len(children))
	for i, child := range children {
		in[i] = child.Type()
	}
	if differentiable == nil {
		differentiable = make([]bool, len(children))
	}
	out := hm.Type(dtype)
	if len(shape) > 0 {
		out = gorgonia.TensorType{Dims: len(shape), Of: dtype}
	}
	s := signature{name: name, id: lastID.Add(1), in: in, out: out, shape: shape, differentiable: differentiable}
	for s.isTaken(children) {
		s.id = lastID.Add(1)
	}
	return s
}

// isTaken reports whether another node of the graph has the hash that the op's node will have: a
// tapeMachine takes nodes of one hash, of 32 bits, for one node.
func (s signature) isTaken(children gorgonia.Nodes) bool {
	if len(children) == 0 || children[0].Graph() == nil {
		return false
	}
	hash := s.nodeHash(children)
	return slices.ContainsFunc(children[0].Graph().AllNodes(), func(n *gorgonia.Node) bool { return n.Hashcode() == hash })
}

// nodeHash is the hash that Gorgonia gives the op's node.
func (s signature) nodeHash(children gorgonia.Nodes) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v%v", s.out, s.shape)
	s.WriteHash(h)
	h.Write([]byte{byte(len(children))})
	for _, child := range children {
		binary.Write(h, binary.LittleEndian, child.Hashcode())
	}
	return h.Sum32()
}

// isOurs reports whether an op is one of this package.
func isOurs(op gorgonia.Op) bool {
	_, is := op.(interface{ signed() })
	return is
}

func (s signature) signed() {}

func (s signature) Arity() int           { return len(s.in) }
func (s signature) ReturnsPtr() bool     { return false }
func (s signature) CallsExtern() bool    { return false }
func (s signature) OverwritesInput() int { return -1 }
func (s signature) String() string       { return fmt.Sprintf("%s#%d", s.name, s.id) }
func (s signature) DiffWRT(int) []bool   { return s.differentiable }

func (s signature) Type() hm.Type {
	return hm.NewFnType(append(append([]hm.Type{}, s.in...), s.out)...)
}

func (s signature) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return s.shape.Clone(), nil
}

// WriteHash writes the id too: Gorgonia merges nodes whose hashes are equal, and a merged op would
// lose its memory.
func (s signature) WriteHash(h hash.Hash) { fmt.Fprintf(h, "stheno %s", s) }

func (s signature) Hashcode() uint32 {
	h := fnv.New32a()
	s.WriteHash(h)
	return h.Sum32()
}

// SymDiff is what ops without gradients answer.
func (s signature) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("%s has no gradient", s.name)
}

// A token is the value of an op whose result is not one tensor: it orders the ops that come after
// it and says nothing.
var tokenShape = tensor.Shape{1}

func token() gorgonia.Value {
	return tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(tokenShape...))
}

// arrived is the gradient of a token: its input, a gradient, has arrived. It reads nothing.
type arrived struct{ signature }

func (arrived) Do(...gorgonia.Value) (gorgonia.Value, error) { return token(), nil }

func (arrived) written() *result { return nil }

// pick is an op that hands out one of several results of the op before it, whose token is its only
// input. It forgets the value by handing it out, so that this lives no longer than Gorgonia needs
// it.
type pick struct {
	signature
	value  *gorgonia.Value
	memory *result
}

func (p pick) Do(...gorgonia.Value) (gorgonia.Value, error) {
	v := *p.value
	if v == nil {
		return nil, fmt.Errorf("%s: there is no result, the op that computes it has not run", p.name)
	}
	*p.value = nil
	return v, nil
}

func (p pick) written() *result { return p.memory }
