// Instructions that kernels of every architecture use, one thin function each, named for what it
// does: fast exponentials, packing, and shared memory, whose addresses have 32 bits.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#define DEVICE __device__ __forceinline__

constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;

// exp2Fast is 2^x within 2 units of the last place of float32; 0 for −∞.
DEVICE float exp2Fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// packed rounds two floats to a register of two numbers of 16 bits, the first one in the lower
// half.
template <class T> DEVICE uint32_t packed(float low, float high);
template <> DEVICE uint32_t packed<__nv_bfloat16>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <> DEVICE uint32_t packed<__half>(float low, float high) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// unpacked is the inverse of packed.
template <class T> DEVICE float2 unpacked(uint32_t x);
template <> DEVICE float2 unpacked<__nv_bfloat16>(uint32_t x) {
  return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xFFFF0000u));
}
template <> DEVICE float2 unpacked<__half>(uint32_t x) { return __half22float2(*(const __half2*)&x); }

// sharedAddress is the 32-bit address that the instructions below take for shared memory.
DEVICE uint32_t sharedAddress(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

// loadMatrix4 reads four 8×8 matrices of 16-bit elements into registers in accumulator order; lane
// l gives the address of row l%8 of matrix l/8.
DEVICE void loadMatrix4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
// loadMatrix4Transposed transposes each of the four.
DEVICE void loadMatrix4Transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}

DEVICE int32_t loadShared4(uint32_t address) {
  int32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
DEVICE float loadSharedFloat(uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
DEVICE float2 loadShared8(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}
DEVICE uint4 loadShared16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
  return v;
}

// storeShared2 stores the lower half of a register.
DEVICE void storeShared2(uint32_t address, uint32_t v) {
  asm volatile("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nst.shared.b16 [%0], low;\n}\n" ::"r"(address), "r"(v) : "memory");
}
DEVICE void storeShared4(uint32_t address, float v) { asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory"); }
DEVICE void storeShared4(uint32_t address, uint32_t v) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(v) : "memory"); }
DEVICE void storeShared8(uint32_t address, uint32_t x, uint32_t y) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(x), "r"(y) : "memory");
}
DEVICE void storeShared8(uint32_t address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}
DEVICE void storeShared16(uint32_t address, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
