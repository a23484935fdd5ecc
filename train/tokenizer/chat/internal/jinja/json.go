package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Pair is a name and a value of an Object.
type Pair struct {
	Name  string
	Value any
}

// Object is an object whose names keep their order.
type Object []Pair

// fromGo is a value of Go as one of a template, as JSON would carry it: the names of a map are
// sorted, those of structs and of a json.RawMessage keep their order, and a float64 without a
// fraction is an integer.
func fromGo(v any, depth int) (value, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case bool:
		return v, nil
	case string:
		return strings.ToValidUTF8(v, "\uFFFD"), nil
	case int:
		return v, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return int(v), nil
		}
		return v, nil
	case []any:
		l := &list{items: make([]value, len(v))}
		for i, one := range v {
			var err error
			if l.items[i], err = fromGo(one, depth+1); err != nil {
				return nil, err
			}
		}
		return l, nil
	case map[string]any:
		var o Object
		for name, one := range v {
			o = append(o, Pair{name, one})
		}
		slices.SortFunc(o, func(a, b Pair) int { return strings.Compare(a.Name, b.Name) })
		return fromGo(o, depth)
	case Object:
		d := newDict()
		for _, p := range v {
			one, err := fromGo(p.Value, depth+1)
			if err != nil {
				return nil, err
			}
			d.put(nil, strings.ToValidUTF8(p.Name, "\uFFFD"), one)
		}
		return d, nil
	case json.RawMessage:
		return fromJSON(v)
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fromJSON(text)
}

// fromJSON reads JSON, whose names keep their order.
func fromJSON(text []byte) (value, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	v, err := readJSON(decoder, 0)
	if err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("something follows a value's JSON")
	}
	return v, nil
}

func readJSON(decoder *json.Decoder, depth int) (value, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	t, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		if strings.ContainsAny(t.String(), ".eE") {
			f, _ := strconv.ParseFloat(t.String(), 64) // infinite where too large, as in Python
			return f, nil
		}
		n, err := strconv.Atoi(t.String())
		if err != nil {
			return nil, fmt.Errorf("the number %.40s does not fit 64 bits", t)
		}
		return n, nil
	case json.Delim:
		l, d := &list{}, newDict()
		for decoder.More() {
			var name value
			if t == '{' {
				if name, err = readJSON(decoder, depth+1); err != nil {
					return nil, err
				}
			}
			one, err := readJSON(decoder, depth+1)
			if err != nil {
				return nil, err
			}
			if t == '{' {
				d.put(nil, name, one)
			} else {
				l.items = append(l.items, one)
			}
		}
		if _, err := decoder.Token(); err != nil {
			return nil, err
		}
		if t == '{' {
			return d, nil
		}
		return l, nil
	case string, bool, nil:
		return t, nil
	}
	return nil, fmt.Errorf("%v is no value of JSON", t)
}

// jsonStyle is how tojson writes.
type jsonStyle struct {
	ascii, sort        bool
	indent             string
	indented           bool
	between, afterName string
}

func filterJSON(r *run, v value, a given) value {
	p := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	is := func(v value) bool { return v != (absent{}) && truth(v) }
	style := jsonStyle{ascii: is(p[0]), sort: is(p[3]), between: ", ", afterName: ": "}
	if p[1] != (absent{}) && p[1] != nil {
		style.indented, style.between = true, ","
		if s, ok := asString(p[1]); ok {
			style.indent = s
		} else {
			n := needInt("tojson", p[1])
			r.growTimes(n, 1)
			style.indent = strings.Repeat(" ", max(0, n))
		}
	}
	if p[2] != (absent{}) && p[2] != nil {
		parts := listed(r, p[2])
		if len(parts) != 2 {
			fail("tojson needs two separators, not %d", len(parts))
		}
		style.between, style.afterName = needText("tojson", parts[0]), needText("tojson", parts[1])
	}
	w := &writer{meter: &r.meter}
	style.write(r, w, v, "\n", 0)
	return string(w.text)
}

func (style *jsonStyle) write(r *run, w *writer, v value, line string, depth int) {
	r.step(1)
	switch v := v.(type) {
	case nil:
		w.write("null")
	case bool:
		w.write(strconv.FormatBool(v))
	case int:
		w.write(strconv.Itoa(v))
	case float64:
		w.write(jsonFloat(v))
	case string:
		style.text(w, v)
	case markup:
		style.text(w, string(v))
	case *list:
		style.all(w, "[", "]", line, len(v.items), func(i int, line string) {
			style.write(r, w, v.items[i], line, deeper(depth))
		})
	case *dict:
		at := make([]int, len(v.keys))
		for i := range at {
			at[i] = i
		}
		if style.sort {
			r.growTimes(len(at), 4*perItem)
			slices.SortStableFunc(at, func(a, b int) int {
				if less(r, v.keys[a], v.keys[b], 0, "<") {
					return -1
				}
				return 1
			})
		}
		style.all(w, "{", "}", line, len(at), func(i int, line string) {
			style.text(w, jsonName(v.keys[at[i]]))
			w.write(style.afterName)
			style.write(r, w, v.values[at[i]], line, deeper(depth))
		})
	default:
		fail("Object of type %s is not JSON serializable", typeName(v))
	}
}

// all writes the parts of a list or an object.
func (style *jsonStyle) all(w *writer, open, end, line string, count int, part func(i int, line string)) {
	w.write(open)
	inner := line
	if style.indented {
		w.meter.grow(len(line) + len(style.indent))
		inner += style.indent
	}
	for i := range count {
		if i > 0 {
			w.write(style.between)
		}
		if style.indented {
			w.write(inner)
		}
		part(i, inner)
	}
	if style.indented && count > 0 {
		w.write(line)
	}
	w.write(end)
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return showFloat(f)
}

func jsonName(key value) string {
	switch key := key.(type) {
	case string:
		return key
	case markup:
		return string(key)
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(key)
	case int:
		return strconv.Itoa(key)
	case float64:
		return jsonFloat(key)
	}
	fail("keys must be str, int, float, bool or None, not %s", typeName(key))
	return ""
}

func (style *jsonStyle) text(w *writer, s string) {
	b := make([]byte, 0, len(s)+2)
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c < ' ':
			b = fmt.Appendf(b, `\u%04x`, c)
		case style.ascii && c >= 0x10000:
			c -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		case style.ascii && c > '~':
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = utf8.AppendRune(b, c)
		}
	}
	w.write(string(append(b, '"')))
}
