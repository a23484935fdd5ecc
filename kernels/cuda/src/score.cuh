// What happens to a score between the product q·k and the exponential, and what happens to it on the way back: the same
// few lines for every attention kernel.
//
//   x  = scale · q·k
//   x  ← cap · tanh(x / cap)             softCap
//   x  ← x − slope_h · |i + off − j|     slopes
//   x  ← x + bias_ij                     bias
//
// i and j are the row and the column within their sequence, off = sk − sq of that sequence.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "arguments.cuh"
#include "philox.cuh"

constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;

// Sequence is one independent part of a problem: a batch item, or one of the packed sequences.
struct Sequence {
  int index, batch;  // index counts sequences, batch is the place on the tensors' batch axis
  int q0, k0;        // where it starts on the length axes
  int sq, sk;
};

__device__ __forceinline__ Sequence sequenceOf(const AttentionArguments& a, int index) {
  if (!a.qLens) return {index, index, 0, 0, a.sq, a.sk};
  const int q0 = a.qLens[index], k0 = a.kvLens[index];
  return {index, 0, q0, k0, a.qLens[index + 1] - q0, a.kvLens[index + 1] - k0};
}

// Band is the mask as two diagonals: row i sees the columns from max(0, i + lo) up to, not including, min(sk, i + hi).
struct Band {
  int lo, hi;
};

__device__ __forceinline__ Band bandOf(const AttentionArguments& a, const Sequence& s) {
  constexpr int unlimited = 1 << 29;
  const int off = s.sk - s.sq;
  Band b = {-unlimited, unlimited};
  if (a.causal == CausalBottomRight) b.hi = off + 1;
  if (a.causal == CausalTopLeft) b.hi = 1;
  if (a.left >= 0) b.lo = off - min(a.left, unlimited / 2);
  if (a.right >= 0) b.hi = min(b.hi, off + min(a.right, unlimited / 2) + 1);
  return b;
}

// Modifier is what changes the scores of one head of one sequence.
struct Modifier {
  float cap, inverseCap, slope;
  int off;
  const void* bias;  // of the head, null for none
  int64_t biasRow;
  int element;

  __device__ __forceinline__ Modifier(const AttentionArguments& a, const Sequence& s, int head)
      : cap(a.softCap), inverseCap(a.softCap > 0 ? 1 / a.softCap : 0), slope(a.slopes ? a.slopes[head] : 0), off(s.sk - s.sq),
        bias(nullptr), biasRow(a.biasRow), element(a.biasElement) {
    if (!a.bias) return;
    const int64_t at = s.index * a.biasSequence + head * a.biasHead;
    bias = (const char*)a.bias + at * (element == ElementF32 ? 4 : 2);
  }

  // operator() changes a score that is already scaled, at row i and column j, which must exist. capped receives
  // S_capped/cap, which backward needs; 0 without a cap.
  __device__ __forceinline__ float operator()(float x, int i, int j, float& capped) const {
    capped = 0;
    if (cap > 0) {
      capped = tanhf(x * inverseCap);
      x = cap * capped;
    }
    if (slope != 0) x -= slope * (float)abs(i + off - j);
    if (bias) x += biasAt(i, j);
    return x;
  }

  __device__ __forceinline__ float biasAt(int i, int j) const {
    const int64_t at = i * biasRow + j;
    if (element == ElementBF16) return __bfloat162float(((const __nv_bfloat16*)bias)[at]);
    if (element == ElementF16) return __half2float(((const __half*)bias)[at]);
    return ((const float*)bias)[at];
  }
};

// Dropper tells which probabilities of one head of one sequence are kept. Four neighbouring columns, the first a multiple
// of four, share one counter and take a word each.
struct Dropper {
  uint32_t threshold, key0, key1, step, plane;

  __device__ __forceinline__ Dropper(const AttentionArguments& a, const Sequence& s, int head)
      : threshold(a.dropThreshold), key0(a.dropKey0), key1(a.dropKey1), step(a.dropStep), plane(s.index * a.heads + head) {}

  __device__ __forceinline__ uint4 words(int i, int j) const {
    return philox(key0, key1, make_uint4(step, plane, (uint32_t)i, (uint32_t)j / 4));
  }
  __device__ __forceinline__ bool keep(uint32_t word) const { return word >= threshold; }
};
