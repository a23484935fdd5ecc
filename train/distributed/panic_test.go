package distributed

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
)

// faulty is a network one of whose connections panics, once, when it is told to.
type faulty struct {
	Wires
	read, write atomic.Bool
}

func (f *faulty) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := f.Wires.Dial(ctx, address)
	return &faultyConn{conn, f}, err
}

type faultyConn struct {
	net.Conn
	of *faulty
}

func (c *faultyConn) Read(p []byte) (int, error) {
	if c.of.read.CompareAndSwap(true, false) {
		panic("a fault")
	}
	return c.Conn.Read(p)
}

func (c *faultyConn) Write(p []byte) (int, error) {
	if c.of.write.CompareAndSwap(true, false) {
		panic("a fault")
	}
	return c.Conn.Write(p)
}

// A panic on one of a group's goroutines is an error of every rank's operation, and the process
// goes on.
func TestPanicsAreErrors(t *testing.T) {
	for name, begin := range map[string]func(f *faulty){
		"who receives": func(f *faulty) { f.read.Store(true) },
		"who sends":    func(f *faulty) { f.write.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inLAN(t, func(t *testing.T, l *lan) {
				f := &faulty{Wires: l}
				list := l.configs(3, time.Minute)
				list[2].Wires = f
				numbers := func() kernels.Tensor { return kernels.Of(make([]float32, 10), 10) }
				errs := together(t, list, func(g *Group) error {
					if err := g.Sum(numbers()); err != nil { // rank 2 may be further already
						return err
					}
					if g.Rank() == 2 {
						begin(f)
					}
					for range 3 {
						if err := g.Sum(numbers()); err != nil {
							return err
						}
					}
					return nil
				})
				if err := errs[2]; err == nil || !strings.Contains(err.Error(), "rank 2 panicked: a fault") {
					t.Errorf("rank 2's error is %v, want its panic", err)
				}
				for rank, err := range errs[:2] {
					if err == nil || !strings.Contains(err.Error(), "rank 2") {
						t.Errorf("rank %d's error is %v, want one that names rank 2", rank, err)
					}
				}
			})
		})
	}
}
