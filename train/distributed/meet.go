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
	Bytes    int
}

// roster is a group's members, and a key that only these know.
type roster struct {
	Key      string
	Meetings int   // of this group, this one among them
	Ranks    []int // that the members had when they came, 0 first; their places are their ranks now
	Members  []member
}

// member is where a rank is found.
type member struct{ Name, Address string }

// meeting is a rank on its way to a group.
type meeting struct {
	Config
	came  int                 // meetings of this group that this process has been to
	fewer func(size int) bool // the group may have so many ranks; nil where all are needed
	lost  int                 // a rank that need not be waited for, or nobody
	read  func(l *link)       // reads what another says from now on; what goes wrong ends the context
}

// nobody is the number of no rank.
const nobody = -1

// met is what came of a meeting.
type met struct {
	rank, meetings int
	links          []*link // to all ranks but this one, by rank
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
		return met{}, fmt.Errorf("distributed: rank 0 cannot listen at %s (with %s set, it listens at all addresses of its machine): %w", at, secretVariable, err)
	}
	defer listener.Close()
	callers := answerCalls(ctx, listener, []byte(m.Secret))

	in := &arrivals{hellos: make([]hello, m.Size), conns: make([]net.Conn, m.Size), here: 1}
	in.hellos[0] = me
	enough, stop := m.enough(in)
	defer stop()
	for !enough() {
		select {
		case <-ctx.Done():
			return in.refuse(fmt.Errorf("%s of %d did not come to %s within %v (%w)", ranks(in.missing()), m.Size, m.Address, m.timeout(), context.Cause(ctx)))
		case <-in.late:
			in.late = nil
		case caller := <-callers:
			h := caller.hello
			if h.Job != m.Job {
				in.turnAway(caller.conn, fmt.Errorf("%s is of job %q, at %s meets job %q", h.name(), plain(h.Job, maxName), m.Address, m.Job))
				continue
			}
			if h.Rank > 0 && h.Rank < m.Size && in.conns[h.Rank] != nil && !isThere(in.conns[h.Rank]) {
				in.leave(h.Rank) // it died, and was started again
			}
			if err := m.admissible(h, in); err != nil {
				in.turnAway(caller.conn, err)
				return in.refuse(err)
			}
			in.hellos[h.Rank], in.conns[h.Rank] = h, caller.conn
			in.here++
		}
		if enough() {
			for _, rank := range gone(in.conns) {
				in.leave(rank)
			}
		}
	}
	return m.tellAll(in)
}

// arrivals are the ranks that have come to rank 0.
type arrivals struct {
	hellos []hello    // by rank
	conns  []net.Conn // by rank; nil for one that has not come
	here   int        // rank 0 among them
	late   <-chan time.Time
	told   sync.WaitGroup
}

func (in *arrivals) leave(rank int) {
	in.conns[rank].Close()
	in.conns[rank] = nil
	in.here--
}

// turnAway tells one that came why it is not in the group. Nobody that comes meanwhile waits until
// it has heard.
func (in *arrivals) turnAway(conn net.Conn, err error) {
	in.told.Go(func() {
		defer conn.Close()
		_ = guard.Call("turning away", func() error { // who is turned away may not listen
			return tell(conn, answer{Protocol: protocol, Error: plain(err.Error(), maxText)})
		})
	})
}

// refuse tells all that there is no group.
func (in *arrivals) refuse(err error) (met, error) {
	for _, conn := range in.conns {
		if conn != nil {
			in.turnAway(conn, err)
		}
	}
	in.told.Wait()
	return met{}, fmt.Errorf("distributed: %w", err)
}

// missing lists the ranks that have not come.
func (in *arrivals) missing() (list []int) {
	for rank, conn := range in.conns {
		if conn == nil && rank > 0 {
			list = append(list, rank)
		}
	}
	return list
}

// enough tells when rank 0 need not wait any longer: until all ranks are here, or where there may
// be fewer all but the one that is lost, or those that come within some time.
func (m meeting) enough(in *arrivals) (enough func() bool, stop func()) {
	if m.fewer == nil {
		return func() bool { return in.here == m.Size }, func() {}
	}
	timer := time.NewTimer(min(m.timeout()/2, longestWaitForFewer))
	in.late = timer.C
	return func() bool {
		missing := in.missing()
		return len(missing) == 0 || in.late == nil || len(missing) == 1 && missing[0] == m.lost
	}, func() { timer.Stop() }
}

// longestWaitForFewer is how long those may take to come who live, where nobody knows who that is.
const longestWaitForFewer = 10 * time.Second

// tellAll tells those who came of each other. Of those whose number the group may not have, the
// last are turned away.
func (m meeting) tellAll(in *arrivals) (met, error) {
	group := roster{Key: newNonce(), Ranks: []int{0}}
	for rank, conn := range in.conns {
		if conn != nil {
			group.Ranks = append(group.Ranks, rank)
		}
	}
	for m.fewer != nil && len(group.Ranks) > 1 && !m.fewer(len(group.Ranks)) {
		last := len(group.Ranks) - 1
		rank := group.Ranks[last]
		group.Ranks = group.Ranks[:last]
		in.turnAway(in.conns[rank], fmt.Errorf("the group goes on with fewer ranks, and its batches cannot be dealt out to %d: rank %d is not needed", last+1, rank))
	}
	defer in.told.Wait()
	for now, rank := range group.Ranks {
		h := in.hellos[rank]
		h.Rank = now
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
	found := met{meetings: group.Meetings, links: make([]*link, len(group.Ranks))}
	for now, rank := range group.Ranks[1:] {
		name := group.Members[now+1].Name
		if err := send(in.conns[rank], head, text); err != nil {
			err = lostRank{rank, fmt.Errorf("%s: %w", name, err)}
			for _, l := range found.links[1 : now+1] { // who knows the group already
				l.send(ending(err), time.Second)
				l.conn.Close()
				in.conns[group.Ranks[l.rank]] = nil
			}
			return in.refuse(err)
		}
		found.links[now+1] = newLink(now+1, name, in.conns[rank])
	}
	for _, l := range found.links[1:] {
		m.read(l)
	}
	return found, nil
}

// gone lists the ranks that came and have left.
func gone(conns []net.Conn) (list []int) {
	there := make([]bool, len(conns))
	var asked sync.WaitGroup
	for rank, conn := range conns {
		if conn != nil {
			asked.Go(func() {
				// One whose connection cannot be asked is as good as gone.
				_ = guard.Call("asking", func() error { there[rank] = isThere(conn); return nil })
			})
		}
	}
	asked.Wait()
	for rank, conn := range conns {
		if conn != nil && !there[rank] {
			list = append(list, rank)
		}
	}
	return list
}

// admissible reports why a rank cannot be one of the group.
func (m meeting) admissible(h hello, in *arrivals) error {
	switch {
	case h.Size != m.Size:
		return fmt.Errorf("%s was started as one of %d ranks, rank 0 as one of %d", h.name(), h.Size, m.Size)
	case h.Rank < 1 || h.Rank >= m.Size:
		return fmt.Errorf("%s is not from 1 to %d", h.name(), m.Size-1)
	case in.conns[h.Rank] != nil:
		return fmt.Errorf("two processes are rank %d: %s and %s", h.Rank, in.hellos[h.Rank].name(), h.name())
	}
	return nil
}

// comeTo is the part of all but rank 0.
func (m meeting) comeTo(ctx context.Context, me hello) (met, error) {
	soon, cancel := context.WithTimeout(ctx, m.timeout())
	defer cancel()
	master, err := dialUntil(soon, m.network(), m.Address)
	if err != nil {
		return met{}, fmt.Errorf("distributed: rank %d found no rank 0 at %s within %v: %w", m.Rank, m.Address, m.timeout(), err)
	}
	defer endWith(ctx, master)()
	fail := func(err error) (met, error) {
		master.Close()
		return met{}, err
	}
	host, _, _ := net.SplitHostPort(master.LocalAddr().String())
	listener, err := m.network().Listen(ctx, net.JoinHostPort(host, "0"))
	if err != nil {
		return fail(fmt.Errorf("distributed: rank %d cannot listen at %s: %w", m.Rank, host, err))
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if me.Port, err = strconv.Atoi(port); err != nil {
		return fail(fmt.Errorf("distributed: rank %d listens at %s: %w", m.Rank, listener.Addr(), err))
	}
	if err := introduce(master, []byte(m.Secret), me); err != nil {
		err = fmt.Errorf("distributed: rank 0 at %s: %w", m.Address, err)
		if errors.Is(err, errHungUp) || errors.As(err, new(net.Error)) {
			err = lostRank{0, err}
		}
		return fail(err)
	}
	group, err := m.hearRoster(master)
	if err != nil {
		return fail(fmt.Errorf("distributed: %w", err))
	}
	found := met{rank: slices.Index(group.Ranks, m.Rank), meetings: group.Meetings, links: make([]*link, len(group.Members))}
	found.links[0] = newLink(0, group.Members[0].Name, master)
	m.read(found.links[0])
	me.Rank = found.rank
	if err := m.meetOthers(ctx, me, group, listener, found.links); err != nil {
		for _, l := range found.links {
			if l != nil {
				l.conn.Close()
			}
		}
		return met{}, fmt.Errorf("distributed: %w", err)
	}
	return found, nil
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

// meetOthers dials the ranks from 1 to this one and waits for those behind it.
func (m meeting) meetOthers(ctx context.Context, me hello, group roster, listener net.Listener, links []*link) error {
	key := []byte(m.Secret + group.Key)
	callers := answerCalls(ctx, listener, key)
	add := func(rank int, conn net.Conn) {
		links[rank] = newLink(rank, group.Members[rank].Name, conn)
		m.read(links[rank])
	}
	for rank := 1; rank < me.Rank; rank++ {
		other := group.Members[rank]
		conn, err := dialUntil(ctx, m.network(), other.Address)
		if err != nil {
			return fmt.Errorf("%s cannot be reached at %s: %w", other.Name, other.Address, err)
		}
		stop := endWith(ctx, conn)
		err = introduce(conn, key, me)
		stop()
		if err != nil {
			conn.Close()
			return fmt.Errorf("%s: %w", other.Name, err)
		}
		add(rank, conn)
	}
	for here := me.Rank + 1; here < len(links); {
		select {
		case <-ctx.Done():
			var late []int
			for rank := me.Rank + 1; rank < len(links); rank++ {
				if links[rank] == nil {
					late = append(late, rank)
				}
			}
			return fmt.Errorf("%s did not reach rank %d within %v (%w)", ranks(late), me.Rank, m.timeout(), context.Cause(ctx))
		case caller := <-callers:
			h := caller.hello
			if h.Rank <= me.Rank || h.Rank >= len(links) || links[h.Rank] != nil {
				caller.conn.Close()
				continue
			}
			add(h.Rank, caller.conn)
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
