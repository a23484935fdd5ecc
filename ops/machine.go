package ops

import (
	"errors"
	"fmt"
	"sync"

	"gorgonia.org/gorgonia"
)

// making is held while a machine is made: Gorgonia then writes the engine into every value of the
// graph, those that the graph shares with others too.
var making sync.Mutex

// NewMachine is [gorgonia.NewTapeMachine] with [Engine], with an error in place of a panic for a
// graph that cannot be compiled, and of wrong results for one with two nodes of one hash, and with
// errors of runs that wrap what was wrong. The graph's plan is made with it; a machine made by
// Gorgonia alone has it made in the first run. Graphs that share values, such as those over one
// nn.Parameters, may have their machines made by several goroutines at once. A machine that has run
// needs a Reset to run again.
func NewMachine(g *gorgonia.ExprGraph, options ...gorgonia.VMOpt) (vm gorgonia.VM, err error) {
	if g == nil {
		return nil, fmt.Errorf("NewMachine: g is nil, it needs to be a graph")
	}
	making.Lock()
	defer making.Unlock()
	defer func() {
		if reason := recover(); reason != nil {
			vm, err = nil, fmt.Errorf("NewMachine: the graph cannot be compiled: %v", reason)
		}
	}()
	if err := mergedNodes(g); err != nil {
		return nil, fmt.Errorf("NewMachine: %w", err)
	}
	(&member{graph: g, state: stateOf(g)}).planned()
	options = append([]gorgonia.VMOpt{gorgonia.WithEngine(Engine())}, options...)
	return &machine{VM: gorgonia.NewTapeMachine(g, options...)}, nil
}

// mergedNodes reports two nodes that a tapeMachine would take for one though they are not: those of
// one hash of 32 bits. A graph has no two of what Gorgonia itself takes for equal, and our own ops
// avoid hashes that are taken.
func mergedNodes(g *gorgonia.ExprGraph) error {
	byHash := map[uint32]*gorgonia.Node{}
	for _, n := range g.AllNodes() {
		hash := n.Hashcode()
		if other := byHash[hash]; other != nil {
			return fmt.Errorf("the nodes %q and %q have one hash, %#08x, and a tapeMachine would compute one of them for both: "+
				"rename an input that one of them depends on", other.Name(), n.Name(), hash)
		}
		byHash[hash] = n
	}
	return nil
}

// machine is a tapeMachine whose errors are those of our ops alone, without Gorgonia's registers,
// or at least wrap what was wrong, which Gorgonia's own do not, and that refuses to run twice:
// Gorgonia's would compute nothing then, and say nothing of it.
type machine struct {
	gorgonia.VM
	ran bool // since it was made or reset
}

func (m *machine) Reset() {
	m.ran = false
	m.VM.Reset()
}

func (m *machine) RunAll() error {
	if m.ran {
		return errors.New("RunAll: the machine has run already, it needs a Reset to run again")
	}
	m.ran = true
	err := m.VM.RunAll()
	if of, ok := err.(interface{ Err() error }); ok {
		err = of.Err()
	}
	if of := (*failure)(nil); errors.As(err, &of) {
		return of
	}
	return err
}
