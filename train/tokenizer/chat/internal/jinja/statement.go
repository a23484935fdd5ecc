package jinja

import "slices"

// scope holds the names of a template, a loop's turn, a macro's call or a block. A name that it
// does not have is looked for around it.
type scope struct {
	run   *run
	up    *scope
	names []string
	// values are those of the names. Where there are many names, at says where each is.
	values []value
	at     map[string]int
}

// manyNames is from how many names on a scope looks them up in a map.
const manyNames = 16

// run is what one rendering shares.
type run struct {
	meter
	globals map[string]value
}

func (s *scope) inner() *scope { return &scope{run: s.run, up: s} }

func (s *scope) set(name string, v value) {
	if i := s.index(name); i >= 0 {
		s.values[i] = v
		return
	}
	s.names, s.values = append(s.names, name), append(s.values, v)
	switch {
	case s.at != nil:
		s.at[name] = len(s.names) - 1
	case len(s.names) > manyNames:
		s.at = map[string]int{}
		for i, name := range s.names {
			s.at[name] = i
		}
	}
}

// index is where a name is, and below 0 where the scope itself does not have it.
func (s *scope) index(name string) int {
	if s.at == nil {
		return slices.Index(s.names, name)
	}
	if i, ok := s.at[name]; ok {
		return i
	}
	return -1
}

func (s *scope) find(name string) value {
	for at := s; at != nil; at = at.up {
		if i := at.index(name); i >= 0 {
			return at.values[i]
		}
	}
	if v, ok := s.run.globals[name]; ok {
		return v
	}
	return &undefined{hint: quote(name) + " is undefined"}
}

// flow is how a statement ends.
type flow int

const (
	goesOn flow = iota
	broken
	continued
)

type statement interface {
	run(s *scope, w *writer) flow
}

// sequence runs statements one after another.
type sequence []statement

func (list sequence) run(s *scope, w *writer) flow {
	for _, one := range list {
		s.run.step(1)
		if f := one.run(s, w); f != goesOn {
			return f
		}
	}
	return goesOn
}

// captured is what statements write.
func captured(s *scope, body sequence) (string, flow) {
	w := &writer{meter: &s.run.meter}
	f := body.run(s, w)
	return string(w.text), f
}

type text string

func (t text) run(s *scope, w *writer) flow {
	w.write(string(t))
	return goesOn
}

type output struct{ of expression }

func (o output) run(s *scope, w *writer) flow {
	w.write(str(s.run, o.of.eval(s)))
	return goesOn
}

type jump flow

func (j jump) run(*scope, *writer) flow { return flow(j) }

type choice struct {
	conditions []expression
	bodies     []([]statement)
	otherwise  []statement
}

func (c *choice) run(s *scope, w *writer) flow {
	for i, condition := range c.conditions {
		s.run.step(1)
		if truth(condition.eval(s)) {
			return sequence(c.bodies[i]).run(s, w)
		}
	}
	return sequence(c.otherwise).run(s, w)
}

// target is a name, an attribute of a namespace, or a list of such.
type target struct {
	name, attribute string
	list            []target
}

func (t target) assign(s *scope, v value) {
	switch {
	case t.name == "":
		items := listed(s.run, v)
		if len(items) != len(t.list) {
			fail("%d values cannot be unpacked into %d names", len(items), len(t.list))
		}
		for i, one := range t.list {
			one.assign(s, items[i])
		}
	case t.attribute == "":
		s.set(t.name, v)
	default:
		n, ok := s.find(t.name).(*namespace)
		if !ok {
			fail("cannot assign attribute on non-namespace object")
		}
		n.put(s.run, t.attribute, v)
	}
}

type assign struct {
	target target
	value  expression
}

func (a *assign) run(s *scope, _ *writer) flow {
	a.target.assign(s, a.value.eval(s))
	return goesOn
}

// assignBlock assigns what its body writes, through filters if there are any.
type assignBlock struct {
	target target
	filter expression
	body   sequence
}

func (a *assignBlock) run(s *scope, _ *writer) flow {
	inner := s.inner()
	written, f := captured(inner, a.body)
	v := value(written)
	if a.filter != nil {
		v = applied(a.filter, inner, v)
	}
	a.target.assign(s, v)
	return f
}

type filterBlock struct {
	filter expression
	body   sequence
}

func (b *filterBlock) run(s *scope, w *writer) flow {
	inner := s.inner()
	written, f := captured(inner, b.body)
	v := applied(b.filter, inner, written)
	if _, ok := asString(v); !ok {
		fail("sequence item: expected str instance, %s found", typeName(v)) // as Jinja joins what is written
	}
	w.write(str(s.run, v))
	return f
}

type scoped struct{ body sequence }

func (b *scoped) run(s *scope, w *writer) flow { return b.body.run(s.inner(), w) }

type with struct {
	names  []target
	values []expression
	body   sequence
}

func (b *with) run(s *scope, w *writer) flow {
	inner := s.inner()
	for i, name := range b.names {
		name.assign(inner, b.values[i].eval(s))
	}
	return b.body.run(inner, w)
}

type loop struct {
	target          target
	items, test     expression
	recursive       bool
	body, otherwise sequence
}

func (l *loop) run(s *scope, w *writer) flow {
	return l.over(s, w, l.items.eval(s), 0)
}

// over runs the loop over the items of a value.
func (l *loop) over(s *scope, w *writer, items value, depth int) flow {
	next := iterate(s.run, items)
	length := -1
	if n, ok := lengthOf(items); ok {
		length = n
	}
	if l.test != nil {
		all := next
		length = -1
		inner := s.inner()
		next = func() (value, bool) {
			for {
				v, ok := all()
				if !ok {
					return nil, false
				}
				s.run.step(1)
				l.target.assign(inner, v)
				if truth(l.test.eval(inner)) {
					return v, true
				}
			}
		}
	}
	c := &loopContext{next: next, length: length, index: -1, depth: depth}
	if l.recursive {
		c.again = func(items value) value {
			s.run.enter()
			defer s.run.leave()
			inner := &writer{meter: &s.run.meter}
			l.over(s, inner, items, depth+1)
			return string(inner.text)
		}
	}
	whole := 0
	for c.advance() {
		s.run.step(1)
		inner := s.inner()
		inner.set("loop", c)
		l.target.assign(inner, c.current)
		f := l.body.run(inner, w)
		if f == broken {
			break
		}
		if f == goesOn {
			whole++
		}
	}
	// As in Jinja, else is for loops without a whole turn.
	if whole == 0 {
		return l.otherwise.run(s.inner(), w)
	}
	return goesOn
}

// loopContext is the variable loop.
type loopContext struct {
	next           func() (value, bool)
	current        value
	previous       value
	ahead          []value // at most one, looked at before its turn
	rest           []value // what a look at the length has read
	read           bool
	index, length  int
	depth          int
	changed        value
	wasAsked       bool
	again          func(value) value
	previousExists bool
}

func (c *loopContext) source() (value, bool) {
	if !c.read {
		return c.next()
	}
	if len(c.rest) == 0 {
		return nil, false
	}
	v := c.rest[0]
	c.rest = c.rest[1:]
	return v, true
}

func (c *loopContext) peek() (value, bool) {
	if len(c.ahead) == 0 {
		v, ok := c.source()
		if !ok {
			return nil, false
		}
		c.ahead = []value{v}
	}
	return c.ahead[0], true
}

func (c *loopContext) advance() bool {
	v, ok := c.peek()
	if !ok {
		return false
	}
	c.ahead = c.ahead[:0]
	c.previous, c.previousExists = c.current, c.index >= 0
	c.current = v
	c.index++
	return true
}

func (c *loopContext) count() int {
	if c.length < 0 {
		var rest []value
		for v, ok := c.source(); ok; v, ok = c.source() {
			rest = append(rest, v)
		}
		c.rest, c.read = rest, true
		c.length = len(rest) + c.index + 1 + len(c.ahead)
	}
	return c.length
}

// attribute is loop.name, and false where it has none of this name.
func (c *loopContext) attribute(s *run, name string) (value, bool) {
	switch name {
	case "index":
		return c.index + 1, true
	case "index0":
		return c.index, true
	case "revindex":
		return c.count() - c.index, true
	case "revindex0":
		return c.count() - c.index - 1, true
	case "first":
		return c.index == 0, true
	case "last":
		_, more := c.peek()
		return !more, true
	case "length":
		return c.count(), true
	case "depth":
		return c.depth + 1, true
	case "depth0":
		return c.depth, true
	case "previtem":
		if !c.previousExists {
			return &undefined{hint: "there is no previous item"}, true
		}
		return c.previous, true
	case "nextitem":
		v, more := c.peek()
		if !more {
			return &undefined{hint: "there is no next item"}, true
		}
		return v, true
	case "cycle":
		return &function{name: "cycle", call: func(_ *run, a given) value {
			if len(a.list) == 0 {
				fail("no items for cycling given")
			}
			return a.list[c.index%len(a.list)]
		}}, true
	case "changed":
		return &function{name: "changed", call: func(r *run, a given) value {
			now := &list{items: a.list}
			if c.wasAsked && equal(r, c.changed, now, 0) {
				return false
			}
			c.changed, c.wasAsked = now, true
			return true
		}}, true
	}
	return nil, false
}

type macro struct {
	name       string
	parameters []string
	defaults   []expression
	body       sequence
	extra      map[string]bool // of caller, kwargs and varargs, those that it uses
}

func (m *macro) run(s *scope, _ *writer) flow {
	s.set(m.name, m.in(s))
	return goesOn
}

// in is the macro as a function that sees the names of the scope where it stands.
func (m *macro) in(s *scope) *function {
	return &function{name: m.name, macro: true, call: func(r *run, a given) value {
		r.enter()
		defer r.leave()
		r.step(1)
		inner := s.inner()
		m.bind(r, inner, a)
		written, _ := captured(inner, m.body)
		return written
	}}
}

func (m *macro) bind(r *run, s *scope, a given) {
	named := newDict()
	for i, name := range a.names {
		named.put(r, name, a.named[i])
	}
	explicitCaller := false
	for i, name := range m.parameters {
		var v value
		if i < len(a.list) {
			v = a.list[i]
		} else if given, ok := named.take(name); ok {
			v = given
		} else if d := i - (len(m.parameters) - len(m.defaults)); d >= 0 {
			v = m.defaults[d].eval(s)
		} else {
			v = &undefined{hint: "parameter " + quote(name) + " was not provided"}
		}
		explicitCaller = explicitCaller || name == "caller"
		s.set(name, v)
	}
	if m.extra["caller"] && !explicitCaller {
		caller, ok := named.take("caller")
		if !ok {
			caller = &undefined{hint: "No caller defined"}
		}
		s.set("caller", caller)
	}
	rest := a.list[min(len(a.list), len(m.parameters)):]
	switch {
	case m.extra["kwargs"]:
		s.set("kwargs", named)
	case len(named.keys) > 0:
		fail("macro %s takes no keyword argument %s", quote(m.name), repr(r, named.keys[0]))
	}
	switch {
	case m.extra["varargs"]:
		s.set("varargs", &list{items: rest, tuple: true})
	case len(rest) > 0:
		fail("macro %s takes not more than %d argument(s)", quote(m.name), len(m.parameters))
	}
}

// callBlock calls a macro, which gets the block as the function caller.
type callBlock struct {
	call   *call
	caller *macro
}

func (c *callBlock) run(s *scope, w *writer) flow {
	a := c.call.given.eval(s)
	a.names, a.named = append(a.names, "caller"), append(a.named, c.caller.in(s))
	w.write(str(s.run, invoke(s.run, c.call.of.eval(s), a)))
	return goesOn
}
