package distributed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/train/internal/mortal"
)

// life is one process after the other in the place of a rank.
type life struct {
	config Config
	wires  *mortal.Wires
	ctx    context.Context
}

// begin starts a process that dies after so many writes, 0 for never.
func begin(ctx context.Context, l *lan, c Config, writes int) *life {
	ctx, cancel := context.WithCancel(ctx)
	w := &mortal.Wires{By: l, Died: cancel}
	w.DieAfter(writes)
	c.Wires = w
	return &life{c, w, ctx}
}

// rounds adds up x rounds times with the group, renews it when a rank is lost, and tells one that
// comes late how far it has come.
func (p *life) rounds(rounds int, fewer func(int) bool) (done, size int, err error) {
	g, err := Join(p.ctx, p.config)
	if err != nil {
		return 0, 0, err
	}
	for {
		if done, err = p.addUp(g, done, rounds); err == nil {
			return done, g.Size(), g.Close()
		}
		if errors.Is(err, ErrLost) {
			err = g.Renew(p.ctx, fewer)
		}
		if err != nil {
			g.Abort(err)
			return done, g.Size(), err
		}
	}
}

func (p *life) addUp(g *Group, done, rounds int) (int, error) {
	if g.Renewed() {
		all := make([]float64, g.Size())
		all[g.Rank()] = float64(done)
		if err := g.Sum(kernels.Of(all, len(all))); err != nil {
			return done, err
		}
		done = int(slices.Max(all))
	}
	for ; done < rounds; done++ {
		x := []float32{float32(g.Rank()), 1, 2, 3, 4}
		if err := g.Sum(kernels.Of(x, 5)); err != nil {
			return done, err
		}
		if n := g.Size(); x[0] != float32(n*(n-1)/2) || x[4] != float32(4*n) {
			return done, fmt.Errorf("the sum is %v", x)
		}
	}
	return done, g.Barrier()
}

var renewals = flag.Int("renewals", 40, "how many drawn schedules of deaths the tests of renewal try")

// Ranks that die at any moment, while the group meets included, are replaced, again and again.
func TestRanksAreReplaced(t *testing.T) {
	const size, rounds = 4, 12
	for seed := range uint64(*renewals) {
		random := rand.New(rand.NewPCG(seed, 0))
		inLAN(t, func(t *testing.T, l *lan) {
			list := l.configs(size, time.Minute)
			for n := range list {
				list[n].Lost, list[n].Secret = LostReplaced, "a secret"
			}
			deaths := make([]int, size)
			for range 3 {
				deaths[random.IntN(size)]++
			}
			var ranks sync.WaitGroup
			for rank, c := range list {
				moments := make([]int, deaths[rank])
				for i := range moments {
					moments[i] = 1 + random.IntN(120)
				}
				ranks.Go(func() {
					for _, writes := range append(moments, 0) {
						p := begin(t.Context(), l, c, writes)
						done, _, err := p.rounds(rounds, nil)
						if p.ctx.Err() == nil || writes == 0 {
							if err != nil || done != rounds {
								t.Errorf("seed %d, rank %d: %d rounds, %v", seed, rank, done, err)
							}
							return
						}
					}
				})
			}
			ranks.Wait()
		})
	}
}

// Where a rank may be missing, the others go on with as many as they are allowed to be.
func TestRanksAreMissed(t *testing.T) {
	for _, c := range []struct {
		dies  []int
		fewer func(int) bool
		want  int
	}{
		{[]int{2}, nil, 4},
		{[]int{1, 4}, nil, 3},
		{[]int{3}, func(size int) bool { return size%2 == 1 }, 3},
		{[]int{1}, func(size int) bool { return size == 1 }, 1},
		{[]int{0}, nil, 0},
	} {
		inLAN(t, func(t *testing.T, l *lan) {
			list := l.configs(5, time.Minute)
			var ranks sync.WaitGroup
			var lock sync.Mutex
			var through, sizes []int
			var said []string
			for rank, config := range list {
				config.Lost = LostMissed
				writes := 0
				if slices.Contains(c.dies, rank) {
					writes = 70
				}
				ranks.Go(func() {
					done, size, err := begin(t.Context(), l, config, writes).rounds(20, c.fewer)
					lock.Lock()
					defer lock.Unlock()
					switch {
					case err == nil && done == 20:
						through, sizes = append(through, rank), append(sizes, size)
					case writes == 0:
						said = append(said, err.Error())
					}
				})
			}
			ranks.Wait()
			if len(through) != c.want || c.want > 0 && (slices.Min(sizes) != c.want || slices.Max(sizes) != c.want) {
				t.Errorf("without %v: the ranks %v end in groups of %v, want %d; the others say %q", c.dies, through, sizes, c.want, said)
			}
			for _, text := range said {
				if want := map[bool]string{true: "rank 0 cannot be missed", false: "is not needed"}[c.want == 0]; !strings.Contains(text, want) {
					t.Errorf("without %v, another rank says %q, want %q in it", c.dies, text, want)
				}
			}
		})
	}
}

// A rank that is left alone has its device count again what comes after the aborted network.
func TestRankThatIsLeftAloneRejoins(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		var ranks sync.WaitGroup
		for rank, config := range l.configs(2, time.Minute) {
			config.Lost = LostMissed
			ranks.Go(func() {
				p := begin(t.Context(), l, config, 70*rank)
				g, err := Join(p.ctx, p.config)
				if err != nil {
					t.Error(err)
					return
				}
				d := &device{key: "key"}
				err = g.Connect(d)
				for err == nil {
					_, err = p.addUp(g, 0, 1000)
				}
				if rank == 1 {
					g.Abort(err)
					return
				}
				if err := errors.Join(g.Renew(p.ctx, nil), g.Connect(d), g.Close()); err != nil || d.rejoined != 1 {
					t.Errorf("after %v the device has rejoined %d times: %v", g.Err(), d.rejoined, err)
				}
			})
		}
		ranks.Wait()
	})
}

// Rank 0, at which all meet, is replaced like any other, also together with others. Where nobody
// comes in its place, or with fewer ranks, the others end with an error that names it.
func TestRank0IsLost(t *testing.T) {
	for name, c := range map[string]struct {
		lost     Lost
		dies     []int // after the group has met
		replaced bool
		want     string // what the others say
	}{
		"replaced":                    {LostReplaced, []int{0}, true, ""},
		"replaced with another":       {LostReplaced, []int{0, 2}, true, ""},
		"all are replaced":            {LostReplaced, []int{0, 1, 2, 3}, true, ""},
		"nobody replaces it":          {LostReplaced, []int{0}, false, "found no rank 0 at 127.0.0.1:99 within 1m0s"},
		"with fewer ranks":            {LostMissed, []int{0}, false, "rank 0 cannot be missed, as the others meet there (start all ranks again, or replace lost ones: replace): rank 0 (host"},
		"with fewer, another is lost": {LostMissed, []int{0, 2}, false, "no rank 0 at 127.0.0.1:99 within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			inLAN(t, func(t *testing.T, l *lan) {
				var ranks sync.WaitGroup
				for rank, config := range l.configs(4, time.Minute) {
					config.Lost = c.lost
					ranks.Go(func() {
						lives := []int{0}
						if slices.Contains(c.dies, rank) {
							lives = []int{70, 0}
						}
						for _, writes := range lives {
							p := begin(t.Context(), l, config, writes)
							done, _, err := p.rounds(20, nil)
							switch {
							case p.ctx.Err() != nil && c.replaced:
								continue
							case p.ctx.Err() != nil:
							case c.want == "" && (err != nil || done != 20):
								t.Errorf("rank %d: %d rounds, %v", rank, done, err)
							case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
								t.Errorf("rank %d: %v, want %q in it", rank, err, c.want)
							}
							return
						}
					})
				}
				ranks.Wait()
			})
		})
	}
}

// Any two of five die at any moment after the group has met, together or while the others come
// together again: those that are left go on.
func TestSeveralRanksAreMissed(t *testing.T) {
	const size, rounds = 5, 20
	for seed := range uint64(*renewals) / 2 {
		random := rand.New(rand.NewPCG(seed, 1))
		deaths := make([]int, size)
		for _, rank := range random.Perm(size - 1)[:2] {
			deaths[rank+1] = 60 + random.IntN(200)
		}
		inLAN(t, func(t *testing.T, l *lan) {
			sizes, began := make([]int, size), time.Now()
			var ranks sync.WaitGroup
			for rank, c := range l.configs(size, time.Minute) {
				c.Lost = LostMissed
				ranks.Go(func() {
					p := begin(t.Context(), l, c, deaths[rank])
					done, size, err := p.rounds(rounds, nil)
					if p.ctx.Err() == nil && (err != nil || done != rounds) {
						t.Errorf("seed %d, rank %d: %d rounds, %v", seed, rank, done, err)
					}
					if sizes[rank] = size; p.ctx.Err() != nil {
						sizes[rank] = 0
					}
				})
			}
			ranks.Wait()
			left := slices.DeleteFunc(sizes, func(size int) bool { return size == 0 })
			if left[0] != len(left) || slices.Min(left) != slices.Max(left) {
				t.Errorf("seed %d: %d ranks are left, in groups of %v", seed, len(left), left)
			}
			if took := time.Since(began); took > time.Minute { // by the bubble's clock
				t.Errorf("seed %d: the ranks took %v", seed, took)
			}
		})
	}
}

// Where a connection between two ranks ends that live, all come together again, or the group does
// without one of the two, which is not rank 0.
func TestConnectionsThatEnd(t *testing.T) {
	for _, lost := range []Lost{LostReplaced, LostMissed} {
		for _, ends := range [][2]int{{0, 2}, {2, 0}, {1, 2}} {
			inLAN(t, func(t *testing.T, l *lan) {
				list := l.configs(4, time.Minute)
				for n := range list {
					list[n].Lost = lost
				}
				errs := together(t, list, func(g *Group) error {
					if err := g.Barrier(); err != nil && !errors.Is(err, ErrLost) {
						return err
					}
					if g.Rank() == ends[0] {
						g.peers[ends[1]].conn.Close()
					}
					<-g.done
					return errors.Join(g.Renew(t.Context(), nil), g.Barrier())
				})
				left := 0
				for _, err := range errs {
					if err == nil {
						left++
					}
				}
				if errs[0] != nil || left < 3 || lost == LostReplaced && left < 4 {
					t.Errorf("%s, without the connection of %v: %v", lost, ends, errors.Join(errs...))
				}
			})
		}
	}
}

// A rank that is stopped is lost to the others, and takes its own place when it goes on.
func TestARankThatWasStoppedComesBack(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		list := l.configs(3, time.Minute)
		errs := make([]error, 3)
		var ranks sync.WaitGroup
		for rank, c := range list {
			c.Lost = LostReplaced
			ranks.Go(func() {
				g, err := Join(t.Context(), c)
				if err != nil {
					errs[rank] = err
					return
				}
				if rank == 1 {
					for _, p := range g.others() {
						p.conn.(*lanConn).mute.Store(true)
					}
					time.Sleep(90 * time.Second)
				}
				if err := g.Barrier(); !errors.Is(err, ErrLost) {
					errs[rank] = fmt.Errorf("a rank that says nothing: %w", err)
					return
				}
				errs[rank] = errors.Join(g.Renew(t.Context(), nil), g.Barrier(), g.Close())
			})
		}
		ranks.Wait()
		none(t, errs)
	})
}

// A group that gave up is not renewed, nor one that is whole, nor one that ends when it loses a
// rank.
func TestRenewIsRefused(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		for want, c := range map[string]struct {
			lost Lost
			end  func(g *Group)
		}{
			"no rank is lost":             {LostReplaced, func(*Group) {}},
			"no more paper":               {LostReplaced, func(g *Group) { g.Abort(errors.New("no more paper")) }},
			"ended without leaving":       {LostEnds, func(g *Group) { g.finish(errors.New("as a kill does")) }},
			"the group did not come toge": {LostReplaced, func(g *Group) { g.finish(errors.New("as a kill does")) }},
		} {
			list := l.configs(2, time.Minute)
			for n := range list {
				list[n].Lost = c.lost
			}
			none(t, together(t, list, func(g *Group) error {
				if err := g.Barrier(); err != nil {
					return err
				}
				if g.Rank() == 1 {
					c.end(g)
					return nil
				}
				if want != "no rank is lost" {
					<-g.done
				}
				if err := g.Renew(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
					return fmt.Errorf("%v, want %q in it", err, want)
				}
				return nil
			}))
		}
	})
}

// Each rank knows how long it has waited for each other: for one that comes two seconds late to an
// operation, as long.
func TestWaited(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		none(t, together(t, l.configs(3, time.Minute), func(g *Group) error {
			for range 5 {
				if g.Rank() == 1 {
					time.Sleep(2 * time.Second)
				}
				if err := g.Sum(kernels.Of([]float32{1}, 1)); err != nil {
					return err
				}
			}
			want := []time.Duration{0, 10 * time.Second, 0}
			if g.Rank() == 1 {
				want[1] = 0
			}
			if got := g.Waited(); !slices.Equal(got, want) {
				return fmt.Errorf("rank %d has waited %v, want %v", g.Rank(), got, want)
			}
			return nil
		}))
	})
}
