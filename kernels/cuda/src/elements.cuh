// Elements of tensors as float32 numbers, and as many at once as one access to memory moves.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include <type_traits>

// Piece is n neighbouring elements that are loaded or stored at once.
template <class T, int n> struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Piece { T x[n]; };

// perAccess is how many elements 16 bytes hold.
template <class T> constexpr int perAccess = 16 / sizeof(T);

__device__ __forceinline__ float asFloat(float x) { return x; }
__device__ __forceinline__ float asFloat(double x) { return (float)x; }
__device__ __forceinline__ float asFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float asFloat(__half x) { return __half2float(x); }

template <class T> __device__ __forceinline__ T fromFloat(float x);
template <> __device__ __forceinline__ float fromFloat<float>(float x) { return x; }
template <> __device__ __forceinline__ double fromFloat<double>(float x) { return x; }
template <> __device__ __forceinline__ __nv_bfloat16 fromFloat<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ __half fromFloat<__half>(float x) { return __float2half_rn(x); }

// load reads n elements at an address that is a multiple of what they take, up to 16 bytes.
template <int n, class T> __device__ __forceinline__ void load(const T* from, float (&to)[n]) {
  const Piece<T, n> piece = *(const Piece<T, n>*)from;
#pragma unroll
  for (int i = 0; i < n; i++) to[i] = asFloat(piece.x[i]);
}

template <int n, class T> __device__ __forceinline__ void store(T* to, const float (&from)[n]) {
  Piece<T, n> piece;
#pragma unroll
  for (int i = 0; i < n; i++) piece.x[i] = fromFloat<T>(from[i]);
  *(Piece<T, n>*)to = piece;
}

// Stored is elements that wait to be stored.
template <class T, int n> struct Stored {
  T* to;
  Piece<T, n> piece;

  __device__ __forceinline__ void operator()() const { *(Piece<T, n>*)to = piece; }
};

// storing rounds elements that go to an address.
template <int n, class T> __device__ __forceinline__ Stored<T, n> storing(T* to, const float (&from)[n]) {
  Stored<T, n> s;
  s.to = to;
#pragma unroll
  for (int i = 0; i < n; i++) s.piece.x[i] = fromFloat<T>(from[i]);
  return s;
}

// Parameter is a vector of one element a feature: float32, or of the type of the tensor that it
// goes with.
struct Parameter {
  const void* data;  // null where it is left out
  int32_t wide;      // float32
  int32_t reserved;
};

template <class T, int n> __device__ __forceinline__ void load(const Parameter& p, int64_t at, float otherwise, float (&to)[n]) {
  if (p.data == nullptr) {
#pragma unroll
    for (int i = 0; i < n; i++) to[i] = otherwise;
  } else if (p.wide) {
    load<n>((const float*)p.data + at, to);
  } else {
    load<n>((const T*)p.data + at, to);
  }
}

// Lines numbers the rows of tensors of one shape in row-major order. The host's lines in lines.go
// joins axes that lie end to end in all of them.
struct Lines {
  int64_t dims[5];        // of the axes but the last
  int64_t strides[4][5];  // in elements, of each tensor
  int64_t count;          // of rows
  int32_t axes, length;   // how many axes, and the elements of a row
  // every row starts at a multiple of 16 bytes and has a whole number of them
  int32_t aligned;
  int32_t reserved;

  // at is where a row of a tensor starts.
  __device__ __forceinline__ int64_t at(int tensor, int64_t row) const {
    int64_t offset = 0;
#pragma unroll 1
    for (int axis = axes - 1; axis > 0; axis--) {
      const int64_t outer = count >> 31 ? row / dims[axis] : (uint32_t)row / (uint32_t)dims[axis];
      offset += (row - outer * dims[axis]) * strides[tensor][axis];
      row = outer;
    }
    return offset + row * strides[tensor][0];
  }
};

// Fault is where a kernel notes an index that it cannot use. The host's fault in fault.go reads it.
struct FaultNote {
  int64_t position, value, limit;
  int32_t kernel, there;
};
struct Fault {
  int32_t* taken;   // in the device's memory: 1 once a note is written
  FaultNote* note;  // in the host's
  int32_t kernel, reserved;

  __device__ __forceinline__ void report(int64_t position, int64_t value, int64_t limit) const {
    if (atomicExch(taken, 1)) return;
    volatile FaultNote* n = note;
    n->position = position, n->value = value, n->limit = limit, n->kernel = kernel;
    __threadfence_system();
    n->there = 1;
  }
};

// Indices are int32 or int64.
struct Indices {
  const void* data;
  int32_t wide, reserved;  // int64

  __device__ __forceinline__ int64_t operator[](int64_t at) const {
    return wide ? ((const int64_t*)data)[at] : ((const int32_t*)data)[at];
  }
};

// Count is a number of elements that is known when a kernel is compiled.
template <int n> struct Count {
  __host__ __device__ constexpr operator int() const { return n; }
};

// sumOfWarp adds up what the threads of a warp have, in one order; all have the result.
template <class T> __device__ __forceinline__ T sumOfWarp(T sum) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  return sum;
}

// For the type of elements that a module is for, or for each, an entry point whose name ends in the
// type's.
#if defined(ELEMENT_F32)
#define FOR_EACH_ELEMENT(DEFINE) DEFINE(f32, float)
#elif defined(ELEMENT_BF16)
#define FOR_EACH_ELEMENT(DEFINE) DEFINE(bf16, __nv_bfloat16)
#elif defined(ELEMENT_F16)
#define FOR_EACH_ELEMENT(DEFINE) DEFINE(f16, __half)
#else
#define FOR_EACH_ELEMENT(DEFINE) \
  DEFINE(f32, float)             \
  DEFINE(bf16, __nv_bfloat16)    \
  DEFINE(f16, __half)
#endif
