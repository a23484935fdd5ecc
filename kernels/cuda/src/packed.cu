// Packed matrices in floats: to_ij = number of m_ij times its scale, rounded to the type of to; both
// are (rows, columns). A thread has 16 elements of a row at a time, whose codes are 8 neighbouring
// bytes, or 16 of 8 bits. They have one scale.
#include "packed.cuh"

struct Widening {
  Packed from;
  void* to;
  int64_t stride;  // between the rows of to, in elements
};

constexpr int THREADS = 256, EACH = 16;
constexpr int TIMES = 2;   // that a warp has 32·EACH elements of a row

// RowOfScales is what all scales of a row need.
template <PackedKind kind> struct RowOfScales {
  const __half* scales;
  __device__ __forceinline__ RowOfScales(const Packed& m, const uint8_t* row) : scales((const __half*)(row + m.scales)) {}
  __device__ __forceinline__ float of(const Packed&, int column) const { return __half2float(scales[column / PACKED_GROUP]); }
};
template <> struct RowOfScales<NF4> {
  static constexpr int BLOCK = 2 * PACKED_GROUP, NESTED = 256;
  const float* factors;  // of the row's first scale on
  const uint8_t* codes;
  float offset;
  int phase;             // where in the factor's scales the row begins
  __device__ __forceinline__ RowOfScales(const Packed& m, const uint8_t* row) {
    const float* scales = (const float*)(row + m.scales);
    offset = scales[0], phase = ((const uint32_t*)scales)[1] % NESTED, factors = scales + 2;
    codes = (const uint8_t*)(factors + (m.columns / BLOCK + NESTED - 2) / NESTED + 1);
  }
  __device__ __forceinline__ float of(const Packed& m, int column) const {
    const int block = column / BLOCK;
    return __fadd_rn(__fmul_rn(__ldg(m.scaleTable + codes[block]), factors[(phase + block) / NESTED]), offset);
  }
};

// Sixteen are the codes of 16 elements: the number-th of a row.
template <PackedKind kind> struct Sixteen {
  uint2 codes[kind == Int8 ? 2 : 1];

  __device__ __forceinline__ void load(const uint8_t* row, int number) {
#pragma unroll
    for (int n = 0; n < (kind == Int8 ? 2 : 1); n++) codes[n] = ((const uint2*)row)[number * (kind == Int8 ? 2 : 1) + n];
  }
  // column is that of one half of them, each of which has eight neighbours.
  static __device__ __forceinline__ int column(int number, int half) {
    if constexpr (kind == Int8) return EACH * number + 8 * half;
    return number / 2 * PACKED_GROUP + number % 2 * 8 + half * 16;  // byte j of a group's has its elements j and j + 16
  }
  __device__ __forceinline__ void eight(int half, float scale, const float* numbers, float (&x)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if constexpr (kind == Int8) {
        x[i] = __fmul_rn((float)(int8_t)((i < 4 ? codes[half].x : codes[half].y) >> 8 * (i % 4)), scale);
      } else {
        x[i] = __fmul_rn(numbers[(i < 4 ? codes[0].x : codes[0].y) >> (8 * (i % 4) + 4 * half) & 15], scale);
      }
    }
  }
};

template <class T> __device__ __forceinline__ void storeEight(T* to, const float (&x)[8]) {
#pragma unroll
  for (int n = 0; n < 8; n += perAccess<T>) {
    float part[perAccess<T>];
#pragma unroll
    for (int e = 0; e < perAccess<T>; e++) part[e] = x[n + e];
    store<perAccess<T>>(to + n, part);
  }
}

// widenRows is for the order in which a matrix lies: a warp has some of a row.
template <PackedKind kind, class T> __device__ __forceinline__ void widenRows(const Widening& g, const float* numbers) {
  const Packed& m = g.from;
  const int across = (m.columns + 32 * EACH * TIMES - 1) / (32 * EACH * TIMES);
  const int warp = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, row = warp / across;
  if (row >= m.rows) return;
  const uint8_t* from = m.data + (int64_t)row * m.rowBytes;
  const RowOfScales<kind> scales(m, from);
  const int first = warp % across * 32 * TIMES + threadIdx.x % 32, end = m.columns / EACH;
  Sixteen<kind> x[TIMES];
  float scale[TIMES];
#pragma unroll
  for (int n = 0; n < TIMES; n++) {
    const int number = first + 32 * n;
    if (number >= end) continue;
    x[n].load(from, number);
    scale[n] = scales.of(m, Sixteen<kind>::column(number, 0));
  }
#pragma unroll
  for (int n = 0; n < TIMES; n++) {
    const int number = first + 32 * n;
    if (number >= end) continue;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float eight[8];
      x[n].eight(half, scale[n], numbers, eight);
      storeEight((T*)g.to + row * g.stride + Sixteen<kind>::column(number, half), eight);
    }
  }
}

template <PackedKind kind, class T> __device__ __forceinline__ void widen(const Widening& g) {
  __shared__ float numbers[16];
  if (threadIdx.x < 16) numbers[threadIdx.x] = g.from.numbers[threadIdx.x];
  __syncthreads();
  widenRows<kind, T>(g, numbers);
}

#define ENTRIES(kind, name)                                                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS) name##_f32(const __grid_constant__ Widening g) { widen<kind, float>(g); }          \
  extern "C" __global__ void __launch_bounds__(THREADS) name##_bf16(const __grid_constant__ Widening g) { widen<kind, __nv_bfloat16>(g); } \
  extern "C" __global__ void __launch_bounds__(THREADS) name##_f16(const __grid_constant__ Widening g) { widen<kind, __half>(g); }
ENTRIES(Int8, widen_int8)
ENTRIES(Int4, widen_int4)
ENTRIES(NF4, widen_nf4)
