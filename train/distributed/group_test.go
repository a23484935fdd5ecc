package distributed

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stheno-ml/stheno/internal/freeport"
	"github.com/stheno-ml/stheno/kernels"
)

// configs are those of a group on this machine, which has all the time that it needs.
func configs(t *testing.T, size int) []Config {
	t.Helper()
	address, err := freeport.OnLoopback()
	if err != nil {
		t.Fatal(err)
	}
	list := make([]Config, size)
	for rank := range list {
		list[rank] = Config{Rank: rank, Size: size, Address: address, Timeout: 5 * time.Minute}
	}
	return list
}

// together runs a function on every rank of a group and returns the ranks' errors.
func together(t *testing.T, list []Config, do func(g *Group) error) []error {
	t.Helper()
	errs := make([]error, len(list))
	var ranks sync.WaitGroup
	for i, c := range list {
		ranks.Go(func() {
			g, err := Join(t.Context(), c)
			if err != nil {
				errs[i] = err
				return
			}
			defer g.Close()
			errs[i] = do(g)
		})
	}
	ranks.Wait()
	return errs
}

func none(t *testing.T, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Every rank gets the bits of a loop over the ranks, for every type, for lengths that the ranks do
// not divide, and for more than a frame.
func TestSum(t *testing.T) {
	for _, size := range []int{1, 2, 3, 4} {
		for _, n := range []int{0, 1, size - 1, 5, 1001, 700_001} {
			t.Run(fmt.Sprintf("%d ranks, %d elements", size, n), func(t *testing.T) {
				single, double, half := make([][]float32, size), make([][]float64, size), make([][]kernels.BFloat16, size)
				wantSingle, wantDouble, sums := make([]float32, n), make([]float64, n), make([]float32, n)
				for rank := range size {
					random := rand.New(rand.NewPCG(7, uint64(rank)))
					single[rank], double[rank], half[rank] = make([]float32, n), make([]float64, n), make([]kernels.BFloat16, n)
					for i := range n {
						x := random.NormFloat64()
						single[rank][i], double[rank][i], half[rank][i] = float32(x), x, kernels.ToBFloat16(float32(x))
						wantSingle[i] += single[rank][i]
						wantDouble[i] += x
						sums[i] += half[rank][i].Float32()
					}
				}
				none(t, together(t, configs(t, size), func(g *Group) error {
					r := g.Rank()
					return g.Sum(kernels.Of(single[r], n), kernels.Of(double[r], n, 1), kernels.Of(half[r], 1, n))
				}))
				for rank := range size {
					for i := range n {
						if single[rank][i] != wantSingle[i] || double[rank][i] != wantDouble[i] || half[rank][i] != kernels.ToBFloat16(sums[i]) {
							t.Fatalf("rank %d, element %d: %v, %v, %v, want %v, %v, %v", rank, i, single[rank][i], double[rank][i], half[rank][i],
								wantSingle[i], wantDouble[i], kernels.ToBFloat16(sums[i]))
						}
					}
				}
			})
		}
	}
}

func TestPartsMakeASum(t *testing.T) {
	const size, n = 3, 1000
	data := make([][]float32, size)
	none(t, together(t, configs(t, size), func(g *Group) error {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i * (g.Rank() + 1))
		}
		if err := g.SumParts(kernels.Of(x, n)); err != nil {
			return err
		}
		at, end := g.Part(g.Rank(), n)
		for i := range x {
			want := float32(i * (g.Rank() + 1))
			if i >= at && i < end {
				want = float32(i * 6)
			}
			if x[i] != want {
				return fmt.Errorf("rank %d after SumParts: element %d is %v, want %v", g.Rank(), i, x[i], want)
			}
		}
		data[g.Rank()] = x
		return g.CollectParts(kernels.Of(x, n))
	}))
	for rank, x := range data {
		for i := range x {
			if x[i] != float32(i*6) {
				t.Fatalf("rank %d after CollectParts: element %d is %v, want %v", rank, i, x[i], i*6)
			}
		}
	}
}

func TestBroadcast(t *testing.T) {
	none(t, together(t, configs(t, 4), func(g *Group) error {
		for from := range g.Size() {
			x := []float64{float64(g.Rank()), math.NaN()}
			if err := g.Broadcast(from, kernels.Of(x, 2)); err != nil {
				return err
			}
			if x[0] != float64(from) {
				return fmt.Errorf("rank %d has %v of rank %d", g.Rank(), x[0], from)
			}
		}
		return g.Barrier()
	}))
}

// What ends a group, and what every rank says then. A rank without a wanted text is not asked.
func TestFailures(t *testing.T) {
	x := func() kernels.Tensor { return kernels.Of(make([]float32, 10), 10) }
	gaveUp := errors.New("no more paper")
	for _, c := range []struct {
		name string
		size int
		do   func(g *Group) error
		want map[int]string
	}{
		{"another operation", 2, func(g *Group) error {
			if g.Rank() == 1 {
				return g.SumParts(x())
			}
			return g.Sum(x())
		}, map[int]string{0: "in operation 1", 1: "in operation 1"}},
		{"another shape", 3, func(g *Group) error {
			return g.Sum(kernels.Of(make([]float32, 10+g.Rank()/2), 10+g.Rank()/2))
		}, map[int]string{0: "or other shapes or types", 1: "", 2: "or other shapes or types"}},
		{"one gives up", 3, func(g *Group) error {
			if g.Rank() == 2 {
				g.Abort(gaveUp)
				return nil
			}
			return g.Sum(x())
		}, map[int]string{0: "rank 2 gave up: no more paper", 1: "rank 2 gave up: no more paper"}},
		{"one leaves", 3, func(g *Group) error {
			if g.Rank() == 1 {
				return nil
			}
			return g.Sum(x())
		}, map[int]string{0: "rank 1 (host", 2: "rank 1 (host"}},
		{"one hangs", 3, func(g *Group) error {
			if g.Rank() == 1 {
				<-g.done
				return g.Err()
			}
			return g.Sum(x())
		}, map[int]string{0: "rank 1 (host", 1: "did not come to operation", 2: "rank 1 (host"}},
		{"one's connections end", 3, func(g *Group) error {
			if g.Rank() == 0 {
				g.finish(errors.New("its connections end"))
				return nil
			}
			return g.Sum(x())
		}, map[int]string{1: "rank 0 (host", 2: "rank 0 (host"}},
		{"one is silent", 2, func(g *Group) error {
			if g.Rank() == 1 {
				g.peers[0].conn.(*lanConn).mute.Store(true) // it neither works nor shows life
				<-g.done
				return nil
			}
			return g.Sum(x())
		}, map[int]string{0: "rank 1 (host"}},
		{"a frame that there is not", 2, func(g *Group) error {
			if g.Rank() == 1 {
				g.peers[0].conn.Write(make([]byte, headerSize))
				<-g.done
				return nil
			}
			return g.Sum(x())
		}, map[int]string{0: "sent a frame of kind 0, which there is not"}},
		{"a frame of an exabyte", 2, func(g *Group) error {
			if g.Rank() == 1 {
				header := []byte{byte(dataFrame), 0, 0, 0, 0, 0, 0, 0, 0, 0}
				g.peers[0].conn.Write(binary.LittleEndian.AppendUint64(header, 1<<60))
				<-g.done
				return nil
			}
			return g.Sum(x())
		}, map[int]string{0: "sent a frame of 1152921504606846976 bytes, its kind has at most 1048576"}},
		{"too few bytes", 2, func(g *Group) error {
			if g.Rank() == 1 {
				g.peers[0].send(frame{kind: dataFrame, operation: 1, body: []byte{1}}, time.Second)
				<-g.done
				return nil
			}
			return g.Sum(x())
		}, map[int]string{0: "sent 1 bytes in operation 1, 8 are expected"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLAN(t, func(t *testing.T, l *lan) {
				errs := together(t, l.configs(c.size, time.Minute), c.do)
				for rank, want := range c.want {
					if errs[rank] == nil || !strings.HasPrefix(errs[rank].Error(), "distributed: ") || !strings.Contains(errs[rank].Error(), want) {
						t.Errorf("rank %d: %v, want %q in it", rank, errs[rank], want)
					}
				}
			})
		})
	}
}

// Who does not come, comes twice or with other ideas about the group.
func TestMeetingErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(list []Config) []Config
		want   map[int]string
	}{
		{"one does not come", func(list []Config) []Config { return list[:3] },
			map[int]string{0: "rank 3 of 4 did not come to", 1: "rank 3 of 4 did not come to", 2: "rank 3 of 4 did not come to"}},
		{"two do not come", func(list []Config) []Config { return list[:2] }, map[int]string{0: "ranks 2 and 3 of 4 did not come", 1: "ranks 2 and 3 of 4"}},
		{"rank 0 does not come", func(list []Config) []Config { return list[1:2] }, map[int]string{0: "rank 1 found no rank 0 at 127.0.0.1:"}},
		{"another size", func(list []Config) []Config { list[2].Size = 5; return list },
			map[int]string{0: "was started as one of 5 ranks, rank 0 as one of 4", 2: "was started as one of 5 ranks, rank 0 as one of 4"}},
		{"one rank twice", func(list []Config) []Config { list[3].Rank = 1; return list }, map[int]string{0: "two processes are rank 1: "}},
		{"another job", func(list []Config) []Config { list[1].Job = "b"; return list }, map[int]string{0: "rank 1 of 4 did not come", 1: `is of job "b", at 127.0.0.1:`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLAN(t, func(t *testing.T, l *lan) {
				list := c.change(l.configs(4, time.Minute))
				errs := together(t, list, func(g *Group) error { return g.Barrier() })
				for i, want := range c.want {
					if errs[i] == nil || !strings.Contains(errs[i].Error(), want) {
						t.Errorf("rank %d: %v, want %q in it", list[i].Rank, errs[i], want)
					}
				}
			})
		})
	}
}

// A group comes together beside strangers on its port, and one that listens there is found out.
func TestStrangers(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		list := l.configs(2, time.Minute)
		first := joined(t, list[:1])
		for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "{}\n", "\n", strings.Repeat("x", 3*maxLine), `{"Protocol":"stheno group 0","Rank":1,"Size":2}` + "\n"} {
			io.WriteString(dial(t, list[0]), text)
		}
		synctest.Wait()
		none(t, append(<-joined(t, list[1:]), <-first...))
	})
	inLAN(t, func(t *testing.T, l *lan) {
		list := l.configs(2, time.Minute)
		listener, err := l.Listen(t.Context(), list[0].Address)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				text, _ := json.Marshal(map[string]string{"Protocol": "SSH-2.0"})
				conn.Write(append(text, '\n'))
			}
		}()
		_, err = Join(t.Context(), list[1])
		if err == nil || !strings.Contains(err.Error(), `it is no rank of a group: it says "SSH-2.0"`) {
			t.Errorf("%v", err)
		}
		listener.Close()
	})
}

func TestAlone(t *testing.T) {
	g, err := Join(t.Context(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := []float32{1, 2}
	if err := errors.Join(g.Sum(kernels.Of(x, 2)), g.Broadcast(0, kernels.Of(x, 2)), g.Barrier(), g.Close()); err != nil || x[0] != 1 || g.Size() != 1 {
		t.Error(x, g.Size(), err)
	}
	if err := g.Sum(kernels.Of(x, 2)); err == nil {
		t.Error("a sum after Close")
	}
}

func TestTensorErrors(t *testing.T) {
	g := &Group{size: 2, fate: &fate{done: make(chan struct{})}}
	x := kernels.Of(make([]float32, 6), 2, 3)
	device := x
	device.Owner = t
	for want, tensor := range map[string]kernels.Tensor{
		"distributed: Sum: tensor 0 is of int64, it needs to be of floats":                        kernels.Of(make([]int64, 1), 1),
		"distributed: Sum: tensor 0 has shape [3 2] and strides [1 3], it needs to be contiguous": x.Permute(1, 0),
		"a group that is not connected: Sum of tensor 0, which lies on a device,":                 device,
	} {
		if err := g.Sum(tensor); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := g.Broadcast(2, x); err == nil || err.Error() != "distributed: Broadcast: from is rank 2, the group has 2" {
		t.Error(err)
	}
}

func TestZeroGroup(t *testing.T) {
	var g Group
	x := kernels.Of(make([]float32, 3), 3)
	g.Abort(errors.New("nothing"))
	for name, err := range map[string]error{
		"Err": g.Err(), "Close": g.Close(), "Barrier": g.Barrier(), "Sum": g.Sum(x), "SumParts": g.SumParts(x), "CollectParts": g.CollectParts(x),
		"Broadcast": g.Broadcast(0, x), "Connect": g.Connect(nil),
	} {
		if err != errNotJoined {
			t.Errorf("%s returns %v, it needs to return %v", name, err, errNotJoined)
		}
	}
	if at, end := g.Part(0, 3); g.Rank() != 0 || g.Size() != 1 || g.LocalRank() != 0 || at != 0 || end != 3 {
		t.Errorf("rank %d of %d, local %d, has elements %d to %d, want all", g.Rank(), g.Size(), g.LocalRank(), at, end)
	}
}
