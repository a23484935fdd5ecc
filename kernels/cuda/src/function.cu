// Functions of elements, quotients, and sums with a number. kernels/function.go has the equations.
// All are bound by memory, see elementwise.cu.
#include "elementwise.cuh"

enum Function : int32_t { Exp, Log, Sqrt, Abs };

template <int f> __device__ __forceinline__ float value(float x) {
  if (f == Exp) return expf(x);
  if (f == Log) return logf(x);
  if (f == Sqrt) return sqrtf(x);
  return fabsf(x);
}

template <int f> __device__ __forceinline__ float gradient(float x, float dy) {
  if (f == Exp) return dy * expf(x);
  if (f == Log) return dy / x;
  if (f == Sqrt) return dy / (2 * sqrtf(x));
  return dy * (x > 0 ? 1 : x < 0 ? -1 : 0);
}

template <class T, int f> __device__ __forceinline__ void forward(const Elementwise& e) {
  ofEach<T>(e, [](float& x) { x = value<f>(x); });
}

template <class T, int f> __device__ __forceinline__ void backward(const Elementwise& e) {
  ofPairs<T, T>(e, [](float& x, float dy) { x = gradient<f>(x, dy); });
}

template <class T> __device__ __forceinline__ void shift(const Elementwise& e) {
  ofEach<T>(e, [&](float& x) { x += e.factor; });
}

// quotient is a/b: what is rounded to 16 bits takes that of the special function unit.
template <class T> __device__ __forceinline__ float quotient(float a, float b) {
  return sizeof(T) == 2 ? __fdividef(a, b) : a / b;
}

template <class T> __device__ __forceinline__ void divide(const Elementwise& e) {
  ofPairs<T, T>(e, [](float& a, float b) { a = quotient<T>(a, b); });
}

// divideBackward writes da = dc/b and db = −dc·a/b² of a, b and dc.
template <class T> __device__ __forceinline__ void divideBackward(const Elementwise& e) {
  eachGroup<5, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    float a[n], b[n], dc[n];
    load<n>((const T*)e.data[2] + at[2], a);
    load<n>((const T*)e.data[3] + at[3], b);
    load<n>((const T*)e.data[4] + at[4], dc);
#pragma unroll
    for (int i = 0; i < n; i++) {
      dc[i] = quotient<T>(dc[i], b[i]);
      a[i] = -dc[i] * quotient<T>(a[i], b[i]);
    }
    const auto da = storing<n>((T*)e.data[0] + at[0], dc), db = storing<n>((T*)e.data[1] + at[1], a);
    return [da, db] { da(), db(); };
  });
}

// BinaryTargets is the host's binaryTargets in binarytargets.go.
struct BinaryTargets {
  Elementwise e;
  Fault fault;
};

// binaryTargets copies targets, and reports the bits of one, as a double, that is not from 0 to 1.
template <class T> __device__ __forceinline__ void binaryTargets(const BinaryTargets& b) {
  const Elementwise& e = b.e;
  eachGroup<2, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    float x[n];
    load<n>((const T*)e.data[1] + at[1], x);
#pragma unroll
    for (int i = 0; i < n; i++)
      if (!(x[i] >= 0 && x[i] <= 1)) b.fault.report(at[0] + i, __double_as_longlong(x[i]), 2);
    return storing<n>((T*)e.data[0] + at[0], x);
  });
}

#define FUNCTION(name, T)                                                                                      \
  extern "C" __global__ void __launch_bounds__(256) function_##name(const __grid_constant__ Elementwise e) {   \
    switch (e.mode) {                                                                                          \
      case Exp: return forward<T, Exp>(e);                                                                     \
      case Log: return forward<T, Log>(e);                                                                     \
      case Sqrt: return forward<T, Sqrt>(e);                                                                   \
      case Abs: return forward<T, Abs>(e);                                                                     \
    }                                                                                                          \
  }                                                                                                            \
  extern "C" __global__ void __launch_bounds__(256) function_backward_##name(const __grid_constant__ Elementwise e) { \
    switch (e.mode) {                                                                                          \
      case Exp: return backward<T, Exp>(e);                                                                    \
      case Log: return backward<T, Log>(e);                                                                    \
      case Sqrt: return backward<T, Sqrt>(e);                                                                  \
      case Abs: return backward<T, Abs>(e);                                                                    \
    }                                                                                                          \
  }                                                                                                            \
  extern "C" __global__ void __launch_bounds__(256) add_scalar_##name(const __grid_constant__ Elementwise e) { \
    shift<T>(e);                                                                                               \
  }                                                                                                            \
  extern "C" __global__ void __launch_bounds__(256) binary_targets_##name(const __grid_constant__ BinaryTargets b) { \
    binaryTargets<T>(b);                                                                                       \
  }                                                                                                            \
  extern "C" __global__ void __launch_bounds__(256) div_##name(const __grid_constant__ Elementwise e) {        \
    divide<T>(e);                                                                                              \
  }                                                                                                            \
  extern "C" __global__ void __launch_bounds__(256) div_backward_##name(const __grid_constant__ Elementwise e) { \
    divideBackward<T>(e);                                                                                      \
  }
FOR_EACH_ELEMENT(FUNCTION)
