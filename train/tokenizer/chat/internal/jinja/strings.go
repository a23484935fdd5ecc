package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// stringMethod is a method of texts. Its result is marked as safe if the text was, where it is a
// text.
type stringMethod func(r *run, s string, a given) value

// method is a method of a text as a function.
func method(methods map[string]stringMethod, s string, marked bool, name string) (value, bool) {
	m, ok := methods[name]
	if !ok {
		return nil, false
	}
	return &function{name: name, call: func(r *run, a given) value {
		r.grow(len(s))
		if marked && argumentsEscaped[name] {
			a = withEscaped(r, a)
		}
		return markedAll(marked, m(r, s, a))
	}}, true
}

// argumentsEscaped are methods of marked texts that escape the last of their arguments.
var argumentsEscaped = map[string]bool{"replace": true, "center": true, "ljust": true, "rjust": true, "join": true, "format": true}

func withEscaped(r *run, a given) given {
	escape := func(v value) value {
		if s, ok := v.(string); ok {
			return markup(escaped(r, s))
		}
		return v
	}
	a.list = append([]value{}, a.list...)
	for i, v := range a.list {
		if l, ok := v.(*list); ok {
			part := &list{tuple: l.tuple}
			for _, one := range l.items {
				part.items = append(part.items, escape(one))
			}
			a.list[i] = part
		} else if i > 0 || len(a.list) == 1 {
			a.list[i] = escape(v)
		}
	}
	return a
}

func markedAll(marked bool, v value) value {
	if !marked {
		return v
	}
	switch v := v.(type) {
	case string:
		return markup(v)
	case *list:
		for i, one := range v.items {
			v.items[i] = markedAll(true, one)
		}
	}
	return v
}

var stringMethods map[string]stringMethod

func init() {
	stringMethods = map[string]stringMethod{
		"upper":      plain(upper),
		"lower":      plain(lower),
		"casefold":   plain(func(s string) string { return cases.Fold().String(s) }),
		"capitalize": plain(capitalized),
		"title":      plain(titled),
		"swapcase":   plain(swappedCase),
		"strip":      stripping("strip", true, true),
		"lstrip":     stripping("lstrip", true, false),
		"rstrip":     stripping("rstrip", false, true),
		"split": func(r *run, s string, a given) value {
			p := a.bind("split", 0, "sep", "maxsplit")
			return split(r, s, p[0], integer(p[1], -1), false)
		},
		"rsplit": func(r *run, s string, a given) value {
			p := a.bind("rsplit", 0, "sep", "maxsplit")
			return split(r, s, p[0], integer(p[1], -1), true)
		},
		"splitlines": func(r *run, s string, a given) value {
			return texts2list(r, lines(s, integer(a.bind("splitlines", 0, "keepends")[0], 0) != 0))
		},
		"join": func(r *run, s string, a given) value {
			return join(r, s, a.bind("join", 1, "iterable")[0], false)
		},
		"replace": func(r *run, s string, a given) value {
			p := a.bind("replace", 2, "old", "new", "count")
			return replaced(r, s, needText("replace", p[0]), needText("replace", p[1]), integer(p[2], -1))
		},
		"startswith":   affix("startswith", strings.HasPrefix),
		"endswith":     affix("endswith", strings.HasSuffix),
		"removeprefix": trimming("removeprefix", strings.TrimPrefix),
		"removesuffix": trimming("removesuffix", strings.TrimSuffix),
		"find":         finding("find", strings.Index, false),
		"rfind":        finding("rfind", strings.LastIndex, false),
		"index":        finding("index", strings.Index, true),
		"rindex":       finding("rindex", strings.LastIndex, true),
		"count": func(r *run, s string, a given) value {
			p := a.bind("count", 1, "sub", "start", "end")
			part, _, _ := within(r, s, p[1], p[2])
			return strings.Count(part, needText("count", p[0]))
		},
		"partition":  partition("partition", strings.Index),
		"rpartition": partition("rpartition", strings.LastIndex),
		"center":     padding("center", 0),
		"ljust":      padding("ljust", -1),
		"rjust":      padding("rjust", 1),
		"zfill":      zeroFilled,
		"expandtabs": func(r *run, s string, a given) value {
			size := max(0, integer(a.bind("expandtabs", 0, "tabsize")[0], 8))
			return tabsExpanded(r, s, size)
		},
		"isalpha":   every(unicode.IsLetter),
		"isdigit":   every(unicode.IsDigit),
		"isdecimal": every(unicode.IsDigit),
		"isnumeric": every(unicode.IsNumber),
		"isalnum":   every(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) }),
		"isspace":   every(isSpace),
		"isascii": asked(func(s string) bool {
			return strings.IndexFunc(s, func(c rune) bool { return c > unicode.MaxASCII }) < 0
		}),
		"isprintable": asked(func(s string) bool {
			return strings.IndexFunc(s, func(c rune) bool { return !printable(c) }) < 0
		}),
		"isidentifier": asked(func(s string) bool {
			return s != "" && names.FindString(s) == s && !unicode.IsDigit([]rune(s)[0])
		}),
		"islower": asked(isLower),
		"isupper": asked(isUpper),
		"istitle": asked(func(s string) bool { return s == titled(s) && upper(s) != lower(s) }),
		"encode":  notHere("encode"), "translate": notHere("translate"), "maketrans": notHere("maketrans"),
		"format": func(r *run, s string, a given) value {
			return format(r, s, a)
		},
		"format_map": formatMap,
	}
}

func swappedCase(s string) string {
	var b strings.Builder
	for _, c := range s {
		switch {
		case unicode.IsTitle(c):
			b.WriteRune(c)
		case unicode.IsUpper(c):
			b.WriteString(lower(string(c)))
		default:
			b.WriteString(upper(string(c)))
		}
	}
	return b.String()
}

func zeroFilled(r *run, s string, a given) value {
	width := needInt("zfill", a.bind("zfill", 1, "width")[0])
	missing := max(0, width-utf8.RuneCountInString(s))
	r.grow(missing)
	sign := ""
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		sign, s = s[:1], s[1:]
	}
	return sign + strings.Repeat("0", missing) + s
}

func formatMap(r *run, s string, a given) value {
	d, ok := a.bind("format_map", 1, "mapping")[0].(*dict)
	if !ok {
		fail("format_map() needs an object")
	}
	var named given
	for i, key := range d.keys {
		if name, ok := asString(key); ok {
			named.names, named.named = append(named.names, name), append(named.named, d.values[i])
		}
	}
	return format(r, s, named)
}

func plain(f func(string) string) stringMethod {
	return func(r *run, s string, a given) value {
		a.bind("a method of str", 0)
		return f(s)
	}
}

// asked is a method that tells something of a text.
func asked(is func(s string) bool) stringMethod {
	return func(_ *run, s string, a given) value {
		a.bind("a method of str", 0)
		return is(s)
	}
}

func every(is func(rune) bool) stringMethod {
	return asked(func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0
	})
}

// notHere is a method that Python has and that is not known here.
func notHere(name string) stringMethod {
	return func(*run, string, given) value {
		fail("the method %s of str is not known here", name)
		return nil
	}
}

func upper(s string) string { return cases.Upper(language.Und).String(s) }
func lower(s string) string { return cases.Lower(language.Und).String(s) }

func isLower(s string) bool {
	return s != upper(s) && s == lower(s)
}

func isUpper(s string) bool {
	return s != lower(s) && s == upper(s)
}

func capitalized(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	return strings.ToTitle(s[:size]) + lower(s[size:])
}

// titled begins each word with a capital, a word being a run of letters with case.
func titled(s string) string {
	within := false
	return strings.Map(func(c rune) rune {
		cased := unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c)
		was := within
		within = cased
		switch {
		case !cased:
			return c
		case was:
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

func needText(function string, v value) string {
	s, ok := asString(v)
	if !ok {
		defined(v)
		fail("%s() argument must be str, not %s", function, typeName(v))
	}
	return s
}

func needInt(function string, v value) int {
	n, ok := asInt(v)
	if !ok {
		defined(v)
		fail("%s(): %s object cannot be interpreted as an integer", function, quote(typeName(v)))
	}
	return n
}

// integer is an argument that may be missing.
func integer(v value, missing int) int {
	if v == (absent{}) {
		return missing
	}
	return needInt("an argument", v)
}

func stripping(name string, left, right bool) stringMethod {
	return func(_ *run, s string, a given) value {
		noNames(name, a)
		return stripped(name, s, a.bind(name, 0, "chars")[0], left, right)
	}
}

func stripped(name, s string, chars value, left, right bool) string {
	is := isSpace
	if chars != nil && chars != (absent{}) {
		set := needText(name, chars)
		is = func(c rune) bool { return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, is)
	}
	if right {
		s = strings.TrimRightFunc(s, is)
	}
	return s
}

// texts2list is a list of texts.
func texts2list(r *run, all []string) value {
	r.growTimes(len(all)+4, perItem)
	items := make([]value, len(all))
	for i, s := range all {
		items[i] = s
	}
	return &list{items: items}
}

// split cuts a text at a separator, or at white space, most often as said, from the end if so.
func split(r *run, s string, separator value, most int, last bool) value {
	var parts []string
	if separator != nil && separator != (absent{}) {
		sep := needText("split", separator)
		if sep == "" {
			fail("empty separator")
		}
		r.growTimes(strings.Count(s, sep)+1, perItem)
		for ; most != 0; most-- {
			at := strings.Index(s, sep)
			if last {
				at = strings.LastIndex(s, sep)
			}
			if at < 0 {
				break
			}
			if last {
				parts, s = append(parts, s[at+len(sep):]), s[:at]
			} else {
				parts, s = append(parts, s[:at]), s[at+len(sep):]
			}
		}
		parts = append(parts, s)
	} else {
		r.grow(perItem * (1 + len(s)/2))
		for ; ; most-- {
			if last {
				s = strings.TrimRightFunc(s, isSpace)
			} else {
				s = strings.TrimLeftFunc(s, isSpace)
			}
			if s == "" {
				break
			}
			at := -1
			switch {
			case most == 0:
			case last:
				if at = strings.LastIndexFunc(s, isSpace); at >= 0 {
					_, size := utf8.DecodeRuneInString(s[at:])
					parts, s = append(parts, s[at+size:]), s[:at]
				}
			default:
				if at = strings.IndexFunc(s, isSpace); at >= 0 {
					parts, s = append(parts, s[:at]), s[at:]
				}
			}
			if at < 0 {
				parts = append(parts, s)
				break
			}
		}
	}
	if last {
		for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
			parts[i], parts[j] = parts[j], parts[i]
		}
	}
	return texts2list(r, parts)
}

// lines cuts a text where Python sees a line end.
func lines(s string, keep bool) []string {
	var all []string
	for s != "" {
		at := strings.IndexFunc(s, func(c rune) bool {
			return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
		})
		if at < 0 {
			return append(all, s)
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		if strings.HasPrefix(s[at:], "\r\n") {
			size = 2
		}
		if keep {
			all = append(all, s[:at+size])
		} else {
			all = append(all, s[:at])
		}
		s = s[at+size:]
	}
	return all
}

// join puts a text between others. As a filter it takes any values, as a method texts alone.
func join(r *run, s string, of value, any bool) string {
	w := writer{meter: &r.meter}
	next := iterate(r, of)
	first := true
	for v, ok := next(); ok; v, ok = next() {
		r.step(1)
		if !first {
			w.write(s)
		}
		first = false
		if _, ok := asString(v); !ok && !any {
			fail("sequence item: expected str instance, %s found", typeName(v))
		}
		w.write(str(r, v))
	}
	return string(w.text)
}

func replaced(r *run, s, old, with string, count int) string {
	n := strings.Count(s, old)
	if count >= 0 {
		n = min(n, count)
	}
	if d := len(with) - len(old); d > 0 {
		r.growTimes(n, d)
	}
	r.grow(len(s))
	return strings.Replace(s, old, with, count)
}

// within is the part of a text from one character to another, and how many characters and bytes
// stand before it.
func within(r *run, s string, from, to value) (part string, characters, bytes int) {
	bound := &slice{}
	if from != (absent{}) {
		bound.from = from
	}
	if to != (absent{}) {
		bound.to = to
	}
	if bound.from == nil && bound.to == nil {
		return s, 0, 0
	}
	r.grow(4 * len(s))
	runes := []rune(s)
	characters, _, _, count := bound.bounds(len(runes))
	return string(runes[characters : characters+count]), characters, len(string(runes[:characters]))
}

func affix(name string, has func(s, affix string) bool) stringMethod {
	return func(r *run, s string, a given) value {
		noNames(name, a)
		p := a.bind(name, 1, "affix", "start", "end")
		s, _, _ = within(r, s, p[1], p[2])
		choices := []value{p[0]}
		if l, ok := p[0].(*list); ok && l.tuple {
			choices = l.items
		}
		for _, c := range choices {
			r.step(1)
			if has(s, needText(name, c)) {
				return true
			}
		}
		return false
	}
}

func trimming(name string, trim func(s, affix string) string) stringMethod {
	return func(_ *run, s string, a given) value {
		noNames(name, a)
		return trim(s, needText(name, a.bind(name, 1, "affix")[0]))
	}
}

func finding(name string, find func(s, part string) int, must bool) stringMethod {
	return func(r *run, s string, a given) value {
		noNames(name, a)
		p := a.bind(name, 1, "sub", "start", "end")
		part, before, _ := within(r, s, p[1], p[2])
		at := find(part, needText(name, p[0]))
		switch {
		case at >= 0:
			return before + utf8.RuneCountInString(part[:at])
		case must:
			fail("substring not found")
		}
		return -1
	}
}

func partition(name string, find func(s, part string) int) stringMethod {
	return func(_ *run, s string, a given) value {
		noNames(name, a)
		sep := needText(name, a.bind(name, 1, "sep")[0])
		if sep == "" {
			fail("empty separator")
		}
		at := find(s, sep)
		parts := []value{s, "", ""}
		if at >= 0 {
			parts = []value{s[:at], sep, s[at+len(sep):]}
		} else if name == "rpartition" {
			parts = []value{"", "", s}
		}
		return &list{items: parts, tuple: true}
	}
}

// padding fills a text up to a width: before it, behind it, or on both sides.
func padding(name string, side int) stringMethod {
	return func(r *run, s string, a given) value {
		noNames(name, a)
		p := a.bind(name, 1, "width", "fillchar")
		fill := " "
		if p[1] != (absent{}) {
			fill = needText(name, p[1])
		}
		if utf8.RuneCountInString(fill) != 1 {
			fail("The fill character must be exactly one character long")
		}
		return padded(r, s, needInt(name, p[0]), fill, side)
	}
}

func padded(r *run, s string, width int, fill string, side int) string {
	missing := width - utf8.RuneCountInString(s)
	if missing <= 0 {
		return s
	}
	r.growTimes(missing, len(fill))
	left := 0
	switch {
	case side > 0:
		left = missing
	case side == 0:
		left = missing/2 + missing&width&1
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, missing-left)
}

func tabsExpanded(r *run, s string, size int) string {
	w := writer{meter: &r.meter}
	column := 0
	for _, c := range s {
		switch c {
		case '\t':
			if size > 0 {
				n := size - column%size
				r.grow(n)
				w.write(strings.Repeat(" ", n))
				column += n
			}
			continue
		case '\n', '\r':
			column = -1
		}
		w.write(string(c))
		column++
	}
	return string(w.text)
}
