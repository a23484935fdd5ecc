package train

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stheno-ml/stheno/ops"
)

// audience is the hooks of a run, and what became of them.
type audience struct {
	hooks   []Hook
	dropped []bool // displays that failed
	notices []Notice
	started bool // they were told of the start
}

func newAudience(hooks []Hook) *audience {
	return &audience{hooks: hooks, dropped: make([]bool, len(hooks))}
}

// tell calls a function of every hook that has it, in order, up to the first error that ends the
// run.
func tell[T any](a *audience, what T, of func(*Hook) func(T) error) error {
	return a.each(func(h *Hook) error {
		if call := of(h); call != nil {
			return call(what)
		}
		return nil
	})
}

func (a *audience) each(call func(*Hook) error) error {
	for i := range a.hooks {
		if a.dropped[i] {
			continue
		}
		if err := a.filter(i, call(&a.hooks[i])); err != nil {
			return err
		}
	}
	return nil
}

// filter returns what is left of a hook's error: nothing of a notice, and nothing of a display's.
func (a *audience) filter(i int, err error) error {
	var notice Notice
	switch {
	case err == nil:
		return nil
	case errors.As(err, &notice):
		return a.notice(Notice(err.Error()))
	case a.hooks[i].Display:
		a.dropped[i] = true
		return a.notice(Notice(fmt.Sprintf("a display failed and is dropped: %v", err)))
	}
	return err
}

// notice keeps a notice and passes it on.
func (a *audience) notice(n Notice) error {
	a.notices = append(a.notices, n)
	return tell(a, n, func(h *Hook) func(Notice) error { return h.OnNotice })
}

// noticeOnce is notice for what is true of each step.
func (a *audience) noticeOnce(n Notice) error {
	if slices.Contains(a.notices, n) {
		return nil
	}
	return a.notice(n)
}

// back tells the hooks that the training went back, and people why.
func (a *audience) back(b Back) error {
	if err := tell(a, b, func(h *Hook) func(Back) error { return h.OnBack }); err != nil {
		return err
	}
	return a.notice(Notice(b.String()))
}

// end tells every hook of the end, those that were dropped too, which may have something to close.
func (a *audience) end(e End) error {
	var errs []error
	for i, h := range a.hooks {
		if h.OnEnd == nil {
			continue
		}
		wasDropped := a.dropped[i]
		if err := h.OnEnd(e); !wasDropped {
			errs = append(errs, a.filter(i, err))
		}
	}
	return errors.Join(errs...)
}

// onCompile tells the hooks what is compiled for a GPU, until stop is called.
func (a *audience) onCompile() (stop func()) {
	return ops.OnCompile(func(line string) {
		for _, h := range a.hooks {
			if h.OnCompile != nil {
				h.OnCompile(line)
			}
		}
	})
}

// onCancel tells the hooks as soon as the context is cancelled, until stop is called.
func (a *audience) onCancel(ctx context.Context, checkpoint bool) (stop func()) {
	if ctx.Err() != nil {
		return func() {}
	}
	told := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		defer close(told)
		for _, h := range a.hooks {
			if h.OnCancel != nil {
				h.OnCancel(Cancel{Reason: context.Cause(ctx), Checkpoint: checkpoint})
			}
		}
	})
	return func() {
		if !unregister() {
			<-told
		}
	}
}
