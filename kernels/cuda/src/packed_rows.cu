// Products of one to sixteen rows by a packed matrix, as a model makes them for one token of up to
// sixteen texts:
//
//   C = act(A·Bᵀ + bias),  Pre = A·Bᵀ + bias     or     C ← C + A·Bᵀ + bias
//
// A is (rows, depth), of 16 bits, and B (columns, depth), packed. An element of B is widened to the
// type of A in registers, as packed.cu widens it; sums are float32. Compile for compute_80 with
// -DELEMENT=BF16 or F16.
//
// A block has 8·GROUPS columns. Its warps share the depth, one step after the other, and add up their
// sums in the order of the warps. A thread has 16 bytes of codes of a column at once, neighbours
// along the depth: mma.sync takes the depth in any order in which A and B agree.
#include "matmul.cuh"
#include "mma.cuh"
#include "packed.cuh"

struct PackedProduct {
  MatMulArguments product;
  Packed b;
};

constexpr int WARPS = 8, THREADS = 32 * WARPS, ROWS = 16;

// Own is what a thread has of a step: OWN neighbours of each of its columns, of one group or half of
// one, and what goes with them in A's rows lane/4 and lane/4 + 8.
template <PackedKind kind, int GROUPS> struct Own {
  static constexpr int OWN = kind == Int8 ? 16 : 32, DEPTH = 4 * OWN;
  uint4 codes[GROUPS];
  float scale[GROUPS];
  uint32_t a[2][OWN / 2];

  DEVICE void load(const PackedProduct& g, int column, int depth) {
    const int own = depth + lane() % 4 * OWN;
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
      const int j = column + n * 8 + lane() / 4;
      codes[n] = make_uint4(0, 0, 0, 0), scale[n] = 0;
      if (own < g.b.columns && j < g.b.rows) {
        const uint8_t* row = g.b.data + (int64_t)j * g.b.rowBytes;
        codes[n] = __ldcs((const uint4*)(row + (kind == Int8 ? own : own / 2)));
        scale[n] = scaleOf<kind>(g.b, row, own / PACKED_GROUP);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = lane() / 4 + 8 * half;
      const uint4* from = (const uint4*)((const uint16_t*)g.product.a.data + row * g.product.a.row + own);
#pragma unroll
      for (int n = 0; n < OWN / 8; n++) {
        const uint4 x = row < g.product.rows && own < g.b.columns ? from[n] : make_uint4(0, 0, 0, 0);
        a[half][4 * n] = x.x, a[half][4 * n + 1] = x.y, a[half][4 * n + 2] = x.z, a[half][4 * n + 3] = x.w;
      }
    }
  }

  static DEVICE uint32_t word(const uint4& v, int n) { return n == 0 ? v.x : n == 1 ? v.y : n == 2 ? v.z : v.w; }

  // four gives the elements 4·p to 4·p + 3 of a column.
  DEVICE void four(const float* numbers, int n, int p, float (&x)[4]) const {
    if constexpr (kind == NF4) {
      const uint32_t w = word(codes[n], p % 4) >> (p < 4 ? 0 : 4);
#pragma unroll
      for (int i = 0; i < 4; i++) x[i] = __fmul_rn(numbers[w >> 8 * i & 15], scale[n]);
    } else {
      // A byte below the exponent of 2^23 is a float that is that much larger than it.
      constexpr uint32_t magic = 0x4b000000;
      const uint32_t w = kind == Int8 ? word(codes[n], p) ^ 0x80808080 : word(codes[n], p % 4) >> (p < 4 ? 0 : 4) & 0x0f0f0f0f;
#pragma unroll
      for (int i = 0; i < 4; i++)
        x[i] = __fmul_rn(__uint_as_float(__byte_perm(w, magic, 0x7440 + i)) - (kind == Int8 ? 8388736.f : 8388616.f), scale[n]);
    }
  }

  DEVICE void multiply(const float* numbers, float (&sums)[GROUPS][4]) const {
#pragma unroll
    for (int p = 0; p < OWN / 4; p++) {
      const uint32_t pairs[4] = {a[0][2 * p], a[1][2 * p], a[0][2 * p + 1], a[1][2 * p + 1]};
#pragma unroll
      for (int n = 0; n < GROUPS; n++) {
        float x[4];
        four(numbers, n, p, x);
        multiplyAdd<ELEMENT>(sums[n], pairs, pack<ELEMENT>(x[0], x[1]), pack<ELEMENT>(x[2], x[3]));
      }
    }
  }
};

template <PackedKind kind, int GROUPS> DEVICE void multiplyPacked(const PackedProduct& g) {
  constexpr int COLUMNS = 8 * GROUPS, STRIDE = COLUMNS + 8;
  using Step = Own<kind, GROUPS>;
  __shared__ float numbers[16], ofWarps[WARPS][ROWS * STRIDE];
  if (threadIdx.x < 16) numbers[threadIdx.x] = g.b.numbers[threadIdx.x];
  __syncthreads();
  const int column = blockIdx.x * COLUMNS;
  float sums[GROUPS][4] = {};
  Step now, next;
  int depth = warp() * Step::DEPTH;
  now.load(g, column, depth);
  for (; depth < g.b.columns; depth += WARPS * Step::DEPTH) {
    next.load(g, column, depth + WARPS * Step::DEPTH);
    now.multiply(numbers, sums);
    now = next;
  }
#pragma unroll
  for (int n = 0; n < GROUPS; n++)
#pragma unroll
    for (int e = 0; e < 4; e++) ofWarps[warp()][(lane() / 4 + e / 2 * 8) * STRIDE + n * 8 + lane() % 4 * 2 + e % 2] = sums[n][e];
  __syncthreads();
  const MatMulArguments& p = g.product;
  const Output out(p, 0);
  for (int at = threadIdx.x; at < min(p.rows, ROWS) * COLUMNS; at += THREADS) {
    const int row = at / COLUMNS, j = column + at % COLUMNS;
    if (j >= p.columns) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) sum += ofWarps[w][row * STRIDE + at % COLUMNS];
    out.put(row, j, sum + (p.bias ? loadElement(p.bias, j, p.biasElement) : 0));
  }
}

#define ENTRY(name, kind, groups)                                                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS, 2) name##_##groups(const __grid_constant__ PackedProduct g) { \
    multiplyPacked<kind, groups>(g);                                                                                            \
  }
ENTRY(packed_rows_int8, Int8, 2)
ENTRY(packed_rows_int8, Int8, 4)
ENTRY(packed_rows_int4, Int4, 2)
ENTRY(packed_rows_int4, Int4, 4)
ENTRY(packed_rows_nf4, NF4, 2)
ENTRY(packed_rows_nf4, NF4, 4)
