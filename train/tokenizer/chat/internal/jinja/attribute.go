package jinja

import "strings"

// attributeOf is of.name: a method or another attribute, or else the item of this name.
func attributeOf(r *run, of value, name string) value {
	if v, ok := member(r, of, name); ok {
		return v
	}
	if v, ok := subscript(r, of, name); ok {
		return v
	}
	return undefinedItem(of, name)
}

// itemOf is of[key]: the item, or else the attribute of this name.
func itemOf(r *run, of, key value) value {
	if v, ok := subscript(r, of, key); ok {
		return v
	}
	if name, ok := asString(key); ok {
		if v, ok := member(r, of, name); ok {
			return v
		}
	}
	return undefinedItem(of, key)
}

// subscript is the item of a key or an index, and false where there is none.
func subscript(r *run, of, key value) (value, bool) {
	switch of := of.(type) {
	case *dict:
		switch k := key.(type) {
		case *dict, *view, *slice:
			return nil, false
		case *list:
			if !k.tuple {
				return nil, false
			}
		}
		return of.get(r, key)
	case string, markup, *list, *numbers:
		if n, ok := asInt(key); ok {
			return indexed(r, of, n)
		}
	case *undefined:
		defined(of)
	}
	return nil, false
}

// changing are the methods of lists and objects that would change them.
var changing = map[string]string{
	"dict": " clear pop popitem setdefault update ",
	"list": " append clear pop reverse insert sort extend remove ",
}

// ofUndefined are the attributes that what is undefined has, where all others fail.
const ofUndefined = " __add__ __aiter__ __bool__ __call__ __class__ __complex__ __delattr__ __dir__ __div__ __doc__ " +
	"__eq__ __float__ __floordiv__ __format__ __ge__ __getattr__ __getattribute__ __getitem__ __getstate__ __gt__ " +
	"__hash__ __init__ __init_subclass__ __int__ __iter__ __le__ __len__ __lt__ __mod__ __module__ __mul__ __ne__ " +
	"__neg__ __new__ __pos__ __pow__ __radd__ __rdiv__ __reduce__ __reduce_ex__ __repr__ __rfloordiv__ __rmod__ " +
	"__rmul__ __rpow__ __rsub__ __rtruediv__ __setattr__ __sizeof__ __slots__ __str__ __sub__ __subclasshook__ " +
	"__truediv__ "

// member is an attribute of a value as Python has it, and false where it has none of this name.
func member(r *run, of value, name string) (value, bool) {
	kind := typeName(of)
	if strings.HasPrefix(name, "__") && len(name) > 4 && strings.HasSuffix(name, "__") {
		if u, ok := of.(*undefined); ok {
			if !strings.Contains(ofUndefined, " "+name+" ") {
				defined(u)
			}
			kind = "Undefined"
		}
		return unsafe(kind, name), true
	}
	if strings.Contains(changing[kind], " "+name+" ") {
		return unsafe(kind, name), true
	}
	switch of := of.(type) {
	case *undefined:
		defined(of)
	case string:
		return method(stringMethods, of, false, name)
	case markup:
		return method(stringMethods, string(of), true, name)
	case *dict:
		return dictMember(r, of, name)
	case *list:
		return listMember(of, name)
	case *namespace:
		return of.fields.get(r, name)
	case *loopContext:
		return of.attribute(r, name)
	case *function:
		if of.macro && name == "name" {
			if of.name == "" {
				return nil, true // the body of a call
			}
			return of.name, true
		}
	case int, bool, float64:
		return numberMember(of, name)
	}
	return nil, false
}

// unsafe is what a template gets for an attribute that it must not use. Using it fails.
func unsafe(kind, name string) value {
	return &undefined{hint: "access to attribute " + quote(name) + " of " + quote(kind) + " object is unsafe."}
}

func dictMember(_ *run, d *dict, name string) (value, bool) {
	switch name {
	case "keys", "values", "items":
		return &function{name: name, call: func(_ *run, a given) value {
			a.bind(name, 0)
			return &view{d, name}
		}}, true
	case "copy":
		return &function{name: name, call: func(_ *run, a given) value {
			a.bind(name, 0)
			return d
		}}, true
	case "get":
		return &function{name: name, call: func(r *run, a given) value {
			noNames(name, a)
			p := a.bind(name, 1, "key", "default")
			if v, ok := d.get(r, p[0]); ok {
				return v
			}
			if p[1] == (absent{}) {
				return nil
			}
			return p[1]
		}}, true
	}
	return nil, false
}

// noNames fails for arguments by name, which most methods of Python's own types do not have.
func noNames(function string, a given) {
	if len(a.names) > 0 {
		fail("%s() takes no keyword arguments", function)
	}
}

func listMember(l *list, name string) (value, bool) {
	switch {
	case name == "count":
		return &function{name: name, call: func(r *run, a given) value {
			noNames(name, a)
			n := 0
			for _, one := range l.items {
				if equal(r, one, a.bind(name, 1, "value")[0], 0) {
					n++
				}
			}
			return n
		}}, true
	case name == "index":
		return &function{name: name, call: func(r *run, a given) value {
			noNames(name, a)
			p := a.bind(name, 1, "value", "start", "stop")
			s := slice{nil, nil, nil}
			for i, to := range []*value{&s.from, &s.to} {
				if p[i+1] != (absent{}) {
					*to = p[i+1]
				}
			}
			from, _, _, count := s.bounds(len(l.items))
			for i := from; i < from+count; i++ {
				if equal(r, l.items[i], p[0], 0) {
					return i
				}
			}
			fail("%s is not in list", repr(r, p[0]))
			return nil
		}}, true
	case name == "copy" && !l.tuple:
		return &function{name: name, call: func(_ *run, a given) value {
			a.bind(name, 0)
			return l
		}}, true
	}
	return nil, false
}

func numberMember(v value, name string) (value, bool) {
	n, isInt := asInt(v)
	f, _ := asFloat(v)
	switch {
	case name == "real" && isInt, name == "numerator" && isInt:
		return n, true
	case name == "real":
		return f, true
	case name == "imag" && isInt:
		return 0, true
	case name == "imag":
		return 0.0, true
	case name == "denominator" && isInt:
		return 1, true
	case name == "is_integer":
		return &function{name: name, call: func(*run, given) value { return isInt || f == float64(int(f)) }}, true
	case name == "bit_length" && isInt:
		return &function{name: name, call: func(*run, given) value {
			length := 0
			for u := magnitude(n); u > 0; u >>= 1 {
				length++
			}
			return length
		}}, true
	}
	return nil, false
}
