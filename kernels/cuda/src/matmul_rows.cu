// Products of one to sixteen rows, as a model makes them for one token of up to sixteen texts:
//
//   C = act(A·B + bias),  Pre = A·B + bias     or     C ← C + A·B + bias
//   C = A·B + bias + Residual                  or     C = silu(A·B0 + bias0)·(A·B1 + bias1)
//
// B is one matrix, or several side by side. A is as it is, or the RMS norm of X, whose rows are then
// multiplied as X·γ and divided by their root mean square afterwards.
//
// A is (rows, depth) and B (depth, columns), of 16 bits, summed in float32. Reading B is all that
// takes time. A producer warp brings it to a ring of stages in shared memory, box by box, and begins
// before the kernel waits for those before it. Four consumer warps multiply. Compile for sm_90a with
//   -DKERNEL=name -DELEMENT_BF16 or -DELEMENT_F16, -DB_ROWS where B's rows are contiguous rather than its columns.
//
// A cluster has a panel of 64 columns, or of 64 of each of B0 and B1 where they are gated. Its blocks
// share the depth, in steps of 64, and a block's warps each take 16 of a step. Each block adds up some
// of the panel's sums: of its own warps and of the others', in the order of the depth.
#include "matmul_rows.cuh"

#ifdef B_ROWS
constexpr bool BRows = true;
#else
constexpr bool BRows = false;
#endif

constexpr int CONSUMERS = SHARES, JOINING = 32 * CONSUMERS, THREADS = JOINING + 32;

// Layout is where a block has what, in bytes from the beginning of its shared memory.
template <bool gated> struct Layout {
  static constexpr bool GATED = gated;
  static constexpr int CONSUMERS = ::CONSUMERS, JOINING = ::JOINING, SQUARES = CONSUMERS;
  static constexpr int HALVES = GATED ? 2 : 1, STAGES = 8 / HALVES, DEPTH_OF_STEP = DEPTH;
  static constexpr int b = 0, a = b + STAGES * HALVES * BOX, ringEnd = a + STAGES * A_BOX;
  static constexpr int sums = ringEnd, squares = sums + sumsBytes(HALVES), full = squares + squaresBytes();
  static constexpr int empty = full + 8 * STAGES, joined = empty + 8 * STAGES, bytes = joined + 8;
  static constexpr int ofWarps = 0, squaresOfWarps = ofWarps + leftSumsBytes(HALVES);
  static_assert(leftBytes(HALVES, CONSUMERS) <= ringEnd, "the ring has room for all sums");
};

// produce fills the stages. It asks for B of the first ones before the kernel waits.
template <bool GATED>
DEVICE void produce(const RowsArguments& g, const Part& p, const CUtensorMap* a, const CUtensorMap* b0, const CUtensorMap* b1, uint32_t at) {
  using L = Layout<GATED>;
  const auto loadWeights = [&](int step, int stage) {
    const uint32_t barrier = at + L::full + 8 * stage, to = at + L::b + stage * L::HALVES * BOX;
    const int depth = step * DEPTH;
    barrierExpect(barrier, L::HALVES * BOX + A_BOX);
    loadBox(to, b0, barrier, BRows ? p.column : depth, BRows ? depth : p.column, 0, 0);
    if constexpr (GATED) loadBox(to + BOX, b1, barrier, BRows ? p.column : depth, BRows ? depth : p.column, 0, 0);
  };
  const auto loadRows = [&](int step, int stage) {
    loadBox(at + L::a + stage * A_BOX, a, at + L::full + 8 * stage, step * DEPTH, 0, 0, 0);
  };
  const int first = min(p.to, p.from + L::STAGES);
  for (int step = p.from; step < first; step++) loadWeights(step, step - p.from);
  awaitBefore();
  beginDependents();
  for (int step = p.from; step < first; step++) loadRows(step, step - p.from);
  Ring<L::STAGES> ring(0);
  for (int step = first; step < p.to; step++, ring.advance()) {
    barrierWait(at + L::empty + 8 * ring.stage, ring.parity);
    loadWeights(step, ring.stage);
    loadRows(step, ring.stage);
  }
}

// Sums are a lane's: of[half][n][e] has the row lane/4 + 8·(e/2) and the column 8n + 2·(lane%4) + e%2.
template <bool GATED> struct Sums {
  float of[GATED ? 2 : 1][COLUMNS / 8][4];
  float squares[2];  // of what the lane has of rows lane/4 and lane/4 + 8
};

// Gammas are the γ of what a lane has of a step's rows of A.
struct Gammas {
  float2 of[2];

  DEVICE Gammas(const RowsArguments& g, int step) {
#pragma unroll
    for (int n = 0; n < 2; n++) {
      const int depth = step * DEPTH + 16 * warp() + 8 * n + 2 * (lane() % 4);
      of[n] = make_float2(1, 1);
      if (g.gamma == nullptr || depth >= g.m.depth) continue;
      of[n] = g.gammaWide ? *(const float2*)((const float*)g.gamma + depth) : unpack(*(const uint32_t*)((const Scalar*)g.gamma + depth));
    }
  }
};

// multiply adds the warp's 16 of a step.
template <bool GATED> DEVICE void multiply(Sums<GATED>& s, const RowsArguments& g, const Gammas& gammas, uint32_t at, int stage) {
  using L = Layout<GATED>;
  uint32_t a[4];
  loadMatrix4(a, boxed(at + L::a + stage * A_BOX, lane() % 16, 2 * warp() + lane() / 16));
  if (g.normed) {
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const float2 x = unpack(a[n]), gamma = gammas.of[n / 2];
      s.squares[n % 2] = fmaf(x.x, x.x, fmaf(x.y, x.y, s.squares[n % 2]));
      a[n] = ::pack(x.x * gamma.x, x.y * gamma.y);
    }
  }
#pragma unroll
  for (int half = 0; half < L::HALVES; half++) {
    const uint32_t box = at + L::b + (stage * L::HALVES + half) * BOX;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n += 2) {
      uint32_t b[4];
      if constexpr (BRows)
        loadMatrix4Transposed(b, boxed(box, 16 * warp() + lane() % 16, n + lane() / 16));
      else
        loadMatrix4(b, boxed(box, 8 * n + lane() % 8 + lane() / 16 * 8, 2 * warp() + lane() / 8 % 2));
      multiplyAdd<Type>(s.of[half][n], a, b[0], b[1]);
      multiplyAdd<Type>(s.of[half][n + 1], a, b[2], b[3]);
    }
  }
}

// leave puts a warp's sums where all warps of the block see them.
template <bool GATED> DEVICE void leave(Sums<GATED>& s, const RowsArguments& g, char* shared) {
  using L = Layout<GATED>;
  float* sums = (float*)(shared + L::ofWarps) + warp() * L::HALVES * ROWS * STRIDE;
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
    const int row = lane() / 4 + 4 * e;
    if (row >= g.m.rows) continue;
#pragma unroll
    for (int half = 0; half < L::HALVES; half++)
#pragma unroll
      for (int n = 0; n < COLUMNS / 8; n++)
        *(float2*)&sums[(half * ROWS + row) * STRIDE + 8 * n + 2 * (lane() % 4)] = make_float2(s.of[half][n][e], s.of[half][n][e + 1]);
  }
  if (g.normed) leaveSquares<L>(s.squares, shared);
}

template <bool GATED>
DEVICE void multiplyRows(const RowsArguments& g, const CUtensorMap* a, const CUtensorMap* b, const CUtensorMap* next, const CUtensorMap* last, int blocks) {
  using L = Layout<GATED>;
  extern __shared__ __align__(1024) char shared[];
  const uint32_t at = sharedAddress(shared);
  const Part p(g, blocks, L());
  begin<L>(g, p, at);
  if (warp() == CONSUMERS) {
    if (lane() == 0) produce<GATED>(g, p, a, GATED || p.weight == 0 ? b : p.weight == 1 ? next : last, next, at);
    __syncwarp();
    awaitCluster();
    return;
  }
  Sums<GATED> s = {};
  Gammas gammas(g, p.from);
  awaitBefore();
  const Beside<L> first(g, p, threadIdx.x);  // on its way during the product
  Ring<L::STAGES> ring(0);
  for (int step = p.from; step < p.to; step++, ring.advance()) {
    const Gammas next(g, step + 1);
    barrierWait(at + L::full + 8 * ring.stage, ring.parity);
    multiply<GATED>(s, g, gammas, at, ring.stage);
    gammas = next;
    __syncwarp();
    if (lane() == 0) barrierArrive(at + L::empty + 8 * ring.stage);
  }
  groupSync(1, JOINING);
  leave<GATED>(s, g, shared);
  join<L>(g, p, first, shared, at);
}

#ifdef GATES
constexpr bool GATED_KERNEL = true;
#else
constexpr bool GATED_KERNEL = false;
#endif
#define ENTRY_(name, blocks)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) __cluster_dims__(blocks, 1, 1)                                             \
      name##_##blocks(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap next, \
                      const __grid_constant__ CUtensorMap last, const __grid_constant__ RowsArguments g) {                            \
    multiplyRows<GATED_KERNEL>(g, &a, &b, &next, &last, blocks);                                                                      \
  }
#define ENTRY(name, blocks) ENTRY_(name, blocks)
EACH(KERNEL)
