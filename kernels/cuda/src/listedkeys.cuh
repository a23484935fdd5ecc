// Attention to listed keys: what its kernels share. kernels/listedkeys.go defines it.
//
// A block owns one query of one key head: the query heads of the group are the rows of its
// products, so that a row of K and V that it gathers serves all of them. A warp has 16·ROW_BLOCKS
// of them, and a group of more than ROW_WARPS warps have takes several blocks. The list is cut into
// tiles of TILE_K keys, which SPLITS sets of ROW_WARPS warps take in turns: each set has a part of
// shared memory to itself, where its next tile arrives (cp.async, a row of K and of V at a time)
// while it computes with the last, and what it has summed. The parts are added at the end.
//
// A variant is compiled with -DHEAD_DIM, -DROW_WARPS, -DROW_BLOCKS, -DTILE_SPLITS, -DTILE_K,
// -DTILE_STAGES and one of -DELEMENT_BF16, -DELEMENT_F16 and -DELEMENT_F32. variants_listedkeys.go
// lists the variants.
#pragma once
#include "elements.cuh"
#include "mma_signed.cuh"

#if defined(ELEMENT_BF16)
using Arithmetic = BF16;
#elif defined(ELEMENT_F16)
using Arithmetic = F16;
#else
using Arithmetic = F32;
#endif

// ListedArguments is the host's listedArguments in listedkeys.go.
struct ListedArguments {
  Rows q, k, v;
  Rows o;              // forward: the output; backward: its gradient
  Rows dQ;             // backward only
  float* lse;          // (batch, heads, queries) row-major; forward may be given none
  float* delta;        // (batch, heads, queries) row-major; backward only
  // backward's scratch: of each key a row of dK and one of dV, in the order of the accumulators
  void* sums;
  // null: sums are float32. Otherwise they are integers in a unit that these give, which have no
  // order
  const int32_t* bounds;
  Indices lists;
  Fault fault;
  int64_t listBatch, listHead, listRow;  // strides in elements, 0 along an axis that is shared
  int32_t batch, heads, keyHeads;
  int32_t queries, keys, n;  // n is the length of a list
  int32_t d, dv;
  int32_t keyBatches;
  float scale;
  const int32_t* needed;  // null, or where 0 says that there is nothing to do
  int32_t blocks;         // that the work is for; a launch that may have nothing to do has fewer
  int32_t reserved;
};

extern __shared__ __align__(128) uint8_t sharedMemory[];

template <class E, int D, int R, int BLOCKS, int SPLITS, int KEYS, int STAGES> struct Listed {
  static constexpr int WARPS = R * SPLITS, THREADS = 32 * WARPS;
  static constexpr int OWN = 16 * BLOCKS, ROWS = R * OWN;  // heads of a warp and of a block
  static constexpr int SHARE = KEYS / R;  // rows of K and V that a warp brings
  static_assert(SHARE <= 32 && SHARE * R == KEYS && KEYS % 16 == 0);
  using Operand = Tile<E, D>;
  static constexpr int TILES = STAGES * SPLITS * KEYS;  // rows of K in shared memory

  // Floats of large heads leave room for the sums of so many columns: others are another block's.
  static constexpr int WIDTH = E::SCALED && D > 128 ? 128 : D;
  using Sums = float[BLOCKS][WIDTH / 8][4];
  using Scores = float[BLOCKS][KEYS / 8][4];

  const ListedArguments& a;
  const int split, part;  // which set of warps this is of, and which of the set's warps
  int batch, keyHead, query, firstHead, heads;  // heads: of this block
  int column;  // the block's first

  DEVICE Listed(const ListedArguments& a, int block) : a(a), split(warp() / R), part(warp() % R) {
    const int group = a.heads / a.keyHeads, tiles = (group + ROWS - 1) / ROWS;
    int at = block;
    column = at % (D / WIDTH) * WIDTH, at /= D / WIDTH;
    const int tile = at % tiles;
    at /= tiles;
    query = at % a.queries, at /= a.queries;
    keyHead = at % a.keyHeads, batch = at / a.keyHeads;
    firstHead = keyHead * group + tile * ROWS, heads = min(ROWS, group - tile * ROWS);
  }

  // rows are those of the block's heads in a tensor of q's kind.
  DEVICE Matrix rows(const Rows& t, int columns) const {
    return {(typename E::Stored*)t.data + batch * t.batch + firstHead * t.head + query * t.row, t.head, heads, columns};
  }
  // keys are the rows of K or V.
  DEVICE Matrix keys(const Rows& t, int columns) const {
    return {(typename E::Stored*)t.data + batch * t.batch + keyHead * t.head, t.row, a.keys, columns};
  }
  // statistic is the place of a row's value in a tensor of one value a row.
  DEVICE int64_t statistic(int row) const { return ((int64_t)batch * a.heads + firstHead + row) * a.queries + query; }

  // entry reads the list's entry of the key that the lane brings of a tile, and does not look at it:
  // nobody waits for it then. keyOf is its key, −1 for none. What is no row of K is reported.
  DEVICE int placeOf(int tile) const { return tile * KEYS + part * SHARE + lane(); }
  DEVICE int64_t listOf() const { return batch * a.listBatch + keyHead * a.listHead + query * a.listRow; }
  DEVICE int2 entry(int tile) const {
    int2 raw = {-1, -1};
    const int at = placeOf(tile);
    if (lane() < SHARE && at < a.n) {
      if (a.lists.wide) raw = ((const int2*)a.lists.data)[listOf() + at];
      else raw.x = ((const int32_t*)a.lists.data)[listOf() + at];
    }
    return raw;
  }
  DEVICE int keyOf(int tile, int2 raw) const {
    const int64_t key = a.lists.wide ? (int64_t)raw.y << 32 | (uint32_t)raw.x : raw.x;
    if (key >= 0 && key < a.keys) return (int)key;
    if (key != -1) {
      // the place in a list that has all axes
      const int64_t plane = (a.listBatch ? (int64_t)batch : 0) * (a.listHead ? a.keyHeads : 1) + (a.listHead ? keyHead : 0);
      a.fault.report((plane * a.queries + query) * a.n + placeOf(tile), key, a.keys);
    }
    return -1;
  }

  // tiles is how many the set takes of the list.
  DEVICE int tiles() const {
    const int all = (a.n + KEYS - 1) / KEYS;
    return max(0, (all - split + SPLITS - 1) / SPLITS);
  }

  // await is a barrier of the set.
  DEVICE void await() const {
    if constexpr (R == 1) __syncwarp();
    else asm volatile("bar.sync %0, %1;" ::"r"(1 + split), "n"(32 * R) : "memory");
  }
};

// forBlocks runs the kernel of each block that the work is for.
template <class Kernel> DEVICE void forBlocks(const ListedArguments& a) {
  if (a.needed && !*a.needed) return;
#pragma unroll 1
  for (int block = blockIdx.x; block < a.blocks; block += gridDim.x) {
    Kernel kernel(a, block);
    kernel.run();
    __syncthreads();  // every warp is done with shared memory
  }
}

// gather starts to bring SHARE rows of a matrix, those whose numbers the lanes hold, into the tile
// from row first on. A number under 0 is a row of zeros.
template <class E, int D, int SHARE> DEVICE void gather(Tile<E, D> tile, int first, const Matrix& m, bool aligned, int index) {
  if (aligned) {
    constexpr int EACH = 16 / E::BYTES, UNITS = D / EACH, SPAN = UNITS < 32 ? UNITS : 32, PASS = 32 / SPAN;
    static_assert(SHARE % PASS == 0 && UNITS % SPAN == 0 && 32 % SPAN == 0);
    const int c = lane() % SPAN * EACH;
#pragma unroll(UNITS > 32 ? 1 : SHARE / PASS)
    for (int n = 0; n < SHARE; n += PASS) {
      const int row = n + lane() / SPAN, at = __shfl_sync(~0u, index, row);
      const typename E::Stored* from = (typename E::Stored*)m.data + at * m.stride + c;
#pragma unroll
      for (int u = 0; u < UNITS; u += SPAN) {
        const int bytes = at < 0 ? 0 : min(16, max(0, m.columns - c - u * EACH) * E::BYTES);
        copyAsync(tile.raw(first + row, c + u * EACH), bytes ? from + u * EACH : (typename E::Stored*)m.data, bytes);
      }
    }
  } else {
    using Bits = typename std::conditional<E::BYTES == 2, uint16_t, uint32_t>::type;
    constexpr int EACH = 4 / E::BYTES;
#pragma unroll 1
    for (int row = 0; row < SHARE; row++) {
      const int at = __shfl_sync(~0u, index, row);
      const Bits* from = (const Bits*)m.data + at * m.stride;
#pragma unroll 1
      for (int c = lane() * EACH; c < D; c += 32 * EACH) {
        uint32_t x = 0;
        if (at >= 0 && c < m.columns) x = from[c];
        if (E::BYTES == 2 && at >= 0 && c + 1 < m.columns) x |= (uint32_t)from[c + 1] << 16;
        storeShared4(tile.raw(first + row, c), x);
      }
    }
  }
}

// storePart puts a warp's accumulator into shared memory as floats, rows PAD floats apart.
constexpr int PAD = 4;
template <int BLOCKS, int COLUMNS> DEVICE void storePart(const float (&c)[BLOCKS][COLUMNS][4], float* to, int row) {
#pragma unroll
  for (int i = 0; i < BLOCKS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float* at = to + (row + 16 * i + lane() / 4 + 8 * half) * (8 * COLUMNS + PAD) + 8 * j + lane() % 4 * 2;
        *(float2*)at = make_float2(c[i][j][2 * half], c[i][j][2 * half + 1]);
      }
}

// Results are written to rows of a matrix, four neighbouring columns at a time where they can.
template <class T> struct Results {
  const Matrix to;
  const bool whole;

  DEVICE explicit Results(const Matrix& to)
      : to(to), whole(to.columns % 4 == 0 && (((uint64_t)to.data | (uint64_t)(to.stride * sizeof(T))) & (4 * sizeof(T) - 1)) == 0) {}
  DEVICE void write(int row, int column, const float (&x)[4]) const {
    T* const at = (T*)to.data + row * to.stride + column;
    if (whole) {
      if (column < to.columns) store<4>(at, x);
    } else {
#pragma unroll
      for (int i = 0; i < 4; i++)
        if (column + i < to.columns) at[i] = fromFloat<T>(x[i]);
    }
  }
};
