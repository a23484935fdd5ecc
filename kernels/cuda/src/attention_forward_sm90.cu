// One variant of attention forward for sm_90a. Compile with -arch=compute_90a and
//   -DKERNEL=name -DHEAD_DIM=128 -DHEAD_DIM_V=128 -DELEMENT_BF16 or -DELEMENT_F16, -DMOD for the variant with soft cap,
//   slopes, bias and dropout; -DTILE_Q=192 for the other of the two tiles that heads of 128 have.
// The tiles of a head size stand here and in variants_forward90.go.
#include "attention_forward_sm90.cuh"

#ifndef TILE
#ifdef MOD
#if HEAD_DIM == 64
#define TILE 3, 128, 3, 1, 3
#elif HEAD_DIM == 96
#define TILE 2, 128, 2, 1, 3
#elif HEAD_DIM == 128
#define TILE 2, 128, 2, 1, 3
#elif HEAD_DIM == 192 && HEAD_DIM_V == 128
#define TILE 2, 64, 3, 1, 2
#elif HEAD_DIM == 192
#define TILE 2, 64, 2, 1, 4
#elif HEAD_DIM == 256
#define TILE 2, 64, 2, 1, 1
#endif
#elif HEAD_DIM == 64
#define TILE 3, 128, 3, 2
#elif HEAD_DIM == 96
#define TILE 3, 96, 3, 1
#elif HEAD_DIM == 128 && TILE_Q == 192
#define TILE 3, 80, 2, 1
#elif HEAD_DIM == 128
#define TILE 2, 128, 2, 2
#elif HEAD_DIM == 192 && HEAD_DIM_V == 128
#define TILE 2, 128, 2, 1
#elif HEAD_DIM == 192
#define TILE 2, 96, 2, 1
#elif HEAD_DIM == 256
#define TILE 2, 64, 2, 1
#endif
#endif

using Shape = ForwardShape<HEAD_DIM, HEAD_DIM_V, TILE>;
#ifdef SHARED_BYTES
static_assert(Shape::SharedBytes == SHARED_BYTES && Shape::Threads == BLOCK_THREADS, "the table of variants has other tiles");
#endif

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1)
#ifdef MOD
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
       const __grid_constant__ CUtensorMap bias, const __grid_constant__ AttentionArguments a) {
  attentionForward<Shape, true>(&q, &k, &v, &bias, a);
}
#else
KERNEL(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
       const __grid_constant__ AttentionArguments a) {
  attentionForward<Shape, false>(&q, &k, &v, nullptr, a);
}
#endif
