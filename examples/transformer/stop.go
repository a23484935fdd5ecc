package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignalled returns a context that ends with the first signal that asks the program to end:
// Ctrl-C, SIGTERM, or a terminal that is closed. The second such signal ends the program at once. A
// pipe that nobody reads any more asks as well, but never ends the program before its checkpoint is
// written.
func untilSignalled(parent context.Context) (ctx context.Context, stop func()) {
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		ending = append(ending, syscall.SIGHUP)
	}
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, ending...)
	signal.Notify(signals, syscall.SIGPIPE)
	go func() {
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGPIPE && isRead() {
					continue // a rank is lost, and what this one sent it nobody reads
				}
				signal.Reset(ending...)
				cancel(signalled{s})
			case <-ctx.Done():
			}
			return
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// signalled is the reason to stop that a signal is.
type signalled struct{ os.Signal }

// Error names the signal.
func (s signalled) Error() string { return s.String() }
