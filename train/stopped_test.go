package train_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/tensor"
)

var (
	drawnTrainings = flag.Int("trainings", 10, "how many drawn trainings are stopped, resumed and compared with ones that were left alone")
	trainingSeed   = flag.Uint64("training-seed", 1, "the first seed of those trainings")
)

// drawer draws trainings.
type drawer struct{ *rand.Rand }

// one reports true once in n times.
func (d drawer) one(n int) bool { return d.IntN(n) == 0 }

func (d drawer) of(list ...int) int { return list[d.IntN(len(list))] }

func (d drawer) maybe(x float64) float64 {
	if d.one(2) {
		return x
	}
	return 0
}

func (d drawer) optimizer(matrices bool) train.Optimizer {
	switch kind := d.IntN(7); {
	case kind == 0:
		return train.SGD{Momentum: d.maybe(0.9), Nesterov: false, WeightDecay: d.maybe(0.1), Decoupled: d.one(2)}
	case kind == 1:
		return train.SGD{Momentum: 0.9, Nesterov: true, WeightDecay: d.maybe(0.1), Decoupled: d.one(2)}
	case kind == 2:
		return train.Lion{WeightDecay: d.maybe(0.1)}
	case kind == 3:
		return train.Adafactor{WeightDecay: d.maybe(0.1)}
	case kind == 4 && matrices:
		return train.Muon{WeightDecay: d.maybe(0.1), Plain: d.one(2), MatchAdamW: d.one(2), Iterations: d.of(0, 2)}
	case kind == 5:
		return signum{beta: 0.9, decay: d.maybe(0.1)}
	}
	return train.AdamW{WeightDecay: d.maybe(0.1), Beta2: d.maybe(0.99)}
}

func (d drawer) schedule(steps int) train.Schedule {
	switch d.IntN(5) {
	case 0:
		return train.ConstantRate(1e-2)
	case 1:
		return train.LinearDecay{From: 1e-2, To: d.maybe(1e-3), Steps: 1 + d.IntN(2*steps)}
	case 2:
		return train.InverseSquareRoot{Peak: 1e-2, Warmup: d.IntN(steps)}
	case 3:
		return train.WarmupStableDecay{Peak: 1e-2, Min: d.maybe(1e-3), Warmup: d.IntN(5), Stable: d.IntN(5), Decay: 1 + d.IntN(steps)}
	}
	warmup := d.IntN(steps)
	return train.WarmupCosine{Peak: 1e-2, Min: d.maybe(1e-3), Warmup: warmup, Steps: warmup + 1 + d.IntN(steps)}
}

const drawnVocab, drawnLength = 11, 8

// tokens are counting, with a few that are not.
func (d drawer) tokens(n int) []int {
	ids, at, stride := make([]int, n), d.IntN(drawnVocab), 1+d.IntN(3)
	for i := range ids {
		if d.one(9) {
			at, stride = d.IntN(drawnVocab), 1+d.IntN(3)
		}
		ids[i], at = at, (at+stride)%drawnVocab
	}
	return ids
}

// batches draws batches, which a function makes anew for each process that takes them.
func (d drawer) batches(t *testing.T) func() data.Batches {
	t.Helper()
	rows, seed := d.of(1, 2, 3), d.Uint64()
	tokens, err := data.FromInts(d.tokens(drawnLength*(3+d.IntN(12)) + d.IntN(drawnLength) + 1))
	if err != nil {
		t.Fatal(err)
	}
	must := func(b data.Batches, err error) data.Batches {
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	documents := func() (list []data.Document) {
		for range 4 + d.IntN(9) {
			doc := data.Document{Tokens: d.tokens(2 + d.IntN(2*drawnLength))}
			if d.one(2) {
				doc.Learn = make([]bool, len(doc.Tokens))
				for i := range doc.Learn {
					doc.Learn[i] = d.one(2)
				}
				doc.Learn[1] = true
			}
			list = append(list, doc)
		}
		return list
	}
	switch d.IntN(7) {
	case 0:
		return func() data.Batches { return must(data.Random(tokens, rows, drawnLength, seed)) }
	case 1:
		return func() data.Batches { return must(data.Sequential(tokens, rows, drawnLength)) }
	case 2:
		return func() data.Batches { return must(data.Shuffled(tokens, rows, drawnLength, seed)) }
	case 3:
		list := documents()
		return func() data.Batches { return must(data.Pack(list, rows, drawnLength, seed)) }
	case 4:
		list := documents()
		return func() data.Batches { return must(data.Pad(list, rows, drawnLength, seed)) }
	case 5:
		path := t.TempDir() + "/shard.bin"
		if err := data.Write(path, tokens, data.Raw); err != nil {
			t.Fatal(err)
		}
		o := data.StreamOptions{Rows: rows, Length: drawnLength, Seed: seed, Shuffle: d.of(0, 1, 64), Packed: d.one(2), Separator: 3}
		return func() data.Batches {
			shards, err := data.OpenShards(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { shards.Close() })
			return must(data.Stream(shards, o))
		}
	}
	list := documents()
	return func() data.Batches {
		kinds := []data.Batches{must(data.Shuffled(tokens, rows, drawnLength, seed)), must(data.Pack(list, rows, drawnLength, seed)),
			must(data.Random(tokens, 1, drawnLength/2, seed))}
		return data.Func(func(n int) (data.Batch, error) { return kinds[n%len(kinds)].Batch(n / len(kinds)) })
	}
}

// stoppedTraining is a training that is made anew for each process that goes on with it.
type stoppedTraining struct {
	config func(trace *trace) train.LoopConfig
	keep   int
	text   string
}

// trace is what hooks were told, by the number of the step.
type trace struct {
	steps, evaluations map[int]string
	backs              int
}

func newTrace() *trace { return &trace{steps: map[int]string{}, evaluations: map[int]string{}} }

func (t *trace) hook() train.Hook {
	return train.Hook{
		OnStep: func(s train.Step) error {
			r := s.Report
			t.steps[s.Done] = fmt.Sprintf("%+v loss %x of %d and %d, %v", r, s.Loss, s.Examples, s.Tokens, s.Metrics)
			return nil
		},
		OnBack: func(b train.Back) error {
			t.backs++
			return nil
		},
		OnEval: func(e train.Evaluation) error {
			t.evaluations[e.Done] = fmt.Sprintf("%x %x %v %v %v", e.Train, e.Validation, e.Best, e.TrainMetrics, e.ValidationMetrics)
			return nil
		},
	}
}

// poisoned are batches some of which have a loss that is not finite.
func poisoned(b data.Batches, dtype tensor.Dtype, bad func(n int) bool) data.Batches {
	return data.Func(func(n int) (data.Batch, error) {
		batch, err := b.Batch(n)
		if err != nil {
			return nil, err
		}
		factor := 1.
		if bad(n) {
			factor = math.Inf(1)
		}
		if batch["factor"] = data.Floats([]float64{factor}, 1); dtype == tensor.Float32 {
			batch["factor"] = data.Floats([]float32{float32(factor)}, 1)
		}
		return batch, nil
	})
}

func drawStopped(t *testing.T, seed uint64) stoppedTraining {
	d := drawer{rand.New(rand.NewPCG(seed, 1))}
	steps := 6 + d.IntN(25)
	batches, validation := d.batches(t), d.batches(t)
	dtype := tensor.Dtype(tensor.Float32)
	if d.one(5) {
		dtype = tensor.Float64
	}
	compute := []tensor.Dtype{dtype, dtype, ops.BFloat16, ops.Float16}[d.IntN(4)]
	if dtype != tensor.Float32 {
		compute = dtype
	}
	gpt := nn.GPTConfig{Vocab: drawnVocab, Context: 2 * drawnLength, Layers: 1 + d.IntN(2), Heads: 2, Dim: 8, Dropout: d.maybe(0.1)}
	badEvery, metric := d.of(0, 0, 0, 5, 9, 13), d.one(2)
	model := func(s *nn.Scope, in train.Inputs) train.Outputs {
		m := nn.NewGPT(s.DType(dtype).Compute(compute), gpt)
		var loss nn.Tensor
		if in.Has("ends") {
			loss = m.LossPacked(in.Get("tokens"), in.Get("targets"), nn.Packing{Ends: in.Get("ends"), Positions: in.Get("positions")})
		} else {
			loss = m.Loss(in.Get("tokens"), in.Get("targets"))
		}
		if in.Has("factor") {
			loss = loss.Mul(in.Get("factor").Sum())
		}
		o := train.Outputs{Loss: loss}
		if metric {
			o.Metrics = []train.Metric{train.Perplexity(loss)}
		}
		return o
	}
	o := train.Options{Schedule: d.schedule(steps), ClipNorm: d.maybe(0.5), Accumulation: d.of(0, 1, 2, 3)}
	if d.one(3) {
		o.Average = &train.Average{Decay: 0.8, Evaluate: d.one(2)}
	}
	if d.one(3) {
		o.LossScaling = &train.LossScaling{Initial: d.maybe(1024), Interval: d.of(0, 1, 3), Growth: d.maybe(2), Backoff: d.maybe(0.25)}
	}
	optimizer, lora := d.optimizer(false), d.one(6)
	if !lora && d.one(3) {
		optimizer = d.optimizer(true)
		o.Groups = append(o.Groups, train.Group{Match: train.Any(train.Vectors, train.Named("tokens.*", "positions.*", "*head*")), Optimizer: train.AdamW{}, LearningRateScale: 0.3})
	} else if d.one(2) {
		o.Groups = append(o.Groups, train.Group{Match: train.Vectors, NoDecay: true})
	}
	if !lora && d.one(5) {
		o.Groups = append(o.Groups, train.Group{Match: train.Named("*attn*"), Optimizer: d.optimizer(false)})
	}
	freeze, seeds := d.one(6), d.Uint64()
	evaluations := train.Evaluations{Every: d.of(0, 1, 3, 7), Batches: 1 + d.IntN(3)}
	validates, every, memory, prefetches, goBack := d.one(2), d.of(0, 1, 2, 5), d.one(6), d.one(3), d.one(3)
	change := nn.LoRA{Rank: 2, Alpha: d.maybe(3), Dropout: d.maybe(0.2), Decomposed: d.one(3), RankStabilized: d.one(2)}
	kept := []tensor.Dtype{tensor.Float32, ops.BFloat16, ops.Float16}[d.IntN(3)]
	if dtype != tensor.Float32 || change.Decomposed {
		kept = dtype // all of it
	}
	config := func(trace *trace) train.LoopConfig {
		c := train.LoopConfig{Model: model, Parameters: nn.NewParameters(seeds), Optimizer: optimizer, Options: o, Data: batches(), Steps: steps,
			Evaluations: evaluations, CheckpointEvery: every, Hooks: []train.Hook{trace.hook()}}
		if badEvery > 0 {
			c.Data = poisoned(c.Data, dtype, func(n int) bool { return n%badEvery == badEvery-1 })
		}
		if validates {
			c.Evaluations.Validation = validation()
		}
		if prefetches {
			p, err := data.Prefetch(c.Data, 0, 2)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			c.Data = p
		}
		if memory {
			c.Memory = 64 << 20
		}
		if goBack && every > 0 {
			c.GoBack = &train.GoBack{Spike: 2, Window: 3, Skips: 2, Most: 50}
		}
		if lora {
			if err := c.Parameters.SetLoRA(change); err != nil {
				t.Fatal(err)
			}
			if kept != dtype {
				if err := c.Parameters.KeepWeights(kept); err != nil {
					t.Fatal(err)
				}
			}
		}
		if freeze {
			c.Parameters.Freeze(func(name string) bool { return name == "tokens.weight" })
		}
		return c
	}
	text := fmt.Sprintf("%d steps, %T %+v, %+v, model %+v of %v in %v, bad every %d, evaluations %+v, checkpoints every %d, go back %v, freeze %v, lora %v %+v beside %v, prefetch %v",
		steps, optimizer, optimizer, o, gpt, dtype, compute, badEvery, evaluations, every, goBack, freeze, lora, change, kept, prefetches)
	return stoppedTraining{config: config, keep: 1 + d.IntN(3), text: text}
}

// left is all that a training has in the end.
func left(t *testing.T, loop *train.Loop) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	add := func(name string, v *tensor.Dense) {
		var buffer bytes.Buffer
		fmt.Fprintf(&buffer, "%x", v.Data())
		all[name] = buffer.Bytes()
	}
	for _, n := range loop.Parameters() {
		add(n.Name(), n.Value().(*tensor.Dense))
	}
	state, err := loop.Stepper().State()
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range state.Tensors {
		add(name, v)
	}
	state.Tensors = nil
	all["state"] = []byte(fmt.Sprintf("%+v", state))
	return all
}

// ending is when a run is stopped, and how: by its context, by a hook's error, or by a kill. The
// folder stays as a kill finds it.
type ending struct {
	of, after int // the kind of event, and how many of these come before
	d         drawer
	cancel    func()
	path      string
	killed    string // a copy of the folder
	t         *testing.T
}

var errEnded = errors.New("ended by a hook")

// The kinds of events.
const (
	steps = iota
	batches
	evaluations
	checkpoints
	beforeCheckpoints
	never
)

// event is told of an event of a kind.
func (e *ending) event(kind int) error {
	if kind != e.of {
		return nil
	}
	if e.after--; e.after >= 0 {
		return nil
	}
	switch e.d.IntN(3) {
	case 0:
		e.cancel()
		return nil
	case 1:
		if e.killed == "" {
			e.killed = e.t.TempDir() + "/killed"
			if err := os.CopyFS(e.killed, os.DirFS(e.path)); err != nil {
				e.t.Fatal(err)
			}
		}
	}
	return errEnded
}

func (e *ending) hook() train.Hook {
	return train.Hook{
		OnStep:           func(train.Step) error { return e.event(steps) },
		OnBatch:          func(train.Batch) error { return e.event(batches) },
		OnEval:           func(train.Evaluation) error { return e.event(evaluations) },
		OnCheckpoint:     func(train.Checkpoint) error { return e.event(checkpoints) },
		BeforeCheckpoint: func() error { return e.event(beforeCheckpoints) },
	}
}

// outcome is how a training ended.
type outcome struct {
	trace *trace
	end   train.End
	err   error
	left  map[string][]byte
}

// alone trains without a stop.
func (s stoppedTraining) alone(t *testing.T) outcome {
	t.Helper()
	o := outcome{trace: newTrace()}
	c := s.config(o.trace)
	c.Checkpoints = openFolder(t, t.TempDir(), s.keep)
	loop, err := train.NewLoop(c)
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	if o.end, o.err = loop.Run(t.Context()); o.err == nil {
		o.left = left(t, loop)
	}
	return o
}

// stopped trains in several runs, of which all but the last end early, by other loops or the same.
func (s stoppedTraining) stopped(t *testing.T, d drawer) outcome {
	t.Helper()
	o, path := outcome{trace: newTrace()}, t.TempDir()
	folder := openFolder(t, path, s.keep)
	for run := 0; ; run++ {
		c := s.config(o.trace)
		ctx, cancel := context.WithCancel(t.Context())
		e := &ending{of: d.IntN(never + 1), after: d.IntN(1 + c.Steps), d: d, cancel: cancel, path: path, t: t}
		if run > 6 {
			e.of = never
		}
		c.Checkpoints, c.Hooks = folder, append(c.Hooks, e.hook())
		loop, err := train.NewLoop(c)
		if err != nil {
			t.Fatal(err)
		}
		if run > 0 {
			if refused, err := loop.Resume(); err != nil && !errors.Is(err, checkpoint.ErrNone) || len(refused) > 0 {
				t.Fatalf("resuming: %v, refused %v", err, refused)
			}
		}
		for again := true; again; {
			from := loop.Done()
			o.end, o.err = loop.Run(ctx)
			cancel()
			t.Logf("run %d went from %d to %d, to be stopped by events of kind %d: %v", run, from, o.end.Done, e.of, o.err)
			if !o.end.Cancelled && !errors.Is(o.err, errEnded) {
				if o.err == nil {
					o.left = left(t, loop)
				}
				loop.Close()
				return o
			}
			if again = e.killed == "" && d.one(3); again { // the same loop
				ctx, cancel = context.WithCancel(t.Context())
				e.of, e.after, e.cancel = d.IntN(never+1), d.IntN(1+c.Steps), cancel
			}
		}
		loop.Close()
		if e.killed == "" {
			folder = reopen(t, folder, path, s.keep)
		} else {
			folder, path = reopen(t, folder, e.killed, s.keep), e.killed
		}
	}
}

// Trainings that are stopped by their contexts, by hooks or by a kill, at any moment, and resumed,
// end with the same bits as ones that were left alone, and report the same. What is drawn has its
// seed in its name: -training-seed N -trainings 1 repeats it.
func TestStoppedTrainings(t *testing.T) {
	slow.Race(t)
	for seed := *trainingSeed; seed < *trainingSeed+uint64(*drawnTrainings); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			drawn := drawStopped(t, seed)
			t.Log(drawn.text)
			want := drawn.alone(t)
			got := drawn.stopped(t, drawer{rand.New(rand.NewPCG(seed, 2))})
			if want.trace.backs+got.trace.backs > 0 {
				return // maybe to a checkpoint that a stop has left
			}
			if fmt.Sprint(got.err) != fmt.Sprint(want.err) || got.end.Done != want.end.Done || got.end.BestStep != want.end.BestStep ||
				math.Float64bits(got.end.BestLoss) != math.Float64bits(want.end.BestLoss) {
				t.Errorf("the end is %+v, uninterrupted %+v", got.end, want.end)
			}
			compareTold(t, "step", want.trace.steps, got.trace.steps)
			compareTold(t, "evaluation", want.trace.evaluations, got.trace.evaluations)
			for name := range want.left {
				if !bytes.Equal(want.left[name], got.left[name]) {
					t.Errorf("%s is %.60s, uninterrupted %.60s", name, got.left[name], want.left[name])
				}
			}
		})
	}
}

// compareTold compares what hooks were told, up to the first difference.
func compareTold(t *testing.T, what string, want, got map[int]string) {
	t.Helper()
	for _, step := range slices.Sorted(maps.Keys(want)) {
		if want[step] != got[step] {
			t.Errorf("%s %d is %s, uninterrupted %s", what, step, got[step], want[step])
			return
		}
	}
}

// A hook that fails after a step's last batch, when the parameters have changed already, ends the
// run after that step: a checkpoint of the step before it would hold this one's weights.
func TestErrorAfterTheLastBatch(t *testing.T) {
	straight := countingLoop(t, nil, nil)
	runLoop(t, straight, context.Background())
	path := t.TempDir()
	folder := openFolder(t, path, 2)
	first := countingLoop(t, folder, func(c *train.LoopConfig) {
		c.Hooks = []train.Hook{{OnBatch: func(b train.Batch) error {
			if !b.Evaluation && b.Done == 4 && b.Batch == b.Batches {
				return errEnded
			}
			return nil
		}}}
	})
	if end, err := first.Run(t.Context()); !errors.Is(err, errEnded) || end.Done != 5 {
		t.Errorf("the run ended after %d steps: %v", end.Done, err)
	}
	second := countingLoop(t, reopen(t, folder, path, 2), nil)
	if _, err := second.Resume(); err != nil {
		t.Fatal(err)
	}
	runLoop(t, second, context.Background())
	if !slices.Equal(bits(second), bits(straight)) {
		t.Error("the weights differ from an uninterrupted run's")
	}
}
