//go:build gpu && linux

package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/reference"
	"github.com/stheno-ml/stheno/kernels/ring"
)

// member is a member of a network as a rank.
type member struct {
	kernels.Network
	rank, size int
}

func (m member) Rank() int { return m.rank }
func (m member) Size() int { return m.size }

// shared is a problem over a whole sequence, of bfloat16.
type shared struct {
	name          string
	heads, kv, d  int
	length        int
	change        func(a *kernels.Attention)
	tensors       [4][]float32 // q, k, v and dO of the whole, which bfloat16 holds
	o, lse, delta kernels.Tensor
	dq, dk, dv    kernels.Tensor
	problem       *kernels.Attention
	dO            kernels.Tensor
}

func (s *shared) draw() {
	random := rand.New(rand.NewPCG(11, uint64(s.length)))
	for i, heads := range []int{s.heads, s.kv, s.kv, s.heads} {
		s.tensors[i] = make([]float32, heads*s.length*s.d)
		for n := range s.tensors[i] {
			s.tensors[i][n] = kernels.ToBFloat16(float32(random.NormFloat64())).Float32()
		}
	}
}

// on puts what a rank holds on a device, in a type.
func (s shared) on(d *Device, dtype kernels.DType, rank, size int) (shared, error) {
	held, err := ring.Held(rank, size, s.length)
	if err != nil {
		return s, err
	}
	rows := s.length / size
	var loaded [4]kernels.Tensor
	for i, heads := range []int{s.heads, s.kv, s.kv, s.heads} {
		whole := kernels.Of(s.tensors[i], 1, heads, s.length, s.d)
		t, err := d.Alloc(dtype, 1, rows, heads, s.d)
		if err != nil {
			return s, err
		}
		loaded[i] = t.Permute(0, 2, 1, 3)
		at := 0
		for _, part := range held {
			if err := d.Copy(loaded[i].Slice(2, at, at+part.Count), whole.Slice(2, part.From, part.From+part.Count)); err != nil {
				return s, err
			}
			at += part.Count
		}
	}
	s.problem = &kernels.Attention{Q: loaded[0], K: loaded[1], V: loaded[2]}
	s.dO = loaded[3]
	if s.change != nil {
		s.change(s.problem)
	}
	for to, like := range map[*kernels.Tensor]kernels.Tensor{&s.o: s.dO, &s.dq: loaded[0], &s.dk: loaded[1], &s.dv: loaded[2]} {
		t, err := d.Alloc(dtype, 1, rows, like.Shape[1], s.d)
		if err != nil {
			return s, err
		}
		*to = t.Permute(0, 2, 1, 3)
	}
	for _, to := range []*kernels.Tensor{&s.lse, &s.delta} {
		if *to, err = d.Alloc(kernels.F32, 1, s.heads, rows); err != nil {
			return s, err
		}
	}
	for _, t := range []kernels.Tensor{s.o, s.dq, s.dk, s.dv, s.lse, s.delta} {
		if err := d.Fill(t, math.NaN()); err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s shared) gradients() kernels.AttentionGradients {
	return kernels.AttentionGradients{DO: s.dO, LSE: s.lse, Delta: s.delta, DQ: s.dq, DK: s.dk, DV: s.dv}
}

// forward and backward compute on a device alone, or as a rank.
func (s shared) forward(d *Device, ranks kernels.Ranks, scratch ring.Scratch) error {
	out := kernels.AttentionOutputs{O: s.o, LSE: s.lse}
	if ranks == nil {
		return d.AttentionForward(s.problem, out)
	}
	return ring.Forward(d, ranks, s.problem, out, scratch)
}

func (s shared) backward(d *Device, ranks kernels.Ranks, scratch ring.Scratch) error {
	local := *s.problem
	local.QLens, local.KVLens = nil, nil
	if err := d.AttentionDelta(&local, s.o, s.dO, kernels.Tensor{}, s.delta); err != nil {
		return err
	}
	if ranks == nil {
		return d.AttentionBackward(s.problem, s.gradients())
	}
	return ring.Backward(d, ranks, s.problem, s.gradients(), scratch)
}

// results are O, LSE and the gradients on the host.
func (s shared) results(d *Device) (list [5][]float32, err error) {
	for i, t := range []kernels.Tensor{s.o, s.lse, s.dq, s.dk, s.dv} {
		list[i] = make([]float32, t.Elements())
		if err := d.Copy(kernels.Of(list[i], t.Shape...), t); err != nil {
			return list, err
		}
	}
	return list, nil
}

var sharedNames = [5]string{"o", "lse", "dq", "dk", "dv"}

// fresh gives memory that keeps no value of earlier calls.
func fresh(d *Device) ring.Scratch {
	return func(dtype kernels.DType, elements int) (kernels.Tensor, error) {
		t, err := d.Alloc(dtype, elements)
		if err != nil {
			return t, err
		}
		return t, d.Fill(t, math.NaN())
	}
}

// ranked computes a problem on all devices, queued or recorded, and returns each rank's results.
func (s shared) ranked(t *testing.T, devices []*Device, list []kernels.Network, recorded bool) [][5][]float32 {
	t.Helper()
	all := make([][5][]float32, len(devices))
	everyone(t, devices, func(rank int) error {
		d := devices[rank]
		own, err := s.on(d, kernels.BF16, rank, len(devices))
		if err != nil {
			return err
		}
		m := member{list[rank], rank, len(devices)}
		work := func() error {
			return errors.Join(own.forward(d, m, fresh(d)), own.backward(d, m, fresh(d)))
		}
		if recorded {
			recording, err := d.Capture(work)
			if err != nil {
				return err
			}
			if err := errors.Join(recording.Launch(), recording.Launch()); err != nil {
				return err
			}
		} else if err := work(); err != nil {
			return err
		}
		all[rank], err = own.results(d)
		return err
	})
	return all
}

// distance is how far a rank's results are from those of the whole.
func (s shared) distance(t *testing.T, got [5][]float32, want [5][]float64, rank, size int) (far, most [5]float64) {
	t.Helper()
	held, err := ring.Held(rank, size, s.length)
	if err != nil {
		t.Fatal(err)
	}
	rows := s.length / size
	for i, heads := range []int{s.heads, s.heads, s.heads, s.kv, s.kv} {
		width := s.d
		if i == 1 {
			width = 1
		}
		for h := range heads {
			at := 0
			for _, part := range held {
				a := got[i][(h*rows+at)*width:][:part.Count*width]
				b := want[i][(h*s.length+part.From)*width:][:part.Count*width]
				for n, x := range a {
					if math.IsInf(b[n], -1) && math.IsInf(float64(x), -1) {
						continue
					}
					difference := math.Abs(float64(x) - b[n])
					if math.IsNaN(difference) {
						difference = math.Inf(1)
					}
					far[i], most[i] = max(far[i], difference), max(most[i], math.Abs(b[n]))
				}
				at += part.Count
			}
		}
	}
	return far, most
}

func bfloat16(x float32) float32 { return kernels.ToBFloat16(x).Float32() }

// Ranks on GPUs compute what the definition gives for the whole sequence, to the usual criterion,
// queued and recorded.
func TestRing(t *testing.T) {
	devices, list := networks(t)
	size := len(devices)
	causal := func(a *kernels.Attention) { a.Causal = kernels.CausalBottomRight }
	packed := func(ends ...int) func(a *kernels.Attention) {
		return func(a *kernels.Attention) { a.QLens, a.KVLens, a.Causal = ends, ends, kernels.CausalBottomRight }
	}
	for _, s := range []shared{
		{name: "full", d: 64},
		{name: "causal", d: 64, change: causal},
		{name: "causal, 128", d: 128, change: causal},
		{name: "causal, grouped heads", heads: 4, kv: 1, d: 128, change: causal},
		{name: "window", d: 64, change: func(a *kernels.Attention) { a.Window = &kernels.Window{Left: 150, Right: 30} }},
		{name: "causal window", d: 128, change: func(a *kernels.Attention) {
			a.Causal, a.Window = kernels.CausalBottomRight, &kernels.Window{Left: 300, Right: -1}
		}},
		{name: "soft cap", d: 64, change: func(a *kernels.Attention) { a.SoftCap = 5; causal(a) }},
		{name: "packed", d: 64, change: packed(0, 100, 101, 500, 500, 900, 1024)},
		{name: "packed, rows behind", d: 128, change: packed(0, 370, 700)},
		{name: "dropout", d: 64, change: func(a *kernels.Attention) { a.Dropout = kernels.Dropout{P: 0.2, Seed: 5, Step: 7}; causal(a) }},
		{name: "slopes", d: 128, heads: 4, kv: 2, change: func(a *kernels.Attention) { a.ALiBi = []float64{0.3, 0.02, 0.001, 0}; causal(a) }},
		{name: "packed, dropout, slopes and soft cap", d: 128, change: func(a *kernels.Attention) {
			packed(0, 101, 300, 805, 1000)(a)
			a.Dropout, a.ALiBi, a.SoftCap = kernels.Dropout{P: 0.6, Seed: 9}, []float64{0.1, 0.004}, 5
		}},
	} {
		s.length = 512 * size
		if s.heads == 0 {
			s.heads, s.kv = 2, 2
		}
		t.Run(s.name, func(t *testing.T) {
			s.draw()
			whole := &kernels.Attention{
				Q: kernels.Of(s.tensors[0], 1, s.heads, s.length, s.d), K: kernels.Of(s.tensors[1], 1, s.kv, s.length, s.d),
				V: kernels.Of(s.tensors[2], 1, s.kv, s.length, s.d),
			}
			if s.change != nil {
				s.change(whole)
			}
			dO := make([]float64, len(s.tensors[3]))
			for i, x := range s.tensors[3] {
				dO[i] = float64(x)
			}
			var want, unfused [5][]float64
			want[0], want[1] = reference.Attention(whole)
			exact := reference.AttentionGrad(whole, dO, nil)
			want[2], want[3], want[4] = exact.DQ, exact.DK, exact.DV
			m := reference.Arithmetic[float32]{Operand: bfloat16, Result: bfloat16}
			unfused[0], unfused[1] = m.Attention(whole, nil)
			rough := m.AttentionGrad(whole, dO, nil, nil)
			unfused[2], unfused[3], unfused[4] = rough.DQ, rough.DK, rough.DV
			for _, recorded := range []bool{false, true} {
				for rank, got := range s.ranked(t, devices, list, recorded) {
					far, most := s.distance(t, got, want, rank, size)
					for i, name := range sharedNames {
						pt := 0.0
						for n, x := range unfused[i] {
							if !math.IsInf(x, -1) {
								pt = max(pt, math.Abs(x-want[i][n]))
							}
						}
						if !(far[i] <= 2*pt+1e-6*most[i]) {
							t.Errorf("recorded=%v: rank %d: %s is up to %.3g from exact, unfused %.3g", recorded, rank, name, far[i], pt)
						}
					}
				}
			}
		})
	}
}

// A sequence of 64k tokens, causal: ranks are as near to one GPU's float32 as one GPU's bfloat16
// is, within a factor of two and what the parts' own rounding adds.
func TestRingLong(t *testing.T) {
	devices, list := networks(t)
	size := len(devices)
	s := shared{heads: 4, kv: 2, d: 128, length: 64 << 10, change: func(a *kernels.Attention) { a.Causal = kernels.CausalBottomRight }}
	s.draw()
	alone := func(dtype kernels.DType) [5][]float32 {
		one, err := s.on(devices[0], dtype, 0, 1)
		if err == nil {
			err = errors.Join(one.forward(devices[0], nil, nil), one.backward(devices[0], nil, nil))
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := one.results(devices[0])
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var want [5][]float64
	for i, list := range alone(kernels.F32) {
		want[i] = make([]float64, len(list))
		for n, x := range list {
			want[i][n] = float64(x)
		}
	}
	one, _ := s.distance(t, alone(kernels.BF16), want, 0, 1)
	for rank, got := range s.ranked(t, devices, list, false) {
		far, most := s.distance(t, got, want, rank, size)
		for i, name := range sharedNames {
			t.Logf("rank %d: %s: %.3g from float32, one GPU %.3g, largest %.3g", rank, name, far[i], one[i], most[i])
			if !(far[i] <= 2*one[i]+math.Pow(2, -8)*most[i]) {
				t.Errorf("rank %d: %s is up to %.3g from float32, one GPU's bfloat16 %.3g", rank, name, far[i], one[i])
			}
		}
	}
}

// random is on with numbers that repeat: for timing.
func (s shared) random(d *Device, size int) (shared, error) {
	const n = 1 << 20
	random, list := rand.New(rand.NewPCG(1, 2)), make([]float32, n)
	for i := range list {
		list[i] = float32(random.NormFloat64())
	}
	rows := s.length / size
	var loaded [8]kernels.Tensor // q, k, v, dO, and what is computed
	for i := range loaded {
		t, err := d.Alloc(kernels.BF16, rows*s.heads*s.d/n, n)
		if err != nil {
			return s, err
		}
		if i < 4 {
			for at := range t.Shape[0] {
				if err := d.Copy(t.Slice(0, at, at+1), kernels.Of(list, 1, n)); err != nil {
					return s, err
				}
			}
		}
		loaded[i] = t.Reshape(1, rows, s.heads, s.d).Permute(0, 2, 1, 3)
	}
	s.problem = &kernels.Attention{Q: loaded[0], K: loaded[1], V: loaded[2]}
	s.change(s.problem)
	s.dO, s.o, s.dq, s.dk, s.dv = loaded[3], loaded[4], loaded[5], loaded[6], loaded[7]
	for _, to := range []*kernels.Tensor{&s.lse, &s.delta} {
		var err error
		if *to, err = d.Alloc(kernels.F32, 1, s.heads, rows); err != nil {
			return s, err
		}
	}
	return s, nil
}

// BenchmarkRing times a long causal sequence on one GPU, and one of twice the length on two: the
// rate that each GPU has.
func BenchmarkRing(b *testing.B) {
	devices, list := networks(b)
	for _, c := range []struct {
		gpus, length int
		options      string
	}{
		{1, 64 << 10, ""}, {2, 128 << 10, ""}, {1, 128 << 10, ""}, {2, 256 << 10, ""},
		{1, 64 << 10, ", dropout"}, {2, 128 << 10, ", dropout"}, {1, 64 << 10, ", slopes"}, {2, 128 << 10, ", slopes"},
	} {
		s := shared{heads: 16, kv: 16, d: 128, length: c.length, change: func(a *kernels.Attention) {
			a.Causal = kernels.CausalBottomRight
			switch c.options {
			case ", dropout":
				a.Dropout.P = 0.1
			case ", slopes":
				a.ALiBi = slices.Repeat([]float64{0.001}, 16)
			}
		}}
		b.Run(fmt.Sprintf("%dk on %d%s", c.length>>10, c.gpus, c.options), func(b *testing.B) {
			var forward, backward [2]time.Duration
			var flops float64
			const rounds = 3
			for b.Loop() {
				everyone(b, devices[:c.gpus], func(rank int) error {
					d := devices[rank]
					own, err := s.random(d, c.gpus)
					if err != nil {
						return err
					}
					var ranks kernels.Ranks
					if c.gpus > 1 {
						ranks = member{list[rank], rank, c.gpus}
					}
					kept := map[string][]kernels.Tensor{}
					scratch := func(name string) ring.Scratch {
						n := 0
						return func(dtype kernels.DType, elements int) (kernels.Tensor, error) {
							if n == len(kept[name]) {
								t, err := d.Alloc(dtype, elements)
								if err != nil {
									return t, err
								}
								kept[name] = append(kept[name], t)
							}
							n++
							return kept[name][n-1], nil
						}
					}
					pairs := float64(c.length) * float64(c.length+1) / 2
					flops = pairs * 4 * float64(s.heads*s.d) / float64(c.gpus)
					for range rounds {
						var moments [3]kernels.Event
						if moments[0], err = d.Record(); err != nil {
							return err
						}
						if err := own.forward(d, ranks, scratch("forward")); err != nil {
							return err
						}
						if moments[1], err = d.Record(); err != nil {
							return err
						}
						if err := own.backward(d, ranks, scratch("backward")); err != nil {
							return err
						}
						if moments[2], err = d.Record(); err != nil {
							return err
						}
						if forward[rank], err = moments[1].Since(moments[0]); err != nil {
							return err
						}
						if backward[rank], err = moments[2].Since(moments[1]); err != nil {
							return err
						}
					}
					if rank == 0 {
						b.ReportMetric(float64(d.Memory().Peak)/(1<<30), "GiB")
					}
					return nil
				})
			}
			f, g := slices.Max(forward[:]), slices.Max(backward[:])
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(f.Seconds()*1e3, "ms/forward")
			b.ReportMetric(g.Seconds()*1e3, "ms/backward")
			b.ReportMetric(flops/f.Seconds()/1e12, "forward-TFLOP/s/GPU")
			b.ReportMetric(2.5*flops/g.Seconds()/1e12, "backward-TFLOP/s/GPU")
			b.ReportMetric(3.5*flops/(f+g).Seconds()/1e12, "TFLOP/s/GPU")
		})
	}
}
