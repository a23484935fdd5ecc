// One variant of the backward kernel, and the kernel that finishes its dQ: see attention_sm80.cuh
// for how to compile it.
#include "attention_backward_sm80.cuh"

// How many blocks share a multiprocessor.
constexpr int BLOCKS = 256 / BLOCK_THREADS;

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS)
KERNEL(const __grid_constant__ AttentionArguments a) {
  attentionBackward<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>(a);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) attention_dq(const __grid_constant__ AttentionArguments a) {
  queryGradient<Arithmetic, HEAD_DIM, TILE_Q, BLOCK_THREADS / 32>(a);
}
