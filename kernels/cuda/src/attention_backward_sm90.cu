// One variant of attention backward for sm_90a, and attention_dq, which runs after it. Compile with
// -arch=compute_90a and
//   -DKERNEL=name -DHEAD_DIM=128 -DHEAD_DIM_V=128 -DTILE_Q=80 -DELEMENT_BF16 or -DELEMENT_F16, -DSCORE=policy of
//   score.cuh, with -DMOD if it changes scores, or -DBIAS if it adds a bias alone, and with what the host takes the kernel to be: -DTILE_K, -DBLOCK_THREADS,
//   -DSHARED_BYTES.
#include "attention_backward_sm90.cuh"

using Score = SCORE;

using Shape = BackwardShape<HEAD_DIM, HEAD_DIM_V, TILE_Q, Score>;
static_assert(Shape::TileK == TILE_K && Shape::Threads == BLOCK_THREADS && Shape::SharedBytes == SHARED_BYTES,
              "variants_backward90.go describes another kernel");

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1)
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
       const __grid_constant__ CUtensorMap o,
#ifdef BIAS
       const __grid_constant__ CUtensorMap bias, const __grid_constant__ CUtensorMap dBias, const __grid_constant__ AttentionArguments a) {
  attentionBackward<Shape>(&q, &k, &v, &o, &bias, &dBias, a);
#elif defined MOD
       const __grid_constant__ CUtensorMap bias, const __grid_constant__ AttentionArguments a) {
  attentionBackward<Shape>(&q, &k, &v, &o, &bias, nullptr, a);
#else
       const __grid_constant__ AttentionArguments a) {
  attentionBackward<Shape>(&q, &k, &v, &o, nullptr, nullptr, a);
#endif
}

extern "C" __global__ void __launch_bounds__(256) attention_dq(const __grid_constant__ AttentionArguments a) {
  queryGradient<Shape::Sums, 256>(a);
}
