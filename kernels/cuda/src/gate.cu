// The gate of pairs of features, and its gradient: kernels/gate.go says what it computes. A thread has
// a pair.
#include "elements.cuh"

// GateArguments is the host's gateArguments in gate.go.
struct GateArguments {
  Lines lines;  // of y or dy; then of x as rows of two, and of dx
  const void *x, *dy;
  void* y;      // or dx
  float slope, limit;
};

template <class T, bool gradient> __device__ __forceinline__ void gate(const GateArguments& a) {
  const int64_t count = a.lines.count * a.lines.length;
  for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
    const int64_t row = i / a.lines.length, at = i - row * a.lines.length;
    const T* pair = (const T*)a.x + a.lines.at(1, row) + 2 * at;
    const float x = asFloat(pair[0]), up = asFloat(pair[1]);
    // min and max of the language would lose NaN
    const float g = x > a.limit ? a.limit : x, u = up > a.limit ? a.limit : up < -a.limit ? -a.limit : up;
    const float s = 1 / (1 + __expf(-a.slope * g));
    if (!gradient) {
      ((T*)a.y)[a.lines.at(0, row) + at] = fromFloat<T>((u + 1) * g * s);
      continue;
    }
    const float d = asFloat(((const T*)a.dy)[a.lines.at(0, row) + at]);
    T* to = (T*)a.y + a.lines.at(2, row) + 2 * at;
    to[0] = fromFloat<T>(x > a.limit ? 0 : d * (u + 1) * (s + a.slope * g * s * (1 - s)));
    to[1] = fromFloat<T>(up > a.limit || up < -a.limit ? 0 : d * g * s);
  }
}

#define GATE(name, T)                                                                                                      \
  extern "C" __global__ void clamped_gate_##name(const __grid_constant__ GateArguments a) { gate<T, false>(a); }             \
  extern "C" __global__ void clamped_gate_backward_##name(const __grid_constant__ GateArguments a) { gate<T, true>(a); }
FOR_EACH_ELEMENT(GATE)
