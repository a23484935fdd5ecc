// Sums, products and factors of tensors with any strides. All are bound by memory, so what counts
// is that a thread moves 16 bytes at once wherever the tensors' strides and addresses allow it.
#include "elementwise.cuh"

template <class Sum, class T> __device__ __forceinline__ void add(const Elementwise& e) {
  ofPairs<Sum, T>(e, [](float& a, float b) { a += b; });
}

template <class T> __device__ __forceinline__ void mul(const Elementwise& e) {
  ofPairs<T, T>(e, [](float& a, float b) { a *= b; });
}

template <class T> __device__ __forceinline__ void scale(const Elementwise& e) {
  ofEach<T>(e, [&](float& x) { x *= e.factor; });
}

// KeyMaskArguments is the host's keyMaskArguments in keymask.go.
struct KeyMaskArguments {
  const void *mask, *bias;  // bias is null for 0
  void* out;
  int64_t maskRow;          // elements from one batch item to the next
  int64_t perItem;          // elements of out of a batch item
  int64_t count;            // elements of out
  int32_t keys;
  int32_t maskBytes;        // of an element of the mask
  int32_t floats;           // the mask is of floats, whose zero may have a sign
  int32_t shared;           // one bias serves all batch items
};

// isTrue reports whether an element of the mask is not zero.
__device__ __forceinline__ bool isTrue(const KeyMaskArguments& a, int64_t at) {
  const uint64_t bits = a.maskBytes == 2   ? ((const uint16_t*)a.mask)[at]
                        : a.maskBytes == 4 ? ((const uint32_t*)a.mask)[at]
                                           : ((const uint64_t*)a.mask)[at];
  return bits != 0 && !(a.floats && bits == 1ull << (8 * a.maskBytes - 1));
}

// keyMask computes out = bias where the mask is true, −∞ elsewhere.
template <class T> __device__ __forceinline__ void keyMask(const KeyMaskArguments& a) {
  for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < a.count; n += (int64_t)gridDim.x * blockDim.x) {
    const int64_t item = n / a.perItem;
    const float bias = a.bias ? asFloat(((const T*)a.bias)[a.shared ? n - item * a.perItem : n]) : 0;
    ((T*)a.out)[n] = fromFloat<T>(isTrue(a, item * a.maskRow + n % a.keys) ? bias : -INFINITY);
  }
}

#define ELEMENTWISE(name, T)                                                                             \
  extern "C" __global__ void add_##name(const __grid_constant__ Elementwise e) { add<T, T>(e); }         \
  extern "C" __global__ void mul_##name(const __grid_constant__ Elementwise e) { mul<T>(e); }            \
  extern "C" __global__ void scale_##name(const __grid_constant__ Elementwise e) { scale<T>(e); }        \
  extern "C" __global__ void key_mask_##name(const __grid_constant__ KeyMaskArguments a) { keyMask<T>(a); } \
  /* broadcast writes a number in memory, which is float32, times the factor */                          \
  extern "C" __global__ void broadcast_##name(const __grid_constant__ Elementwise e) {                   \
    fill<T>(e, fromFloat<T>(*(const float*)e.data[1] * e.factor));                                       \
  }
FOR_EACH_ELEMENT(ELEMENTWISE)

#ifndef ELEMENT_F32
#define ADD_WIDE(name, T) \
  extern "C" __global__ void add_wide_##name(const __grid_constant__ Elementwise e) { add<float, T>(e); }
FOR_EACH_ELEMENT(ADD_WIDE)
#endif
