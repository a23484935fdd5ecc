// Symmetric products for sm_90a: Pre = A·B, C = Pre + d·I, 16-bit numbers. Compile it as
// matmul_sm90.cu, with -DEPILOGUE=Mirror.
//
// A and B are (side, depth) and (depth, side). The tiles of a cluster are a square of Square rows
// and half of it in columns. Clusters have those that reach the diagonal or lie to the right of it.
// What lies to the right of the squares on the diagonal is written twice: as it is, and turned, to
// where its mirror image lies. So both halves have the same bits.
//
// The bits of d are in reserved of MatMulArguments.
#include "matmul_epilogue_sm90.cuh"

// Mirror is the epilogue of such a product. matmul_sm90.cuh says what an epilogue has.
struct Mirror {
  static constexpr bool TWO_FACTORS = false, BRINGS = false;

  template <class Shape> struct Of {
    using Consumer = ::Consumer<Shape>;
    using Out = typename Consumer::Out;
    static constexpr int Square = Shape::Cluster * Shape::TileRows;

    DEVICE void beside(const Consumer&, Out&) {}
    DEVICE void end(const Consumer&, Out&) {}
    DEVICE void deliver(const Consumer& c, const Piece& p, Out& leaving) {
      const MatMulArguments& g = c.g;
      const int outer = p.item / g.inner, inner = p.item % g.inner;
      const bool mirrored = p.row / Square < p.column / Square;
      const float d = __int_as_float(g.reserved);
#pragma unroll
      for (int b = 0; b < Shape::Blocks; b++) {
        const int row = c.rowOf(p, b);
        if (row >= g.rows) break;
        float(&sum)[Shape::Sums] = c.sum[b];
        if (g.pre.data) {
          c.leaveAsHalves(c.mapPre, sum, leaving, p.column, row, g.rows, inner, outer);
          if (mirrored) turn(g.pre, g, sum, leaving, p.column, row, inner, outer);
        }
        if (d != 0 && p.row == p.column) {
          // of the tile's column 0, rows that lie above it are negative
          const int below = row - p.row + threadIdx.x % 32 / 4 - threadIdx.x % 4 * 2;
#pragma unroll
          for (int i = 0; i < Shape::Sums; i++)
            if (below + i / 2 % 2 * 8 == i / 4 * 8 + i % 2) sum[i] += d;
        }
        c.leaveAsHalves(c.mapC, sum, leaving, p.column, row, g.rows, inner, outer);
        if (mirrored) turn(g.c, g, sum, leaving, p.column, row, inner, outer);
      }
    }

    // turn writes 16 rows of a tile as 16 columns, 64 of them at a time, by way of the warp's
    // buffers: rows of 32 bytes.
    static DEVICE void turn(const Stack& to, const MatMulArguments& g, const float (&x)[Shape::Sums], Out& leaving, int column, int row, int inner,
                            int outer) {
      constexpr int OfBox = Shape::Chunk / 2;
      const int lane = threadIdx.x & 31;
      // where 16 bytes of a row lie
      const auto place = [](int row, int unit) { return row * 32 + (unit ^ row >> 2 & 1) * 16; };
      uint16_t* const item = (uint16_t*)to.data + outer * to.outer + inner * to.inner;
#pragma unroll
      for (int box = 0; box < Shape::Boxes; box++) {
        const int first = column + Shape::Chunk * box;
        if (first >= g.columns) return;
        const uint32_t buffer = leaving.begin();
#pragma unroll
        for (int i = 0; i < OfBox; i += 8) {
          const float* y = &x[OfBox * box + i];
          storeMatrix4Transposed(buffer + place(2 * i + lane / 16 * 8 + lane % 8, lane / 8 % 2), pack(y[0], y[1]), pack(y[2], y[3]), pack(y[4], y[5]),
                                 pack(y[6], y[7]));
        }
        __syncwarp();
#pragma unroll
        for (int n = 0; n < 4; n++) {
          const int i = 32 * n + lane, turned = first + i / 2, at = row + i % 2 * 8;
          const uint4 numbers = loadShared16(buffer + place(i / 2, i % 2));
          if (turned >= g.columns || at >= g.rows) continue;
          uint16_t* out = item + turned * to.row + at;
          if (at + 8 <= g.rows) {
            *(uint4*)out = numbers;
            continue;
          }
          const uint32_t words[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
#pragma unroll
          for (int e = 0; e < 8; e++)
            if (at + e < g.rows) out[e] = (uint16_t)(words[e / 2] >> e % 2 * 16);
        }
        __syncwarp();
        if (lane == 0) storeCommit();  // of nothing, for the count
      }
    }
  };
};

using Shape = MatMulShape<IN_TURNS, ROW_BLOCKS, TILE_COLUMNS, STAGES, OUT_BUFFERS, CLUSTER, SPLIT_PARTS, SHARES_A, OPERANDS, EPILOGUE, Ungrouped>;
static_assert(Shape::SharedBytes == SHARED_BYTES, "the table of variants has other tiles");
static_assert(Shape::Cluster * Shape::TileRows == 2 * Shape::TileColumns && Shape::TileRows == Shape::TileColumns);
#ifdef A_COLUMNS
constexpr bool AColumns = true;
#else
constexpr bool AColumns = false;
#endif
#ifdef B_ROWS
constexpr bool BRows = true;
#else
constexpr bool BRows = false;
#endif

// Pieces are those of the tiles that reach the diagonal or lie to the right of it, row by row: the
// squares of row n begin at column tile 2·n.
template <> struct Pieces<Shape, false> {
  const MatMulSchedule& s;
  int began, at, end;  // slices of the streamed tiles
  int tile;
  DEVICE Pieces(const MatMulSchedule& s, const GroupedArguments*) : s(s), tile(cluster()) {
    const int64_t all = (int64_t)(s.tiles - s.whole) * s.slices;
    began = at = (int)(all * cluster() / clusters());
    end = (int)(all * (cluster() + 1) / clusters());
  }
  static DEVICE int cluster() { return blockIdx.x / Shape::Cluster; }
  static DEVICE int clusters() { return gridDim.x / Shape::Cluster; }
  // clusterOf is the one that has a slice of the streamed tiles.
  DEVICE int clusterOf(int slice) const {
    const int64_t all = (int64_t)(s.tiles - s.whole) * s.slices;
    return (int)((((int64_t)slice + 1) * clusters() - 1) / all);
  }
  DEVICE bool next(Piece& p) {
    int t;
    if (at < end) {
      t = s.whole + at / s.slices;
      p.from = at % s.slices;
      p.to = min(s.slices, p.from + end - at);
      const int fit = ((at - began - p.from) % s.period + s.period) % s.period;  // as of other products
      p.first = p.from + (fit < p.to - p.from ? fit : 0);
      at += p.to - p.from;
    } else {
      if (tile >= s.whole) return false;
      t = tile;
      tile += clusters();
      p.from = p.first = 0, p.to = s.slices;
    }
    const int each = s.down * s.across - s.down * (s.down - 1);
    p.item = t / each;
    t -= p.item * each;
    int down = 0;
    for (int n = s.across; t >= n; n -= 2) t -= n, down++;
    p.row = (2 * down + blockIdx.x % 2) * Shape::TileRows;
    p.column = (2 * down + t) * Shape::TileColumns;
    return true;
  }
};

struct Arguments {
  MatMulArguments product;
  MatMulSchedule schedule;
};

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1) __cluster_dims__(CLUSTER, 1, 1)
KERNEL(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
       const __grid_constant__ CUtensorMap pre, const __grid_constant__ CUtensorMap a2, const __grid_constant__ CUtensorMap b2,
       const __grid_constant__ CUtensorMap a3, const __grid_constant__ CUtensorMap b3, const __grid_constant__ Arguments g) {
  const Maps maps = {{&a, &a2, &a3}, {&b, &b2, &b3}, &c, &pre};
  multiply<Shape, AColumns, BRows>(maps, g.product, g.schedule, nullptr);
}
