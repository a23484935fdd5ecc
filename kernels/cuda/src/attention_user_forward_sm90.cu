// Attention forward for sm_90a, with a user's score or mask: see attention_user.cuh.
#include "attention_user.cuh"

#include "attention_forward_sm90.cuh"

using Shape = ForwardShape<HEAD_DIM, HEAD_DIM_V, TILE_Q / 64, TILE_K, STAGES, STAGES_Q, STAGES_BIAS>;
static_assert(Shape::SharedBytes == SHARED_BYTES && Shape::Threads == BLOCK_THREADS, "variants_forward90.go describes another kernel");

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1)
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
#ifdef MOD
       const __grid_constant__ CUtensorMap bias, const __grid_constant__ UserArguments a) {
  const CUtensorMap* const ofBias = &bias;
#else
       const __grid_constant__ UserArguments a) {
  const CUtensorMap* const ofBias = nullptr;
#endif
  static_assert(sizeof a == ARGUMENT_BYTES, "attention_score.go has other arguments");
  attentionForward<Shape, SCORE>(&q, &k, &v, ofBias, a);
}
