package distributed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stheno-ml/stheno/internal/guard"
)

// This file is how a group comes together, again if it lost a rank.

// assemble makes the group of those who meet.
func (g *Group) assemble(ctx context.Context, m meeting) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f, over, joined, me := newFate(), make(chan struct{}), false, fmt.Sprint("rank ", m.Rank)
	m.read = func(l *link) {
		f.tasks.Go(func() {
			if err := l.mutual(m.Rank, guard.Call(me, func() error { return l.receive(f.done) })); err != nil {
				cancel(saidBy{err}) // who meets others waits for nothing any more
				if <-over; joined {
					g.fail(err)
				}
			}
		})
	}
	found, err := m.meet(ctx)
	if err != nil {
		f.end.Do(func() { close(f.done) })
		close(over)
		f.tasks.Wait()
		if why := (saidBy{}); errors.As(context.Cause(ctx), &why) {
			err = why.error
		}
		return fmt.Errorf("distributed: %w", err)
	}
	g.members, g.meetings, g.fate = found.members, found.meetings, f
	g.rank, g.size = slices.Index(g.members, m.Rank), len(g.members)
	g.peers = make([]*peer, g.size)
	g.forget()
	for rank, l := range found.links {
		if l != nil {
			g.peers[rank] = newPeer(rank, l, 0)
		}
	}
	for _, part := range g.parts {
		g.fill(part)
		part.forget()
	}
	joined = true
	close(over)
	if len(g.peers) > 1 {
		f.tasks.Go(func() {
			if err := g.guarded(g.showLife); err != nil {
				g.fail(err)
			}
		})
	}
	return nil
}

// saidBy is what has ended a meeting, as one said that had come to it.
type saidBy struct{ error }

// forget lets a group's operations begin anew.
func (g *Group) forget() {
	g.operation.Store(0)
	g.name.Store(&noOperation)
	g.lock.Lock()
	defer g.lock.Unlock()
	g.network = nil
}

// Renew brings the group together again after one of its ranks was lost: after an operation that
// failed with [ErrLost], in all ranks that are left. They meet where they met first, within
// Config.Timeout. With LostReplaced they wait there for a process that takes the place of the lost
// one, started like it by whoever has the group's secret. With LostMissed they go on without it:
// ranks and size are others then, the largest that fewer allows (nil means any), and the ranks that
// are too many get an error. All wait for rank 0. Parts of the group are renewed with it. Devices
// need to be connected again.
//
// The process that takes a rank's place sees by [Group.Renewed] that it comes late.
func (g *Group) Renew(ctx context.Context, fewer func(size int) bool) error {
	var lost lostRank
	switch cause := g.Err(); {
	case cause == nil:
		return errors.New("distributed: Renew: no rank is lost")
	case g.fate == nil:
		return cause
	case g.whole != g:
		return errors.New("distributed: Renew: the group is a part of one, it needs to be the whole")
	case !errors.As(cause, &lost):
		return cause
	}
	m := meeting{Config: g.config, came: g.meetings, members: g.members, lost: []int{lost.rank}}
	switch g.config.Lost {
	case LostEnds:
		return g.cause
	case LostMissed:
		if len(g.parts) > 0 {
			return fmt.Errorf("a group with parts can miss no rank: %w", g.cause)
		}
		if m.fewer = fewer; fewer == nil {
			m.fewer = func(int) bool { return true }
		}
	}
	g.tasks.Wait()
	err := g.comeTogether(ctx, m, func(err error) bool { return m.fewer == nil || !errors.As(err, new(turnedAway)) })
	switch {
	case err == nil:
		return nil
	case m.fewer != nil && lost.rank == 0:
		return fmt.Errorf("%s: %w; the group did not come together again: %w", notWithoutRank0, lost, err)
	}
	return fmt.Errorf("%w; the group did not come together again: %w", lost, err)
}

// notWithoutRank0 is why a group that goes on with fewer ranks ends, and what helps.
const notWithoutRank0 = "rank 0 cannot be missed, as the others meet there (start all ranks again, or replace lost ones: " + string(LostReplaced) + ")"

// comeTogether makes the group of those who meet, again where that fails as a further attempt may
// help.
func (g *Group) comeTogether(ctx context.Context, m meeting, again func(error) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.timeout()+2*patience, errLate)
	defer cancel()
	for {
		err := g.assemble(ctx, m)
		if err == nil || ctx.Err() != nil || !again(err) {
			return err
		}
		if lost := (lostRank{}); errors.As(err, &lost) {
			m.lost = append(m.lost, lost.rank)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pauseBetweenMeetings):
		}
	}
}

// pauseBetweenMeetings is for who failed at once, such as by a port that is still taken.
const pauseBetweenMeetings = 20 * time.Millisecond

// Renewed reports whether ranks of the group were lost and it came together again. The ranks that
// were in it before have what the training is at; a process that has just come has not.
func (g *Group) Renewed() bool { return g != nil && g.meetings > 1 }

// Lost is what the ranks do when one of them is lost.
func (g *Group) Lost() Lost {
	if g.Size() == 1 {
		return LostEnds
	}
	return g.config.Lost
}
