package distributed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/internal/guard"
)

// This file is how ranks find each other. All but rank 0 dial the address that everybody knows and
// say who they are and where they listen; when all have come, rank 0 tells everyone of everyone.
// Then each rank dials those before it.

// answer is what rank 0 says to a rank that it knows: how long the text of the roster is that
// follows, or why there is no group.
type answer struct {
	Protocol string
	Error    string
	Again    bool // the error passes: come again
	Bytes    int
}

// roster is a group's members, and a key that only these know.
type roster struct {
	Key      string
	Meetings int   // of this group, this one among them
	Ranks    []int // as the members were started, 0 first; their places are their ranks now
	Members  []member
}

// member is where a rank is found.
type member struct{ Name, Address string }

// meeting is a rank on its way to a group.
type meeting struct {
	Config
	came  int                 // meetings of this group that this process has been to
	fewer func(size int) bool // the group may have so many ranks; nil where all are needed
	// Where there may be fewer, only members need to be waited for, and none that is lost.
	members, lost []int
	read          func(l *link) // reads what another says from now on; what goes wrong ends the context
}

// nobody is the number of no rank.
const nobody = -1

// met is what came of a meeting.
type met struct {
	meetings int
	members  []int   // as they were started, by rank now
	links    []*link // to all of them but this one
}

// meet finds all other ranks.
func (m meeting) meet(ctx context.Context) (met, error) {
	me := hello{Protocol: protocol, Job: m.Job, Rank: m.Rank, Size: m.Size, Process: os.Getpid(), Meetings: m.came}
	me.Host, _ = os.Hostname()
	if m.Rank == 0 {
		inTime, cancel := context.WithTimeoutCause(ctx, m.timeout(), errLate)
		defer cancel()
		return m.receiveAll(inTime, me)
	}
	// Rank 0 knows who is missing: the others wait a little longer, to hear it from there.
	inTime, cancel := context.WithTimeoutCause(ctx, m.timeout()+patience, errLate)
	defer cancel()
	return m.comeTo(inTime, me)
}

var errLate = errors.New("the time was up")

// receiveAll is rank 0's part: it waits for all others and tells them of each other.
func (m meeting) receiveAll(ctx context.Context, me hello) (met, error) {
	at := m.addressToListenAt()
	listener, err := m.network().Listen(ctx, at)
	if err != nil {
		return met{}, fmt.Errorf("rank 0 cannot listen at %s (with %s set, it listens at all addresses of its machine): %w", at, secretVariable, err)
	}
	defer listener.Close()
	callers := answerCalls(ctx, listener, []byte(m.Secret), func(caller) {})

	in := &arrivals{ranks: make([]*arrival, m.Size), here: 1}
	in.ranks[0] = &arrival{caller: caller{hello: me}}
	enough, stop := m.enough(in)
	defer stop()
	again := make(chan *arrival)
	for !enough() {
		var came *arrival
		select {
		case <-ctx.Done():
			return in.refuse(fmt.Errorf("%s of %d did not come to %s within %v (%w)", ranks(in.missing()), m.Size, m.Address, m.timeout(), context.Cause(ctx)))
		case <-in.late:
			in.late = nil
		case caller := <-callers:
			came = arrive(caller)
		case came = <-again:
		}
		if came != nil {
			if err := m.admit(ctx, in, came, again); err != nil {
				return in.refuse(err)
			}
		}
		if enough() {
			in.leaveGone()
		}
	}
	return m.tellAll(in)
}

// admit lets a rank in that came, or turns it away. An error ends the meeting. Where another has
// its place, which may be itself before it was started again, it comes again once that is known.
func (m meeting) admit(ctx context.Context, in *arrivals, came *arrival, again chan<- *arrival) error {
	h := came.hello
	if h.Job != m.Job {
		in.turnAway(came.conn, fmt.Errorf("%s is of job %q, at %s meets job %q", h.name(), plain(h.Job, maxName), m.Address, m.Job))
		return nil
	}
	if h.Rank > 0 && h.Rank < m.Size && in.ranks[h.Rank] != nil {
		switch before := in.ranks[h.Rank]; {
		case came.isGone():
			came.conn.Close()
			return nil
		case before.isGone():
			in.leave(h.Rank)
		case !came.waited:
			came.waited = true
			go came.comeAgain(ctx, before, again)
			return nil
		}
	}
	if err := m.admissible(h, in); err != nil {
		in.turnAway(came.conn, err)
		return err
	}
	in.ranks[h.Rank] = came
	in.here++
	return nil
}

// arrival is a rank that has come to rank 0, and says nothing until it is told of the group.
type arrival struct {
	caller
	gone    chan struct{} // closed when its connection has ended
	watched chan struct{} // closed when nobody looks after the connection any more
	waited  bool          // for another in its place to go
}

// arrive looks after the connection of a caller, until it ends or has company.
func arrive(c caller) *arrival {
	a := &arrival{caller: c, gone: make(chan struct{}), watched: make(chan struct{})}
	go func() {
		defer close(a.watched)
		err := guard.Call("watching", func() error { _, err := c.conn.Read(make([]byte, 1)); return err })
		if late := net.Error(nil); !errors.As(err, &late) || !late.Timeout() {
			close(a.gone)
		}
	}()
	return a
}

func (a *arrival) isGone() bool {
	select {
	case <-a.gone:
		return true
	default:
		return false
	}
}

// company ends the looking after: the connection is others' to read from.
func (a *arrival) company() {
	a.conn.SetReadDeadline(time.Unix(1, 0))
	<-a.watched
	a.conn.SetReadDeadline(time.Time{})
}

// comeAgain waits until one that was there before has gone. The end of a process may be known
// later than the process in its place.
func (a *arrival) comeAgain(ctx context.Context, before *arrival, again chan<- *arrival) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-before.gone:
	case <-a.gone:
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case again <- a:
	case <-ctx.Done():
		a.conn.Close()
	}
}

// arrivals are the ranks that have come to rank 0.
type arrivals struct {
	ranks []*arrival // by rank; nil for one that has not come
	here  int        // rank 0 among them
	late  <-chan time.Time
	told  sync.WaitGroup
}

func (in *arrivals) leave(rank int) {
	in.ranks[rank].conn.Close()
	in.ranks[rank] = nil
	in.here--
}

// leaveGone forgets the ranks that came and have left.
func (in *arrivals) leaveGone() {
	for rank, a := range in.ranks[1:] {
		if a != nil && a.isGone() {
			in.leave(rank + 1)
		}
	}
}

// turnAway tells one that came why it is not in the group. Nobody that comes meanwhile waits until
// it has heard.
func (in *arrivals) turnAway(conn net.Conn, err error) {
	in.told.Go(func() {
		defer conn.Close()
		_ = guard.Call("turning away", func() error { // who is turned away may not listen
			return tell(conn, answer{Protocol: protocol, Error: plain(err.Error(), maxText), Again: errors.Is(err, ErrLost)})
		})
	})
}

// refuse tells all that there is no group.
func (in *arrivals) refuse(err error) (met, error) {
	for _, a := range in.ranks[1:] {
		if a != nil {
			in.turnAway(a.conn, err)
		}
	}
	in.told.Wait()
	return met{}, err
}

// missing lists the ranks that have not come.
func (in *arrivals) missing() (list []int) {
	for rank, a := range in.ranks {
		if a == nil {
			list = append(list, rank)
		}
	}
	return list
}

// enough tells when rank 0 need not wait any longer: until all ranks are here, or where there may
// be fewer all but the one that is lost, or those that come within half of the time: others may
// be in the middle of a step.
func (m meeting) enough(in *arrivals) (enough func() bool, stop func()) {
	if m.fewer == nil {
		return func() bool { return in.here == m.Size }, func() {}
	}
	timer := time.NewTimer(m.timeout() / 2)
	in.late = timer.C
	return func() bool {
		return in.late == nil || !slices.ContainsFunc(in.missing(), func(rank int) bool {
			return slices.Contains(m.members, rank) && !slices.Contains(m.lost, rank)
		})
	}, func() { timer.Stop() }
}

// tellAll tells those who came of each other. Of those whose number the group may not have, the
// last are turned away.
func (m meeting) tellAll(in *arrivals) (met, error) {
	group := roster{Key: newNonce(), Ranks: []int{0}}
	for rank, a := range in.ranks[1:] {
		if a != nil {
			a.company()
			group.Ranks = append(group.Ranks, rank+1)
		}
	}
	for m.fewer != nil && len(group.Ranks) > 1 && !m.fewer(len(group.Ranks)) {
		last := len(group.Ranks) - 1
		rank := group.Ranks[last]
		group.Ranks = group.Ranks[:last]
		in.turnAway(in.ranks[rank].conn, fmt.Errorf("the group goes on with fewer ranks, and its batches cannot be dealt out to %d: rank %d is not needed", last+1, rank))
	}
	defer in.told.Wait()
	for _, rank := range group.Ranks {
		h := in.ranks[rank].hello
		group.Meetings = max(group.Meetings, h.Meetings+1)
		group.Members = append(group.Members, member{Name: h.name(), Address: h.addressOf})
	}
	text, err := json.Marshal(group)
	if err != nil {
		return in.refuse(err)
	}
	head, err := json.Marshal(answer{Protocol: protocol, Bytes: len(text)})
	if err != nil {
		return in.refuse(err)
	}
	found := met{meetings: group.Meetings, members: group.Ranks, links: make([]*link, len(group.Ranks))}
	for now, rank := range group.Ranks[1:] {
		name := group.Members[now+1].Name
		if err := send(in.ranks[rank].conn, head, text); err != nil {
			err = lostRank{rank, fmt.Errorf("%s: %w", name, err)}
			for _, l := range found.links[1 : now+1] { // who knows the group already
				l.send(ending(err), time.Second)
				l.conn.Close()
				in.ranks[l.rank] = nil
			}
			return in.refuse(err)
		}
		found.links[now+1] = newLink(rank, name, in.ranks[rank].conn)
	}
	for _, l := range found.links[1:] {
		m.read(l)
	}
	return found, nil
}

// admissible reports why a rank cannot be one of the group.
func (m meeting) admissible(h hello, in *arrivals) error {
	switch {
	case h.Size != m.Size:
		return fmt.Errorf("%s was started as one of %d ranks, rank 0 as one of %d", h.name(), h.Size, m.Size)
	case h.Rank < 1 || h.Rank >= m.Size:
		return fmt.Errorf("%s is not from 1 to %d", h.name(), m.Size-1)
	case in.ranks[h.Rank] != nil:
		return fmt.Errorf("two processes are rank %d: %s and %s", h.Rank, in.ranks[h.Rank].hello.name(), h.name())
	}
	return nil
}

// comeTo is the part of all but rank 0.
func (m meeting) comeTo(ctx context.Context, me hello) (found met, err error) {
	soon, cancel := context.WithTimeout(ctx, m.timeout())
	defer cancel()
	master, err := dialUntil(soon, m.network(), m.Address)
	if err != nil {
		return met{}, fmt.Errorf("rank %d found no rank 0 at %s within %v: %w", m.Rank, m.Address, m.timeout(), err)
	}
	stop := endWith(ctx, master)
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			m.leave(ctx, found.links, err)
			master.Close()
		}
	}()
	host, _, _ := net.SplitHostPort(master.LocalAddr().String())
	listener, err := m.network().Listen(ctx, net.JoinHostPort(host, "0"))
	if err != nil {
		return met{}, fmt.Errorf("rank %d cannot listen at %s: %w", m.Rank, host, err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if me.Port, err = strconv.Atoi(port); err != nil {
		return met{}, fmt.Errorf("rank %d listens at %s: %w", m.Rank, listener.Addr(), err)
	}
	if err := introduce(master, []byte(m.Secret), me); err != nil {
		return met{}, notMet(0, fmt.Errorf("rank 0 at %s: %w", m.Address, err))
	}
	group, err := m.hearRoster(master)
	if err != nil {
		return met{}, err
	}
	found = met{meetings: group.Meetings, members: group.Ranks, links: make([]*link, len(group.Members))}
	found.links[0] = newLink(0, group.Members[0].Name, master)
	m.read(found.links[0])
	return found, m.meetOthers(ctx, me, group, listener, found.links)
}

// notMet is the error of meeting a rank: it is lost where its connection failed.
func notMet(rank int, err error) error {
	if errors.As(err, new(broken)) {
		return lostRank{rank, err}
	}
	return err
}

// leave tells those whom this rank has met why it leaves: they would take its end for the loss that
// it may only have heard of.
func (m meeting) leave(ctx context.Context, links []*link, err error) {
	if why := (saidBy{}); errors.As(context.Cause(ctx), &why) {
		err = why.error
	}
	if !errors.Is(err, ErrLost) {
		err = lostRank{m.Rank, fmt.Errorf("rank %d left the meeting: %w", m.Rank, err)}
	}
	for _, l := range links {
		if l != nil {
			l.send(ending(err), time.Second)
			l.conn.Close()
		}
	}
}

// turnedAway is why rank 0 does not want a rank.
type turnedAway string

func (t turnedAway) Error() string { return string(t) }

// hearRoster hears from rank 0 who the group is.
func (m meeting) hearRoster(master net.Conn) (group roster, err error) {
	var a answer
	if err := hear(master, &a); err != nil {
		return group, lostRank{0, fmt.Errorf("rank 0 at %s said nothing of the group: %w", m.Address, err)}
	}
	switch {
	case a.Error != "" && a.Again:
		return group, lostRank{nobody, errors.New(plain(a.Error, maxText))}
	case a.Error != "":
		return group, turnedAway(plain(a.Error, maxText))
	case a.Bytes < 0 || a.Bytes > maxBody:
		return group, fmt.Errorf("rank 0 at %s has %d bytes to say of the group, at most %d make sense", m.Address, a.Bytes, maxBody)
	}
	text, err := io.ReadAll(io.LimitReader(master, int64(a.Bytes))) // so that saying a size takes no memory
	if err == nil && len(text) < a.Bytes {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return group, lostRank{0, fmt.Errorf("rank 0 at %s ended while it spoke of the group: %w", m.Address, err)}
	}
	if err := json.Unmarshal(text, &group); err != nil {
		return group, fmt.Errorf("rank 0 at %s: %w", m.Address, err)
	}
	members := len(group.Members)
	if members > m.Size || members < m.Size && m.fewer == nil || len(group.Ranks) != members {
		return group, fmt.Errorf("rank 0 at %s names %d members and %d ranks of a group of %d", m.Address, members, len(group.Ranks), m.Size)
	}
	if slices.Index(group.Ranks, m.Rank) < 1 {
		return group, fmt.Errorf("rank 0 at %s names the ranks %v, this is rank %d", m.Address, group.Ranks, m.Rank)
	}
	for n := range group.Members {
		group.Members[n].Name = plain(group.Members[n].Name, 4*maxName)
	}
	return group, nil
}

// waitFor gives the others time to say who is lost: the rank that ended a connection may have heard
// it before this one.
func waitFor(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// meetOthers dials the members from the second to this one and waits for those behind it.
func (m meeting) meetOthers(ctx context.Context, me hello, group roster, listener net.Listener, links []*link) error {
	key := []byte(m.Secret + group.Key)
	callers := answerCalls(ctx, listener, key, func(c caller) {
		m.leave(ctx, []*link{newLink(c.hello.Rank, c.hello.name(), c.conn)}, context.Cause(ctx))
	})
	own := slices.Index(group.Ranks, m.Rank)
	add := func(place int, conn net.Conn) {
		links[place] = newLink(group.Ranks[place], group.Members[place].Name, conn)
		m.read(links[place])
	}
	for place := 1; place < own; place++ {
		other, rank := group.Members[place], group.Ranks[place]
		conn, err := dialUntil(ctx, m.network(), other.Address)
		if err != nil {
			return lostRank{rank, fmt.Errorf("%s cannot be reached at %s: %w", other.Name, other.Address, err)}
		}
		stop := endWith(ctx, conn)
		err = introduce(conn, key, me)
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			conn.Close()
			if err = notMet(rank, fmt.Errorf("%s: %w", other.Name, err)); errors.Is(err, ErrLost) {
				waitFor(ctx, patience)
			}
			return err
		}
		add(place, conn)
	}
	for here := own + 1; here < len(links); {
		select {
		case <-ctx.Done():
			var late []int
			for place := own + 1; place < len(links); place++ {
				if links[place] == nil {
					late = append(late, group.Ranks[place])
				}
			}
			return lostRank{late[0], fmt.Errorf("%s did not reach rank %d within %v (%w)", ranks(late), m.Rank, m.timeout(), context.Cause(ctx))}
		case caller := <-callers:
			place := slices.Index(group.Ranks, caller.hello.Rank)
			if place <= own || links[place] != nil {
				caller.conn.Close()
				continue
			}
			add(place, caller.conn)
			here++
		}
	}
	return nil
}

// Wires connect ranks: a network of one's own, such as one within a process for a test.
type Wires interface {
	Listen(ctx context.Context, address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

func (c Config) network() Wires {
	if c.Wires != nil {
		return c.Wires
	}
	return tcp{}
}

type tcp struct{}

func (tcp) Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", address)
}

func (tcp) Dial(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address)
}

// dialUntil dials until someone answers or the time is up: ranks start in any order.
func dialUntil(ctx context.Context, by Wires, address string) (net.Conn, error) {
	for {
		conn, err := by.Dial(ctx, address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// addressToListenAt is the group's address itself, or, where a secret keeps strangers out, every
// address of the machine: by the name that others know a machine by it may not know itself. Ranks
// that meet at the loopback stay there.
func (c Config) addressToListenAt() string {
	host, port, _ := net.SplitHostPort(c.Address)
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() || host == "localhost" || c.Secret == "" {
		return c.Address
	}
	return net.JoinHostPort("", port)
}

// ranks names ranks as people do: rank 3, or ranks 1, 2 and 5.
func ranks(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("rank %d", list[0])
	}
	if len(list) > 8 {
		return fmt.Sprintf("%d ranks, the first of them %d,", len(list), slices.Min(list))
	}
	var texts []string
	for _, rank := range list[:len(list)-1] {
		texts = append(texts, fmt.Sprint(rank))
	}
	return fmt.Sprintf("ranks %s and %d", strings.Join(texts, ", "), list[len(list)-1])
}
