// Copies, conversions, sums, products and factors of tensors with any strides. All are bound by memory, so what counts is that a
// thread moves 16 bytes at once wherever the tensors' strides and addresses allow it.
#include "elementwise.cuh"

// Copies are several copies in one launch: one for each row of blocks.
struct Copies {
  Elementwise list[4];
};

// copy takes as many elements at once as 16 bytes hold of the larger type. It rounds to nearest, ties to even; float64 goes to a
// 16-bit type by way of float32.
template <class To, class From> __device__ __forceinline__ void copy(const Elementwise& e) {
  constexpr int width = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  eachGroup<2, width>(e, [&](auto n, const int64_t* at) {
    To* to = (To*)e.data[0] + at[0];
    const From* from = (const From*)e.data[1] + at[1];
    if constexpr (std::is_same<To, From>::value) {
      return Stored<To, n>{to, *(const Piece<To, n>*)from};
    } else {
      float x[n];
      load<n>(from, x);
      return storing<n>(to, x);
    }
  });
}

#define COPY(name, To, From) \
  extern "C" __global__ void name(const __grid_constant__ Copies c) { copy<To, From>(c.list[blockIdx.y]); }
COPY(copy_2, uint16_t, uint16_t)
COPY(copy_4, uint32_t, uint32_t)
COPY(copy_8, uint64_t, uint64_t)
COPY(copy_f32_f64, float, double)
COPY(copy_f64_f32, double, float)
COPY(copy_f64_bf16, double, __nv_bfloat16)
COPY(copy_f64_f16, double, __half)
COPY(copy_bf16_f64, __nv_bfloat16, double)
COPY(copy_f16_f64, __half, double)
COPY(copy_f32_bf16, float, __nv_bfloat16)
COPY(copy_f32_f16, float, __half)
COPY(copy_bf16_f32, __nv_bfloat16, float)
COPY(copy_f16_f32, __half, float)
COPY(copy_bf16_f16, __nv_bfloat16, __half)
COPY(copy_f16_bf16, __half, __nv_bfloat16)

template <class T> __device__ __forceinline__ void add(const Elementwise& e) {
  eachGroup<3, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    float a[n], b[n];
    load<n>((const T*)e.data[1] + at[1], a);
    load<n>((const T*)e.data[2] + at[2], b);
#pragma unroll
    for (int i = 0; i < n; i++) a[i] += b[i];
    return storing<n>((T*)e.data[0] + at[0], a);
  });
}

template <class T> __device__ __forceinline__ void mul(const Elementwise& e) {
  eachGroup<3, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    float a[n], b[n];
    load<n>((const T*)e.data[1] + at[1], a);
    load<n>((const T*)e.data[2] + at[2], b);
#pragma unroll
    for (int i = 0; i < n; i++) a[i] *= b[i];
    return storing<n>((T*)e.data[0] + at[0], a);
  });
}

template <class T> __device__ __forceinline__ void scale(const Elementwise& e) {
  eachGroup<2, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    float x[n];
    load<n>((const T*)e.data[1] + at[1], x);
#pragma unroll
    for (int i = 0; i < n; i++) x[i] *= e.factor;
    return storing<n>((T*)e.data[0] + at[0], x);
  });
}

// fill writes one element everywhere.
template <class T> __device__ __forceinline__ void fill(const Elementwise& e, T x) {
  eachGroup<1, perAccess<T>>(e, [&](auto n, const int64_t* at) {
    Stored<T, n> s;
    s.to = (T*)e.data[0] + at[0];
#pragma unroll
    for (int i = 0; i < n; i++) s.piece.x[i] = x;
    return s;
  });
}

#define FILL(name, T) \
  extern "C" __global__ void name(const __grid_constant__ Elementwise e) { fill<T>(e, (T)e.bits); }
FILL(fill_2, uint16_t)
FILL(fill_4, uint32_t)
FILL(fill_8, uint64_t)

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
  extern "C" __global__ void add_##name(const __grid_constant__ Elementwise e) { add<T>(e); }            \
  extern "C" __global__ void mul_##name(const __grid_constant__ Elementwise e) { mul<T>(e); }            \
  extern "C" __global__ void scale_##name(const __grid_constant__ Elementwise e) { scale<T>(e); }        \
  extern "C" __global__ void key_mask_##name(const __grid_constant__ KeyMaskArguments a) { keyMask<T>(a); } \
  /* broadcast writes a number in memory, which is float32, times the factor */                          \
  extern "C" __global__ void broadcast_##name(const __grid_constant__ Elementwise e) {                   \
    fill<T>(e, fromFloat<T>(*(const float*)e.data[1] * e.factor));                                       \
  }
FOR_EACH_ELEMENT(ELEMENTWISE)
