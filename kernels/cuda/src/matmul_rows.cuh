// What the products of one to sixteen rows have in common, whatever their weights are: what the
// host tells them, which part of the work a block has, and how a cluster's blocks join their sums.
//
// A cluster has a panel of columns, in one or two halves of 64: of one weight, or one of each of
// two where they are gated. Its blocks share the depth. Each block adds up some of the panel's
// sums: of its own warps and of the others', in the order of the depth.
//
// A kernel describes itself by a struct of constants, its Layout L:
//   GATED, HALVES, DEPTH_OF_STEP
//   CONSUMERS, JOINING               warps and threads that multiply and join their sums
//   SQUARES                          parts of a block's sums of squares
//   STAGES                           of the ring of weights and rows
//   sums, squares                    places in shared memory of what the cluster's blocks send:
//                                    sums (block, half, of a slice), squares (block, row)
//   full, empty, joined              of barriers
//   ofWarps, squaresOfWarps          of what a block's warps leave, where the ring was: sums
//                                    (share of the depth, half, row, column), squares (part, row)
#pragma once
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
  // Of NF4: what sixteen codes stand for, then what 256 codes of scales do; the matrices; the bytes
  // of their rows, and where in a row its scales begin.
  const float* table;
  const void* packed[3];
  int32_t rowBytes, scales;
};

#ifdef ELEMENT_BF16
using Type = BF16;
#else
using Type = F16;
#endif

constexpr int SHARES = 4;  // of a step's depth
constexpr int ROWS = 16, COLUMNS = 64, DEPTH = 64;  // of boxes
constexpr int MOST_BLOCKS = 8;                      // of a cluster
constexpr int BOX = DEPTH * COLUMNS * 2, A_BOX = ROWS * DEPTH * 2;
// A row of a warp's sums in shared memory, so long that the warp's rows are in different banks.
constexpr int STRIDE = COLUMNS + 8;
// Bytes of what the cluster's blocks send, and of what a block's warps leave.
constexpr int sumsBytes(int halves) { return 4 * halves * (ROWS * COLUMNS + MOST_BLOCKS); }
constexpr int squaresBytes() { return 4 * MOST_BLOCKS * ROWS; }
constexpr int leftSumsBytes(int halves) { return 4 * SHARES * halves * ROWS * STRIDE; }
constexpr int leftBytes(int halves, int warps) { return leftSumsBytes(halves) + 4 * warps * ROWS; }

// Part is what a block computes: some steps of the depth of a panel of columns.
struct Part {
  int weight, column;  // the panel's first column, of a weight (of both if they are gated)
  int from, to;        // steps
  int rank, blocks;    // of the cluster
  int slice;           // sums of each half that a block of the cluster adds up; sum i is row i / 64, column i % 64

  template <class L> DEVICE Part(const RowsArguments& g, int blocks, L) : weight(0), rank(blockIdx.x % blocks), blocks(blocks) {
    constexpr int PANEL = L::GATED ? COLUMNS : L::HALVES * COLUMNS;
    const auto panels = [&](int weight) { return (g.weights[weight].columns + PANEL - 1) / PANEL; };
    int panel = blockIdx.x / blocks;
    for (; weight + 1 < g.count && panel >= panels(weight); weight++) panel -= panels(weight);
    column = panel * PANEL;
    const int steps = (g.m.depth + L::DEPTH_OF_STEP - 1) / L::DEPTH_OF_STEP;
    from = steps * rank / blocks, to = steps * (rank + 1) / blocks;
    slice = (g.m.rows * COLUMNS + blocks - 1) / blocks;
  }
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

// boxed is the address of 8 neighbouring elements of a box's row of 64.
DEVICE uint32_t boxed(uint32_t box, int row, int eighth) { return box + row * 128 + ((eighth ^ row & 7) << 4); }

// begin makes the barriers, and says that the block has begun: once all of the cluster's blocks
// have, their barriers are ready.
template <class L> DEVICE void begin(const RowsArguments& g, const Part& p, uint32_t at) {
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < L::STAGES; stage++) {
      barrierInit(at + L::full + 8 * stage, 1);
      barrierInit(at + L::empty + 8 * stage, L::CONSUMERS);
    }
    barrierInit(at + L::joined, 1);
    barrierInitDone();
    // What the cluster's blocks will send.
    if (p.blocks > 1) barrierExpect(at + L::joined, 4 * p.blocks * (L::HALVES * p.sumsOf(g, p.rank) + (g.normed ? g.m.rows : 0)));
  }
  __syncthreads();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
DEVICE void awaitCluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// leaveSquares puts a warp's sums of squares where all warps of the block see them. A lane has a
// part of those of rows lane/4 and lane/4 + 8.
template <class L> DEVICE void leaveSquares(const float (&squares)[2], char* shared) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = squares[half];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (lane() % 4 == 0) ((float*)(shared + L::squaresOfWarps))[warp() * ROWS + lane() / 4 + 8 * half] = sum;
  }
}

// exchange adds up the sums of the block's warps and sends each to the block that adds it to the
// others'.
template <class L> DEVICE void exchange(const RowsArguments& g, const Part& p, char* shared, uint32_t at) {
  const float* sums = (const float*)(shared + L::ofWarps);
#pragma unroll
  for (int half = 0; half < L::HALVES; half++)
    for (int i = threadIdx.x; i < g.m.rows * COLUMNS; i += L::JOINING) {
      const int from = (half * ROWS + i / COLUMNS) * STRIDE + i % COLUMNS, owner = i / p.slice;
      float sum = sums[from];
#pragma unroll
      for (int w = 1; w < SHARES; w++) sum += sums[w * L::HALVES * ROWS * STRIDE + from];
      const uint32_t to = at + L::sums + 4 * ((p.rank * L::HALVES + half) * p.slice + i % p.slice);
      send(p, to, sum, at + L::joined, owner);
    }
  if (!g.normed) return;
  const float* squares = (const float*)(shared + L::squaresOfWarps);
  for (int i = threadIdx.x; i < p.blocks * g.m.rows; i += L::JOINING) {
    const int row = i % g.m.rows, owner = i / g.m.rows;
    float sum = squares[row];
#pragma unroll
    for (int w = 1; w < L::SQUARES; w++) sum += squares[w * ROWS + row];
    send(p, at + L::squares + 4 * (p.rank * ROWS + row), sum, at + L::joined, owner);
  }
}

// Place is an element of C that a block finishes, or the first of those of either half of the
// panel.
template <class L> struct Place {
  static constexpr int COUNT = L::GATED ? 1 : L::HALVES;
  int row, column;
  bool there[COUNT];

  DEVICE Place(const RowsArguments& g, const Part& p, int i) {
    const int n = p.rank * p.slice + i;
    row = n / COLUMNS, column = p.column + n % COLUMNS;
#pragma unroll
    for (int half = 0; half < COUNT; half++) there[half] = i < p.sumsOf(g, p.rank) && column + half * COLUMNS < g.weights[p.weight].columns;
  }
};

// Beside is what is added to the sums of a place.
template <class L> struct Beside {
  float bias[L::HALVES], residual[Place<L>::COUNT];

  DEVICE Beside(const RowsArguments& g, const Part& p, int i) {
    const Place<L> to(g, p, i);
    const Weight& w = g.weights[p.weight];
#pragma unroll
    for (int half = 0; half < L::HALVES; half++) bias[half] = 0;
#pragma unroll
    for (int half = 0; half < to.COUNT; half++) {
      const int c = to.column + half * COLUMNS;
      residual[half] = 0;
      if (!to.there[half]) continue;
      if (w.bias) bias[half] = loadElement(w.bias, c, w.biasElement);
      if (L::GATED && g.weights[1].bias) bias[L::HALVES - 1] = loadElement(g.weights[1].bias, c, g.weights[1].biasElement);
      if (g.residual) residual[half] = asFloat(((const Scalar*)g.residual)[to.row * g.residualRow + w.first + c]);
    }
  }
};

// finish adds up the block's slice, and writes what follows of it.
template <class L> DEVICE void finish(const RowsArguments& g, const Part& p, Beside<L> beside, const char* shared) {
  const float *sums = (const float*)(shared + L::sums), *squares = (const float*)(shared + L::squares);
  const Output out(g.m, 0);
  for (int i = threadIdx.x; i < p.slice; i += L::JOINING) {
    if (i >= L::JOINING) beside = Beside<L>(g, p, i);
    const Place<L> to(g, p, i);
    if (!to.there[0]) continue;
    float scale = 1;
    if (g.normed) {
      float sum = 0;
      for (int block = 0; block < p.blocks; block++) sum += squares[block * ROWS + to.row];
      scale = rsqrtf(sum / g.m.depth + g.eps);
    }
    const auto value = [&](int half) {
      float sum = 0;
      for (int block = 0; block < p.blocks; block++) sum += sums[(block * L::HALVES + half) * p.slice + i];
      return fmaf(sum, scale, beside.bias[half]);
    };
    const int column = g.weights[p.weight].first + to.column;
    if constexpr (L::GATED)
      out.put(to.row, column, silu(value(0)) * value(1) + beside.residual[0]);
    else
#pragma unroll
      for (int half = 0; half < L::HALVES; half++)
        if (to.there[half]) out.put(to.row, column + half * COLUMNS, value(half) + beside.residual[half]);
  }
}

// join is what follows once a block's warps have left their sums.
template <class L> DEVICE void join(const RowsArguments& g, const Part& p, const Beside<L>& first, char* shared, uint32_t at) {
  groupSync(1, L::JOINING);
  awaitCluster();
  exchange<L>(g, p, shared, at);
  if (p.blocks == 1)
    groupSync(1, L::JOINING);
  else
    barrierWait(at + L::joined, 0);
  finish<L>(g, p, first, shared);
}

// EACH names a kernel's entries, one for each number of blocks of a cluster.
#define EACH(name)                                                                                                          \
  ENTRY(name, 1) ENTRY(name, 2) ENTRY(name, 3) ENTRY(name, 4) ENTRY(name, 5) ENTRY(name, 6) ENTRY(name, 7) ENTRY(name, 8)
