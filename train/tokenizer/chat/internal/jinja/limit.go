package jinja

import (
	"errors"
	"fmt"
)

// A template comes with a model, from whoever made that. What it may do is counted and limited, so
// that each rendering ends after seconds at most. The limits are far beyond what a conversation of
// a thousand messages takes.
const (
	maxSource  = 256 << 10 // bytes of a template
	maxBlock   = 8192      // words and signs between {% and %}, or {{ and }}
	maxNesting = 100       // statements within statements
	maxBracket = 200       // expressions within expressions
	maxSteps   = 5_000_000 // nodes and items visited
	maxWork    = 512 << 20 // bytes of all values made
	maxValue   = 16 << 20  // bytes of one value, or of the text written
	maxCalls   = 100       // macros within macros
	maxDepth   = 200       // values within values
	maxRange   = 100_000   // numbers of a range, as in Jinja's sandbox
)

// meter counts what one rendering does.
type meter struct {
	steps, work, calls int
}

// failure is what ends a rendering. It travels as a panic and Render returns its error.
type failure struct{ error }

func fail(format string, values ...any) {
	panic(failure{fmt.Errorf(format, values...)})
}

// recovered turns what a panic carries into an error.
func recovered(p any) error {
	if f, ok := p.(failure); ok {
		return f.error
	}
	return fmt.Errorf("the template cannot be rendered: %v", p)
}

func (m *meter) step(n int) {
	if m.steps += n; m.steps > maxSteps {
		panic(failure{fmt.Errorf("the template takes more than %d steps", maxSteps)})
	}
}

// grow counts a value of so many bytes, before it is made where it may be large.
func (m *meter) grow(bytes int) {
	if bytes < 0 || bytes > maxValue {
		panic(failure{fmt.Errorf("the template makes a value of more than %d bytes", maxValue)})
	}
	if m.work += bytes; m.work > maxWork {
		panic(failure{fmt.Errorf("the template goes through more than %d bytes", maxWork)})
	}
}

// growTimes counts a value of n parts, each of so many bytes.
func (m *meter) growTimes(n, bytes int) {
	if n > 0 && bytes > maxValue/n {
		n, bytes = 1, maxValue+1
	}
	m.grow(max(0, n) * bytes)
}

// perItem is what an item of a list counts for, and what a list or an object itself does.
const perItem = 16

func (m *meter) enter() {
	if m.calls++; m.calls > maxCalls {
		panic(failure{fmt.Errorf("the template's calls are more than %d deep", maxCalls)})
	}
}

func (m *meter) leave() { m.calls-- }

// writer is text being written.
type writer struct {
	meter *meter
	text  []byte
}

func (w *writer) write(s string) {
	if len(w.text)+len(s) > maxValue {
		panic(failure{fmt.Errorf("the template writes more than %d bytes", maxValue)})
	}
	w.meter.grow(len(s))
	w.text = append(w.text, s...)
}

var errDepth = errors.New("the template's values lie too deep within one another")

// deeper is depth for what lies within a value.
func deeper(depth int) int {
	if depth >= maxDepth {
		panic(failure{errDepth})
	}
	return depth + 1
}
