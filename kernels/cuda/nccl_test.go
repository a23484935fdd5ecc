//go:build gpu && linux

package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda/nccl"
)

// networks joins all GPUs of the machine, at least two, in this process.
func networks(t testing.TB) ([]*Device, []kernels.Network) {
	t.Helper()
	size := Count()
	if size < 2 {
		t.Skip("this machine does not have two GPUs")
	}
	devices, list, errs := make([]*Device, size), make([]kernels.Network, size), make([]error, size)
	for i := range devices {
		d, err := Open(i)
		if err != nil {
			t.Fatal(err)
		}
		devices[i] = d
	}
	key, err := devices[0].NetworkKey()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var joining sync.WaitGroup
	for i, d := range devices {
		joining.Go(func() { list[i], errs[i] = d.JoinNetwork(ctx, key, i, size) })
	}
	joining.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, n := range list {
			n.Close()
		}
	})
	return devices, list
}

// everyone runs a function for each member at once.
func everyone(t testing.TB, devices []*Device, do func(rank int) error) {
	t.Helper()
	errs := make([]error, len(devices))
	var members sync.WaitGroup
	for i := range devices {
		members.Go(func() { errs[i] = errors.Join(do(i), devices[i].Synchronize()) })
	}
	members.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Operations of the network do what loops over the ranks do, for all types and for lengths that the
// members do not divide, queued and recorded. The numbers are whole, so sums are exact in any
// order.
func TestNetwork(t *testing.T) {
	devices, list := networks(t)
	size := len(devices)
	lengths := []int{0, 1, size - 1, size, 5, 1001, 1 << 20, 3_000_001}
	for _, dtype := range []kernels.DType{kernels.F32, kernels.F64, kernels.BF16, kernels.F16} {
		for _, name := range []string{"Sum", "SumParts", "SumLater", "SumPartsLater", "CollectParts", "CollectPartsLater", "Broadcast"} {
			for _, recorded := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %v recorded=%v", name, dtype, recorded), func(t *testing.T) {
					inputs, tensors := make([][][]float64, size), make([][]kernels.Tensor, size)
					for rank, d := range devices {
						random := rand.New(rand.NewPCG(5, uint64(rank)))
						for _, n := range lengths {
							x := make([]float64, n)
							for i := range x {
								x[i] = float64(random.IntN(17) - 8)
							}
							tensor, err := d.Alloc(dtype, n)
							if err == nil {
								err = d.Copy(tensor, kernels.Of(x, n))
							}
							if err != nil {
								t.Fatal(err)
							}
							inputs[rank], tensors[rank] = append(inputs[rank], x), append(tensors[rank], tensor)
						}
					}
					everyone(t, devices, func(rank int) error {
						work := func() error {
							switch n := list[rank]; name {
							case "Sum":
								return n.Sum(tensors[rank])
							case "SumParts":
								return n.SumParts(tensors[rank])
							case "SumLater": // beside other work, while more are asked for, and in the end
								d, half := devices[rank], len(lengths)/2
								return errors.Join(n.SumLater(tensors[rank][:half]), d.queue().Fork(), n.SumLater(tensors[rank][half:]), d.queue().Join(), n.Join())
							case "SumPartsLater":
								err := n.SumPartsLater(tensors[rank])
								begun, beginErr := n.Begin()
								if begun != len(lengths) {
									t.Errorf("%d of %d tensors are begun with", begun, len(lengths))
								}
								return errors.Join(err, beginErr, n.Join())
							case "CollectPartsLater": // beside other work, and when they are waited for
								d, half := devices[rank], len(lengths)/2
								first, err := n.CollectPartsLater(tensors[rank][:half])
								if err := errors.Join(err, d.queue().Fork(), first.Join()); err != nil {
									return err
								}
								second, err := n.CollectPartsLater(tensors[rank][half:])
								return errors.Join(err, second.Join())
							case "CollectParts":
								return n.CollectParts(tensors[rank])
							default:
								return n.Broadcast(size-1, tensors[rank])
							}
						}
						if !recorded {
							return work()
						}
						recording, err := devices[rank].Capture(work)
						if err != nil {
							return err
						}
						return recording.Launch()
					})
					for rank, d := range devices {
						for k, n := range lengths {
							got := make([]float64, n)
							if err := d.Copy(kernels.Of(got, n), tensors[rank][k]); err != nil {
								t.Fatal(err)
							}
							at, end := 0, n
							if strings.HasPrefix(name, "SumParts") {
								at, end = kernels.Part(rank, size, n)
							}
							for i := at; i < end; i++ {
								want := 0.0
								for from := range size {
									first, last := kernels.Part(from, size, n)
									if strings.HasPrefix(name, "Sum") || name == "Broadcast" && from == size-1 || strings.HasPrefix(name, "CollectParts") && i >= first && i < last {
										want += inputs[from][k][i]
									}
								}
								if got[i] != want {
									t.Fatalf("rank %d: element %d of %d is %v, want %v", rank, i, n, got[i], want)
								}
							}
						}
					}
				})
			}
		}
	}
}

// Exchanged tensors arrive while kernels run, which leave the join to wait for them, queued and
// recorded.
func TestNetworkExchange(t *testing.T) {
	devices, list := networks(t)
	size := len(devices)
	const n, beside = 3_000_001, 64 << 20
	for _, recorded := range []bool{false, true} {
		everyone(t, devices, func(rank int) error {
			d := devices[rank]
			var x, received, busy kernels.Tensor
			var err error
			for tensor, elements := range map[*kernels.Tensor]int{&x: n, &received: n, &busy: beside} {
				if *tensor, err = d.Alloc(kernels.F32, elements); err == nil {
					err = d.Fill(*tensor, -1)
				}
				if err != nil {
					return err
				}
			}
			work := func() error {
				if err := d.Fill(x, float64(rank)); err != nil {
					return err
				}
				transfer, err := list[rank].Exchange((rank+1)%size, []kernels.Tensor{x}, (rank+size-1)%size, []kernels.Tensor{received})
				if err != nil {
					return err
				}
				if err := errors.Join(d.Fill(busy, 1), transfer.Join()); err != nil {
					return err
				}
				return d.Add(received, received, received)
			}
			if recorded {
				recording, err := d.Capture(work)
				if err != nil {
					return err
				}
				for range 3 {
					if err := recording.Launch(); err != nil {
						return err
					}
				}
			} else if err := work(); err != nil {
				return err
			}
			got := make([]float32, n)
			if err := d.Copy(kernels.Of(got, n), received); err != nil {
				return err
			}
			for i, g := range got {
				if want := float32(2 * ((rank + size - 1) % size)); g != want {
					return fmt.Errorf("recorded=%v: rank %d: element %d is %v, want %v", recorded, rank, i, g, want)
				}
			}
			return nil
		})
	}
}

// What a network cannot take is an error that names it.
func TestNetworkErrors(t *testing.T) {
	devices, list := networks(t)
	d, n := devices[0], list[0]
	ids, err := d.Alloc(kernels.I64, 3)
	if err != nil {
		t.Fatal(err)
	}
	square, err := d.Alloc(kernels.F32, 3, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{n.Sum([]kernels.Tensor{ids}), "tensor 0 is int64, it needs to be of floats"},
		{n.Sum([]kernels.Tensor{square, square.Permute(1, 0)}), "tensor 1 has shape [3 3] and strides [1 3], it needs to be row-major"},
		{n.SumParts([]kernels.Tensor{kernels.Of([]float32{1}, 1)}), "tensor 0 is on the host, it needs to be on the device"},
		{n.Broadcast(len(list), nil), fmt.Sprintf("from is rank %d, the network has %d", len(list), len(list))},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v, want %s", c.err, c.want)
		}
	}
	if _, err := n.Exchange(0, []kernels.Tensor{square}, 1, nil); err == nil || !strings.Contains(err.Error(), "to is rank 0, it needs to be another one") {
		t.Errorf("a tensor for oneself: %v", err)
	}
	n.Abort()
	if err := n.Sum([]kernels.Tensor{square}); !errors.Is(err, nccl.ErrLeft) {
		t.Errorf("a sum after Abort: %v", err)
	}
}

// BenchmarkNetwork times operations of several sizes on all GPUs of the machine, as one would see
// them between kernels.
func BenchmarkNetwork(b *testing.B) {
	devices, list := networks(b)
	for _, c := range []struct {
		name  string
		sizes []int
	}{{"1MiB", []int{1 << 18}}, {"25MiB", []int{25 << 18}}, {"250MiB", []int{250 << 18}}, {"475MiB", []int{475 << 18}}, {"GPT2-124M", gpt2Sizes()}} {
		tensors, n := make([][]kernels.Tensor, len(devices)), 0
		for rank, d := range devices {
			n = 0
			for _, size := range c.sizes {
				x, err := d.Alloc(kernels.F32, size)
				if err == nil {
					err = d.Fill(x, 1)
				}
				if err != nil {
					b.Fatal(err)
				}
				tensors[rank], n = append(tensors[rank], x), n+size
			}
		}
		for name, do := range map[string]func(n kernels.Network, x []kernels.Tensor) error{
			"Sum": kernels.Network.Sum, "SumParts": kernels.Network.SumParts, "CollectParts": kernels.Network.CollectParts,
		} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				const rounds = 20
				times := make([]time.Duration, len(devices))
				for b.Loop() {
					everyone(b, devices, func(rank int) error {
						var first kernels.Event
						for i := range rounds + 3 {
							if i == 3 {
								var err error
								if first, err = devices[rank].Record(); err != nil {
									return err
								}
							}
							if err := do(list[rank], tensors[rank]); err != nil {
								return err
							}
						}
						last, err := devices[rank].Record()
						if err != nil {
							return err
						}
						times[rank], err = last.Since(first)
						return err
					})
				}
				took := slices.Max(times) / rounds
				b.ReportMetric(float64(took.Microseconds()), "µs/operation")
				b.ReportMetric(float64(n)*4/took.Seconds()/1e9, "GB/s")
			})
		}
	}
}

// gpt2Sizes are those of the parameters of GPT-2's smallest model.
func gpt2Sizes() []int {
	const dim = 768
	list := []int{50304 * dim, 1024 * dim}
	for range 12 {
		list = append(list, dim, dim, dim*3*dim, 3*dim, dim*dim, dim, dim, dim, dim*4*dim, 4*dim, 4*dim*dim, dim)
	}
	return append(list, dim, dim)
}
