package chat

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/nikolalohinski/gonja/v2"
	"github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// A template comes from whoever made the model, and gonja lets it run for ever. So what a template may do is counted: a [meter] in
// the variables of each Render sees every turn of a loop, macro, operator, filter, method and expression, and the bytes that go
// through them, and ends the rendering by a panic when there are too many. What a template is made of is limited as well: only the
// statements of chat templates are known, and those that could not be counted are not.
const (
	maxSource = 128 << 10 // bytes of a template
	maxBlock  = 4096      // tokens between {% and %} or {{ and }}, which bounds how deep expressions nest
	maxSteps  = 500_000
	maxWork   = 512 << 20 // bytes that went through operations
	maxValue  = 16 << 20  // bytes of one value
	maxChain  = 16        // method calls on what method calls gave
	maxDepth  = 64        // of values within values, and of macros that call macros
)

// Names that no template can write.
const (
	itemsName = "\x00items"
	valueName = "\x00value"
	textName  = "\x00text"
	stepName  = "\x00step"
	leftName  = "\x00left"
	rightName = "\x00right"
)

// meter counts what one Render does.
type meter struct {
	source, steps, work, depth int
}

// abort is what a meter panics with: an error would be met again by each expression around it, and by some of them twice.
type abort struct{ error }

// step counts operations and the bytes that they go through.
func (m *meter) step(n, bytes int) {
	if m.steps += n; m.steps > maxSteps {
		panic(abort{fmt.Errorf("the template takes more than %d steps", maxSteps)})
	}
	if m.work += min(bytes, maxWork+1); m.work > maxWork {
		panic(abort{fmt.Errorf("the template goes through more than %d bytes", maxWork)})
	}
}

// size is how much a value holds, each part as often as it is met.
func (m *meter) size(values ...any) int {
	total := 0
	for _, v := range values {
		addSize(reflect.ValueOf(v), 0, &total)
	}
	return total
}

func addSize(v reflect.Value, depth int, total *int) {
	const each = 16
	if *total += each; *total > maxValue {
		panic(abort{fmt.Errorf("the template makes a value of more than %d bytes", maxValue)})
	}
	if depth > 4*maxDepth {
		panic(abort{errors.New("the template puts values into values without end")})
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if v.IsNil() {
			return
		}
		if value, ok := interfaceOf(v).(*exec.Value); ok {
			addSize(value.Val, depth+1, total)
			return
		}
		addSize(v.Elem(), depth+1, total)
	case reflect.String:
		if *total += v.Len(); *total > maxValue {
			addSize(reflect.Value{}, depth, total)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			addSize(v.Index(i), depth+1, total)
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			addSize(entries.Key(), depth+1, total)
			addSize(entries.Value(), depth+1, total)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			addSize(v.Field(i), depth+1, total)
		}
	}
}

func interfaceOf(v reflect.Value) any {
	if !v.CanInterface() {
		return nil
	}
	return v.Interface()
}

// shallow is the size of a value without those in it.
func shallow(v *exec.Value) int {
	if v.IsString() {
		return len(v.String())
	}
	return 16 * (1 + v.Len())
}

// operators are those whose results grow or whose work does, as functions that count first and then let gonja compute.
var operators = map[tokens.Type]string{
	tokens.Addition: "\x00+", tokens.Multiply: "\x00*", tokens.Tilde: "\x00~", tokens.Equals: "\x00==", tokens.Ne: "\x00!=", tokens.In: "\x00in",
	tokens.LowerThan: "\x00<", tokens.LowerThanOrEqual: "\x00<=", tokens.GreaterThan: "\x00>", tokens.GreaterThanOrEqual: "\x00>=",
}

func (m *meter) operator(t tokens.Type, sign string) func(*exec.Evaluator, *exec.VarArgs) *exec.Value {
	expression := &nodes.BinaryExpression{
		Left: name(leftName, nil), Right: name(rightName, nil), Operator: &nodes.BinOperator{Token: &tokens.Token{Type: t, Val: sign}},
	}
	return func(e *exec.Evaluator, args *exec.VarArgs) *exec.Value {
		left, right := args.Args[0], args.Args[1]
		size := m.size(left, right)
		if t == tokens.Multiply && left.IsString() {
			if size = product(len(left.String()), right); size < 0 {
				return exec.AsValue("")
			}
		}
		if size > maxValue {
			panic(abort{fmt.Errorf("the template makes a value of more than %d bytes", maxValue)})
		}
		m.step(1, size)
		inner := *e.Environment
		inner.Context = e.Environment.Context.Inherit()
		inner.Context.Set(leftName, left)
		inner.Context.Set(rightName, right)
		return (&exec.Evaluator{Config: e.Config, Environment: &inner, Loader: e.Loader}).Eval(expression)
	}
}

// product is n times a whole number, below 0 where that is, and more than is allowed where it would be too large.
func product(n int, times *exec.Value) int {
	t := times.Integer()
	if t > maxWork/max(1, n) {
		return maxWork + 1
	}
	return n * t
}

func name(text string, at *tokens.Token) *nodes.Name {
	token := &tokens.Token{Type: tokens.Name, Val: text}
	if at != nil {
		token.Line, token.Col, token.Pos = at.Line, at.Col, at.Pos
	}
	return &nodes.Name{Name: token}
}

func call(function string, at *tokens.Token, args ...nodes.Expression) *nodes.Call {
	n := name(function, at)
	return &nodes.Call{Location: n.Name, Func: n, Args: args}
}

// counted is a value that passes by. Its first argument is a step, which is counted even where the second is an error.
func (m *meter) counted(args *exec.VarArgs) *exec.Value {
	m.step(0, shallow(args.Args[1]))
	return args.Args[1]
}

// text is a value that is written.
func (m *meter) text(args *exec.VarArgs) *exec.Value {
	m.step(1, m.size(args.Args[0]))
	return args.Args[0]
}

func (m *meter) countStep(*exec.VarArgs) *exec.Value {
	m.step(1, 0)
	return exec.AsValue(0)
}

// walker puts calls that count into a parsed template: in place of operators, around what is written, what is sliced or indexed, and
// what methods are called on. It remembers how many method calls are chained in each node.
type walker map[any]int

// walk returns how many method calls are chained in a node. gonja evaluates twice what a method is called on, so that each doubles
// what there is to do.
func (w walker) walk(v reflect.Value) (chained int) {
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return 0
		}
		chained = w.walk(v.Elem())
		if expression, ok := v.Interface().(*nodes.BinaryExpression); ok && v.CanSet() {
			if function := operators[expression.Operator.Token.Type]; function != "" {
				v.Set(reflect.ValueOf(call(function, expression.Position(), expression.Left, expression.Right)))
			}
		}
	case reflect.Pointer:
		if _, ok := v.Interface().(*tokens.Token); ok || v.IsNil() {
			return 0
		}
		key := v.Interface()
		if known, found := w[key]; found {
			return known
		}
		w[key] = 0
		chained = w.walk(v.Elem())
		switch n := key.(type) {
		case *nodes.Output:
			n.Expression, n.Alternative = countText(n.Expression), countText(n.Alternative)
		case *nodes.GetItem:
			n.Node = countValue(n.Node)
		case *nodes.GetSlice:
			n.Node = countValue(n.Node)
		case *nodes.Call:
			if n.Parent != nil {
				chained++
				n.Parent = countValue(n.Parent) // not a name, to which gonja assigns what a method changes
			}
		}
		w[key] = chained
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				chained = max(chained, w.walk(v.Field(i)))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			chained = max(chained, w.walk(v.Index(i)))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			chained = max(chained, w.walk(value))
			v.SetMapIndex(key, value)
		}
	}
	return chained
}

func countText(n nodes.Node) nodes.Node {
	if n == nil {
		return nil
	}
	return call(textName, n.Position(), n)
}

func countValue(n nodes.Node) nodes.Node {
	switch n.(type) {
	case nil, *nodes.Name:
		return n
	}
	at := n.Position()
	return call(valueName, at, call(stepName, at), n)
}

// loop is gonja's for, whose items are counted.
type loop struct {
	*controlStructures.ForControlStructure
	Items nodes.Expression
	meter *meter
}

func (m *meter) parseLoop(p, args *parser.Parser) (nodes.ControlStructure, error) {
	parse, _ := gonja.DefaultEnvironment.ControlStructures.Get("for")
	parsed, err := parse(p, args)
	if err != nil {
		return nil, err
	}
	l := &loop{ForControlStructure: parsed.(*controlStructures.ForControlStructure), meter: m}
	if l.Recursive {
		return nil, p.Error("A recursive loop is not allowed here.", nil)
	}
	l.Items, l.ObjectEvaluator = l.ObjectEvaluator, name(itemsName, l.ObjectEvaluator.Position())
	return l, nil
}

func (l *loop) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	items := r.Eval(l.Items)
	if items.IsError() {
		return items
	}
	turns := 1 + items.Len()
	l.meter.step(turns, min(turns, maxSteps)*l.meter.source)
	r.Environment.Context.Set(itemsName, items)
	return l.ForControlStructure.Execute(r, tag)
}

// macro is gonja's macro, whose calls are counted.
type macro struct {
	*nodes.Macro
	meter *meter
}

func (m *meter) parseMacro(p, args *parser.Parser) (nodes.ControlStructure, error) {
	parse, _ := gonja.DefaultEnvironment.ControlStructures.Get("macro")
	parsed, err := parse(p, args)
	if err != nil {
		return nil, err
	}
	return &macro{parsed.(*controlStructures.MacroControlStructure).Macro, m}, nil
}

func (c *macro) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	render, err := exec.MacroNodeToFunc(c.Macro, r)
	if err != nil {
		return err
	}
	m := c.meter
	r.Environment.Context.Set(c.Name, exec.Macro(func(args *exec.VarArgs) *exec.Value {
		if m.depth++; m.depth > maxDepth {
			panic(abort{fmt.Errorf("the template's macros call one another more than %d deep", maxDepth)})
		}
		defer func() { m.depth-- }()
		m.step(1, m.source+m.size(args.Args, args.KwArgs))
		value := render(args)
		m.step(0, m.size(value))
		return value
	}))
	return nil
}

// assignment is {% set TARGET = VALUE %}, {% set TARGET = VALUE if CONDITION else OTHER %} or {% set NAME %}...{% endset %}. gonja's own
// shows nobody what is in it.
type assignment struct {
	Location                              *tokens.Token
	Target, Value, Condition, Alternative nodes.Expression
	Body                                  *nodes.Wrapper
	meter                                 *meter
}

func (a *assignment) Position() *tokens.Token { return a.Location }
func (a *assignment) String() string          { return fmt.Sprintf("set(%s)", a.Target) }

func (m *meter) parseAssignment(p, args *parser.Parser) (nodes.ControlStructure, error) {
	a := &assignment{Location: p.Current(), meter: m}
	var err error
	if a.Target, err = args.ParseVariableOrLiteral(); err != nil {
		return nil, err
	}
	switch a.Target.(type) {
	case *nodes.Name, *nodes.GetAttribute, *nodes.GetItem:
	default:
		return nil, args.Error("A value can only be set to a name, an attribute or an item.", nil)
	}
	if args.Match(tokens.Assign) == nil {
		a.Body, _, err = p.WrapUntil("endset")
	} else if a.Value, err = args.ParseExpression(); err == nil {
		a.Condition, a.Alternative, err = args.ParseCondition()
	}
	switch {
	case err != nil:
		return nil, err
	case !args.End():
		return nil, args.Error("Something is left behind the value.", args.Current())
	case a.Condition != nil && a.Alternative == nil:
		return nil, args.Error("There is no else.", args.Current())
	}
	return a, nil
}

func (a *assignment) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	value, err := a.value(r)
	if err != nil {
		return err
	}
	a.meter.step(1, a.meter.size(value))
	var of, key *exec.Value
	switch target := a.Target.(type) {
	case *nodes.Name:
		r.Environment.Context.Set(target.Name.Val, value.Interface())
		return nil
	case *nodes.GetAttribute:
		of, key = r.Eval(target.Node), exec.AsValue(target.Attribute)
	case *nodes.GetItem:
		of, key = r.Eval(target.Node), r.Eval(target.Arg)
	}
	for _, part := range []*exec.Value{of, key} {
		if part.IsError() {
			return part
		}
	}
	if err := of.Set(key, value.Interface()); err != nil {
		return err
	}
	a.meter.step(0, a.meter.size(of)) // which has no end where a value was put into itself
	return nil
}

func (a *assignment) value(r *exec.Renderer) (*exec.Value, error) {
	if a.Body != nil {
		var text limited
		sub := r.Inherit()
		sub.Output = &text
		if err := sub.ExecuteWrapper(a.Body); err != nil {
			return nil, err
		}
		return exec.AsSafeValue(text.String()), nil
	}
	chosen := a.Value
	if a.Condition != nil {
		condition := r.Eval(a.Condition)
		if condition.IsError() {
			return nil, condition
		}
		if !condition.IsTrue() {
			chosen = a.Alternative
		}
	}
	value := r.Eval(chosen)
	if value.IsError() {
		return nil, value
	}
	return value, nil
}

// passage is {% generation %}...{% endgeneration %}, with which templates mark what a model has written.
type passage struct{ Body *nodes.Wrapper }

func (p *passage) Position() *tokens.Token { return p.Body.Location }
func (p *passage) String() string          { return "generation" }

func parsePassage(p, _ *parser.Parser) (nodes.ControlStructure, error) {
	body, _, err := p.WrapUntil("endgeneration")
	return &passage{body}, err
}

func (p *passage) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteIfWrapper(p.Body)
}

// growing are the filters and methods whose work or result may be as large as the product of what they are given, squared those that
// compare all with all.
var (
	growing = set("batch center expandtabs indent join ljust replace rjust round slice tojson truncate wordwrap xmlattr zfill")
	squared = set("groupby sort sum unique dictsort")
	formats = set("format format_map")
)

// manyDigits are widths in a format that make a short value long.
var manyDigits = regexp.MustCompile(`[0-9]{4}|\*|\{[^}]*\{`)

func set(names string) map[string]bool {
	s := map[string]bool{}
	for _, n := range strings.Fields(names) {
		s[n] = true
	}
	return s
}

// count counts what a filter or a method is about to do.
func (m *meter) count(name string, in *exec.Value, args *exec.VarArgs) {
	work := m.size(in, args.Args, args.KwArgs)
	all := args.Args
	for _, value := range args.KwArgs {
		all = append(all[:len(all):len(all)], value)
	}
	switch {
	case growing[name]:
		for _, value := range all {
			times := value
			if !value.IsInteger() {
				times = exec.AsValue(len(value.String()))
			}
			work = max(work, product(work, exec.AsValue(1+max(0, times.Integer()))))
		}
	case squared[name]:
		work = max(work, product(in.Len(), exec.AsValue(16*in.Len())))
	case formats[name] && manyDigits.MatchString(in.String()):
		panic(abort{errors.New("the template has a format with a width of thousands")})
	}
	m.step(1, work)
}

// What templates may use, beside their own variables.
var (
	filterNames = strings.Fields(`abs attr batch capitalize center count d default dictsort e escape first float format groupby indent int
		items join last length list lower map max min pprint reject rejectattr replace reverse round safe select selectattr slice sort
		string striptags sum title tojson trim truncate unique upper urlencode wordcount wordwrap xmlattr`)
	testNames = strings.Fields(`boolean callable defined divisibleby eq equalto == escaped even false filter float ge >= gt greaterthan > in
		integer iterable le <= lower lt lessthan < mapping ne != none number odd sameas sequence string test true undefined upper`)
	// Those that change a list or an object are not among them, as in transformers.
	methodNames = strings.Fields(`as_integer_ratio bit_count bit_length capitalize capwords casefold center copy count encode
		endswith expandtabs find format format_map get hex int is_integer isalnum isalpha isascii isdecimal isdigit islower isnumeric
		isprintable isspace istitle isupper items join keys ljust lower lstrip partition removeprefix removesuffix replace rfind
		rjust rpartition rsplit rstrip split splitlines startswith string strip swapcase title upper values zfill`)
)

// environment is what gonja has, counted.
func (m *meter) environment() *exec.Environment {
	from := gonja.DefaultEnvironment
	filters := map[string]exec.FilterFunction{}
	for _, n := range filterNames {
		if filter, ok := from.Filters.Get(n); ok {
			filters[n] = func(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
				m.count(n, in, args)
				return filter(e, in, args)
			}
		}
	}
	tests := map[string]exec.TestFunction{}
	for _, n := range testNames {
		if test, ok := from.Tests.Get(n); ok {
			tests[n] = func(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) (bool, error) {
				m.count(n, in, args)
				return ask(test, e, in, args)
			}
		}
	}
	statements := map[string]parser.ControlStructureParser{"for": m.parseLoop, "macro": m.parseMacro, "set": m.parseAssignment, "generation": parsePassage}
	for _, n := range []string{"if", "raw", "break", "continue"} {
		statements[n], _ = from.ControlStructures.Get(n)
	}
	variables := map[string]any{valueName: m.counted, textName: m.text, stepName: m.countStep, "range": m.numbers}
	for t, n := range operators {
		variables[n] = m.operator(t, n[1:])
	}
	for _, n := range []string{"dict", "namespace"} {
		variables[n], _ = from.Context.Get(n)
	}
	return &exec.Environment{
		Context: exec.NewContext(variables).Update(functions), Filters: exec.NewFilterSet(filters), Tests: exec.NewTestSet(tests),
		ControlStructures: exec.NewControlStructureSet(statements),
		Methods: exec.Methods{
			Bool: countMethods(m, from.Methods.Bool), Int: countMethods(m, from.Methods.Int), Float: countMethods(m, from.Methods.Float),
			Str: countMethods(m, from.Methods.Str), Dict: countMethods(m, from.Methods.Dict), List: countMethods(m, from.Methods.List),
		},
	}
}

// ask calls a test, of which gonja has two kinds.
func ask(test exec.TestFunction, e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) (bool, error) {
	switch test := test.(type) {
	case func(*exec.Evaluator, *exec.Value, *exec.VarArgs) (bool, error):
		return test(e, in, args)
	case func(*exec.Context, *exec.Value, *exec.VarArgs) (bool, error):
		return test(e.Environment.Context, in, args)
	}
	return false, fmt.Errorf("a test is %T, which is not known here", test)
}

func countMethods[T any](m *meter, from *exec.MethodSet[T]) *exec.MethodSet[T] {
	to := map[string]exec.Method[T]{}
	for _, n := range methodNames {
		if method, ok := from.Get(n); ok {
			to[n] = func(self T, value *exec.Value, args *exec.VarArgs) (any, error) {
				m.count(n, value, args)
				return method(self, value, args)
			}
		}
	}
	return exec.NewMethodSet(to)
}

// checkSource refuses what would cost too much before anything is counted.
func checkSource(source string, c *config.Config) error {
	if len(source) > maxSource {
		return fmt.Errorf("the template has %d bytes, it can have %d", len(source), maxSource)
	}
	n := 0
	for stream := tokens.LexAll(source, c); !stream.End(); stream.Next() {
		switch stream.Current().Type {
		case tokens.BlockBegin, tokens.VariableBegin, tokens.Data:
			n = 0
		}
		if n++; n > maxBlock {
			return fmt.Errorf("line %d of the template: there are more than %d words and signs in one block", stream.Current().Line, maxBlock)
		}
	}
	return nil
}
