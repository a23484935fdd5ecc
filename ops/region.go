package ops

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
)

// regions are the parts of a graph that may be computed again. They name calls by their ids, so
// that they do not keep the graph alive.
type regions struct {
	chosen  map[string]bool
	offered []RegionEstimate
}

// RecomputeRegions decides which regions of a graph are computed again for their gradients, by
// name, and has layers offer the others. It needs to be called before the model is made in the
// graph. [ChooseRegions] finds the names for a budget.
func RecomputeRegions(g *gorgonia.ExprGraph, names ...string) {
	chosen := map[string]bool{}
	for _, name := range names {
		chosen[name] = true
	}
	stateOf(g).regions.chosen = chosen
}

// RecomputesRegion reports whether a region is to be computed again. A layer then calls
// [RecomputeRegion], and [OfferRegion] otherwise.
func RecomputesRegion(g *gorgonia.ExprGraph, name string) bool {
	chosen := stateOf(g).regions.chosen
	return chosen[name] || chosen[name+keepsCostly]
}

// keepsCostly follows the name of a region of which all is computed again but what is costly.
const keepsCostly = "/keeps-attention"

// RecomputeRegion is [Recompute] of a region that [RecomputesRegion] reports. With
// "/keeps-attention" behind its name, [RecomputeRegions] keeps the outputs of attention in it and
// their logsumexps, which are small beside the time that attention takes over long sequences.
func RecomputeRegion(name string, out *gorgonia.Node, from ...*gorgonia.Node) (*gorgonia.Node, error) {
	r := &recompute{out: out}
	if out != nil && out.Graph() != nil {
		r.keeps = stateOf(out.Graph()).regions.chosen[name+keepsCostly]
	}
	return recomputed("RecomputeRegion: "+name, r, from)
}

// OffersRegions reports whether someone looks for regions of a graph: whether [RecomputeRegions]
// was called.
func OffersRegions(g *gorgonia.ExprGraph) bool { return stateOf(g).regions.chosen != nil }

// OfferRegion says that everything between the nodes from and the nodes out could be computed again
// for its gradients. It changes nothing in the graph. Regions are disjoint, or one contains the
// other.
func OfferRegion(name string, out, from gorgonia.Nodes) error {
	if name == "" || len(out) == 0 || slices.Contains(out, nil) {
		return errors.New("OfferRegion: name is empty, or out is missing: a region needs both")
	}
	r := RegionEstimate{Name: name}
	seen := map[*gorgonia.Node]bool{}
	for _, n := range out {
		if c, i := callOf(n); c != nil && !slices.Contains(from, n) {
			r.ends = append(r.ends, regionEnd{c.id, i})
		}
	}
	var visit func(n *gorgonia.Node) error
	visit = func(n *gorgonia.Node) error {
		if seen[n] || slices.Contains(from, n) || n.Op() == nil {
			return nil
		}
		seen[n] = true
		if c, _ := callOf(n); c != nil && !slices.Contains(r.calls, c.id) {
			r.calls = append(r.calls, c.id)
		}
		if again, ok := n.Op().(*recompute); ok {
			return visit(again.out)
		}
		inputs, err := inputsOf(n)
		for _, in := range inputs {
			if err == nil {
				err = visit(in)
			}
		}
		return err
	}
	for _, n := range out {
		if err := visit(n); err != nil {
			return fmt.Errorf("OfferRegion: %s: %w", name, err)
		}
	}
	s := stateOf(out[0].Graph())
	s.regions.offered = append(s.regions.offered, r)
	return nil
}

// regionEnd is an output of a call.
type regionEnd struct {
	call   uint64
	output int
}

// BudgetError is the error of a budget that no choice of regions keeps.
type BudgetError struct {
	Budget int // bytes
	Least  int // bytes that the run needs at least
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("the budget is %d bytes, the run needs at least %d, with everything computed again that can be", e.Budget, e.Least)
}

// ChooseRegions finds the regions to compute again so that a run needs at most budget bytes, in the
// least time. Build makes the graph, with gradients, in which these regions are computed again, and
// needs says how much of an estimate counts. It returns the names for [RecomputeRegions], which are
// none where the run fits as it is, and the estimate of that run. Where no choice is small enough
// the error is a [*BudgetError].
//
// It weighs what each region keeps by what computing it costs, for the regions alone, and then
// estimates the graphs of the best of these choices: a few dozen graphs.
func ChooseRegions(budget int, build func(names []string) (*gorgonia.ExprGraph, error), needs func(Estimate) int) ([]string, Estimate, error) {
	c := &chooser{budget: budget, build: build, needs: needs, tried: map[string]trial{}}
	t, err := c.choose()
	if err != nil {
		return nil, Estimate{}, fmt.Errorf("ChooseRegions: %w", err)
	}
	return t.names, t.estimate, nil
}

// chooser looks for the cheapest choice.
type chooser struct {
	budget int
	build  func(names []string) (*gorgonia.ExprGraph, error)
	needs  func(Estimate) int
	tried  map[string]trial

	groups []regionGroup
	best   *trial // of those that keep the budget
	least  int    // bytes of any trial
}

// trial is a choice whose run was estimated.
type trial struct {
	names    []string
	estimate Estimate
	bytes    int
}

// regionGroup is what can be done about a region and those inside of it. The first way is nothing.
type regionGroup []regionWay

// regionWay is some regions of a group that are computed again.
type regionWay struct {
	names []string
	bytes int // that they do not keep then
	work  float64
}

// The number of graphs that are looked at to find how much needs to be saved, and to save no more.
const narrowings, improvements = 10, 48

func (c *chooser) choose() (trial, error) {
	plain, err := c.try(nil)
	if err != nil || plain.bytes <= c.budget {
		return plain, err
	}
	c.groups = groupsOf(plain.estimate.Regions)
	total := 0
	for _, g := range c.groups {
		total += slices.MaxFunc(g, func(a, b regionWay) int { return a.bytes - b.bytes }).bytes
	}
	// What regions keep is not what their run saves: what is computed again has its own peak. So
	// the saving that is asked for is found by halving.
	short, enough := 0, total
	for _, names := range c.extremes() {
		if _, err := c.try(names); err != nil {
			return trial{}, err
		}
	}
	need := plain.bytes - c.budget
	for range narrowings {
		if need >= enough || need <= short {
			break
		}
		t, err := c.try(c.cheapest(need))
		if err != nil {
			return trial{}, err
		}
		if over := t.bytes - c.budget; over > 0 {
			short = need
			need += max(over, (enough-short)/16)
			if need >= enough {
				need = (short + enough) / 2
			}
			continue
		}
		enough = need
		need = (short + enough) / 2
	}
	if c.best == nil {
		return trial{}, &BudgetError{Budget: c.budget, Least: c.least}
	}
	return c.improve()
}

// try estimates a choice.
func (c *chooser) try(names []string) (trial, error) {
	if t, ok := c.tried[key(names)]; ok {
		return t, nil
	}
	g, err := c.build(names)
	if err != nil {
		return trial{}, err
	}
	t := trial{names: names}
	if t.estimate, err = EstimateRun(g); err != nil {
		return trial{}, err
	}
	t.bytes = c.needs(t.estimate)
	if c.tried[key(names)] = t; c.least == 0 || t.bytes < c.least {
		c.least = t.bytes
	}
	if t.bytes <= c.budget && (c.best == nil || t.estimate.Work < c.best.estimate.Work) {
		c.best = &t
	}
	return t, nil
}

// ways are those of computing a region again: what is costly is kept, if there is such a thing, or
// nothing is.
func (r *RegionEstimate) ways() []regionWay {
	all := regionWay{[]string{r.Name}, r.Bytes, r.Work}
	if r.costly.work == 0 {
		return []regionWay{all}
	}
	return []regionWay{{[]string{r.Name + keepsCostly}, r.Bytes - r.costly.bytes, r.Work - r.costly.work}, all}
}

// groupsOf puts regions together with those inside of them, the outermost ones in their order.
func groupsOf(all []RegionEstimate) (groups []regionGroup) {
	inside := func(a, b RegionEstimate) bool {
		return len(a.calls) < len(b.calls) && !slices.ContainsFunc(a.calls, func(id uint64) bool { return !slices.Contains(b.calls, id) })
	}
	for _, outer := range all {
		if slices.ContainsFunc(all, func(r RegionEstimate) bool { return inside(outer, r) }) {
			continue
		}
		ways := regionGroup{{}}
		for _, r := range all {
			if !inside(r, outer) {
				continue
			}
			for _, w := range ways {
				for _, own := range r.ways() {
					if len(ways) < 64 {
						ways = append(ways, regionWay{slices.Concat(w.names, own.names), w.bytes + own.bytes, w.work + own.work})
					}
				}
			}
		}
		groups = append(groups, append(ways, outer.ways()...))
	}
	return groups
}

// extremes are choices that save most: all outermost regions, what is costly or nothing kept, or
// all that are inside of them.
func (c *chooser) extremes() [][]string {
	list := make([][]string, 3)
	for _, g := range c.groups {
		for back := range list {
			list[back] = append(list[back], g[max(len(g)-1-back, 0)].names...)
		}
	}
	return list
}

// cheapest finds the ways that together save so many bytes in the least work, by dynamic
// programming over parts of the bytes. Of ways that cost the same, the earlier groups' are taken:
// when their gradients are computed, less else is kept.
func (c *chooser) cheapest(need int) (names []string) {
	const parts = 2048
	type entry struct {
		work float64
		way  int
		from int
	}
	rows := make([]map[int]entry, len(c.groups)+1)
	rows[0] = map[int]entry{0: {}}
	for i, g := range c.groups {
		rows[i+1] = map[int]entry{}
		late := 1 + 1e-3*float64(i)/float64(len(c.groups))
		for _, saved := range slices.Sorted(maps.Keys(rows[i])) {
			before := rows[i][saved]
			for k, w := range g {
				to := min(parts, saved+w.bytes*parts/max(need, 1))
				work := before.work + w.work*late
				if old, ok := rows[i+1][to]; !ok || work < old.work {
					rows[i+1][to] = entry{work, k, saved}
				}
			}
		}
	}
	last := rows[len(c.groups)]
	at := slices.Max(slices.Collect(maps.Keys(last)))
	for i := len(c.groups); i > 0; i-- {
		e := rows[i][at]
		names = append(slices.Clone(c.groups[i-1][e.way].names), names...)
		at = e.from
	}
	return names
}

// improve takes cheaper choices that differ from the best in one group or two, as long as there is
// one that keeps the budget.
func (c *chooser) improve() (trial, error) {
	left := improvements
	for better := true; better; {
		better = false
		for _, names := range c.neighbours() {
			if _, known := c.tried[key(names)]; known {
				continue
			}
			if left == 0 {
				break
			}
			left--
			before := c.best
			if _, err := c.try(names); err != nil {
				return trial{}, err
			}
			if better = c.best != before; better {
				break
			}
		}
	}
	return *c.best, nil
}

// neighbours lists the choices that differ from the best in one group or two and promise to cost
// less: by turns the cheapest, and the one that costs nearly as much as the best. Those that save
// far less than the best are left out.
func (c *chooser) neighbours() (list [][]string) {
	type choice struct {
		ways []int
		work float64
	}
	now, saved, work := make([]int, len(c.groups)), 0, 0.0
	for i, g := range c.groups {
		now[i] = g.wayOf(c.best.names)
		saved, work = saved+g[now[i]].bytes, work+g[now[i]].work
	}
	var choices []choice
	for i, g := range c.groups {
		for k, h := range c.groups[i:] {
			for x, w := range g {
				for y, v := range h {
					ways := slices.Clone(now)
					if ways[i] = x; k > 0 {
						ways[i+k] = y
					}
					bytes, cost := saved+w.bytes-g[now[i]].bytes, work+w.work-g[now[i]].work
					if k > 0 {
						bytes, cost = bytes+v.bytes-h[now[i+k]].bytes, cost+v.work-h[now[i+k]].work
					}
					if cost < work && float64(bytes) >= 0.5*float64(saved) {
						choices = append(choices, choice{ways, cost})
					}
				}
			}
		}
	}
	slices.SortStableFunc(choices, func(a, b choice) int { return cmp.Compare(a.work, b.work) })
	for n := range choices {
		o := choices[n/2]
		if n%2 == 1 {
			o = choices[len(choices)-1-n/2]
		}
		var names []string
		for i, g := range c.groups {
			names = append(names, g[o.ways[i]].names...)
		}
		list = append(list, names)
	}
	return list
}

// wayOf is the number of the group's way in a choice.
func (g regionGroup) wayOf(names []string) (own int) {
	for k, w := range g {
		missing := func(name string) bool { return !slices.Contains(names, name) }
		if len(w.names) > len(g[own].names) && !slices.ContainsFunc(w.names, missing) {
			own = k
		}
	}
	return own
}

func key(names []string) string { return strings.Join(names, " ") }
