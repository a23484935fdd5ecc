// Package train trains models.
//
// # Where to start
//
//	Run                           a training, from its first step to its last
//	NewLoop, Loop.Run             the same in two calls; between them, Loop.Resume goes on with one
//	LoopConfig                    a model, batches, an optimiser, how many steps
//	Model, Inputs, Outputs        a function from the arrays of a batch to a loss and metrics
//	Metric, Accuracy, Perplexity  what is measured beside the loss
//	AdamW, SGD, Lion              optimisers; Optimizer is the interface for one of your own
//	Muon, Adafactor               two for matrices: by orthogonal steps, and with little memory
//	Options                       the schedule, clipping, accumulation, groups, an average of the weights
//	WarmupCosine, LinearDecay     schedules of the learning rate; ConstantRate is the simplest
//	Place, PlaceConfig            where a training runs: a CPU, a GPU, several, a cluster
//	NewPredictor                  runs a trained model over batches
//	package train/data            batches: of token files, texts, functions
//	package train/watch           hooks that show and record: a progress bar, logs, plots
//	package train/sample          text from a trained model
//	package train/serve           answers of a published model to many at once, over HTTP too
//	package train/embed           vectors of texts from a published model
//
// A [Loop] takes steps, evaluates now and then, writes checkpoints and tells its hooks. A step runs
// the model over some batches and lets an [Optimizer] change the parameters by the gradients.
//
//	parameters := nn.NewParameters(seed)
//	loop, err := train.NewLoop(train.LoopConfig{
//		Parameters: parameters,
//		Model: func(s *nn.Scope, in train.Inputs) train.Outputs {
//			gpt := nn.NewGPT(s, nn.GPTConfig{...})
//			return train.Outputs{Loss: gpt.Loss(in.Get("tokens"), in.Get("targets"))}
//		},
//		Optimizer: train.AdamW{WeightDecay: 0.1},
//		Options: train.Options{
//			Schedule: train.WarmupCosine{Peak: 1e-3, Min: 1e-4, Warmup: 100, Steps: 2000},
//			Groups:   []train.Group{{Match: train.Vectors, NoDecay: true}},
//			ClipNorm: 1,
//		},
//		Data: batches, Evaluations: train.Evaluations{Every: 250, Validation: others}, Steps: 2000,
//		Hooks: []train.Hook{watch.Progress(os.Stderr)},
//	})
//	end, err := loop.Run(ctx)
//
// Packages around it can be used alone. train/data has batches. train/tokenizer makes tokens of
// text. train/checkpoint keeps checkpoints, whose weights are in the format of package safetensors.
// train/watch has hooks that show and record a run. train/sample writes text. The program in
// examples/transformer puts all of them together.
//
// # Without a Loop
//
// [NewStepper] takes parameter nodes of any graph. The machine that computes the gradients is made
// with [gorgonia.BindDualValues] of the same nodes (a lispMachine needs no option). After each of
// its runs, [Stepper.Step] changes the parameters in place, on all cores, and sets the gradients to
// zero, since Gorgonia adds to them until someone does:
//
//	options := train.Options{Schedule: train.ConstantRate(1e-3)}
//	stepper, err := train.NewStepper(parameters, train.AdamW{}, options)
//	for range 2000 {
//		err = machine.RunAll()
//		machine.Reset()
//		report, err := stepper.Step()
//	}
//
// [Stepper.Queue] does the same without waiting, and hands out a report that is read later.
//
// # On a device
//
// A Loop computes on the device of its [Place], where [Place.NewParameters] makes the values. It
// waits for nothing within a step: the loss and the report of a step are read while the next one
// runs. From the third run on a step is recorded, the optimiser's work with it, and launched as a
// whole. The bits are the same, also where each batch packs its sequences in another way. A graph
// that cannot be recorded launches its kernels one by one, and the Loop says why.
//
// Without a Loop, parameters whose values were uploaded (package ops) are changed where they are,
// and the optimiser's state lies beside them. The machine is then made without BindDualValues,
// which cannot hold values of a device: a step takes the gradients that the last run computed.
// Where several runs make a step, [Stepper.Accumulate] adds up those of the others. The device
// decides by itself whether a step is clipped or skipped. With Queue the host need not know before
// the next run is on its way.
//
// # Several processes
//
// The ranks of a Place, which package train/distributed joins, train one model:
//
//   - Each step uses the mean of the gradients of all. Each rank takes its share of the step's
//     batches, and all keep the same bits.
//   - Rank 0 has the hooks and the checkpoints. A training goes on with any number of ranks that
//     takes as many batches a step.
//   - Ranks with GPUs exchange gradients over NCCL, as a part of the recorded step, most of them
//     while others are computed. On the CPU they do so over TCP, for tests.
//   - With [ShardState] each rank holds one shard of the optimiser's state. With [ShardWeights] it
//     holds one shard of the weights, gradients and state, and a layer's weight is gathered just
//     before the layer needs it. Checkpoints hold whole weights either way. Either way each rank
//     makes its share of [Muon]'s products.
//   - With ShardRanks of [PlaceConfig] groups of ranks, such as those of one machine, each hold a
//     whole copy of what is sharded. Between groups only shards of gradients travel, once a step.
//   - With SequenceRanks of [PlaceConfig] ranks share each sequence, for those that are longer than
//     one device holds.
//   - With SharedFiles all ranks write a checkpoint together and read it together, each its own
//     files.
//
// # When a rank is lost
//
// A rank is lost when its process is killed, its machine is gone, or nothing is heard of it for the
// place's Timeout. By Lost of [PlaceConfig] the training then ends, or it goes on:
//
//   - By default the others end. Where every rank has all of the state, rank 0 leaves a checkpoint
//     of the last step, if no update was under way. With ShardState the state is gone with the
//     rank, and with ShardWeights the weights: the error says which checkpoint is the newest, and
//     how many steps are lost.
//   - With [distributed.LostReplaced] the others wait, up to Timeout, for a process in its place.
//     PlaceConfig.Run starts one for GPUs; elsewhere whoever has the group's secret starts one with
//     the same variables, on any machine that reaches rank 0's address. It gets weights, state and
//     the number of the step from a rank that lives. At most the step under way is done again, and
//     the bits are those of a training that lost nobody. Rank 0 is replaced like any other, where
//     its files are; [Place.Late] tells its program, and logs go on with each step once.
//   - With [distributed.LostMissed] the others go on without it: with the largest number of ranks
//     that divides the batches of a step, of which each then takes more. The bits are those of a
//     run that had so many ranks from that step on. Rank 0 has the hooks and the checkpoints, and
//     cannot be missed: without it the others end after Timeout.
//
// With ShardState or ShardWeights no rank has the whole: the training then goes back to the newest
// checkpoint, and says so. On GPUs the losses that are told of the last two steps before a rank was
// lost may be the means over one rank's batches, since the lost rank's are not known.
//
// A rank that fails with an error gives up, and ends all. Where a rank's data end, all stop before
// the same step and leave a checkpoint of it.
//
// # When the loss spikes
//
// With GoBack of [LoopConfig] a training goes back by itself to its newest good checkpoint, leaves
// out the batches up to the spike, and says so. It is off by default, and bounded: see [GoBack].
//
// # A budget of memory
//
// With Memory of [LoopConfig] a step takes at most so many bytes of each device, or of the host.
// Where it would take more, parts of blocks keep nothing for the backward pass, which computes them
// again: of all sets of parts that keep the budget, one that costs little. Over long sequences what
// attention gives stays, since to compute that costs most. The bits are the same.
// [Loop.Memory] tells what a step takes and which parts these are. A budget that is too small is an
// error that says the least.
//
// # Stopping and going on
//
// Nothing in a Loop depends on when it was started or how often it was stopped: batches and dropout
// are functions of seeds and of the number of the step. A run that was cancelled, or killed, goes
// on from its newest checkpoint ([Loop.Resume]) and ends with the same bits as one that was left
// alone, on the same machine and vector level.
//
// Checkpoints are written beside the steps that follow, from a copy that is taken beside the next
// one. BenchmarkCheckpoint measures what that costs of a step. The copy takes as much memory as the
// checkpoint has bytes.
//
// # Gradients that are not finite
//
// A step with a NaN or infinite gradient is skipped: no parameter and no state changes, and its
// [Report] names the parameter. The same holds for a gradient norm of 2⁶⁴ or more, whose square
// overflows float32. Too many such steps in a row are an error. So is a training in which no step
// changed anything: its error names what in the batch is not finite.
//
// # Numbers
//
// Parameters are float32 or float64. AdamW and SGD follow PyTorch's arithmetic, to rounding. A step
// gives the same bits on any number of cores.
package train
