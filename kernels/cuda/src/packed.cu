// Packed matrices in floats: to_ij = number of m_ij times its scale, rounded to the type of to; to is
// (rows, columns), or its transpose (columns, rows). A block has a tile of 64 by 64 elements.
#include "packed.cuh"

struct Widening {
  Packed from;
  void* to;
  int64_t stride;  // between the rows of to, in elements
};

constexpr int SIDE = 64, THREADS = 256;

template <PackedKind kind, class T, bool transposed> __device__ __forceinline__ void widen(const Widening& g) {
  const Packed& m = g.from;
  __shared__ float numbers[16];
  __shared__ T tile[transposed ? SIDE : 1][SIDE + 16 / sizeof(T)];
  if (threadIdx.x < 16) numbers[threadIdx.x] = m.numbers[threadIdx.x];
  __syncthreads();
  const int across = (m.columns + SIDE - 1) / SIDE;
  const int firstRow = blockIdx.x / across * SIDE, firstColumn = blockIdx.x % across * SIDE;
  T* to = (T*)g.to;
#pragma unroll
  for (int at = threadIdx.x; at < SIDE * SIDE / 8; at += THREADS) {
    const int i = at / (SIDE / 8), j = at % (SIDE / 8) * 8, row = firstRow + i, column = firstColumn + j;
    if (row >= m.rows || column >= m.columns) continue;
    float x[8];
    eightOf<kind>(m, numbers, m.data + (int64_t)row * m.rowBytes, column, x);
    if constexpr (!transposed) {
#pragma unroll
      for (int n = 0; n < 8; n += perAccess<T>) {
        float part[perAccess<T>];
#pragma unroll
        for (int e = 0; e < perAccess<T>; e++) part[e] = x[n + e];
        store<perAccess<T>>(to + row * g.stride + column + n, part);
      }
    } else {
#pragma unroll
      for (int n = 0; n < 8; n++) tile[j + n][i] = fromFloat<T>(x[n]);
    }
  }
  if constexpr (transposed) {
    __syncthreads();
    constexpr int Each = perAccess<T>;
    for (int at = threadIdx.x; at < SIDE * SIDE / Each; at += THREADS) {
      const int j = at / (SIDE / Each), i = at % (SIDE / Each) * Each, column = firstColumn + j, row = firstRow + i;
      if (column >= m.columns || row >= m.rows) continue;
      *(uint4*)(to + column * g.stride + row) = *(const uint4*)&tile[j][i];
    }
  }
}

#define ENTRIES(kind, name)                                                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS) name##_f32(const __grid_constant__ Widening g) { widen<kind, float, false>(g); } \
  extern "C" __global__ void __launch_bounds__(THREADS) name##_bf16(const __grid_constant__ Widening g) {                               \
    widen<kind, __nv_bfloat16, false>(g);                                                                                                \
  }                                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(THREADS) name##_f16(const __grid_constant__ Widening g) { widen<kind, __half, false>(g); } \
  extern "C" __global__ void __launch_bounds__(THREADS) name##_f32_t(const __grid_constant__ Widening g) { widen<kind, float, true>(g); } \
  extern "C" __global__ void __launch_bounds__(THREADS) name##_bf16_t(const __grid_constant__ Widening g) {                             \
    widen<kind, __nv_bfloat16, true>(g);                                                                                                 \
  }                                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(THREADS) name##_f16_t(const __grid_constant__ Widening g) { widen<kind, __half, true>(g); }
ENTRIES(Int8, widen_int8)
ENTRIES(Int4, widen_int4)
ENTRIES(NF4, widen_nf4)
