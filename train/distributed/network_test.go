package distributed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stheno-ml/stheno/kernels"
)

// device is one whose tensors are Go's, and whose network is this process.
type device struct {
	kernels.Device
	key      string
	keyErr   error
	networks chan *network
	rejoined int
}

func (d *device) Name() string { return "test:0" }

func (d *device) NetworkKey() ([]byte, error) { return []byte(d.key), d.keyErr }

func (d *device) JoinNetwork(_ context.Context, key []byte, rank, size int) (kernels.Network, error) {
	n := &network{key: string(key), rank: rank, size: size, ended: make(chan string, 2)}
	if d.networks != nil {
		d.networks <- n
	}
	return n, nil
}

func (d *device) Rejoin() error {
	d.rejoined++
	return nil
}

// network notes what it is asked for.
type network struct {
	key        string
	rank, size int
	mutex      sync.Mutex
	calls      []string
	err        error
	ended      chan string
}

func (n *network) note(name string, tensors []kernels.Tensor) error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.calls = append(n.calls, fmt.Sprint(name, len(tensors)))
	return n.err
}

func (n *network) Sum(t []kernels.Tensor) error           { return n.note("Sum", t) }
func (n *network) SumParts(t []kernels.Tensor) error      { return n.note("SumParts", t) }
func (n *network) CollectParts(t []kernels.Tensor) error  { return n.note("CollectParts", t) }
func (n *network) SumLater(t []kernels.Tensor) error      { return n.note("SumLater", t) }
func (n *network) SumPartsLater(t []kernels.Tensor) error { return n.note("SumPartsLater", t) }
func (n *network) Join() error                            { return n.note("Join", nil) }
func (n *network) Broadcast(from int, t []kernels.Tensor) error {
	return n.note(fmt.Sprint("Broadcast from ", from, " of "), t)
}

func (n *network) Begin() (int, error) { return 2, n.note("Begin", nil) }

func (n *network) CollectPartsLater(t []kernels.Tensor) (kernels.Transfer, error) {
	return arrived{}, n.note("CollectPartsLater", t)
}

func (n *network) Exchange(to int, send []kernels.Tensor, from int, receive []kernels.Tensor) (kernels.Transfer, error) {
	return arrived{}, n.note(fmt.Sprint("Exchange to ", to, " from ", from, " of ", len(send), " and "), receive)
}

func (n *network) Err() error {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return n.err
}

func (n *network) breaks(err error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	n.err = err
}

func (n *network) Abort() { n.ended <- "aborted" }
func (n *network) Close() { n.ended <- "closed" }

// onDevice is a tensor that says it lies on a device.
func onDevice(n int) kernels.Tensor {
	t := kernels.Of(make([]float32, n), n)
	t.Owner = unsafe.SliceData(make([]byte, 1))
	return t
}

// A group that is connected sends the tensors of devices to the network, whose key is rank 0's, and
// the host's over TCP.
func TestConnect(t *testing.T) {
	left := make([]*network, 2)
	none(t, together(t, configs(t, 2), func(g *Group) error {
		d := &device{key: fmt.Sprintf("key %d", g.Rank()), networks: make(chan *network, 1)}
		x := []float32{float32(g.Rank() + 1)}
		if err := g.Sum(onDevice(3)); !errors.Is(err, errors.ErrUnsupported) {
			return fmt.Errorf("a group that is not connected: %v", err)
		}
		for range 2 { // the second does nothing
			if err := g.Connect(d); err != nil {
				return err
			}
		}
		left[g.Rank()] = <-d.networks
		if err := errors.Join(g.Sum(onDevice(3), kernels.Of(x, 1), onDevice(2)), g.SumParts(onDevice(1)), g.CollectParts(onDevice(1)), g.Broadcast(1, onDevice(1)),
			g.SumLater(onDevice(1), onDevice(2)), g.SumPartsLater(onDevice(3))); err != nil {
			return err
		}
		if n, err := g.Begin(); err != nil || n != 2 {
			return fmt.Errorf("%d tensors are begun with, want 2: %w", n, err)
		}
		transfer, err := g.CollectPartsLater(onDevice(4), onDevice(1))
		if err := errors.Join(err, g.Join()); err != nil {
			return err
		}
		if err := transfer.Join(); err != nil {
			return err
		}
		if _, err := g.Exchange(1-g.Rank(), []kernels.Tensor{onDevice(2)}, 1-g.Rank(), []kernels.Tensor{onDevice(2)}); err != nil {
			return err
		}
		if x[0] != 3 {
			return fmt.Errorf("the host's tensor has %v, want 3", x[0])
		}
		return nil
	}))
	for rank, n := range left {
		want := fmt.Sprintf("[Sum2 SumParts1 CollectParts1 Broadcast from 1 of 1 SumLater2 SumPartsLater1 Begin0 CollectPartsLater2 Join0 Exchange to %d from %d of 1 and 1]", 1-rank, 1-rank)
		if n.key != "key 0" || n.rank != rank || n.size != 2 || fmt.Sprint(n.calls) != want {
			t.Errorf("rank %d has network %q, rank %d of %d, and called %v, want %s", rank, n.key, n.rank, n.size, n.calls, want)
		}
		if how := <-n.ended; how != "closed" {
			t.Errorf("rank %d: the network was %s, want closed", rank, how)
		}
	}
}

// A rank without a library, a network that fails and a rank that dies end the group for all, with
// the rank's name, and what waits on devices is aborted.
func TestNetworkFails(t *testing.T) {
	broken := errors.New("a cable is loose")
	for _, c := range []struct {
		name, want string
		do         func(g *Group, d *device) error
		joins      bool
	}{
		{"no library", "rank 1 gave up: " + broken.Error(), func(g *Group, d *device) error {
			if g.Rank() == 1 {
				d.keyErr = broken
			}
			return g.Connect(d)
		}, false},
		{"in an operation", "rank 1: " + broken.Error(), func(g *Group, d *device) error {
			if err := g.Connect(d); err != nil {
				return err
			}
			if g.Rank() == 1 {
				g.network.(*network).breaks(broken)
			}
			return errors.Join(g.Sum(onDevice(1)), g.Barrier())
		}, true},
		{"between operations", "rank 1: " + broken.Error(), func(g *Group, d *device) error {
			if err := g.Connect(d); err != nil {
				return err
			}
			if g.Rank() == 1 {
				g.network.(*network).breaks(broken)
			}
			<-g.done
			return g.Err()
		}, true},
		{"a rank dies", "rank 1 (", func(g *Group, d *device) error {
			if err := g.Connect(d); err != nil {
				return err
			}
			if g.Rank() == 1 {
				for _, l := range g.others() {
					l.conn.Close()
				}
			}
			<-g.done
			return g.Err()
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLAN(t, func(t *testing.T, l *lan) {
				networks := make(chan *network, 2)
				errs := together(t, l.configs(2, time.Minute), func(g *Group) error {
					return c.do(g, &device{key: "key", networks: networks})
				})
				if errs[0] == nil || !strings.Contains(errs[0].Error(), c.want) {
					t.Errorf("rank 0: %v, want %s", errs[0], c.want)
				}
				if errs[1] == nil {
					t.Error("rank 1 has no error")
				}
				if !c.joins {
					return
				}
				for range 2 {
					if n := <-networks; <-n.ended != "aborted" {
						t.Errorf("rank %d: the network was not aborted", n.rank)
					}
				}
			})
		})
	}
}
