// What every kernel of matrix products is told, and what follows the product:
//
//   C = act(A·B + bias),  Pre = A·B + bias     or     C ← C + A·B + bias
//
//   or     C = (A·B)·act'(Pre)
//
// for `items` products, A (rows, depth), B (depth, columns), C and Pre (rows, columns). The host's
// mirror is matmulArguments in matmul.go: a field changes in both.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "arguments.cuh"

// Stack is a batch of matrices; strides are in elements. Item n is number n / inner along the outer
// axis of the batch and n % inner along the inner one.
struct Stack {
  void* data;
  int64_t outer, inner, row, column;
};

// itemOf is where an operand that all items may share has an item.
__device__ __forceinline__ int64_t itemOf(const Stack& operand, int item) { return operand.inner || operand.outer ? item : 0; }

enum Activation : int32_t { NoActivation = 0, GELUTanh = 1, GELUErf = 2, SiLU = 3, ReLUSquared = 4 };

struct MatMulArguments {
  // columns of c and pre are contiguous; pre.data may be null, and is read where C has act' as a
  // factor
  Stack a, b, c, pre;
  const void* bias;              // (columns), or null
  // For float32 that was split into float16: the bits of the largest magnitude in each row of A
  // (items of A, rows) and each column of B (items of B, columns).
  const uint32_t *rowMost, *columnMost;
  float* partials;               // scratch for tiles whose depth several blocks share
  int32_t* flags;                // zero at launch and left zero: which partials are there
  // of C with act' as a factor: of the rows of a warp, four warps a tile in turns, (…, columns); or
  // null
  float* columnSums;
  int32_t rows, columns, depth;
  int32_t items, inner;
  int32_t activation, accumulate;
  int32_t cElement, preElement, biasElement;  // Element
  int32_t lowDepth;              // where the second parts of split operands begin along the depth
  int32_t reserved;              // of symmetric products: the bits of what is added to the diagonal
};

// Scale is the power of two that brings magnitudes of up to `most`, given by its bits, to
// 2^14..2^15, the largest that float16 has room for, and its inverse. Both are normal numbers.
struct Scale {
  float up, down;
  __device__ __forceinline__ Scale(uint32_t most) {
    const uint32_t exponent = max(most >> 23, 15u);
    up = __uint_as_float((268 - exponent) << 23), down = __uint_as_float((exponent - 14) << 23);
  }
};

// ---- functions of one element

// sigmoidTimes is x/(1 + 2^power), to a few units of float32's last place.
__device__ __forceinline__ float sigmoidTimes(float x, float power) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(power));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1 + y));
  return x * y;
}
// The factors are those of the activation times -log2(e).
__device__ __forceinline__ float geluTanh(float x) { return sigmoidTimes(x, x * fmaf(-0.1029432397f, x * x, -2.3022081985f)); }
__device__ __forceinline__ float geluErf(float x) { return 0.5f * x * erfcf(-0.70710678119f * x); }
__device__ __forceinline__ float silu(float x) { return sigmoidTimes(x, -1.4426950409f * x); }
__device__ __forceinline__ float reluSquared(float x) { return x < 0 ? 0 : x * x; }

// Of slopes: σ is 0 or 1 where the factor of 1 − σ is not finite.
__device__ __forceinline__ float sigmoid(float power) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(power));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1 + y));
  return y;
}
__device__ __forceinline__ float slopeOf(float sigma, float factor) {
  const float rest = sigma - sigma * sigma;
  return rest == 0 ? sigma : fmaf(factor, rest, sigma);
}

// slope is act'(x), of activations whose kernels there are.
template <int activation> __device__ __forceinline__ float slope(float x) {
  static_assert(activation == GELUTanh || activation == SiLU || activation == ReLUSquared);
  if constexpr (activation == GELUTanh) {
    const float square = x * x;
    return slopeOf(sigmoid(x * fmaf(-0.1029432397f, square, -2.3022081985f)), x * fmaf(0.2140644488f, square, 1.5957691216f));
  }
  if constexpr (activation == SiLU) return slopeOf(sigmoid(-1.4426950409f * x), x);
  return x < 0 ? 0 : 2 * x;
}

// activated is act(x).
__device__ __forceinline__ float activated(int32_t activation, float x) {
  switch (activation) {
    case GELUTanh: return geluTanh(x);
    case GELUErf: return geluErf(x);
    case SiLU: return silu(x);
    case ReLUSquared: return reluSquared(x);
  }
  return x;
}

__device__ __forceinline__ float loadElement(const void* from, int64_t at, int32_t element) {
  switch (element) {
    case ElementBF16: return __bfloat162float(((const __nv_bfloat16*)from)[at]);
    case ElementF16: return __half2float(((const __half*)from)[at]);
  }
  return ((const float*)from)[at];
}
__device__ __forceinline__ void storeElement(void* to, int64_t at, int32_t element, float x) {
  switch (element) {
    case ElementBF16: ((__nv_bfloat16*)to)[at] = __float2bfloat16_rn(x); break;
    case ElementF16: ((__half*)to)[at] = __float2half_rn(x); break;
    default: ((float*)to)[at] = x;
  }
}

// Output is where the product of one item goes, element by element: for the edges of tiles, and for
// tensors that can be written in no better way.
struct Output {
  const MatMulArguments& g;
  int64_t c, pre;  // of the item's first element

  __device__ __forceinline__ Output(const MatMulArguments& g, int item)
      : g(g), c(item / g.inner * g.c.outer + item % g.inner * g.c.inner),
        pre(item / g.inner * g.pre.outer + item % g.inner * g.pre.inner) {}

  // put finishes the element of a sum to which the bias has been added.
  __device__ __forceinline__ void put(int row, int column, float x) const {
    const int64_t at = c + row * g.c.row + column;
    if (g.accumulate) x += loadElement(g.c.data, at, g.cElement);
    if (g.pre.data) storeElement(g.pre.data, pre + row * g.pre.row + column, g.preElement, x);
    storeElement(g.c.data, at, g.cElement, activated(g.activation, x));
  }
};
