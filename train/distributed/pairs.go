package distributed

import (
	"errors"
	"fmt"

	"github.com/stheno-ml/stheno/kernels"
)

var _ kernels.Ranks = (*Group)(nil)

// Exchange sends tensors of any type to one rank, and receives others from one. Every rank calls
// it, and what one sends is what the other receives; either list may be empty. Tensors of devices
// travel beside the work that is queued there later, which must leave them alone until the transfer
// is joined; the host's have arrived when it returns.
func (g *Group) Exchange(to int, send []kernels.Tensor, from int, receive []kernels.Tensor) (kernels.Transfer, error) {
	const name = "Exchange"
	if err := g.Err(); err != nil {
		return nil, err
	}
	var host, device [2][]kernels.Tensor
	for i, side := range []struct {
		name    string
		rank    int
		tensors []kernels.Tensor
	}{{"to", to, send}, {"from", from, receive}} {
		if len(side.tensors) > 0 && (side.rank < 0 || side.rank >= g.Size() || side.rank == g.Rank()) {
			return nil, fmt.Errorf("distributed: %s: %s is rank %d, it needs to be another one of the group's %d", name, side.name, side.rank, g.Size())
		}
		for n, t := range side.tensors {
			if err := g.checkTensor(name, n, t, true); err != nil {
				return nil, err
			}
			if t.Owner == nil {
				host[i] = append(host[i], t)
			} else {
				device[i] = append(device[i], t)
			}
		}
	}
	if g.Size() == 1 {
		return arrived{}, nil
	}
	operation, err := g.begin(name)
	if err != nil {
		return nil, err
	}
	nothing := described(name, nil)
	of := func(rank int, tensors []kernels.Tensor) func(int) []byte {
		return func(other int) []byte {
			if other == rank {
				return described(name, tensors)
			}
			return nothing
		}
	}
	if err := g.compare(operation, name, len(send)+len(receive), of(to, send), of(from, receive)); err != nil {
		return nil, err
	}
	var transfer kernels.Transfer = arrived{}
	if len(device[0])+len(device[1]) > 0 {
		if transfer, err = g.network.Exchange(to, device[0], from, device[1]); err != nil {
			return nil, g.failLate(fmt.Errorf("rank %d: %w", g.self(), err))
		}
	}
	if operation, err = g.begin(name); err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	go func() {
		sent <- g.guarded(func() error {
			for _, t := range host[0] {
				if err := g.send(g.peers[to], operation, bytesOf(t, 0, t.Elements())); err != nil {
					return err
				}
			}
			return nil
		})
	}()
	for _, t := range host[1] {
		if err = g.receive(g.peers[from], operation, bytesOf(t, 0, t.Elements())); err != nil {
			break
		}
	}
	if err := errors.Join(<-sent, err); err != nil {
		g.fail(err)
		return nil, g.Err()
	}
	return transfer, nil
}

// arrived is a transfer that is over.
type arrived struct{}

func (arrived) Join() error { return nil }
