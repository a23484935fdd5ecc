// The logarithm of the softmax of rows x (rows, V), and its gradient:
//
//   y_v = x_v − log Σ_u exp x_u        dx_v = dy_v − exp(y_v)·Σ_u dy_u
//
// A block takes a row.
#include "softmax.cuh"

// LogSoftmaxArguments is the host's softmaxArguments in logsoftmax.go.
struct LogSoftmaxArguments {
  Lines lines;   // of x, or of y and dy, and of what is written
  const void* x; // or y
  const void* dy;
  void* y;       // or dx
};

struct LogProbability {
  float most, logSum;
  __device__ __forceinline__ LogProbability(const Exponentials& e) : most(e.most), logSum(logf(e.sum)) {}
  __device__ __forceinline__ float operator()(float x) const { return x - most - logSum; }
};

template <class T> __device__ __forceinline__ void backward(const LogSoftmaxArguments& a) {
  __shared__ float parts[32];
  gradientsOf<T>(
      a, parts, [](const T* y, const T* dy, int at) { return asFloat(dy[at]); },
      [](const T* y, const T* dy, int at, float sum) { return asFloat(dy[at]) - __expf(asFloat(y[at])) * sum; });
}

#define LOG_SOFTMAX(name, T)                                                                                           \
  extern "C" __global__ void __launch_bounds__(512) log_softmax_forward_##name(const __grid_constant__ LogSoftmaxArguments a) { \
    valuesOf<T, LogProbability>(a);                                                                                    \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(512) log_softmax_backward_##name(const __grid_constant__ LogSoftmaxArguments a) { \
    backward<T>(a);                                                                                                    \
  }
FOR_EACH_ELEMENT(LOG_SOFTMAX)
