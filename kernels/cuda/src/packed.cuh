// Elements of packed matrices: package packed says how they lie. An element is its number times its
// scale, rounded once to float32, as on the host.
#pragma once
#include <stdint.h>

#include "elements.cuh"

// Packed is a matrix whose rows lie end to end. The host's mirror is packedMatrix in packed.go: a
// field changes in both.
struct Packed {
  const uint8_t* data;
  const float* scaleTable;  // of NF4: what the codes of scales stand for
  float numbers[16];        // of codes of four bits: what they stand for
  int32_t rows, columns, rowBytes, scales;  // scales: where a row's begin, in bytes
};

enum PackedKind { Int8, Int4, NF4 };

// PACKED_GROUP is how many elements of a row have one scale, of NF4 two groups.
constexpr int PACKED_GROUP = 32;

// scaleOf is that of a group of a row.
template <PackedKind kind> __device__ __forceinline__ float scaleOf(const Packed& m, const uint8_t* row, int group) {
  const uint8_t* scales = row + m.scales;
  if constexpr (kind != NF4) return __half2float(((const __half*)scales)[group]);
  // the offset, where in a group of 256 scales the row begins, their factors, and their codes
  constexpr int perScale = 2, nested = 256;
  const int blocks = m.columns / (perScale * PACKED_GROUP), floats = 2 + (blocks + nested - 2) / nested + 1, block = group / perScale;
  const uint32_t phase = ((const uint32_t*)scales)[1] % nested;
  const float factor = __fmul_rn(m.scaleTable[scales[4 * floats + block]], ((const float*)scales)[2 + (phase + block) / nested]);
  return __fadd_rn(factor, ((const float*)scales)[0]);
}

// eightOf gives eight neighbours of a group of a row, from one that is a multiple of eight on.
// numbers are m.numbers where they are read fast.
template <PackedKind kind>
__device__ __forceinline__ void eightOf(const Packed& m, const float* numbers, const uint8_t* row, int column, float (&x)[8]) {
  const int group = column / PACKED_GROUP, in = column % PACKED_GROUP;
  const float scale = scaleOf<kind>(m, row, group);
  if constexpr (kind == Int8) {
    const uint2 codes = *(const uint2*)(row + column);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = __fmul_rn((float)(int8_t)((i < 4 ? codes.x : codes.y) >> 8 * (i % 4)), scale);
  } else {
    // byte j of a group's has its elements j and j + 16
    const uint2 codes = *(const uint2*)(row + group * (PACKED_GROUP / 2) + in % 16);
    const int shift = in < 16 ? 0 : 4;
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = __fmul_rn(numbers[(i < 4 ? codes.x : codes.y) >> (8 * (i % 4) + shift) & 15], scale);
  }
}
