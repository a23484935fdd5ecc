package watch

import (
	"strings"
	"testing"
	"time"
)

// On a terminal a line is drawn over the one before, none wraps, and in the end what is done stands
// alone.
func TestStatus(t *testing.T) {
	v := newTerminal(20, true)
	s := &Status{screen: v.screen(), now: slowClock(redraw)}
	s.Show("a line that is much too wide")
	v.want(t, "a wide line", "\na line that is much\n")
	s.Show("short")
	v.want(t, "a short line over a wide one", "\nshort\n")
	s.Done("it is done")
	s.Show("more")
	s.Done("")
	s.Done("")
	v.want(t, "the end", "\nit is done\n")

	v = newTerminal(20, true)
	s = &Status{screen: v.screen(), now: slowClock(redraw - time.Nanosecond)}
	s.Show("one")
	s.Show("two")
	v.want(t, "too soon", "\none\n")
	s.Show("three")
	v.want(t, "soon enough", "\nthree\n")

	var b strings.Builder
	s = NewStatus(&b)
	s.Show("10 %\x1b[J")
	s.Done("")
	s.Done("100 %\x1b[J")
	if got, want := b.String(), "100 %␛[J\n"; got != want {
		t.Errorf("without a terminal it writes %q, it needs to be %q", got, want)
	}
	for _, none := range []*Status{NewStatus(nil), {}} {
		none.Show("nothing")
		none.Done("nothing")
	}
}
