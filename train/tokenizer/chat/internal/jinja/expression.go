package jinja

type expression interface {
	eval(s *scope) value
}

type constant struct{ value value }

func (c constant) eval(*scope) value { return c.value }

type variable string

func (v variable) eval(s *scope) value { return s.find(string(v)) }

// display is a list or a tuple.
type display struct {
	items []expression
	tuple bool
}

func (d *display) eval(s *scope) value {
	s.run.step(1 + len(d.items))
	s.run.grow(perItem * (4 + len(d.items)))
	items := make([]value, len(d.items))
	for i, e := range d.items {
		items[i] = e.eval(s)
	}
	return &list{items: items, tuple: d.tuple}
}

type object struct{ keys, values []expression }

func (o *object) eval(s *scope) value {
	s.run.step(1 + len(o.keys))
	s.run.grow(4 * perItem * (2 + len(o.keys)))
	d := newDict()
	for i, key := range o.keys {
		d.put(s.run, key.eval(s), o.values[i].eval(s))
	}
	return d
}

// slicing is from:to:step between brackets, each nil where it is missing.
type slicing struct{ from, to, step expression }

func (e *slicing) eval(s *scope) value {
	part := func(e expression) value {
		if e == nil {
			return nil
		}
		return e.eval(s)
	}
	return &slice{part(e.from), part(e.to), part(e.step)}
}

type ifElse struct{ value, condition, otherwise expression }

func (e *ifElse) eval(s *scope) value {
	s.run.step(1)
	switch {
	case truth(e.condition.eval(s)):
		return e.value.eval(s)
	case e.otherwise != nil:
		return e.otherwise.eval(s)
	}
	return &undefined{hint: "the inline if-expression evaluated to false and no else section was defined."}
}

// logical is an or, or an and: the operand that decided.
type logical struct {
	left, right expression
	or          bool
}

func (e *logical) eval(s *scope) value {
	s.run.step(1)
	v := e.left.eval(s)
	if truth(v) == e.or {
		return v
	}
	return e.right.eval(s)
}

type negation struct{ of expression }

func (e *negation) eval(s *scope) value {
	s.run.step(1)
	return !truth(e.of.eval(s))
}

// comparison compares operands with their neighbours, as in a < b <= c.
type comparison struct {
	first  expression
	signs  []string
	others []expression
}

func (e *comparison) eval(s *scope) value {
	left := e.first.eval(s)
	for i, sign := range e.signs {
		s.run.step(1)
		right := e.others[i].eval(s)
		if !compared(s.run, sign, left, right) {
			return false
		}
		left = right
	}
	return true
}

type arithmetic struct {
	sign        string
	left, right expression
}

func (e *arithmetic) eval(s *scope) value {
	s.run.step(1)
	left := e.left.eval(s)
	return computed(s.run, e.sign, left, e.right.eval(s))
}

type signed struct {
	minus bool
	of    expression
}

func (e *signed) eval(s *scope) value {
	s.run.step(1)
	sign := "+"
	if e.minus {
		sign = "-"
	}
	v := e.of.eval(s)
	defined(v)
	if _, ok := v.(bool); !ok && !isNumber(v) {
		fail("bad operand type for unary %s: %s", sign, quote(typeName(v)))
	}
	if x, ok := v.(float64); ok { // 0 with a sign before it keeps the sign
		if e.minus {
			x = -x
		}
		return x
	}
	return computed(s.run, sign, 0, v)
}

// concatenation joins values as texts, with ~.
type concatenation []expression

func (e concatenation) eval(s *scope) value {
	s.run.step(len(e))
	w := writer{meter: &s.run.meter}
	for _, part := range e {
		w.write(str(s.run, part.eval(s)))
	}
	return string(w.text)
}

type attribute struct {
	of   expression
	name string
}

func (e *attribute) eval(s *scope) value {
	s.run.step(1)
	return attributeOf(s.run, e.of.eval(s), e.name)
}

type item struct{ of, key expression }

func (e *item) eval(s *scope) value {
	s.run.step(1)
	of := e.of.eval(s)
	key := e.key.eval(s)
	if part, ok := key.(*slice); ok {
		defined(of)
		v, ok := sliced(s.run, of, part)
		if !ok {
			fail("%s object is not subscriptable", quote(typeName(of)))
		}
		return v
	}
	return itemOf(s.run, of, key)
}
