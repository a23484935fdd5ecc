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
