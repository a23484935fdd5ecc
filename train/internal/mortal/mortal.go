// Package mortal ends a rank of a test as a kill does: at once, wherever it is, without a word.
package mortal

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Network is what ranks meet by, such as TCP or one within a process.
type Network interface {
	Listen(ctx context.Context, address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// ErrDead is the error of whatever a dead rank does.
var ErrDead = errors.New("this rank is dead")

// Wires are a Network of one rank, until it dies.
type Wires struct {
	By   Network
	Died func() // is called once

	lock   sync.Mutex
	ends   []io.Closer
	writes int // so many it will live, 0 for ever
	dead   bool
}

// DieAfter kills the rank within a write, after so many.
func (w *Wires) DieAfter(writes int) {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.writes = writes
}

// Kill ends all connections.
func (w *Wires) Kill() {
	w.lock.Lock()
	ends, was := w.ends, w.dead
	w.ends, w.dead = nil, true
	w.lock.Unlock()
	for _, e := range ends {
		e.Close()
	}
	if !was && w.Died != nil {
		w.Died()
	}
}

// keep has what is open die with the rank.
func (w *Wires) keep(e io.Closer, err error) error {
	if err != nil {
		return err
	}
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.dead {
		e.Close()
		return ErrDead
	}
	w.ends = append(w.ends, e)
	return nil
}

// Listen listens by the network.
func (w *Wires) Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := w.By.Listen(ctx, address)
	if err := w.keep(l, err); err != nil {
		return nil, err
	}
	return listener{l, w}, nil
}

// Dial dials by the network.
func (w *Wires) Dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := w.By.Dial(ctx, address)
	if err := w.keep(c, err); err != nil {
		return nil, err
	}
	return conn{c, w}, nil
}

type listener struct {
	net.Listener
	wires *Wires
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err := l.wires.keep(c, err); err != nil {
		return nil, err
	}
	return conn{c, l.wires}, nil
}

type conn struct {
	net.Conn
	wires *Wires
}

// Write writes, or half of it where the rank dies.
func (c conn) Write(p []byte) (int, error) {
	c.wires.lock.Lock()
	dead, dies := c.wires.dead, c.wires.writes == 1
	c.wires.writes = max(0, c.wires.writes-1)
	c.wires.lock.Unlock()
	if dead { // its connections end one after the other, and nothing is said of that
		return 0, ErrDead
	}
	if !dies {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:len(p)/2])
	c.wires.Kill()
	return n, ErrDead
}
