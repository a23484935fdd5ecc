// Products of a large matrix by thin ones, from either side or both, in the time that it takes to
// read the large one:
//
//   Across = scale·X·Right  (rows, ranks)       Down = Leftᵀ·X  (ranks, columns)
//
// X is (rows, columns), Right (columns, ranks) and Left (rows, ranks), of 16 bits, summed in
// float32. A rank more is a rank of zeros, up to a multiple of 8. Down alone may be of silu(X)·Up,
// rounded to 16 bits, in the place of X. Compile for sm_90a with
//   -DKERNEL=name -DELEMENT_BF16 or -DELEMENT_F16.
//
// KERNEL_e_t is for up to 8·e ranks. X is cut into strips of 128·t columns, and these into units of
// 128 rows. A block has some units of a strip, one below the other, and of the next strip if its
// share goes on there. A producer warp brings a unit, 128 columns at a time, to a ring in shared
// memory, and the unit's rows of Left. Four warps multiply by Right, which is there as long as the
// strip is: each has the sums of 32 rows, and writes them at the end of each unit. Four others
// multiply by Left: each has the sums of 32 of every 128 columns in registers, until the strip
// ends. KERNEL_sums adds both kinds of sums up, of all strips and of all blocks, in order.
//
// In KERNEL_gated_e_t, whose ring has tiles of X and of Up in turns, all eight warps multiply by
// Left, 16 of every 128 columns each.
#include "dependent.cuh"
#include "hopper.cuh"
#include "matmul.cuh"
#include "mma.cuh"
#include "ring.cuh"
#include "silu.cuh"

// ThinArguments is the host's thinArguments in thinproducts.go.
struct ThinArguments {
  const void* right;
  int64_t rightColumn, rightRank;  // strides in elements, of which one is 1
  float* across;   // sums (strip, row, rank), or null where there is no Right
  float* down;     // sums (block and strip, column of the strip, rank), or null where there is no Left
  int32_t rows, columns, ranks;
  int32_t reserved;
};

// ThinPart is a place for some of Down: the ranks and the columns from the first ones on.
struct ThinPart {
  void* data;
  int64_t rankStep, columnStep;  // in elements
  int32_t rank, ranks, column, columns;
  int32_t element;               // Element
  int32_t reserved;
};

// ThinSums is the host's thinSums in thinproducts.go.
struct ThinSums {
  const float *across, *down;    // what KERNEL_e_t leaves, either may be null
  void* to;                      // Across
  int64_t toRow;
  ThinPart parts[4];
  float scale;
  int32_t rows, columns, ranks, padded;  // padded: ranks of the sums
  int32_t strip, blocks;         // columns of a strip, blocks that share the units
  int32_t count;                 // of parts
  int32_t element;               // Element of Across
  int32_t reserved;
};

#ifdef ELEMENT_BF16
using Type = BF16;
#else
using Type = F16;
#endif

constexpr int WARPS = 4;  // that multiply by Right, and as many that do by Left
constexpr int THREADS = 32 * (2 * WARPS + 1);
constexpr int ROWS = 128, COLUMNS = 128;
constexpr int BOX = ROWS * 128;  // bytes: 64 columns of a unit

// Layout is where a block has what, in bytes from the beginning of its shared memory.
template <int EIGHTHS, int TILES, bool GATED> struct Layout {
  static constexpr int STRIP = TILES * COLUMNS, STAGES = GATED ? 6 : 4;
  // A row of Right in shared memory is an odd number of 16 bytes, so that eight neighbouring ones
  // are in different banks. Products take 16 ranks at a time, so that the last rank blocks may be
  // read beyond.
  static constexpr int RANK = STRIP * 2 + 16, COLUMN = (EIGHTHS + (EIGHTHS + 1) % 2) * 16;
  static constexpr int BY_COLUMNS = (EIGHTHS + 1) / 2 * 16 * RANK, BY_RANKS = STRIP * COLUMN + 16;
  static constexpr int x = 0, left = x + STAGES * 2 * BOX, right = left + 2 * BOX;
  static constexpr int full = right + (GATED ? 0 : BY_COLUMNS > BY_RANKS ? BY_COLUMNS : BY_RANKS), empty = full + 8 * STAGES;
  static constexpr int leftFull = empty + 8 * STAGES, leftEmpty = leftFull + 16, bytes = leftEmpty + 16;
};

// Share is the units of a block, strip by strip.
struct Share {
  int inStrip, from, to;
  DEVICE Share(const ThinArguments& g, int strip) : inStrip((g.rows + ROWS - 1) / ROWS) {
    const int64_t all = (int64_t)((g.columns + strip - 1) / strip) * inStrip;
    from = (int)(all * blockIdx.x / gridDim.x), to = (int)(all * (blockIdx.x + 1) / gridDim.x);
  }
};

// tilesOf is how many times 128 columns a strip has.
template <class L> DEVICE int tilesOf(const ThinArguments& g, int strip) {
  return (min(g.columns - strip * L::STRIP, L::STRIP) + COLUMNS - 1) / COLUMNS;
}

// boxed is the address of 8 neighbouring elements of a box's row of 64.
DEVICE uint32_t boxed(uint32_t box, int row, int eighth) { return box + row * 128 + ((eighth ^ row & 7) << 4); }

// produce brings X, with tiles of Up behind those of X if there is one, and Left.
template <class L> DEVICE void produce(const ThinArguments& g, const CUtensorMap* x, const CUtensorMap* up, const CUtensorMap* left, uint32_t at) {
  const Share share(g, L::STRIP);
  Ring<L::STAGES> ring(1);
  Ring<2> ofLeft(1);
  for (int unit = share.from; unit < share.to; unit++) {
    const int strip = unit / share.inStrip, row = unit % share.inStrip * ROWS, tiles = tilesOf<L>(g, strip);
    if (g.down) {
      barrierWait(at + L::leftEmpty + 8 * ofLeft.stage, ofLeft.parity);
      const uint32_t barrier = at + L::leftFull + 8 * ofLeft.stage;
      barrierExpect(barrier, BOX);
      loadBox(at + L::left + ofLeft.stage * BOX, left, barrier, 0, row, 0, 0);
      ofLeft.advance();
    }
    for (int tile = 0; tile < tiles; tile++) {
      const int column = strip * L::STRIP + tile * COLUMNS;
      for (const CUtensorMap* from = x; from; from = from == x ? up : nullptr, ring.advance()) {
        barrierWait(at + L::empty + 8 * ring.stage, ring.parity);
        const uint32_t barrier = at + L::full + 8 * ring.stage, to = at + L::x + ring.stage * 2 * BOX;
        barrierExpect(barrier, 2 * BOX);
        loadBox(to, from, barrier, column, row, 0, 0);
        loadBox(to + BOX, from, barrier, column + 64, row, 0, 0);
      }
    }
  }
}

// loadRight brings a strip of Right to shared memory, 16 bytes at a time, as it lies.
template <int EIGHTHS, class L> DEVICE void loadRight(const ThinArguments& g, int strip, bool byRanks, uint32_t at) {
  constexpr int PIECES = EIGHTHS * L::STRIP;  // of 16 bytes
  const Scalar* right = (const Scalar*)g.right;
#pragma unroll 4
  for (int i = threadIdx.x; i < PIECES; i += 32 * WARPS) {
    const int eighths = byRanks ? EIGHTHS : L::STRIP / 8, line = i / eighths, eighth = i % eighths;
    const int rank = byRanks ? 8 * eighth : line, inStrip = byRanks ? line : 8 * eighth, column = strip * L::STRIP + inStrip;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (rank < g.ranks && column < g.columns) v = *(const uint4*)(right + rank * g.rightRank + column * g.rightColumn);
    storeShared16(at + L::right + line * (byRanks ? L::COLUMN : L::RANK) + 16 * eighth, v);
  }
}

// multiplyAcross is what the warps do that multiply by Right.
template <int EIGHTHS, int TILES> DEVICE void multiplyAcross(const ThinArguments& g, uint32_t at) {
  using L = Layout<EIGHTHS, TILES, false>;
  const Share share(g, L::STRIP);
  const bool byRanks = g.rightRank == 1;
  Ring<L::STAGES> ring(0);
  int there = -1;
  for (int unit = share.from; unit < share.to; unit++) {
    const int strip = unit / share.inStrip, tiles = tilesOf<L>(g, strip);
    if (strip != there) {
      groupSync(1, 32 * WARPS);
      loadRight<EIGHTHS, L>(g, there = strip, byRanks, at);
      groupSync(1, 32 * WARPS);
    }
    float sums[2][EIGHTHS][4] = {};
    for (int tile = 0; tile < tiles; tile++, ring.advance()) {
      barrierWait(at + L::full + 8 * ring.stage, ring.parity);
      const uint32_t box = at + L::x + ring.stage * 2 * BOX;
#pragma unroll
      for (int step = 0; step < COLUMNS / 16; step++) {
        uint32_t x[2][4];
#pragma unroll
        for (int m = 0; m < 2; m++)
          loadMatrix4(x[m], boxed(box + step / 4 * BOX, 32 * warp() + 16 * m + lane() % 16, step % 4 * 2 + lane() / 16));
        const int column = tile * COLUMNS + 16 * step;
#pragma unroll
        for (int n = 0; n < EIGHTHS; n += 2) {
          uint32_t b[4];
          if (byRanks)
            loadMatrix4Transposed(b, at + L::right + (column + lane() % 16) * L::COLUMN + 16 * (n + lane() / 16));
          else
            loadMatrix4(b, at + L::right + (8 * n + lane() % 8 + lane() / 16 * 8) * L::RANK + 2 * column + lane() / 8 % 2 * 16);
#pragma unroll
          for (int m = 0; m < 2; m++) {
            multiplyAdd<Type>(sums[m][n], x[m], b[0], b[1]);
            if (n + 1 < EIGHTHS) multiplyAdd<Type>(sums[m][n + 1 < EIGHTHS ? n + 1 : n], x[m], b[2], b[3]);
          }
        }
      }
      __syncwarp();
      if (lane() == 0) barrierArrive(at + L::empty + 8 * ring.stage);
    }
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = unit % share.inStrip * ROWS + 32 * warp() + 16 * m + 8 * half + lane() / 4;
        if (row >= g.rows) continue;
        float* to = g.across + ((int64_t)strip * g.rows + row) * (8 * EIGHTHS) + 2 * (lane() % 4);
#pragma unroll
        for (int n = 0; n < EIGHTHS; n++) *(float2*)(to + 8 * n) = make_float2(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
      }
  }
}

// gatedPair is silu(x)·up of two neighbouring numbers.
DEVICE uint32_t gatedPair(uint32_t x, uint32_t up) {
  const float2 gate = unpacked<Type::Part>(x), by = unpacked<Type::Part>(up);
  return pack<Type>(swigluOf<false>(gate.x, by.x), swigluOf<false>(gate.y, by.y));
}

// multiplyDown is what the warps do that multiply by Left.
template <int EIGHTHS, int TILES, bool GATED> DEVICE void multiplyDown(const ThinArguments& g, uint32_t at) {
  using L = Layout<EIGHTHS, TILES, GATED>;
  constexpr int SIXTEENTHS = GATED ? 1 : 2, EACH = 16 * SIXTEENTHS;  // columns of a warp
  const Share share(g, L::STRIP);
  const int w = GATED ? warp() : warp() - WARPS, half = w * EACH / 64, eighth = w * EACH % 64 / 8;
  Ring<L::STAGES> ring(0);
  Ring<2> ofLeft(0);
  float sums[TILES][SIXTEENTHS][EIGHTHS][4] = {};
  for (int unit = share.from; unit < share.to; unit++) {
    const int strip = unit / share.inStrip, tiles = tilesOf<L>(g, strip);
    barrierWait(at + L::leftFull + 8 * ofLeft.stage, ofLeft.parity);
    const uint32_t left = at + L::left + ofLeft.stage * BOX;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      if (tile >= tiles) continue;
      barrierWait(at + L::full + 8 * ring.stage, ring.parity);
      const uint32_t box = at + L::x + (ring.stage * 2 + half) * BOX;
      Ring<L::STAGES> ofUp = ring;
      if (GATED) {
        ofUp.advance();
        barrierWait(at + L::full + 8 * ofUp.stage, ofUp.parity);
      }
      const uint32_t boxOfUp = at + L::x + (ofUp.stage * 2 + half) * BOX;
#pragma unroll
      for (int step = 0; step < ROWS / 16; step++) {
        uint32_t x[SIXTEENTHS][4];
#pragma unroll
        for (int m = 0; m < SIXTEENTHS; m++) {
          const int row = 16 * step + lane() % 8 + lane() / 16 * 8, of = eighth + 2 * m + lane() / 8 % 2;
          loadMatrix4Transposed(x[m], boxed(box, row, of));
          if (GATED) {
            uint32_t up[4];
            loadMatrix4Transposed(up, boxed(boxOfUp, row, of));
#pragma unroll
            for (int i = 0; i < 4; i++) x[m][i] = gatedPair(x[m][i], up[i]);
          }
        }
#pragma unroll
        for (int n = 0; n < EIGHTHS; n += 2) {
          uint32_t b[4];
          loadMatrix4Transposed(b, boxed(left, 16 * step + lane() % 16, n + lane() / 16));
#pragma unroll
          for (int m = 0; m < SIXTEENTHS; m++) {
            multiplyAdd<Type>(sums[tile][m][n], x[m], b[0], b[1]);
            if (n + 1 < EIGHTHS) multiplyAdd<Type>(sums[tile][m][n + 1 < EIGHTHS ? n + 1 : n], x[m], b[2], b[3]);
          }
        }
      }
      __syncwarp();
      if (lane() == 0) {
        barrierArrive(at + L::empty + 8 * ring.stage);
        if (GATED) barrierArrive(at + L::empty + 8 * ofUp.stage);
      }
      ring = ofUp;
      ring.advance();
    }
    if (lane() == 0) barrierArrive(at + L::leftEmpty + 8 * ofLeft.stage);
    ofLeft.advance();
    if (unit + 1 < share.to && (unit + 1) / share.inStrip == strip) continue;
    // The strip ends here, or the share does. No other block has this number of a block and a strip.
    float* to = g.down + ((int64_t)(blockIdx.x + strip) * L::STRIP + EACH * w + lane() / 4) * (8 * EIGHTHS) + 2 * (lane() % 4);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
      for (int m = 0; m < SIXTEENTHS; m++)
#pragma unroll
        for (int second = 0; second < 2; second++)
#pragma unroll
          for (int n = 0; n < EIGHTHS; n++) {
            float* s = sums[tile][m][n];
            *(float2*)(to + (tile * COLUMNS + 16 * m + 8 * second) * (8 * EIGHTHS) + 8 * n) = make_float2(s[2 * second], s[2 * second + 1]);
            s[2 * second] = s[2 * second + 1] = 0;
          }
  }
}

// multiplyThin is a kernel; up is null where it is not gated.
template <int EIGHTHS, int TILES, bool GATED> DEVICE void multiplyThin(const CUtensorMap* x, const CUtensorMap* up, const CUtensorMap* left, const ThinArguments& g) {
  using L = Layout<EIGHTHS, TILES, GATED>;
  extern __shared__ __align__(1024) char shared[];
  const uint32_t at = sharedAddress(shared);
  if (threadIdx.x == 0) {
    const int across = g.across ? WARPS : 0, down = GATED ? 2 * WARPS : g.down ? WARPS : 0;
    for (int stage = 0; stage < L::STAGES; stage++) {
      barrierInit(at + L::full + 8 * stage, 1);
      barrierInit(at + L::empty + 8 * stage, across + down);
    }
    for (int stage = 0; stage < 2; stage++) {
      barrierInit(at + L::leftFull + 8 * stage, 1);
      barrierInit(at + L::leftEmpty + 8 * stage, max(down, 1));
    }
    barrierInitDone();
  }
  __syncthreads();
  awaitBefore();
  beginDependents();
  if (warp() == 2 * WARPS) {
    if (lane() == 0) produce<L>(g, x, up, left, at);
  } else if (GATED) {
    multiplyDown<EIGHTHS, TILES, true>(g, at);
  } else if (warp() < WARPS) {
    if (g.across) multiplyAcross<EIGHTHS, TILES>(g, at);
  } else if (g.down) {
    multiplyDown<EIGHTHS, TILES, false>(g, at);
  }
}

// add4 adds four neighbouring floats.
DEVICE void add4(float4& sum, const float* from) {
  const float4 x = *(const float4*)from;
  sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
}

// sumAcross adds up what the strips have of four neighbouring ranks of a row.
DEVICE void sumAcross(const ThinSums& g, int row, int rank) {
  const int strips = (g.columns + g.strip - 1) / g.strip;
  const float* from = g.across + (int64_t)row * g.padded + rank;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int strip = 0; strip < strips; strip++) add4(sum, from + (int64_t)strip * g.rows * g.padded);
  const int64_t to = row * g.toRow + rank;
  storeElement(g.to, to, g.element, g.scale * sum.x);
  storeElement(g.to, to + 1, g.element, g.scale * sum.y);
  storeElement(g.to, to + 2, g.element, g.scale * sum.z);
  storeElement(g.to, to + 3, g.element, g.scale * sum.w);
}

// sumDown adds up what the blocks have of four neighbouring ranks of a column.
DEVICE void sumDown(const ThinSums& g, int column, int rank) {
  const int strip = column / g.strip, inStrip = (g.rows + ROWS - 1) / ROWS;
  const int64_t all = (int64_t)((g.columns + g.strip - 1) / g.strip) * inStrip, unit = (int64_t)strip * inStrip;
  const int first = (int)(((unit + 1) * g.blocks - 1) / all), last = (int)(((unit + inStrip) * g.blocks - 1) / all);
  const float* from = g.down + ((int64_t)(first + strip) * g.strip + column % g.strip) * g.padded + rank;
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int block = first; block <= last; block++, from += g.strip * g.padded) add4(sum, from);
  const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
  for (int n = 0; n < g.count; n++) {
    const ThinPart& p = g.parts[n];
    const int inColumns = column - p.column;
    if (inColumns < 0 || inColumns >= p.columns) continue;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int inRanks = rank + i - p.rank;
      if (inRanks >= 0 && inRanks < p.ranks) storeElement(p.data, inRanks * p.rankStep + inColumns * p.columnStep, p.element, sums[i]);
    }
  }
}

constexpr int SUM_THREADS = 256;

DEVICE void sumThin(const ThinSums& g) {
  awaitBefore();
  beginDependents();
  const int fours = g.ranks / 4;
  const int64_t across = g.across ? (int64_t)g.rows * fours : 0, all = across + (g.down ? (int64_t)g.columns * fours : 0);
  for (int64_t i = (int64_t)blockIdx.x * SUM_THREADS + threadIdx.x; i < all; i += (int64_t)gridDim.x * SUM_THREADS) {
    if (i < across)
      sumAcross(g, (int)(i / fours), (int)(i % fours) * 4);
    else
      sumDown(g, (int)((i - across) / fours), (int)((i - across) % fours) * 4);
  }
}

#define ENTRY_(name, eighths, tiles)                                                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) name##_##eighths##_##tiles(                                              \
      const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap left, const __grid_constant__ ThinArguments g) {   \
    multiplyThin<eighths, tiles, false>(&x, nullptr, &left, g);                                                                    \
  }                                                                                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) name##_gated_##eighths##_##tiles(                                        \
      const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap up, const __grid_constant__ CUtensorMap left,      \
      const __grid_constant__ ThinArguments g) {                                                                                   \
    multiplyThin<eighths, tiles, true>(&x, &up, &left, g);                                                                         \
  }
#define ENTRY(name, eighths, tiles) ENTRY_(name, eighths, tiles)
#define SUMS_(name) \
  extern "C" __global__ void __launch_bounds__(SUM_THREADS) name##_sums(const __grid_constant__ ThinSums g) { sumThin(g); }
#define SUMS(name) SUMS_(name)

ENTRY(KERNEL, 1, 2) ENTRY(KERNEL, 1, 4) ENTRY(KERNEL, 2, 2) ENTRY(KERNEL, 2, 4) ENTRY(KERNEL, 3, 2) ENTRY(KERNEL, 3, 4)
ENTRY(KERNEL, 4, 2) ENTRY(KERNEL, 6, 2) ENTRY(KERNEL, 8, 2)
SUMS(KERNEL)
