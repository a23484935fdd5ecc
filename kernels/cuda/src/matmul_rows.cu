// Products of one to sixteen rows, as a model makes them for one token of up to sixteen texts:
//
//   C = act(A·B + bias),  Pre = A·B + bias     or     C ← C + A·B + bias
//   C = A·B + bias + Residual                  or     C = silu(A·B0 + bias0)·(A·B1 + bias1)
//
// B is one matrix, or several side by side. A is as it is, or the RMS norm of X, whose rows are then
// multiplied as X·γ and divided by their root mean square afterwards.
//
// A is (rows, depth) and B (depth, columns), of 16 bits, summed in float32. Reading B is all that
// takes time, so that each element of B goes from device memory to the registers that mma.sync
// multiplies from, once. The first loads of B are on their way before the kernel waits for those before
// it. Compile for sm_90a with
//   -DKERNEL=name -DELEMENT=BF16 or F16, -DB_ROWS where B's rows are contiguous rather than its columns.
//
// A cluster has 64 columns, of which 32 are B0's and 32 B1's where they are gated. Its warps share the
// depth, one step after the other, and add up their sums in the order of the warps. What a thread
// loads at once is 16 bytes: eight columns of one row of B, or eight rows of one column. The order in
// which mma.sync takes the depth is free, as long as A and B agree: each thread's rows lie next to
// each other.
#include "dependent.cuh"
#include "elements.cuh"
#include "matmul.cuh"
#include "mma.cuh"

// Weight is one of B's matrices; strides are in elements.
struct Weight {
  const void *data, *bias;  // bias: (columns) or null
  int64_t row, column;
  int32_t first, columns;   // of C
  int32_t biasElement, reserved;
};

// RowsArguments is the host's rowsArguments in matmul_rows.go. Of `m`, b and bias are not read.
struct RowsArguments {
  MatMulArguments m;
  Weight weights[3];
  const void* residual;  // like C, of 16 bits, or null
  int64_t residualRow;
  const void* gamma;     // (depth), null for none
  int32_t normed;        // A is X
  int32_t gammaWide;     // gamma is float32
  float eps;
  int32_t count, gated;  // count: of weights
  int32_t reserved;
};

#ifdef B_ROWS
constexpr bool BRows = true;
#else
constexpr bool BRows = false;
#endif
constexpr int WARPS = 4, THREADS = 32 * WARPS, ROWS = 16, COLUMNS = 64, GROUPS = COLUMNS / 8;
// Of a step's depth, a thread has OWN neighbours: as many of B's rows, or a load of each group's
// columns. AHEAD steps are under way.
constexpr int DEPTH = BRows ? 16 : 32, OWN = DEPTH / 4, LOADS = BRows ? OWN : GROUPS, AHEAD = BRows ? 2 : 1;
using Number = std::conditional<std::is_same<ELEMENT, BF16>::value, __nv_bfloat16, __half>::type;
// A row of sums in shared memory, so long that few threads of a warp write to one bank.
constexpr int STRIDE = BRows ? COLUMNS + 1 : COLUMNS + 8;

// load16 reads what no other thread reads, past the first cache.
DEVICE uint4 load16(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

// Columns is where a cluster finds B: in each half of its 64 columns, some of one weight.
struct Columns {
  const uint16_t *data0, *data1;  // the first of each half's columns
  int64_t row, column;
  int left0, left1;               // how many columns there are from there on
  int which, from;                // of the first half: its weight, and the column in that

  DEVICE Columns(const RowsArguments& g, int number) : which(0) {
    if (!g.gated)
      for (; which + 1 < g.count && number >= clusters(g.weights[which]); which++) number -= clusters(g.weights[which]);
    from = number * (g.gated ? COLUMNS / 2 : COLUMNS);
    const Weight &first = g.weights[which], &second = g.weights[which + g.gated];
    const int next = from + (g.gated ? 0 : COLUMNS / 2);
    row = first.row, column = first.column;
    data0 = (const uint16_t*)first.data + from * column, data1 = (const uint16_t*)second.data + next * column;
    left0 = first.columns - from, left1 = second.columns - next;
  }
  static DEVICE int clusters(const Weight& w) { return (w.columns + COLUMNS - 1) / COLUMNS; }
};

// Slice is what a thread holds of one step: rows of B from depth + OWN·(lane%4) on.
template <bool NORMED> struct Slice {
  uint4 b[LOADS];
  uint32_t a[2][OWN / 2];  // of rows lane/4 and lane/4 + 8 of A, what goes with b's rows
  float gamma[NORMED ? OWN : 1];

  DEVICE void load(const RowsArguments& g, const Columns& c, int depth) {
    loadB(g, c, depth);
    loadA(g, depth);
  }
  DEVICE void loadB(const RowsArguments& g, const Columns& c, int depth) {
    const int own = depth + lane() % 4 * OWN;
#pragma unroll
    for (int n = 0; n < LOADS; n++) {
      // The half of the columns, and the column in it.
      const int half = BRows ? lane() / 16 : n / (GROUPS / 2), j = BRows ? lane() / 4 % 4 * 8 : n % (GROUPS / 2) * 8 + lane() / 4;
      const int i = BRows ? own + n : own;
      const bool there = i < g.m.depth && j < (half ? c.left1 : c.left0);
      b[n] = there ? load16((half ? c.data1 : c.data0) + i * c.row + j * c.column) : make_uint4(0, 0, 0, 0);
    }
    if constexpr (NORMED) {
      const bool there = g.gamma && own < g.m.depth;
#pragma unroll
      for (int n = 0; n < OWN; n += 4) {
        float of[4] = {1, 1, 1, 1};
        if (there && g.gammaWide) ::load<4>((const float*)g.gamma + own + n, of);
        if (there && !g.gammaWide) ::load<4>((const Number*)g.gamma + own + n, of);
#pragma unroll
        for (int e = 0; e < 4; e++) gamma[n + e] = of[e];
      }
    }
  }
  DEVICE void loadA(const RowsArguments& g, int depth) {
    const int own = depth + lane() % 4 * OWN;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = lane() / 4 + 8 * half;
      const uint2* from = (const uint2*)((const uint16_t*)g.m.a.data + row * g.m.a.row + own);
#pragma unroll
      for (int n = 0; n < OWN / 4; n++) {
        const uint2 two = row < g.m.rows && own < g.m.depth ? from[n] : make_uint2(0, 0);
        a[half][2 * n] = two.x, a[half][2 * n + 1] = two.y;
      }
    }
  }
  // multiply adds the step to sums: sums[n] are those of mma.sync's eight columns, which are, of
  // each group of eight columns of C, the n-th with B's rows contiguous, and the n-th group
  // otherwise.
  DEVICE void multiply(float (&sums)[GROUPS][4]) const {
#pragma unroll
    for (int p = 0; p < OWN / 2; p += 2) {
      const uint32_t pairs[4] = {pairOfA(0, p), pairOfA(1, p), pairOfA(0, p + 1), pairOfA(1, p + 1)};
#pragma unroll
      for (int n = 0; n < GROUPS; n++) multiplyAdd<ELEMENT>(sums[n], pairs, pairOf(n, p), pairOf(n, p + 1));
    }
  }
  DEVICE uint32_t pairOfA(int half, int p) const {
    if constexpr (!NORMED) return a[half][p];
    const float2 x = unpacked<Number>(a[half][p]);
    return packed<Number>(x.x * gamma[2 * p], x.y * gamma[2 * p + 1]);
  }
  // pairOf is the p-th pair of B's rows that this thread has for sums[n].
  DEVICE uint32_t pairOf(int n, int p) const {
    if constexpr (!BRows) return word(b[n], p);
    return __byte_perm(word(b[2 * p], n / 2), word(b[2 * p + 1], n / 2), n % 2 ? 0x7632 : 0x5410);
  }
  static DEVICE uint32_t word(const uint4& v, int n) { return n == 0 ? v.x : n == 1 ? v.y : n == 2 ? v.z : v.w; }
};

// columnOf is the column, within the cluster's, of the sum that mma.sync has in column `at` of its
// eight for sums[n].
DEVICE int columnOf(int n, int at) { return BRows ? at * 8 + n : n * 8 + at; }

// findScales computes 1/√(mean square + eps) of each row of X.
DEVICE void findScales(const RowsArguments& g, float (&scales)[ROWS], float (&parts)[ROWS][WARPS]) {
  for (int row = 0; row < g.m.rows; row++) {
    const Number* x = (const Number*)g.m.a.data + row * g.m.a.row;
    float sum = 0;
    for (int i = threadIdx.x * 8; i < g.m.depth; i += THREADS * 8) {
      float of[8];
      ::load<8>(x + i, of);
#pragma unroll
      for (int e = 0; e < 8; e++) sum = fmaf(of[e], of[e], sum);
    }
    sum = sumOfWarp(sum);
    if (lane() == 0) parts[row][warp()] = sum;
  }
  __syncthreads();
  if (threadIdx.x < g.m.rows) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += parts[threadIdx.x][w];
    scales[threadIdx.x] = rsqrtf(sum / g.m.depth + g.eps);
  }
}

template <int CLUSTER> DEVICE void clusterSync() {
  if constexpr (CLUSTER > 1)
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  else
    __syncthreads();
}

// loadOf reads the float at the place that an address of this block has in another block of the
// cluster.
DEVICE float loadOf(uint32_t address, int block) {
  float v;
  asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %1, %2;\nld.shared::cluster.f32 %0, [remote];\n}\n"
               : "=f"(v) : "r"(address), "r"(block) : "memory");
  return v;
}

template <int CLUSTER, bool NORMED> DEVICE void multiplyRows(const RowsArguments& g) {
  const int block = blockIdx.x % CLUSTER;
  const Columns columns(g, blockIdx.x / CLUSTER);
  constexpr int BESIDE = CLUSTER * WARPS * DEPTH;  // that warps beside each other share
  float sums[GROUPS][4] = {};
  int depth = (block * WARPS + warp()) * DEPTH;
  Slice<NORMED> slices[AHEAD];
#pragma unroll
  for (int n = 0; n < AHEAD; n++) slices[n].loadB(g, columns, depth + n * BESIDE);
  awaitBefore();
  beginDependents();
#pragma unroll
  for (int n = 0; n < AHEAD; n++) slices[n].loadA(g, depth + n * BESIDE);
  __shared__ float scales[ROWS], parts[ROWS][WARPS];
  if constexpr (NORMED) findScales(g, scales, parts);
  for (; depth < g.m.depth; depth += AHEAD * BESIDE) {
#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
      slices[n].multiply(sums);
      slices[n].load(g, columns, depth + (n + AHEAD) * BESIDE);
    }
  }

  // The sums of each warp, and then of the block, (rows, columns).
  __shared__ float ofWarps[WARPS][ROWS * STRIDE], ofBlock[ROWS * COLUMNS];
#pragma unroll
  for (int n = 0; n < GROUPS; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int row = lane() / 4 + e / 2 * 8;
      if (row < g.m.rows) ofWarps[warp()][row * STRIDE + columnOf(n, lane() % 4 * 2 + e % 2)] = sums[n][e];
    }
  __syncthreads();
  const int rows = min(g.m.rows, ROWS);
  for (int at = threadIdx.x; at < rows * COLUMNS; at += THREADS) {
    const int from = at / COLUMNS * STRIDE + at % COLUMNS;
    float sum = ofWarps[0][from];
#pragma unroll
    for (int w = 1; w < WARPS; w++) sum += ofWarps[w][from];
    if constexpr (NORMED) sum *= scales[at / COLUMNS];
    ofBlock[at] = sum;
  }
  clusterSync<CLUSTER>();
  const auto sumAt = [&](int at) {
    if constexpr (CLUSTER == 1) return ofBlock[at];
    float sum = 0;
#pragma unroll
    for (int other = 0; other < CLUSTER; other++) sum += loadOf(sharedAddress(ofBlock + at), other);
    return sum;
  };
  const auto biased = [&](float x, const Weight& w, int n) { return w.bias ? x + loadElement(w.bias, n, w.biasElement) : x; };
  const Output out(g.m, 0);
  const int width = g.gated ? COLUMNS / 2 : COLUMNS;
  const Weight& w = g.weights[columns.which];
  for (int at = block * THREADS + threadIdx.x; at < rows * width; at += CLUSTER * THREADS) {
    const int row = at / width, n = columns.from + at % width, j = w.first + n;
    if (n >= w.columns) continue;
    float x = biased(sumAt(row * COLUMNS + at % width), w, n);
    if (g.gated) x = silu(x) * biased(sumAt(row * COLUMNS + width + at % width), g.weights[1], n);
    if (g.residual) x += asFloat(((const Number*)g.residual)[row * g.residualRow + j]);
    out.put(row, j, x);
  }
  if constexpr (CLUSTER > 1) clusterSync<CLUSTER>();
}

#define ENTRY_(name, blocks) \
  extern "C" __global__ void __launch_bounds__(THREADS, 5) __cluster_dims__(blocks, 1, 1) name##_##blocks(const __grid_constant__ RowsArguments g) { \
    multiplyRows<blocks, false>(g); \
  } \
  extern "C" __global__ void __launch_bounds__(THREADS, 5) __cluster_dims__(blocks, 1, 1) name##_norm_##blocks(const __grid_constant__ RowsArguments g) { \
    multiplyRows<blocks, true>(g); \
  }
#define ENTRY(name, blocks) ENTRY_(name, blocks)
ENTRY(KERNEL, 1)
ENTRY(KERNEL, 2)
ENTRY(KERNEL, 4)
ENTRY(KERNEL, 8)
