package train

import (
	"errors"
	"testing"
)

// Why steps cannot be recorded is said once.
func TestUnrecordedStepsAreToldOnce(t *testing.T) {
	var told []Notice
	l := &Loop{training: &graph{}}
	l.audience = newAudience([]Hook{{OnNotice: func(n Notice) error {
		told = append(told, n)
		return nil
	}}})
	for range 3 {
		l.queued = &queuedStep{report: &PendingReport{}, unrecorded: errors.New("dropout reads its step")}
		if err := l.report(); err != nil {
			t.Fatal(err)
		}
	}
	const want = "steps are queued kernel by kernel, which is right and a little slower: dropout reads its step"
	if len(told) != 1 || told[0] != want {
		t.Errorf("told %q, want once %q", told, want)
	}
}
