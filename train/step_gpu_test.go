//go:build gpu

package train

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"gorgonia.org/tensor"
)

// This file times whole steps on the first GPU, as bench/gpu/step.py does those of PyTorch.

var (
	timedSteps = flag.Int("steps", 40, "steps of a benchmark; the first quarter is not timed")
	unrecorded = flag.Bool("unrecorded", false, "queue the kernels of each step one by one, none before the last step is done")
	timeline   = flag.Bool("timeline", false, "with -unrecorded: list where the time of the last step went")
)

// gpt is a GPT in bfloat16 with GPT-2's vocabulary, rounded up.
func gpt(layers, heads, dim, context, rows int) training {
	return training{rows: rows, compute: ops.BFloat16, model: nn.GPTConfig{
		Vocab: 50304, Context: context, Layers: layers, Heads: heads, Dim: dim,
	}}
}

// llama1B has TinyLlama's shape.
var llama1B = training{rows: 4, model: nn.GPTConfig{Vocab: 32000, Context: 2048}, compute: ops.BFloat16, llama: &nn.LlamaConfig{
	Vocab: 32000, Context: 2048, Layers: 22, Heads: 32, KVHeads: 4, Dim: 2048, Hidden: 5632,
}}

// layersOf8B is four layers of Llama 3's smallest model, with few words.
var layersOf8B = training{rows: 4, model: nn.GPTConfig{Vocab: 1024, Context: 4096}, compute: ops.BFloat16, llama: &nn.LlamaConfig{
	Vocab: 1024, Context: 4096, Layers: 4, Heads: 32, KVHeads: 8, Dim: 4096, Hidden: 14336,
	Block: func(_ int, b *nn.BlockConfig) { b.Init, b.ProjInit = cheap, cheap },
}}

// inFloat8 is a training whose blocks multiply in 8 bits.
func inFloat8(c training) training {
	c.precision = kernels.PrecisionFloat8
	return c
}

// byMuon is a training whose blocks' matrices are trained by Muon.
func byMuon(c training) training {
	c.change = func(l *LoopConfig) {
		l.Optimizer = Muon{WeightDecay: 0.1, MatchAdamW: true}
		l.Options.Groups = []Group{{
			Match: Any(Vectors, Named("tokens.*", "positions.*", "head.*")), Optimizer: AdamW{WeightDecay: 0.1},
		}}
	}
	return c
}

// ofRows is a training on batches of so many rows.
func ofRows(rows int, c training) training {
	c.rows = rows
	return c
}

// ofLength is a training of a Llama on rows of so many tokens.
func ofLength(length int, c training) training {
	shape := *c.llama
	shape.Context, c.model.Context, c.llama = length, length, &shape
	return c
}

// cheaply is a training of a Llama whose matrices begin with cheap numbers.
func cheaply(c training) training {
	shape := *c.llama
	shape.Block = func(_ int, b *nn.BlockConfig) { b.Init, b.ProjInit = cheap, cheap }
	c.llama = &shape
	return c
}

// loraOfLlama1B trains changes of rank 8 to all matrices of its blocks, which are kept in 16 bits.
func loraOfLlama1B() training {
	c, shape := llama1B, *llama1B.llama
	shape.Context = 1024
	shape.Block = func(_ int, b *nn.BlockConfig) { b.Init, b.ProjInit = cheap, cheap }
	c.rows, c.lora, c.kept, c.llama, c.model.Context = 8, 8, ops.BFloat16, &shape, 1024
	return c
}

// qloraOfLlama1B is the same beside weights of four bits.
func qloraOfLlama1B() training {
	c := loraOfLlama1B()
	c.kept = ops.NF4
	return c
}

// loraOfLlama8B trains changes of rank 8 to all matrices of Llama 3's smallest, in rows of so many
// tokens.
func loraOfLlama8B(rows, length int, kept tensor.Dtype) training {
	c := llama8B()
	c.llama.Context, c.model.Context = length, length
	c.rows, c.lora, c.kept = rows, 8, kept
	return c
}

// within is a training whose steps take so many bytes.
func within(c training, memory Bytes) training {
	c.change = func(l *LoopConfig) { l.Memory = memory }
	return c
}

// cheap numbers are no random ones, and made in a moment.
func cheap([]int, *rand.Rand) func() float64 {
	n := uint32(0)
	return func() float64 {
		n = n*1664525 + 1013904223
		return 0.04 * (float64(n>>8)/(1<<24) - 0.5)
	}
}

// overDocuments is a training over documents of a quarter of a row to a whole one, end to end.
func (c training) overDocuments() training {
	most, total := c.model.Context, c.rows*c.model.Context
	least := most / 4
	c.packed = func(n int) []int {
		random := rand.New(rand.NewPCG(9, uint64(n)))
		ends := make([]int, total/least+1)
		for i := range ends[1:] {
			ends[i+1] = min(ends[i]+least+random.IntN(most-least+1), total)
		}
		return ends
	}
	return c
}

// wideGPT is GPT-2-124M with activations of float32 too, and products as exact as given.
func wideGPT(precision kernels.Precision) training {
	c := gpt(12, 12, 768, 1024, 32)
	c.compute, c.precision = tensor.Float32, precision
	return c
}

// BenchmarkStepOnTheDevice is a step of training: forward, backward, clipping at 1, AdamW.
func BenchmarkStepOnTheDevice(b *testing.B) {
	characters := training{rows: 64, compute: ops.BFloat16, model: nn.GPTConfig{
		Vocab: 65, Context: 256, Layers: 6, Heads: 6, Dim: 384, Dropout: 0.2, NoBias: true, Activation: kernels.GELUErf,
	}}
	for _, c := range []struct {
		name string
		training
	}{
		{"GPT2-124M", gpt(12, 12, 768, 1024, 32)},
		{"GPT2-124M-packed", gpt(12, 12, 768, 1024, 32).overDocuments()},
		{"GPT2-124M-tf32", wideGPT(kernels.PrecisionTF32)},
		{"GPT2-124M-float32", wideGPT(kernels.PrecisionFloat32)},
		{"GPT2-124M-muon", byMuon(gpt(12, 12, 768, 1024, 32))},
		{"GPT2-350M", gpt(24, 16, 1024, 1024, 16)},
		{"Llama-1B", llama1B},
		{"Llama-1B-fp8", inFloat8(llama1B)},
		{"Llama-1B-32k", ofRows(16, llama1B)},
		{"Llama-1B-32k-muon", byMuon(ofRows(16, llama1B))},
		{"Llama-1B-128k-tokens-in-60GiB", within(ofRows(1, ofLength(128<<10, cheaply(llama1B))), 60<<30)},
		{"Llama-8B-layers", layersOf8B},
		{"Llama-8B-layers-fp8", inFloat8(layersOf8B)},
		{"Llama-8B-layers-8k", ofLength(8192, layersOf8B)},
		{"Llama-1B-LoRA", loraOfLlama1B()},
		{"Llama-1B-LoRA-in-7.7GiB", within(loraOfLlama1B(), 77<<30/10)},
		{"Llama-1B-QLoRA", qloraOfLlama1B()},
		{"Llama-8B-LoRA-2k", loraOfLlama8B(1, 2048, ops.BFloat16)},
		{"Llama-8B-QLoRA-2k", loraOfLlama8B(1, 2048, ops.NF4)},
		{"Llama-8B-QLoRA-2k-in-9GiB", within(loraOfLlama8B(1, 2048, ops.NF4), 9<<30)},
		{"Llama-8B-LoRA-4k-packed", loraOfLlama8B(2, 4096, ops.BFloat16).overDocuments()},
		{"Llama-1B-LoRA-packed", loraOfLlama1B().overDocuments()},
		{"characters", characters},
		{"characters-packed", characters.overDocuments()},
		{"128k-tokens", gpt(12, 12, 768, 128<<10, 1)},
	} {
		b.Run(c.name, func(b *testing.B) { c.measure(b) })
	}
}

// BenchmarkCheckpointOnTheDevice is what a checkpoint costs the steps beside it: a turn of steps
// that follows one, less a turn that follows none, over a step. TMPDIR says where it is written.
func BenchmarkCheckpointOnTheDevice(b *testing.B) {
	const turn = 60
	c := gpt(12, 12, 768, 1024, 32)
	c.device, c.steps = gpu(b), 5*turn
	folder, err := checkpoint.Open(b.TempDir(), 2)
	if err != nil {
		b.Fatal(err)
	}
	defer folder.Close()
	c.checkpoints = folder
	for b.Loop() {
		var turns []time.Duration
		began := time.Now()
		l := c.loop(b, Hook{OnStep: func(s Step) error {
			if s.Done%turn == 0 {
				turns, began = append(turns, time.Since(began)), time.Now()
			}
			return nil
		}, OnCheckpoint: func(k Checkpoint) error {
			b.Logf("step %d: written in %v", k.Done, k.Duration.Round(time.Millisecond))
			return nil
		}})
		l.c.CheckpointEvery = 2 * turn
		if _, err := l.Run(context.Background()); err != nil {
			b.Fatal(err)
		}
		step := turns[3].Seconds() / turn
		b.ReportMetric(step*1e3, "ms/step")
		b.ReportMetric((turns[2]-turns[3]).Seconds()/step, "steps/first-checkpoint")
		b.ReportMetric((turns[4]-turns[3]).Seconds()/step, "steps/second-checkpoint")
	}
}

// measure times the steps, and how long the host takes to queue one. The memory at most is that of
// the process, so it is said only of the benchmark that raises it.
func (c training) measure(b *testing.B) {
	c.device, c.steps = gpu(b), *timedSteps
	raw, err := cuda.Default()
	if err != nil {
		b.Fatal(err)
	}
	before := raw.Memory().Peak
	var took, queueing []time.Duration
	loss := 0.0
	l := c.loop(b, Hook{OnStep: func(s Step) error {
		took, loss = append(took, s.Duration), s.Loss
		return nil
	}})
	l.audience = newAudience(l.c.Hooks)
	if *unrecorded {
		l.training.unrecorded = errors.New("not wanted")
	}
	for b.Loop() {
		for n := range *timedSteps {
			var line *kernelTimes
			if *timeline && n == *timedSteps-1 {
				line = traceKernels(b)
			}
			begin := time.Now()
			q, err := l.queue(context.Background(), begin)
			if err != nil {
				b.Fatal(err)
			}
			queueing = append(queueing, time.Since(begin))
			if line != nil {
				line.list(b)
			}
			if *unrecorded {
				l.queued, q = q, nil
			}
			if err := l.report(); err != nil {
				b.Fatal(err)
			}
			l.queued = q
		}
		if err := l.report(); err != nil {
			b.Fatal(err)
		}
	}
	if !*unrecorded && l.training.last.recording == nil {
		b.Fatalf("the steps were not recorded: %v", l.training.unrecorded)
	}
	if needs, again := l.Memory(); needs > 0 {
		b.Logf("a step is to take %v, with %d parts computed again: %s", needs, len(again), strings.Join(again, " "))
	}
	b.Logf("the last loss is %v", loss)
	if len(took) < 8 {
		b.Logf("the steps took %v", took)
	}
	step := median(took[len(took)/4:])
	b.ReportMetric(float64(c.rows*c.model.Context)/step.Seconds(), "tokens/s")
	b.ReportMetric(step.Seconds()*1e3, "ms/step")
	b.ReportMetric(median(queueing[len(queueing)/4:]).Seconds()*1e3, "ms-queueing/step")
	if peak := raw.Memory().Peak; peak > before {
		b.ReportMetric(float64(peak)/(1<<30), "GiB-peak")
	}
}

// kernelTimes is a timeline: an event after each kernel.
type kernelTimes struct {
	device  *cuda.Device
	kernels []string
	events  []kernels.Event
}

// traceKernels begins a timeline with what is queued next. Events take a little time of their own,
// which the kernels before them are charged for.
func traceKernels(b *testing.B) *kernelTimes {
	raw, err := cuda.Default()
	if err != nil {
		b.Fatal(err)
	}
	t := &kernelTimes{device: raw}
	mark := func(kernel string) {
		e, err := raw.Record()
		if err != nil {
			b.Fatal(err)
		}
		t.kernels, t.events = append(t.kernels, kernel), append(t.events, e)
	}
	mark("")
	raw.Trace(mark)
	return t
}

// list ends the timeline and prints the kernels, those that take the longest together first.
func (t *kernelTimes) list(b *testing.B) {
	t.device.Trace(nil)
	times, counts, all := map[string]time.Duration{}, map[string]int{}, time.Duration(0)
	for i, e := range t.events[1:] {
		took, err := e.Since(t.events[i])
		if err != nil {
			b.Fatal(err)
		}
		times[t.kernels[1+i]] += took
		counts[t.kernels[1+i]]++
		all += took
	}
	fmt.Printf("%d kernels take %.3f ms\n", len(t.events)-1, all.Seconds()*1e3) // a benchmark's log is cut after ten lines
	names := slices.SortedFunc(maps.Keys(times), func(a, b string) int { return cmp.Compare(times[b], times[a]) })
	for _, name := range names {
		fmt.Printf("%9.1f µs %5.1f %% %4d × %s\n", times[name].Seconds()*1e6, 100*times[name].Seconds()/all.Seconds(), counts[name], name)
	}
}

func median(list []time.Duration) time.Duration {
	slices.Sort(list)
	return list[len(list)/2]
}
