package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/rangetable"
)

// The patterns of tokenizer.json are written for Oniguruma with Ruby's syntax. This file says the
// same in the language of the engine that is used here.

// onig translates a pattern.
type onig struct {
	in     []rune
	at     int
	out    strings.Builder
	newest bool // classes have the characters of unicode16, which slows them
	depth  int  // classes around what is read
	atom   int  // where in out the last atom begins, −1 for none
	groups []int
}

// fromOnig is the pattern for the engine.
func fromOnig(pattern string, newest bool) (string, error) {
	o := &onig{in: []rune(pattern), newest: newest, atom: -1}
	for o.at < len(o.in) {
		if err := o.next(); err != nil {
			return "", fmt.Errorf("the pattern %.100q: %w", pattern, err)
		}
	}
	return o.out.String(), nil
}

func (o *onig) peek(s string) bool {
	r := []rune(s)
	return o.at+len(r) <= len(o.in) && slices.Equal(o.in[o.at:o.at+len(r)], r)
}

// next translates an atom, a quantifier or a parenthesis.
func (o *onig) next() error {
	r := o.in[o.at]
	switch {
	case r == '(':
		o.groups = append(o.groups, o.out.Len())
		o.copy(1)
		if o.peek("?") {
			o.copy(1)
			for o.at < len(o.in) && strings.ContainsRune("<=!>:imsx-", o.in[o.at]) {
				done := o.in[o.at] == ':'
				o.copy(1)
				if done {
					break
				}
			}
		}
		o.atom = -1
	case r == ')':
		if len(o.groups) == 0 {
			return errors.New("a parenthesis closes nothing")
		}
		o.copy(1)
		o.atom = o.groups[len(o.groups)-1]
		o.groups = o.groups[:len(o.groups)-1]
	case r == '*' || r == '+' || r == '?' || r == '{' && o.interval() > 0:
		return o.quantifier()
	case r == '[':
		o.atom = o.out.Len()
		class, err := o.class()
		o.out.WriteString(class)
		return err
	case r == '\\':
		o.atom = o.out.Len()
		text, isClass, err := o.escape()
		if isClass {
			if strings.HasPrefix(strings.TrimPrefix(text, "^"), wordClass) {
				text += aloneWords
			}
			text = "[" + text + "]"
		}
		o.out.WriteString(text)
		return err
	case r == '{':
		o.atom = o.out.Len()
		o.at++
		o.out.WriteString(`\{`)
	case r == '^':
		o.at++
		o.out.WriteString(`(?:\A|(?<=\n)(?!\z))`) // not behind the last line
		o.atom = -1
	default:
		o.atom = o.out.Len()
		o.copy(1)
		if r == '|' {
			o.atom = -1
		}
	}
	return nil
}

func (o *onig) copy(n int) {
	o.out.WriteString(string(o.in[o.at : o.at+n]))
	o.at += n
}

// interval is the length of a quantifier such as {2,3}, 0 where there is none.
func (o *onig) interval() int {
	end := o.at + 1
	digits := 0
	for ; end < len(o.in) && (o.in[end] == ',' || o.in[end] >= '0' && o.in[end] <= '9'); end++ {
		if o.in[end] != ',' {
			digits++
		}
	}
	if digits == 0 || end == len(o.in) || o.in[end] != '}' {
		return 0
	}
	return end + 1 - o.at
}

// quantifier writes one. Behind a + or ?, another + means that it gives nothing back.
func (o *onig) quantifier() error {
	if o.atom < 0 {
		return errors.New("a quantifier has nothing before it")
	}
	interval := o.in[o.at] == '{'
	n := 1
	if interval {
		n = o.interval()
	}
	text := string(o.in[o.at : o.at+n])
	o.at += n
	if interval && strings.HasPrefix(text, "{,") {
		text = "{0" + text[1:]
	}
	o.out.WriteString(text)
	switch {
	case o.peek("?"):
		o.copy(1)
	case o.peek("+") && !interval:
		o.at++
		o.wrap("(?>", ")")
	case o.peek("+") || o.peek("*") || o.peek("{"):
		o.wrap("(?:", ")")
	}
	return nil
}

// wrap puts something around the last atom.
func (o *onig) wrap(before, behind string) {
	all := o.out.String()
	o.out.Reset()
	o.out.WriteString(all[:o.atom] + before + all[o.atom:] + behind)
}

// escape reads what a backslash begins; of a class it gives what stands between brackets.
func (o *onig) escape() (text string, isClass bool, err error) {
	if o.at+1 == len(o.in) {
		return "", false, errors.New("a backslash ends it")
	}
	r := o.in[o.at+1]
	o.at += 2
	switch r {
	case 'p', 'P':
		return o.property(r == 'P')
	case 'd', 'w', 'D', 'W':
		return o.kind(map[rune]string{'d': "Nd", 'w': "word"}[unicode.ToLower(r)], unicode.IsUpper(r)), true, nil
	case 'h':
		return "0-9a-fA-F", true, nil
	case 'b', 'B':
		word := "[" + o.kind("word", false) + aloneWords + "]"
		if r == 'b' {
			return fmt.Sprintf("(?:(?<=%s)(?!%[1]s)|(?<!%[1]s)(?=%[1]s))", word), false, nil
		}
		return fmt.Sprintf("(?:(?<=%s)(?=%[1]s)|(?<!%[1]s)(?!%[1]s))", word), false, nil
	case 'x':
		if o.peek("{") {
			end := slices.Index(o.in[o.at:], '}')
			if end < 0 {
				return "", false, errors.New("\\x{ has no end")
			}
			var code rune
			if _, err := fmt.Sscanf(string(o.in[o.at+1:o.at+end]), "%x", &code); err != nil || !utf8.ValidRune(code) {
				return "", false, fmt.Errorf("\\x{%s} is no character", string(o.in[o.at+1:o.at+end]))
			}
			o.at += end + 1
			return quoted(code), false, nil
		}
	case 'R':
		return "(?>\\r\\n|[\\n-\\r\u0085\u2028\u2029])", false, nil
	case 'X', 'K', 'g', 'y', 'Y', 'H':
		return "", false, fmt.Errorf("\\%c is not supported", r)
	}
	return `\` + string(r), false, nil
}

// quoted is a character that means itself.
func quoted(r rune) string {
	if r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r) && unicode.IsPrint(r) && r != ' ' {
		return `\` + string(r)
	}
	return string(r)
}

// property reads the rest of \p{L}.
func (o *onig) property(negated bool) (string, bool, error) {
	end := slices.Index(o.in[o.at:], '}')
	if !o.peek("{") || end < 0 {
		return "", false, errors.New("\\p needs a name in braces")
	}
	name := string(o.in[o.at+1 : o.at+end])
	o.at += end + 1
	if after, found := strings.CutPrefix(name, "^"); found {
		negated, name = !negated, after
	}
	if left, found := leftOut[name]; found {
		if !negated {
			return left.others(o.newest), true, nil
		}
		return left.joined(o.newest), true, nil
	}
	return o.kind(name, negated), true, nil
}

// onigSet is a class with a name of its own: what it is called within [: and :], and the kinds of
// characters and further ones that are in it.
type onigSet struct {
	kinds   []string
	further *unicode.RangeTable // nil for none
}

var onigSets = map[string]onigSet{
	"alnum":  {[]string{"L", "Nl", "Nd"}, rangetable.Merge(unicode.Other_Alphabetic, newAlphabetic)},
	"alpha":  {[]string{"L", "Nl"}, rangetable.Merge(unicode.Other_Alphabetic, newAlphabetic)},
	"ascii":  {nil, &unicode.RangeTable{R16: []unicode.Range16{{0, unicode.MaxASCII, 1}}}},
	"blank":  {[]string{"Zs"}, rangetable.New('\t')},
	"cntrl":  {[]string{"Cc"}, nil},
	"digit":  {[]string{"Nd"}, nil},
	"lower":  {[]string{"Ll"}, unicode.Other_Lowercase},
	"punct":  {[]string{"P", "S"}, nil},
	"space":  {nil, unicode.White_Space},
	"upper":  {[]string{"Lu"}, unicode.Other_Uppercase},
	"xdigit": {nil, unicode.ASCII_Hex_Digit},
	"word":   {[]string{"L", "M", "Nd", "Nl", "Pc"}, circled},
}

// circled are letters in circles and squares, which count as parts of words.
var circled = &unicode.RangeTable{
	R16: []unicode.Range16{{0x24b6, 0x24e9, 1}},
	R32: []unicode.Range32{{0x1f130, 0x1f149, 1}, {0x1f150, 0x1f169, 1}, {0x1f170, 0x1f189, 1}},
}

// leftOut are the kinds that \p{C} and \p{Cn} leave out, which take what has no kind at all.
var leftOut = map[string]onigSet{
	"C":  {kinds: []string{"L", "M", "N", "P", "S", "Z"}},
	"Cn": {kinds: []string{"L", "M", "N", "P", "S", "Z", "Cc", "Cf", "Co", "Cs"}},
}

// setOf is the class of a name that \p or [: may have.
func setOf(name string, posix bool) (s onigSet, known bool) {
	lower := strings.ToLower(name)
	switch {
	case lower == "punct" && !posix:
		return onigSet{kinds: []string{"P"}}, true
	case name == "Alphabetic":
		return onigSets["alpha"], true
	case name == "Uppercase", name == "Lowercase":
		return onigSets[lower[:5]], true
	case name == "LC":
		return onigSet{kinds: []string{"Lu", "Ll", "Lt"}}, true
	}
	s, known = onigSets[lower]
	return s, known
}

// wordClass is what \w means: letters, marks, digits, and some more.
var wordClass = onigSets["word"].text()

// aloneWords are what \w means besides where it stands by itself, and not within a class.
const aloneWords = "²³¹¼-¾"

// text is what stands between brackets for the class.
func (s onigSet) text() string {
	var b strings.Builder
	for _, kind := range s.kinds {
		b.WriteString(`\p{` + kind + `}`)
	}
	if s.further != nil {
		writeRanges(&b, s.further)
	}
	return b.String()
}

// joined is text with the characters of unicode16, if they are asked for.
func (s onigSet) joined(newest bool) string {
	text := s.text()
	if newest {
		for _, kind := range s.kinds {
			text += newRanges(kind)
		}
	}
	return text
}

// kind is a class by its name, to stand between brackets.
func (o *onig) kind(name string, negated bool) string { return o.named(name, negated, false) }

func (o *onig) named(name string, negated, posix bool) string {
	s, known := setOf(name, posix)
	if !known {
		s = onigSet{kinds: []string{name}}
	}
	text := s.joined(o.newest)
	switch {
	case negated && text == `\p{`+name+`}`:
		return `\P` + text[2:]
	case negated && o.depth > 0:
		return s.others(o.newest)
	case negated:
		return "^" + text
	}
	return text
}

// others are all characters but those of the class.
func (s onigSet) others(newest bool) string {
	in := &unicode.RangeTable{}
	if s.further != nil {
		in = s.further
	}
	for _, kind := range s.kinds {
		for _, t := range []*unicode.RangeTable{unicode.Categories[kind], unicode.Scripts[kind]} {
			if t != nil {
				in = rangetable.Merge(in, t)
			}
		}
		if newest {
			in = rangetable.Merge(append(newOf(kind), in)...)
		}
	}
	var b strings.Builder
	next := rune(0)
	rangetable.Visit(in, func(r rune) {
		if next < r {
			writeRange(&b, next, r-1)
		}
		next = r + 1
	})
	writeRange(&b, next, unicode.MaxRune)
	return b.String()
}

// newOf are the characters of unicode16 whose kind begins with a name, or of a script.
func newOf(kind string) (tables []*unicode.RangeTable) {
	for _, name := range slices.Sorted(maps.Keys(unicode16)) {
		if strings.HasPrefix(name, kind) {
			tables = append(tables, unicode16[name])
		}
	}
	if script := scripts16[kind]; script != nil {
		tables = append(tables, script)
	}
	return tables
}

func newRanges(kind string) string {
	var b strings.Builder
	for _, t := range newOf(kind) {
		writeRanges(&b, t)
	}
	return b.String()
}

// writeRanges writes the characters of a table to stand between brackets.
func writeRanges(b *strings.Builder, t *unicode.RangeTable) {
	first, last := rune(-1), rune(-2)
	rangetable.Visit(t, func(r rune) {
		if r != last+1 && first >= 0 {
			writeRange(b, first, last)
		}
		if r != last+1 {
			first = r
		}
		last = r
	})
	if first >= 0 {
		writeRange(b, first, last)
	}
}

// writeRange writes characters that lie side by side, without halves of a pair.
func writeRange(b *strings.Builder, first, last rune) {
	const low, high = 0xd800, 0xdfff
	if first < low && last > high {
		writeRange(b, first, low-1)
		first = high + 1
	}
	write := func(r rune) {
		if r < utf8.RuneSelf {
			fmt.Fprintf(b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	write(first)
	if last > first {
		b.WriteByte('-')
		write(last)
	}
}

// class reads a class in brackets, in which others may stand, and && between sets of which a
// character has to be in each. It is one class of the engine where nothing else is needed.
func (o *onig) class() (string, error) {
	o.at++
	negated := o.peek("^")
	if negated {
		o.at++
	}
	sets, err := o.members(0)
	if err != nil {
		return "", err
	}
	if len(sets) == 1 && len(sets[0].negated) == 0 {
		if negated {
			return "[^" + sets[0].text + "]", nil
		}
		return "[" + sets[0].text + "]", nil
	}
	var all strings.Builder
	for _, set := range sets[1:] {
		all.WriteString("(?=" + set.expression() + ")")
	}
	all.WriteString(sets[0].expression())
	if negated {
		return "(?:(?!" + all.String() + `)[\s\S])`, nil
	}
	return "(?:" + all.String() + ")", nil
}

// onigMembers are what is in a class: what stands between brackets, and negated classes, as such.
type onigMembers struct {
	text    string
	negated []string
}

func (m onigMembers) expression() string {
	if m.text == "" && len(m.negated) == 1 {
		return "[^" + m.negated[0] + "]"
	}
	var all strings.Builder
	all.WriteString("(?:[" + m.text + "]")
	if m.text == "" {
		all.Reset()
		all.WriteString("(?:(?!)")
	}
	for _, text := range m.negated {
		all.WriteString("|[^" + text + "]")
	}
	return all.String() + ")"
}

// members reads what is in a class, to its end: the sets between its &&.
func (o *onig) members(depth int) (sets []onigMembers, err error) {
	o.depth++
	defer func() { o.depth-- }()
	sets = []onigMembers{{}}
	for first := true; ; first = false {
		set := &sets[len(sets)-1]
		switch {
		case o.at == len(o.in):
			return nil, errors.New("a class has no end")
		case o.peek("]") && !first:
			o.at++
			if len(sets) > 1 && slices.ContainsFunc(sets, func(m onigMembers) bool { return m.text == "" && m.negated == nil }) {
				return nil, errors.New("&& in a class has nothing on one side")
			}
			return sets, nil
		case o.peek("[:"):
			name, after, found := strings.Cut(string(o.in[o.at+2:]), ":]")
			negated := strings.HasPrefix(name, "^")
			name = strings.TrimPrefix(name, "^")
			if _, known := onigSets[name]; !found || !known {
				return nil, fmt.Errorf("the class [:%.20s is not supported", name)
			}
			o.at = len(o.in) - utf8.RuneCountInString(after)
			set.text += o.named(name, negated, true)
		case o.peek("["):
			o.at++
			negated := o.peek("^")
			if negated {
				o.at++
			}
			if depth > 100 {
				return nil, errors.New("its classes are within each other too often")
			}
			inner, err := o.members(depth + 1)
			switch {
			case err != nil:
				return nil, err
			case len(inner) > 1 || len(inner[0].negated) > 0 && negated:
				return nil, errors.New("such a class within a class is not supported")
			case negated:
				set.negated = append(set.negated, inner[0].text)
			default:
				set.text += inner[0].text
				set.negated = append(set.negated, inner[0].negated...)
			}
		case o.peek("&&"):
			o.at += 2
			sets = append(sets, onigMembers{})
		case o.peek(`\`):
			if o.peek(`\b`) || o.peek(`\R`) {
				return nil, fmt.Errorf("%s in a class is not supported", string(o.in[o.at:o.at+2]))
			}
			text, _, err := o.escape()
			if err != nil {
				return nil, err
			}
			set.text += text
		default:
			set.text += string(o.in[o.at])
			o.at++
		}
	}
}
