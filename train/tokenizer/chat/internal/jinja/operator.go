package jinja

import (
	"math"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// computed is arithmetic on two values.
func computed(r *run, sign string, a, b value) value {
	if s, ok := asString(a); ok && sign == "%" {
		_, marked := a.(markup)
		return remarked(marked, formatPercent(r, s, b, marked))
	}
	defined(a, b)
	switch sign {
	case "+":
		if v, ok := joined(r, a, b); ok {
			return v
		}
	case "*":
		if v, ok := repeated(r, a, b); ok {
			return v
		}
		if v, ok := repeated(r, b, a); ok {
			return v
		}
	}
	if n, ok := asInt(a); ok {
		if m, ok := asInt(b); ok {
			return computedInts(sign, n, m)
		}
	}
	x, isFirst := asFloat(a)
	y, isSecond := asFloat(b)
	if !isFirst || !isSecond {
		if sign == "**" {
			sign = "** or pow()"
		}
		fail("unsupported operand type(s) for %s: %s and %s", sign, quote(typeName(a)), quote(typeName(b)))
	}
	return computedFloats(sign, x, y)
}

// joined is a sum of texts or lists.
func joined(r *run, a, b value) (value, bool) {
	if x, ok := asString(a); ok {
		y, ok := asString(b)
		if !ok {
			fail("can only concatenate str (not %s) to str", quote(typeName(b)))
		}
		_, first := a.(markup)
		_, second := b.(markup)
		if first && !second {
			y = escaped(r, y)
		}
		if second && !first {
			x = escaped(r, x)
		}
		r.grow(len(x) + len(y))
		return remarked(first || second, x+y), true
	}
	x, ok := a.(*list)
	if y, also := b.(*list); ok && also && x.tuple == y.tuple {
		r.growTimes(len(x.items)+len(y.items)+4, perItem)
		items := append(append(make([]value, 0, len(x.items)+len(y.items)), x.items...), y.items...)
		return &list{items: items, tuple: x.tuple}, true
	}
	return nil, false
}

// repeated is a text or list so many times.
func repeated(r *run, a, times value) (value, bool) {
	n, ok := asInt(times)
	if !ok {
		return nil, false
	}
	n = max(n, 0)
	if s, ok := asString(a); ok {
		r.growTimes(n, len(s))
		_, marked := a.(markup)
		if s == "" {
			n = 0
		}
		return remarked(marked, strings.Repeat(s, n)), true
	}
	if l, ok := a.(*list); ok {
		r.growTimes(n, perItem*len(l.items))
		if len(l.items) == 0 {
			n = 0
		}
		r.grow(4 * perItem)
		var items []value
		for range n {
			items = append(items, l.items...)
		}
		return &list{items: items, tuple: l.tuple}, true
	}
	return nil, false
}

// remarked is a text, marked as safe if its parts were.
func remarked(marked bool, s string) value {
	if marked {
		return markup(s)
	}
	return s
}

var htmlSigns = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", "\"", "&#34;")

func escaped(r *run, s string) string {
	s = htmlSigns.Replace(s)
	r.grow(len(s))
	return s
}

func tooLarge(sign string) value {
	fail("the result of %s does not fit 64 bits", sign)
	return nil
}

func computedInts(sign string, n, m int) value {
	switch sign {
	case "+":
		if s := n + m; s > n == (m > 0) || m == 0 {
			return s
		}
		return tooLarge(sign)
	case "-":
		if s := n - m; s < n == (m > 0) || m == 0 {
			return s
		}
		return tooLarge(sign)
	case "*":
		return product(n, m)
	case "/":
		if m == 0 {
			fail("division by zero")
		}
		return float64(n) / float64(m)
	case "//", "%":
		if m == 0 {
			fail("integer division or modulo by zero")
		}
		if n == math.MinInt && m == -1 {
			return tooLarge(sign)
		}
		q, rest := n/m, n%m
		if rest != 0 && rest < 0 != (m < 0) {
			q, rest = q-1, rest+m
		}
		if sign == "%" {
			return rest
		}
		return q
	}
	return power(n, m)
}

func product(n, m int) int {
	high, low := bits.Mul64(magnitude(n), magnitude(m))
	if high != 0 || low > math.MaxInt64 {
		tooLarge("*")
	}
	return n * m
}

func magnitude(n int) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// power is n to the m, a float where m is negative.
func power(n, m int) value {
	if m < 0 {
		if n == 0 {
			fail("0.0 cannot be raised to a negative power")
		}
		return computedFloats("**", float64(n), float64(m))
	}
	if n == 0 || n == 1 || n == -1 {
		if m == 0 || n == -1 && m%2 == 0 {
			return 1
		}
		return n
	}
	result := 1
	for range m { // ends after 63 turns, since n is 2 or more
		result = product(result, n)
	}
	return result
}

func computedFloats(sign string, x, y float64) value {
	switch sign {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		if y == 0 {
			fail("float division by zero")
		}
		return x / y
	case "//", "%":
		if y == 0 {
			fail("float modulo")
		}
		rest := math.Mod(x, y)
		q := (x - rest) / y
		if rest != 0 && rest < 0 != (y < 0) {
			rest += y
			q--
		}
		if rest == 0 {
			rest = math.Copysign(0, y)
		}
		if sign == "%" {
			return rest
		}
		if q == 0 {
			return math.Copysign(0, x/y)
		}
		if floor := math.Floor(q); q-floor > 0.5 {
			return floor + 1
		}
		return math.Floor(q)
	}
	if x == 0 && y < 0 {
		fail("0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) {
		fail("complex numbers are not known here")
	}
	result := math.Pow(x, y)
	if math.IsInf(result, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		fail("Numerical result out of range")
	}
	return result
}

// bounds are where a slice of something of a length begins and ends, its step and how many there
// are.
func (s *slice) bounds(length int) (from, to, step, count int) {
	index := func(v value, missing int) int {
		if v == nil {
			return missing
		}
		n, ok := asInt(v)
		if !ok {
			defined(v)
			fail("slice indices must be integers or None or have an __index__ method")
		}
		if n < 0 {
			n += length
		}
		low, high := 0, length
		if step < 0 {
			low, high = -1, length-1
		}
		return min(max(n, low), high)
	}
	step = 1
	if s.step != nil {
		n, ok := asInt(s.step)
		if !ok {
			fail("slice indices must be integers or None or have an __index__ method")
		}
		step = n
	}
	switch {
	case step == 0:
		fail("slice step cannot be zero")
	case step > 0:
		from, to = index(s.from, 0), index(s.to, length)
		if to > from {
			count = (to-from-1)/step + 1
		}
	default:
		step = max(step, -math.MaxInt)
		from, to = index(s.from, length-1), index(s.to, -1)
		if to < from {
			count = (from-to-1)/-step + 1
		}
	}
	return from, to, step, count
}

// sliced is part of a text, a list or a range, and false for what has no parts.
func sliced(r *run, of value, s *slice) (value, bool) {
	if text, ok := asString(of); ok {
		_, marked := of.(markup)
		return remarked(marked, slicedText(r, text, s)), true
	}
	switch of := of.(type) {
	case *list:
		from, _, step, count := s.bounds(len(of.items))
		r.growTimes(count+4, perItem)
		items := make([]value, count)
		for i := range items {
			items[i] = of.items[from+i*step]
		}
		return &list{items: items, tuple: of.tuple}, true
	case *numbers:
		from, to, step, count := s.bounds(of.count)
		return &numbers{of.start + from*of.step, of.start + to*of.step, of.step * step, count}, true
	}
	return nil, false
}

func slicedText(r *run, text string, s *slice) string {
	r.grow(len(text))
	if len(text) == utf8.RuneCountInString(text) {
		from, _, step, count := s.bounds(len(text))
		if step == 1 {
			return text[from : from+count]
		}
		b := make([]byte, count)
		for i := range b {
			b[i] = text[from+i*step]
		}
		return string(b)
	}
	runes := []rune(text)
	from, _, step, count := s.bounds(len(runes))
	part := make([]rune, count)
	for i := range part {
		part[i] = runes[from+i*step]
	}
	return string(part)
}

// indexed is the item at an index, and false where there is none.
func indexed(r *run, of value, index int) (value, bool) {
	length, _ := lengthOf(of)
	if index < 0 {
		index += length
	}
	if index < 0 || index >= length {
		return nil, false
	}
	switch of := of.(type) {
	case *list:
		return of.items[index], true
	case *numbers:
		return of.start + index*of.step, true
	}
	text, _ := asString(of)
	_, marked := of.(markup)
	r.grow(index)
	for range index {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	_, size := utf8.DecodeRuneInString(text)
	return remarked(marked, text[:size]), true
}
