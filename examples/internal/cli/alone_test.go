package cli

import (
	"strings"
	"testing"
)

// A program without flags says so, and passes over nothing that is asked of it.
func TestAlone(t *testing.T) {
	for _, c := range []struct {
		args          []string
		status        int
		done          bool
		out, failures string
	}{
		{[]string{"/x/vit"}, 0, false, "", ""},
		{[]string{"/x/vit", "-h"}, 0, true, "It looks. It has no flags.\n", ""},
		{[]string{"/x/vit", "--help"}, 0, true, "It looks. It has no flags.\n", ""},
		{[]string{"/x/vit", "-steps", "5"}, 2, true, "", "vit: argument \"-steps\" is one too many: the program has no flags and reads nothing\n"},
	} {
		var out, failures strings.Builder
		status, done := alone(c.args, "It looks.", &out, &failures)
		if status != c.status || done != c.done || out.String() != c.out || failures.String() != c.failures {
			t.Errorf("%q: %d, %v, it says %q and %q", c.args, status, done, out.String(), failures.String())
		}
	}
}
