package train

import (
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/train/checkpoint"
)

// A panic while a checkpoint is written beside steps is that checkpoint's error.
func TestWritingThatPanics(t *testing.T) {
	w := &writing{to: []target{{}}, paths: make([]string, 1), done: make(chan struct{}), copied: make(chan struct{})}
	go w.write(checkpoint.Checkpoint{}, func(checkpoint.Checkpoint, write) (string, error) { panic("no more paper") })
	<-w.done
	if w.err == nil || !strings.Contains(w.err.Error(), "writing it panicked: no more paper") {
		t.Errorf("the error is %v", w.err)
	}
}
