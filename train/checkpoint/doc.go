// Package checkpoint keeps the state of a training in a folder, so that it survives whatever ends
// the process.
//
// A [Folder] saves checkpoints, keeps the newest few and, beside them, the best, and finds the
// newest that is whole:
//
//	folder, err := checkpoint.Open("runs/small", 3)
//	...
//	path, err := folder.Save(checkpoint.Checkpoint{Step: 200, Weights: weights, Optimizer: moments, Meta: meta})
//	...
//	c, refused, err := folder.Latest()
//	for _, reason := range refused {
//		log.Print(reason)
//	}
//
// # Layout
//
//	runs/small/
//	    step-00000200/
//	        model.safetensors        the weights; Python's safetensors reads them
//	        optimizer.safetensors    the optimiser's tensors
//	        state.json               the step, and whatever else the caller gave
//	        SHA256SUMS               checksums of the others, for sha256sum -c as well
//	    step-00000400/
//	    best-00000200/
//
// A checkpoint that several processes saved ([Checkpoint.Parts]) has
// model-00001-of-00002.safetensors and optimizer-00001-of-00002.safetensors for each of them in
// place of the first two files: some of the weights, each whole, and pieces of the optimiser's
// tensors, whose places the file's metadata tells. Any number of processes reads it, each all of it
// or, with [LoadPart], some of the files.
//
// A folder is never overwritten. Where a step is saved that is there already, the new one is called
// step-00000200.2, and the old one is removed after that. Names that begin with .writing- or
// .deleting- are folders in the making or on their way out; [Open] removes those that a process has
// left behind. Everything else in the folder is left alone.
//
// # What survives
//
// A checkpoint is written into a folder with a name of its own. Each file is synced, then the
// folder, which is then renamed, and then the folder around it is synced; [Folder.Save] returns
// after that, and only then are older checkpoints removed.
//
// When the process is killed at any moment, by SIGKILL or for lack of memory, each checkpoint that
// Save has reported is whole, unless a newer one replaced it, and the one being saved is there
// whole or not at all.
//
// When the machine loses power, the same holds if the disk keeps what it has said to be synced,
// whatever else of it is lost, in whatever order. Before the first checkpoint Open syncs the
// folders around its own too, as whoever made them may not have. Some filesystems, those over a
// network above all, cannot sync a folder: there, and on Windows, the newest checkpoint may be
// missing after a power loss. One that has lost a part of its data is refused, and the one before
// it used; that is a reason to keep two.
//
// When the disk is full, or a write fails for another reason, Save returns the error, removes what
// it has written, and all older checkpoints stay.
//
// A file that was cut short or changed, be it in a single bit, does not have its checksum. Its
// checkpoint is refused with an error that names the file, and [Folder.Latest] uses the one before.
//
// # Processes
//
// One process at a time may write to a folder: [Open] locks it, with the file called lock, until
// [Folder.Close] or the end of the process, however that comes about; to a second one it returns
// [ErrOpen]. Some network filesystems and small systems have no locks, and there nothing detects a
// second one. Others may read at the same time through [View]. On Windows, a checkpoint that is
// being read cannot be removed: Save then says so, after it has saved the new one.
package checkpoint
