// The sums of dQ that attention backward for sm_90a makes, and the kernel that turns them into dQ:
// scaled, rounded, in rows.
//
// A tile's sums lie in the order of the registers that they were computed in, float32, slice after
// slice: of each slice, four registers of thread 0, the same four of thread 1, and so on, then the
// next four.
#pragma once
#include "attention_dropout.cuh"
#include "hopper.cuh"

template <int HeadDim, int QueryTile> struct BackwardSums {
  static constexpr int TileQ = QueryTile;  // query rows of a tile
  // A slice is what one product computes. Transposed: 64 columns of dQ as rows of dQᵀ; otherwise 64
  // rows of dQ.
  static constexpr bool Transposed = HeadDim > 64;
  static constexpr int Columns = HeadDim == 96 ? 128 : HeadDim;  // whole slices, zeros at the end
  static constexpr int Slices = Transposed ? Columns / 64 : TileQ / 64;
  static constexpr int SliceFloats = TileQ * Columns / Slices, Registers = SliceFloats / 128;

  // Tiles of all sequences of one head, those before a sequence, and the place of a tile among
  // those of all heads. Packed sequences may leave a place empty.
  static DEVICE int tiles(const AttentionArguments& a) {
    return a.qLens ? a.sq / TileQ + a.sequences : (a.sq + TileQ - 1) / TileQ * a.sequences;
  }
  static DEVICE int before(const AttentionArguments& a, const Sequence& s) {
    return a.qLens ? s.q0 / TileQ + s.index : (a.sq + TileQ - 1) / TileQ * s.index;
  }
  static DEVICE int64_t place(const AttentionArguments& a, const Sequence& s, int head, int tile) {
    return head * tiles(a) + before(a, s) + tile;
  }
};

// queryGradient is a block's part, one tile of one head, in a grid of (sequences · tiles of the
// longest, heads). A tile whose counter is zero has no sums: its rows see no keys. Counters are
// left zero.
template <class Sums, int Threads> DEVICE void queryGradient(const AttentionArguments& a) {
  constexpr int TileQ = Sums::TileQ;
  // padded, so that columns of a tile fall into different banks
  constexpr int Line = Sums::Columns + 8;
  __shared__ __align__(16) Scalar tile[TileQ * Line];
  const int head = blockIdx.y;
  const int tiles = (a.longestQ + TileQ - 1) / TileQ, at = blockIdx.x % tiles;
  const Sequence s = sequenceOf(a, blockIdx.x / tiles);
  const int row = at * TileQ, rows = min(TileQ, s.sq - row);
  if (rows <= 0) return;

  const int64_t place = Sums::place(a, s, head, at);
  int32_t* const counter = a.counters + 2 + place;
  const bool seen = *counter != 0;
  const float scale = a.scale * keepScaleAfter(a);
  const float4* const sums = (const float4*)(a.dQSum + place * Sums::Slices * Sums::SliceFloats);
#pragma unroll 4
  for (int i = threadIdx.x; i < Sums::Slices * Sums::SliceFloats / 4; i += Threads) {
    const float4 four = seen ? sums[i] : make_float4(0, 0, 0, 0);
    const int slice = i / (Sums::SliceFloats / 4), register4 = i / 128 % (Sums::Registers / 4), thread = i % 128;
    const int m = slice * 64 + thread / 32 * 16 + thread % 32 / 4, n = register4 * 8 + thread % 4 * 2;
    const uint32_t top = pack(four.x * scale, four.y * scale), bottom = pack(four.z * scale, four.w * scale);
    if (Sums::Transposed) {
      const Scalar *upper = (const Scalar*)&top, *lower = (const Scalar*)&bottom;
      for (int e = 0; e < 2; e++) {
        tile[(n + e) * Line + m] = upper[e];
        tile[(n + e) * Line + m + 8] = lower[e];
      }
    } else {
      *(uint32_t*)&tile[m * Line + n] = top;
      *(uint32_t*)&tile[(m + 8) * Line + n] = bottom;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) *counter = 0;

  Scalar* const to = (Scalar*)a.dQ.data + s.batch * a.dQ.batch + head * a.dQ.head + (int64_t)(s.q0 + row) * a.dQ.row;
  const bool whole = a.d % 8 == 0 && (uint64_t)to % 16 == 0 && a.dQ.row % 8 == 0;
  constexpr int Parts = Sums::Columns / 8;
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * Parts; i += Threads) {
    const int line = i / Parts, column = i % Parts * 8;
    const Scalar* const from = &tile[line * Line + column];
    Scalar* const part = to + line * a.dQ.row + column;
    if (whole) {
      if (column < a.d) *(uint4*)part = *(const uint4*)from;
    } else {
      for (int e = 0; e < 8 && column + e < a.d; e++) part[e] = from[e];
    }
  }
}
