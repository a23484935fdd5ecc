package train

import (
	"errors"
	"fmt"
	"math"
	"path"
	"reflect"
	"slices"

	"gorgonia.org/gorgonia"
)

// Options say how far an optimiser steps, and when.
type Options struct {
	// Schedule gives the learning rate of each step; it is needed. The simplest is [ConstantRate].
	Schedule Schedule
	// Groups are treated differently from the rest. A parameter belongs to the first that matches
	// it.
	Groups []Group
	// Average keeps a moving average of the weights; nil means none.
	Average *Average
	// ClipNorm limits the norm of all gradients together: where it is larger, they are scaled down.
	// 0 means no limit.
	ClipNorm float64
	// Accumulation is the number of runs of the machine whose gradients a step averages; 0 means 1.
	Accumulation int
	// LossScaling multiplies the loss of training in float16, see [LossScaling]; nil means not.
	LossScaling *LossScaling
	// MaxSkips is how many steps in a row may be skipped before there is an error; 0 means 10.
	MaxSkips int
}

const defaultMaxSkips = 10

func (o Options) validate() error {
	if o.Schedule == nil {
		return errors.New("schedule is nil, it needs to be one, such as ConstantRate(1e-3)")
	}
	if err := o.Schedule.Validate(); err != nil {
		return fmt.Errorf("schedule: %w", err)
	}
	switch {
	case !(o.ClipNorm >= 0) || math.IsInf(o.ClipNorm, 0):
		return fmt.Errorf("clip norm is %v, it needs to be finite and positive, or 0 for no limit", o.ClipNorm)
	case o.Accumulation < 1:
		return fmt.Errorf("accumulation is %d, it needs to be positive, or 0 for 1", o.Accumulation)
	case o.MaxSkips < 1:
		return fmt.Errorf("max skips is %d, it needs to be positive, or 0 for %d", o.MaxSkips, defaultMaxSkips)
	}
	if err := o.LossScaling.validate(); err != nil {
		return fmt.Errorf("loss scaling: %w", err)
	}
	if err := o.Average.validate(); err != nil {
		return err
	}
	return validateGroups(o.Groups)
}

// Group is some of the parameters, and what is different about them.
type Group struct {
	// Match picks the group's parameters, such as [Vectors] or what [Named] gives. One that picks
	// none is refused, but for Vectors.
	Match func(*gorgonia.Node) bool
	// Optimizer is that of the group, such as an AdamW with other betas, or beside a [Muon]; nil
	// means that of all.
	Optimizer Optimizer
	// NoDecay leaves the parameters out of weight decay.
	NoDecay bool
	// LearningRateScale multiplies the schedule's learning rate; 0 means 1.
	LearningRateScale float64
}

// Vectors matches parameters with a single axis: biases, and the scales of norms.
func Vectors(n *gorgonia.Node) bool { return n.Dims() < 2 }

// Named matches parameters by their names, with the patterns of [path.Match]: "tokens.weight",
// "*.bias". A star also matches dots.
func Named(patterns ...string) func(*gorgonia.Node) bool {
	return func(n *gorgonia.Node) bool {
		for _, p := range patterns {
			if ok, err := path.Match(p, n.Name()); ok && err == nil {
				return true
			}
		}
		return false
	}
}

// Any matches parameters that one of the matches does.
func Any(matches ...func(*gorgonia.Node) bool) func(*gorgonia.Node) bool {
	return func(n *gorgonia.Node) bool {
		for _, match := range matches {
			if match(n) {
				return true
			}
		}
		return false
	}
}

func validateGroups(groups []Group) error {
	for i, g := range groups {
		if g.Match == nil {
			return fmt.Errorf("group %d has no match, it needs one, such as Vectors", i)
		}
		if !(g.LearningRateScale >= 0) || math.IsInf(g.LearningRateScale, 0) {
			return fmt.Errorf("group %d has a learning rate scale of %v, it needs to be finite and positive, or 0 for 1", i, g.LearningRateScale)
		}
	}
	return nil
}

// checkMatches refuses groups that match nothing, which are mistaken names as a rule.
func checkMatches(nodes gorgonia.Nodes, groups []Group) error {
	for i, g := range groups {
		isVectors := reflect.ValueOf(g.Match).Pointer() == reflect.ValueOf(Vectors).Pointer()
		if !isVectors && len(nodes) > 0 && !slices.ContainsFunc(nodes, g.Match) {
			return fmt.Errorf("group %d matches none of the %d parameters that are trained, such as %s", i, len(nodes), nodes[0].Name())
		}
	}
	return nil
}

// span is a group's place in the list of all parameters.
type span struct {
	from, to  int
	optimizer Optimizer // nil for that of all
	noDecay   bool
	rateScale float64
}

// grouped is the parameters group by group, those in none last, each in the order given.
func grouped(nodes gorgonia.Nodes, groups []Group) (ordered gorgonia.Nodes, spans []span) {
	members := make([]gorgonia.Nodes, len(groups)+1)
	for _, n := range nodes {
		i := 0
		for i < len(groups) && !groups[i].Match(n) {
			i++
		}
		members[i] = append(members[i], n)
	}
	for i, list := range members {
		s := span{from: len(ordered), to: len(ordered) + len(list), rateScale: 1}
		if i < len(groups) {
			s.noDecay, s.optimizer = groups[i].NoDecay, groups[i].Optimizer
			if scale := groups[i].LearningRateScale; scale != 0 {
				s.rateScale = scale
			}
		}
		if len(list) > 0 {
			spans = append(spans, s)
		}
		ordered = append(ordered, list...)
	}
	return ordered, spans
}
