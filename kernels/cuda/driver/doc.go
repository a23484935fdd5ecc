// Package driver runs kernels on NVIDIA GPUs: what package driver needs of the driver, and no
// kernel. It is compiled with the build tag gpu; without the tag it is empty.
//
// A [GPU] has one stream. Everything that is queued there runs in the order of the calls, from
// whatever goroutine. So memory that is freed may be given out again while the work that used it is
// still queued.
//
// # Where work goes
//
// A [Queue] takes work. There are five, and code that queues kernels does not ask which one it has:
//
//   - GPU.Queue outside of [GPU.Capture] gives work to the GPU at once;
//   - inside of it, work becomes part of a recording, which [Recording.Launch] runs;
//   - inside of [GPU.Vary] in a recording, work becomes part of the recording, and can change;
//   - before each launch, Vary's function is called again. What it queues then takes the places of
//     the kernels that were recorded;
//   - inside of [GPU.CountKernels] nothing is queued.
//
// # What keeps memory
//
// A [Block] lasts until Free. An [Owner] is a block that Go's collector frees: tensors refer to it
// in kernels.Tensor.Owner.
//
// # Addresses
//
// Kernels take addresses of two types: [Readable] from [Read], and [Writable] from [Written].
// Written tells whoever keeps a copy of a tensor's contents that they change. A struct of arguments
// says which addresses a kernel writes by their types, so no kernel writes in silence.
package driver
