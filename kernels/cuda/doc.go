// Package cuda computes on NVIDIA GPUs, in programs that are built with the tag gpu. Without the
// tag the package needs no C compiler and finds no device: [Count] is 0, and [Open] says how to
// build. A program built with the tag starts where there is no driver too: [Open] then says what is
// missing.
//
// [Open] gives a [Device], which is a kernels.Backend: Alloc gives tensors in its memory,
// [Device.Copy] moves data between any two places, and the methods of the kernel interfaces compute
// there. Package ops uses it for Gorgonia values that live on a device.
//
// # Order
//
// A device has one stream. Every method queues its work there and returns; work runs in the order
// in which it was queued, so the result of one call may be passed to the next without waiting.
// [Device.Synchronize] waits, and so do a Number that [Device.Read] asked for when it is looked at,
// and [Device.Copy] where it copies to the host; a copy from the host takes the caller's memory at
// once. All methods may be called from any goroutine. An error of a kernel that had already been
// queued comes back from whatever call notices it first, and names the kernel that was queued last.
// An id or a target that is out of range reads and writes nothing; the next call that waits for the
// device returns it as an error.
//
// [Device.Capture] records what a function queues, and [Recording.Launch] queues all of it again,
// for the price of one launch. A recording keeps the memory that its work took for itself. Work
// that depends on what the host reads, such as the lengths of packed sequences, goes through
// [Device.Vary], which asks for it again before each launch.
//
// # Memory
//
// A tensor's memory goes back to the device's allocator when the last Tensor that refers to it is
// gone, as Go's memory does: Tensor.Owner keeps it. The allocator keeps freed memory and gives it
// out again; [Device.Memory] shows how much, and [Device.Trim] returns it to the driver. Where the
// driver has no more, the allocator first lets Go's collector find dead tensors and gives back what
// it kept; only then does a call fail, with an error that names the bytes asked for and free, and
// after that the allocator works as before.
//
// # Kernels
//
// The kernels are CUDA C++ in src, compiled to PTX, which lies packed in ptx and is embedded. A
// kernel is unpacked when it is first used; the driver then compiles it for its device and keeps
// the result in its own cache. That takes seconds, so that Hopper's kernels are there as cubins
// too, which drivers of CUDA 13 load. Nothing but the driver's libcuda is needed at run time, and
// NCCL by [Device.JoinNetwork]; the README beside this file says how to build.
//
// Attention with a score or a mask that a user wrote is compiled by NVRTC when it is first met, see
// [OnCompile] and [NoCompiler], and so are dropout and slopes of a part of a larger problem, such
// as a rank's block of a sequence that ranks share. For each tile of queries, the device lists the
// tiles of keys that the mask shows; backward lists the opposite way. Kernels visit only listed
// tiles. They skip the mask in the longest run of fully visible ones. With a mask alone, Hopper's
// kernels make tiles of any 64 keys that are seen, wherever they lie. A mask is gone through once,
// and again when the device finds that what it looks up has changed; that is seen where the tables
// have up to 16 MiB and lie in one piece, others are gone through in each call. The lists have a
// bit for each pair of tiles, and no more than 2,048 a row of tiles: beyond about 131,000 tokens a
// bit stands for several tiles, which are visited together. With Deterministic, backward kernels
// know of a mask its bands alone. The sums of the gradients of tables are then of integers, and
// take 104 bytes an element. Table entries beyond 32 bits are cut to them, and not an error as on
// the CPU.
//
// Attention to listed keys runs on kernels for any device since Ampere, with heads up to 256. The
// query heads of a group share the rows of K and V that a block gathers. The gradients of K and V
// are sums of float32 in no order. With Deterministic they are sums of integers of 64 bits, in a
// unit that follows from the largest elements: a NaN in q, v or dO then makes all of them NaN.
//
// On Hopper, groups of eight heads of 16 bits and more have forward kernels of their own. Where
// lists have a good part of the keys, full attention with a bias of −∞ takes less time than
// gathering them, by what was measured: it is used then, and borrows up to 512 MiB for the bias. A
// list that has a key twice, a number that is not finite or one beyond 2⁴⁸ is found on the device,
// and the problem is gathered after all, which takes longer than either way alone.
//
// Second derivatives of attention run on kernels for any device, with heads up to 256. Hopper has
// its own for 16 bits without options. They know no score and no mask of a user's, and with
// Deterministic no gradient of a bias. Results are the same from call to call, but for that of a
// bias whose elements several scores share. In 16 bits a bias that keys share takes the kernels for
// heads of 256, which need 116 KiB of shared memory a block; a device with less returns an error
// that wraps errors.ErrUnsupported.
//
// Products take packed weights, whose numbers are rounded to the type of what they are multiplied
// by: in registers for up to sixteen rows, and otherwise in scratch memory for the time of the
// product.
//
// PrecisionFloat8 is for Hopper; other devices return an error that wraps errors.ErrUnsupported. A
// product copies both operands to scratch memory, rounded, and tensor cores read those. They keep
// some 14 bits of the sums of 256 products, which are added in float32. Activations and gates are
// passes of their own then.
//
// 16-bit attention runs on kernels made for Hopper where the device is one and the tensors'
// addresses suit it, on kernels for any device since Ampere elsewhere. float32 attention computes
// in the precision that kernels.Attention asks for: PrecisionAuto and PrecisionFloat32 make two
// float16 numbers of each operand, times a power of two that a few neighbouring rows share,
// PrecisionTF32 makes one, PrecisionBFloat16 and PrecisionFloat16 convert q, k and v first. So the
// errors of PrecisionFloat32 are those of float32, but a row that is more than a million times
// smaller than its neighbour loses digits; with PrecisionTF32 a probability is one float16, in a
// unit in which 1 has room, for the gradient of v: below 2⁻³⁸ it counts as 0 there, and below 2⁻²⁸
// it loses digits. float64 is for the CPU.
//
// A NaN or an infinity in a row of q, k, v or dO reaches the rows that see it, as on the CPU, and
// may reach others of the same tile: the matrix units multiply what a mask hides by zero. With
// [kernels.Guarantees.Confine] a kernel behind the others looks at one row of each 16, since a row
// that is not finite has all of them so, and computes anew what is. It takes about 4 µs a call, and
// backward as long as reading dk and dv where the last tile of queries is not full: up to 2% of 8k
// tokens, and 4 to 7% of short sequences. It takes long where much is not finite. In float32 an
// infinity is as a NaN to the rows that see it. Second derivatives with Confine return an error
// that wraps errors.ErrUnsupported.
package cuda
