// One variant of the forward kernel: see attention_sm80.cuh for how to compile it.
#include "attention_forward_sm80.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 256 / BLOCK_THREADS)
KERNEL(const __grid_constant__ AttentionArguments a) {
  attentionForward<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>(a);
}
