// The logarithm of the softmax of rows x (rows, V), and its gradient:
//
//   y_v = x_v − log Σ_u exp x_u        dx_v = dy_v − exp(y_v)·Σ_u dy_u
//
// A block takes a row.
#include "exponentials.cuh"

// LogSoftmaxArguments is the host's softmaxArguments in logsoftmax.go.
struct LogSoftmaxArguments {
  Lines lines;   // of x, or of y and dy, and of what is written
  const void* x; // or y
  const void* dy;
  void* y;       // or dx
};

template <class T> __device__ __forceinline__ void forward(const LogSoftmaxArguments& a) {
  const int64_t row = blockIdx.x;
  const T* x = (const T*)a.x + a.lines.at(0, row);
  T* y = (T*)a.y + a.lines.at(1, row);
  const Exponentials e = exponentials(x, a.lines.length);
  __syncthreads();  // y may be x
  const float logSum = logf(e.sum);
  for (int at = threadIdx.x; at < a.lines.length; at += blockDim.x) y[at] = fromFloat<T>(asFloat(x[at]) - e.most - logSum);
}

template <class T> __device__ __forceinline__ void backward(const LogSoftmaxArguments& a) {
  const int64_t row = blockIdx.x;
  const T* y = (const T*)a.x + a.lines.at(0, row);
  const T* dy = (const T*)a.dy + a.lines.at(1, row);
  T* dx = (T*)a.y + a.lines.at(2, row);
  __shared__ float parts[32];
  float sum = 0;
  for (int at = threadIdx.x; at < a.lines.length; at += blockDim.x) sum += asFloat(dy[at]);
  sum = sumOfWarp(sum);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = sumOfWarp(threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0);
  for (int at = threadIdx.x; at < a.lines.length; at += blockDim.x) {
    dx[at] = fromFloat<T>(asFloat(dy[at]) - __expf(asFloat(y[at])) * sum);
  }
}

#define LOG_SOFTMAX(name, T)                                                                                           \
  extern "C" __global__ void __launch_bounds__(512) log_softmax_forward_##name(const __grid_constant__ LogSoftmaxArguments a) { \
    forward<T>(a);                                                                                                     \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(512) log_softmax_backward_##name(const __grid_constant__ LogSoftmaxArguments a) { \
    backward<T>(a);                                                                                                    \
  }
FOR_EACH_ELEMENT(LOG_SOFTMAX)
