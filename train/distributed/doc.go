// Package distributed trains one model in several processes, the ranks of a [Group]. A launcher
// starts the same program once for each GPU, [FromEnvironment] reads what torchrun, Slurm,
// Kubernetes' PyTorchJob or Open MPI tells a process of its place, and [Join] waits until all have
// come:
//
//	config, err := distributed.FromEnvironment()
//	group, err := distributed.Join(ctx, config)
//	defer group.Close()
//	err = group.Sum(gradients...)
//
// Without a launcher that is a group of one, whose operations do nothing: the same program runs
// alone. [Launch] starts the ranks of one machine without a launcher.
//
// # What carries tensors
//
// Tensors of GPUs travel from GPU to GPU by NCCL, once the group is connected to a device
// ([Group.Connect]). Its library is looked for when a program first does so: where the loader finds
// libnccl.so.2, in the folders of Python's wheels (nvidia-nccl-cu12, nvidia-nccl-cu13), or where
// STHENO_NCCL says. What it computes has the same bits on all ranks.
//
// Beside the operations of all with all there is [Group.Exchange] between two, by which ranks share
// sequences that are longer than one device holds: a Group is the Ranks of
// [github.com/stheno-ml/stheno/ops.AttentionOptions]. [Group.Split] and [Group.SplitAcross] make
// parts of a group, the rows and the columns of a mesh: a few ranks share sequences or weights, and
// all of them the batches.
//
// Tensors of the host travel over TCP, from each rank to each. That is slow, simple, and meant for
// tests and for numbers of a few bytes: what it computes is a sum in the order of the ranks, with
// the same bits on all of them.
//
// # Who can join
//
// Ranks that have one secret, in STHENO_GROUP_SECRET or [Config].Secret, prove it to each other
// before anything else, by HMACs over nonces in both directions. A stranger without it can neither
// join, nor end a group, nor learn its key. [Launch] makes a secret for the ranks that it starts;
// with other launchers, set one on all machines, such as 32 random bytes in hexadecimal. Rank 0
// then listens at all addresses of its machine.
//
// Without a secret, rank 0 listens at MASTER_ADDR alone, and whoever reaches that address is
// trusted: use that on the loopback or within a network of your own.
//
// The secret keeps strangers out, and nothing more: what ranks send is not encrypted, and who can
// change what passes on the network can change it. Ranks trust each other: a frame of a rank is
// checked in its form, not in its numbers.
//
// # When a rank fails
//
// The operations of a group are collective, so one rank that is missing stops all. A rank that
// dies, hangs or gives up (Abort) ends the operations of all others with an error that names it: at
// once where its connection ends, and otherwise within Config.Timeout. Work that waits on the
// devices is aborted then, and what it computed is of no use. The operations are counted and
// compared, so ranks that call different ones, or with other shapes, get an error too instead of a
// sum of unlike things.
//
// # When a rank is lost and the training is to go on
//
// By Config.Lost a group survives the loss of ranks: a process that was killed, a machine that is
// gone, a rank of which nothing was heard for Config.Timeout. Operations then fail with [ErrLost],
// and [Group.Renew] brings those that are left together again, where they met first:
//
//   - With LostReplaced they wait for a process that takes the lost rank's place. [Launch] starts
//     one, or whoever has the group's secret starts it with the same variables, on the same machine
//     or another. Rank 0 is replaced like any other, on the machine of MASTER_ADDR. Where no
//     process comes within Config.Timeout, Renew fails with an error that names the rank.
//   - With LostMissed they go on with fewer. They meet at rank 0, which cannot be missed. Without
//     it they wait for Config.Timeout, in case that only a connection ended. Then Renew fails with
//     an error that names rank 0 and says what to do: start all ranks again. [Launch] does not
//     wait. A rank that lives and was left out ends likewise.
//
// A rank that was only stopped for a while takes its own place when it goes on. What the training
// is at is the program's affair: a [github.com/stheno-ml/stheno/train.Loop] hands it over.
package distributed
