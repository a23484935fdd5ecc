// Matrix products of tensors with any strides, in float32 arithmetic: for whatever the kernels on
// tensor cores do not take.
//
// A block computes 64×64 elements of C, a thread 4×4 of them. It brings 16 columns of A and rows of
// B at a time into shared memory as float32, while the tile before is multiplied. Every element is
// one chain of additions along the depth.
//
// The rows of A, or the depth, may belong to groups (GroupedArguments), each with its own B or C.
#include "grouped.cuh"

constexpr int SIDE = 64, DEPTH = 16, THREADS = 256, EACH = SIDE * DEPTH / THREADS;

__device__ __forceinline__ float toFloat(float x) { return x; }
__device__ __forceinline__ float toFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float toFloat(__half x) { return __half2float(x); }

// Operand is SIDE rows of A, or columns of B, of which a thread brings EACH elements of a slice.
// Neighbouring threads bring neighbours in memory.
template <class T> struct Operand {
  const T* data;
  int64_t side, depth;  // strides
  int sides, depths;    // sizes that are left from here on
  bool alongDepth;

  __device__ __forceinline__ int sideOf(int n) const { return alongDepth ? threadIdx.x / DEPTH + n * (THREADS / DEPTH) : threadIdx.x % SIDE; }
  __device__ __forceinline__ int depthOf(int n) const { return alongDepth ? threadIdx.x % DEPTH : threadIdx.x / SIDE + n * (THREADS / SIDE); }

  __device__ __forceinline__ void load(float (&x)[EACH], int from) const {
#pragma unroll
    for (int n = 0; n < EACH; n++) {
      const int i = sideOf(n), p = from + depthOf(n);
      x[n] = i < sides && p < depths ? toFloat(data[i * side + p * depth]) : 0;
    }
  }
  __device__ __forceinline__ void store(float (&tile)[DEPTH][SIDE + 4], const float (&x)[EACH]) const {
#pragma unroll
    for (int n = 0; n < EACH; n++) tile[depthOf(n)][sideOf(n)] = x[n];
  }
};

// Tile is what a block computes: 64 rows, up to an end, and columns of an item, along some depth.
struct Tile {
  int item, row, column, rows, from, depth;
};

template <class T> __device__ __forceinline__ void multiply(const MatMulArguments& g, const Tile& t, int64_t biasAt) {
  __shared__ __align__(16) float a[DEPTH][SIDE + 4], b[DEPTH][SIDE + 4];
  const int row = t.row, column = t.column, outer = t.item / g.inner, inner = t.item % g.inner;
  const Operand<T> left = {(const T*)g.a.data + outer * g.a.outer + inner * g.a.inner + row * g.a.row + t.from * g.a.column, g.a.row, g.a.column,
                           t.rows - row, t.depth, g.a.column == 1};
  const Operand<T> right = {(const T*)g.b.data + outer * g.b.outer + inner * g.b.inner + column * g.b.column + t.from * g.b.row, g.b.column, g.b.row,
                            g.columns - column, t.depth, g.b.row == 1 && g.b.column != 1};
  const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
  float sum[4][4] = {}, nextA[EACH], nextB[EACH];
  left.load(nextA, 0);
  right.load(nextB, 0);
  for (int from = 0; from < t.depth; from += DEPTH) {
    __syncthreads();
    left.store(a, nextA);
    right.store(b, nextB);
    __syncthreads();
    if (from + DEPTH < t.depth) {
      left.load(nextA, from + DEPTH);
      right.load(nextB, from + DEPTH);
    }
#pragma unroll
    for (int p = 0; p < DEPTH; p++) {
      const float4 u = *(const float4*)&a[p][y], v = *(const float4*)&b[p][x];
      const float us[4] = {u.x, u.y, u.z, u.w}, vs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] = fmaf(us[i], vs[j], sum[i][j]);
    }
  }
  const Output out(g, t.item);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if (column + x + j >= g.columns) break;
    const float bias = g.bias ? loadElement(g.bias, biasAt + column + x + j, g.biasElement) : 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (row + y + i < t.rows) out.put(row + y + i, column + x + j, sum[i][j] + bias);
  }
}

template <class T> __device__ __forceinline__ void multiply(const MatMulArguments& g) {
  const int across = (g.columns + SIDE - 1) / SIDE, down = (g.rows + SIDE - 1) / SIDE;
  const int item = blockIdx.x / across / down, row = blockIdx.x / across % down * SIDE;
  multiply<T>(g, {item, row, (int)(blockIdx.x % across) * SIDE, g.rows, 0, g.depth}, 0);
}

// Groups of rows: of as many tiles below each other as there may be, a block takes its own, if there is one.
template <class T> __device__ __forceinline__ void multiplyRows(const GroupedArguments& a) {
  const int across = (a.g.columns + SIDE - 1) / SIDE;
  const GroupOfTile t(a, blockIdx.x / across, SIDE);
  if (t.group >= a.groups) return;
  multiply<T>(a.g, {t.group, t.row, (int)(blockIdx.x % across) * SIDE, t.end, 0, a.g.depth}, t.group * a.biasStep);
}

// Groups of the depth: each is an item.
template <class T> __device__ __forceinline__ void multiplyDepths(const GroupedArguments& a) {
  const MatMulArguments& g = a.g;
  const int across = (g.columns + SIDE - 1) / SIDE, down = (g.rows + SIDE - 1) / SIDE;
  const int item = blockIdx.x / across / down, row = blockIdx.x / across % down * SIDE, from = a.offsets[item];
  multiply<T>(g, {item, row, (int)(blockIdx.x % across) * SIDE, g.rows, from, a.offsets[item + 1] - from}, 0);
}

#define ENTRY(name, T)                                                                                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS) matmul_any_##name(const __grid_constant__ MatMulArguments g) { multiply<T>(g); }             \
  extern "C" __global__ void __launch_bounds__(THREADS) grouped_rows_##name(const __grid_constant__ GroupedArguments a) { multiplyRows<T>(a); }      \
  extern "C" __global__ void __launch_bounds__(THREADS) grouped_depths_##name(const __grid_constant__ GroupedArguments a) { multiplyDepths<T>(a); }
ENTRY(f32, float)
ENTRY(bf16, __nv_bfloat16)
ENTRY(f16, __half)
