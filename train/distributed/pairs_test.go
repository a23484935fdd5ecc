package distributed

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// Every rank gets what the one before it sends, of any type, for more than a frame; the last sends
// nothing to the first.
func TestExchange(t *testing.T) {
	for _, size := range []int{2, 3, 4} {
		none(t, together(t, configs(t, size), func(g *Group) error {
			rank, last := g.Rank(), g.Size()-1
			const n = 700_001
			list := func(value int) []kernels.Tensor {
				floats, ids := make([]float32, n), make([]int64, 3)
				for i := range floats {
					floats[i] = float32(value)
				}
				ids[2] = int64(value)
				return []kernels.Tensor{kernels.Of(floats, n), kernels.Of(ids, 3)}
			}
			send, receive := list(rank+1), list(-1)
			if rank == last {
				send = nil
			}
			if rank == 0 {
				receive = nil
			}
			transfer, err := g.Exchange((rank+1)%size, send, (rank+last)%size, receive)
			if err == nil {
				err = transfer.Join()
			}
			if err != nil || rank == 0 {
				return err
			}
			floats, ids := kernels.Host[float32](receive[0]), kernels.Host[int64](receive[1])
			for i := range floats {
				if floats[i] != float32(rank) {
					return fmt.Errorf("element %d is %v, want %d", i, floats[i], rank)
				}
			}
			if ids[2] != int64(rank) {
				return fmt.Errorf("the last number is %d, want %d", ids[2], rank)
			}
			return nil
		}))
	}
}

// What does not go together is an error on both ranks, and so is a rank that there is not.
func TestExchangeErrors(t *testing.T) {
	errs := together(t, configs(t, 2), func(g *Group) error {
		other := 1 - g.Rank()
		for _, c := range []struct {
			to, from int
			want     string
		}{{g.Rank(), other, "to is rank"}, {other, 2, "from is rank 2, it needs to be another one of the group's 2"}} {
			x := []kernels.Tensor{kernels.Of(make([]float32, 2), 2)}
			if _, err := g.Exchange(c.to, x, c.from, x); err == nil || !strings.Contains(err.Error(), c.want) {
				return fmt.Errorf("error %v, want %s", err, c.want)
			}
		}
		x := kernels.Of(make([]float32, 2+g.Rank()), 2+g.Rank())
		_, err := g.Exchange(other, []kernels.Tensor{x}, other, []kernels.Tensor{x})
		return err
	})
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "other shapes or types") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if _, err := (*Group)(nil).Exchange(0, nil, 0, nil); err != nil {
		t.Errorf("a process alone: %v", err)
	}
	if _, err := new(Group).Exchange(0, nil, 0, nil); !errors.Is(err, errNotJoined) {
		t.Errorf("a group that was never joined: %v", err)
	}
}
