package jinja

import (
	"math"
	"strings"
	"unicode/utf8"
)

// value is what an expression gives: nil for None, a bool, an int, a float64, a string, a markup,
// or one of the types below. Only namespaces and generators change once they are made.
type value = any

// markup is text that the filter safe has marked. What is added to it is escaped.
type markup string

// list is a list or a tuple.
type list struct {
	items []value
	tuple bool
}

// slice is from:to:step, of which each may be None.
type slice struct{ from, to, step value }

// numbers is a range.
type numbers struct{ start, stop, step, count int }

// generator is what some filters give: values that can be had once.
type generator struct {
	next func() (value, bool)
	name string
}

func (g *generator) String() string { return "<generator object " + g.name + ">" }

// dict is an object, whose keys keep the order in which they were set.
type dict struct {
	keys, values []value
	at           map[any]int
}

func newDict() *dict { return &dict{at: map[any]int{}} }

// tupleKey stands for a tuple that is a key.
type tupleKey struct{ text string }

// hashed is what stands for a key in a map: numbers that are equal have one.
func hashed(r *run, v value, depth int) any {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
		return 0
	case float64:
		if n := int(v); float64(n) == v && math.Abs(v) < 1<<62 {
			return n
		}
		return v
	case markup:
		return string(v)
	case nil, int, string:
		return v
	case *undefined:
		return undefined{}
	case *list:
		if v.tuple {
			var b strings.Builder
			for _, one := range v.items {
				h := hashed(r, one, deeper(depth))
				s := repr(r, h)
				if t, ok := h.(tupleKey); ok {
					s = "(" + t.text + ")"
				}
				b.WriteString(s + ",")
			}
			r.grow(b.Len())
			return tupleKey{b.String()}
		}
	case *function, *loopContext, *namespace, *numbers, *generator:
		return v
	}
	fail("unhashable type: %s", quote(typeName(v)))
	return nil
}

func (d *dict) put(r *run, key, v value) {
	h := hashed(r, key, 0)
	if i, ok := d.at[h]; ok {
		d.values[i] = v
		return
	}
	d.at[h] = len(d.keys)
	d.keys, d.values = append(d.keys, key), append(d.values, v)
}

func (d *dict) get(r *run, key value) (value, bool) {
	if i, ok := d.at[hashed(r, key, 0)]; ok {
		return d.values[i], true
	}
	return nil, false
}

// take gets a value by its name and removes it.
func (d *dict) take(name string) (value, bool) {
	i, ok := d.at[name]
	if !ok {
		return nil, false
	}
	v := d.values[i]
	d.keys, d.values = append(d.keys[:i:i], d.keys[i+1:]...), append(d.values[:i:i], d.values[i+1:]...)
	delete(d.at, name)
	for h, at := range d.at {
		if at > i {
			d.at[h] = at - 1
		}
	}
	return v, true
}

func (d *dict) pairs() []value {
	items := make([]value, len(d.keys))
	for i, key := range d.keys {
		items[i] = &list{items: []value{key, d.values[i]}, tuple: true}
	}
	return items
}

// view is what keys, values or items of an object give.
type view struct {
	of   *dict
	what string
}

func (v *view) items() []value {
	switch v.what {
	case "keys":
		return v.of.keys
	case "values":
		return v.of.values
	}
	return v.of.pairs()
}

// namespace is what set may change the attributes of.
type namespace struct{ fields *dict }

func (n *namespace) put(r *run, name string, v value) {
	if strings.HasPrefix(name, "_") {
		fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got %s.", quote(name))
	}
	r.grow(4 * perItem)
	n.fields.put(r, name, v)
}

// undefined is a value that is missing, and why.
type undefined struct{ hint string }

func undefinedItem(of, key value) *undefined {
	kind := ""
	switch of := of.(type) {
	case nil:
		kind = "None"
	case *undefined:
		fail("%s", of.hint)
	default:
		kind = typeName(of) + " object"
	}
	if name, ok := asString(key); ok {
		return &undefined{hint: quote(kind) + " has no attribute " + quote(name)}
	}
	return &undefined{hint: kind + " has no element " + repr(nil, key)}
}

// defined fails for a value that is undefined.
func defined(values ...value) {
	for _, v := range values {
		if u, ok := v.(*undefined); ok {
			fail("%s", u.hint)
		}
	}
}

// typeName is what Python calls a value's type.
func typeName(v value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *list:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *dict:
		return "dict"
	case *view:
		return "dict_" + v.what
	case *numbers:
		return "range"
	case *slice:
		return "slice"
	case *generator:
		return "generator"
	case *namespace:
		return "Namespace"
	case *undefined:
		return "Undefined"
	case *loopContext:
		return "LoopContext"
	case *function:
		if v.macro {
			return "Macro"
		}
	}
	return "function"
}

func asString(v value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// asInt is an integer, which a truth value is as well.
func asInt(v value) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func asFloat(v value) (float64, bool) {
	if f, ok := v.(float64); ok {
		return f, true
	}
	n, ok := asInt(v)
	return float64(n), ok
}

func isNumber(v value) bool {
	_, ok := asFloat(v)
	return ok
}

// truth is whether a value counts as true.
func truth(v value) bool {
	switch v := v.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case absent:
		return false
	}
	if n, ok := lengthOf(v); ok {
		return n > 0
	}
	return true
}

// lengthOf is a value's length, and false where it has none.
func lengthOf(v value) (int, bool) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case markup:
		return utf8.RuneCountInString(string(v)), true
	case *list:
		return len(v.items), true
	case *dict:
		return len(v.keys), true
	case *view:
		return len(v.of.keys), true
	case *numbers:
		return v.count, true
	case *undefined:
		return 0, true
	case *loopContext:
		return v.count(), true
	}
	return 0, false
}

// iterate is a value's items one by one.
func iterate(r *run, v value) func() (value, bool) {
	switch v := v.(type) {
	case *generator:
		return v.next
	case *numbers:
		i := 0
		return func() (value, bool) {
			if i >= v.count {
				return nil, false
			}
			i++
			return v.start + (i-1)*v.step, true
		}
	}
	s, isText := asString(v)
	var items []value
	switch v := v.(type) {
	case *list:
		items = v.items
	case *dict:
		items = v.keys
	case *view:
		items = v.items()
		r.grow(perItem * len(items))
	case *undefined:
	default:
		if !isText {
			fail("%s object is not iterable", quote(typeName(v)))
		}
	}
	i := 0
	return func() (value, bool) {
		if isText && i < len(s) {
			_, size := utf8.DecodeRuneInString(s[i:])
			i += size
			return s[i-size : i], true
		}
		if i >= len(items) {
			return nil, false
		}
		i++
		return items[i-1], true
	}
}

func iterable(v value) bool {
	switch v.(type) {
	case string, markup, *list, *dict, *view, *numbers, *generator, *undefined, *loopContext:
		return true
	}
	return false
}

// listed is all items of a value.
func listed(r *run, v value) []value {
	if l, ok := v.(*list); ok {
		return l.items
	}
	var items []value
	next := iterate(r, v)
	for one, ok := next(); ok; one, ok = next() {
		r.step(1)
		r.grow(perItem)
		items = append(items, one)
	}
	return items
}

func equal(r *run, a, b value, depth int) bool {
	r.step(1)
	if x, ok := asFloat(a); ok {
		if n, ok := asInt(a); ok {
			if m, ok := asInt(b); ok {
				return n == m
			}
		}
		y, ok := asFloat(b)
		return ok && x == y
	}
	if x, ok := asString(a); ok {
		y, ok := asString(b)
		if !ok || len(x) != len(y) {
			return false
		}
		r.grow(len(x))
		return x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *list:
		b, ok := b.(*list)
		if !ok || a.tuple != b.tuple || len(a.items) != len(b.items) {
			return false
		}
		for i, one := range a.items {
			if !equal(r, one, b.items[i], deeper(depth)) {
				return false
			}
		}
		return true
	case *dict:
		b, ok := b.(*dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for i, key := range a.keys {
			other, ok := b.get(r, key)
			if !ok || !equal(r, a.values[i], other, deeper(depth)) {
				return false
			}
		}
		return true
	case *numbers:
		b, ok := b.(*numbers)
		return ok && a.count == b.count && (a.count == 0 || a.start == b.start && (a.count == 1 || a.step == b.step))
	case *view:
		b, ok := b.(*view)
		return ok && a.what == b.what && a.what != "values" && equal(r, a.of, b.of, depth)
	case *slice:
		return false
	}
	return a == b // the same function, loop and the like
}

// same is whether Python holds one object for both, where that can be told.
func same(a, b value) bool {
	switch a := a.(type) {
	case nil, bool, int, string, *list, *dict, *namespace, *function, *loopContext, *numbers, *generator:
		return a == b
	}
	return false
}

// less orders two values as < does, and fails where Python does.
func less(r *run, a, b value, depth int, sign string) bool {
	r.step(1)
	defined(a, b)
	if x, ok := asFloat(a); ok {
		if y, ok := asFloat(b); ok {
			n, both := asInt(a)
			if m, ok := asInt(b); both && ok {
				return n < m
			}
			return x < y
		}
	}
	if x, ok := asString(a); ok {
		if y, ok := asString(b); ok {
			r.grow(min(len(x), len(y)))
			return x < y // the order of UTF-8 is that of the characters
		}
	}
	x, ok := a.(*list)
	if y, also := b.(*list); ok && also && x.tuple == y.tuple {
		for i := range min(len(x.items), len(y.items)) {
			if !equal(r, x.items[i], y.items[i], deeper(depth)) {
				return less(r, x.items[i], y.items[i], deeper(depth), sign)
			}
		}
		return len(x.items) < len(y.items)
	}
	fail("%s not supported between instances of %s and %s", quote(sign), quote(typeName(a)), quote(typeName(b)))
	return false
}

// compared is a comparison by its sign.
func compared(r *run, sign string, a, b value) bool {
	switch sign {
	case "==":
		return equal(r, a, b, 0)
	case "!=":
		return !equal(r, a, b, 0)
	case "<":
		return less(r, a, b, 0, sign)
	case ">":
		return less(r, b, a, 0, sign)
	case "<=":
		return less(r, a, b, 0, sign) || equal(r, a, b, 0)
	case ">=":
		return less(r, b, a, 0, sign) || equal(r, a, b, 0)
	case "not in":
		return !contains(r, b, a)
	}
	return contains(r, b, a)
}

// contains is whether a value holds another, as in does.
func contains(r *run, of, one value) bool {
	switch of := of.(type) {
	case string, markup:
		s, _ := asString(of)
		part, ok := asString(one)
		if !ok {
			fail("'in <string>' requires string as left operand, not %s", typeName(one))
		}
		r.grow(len(s))
		return strings.Contains(s, part)
	case *dict:
		_, ok := of.get(r, one)
		return ok
	case *view:
		if of.what == "keys" {
			_, ok := of.of.get(r, one)
			return ok
		}
	case *namespace:
		fail("argument of type 'Namespace' is not iterable")
	case *numbers:
		if n, ok := asFloat(one); ok && n == math.Trunc(n) && math.Abs(n) < 1<<53 {
			k := int(n) - of.start
			return k%of.step == 0 && k/of.step >= 0 && k/of.step < of.count
		}
		return false
	}
	next := iterate(r, of)
	for v, ok := next(); ok; v, ok = next() {
		if equal(r, v, one, 0) || same(v, one) {
			return true
		}
	}
	return false
}
