package distributed

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
)

// Parts of a group work each on their own, one more often than the other, between operations of the
// whole, on the host and on devices.
func TestSplit(t *testing.T) {
	none(t, together(t, configs(t, 4), func(g *Group) error {
		row, err := g.Split(2)
		if err != nil {
			return err
		}
		if row.Rank() != g.Rank()%2 || row.Size() != 2 || row.LocalRank() != g.LocalRank() {
			return fmt.Errorf("rank %d is rank %d of %d, local %d", g.Rank(), row.Rank(), row.Size(), row.LocalRank())
		}
		alone, err := g.Split(1)
		if err != nil || alone.Size() != 1 || alone.Rank() != 0 {
			return fmt.Errorf("rank %d of a part of one: %d of %d, %v", g.Rank(), alone.Rank(), alone.Size(), err)
		}
		if same, err := g.Split(4); same != g || err != nil {
			return fmt.Errorf("a part of all is %v, %v", same, err)
		}
		if err := meshOf(g, 2, 2); err != nil {
			return err
		}
		first := g.Rank() / 2 * 2
		for range 2 {
			for range 1 + g.Rank()/2 {
				x, y := []float64{float64(g.Rank()), 1, 2}, []int64{0}
				if err := errors.Join(row.Sum(kernels.Of(x, 3)), alone.Barrier()); err != nil {
					return err
				}
				if want := float64(2*first + 1); x[0] != want || x[2] != 4 {
					return fmt.Errorf("rank %d has the row's sum %v, want %v", g.Rank(), x[0], want)
				}
				sent, other := []int64{int64(g.Rank())}, 1-row.Rank()
				if _, err := row.Exchange(other, []kernels.Tensor{kernels.Of(sent, 1)}, other, []kernels.Tensor{kernels.Of(y, 1)}); err != nil {
					return err
				}
				if want := int64(first + other); y[0] != want {
					return fmt.Errorf("rank %d has %v of the other in its row, want %v", g.Rank(), y[0], want)
				}
				if err := row.Broadcast(1, kernels.Of(sent, 1)); err != nil || sent[0] != int64(first+1) {
					return fmt.Errorf("rank %d has %v of the row's last, want %v (%v)", g.Rank(), sent[0], first+1, err)
				}
			}
			x := []float32{float32(g.Rank())}
			if err := g.Sum(kernels.Of(x, 1)); err != nil || x[0] != 6 {
				return fmt.Errorf("rank %d has the sum of all %v, want 6 (%v)", g.Rank(), x[0], err)
			}
		}
		d := &device{key: fmt.Sprintf("key %d", g.Rank()), networks: make(chan *network, 2)}
		if err := errors.Join(g.Connect(d), row.Connect(d), row.Sum(onDevice(1)), g.Sum(onDevice(1), onDevice(2))); err != nil {
			return err
		}
		for _, want := range []string{fmt.Sprintf("key 0, %d of 4, [Sum2]", g.Rank()), fmt.Sprintf("key %d, %d of 2, [Sum1]", first, row.Rank())} {
			n := <-d.networks
			if have := fmt.Sprintf("%s, %d of %d, %v", n.key, n.rank, n.size, n.calls); have != want {
				return fmt.Errorf("rank %d has the network %s, want %s", g.Rank(), have, want)
			}
			defer func() { // which closing the whole closes
				if err := g.Close(); err != nil || <-n.ended != "closed" {
					t.Errorf("rank %d: %v", g.Rank(), err)
				}
			}()
		}
		return errors.Join(row.Close(), g.Barrier())
	}))
}

// meshOf splits a group into rows and columns, and adds up over both in turns, as often as the row
// says.
func meshOf(g *Group, rows, columns int) error {
	row, err := g.Split(columns)
	if err != nil {
		return err
	}
	column, err := g.SplitAcross(columns)
	if err != nil {
		return err
	}
	if column.Rank() != g.Rank()/columns || column.Size() != rows || row.Rank() != g.Rank()%columns || row.Size() != columns {
		return fmt.Errorf("rank %d is rank %d of %d in its column and %d of %d in its row", g.Rank(), column.Rank(), column.Size(), row.Rank(), row.Size())
	}
	for range 1 + column.Rank() {
		x := []float64{float64(g.Rank())}
		if err := row.Sum(kernels.Of(x, 1)); err != nil {
			return err
		}
		if want := float64(columns*(column.Rank()*columns) + columns*(columns-1)/2); x[0] != want {
			return fmt.Errorf("rank %d has the sum of its row %v, want %v", g.Rank(), x[0], want)
		}
	}
	for range 1 + row.Rank() {
		x := []float64{float64(g.Rank())}
		if err := column.Sum(kernels.Of(x, 1)); err != nil {
			return err
		}
		if want := float64(rows*row.Rank() + columns*rows*(rows-1)/2); x[0] != want {
			return fmt.Errorf("rank %d has the sum of its column %v, want %v", g.Rank(), x[0], want)
		}
	}
	return nil
}

// A mesh of any shape has rows and columns. Those of one row, or of one column, are all ranks, or
// one.
func TestSplitAcross(t *testing.T) {
	for _, c := range [][2]int{{3, 2}, {2, 3}, {1, 4}, {4, 1}} {
		none(t, together(t, configs(t, c[0]*c[1]), func(g *Group) error { return meshOf(g, c[0], c[1]) }))
	}
}

// What cannot be split, and what ends all parts.
func TestSplitFails(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(g, row *Group) error
		want map[int]string
	}{
		"a number that does not divide": {func(g, _ *Group) error { _, err := g.Split(3); return err },
			map[int]string{0: "Split: size is 3, it needs to divide the number of ranks, 4", 3: "size is 3"}},
		"across such a number": {func(g, _ *Group) error { _, err := g.SplitAcross(3); return err },
			map[int]string{0: "SplitAcross: size is 3, it needs to divide the number of ranks, 4", 3: "size is 3"}},
		"one along, one across": {func(g, _ *Group) error {
			split := g.Split
			if g.Rank() == 3 {
				split = g.SplitAcross
			}
			_, err := split(2)
			return err
		}, map[int]string{0: "or other shapes", 3: "or other shapes"}},
		"no rank":           {func(g, _ *Group) error { _, err := g.Split(0); return err }, map[int]string{1: "Split: size is 0"}},
		"a part of a part":  {func(_, row *Group) error { _, err := row.Split(1); return err }, map[int]string{2: "is a part of one of 4 ranks"}},
		"different numbers": {func(g, _ *Group) error { _, err := g.Split(1 + g.Rank()/3); return err }, map[int]string{0: "or other shapes", 3: "or other shapes"}},
		"too often": {func(g, _ *Group) error {
			for range maxGroups {
				if _, err := g.Split(1); err != nil {
					return err
				}
			}
			return nil
		}, map[int]string{0: "was split 15 times"}},
		"a rank of another row dies": {func(g, row *Group) error {
			if g.Rank() == 3 {
				g.finish(errors.New("its connections end"))
				return nil
			}
			return errors.Join(row.Barrier(), row.Barrier(), g.Barrier())
		}, map[int]string{0: "rank 3 (host", 1: "rank 3 (host", 2: "rank 3 (host"}},
		"a rank of the row hangs": {func(g, row *Group) error {
			if g.Rank() == 3 {
				<-g.done
				return nil
			}
			return errors.Join(row.Barrier(), g.Barrier())
		}, map[int]string{0: "rank 3 (host", 1: "rank 3 (host", 2: "rank 3 (host"}},
		"a rank gives up in its row": {func(g, row *Group) error {
			if g.Rank() == 2 {
				row.Abort(errors.New("no more paper"))
				return nil
			}
			return errors.Join(row.Barrier(), g.Barrier())
		}, map[int]string{0: "rank 2 gave up: no more paper", 1: "rank 2 gave up", 3: "rank 2 gave up"}},
	} {
		t.Run(name, func(t *testing.T) {
			inLAN(t, func(t *testing.T, l *lan) {
				errs := together(t, l.configs(4, time.Minute), func(g *Group) error {
					row, err := g.Split(2)
					if err != nil {
						return err
					}
					return c.do(g, row)
				})
				for rank, want := range c.want {
					if errs[rank] == nil || !strings.Contains(errs[rank].Error(), want) {
						t.Errorf("rank %d: %v, want %q in it", rank, errs[rank], want)
					}
				}
			})
		})
	}
}
