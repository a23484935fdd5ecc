package train

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/checkpoint"
	"github.com/stheno-ml/stheno/train/distributed"
)

// Place is where a training runs: a device, and the ranks that train together, each a process with
// a device of its own. It is opened once, and given to the parameters and to the Loop. A program
// that does so runs on a CPU, a GPU, several, or a cluster. A nil Place is this process alone, on
// the host.
//
//	err := train.PlaceConfig{}.Run(ctx, func(ctx context.Context, place *train.Place) error {
//		parameters, err := place.NewParameters(seed)
//		...
//		loop, err := train.NewLoop(train.LoopConfig{Place: place, ...})
//	})
type Place struct {
	device        *ops.Device // nil for the host
	says          string      // what the device is
	ranks         *distributed.Group
	sequenceRanks *distributed.Group // those that share each sequence with this one
	shard         Shard
	shardRanks    *distributed.Group // those that hold one copy of what is sharded; nil for all ranks
	copyRanks     *distributed.Group // those that hold the same shards as this one; nil for itself alone
	sharedFiles   bool
}

// Shard says what each of several ranks holds only its own shard of.
type Shard string

const (
	ShardNothing Shard = ""
	// ShardState shards what the optimiser remembers (ZeRO's first stage), such as AdamW's 8 bytes
	// a parameter. As many bytes travel as without. Losses and weights are the same, float32's to
	// the last bit.
	ShardState Shard = "state"
	// ShardWeights shards weights and gradients too, for a model that no device holds. A weight is
	// gathered just before a layer needs it, so communication grows by half. Two uses of one
	// weight, such as a tied head, each add up their gradients over the ranks: sums then have
	// another order. All ranks evaluate together, and hooks, which are rank 0's alone, cannot run
	// the model.
	ShardWeights Shard = "weights"
)

// PlaceConfig describes a [Place]. Its zero value is a GPU where there is one, with the ranks that
// a launcher has started: torchrun, Slurm, Kubernetes' PyTorchJob or Open MPI.
type PlaceConfig struct {
	// Device is where this process computes: "cpu", "cuda", "cuda:1" and so on. "auto" or nothing
	// means a GPU where there is one; of several ranks each takes its own.
	Device string
	// GPUs has [PlaceConfig.Run] start the program anew on so many GPUs of this machine. 0 means no
	// start.
	GPUs int
	// Shard is what ranks hold only their shards of. After a rank is gone there is then no
	// checkpoint of the last step: the steps since the newest one are lost.
	Shard Shard
	// ShardRanks is how many ranks hold one copy of what Shard says, each its shard (hybrid
	// sharding); 0 means all. These ranks follow each other, such as those of one machine. Further
	// ranks hold further copies, with the same bits. Weights travel within a copy alone, and so do
	// gradients, whose sums are then added up between ranks that have the same shard.
	ShardRanks int
	// SequenceRanks is how many ranks share each sequence, for those that are longer than one
	// device holds; 0 means 1. These ranks follow each other and take the same batches, of which
	// each has its rows. The second axis of an array is the sequence, and its length a multiple of
	// twice this. What they compute is what one process computes, up to the order of sums: of a
	// mean over the targets that count, which are those in the array targets that are not negative.
	SequenceRanks int
	// SharedFiles says that all ranks see rank 0's files under the same path. They then write a
	// checkpoint together and read it together, each its own files. Otherwise rank 0 writes and
	// reads all. What rank 0 says counts for all.
	SharedFiles bool
	// Lost says what becomes of the training when a rank is lost. The zero value ends it. By
	// LostReplaced the others wait for a process in its place, which Run starts for GPUs; by
	// LostMissed they go on without it, with as many as a step's batches can be dealt out to. See
	// "When a rank is lost" in the documentation of this package.
	Lost distributed.Lost
	// Timeout is how long to wait for a rank that has not come or says nothing; 0 means 10 minutes.
	// A rank that writes a checkpoint or a text keeps the others waiting.
	Timeout time.Duration
	// Group is the ranks, if the program has joined them itself; nil means those of the
	// environment.
	Group *distributed.Group

	flags bool // settings are called by their flags in errors
}

const defaultRankTimeout = 10 * time.Minute

// Flags registers -device, -gpus, -shard, -shard-ranks and -share, the number of ranks that share
// each sequence.
func (c *PlaceConfig) Flags(flags *flag.FlagSet) {
	c.flags = true
	flags.StringVar(&c.Device, "device", "auto",
		"where to compute: cpu, cuda, cuda:1 and so on, or auto: a GPU where there is one")
	flags.Var((*count)(&c.GPUs), "gpus", "train on `N` GPUs of this machine, a process each; -batch and -accumulation are "+
		"those of each, so a step takes N times as many (fewer with -share)")
	flags.StringVar((*string)(&c.Shard), "shard", "", "`what` each of several GPUs holds its part of alone: state, the "+
		"optimiser's, or weights too, with their gradients, for a model that one GPU cannot hold; each then writes and "+
		"reads its part of checkpoints")
	flags.Var((*count)(&c.ShardRanks), "shard-ranks", "every `N` of several GPUs, such as those of one machine, hold a copy of what -shard "+
		"says, each its part, and others hold further copies (default: all hold one)")
	c.SequenceRanks = 1
	flags.Var((*count)(&c.SequenceRanks), "share", "every `N` of several GPUs share a batch and each holds a part of its "+
		"sequences, for a -context that one GPU cannot hold; it needs to be a multiple of 2·N")
}

// LostFlag registers -lost. It is for programs that begin again where they were, see [Place.Late].
func (c *PlaceConfig) LostFlag(flags *flag.FlagSet) {
	flags.StringVar((*string)(&c.Lost), "lost", "", "`what` the others do when a GPU's process is lost: replace, it is "+
		"started again and gets what they have, or fewer, they go on without it; otherwise all end, after a checkpoint")
}

// count is a flag that needs to be positive.
type count int

func (c *count) String() string {
	if c == nil || *c == 0 {
		return ""
	}
	return strconv.Itoa(int(*c))
}

func (c *count) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("it needs to be a number and at least 1")
	}
	*c = count(n)
	return nil
}

var deviceName = regexp.MustCompile(`^(|auto|cpu|cuda(:[0-9]{1,3})?)$`)

// Validate returns what is wrong with a config, or nil.
func (c PlaceConfig) Validate() error {
	switch {
	case !deviceName.MatchString(c.Device):
		return fmt.Errorf("%s is %q, it needs to be auto, cpu, cuda or cuda:N", c.named("device"), c.Device)
	case c.GPUs < 0:
		return fmt.Errorf("%s is %d, it needs to be at least 1", c.named("gpus"), c.GPUs)
	case c.GPUs > 0 && !c.isAuto():
		return fmt.Errorf("%s is given with %s, which takes the first GPUs of this machine", c.named("device"), c.named("gpus"))
	case c.Shard != ShardNothing && c.Shard != ShardState && c.Shard != ShardWeights:
		return fmt.Errorf("%s is %q, it needs to be %s or %s", c.named("shard"), c.Shard, ShardState, ShardWeights)
	case c.ShardRanks < 0 || c.ShardRanks == 1:
		return fmt.Errorf("%s is %d, it needs to be at least 2, or 0 for all", c.named("shard-ranks"), c.ShardRanks)
	case c.ShardRanks > 0 && c.Shard == ShardNothing:
		return fmt.Errorf("%s is %d and %s is empty, which says what these ranks hold their parts of", c.named("shard-ranks"), c.ShardRanks, c.named("shard"))
	case c.GPUs%max(1, c.ShardRanks) != 0:
		return fmt.Errorf("%s is %d, it needs to divide %s %d", c.named("shard-ranks"), c.ShardRanks, c.named("gpus"), c.GPUs)
	case c.Lost.Validate() != nil:
		return fmt.Errorf("%s %w", c.named("lost"), c.Lost.Validate())
	case c.Lost == distributed.LostMissed && c.ShardRanks > 0:
		return fmt.Errorf("%s is %s with %s, where each rank has a part that cannot be missed", c.named("lost"), c.Lost, c.named("shard-ranks"))
	case c.Lost == distributed.LostMissed && (c.Shard == ShardWeights || c.SequenceRanks > 1):
		return fmt.Errorf("%s is %s with %s or %s, where each rank has a part that cannot be missed", c.named("lost"), c.Lost, c.named("shard"), c.named("share"))
	case c.SequenceRanks < 0:
		return fmt.Errorf("%s is %d, it needs to be at least 1", c.named("share"), c.SequenceRanks)
	case c.GPUs%max(1, c.SequenceRanks) != 0:
		return fmt.Errorf("%s is %d, it needs to divide %s %d", c.named("share"), c.SequenceRanks, c.named("gpus"), c.GPUs)
	}
	return nil
}

// isAuto reports whether the host is good enough where there is no GPU.
func (c PlaceConfig) isAuto() bool { return c.Device == "" || c.Device == "auto" }

// named is a setting in an error.
func (c PlaceConfig) named(flag string) string {
	if c.flags {
		return "-" + flag
	}
	return map[string]string{"device": "Device", "gpus": "GPUs", "shard": "Shard", "shard-ranks": "ShardRanks", "share": "SequenceRanks", "lost": "Lost"}[flag]
}

// Run calls a function with the place, and closes that afterwards. An error of the function ends
// the other ranks too. With GPUs, the process that no launcher has started starts the program once
// for each of them and waits.
func (c PlaceConfig) Run(ctx context.Context, do func(ctx context.Context, p *Place) error) error {
	if c.GPUs > 0 && os.Getenv("RANK") == "" {
		return c.launch(ctx)
	}
	p, err := OpenPlace(ctx, c)
	if err != nil {
		return err
	}
	if err := do(ctx, p); err != nil {
		p.ranks.Abort(err)
		return errors.Join(err, p.Close())
	}
	return p.Close()
}

func (c PlaceConfig) launch(ctx context.Context) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if ops.Devices() < c.GPUs {
		_, err := ops.OpenDevice(c.GPUs - 1)
		return fmt.Errorf("%s is %d: %w", c.named("gpus"), c.GPUs, err)
	}
	return distributed.Launch(ctx, c.GPUs, distributed.LaunchConfig{Lost: c.Lost})
}

// OpenPlace joins the ranks and opens this process's device. [PlaceConfig.Run] does so for a whole
// program.
func OpenPlace(ctx context.Context, c PlaceConfig) (*Place, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	ranks, err := c.join(ctx)
	if err != nil {
		return nil, err
	}
	p := &Place{ranks: ranks, shard: c.Shard, sharedFiles: c.SharedFiles}
	if err := p.open(c); err != nil {
		ranks.Abort(err)
		return nil, err
	}
	return p, nil
}

// join joins the ranks. A process that no launcher has started is alone.
func (c PlaceConfig) join(ctx context.Context) (*distributed.Group, error) {
	if c.Group != nil {
		return c.Group, nil
	}
	started, err := distributed.FromEnvironment()
	if err != nil {
		return nil, err
	}
	if size := max(1, started.Size); c.GPUs > 0 && size != c.GPUs {
		return nil, fmt.Errorf("%s is %d, a launcher has started %d ranks: it needs no %s", c.named("gpus"), c.GPUs, size, c.named("gpus"))
	}
	if alone := started.Size <= 1; alone && c.Shard != ShardNothing {
		return nil, fmt.Errorf("%s is %q, it needs several GPUs, by %s or a launcher: this program is alone",
			c.named("shard"), c.Shard, c.named("gpus"))
	} else if alone && c.SequenceRanks > 1 {
		return nil, fmt.Errorf("%s is %d, it needs several GPUs, by %s or a launcher: this program is alone",
			c.named("share"), c.SequenceRanks, c.named("gpus"))
	}
	if started.Timeout = c.Timeout; c.Timeout == 0 {
		started.Timeout = defaultRankTimeout
	}
	started.Lost = c.Lost
	return distributed.Join(ctx, started)
}

// split finds the ranks that share sequences, and those that hold one copy of what is sharded.
// Where these are the same ranks they are one group, of one network.
func (p *Place) split(c PlaceConfig) (err error) {
	if c.SequenceRanks > 1 {
		if p.sequenceRanks, err = p.ranks.Split(c.SequenceRanks); err != nil {
			return fmt.Errorf("%s is %d: %w", c.named("share"), c.SequenceRanks, err)
		}
	}
	if c.ShardRanks == 0 {
		return nil
	}
	if p.shardRanks = p.sequenceRanks; c.ShardRanks != c.SequenceRanks {
		p.shardRanks, err = p.ranks.Split(c.ShardRanks)
	}
	if err == nil {
		p.copyRanks, err = p.ranks.SplitAcross(c.ShardRanks)
	}
	if err != nil {
		return fmt.Errorf("%s is %d: %w", c.named("shard-ranks"), c.ShardRanks, err)
	}
	return nil
}

// open finds the parts of the ranks, and opens the device.
func (p *Place) open(c PlaceConfig) (err error) {
	if err := p.split(c); err != nil {
		return err
	}
	if c.Device == "cpu" {
		p.says = "the CPU"
		return nil
	}
	index := p.ranks.LocalRank()
	if ops.Devices() == 1 { // a launcher lets a rank see no other
		index = 0
	}
	if digits := deviceName.FindStringSubmatch(c.Device)[2]; digits != "" {
		if index, err = strconv.Atoi(digits[1:]); err != nil {
			return fmt.Errorf("%s is %q: %w", c.named("device"), c.Device, err)
		}
	}
	p.device, err = ops.OpenDevice(index)
	switch {
	case err == nil:
		p.says = p.device.String()
	case c.isAuto() && c.GPUs == 0:
		p.says = fmt.Sprintf("the CPU (%s)", strings.TrimPrefix(err.Error(), "OpenDevice: "))
	default:
		return fmt.Errorf("%s is %q: %w", c.named("device"), c.Device, err)
	}
	return nil
}

// shards reports whether ranks hold only their shards of something.
func (p *Place) shards() bool { return p != nil && p.shard != ShardNothing }

// Close leaves the ranks. The device stays open, as long as something lives there.
func (p *Place) Close() error { return p.Ranks().Close() }

// Device is where this process computes, nil for the host.
func (p *Place) Device() *ops.Device {
	if p == nil {
		return nil
	}
	return p.device
}

// Ranks are the processes that train together, nil or a group of one for this process alone.
func (p *Place) Ranks() *distributed.Group {
	if p == nil {
		return nil
	}
	return p.ranks
}

// SequenceRanks are those that share each sequence with this one, nil or a group of one if it has
// them whole. Attention, dropout and positions of package nn take part without being told.
func (p *Place) SequenceRanks() *distributed.Group {
	if p == nil {
		return nil
	}
	return p.sequenceRanks
}

// ShardRanks are those that hold one copy of what is sharded together with this one: all ranks, or
// as many as PlaceConfig.ShardRanks says.
func (p *Place) ShardRanks() *distributed.Group {
	if p == nil || p.shardRanks == nil {
		return p.Ranks()
	}
	return p.shardRanks
}

// copies are the ranks that hold the same shards as this one, nil for itself alone.
func (p *Place) copies() *distributed.Group {
	if p == nil {
		return nil
	}
	return p.copyRanks
}

// Leads reports whether this process is rank 0, which has the hooks and the checkpoints and tells
// people of the training.
func (p *Place) Leads() bool { return p.Ranks().Rank() == 0 }

// Late reports whether the training was under way when this process came, in the place of a rank
// that is lost. What the others have [Loop.Run] takes over. The program itself needs to go on with
// the files that are there: the run's folder is not a new one.
func (p *Place) Late() bool { return p.Ranks().Renewed() }

// String says in words what computes.
func (p *Place) String() string {
	switch {
	case p == nil:
		return "the CPU"
	case p.sequenceRanks.Size() > 1:
		return fmt.Sprintf("%d ranks with a batch for every %d, this one on %s", p.ranks.Size(), p.sequenceRanks.Size(), p.says)
	case p.ranks.Size() > 1:
		return fmt.Sprintf("%d ranks with a batch each, this one on %s", p.ranks.Size(), p.says)
	}
	return p.says
}

// OpenCheckpoints opens a folder as [checkpoint.Open] does, in the one process that writes
// checkpoints. The others get nil, which is what their Loop takes.
func (p *Place) OpenCheckpoints(path string, keep int) (*checkpoint.Folder, error) {
	if !p.Leads() {
		return nil, nil
	}
	return checkpoint.Open(path, keep)
}

// NewParameters makes the values of a model that lives at the place.
func (p *Place) NewParameters(seed uint64) (*nn.Parameters, error) {
	parameters := nn.NewParameters(seed)
	return parameters, p.Take(parameters)
}

// Take moves values to the place, where ShardWeights leaves each rank its shards of them. It comes
// before the first layer that is made of them.
func (p *Place) Take(parameters *nn.Parameters) error {
	if p.Device() != nil {
		if err := parameters.MoveTo(p.device); err != nil {
			return err
		}
	}
	if p == nil || p.shard != ShardWeights {
		return nil
	}
	return parameters.ShareOut(p.ShardRanks())
}
