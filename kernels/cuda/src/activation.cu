// Activations and their derivatives, SwiGLU, and the soft cap. kernels/activation.go and
// kernels/softcap.go have the equations.
#include "elementwise.cuh"
#include "silu.cuh"

enum Activation : int32_t { NoActivation, GELUTanh, GELUErf, SiLU, ReLUSquared, ReLU, QuickGELU, Sigmoid, Tanh };

constexpr float quick = 1.702f, rootOf2OverPi = 0.7978845608028654f, cubic = 0.044715f, rootOfHalf = 0.7071067811865476f, densityOf0 = 0.3989422804014327f;

// Normal is Φ(x), the probability of a normal number under x, and e^(−x²/2). The error of Φ is at
// most 1e-7 (Abramowitz and Stegun, 7.1.26), with one quotient and one exponential of the special
// function unit: erfcf takes longer than memory does.
struct Normal { float below, bell; };

__device__ __forceinline__ Normal normal(float x) {
  const float z = rootOfHalf * fabsf(x), t = __fdividef(1, 1 + 0.3275911f * z), bell = __expf(-z * z);
  const float series = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float tail = 0.5f * bell * series;
  return {x > 0 ? 1 - tail : tail, bell};
}

template <int act, bool exact> __device__ __forceinline__ float activate(float x) {
  if (act == GELUTanh) return x * sigmoid<exact>(2 * rootOf2OverPi * (x + cubic * x * x * x));
  if (act == GELUErf) return x * (exact ? 0.5f * erfcf(-x * rootOfHalf) : normal(x).below);
  if (act == SiLU) return x * sigmoid<exact>(x);
  if (act == ReLUSquared) return x < 0 ? 0 : x * x;
  if (act == ReLU) return x < 0 ? 0 : x;
  if (act == QuickGELU) return x * sigmoid<exact>(quick * x);
  if (act == Sigmoid) return sigmoid<exact>(x);
  if (act == Tanh) return tanhf(x);
  return x;
}

// bell is σ(x)·σ(−x), which far from zero is as small as e^−|x|.
template <bool exact> __device__ __forceinline__ float bell(float x) {
  const float e = exact ? expf(-fabsf(x)) : __expf(-fabsf(x)), greater = exact ? 1 / (1 + e) : __fdividef(1, 1 + e);
  return e * greater * greater;
}

// times is x·y where y may be so small that it is 0: then it is 0 for an infinite x too.
__device__ __forceinline__ float times(float x, float y) { return y == 0 ? 0 : x * y; }

template <int act, bool exact> __device__ __forceinline__ float slope(float x) {
  if (act == GELUTanh) {
    const float twiceZ = 2 * rootOf2OverPi * (x + cubic * x * x * x), s = sigmoid<exact>(twiceZ);
    return s + times(x * 2 * rootOf2OverPi * (1 + 3 * cubic * x * x), s * complement<exact>(twiceZ, s));
  }
  if (act == GELUErf && exact) return 0.5f * erfcf(-x * rootOfHalf) + times(x * densityOf0, expf(-x * x / 2));
  if (act == GELUErf) {
    const Normal n = normal(x);
    return n.below + times(x * densityOf0, n.bell);
  }
  if (act == SiLU) {
    const float s = sigmoid<exact>(x);
    return s + times(x, s * complement<exact>(x, s));
  }
  if (act == ReLUSquared) return x < 0 ? 0 : 2 * x;
  if (act == ReLU) return x > 0 ? 1 : 0;
  if (act == QuickGELU) {
    const float s = sigmoid<exact>(quick * x);
    return s + times(quick * x, s * complement<exact>(quick * x, s));
  }
  if (act == Sigmoid) return bell<exact>(x);
  if (act == Tanh) return 4 * bell<exact>(2 * x);
  return 1;
}

// forward computes y = act(x).
template <class T, int act> __device__ __forceinline__ void forward(const Elementwise& e) {
  ofEach<T>(e, [](float& x) { x = activate<act, sizeof(T) == 4>(x); });
}

// backward computes dx = dy·act'(x).
template <class T, int act> __device__ __forceinline__ void backward(const Elementwise& e) {
  ofPairs<T, T>(e, [](float& x, float dy) { x = dy * slope<act, sizeof(T) == 4>(x); });
}

template <class T> __device__ __forceinline__ void swiglu(const Elementwise& e) {
  ofPairs<T, T>(e, [](float& gate, float up) { gate = swigluOf<sizeof(T) == 4>(gate, up); });
}

// swigluBackward computes dGate = dy·up·silu'(gate) and dUp = dy·silu(gate).
template <class T> __device__ __forceinline__ void swigluBackward(const Elementwise& e) {
  eachGroup<5, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    float gate[n], up[n], dy[n];
    load<n>((const T*)e.data[2] + at[2], gate);
    load<n>((const T*)e.data[3] + at[3], up);
    load<n>((const T*)e.data[4] + at[4], dy);
#pragma unroll
    for (int i = 0; i < n; i++) swigluGradients<sizeof(T) == 4>(gate[i], up[i], dy[i]);
    const auto dGate = storing<n>((T*)e.data[0] + at[0], up);
    const auto dUp = storing<n>((T*)e.data[1] + at[1], gate);
    return [=] { dGate(), dUp(); };
  });
}

// softCap computes y = cap·tanh(x/cap).
template <class T> __device__ __forceinline__ void softCap(const Elementwise& e) {
  ofEach<T>(e, [&](float& x) { x = e.factor * tanhf(x / e.factor); });
}

// softCapBackward computes dx = dy·(1 − (y/cap)²).
template <class T> __device__ __forceinline__ void softCapBackward(const Elementwise& e) {
  ofPairs<T, T>(e, [&](float& y, float dy) { y = dy * (1 - (y / e.factor) * (y / e.factor)); });
}

#define ACTIVATION(name, T)                                                                                        \
  extern "C" __global__ void swiglu_##name(const __grid_constant__ Elementwise e) { swiglu<T>(e); }                \
  extern "C" __global__ void swiglu_backward_##name(const __grid_constant__ Elementwise e) { swigluBackward<T>(e); } \
  extern "C" __global__ void soft_cap_##name(const __grid_constant__ Elementwise e) { softCap<T>(e); }             \
  extern "C" __global__ void soft_cap_backward_##name(const __grid_constant__ Elementwise e) { softCapBackward<T>(e); } \
  extern "C" __global__ void activate_##name(const __grid_constant__ Elementwise e) {                              \
    switch (e.mode) {                                                                                              \
      case GELUTanh: return forward<T, GELUTanh>(e);                                                               \
      case GELUErf: return forward<T, GELUErf>(e);                                                                 \
      case SiLU: return forward<T, SiLU>(e);                                                                       \
      case ReLUSquared: return forward<T, ReLUSquared>(e);                                                         \
      case ReLU: return forward<T, ReLU>(e);                                                                       \
      case QuickGELU: return forward<T, QuickGELU>(e);                                                             \
      case Sigmoid: return forward<T, Sigmoid>(e);                                                                 \
      case Tanh: return forward<T, Tanh>(e);                                                                       \
      default: return forward<T, NoActivation>(e);                                                                 \
    }                                                                                                              \
  }                                                                                                                \
  extern "C" __global__ void activate_backward_##name(const __grid_constant__ Elementwise e) {                     \
    switch (e.mode) {                                                                                              \
      case GELUTanh: return backward<T, GELUTanh>(e);                                                              \
      case GELUErf: return backward<T, GELUErf>(e);                                                                \
      case SiLU: return backward<T, SiLU>(e);                                                                      \
      case ReLUSquared: return backward<T, ReLUSquared>(e);                                                        \
      case ReLU: return backward<T, ReLU>(e);                                                                      \
      case QuickGELU: return backward<T, QuickGELU>(e);                                                            \
      case Sigmoid: return backward<T, Sigmoid>(e);                                                                \
      case Tanh: return backward<T, Tanh>(e);                                                                      \
      default: return backward<T, NoActivation>(e);                                                                \
    }                                                                                                              \
  }
FOR_EACH_ELEMENT(ACTIVATION)
