package train_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/freeport"
	"github.com/stheno-ml/stheno/internal/slow"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/distributed"
)

// TestMistakesOfTrainings has what is found while a training runs, resumes or meets its ranks, and
// what is no error but a notice, since somebody may mean it.
func TestMistakesOfTrainings(t *testing.T) {
	slow.Race(t)
	type scope = nn.Scope
	type inputs = train.Inputs
	batch := func(labels ...int) data.Batch {
		return data.Batch{"x": data.Floats([]float32{1, 2, 3, 4, 5, 6}, 2, 3), "labels": data.Ints(labels, len(labels))}
	}
	run := func(change func(c *train.LoopConfig)) error {
		c := trapConfig(func(s *scope, in inputs) train.Outputs {
			return train.Outputs{Loss: s.Linear("head", in.Get("x"), 2).CrossEntropy(in.Get("labels"))}
		})
		c.Data = data.Func(func(int) (data.Batch, error) { return batch(0, 1), nil })
		change(&c)
		end, err := train.Run(t.Context(), c)
		if err == nil && len(end.Notices) > 0 {
			return notice(end.Notices[0])
		}
		return err
	}
	with := func(b data.Batch) func(c *train.LoopConfig) {
		return func(c *train.LoopConfig) { c.Data = data.Func(func(int) (data.Batch, error) { return b, nil }) }
	}
	model := func(loss func(s *scope, in inputs) nn.Tensor) func(c *train.LoopConfig) {
		return func(c *train.LoopConfig) {
			c.Model = func(s *scope, in inputs) train.Outputs { return train.Outputs{Loss: loss(s, in)} }
		}
	}
	group := func(g train.Group) func(c *train.LoopConfig) {
		return func(c *train.LoopConfig) { c.Options.Groups = []train.Group{g} }
	}
	resumed := func(change func(c *train.LoopConfig)) error {
		path := t.TempDir()
		folder := openFolder(t, path, 1)
		runLoop(t, countingLoop(t, folder, nil), t.Context())
		_, err := countingLoop(t, reopen(t, folder, path, 1), change).Resume()
		return err
	}
	resize := func(dim int) func(c *train.LoopConfig) {
		return func(c *train.LoopConfig) {
			c.Model = func(s *scope, in inputs) train.Outputs {
				m := nn.NewGPT(s, nn.GPTConfig{Vocab: countVocab, Context: countLength, Layers: 2, Heads: 3, Dim: dim})
				return train.Outputs{Loss: m.Loss(in.Get("tokens"), in.Get("targets"))}
			}
			c.Evaluations.Every = 0
		}
	}
	ranks := func(environment string, change func(c *train.PlaceConfig)) error {
		for _, name := range []string{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"} {
			t.Setenv(name, "")
		}
		for _, pair := range strings.Fields(environment) {
			name, value, _ := strings.Cut(pair, "=")
			t.Setenv(name, value)
		}
		c := train.PlaceConfig{Device: "cpu"}
		change(&c)
		_, err := train.OpenPlace(t.Context(), c)
		return err
	}
	secrets := func(first, second string) error { // of rank 0, which waits, and of rank 1
		address, err := freeport.OnLoopback()
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		join := func(rank int, secret string) error {
			g, err := distributed.Join(ctx, distributed.Config{Rank: rank, Size: 2, Address: address, Secret: secret, Timeout: time.Minute})
			return errors.Join(err, g.Close())
		}
		waited := make(chan error)
		go func() { waited <- join(0, first) }()
		err = join(1, second)
		stop()
		<-waited
		return err
	}
	asIs := func(*train.PlaceConfig) {}
	masked := func(s *scope, in inputs, mask nn.Tensor) nn.Tensor {
		x := in.Get("x").Reshape(1, 2, 3)
		return s.Linear("head", s.Attention("attn", x, 1, ops.AttentionOptions{Bias: mask.Node()}).Reshape(2, 3), 2).CrossEntropy(in.Get("labels"))
	}
	for i, m := range []struct {
		err  error
		want string
	}{
		{run(with(batch(0, -1))), "targets[1] is -1, it needs to be from 0 to 1, or IgnoreIndex, which is not set (targets is labels)"},
		{run(model(func(s *scope, in inputs) nn.Tensor {
			return s.Linear("head", in.Get("x"), 1).CrossEntropy(in.Get("labels"), ops.CrossEntropyOptions{IgnoreIndex: new(nn.IgnoreTarget)})
		})), "targets[1] is 1, it needs to be from 0 to 0, or -100, which is IgnoreIndex (targets is labels)"},
		{run(with(batch(0, 2))), "targets[1] is 2, it needs to be from 0 to 1"},
		{run(with(batch(0, 1, 1))), "targets has shape [3], it needs one target for each row of logits: [2]"},
		{run(model(func(s *scope, in inputs) nn.Tensor {
			return masked(s, in, s.Constant("mask", data.Floats(make32(6), 2, 3)))
		})),
			"bias has shape [1 1 2 3], which does not broadcast: it needs (1 or 1, 1 or 1, 1 or 2, 1 or 2)"},
		{run(model(func(s *scope, in inputs) nn.Tensor { return s.Linear("head", in.Get("x"), 2).Log().Mean() })),
			"the losses of the last 3 steps are not finite, so the weights are of no use: a smaller learning rate, a warmup or clipped gradients"},
		{run(with(data.Batch{"x": data.Floats(make([]float64, 6), 2, 3), "labels": data.Ints([]int{0, 1}, 2)})),
			"Linear: x is float64, it needs to go with the layer's parameters, which are float32"},
		{run(with(data.Batch{"x": data.Floats(make32(6), 3, 2), "labels": data.Ints([]int{0, 1}, 2)})),
			"targets has shape [2], it needs one target for each row of logits: [3]"},
		{run(group(train.Group{Match: train.Named("haed.*")})), "group 0 matches none of the 2 parameters that are trained, such as head.weight"},
		{run(group(train.Group{})), "group 0 has no match, it needs one, such as Vectors"},
		{run(group(train.Group{Match: train.Named("head.*"), LearningRateScale: -1})), "group 0 has a learning rate scale of -1, it needs to be finite and positive"},
		{run(model(func(s *scope, in inputs) nn.Tensor {
			elsewhere := nn.NewScope(s.Graph(), nn.NewParameters(2))
			h := nn.NewLinear(elsewhere, nn.LinearConfig{In: 3, Out: 3}).Forward(in.Get("x"))
			return s.Linear("head", s.Tensor(h.Node(), h.Err()), 2).CrossEntropy(in.Get("labels"))
		})), "weight of shape [3 3] was made outside of the model's scope and is not trained: Scope.Parameter makes what is"},
		{run(model(func(s *scope, in inputs) nn.Tensor {
			s.Linear("unused", in.Get("x"), 2)
			return s.Linear("head", in.Get("x"), 2).CrossEntropy(in.Get("labels"))
		})), "the loss does not use 2 of the 4 parameters that are trained, such as unused.weight: their gradients are zero, Freeze leaves them out"},
		{run(model(func(s *scope, in inputs) nn.Tensor { return in.Get("x").Mean() })), "model gave no parameters, it needs at least one, of a layer in its scope"},
		{run(func(c *train.LoopConfig) { c.Memory = 10 }), "memory is 10, a step on batches of"},
		{resumed(resize(27)), "the checkpoint does not fit the model: tokens.weight is float32 [17 24], the model's is float32 [17 27]"},
		{resumed(func(c *train.LoopConfig) { c.Optimizer = train.Lion{} }), `the state is of "AdamW", it needs to be of "Lion"`},
		{resumed(func(c *train.LoopConfig) { c.Options.Accumulation = 1 }),
			"it took 40 batches for 20 steps, this loop would have taken 20: it needs the ranks and the accumulation that it began with"},
		{resumed(func(c *train.LoopConfig) { c.Steps = 7 }), "it has 20 steps, this loop ends at 7, which needs to be more"},
		{ranks("WORLD_SIZE=2", asIs), "of the variables RANK and WORLD_SIZE one is set, both or none are needed"},
		{ranks("RANK=0 WORLD_SIZE=2", asIs), "WORLD_SIZE says that there are 2 ranks, but MASTER_ADDR, the host of rank 0, is not set"},
		{ranks("RANK=2 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=5", asIs), "Rank is 2, it needs to be from 0 to 1 for Size 2"},
		{ranks("", func(c *train.PlaceConfig) { c.SequenceRanks = 2 }), "SequenceRanks is 2, it needs several GPUs, by GPUs or a launcher: this program is alone"},
		{ranks("", func(c *train.PlaceConfig) { c.Shard = train.ShardWeights }), `Shard is "weights", it needs several GPUs, by GPUs or a launcher`},
		{secrets("one", "other"), "it has another secret than this rank, or none: all ranks need the same in STHENO_GROUP_SECRET"},
	} {
		if m.err == nil {
			t.Errorf("mistake %d, %q, has no error", i, m.want)
			continue
		}
		said := m.err.Error()
		t.Log(i, said)
		if !strings.Contains(said, m.want) || !isPlain(said) {
			t.Errorf("mistake %d says %s, want one line with %q", i, said, m.want)
		}
	}
}

// notice is one of a training, as an error.
type notice string

func (n notice) Error() string { return string(n) }
