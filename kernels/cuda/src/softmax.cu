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

// perLane is how many elements of a row a lane keeps in registers.
constexpr int perLane = 32;

// Row is a row in the registers of a warp, n elements of which are moved at once.
template <class T, int n> struct Row {
  float x[perLane / n][n];

  // from loads a row of a length. What is behind it is `otherwise`.
  __device__ __forceinline__ void from(const T* row, int length, float otherwise) {
#pragma unroll
    for (int p = 0; p < perLane / n; p++) {
      const int at = (p * 32 + threadIdx.x % 32) * n;
      if (at < length) {
        load<n>(row + at, x[p]);
        continue;
      }
#pragma unroll
      for (int i = 0; i < n; i++) x[p][i] = otherwise;
    }
  }

  __device__ __forceinline__ void to(T* row, int length) const {
#pragma unroll
    for (int p = 0; p < perLane / n; p++) {
      const int at = (p * 32 + threadIdx.x % 32) * n;
      if (at < length) store<n>(row + at, x[p]);
    }
  }
};

template <class T, int n> __device__ __forceinline__ void forwardInRegisters(const SoftmaxArguments& a) {
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  if (row >= a.lines.count) return;
  Row<T, n> r;
  r.from((const T*)a.x + a.lines.at(0, row), a.lines.length, -INFINITY);
  float most = -INFINITY, sum = 0;
#pragma unroll
  for (int p = 0; p < perLane / n; p++)
#pragma unroll
    for (int i = 0; i < n; i++) most = fmaxf(most, r.x[p][i]);
#pragma unroll
  for (int other = 16; other > 0; other /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, other));
#pragma unroll
  for (int p = 0; p < perLane / n; p++)
#pragma unroll
    for (int i = 0; i < n; i++) sum += r.x[p][i] = __expf(r.x[p][i] - most);
  const float factor = 1 / sumOfWarp(sum);
#pragma unroll
  for (int p = 0; p < perLane / n; p++)
#pragma unroll
    for (int i = 0; i < n; i++) r.x[p][i] *= factor;
  r.to((T*)a.y + a.lines.at(1, row), a.lines.length);
}

template <class T, int n> __device__ __forceinline__ void backwardInRegisters(const SoftmaxArguments& a) {
  const int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
  if (row >= a.lines.count) return;
  Row<T, n> y, dy;
  y.from((const T*)a.x + a.lines.at(0, row), a.lines.length, 0);
  dy.from((const T*)a.dy + a.lines.at(1, row), a.lines.length, 0);
  float sum = 0;
#pragma unroll
  for (int p = 0; p < perLane / n; p++)
#pragma unroll
    for (int i = 0; i < n; i++) sum += y.x[p][i] * dy.x[p][i];
  sum = sumOfWarp(sum);
#pragma unroll
  for (int p = 0; p < perLane / n; p++)
#pragma unroll
    for (int i = 0; i < n; i++) y.x[p][i] *= dy.x[p][i] - sum;
  y.to((T*)a.y + a.lines.at(2, row), a.lines.length);
}

#define SOFTMAX(name, T)                                                                                            \
  extern "C" __global__ void __launch_bounds__(512) softmax_forward_##name(const __grid_constant__ SoftmaxArguments a) { \
    valuesOf<T, Probability>(a);                                                                                    \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(512) softmax_backward_##name(const __grid_constant__ SoftmaxArguments a) { \
    backward<T>(a);                                                                                                 \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) softmax_forward_warp_##name(const __grid_constant__ SoftmaxArguments a) { \
    a.lines.aligned ? forwardInRegisters<T, perAccess<T>>(a) : forwardInRegisters<T, 1>(a);                         \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) softmax_backward_warp_##name(const __grid_constant__ SoftmaxArguments a) { \
    a.lines.aligned ? backwardInRegisters<T, perAccess<T>>(a) : backwardInRegisters<T, 1>(a);                       \
  }
FOR_EACH_ELEMENT(SOFTMAX)
