//go:build gpu && linux

package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/kernels/cuda"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/safetensors"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
	"gorgonia.org/gorgonia"
)

// This file trains on several GPUs, each in a process of its own: the test's binary is started
// again as each of the ranks.

// rankVariable is the variable of the environment that makes the binary a rank, with a rankTraining
// as JSON.
const rankVariable = "STHENO_TEST_RANK"

// rankTraining is what ranks train.
type rankTraining struct {
	Alone        bool   // each rank for itself, at the same time
	Large        string // a model of ranksModels, in bfloat16; empty for a small one
	Steps        int
	Accumulation int
	BFloat16     bool
	Shard        bool
	Weights      bool          // are shared out
	Sequences    bool          // are shared, by a group that has a network of its own
	Muon         bool          // trains the blocks' matrices
	Mesh         [2]int        // how many ranks share sequences, and how many a copy of what is sharded; 0 for 1 and all
	Packed       bool          // sequences lie end to end
	Drops        bool          // with dropout everywhere, and slopes in attention
	Folder       string        // for checkpoints that all write and read, empty for none
	Fault        string        // what happens to rank 1, or to rank 0 by killRank0, in its sixth step
	Later        time.Duration // that a rank is killed after its step has begun
	Lost         distributed.Lost
	Out          string // the folder for rankResults
}

// rankResult is what one rank leaves.
type rankResult struct {
	Losses   []float64
	Weights  uint64 // a hash of them, but of a large model's
	Recorded bool
	Step     float64 // milliseconds, the median
	Peak     float64 // GiB of tensors
}

// TestRank is a rank, when it is started as one.
func TestRank(t *testing.T) {
	text := os.Getenv(rankVariable)
	if text == "" {
		t.Skip("this process is no rank")
	}
	var c rankTraining
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	place, err := distributed.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	place.Timeout, place.Lost = 20*time.Second, c.Lost
	if c.Fault != "" && c.Lost == distributed.LostEnds {
		place.Timeout = 4 * time.Second
	}
	if c.Fault == "lie" && place.Rank == 1 {
		defer lie(t, place.Address).Close()
	}
	group, err := distributed.Join(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	device, err := ops.OpenDevice(group.LocalRank())
	if err != nil {
		t.Fatal(err)
	}
	what := training{model: nn.GPTConfig{Vocab: 67, Context: 128, Layers: 4, Heads: 4, Dim: 256}, rows: 8, noise: 8}
	if c.Large != "" { // on as many tokens a GPU, however many share a batch
		large := ranksModels[c.Large]
		if what = large.training; large.only == "" {
			what.rows *= max(1, c.Mesh[0])
		}
	}
	if c.Packed {
		what.rows, what.model.Context = 1, 320
		what.packed = cuts(what.model.Context)
	}
	if c.BFloat16 {
		what.compute = ops.BFloat16
	}
	if c.Muon { // of matrices large enough for symmetric products
		what.model.Layers, what.model.Dim = 2, 512
		what = byMuon(what)
	}
	if c.Drops {
		what.model.Dropout, what.model.Attention.ALiBi = 0.1, []float64{0.25, 0.0625, 0.015625, 0.00390625}
	}
	what.device, what.steps, what.accumulation, what.ranks, what.shard, what.holds = device, c.Steps, c.Accumulation, group, c.Shard, c.Weights
	if c.Alone {
		what.ranks = nil
	}
	what.mesh = PlaceConfig{SequenceRanks: c.Mesh[0], ShardRanks: c.Mesh[1]}
	if c.Sequences {
		what.sharers = c.again(t, place)
		defer what.sharers.Close()
	}
	if what.resume = c.Folder != ""; what.resume && group.Rank() == 0 {
		if what.checkpoints, err = checkpoint.Open(c.Folder, 2); err != nil {
			t.Fatal(err)
		}
		defer what.checkpoints.Close()
	}
	var r rankResult
	var took []time.Duration
	l := what.loop(t, Hook{OnStep: func(s Step) error {
		r.Losses, took = append(r.Losses, s.Loss), append(took, s.Duration)
		return nil
	}})
	if c.Lost != distributed.LostEnds && (c.Shard || c.Weights) {
		l.c.CheckpointEvery = 4
	}
	atFault := 1
	if c.Fault == killRank0 {
		atFault = 0
	}
	if c.Fault != "" && c.Fault != "lie" && group.Rank() == atFault {
		l.c.Data = faulty{l.c.Data, c.Fault, c.Later, filepath.Join(c.Out, "killed")}
	}
	if _, err := l.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.Recorded = l.training.last.recording != nil
	hash := fnv.New64a()
	err = l.saver.eachWeight(func(*gorgonia.Node) bool { return c.Large == "" }, func(w safetensors.Tensor) {
		for _, x := range w.Value.Float32s() {
			bits := math.Float32bits(x)
			hash.Write([]byte{byte(bits), byte(bits >> 8), byte(bits >> 16), byte(bits >> 24)})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Weights = hash.Sum64()
	if len(took) > 0 {
		first := min(max(1, len(took)/4), len(took)-1) // the first step makes tensors and loads kernels
		r.Step = median(took[first:]).Seconds() * 1e3
	}
	raw, err := cuda.Open(group.LocalRank())
	if err != nil {
		t.Fatal(err)
	}
	r.Peak = float64(raw.Memory().Peak) / (1 << 30)
	result, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Out, fmt.Sprint(group.Rank())), result, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// again joins the ranks of a group once more, as another one.
func (rankTraining) again(t *testing.T, place distributed.Config) *distributed.Group {
	place.Job = "again"
	group, err := distributed.Join(t.Context(), place)
	if err != nil {
		t.Fatal(err)
	}
	return group
}

// run trains on so many GPUs and returns what the ranks left and what they wrote.
func (c rankTraining) run(t testing.TB, gpus int) ([]rankResult, string, error) {
	t.Helper()
	c.Out = t.TempDir()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	out := &lockedBuffer{}
	err = distributed.Launch(t.Context(), gpus, distributed.LaunchConfig{
		Command: []string{os.Args[0], "-test.run=^TestRank$"}, Env: []string{rankVariable + "=" + string(text)}, Stdout: out, Stderr: out, Grace: 5 * time.Second,
		Lost: c.Lost, Restarts: 1,
	})
	var list []rankResult
	for rank := range gpus {
		text, readErr := os.ReadFile(filepath.Join(c.Out, fmt.Sprint(rank)))
		if readErr != nil {
			break
		}
		var r rankResult
		if err := json.Unmarshal(text, &r); err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list, out.String(), err
}

func gpus(t testing.TB, n int) {
	t.Helper()
	if ops.Devices() < n {
		t.Skipf("this machine has %d GPUs, the test needs %d", ops.Devices(), n)
	}
}

// Two GPUs have the losses of one that takes the batches of both, and the same weights, to the last
// bit.
func TestRanksOnDevices(t *testing.T) {
	gpus(t, 2)
	for name, c := range map[string]rankTraining{
		"plain":                      {Steps: 20},
		"bfloat16":                   {Steps: 20, BFloat16: true},
		"two batches":                {Steps: 20, Accumulation: 2},
		"state, two batches":         {Steps: 20, Accumulation: 2, Shard: true},
		"state":                      {Steps: 20, Shard: true},
		"state, Muon":                {Steps: 20, Shard: true, Muon: true},
		"state, Muon, two batches":   {Steps: 20, Shard: true, Muon: true, Accumulation: 2},
		"state, Muon, bfloat16":      {Steps: 20, Shard: true, Muon: true, BFloat16: true},
		"Muon":                       {Steps: 20, Muon: true},
		"weights":                    {Steps: 20, Weights: true},
		"weights, bfloat16":          {Steps: 20, Weights: true, BFloat16: true},
		"weights, two batches":       {Steps: 20, Weights: true, Accumulation: 2},
		"sequences":                  {Steps: 20, Sequences: true},
		"sequences, weights":         {Steps: 20, Sequences: true, Weights: true},
		"sequences, state, bfloat16": {Steps: 20, Sequences: true, Shard: true, BFloat16: true},
		"dropping":                   {Steps: 20, Sequences: true, Drops: true},
		"dropping, bfloat16":         {Steps: 20, Sequences: true, Drops: true, BFloat16: true},
		"packed":                     {Steps: 20, Packed: true},
		"packed, state, bfloat16":    {Steps: 20, Packed: true, Shard: true, BFloat16: true},
		"200 steps":                  {Steps: 200},
	} {
		t.Run(name, func(t *testing.T) {
			alone := rankTraining{
				Steps: c.Steps, BFloat16: c.BFloat16, Packed: c.Packed, Drops: c.Drops, Muon: c.Muon, Accumulation: 2 * max(1, c.Accumulation),
			}
			if c.Sequences { // each step is a batch of both
				alone.Accumulation = 1
			}
			var one []rankResult
			var aloneOut string
			var aloneErr error
			var beside sync.WaitGroup
			beside.Go(func() { one, aloneOut, aloneErr = alone.run(t, 1) })
			two, out, err := c.run(t, 2)
			beside.Wait()
			if err != nil || aloneErr != nil {
				t.Fatal(err, out, aloneErr, aloneOut)
			}
			if two[0].Weights != two[1].Weights || !two[0].Recorded || !two[1].Recorded {
				t.Errorf("the ranks have weights %x and %x, and were recorded %v and %v", two[0].Weights, two[1].Weights, two[0].Recorded, two[1].Recorded)
			}
			if c.Muon && c.BFloat16 && two[0].Weights != one[0].Weights {
				t.Errorf("the ranks have weights %x, one GPU %x", two[0].Weights, one[0].Weights)
			}
			bound := 1e-4
			if c.Sequences && c.BFloat16 { // what is computed in parts is rounded in parts
				bound = 2e-3
			}
			sameLosses(t, two[0], one[0], c.Steps, bound)
		})
	}
}

// sameLosses compares the losses of several GPUs, which become smaller, with those of one.
func sameLosses(t *testing.T, several, one rankResult, steps int, bound float64) {
	t.Helper()
	if len(several.Losses) != steps || len(one.Losses) != steps {
		t.Fatalf("%d and %d losses for %d steps", len(several.Losses), len(one.Losses), steps)
	}
	worst, last := 0.0, steps-1
	for i, loss := range several.Losses {
		worst = max(worst, math.Abs(loss/one.Losses[i]-1))
	}
	t.Logf("losses from %.4f to %.4f, at most %.2g from one GPU's; weights of one GPU equal: %v", several.Losses[0], several.Losses[last], worst,
		several.Weights == one.Weights)
	if !(worst <= bound) || !(several.Losses[last] < several.Losses[0]-0.1) {
		t.Errorf("the losses are %v, of one GPU %v", several.Losses, one.Losses)
	}
}

// Meshes of four and eight GPUs have the losses of one that takes the batches of all, and the same
// weights on all ranks.
func TestMeshesOnDevices(t *testing.T) {
	gpus(t, 4)
	alone := map[rankTraining]rankResult{}
	for _, size := range []int{4, 8} {
		for name, c := range map[string]rankTraining{
			"sequences of 2":                       {Mesh: [2]int{2, 0}},
			"sequences of 4":                       {Mesh: [2]int{4, 0}},
			"sequences of 2, state":                {Mesh: [2]int{2, 0}, Shard: true},
			"sequences of 2, weights":              {Mesh: [2]int{2, 0}, Weights: true},
			"state in 2s":                          {Mesh: [2]int{0, 2}, Shard: true},
			"state in 4s":                          {Mesh: [2]int{0, 4}, Shard: true},
			"state in 2s, two batches":             {Mesh: [2]int{0, 2}, Shard: true, Accumulation: 2},
			"weights in 2s":                        {Mesh: [2]int{0, 2}, Weights: true},
			"weights in 4s":                        {Mesh: [2]int{0, 4}, Weights: true},
			"weights in 2s, two batches":           {Mesh: [2]int{0, 2}, Weights: true, Accumulation: 2},
			"weights in 2s, bfloat16":              {Mesh: [2]int{0, 2}, Weights: true, BFloat16: true},
			"sequences of 2, state in 2s":          {Mesh: [2]int{2, 2}, Shard: true},
			"sequences of 2, weights in 2s":        {Mesh: [2]int{2, 2}, Weights: true},
			"sequences of 2, weights in 4s":        {Mesh: [2]int{2, 4}, Weights: true},
			"sequences of 4, weights in 2s":        {Mesh: [2]int{4, 2}, Weights: true},
			"sequences of 2, weights in 2s, drops": {Mesh: [2]int{2, 2}, Weights: true, Drops: true},
		} {
			t.Run(fmt.Sprintf("%d GPUs, %s", size, name), func(t *testing.T) {
				gpus(t, size)
				c.Steps = 20
				of := rankTraining{
					Steps: c.Steps, BFloat16: c.BFloat16, Drops: c.Drops, Accumulation: size / max(1, c.Mesh[0]) * max(1, c.Accumulation),
				}
				if _, known := alone[of]; !known {
					one, out, err := of.run(t, 1)
					if err != nil {
						t.Fatal(err, out)
					}
					alone[of] = one[0]
				}
				all, out, err := c.run(t, size)
				if err != nil {
					t.Fatal(err, out)
				}
				for rank, r := range all {
					if r.Weights != all[0].Weights || !r.Recorded {
						t.Errorf("rank %d has weights %x, rank 0 %x; recorded: %v", rank, r.Weights, all[0].Weights, r.Recorded)
					}
				}
				bound := 1e-4
				if c.BFloat16 {
					bound = 2e-3
				}
				sameLosses(t, all[0], alone[of], c.Steps, bound)
			})
		}
	}
}

// Two GPUs that share weights write checkpoints together and read them together, and go on as if
// they had never stopped, whether they then share weights or the state alone.
func TestRanksOnDevicesResume(t *testing.T) {
	gpus(t, 2)
	straight, out, err := rankTraining{Steps: 20, Weights: true}.run(t, 2)
	if err != nil {
		t.Fatal(err, out)
	}
	folder, steps := t.TempDir(), 0
	for _, c := range []rankTraining{{Steps: 8, Weights: true}, {Steps: 14, Shard: true}, {Steps: 20, Weights: true}} {
		c.Folder = folder
		two, out, err := c.run(t, 2)
		if err != nil {
			t.Fatal(err, out)
		}
		if got := two[0].Losses; len(got) != c.Steps-steps {
			t.Fatalf("%d losses from step %d to %d", len(got), steps, c.Steps)
		}
		for i, loss := range two[0].Losses {
			if want := straight[0].Losses[steps+i]; !(math.Abs(loss/want-1) <= 1e-5) {
				t.Errorf("step %d: the loss is %v, without interruption %v", steps+i, loss, want)
			}
		}
		if steps = c.Steps; two[0].Weights != two[1].Weights {
			t.Errorf("after %d steps the ranks have weights %x and %x", steps, two[0].Weights, two[1].Weights)
		}
	}
}

// A rank that is killed in a recorded step, at any moment of it, is replaced, and the weights are
// those of ranks that all lived. Where the optimiser's state or the weights are shared, the
// training goes back to a checkpoint. Otherwise there is none: the other rank has all.
func TestLostRanksOnDevicesAreReplaced(t *testing.T) {
	gpus(t, 2)
	cases := map[string]rankTraining{
		"copied":          {Fault: kill},
		"copied, rank 0":  {Fault: killRank0},
		"copied, batches": {Fault: kill, BFloat16: true, Accumulation: 2},
		"state":           {Fault: kill, Shard: true},
		"weights":         {Fault: kill, Weights: true, BFloat16: true},
		"weights, rank 0": {Fault: killRank0, Weights: true},
	}
	for n := range 8 {
		c := rankTraining{Fault: kill, Later: time.Duration(1+n) * 400 * time.Microsecond}
		if n%2 == 1 {
			c.Fault = killRank0
		}
		cases[fmt.Sprintf("copied, %s later by %v", c.Fault, c.Later)] = c
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.Steps = 20
			lived := c
			lived.Fault = ""
			want, out, err := lived.run(t, 2)
			if err != nil {
				t.Fatal(err, out)
			}
			c.Lost = distributed.LostReplaced
			c.Folder = t.TempDir()
			got, out, err := c.run(t, 2)
			if err != nil {
				t.Fatal(err, out)
			}
			for rank, r := range got {
				if r.Weights != want[rank].Weights || !r.Recorded {
					t.Errorf("rank %d has weights %x, recorded %v, and %x where none is lost: %s", rank, r.Weights, r.Recorded, want[rank].Weights, out)
				}
			}
			if !strings.Contains(out, "is started again") {
				t.Errorf("no rank was started again: %s", out)
			}
		})
	}
}

// Where a rank may be missing, the one that is left goes on with the batches of both, and ends with
// the bits of one that had them from the beginning.
func TestRanksOnDevicesGoOnWithFewer(t *testing.T) {
	gpus(t, 2)
	for n := range 6 {
		c := rankTraining{Steps: 20, BFloat16: n%2 == 1, Fault: kill, Later: time.Duration(n) * 600 * time.Microsecond, Lost: distributed.LostMissed}
		t.Run(fmt.Sprintf("bfloat16 %v, killed after %v", c.BFloat16, c.Later), func(t *testing.T) {
			want, out, err := rankTraining{Steps: c.Steps, BFloat16: c.BFloat16, Accumulation: 2}.run(t, 1)
			if err != nil {
				t.Fatal(err, out)
			}
			got, out, err := c.run(t, 2)
			if err != nil || len(got) != 1 {
				t.Fatalf("%d ranks left results: %v, %s", len(got), err, out)
			}
			if got[0].Weights != want[0].Weights || !got[0].Recorded {
				t.Errorf("weights %x, recorded %v, and %x of one GPU: %s", got[0].Weights, got[0].Recorded, want[0].Weights, out)
			}
			// Of the last two steps with both this rank may know its own losses alone.
			for i, known := range want[0].Losses {
				if off := math.Abs(got[0].Losses[i]/known - 1); i >= 4 && i <= 8 && off < 0.02 {
					got[0].Losses[i] = known
				}
			}
			if !slices.Equal(got[0].Losses, want[0].Losses) {
				t.Errorf("the losses are %v, of one GPU %v", got[0].Losses, want[0].Losses)
			}
		})
	}
}

// A rank that dies and one that hangs end the other, which waits on its GPU, with the rank's name.
func TestRanksFailOnDevices(t *testing.T) {
	gpus(t, 2)
	for _, c := range []struct{ fault, want string }{{"die", "rank 1 (host"}, {"hang", "rank 1 (host"}, {"stop", "rank 1 (host"}, {"fail", "rank 1 gave up"}} {
		t.Run(c.fault, func(t *testing.T) {
			start := time.Now()
			_, out, err := rankTraining{Steps: 1000, Fault: c.fault}.run(t, 2)
			said := slices.IndexFunc(strings.Split(out, "\n"), func(line string) bool {
				return !strings.HasPrefix(line, "[rank 1]") && strings.Contains(line, c.want)
			})
			t.Logf("after %v: %v", time.Since(start).Round(time.Millisecond), err)
			if err == nil || said < 0 || time.Since(start) > time.Minute {
				t.Errorf("rank 0 does not say %q within a minute but %q", c.want, out)
			}
		})
	}
}

// Who comes to the ranks' port and speaks of something else is hung up on, and they train.
func TestRanksMeetALiar(t *testing.T) {
	gpus(t, 2)
	ranks, out, err := rankTraining{Steps: 5, Fault: "lie"}.run(t, 2)
	if err != nil || len(ranks) != 2 || ranks[0].Weights != ranks[1].Weights {
		t.Errorf("the ranks left %+v: %v, %s", ranks, err, out)
	}
}

// lie tells rank 0 nonsense, when it listens.
func lie(t *testing.T, address string) net.Conn {
	for {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: rank0\r\n\r\n")); err != nil {
			t.Error(err)
		}
		return conn
	}
}

// ranksModels are what BenchmarkRanks trains, on so many tokens a GPU.
var ranksModels = map[string]ranksModel{
	"GPT2-124M":           {training: gpt(12, 12, 768, 1024, 32)},
	"GPT2-350M":           {training: gpt(24, 16, 1024, 1024, 16)},
	"Llama-1B":            {training: llama1B},
	"Llama-8B":            {llama8B(), "weights"},
	"GPT2-124M-1M-tokens": {ofOneSequence(gpt(12, 12, 768, 1<<20, 1)), "sequences"},
}

// ranksModel is a training, and what alone the ranks share of one that is too large for a GPU.
type ranksModel struct {
	training
	only string // empty for all
}

// llama8B has the shape of Llama 3's smallest.
func llama8B() training {
	return training{rows: 1, model: nn.GPTConfig{Vocab: 128256, Context: 4096}, compute: ops.BFloat16, llama: &nn.LlamaConfig{
		Vocab: 128256, Context: 4096, Layers: 32, Heads: 32, KVHeads: 8, Dim: 4096, Hidden: 14336,
		Block: func(_ int, b *nn.BlockConfig) { b.Init, b.ProjInit = cheap, cheap },
	}}
}

// ofOneSequence is a training whose blocks keep nothing but their input.
func ofOneSequence(c training) training {
	c.model.Recompute = true
	return c
}

// BenchmarkRanks is the rate of models on 1, 2, 4 and 8 GPUs, as far as the machine has them: each
// GPU alone while the others train too, then together with what ranks share. Linear is the share of
// what as many GPUs have alone. bench/gpu/ranks.py has PyTorch's; names are the same.
func BenchmarkRanks(b *testing.B) {
	for _, model := range slices.Sorted(maps.Keys(ranksModels)) {
		b.Run(model, func(b *testing.B) {
			benchmarkRanks(b, model)
		})
	}
}

func benchmarkRanks(b *testing.B, model string) {
	what, alone := ranksModels[model], 0.0
	steps := 60
	switch {
	case what.only == "sequences":
		steps = 2
	case what.llama != nil:
		steps = 16
	}
	tokens := float64(what.rows * what.model.Context)
	if what.only == "sequences" {
		tokens /= float64(ops.Devices())
	}
	measure := func(name string, gpus int, c rankTraining) {
		b.Run(fmt.Sprintf("%d-%s", gpus, name), func(b *testing.B) {
			c.Large, c.Steps = model, steps
			var list []rankResult
			for b.Loop() {
				var out string
				var err error
				if list, out, err = c.run(b, gpus); err != nil {
					b.Fatal(err, out)
				}
			}
			rate := 0.0 // tokens a second of all GPUs
			for _, r := range list {
				rate += 1e3 * tokens / r.Step
			}
			if c.Alone {
				alone = rate / float64(gpus)
			} else { // all wait for each other, and rank 0 tells
				rate = 1e3 * tokens * float64(gpus) / list[0].Step
			}
			b.ReportMetric(list[0].Step, "ms/step")
			b.ReportMetric(rate, "tokens/s")
			b.ReportMetric(list[0].Peak, "GiB-tensors")
			if alone > 0 {
				b.ReportMetric(100*rate/(float64(gpus)*alone), "%linear")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	switch what.only {
	case "weights":
		measure(what.only, ops.Devices(), rankTraining{Weights: true})
		return
	case "sequences":
		measure(what.only, ops.Devices(), rankTraining{Mesh: [2]int{ops.Devices(), 0}})
		return
	}
	measure("alone", min(8, ops.Devices()), rankTraining{Alone: true})
	for _, gpus := range []int{2, 4, 8} {
		if gpus > ops.Devices() {
			return
		}
		measure("copied", gpus, rankTraining{})
		measure("state", gpus, rankTraining{Shard: true})
		measure("weights", gpus, rankTraining{Weights: true})
		measure("sequences", gpus, rankTraining{Mesh: [2]int{gpus, 0}})
		if gpus > 2 {
			measure("sequences-of-2", gpus, rankTraining{Mesh: [2]int{2, 0}})
			measure(fmt.Sprintf("state-in-%ds", gpus/2), gpus, rankTraining{Shard: true, Mesh: [2]int{0, gpus / 2}})
			measure(fmt.Sprintf("weights-in-%ds", gpus/2), gpus, rankTraining{Weights: true, Mesh: [2]int{0, gpus / 2}})
			measure(fmt.Sprintf("weights-in-%ds-sequences-of-2", gpus/2), gpus, rankTraining{Weights: true, Mesh: [2]int{2, gpus / 2}})
		}
	}
}

// kill and killRank0 are faults that happen once: a rank that is started again goes on.
const kill, killRank0 = "kill", "kill rank 0"

// faulty are batches of which one never comes.
type faulty struct {
	data.Batches
	how    string
	later  time.Duration
	killed string // a file that is there when the rank was killed
}

func (f faulty) Batch(n int) (data.Batch, error) {
	if n < 11 { // rank 1's fifth step is recorded and replayed by then
		return f.Batches.Batch(n)
	}
	switch f.how {
	case "die":
		os.Exit(3)
	case "stop": // as a machine that is lost
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {}
	case "hang":
		select {}
	case kill, killRank0:
		if _, err := os.Stat(f.killed); err == nil {
			return f.Batches.Batch(n)
		}
		if err := os.WriteFile(f.killed, nil, 0o666); err != nil {
			return nil, err
		}
		if f.later == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		time.AfterFunc(f.later, func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		return f.Batches.Batch(n)
	}
	return nil, errors.New("the data ended")
}

// lockedBuffer is written to by several readers of processes.
type lockedBuffer struct {
	lock sync.Mutex
	text []byte
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.text = append(b.text, p...)
	return len(p), nil
}

func (b *lockedBuffer) String() string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return string(b.text)
}
