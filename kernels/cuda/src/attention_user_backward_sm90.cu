// Attention backward for sm_90a, with a user's score or mask, and what runs after it: see attention_user.cuh.
#include "attention_user.cuh"

#include "attention_backward_sm90.cuh"
#include "attention_user_sums.cuh"

using Score = SCORE;

using Shape = BackwardShape<HEAD_DIM, HEAD_DIM_V, TILE_Q, Score>;
static_assert(Shape::TileK == TILE_K && Shape::Threads == BLOCK_THREADS && Shape::SharedBytes == SHARED_BYTES,
              "variants_backward90.go describes another kernel");

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1)
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
       const __grid_constant__ CUtensorMap o, const __grid_constant__ CUtensorMap bias, const __grid_constant__ UserArguments a) {
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  attentionBackward<Shape>(&q, &k, &v, &o, &bias, a);
}

extern "C" __global__ void __launch_bounds__(256) attention_dq(const __grid_constant__ AttentionArguments a) {
  queryGradient<Shape::Sums, 256>(a);
}
