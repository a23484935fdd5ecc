package ops

import (
	"slices"
	"sync"
	"weak"

	"gorgonia.org/gorgonia"
)

// plan is what a run of a graph needs to know beforehand. It is made once, with the machine or in
// the first run, and calls only read it. A tapeMachine runs a graph in the reverse of
// [gorgonia.Sort], so the plan knows what runs before what. [WritePlan] prints it.
type plan struct {
	nodes  int            // of the graph when the plan was made
	inputs gorgonia.Nodes // of the graph
	steps  []*step        // in the order in which a tapeMachine runs them
	of     map[uint64]*step
	held   map[*result]bool // someone may look at the result after its readers have run
	trains bool             // there are gradients among the steps
	room   int              // the last step that leaves room for transfers
	shared map[uint64]bool  // the reshapes of memory that an op of Gorgonia's may write over
}

// step is a call, or the gradients of one.
type step struct {
	at   int // among the steps
	node *gorgonia.Node
	c    *call
	back bool // these are the gradients

	wanted  []bool    // the inputs whose gradients something uses; nil if no one differentiates
	reads   []*result // of other steps
	frees   []*result // of what it reads: nothing reads it afterwards
	exposed []bool    // the outputs that an op of Gorgonia's may write over
	unread  bool      // of a call that repeats another: nothing reads what it computes, but for what it saves

	spends bool    // of gradients: nothing else needs what they read, so that they may write over it
	bias   *call   // of gradients: whose bias's gradient they compute along
	adds   *result // of gradients: another's, with which theirs is added up, and to which they may add it
	beside []*step // gathers that begin beside it

	postpones bool          // the step that reads it may do its work
	before    map[int]*step // by input: the step whose work it may do
}

// planning makes the plan of a graph, and holds it as long as the graph lives.
type planning struct {
	sync.Mutex
	made weak.Pointer[plan]
	kept map[weak.Pointer[gorgonia.Node]]bool // whose values are looked at after a run
}

func (s *graphState) keep(n weak.Pointer[gorgonia.Node]) {
	s.planning.Lock()
	defer s.planning.Unlock()
	if s.planning.kept == nil {
		s.planning.kept = map[weak.Pointer[gorgonia.Node]]bool{}
	}
	s.planning.kept[n], s.planning.made = true, weak.Pointer[plan]{}
}

// member is an op's part in its graph.
type member struct {
	graph *gorgonia.ExprGraph
	state *graphState
	plan  *plan
}

// planned is the graph's plan, which is made anew where the graph grew.
func (m *member) planned() *plan {
	s := &m.state.planning
	s.Lock()
	defer s.Unlock()
	made, now := s.made.Value(), len(m.graph.AllNodes())
	if made == nil || made.nodes != now {
		made = newPlan(m.graph, func(n *gorgonia.Node) bool { return s.kept[weak.Make(n)] })
		s.made = weak.Make(made)
	}
	return made
}

// walk is how far a run of a graph has come.
type walk struct {
	at     int  // the step that runs, or ran last
	astray bool // the run is not the planned one, such as that of a part of the graph
}

// enter begins a step. In a run that is not the planned one, memory is freed late, and nothing is
// written over or begun ahead.
func (m *member) enter(id uint64) (*step, error) {
	m.plan = m.planned()
	s, w := m.plan.of[id], &m.state.walk
	if s == nil { // no longer in the graph
		s = &step{at: -1}
	}
	switch {
	case s.at == 0:
		w.astray = false
	case s.at != w.at+1:
		w.astray = true
	}
	w.at = s.at
	if s.at == 0 || w.astray {
		return s, m.state.ahead.drop(&m.state.pool)
	}
	return s, nil
}

// leave frees what nothing reads after a step.
func (m *member) leave(s *step) {
	if m.state.walk.astray {
		return
	}
	for _, r := range s.frees {
		m.release(r)
	}
}

// writer is an op whose value is a result.
type writer interface{ written() *result }

// handsOn is an op of the backward run whose value is that of another node.
type handsOn interface{ handsOn() *gorgonia.Node }

// reader is an op that reads results.
type reader interface{ readNodes() gorgonia.Nodes }

// newPlan makes a graph's plan. isKept says whose values are looked at after a run.
func newPlan(g *gorgonia.ExprGraph, isKept func(*gorgonia.Node) bool) *plan {
	all := g.AllNodes()
	p := &plan{nodes: len(all), inputs: g.Inputs(), of: map[uint64]*step{}, held: map[*result]bool{}, shared: map[uint64]bool{}}
	sorted, err := gorgonia.Sort(g)
	if err != nil { // a cycle, of which no machine can be made
		sorted = all
	}
	f := &finder{graph: g, isKept: isKept, behind: map[*gorgonia.Node][]*result{}, seen: map[*gorgonia.Node]bool{}}
	for _, n := range slices.Backward(sorted) {
		p.add(n, f)
	}
	readers := p.countReaders(g, f)
	p.planPostponed(readers)
	p.planFrees()
	for _, s := range p.steps {
		if s.back {
			p.trains = true
			shared := func(r *result) bool { return p.held[r] || readers[r] != 1 }
			s.spends = len(s.reads) == len(s.op().(*gradients).reads) && !slices.ContainsFunc(s.reads, shared)
			s.bias, s.adds = p.biasAlong(g, s), p.addend(f, s)
		}
	}
	p.planGathers()
	for _, n := range all {
		if op, ok := n.Op().(*reshape); ok {
			p.shared[op.id] = f.isExposed(handedOn(n))
		}
	}
	for _, s := range p.steps {
		s.c.plan = p
	}
	return p
}

func (s *step) op() gorgonia.Op { return s.node.Op() }

// add adds the step of a node, if it is one.
func (p *plan) add(n *gorgonia.Node, f *finder) {
	s := &step{at: len(p.steps), node: n}
	var id uint64
	switch op := n.Op().(type) {
	case *call:
		s.c, id = op, op.id
		for _, o := range op.outputs {
			s.exposed = append(s.exposed, f.isExposed(o.node))
		}
	case *gradients:
		s.c, s.back, id = op.c, true, op.id
		s.wanted = make([]bool, len(op.nodes))
		for i, d := range op.nodes {
			s.wanted[i] = d != nil && (op.alone >= 0 || op.asked[i] || isUsed(d))
		}
		if forward := p.of[op.c.id]; forward != nil {
			forward.wanted = s.wanted
		}
	default:
		return
	}
	p.steps = append(p.steps, s)
	p.of[id] = s
	for _, child := range n.Op().(reader).readNodes() {
		s.reads = append(s.reads, f.resultsBehind(child)...)
	}
	s.reads = distinct(s.reads)
}

// isUsed reports whether something uses a gradient: a node above it, or the node whose gradient it
// is. Gorgonia asks for the gradients of all inputs of an op, also of those that are constants to
// it.
func isUsed(gradient *gorgonia.Node) bool {
	if len(gradient.DerivOf()) > 0 {
		return true
	}
	parents := gradient.Graph().To(gradient.ID())
	return parents != nil && parents.Len() > 0
}

// countReaders counts the steps that read each result, and finds out which results are held.
func (p *plan) countReaders(g *gorgonia.ExprGraph, f *finder) map[*result]int {
	readers := map[*result]int{}
	for _, s := range p.steps {
		for _, r := range s.reads {
			readers[r]++
		}
	}
	for _, n := range g.AllNodes() {
		if w, ok := n.Op().(writer); ok && w.written() != nil {
			if c, _ := callOf(n); readers[w.written()] == 0 && c != nil && c.repeats {
				p.held[w.written()] = f.isKept(n)
				continue
			}
			p.held[w.written()] = readers[w.written()] == 0 || f.isSeen(n)
		}
	}
	return readers
}

// planFrees finds out who reads a result last. What nothing reads is freed where it is computed.
func (p *plan) planFrees() {
	last := map[*result]*step{}
	for _, s := range p.steps {
		for _, r := range s.reads {
			last[r] = s
		}
	}
	for _, s := range p.steps {
		for _, r := range s.reads {
			if last[r] == s && !p.held[r] {
				s.frees = append(s.frees, r)
			}
		}
		if s.back || !s.c.repeats {
			continue
		}
		s.unread = true
		for _, r := range s.writes() {
			held, known := p.held[r]
			isUnread := last[r] == nil && known && !held
			if s.unread = s.unread && isUnread; isUnread {
				s.frees = append(s.frees, r)
			}
		}
	}
}

// planPostponed finds the steps whose work the one step that reads them may do, with what they
// read.
func (p *plan) planPostponed(readers map[*result]int) {
	for _, s := range p.steps {
		if s.back || s.wanted != nil {
			continue
		}
		for _, input := range s.c.is.joins.takes {
			before, r := p.postponable(s, input)
			if before == nil || p.held[r] || readers[r] != 1 {
				continue
			}
			if before.postpones = true; s.before == nil {
				s.before = map[int]*step{}
			}
			s.before[input], s.reads = before, distinct(append(s.reads, before.reads...))
		}
	}
}

// postponable is the step that gives one input of another, and that result, if it may leave its
// work to the other.
func (p *plan) postponable(s *step, input int) (before *step, r *result) {
	n := s.c.operands[input].node
	if n == nil {
		return nil, nil
	}
	for i, o := range s.c.operands {
		if o.node == n && i != input {
			return nil, nil
		}
	}
	c, output := (*call)(nil), 0
	switch op := n.Op().(type) {
	case *call:
		c = op
	case outputPick:
		c, output = op.c, op.i
	}
	if c == nil || c.is.joins.postpones != output+1 || c.is.joins.product == s.c.is.joins.product {
		return nil, nil
	}
	if before = p.of[c.id]; before == nil || before.wanted != nil {
		return nil, nil
	}
	return before, &c.outputs[output].memory
}

// biasAlong is the call whose bias has a gradient that a step computes along: the sums over the
// rows of the gradient that the step gives to that call's output.
func (p *plan) biasAlong(g *gorgonia.ExprGraph, s *step) *call {
	input := s.c.is.sums
	if input == 0 {
		return nil
	}
	n := s.c.operands[input].node
	for s.c.operands[input].shared {
		input--
	}
	before, ok := n.Op().(*call)
	times := 0
	for _, o := range s.c.operands {
		if o.node == n {
			times++
		}
	}
	if !ok || times > 1 || !before.isAlone() || !s.wanted[input] {
		return nil
	}
	if bias, wanted := before.is.bias, p.of[before.id].wanted; bias == 0 || wanted == nil || !wanted[bias] {
		return nil
	}
	// The gradient is the step's alone where nothing else reads the output, but for the gradients
	// of the call.
	for parents := g.To(n.ID()); parents.Next(); {
		switch op := parents.Node().(*gorgonia.Node).Op().(type) {
		case *call:
			ok = ok && op == s.c
		case *gradients:
			ok = ok && op.c == before
		default:
			ok = false
		}
	}
	if !ok {
		return nil
	}
	return before
}

// planGathers has shared weights gathered before the steps that read them run: beside a step that
// leaves room for transfers, all that is gathered up to the next one. So a device holds at most
// what two layers read.
func (p *plan) planGathers() {
	var room *step
	var begun []*wholeTensor
	for _, s := range p.steps {
		switch of := s.c.is.gathers; {
		case s.c.is.leavesRoom:
			room, begun, p.room = s, nil, s.at
		case room == nil || of == nil || s.back:
		case slices.Contains(begun, of.of): // forward, and backward at once
			room = nil
		default:
			room.beside, begun = append(room.beside, s), append(begun, of.of)
		}
	}
}

// finder finds out about the nodes of a graph.
type finder struct {
	graph  *gorgonia.ExprGraph
	isKept func(*gorgonia.Node) bool
	behind map[*gorgonia.Node][]*result // the results whose memory a node's value may share
	seen   map[*gorgonia.Node]bool      // by someone who may look at the value after the run
}

// resultsBehind finds the results whose memory a node's value may share. An op of Gorgonia's may
// hand on the memory of what it reads, as Reshape does and an addition in place, so who reads its
// result reads that too.
func (f *finder) resultsBehind(n *gorgonia.Node) (list []*result) {
	if w, ok := n.Op().(writer); ok {
		if r := w.written(); r != nil {
			return []*result{r}
		}
		return nil
	}
	if list, ok := f.behind[n]; ok || n.Op() == nil {
		return list
	}
	if op, ok := n.Op().(handsOn); ok {
		return f.resultsBehind(op.handsOn())
	}
	for children := f.graph.From(n.ID()); children != nil && children.Next(); {
		list = append(list, f.resultsBehind(children.Node().(*gorgonia.Node))...)
	}
	f.behind[n] = distinct(list)
	return f.behind[n]
}

// isSeen reports whether someone may look at a node's value after the run.
func (f *finder) isSeen(n *gorgonia.Node) bool {
	if is, ok := f.seen[n]; ok {
		return is
	}
	parents := f.graph.To(n.ID())
	is := f.isKept(n) || isGradientOfInput(n) || parents == nil || parents.Len() == 0
	for !is && parents.Next() {
		switch parent := parents.Node().(*gorgonia.Node); op := parent.Op().(type) {
		case reader, writer:
		case handsOn: // what is not computed again after all is no root of the graph
			is = op.handsOn() == n && f.graph.To(parent.ID()).Len() > 0 && f.isSeen(parent)
		default: // a statement, which Gorgonia gives an arity of 0, or an op that may hand the memory on
			is = op.Arity() == 0 || f.isSeen(parent)
		}
	}
	f.seen[n] = is
	return is
}

// isGradientOfInput reports whether a node is the gradient of an input of the graph, such as a
// parameter. Other gradients may be computed from it: the gradient of a sum is that of its terms.
func isGradientOfInput(n *gorgonia.Node) bool {
	return slices.ContainsFunc(n.DerivOf(), func(of *gorgonia.Node) bool { return of.Op() == nil })
}

// isExposed reports whether an op that is not of this package reads a node, which may write over
// it.
func (f *finder) isExposed(n *gorgonia.Node) bool {
	for parents := f.graph.To(n.ID()); parents != nil && parents.Next(); {
		switch parent := parents.Node().(*gorgonia.Node); parent.Op().(type) {
		case reader, writer:
		case handsOn, *reshape, *recompute:
			if f.isExposed(parent) {
				return true
			}
		default: // but for statements, which Gorgonia gives an arity of 0
			if parent.Op().Arity() > 0 {
				return true
			}
		}
	}
	return false
}

// handedOn is the node whose memory a node's value is.
func handedOn(n *gorgonia.Node) *gorgonia.Node {
	switch op := n.Op().(type) {
	case handsOn:
		return handedOn(op.handsOn())
	case *recompute:
		return handedOn(op.out)
	case *reshape:
		return handedOn(childrenOf(n)[0])
	}
	return n
}

// distinct leaves out what is in a list already, and keeps its order.
func distinct(list []*result) []*result {
	var kept []*result
	for _, r := range list {
		if !slices.Contains(kept, r) {
			kept = append(kept, r)
		}
	}
	return kept
}
