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
  if (!a.qLens) return {index, index, 0, 0, a.sq, a.keyLengths ? a.keyLengths[index] : a.sk};
  const int q0 = a.qLens[index], k0 = a.kvLens[index];
  return {index, 0, q0, k0, a.qLens[index + 1] - q0, a.kvLens[index + 1] - k0};
}

// keyBatchOf is the place of a sequence's keys on the batch axis of k and v.
__device__ __forceinline__ int keyBatchOf(const AttentionArguments& a, int batch) { return a.k.batch == 0 ? 0 : batch; }

// keysEndEarly reports whether there may be rows of k and v behind those of a sequence, which are not its own.
__device__ __forceinline__ bool keysEndEarly(const AttentionArguments& a) { return a.kvLens || a.keyLengths; }

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
  if (a.left >= 0) b.lo = off + a.shift - min(a.left, unlimited / 2);
  if (a.right >= 0) b.hi = min(b.hi, off + a.shift + min(a.right, unlimited / 2) + 1);
  return b;
}

// Modifier is what changes the scores of one head of one sequence.
struct Modifier {
  float cap, inverseCap, slope;
  int off;
  const void* bias;  // of the head, null for none
  int64_t biasRow;
  int biasColumn, element;

  __device__ __forceinline__ Modifier(const AttentionArguments& a, const Sequence& s, int head)
      : cap(a.softCap), inverseCap(a.softCap > 0 ? 1 / a.softCap : 0), slope(a.slopes ? a.slopes[head] : 0), off(s.sk - s.sq),
        bias(nullptr), biasRow(a.biasRow), biasColumn(a.biasColumn), element(a.biasElement) {
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
    const int64_t at = i * biasRow + j * biasColumn;
    if (element == ElementBF16) return __bfloat162float(((const __nv_bfloat16*)bias)[at]);
    if (element == ElementF16) return __half2float(((const __half*)bias)[at]);
    return ((const float*)bias)[at];
  }
};

// Dropper tells which probabilities of one head of one sequence are kept. Eight neighbouring columns, the first a multiple of
// eight, share a counter. Each of its words has the numbers of two of them, the first one's in its lower half; a number under
// the threshold drops its element.
struct Dropper {
  static constexpr uint32_t TOPS = 0x80008000;
  uint32_t thresholds, key0, key1, step, plane;  // thresholds: in both halves

  __device__ __forceinline__ Dropper(const AttentionArguments& a, const Sequence& s, int head)
      : thresholds(a.dropThreshold * 0x10001), key0(a.dropKey0), key1(a.dropKey1), step(a.dropStep), plane(s.index * a.heads + head) {}

  // counter is that of row i and eight columns, of which j is one.
  __device__ __forceinline__ uint4 counter(int i, int j) const { return make_uint4(step, plane, (uint32_t)i, (uint32_t)j / 8); }

  template <int N> __device__ __forceinline__ void draw(uint4 (&counters)[N]) const { philox(key0, key1, counters); }

  // kept has the top bit of each half set if that half of the word keeps its element; other bits mean nothing. Halves whose top
  // bit is that of the threshold are compared by subtracting, with a bit that keeps the halves apart.
  __device__ __forceinline__ uint32_t kept(uint32_t word) const {
    const uint32_t difference = (word | TOPS) - (thresholds & ~TOPS);
    uint32_t kept;  // (word & ~thresholds) | (~(word ^ thresholds) & difference), which the compiler would take apart
    asm("lop3.b32 %0, %1, %2, %3, 0xB2;" : "=r"(kept) : "r"(word), "r"(thresholds), "r"(difference));
    return kept;
  }

#if __CUDA_ARCH__ >= 900
  // keptOfFew is kept, with one instruction less, where the probability to drop is at most a half.
  __device__ __forceinline__ uint32_t keptOfFew(uint32_t word) const {
    uint32_t smaller;
    asm("min.u16x2 %0, %1, %2;" : "=r"(smaller) : "r"(word), "r"(thresholds));
    return smaller + (TOPS - thresholds);
  }
  __device__ __forceinline__ bool dropsFew() const { return thresholds <= TOPS; }
  template <bool Few> __device__ __forceinline__ uint32_t keptOf(uint32_t word) const { return Few ? keptOfFew(word) : kept(word); }
#endif
};

// keepScaleAfter is the part of dropout's factor that a gradient is multiplied by when it is complete: all of it, unless the
// gradient of the bias needs dS with it.
__device__ __forceinline__ float keepScaleAfter(const AttentionArguments& a) { return a.dBias ? 1 : a.keepScale; }
