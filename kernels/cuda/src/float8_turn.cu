// Rounds the columns of a matrix to 8 bits from what its rows were rounded to (float8.cu):
//
//   to[c, r] = e4m3(from[r, c] · down(rowMost[r]) · up(columnMost[c])), 0 beyond the rows
//
// Scales are powers of two (float8.cuh), so both products are exact.
#include <cuda_fp16.h>

#include "float8.cuh"

// Turning is the host's turning in matmul_float8.go.
struct Turning {
  const uint8_t* from;                      // (rows, stride), 0 beyond the columns
  uint8_t* to;                              // (columns, toStride)
  const uint32_t *rowMost, *columnMost;     // bits of the largest magnitudes
  int32_t rows, columns, stride, toStride;  // both strides are multiples of 16
};

constexpr int THREADS = 256, SIDE = 128, EACH = 16, ACROSS = SIDE / EACH, WARPS = THREADS / 32;

// In float16 a number times 2^(5 − a) times 2^(b − 5), a and b up to RANGE, is exact where it is not
// rounded to 0, for any number of 8 bits and b of at least LEAST, under which all are.
constexpr int RANGE = 20, LEAST = -19, MIDDLE = 5;

__device__ __forceinline__ uint32_t widened(uint32_t two) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)two));
  return halves;
}
__device__ __forceinline__ uint32_t times(uint32_t x, uint32_t y) {
  uint32_t z;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
  return z;
}
__device__ __forceinline__ uint32_t narrowed(uint32_t halves) {
  uint16_t two;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(two) : "r"(halves));
  return two;
}

// turned gives two numbers of neighbouring columns, the row's exponent less the columns' apart from
// float16's.
__device__ __forceinline__ uint32_t turned(uint32_t two, int row, int first, int second) {
  const uint32_t halves = widened(two);
  const float down = __uint_as_float((row - 7) << 23);
  const auto one = [&](uint32_t half, int column) {
    const float x = __half2float(__ushort_as_half(half)) * down * __uint_as_float((261 - column) << 23);
    uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
    return (uint32_t)r;
  };
  return one(halves & 0xffff, first) | one(halves >> 16, second) << 8;
}

// A block turns a square of SIDE numbers. A thread has four rows of EACH columns, which are EACH
// words of columns in shared memory. The pieces of 16 bytes of columns are moved on by one from
// EACH columns to the next, so that the threads of a warp meet in no bank.
extern "C" __global__ void __launch_bounds__(THREADS, 8) float8_turn(const __grid_constant__ Turning t) {
  __shared__ __align__(16) uint32_t tile[SIDE][SIDE / 4];
  __shared__ int exponents[2][SIDE];  // of rows, and of columns
  __shared__ __align__(16) __half scales[2][SIDE];
  __shared__ int2 ofWarps[WARPS];
  const int group = threadIdx.x % ACROSS, word = threadIdx.x / ACROSS;
  const int column = blockIdx.x * SIDE, row = blockIdx.y * SIDE, mine = column + group * EACH;
  uint4 held[4];
#pragma unroll
  for (int n = 0; n < 4; n++) {
    const int r = row + 4 * word + n;
    held[n] = make_uint4(0, 0, 0, 0);
    if (r < t.rows && mine < t.stride) held[n] = *(const uint4*)(t.from + (int64_t)r * t.stride + mine);
  }
  // A side of zeros has none of the exponents that count.
  const bool isColumn = threadIdx.x >= SIDE;
  const int i = threadIdx.x % SIDE, side = (isColumn ? column : row) + i;
  uint32_t most = 0;
  if (side < (isColumn ? t.columns : t.rows)) most = (isColumn ? t.columnMost : t.rowMost)[side];
  const int exponent = max((int)(most >> 23), 8);
  exponents[isColumn][i] = exponent;
  const int largest = __reduce_max_sync(~0u, most ? exponent : 0), least = __reduce_min_sync(~0u, most ? exponent : 256);
  if (threadIdx.x % 32 == 0) ofWarps[threadIdx.x / 32] = make_int2(largest, least);
  __syncthreads();
  int top = 0, bottom = 256, leastColumn = 256;
#pragma unroll
  for (int w = 0; w < WARPS / 2; w++) {
    top = max(top, ofWarps[w].x), bottom = min(bottom, ofWarps[w].y);
    leastColumn = min(leastColumn, ofWarps[WARPS / 2 + w].y);
  }
  const bool fits = top - min(bottom, leastColumn) <= RANGE;
  const int by = isColumn ? max(top - exponent, LEAST) - MIDDLE : exponent - top + MIDDLE;
  scales[isColumn][i] = __float2half_rn(most ? __uint_as_float((127 + max(by, -24)) << 23) : 0.0f);
  __syncthreads();
  if (fits) {
    uint32_t rows[4];
    const uint2 four = *(const uint2*)&scales[0][4 * word];
    rows[0] = __byte_perm(four.x, 0, 0x1010), rows[1] = __byte_perm(four.x, 0, 0x3232);
    rows[2] = __byte_perm(four.y, 0, 0x1010), rows[3] = __byte_perm(four.y, 0, 0x3232);
#pragma unroll
    for (int i = 0; i < EACH; i += 2) {
      const uint32_t columns = *(const uint32_t*)&scales[1][group * EACH + i];
      uint32_t two[4];
#pragma unroll
      for (int n = 0; n < 4; n++) {
        const uint32_t x = i < 4 ? held[n].x : i < 8 ? held[n].y : i < 12 ? held[n].z : held[n].w;
        two[n] = narrowed(times(times(widened(i % 4 ? x >> 16 : x & 0xffff), rows[n]), columns));
      }
      const uint32_t upper = __byte_perm(two[0], two[1], 0x5140), lower = __byte_perm(two[2], two[3], 0x5140);
      const int at = (word + 4 * group) % (SIDE / 4);
      tile[group * EACH + i][at] = __byte_perm(upper, lower, 0x5410);
      tile[group * EACH + i + 1][at] = __byte_perm(upper, lower, 0x7632);
    }
  } else {
#pragma unroll
    for (int i = 0; i < EACH; i += 2) {
      const int first = exponents[1][group * EACH + i], second = exponents[1][group * EACH + i + 1];
      uint32_t two[4];
#pragma unroll
      for (int n = 0; n < 4; n++) {
        const uint32_t x = i < 4 ? held[n].x : i < 8 ? held[n].y : i < 12 ? held[n].z : held[n].w;
        two[n] = turned(i % 4 ? x >> 16 : x & 0xffff, exponents[0][4 * word + n], first, second);
      }
      const uint32_t upper = __byte_perm(two[0], two[1], 0x5140), lower = __byte_perm(two[2], two[3], 0x5140);
      const int at = (word + 4 * group) % (SIDE / 4);
      tile[group * EACH + i][at] = __byte_perm(upper, lower, 0x5410);
      tile[group * EACH + i + 1][at] = __byte_perm(upper, lower, 0x7632);
    }
  }
  __syncthreads();
  const int piece = threadIdx.x % 8, at = row + 16 * piece;
  if (at >= t.toStride) return;
#pragma unroll
  for (int i = threadIdx.x / 8; i < SIDE; i += THREADS / 8) {
    if (column + i >= t.columns) break;
    *(uint4*)(t.to + (int64_t)(column + i) * t.toStride + at) = *(const uint4*)&tile[i][(piece + i / EACH) % 8 * 4];
  }
}
