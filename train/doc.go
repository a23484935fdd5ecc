// Package train trains models.
//
// # Where to start
//
//	NewLoop, Loop.Run             a training, from its first step to its last; Loop.Resume goes on with one
//	LoopConfig                    what a Loop needs: a model, batches, an optimiser, how many steps
//	Model, Inputs, Outputs        a function from the arrays of a batch to a loss, and what else is shown
//	Metric, Accuracy, Perplexity  what is measured beside the loss
//	NewAdamW, NewSGD, NewLion     optimisers; Options has clipping, accumulation, groups
//	WarmupCosine, LinearDecay     schedules of the learning rate; ConstantRate is the simplest
//	NewPredictor                  runs a trained model over batches
//	package train/data            batches: of token files, texts, functions
//	package train/watch           hooks that show and record: a progress bar, logs, plots
//	package train/sample          text from a trained model
//
// A [Loop] runs steps, evaluates now and then, writes checkpoints and tells its hooks; an
// [Optimizer] changes the parameters of a Gorgonia graph by their gradients, at a learning rate that follows a [Schedule].
//
//	parameters := nn.NewParameters(seed)
//	loop, err := train.NewLoop(train.LoopConfig{
//		Model: func(g *gorgonia.ExprGraph, in train.Inputs) (train.Outputs, error) {
//			m, err := nn.NewGPT(g, nn.GPTConfig{Parameters: parameters, ...})
//			...
//			loss, err := m.Loss(in["tokens"], in["targets"])
//			return train.Outputs{Loss: loss, Parameters: m.Parameters()}, err
//		},
//		Optimizer: func(parameters gorgonia.Nodes) (*train.Optimizer, error) {
//			return train.NewAdamW(parameters, train.AdamWConfig{
//				WeightDecay: 0.1,
//				Options: train.Options{
//					Schedule: train.WarmupCosine{Peak: 1e-3, Min: 1e-4, Warmup: 100, Steps: 2000},
//					Groups:   []train.Group{{Match: train.Vectors, NoDecay: true}},
//					ClipNorm: 1,
//				},
//			})
//		},
//		Data: batches, Validation: others, Steps: 2000, EvalEvery: 250,
//		Hooks: []train.Hook{watch.Progress(os.Stderr)},
//	})
//	end, err := loop.Run(ctx)
//
// Around it, each in a package of its own that can be used alone: train/data has batches, train/tokenizer makes tokens of
// text, train/checkpoint keeps checkpoints, whose weights are in the format of the package safetensors, train/watch has hooks
// that show and record a run, and train/sample writes text. The program in examples/transformer puts all of them together.
//
// # Without a Loop
//
// [NewAdamW], [NewSGD] and [NewLion] take parameter nodes of any graph. The machine that computes the gradients is made
// with [gorgonia.BindDualValues] of the same nodes (a lispMachine needs no option); after each of its runs,
// [Optimizer.Step] changes the parameters in place, on all cores, and sets the gradients to zero, since Gorgonia adds to
// them until someone does:
//
//	for range 2000 {
//		err = machine.RunAll()
//		machine.Reset()
//		report, err := optimizer.Step()
//	}
//
// [Optimizer.Queue] does the same without waiting, and hands out a report that is read later.
//
// # On a device
//
// A Loop computes on LoopConfig.Device, to which nn.Parameters.MoveTo has moved the values. It waits for nothing within a step: the
// loss and the report of a step are read while the next one runs. From the third run on a step is recorded, the optimiser's work
// with it, and launched as a whole, with the same bits, also where sequences are packed in another way in each batch; a graph that cannot
// be recorded goes on launching its kernels one by one, and the Loop says why.
//
// Without a Loop, parameters whose values were uploaded (package ops) are changed where they are, and the optimiser's state lies beside
// them. The machine is then made without BindDualValues, which cannot hold values of a device: a step takes the gradients that the last
// run computed, and where several runs make a step, [Optimizer.Accumulate] adds up those of the others. The device decides by itself
// whether a step is clipped or skipped; with Queue the host need not know before the next run is on its way.
//
// # Several processes
//
// With Options.Ranks, the processes of a group (package train/distributed) train one model: each step uses the mean of the
// gradients of all, each rank takes its share of the step's batches, and all keep the same bits. Rank 0 has the hooks and the
// checkpoints, from which a training goes on with any number of ranks that makes as many batches a step. Ranks whose loops have a
// Device exchange gradients over NCCL, as a part of the recorded step, most of them while others are computed; on the CPU they
// do so over TCP, for tests. With Options.ShardState each has its part of the optimiser's state alone, and with
// LoopConfig.CheckpointParts each writes its part of a checkpoint, and reads some of the files of one.
//
// A model that no device holds is shared out itself, before its layers are made:
//
//	err := parameters.ShareOut(group) // and Options.Ranks is the group
//
// Each rank then has its part of the weights, of their gradients and of the state, a weight is whole while a layer computes with it, and half as
// much again travels. What the loop trains is the same, and so are checkpoints, which hold whole weights. Two uses of one weight, such as a
// tied head, each add up their gradients over the ranks, so that sums have another order. All ranks evaluate together, and hooks,
// which are rank 0's alone, cannot run the model.
//
// Ranks can also share each sequence, for those that are longer than one device holds: the attention of the model is given the group
// ([github.com/stheno-ml/stheno/ops.AttentionOptions].Ranks), and the batches come from [ShareSequences]. With a part of the group in its
// place ([distributed.Group.Split]), every few ranks share sequences and all share the batches of a step.
//
// A rank that dies or hangs ends the others. Where every rank has all of the optimiser's state, rank 0 then leaves a checkpoint of the last
// step, if no update was under way. With ShardState the state is gone with the rank, and with ShareOut the weights: the error says which
// checkpoint is the newest, and how many steps are lost. Where a rank's data end, all stop before the same step and leave a checkpoint of it.
//
// # Stopping and going on
//
// Nothing in a Loop depends on when it was started or how often it was stopped: batches and dropout are functions of
// seeds and of the number of the step. A run that was cancelled, or killed, goes on from its newest checkpoint
// ([Loop.Resume]) and ends with the same bits as one that was left alone, on the same machine and vector level.
//
// # Gradients that are not finite
//
// A step whose gradients hold a NaN or an infinity would destroy the model. It changes no parameter and no state, and
// its [Report] says so and names the parameter. So it is with gradients whose norm is 2⁶⁴ or more, before clipping: their
// squares are infinite in float32. When too many steps in a row are like that, Step returns an error.
//
// # Numbers
//
// Parameters are float32 or float64. AdamW and SGD follow PyTorch's arithmetic, to rounding. A step gives the same bits
// on any number of cores.
package train
