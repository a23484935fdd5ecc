package guard_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/guard"
)

func TestCall(t *testing.T) {
	wrong := errors.New("wrong")
	for _, work := range []func() error{func() error { return nil }, func() error { return wrong }} {
		if got, want := guard.Call("work", work), work(); got != want {
			t.Errorf("the error is %v, want %v", got, want)
		}
	}
	var none []int
	err := guard.Call("work", func() error { none[3] = 1; return nil })
	if err == nil || !strings.HasPrefix(err.Error(), "work panicked: runtime error: index out of range [3]") ||
		!strings.Contains(err.Error(), "guard_test.go:") {
		t.Errorf("the error is %v, want the reason and where it panicked", err)
	}
}

func TestCatchLine(t *testing.T) {
	work := func(none []int) (err error) {
		defer guard.CatchLine(&err, "work")
		none[3] = 1
		return nil
	}
	if err := work(make([]int, 4)); err != nil {
		t.Error(err)
	}
	if err := work(nil); err == nil || err.Error() != "guard_test.go:29: work panics: runtime error: index out of range [3] with length 0" {
		t.Errorf("the error is %v, want where it panicked and the reason", err)
	}
}
