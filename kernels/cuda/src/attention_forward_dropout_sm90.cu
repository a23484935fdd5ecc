// Attention forward for sm_90a with dropout and no other option that changes scores: the tiles of
// plain scores, and registers that nothing else claims. Compile as attention_forward_sm90.cu,
// -DSCORE=DroppedScore.
#include "attention_forward_sm90.cuh"

// DroppedScore is a plain score in a kernel that knows dropout.
struct DroppedScore : PlainScore {
  static constexpr bool CHANGES = true, DROPS = true;
};

using Shape = ForwardShape<HEAD_DIM, HEAD_DIM_V, TILE_Q / 64, TILE_K, STAGES, STAGES_Q, STAGES_BIAS>;
static_assert(Shape::SharedBytes == SHARED_BYTES && Shape::Threads == BLOCK_THREADS, "variants_forward90.go describes another kernel");

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1)
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
       const __grid_constant__ AttentionArguments a) {
  attentionForward<Shape, SCORE>(&q, &k, &v, nullptr, a);
}
