// The softmax of rows x (rows, V), and its gradient:
//
//   y_v = exp x_v / Σ_u exp x_u        dx_v = y_v·(dy_v − Σ_u y_u·dy_u)
//
// A block takes a row, and a warp one that its registers hold.
#include "softmax.cuh"

// SoftmaxArguments is the host's softmaxArguments in logsoftmax.go.
struct SoftmaxArguments {
  Lines lines;   // of x, or of y and dy, and of what is written
  const void* x; // or y
  const void* dy;
  void* y;       // or dx
};

struct Probability {
  float most, factor;
  __device__ __forceinline__ Probability(const Exponentials& e) : most(e.most), factor(1 / e.sum) {}
  __device__ __forceinline__ float operator()(float x) const { return __expf(x - most) * factor; }
};

template <class T> __device__ __forceinline__ void backward(const SoftmaxArguments& a) {
  __shared__ float parts[32];
  gradientsOf<T>(
      a, parts, [](const T* y, const T* dy, int at) { return asFloat(y[at]) * asFloat(dy[at]); },
      [](const T* y, const T* dy, int at, float sum) { return asFloat(y[at]) * (asFloat(dy[at]) - sum); });
}

// exponential is e^x. Where it is below the smallest normal number it is 0.
__device__ __forceinline__ float exponential(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
  return y;
}

// Row is a row in the registers of a warp, perLane elements of it in those of a lane. n elements are
// moved at once.
template <class T, int n, int perLane> struct Row {
  float x[perLane / n][n];
  int length;

  __device__ __forceinline__ int at(int piece) const { return (piece * 32 + threadIdx.x % 32) * n; }

  // Row loads a row. What is behind it is `otherwise`, as far as a lane has some of it.
  __device__ __forceinline__ Row(const T* row, int length, float otherwise) : length(length) {
#pragma unroll
    for (int p = 0; p < perLane / n; p++) {
      if (at(p) < length) {
        load<n>(row + at(p), x[p]);
        continue;
      }
#pragma unroll
      for (int i = 0; i < n; i++) x[p][i] = otherwise;
    }
  }

  // each calls a function with the numbers of the elements.
  template <class Do> __device__ __forceinline__ void each(Do each) const {
#pragma unroll
    for (int p = 0; p < perLane / n; p++) {
      if (p * 32 * n >= length) break;
#pragma unroll
      for (int i = 0; i < n; i++) each(p, i);
    }
  }

  __device__ __forceinline__ void to(T* row) const {
#pragma unroll
    for (int p = 0; p < perLane / n; p++)
      if (at(p) < length) store<n>(row + at(p), x[p]);
  }
};

// Pairs has two elements of 16 bits in a word, or one of 32.
template <class T> struct Pairs {
  static constexpr int elements = 4 / sizeof(T);
  static __device__ __forceinline__ uint32_t greater(uint32_t x, uint32_t y) {
    uint32_t most;
    if constexpr (std::is_same<T, __half>::value) asm("max.f16x2 %0, %1, %2;" : "=r"(most) : "r"(x), "r"(y));
    else if constexpr (std::is_same<T, __nv_bfloat16>::value) asm("max.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(x), "r"(y));
    else most = __float_as_uint(fmaxf(__uint_as_float(x), __uint_as_float(y)));
    return most;
  }
  static __device__ __forceinline__ float of(uint32_t x, int i) {
    if constexpr (std::is_same<T, __nv_bfloat16>::value) return __uint_as_float(i ? x & 0xffff0000 : x << 16);
    else if constexpr (std::is_same<T, __half>::value) return __half2float(__ushort_as_half((unsigned short)(i ? x >> 16 : x)));
    else return __uint_as_float(x);
  }
  // rounded is the word of the elements from y on.
  static __device__ __forceinline__ uint32_t rounded(const float* y) {
    uint32_t word;
    if constexpr (std::is_same<T, __half>::value) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y[1]), "f"(y[0]));
    else if constexpr (std::is_same<T, __nv_bfloat16>::value) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(y[1]), "f"(y[0]));
    else word = __float_as_uint(y[0]);
    return word;
  }
};

// forwardByWords takes rows of whole pieces of 16 bytes. It keeps the elements as they lie until it
// needs their exponentials: that leaves registers for more warps, whose loads are on their way.
template <class T, int perLane> __device__ __forceinline__ void forwardByWords(const SoftmaxArguments& a) {
  using P = Pairs<T>;
  constexpr int n = perAccess<T>, pieces = perLane / n;
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  if (row >= a.lines.count) return;
  const int lane = threadIdx.x % 32, length = a.lines.length / n;
  const uint4* from = (const uint4*)((const T*)a.x + a.lines.at(0, row));
  uint4 x[pieces];
#pragma unroll
  for (int p = 0; p < pieces; p++)
    if (p * 32 + lane < length) x[p] = from[p * 32 + lane];
  uint4* to = (uint4*)((T*)a.y + a.lines.at(1, row));
  float most = -INFINITY, sum = 0;
#pragma unroll
  for (int p = 0; p < pieces; p++) {
    if (p * 32 + lane >= length) continue;
    const uint32_t word = P::greater(P::greater(x[p].x, x[p].y), P::greater(x[p].z, x[p].w));
    most = fmaxf(most, fmaxf(P::of(word, 0), P::of(word, P::elements - 1)));
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
  float y[pieces][n];
#pragma unroll
  for (int p = 0; p < pieces; p++) {
    if (p * 32 + lane >= length) continue;
    const uint32_t words[4] = {x[p].x, x[p].y, x[p].z, x[p].w};
#pragma unroll
    for (int i = 0; i < n; i++) sum += y[p][i] = exponential(P::of(words[i / P::elements], i % P::elements) - most);
  }
  const float factor = 1 / sumOfWarp(sum);
#pragma unroll
  for (int p = 0; p < pieces; p++) {
    if (p * 32 + lane >= length) continue;
#pragma unroll
    for (int i = 0; i < n; i++) y[p][i] *= factor;
    constexpr int e = P::elements;
    to[p * 32 + lane] = make_uint4(P::rounded(y[p]), P::rounded(y[p] + e), P::rounded(y[p] + 2 * e), P::rounded(y[p] + 3 * e));
  }
}

template <class T, int n, int perLane> __device__ __forceinline__ void forwardInRegisters(const SoftmaxArguments& a) {
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  if (row >= a.lines.count) return;
  Row<T, n, perLane> r((const T*)a.x + a.lines.at(0, row), a.lines.length, -INFINITY);
  float most = -INFINITY, sum = 0;
  r.each([&](int p, int i) { most = fmaxf(most, r.x[p][i]); });
#pragma unroll
  for (int other = 16; other > 0; other /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
  r.each([&](int p, int i) { sum += r.x[p][i] = exponential(r.x[p][i] - most); });
  const float factor = 1 / sumOfWarp(sum);
  r.each([&](int p, int i) { r.x[p][i] *= factor; });
  r.to((T*)a.y + a.lines.at(1, row));
}

template <class T, int n, int perLane> __device__ __forceinline__ void backwardInRegisters(const SoftmaxArguments& a) {
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  if (row >= a.lines.count) return;
  Row<T, n, perLane> y((const T*)a.x + a.lines.at(0, row), a.lines.length, 0);
  const Row<T, n, perLane> dy((const T*)a.dy + a.lines.at(1, row), a.lines.length, 0);
  float sum = 0;
  y.each([&](int p, int i) { sum += y.x[p][i] * dy.x[p][i]; });
  sum = sumOfWarp(sum);
  y.each([&](int p, int i) { y.x[p][i] *= dy.x[p][i] - sum; });
  y.to((T*)a.y + a.lines.at(2, row));
}

#define SOFTMAX(name, T)                                                                                            \
  extern "C" __global__ void __launch_bounds__(512) softmax_forward_##name(const __grid_constant__ SoftmaxArguments a) { \
    valuesOf<T, Probability>(a);                                                                                    \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(512) softmax_backward_##name(const __grid_constant__ SoftmaxArguments a) { \
    backward<T>(a);                                                                                                 \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) softmax_backward_warp_short_##name(const __grid_constant__ SoftmaxArguments a) { \
    backwardInRegisters<T, perAccess<T>, 24>(a);                                                                    \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) softmax_forward_warp_short_##name(const __grid_constant__ SoftmaxArguments a) { \
    forwardByWords<T, 24>(a);                                                                                       \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) softmax_forward_warp_##name(const __grid_constant__ SoftmaxArguments a) { \
    a.lines.aligned ? forwardByWords<T, 32>(a) : forwardInRegisters<T, 1, 32>(a);                                   \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) softmax_backward_warp_##name(const __grid_constant__ SoftmaxArguments a) { \
    a.lines.aligned ? backwardInRegisters<T, perAccess<T>, 32>(a) : backwardInRegisters<T, 1, 32>(a);               \
  }
FOR_EACH_ELEMENT(SOFTMAX)
