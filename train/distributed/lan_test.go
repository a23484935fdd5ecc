package distributed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Tests of what happens when time passes run in a bubble of testing/synctest: its clock stands
// still while anything computes, so that no load of the machine ends a time-out. A bubble sees no
// TCP, so ranks meet in a lan.

// inLAN runs a test in a bubble.
func inLAN(t *testing.T, do func(t *testing.T, l *lan)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { do(t, &lan{room: 1 << 20, at: map[string]*lanListener{}, port: 1000}) })
}

// lan is a network within a process.
type lan struct {
	room int // how many bytes a connection holds that nobody has read yet

	lock sync.Mutex
	at   map[string]*lanListener
	port int
}

func (l *lan) configs(size int, timeout time.Duration) []Config {
	list := make([]Config, size)
	for rank := range list {
		list[rank] = Config{Rank: rank, Size: size, Address: "127.0.0.1:99", Timeout: timeout, Wires: l}
	}
	return list
}

func (l *lan) Listen(_ context.Context, address string) (net.Listener, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if port == "0" {
		l.port++
		address = net.JoinHostPort(host, fmt.Sprint(l.port))
	}
	if l.at[address] != nil {
		return nil, fmt.Errorf("listen %s: address already in use", address)
	}
	listener := &lanListener{lan: l, address: address, calls: make(chan net.Conn, 1000), closed: make(chan struct{})}
	l.at[address] = listener
	return listener, nil
}

func (l *lan) Dial(ctx context.Context, address string) (net.Conn, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	listener := l.at[address]
	if err := ctx.Err(); err != nil || listener == nil {
		return nil, errors.Join(err, fmt.Errorf("dial %s: connection refused", address))
	}
	l.port++
	there, back := newPipe(l.room), newPipe(l.room)
	to, from := lanAddress(address), lanAddress(fmt.Sprint("127.0.0.1:", l.port))
	listener.calls <- &lanConn{in: there, out: back, local: to, remote: from}
	return &lanConn{in: back, out: there, local: from, remote: to}, nil
}

type lanListener struct {
	lan     *lan
	address string
	calls   chan net.Conn
	closed  chan struct{}
}

func (l *lanListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.calls:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *lanListener) Close() error {
	l.lan.lock.Lock()
	defer l.lan.lock.Unlock()
	if l.lan.at[l.address] != l {
		return net.ErrClosed
	}
	delete(l.lan.at, l.address)
	close(l.closed)
	for {
		select {
		case conn := <-l.calls:
			conn.Close()
		default:
			return nil
		}
	}
}

func (l *lanListener) Addr() net.Addr { return lanAddress(l.address) }

type lanAddress string

func (lanAddress) Network() string  { return "lan" }
func (a lanAddress) String() string { return string(a) }

// lanConn is one end of a connection. What a mute one sends is lost.
type lanConn struct {
	in, out       *pipe
	local, remote lanAddress
	mute          atomic.Bool
}

func (c *lanConn) Read(p []byte) (int, error) { return c.in.read(p) }

func (c *lanConn) Write(p []byte) (int, error) {
	if c.mute.Load() {
		return len(p), nil
	}
	return c.out.write(p)
}

func (c *lanConn) Close() error {
	c.in.change(func(p *pipe) { p.deaf = true })
	c.out.change(func(p *pipe) { p.ended = true })
	return nil
}

func (c *lanConn) LocalAddr() net.Addr  { return c.local }
func (c *lanConn) RemoteAddr() net.Addr { return c.remote }

func (c *lanConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *lanConn) SetReadDeadline(t time.Time) error {
	c.in.change(func(p *pipe) { p.readBy = t })
	return nil
}

func (c *lanConn) SetWriteDeadline(t time.Time) error {
	c.out.change(func(p *pipe) { p.writeBy = t })
	return nil
}

// pipe is one direction of a connection.
type pipe struct {
	room            int
	lock            sync.Mutex
	data            []byte
	ended, deaf     bool // its writer has closed it, its reader has
	readBy, writeBy time.Time
	changed         chan struct{} // closed at the next change
}

func newPipe(room int) *pipe { return &pipe{room: room, changed: make(chan struct{})} }

func (p *pipe) change(how func(p *pipe)) {
	p.lock.Lock()
	defer p.lock.Unlock()
	how(p)
	p.tell()
}

func (p *pipe) tell() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// until waits for a change or a deadline, with the lock held before and after.
func (p *pipe) until(deadline time.Time) {
	changed := p.changed
	p.lock.Unlock()
	defer p.lock.Lock()
	if deadline.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func late(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

func (p *pipe) read(to []byte) (int, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for {
		switch {
		case p.deaf:
			return 0, net.ErrClosed
		case late(p.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(p.data) > 0:
			n := copy(to, p.data)
			p.data = p.data[n:]
			p.tell()
			return n, nil
		case p.ended:
			return 0, io.EOF
		}
		p.until(p.readBy)
	}
}

func (p *pipe) write(from []byte) (written int, err error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	for len(from) > 0 {
		switch n := min(len(from), p.room-len(p.data)); {
		case p.ended:
			return written, net.ErrClosed
		case p.deaf:
			return written, errors.New("connection reset by peer")
		case late(p.writeBy):
			return written, os.ErrDeadlineExceeded
		case n > 0:
			p.data, from, written = append(p.data, from[:n]...), from[n:], written+n
			p.tell()
		default:
			p.until(p.writeBy)
		}
	}
	return written, nil
}
