// What our kernels use of CUDA's header of this name. The compiler at run time is given this one, so that it needs no toolkit.
#pragma once

struct __half {
  unsigned short bits;
  __half() = default;
  __device__ __forceinline__ explicit __half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
};

struct alignas(4) __half2 {
  __half x, y;
};

__device__ __forceinline__ float __half2float(__half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ __forceinline__ float2 __half22float2(__half2 x) { return make_float2(__half2float(x.x), __half2float(x.y)); }
__device__ __forceinline__ __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
