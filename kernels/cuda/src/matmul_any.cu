// Matrix products of tensors with any strides, in float32 arithmetic: for whatever the kernels on
// tensor cores do not take.
//
// A block computes 64×64 elements of C, a thread 4×4 of them. It brings 16 columns of A and rows of
// B at a time into shared memory as float32, while the tile before is multiplied. Every element is
// one chain of additions along the depth.
#include "matmul.cuh"

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

template <class T> __device__ __forceinline__ void multiply(const MatMulArguments& g) {
  __shared__ __align__(16) float a[DEPTH][SIDE + 4], b[DEPTH][SIDE + 4];
  const int across = (g.columns + SIDE - 1) / SIDE, down = (g.rows + SIDE - 1) / SIDE;
  const int item = blockIdx.x / across / down, row = blockIdx.x / across % down * SIDE, column = blockIdx.x % across * SIDE;
  const int outer = item / g.inner, inner = item % g.inner;
  const Operand<T> left = {(const T*)g.a.data + outer * g.a.outer + inner * g.a.inner + row * g.a.row, g.a.row, g.a.column,
                           g.rows - row, g.depth, g.a.column == 1};
  const Operand<T> right = {(const T*)g.b.data + outer * g.b.outer + inner * g.b.inner + column * g.b.column, g.b.column, g.b.row,
                            g.columns - column, g.depth, g.b.row == 1 && g.b.column != 1};
  const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
  float sum[4][4] = {}, nextA[EACH], nextB[EACH];
  left.load(nextA, 0);
  right.load(nextB, 0);
  for (int from = 0; from < g.depth; from += DEPTH) {
    __syncthreads();
    left.store(a, nextA);
    right.store(b, nextB);
    __syncthreads();
    if (from + DEPTH < g.depth) {
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
  const Output out(g, item);
#pragma unroll
  for (int j = 0; j < 4; j++) {
    if (column + x + j >= g.columns) break;
    const float bias = g.bias ? loadElement(g.bias, column + x + j, g.biasElement) : 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (row + y + i < g.rows) out.put(row + y + i, column + x + j, sum[i][j] + bias);
  }
}

#define ENTRY(name, T) \
  extern "C" __global__ void __launch_bounds__(THREADS) name(const __grid_constant__ MatMulArguments g) { multiply<T>(g); }
ENTRY(matmul_any_f32, float)
ENTRY(matmul_any_bf16, __nv_bfloat16)
ENTRY(matmul_any_f16, __half)
