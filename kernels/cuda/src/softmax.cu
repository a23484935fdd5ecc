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
  extern "C" __global__ void __launch_bounds__(256) softmax_forward_warp_##name(const __grid_constant__ SoftmaxArguments a) { \
    a.lines.aligned ? forwardInRegisters<T, perAccess<T>, 32>(a) : forwardInRegisters<T, 1, 32>(a);                 \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) softmax_backward_warp_##name(const __grid_constant__ SoftmaxArguments a) { \
    a.lines.aligned ? backwardInRegisters<T, perAccess<T>, 32>(a) : backwardInRegisters<T, 1, 32>(a);               \
  }
FOR_EACH_ELEMENT(SOFTMAX)
