// Package cpu computes Stheno's kernels on the host: vectorised (AVX-512, AVX2, NEON or plain Go,
// chosen when the program starts), threaded, without cgo, for float32 and float64. 16-bit tensors
// are computed in float32 and rounded once.
//
// Processors with AMX, on Linux, multiply bfloat16 in their matrix units, and those with BFMMLA
// (arm64, not the oldest) by that instruction, where bfloat16 tensors or PrecisionBFloat16 allow
// it; attention then rounds its probabilities to bfloat16 too. Sums are in float32 all the same,
// but of BFMMLA each addition is off by up to a unit in the last place, not half of one.
//
// Processors with AVX512_VNNI multiply a few rows with weights of eight or four bits as integers:
// 22 bits and a sign or more, each 32 numbers with a factor of their own. Those with AVX2 alone do
// so with weights of four bits. Results are as close as float32's.
//
// PrecisionFloat8 rounds copies of the operands and multiplies those in float32.
//
// Every kernel works on tiles that stay in the caches; what it needs beyond inputs and outputs
// grows with the length of the sequences, never with its square. Work is handed out to as many
// goroutines as [Backend.Threads] says, in pieces and an order that depend on the problem alone, so
// results are bit-equal for any number of threads.
//
// The environment variable STHENO_SIMD=generic, avx2, avx512, neon or bfmmla restricts which
// instructions are used; with any of them, AMX and AVX512_VNNI are not. With any other word in it,
// or more than the machine has, every kernel returns an error.
package cpu
