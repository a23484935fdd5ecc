// The backward kernels for compute capability 8.0 and newer, with a user's score or mask: see attention_user.cuh.
#include "attention_user_backward_sm80.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 256 / BLOCK_THREADS)
KERNEL(const __grid_constant__ UserArguments a) {
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  attentionBackward<Arithmetic, HEAD_DIM, TILE_Q, TILE_K, BLOCK_THREADS / 32, Score>(a);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) attention_dq(const __grid_constant__ AttentionArguments a) {
  queryGradient<Arithmetic, HEAD_DIM, TILE_Q, BLOCK_THREADS / 32>(a);
}

// SumsArguments is exactSumsArguments in attention_score.go.
struct SumsArguments {
  const ExactSum* from;
  float* to;
  int64_t count;
};

// attention_sums rounds sums of which the order must not count.
extern "C" __global__ void attention_sums(const __grid_constant__ SumsArguments a) {
  const int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (at < a.count) a.to[at] = a.from[at].value();
}
