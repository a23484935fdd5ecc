package ops

import (
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"gorgonia.org/gorgonia"
)

// graphState is what this package knows of a graph besides its nodes. It refers to no node, so that
// it does not keep the graph alive.
type graphState struct {
	mode      Mode
	pool      pool
	lossScale lossScale
	gradients atomic.Uint64 // how often ops computed theirs
	ahead     ahead
	planning  planning
	walk      walk
	regions   regions
}

// GradientCount is a number that grows whenever a run computes gradients in a graph, or a recording
// of one does: where it is what it was, so are the gradients. Ops of Gorgonia's own do not count.
func GradientCount(g *gorgonia.ExprGraph) uint64 { return stateOf(g).gradients.Load() }

// states holds graphs weakly: looking up the state of a graph does not keep the graph alive.
var states = struct {
	sync.Mutex
	of map[weak.Pointer[gorgonia.ExprGraph]]*graphState
}{of: map[weak.Pointer[gorgonia.ExprGraph]]*graphState{}}

// stateOf is the state of a graph: the same one in every call, for as long as the graph lives. A
// nil graph gives a state that nothing reads.
func stateOf(g *gorgonia.ExprGraph) *graphState {
	if g == nil {
		return new(graphState)
	}
	states.Lock()
	defer states.Unlock()
	key := weak.Make(g)
	s, ok := states.of[key]
	if !ok {
		s = new(graphState)
		states.of[key] = s
		runtime.AddCleanup(g, forgetState, key)
	}
	return s
}

func forgetState(key weak.Pointer[gorgonia.ExprGraph]) {
	states.Lock()
	defer states.Unlock()
	delete(states.of, key)
}
