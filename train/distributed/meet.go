package distributed

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// This file is how ranks find each other. All but rank 0 dial the address that everybody knows and say who they are and
// where they listen; when all have come, rank 0 tells everyone of everyone. Then each rank dials those before it. Messages
// are lines of JSON, so that a stranger on the port is told from a rank by its first line.

const (
	protocol   = "stheno group 2"
	maxMessage = 1 << 20
	// patience is how long a caller may take to say who it is: a stranger that says nothing holds nobody up.
	patience = 5 * time.Second
)

// hello is what a rank says of itself.
type hello struct {
	Protocol  string
	Job       string
	Rank      int
	Size      int
	Host      string
	Process   int
	Port      int    // where it listens for others
	Key       string // of the group, which only those know who were admitted
	addressOf string // as rank 0 sees it
}

func (h hello) name() string {
	return fmt.Sprintf("rank %d (host %s, process %d)", h.Rank, h.Host, h.Process)
}

// answer is what rank 0 says to a rank: the group's key and members, or why there is no group.
type answer struct {
	Protocol string
	Error    string
	Key      string
	Members  []member
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
	var listen net.ListenConfig
	_, port, _ := net.SplitHostPort(c.Address)
	at := net.JoinHostPort(hostToListenAt(c.Address), port)
	listener, err := listen.Listen(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("distributed: rank 0 cannot listen at %s: %w", at, err)
	}
	defer listener.Close()
	callers := answerCalls(ctx, listener)

	members, conns, names := make([]member, c.Size), make([]net.Conn, c.Size), make([]string, c.Size)
	members[0].Name, names[0] = me.name(), me.name()
	refuse := func(err error) ([]*link, error) {
		for _, conn := range conns {
			if conn != nil {
				tell(conn, answer{Protocol: protocol, Error: err.Error()})
				conn.Close()
			}
		}
		return nil, fmt.Errorf("distributed: %w", err)
	}
	for here := 1; here < c.Size; {
		select {
		case <-ctx.Done():
			return refuse(fmt.Errorf("%s of %d did not come to %s within %v (%w)", ranks(missing(names)), c.Size, c.Address, c.timeout(), context.Cause(ctx)))
		case caller := <-callers:
			h := caller.hello
			if h.Job != c.Job {
				turnAway(caller.conn, fmt.Errorf("%s is of job %q, at %s meets job %q", h.name(), h.Job, c.Address, c.Job))
				continue
			}
			if err := admissible(h, c, names); err != nil {
				turnAway(caller.conn, err)
				return refuse(err)
			}
			names[h.Rank], conns[h.Rank] = h.name(), caller.conn
			members[h.Rank] = member{Name: h.name(), Address: h.addressOf}
			here++
		}
	}
	var key [16]byte
	rand.Read(key[:])
	links := make([]*link, c.Size)
	for rank, conn := range conns[1:] {
		if err := tell(conn, answer{Protocol: protocol, Key: hex.EncodeToString(key[:]), Members: members}); err != nil {
			return refuse(fmt.Errorf("%s: %w", names[rank+1], err))
		}
		links[rank+1] = newLink(names[rank+1], conn)
	}
	return links, nil
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
	master, err := dialUntil(soon, c.Address)
	if err != nil {
		return nil, fmt.Errorf("distributed: rank %d found no rank 0 at %s within %v: %w", c.Rank, c.Address, c.timeout(), err)
	}
	defer context.AfterFunc(ctx, func() { master.SetDeadline(time.Unix(1, 0)) })()
	fail := func(err error) ([]*link, error) {
		master.Close()
		return nil, err
	}
	host, _, _ := net.SplitHostPort(master.LocalAddr().String())
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return fail(fmt.Errorf("distributed: rank %d cannot listen at %s: %w", c.Rank, host, err))
	}
	defer listener.Close()
	me.Port = listener.Addr().(*net.TCPAddr).Port
	if err := tell(master, me); err != nil {
		return fail(fmt.Errorf("distributed: rank 0 at %s: %w", c.Address, err))
	}
	var a answer
	if err := hear(master, &a); err != nil {
		return fail(fmt.Errorf("distributed: rank 0 at %s said nothing of the group: %w", c.Address, err))
	}
	switch {
	case a.Protocol != protocol:
		return fail(fmt.Errorf("distributed: what listens at %s is no rank 0 of a group: it says %q", c.Address, a.Protocol))
	case a.Error != "":
		return fail(fmt.Errorf("distributed: %s", a.Error))
	case len(a.Members) != c.Size:
		return fail(fmt.Errorf("distributed: rank 0 at %s names %d members of a group of %d", c.Address, len(a.Members), c.Size))
	}
	links := make([]*link, c.Size)
	links[0] = newLink(a.Members[0].Name, master)
	if err := meetOthers(ctx, c, me, a, listener, links); err != nil {
		for _, l := range links {
			if l != nil {
				l.conn.Close()
			}
		}
		return nil, fmt.Errorf("distributed: %w", err)
	}
	return links, nil
}

// meetOthers dials the ranks from 1 to this one and waits for those behind it.
func meetOthers(ctx context.Context, c Config, me hello, a answer, listener net.Listener, links []*link) error {
	me.Key = a.Key
	for rank := 1; rank < c.Rank; rank++ {
		conn, err := dialUntil(ctx, a.Members[rank].Address)
		if err != nil {
			return fmt.Errorf("%s cannot be reached at %s: %w", a.Members[rank].Name, a.Members[rank].Address, err)
		}
		if err := tell(conn, me); err != nil {
			return fmt.Errorf("%s: %w", a.Members[rank].Name, err)
		}
		links[rank] = newLink(a.Members[rank].Name, conn)
	}
	callers := answerCalls(ctx, listener)
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
			if h.Key != a.Key || h.Rank <= c.Rank || h.Rank >= c.Size || links[h.Rank] != nil {
				caller.conn.Close()
				continue
			}
			links[h.Rank] = newLink(a.Members[h.Rank].Name, caller.conn)
			here++
		}
	}
	return nil
}

// caller is a connection whose other end has said who it is.
type caller struct {
	conn  net.Conn
	hello hello
}

// answerCalls hands out those who call and speak the protocol, until the listener is closed. Others are hung up on.
func answerCalls(ctx context.Context, listener net.Listener) <-chan caller {
	callers := make(chan caller)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				conn.SetDeadline(time.Now().Add(patience))
				var h hello
				if err := hear(conn, &h); err != nil || h.Protocol != protocol {
					conn.Close()
					return
				}
				conn.SetDeadline(time.Time{})
				host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
				h.addressOf = net.JoinHostPort(host, fmt.Sprint(h.Port))
				select {
				case callers <- caller{conn, h}:
				case <-ctx.Done():
					conn.Close()
				}
			}()
		}
	}()
	return callers
}

func turnAway(conn net.Conn, err error) {
	tell(conn, answer{Protocol: protocol, Error: err.Error()})
	conn.Close()
}

// dialUntil dials until someone answers or the time is up: ranks start in any order.
func dialUntil(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", address)
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

// tell writes a message as a line.
func tell(conn net.Conn, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = conn.Write(append(text, '\n'))
	return err
}

// hear reads one line, a byte at a time, since what follows it is not for the reader of lines.
func hear(conn net.Conn, message any) error {
	reader := bufio.NewReaderSize(oneByteReader{conn}, 16)
	var line []byte
	for {
		b, err := reader.ReadByte()
		if err != nil {
			return err
		}
		if b == '\n' {
			return json.Unmarshal(line, message)
		}
		if line = append(line, b); len(line) > maxMessage {
			return fmt.Errorf("a message is longer than %d bytes", maxMessage)
		}
	}
}

// oneByteReader reads no further than it is asked to.
type oneByteReader struct{ from io.Reader }

func (r oneByteReader) Read(p []byte) (int, error) { return r.from.Read(p[:min(1, len(p))]) }

// hostToListenAt is the loopback where the ranks meet there, and every address of the machine otherwise: by the name that others
// know a machine by it may not know itself.
func hostToListenAt(address string) string {
	host, _, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() || host == "localhost" {
		return host
	}
	return ""
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
