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
#include "dependent.cuh"
#include "elements.cuh"
#include "hopper.cuh"
#include "matmul.cuh"
#include "mma.cuh"
#include "ring.cuh"
#include "weight.cuh"

// RowsArguments is the host's rowsArguments in matmul_rows.go. Of `m`, a, b and bias are not read.
struct RowsArguments {
  MatMulArguments m;
  Weight weights[3];
  const void* residual;  // like C, of 16 bits, or null
  int64_t residualRow;
  const void* gamma;     // (depth), null for none
  int32_t normed;        // A is X
  int32_t gammaWide;     // gamma is float32
  float eps;
  int32_t count;         // of weights
};

#ifdef B_ROWS
constexpr bool BRows = true;
#else
constexpr bool BRows = false;
#endif
#ifdef ELEMENT_BF16
using Type = BF16;
#else
using Type = F16;
#endif

constexpr int CONSUMERS = 4, JOINING = 32 * CONSUMERS, THREADS = JOINING + 32;
constexpr int ROWS = 16, COLUMNS = 64, DEPTH = 64;  // DEPTH: of a step
constexpr int MOST_BLOCKS = 8;                      // of a cluster
constexpr int BOX = DEPTH * COLUMNS * 2, A_BOX = ROWS * DEPTH * 2;
// A row of a warp's sums in shared memory, so long that the warp's rows are in different banks.
constexpr int STRIDE = COLUMNS + 8;

// Layout is where a block has what, in bytes from the beginning of its shared memory.
template <bool GATED> struct Layout {
  static constexpr int HALVES = GATED ? 2 : 1, STAGES = 8 / HALVES;
  static constexpr int b = 0, a = b + STAGES * HALVES * BOX, ringEnd = a + STAGES * A_BOX;
  // What the cluster's blocks send: sums (block, half, of a slice) and squares (block, row).
  static constexpr int SUMS = HALVES * (ROWS * COLUMNS + MOST_BLOCKS);
  static constexpr int sums = ringEnd, squares = sums + 4 * SUMS, full = squares + 4 * MOST_BLOCKS * ROWS;
  static constexpr int empty = full + 8 * STAGES, joined = empty + 8 * STAGES, bytes = joined + 8;
  // Behind the last step the ring holds what the warps have: sums (warp, half, row, column), squares (warp, row).
  static constexpr int ofWarps = 0, squaresOfWarps = ofWarps + 4 * CONSUMERS * HALVES * ROWS * STRIDE;
  static_assert(squaresOfWarps + 4 * CONSUMERS * ROWS <= ringEnd, "the ring has room for all sums");
};

// Part is what a block computes: some steps of the depth of a panel of columns.
struct Part {
  int weight, column;  // the panel's first column, of a weight (of both if they are gated)
  int from, to;        // steps
  int rank, blocks;    // of the cluster
  int slice;           // sums of each half that a block of the cluster adds up; sum i is row i / 64, column i % 64

  DEVICE Part(const RowsArguments& g, int blocks) : weight(0), rank(blockIdx.x % blocks), blocks(blocks) {
    int panel = blockIdx.x / blocks;
    for (; weight + 1 < g.count && panel >= panels(g.weights[weight]); weight++) panel -= panels(g.weights[weight]);
    column = panel * COLUMNS;
    const int steps = (g.m.depth + DEPTH - 1) / DEPTH;
    from = steps * rank / blocks, to = steps * (rank + 1) / blocks;
    slice = (g.m.rows * COLUMNS + blocks - 1) / blocks;
  }
  static DEVICE int panels(const Weight& w) { return (w.columns + COLUMNS - 1) / COLUMNS; }
  // sumsOf is how many sums a block of the cluster adds up.
  DEVICE int sumsOf(const RowsArguments& g, int block) const { return max(0, min(slice, g.m.rows * COLUMNS - block * slice)); }
};

// remote is the address that a place of this block's shared memory has in another block.
DEVICE uint32_t remote(uint32_t address, int block) {
  uint32_t at;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(address), "r"(block));
  return at;
}
// send writes a float into a block's shared memory and counts its bytes on a barrier there.
DEVICE void send(const Part& p, uint32_t to, float x, uint32_t barrier, int block) {
  if (p.blocks == 1)
    storeShared4(to, x);
  else
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(remote(to, block)), "r"(__float_as_uint(x)),
                 "r"(remote(barrier, block)) : "memory");
}
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

// boxed is the address of 8 neighbouring elements of a box's row of 64.
DEVICE uint32_t boxed(uint32_t box, int row, int eighth) { return box + row * 128 + ((eighth ^ row & 7) << 4); }

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
  if (!g.normed) return;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = s.squares[half];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (lane() % 4 == 0) ((float*)(shared + L::squaresOfWarps))[warp() * ROWS + lane() / 4 + 8 * half] = sum;
  }
}

// exchange adds up the sums of the block's warps and sends each to the block that adds it to the others'.
template <bool GATED> DEVICE void exchange(const RowsArguments& g, const Part& p, char* shared, uint32_t at) {
  using L = Layout<GATED>;
  const float* sums = (const float*)(shared + L::ofWarps);
#pragma unroll
  for (int half = 0; half < L::HALVES; half++)
    for (int i = threadIdx.x; i < g.m.rows * COLUMNS; i += JOINING) {
      const int from = (half * ROWS + i / COLUMNS) * STRIDE + i % COLUMNS, owner = i / p.slice;
      float sum = sums[from];
#pragma unroll
      for (int w = 1; w < CONSUMERS; w++) sum += sums[w * L::HALVES * ROWS * STRIDE + from];
      const uint32_t to = at + L::sums + 4 * ((p.rank * L::HALVES + half) * p.slice + i % p.slice);
      send(p, to, sum, at + L::joined, owner);
    }
  if (!g.normed) return;
  const float* squares = (const float*)(shared + L::squaresOfWarps);
  for (int i = threadIdx.x; i < p.blocks * g.m.rows; i += JOINING) {
    const int row = i % g.m.rows, owner = i / g.m.rows;
    float sum = squares[row];
#pragma unroll
    for (int w = 1; w < CONSUMERS; w++) sum += squares[w * ROWS + row];
    send(p, at + L::squares + 4 * (p.rank * ROWS + row), sum, at + L::joined, owner);
  }
}

// Result is an element of C that a block finishes, and what is added to its sum.
template <bool GATED> struct Result {
  int row, column;
  bool there;
  float bias[2], residual;

  DEVICE Result(const RowsArguments& g, const Part& p, int i) : bias{0, 0}, residual(0) {
    const int n = p.rank * p.slice + i;
    const Weight& w = g.weights[p.weight];
    row = n / COLUMNS, column = p.column + n % COLUMNS;
    there = i < p.sumsOf(g, p.rank) && column < w.columns;
    if (!there) return;
    if (w.bias) bias[0] = loadElement(w.bias, column, w.biasElement);
    if (GATED && g.weights[1].bias) bias[1] = loadElement(g.weights[1].bias, column, g.weights[1].biasElement);
    if (g.residual) residual = asFloat(((const Scalar*)g.residual)[row * g.residualRow + w.first + column]);
  }
};

// finish adds up the block's slice, and writes what follows of it.
template <bool GATED> DEVICE void finish(const RowsArguments& g, const Part& p, Result<GATED> e, const char* shared) {
  using L = Layout<GATED>;
  const float *sums = (const float*)(shared + L::sums), *squares = (const float*)(shared + L::squares);
  const Output out(g.m, 0);
  for (int i = threadIdx.x; i < p.slice; i += JOINING) {
    if (i >= JOINING) e = Result<GATED>(g, p, i);
    if (!e.there) continue;
    float scale = 1;
    if (g.normed) {
      float sum = 0;
      for (int block = 0; block < p.blocks; block++) sum += squares[block * ROWS + e.row];
      scale = rsqrtf(sum / g.m.depth + g.eps);
    }
    const auto value = [&](int half) {
      float sum = 0;
      for (int block = 0; block < p.blocks; block++) sum += sums[(block * L::HALVES + half) * p.slice + i];
      return fmaf(sum, scale, e.bias[half]);
    };
    float x = value(0);
    if constexpr (GATED) x = silu(x) * value(1);
    out.put(e.row, g.weights[p.weight].first + e.column, x + e.residual);
  }
}

template <bool GATED>
DEVICE void multiplyRows(const RowsArguments& g, const CUtensorMap* a, const CUtensorMap* b, const CUtensorMap* next, const CUtensorMap* last, int blocks) {
  using L = Layout<GATED>;
  extern __shared__ __align__(1024) char shared[];
  const uint32_t at = sharedAddress(shared);
  const Part p(g, blocks);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < L::STAGES; stage++) {
      barrierInit(at + L::full + 8 * stage, 1);
      barrierInit(at + L::empty + 8 * stage, CONSUMERS);
    }
    barrierInit(at + L::joined, 1);
    barrierInitDone();
    // What the cluster's blocks will send.
    if (blocks > 1) barrierExpect(at + L::joined, 4 * blocks * (L::HALVES * p.sumsOf(g, p.rank) + (g.normed ? g.m.rows : 0)));
  }
  __syncthreads();
  // Once all have arrived, all of the cluster's blocks have begun and their barriers are ready.
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  if (warp() == CONSUMERS) {
    if (lane() == 0) produce<GATED>(g, p, a, GATED || p.weight == 0 ? b : p.weight == 1 ? next : last, next, at);
    __syncwarp();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    return;
  }
  Sums<GATED> s = {};
  Gammas gammas(g, p.from);
  awaitBefore();
  const Result<GATED> first(g, p, threadIdx.x);  // on its way during the product
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
  groupSync(1, JOINING);
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  exchange<GATED>(g, p, shared, at);
  if (blocks == 1)
    groupSync(1, JOINING);
  else
    barrierWait(at + L::joined, 0);
  finish<GATED>(g, p, first, shared);
}

#define ENTRY_(name, gated, blocks)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) __cluster_dims__(blocks, 1, 1)                                             \
      name##_##blocks(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap next, \
                      const __grid_constant__ CUtensorMap last, const __grid_constant__ RowsArguments g) {                            \
    multiplyRows<gated>(g, &a, &b, &next, &last, blocks);                                                                             \
  }
#define ENTRY(name, gated, blocks) ENTRY_(name, gated, blocks)
#define EACH(name, gated)                                                                                               \
  ENTRY(name, gated, 1) ENTRY(name, gated, 2) ENTRY(name, gated, 3) ENTRY(name, gated, 4) ENTRY(name, gated, 5) ENTRY(name, gated, 6) \
  ENTRY(name, gated, 7) ENTRY(name, gated, 8)
#ifdef GATES
EACH(KERNEL, true)
#else
EACH(KERNEL, false)
#endif
