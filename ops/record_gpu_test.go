//go:build gpu

package ops_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A recorded graph reads the lengths of keys in each launch, from a feed or from what its input has
// as its value then; lengths that cannot be are the launch's error, in the op's name.
func TestRecordedLengths(t *testing.T) {
	d := gpu(t)
	const batch, length, size = 3, 70, 32
	vector := func(list ...int) *tensor.Dense {
		return tensor.New(tensor.WithShape(batch), tensor.WithBacking(list))
	}
	for name, fed := range map[string]bool{"a feed": true, "a value of the host": false} {
		t.Run(name, func(t *testing.T) {
			g := gorgonia.NewGraph()
			values := make([]float32, batch*length*size)
			for i := range values {
				values[i] = float32(i%17)/8 - 1
			}
			x, err := d.Upload(tensor.New(tensor.WithShape(batch, 1, length, size), tensor.WithBacking(values)))
			if err != nil {
				t.Fatal(err)
			}
			k := gorgonia.NewTensor(g, tensor.Float32, 4, gorgonia.WithShape(batch, 1, length, size), gorgonia.WithName("k"), gorgonia.WithValue(x))
			var lengths *gorgonia.Node
			var set func(list ...int) error
			if fed {
				f, err := ops.NewFeed(d, vector(length, length, length))
				if err != nil {
					t.Fatal(err)
				}
				lengths = f.Node(g, "lengths")
				set = func(list ...int) error { return f.Fill(vector(list...)) }
			} else {
				lengths = gorgonia.NewVector(g, tensor.Int, gorgonia.WithShape(batch), gorgonia.WithName("lengths"))
				set = func(list ...int) error { return gorgonia.Let(lengths, vector(list...)) }
			}
			out := gorgonia.Must(ops.FlashAttention(k, k, k, ops.AttentionOptions{Lengths: ops.Lengths{KVLengths: lengths}, Guarantees: kernels.Guarantees{Deterministic: true}}))
			dK := gorgonia.Must(one(gorgonia.Grad(gorgonia.Must(ops.Sum(out)), k)))
			ops.Keep(out, dK)
			machine := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine()))
			defer machine.Close()
			run := func() error {
				defer machine.Reset()
				return machine.RunAll()
			}
			look := func() (all []float32) {
				for _, n := range []*gorgonia.Node{out, dK} {
					v, err := ops.Download(n.Value())
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, v.Float32s()...)
				}
				return all
			}
			runs := [][]int{{70, 70, 70}, {1, 70, 33}, {0, 5, 0}, {0, 0, 0}, {64, 65, 66}}
			var want [][]float32
			for _, list := range runs {
				if err := errors.Join(set(list...), run()); err != nil {
					t.Fatal(err)
				}
				want = append(want, look())
			}
			recording, err := ops.Record(g, d, run)
			if err != nil {
				t.Fatal(err)
			}
			for i, list := range slices.Concat(runs, runs[:2]) {
				if err := errors.Join(set(list...), recording.Launch()); err != nil {
					t.Fatal(err)
				}
				if got := look(); !slices.Equal(got, want[i%len(runs)]) {
					t.Errorf("lengths %v: the recorded run has other bits", list)
				}
			}
			if err := set(70, 71, 70); err != nil {
				t.Fatal(err)
			}
			if err := recording.Launch(); err == nil || !strings.HasPrefix(err.Error(), "FlashAttention: ") || !strings.Contains(err.Error(), "71") {
				t.Errorf("with a length of 71 the error is %v", err)
			}
		})
	}
}

// one is the first of several nodes.
func one(nodes gorgonia.Nodes, err error) (*gorgonia.Node, error) {
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

// A recorded graph adds to a cache in each launch: for one text and for several, which may rest,
// with the bits of runs that are not recorded. Recording counts no token.
func TestRecordedCache(t *testing.T) {
	d := gpu(t)
	for _, dtype := range []tensor.Dtype{tensor.Float32, ops.BFloat16} {
		for _, batch := range []int{1, 3} {
			t.Run(fmt.Sprintf("%v batch %d", dtype, batch), func(t *testing.T) {
				const heads, keyHeads, size, capacity, steps = 4, 2, 64, 200, 90
				columns := (heads + 2*keyHeads) * size
				type side struct {
					cache   *ops.KVCache
					feed    *ops.Feed
					out     *gorgonia.Node
					machine gorgonia.VM
				}
				make := func() side {
					g := gorgonia.NewGraph()
					cache, err := ops.NewKVCache(ops.KVCacheConfig{DType: dtype, Batch: batch, Heads: keyHeads, HeadDim: size, Capacity: capacity})
					if err != nil {
						t.Fatal(err)
					}
					feed, err := ops.NewFeed(d, tensor.New(tensor.WithShape(batch, 1, columns), tensor.Of(tensor.Float32)))
					if err != nil {
						t.Fatal(err)
					}
					x := gorgonia.Must(ops.Cast(feed.Node(g, "qkv"), dtype))
					out := gorgonia.Must(ops.CachedAttentionQKV(x, heads, keyHeads, cache, ops.CachedAttentionOptions{}))
					out = gorgonia.Must(ops.Cast(out, tensor.Float32))
					ops.Keep(out)
					return side{cache, feed, out, gorgonia.NewTapeMachine(g, gorgonia.WithEngine(ops.Engine()))}
				}
				plain, recorded := make(), make()
				var recording kernels.Recording
				for step := range steps {
					values := tensor.New(tensor.WithShape(batch, 1, columns), tensor.Of(tensor.Float32))
					for i := range values.Float32s() {
						values.Float32s()[i] = float32((i*31+step*17)%29)/14 - 1
					}
					taking := []bool{true, step%3 != 1, step%5 != 2 || step < 40}[:batch]
					var got [2][]float32
					for i, s := range []side{plain, recorded} {
						if err := errors.Join(s.feed.Fill(values), s.cache.Only(taking)); err != nil {
							t.Fatal(err)
						}
						run := func() error {
							defer s.machine.Reset()
							return s.machine.RunAll()
						}
						if i == 1 && step == 2 {
							before := s.cache.Lengths()
							var err error
							if recording, err = ops.Record(s.out.Graph(), d, run); err != nil {
								t.Fatal(err)
							}
							if after := s.cache.Lengths(); !slices.Equal(before, after) {
								t.Fatalf("recording made %v tokens of %v", after, before)
							}
						}
						err := error(nil)
						if i == 1 && recording != nil {
							err = recording.Launch()
						} else {
							err = run()
						}
						if err != nil {
							t.Fatalf("step %d: %v", step, err)
						}
						v, err := ops.Download(s.out.Value())
						if err != nil {
							t.Fatal(err)
						}
						for item := range batch {
							if taking[item] {
								got[i] = append(got[i], v.Float32s()[item*heads*size:][:heads*size]...)
							}
						}
					}
					if !slices.Equal(got[0], got[1]) || !slices.Equal(plain.cache.Lengths(), recorded.cache.Lengths()) {
						t.Fatalf("step %d: a recorded run has other bits, or lengths %v in place of %v", step, recorded.cache.Lengths(), plain.cache.Lengths())
					}
				}
			})
		}
	}
}
