//go:build gpu

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
)

// gpuName is the name of the GPU that gpu measures, empty if there is none.
func gpuName() string {
	d, err := cuda.Default()
	if err != nil {
		return ""
	}
	return d.Description()
}

// gpu measures attention on the first GPU. All times are the device's own, between events, and
// launches overlap them.
func gpu(s *session) error {
	d, err := cuda.Default()
	if err != nil {
		s.missing("GPU", err)
		return nil
	}
	g := &gpuSession{session: s, device: d, noise: newRandom().numbers(period)}
	if g.folder, err = os.MkdirTemp("", "stheno-bench"); err != nil {
		return err
	}
	defer os.RemoveAll(g.folder)
	if err := writeFloats(filepath.Join(g.folder, "noise"), g.noise); err != nil {
		return err
	}
	for _, p := range s.peerList {
		if p.name == "PyTorch" {
			g.torch = p
		}
	}
	g.openCeiling()
	if err := g.basics(); err != nil {
		return err
	}
	s.section("gpu-attention", "Attention on the GPU", "The grid of the FlashAttention papers: 16,384 tokens of width 2,048, forward, and backward with the delta "+
		"pre-pass; bfloat16 unless the series says float32. FLOPs are those of the products over visible pairs: 4·D a pair forward, 10·D backward. "+
		"Times are the device's. The ceiling is the rate of a bf16 product of 8192³ by PyTorch, in turns with the rest.")
	for _, a := range gpuGrid(s.quick) {
		if err := g.attention(a); err != nil {
			return err
		}
	}
	return nil
}

// gpuSession is what the sections of the GPU share.
type gpuSession struct {
	*session
	device *cuda.Device
	torch  *peer // nil without PyTorch
	folder string
	noise  []float32
}

// noiseStep is how far apart in the noise the tensors of a problem begin.
const noiseStep = 100_003

// openCeiling makes the rate of PyTorch's products the ceiling, where there is a PyTorch that sees
// the GPU.
func (g *gpuSession) openCeiling() {
	const size = 8192
	if g.torch == nil {
		g.missing("the ceiling of the GPU", errors.New("PyTorch measures it, which takes -peers and an installed PyTorch"))
		return
	}
	if _, err := g.torch.ask(request{Do: "gemm", Problem: gemm16, Device: "cuda", Size: size}); err != nil {
		g.missing("the ceiling of the GPU", err)
		return
	}
	seconds := g.theirs(gemm16, "gemm")
	g.gemm16 = func() (float64, error) {
		x, err := seconds(1)
		return 2 * size * size * size / x, err
	}
}

// theirs runs one of PyTorch's problems.
func (g *gpuSession) theirs(problem, pass string) func(times int) (float64, error) {
	return func(times int) (float64, error) {
		answer, err := g.torch.ask(request{Do: "run", Problem: problem, Pass: pass, Times: times})
		return answer.Seconds, err
	}
}

// timed takes the device's time for a number of calls.
func (g *gpuSession) timed(do func() error) contender {
	return contender{by: report.Ours, run: func(times int) (float64, error) {
		from, err := g.device.Record()
		if err != nil {
			return 0, err
		}
		for range times {
			if err := do(); err != nil {
				return 0, err
			}
		}
		to, err := g.device.Record()
		if err != nil {
			return 0, err
		}
		took, err := to.Since(from)
		return took.Seconds(), err
	}}
}

// basics measures a copy within the device's memory, and what a launch costs the host.
func (g *gpuSession) basics() error {
	g.section("gpu-device", "The GPU", "A copy of 1 GiB within its memory, which reads and writes that much. A launch is the host's time for each of many kernels "+
		"on one number, queued one after another and waited for at the end.")
	const elements = 1 << 28
	c := report.Case{Section: "gpu-device", Name: "copy", Work: 2 * 4 * elements, Unit: "B"}
	if g.wants(c) {
		from, err := g.device.Alloc(kernels.F32, elements)
		if err != nil {
			return err
		}
		to, err := g.device.Alloc(kernels.F32, elements)
		if err != nil {
			return err
		}
		if err := g.measure(c, g.timed(func() error { return g.device.Copy(to, from) })); err != nil {
			return err
		}
	}
	c = report.Case{Section: "gpu-device", Name: "launch"}
	if !g.wants(c) {
		return nil
	}
	one, err := g.device.Upload(kernels.Of([]float32{1}, 1))
	if err != nil {
		return err
	}
	const together = 1000
	return g.measure(c, contender{by: report.Ours, run: func(times int) (float64, error) {
		many := measure.Timed(g.clock, func() error {
			for range together {
				if err := g.device.MulScalar(1, one, one); err != nil {
					return err
				}
			}
			return g.device.Synchronize()
		})
		seconds, err := many(times)
		return seconds / together, err
	}})
}

// gpuShape is one problem of the GPU's grid.
type gpuShape struct {
	attentionShape
	dtype     kernels.DType
	precision kernels.Precision // of float32
	flex      bool              // FlexAttention, which is compiled for each shape, is asked too
}

func (a gpuShape) kind() string {
	kind := fmt.Sprintf("D=%d, %s", a.size, a.mask())
	if a.dtype == kernels.F32 {
		kind += ", float32"
		if a.precision == kernels.PrecisionTF32 {
			kind += " as TF32"
		}
	}
	return kind
}

// gpuGrid is the grid of the papers.
func gpuGrid(quick bool) []gpuShape {
	const tokens, width = 16384, 2048
	lengths := []int{512, 1024, 2048, 4096, 8192, 16384}
	if quick {
		lengths = []int{1024, 8192}
	}
	var all []gpuShape
	add := func(a gpuShape, group int) {
		a.batch, a.heads = max(1, tokens/a.length), width/a.size
		a.keyHeads = a.heads / group
		all = append(all, a)
	}
	for _, size := range []int{64, 128, 256} {
		for _, length := range lengths {
			a := gpuShape{attentionShape: attentionShape{length: length, size: size}, dtype: kernels.BF16, flex: size <= 128 && length == 8192}
			causal, window := a, a
			causal.causal = true
			window.causal, window.window = true, 1024
			add(a, 1)
			add(causal, 1)
			causal.flex = false
			add(causal, 4)
			if length > window.window {
				add(window, 1)
			}
		}
	}
	for _, size := range []int{64, 128} {
		for _, precision := range []kernels.Precision{kernels.PrecisionAuto, kernels.PrecisionTF32} {
			for _, causal := range []bool{false, true} {
				a := attentionShape{length: 4096, size: size, causal: causal}
				add(gpuShape{attentionShape: a, dtype: kernels.F32, precision: precision}, 1)
			}
		}
	}
	return all
}

// gpuPeers are PyTorch's kernels, by the names in its program and in the report.
var gpuPeers = [][2]string{
	{"cudnn", "PyTorch, cuDNN"}, {"flash", "PyTorch, FlashAttention-2"}, {"efficient", "PyTorch, memory-efficient"}, {"flex", "PyTorch, FlexAttention"},
}

func (g *gpuSession) attention(a gpuShape) error {
	var cases [2]report.Case
	wanted := false
	for i, pass := range passNames {
		cases[i] = report.Case{
			Section: "gpu-attention", Series: pass + ", " + a.kind(), Name: fmt.Sprintf("S=%d", a.length), Setup: a.setup(), X: float64(a.length), Unit: "FLOP",
		}
		if a.dtype == kernels.BF16 {
			cases[i].Ceiling, cases[i].Figure = gemm16, fmt.Sprintf("gpu-attention-%s-d%d", pass, a.size)
		}
		wanted = wanted || g.wants(cases[i])
	}
	if !wanted {
		return nil
	}
	p, err := g.problem(a)
	if err != nil {
		return fmt.Errorf("%s: %w", cases[0].Key(), err)
	}
	passes := [2]func() error{
		func() error { return g.device.AttentionForward(&p.Attention, p.out) },
		func() error {
			if err := g.device.AttentionDelta(&p.Attention, p.out.O, p.g.DO, kernels.Tensor{}, p.g.Delta); err != nil {
				return err
			}
			return g.device.AttentionBackward(&p.Attention, p.g)
		},
	}
	if err := passes[0](); err != nil { // backward needs what forward saves
		g.missing("stheno, "+cases[0].Key(), err)
		return nil
	}
	open := g.openPeers(a)
	results := [2][]kernels.Tensor{{p.out.O}, {p.g.DQ, p.g.DK, p.g.DV}}
	for i, c := range cases {
		if !g.wants(c) {
			continue
		}
		if err := passes[i](); err != nil {
			g.missing("stheno, "+c.Key(), err)
			continue
		}
		c.Work = []float64{p.ForwardFLOPs(), p.BackwardFLOPs()}[i]
		contenders := []contender{g.timed(passes[i])}
		for _, kernel := range open {
			contenders = append(contenders, contender{
				by: kernel[1], run: g.theirs(kernel[0], passNames[i]),
				differs: func() (float64, error) { return g.differs(kernel[0], i, results[i]) },
			})
		}
		if err := g.measure(c, contenders...); err != nil {
			return err
		}
	}
	for _, kernel := range open {
		if _, err := g.torch.ask(request{Do: "close", Problem: kernel[0]}); err != nil {
			g.missing(kernel[1]+", "+a.kind(), errors.New(lastLine(err.Error())))
		}
	}
	return nil
}

// openPeers gives the problem to those of PyTorch's kernels that can do it.
func (g *gpuSession) openPeers(a gpuShape) [][2]string {
	var open [][2]string
	if g.torch == nil {
		return nil
	}
	for _, kernel := range gpuPeers {
		if kernel[0] == "flex" && !a.flex {
			continue
		}
		_, err := g.torch.ask(request{
			Do: "attention", Problem: kernel[0], Device: "cuda", Kernel: kernel[0], DType: a.dtype.String(), Folder: g.folder, NoiseStep: noiseStep,
			Batch: a.batch, Heads: a.heads, KeyHeads: a.keyHeads, Length: a.length, Size: a.size, Causal: a.causal, Window: a.window,
		})
		if err != nil {
			g.missing(kernel[1]+", "+a.kind(), errors.New(lastLine(err.Error())))
			continue
		}
		open = append(open, kernel)
	}
	return open
}

// problem makes the tensors on the device: q, k, v and dO of the noise that peers have too, the
// rest undefined.
func (g *gpuSession) problem(a gpuShape) (*attentionProblem, error) {
	var failed error
	alloc := func(dtype kernels.DType, shape ...int) kernels.Tensor {
		t, err := g.device.Alloc(dtype, shape...)
		failed = errors.Join(failed, err)
		return t
	}
	filled := 0
	fill := func(t kernels.Tensor) kernels.Tensor {
		if failed == nil {
			failed = g.fill(t, filled*noiseStep)
		}
		filled++
		return t
	}
	queries := func() kernels.Tensor { return alloc(a.dtype, a.batch, a.heads, a.length, a.size) }
	keys := func() kernels.Tensor { return alloc(a.dtype, a.batch, a.keyHeads, a.length, a.size) }
	rows := func() kernels.Tensor { return alloc(kernels.F32, a.batch, a.heads, a.length) }
	p := &attentionProblem{Attention: kernels.Attention{Q: fill(queries()), K: fill(keys()), V: fill(keys()), Precision: a.precision}}
	if a.causal {
		p.Causal = kernels.CausalBottomRight
	}
	if a.window > 0 {
		p.Window = &kernels.Window{Left: a.window, Right: -1}
	}
	p.out = kernels.AttentionOutputs{O: queries(), LSE: rows()}
	p.g = kernels.AttentionGradients{DO: fill(queries()), LSE: p.out.LSE, Delta: rows(), DQ: queries(), DK: keys(), DV: keys()}
	return p, failed
}

// fill writes the noise from a place on into a tensor, over and over.
func (g *gpuSession) fill(t kernels.Tensor, from int) error {
	n := t.Elements()
	bytes := make([]byte, n*t.DType.Size())
	for i := range n {
		bits := math.Float32bits(g.noise[(from+i)%len(g.noise)])
		if t.DType == kernels.F32 {
			binary.LittleEndian.PutUint32(bytes[4*i:], bits)
		} else {
			binary.LittleEndian.PutUint16(bytes[2*i:], bfloat16(bits))
		}
	}
	return g.device.UploadBytes(t, unsafe.Pointer(unsafe.SliceData(bytes)))
}

// bfloat16 rounds a float32 that is no NaN to the nearest, ties to even, as PyTorch does.
func bfloat16(bits uint32) uint16 { return uint16((bits + 0x7fff + bits>>16&1) >> 16) }

// differs compares the last head of the last batch item with what PyTorch has.
func (g *gpuSession) differs(problem string, pass int, ours []kernels.Tensor) (float64, error) {
	if _, err := g.torch.ask(request{Do: "write", Problem: problem, Folder: g.folder, Pass: passNames[pass]}); err != nil {
		return 0, err
	}
	worst := 0.0
	for i, name := range resultFiles[pass] {
		t := ours[i]
		head := t.Slice(0, t.Shape[0]-1, t.Shape[0]).Slice(1, t.Shape[1]-1, t.Shape[1])
		list := make([]float32, head.Elements())
		if t.DType == kernels.F32 {
			if err := g.device.DownloadBytes(head, unsafe.Pointer(unsafe.SliceData(list))); err != nil {
				return 0, err
			}
		} else {
			half := make([]uint16, len(list))
			if err := g.device.DownloadBytes(head, unsafe.Pointer(unsafe.SliceData(half))); err != nil {
				return 0, err
			}
			for j, x := range half {
				list[j] = math.Float32frombits(uint32(x) << 16)
			}
		}
		theirs, err := readFloats(filepath.Join(g.folder, name), len(list))
		if err != nil {
			return 0, err
		}
		worst = max(worst, difference(list, theirs))
	}
	return worst, nil
}
