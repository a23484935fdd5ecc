package jinja

import (
	"fmt"
	"strings"
	"time"
)

// globals are the functions that a template has beside its variables.
var globals = map[string]func(*run, given) value{
	"raise_exception": func(r *run, a given) value {
		fail("%s", str(r, a.bind("raise_exception", 1, "message")[0]))
		return nil
	},
	"strftime_now": func(r *run, a given) value {
		s := needText("strftime_now", a.bind("strftime_now", 1, "format")[0])
		r.growTimes(8, len(s))
		return strftime(time.Now(), s)
	},
	"range": func(_ *run, a given) value {
		noNames("range", a)
		p := a.bind("range", 1, "start", "stop", "step")
		start, stop, step := 0, needInt("range", p[0]), 1
		if p[1] != (absent{}) {
			start, stop, step = stop, needInt("range", p[1]), integer(p[2], 1)
		}
		if step == 0 {
			fail("range() arg 3 must not be zero")
		}
		// Distances are unsigned, since they may exceed what a signed number holds.
		count := uint64(0)
		switch {
		case step > 0 && stop > start:
			count = (uint64(stop)-uint64(start)-1)/uint64(step) + 1
		case step < 0 && stop < start:
			count = (uint64(start)-uint64(stop)-1)/magnitude(step) + 1
		}
		if count > maxRange {
			fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
		}
		return &numbers{start, stop, step, int(count)}
	},
	"dict": func(r *run, a given) value { return built(r, "dict", a) },
	"namespace": func(r *run, a given) value {
		n := &namespace{newDict()}
		from := built(r, "namespace", a)
		for i, key := range from.keys {
			n.put(r, str(r, key), from.values[i])
		}
		return n
	},
}

// built is an object of another object or of pairs, and of arguments by name.
func built(r *run, function string, a given) *dict {
	d := newDict()
	if len(a.list) > 1 {
		fail("%s expected at most 1 argument, got %d", function, len(a.list))
	}
	if len(a.list) == 1 {
		defined(a.list[0])
		if from, ok := a.list[0].(*dict); ok {
			r.growTimes(len(from.keys), 4*perItem)
			for i, key := range from.keys {
				d.put(r, key, from.values[i])
			}
		} else {
			for _, pair := range listed(r, a.list[0]) {
				kv := listed(r, pair)
				if len(kv) != 2 {
					fail("dictionary update sequence element has length %d; 2 is required", len(kv))
				}
				r.grow(4 * perItem)
				d.put(r, kv[0], kv[1])
			}
		}
	}
	for i, name := range a.names {
		d.put(r, name, a.named[i])
	}
	return d
}

// strftime writes a time as Python does in the C locale.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format)
		if plain {
			i++
		}
		s := directive(t, format[i])
		if plain {
			s = strings.TrimLeft(s, "0 ")
			if s == "" {
				s = "0"
			}
		}
		b.WriteString(s)
	}
	return b.String()
}

func directive(t time.Time, c byte) string {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon",
		'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04",
		'D': "01/02/06", 'e': "_2", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
	}
	if layout, ok := layouts[c]; ok {
		return t.Format(layout)
	}
	year, week := t.ISOWeek()
	switch c {
	case '%':
		return "%"
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'j':
		return fmt.Sprintf("%03d", t.YearDay())
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case 'w':
		return fmt.Sprint(int(t.Weekday()))
	case 'u':
		return fmt.Sprint((int(t.Weekday())+6)%7 + 1)
	case 'G':
		return fmt.Sprint(year)
	case 'V':
		return fmt.Sprintf("%02d", week)
	case 's':
		return fmt.Sprint(t.Unix())
	case 'Z', 'z':
		return "" // Python's time has no zone here
	}
	return "%" + string(c)
}
