package main

import (
	"fmt"

	"github.com/stheno-ml/stheno/bench/internal/measure"
	"github.com/stheno-ml/stheno/bench/internal/report"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/data"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// stepModel is a GPT, the type that it computes in beside float32 weights, and the batch that it
// learns from.
type stepModel struct {
	name, figure                       string
	layers, heads, dim, context, batch int
	compute                            tensor.Dtype // float32 if zero
}

// stepModels are the presets of examples/transformer that a CPU can take: cpu, and gpu with a
// smaller batch.
var stepModels = []stepModel{
	{name: "cpu", figure: "step-time-cpu", layers: 4, heads: 4, dim: 128, context: 64, batch: 12},
	{name: "gpu, small batch", figure: "step-time-gpu", layers: 6, heads: 6, dim: 384, context: 256, batch: 8},
	{name: "cpu", layers: 4, heads: 4, dim: 128, context: 64, batch: 12, compute: ops.BFloat16},
	{name: "gpu, small batch", layers: 6, heads: 6, dim: 384, context: 256, batch: 8, compute: ops.BFloat16},
}

func (m stepModel) String() string {
	name := fmt.Sprintf("%s: %d×%d, T=%d, B=%d", m.name, m.layers, m.dim, m.context, m.batch)
	if m.compute == ops.BFloat16 {
		name += ", bfloat16"
	}
	return name
}

// The rest of a training that all models have in common.
const (
	stepVocab = 65
	stepRate  = 1e-3
	stepBeta2 = 0.99
	stepDecay = 0.1
	stepClip  = 1
)

// work is the FLOPs of a step's products: 6 for each weight of a product and token, and attention.
func (m stepModel) work() float64 {
	tokens := float64(m.batch * m.context)
	weights := float64(m.layers*12*m.dim*m.dim + stepVocab*m.dim)
	a := attentionShape{batch: m.batch, heads: m.heads, keyHeads: m.heads, length: m.context, size: m.dim / m.heads, causal: true}
	return 6*weights*tokens + float64(m.layers)*a.work()
}

func step(s *session) error {
	s.section("step", "A training step", "Forward, backward, clipping by the global norm and AdamW of a GPT on characters (vocabulary 65), in the sizes of "+
		"examples/transformer, in float32 and with activations of bfloat16, PyTorch under autocast. The share counts the products and attention alone.")
	for _, m := range stepModels {
		for _, threads := range s.threads {
			c := report.Case{
				Section: "step", Name: m.String(), Threads: threads, Figure: m.figure,
				Work: float64(m.batch * m.context), Unit: "token", Ceiling: fma, Limit: m.work(),
			}
			if !s.wants(c) {
				continue
			}
			if err := s.step(m, c); err != nil {
				return fmt.Errorf("%s: %w", c.Key(), err)
			}
		}
	}
	return nil
}

func (s *session) step(m stepModel, c report.Case) error {
	t, err := m.training()
	if err != nil {
		return err
	}
	defer t.machine.Close()
	var losses []float64
	contenders := []contender{{by: report.Ours, run: measure.Timed(s.clock, func() error {
		loss, err := t.step()
		losses = append(losses, loss)
		return err
	})}}
	for _, p := range s.peerList {
		other, err := p.step(m, c.Threads, t)
		if err != nil {
			s.missing(p.name+", training step", err)
			continue
		}
		defer other.close()
		contenders = append(contenders, other.contender(&losses))
	}
	return s.measure(c, contenders...)
}

// training is a model in the middle of its training.
type training struct {
	tokens, targets []int
	parameters      gorgonia.Nodes
	machine         gorgonia.VM
	optimizer       *train.Stepper
	loss            gorgonia.Value
}

// training makes the model, its gradients and its optimiser.
func (m stepModel) training() (*training, error) {
	g, r := gorgonia.NewGraph(), newRandom()
	s := nn.NewScope(g, nn.NewParameters(0)).Compute(m.compute)
	model := nn.NewGPT(s, nn.GPTConfig{Vocab: stepVocab, Context: m.context, Layers: m.layers, Heads: m.heads, Dim: m.dim})
	input := func(name string) (nn.Tensor, []int) {
		ids := make([]int, m.batch*m.context)
		for i := range ids {
			ids[i] = r.IntN(stepVocab)
		}
		return s.Constant(name, data.Ints(ids, m.batch, m.context)), ids
	}
	t := &training{parameters: s.Parameters()}
	tokens, ids := input("tokens")
	t.tokens = ids
	targets, ids := input("targets")
	t.targets = ids
	loss := model.Loss(tokens, targets).Node()
	if err := s.Err(); err != nil {
		return nil, err
	}
	gorgonia.Read(loss, &t.loss)
	if _, err := gorgonia.Grad(loss, t.parameters...); err != nil {
		return nil, err
	}
	var err error
	t.optimizer, err = train.NewStepper(t.parameters, train.AdamW{Beta2: stepBeta2, WeightDecay: stepDecay}, train.Options{
		Schedule: train.ConstantRate(stepRate), ClipNorm: stepClip, Groups: []train.Group{{Match: train.Vectors, NoDecay: true}},
	})
	if err != nil {
		return nil, err
	}
	ops.ReuseMemory(g)
	t.machine, err = ops.NewMachine(g, gorgonia.BindDualValues(t.parameters...))
	return t, err
}

// step gives the loss from before it changed the weights.
func (t *training) step() (float64, error) {
	err := t.machine.RunAll()
	t.machine.Reset()
	if err != nil {
		return 0, err
	}
	loss, ok := t.loss.Data().(float32)
	if !ok {
		return 0, fmt.Errorf("the loss is a %T, it needs to be a float32", t.loss.Data())
	}
	_, err = t.optimizer.Step()
	return float64(loss), err
}
