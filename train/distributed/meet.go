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
	Key     string
	Members []member
}

// member is where a rank is found.
type member struct{ Name, Address string }

// meet returns the connections to all other ranks, by rank.
func meet(ctx context.Context, c Config) ([]*link, error) {
	me := hello{Protocol: protocol, Job: c.Job, Rank: c.Rank, Size: c.Size, Process: os.Getpid()}
	me.Host, _ = os.Hostname()
	if c.Rank == 0 {
		inTime, cancel := context.WithTimeoutCause(ctx, c.timeout(), errLate)
		defer cancel()
		return receiveAll(inTime, c, me)
	}
	// Rank 0 knows who is missing: the others wait a little longer, to hear it from there.
	inTime, cancel := context.WithTimeoutCause(ctx, c.timeout()+patience, errLate)
	defer cancel()
	return comeTo(inTime, c, me)
}

var errLate = errors.New("the time was up")

// receiveAll is rank 0's part: it waits for all others and tells them of each other.
func receiveAll(ctx context.Context, c Config, me hello) ([]*link, error) {
	at := c.addressToListenAt()
	listener, err := c.network().Listen(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("distributed: rank 0 cannot listen at %s (with %s set, it listens at all addresses of its machine): %w", at, secretVariable, err)
	}
	defer listener.Close()
	callers := answerCalls(ctx, listener, []byte(c.Secret))

	members, conns, names := make([]member, c.Size), make([]net.Conn, c.Size), make([]string, c.Size)
	members[0].Name, names[0] = me.name(), me.name()
	var told sync.WaitGroup
	turnAway := func(conn net.Conn, err error) { // nobody that comes meanwhile waits until it has heard
		told.Go(func() {
			defer conn.Close()
			tell(conn, answer{Protocol: protocol, Error: plain(err.Error(), maxText)})
		})
	}
	refuse := func(err error) ([]*link, error) {
		for _, conn := range conns {
			if conn != nil {
				turnAway(conn, err)
			}
		}
		told.Wait()
		return nil, fmt.Errorf("distributed: %w", err)
	}
	here := 1
	leave := func(rank int) {
		conns[rank].Close()
		conns[rank], names[rank] = nil, ""
		here--
	}
	for here < c.Size {
		select {
		case <-ctx.Done():
			return refuse(fmt.Errorf("%s of %d did not come to %s within %v (%w)", ranks(missing(names)), c.Size, c.Address, c.timeout(), context.Cause(ctx)))
		case caller := <-callers:
			h := caller.hello
			if h.Job != c.Job {
				turnAway(caller.conn, fmt.Errorf("%s is of job %q, at %s meets job %q", h.name(), plain(h.Job, maxName), c.Address, c.Job))
				continue
			}
			if h.Rank > 0 && h.Rank < c.Size && conns[h.Rank] != nil && !isThere(conns[h.Rank]) {
				leave(h.Rank) // it died, and was started again
			}
			if err := admissible(h, c, names); err != nil {
				turnAway(caller.conn, err)
				return refuse(err)
			}
			names[h.Rank], conns[h.Rank] = h.name(), caller.conn
			members[h.Rank] = member{Name: h.name(), Address: h.addressOf}
			if here++; here == c.Size {
				for _, rank := range gone(conns) {
					leave(rank)
				}
			}
		}
	}
	text, err := json.Marshal(roster{Key: newNonce(), Members: members})
	if err != nil {
		return refuse(err)
	}
	head, err := json.Marshal(answer{Protocol: protocol, Bytes: len(text)})
	if err != nil {
		return refuse(err)
	}
	links := make([]*link, c.Size)
	for rank, conn := range conns[1:] {
		if err := send(conn, head, text); err != nil {
			return refuse(fmt.Errorf("%s: %w", names[rank+1], err))
		}
		links[rank+1] = newLink(names[rank+1], conn)
	}
	return links, nil
}

// gone lists the ranks that came and have left.
func gone(conns []net.Conn) (list []int) {
	there := make([]bool, len(conns))
	var asked sync.WaitGroup
	for rank, conn := range conns {
		if conn != nil {
			asked.Go(func() { there[rank] = isThere(conn) })
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
func admissible(h hello, c Config, names []string) error {
	switch {
	case h.Size != c.Size:
		return fmt.Errorf("%s was started as one of %d ranks, rank 0 as one of %d", h.name(), h.Size, c.Size)
	case h.Rank < 1 || h.Rank >= c.Size:
		return fmt.Errorf("%s is not from 1 to %d", h.name(), c.Size-1)
	case names[h.Rank] != "":
		return fmt.Errorf("two processes are rank %d: %s and %s", h.Rank, names[h.Rank], h.name())
	}
	return nil
}

// comeTo is the part of all but rank 0.
func comeTo(ctx context.Context, c Config, me hello) ([]*link, error) {
	soon, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	master, err := dialUntil(soon, c.network(), c.Address)
	if err != nil {
		return nil, fmt.Errorf("distributed: rank %d found no rank 0 at %s within %v: %w", c.Rank, c.Address, c.timeout(), err)
	}
	defer endWith(ctx, master)()
	fail := func(err error) ([]*link, error) {
		master.Close()
		return nil, err
	}
	host, _, _ := net.SplitHostPort(master.LocalAddr().String())
	listener, err := c.network().Listen(ctx, net.JoinHostPort(host, "0"))
	if err != nil {
		return fail(fmt.Errorf("distributed: rank %d cannot listen at %s: %w", c.Rank, host, err))
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	if me.Port, err = strconv.Atoi(port); err != nil {
		return fail(fmt.Errorf("distributed: rank %d listens at %s: %w", c.Rank, listener.Addr(), err))
	}
	if err := introduce(master, []byte(c.Secret), me); err != nil {
		return fail(fmt.Errorf("distributed: rank 0 at %s: %w", c.Address, err))
	}
	group, err := hearRoster(master, c)
	if err != nil {
		return fail(fmt.Errorf("distributed: %w", err))
	}
	links := make([]*link, c.Size)
	links[0] = newLink(group.Members[0].Name, master)
	if err := meetOthers(ctx, c, me, group, listener, links); err != nil {
		for _, l := range links {
			if l != nil {
				l.conn.Close()
			}
		}
		return nil, fmt.Errorf("distributed: %w", err)
	}
	return links, nil
}

// hearRoster hears from rank 0 who the group is.
func hearRoster(master net.Conn, c Config) (group roster, err error) {
	var a answer
	if err := hear(master, &a); err != nil {
		return group, fmt.Errorf("rank 0 at %s said nothing of the group: %w", c.Address, err)
	}
	switch {
	case a.Error != "":
		return group, errors.New(plain(a.Error, maxText))
	case a.Bytes < 0 || a.Bytes > maxBody:
		return group, fmt.Errorf("rank 0 at %s has %d bytes to say of the group, at most %d make sense", c.Address, a.Bytes, maxBody)
	}
	text, err := io.ReadAll(io.LimitReader(master, int64(a.Bytes))) // so that saying a size takes no memory
	if err == nil && len(text) < a.Bytes {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return group, fmt.Errorf("rank 0 at %s ended while it spoke of the group: %w", c.Address, err)
	}
	if err := json.Unmarshal(text, &group); err != nil {
		return group, fmt.Errorf("rank 0 at %s: %w", c.Address, err)
	}
	if len(group.Members) != c.Size {
		return group, fmt.Errorf("rank 0 at %s names %d members of a group of %d", c.Address, len(group.Members), c.Size)
	}
	for n := range group.Members {
		group.Members[n].Name = plain(group.Members[n].Name, 4*maxName)
	}
	return group, nil
}

// meetOthers dials the ranks from 1 to this one and waits for those behind it.
func meetOthers(ctx context.Context, c Config, me hello, group roster, listener net.Listener, links []*link) error {
	key := []byte(c.Secret + group.Key)
	callers := answerCalls(ctx, listener, key)
	for rank := 1; rank < c.Rank; rank++ {
		m := group.Members[rank]
		conn, err := dialUntil(ctx, c.network(), m.Address)
		if err != nil {
			return fmt.Errorf("%s cannot be reached at %s: %w", m.Name, m.Address, err)
		}
		stop := endWith(ctx, conn)
		err = introduce(conn, key, me)
		stop()
		if err != nil {
			conn.Close()
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		links[rank] = newLink(m.Name, conn)
	}
	for here := c.Rank + 1; here < c.Size; {
		select {
		case <-ctx.Done():
			var late []int
			for rank := c.Rank + 1; rank < c.Size; rank++ {
				if links[rank] == nil {
					late = append(late, rank)
				}
			}
			return fmt.Errorf("%s did not reach rank %d within %v (%w)", ranks(late), c.Rank, c.timeout(), context.Cause(ctx))
		case caller := <-callers:
			h := caller.hello
			if h.Rank <= c.Rank || h.Rank >= c.Size || links[h.Rank] != nil {
				caller.conn.Close()
				continue
			}
			links[h.Rank] = newLink(group.Members[h.Rank].Name, caller.conn)
			here++
		}
	}
	return nil
}

// wires connect ranks.
type wires interface {
	Listen(ctx context.Context, address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

func (c Config) network() wires {
	if c.wires != nil {
		return c.wires
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
func dialUntil(ctx context.Context, by wires, address string) (net.Conn, error) {
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

// missing lists the ranks without a name.
func missing(names []string) []int {
	var list []int
	for rank, name := range names {
		if name == "" {
			list = append(list, rank)
		}
	}
	return list
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
