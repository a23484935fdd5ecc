// The backward kernels for compute capability 8.0 and newer, with a user's score or mask: see attention_user.cuh.
#include "attention_user_backward_sm80.cuh"
#include "attention_user_sums.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 256 / BLOCK_THREADS)
KERNEL(const __grid_constant__ UserArguments a) {
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  attentionBackward<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>(a);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) attention_dq(const __grid_constant__ AttentionArguments a) {
  queryGradient<Arithmetic, HEAD_DIM, TILE_Q, BLOCK_THREADS / 32>(a);
}
