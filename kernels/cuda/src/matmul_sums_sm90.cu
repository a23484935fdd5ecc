// Matrix products for sm_90a that add up B's columns beside the product: C = A·B, b_j = Σ_k B_kj.
// Of a layer, the gradients of its weight and of its bias. Compiled as matmul_sm90.cu is, and the
// same but for the three warps beside the producer. What they share stands in matmul_sm90.cuh.
//
// These warps read B's slices in the ring. They wait for each slice and give it back as the
// consumers do. Blocks that have tiles below each other have the same slices of B, so they share
// the rows of each: the first `turns` of them, three warps each. A warp writes the sums of a piece
// of the depth to a row of g.columnSums, (parts, turns, warps, columns), which the host adds up in
// order (sum_parts). The part is how many clusters have earlier slices of the tile.
#include "matmul_epilogue_sm90.cuh"

using Shape = MatMulShape<IN_TURNS, ROW_BLOCKS, TILE_COLUMNS, STAGES, OUT_BUFFERS, CLUSTER, SPLIT_PARTS, SHARES_A, OPERANDS, EPILOGUE, Ungrouped>;
static_assert(Shape::SharedBytes == SHARED_BYTES, "the table of variants has other tiles");
static_assert(!Shape::Scaled && Shape::BChunk == 64 && Shape::Cluster <= 32);
#if !defined(A_COLUMNS) || !defined(B_ROWS)
#error "weights' gradients have contiguous columns of A and rows of B"
#endif

// Of a block, warps that sum. The host's mirrors are in matmul_sums.go.
constexpr int Warps = 3, MostTurns = 8;

struct Arguments {
  MatMulArguments product;
  MatMulSchedule schedule;
};

DEVICE void sumB(const MatMulArguments& g, const MatMulSchedule& s, uint32_t shared) {
  // A lane has 8 columns, of one of so many rows that a warp reads at once.
  constexpr int Lanes = Shape::TileColumns / 8, Rows = 32 / Lanes;
  static_assert(Rows == 1 || Rows * Lanes == 32);
  const uint32_t full = shared + Shape::BarriersAt, empty = full + 8 * Shape::Stages;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 1;
  int unit = lane % Lanes;
  asm("" : "+r"(unit));  // stays in a register
  const int turns = min(MostTurns, s.beside ? 1 : Shape::SharesA ? s.down : s.down * Shape::Cluster);
  Ring<Shape::Stages> ring(0);
  Pieces<Shape> pieces(s, nullptr);
  for (Piece p; pieces.next(p);) {
    const int turn = p.row / Shape::TileRows;
    const int step = turns * Warps * Rows;
    const int first = turn < turns && lane < Rows * Lanes ? (turn * Warps + warp) * Rows + lane / Lanes : Shape::Depth;
    float sum[8] = {};
#pragma unroll 1
    for (int left = p.to - p.from; left > 0; left--, ring.advance()) {
      barrierWait(full + 8 * ring.stage, ring.parity);
      const uint32_t b = shared + ring.stage * Shape::StageBytes + Shape::ABytes + unit / 8 * 8192;
#pragma unroll 1
      for (int row = first; row < Shape::Depth; row += 2 * step) {
        uint4 x[2] = {};
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const int at = row + n * step;
          if (at < Shape::Depth) x[n] = loadShared16(b + at * 128 + ((unit ^ at) & 7) * 16);
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const uint32_t words[4] = {x[n].x, x[n].y, x[n].z, x[n].w};
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const float2 pair = unpack(words[i]);
            sum[2 * i] += pair.x, sum[2 * i + 1] += pair.y;
          }
        }
      }
      __syncwarp();
      if (lane < Shape::Cluster) barrierArriveAt(empty + 8 * ring.stage, lane);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (Rows == 2) sum[i] += __shfl_xor_sync(~0u, sum[i], 16);
    if (turn >= turns || lane >= Lanes) continue;
    const int parts = s.whole < s.tiles ? (pieces.clusters() + s.tiles - s.whole - 1) / (s.tiles - s.whole) + 1 : 1;
    int part = 0, behind = parts;  // whose piece this is, and the first that another piece writes
    if (p.from > 0) part = pieces.cluster() - pieces.clusterOf(pieces.at - p.to);
    else behind = p.to < s.slices ? pieces.clusterOf(pieces.at - p.to + s.slices - 1) - pieces.cluster() + 1 : 1;
    const int column = p.column + unit * 8;
    const int64_t next = (int64_t)turns * Warps * g.columns;
    float* to = g.columnSums + part * next + (int64_t)(turn * Warps + warp) * g.columns + column;
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (column + i < g.columns) to[i] = sum[i];
#pragma unroll 1
    for (int n = behind; n < parts; n++)
#pragma unroll
      for (int i = 0; i < 8; i++)
        if (column + i < g.columns) to[n * next + i] = 0;
  }
}

extern "C" __global__ void __launch_bounds__(Shape::Threads, 1) __cluster_dims__(CLUSTER, 1, 1)
KERNEL(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
       const __grid_constant__ CUtensorMap pre, const __grid_constant__ CUtensorMap a2, const __grid_constant__ CUtensorMap b2,
       const __grid_constant__ CUtensorMap a3, const __grid_constant__ CUtensorMap b3, const __grid_constant__ Arguments g) {
  const Maps maps = {{&a, &a2, &a3}, {&b, &b2, &b3}, &c, &pre};
  extern __shared__ __align__(1024) char memory[];
  const uint32_t shared = sharedAddress(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::Stages; i++) {
      barrierInit(shared + Shape::BarriersAt + 8 * i, 1);
      barrierInit(shared + Shape::BarriersAt + 8 * (Shape::Stages + i), (Shape::Groups + Warps) * Shape::Cluster);
    }
    barrierInit(shared + Shape::TurnsAt, 1);
    barrierInit(shared + Shape::TurnsAt + 8, 1);
    barrierInitDone();
  }
  clusterSync<Shape>();
  const int group = warpgroupIndex();
  if (group == 0) {
    fewerRegisters<40>();
    if (threadIdx.x == 0) produce<Shape, true, true>(maps, g.product, g.schedule, nullptr, shared);
    else if (threadIdx.x >= 32) sumB(g.product, g.schedule, shared);
  } else {
    moreRegisters<232>();
    consume<Shape, true, true>(&c, &pre, g.product, g.schedule, nullptr, shared, group - 1);
  }
  __syncwarp();
  clusterSync<Shape>();
}
