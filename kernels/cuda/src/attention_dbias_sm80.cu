// The deterministic gradient of a bias that several scores share: see BiasGradient in
// attention_backward_sm80.cuh, and attention_sm80.cuh for how to compile it.
#include "attention_backward_sm80.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) KERNEL(const __grid_constant__ AttentionArguments a) {
  BiasGradient<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>(a).run();
}
