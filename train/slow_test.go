package train

import (
	"strings"
	"testing"
	"time"
)

// A rank that is late in most steps is named, once; one that is late now and then is not, nor are
// ranks that are late by little.
func TestSlowest(t *testing.T) {
	for name, c := range map[string]struct {
		waited func(step int) []time.Duration
		want   []string // by hundreds of steps
	}{
		"one rank": {func(int) []time.Duration { return []time.Duration{0, 3 * time.Millisecond, 300 * time.Millisecond} },
			[]string{"rank 2 is slow: in the last 100 steps the others waited 30% of the time for it", "", ""}},
		"now and then": {func(step int) []time.Duration {
			if step%3 == 0 {
				return []time.Duration{5 * time.Second, 0}
			}
			return []time.Duration{0, 0}
		}, []string{"", ""}},
		"by little": {func(int) []time.Duration { return []time.Duration{50 * time.Millisecond, 90 * time.Millisecond} }, []string{"", ""}},
		"another then": {func(step int) []time.Duration {
			list := make([]time.Duration, 4)
			list[1+step/200] = 200 * time.Millisecond
			return list
		}, []string{"rank 1 is slow", "", "rank 2 is slow", ""}},
		"alone": {func(int) []time.Duration { return nil }, []string{"", ""}},
	} {
		var s slowest
		for step := range 100 * len(c.want) {
			want := ""
			if step%100 == 99 {
				want = c.want[step/100]
			}
			if got := s.see(time.Second, c.waited(step)); !strings.HasPrefix(got, want) || want == "" && got != "" {
				t.Errorf("%s: after step %d it says %q, want %q", name, step+1, got, want)
			}
		}
	}
}
