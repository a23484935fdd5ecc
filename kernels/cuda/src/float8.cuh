// Numbers of 8 bits, e4m3: 4 bits of precision, magnitudes from 2^-9 to 448, a NaN and no infinity.
// A row of A and a column of B are multiplied by a power of two each before they are rounded.
#pragma once
#include <stdint.h>

// Float8Scale is the power of two that brings magnitudes of up to `most`, given by its bits, to
// 2^7..2^8, and its inverse. Both are normal numbers.
struct Float8Scale {
  float up, down;
  __device__ __forceinline__ Float8Scale(uint32_t most) {
    const uint32_t exponent = max(most >> 23, 8u);
    up = __uint_as_float((261 - exponent) << 23), down = __uint_as_float((exponent - 7) << 23);
  }
};

// roundedToFloat8 rounds two numbers to nearest, ties to even, the first one in the lower byte.
// What is not finite becomes NaN.
__device__ __forceinline__ uint32_t roundedToFloat8(float low, float high, float up) {
  uint16_t r;
  const float x = fmaf(low, up, low * 0.0f), y = fmaf(high, up, high * 0.0f);
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(y), "f"(x));
  return r;
}
