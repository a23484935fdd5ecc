package jinja

import (
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filters are what may stand behind a |.
var filters map[string]func(*run, value, given) value

func init() {
	filters = map[string]func(*run, value, given) value{
		"abs":         filterAbs,
		"attr":        filterAttr,
		"batch":       filterBatch,
		"capitalize":  onText(capitalized),
		"center":      filterCenter,
		"count":       filterLength,
		"d":           filterDefault,
		"default":     filterDefault,
		"dictsort":    filterDictsort,
		"e":           filterEscape,
		"escape":      filterEscape,
		"first":       filterFirst,
		"float":       filterFloat,
		"forceescape": func(r *run, v value, a given) value { return filterEscape(r, str(r, v), a) },
		"format":      filterFormat,
		"groupby":     filterGroupby,
		"indent":      filterIndent,
		"int":         filterInt,
		"items":       filterItems,
		"join":        filterJoin,
		"last":        filterLast,
		"length":      filterLength,
		"list":        filterList,
		"lower":       onText(lower),
		"map":         filterMap,
		"max":         filterExtreme("max", ">"),
		"min":         filterExtreme("min", "<"),
		"reject":      filterSelect("reject", false, false),
		"rejectattr":  filterSelect("rejectattr", true, false),
		"replace":     filterReplace,
		"reverse":     filterReverse,
		"round":       filterRound,
		"safe":        filterSafe,
		"select":      filterSelect("select", false, true),
		"selectattr":  filterSelect("selectattr", true, true),
		"slice":       filterSlice,
		"sort":        filterSort,
		"string":      filterString,
		"sum":         filterSum,
		"title":       onText(filterTitle),
		"tojson":      filterJSON,
		"trim":        filterTrim,
		"truncate":    filterTruncate,
		"unique":      filterUnique,
		"upper":       onText(upper),
		"urlencode":   filterURL,
		"wordcount":   filterWordcount,
	}
}

// soft is a value as a text, and whether it was marked as safe.
func soft(r *run, v value) (string, bool) {
	_, marked := v.(markup)
	s := str(r, v)
	r.grow(len(s))
	return s, marked
}

func onText(f func(string) string) func(*run, value, given) value {
	return func(r *run, v value, a given) value {
		a.bind("a filter of texts", 0)
		s, marked := soft(r, v)
		return remarked(marked, f(s))
	}
}

var wordBegins = regexp.MustCompile(`[-\s({\[<]+`)

func filterTitle(s string) string {
	var b strings.Builder
	word := func(w string) {
		if w != "" {
			_, size := utf8.DecodeRuneInString(w)
			b.WriteString(upper(w[:size]) + lower(w[size:]))
		}
	}
	at := 0
	for _, m := range wordBegins.FindAllStringIndex(s, -1) {
		word(s[at:m[0]])
		b.WriteString(s[m[0]:m[1]])
		at = m[1]
	}
	word(s[at:])
	return b.String()
}

func filterAbs(_ *run, v value, a given) value {
	a.bind("abs", 0)
	defined(v)
	if f, ok := v.(float64); ok {
		return math.Abs(f)
	}
	n, ok := asInt(v)
	if !ok {
		fail("bad operand type for abs(): %s", quote(typeName(v)))
	}
	if n < 0 {
		return computedInts("-", 0, n)
	}
	return n
}

func filterAttr(r *run, v value, a given) value {
	name := needText("attr", a.bind("attr", 1, "name")[0])
	if m, ok := member(r, v, name); ok {
		return m
	}
	return undefinedItem(v, name)
}

func filterDefault(_ *run, v value, a given) value {
	p := a.bind("default", 0, "default_value", "boolean")
	if _, missing := v.(*undefined); missing || p[1] != (absent{}) && truth(p[1]) && !truth(v) {
		if p[0] == (absent{}) {
			return ""
		}
		return p[0]
	}
	return v
}

func filterEscape(r *run, v value, a given) value {
	a.bind("escape", 0)
	if m, ok := v.(markup); ok {
		return m
	}
	return markup(escaped(r, str(r, v)))
}

func filterSafe(r *run, v value, a given) value {
	a.bind("safe", 0)
	return markup(str(r, v))
}

func filterString(r *run, v value, a given) value {
	a.bind("string", 0)
	if m, ok := v.(markup); ok {
		return m
	}
	return str(r, v)
}

func filterCenter(r *run, v value, a given) value {
	s, marked := soft(r, v)
	return remarked(marked, padded(r, s, integer(a.bind("center", 0, "width")[0], 80), " ", 0))
}

func filterTrim(r *run, v value, a given) value {
	s, marked := soft(r, v)
	return remarked(marked, stripped("trim", s, a.bind("trim", 0, "chars")[0], true, true))
}

func filterReplace(r *run, v value, a given) value {
	p := a.bind("replace", 2, "old", "new", "count")
	count := -1
	if p[2] != nil {
		count = integer(p[2], -1)
	}
	return replaced(r, str(r, v), str(r, p[0]), str(r, p[1]), count)
}

func filterFormat(r *run, v value, a given) value {
	s, marked := soft(r, v)
	if len(a.names) > 0 {
		if len(a.list) > 0 {
			fail("can't handle positional and keyword arguments at the same time")
		}
		d := newDict()
		for i, name := range a.names {
			d.put(r, name, a.named[i])
		}
		return remarked(marked, formatPercent(r, s, d, marked))
	}
	return remarked(marked, formatPercent(r, s, &list{items: a.list, tuple: true}, marked))
}

func filterIndent(r *run, v value, a given) value {
	p := a.bind("indent", 0, "width", "first", "blank")
	s, ok := asString(v)
	if !ok {
		defined(v)
		fail("unsupported operand type(s) for +=: %s and 'str'", quote(typeName(v)))
	}
	indention := "    "
	if text, ok := asString(p[0]); ok {
		indention = text
	} else if n := integer(p[0], 4); n != 4 {
		r.growTimes(n, 1)
		indention = strings.Repeat(" ", max(0, n))
	}
	blank := p[2] != (absent{}) && truth(p[2])
	w := writer{meter: &r.meter}
	if p[1] != (absent{}) && truth(p[1]) {
		w.write(indention)
	}
	for i, line := range lines(s+"\n", false) {
		if i > 0 {
			w.write("\n")
			if line != "" || blank {
				w.write(indention)
			}
		}
		w.write(line)
	}
	_, marked := v.(markup)
	return remarked(marked, string(w.text))
}

func filterTruncate(r *run, v value, a given) value {
	p := a.bind("truncate", 0, "length", "killwords", "end", "leeway")
	length, leeway, end := integer(p[0], 255), 5, "..."
	if p[2] != (absent{}) {
		end = needText("truncate", p[2])
	}
	if p[3] != nil {
		leeway = integer(p[3], 5)
	}
	count := utf8.RuneCountInString(end)
	if length < count || leeway < 0 {
		fail("expected length >= %d, got %d", count, length)
	}
	if n, ok := lengthOf(v); ok && n <= length+leeway {
		return v
	}
	s := needText("truncate", v)
	r.grow(len(s))
	s = string([]rune(s)[:length-count])
	if p[1] == (absent{}) || !truth(p[1]) {
		if at := strings.LastIndexByte(s, ' '); at >= 0 {
			s = s[:at]
		}
	}
	_, marked := v.(markup)
	return remarked(marked, s+end)
}

var wordPattern = regexp.MustCompile(`[\pL\pN_]+`)

func filterWordcount(r *run, v value, a given) value {
	a.bind("wordcount", 0)
	s, _ := soft(r, v)
	return len(wordPattern.FindAllStringIndex(s, -1))
}

func filterURL(r *run, v value, a given) value {
	a.bind("urlencode", 0)
	if _, text := asString(v); text || !iterable(v) {
		s := str(r, v)
		r.growTimes(3, len(s))
		return strings.ReplaceAll(quoteURL(s), "%2F", "/")
	}
	if d, ok := v.(*dict); ok {
		v = &list{items: d.pairs()}
	}
	var parts []string
	for _, pair := range listed(r, v) {
		kv := listed(r, pair)
		if len(kv) != 2 {
			fail("urlencode needs pairs")
		}
		key, value := str(r, kv[0]), str(r, kv[1])
		r.growTimes(3, len(key)+len(value))
		parts = append(parts, url.QueryEscape(key)+"="+url.QueryEscape(value))
	}
	return strings.Join(parts, "&")
}

func quoteURL(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

func filterInt(r *run, v value, a given) value {
	p := a.bind("int", 0, "default", "base")
	defined(v)
	if n, ok := asInt(v); ok {
		return n
	}
	missing := value(0)
	if p[0] != (absent{}) {
		missing = p[0]
	}
	s, isText := asString(v)
	if isText {
		r.grow(len(s))
		s = strings.ToLower(strings.TrimFunc(s, isSpace))
		if n, err := strconv.ParseInt(basePrefix(s, integer(p[1], 10)), integer(p[1], 10), 64); err == nil {
			return int(n)
		}
	}
	f, ok := v.(float64)
	if isText {
		f, ok = parseFloat(s)
	}
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return missing
	}
	return truncated(f)
}

// basePrefix is a number's text without what Python lets stand in it.
func basePrefix(s string, base int) string {
	if base < 2 || base > 36 {
		fail("int() base must be >= 2 and <= 36, or 0")
	}
	sign := ""
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		sign, s = s[:1], s[1:]
	}
	prefix := map[int]string{2: "0b", 8: "0o", 16: "0x"}[base]
	if prefix != "" {
		s = strings.TrimPrefix(s, prefix)
	}
	return sign + withoutBars(s)
}

// withoutBars is a number's text without the _ that may stand between two of its digits.
func withoutBars(s string) string {
	if strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return "?"
	}
	return strings.ReplaceAll(s, "_", "")
}

var floatPattern = regexp.MustCompile(`^[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf|infinity|nan)$`)

func parseFloat(s string) (float64, bool) {
	s = withoutBars(strings.ToLower(strings.TrimFunc(s, isSpace)))
	if !floatPattern.MatchString(s) {
		return 0, false
	}
	f, _ := strconv.ParseFloat(s, 64) // infinite where too large, as in Python
	return f, true
}

func filterFloat(r *run, v value, a given) value {
	missing := a.bind("float", 0, "default")[0]
	defined(v)
	if f, ok := asFloat(v); ok {
		return f
	}
	if s, ok := asString(v); ok {
		r.grow(len(s))
		if f, ok := parseFloat(s); ok {
			return f
		}
	}
	if missing == (absent{}) {
		return 0.0
	}
	return missing
}

func filterRound(_ *run, v value, a given) value {
	p := a.bind("round", 0, "precision", "method")
	method := "common"
	if p[1] != (absent{}) {
		method = needText("round", p[1])
	}
	digits := integer(p[0], 0)
	defined(v)
	x, ok := asFloat(v)
	if !ok {
		fail("type %s doesn't define __round__ method", typeName(v))
	}
	switch method {
	case "common":
		if n, isInt := asInt(v); isInt && digits >= 0 {
			return n
		}
		if math.IsInf(x, 0) || math.IsNaN(x) || digits > 300 {
			return x
		}
		if digits < 0 {
			scale := math.Pow(10, float64(min(-digits, 400)))
			rounded := 0.0
			if !math.IsInf(scale, 0) {
				rounded = math.RoundToEven(x/scale) * scale
			}
			if _, isInt := asInt(v); isInt {
				return truncated(rounded)
			}
			return rounded
		}
		f, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', digits, 64), 64)
		return f
	case "ceil", "floor":
		scale := math.Pow(10, float64(digits))
		f := math.Floor(x * scale)
		if method == "ceil" {
			f = math.Ceil(x * scale)
		}
		return float64(truncated(f)) / scale
	}
	fail("method must be common, ceil or floor")
	return nil
}

func filterLength(_ *run, v value, a given) value {
	a.bind("length", 0)
	n, ok := lengthOf(v)
	if !ok {
		fail("object of type %s has no len()", quote(typeName(v)))
	}
	return n
}

func filterList(r *run, v value, a given) value {
	a.bind("list", 0)
	return &list{items: slices.Clone(listed(r, v))}
}

func filterItems(r *run, v value, a given) value {
	a.bind("items", 0)
	d := newDict()
	switch v := v.(type) {
	case *undefined:
	case *dict:
		d = v
	default:
		return &generator{next: func() (value, bool) {
			fail("Can only get item pairs from a mapping.")
			return nil, false
		}, name: "do_items"}
	}
	return &generator{next: iterate(r, &view{d, "items"}), name: "do_items"}
}

func filterFirst(r *run, v value, a given) value {
	a.bind("first", 0)
	if first, ok := iterate(r, v)(); ok {
		return first
	}
	return &undefined{hint: "No first item, sequence was empty."}
}

func filterLast(r *run, v value, a given) value {
	a.bind("last", 0)
	items := backwards(r, v)
	if len(items) == 0 {
		return &undefined{hint: "No last item, sequence was empty."}
	}
	return items[0]
}

// backwards is all items from the last to the first, of what Python can go through backwards.
func backwards(r *run, v value) []value {
	switch v.(type) {
	case *generator, *loopContext:
		fail("%s object is not reversible", quote(typeName(v)))
	}
	items := slices.Clone(listed(r, v))
	slices.Reverse(items)
	return items
}

func filterReverse(r *run, v value, a given) value {
	a.bind("reverse", 0)
	if s, ok := asString(v); ok {
		_, marked := v.(markup)
		return remarked(marked, slicedText(r, s, &slice{nil, nil, -1}))
	}
	if g, ok := v.(*generator); ok {
		items := listed(r, g)
		slices.Reverse(items)
		return &list{items: items}
	}
	return &generator{next: iterate(r, &list{items: backwards(r, v)}), name: "reversed"}
}

func filterJoin(r *run, v value, a given) value {
	p := a.bind("join", 0, "d", "attribute")
	separator := ""
	if p[0] != (absent{}) {
		separator = str(r, p[0])
	}
	if p[1] != (absent{}) && p[1] != nil {
		get := getter(r, p[1])
		var items []value
		for _, one := range listed(r, v) {
			items = append(items, get(one))
		}
		v = &list{items: items}
	}
	return join(r, separator, v, true)
}

// getter gives what a path such as function.name or 0.role leads to.
func getter(r *run, path value) func(value) value {
	var parts []value
	if s, ok := asString(path); ok {
		for _, part := range strings.Split(s, ".") {
			if n, err := strconv.Atoi(part); err == nil && n >= 0 && part[0] != '+' {
				parts = append(parts, n)
			} else {
				parts = append(parts, part)
			}
		}
	} else if path != nil {
		parts = []value{path}
	}
	return func(v value) value {
		for _, part := range parts {
			r.step(1)
			v = itemOf(r, v, part)
		}
		return v
	}
}

// folded is what texts are compared by where case does not count.
func folded(r *run, v value) value {
	if s, ok := asString(v); ok {
		r.grow(len(s))
		return lower(s)
	}
	return v
}

// keyOf gives what values are sorted or compared by.
func keyOf(r *run, attribute, caseSensitive value) func(value) value {
	if attribute == (absent{}) {
		attribute = nil
	}
	get := getter(r, attribute)
	exact := caseSensitive != (absent{}) && truth(caseSensitive)
	return func(v value) value {
		if v = get(v); !exact {
			v = folded(r, v)
		}
		return v
	}
}

// sorted is items in the order of their keys.
func sorted(r *run, items []value, key func(value) value, reverse bool) []value {
	type keyed struct{ key, item value }
	all := make([]keyed, len(items))
	r.growTimes(len(items), 4*perItem)
	for i, one := range items {
		all[i] = keyed{key(one), one}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		first, second := a, b
		if reverse {
			first, second = b, a
		}
		switch {
		case less(r, first.key, second.key, 0, "<"):
			return -1
		case less(r, second.key, first.key, 0, "<"):
			return 1
		}
		return 0
	})
	out := make([]value, len(all))
	for i, k := range all {
		out[i] = k.item
	}
	return out
}

func filterSort(r *run, v value, a given) value {
	p := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	reverse := integer(p[0], 0) != 0
	exact := p[1] != (absent{}) && truth(p[1])
	var gets []func(value) value
	if s, ok := asString(p[2]); ok {
		for _, part := range strings.Split(s, ",") {
			gets = append(gets, getter(r, part))
		}
	} else if p[2] != (absent{}) && p[2] != nil {
		gets = append(gets, getter(r, p[2]))
	} else {
		gets = append(gets, func(v value) value { return v })
	}
	key := func(v value) value {
		parts := make([]value, len(gets))
		for i, get := range gets {
			if parts[i] = get(v); !exact {
				parts[i] = folded(r, parts[i])
			}
		}
		return &list{items: parts}
	}
	return &list{items: sorted(r, listed(r, v), key, reverse)}
}

func filterDictsort(r *run, v value, a given) value {
	p := a.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	d, ok := v.(*dict)
	if !ok {
		defined(v)
		fail("%s object has no attribute 'items'", quote(typeName(v)))
	}
	at := 0
	if p[1] != (absent{}) {
		switch needText("dictsort", p[1]) {
		case "key":
		case "value":
			at = 1
		default:
			fail("You can only sort by either \"key\" or \"value\"")
		}
	}
	key := keyOf(r, at, p[0])
	return &list{items: sorted(r, d.pairs(), key, integer(p[2], 0) != 0)}
}

func filterExtreme(name, sign string) func(*run, value, given) value {
	return func(r *run, v value, a given) value {
		p := a.bind(name, 0, "case_sensitive", "attribute")
		key := keyOf(r, p[1], p[0])
		items := listed(r, v)
		if len(items) == 0 {
			return &undefined{hint: "No aggregated item, sequence was empty."}
		}
		best := items[0]
		bestKey := key(best)
		for _, one := range items[1:] {
			if k := key(one); compared(r, sign, k, bestKey) {
				best, bestKey = one, k
			}
		}
		return best
	}
}

func filterUnique(r *run, v value, a given) value {
	p := a.bind("unique", 0, "case_sensitive", "attribute")
	key := keyOf(r, p[1], p[0])
	next, seen := iterate(r, v), newDict()
	return &generator{name: "sync_do_unique", next: func() (value, bool) {
		for {
			one, ok := next()
			if !ok {
				return nil, false
			}
			r.step(1)
			k := key(one)
			if _, known := seen.get(r, k); !known {
				r.grow(4 * perItem)
				seen.put(r, k, nil)
				return one, true
			}
		}
	}}
}

func filterSum(r *run, v value, a given) value {
	p := a.bind("sum", 0, "attribute", "start")
	total := value(0)
	if p[1] != (absent{}) {
		total = p[1]
	}
	if _, ok := asString(total); ok {
		fail("sum() can't sum strings [use ''.join(seq) instead]")
	}
	get := getter(r, nil)
	if p[0] != (absent{}) {
		get = getter(r, p[0])
	}
	for _, one := range listed(r, v) {
		total = computed(r, "+", total, get(one))
	}
	return total
}

func filterBatch(r *run, v value, a given) value {
	p := a.bind("batch", 1, "linecount", "fill_with")
	size, next := needInt("batch", p[0]), iterate(r, v)
	over := false
	return &generator{name: "do_batch", next: func() (value, bool) {
		if over {
			return nil, false
		}
		var items []value
		for len(items) < size || size <= 0 {
			one, ok := next()
			if !ok {
				over = true
				break
			}
			r.step(1)
			r.grow(perItem)
			items = append(items, one)
		}
		if len(items) == 0 {
			return nil, false
		}
		if p[1] != (absent{}) && p[1] != nil && len(items) < size {
			r.growTimes(size, perItem)
			for len(items) < size {
				items = append(items, p[1])
			}
		}
		return &list{items: items}, true
	}}
}

func filterSlice(r *run, v value, a given) value {
	p := a.bind("slice", 1, "slices", "fill_with")
	count, items := needInt("slice", p[0]), listed(r, v)
	if count == 0 {
		fail("integer division or modulo by zero")
	}
	at, offset := 0, 0
	return &generator{name: "sync_do_slice", next: func() (value, bool) {
		if at >= count {
			return nil, false
		}
		size, extra := len(items)/count, len(items)%count
		from := offset + at*size
		if at < extra {
			offset++
		}
		part := slices.Clone(items[from : offset+(at+1)*size])
		if p[1] != (absent{}) && p[1] != nil && at >= extra {
			part = append(part, p[1])
		}
		r.growTimes(len(part)+4, perItem)
		at++
		return &list{items: part}, true
	}}
}

func filterGroupby(r *run, v value, a given) value {
	p := a.bind("groupby", 1, "attribute", "default", "case_sensitive")
	get := getter(r, p[0])
	real := func(v value) value {
		v = get(v)
		if _, missing := v.(*undefined); missing && p[1] != (absent{}) && p[1] != nil {
			return p[1]
		}
		return v
	}
	key := func(v value) value {
		if v = real(v); p[2] == (absent{}) || !truth(p[2]) {
			v = folded(r, v)
		}
		return v
	}
	var groups, group []value
	var last value
	items := sorted(r, listed(r, v), key, false)
	end := func() {
		if len(group) > 0 {
			r.growTimes(len(group)+8, perItem)
			groups = append(groups, &list{items: []value{real(group[0]), &list{items: group}}, tuple: true})
		}
		group = nil
	}
	for _, one := range items {
		k := key(one)
		if len(group) > 0 && !equal(r, k, last, 0) {
			end()
		}
		group, last = append(group, one), k
	}
	end()
	return &list{items: groups}
}

func filterMap(r *run, v value, a given) value {
	apply := func(value) value {
		fail("map requires a filter argument")
		return nil
	}
	if len(a.list) == 0 {
		p := a.bind("map", 0, "*", "attribute", "default")
		if p[0] != (absent{}) {
			get := getter(r, p[0])
			apply = func(v value) value {
				v = get(v)
				if _, missing := v.(*undefined); missing && p[1] != (absent{}) && p[1] != nil {
					return p[1]
				}
				return v
			}
		}
	} else {
		name := needText("map", a.list[0])
		f := filters[name]
		if f == nil {
			f = unknown("filter", name)
		}
		rest := given{a.list[1:], a.names, a.named}
		apply = func(v value) value { return f(r, v, rest) }
	}
	if !truth(v) {
		return &generator{next: func() (value, bool) { return nil, false }, name: "sync_do_map"}
	}
	var next func() (value, bool)
	return &generator{name: "sync_do_map", next: func() (value, bool) {
		if next == nil {
			next = iterate(r, v)
		}
		one, ok := next()
		if !ok {
			return nil, false
		}
		r.step(1)
		return apply(one), true
	}}
}

// filterSelect keeps the items that pass a test, or those that do not, by an attribute of them if
// so.
func filterSelect(name string, byAttribute, keep bool) func(*run, value, given) value {
	return func(r *run, v value, a given) value {
		get := func(v value) value { return v }
		rest := a
		passes := truth
		if byAttribute {
			if len(a.list) == 0 {
				return &generator{name: "select_or_reject", next: func() (value, bool) {
					fail("Missing parameter for attribute name")
					return nil, false
				}}
			}
			get = getter(r, a.list[0])
			rest.list = a.list[1:]
		}
		if len(rest.list) > 0 {
			test := needText(name, rest.list[0])
			f := tests[test]
			if f == nil {
				f = unknown("test", test)
			}
			rest.list = rest.list[1:]
			passes = func(v value) bool { return truth(f(r, v, rest)) }
		}
		if !truth(v) {
			return &generator{next: func() (value, bool) { return nil, false }, name: "select_or_reject"}
		}
		var next func() (value, bool)
		return &generator{name: "select_or_reject", next: func() (value, bool) {
			if next == nil {
				next = iterate(r, v)
			}
			for {
				one, ok := next()
				if !ok {
					return nil, false
				}
				r.step(1)
				if passes(get(one)) == keep {
					return one, true
				}
			}
		}}
	}
}
