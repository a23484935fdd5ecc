package watch

import (
	"io"
	"sync"
	"time"
)

// Status shows how far work is that no [train.Hook] is told of, such as a download. On a terminal
// it is one line, drawn again and again, as much of it as fits; elsewhere there is only what Done
// is given. It may be used from several goroutines.
type Status struct {
	mutex  sync.Mutex
	screen *screen // nil for none
	now    func() time.Time
	drawn  time.Time
}

// NewStatus makes a status line on w; a nil w shows nothing. Work does not end because nobody can
// be shown how far it is, so what cannot be written is not told of.
func NewStatus(w io.Writer) *Status {
	if w == nil {
		return &Status{}
	}
	return &Status{screen: newScreen(w), now: time.Now}
}

// Show draws a line over the one before, unless that one was drawn less than a tenth of a second
// ago.
func (s *Status) Show(line string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.screen == nil || s.screen.width == nil {
		return
	}
	now := s.now()
	if s.screen.hasBar && now.Sub(s.drawn) < redraw {
		return
	}
	s.drawn = now
	_ = s.screen.draw(rows(shown(line), s.screen.columns())[0])
}

// Done writes a line in place of what was shown; an empty one leaves nothing behind.
func (s *Status) Done(line string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.screen == nil {
		return
	}
	_ = s.screen.leave("")
	if line != "" {
		_ = s.screen.lines(shown(line), "")
	}
}
