package jinja

import "slices"

// arguments are those of a call: plain ones, a list of more, named ones and an object of more.
type arguments struct {
	plain  []expression
	list   expression
	names  []string
	named  []expression
	object expression
}

// given are the values of arguments.
type given struct {
	list  []value
	names []string
	named []value
}

func (a *arguments) eval(s *scope) given {
	g := given{names: slices.Clip(a.names)}
	for _, e := range a.plain {
		g.list = append(g.list, e.eval(s))
	}
	if a.list != nil {
		g.list = append(g.list, listed(s.run, a.list.eval(s))...)
	}
	for _, e := range a.named {
		g.named = append(g.named, e.eval(s))
	}
	if a.object != nil {
		v := a.object.eval(s)
		d, ok := v.(*dict)
		if !ok {
			fail("what follows ** is %s, it needs to be an object", quote(typeName(v)))
		}
		for i, key := range d.keys {
			name, ok := asString(key)
			if !ok {
				fail("keywords must be strings")
			}
			if slices.Contains(g.names, name) {
				fail("got multiple values for keyword argument %s", quote(name))
			}
			g.names, g.named = append(g.names, name), append(g.named, d.values[i])
		}
	}
	s.run.step(1 + len(g.list) + len(g.names))
	return g
}

// absent stands for a parameter that is not given.
type absent struct{}

// bind sets the parameters of a function of Python in their order. Those behind a * are given by
// name only.
func (g given) bind(function string, required int, parameters ...string) []value {
	named := slices.Index(parameters, "*")
	if named >= 0 {
		parameters = slices.Delete(slices.Clone(parameters), named, named+1)
	} else {
		named = len(parameters)
	}
	if len(g.list) > named {
		fail("%s() takes at most %d arguments (%d given)", function, named, len(g.list))
	}
	bound := make([]value, len(parameters))
	for i := range bound {
		bound[i] = absent{}
	}
	copy(bound, g.list)
	for i, name := range g.names {
		at := slices.Index(parameters, name)
		if at < 0 {
			fail("%s() got an unexpected keyword argument %s", function, quote(name))
		}
		if at < len(g.list) {
			fail("%s() got multiple values for argument %s", function, quote(name))
		}
		bound[at] = g.named[i]
	}
	for i := range required {
		if bound[i] == (absent{}) {
			fail("%s() misses the argument %s", function, quote(parameters[i]))
		}
	}
	return bound
}

// function is something that templates call.
type function struct {
	name  string
	macro bool
	call  func(*run, given) value
}

type call struct {
	of    expression
	given arguments
	line  int
}

func (c *call) eval(s *scope) value {
	of := c.of.eval(s)
	return invoke(s.run, of, c.given.eval(s))
}

func invoke(r *run, of value, a given) value {
	r.step(1)
	switch f := of.(type) {
	case *function:
		return f.call(r, a)
	case *loopContext:
		if f.again == nil {
			fail("The loop must have the 'recursive' marker to be called recursively.")
		}
		return f.again(a.bind("loop", 1, "iterable")[0])
	}
	defined(of)
	fail("%s object is not callable", quote(typeName(of)))
	return nil
}

// filtered is a value through a filter.
type filtered struct {
	of       expression // nil where a statement gives the value
	name     string
	function func(*run, value, given) value
	given    arguments
}

func (f *filtered) eval(s *scope) value { return f.apply(s, f.of.eval(s)) }

func (f *filtered) apply(s *scope, v value) value {
	s.run.step(1)
	return f.function(s.run, v, f.given.eval(s))
}

// applied sends a value through the filters of a statement.
func applied(e expression, s *scope, v value) value {
	f := e.(*filtered)
	if f.of != nil {
		v = applied(f.of, s, v)
	}
	return f.apply(s, v)
}

// tested is whether a value passes a test.
type tested struct {
	of       expression
	name     string
	function func(*run, value, given) value
	given    arguments
}

func (t *tested) eval(s *scope) value {
	s.run.step(1)
	v := t.of.eval(s)
	return t.function(s.run, v, t.given.eval(s))
}

// unknown is a filter or a test that is not known, which matters where it is used.
func unknown(what, name string) func(*run, value, given) value {
	return func(*run, value, given) value {
		fail("No %s named %s found.", what, quote(name))
		return nil
	}
}
