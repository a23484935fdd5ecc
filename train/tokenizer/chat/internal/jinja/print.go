package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// str is a value as Python prints it.
func str(r *run, v value) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	}
	return repr(r, v)
}

// repr is a value as Python shows it within others. The run may be nil for what is short.
func repr(r *run, v value) string {
	if r == nil {
		r = &run{}
	}
	w := &writer{meter: &r.meter}
	show(w, v, 0)
	return string(w.text)
}

func show(w *writer, v value, depth int) {
	w.meter.step(1)
	switch v := v.(type) {
	case nil:
		w.write("None")
	case bool:
		if v {
			w.write("True")
		} else {
			w.write("False")
		}
	case int:
		w.write(strconv.Itoa(v))
	case float64:
		w.write(showFloat(v))
	case string:
		w.write(quote(v))
	case markup:
		w.write("Markup(" + quote(string(v)) + ")")
	case *undefined:
		w.write("Undefined")
	case *list:
		open, end := "[", "]"
		if v.tuple {
			open, end = "(", ")"
			if len(v.items) == 1 {
				end = ",)"
			}
		}
		w.write(open)
		showAll(w, v.items, depth)
		w.write(end)
	case *dict:
		w.write("{")
		for i, key := range v.keys {
			if i > 0 {
				w.write(", ")
			}
			show(w, key, deeper(depth))
			w.write(": ")
			show(w, v.values[i], deeper(depth))
		}
		w.write("}")
	case *view:
		w.write("dict_" + v.what + "([")
		showAll(w, v.items(), depth)
		w.write("])")
	case *numbers:
		w.write(fmt.Sprintf("range(%d, %d", v.start, v.stop))
		if v.step != 1 {
			w.write(", " + strconv.Itoa(v.step))
		}
		w.write(")")
	case *slice:
		w.write("slice(")
		showAll(w, []value{v.from, v.to, v.step}, depth)
		w.write(")")
	case *namespace:
		w.write("<Namespace ")
		show(w, v.fields, deeper(depth))
		w.write(">")
	case *function:
		switch {
		case v.macro && v.name == "":
			w.write("<Macro anonymous>")
		case v.macro:
			w.write("<Macro " + quote(v.name) + ">")
		case v.name == "namespace":
			w.write("<class 'transformers.utils.chat_template_utils._cached_compile_jinja_template.<locals>.TemplateNamespace'>")
		default:
			w.write("<function " + v.name + ">")
		}
	case *loopContext:
		w.write(fmt.Sprintf("<LoopContext %d/%d>", v.index+1, v.count()))
	default:
		w.write(fmt.Sprint(v))
	}
}

func showAll(w *writer, items []value, depth int) {
	for i, one := range items {
		if i > 0 {
			w.write(", ")
		}
		show(w, one, deeper(depth))
	}
}

// showFloat is a number as Python writes it.
func showFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// quote is a text between quotes, as Python shows it.
func quote(s string) string {
	mark := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, "\"") {
		mark = '"'
	}
	b := make([]byte, 0, len(s)+2)
	b = append(b, mark)
	for _, c := range s {
		switch {
		case c == rune(mark) || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, "\\n"...)
		case c == '\r':
			b = append(b, "\\r"...)
		case c == '\t':
			b = append(b, "\\t"...)
		case c >= ' ' && c < 0x7f:
			b = append(b, byte(c))
		case c < 0x100 && (c < 0xa1 || c == 0xad):
			b = fmt.Appendf(b, "\\x%02x", c)
		case printable(c):
			b = append(b, string(c)...)
		case c < 0x10000:
			b = fmt.Appendf(b, "\\u%04x", c)
		default:
			b = fmt.Appendf(b, "\\U%08x", c)
		}
	}
	return string(append(b, mark))
}

// printable is what Python shows as it is.
func printable(c rune) bool { return c == ' ' || unicode.IsPrint(c) }
