package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatPercent is text % values.
func formatPercent(r *run, s string, values value, marked bool) string {
	w, from := writer{meter: &r.meter}, percentValues{all: values}
	if l, ok := values.(*list); ok && l.tuple {
		from.tuple = l
	}
	for {
		before, rest, found := strings.Cut(s, "%")
		w.write(before)
		if !found {
			break
		}
		s = rest
		var v value = absent{}
		if strings.HasPrefix(s, "(") {
			v = from.named(r, &s)
		}
		f := percentField(&s, &from)
		if f.kind == "%" {
			w.write("%")
			continue
		}
		if v == (absent{}) {
			v = from.next()
		}
		w.write(f.percent(r, v, marked))
	}
	from.checkUsed()
	return string(w.text)
}

// percentField reads a conversion behind its % and name: flags, width, precision and kind.
func percentField(s *string, from *percentValues) field {
	f := field{precision: -1}
	for *s != "" && strings.IndexByte("#0- +", (*s)[0]) >= 0 {
		switch (*s)[0] {
		case '#':
			f.alternate = true
		case '0':
			f.fill, f.align = "0", "="
		case '-':
			f.align = "<"
		default:
			f.sign = (*s)[:1]
		}
		*s = (*s)[1:]
	}
	if f.align == "<" {
		f.fill = " "
	}
	number := func() int {
		if strings.HasPrefix(*s, "*") {
			*s = (*s)[1:]
			return needInt("%", from.next())
		}
		return digits(s)
	}
	f.width = number()
	if strings.HasPrefix(*s, ".") {
		*s = (*s)[1:]
		f.precision = max(0, number())
	}
	*s = strings.TrimLeft(*s, "hlL")
	if *s == "" {
		fail("incomplete format")
	}
	f.kind, *s = (*s)[:1], (*s)[1:]
	return f
}

// percentValues hands out the values of a % operator: of a tuple one by one, of a dict by name, or
// the one that there is.
type percentValues struct {
	all    value
	tuple  *list // nil if all is no tuple
	used   int
	mapped bool // a name was looked up
}

func (v *percentValues) next() value {
	v.used++
	switch {
	case v.tuple != nil && v.used <= len(v.tuple.items):
		return v.tuple.items[v.used-1]
	case v.tuple != nil || v.used > 1:
		fail("not enough arguments for format string")
	}
	return v.all
}

// named takes (name) from the beginning of s.
func (v *percentValues) named(r *run, s *string) value {
	end := strings.IndexByte(*s, ')')
	d, ok := v.all.(*dict)
	if end < 0 || !ok {
		fail("format requires a mapping")
	}
	found, ok := d.get(r, (*s)[1:end])
	if !ok {
		fail("there is no %s to format", quote((*s)[1:end]))
	}
	v.mapped = true
	*s = (*s)[end+1:]
	return found
}

// checkUsed fails where values are left over.
func (v *percentValues) checkUsed() {
	mapped := v.mapped
	switch v.all.(type) {
	case *dict, *undefined:
		mapped = true
	case *list:
		mapped = mapped || v.tuple == nil
	}
	if v.tuple != nil && v.used < len(v.tuple.items) || v.tuple == nil && !mapped && v.used == 0 {
		fail("not all arguments converted during string formatting")
	}
}

func digits(s *string) int {
	end := 0
	for end < len(*s) && (*s)[end] >= '0' && (*s)[end] <= '9' {
		end++
	}
	n := 0
	if end > 0 {
		var err error
		if n, err = strconv.Atoi((*s)[:end]); err != nil {
			fail("a width is too large")
		}
	}
	*s = (*s)[end:]
	return n
}

// field is how a value is to be written.
type field struct {
	fill, align, sign string
	alternate         bool
	width, precision  int
	group, kind       string
}

// percent writes a value as a % in a text says.
func (f field) percent(r *run, v value, marked bool) string {
	switch f.kind {
	case "s", "r", "a":
		s := ""
		if f.kind == "s" {
			s = str(r, v)
		} else {
			s = repr(r, v)
		}
		if _, safe := v.(markup); marked && !safe {
			s = escaped(r, s)
		}
		if f.align != "<" {
			f.align, f.fill = ">", " "
		}
		return f.padded(r, f.cut(s))
	case "c":
		if n, ok := asInt(v); ok {
			return f.padded(r, string(rune(n)))
		}
		return f.padded(r, needText("%c", v))
	}
	if f.align == "" {
		f.align = ">"
	}
	defined(v)
	if !isNumber(v) {
		fail("%%%s format: a real number is required, not %s", f.kind, typeName(v))
	}
	switch f.kind {
	case "d", "i", "u", "x", "X", "o":
		if x, ok := v.(float64); ok {
			if f.kind == "x" || f.kind == "X" || f.kind == "o" {
				fail("%%%s format: an integer is required, not float", f.kind)
			}
			v = truncated(x)
		}
		if f.kind == "i" || f.kind == "u" {
			f.kind = "d"
		}
		n, _ := asInt(v)
		digits := f.precision
		f.precision = -1
		sign, s := f.integer(n)
		if missing := digits - len(s); missing > 0 {
			r.grow(missing)
			s = strings.Repeat("0", missing) + s
		}
		return f.signed(r, sign, s)
	case "f", "F", "e", "E", "g", "G":
		return f.number(r, v)
	}
	fail("unsupported format character %s", quote(f.kind))
	return ""
}

// format is str.format.
func format(r *run, s string, a given) string {
	w := writer{meter: &r.meter}
	automatic := 0
	formatInto(r, &w, s, a, &automatic, 2)
	return string(w.text)
}

func formatInto(r *run, w *writer, s string, a given, automatic *int, depth int) {
	if depth < 0 {
		fail("Max string recursion exceeded")
	}
	for s != "" {
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			w.write(s)
			return
		}
		w.write(s[:at])
		sign := s[at]
		s = s[at+1:]
		if s != "" && s[0] == sign {
			w.write(s[:1])
			s = s[1:]
			continue
		}
		if sign == '}' {
			fail("Single '}' encountered in format string")
		}
		end, open := -1, 1
		for i := 0; i < len(s) && end < 0; i++ {
			switch s[i] {
			case '{':
				open++
			case '}':
				if open--; open == 0 {
					end = i
				}
			}
		}
		if end < 0 {
			fail("expected '}' before end of string")
		}
		inside := s[:end]
		s = s[end+1:]
		name, spec := inside, ""
		if colon := strings.IndexAny(bracketless(inside), ":"); colon >= 0 {
			name, spec = inside[:colon], inside[colon+1:]
		}
		conversion := ""
		if mark := strings.IndexByte(bracketless(name), '!'); mark >= 0 {
			name, conversion = name[:mark], name[mark+1:]
		}
		v := fieldOf(r, name, a, automatic)
		inner := writer{meter: &r.meter}
		formatInto(r, &inner, spec, a, automatic, depth-1)
		switch conversion {
		case "":
		case "s":
			v = str(r, v)
		case "r", "a":
			v = repr(r, v)
		default:
			fail("Unknown conversion specifier %s", conversion)
		}
		w.write(formatted(r, v, string(inner.text)))
	}
}

// bracketless is a text with what stands in brackets made unrecognisable.
func bracketless(s string) string {
	b := []byte(s)
	inside := false
	for i, c := range b {
		if c == '[' {
			inside = true
		}
		if inside {
			b[i] = '_'
		}
		if c == ']' {
			inside = false
		}
	}
	return string(b)
}

// fieldOf is the argument that a field names, as in 0.role or tool[name].
func fieldOf(r *run, name string, a given, automatic *int) value {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	if first == "" {
		if *automatic < 0 {
			fail("cannot switch from manual field specification to automatic field numbering")
		}
		first = strconv.Itoa(*automatic)
		*automatic++
	} else if first[0] >= '0' && first[0] <= '9' {
		if *automatic > 0 {
			fail("cannot switch from manual field specification to automatic field numbering")
		}
		*automatic = -1
	}
	var v value = absent{}
	if n, err := strconv.Atoi(first); err == nil {
		if n < 0 || n >= len(a.list) {
			fail("Replacement index %d out of range for positional args tuple", n)
		}
		v = a.list[n]
	} else {
		for i, known := range a.names {
			if known == first {
				v = a.named[i]
			}
		}
		if v == (absent{}) {
			fail("%s", quote(first))
		}
	}
	for rest != "" {
		end := strings.IndexAny(rest[1:], ".[") + 1
		if end == 0 {
			end = len(rest)
		}
		if rest[0] == '.' {
			v = attributeOf(r, v, rest[1:end])
		} else {
			close := strings.IndexByte(rest, ']')
			if close < 0 {
				fail("Missing ']' in format string")
			}
			end = close + 1
			if n, err := strconv.Atoi(rest[1:close]); err == nil {
				v = itemOf(r, v, n)
			} else {
				v = itemOf(r, v, rest[1:close])
			}
			if end < len(rest) && rest[end] != '.' && rest[end] != '[' {
				fail("Only '.' or '[' may follow ']' in format field specifier")
			}
		}
		rest = rest[end:]
	}
	return v
}

// formatted is a value as the part of a field behind its colon says.
func formatted(r *run, v value, spec string) string {
	if spec == "" {
		return str(r, v)
	}
	f := readSpec(spec)
	if s, ok := asString(v); ok {
		if f.kind != "" && f.kind != "s" || f.sign != "" || f.group != "" || f.align == "=" && f.fill != "0" {
			fail("the format %s does not fit a text", quote(spec))
		}
		if f.align == "" || f.align == "=" {
			f.align = "<"
		}
		return f.padded(r, f.cut(s))
	}
	if !isNumber(v) {
		fail("unsupported format string passed to %s.__format__", typeName(v))
	}
	if f.align == "" {
		f.align = ">"
	}
	if _, isBool := v.(bool); isBool && f.kind == "" {
		v, _ = asInt(v)
	}
	return f.number(r, v)
}

func readSpec(spec string) field {
	f := field{fill: " ", precision: -1}
	s := spec
	_, size := utf8.DecodeRuneInString(s)
	if len(s) > size && strings.IndexByte("<>=^", s[size]) >= 0 {
		f.fill, f.align, s = s[:size], s[size:size+1], s[size+1:]
	} else if s != "" && strings.IndexByte("<>=^", s[0]) >= 0 {
		f.align, s = s[:1], s[1:]
	}
	take := func(set string) string {
		if s != "" && strings.Contains(set, s[:1]) {
			c := s[:1]
			s = s[1:]
			return c
		}
		return ""
	}
	f.sign = take("+- ")
	f.alternate = take("#") != ""
	if take("0") != "" && f.align == "" {
		f.fill, f.align = "0", "="
	}
	f.width = digits(&s)
	f.group = take(",_")
	if take(".") != "" {
		if s == "" || s[0] < '0' || s[0] > '9' {
			fail("Format specifier missing precision")
		}
		f.precision = digits(&s)
	}
	f.kind = s
	if len(s) > 1 {
		fail("Invalid format specifier %s", quote(spec))
	}
	return f
}

func (f field) cut(s string) string {
	if f.precision >= 0 && f.precision < utf8.RuneCountInString(s) {
		return string([]rune(s)[:f.precision])
	}
	return s
}

func (f field) padded(r *run, s string) string {
	fill := f.fill
	if fill == "" {
		fill = " "
	}
	missing := f.width - utf8.RuneCountInString(s)
	if missing <= 0 {
		return s
	}
	r.growTimes(missing, len(fill))
	left := 0
	switch f.align {
	case ">", "=", "":
		left = missing
	case "^":
		left = missing / 2
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, missing-left)
}

// number writes a number.
func (f field) number(r *run, v value) string {
	if n, ok := asInt(v); ok && strings.Contains("dxXobcn", f.kind) {
		if f.kind == "c" {
			return f.padded(r, string(rune(n)))
		}
		sign, s := f.integer(n)
		return f.signed(r, sign, s)
	}
	x, _ := asFloat(v)
	sign := ""
	if math.Signbit(x) {
		sign, x = "-", -x
	} else if f.sign == "+" || f.sign == " " {
		sign = f.sign
	}
	precision := f.precision
	if precision > maxValue {
		fail("precision too big")
	}
	r.grow(max(0, precision))
	s := ""
	switch f.kind {
	case "f", "F", "e", "E", "%":
		if precision < 0 {
			precision = 6
		}
		if f.kind == "%" {
			s = floatText(x*100, 'f', precision) + "%"
		} else {
			s = floatText(x, f.kind[0]|0x20, precision)
		}
	case "g", "G", "n":
		if precision < 0 {
			precision = 6
		}
		s = general(x, max(1, precision))
	case "":
		s = showFloat(x)
		if precision >= 0 {
			s = general(x, max(1, precision))
			if !strings.ContainsAny(s, ".en") && len(s) < max(1, precision) {
				s += ".0"
			}
		}
	default:
		fail("Unknown format code %s for object of type 'float'", quote(f.kind))
	}
	if f.kind == "E" || f.kind == "G" || f.kind == "F" {
		s = strings.ToUpper(s)
	}
	return f.signed(r, sign, s)
}

func floatText(x float64, format byte, precision int) string {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return showFloat(x)
	}
	return strconv.FormatFloat(x, format, precision, 64)
}

// general is a number with so many digits, by an exponent where it is large or small.
func general(x float64, digits int) string {
	if x == 0 {
		return "0"
	}
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return showFloat(x)
	}
	s := strconv.FormatFloat(x, 'e', digits-1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exponent)
	trim := func(s string) string {
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
	if e < -4 || e >= digits {
		return trim(mantissa) + "e" + exponent
	}
	return trim(strconv.FormatFloat(x, 'f', digits-1-e, 64))
}

// integer is the sign and the digits of an integer.
func (f field) integer(n int) (sign, s string) {
	if f.precision >= 0 {
		fail("Precision not allowed in integer format specifier")
	}
	base, prefix := 10, ""
	switch f.kind {
	case "x", "X":
		base, prefix = 16, "0"+f.kind
	case "o":
		base, prefix = 8, "0o"
	case "b":
		base, prefix = 2, "0b"
	}
	s = strconv.FormatUint(magnitude(n), base)
	if f.kind == "X" {
		s = strings.ToUpper(s)
	}
	switch {
	case n < 0:
		sign = "-"
	case f.sign == "+" || f.sign == " ":
		sign = f.sign
	}
	if f.alternate {
		sign += prefix
	}
	return sign, s
}

// signed is a number with its groups, sign and padding, which may stand between the two.
func (f field) signed(r *run, sign, s string) string {
	if f.group != "" {
		size := 3
		if f.kind == "x" || f.kind == "X" || f.kind == "b" || f.kind == "o" {
			size = 4
		}
		end := strings.IndexAny(s, ".e%")
		if end < 0 {
			end = len(s)
		}
		whole := s[:end]
		var b strings.Builder
		for i, c := range whole {
			if i > 0 && (len(whole)-i)%size == 0 {
				b.WriteString(f.group)
			}
			b.WriteRune(c)
		}
		s = b.String() + s[end:]
	}
	if f.align == "=" {
		inner := f
		inner.width, inner.align = f.width-len(sign), ">"
		return sign + inner.padded(r, s)
	}
	return f.padded(r, sign+s)
}

// truncated is a float without what follows its point.
func truncated(x float64) int {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		fail("cannot convert float %s to integer", showFloat(x))
	}
	if math.Abs(x) >= 1<<63 {
		fail("the number %s does not fit 64 bits", showFloat(x))
	}
	return int(x)
}
