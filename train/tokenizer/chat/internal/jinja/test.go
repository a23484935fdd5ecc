package jinja

// tests are what may stand behind is.
var tests map[string]func(*run, value, given) value

func init() {
	tests = map[string]func(*run, value, given) value{
		"odd":     func(r *run, v value, a given) value { return equal(r, computed(r, "%", v, 2), 1, 0) },
		"even":    func(r *run, v value, a given) value { return equal(r, computed(r, "%", v, 2), 0, 0) },
		"defined": func(_ *run, v value, a given) value { return !isUndefined(v) },
		"divisibleby": func(r *run, v value, a given) value {
			return equal(r, computed(r, "%", v, a.bind("divisibleby", 1, "num")[0]), 0, 0)
		},
		"undefined": simple(isUndefined),
		"none":      simple(func(v value) bool { return v == nil }),
		"boolean":   simple(func(v value) bool { _, ok := v.(bool); return ok }),
		"true":      simple(func(v value) bool { b, ok := v.(bool); return ok && b }),
		"false":     simple(func(v value) bool { b, ok := v.(bool); return ok && !b }),
		"integer":   simple(func(v value) bool { _, ok := v.(int); return ok }),
		"float":     simple(func(v value) bool { _, ok := v.(float64); return ok }),
		"number":    simple(isNumber),
		"string":    simple(func(v value) bool { _, ok := asString(v); return ok }),
		"mapping":   simple(func(v value) bool { _, ok := v.(*dict); return ok }),
		"iterable":  simple(iterable),
		"sequence": simple(func(v value) bool {
			switch v.(type) {
			case string, markup, *list, *dict, *numbers, *undefined:
				return true
			}
			return false
		}),
		"callable": simple(func(v value) bool {
			switch v.(type) {
			case *function, *loopContext, *undefined:
				return true
			}
			return false
		}),
		"escaped": simple(func(v value) bool { _, ok := v.(markup); return ok }),
		"lower":   func(r *run, v value, a given) value { return isLower(str(r, v)) },
		"upper":   func(r *run, v value, a given) value { return isUpper(str(r, v)) },
		"filter": func(r *run, v value, a given) value {
			name, _ := hashed(r, v, 0).(string)
			return filters[name] != nil
		},
		"test": func(r *run, v value, a given) value {
			name, _ := hashed(r, v, 0).(string)
			return tests[name] != nil
		},
		"sameas": func(_ *run, v value, a given) value { return same(v, a.bind("sameas", 1, "other")[0]) },
		"in":     func(r *run, v value, a given) value { return contains(r, a.bind("in", 1, "seq")[0], v) },
	}
	for name, sign := range map[string]string{
		"==": "==", "eq": "==", "equalto": "==", "!=": "!=", "ne": "!=", ">": ">", "gt": ">", "greaterthan": ">",
		"ge": ">=", ">=": ">=", "<": "<", "lt": "<", "lessthan": "<", "<=": "<=", "le": "<=",
	} {
		tests[name] = func(r *run, v value, a given) value {
			return compared(r, sign, v, a.bind(name, 1, "other")[0])
		}
	}
}

func isUndefined(v value) bool {
	_, ok := v.(*undefined)
	return ok
}

func simple(is func(value) bool) func(*run, value, given) value {
	return func(_ *run, v value, a given) value {
		a.bind("a test", 0)
		return is(v)
	}
}
