// One variant of attention forward for sm_90a. Compile with -arch=compute_90a and
//   -DKERNEL=name -DHEAD_DIM=128 -DHEAD_DIM_V=128 -DELEMENT_BF16 or -DELEMENT_F16, -DSCORE=policy of score.cuh,
//   with -DMOD if it changes scores, or -DBIAS if it adds a bias alone, and with the tile of variants_forward90.go: -DTILE_Q, -DTILE_K, -DSTAGES, -DSTAGES_Q, -DSTAGES_BIAS,
//   -DBLOCK_THREADS, -DSHARED_BYTES, and -DSLANTS where slopes come by product.
#include "attention_forward_sm90.cuh"

#ifndef SLANTS
#define SLANTS 0
#endif

using Shape = ForwardShape<HEAD_DIM, HEAD_DIM_V, TILE_Q / 64, TILE_K, STAGES, STAGES_Q, STAGES_BIAS, 1, SLANTS>;
static_assert(Shape::SharedBytes == SHARED_BYTES && Shape::Threads == BLOCK_THREADS, "variants_forward90.go describes another kernel");

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1)
#if defined MOD || defined BIAS
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
       const __grid_constant__ CUtensorMap bias, const __grid_constant__ AttentionArguments a) {
  attentionForward<Shape, SCORE>(&q, &k, &v, &bias, a);
}
#else
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
       const __grid_constant__ AttentionArguments a) {
  attentionForward<Shape, SCORE>(&q, &k, &v, nullptr, a);
}
#endif
