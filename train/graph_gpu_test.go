//go:build gpu

package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// gpu is the first GPU. Tests are skipped where there is none.
func gpu(t testing.TB) *ops.Device {
	t.Helper()
	if ops.Devices() == 0 {
		t.Skip("this machine has no GPU")
	}
	d, err := ops.OpenDevice(0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// training is a language model on tokens that have something to learn.
type training struct {
	device       *ops.Device
	model        nn.GPTConfig
	compute      tensor.Dtype
	llama        *nn.LlamaConfig // in place of model, whose Vocab and Context are this one's too
	rows, steps  int
	packed       func(n int) []int // where the sequences of batch n end that lie end to end in all rows; nil for a sequence a row
	accumulation int
	precision    kernels.Precision // of products of float32
	scaling      *LossScaling
	noise        int // how many tokens may follow one that is known: the losses go to the logarithm of that
	prepare      func(*Loop)
	ranks        *distributed.Group
	shard        bool
	holds        bool               // the weights are shared out
	sharers      *distributed.Group // of sequences, nil for none
	mesh         PlaceConfig        // what else ranks share, and how many do
	checkpoints  *checkpoint.Folder
	resume       bool
	change       func(*LoopConfig) // nil for nothing
	lora         int               // the rank of the changes that are trained; 0 trains all
	kept         tensor.Dtype      // of the weights beside them, embeddings in bfloat16; none for all in float32
}

func (c training) batches(t testing.TB) data.Batches {
	t.Helper()
	ids := make([]int, max(1<<19, 2*c.model.Context+2)) // more than 200 steps take
	for i := range ids {
		ids[i] = (i*i/7 + i/3) % c.model.Vocab
	}
	random := rand.New(rand.NewPCG(3, 0))
	for i := 1; c.noise > 0 && i < len(ids); i++ {
		ids[i] = (3*ids[i-1] + random.IntN(c.noise)) % c.model.Vocab
	}
	tokens, err := data.FromInts(ids)
	if err != nil {
		t.Fatal(err)
	}
	if c.packed != nil {
		return data.Func(func(n int) (data.Batch, error) { return packedBatch(ids, c.rows*c.model.Context, n, c.packed(n)), nil })
	}
	batches, err := data.Random(tokens, c.rows, c.model.Context, 1)
	if err != nil {
		t.Fatal(err)
	}
	return batches
}

func (c training) loop(t testing.TB, hook Hook) *Loop {
	t.Helper()
	batches := c.batches(t)
	here := &Place{device: c.device, ranks: c.ranks, sequenceRanks: c.sharers, sharedFiles: c.resume}
	switch {
	case c.holds:
		here.shard = ShardWeights
	case c.shard:
		here.shard = ShardState
	}
	if err := here.split(c.mesh); err != nil {
		t.Fatal(err)
	}
	parameters, err := here.NewParameters(3)
	if err == nil && c.lora > 0 {
		err = parameters.SetLoRA(nn.LoRA{Rank: c.lora})
		if c.llama != nil {
			err = errors.Join(err, c.keep(parameters), c.copyOneBlock(parameters))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	config := LoopConfig{
		Place: here, Data: batches, Steps: c.steps, Hooks: []Hook{hook}, Checkpoints: c.checkpoints,
		Parameters: parameters,
		Model: func(s *nn.Scope, in Inputs) Outputs {
			if err := ops.ModeOf(s.Graph()).AllowPrecision(c.precision); err != nil {
				return Outputs{Loss: s.Fail(err)}
			}
			var m *nn.LanguageModel
			if s = s.Compute(c.compute); c.llama != nil {
				m = nn.NewLlama(s, *c.llama)
			} else {
				m = nn.NewGPT(s, c.model)
			}
			tokens, targets := in.Get("tokens"), in.Get("targets")
			if c.packed != nil {
				return Outputs{Loss: m.LossPacked(tokens, targets, nn.Packing{Ends: in.Get("ends"), Positions: in.Get("positions")})}
			}
			return Outputs{Loss: m.Loss(tokens, targets)}
		},
		Optimizer: AdamW{WeightDecay: 0.1}, Options: Options{Schedule: ConstantRate(1e-3), ClipNorm: 1, Accumulation: c.accumulation, LossScaling: c.scaling},
	}
	if c.change != nil {
		c.change(&config)
	}
	l, err := NewLoop(config)
	if err != nil {
		t.Fatal(err)
	}
	if c.prepare != nil {
		c.prepare(l)
	}
	if c.resume {
		if _, err := l.Resume(); err != nil && !errors.Is(err, checkpoint.ErrNone) {
			t.Fatal(err)
		}
	}
	return l
}

// keep lets parameters be in the type of the training's frozen weights.
func (c training) keep(p *nn.Parameters) error {
	if c.kept == (tensor.Dtype{}) {
		return nil
	}
	return errors.Join(p.KeepWeights(c.kept), p.KeepEmbeddings(ops.BFloat16))
}

// copyOneBlock gives all blocks the values of one, since those of billions of parameters take
// minutes to make.
func (c training) copyOneBlock(p *nn.Parameters) error {
	one, shape := nn.NewParameters(3), *c.llama
	shape.Layers = 1
	table := make([]float32, shape.Vocab*shape.Dim)
	next := cheap(nil, nil)
	for i := range table {
		table[i] = float32(next())
	}
	rows, err := tensor.New(tensor.WithShape(shape.Vocab, shape.Dim), tensor.WithBacking(table)), error(nil)
	if c.kept != (tensor.Dtype{}) {
		rows, err = ops.Converted(rows, ops.BFloat16)
	}
	if err == nil {
		err = errors.Join(one.SetLoRA(nn.LoRA{Rank: c.lora}), c.keep(one), one.Set("tokens.weight", rows), one.Set("head.weight", rows))
	}
	if err != nil {
		return err
	}
	s := nn.NewScope(gorgonia.NewGraph(), one)
	nn.NewLlama(s, shape)
	if err := s.Err(); err != nil {
		return err
	}
	for _, name := range one.Names() {
		names := []string{name}
		if behind, ok := strings.CutPrefix(name, "blocks.0."); ok {
			for i := range c.llama.Layers - 1 {
				names = append(names, fmt.Sprintf("blocks.%d.%s", i+1, behind))
			}
		}
		for _, each := range names {
			value := one.Value(name)
			if strings.Contains(name, ".lora_") { // on the host blocks would train one tensor
				value = value.Clone().(*tensor.Dense)
			}
			if err := p.Set(each, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// losses are those of all steps, and the weights afterwards.
func (c training) losses(t testing.TB) (losses []float64, weights [][]float32, l *Loop) {
	t.Helper()
	l = c.loop(t, Hook{OnStep: func(s Step) error {
		losses = append(losses, s.Loss)
		return nil
	}})
	if _, err := l.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, n := range l.Parameters() {
		v, err := ops.Download(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, slices.Clone(v.Float32s()))
	}
	return losses, weights, l
}

// A training on the device has the losses of one on the host, in float32 and in 16 bits; recorded
// steps have the bits of those that are not.
func TestTrainingOnTheDevice(t *testing.T) {
	d := gpu(t)
	gpt := nn.GPTConfig{Vocab: 67, Context: 64, Layers: 2, Heads: 4, Dim: 64}
	for _, base := range []training{
		{model: gpt, rows: 4, steps: 40, accumulation: 1},
		{model: gpt, rows: 4, steps: 40, accumulation: 3},
		{model: gpt, rows: 4, steps: 40, accumulation: 1, llama: &nn.LlamaConfig{Vocab: gpt.Vocab, Context: gpt.Context, Layers: 2, Heads: 4, KVHeads: 2, Dim: 64}},
	} {
		base.compareWithTheHost(t, d)
	}
}

func (c training) compareWithTheHost(t *testing.T, d *ops.Device) {
	name := fmt.Sprintf("%d runs a step", c.accumulation)
	if c.llama != nil {
		name += " of Llama"
	}
	want, _, _ := c.losses(t)
	if !(want[len(want)-1] < want[0]-0.2) {
		t.Fatalf("%s: the losses on the host go from %v to %v: nothing is learnt", name, want[0], want[len(want)-1])
	}
	c.device = d
	exact := math.NaN()
	for _, way := range []struct {
		name      string
		compute   tensor.Dtype
		precision kernels.Precision
		bound     float64
	}{
		{"float32", tensor.Float32, kernels.PrecisionAuto, 1e-6}, {"TF32", tensor.Float32, kernels.PrecisionTF32, 2e-4},
		{"bfloat16", ops.BFloat16, kernels.PrecisionAuto, 8e-4}, {"float16", ops.Float16, kernels.PrecisionAuto, 1.5e-4},
		{"fp8", ops.BFloat16, kernels.PrecisionFloat8, 3e-3},
	} {
		c, compute, bound := c, way.compute, way.bound
		name := way.name + ", " + name
		c.compute, c.precision = compute, way.precision
		if compute == ops.Float16 {
			c.scaling = &LossScaling{Initial: 1 << 12, Interval: 8}
		}
		recorded, weights, l := c.losses(t)
		if l.training.last.recording == nil {
			t.Errorf("%s: the steps were not recorded: %v", name, l.training.unrecorded)
		}
		worst := 0.0
		for i := range want {
			worst = max(worst, math.Abs(recorded[i]-want[i])/want[i])
		}
		t.Logf("%s: losses from %.4f to %.4f, at most %.2g from the host's", name, recorded[0], recorded[len(recorded)-1], worst)
		if !(worst <= bound) {
			t.Errorf("%s: the losses are %v, on the host %v", name, recorded, want)
		}
		last := recorded[len(recorded)-1]
		if way.precision == kernels.PrecisionTF32 && last == exact {
			t.Errorf("%s: the last loss is float32's, %v: the products are as exact", name, last)
		}
		if way.name == "float32" {
			exact = last
		}
		c.prepare = func(l *Loop) { l.training.unrecorded = errors.New("not wanted") }
		plain, plainWeights, _ := c.losses(t)
		if !slices.Equal(plain, recorded) || !slices.EqualFunc(weights, plainWeights, slices.Equal) {
			t.Errorf("%s: unrecorded losses are %v, recorded ones %v", name, plain, recorded)
		}
	}
}

// A training within a budget that keeps what attention has computed, and computes the rest again,
// has the bits of one without, and is recorded.
func TestBudgetKeepsAttentionOnTheDevice(t *testing.T) {
	const context = 8192
	c := training{
		device: gpu(t), model: nn.GPTConfig{Vocab: 67, Context: context}, rows: 1, steps: 8, compute: ops.BFloat16,
		llama: &nn.LlamaConfig{Vocab: 67, Context: context, Layers: 4, Heads: 2, KVHeads: 1, Dim: 128, Hidden: 384,
			Attention: ops.AttentionOptions{Guarantees: kernels.Guarantees{Deterministic: true}},
		},
	}
	budget := Bytes(1 << 50)
	c.change = func(l *LoopConfig) { l.Memory = budget }
	want, weights, whole := c.losses(t)
	needs, again := whole.Memory()
	if len(again) > 0 {
		t.Errorf("%v is computed again, the budget needs nothing", again)
	}
	for _, part := range []float64{0.6, 0.5} {
		budget = Bytes(part * float64(needs))
		got, gotWeights, l := c.losses(t)
		least, again := l.Memory()
		t.Logf("%v of %v: %v", least, needs, again)
		if !slices.ContainsFunc(again, func(name string) bool { return strings.HasSuffix(name, "/keeps-attention") }) {
			t.Errorf("%v is computed again within %v, no region keeps attention", again, budget)
		}
		if l.training.last.recording == nil {
			t.Errorf("within %v the steps were not recorded: %v", budget, l.training.unrecorded)
		}
		if !slices.Equal(got, want) || !slices.EqualFunc(gotWeights, weights, slices.Equal) {
			t.Errorf("within %v the losses are %v, without a budget %v, or weights differ", budget, got, want)
		}
	}
}

// A training of changes of low rank has the losses of one on the host, beside weights that are kept
// in 16 bits or packed; recorded steps have the bits of those that are not.
func TestLoRAOnTheDevice(t *testing.T) {
	d := gpu(t)
	for _, kept := range []tensor.Dtype{ops.BFloat16, ops.Int8, ops.Int4, ops.NF4} {
		c := training{
			model: nn.GPTConfig{Vocab: 67, Context: 64}, rows: 4, steps: 60, lora: 8, kept: kept,
			llama: &nn.LlamaConfig{Vocab: 67, Context: 64, Layers: 2, Heads: 4, KVHeads: 2, Dim: 64, Hidden: 192},
		}
		want, _, _ := c.losses(t)
		c.device, c.compute = d, ops.BFloat16
		recorded, weights, l := c.losses(t)
		if l.training.last.recording == nil {
			t.Errorf("%v: the steps were not recorded: %v", kept, l.training.unrecorded)
		}
		worst, last := 0.0, len(want)-1
		for i, x := range want {
			worst = max(worst, math.Abs(recorded[i]-x)/x)
		}
		t.Logf("%v: losses from %.4f to %.4f, on the host to %.4f, at most %.2g from those", kept, recorded[0], recorded[last], want[last], worst)
		if !(worst <= 2e-4) || !(want[last] < want[0]-0.02) {
			t.Errorf("%v: the losses are %v, on the host %v", kept, recorded, want)
		}
		c.prepare = func(l *Loop) { l.training.unrecorded = errors.New("not wanted") }
		plain, plainWeights, _ := c.losses(t)
		if !slices.Equal(plain, recorded) || !slices.EqualFunc(weights, plainWeights, slices.Equal) {
			t.Errorf("%v: unrecorded losses are %v, recorded ones %v", kept, plain, recorded)
		}
	}
}

// Other optimisers, groups with optimisers of their own and an average of the weights have on a
// device the losses of the host, recorded and not.
func TestOptimizersOnTheDevice(t *testing.T) {
	d := gpu(t)
	average := func(o *Options) { o.Average = &Average{Decay: 0.9} }
	for name, change := range map[string]func(l *LoopConfig){
		"Muon": func(l *LoopConfig) {
			l.Optimizer = Muon{WeightDecay: 0.1, MatchAdamW: true}
			l.Options.Groups = []Group{{Match: Vectors, Optimizer: AdamW{}, NoDecay: true}}
			average(&l.Options)
		},
		"Adafactor": func(l *LoopConfig) {
			l.Optimizer, l.Options.Schedule = Adafactor{}, ConstantRate(0.03)
			average(&l.Options)
		},
		"Lion and momentum in groups": func(l *LoopConfig) {
			l.Optimizer = Lion{WeightDecay: 0.1}
			l.Options.Groups = []Group{{Match: Vectors, Optimizer: SGD{Momentum: 0.9}, NoDecay: true}}
		},
	} {
		c := training{model: nn.GPTConfig{Vocab: 67, Context: 64, Layers: 2, Heads: 4, Dim: 64}, rows: 4, steps: 20, accumulation: 1, change: change}
		averaged := func(l *Loop) (list []float32) {
			if l.c.Options.Average == nil {
				return nil
			}
			if err := l.Stepper().WithAverage(func() error {
				for _, n := range l.Parameters() {
					v, err := ops.Download(n.Value())
					if err != nil {
						return err
					}
					list = append(list, v.Float32s()...)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return list
		}
		want, _, host := c.losses(t)
		if !(want[len(want)-1] < want[0]-0.05) {
			t.Errorf("%s: the losses on the host are %v: nothing is learnt", name, want)
		}
		wantAverage := averaged(host)
		c.device = d
		recorded, weights, l := c.losses(t)
		if l.training.last.recording == nil {
			t.Errorf("%s: the steps were not recorded: %v", name, l.training.unrecorded)
		}
		for i, x := range want {
			if !(math.Abs(recorded[i]-x) <= 1e-4*x) {
				t.Errorf("%s: the losses are %v, on the host %v", name, recorded, want)
				break
			}
		}
		for i, x := range averaged(l) {
			if !(math.Abs(float64(x-wantAverage[i])) <= 2e-3) {
				t.Errorf("%s: number %d of the average is %v, on the host %v", name, i, x, wantAverage[i])
				break
			}
		}
		c.prepare = func(l *Loop) { l.training.unrecorded = errors.New("not wanted") }
		plain, plainWeights, _ := c.losses(t)
		if !slices.Equal(plain, recorded) || !slices.EqualFunc(weights, plainWeights, slices.Equal) {
			t.Errorf("%s: unrecorded losses are %v, recorded ones %v", name, plain, recorded)
		}
	}
}

var exchange = flag.String("exchange", "", "folder to which TestLosses writes weights, batches and losses, for bench/gpu/step.py")

// The losses of 200 steps in bfloat16 are those in float32 within half a per cent.
func TestLosses(t *testing.T) {
	c := training{device: gpu(t), model: nn.GPTConfig{Vocab: 67, Context: 128, Layers: 4, Heads: 4, Dim: 256}, rows: 16, steps: 200, noise: 8}
	if *exchange != "" {
		c.prepare = func(l *Loop) { c.write(t, l) }
	}
	wide, _, _ := c.losses(t)
	if *exchange != "" {
		c.describe(t, wide)
	}
	c.prepare, c.compute = nil, ops.BFloat16
	narrow, _, _ := c.losses(t)
	worst := 0.0
	for i := range wide {
		worst = max(worst, math.Abs(narrow[i]/wide[i]-1))
	}
	t.Logf("float32 from %.4f to %.4f, bfloat16 at most %.2g from it", wide[0], wide[len(wide)-1], worst)
	if !(worst <= 5e-3) || !(wide[len(wide)-1] < wide[0]-0.5) {
		t.Errorf("float32's losses are %v, bfloat16's %v", wide, narrow)
	}
}

// write leaves the loop's weights as they are, and the batches of all steps, in the folder.
func (c training) write(t *testing.T, l *Loop) {
	save := func(name string, data any) {
		var file bytes.Buffer
		if err := errors.Join(binary.Write(&file, binary.LittleEndian, data), os.WriteFile(filepath.Join(*exchange, name), file.Bytes(), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range l.Parameters() {
		v, err := ops.Download(n.Value())
		if err != nil {
			t.Fatal(err)
		}
		save(n.Name(), v.Float32s())
	}
	batches, all := c.batches(t), []int64{}
	for n := range c.steps {
		b, err := batches.Batch(n)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"tokens", "targets"} {
			for _, id := range b[name].Ints() {
				all = append(all, int64(id))
			}
		}
	}
	save("batches", all)
}

// describe says in the folder what the model is and what its losses were.
func (c training) describe(t *testing.T, losses []float64) {
	shapes := map[string][]int{}
	for _, n := range c.loop(t, Hook{}).Parameters() {
		shapes[n.Name()] = n.Shape()
	}
	text, err := json.Marshal(map[string]any{
		"Parameters": shapes, "Rows": c.rows, "Length": c.model.Context, "Layers": c.model.Layers, "Heads": c.model.Heads,
		"Rate": 1e-3, "Decay": 0.1, "Losses": losses,
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(*exchange, "about.json"), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Dropout has the host's masks in every step, and a training with it has the same bits recorded,
// unrecorded, and with blocks that are computed again.
func TestDropoutOnTheDevice(t *testing.T) {
	d := gpu(t)
	for _, accumulation := range []int{1, 2} {
		base := training{model: nn.GPTConfig{Vocab: 67, Context: 64, Layers: 2, Heads: 4, Dim: 64, Dropout: 0.2}, rows: 4, steps: 12, accumulation: accumulation}
		want, _, _ := base.losses(t)
		for _, compute := range []tensor.Dtype{tensor.Float32, ops.BFloat16} {
			c := base
			c.device, c.compute = d, compute
			recorded, weights, l := c.losses(t)
			if l.training.last.recording == nil {
				t.Errorf("%v: the steps were not recorded: %v", compute, l.training.unrecorded)
			}
			for i := range want {
				if bound := map[tensor.Dtype]float64{tensor.Float32: 1e-4, ops.BFloat16: 1e-2}[compute]; !(math.Abs(recorded[i]-want[i]) <= bound*want[i]) {
					t.Fatalf("%v, %d runs a step: the losses are %v, on the host %v", compute, accumulation, recorded, want)
				}
			}
			c.model.Recompute = true
			again, againWeights, _ := c.losses(t)
			if !slices.Equal(again, recorded) || !slices.EqualFunc(weights, againWeights, slices.Equal) {
				t.Errorf("%v, %d runs a step: losses of blocks that are computed again are %v, of others %v", compute, accumulation, again, recorded)
			}
			c.model.Recompute = false
			c.prepare = func(l *Loop) { l.training.unrecorded = errors.New("not wanted") }
			plain, plainWeights, _ := c.losses(t)
			if !slices.Equal(plain, recorded) || !slices.EqualFunc(weights, plainWeights, slices.Equal) {
				t.Errorf("%v, %d runs a step: unrecorded losses are %v, recorded ones %v", compute, accumulation, plain, recorded)
			}
		}
	}
}

// A training within a budget of memory computes parts of blocks again, and has the bits of one
// without, recorded; less of the device is in use, by what was estimated. Attention adds up in a
// fixed order: float32's would otherwise have other bits in each run, budget or not.
func TestBudgetOnTheDevice(t *testing.T) {
	d := gpu(t)
	raw, err := cuda.Default()
	if err != nil {
		t.Fatal(err)
	}
	inUse := func() (live int) { // by what is alive: a value that died is found in some rounds
		for same := 0; same < 4; same++ {
			runtime.GC()
			time.Sleep(5 * time.Millisecond)
			if now := raw.Memory().Live; now != live {
				live, same = now, -1
			}
		}
		return live
	}
	fixed := ops.AttentionOptions{Guarantees: kernels.Guarantees{Deterministic: true}}
	base := training{device: d, rows: 16, steps: 6, model: nn.GPTConfig{Vocab: 67, Context: 256, Layers: 4, Heads: 4, Dim: 256, Dropout: 0.1, Attention: fixed}}
	llama := base
	llama.llama = &nn.LlamaConfig{Vocab: 67, Context: 256, Layers: 4, Heads: 4, KVHeads: 2, Dim: 256, QKNorm: true, Attention: fixed}
	for name, c := range map[string]training{"GPT": base, "Llama": llama} {
		for _, compute := range []tensor.Dtype{tensor.Float32, ops.BFloat16} {
			c.compute = compute
			run := func(budget Bytes) (losses []float64, weights [][]float32, needs, takes Bytes, again []string) {
				before := inUse()
				c.change = func(l *LoopConfig) {
					l.Memory = budget
					l.Hooks = append(l.Hooks, Hook{OnStep: func(s Step) error {
						if s.Done == 2 { // before anything is recorded
							takes = Bytes(inUse() - before)
						}
						return nil
					}})
				}
				losses, weights, l := c.losses(t)
				if l.training.last.recording == nil {
					t.Errorf("%s in %v: the steps were not recorded: %v", name, compute, l.training.unrecorded)
				}
				needs, again = l.Memory()
				t.Logf("%s in %v, %v: %v estimated, %v in use, computed again: %v", name, compute, budget, needs, takes, again)
				return losses, weights, needs, takes, again
			}
			want, wantWeights, whole, most, again := run(1 << 40)
			if len(again) > 0 {
				t.Errorf("%s in %v: %v is computed again, the budget needs nothing", name, compute, again)
			}
			same, sameWeights, _, _, _ := run(1 << 40)
			if !slices.Equal(same, want) || !slices.EqualFunc(sameWeights, wantWeights, slices.Equal) {
				t.Errorf("%s in %v: two runs without a budget differ, the losses are %v and %v", name, compute, same, want)
			}
			for _, part := range []float64{0.85, 0.7} {
				budget := Bytes(part * float64(whole))
				losses, weights, needs, takes, again := run(budget)
				if needs > budget || len(again) == 0 {
					t.Errorf("%s in %v: a step needs %v of %v, with %v computed again", name, compute, needs, budget, again)
				}
				if !slices.Equal(losses, want) || !slices.EqualFunc(weights, wantWeights, slices.Equal) {
					t.Errorf("%s in %v: losses with a budget of %v are %v, without %v", name, compute, budget, losses, want)
				}
				if saved := most - takes; saved < (whole-needs)/2 {
					t.Errorf("%s in %v: %v are in use with a budget of %v, %v without, which saves %v of the %v estimated",
						name, compute, takes, budget, most, saved, whole-needs)
				}
			}
		}
	}
}

// A training whose weights are broken goes back on a device as on the host, and goes on with the
// same losses; what was recorded before reads what the checkpoint gave. A device has a step queued
// when the one before it is reported, so what is written then is read a step later than on the
// host.
func TestGoingBackOnTheDevice(t *testing.T) {
	run := func(device *ops.Device, compute tensor.Dtype, broken int) (losses []float64, backs []Back) {
		folder, err := checkpoint.Open(filepath.Join(t.TempDir(), "checkpoints"), 4)
		if err != nil {
			t.Fatal(err)
		}
		c := training{device: device, compute: compute, model: nn.GPTConfig{Vocab: 67, Context: 64, Layers: 2, Heads: 4, Dim: 64}, rows: 4, steps: 16, checkpoints: folder}
		c.change = func(l *LoopConfig) {
			l.CheckpointEvery, l.GoBack = 2, &GoBack{Window: 4, Skips: 2}
			l.Hooks = append(l.Hooks, Hook{OnBack: func(b Back) error { backs = append(backs, b); return nil }})
		}
		var l *Loop
		l = c.loop(t, Hook{OnStep: func(s Step) error {
			losses = append(losses, s.Loss)
			if s.Done != broken || len(backs) > 0 {
				return nil
			}
			for _, n := range l.Parameters() {
				v, err := ops.Download(n.Value())
				if err != nil {
					return err
				}
				for i := range v.Float32s() {
					v.Float32s()[i] *= 20
				}
				if err := ops.Assign(n.Value(), v); err != nil {
					return err
				}
			}
			return nil
		}})
		if _, err := l.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		return losses, backs
	}
	d := gpu(t)
	want, wantBacks := run(nil, tensor.Float32, 10)
	if len(wantBacks) != 1 || wantBacks[0].Done >= wantBacks[0].From {
		t.Fatalf("on the host it went back %+v, want once", wantBacks)
	}
	for compute, bound := range map[tensor.Dtype]float64{tensor.Float32: 1e-5, ops.BFloat16: 1e-2} {
		losses, backs := run(d, compute, 9)
		if len(backs) != 1 || backs[0].From != wantBacks[0].From || backs[0].Done != wantBacks[0].Done || len(losses) != len(want) {
			t.Fatalf("%v: it went back %+v in %d steps, on the host %+v in %d", compute, backs, len(losses), wantBacks, len(want))
		}
		for i, x := range want {
			bound := bound
			if i == wantBacks[0].From-1 {
				bound *= 100 // broken weights make scores large, and their rounding too
			}
			if !(math.Abs(losses[i]-x) <= bound*x) {
				t.Fatalf("%v: the losses are %v, on the host %v", compute, losses, want)
			}
		}
	}
}

// Who writes weights between steps is heard: the copies in 16 bits that steps read, recorded or
// not, are of the weights as they are.
func TestWeightsChangedBetweenSteps(t *testing.T) {
	const steps, at = 14, 6
	losses := func(compute tensor.Dtype, records bool, factor float32) (list []float64) {
		c := training{device: gpu(t), compute: compute, model: nn.GPTConfig{Vocab: 67, Context: 64, Layers: 2, Heads: 4, Dim: 64}, rows: 4, steps: steps}
		var l *Loop
		l = c.loop(t, Hook{OnStep: func(s Step) error {
			if list = append(list, s.Loss); len(list) != at {
				return nil
			}
			for _, n := range l.Parameters() {
				v, err := ops.Download(n.Value())
				if err != nil {
					return err
				}
				for i := range v.Float32s() {
					v.Float32s()[i] *= factor
				}
				if err := ops.Assign(n.Value(), v); err != nil {
					return err
				}
			}
			return nil
		}})
		if !records {
			l.training.unrecorded = errors.New("not wanted")
		}
		if _, err := l.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		return list
	}
	want, unchanged := losses(tensor.Float32, true, 4), losses(tensor.Float32, true, 1)
	if !(math.Abs(want[steps-1]-unchanged[steps-1]) > 0.1) {
		t.Fatalf("the losses are %v with weights that were multiplied and %v without: they tell nothing", want, unchanged)
	}
	recorded, plain := losses(ops.BFloat16, true, 4), losses(ops.BFloat16, false, 4)
	if !slices.Equal(recorded, plain) {
		t.Errorf("the losses of recorded steps are %v, of others %v", recorded, plain)
	}
	for i, w := range want {
		if !(math.Abs(recorded[i]-w) <= 3e-2*w) {
			t.Fatalf("the losses are %v in bfloat16 and %v in float32", recorded, want)
		}
	}
}
