// Products of one to sixteen rows, as a model makes them for one token of up to sixteen texts:
//
//   C = act(A·B + bias),  Pre = A·B + bias     or     C ← C + A·B + bias
//
// A is (rows, depth) and B (depth, columns), of 16 bits, summed in float32. Reading B is all that
// takes time, so that each element of B goes from device memory to the registers that mma.sync
// multiplies from, once. Compile for sm_90a with
//   -DKERNEL=name -DELEMENT=BF16 or F16, -DB_ROWS where B's rows are contiguous rather than its columns.
//
// A cluster has 64 columns. Its warps share the depth, one step after the other, and add up their
// sums in the order of the warps. What a thread loads at once is 16 bytes: eight columns of one row
// of B, or eight rows of one column. The order in which mma.sync takes the depth is free, as long
// as A and B agree: each thread's rows lie next to each other.
#include "matmul.cuh"
#include "mma.cuh"

#ifdef B_ROWS
constexpr bool BRows = true;
#else
constexpr bool BRows = false;
#endif
constexpr int WARPS = 4, THREADS = 32 * WARPS, ROWS = 16, COLUMNS = 64, GROUPS = COLUMNS / 8;
// Of a step's depth, a thread has OWN neighbours: as many of B's rows, or a load of each group's
// columns. AHEAD steps are under way.
constexpr int DEPTH = BRows ? 16 : 32, OWN = DEPTH / 4, LOADS = BRows ? OWN : GROUPS, AHEAD = BRows ? 2 : 1;
// A row of sums in shared memory, so long that few threads of a warp write to one bank.
constexpr int STRIDE = BRows ? COLUMNS + 1 : COLUMNS + 8;

// load16 reads what no other thread reads, past the first cache.
DEVICE uint4 load16(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

// Slice is what a thread holds of one step: rows of B from depth + OWN·(lane%4) on.
struct Slice {
  uint4 b[LOADS];
  uint32_t a[2][OWN / 2];  // of rows lane/4 and lane/4 + 8 of A, what goes with b's rows

  DEVICE void load(const MatMulArguments& g, int column, int depth) {
    loadB(g, column, depth);
    loadA(g, depth);
  }
  DEVICE void loadB(const MatMulArguments& g, int column, int depth) {
    const uint16_t* data = (const uint16_t*)g.b.data;
    const int own = depth + lane() % 4 * OWN;
#pragma unroll
    for (int n = 0; n < LOADS; n++) {
      const int i = BRows ? own + n : own, j = BRows ? column + lane() / 4 * 8 : column + n * 8 + lane() / 4;
      b[n] = i < g.depth && j < g.columns ? load16(data + i * g.b.row + j * g.b.column) : make_uint4(0, 0, 0, 0);
    }
  }
  DEVICE void loadA(const MatMulArguments& g, int depth) {
    const int own = depth + lane() % 4 * OWN;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = lane() / 4 + 8 * half;
      const uint2* from = (const uint2*)((const uint16_t*)g.a.data + row * g.a.row + own);
#pragma unroll
      for (int n = 0; n < OWN / 4; n++) {
        const uint2 two = row < g.rows && own < g.depth ? from[n] : make_uint2(0, 0);
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
      const uint32_t pairs[4] = {a[0][p], a[1][p], a[0][p + 1], a[1][p + 1]};
#pragma unroll
      for (int n = 0; n < GROUPS; n++) multiplyAdd<ELEMENT>(sums[n], pairs, pairOf(n, p), pairOf(n, p + 1));
    }
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

template <int CLUSTER> DEVICE void multiplyRows(const MatMulArguments& g) {
  const int column = blockIdx.x / CLUSTER * COLUMNS, block = blockIdx.x % CLUSTER;
  constexpr int BESIDE = CLUSTER * WARPS * DEPTH;  // that warps beside each other share
  float sums[GROUPS][4] = {};
  int depth = (block * WARPS + warp()) * DEPTH;
  Slice slices[AHEAD];
#pragma unroll
  for (int n = 0; n < AHEAD; n++) slices[n].load(g, column, depth + n * BESIDE);
  for (; depth < g.depth; depth += AHEAD * BESIDE) {
#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
      slices[n].multiply(sums);
      slices[n].load(g, column, depth + (n + AHEAD) * BESIDE);
    }
  }

  // The sums of each warp, and then of the block, (rows, columns).
  __shared__ float ofWarps[WARPS][ROWS * STRIDE], ofBlock[ROWS * COLUMNS];
#pragma unroll
  for (int n = 0; n < GROUPS; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int row = lane() / 4 + e / 2 * 8;
      if (row < g.rows) ofWarps[warp()][row * STRIDE + columnOf(n, lane() % 4 * 2 + e % 2)] = sums[n][e];
    }
  __syncthreads();
  const int used = min(g.rows, ROWS) * COLUMNS;
  for (int at = threadIdx.x; at < used; at += THREADS) {
    const int from = at / COLUMNS * STRIDE + at % COLUMNS;
    float sum = ofWarps[0][from];
#pragma unroll
    for (int w = 1; w < WARPS; w++) sum += ofWarps[w][from];
    ofBlock[at] = sum;
  }
  clusterSync<CLUSTER>();
  const Output out(g, 0);
  for (int at = block * THREADS + threadIdx.x; at < used; at += CLUSTER * THREADS) {
    float sum = 0;
    if constexpr (CLUSTER == 1) {
      sum = ofBlock[at];
    } else {
#pragma unroll
      for (int other = 0; other < CLUSTER; other++) sum += loadOf(sharedAddress(ofBlock + at), other);
    }
    const int row = at / COLUMNS, j = column + at % COLUMNS;
    if (j < g.columns) out.put(row, j, sum + (g.bias ? loadElement(g.bias, j, g.biasElement) : 0));
  }
  if constexpr (CLUSTER > 1) clusterSync<CLUSTER>();
}

#define ENTRY_(name, blocks) \
  extern "C" __global__ void __launch_bounds__(THREADS, 5) __cluster_dims__(blocks, 1, 1) name##_##blocks(const __grid_constant__ MatMulArguments g) { \
    multiplyRows<blocks>(g); \
  }
#define ENTRY(name, blocks) ENTRY_(name, blocks)
ENTRY(KERNEL, 1)
ENTRY(KERNEL, 2)
ENTRY(KERNEL, 4)
ENTRY(KERNEL, 8)
