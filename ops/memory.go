package ops

import (
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// memory lends an op the memory for its results: that of its last run, since fresh memory has to be cleared first, which
// takes longer than many an op. A result gets fresh memory where someone may hold the last one on purpose:
//
//   - a root of the graph, such as the logits of a model that only predicts, or a node that [gorgonia.Read] reads;
//   - if an input of the graph has it as its value now, such as a state that is carried from run to run.
type memory struct {
	output *gorgonia.Node
	nodes  int            // of the graph when the rest was found out
	inputs gorgonia.Nodes // of the graph
	inside bool           // no one but ops reads the output
}

// forOutput gives memory for the output, which the buffer holds from run to run.
func (m *memory) forOutput(b *buffer, h *home, dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	m.look()
	if !m.inside {
		*b = buffer{}
	}
	return m.forGradient(b, h, dtype, shape...)
}

// forGradient is forOutput for the gradient of an input, which is read before the next run, also where it is a root.
func (m *memory) forGradient(b *buffer, h *home, dtype kernels.DType, shape ...int) (kernels.Tensor, error) {
	m.look()
	if b.owner != nil && m.isAnInput(b.owner) {
		*b = buffer{}
	}
	return b.get(h, dtype, shape...)
}

// look finds out about the graph, again if it grew.
func (m *memory) look() {
	graph := m.output.Graph()
	if now := len(graph.AllNodes()); now != m.nodes {
		m.nodes, m.inputs, m.inside = now, graph.Inputs(), isInside(m.output)
	}
}

// isInside tells whether some ops read a node, and none of them is a statement, which Gorgonia gives an arity of 0.
func isInside(n *gorgonia.Node) bool {
	parents := n.Graph().To(n.ID())
	if parents == nil || parents.Len() == 0 {
		return false
	}
	for parents.Next() {
		if parents.Node().(*gorgonia.Node).Op().Arity() == 0 {
			return false
		}
	}
	return true
}

// isAnInput tells whether the value of an input of the graph shares memory with a tensor.
func (m *memory) isAnInput(t *tensor.Dense) bool {
	from := t.Uintptr()
	to := from + t.MemSize()
	for _, n := range m.inputs {
		if v, ok := n.Value().(*tensor.Dense); ok && v.Uintptr() < to && from < v.Uintptr()+v.MemSize() {
			return true
		}
	}
	return false
}
