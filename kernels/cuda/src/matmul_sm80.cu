// Matrix products for every GPU since compute capability 8.0: operands of 16 bits, summed in float32 by mma.sync. One variant
// a module. Compile with
//   -DKERNEL=name -DELEMENT=BF16 or F16, -DSPLIT_PARTS=0, or 1 or 2 for float32 that was split (matmul_split.cu),
//   -DA_COLUMNS where A's columns are contiguous rather than its rows, -DB_ROWS where B's rows are rather than its columns.
//
// A block computes 128×128 elements of C, a warp 64×32. Slices of 32 of the depth arrive in a ring of STAGES buffers by cp.async.
#include "mma.cuh"
#include "matmul.cuh"

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

constexpr int SIDE = 128, DEPTH = 32, WARPS = 8, PARTS = SPLIT_PARTS ? SPLIT_PARTS : 1, STAGES = PARTS == 1 ? 4 : 3;
constexpr int WARP_ROWS = 64, WARP_COLUMNS = 32;
constexpr int TILE_BYTES = SIDE * DEPTH * 2, STAGE_BYTES = 2 * PARTS * TILE_BYTES;
static_assert(SHARED_BYTES == STAGES * STAGE_BYTES && SHARED_BYTES >= WARPS * WARP_ROWS * WARP_COLUMNS * 4, "the table of variants has other tiles");

using Long = Tile<ELEMENT, DEPTH, 2, true>;  // a row for each side, the depth contiguous
using Wide = Tile<ELEMENT, SIDE, 2, true>;   // a row for each step of the depth, sides contiguous

// Side is A's rows from one on, or B's columns. Along is whether sides are contiguous rather than the depth.
template <bool Along> struct Side {
  void* data;
  int64_t side, depth;  // strides
  int sides, depths, low;

  // load starts to bring a slice, part after part.
  __device__ __forceinline__ void load(uint32_t to, int first, int slice) const {
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
      const int from = slice * DEPTH, left = depths - from;
      ELEMENT::Stored* at = (ELEMENT::Stored*)data + first * side + (from + part * low) * depth;
      if constexpr (Along)
        loadTile<ELEMENT, DEPTH, WARPS>(Wide{to + part * TILE_BYTES}, Matrix{at, depth, left, min(SIDE, sides - first)}, 0);
      else
        loadTile<ELEMENT, SIDE, WARPS>(Long{to + part * TILE_BYTES}, Matrix{at, side, sides - first, min(DEPTH, left)}, 0);
    }
  }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS) KERNEL(const __grid_constant__ MatMulArguments g) {
  extern __shared__ __align__(128) char memory[];
  const uint32_t shared = (uint32_t)__cvta_generic_to_shared(memory);
  const int across = (g.columns + SIDE - 1) / SIDE, down = (g.rows + SIDE - 1) / SIDE;
  const int item = blockIdx.x / across / down, row = blockIdx.x / across % down * SIDE, column = blockIdx.x % across * SIDE;
  const int outer = item / g.inner, inner = item % g.inner;
  const Side<AColumns> a = {(ELEMENT::Stored*)g.a.data + outer * g.a.outer + inner * g.a.inner, g.a.row, g.a.column, g.rows, g.depth, g.lowDepth};
  const Side<BRows> b = {(ELEMENT::Stored*)g.b.data + outer * g.b.outer + inner * g.b.inner, g.b.column, g.b.row, g.columns, g.depth, g.lowDepth};
  const int rowOfWarp = warp() / 4 * WARP_ROWS, columnOfWarp = warp() % 4 * WARP_COLUMNS;
  const int slices = (g.depth + DEPTH - 1) / DEPTH;

  const auto load = [&](int slice) {
    if (slice < slices) {
      const uint32_t to = shared + slice % STAGES * STAGE_BYTES;
      a.load(to, row, slice);
      b.load(to + PARTS * TILE_BYTES, column, slice);
    }
    copyCommit();
  };
  float sum[4][4][4];
  clear(sum);
#pragma unroll 1
  for (int slice = 0; slice < STAGES - 1; slice++) load(slice);
#pragma unroll 1
  for (int slice = 0; slice < slices; slice++) {
    copyWait<STAGES - 2>();
    __syncthreads();
    load(slice + STAGES - 1);
    const uint32_t from = shared + slice % STAGES * STAGE_BYTES;
    // Sums of two parts are added a slice at a time: mma.sync cuts them off instead of rounding them.
    float part[4][4][4];
    if constexpr (PARTS == 2) clear(part);
    float(&to)[4][4][4] = PARTS == 2 ? part : sum;
#pragma unroll
    for (int product = PARTS == 2 ? 0 : 2; product < 3; product++) {  // the small ones first
      const uint32_t tileA = from + (product == 0 ? TILE_BYTES : 0), tileB = from + PARTS * TILE_BYTES + (product == 1 ? TILE_BYTES : 0);
#pragma unroll
      for (int k = 0; k < DEPTH; k += STEP) {
        Fragment<ELEMENT, 4> fa[4], fb;
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if constexpr (AColumns) columnsOperand<ELEMENT>(fa[i], Wide{tileA}, k, rowOfWarp + 16 * i);
          else rowsOperand<ELEMENT>(fa[i], Long{tileA}, rowOfWarp + 16 * i, k);
        }
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
          if constexpr (BRows) columnsOfRows<ELEMENT>(fb, Wide{tileB}, k, columnOfWarp + 8 * j);
          else columnsOfTransposed<ELEMENT>(fb, Long{tileB}, columnOfWarp + 8 * j, k);
          accumulate<ELEMENT>(to, fa, fb, j);
        }
      }
    }
    if constexpr (PARTS == 2) {
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) sum[i][j][e] += part[i][j][e];
    }
  }
  copyWait<0>();
  __syncthreads();

  // A warp passes its sums through shared memory of its own, so that it writes 32 neighbours of a row at a time.
  float* own = (float*)memory + warp() * WARP_ROWS * WARP_COLUMNS;
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        *(float2*)&own[(16 * i + lane() / 4 + 8 * half) * WARP_COLUMNS + 8 * j + lane() % 4 * 2] = make_float2(sum[i][j][2 * half], sum[i][j][2 * half + 1]);
  __syncwarp();
  const int at = column + columnOfWarp + lane();
  if (at >= g.columns) return;
  const Output out(g, item);
  const float bias = g.bias ? loadElement(g.bias, at, g.biasElement) : 0;
  float scale = 1;
  if constexpr (SPLIT_PARTS > 0) scale = Scale(g.columnMost[itemOf(g.b, item) * g.columns + at]).down;
#pragma unroll 1
  for (int r = 0; r < WARP_ROWS; r++) {
    const int to = row + rowOfWarp + r;
    if (to >= g.rows) break;
    float x = own[r * WARP_COLUMNS + lane()];
    if constexpr (SPLIT_PARTS > 0) x *= Scale(g.rowMost[itemOf(g.a, item) * g.rows + to]).down * scale;
    out.put(to, at, x + bias);
  }
}
