package ops

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"gorgonia.org/gorgonia"
)

// WritePlan prints what is known of a graph's run before it: a line for each op of this package, in
// the order in which a tapeMachine runs them, with its number, what it reads and writes, whose
// memory is freed after it where the graph's ops share it ([ReuseMemory]), and what it is fused
// with. A result is named by its op's number, with a star where someone may look at it after the
// run, so that it is not freed.
func WritePlan(w io.Writer, g *gorgonia.ExprGraph) error {
	if w == nil || g == nil {
		return errors.New("WritePlan: w or g is nil, it needs a place to write to and a graph")
	}
	p := (&member{graph: g, state: stateOf(g)}).planned()
	names := p.names()
	list := func(results []*result) string {
		var list []string
		for _, r := range results {
			list = append(list, names[r])
		}
		return strings.Join(list, " ")
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "#\tnode\treads\twrites\tfreed after\tfused with")
	for _, s := range p.steps {
		var inputs []string
		for _, n := range s.op().(reader).readNodes() {
			if n.Op() == nil && !slices.Contains(inputs, n.Name()) {
				inputs = append(inputs, n.Name())
			}
		}
		reads := strings.TrimSpace(strings.Join(inputs, " ") + " " + list(s.reads))
		name, _, _ := strings.Cut(fmt.Sprint(s.op()), "#")
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", s.at, name, reads, list(s.writes()), list(s.frees), p.fused(s, names))
	}
	table.Flush()
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// writes lists the results of a step.
func (s *step) writes() (list []*result) {
	for i := range s.c.outputs {
		if !s.back {
			list = append(list, &s.c.outputs[i].memory)
		}
	}
	for i := range s.c.operands {
		if s.back && s.wanted[i] {
			list = append(list, &s.c.operands[i].d)
		}
	}
	return list
}

// names gives the results their names.
func (p *plan) names() map[*result]string {
	names := map[*result]string{}
	for _, s := range p.steps {
		for i, r := range s.writes() {
			name := fmt.Sprint(s.at)
			if !s.back && !s.c.isAlone() {
				name = fmt.Sprintf("%d.%d", s.at, i)
			}
			names[r] = name
		}
		for i := range s.c.operands {
			if o := &s.c.operands[i]; s.back {
				names[&o.d] = fmt.Sprintf("%d.d%s", s.at, o.name)
			}
		}
	}
	for r, held := range p.held {
		if held {
			names[r] += "*"
		}
	}
	return names
}

// fused says what runs together with a step, or in its memory.
func (p *plan) fused(s *step, names map[*result]string) string {
	var list []string
	if s.bias != nil {
		list = append(list, fmt.Sprintf("d%s of %d", s.bias.operands[s.bias.is.bias].name, p.of[s.bias.id].at))
	}
	for _, weight := range s.c.is.changed {
		list = append(list, "change of "+weight)
	}
	for _, other := range s.beside {
		list = append(list, fmt.Sprintf("begins %d", other.at))
	}
	for _, input := range slices.Sorted(maps.Keys(s.before)) {
		list = append(list, fmt.Sprintf("may do %d", s.before[input].at))
	}
	if s.adds != nil {
		list = append(list, "adds to "+names[s.adds])
	}
	if s.spends {
		list = append(list, "writes over what it reads")
	}
	return strings.Join(list, ", ")
}
