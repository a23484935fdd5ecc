// What the mma.sync attention kernels share: the arithmetic they are compiled for, masks of tiles, dropout in the accumulators'
// layout.
//
// A variant is compiled with -DKERNEL (the name of its entry point), -DHEAD_DIM, -DTILE_Q, -DTILE_K, -DBLOCK_THREADS and one of
// -DELEMENT_BF16, -DELEMENT_F16, -DELEMENT_F32 (operands of two parts) and -DELEMENT_TF32; -DMOD adds what changes scores one by one:
// soft cap, slopes, bias, dropout. How shared memory is laid out comes with -DTILE_PLACES, -DTILE_SWIZZLED and -DTILE_BY_KEYS.
// variants_sm80.go lists the variants.
#pragma once
#include "mma.cuh"
#include "score.cuh"

#if defined(ELEMENT_BF16)
using Arithmetic = BF16;
#elif defined(ELEMENT_F16)
using Arithmetic = F16;
#elif defined(ELEMENT_F32)
using Arithmetic = F32;
#elif defined(ELEMENT_TF32)
using Arithmetic = TF32;
#endif

#ifdef MOD
constexpr bool MODIFIED = true;
#else
constexpr bool MODIFIED = false;
#endif

extern __shared__ __align__(128) uint8_t sharedMemory[];
__device__ __forceinline__ uint32_t sharedBase() { return (uint32_t)__cvta_generic_to_shared(sharedMemory); }

// ceilDiv rounds up; n is not negative.
__host__ __device__ constexpr int ceilDiv(int n, int d) { return (n + d - 1) / d; }

// Range is from first up to, not including, last.
struct Range {
  int first, last;
};

// Place is where a block of the grid works: on a tile of a plane, one head of one sequence. Blocks start in their order, so it
// decides which run at the same time. Planes come in groups of about GROUP_BLOCKS blocks, four waves of a large GPU: few
// enough to share what they read in the second level cache; enough that, where a mask makes the first tiles longer, the last
// long blocks are followed by short ones. In a group the planes are fastest: blocks that add to one tile of dQ start
// one after another and wait little for each other.
struct Place {
  static constexpr int GROUP_BLOCKS = 1024;
  int tile, plane;

  // tiles is how many a plane has at most.
  __device__ __forceinline__ explicit Place(int tiles) {
    const int planes = gridDim.x / tiles, groups = max(1, (int)gridDim.x / GROUP_BLOCKS), together = ceilDiv(planes, groups);
    const int first = blockIdx.x / (together * tiles) * together, here = min(together, planes - first);
    const int within = blockIdx.x - first * tiles;
    tile = within / here, plane = first + within % here;
  }
};

// View is a sequence with its mask. It answers for tiles of rows and columns; a tile's end may lie beyond the sequence's.
struct View {
  Sequence s;
  Band band;

  __device__ __forceinline__ View(const AttentionArguments& a, int index) : s(sequenceOf(a, index)), band(bandOf(a, s)) {}

  __device__ __forceinline__ bool sees(int i, int j) const {
    return i < s.sq && j < s.sk && j >= i + band.lo && j < i + band.hi;
  }

  // keyTiles are the tiles of SIZE columns that some row of row..row+rows sees.
  template <int SIZE> __device__ __forceinline__ Range keyTiles(int row, int rows) const {
    const int from = max(0, row + band.lo), to = min(s.sk, min(row + rows, s.sq) - 1 + band.hi);
    return from < to ? Range{from / SIZE, ceilDiv(to, SIZE)} : Range{0, 0};
  }

  // queryTiles are the tiles of SIZE rows of which some row sees a column of column..column+columns. A tile of rows is
  // among these exactly if the columns are among its keyTiles.
  template <int SIZE> __device__ __forceinline__ Range queryTiles(int column, int columns) const {
    const int from = max(0, column - band.hi + 1), to = min(s.sq, min(column + columns, s.sk) - band.lo);
    return from < to ? Range{from / SIZE, ceilDiv(to, SIZE)} : Range{0, 0};
  }

  // none tells that no row of the tile sees any of the columns.
  __device__ __forceinline__ bool none(int row, int rows, int column, int columns) const {
    return column >= row + rows - 1 + band.hi || column + columns <= row + band.lo;
  }

  // whole tells that every row of the tile exists and sees every column.
  __device__ __forceinline__ bool whole(int row, int rows, int column, int columns) const {
    return row + rows <= s.sq && column + columns <= s.sk && column >= row + rows - 1 + band.lo && column + columns <= row + band.hi;
  }
};

// dropWords gives the words that decide about two neighbouring accumulator blocks: words[block][half] has the two columns that
// this lane holds of the half's row. row and column are those of the first block's first element in this lane. Four neighbouring
// lanes share four counters, of two rows and two blocks: each draws one, and gives the others a word of it.
__device__ __forceinline__ void dropWords(const Dropper& d, int row, int column, uint32_t (&words)[2][2]) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  uint4 own[1] = {d.counter(odd ? row + 8 : row, upper ? column + 8 : column)};
  d.draw(own);
  const uint4 w = own[0];
  // Words of this lane's half of the four lanes: of its counter, and of that of the lane two away, which is the other block's.
  const uint32_t other0 = __shfl_xor_sync(0xffffffff, upper ? w.x : w.z, 2), other1 = __shfl_xor_sync(0xffffffff, upper ? w.y : w.w, 2);
  const uint32_t mine0 = upper ? w.z : w.x, mine1 = upper ? w.w : w.y;
  const uint32_t block[2][2] = {{upper ? other0 : mine0, upper ? other1 : mine1}, {upper ? mine0 : other0, upper ? mine1 : other1}};
#pragma unroll
  for (int b = 0; b < 2; b++) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? block[b][0] : block[b][1], 1);
    words[b][0] = odd ? got : block[b][0];
    words[b][1] = odd ? block[b][1] : got;
  }
}

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }

// addBias adds the bias to a warp's block; r and c are this lane's first row and column. Rows and columns beyond the sequence
// read the last one's.
template <class T, int ROWS, int KEYS>
__device__ __forceinline__ void addBias(float (&x)[ROWS][KEYS][4], const AttentionArguments& a, const Sequence& s, int head,
                                        int r, int c) {
  const T* bias = (const T*)a.bias + s.index * a.biasSequence + head * a.biasHead;
  const bool inside = c + 8 * KEYS <= s.sk;
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const T* from = bias + min(r + 16 * i + 8 * half, s.sq - 1) * a.biasRow;
      if (!a.biasColumn) {
        const float b = widen(*from);
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
          x[i][j][2 * half] += b;
          x[i][j][2 * half + 1] += b;
        }
      } else if (inside) {
        from += c;
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
          x[i][j][2 * half] += widen(from[8 * j]);
          x[i][j][2 * half + 1] += widen(from[8 * j + 1]);
        }
      } else {
#pragma unroll
        for (int j = 0; j < KEYS; j++) {
          x[i][j][2 * half] += widen(from[min(c + 8 * j, s.sk - 1)]);
          x[i][j][2 * half + 1] += widen(from[min(c + 8 * j + 1, s.sk - 1)]);
        }
      }
    }
}

// hyperbolicTangent is exact to 1e-7 for operands of 16 bits, to float32's last places for others.
template <class E> __device__ __forceinline__ float hyperbolicTangent(float x) {
  if constexpr (E::BYTES == 2) return 1 - __fdividef(2, 1 + exp2Fast(2 * LOG2E * x));
  else return tanhf(x);
}

// modify does with a warp's block of products what Modifier does with one: scale, soft cap, slopes, bias. row and column are
// where the block begins in the sequence; what it makes of places beyond the sequence means nothing. A step that a problem does
// not have costs one branch a block. With CAPPED, gains receives what the soft cap multiplies gradients with, 1 - (capped/cap)².
template <class E, int ROWS, int KEYS, bool CAPPED>
__device__ __forceinline__ void modify(float (&x)[ROWS][KEYS][4], float (&gains)[CAPPED ? ROWS : 1][CAPPED ? KEYS : 1][4],
                                       const AttentionArguments& a, const Sequence& s, int head, int row, int column) {
  const int r = row + lane() / 4, c = column + lane() % 4 * 2;
  if (a.softCap > 0) {
    const float inward = a.scale / a.softCap;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const float capped = hyperbolicTangent<E>(x[i][j][e] * inward);
          x[i][j][e] = a.softCap * capped;
          if constexpr (CAPPED) gains[i][j][e] = 1 - capped * capped;
        }
  } else {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) x[i][j][e] *= a.scale;
  }
  if (a.slopes) {
    const float slope = a.slopes[head], distance = (float)(r + s.sk - s.sq - c);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < KEYS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) x[i][j][e] -= slope * fabsf(distance + (float)(16 * i + e / 2 * 8 - 8 * j - e % 2));
  }
  if (a.bias) {
    if (a.biasElement == ElementF32) addBias<float>(x, a, s, head, r, c);
    else if (a.biasElement == ElementBF16) addBias<__nv_bfloat16>(x, a, s, head, r, c);
    else addBias<__half>(x, a, s, head, r, c);
  }
}
