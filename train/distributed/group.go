package distributed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels"
)

// Group is the processes that train one model together. Its operations are collective: every rank
// calls the same ones in the same order, with tensors of the same shapes and types, and each waits
// for the others. They are not for several goroutines at once.
//
// When a rank ends, hangs or says that it gives up, the operations of all others return an error
// that names it, and so do all that follow.
//
// A nil Group is one of a process alone, like that of the zero Config. The zero Group was never
// joined: its operations return an error.
type Group struct {
	config    Config  // what the process was started with, also where the group has fewer ranks now
	rank      int     // of this process now
	size      int     // now
	meetings  int     // that made the group what it is: 1 unless it was renewed
	members   []int   // the ranks as they were started, by rank now; nil before the first meeting
	peers     []*peer // by rank; nil for this one
	number    uint8   // of the frames: 0, and another for each part
	operation atomic.Uint64
	name      atomic.Pointer[string] // of the operation
	network   kernels.Network        // of the devices, nil while they are not connected

	whole  *Group     // what this is a part of, or itself
	stride int        // between the ranks of a part in the whole
	parts  []*Group   // that Split has made of this one
	lock   sync.Mutex // held while network or parts are set, and looked at by others than the operations
	*fate
}

// fate is the end of a group and of its parts.
type fate struct {
	end   sync.Once
	done  chan struct{} // closed when the group is at its end
	cause error         // why; written before done is closed
	tasks sync.WaitGroup
}

func newFate() *fate { return &fate{done: make(chan struct{})} }

var (
	errClosed    = errors.New("distributed: the group is closed") // after Close
	errNotJoined = errors.New("distributed: the group is the zero one, it needs to come from Join")
)

// Join returns the group that a config describes once all of its ranks have come. A process alone
// is a group of one, whose operations do nothing.
func Join(ctx context.Context, c Config) (*Group, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Size = max(c.Size, 1)
	g := &Group{config: c, rank: c.Rank, size: c.Size, meetings: 1, peers: make([]*peer, c.Size), fate: newFate()}
	g.whole = g
	g.name.Store(&noOperation)
	if c.Size == 1 {
		return g, nil
	}
	err := g.comeTogether(ctx, meeting{Config: c}, func(err error) bool {
		return c.Lost == LostReplaced && errors.Is(err, ErrLost)
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// noOperation is the name of the operation before the first.
var noOperation = "nothing"

// Rank returns which of the group's processes this one is, from 0 on.
func (g *Group) Rank() int {
	if g == nil {
		return 0
	}
	return g.rank
}

// Size returns how many processes the group has.
func (g *Group) Size() int {
	if g == nil {
		return 1
	}
	return max(g.size, 1)
}

// LocalRank returns which of the ranks on its machine this one is: the GPU that it takes.
func (g *Group) LocalRank() int {
	if g == nil {
		return 0
	}
	return g.config.LocalRank
}

// Close leaves the group, after the last operation. The others go on; who waits for this rank from
// then on gets an error. A part is left with the whole, and its own Close does nothing.
func (g *Group) Close() error {
	switch {
	case g == nil:
		return nil
	case g.fate == nil:
		return errNotJoined
	case g.whole != g:
		return nil
	}
	for _, l := range g.others() {
		l.send(frame{kind: goodbyeFrame, operation: g.operation.Load()}, g.config.timeout())
	}
	g.finish(errClosed)
	return nil
}

// Abort leaves the group because of an error: the operations of all others return it, with this
// rank's name.
func (g *Group) Abort(err error) {
	if g == nil || g.fate == nil {
		return
	}
	g.fail(fmt.Errorf("rank %d gave up: %w", g.self(), err))
	g.tasks.Wait()
}

// Err returns why the group cannot go on, nil while it can.
func (g *Group) Err() error {
	switch {
	case g == nil:
		return nil
	case g.fate == nil:
		return errNotJoined
	}
	select {
	case <-g.done:
		return g.cause
	default:
		return nil
	}
}

// Waited returns how long this rank has waited for each of the others since the group came
// together, by rank: for tensors of the host.
func (g *Group) Waited() []time.Duration {
	list := make([]time.Duration, g.Size())
	if g != nil {
		for rank, p := range g.peers {
			if p != nil {
				list[rank] = time.Duration(p.waited.Load())
			}
		}
	}
	return list
}

// self is this rank as messages name it: by the number in the whole that it was started with.
func (g *Group) self() int { return g.config.Rank }

func (g *Group) others() []*peer {
	return slices.DeleteFunc(slices.Clone(g.peers), func(p *peer) bool { return p == nil })
}

// fail ends the group and what it is a part of for the reason given, and passes it on: whoever is
// the first to know it tells those who wait for somebody else.
func (g *Group) fail(err error) {
	if g.Err() != nil {
		return
	}
	whole := g.whole
	last := ending(err)
	last.operation = whole.operation.Load()
	for _, l := range whole.others() {
		l.send(last, time.Second)
	}
	whole.finish(fmt.Errorf("distributed: %w", err))
}

// failLate is fail for an error that may only be what another rank's end looks like from here: who
// reads from the connections knows better why, and soon. It returns why the group ended.
func (g *Group) failLate(err error) error {
	select {
	case <-g.done:
	case <-time.After(patience):
		g.fail(err)
	}
	return g.Err()
}

func (g *Group) finish(cause error) {
	g.end.Do(func() {
		g.cause = cause
		close(g.done)
		for _, part := range g.withParts() {
			part.disconnect()
		}
		for _, l := range g.others() {
			l.conn.Close()
		}
	})
}

// showLife tells the others now and then that this rank lives and where it is, and ends the group
// when one of them has said nothing for too long.
func (g *Group) showLife() error {
	ticker := time.NewTicker(min(g.config.timeout()/8, 2*time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-g.done:
			return nil
		case now := <-ticker.C:
			for _, part := range g.withParts() {
				if err := part.showLifeAt(now); err != nil {
					return nil // the group has ended by it
				}
			}
		}
	}
}

// showLifeAt does so once, within one group.
func (g *Group) showLifeAt(now time.Time) error {
	if err := g.networkErr(); err != nil {
		return g.failLate(fmt.Errorf("rank %d: %w", g.self(), err))
	}
	for _, l := range g.others() {
		if l.left.Load() {
			continue
		}
		if silent := now.Sub(time.Unix(0, l.lastSeen.Load())); silent > g.config.timeout() {
			g.fail(l.lost("%s has said nothing for %v", l.name, silent.Round(time.Second)))
			return g.Err()
		}
		l.send(frame{kind: aliveFrame, group: g.number, operation: g.operation.Load()}, g.config.timeout()/4)
	}
	return nil
}

// guarded does the work of one of the group's goroutines. A panic is its error, which ends the
// group as any other does.
func (g *Group) guarded(work func() error) error {
	return guard.Call(fmt.Sprintf("rank %d", g.self()), work)
}

// begin starts an operation.
func (g *Group) begin(name string) (operation uint64, err error) {
	if err := g.Err(); err != nil {
		return 0, err
	}
	g.name.Store(&name)
	return g.operation.Add(1), nil
}

// wait returns the next data of a rank, which must belong to the operation. An error says who is
// missing: of several that have not come to the operation, the one that is furthest behind.
func (g *Group) wait(l *peer, operation uint64) ([]byte, error) {
	timeout := g.config.timeout()
	if len(g.parts) > 0 {
		timeout += timeout / 4 // who waits within a part knows better who is missing
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case f := <-l.arrived:
		return g.taken(l, f, operation)
	default:
	}
	began := time.Now()
	defer func() { l.waited.Add(int64(time.Since(began))) }()
	gone := time.NewTicker(20 * time.Millisecond)
	defer gone.Stop()
	for {
		select {
		case f := <-l.arrived:
			return g.taken(l, f, operation)
		case <-g.done:
			select {
			case f := <-l.arrived: // before the end came
				return g.taken(l, f, operation)
			default:
				return nil, g.cause
			}
		case <-gone.C:
			if l.left.Load() && len(l.arrived) == 0 {
				err := fmt.Errorf("%s left the group, rank %d waits for it in operation %d, %s", l.name, g.self(), operation, *g.name.Load())
				g.fail(err)
				return nil, g.cause
			}
		case <-timer.C:
			last := l
			for _, other := range g.others() {
				if other.at.Load() < last.at.Load() {
					last = other
				}
			}
			g.fail(last.lost("%s did not come to operation %d, %s, within %v: it is at %d", last.name, operation, *g.name.Load(), timeout, last.at.Load()))
			return nil, g.cause
		}
	}
}

func (g *Group) taken(l *peer, f frame, operation uint64) ([]byte, error) {
	if f.operation != operation {
		g.fail(fmt.Errorf("%s is at operation %d, rank %d at %d, %s: every rank needs to call the same operations in the same order",
			l.name, f.operation, g.self(), operation, *g.name.Load()))
		return nil, g.cause
	}
	return f.body, nil
}
