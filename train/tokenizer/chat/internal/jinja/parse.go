package jinja

import (
	"slices"
)

// parser makes nodes of tokens, by the grammar of Jinja. What it cannot read is a failure.
type parser struct {
	tokens  []token
	at      int
	nesting int // statements within statements
	bracket int // expressions within expressions
	loops   int // for statements around this one within the same macro, where break and continue may be
	// extra are the names of what a macro is given beside its parameters that are used in the macro
	// at hand.
	extra map[string]bool
	// unknown are errors of filters and tests that are not known. Jinja minds them at once, but
	// within the branches of an if where they are used.
	unknown  []string
	branches bool // the statements at hand are branches of an if
}

func (p *parser) now() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != endOfFile {
		p.at++
	}
	return t
}

func (p *parser) fail(format string, values ...any) {
	fail("line %d of the template: "+format, append([]any{p.now().line}, values...)...)
}

func (p *parser) isSign(s string) bool { return p.now().kind == signToken && p.now().text == s }

func (p *parser) isName(s ...string) bool {
	return p.now().kind == nameToken && slices.Contains(s, p.now().text)
}

func (p *parser) skipSign(s string) bool {
	if p.isSign(s) {
		p.at++
		return true
	}
	return false
}

func (p *parser) skipName(s string) bool {
	if p.isName(s) {
		p.at++
		return true
	}
	return false
}

func (p *parser) sign(s string) {
	if !p.skipSign(s) {
		p.fail("there is %v, where %q is expected", p.now(), s)
	}
}

func (p *parser) name(s string) {
	if !p.skipName(s) {
		p.fail("there is %v, where %q is expected", p.now(), s)
	}
}

func (p *parser) identifier() string {
	if p.now().kind != nameToken {
		p.fail("there is %v, where a name is expected", p.now())
	}
	return p.next().text
}

func (p *parser) end(k kind) {
	if p.now().kind != k {
		p.fail("there is %v, where the tag ends", p.now())
	}
	p.at++
}

// body reads statements up to a tag of one of the given names, of which it leaves the name to read.
// Without names it reads to the end.
func (p *parser) body(ends ...string) []statement {
	if p.nesting++; p.nesting > maxNesting {
		p.fail("statements are more than %d deep", maxNesting)
	}
	defer func() { p.nesting-- }()
	var list []statement
	for {
		switch t := p.now(); t.kind {
		case dataToken:
			p.at++
			list = append(list, text(t.text))
		case variableBegin:
			p.at++
			list = append(list, output{p.tuple(true)})
			p.end(variableEnd)
			p.mindUnknown()
		case blockBegin:
			p.at++
			if len(ends) > 0 && p.isName(ends...) {
				return list
			}
			list = append(list, p.statement())
			p.end(blockEnd)
			p.mindUnknown()
		default:
			if len(ends) > 0 {
				p.fail("the template ends before %q", ends[0])
			}
			return list
		}
	}
}

// mindUnknown fails for filters and tests that are not known, outside of branches.
func (p *parser) mindUnknown() {
	if len(p.unknown) > 0 && !p.branches {
		p.fail("%s", p.unknown[0])
	}
	p.unknown = nil
}

// inner reads the body of a statement, from the end of its tag on. Of the tag that ends the body it
// reads the name, and returns it.
func (p *parser) inner(ends ...string) ([]statement, string) {
	p.skipSign(":")
	p.end(blockEnd)
	p.mindUnknown()
	outer := p.branches
	p.branches = slices.Contains(ends, "endif")
	body := p.body(ends...)
	p.branches = outer
	return body, p.next().text
}

// apart reads a body that is a function of its own in Jinja, so that the loops around it are not
// its own.
func (p *parser) apart(end string) []statement {
	loops := p.loops
	p.loops = 0
	body, _ := p.inner(end)
	p.loops = loops
	return body
}

func (p *parser) macroBody(m *macro, end string) {
	outer := p.extra
	p.extra = map[string]bool{}
	m.body = p.apart(end)
	m.extra = p.extra
	for name := range m.extra {
		outer[name] = true
	}
	p.extra = outer
}

func (p *parser) statement() statement {
	word := p.identifier()
	switch word {
	case "for":
		return p.loop()
	case "if":
		return p.choice()
	case "set":
		return p.assignment()
	case "macro":
		m := &macro{name: p.identifier()}
		p.signature(m)
		p.macroBody(m, "endmacro")
		return m
	case "call":
		m := &macro{}
		if p.isSign("(") {
			p.signature(m)
		}
		c, ok := p.expression().(*call)
		if !ok {
			p.fail("what follows call does not call anything")
		}
		p.macroBody(m, "endcall")
		return &callBlock{c, m}
	case "generation":
		// Jinja makes a macro of it, which is called at once.
		return &scoped{p.apart("endgeneration")}
	case "filter":
		f := p.filters(nil, true)
		body, _ := p.inner("endfilter")
		return &filterBlock{f, body}
	case "with":
		w := &with{}
		for p.now().kind != blockEnd {
			if len(w.names) > 0 {
				p.sign(",")
			}
			w.names = append(w.names, p.target(false))
			p.sign("=")
			w.values = append(w.values, p.expression())
		}
		w.body, _ = p.inner("endwith")
		return w
	case "print":
		var list sequence
		for p.now().kind != blockEnd {
			if len(list) > 0 {
				p.sign(",")
			}
			list = append(list, output{p.expression()})
		}
		return list
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%s is outside of a loop", word)
		}
		if word == "break" {
			return jump(broken)
		}
		return jump(continued)
	}
	p.fail("%q is no statement that is known here", word)
	return nil
}

func (p *parser) loop() statement {
	p.loops++
	f := &loop{target: p.target(false)}
	p.name("in")
	f.items = p.tuple(false, "recursive")
	if p.skipName("if") {
		f.test = p.expression()
	}
	f.recursive = p.skipName("recursive")
	body, end := p.inner("endfor", "else")
	p.loops--
	f.body = body
	if end == "else" {
		f.otherwise, _ = p.inner("endfor")
	}
	return f
}

func (p *parser) choice() statement {
	c := &choice{}
	for {
		condition := p.tuple(false)
		p.unknown = nil
		body, end := p.inner("elif", "else", "endif")
		c.conditions, c.bodies = append(c.conditions, condition), append(c.bodies, body)
		switch end {
		case "else":
			c.otherwise, _ = p.inner("endif")
			return c
		case "endif":
			return c
		}
	}
}

func (p *parser) assignment() statement {
	target := p.target(true)
	if p.skipSign("=") {
		return &assign{target, p.tuple(true)}
	}
	var f expression
	if p.isSign("|") {
		f = p.filters(nil, false)
	}
	body, _ := p.inner("endset")
	return &assignBlock{target, f, body}
}

func (p *parser) signature(m *macro) {
	p.sign("(")
	for !p.isSign(")") {
		if len(m.parameters) > 0 {
			p.sign(",")
		}
		m.parameters = append(m.parameters, p.identifier())
		if p.skipSign("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			p.fail("a parameter without a default follows one that has a default")
		}
	}
	p.sign(")")
}

// target reads what is assigned to: names, and attributes of namespaces where the statement is set.
func (p *parser) target(namespaces bool) target {
	var list []target
	for {
		if len(list) > 0 && p.tupleEnds("in") {
			return target{list: list}
		}
		list = append(list, p.oneTarget(namespaces))
		if !p.skipSign(",") {
			break
		}
		if p.tupleEnds("in") {
			return target{list: list}
		}
	}
	if len(list) == 1 {
		return list[0]
	}
	return target{list: list}
}

func (p *parser) oneTarget(namespaces bool) target {
	if p.skipSign("(") {
		p.deepen()
		defer func() { p.bracket-- }()
		t := p.target(namespaces)
		p.sign(")")
		return t
	}
	n := p.identifier()
	switch n {
	case "true", "false", "none", "True", "False", "None":
		p.fail("nothing can be assigned to %s", n)
	case "loop":
		if p.loops > 0 {
			p.fail("nothing can be assigned to loop within a loop")
		}
	}
	if namespaces && p.skipSign(".") {
		return target{name: n, attribute: p.identifier()}
	}
	return target{name: n}
}

func (p *parser) deepen() {
	if p.bracket++; p.bracket > maxBracket {
		p.fail("expressions are more than %d deep", maxBracket)
	}
}

func (p *parser) tupleEnds(words ...string) bool {
	k := p.now().kind
	return k == variableEnd || k == blockEnd || p.isSign(")") || p.isName(words...)
}

// tuple reads an expression, or several with commas between them. Choices says whether it may be an
// if-else.
func (p *parser) tuple(choices bool, ends ...string) expression {
	var list []expression
	for {
		if p.tupleEnds(ends...) {
			break
		}
		if choices {
			list = append(list, p.expression())
		} else {
			list = append(list, p.or())
		}
		if !p.isSign(",") {
			if len(list) == 1 {
				return list[0]
			}
			break
		}
		p.at++
	}
	if len(list) == 0 {
		p.fail("there is %v, where an expression is expected", p.now())
	}
	return &display{list, true}
}

func (p *parser) expression() expression {
	p.deepen()
	defer func() { p.bracket-- }()
	known := len(p.unknown)
	e := p.or()
	for p.skipName("if") {
		c := &ifElse{value: e, condition: p.or()}
		if p.skipName("else") {
			c.otherwise = p.expression()
		}
		p.unknown = p.unknown[:known]
		e = c
	}
	return e
}

func (p *parser) or() expression {
	e := p.and()
	for p.skipName("or") {
		e = &logical{e, p.and(), true}
	}
	return e
}

func (p *parser) and() expression {
	e := p.not()
	for p.skipName("and") {
		e = &logical{e, p.not(), false}
	}
	return e
}

func (p *parser) not() expression {
	if p.skipName("not") {
		p.deepen()
		defer func() { p.bracket-- }()
		return &negation{p.not()}
	}
	return p.compare()
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) compare() expression {
	e := p.sum()
	var c *comparison
	for {
		sign := ""
		switch {
		case p.now().kind == signToken && slices.Contains(comparisons, p.now().text):
			sign = p.next().text
		case p.skipName("in"):
			sign = "in"
		case p.isName("not") && p.tokens[p.at+1].kind == nameToken && p.tokens[p.at+1].text == "in":
			p.at += 2
			sign = "not in"
		default:
			if c == nil {
				return e
			}
			return c
		}
		if c == nil {
			c = &comparison{first: e}
		}
		c.signs, c.others = append(c.signs, sign), append(c.others, p.sum())
	}
}

// binary reads operands with signs between them, from the left.
func (p *parser) binary(operand func() expression, signs ...string) expression {
	e := operand()
	for p.now().kind == signToken && slices.Contains(signs, p.now().text) {
		sign := p.next().text
		e = &arithmetic{sign, e, operand()}
	}
	return e
}

func (p *parser) sum() expression { return p.binary(p.concatenation, "+", "-") }

func (p *parser) concatenation() expression {
	list := []expression{p.product()}
	for p.skipSign("~") {
		list = append(list, p.product())
	}
	if len(list) == 1 {
		return list[0]
	}
	return concatenation(list)
}

func (p *parser) product() expression { return p.binary(p.power, "*", "/", "//", "%") }
func (p *parser) power() expression   { return p.binary(p.filtered, "**") }

func (p *parser) filtered() expression {
	e := p.unary()
	for {
		switch {
		case p.isSign("|"):
			e = p.filters(e, false)
		case p.isName("is"):
			e = p.test(e)
		case p.isSign("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) unary() expression {
	for _, sign := range []string{"-", "+"} {
		if p.skipSign(sign) {
			p.deepen()
			defer func() { p.bracket-- }()
			return p.postfix(&signed{sign == "-", p.unary()})
		}
	}
	return p.postfix(p.primary())
}

func (p *parser) primary() expression {
	p.deepen()
	defer func() { p.bracket-- }()
	switch t := p.next(); {
	case t.kind == nameToken:
		switch t.text {
		case "true", "True":
			return constant{true}
		case "false", "False":
			return constant{false}
		case "none", "None":
			return constant{nil}
		}
		switch t.text {
		case "caller", "kwargs", "varargs":
			p.extra[t.text] = true
		}
		return variable(t.text)
	case t.kind == stringToken:
		s := t.text
		for p.now().kind == stringToken {
			s += p.next().text
		}
		return constant{s}
	case t.kind == integerToken || t.kind == floatToken:
		return constant{t.value}
	case t.kind == signToken && t.text == "(":
		if p.skipSign(")") {
			return &display{nil, true}
		}
		e := p.tuple(true)
		p.sign(")")
		return e
	case t.kind == signToken && t.text == "[":
		var list []expression
		for !p.isSign("]") {
			list = append(list, p.expression())
			if !p.skipSign(",") {
				break
			}
		}
		p.sign("]")
		return &display{list, false}
	case t.kind == signToken && t.text == "{":
		d := &object{}
		for !p.isSign("}") {
			d.keys = append(d.keys, p.expression())
			p.sign(":")
			d.values = append(d.values, p.expression())
			if !p.skipSign(",") {
				break
			}
		}
		p.sign("}")
		return d
	}
	p.at--
	p.fail("there is %v, where a value is expected", p.now())
	return nil
}

func (p *parser) postfix(e expression) expression {
	for {
		switch {
		case p.skipSign("."):
			switch t := p.next(); t.kind {
			case nameToken:
				e = &attribute{e, t.text}
			case integerToken:
				e = &item{e, constant{t.value}}
			default:
				p.fail("there is %v, where a name or a number is expected", t)
			}
		case p.skipSign("["):
			e = &item{e, p.subscripts()}
		case p.isSign("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

// subscripts reads what lies between [ and ].
func (p *parser) subscripts() expression {
	var list []expression
	for !p.isSign("]") {
		if len(list) > 0 {
			p.sign(",")
		}
		list = append(list, p.subscript())
	}
	p.sign("]")
	if len(list) == 1 {
		return list[0]
	}
	return &display{list, true}
}

func (p *parser) subscript() expression {
	var s slicing
	if !p.isSign(":") {
		s.from = p.expression()
		if !p.isSign(":") {
			return s.from
		}
	}
	p.at++
	part := func() expression {
		if p.isSign(":") || p.isSign("]") || p.isSign(",") {
			return nil
		}
		return p.expression()
	}
	s.to = part()
	if p.skipSign(":") {
		s.step = part()
	}
	return &s
}

func (p *parser) call(of expression) expression {
	return &call{of: of, given: p.arguments(), line: p.now().line}
}

func (p *parser) arguments() arguments {
	var a arguments
	p.sign("(")
	for !p.isSign(")") {
		switch {
		case p.skipSign("*"):
			if a.list != nil || a.object != nil {
				p.fail("there are two lists of arguments")
			}
			a.list = p.expression()
		case p.skipSign("**"):
			if a.object != nil {
				p.fail("there are two objects of arguments")
			}
			a.object = p.expression()
		case p.now().kind == nameToken && p.tokens[p.at+1].kind == signToken && p.tokens[p.at+1].text == "=":
			if a.object != nil {
				p.fail("an argument follows an object of arguments")
			}
			name := p.next().text
			if slices.Contains(a.names, name) {
				p.fail("the argument %s is given twice", name)
			}
			p.at++
			a.names, a.named = append(a.names, name), append(a.named, p.expression())
		default:
			if a.list != nil || a.object != nil || a.names != nil {
				p.fail("an argument without a name follows one that has a name")
			}
			a.plain = append(a.plain, p.expression())
		}
		if !p.skipSign(",") {
			break
		}
	}
	p.sign(")")
	return a
}

// filters reads filters of a value, which is nil where a statement gives it. Inline says that the
// first has no |.
func (p *parser) filters(of expression, inline bool) expression {
	for inline || p.skipSign("|") {
		inline = false
		f := &filtered{of: of, name: p.dotted()}
		if f.function = filters[f.name]; f.function == nil {
			p.unknown = append(p.unknown, "No filter named "+quote(f.name)+".")
			f.function = unknown("filter", f.name)
		}
		if p.isSign("(") {
			f.given = p.arguments()
		}
		of = f
	}
	return of
}

func (p *parser) dotted() string {
	name := p.identifier()
	for p.skipSign(".") {
		name += "." + p.identifier()
	}
	return name
}

func (p *parser) test(of expression) expression {
	p.name("is")
	negated := p.skipName("not")
	t := &tested{of: of, name: p.dotted()}
	if t.function = tests[t.name]; t.function == nil {
		p.unknown = append(p.unknown, "No test named "+quote(t.name)+".")
		t.function = unknown("test", t.name)
	}
	switch k := p.now().kind; {
	case p.isSign("("):
		t.given = p.arguments()
	case p.isName("else", "or", "and"):
	case p.isName("is"):
		p.fail("tests cannot follow one another")
	case k == nameToken || k == stringToken || k == integerToken || k == floatToken || p.isSign("[") || p.isSign("{"):
		t.given.plain = []expression{p.postfix(p.primary())}
	}
	if negated {
		return &negation{t}
	}
	return t
}
