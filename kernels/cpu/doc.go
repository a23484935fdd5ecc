// Package cpu computes Stheno's kernels on the host: vectorised (AVX-512, AVX2 or plain Go, chosen when the program
// starts), threaded, without cgo, for float32 and float64. 16-bit tensors are computed in float32 and rounded once.
//
// On Linux, processors with AMX multiply bfloat16 in their matrix units, where bfloat16 tensors or PrecisionBFloat16 allow it;
// attention then rounds its probabilities to bfloat16 too.
//
// Every kernel works on tiles that stay in the caches; what it needs beyond inputs and outputs grows with the length of
// the sequences, never with its square. Work is handed out to as many goroutines as [Backend.Threads] says, in pieces
// and an order that depend on the problem alone, so results are bit-equal for any number of threads.
//
// The environment variable STHENO_SIMD=generic, avx2, avx512 or neon restricts which instructions are used, to vectors in any
// case. With any other word in it, or more than the machine has, every kernel returns an error.
package cpu
