package train_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/distributed"
	"github.com/stheno-ml/stheno/train/internal/mortal"
	"gorgonia.org/tensor"
)

var rankKills = flag.Int("rankkills", 3, "how many ranks TestKilledRanksAreReplaced kills")

// loopback is TCP.
type loopback struct{}

func (loopback) Listen(ctx context.Context, address string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

func (loopback) Dial(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// lifetimes trains with ranks that die after so many writes to others, one process of a rank after
// the other, until one does not.
type lifetimes struct {
	together
	lost   distributed.Lost
	deaths map[int][]int // writes, by rank
}

// train returns what the last process of each rank has in the end.
func (o lifetimes) train(t *testing.T) ([]course, []error) {
	t.Helper()
	courses, errs := make([]course, o.size), make([]error, o.size)
	var ranks sync.WaitGroup
	for rank, place := range rankConfigs(t, o.size) {
		place.Lost = o.lost
		ranks.Go(func() {
			for _, writes := range o.deaths[rank] {
				ctx, cancel := context.WithCancel(t.Context())
				w := &mortal.Wires{By: loopback{}, Died: cancel}
				w.DieAfter(writes)
				died := o.together
				died.contexts = map[int]context.Context{rank: ctx}
				mine := place
				mine.Wires = w
				courses[rank], errs[rank] = died.trainRank(t, mine)
				if ctx.Err() == nil || o.lost == distributed.LostMissed {
					cancel()
					return
				}
			}
			courses[rank], errs[rank] = o.trainRank(t, place)
		})
	}
	ranks.Wait()
	return courses, errs
}

// A rank that dies at any moment, while checkpoints are written or while the ranks meet included,
// is replaced, and the bits are those of one process. Where ranks share the optimiser's state, the
// training goes back to a checkpoint.
func TestLostRanksAreReplaced(t *testing.T) {
	one, errs := together{size: 1, accumulation: 3, dtype: tensor.Float32}.train(t)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	rounds := 3
	if testing.Short() {
		rounds = 2
	}
	for seed := range uint64(rounds) {
		random := rand.New(rand.NewPCG(seed, 1))
		path := t.TempDir()
		shard, files := seed%3 == 1, seed%2 == 1
		deaths := map[int][]int{}
		for range 2 {
			// What a run of 20 steps writes is some 3,000 frames of two writes each.
			rank := random.IntN(3)
			deaths[rank] = append(deaths[rank], 1+random.IntN(4000))
		}
		if seed == 0 { // rank 0, which has the hooks and the checkpoints, is replaced like any other
			deaths[0] = append([]int{1500}, deaths[0]...)
		}
		if shard {
			deaths = map[int][]int{2: {100 + random.IntN(2500)}}
		}
		courses, errs := lifetimes{
			lost: distributed.LostReplaced, deaths: deaths,
			together: together{size: 3, accumulation: 1, dtype: tensor.Float32, shard: shard, files: files, change: func(rank int, c *train.LoopConfig) {
				c.CheckpointEvery = 3
				if rank == 0 {
					c.Checkpoints = openAgain(t, path)
				}
			}},
		}.train(t)
		if err := errors.Join(errs...); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		for rank, c := range courses {
			if !slices.Equal(c.weights, one[0].weights) {
				t.Errorf("seed %d, rank %d: the weights differ from those of one process", seed, rank)
			}
		}
		view, err := checkpoint.View(path)
		if err != nil {
			t.Fatal(err)
		}
		if c, _, err := view.Latest(); err != nil || c.Step != 20 {
			t.Errorf("seed %d: the newest checkpoint is of step %d, %v", seed, c.Step, err)
		}
	}
}

// A rank of a mesh is replaced in all parts that it was in.
func TestLostRankOfAMeshIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("TestLostRanksAreReplaced has the short case")
	}
	one, errs := together{size: 1, accumulation: 4, dtype: tensor.Float64}.train(t)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	path, notices := t.TempDir(), ""
	courses, errs := lifetimes{
		lost: distributed.LostReplaced, deaths: map[int][]int{3: {1500}},
		together: together{size: 4, accumulation: 1, dtype: tensor.Float64, shard: true, shardRanks: 2, change: func(rank int, c *train.LoopConfig) {
			c.CheckpointEvery = 3
			if rank == 0 {
				c.Checkpoints = openAgain(t, path)
				c.Hooks = append(slices.Clone(c.Hooks), train.Hook{OnNotice: func(n train.Notice) error { notices += string(n); return nil }})
			}
		}},
	}.train(t)
	if err := errors.Join(errs...); err != nil || !strings.Contains(notices, "4 ranks go on after step") {
		t.Fatalf("%v; rank 0 says %q", err, notices)
	}
	for rank, c := range courses {
		if !slices.Equal(c.weights, courses[0].weights) {
			t.Errorf("rank %d has other weights than rank 0", rank)
		}
		for i, x := range c.weights {
			if !(math.Abs(x-one[0].weights[i]) <= 1e-9) {
				t.Fatalf("rank %d: weight %d is %v, of one process %v", rank, i, x, one[0].weights[i])
			}
		}
	}
}

// A rank that has come in the place of another dies while it is given the training. What the others
// have is still theirs then, optimiser's state and all.
func TestRankLostWhileItIsGivenTheTraining(t *testing.T) {
	one, errs := together{size: 1, accumulation: 3, dtype: tensor.Float32}.train(t)
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	for _, second := range []int{20, 24, 28} { // writes; it meets the others by some 15
		courses, errs := lifetimes{
			lost: distributed.LostReplaced, deaths: map[int][]int{1: {700, second}},
			together: together{size: 3, accumulation: 1, dtype: tensor.Float32},
		}.train(t)
		if err := errors.Join(errs...); err != nil {
			t.Errorf("after %d writes: %v", second, err)
		}
		for rank, c := range courses {
			if !slices.Equal(c.weights, one[0].weights) {
				t.Errorf("after %d writes: the weights of rank %d differ from those of one process", second, rank)
			}
		}
	}
}

// openAgain opens a folder for a process that ends with the test, or when another opens it: a rank
// that is dead holds nothing.
func openAgain(t *testing.T, path string) *checkpoint.Folder {
	t.Helper()
	openFolders.Lock()
	defer openFolders.Unlock()
	if before := openFolders.at[path]; before != nil {
		before.Close()
	}
	openFolders.at[path] = openFolder(t, path, 2)
	return openFolders.at[path]
}

var openFolders = struct {
	sync.Mutex
	at map[string]*checkpoint.Folder
}{at: map[string]*checkpoint.Folder{}}

// Where a rank may be missing, the others go on as a run does that is resumed with fewer from the
// step before.
func TestRanksGoOnWithFewer(t *testing.T) {
	for name, c := range map[string]struct{ size, accumulation, left int }{
		"four ranks of one batch become two": {4, 1, 2},
		"three ranks of two become two":      {3, 2, 2},
	} {
		if testing.Short() && c.size > 3 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var notice string
			at := 0
			courses, errs := lifetimes{
				lost: distributed.LostMissed, deaths: map[int][]int{1: {2000}},
				together: together{size: c.size, accumulation: c.accumulation, dtype: tensor.Float32, change: func(rank int, l *train.LoopConfig) {
					if rank == 0 {
						l.Hooks = append(slices.Clone(l.Hooks), train.Hook{
							OnNotice: func(n train.Notice) error { notice = string(n); return nil },
							OnStep: func(s train.Step) error {
								if notice == "" {
									at = s.Done
								}
								return nil
							},
						})
					}
				}},
			}.train(t)
			if errs[0] != nil || !strings.Contains(notice, fmt.Sprintf("%d ranks go on after step %d", c.left, at)) || at < 2 || at > 18 {
				t.Fatalf("rank 0 after step %d: %v, it says %q", at, errs[0], notice)
			}
			batches := c.size * c.accumulation
			path := filepath.Join(t.TempDir(), "run")
			whole := together{size: c.size, accumulation: c.accumulation, dtype: tensor.Float32, change: func(rank int, l *train.LoopConfig) {
				if l.Steps = at; rank == 0 {
					l.Checkpoints = openAgain(t, path)
				}
			}}
			_, err := whole.train(t)
			if err := errors.Join(err...); err != nil {
				t.Fatal(err)
			}
			fewer := together{size: c.left, accumulation: batches / c.left, dtype: tensor.Float32, resume: true, change: func(rank int, l *train.LoopConfig) {
				if rank == 0 {
					l.Checkpoints = openAgain(t, path)
				}
			}}
			want, err := fewer.train(t)
			if err := errors.Join(err...); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(courses[0].weights, want[0].weights) || !slices.Equal(courses[0].losses[at:], want[0].losses) {
				t.Error("the weights or losses differ from those of a run with fewer ranks from that step on")
			}
		})
	}
}
