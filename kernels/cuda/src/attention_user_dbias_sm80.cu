// The deterministic gradient of a shared bias, with a user's score or mask: see attention_user.cuh.
#include "attention_user_backward_sm80.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) KERNEL(const __grid_constant__ UserArguments a) {
  BiasGradient<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>(a).run();
}
