// Matrix products of warps for every GPU since compute capability 8.0: tiles in shared memory, the instructions that move
// them (cp.async, ldmatrix) and multiply them (mma.sync), and the products of the attention kernels made from these.
//
// The kernels are written once for four kinds of arithmetic, the types BF16, F16, F32 and TF32 below. What makes that
// possible: mma.sync's fragments are the same for all in bytes. One product step covers 32 bytes of the summed axis: 16
// elements of 16 bits, 8 of 32.
//
// A warp's accumulator c[i][j][e] of a product with rows and columns counted within the warp's tile, with g = lane/4 and
// t = lane%4, lies at row 16i + g + 8·(e/2) and column column<W>(j, t, e%2).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include <type_traits>

#include "arguments.cuh"

// ---- arithmetic

// Elements of 16 bits are multiplied as they are and summed in float32.
struct BF16 {
  using Stored = __nv_bfloat16;
  static constexpr int BYTES = 2;
  static constexpr bool SPLIT = false;
};
struct F16 {
  using Stored = __half;
  static constexpr int BYTES = 2;
  static constexpr bool SPLIT = false;
};
// F32 splits a float into two with 11 bits each and adds three products: hi·hi + hi·lo + lo·hi. What is left out, lo·lo, is
// 2^-22 of the product.
struct F32 {
  using Stored = float;
  static constexpr int BYTES = 4;
  static constexpr bool SPLIT = true;
};
// TF32 rounds a float to 11 bits.
struct TF32 {
  using Stored = float;
  static constexpr int BYTES = 4;
  static constexpr bool SPLIT = false;
};

// STEP is how many elements of the summed axis one mma.sync takes.
template <class E> constexpr int STEP = 32 / E::BYTES;

template <class E> __device__ __forceinline__ typename E::Stored narrow(float x);
template <> __device__ __forceinline__ __nv_bfloat16 narrow<BF16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ __half narrow<F16>(float x) { return __float2half_rn(x); }
template <> __device__ __forceinline__ float narrow<F32>(float x) { return x; }
template <> __device__ __forceinline__ float narrow<TF32>(float x) { return x; }

// pack puts two elements of 16 bits into a word, x at the lower address.
template <class E> __device__ __forceinline__ uint32_t pack(float x, float y);
template <> __device__ __forceinline__ uint32_t pack<BF16>(float x, float y) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
  return r;
}
template <> __device__ __forceinline__ uint32_t pack<F16>(float x, float y) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
  return r;
}

// exp2Fast is 2^x to two units in the last place; 0 for -inf.
__device__ __forceinline__ float exp2Fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- fragments: what a lane holds of an operand

template <class E, int N> struct Fragment {
  uint32_t x[N], low[E::SPLIT ? N : 1];

  // settle turns loaded floats into what mma.sync takes: 11 bits in x, the rest in low. Elements of 16 bits stay.
  //
  // mma.sync cuts off what it does not take. A float is therefore first enlarged by 0.35 to 0.7 of the 11 bits' last place,
  // which makes the cut a rounding without bias, leaves numbers of 11 bits alone, and keeps NaN and infinity.
  __device__ __forceinline__ void settle() {
    if constexpr (E::BYTES == 4) {
#pragma unroll
      for (int i = 0; i < N; i++) {
        const float whole = __uint_as_float(x[i]);
        x[i] = __float_as_uint(whole * (1 + 0.7f / 2048));
        if constexpr (E::SPLIT) {
          x[i] &= 0xffffe000;
          low[i] = __float_as_uint(whole - __uint_as_float(x[i]));
        }
      }
    }
  }
};

template <class E> __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <> __device__ __forceinline__ void mma<BF16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void mma<F16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void mma<TF32>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// accumulate adds A·B for ROWS blocks of 16 rows and N blocks of 8 columns, the first of which is column block first.
// b holds two words a column block.
//
// mma.sync cuts sums off instead of rounding them, an error that grows with the number of steps. Split products are
// therefore summed by ordinary additions, one step's at a time.
template <class E, int ROWS, int COLUMNS, int N>
__device__ __forceinline__ void accumulate(float (&c)[ROWS][COLUMNS][4], const Fragment<E, 4> (&a)[ROWS],
                                           const Fragment<E, 2 * N>& b, int first) {
  if constexpr (E::SPLIT) {
    static_assert(N % 2 == 0);
#pragma unroll
    for (int pair = 0; pair < N; pair += 2) {
      float part[ROWS][2][4] = {};
#pragma unroll
      for (int product = 0; product < 3; product++)  // the small ones first
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
          for (int j = 0; j < 2; j++) {
            const uint32_t(&words)[2 * N] = product == 1 ? b.low : b.x;
            mma<TF32>(part[i][j], product == 0 ? a[i].low : a[i].x, words[2 * (pair + j)], words[2 * (pair + j) + 1]);
          }
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) c[i][first + pair + j][e] += part[i][j][e];
    }
  } else {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < N; j++) mma<E>(c[i][first + j], a[i].x, b.x[2 * j], b.x[2 * j + 1]);
  }
}

// ---- tiles in shared memory

__device__ __forceinline__ int lane() { return threadIdx.x % 32; }
__device__ __forceinline__ int warp() { return threadIdx.x / 32; }

// Tile is rows of COLUMNS elements in shared memory. 16 bytes of padding a row put the rows that one access touches into
// different banks: COLUMNS·BYTES is a multiple of 32, so a row is an odd number of 16-byte units.
template <class E, int COLUMNS> struct Tile {
  static constexpr int STRIDE = COLUMNS * E::BYTES + 16;
  uint32_t base;  // shared memory address
  __device__ __forceinline__ uint32_t at(int row, int column) const { return base + row * STRIDE + column * E::BYTES; }
};

__device__ __forceinline__ void ldmatrix(uint32_t* r, uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void ldmatrixTransposed(uint32_t* r, uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ uint32_t loadWord(uint32_t at) {
  uint32_t r;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(r) : "r"(at) : "memory");
  return r;
}
__device__ __forceinline__ uint2 loadWords2(uint32_t at) {
  uint2 r;
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(r.x), "=r"(r.y) : "r"(at) : "memory");
  return r;
}
__device__ __forceinline__ uint4 loadWords4(uint32_t at) {
  uint4 r;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(at) : "memory");
  return r;
}
__device__ __forceinline__ void storeWord(uint32_t at, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory");
}
__device__ __forceinline__ void storeWords2(uint32_t at, uint32_t x, uint32_t y) {
  asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(at), "r"(x), "r"(y) : "memory");
}

// The order of the summed axis is free as long as both operands agree. Two orders are in use. Plain: mma.sync's own, which
// ldmatrix gives. Paired, for products that sum over an operand's rows: a step of 8 floats takes them as (0, 2, 4, 6, 1, 3,
// 5, 7), so that an accumulator is an operand as it stands. For 16-bit elements an accumulator already is one, and paired is
// plain.

// rowsOperand loads the operand A of 16 rows from row on, a step from column on. Plain.
template <class E, int COLUMNS>
__device__ __forceinline__ void rowsOperand(Fragment<E, 4>& f, Tile<E, COLUMNS> tile, int row, int column) {
  ldmatrix(f.x, tile.at(row + lane() % 16, column) + lane() / 16 * 16);
  f.settle();
}

// columnsOfTransposed loads the operand B whose 16 columns are rows from row on, a step from column on. Plain.
template <class E, int COLUMNS>
__device__ __forceinline__ void columnsOfTransposed(Fragment<E, 4>& f, Tile<E, COLUMNS> tile, int row, int column) {
  ldmatrix(f.x, tile.at(row + lane() % 8 + lane() / 16 * 8, column) + lane() / 8 % 2 * 16);
  f.settle();
}

// rowsOperandPaired is rowsOperand in paired order.
template <class E, int COLUMNS>
__device__ __forceinline__ void rowsOperandPaired(Fragment<E, 4>& f, Tile<E, COLUMNS> tile, int row, int column) {
  if constexpr (E::BYTES == 2) {
    rowsOperand<E>(f, tile, row, column);
  } else {
    const uint32_t at = tile.at(row + lane() / 4, column + lane() % 4 * 2);
    const uint2 upper = loadWords2(at), lower = loadWords2(at + 8 * tile.STRIDE);
    f.x[0] = upper.x, f.x[1] = lower.x, f.x[2] = upper.y, f.x[3] = lower.y;
    f.settle();
  }
}

// columnsOperandPaired loads the operand A whose 16 rows are the tile's columns from column on, a step of rows from row on.
template <class E, int COLUMNS>
__device__ __forceinline__ void columnsOperandPaired(Fragment<E, 4>& f, Tile<E, COLUMNS> tile, int row, int column) {
  if constexpr (E::BYTES == 2) {
    ldmatrixTransposed(f.x, tile.at(row + lane() % 8 + lane() / 16 * 8, column + lane() / 8 % 2 * 8));
  } else {
    const uint32_t at = tile.at(row + lane() % 4 * 2, column + lane() / 4);
    f.x[0] = loadWord(at), f.x[1] = loadWord(at + 32);
    f.x[2] = loadWord(at + tile.STRIDE), f.x[3] = loadWord(at + tile.STRIDE + 32);
    f.settle();
  }
}

// WIDE<E, N> is the W of a product with N columns whose operand B is read along its rows: a lane reads W neighbouring floats at
// once and takes them for W column blocks. Elements of 16 bits come through ldmatrix, in order.
template <class E, int N> constexpr int WIDE = E::BYTES == 2 ? 1 : N % 32 == 0 ? 4 : 2;

template <int W> __device__ __forceinline__ int column(int block, int t, int e) {
  return block / W * 8 * W + W * (2 * t + e) + block % W;
}

// UNROLL is how many of the steps along K are unrolled: split products fill the instruction cache and the registers sooner.
template <class E, int K> constexpr int UNROLL = E::SPLIT ? 2 : K / STEP<E>;

// accumulateTransposed adds A·Bᵀ for one step: B is the tile's rows from row on, a step from column k on. Plain order.
template <class E, int ROWS, int COLUMNS, int CB>
__device__ __forceinline__ void accumulateTransposed(float (&c)[ROWS][COLUMNS][4], const Fragment<E, 4> (&a)[ROWS], Tile<E, CB> b,
                                                     int row, int k) {
  static_assert(COLUMNS % 2 == 0, "ldmatrix brings two column blocks");
#pragma unroll
  for (int j = 0; j < COLUMNS; j += 2) {
    Fragment<E, 4> f;
    columnsOfTransposed<E>(f, b, row + 8 * j, k);
    accumulate<E, ROWS, COLUMNS, 2>(c, a, f, j);
  }
}

// multiplyTransposed adds A·Bᵀ: rows of a against rows of b, over K columns. Plain order on both sides.
template <class E, int K, int ROWS, int COLUMNS, int CA, int CB>
__device__ __forceinline__ void multiplyTransposed(float (&c)[ROWS][COLUMNS][4], Tile<E, CA> a, int rowA, Tile<E, CB> b, int rowB) {
#pragma unroll(UNROLL<E, K>)
  for (int k = 0; k < K; k += STEP<E>) {
    Fragment<E, 4> fa[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) rowsOperand<E>(fa[i], a, rowA + 16 * i, k);
    accumulateTransposed<E>(c, fa, b, rowB, k);
  }
}

// accumulateRows adds A·B for one step: B is the tile's rows from row on, its columns from columnB on. Paired order.
template <class E, int ROWS, int COLUMNS, int CB>
__device__ __forceinline__ void accumulateRows(float (&c)[ROWS][COLUMNS][4], const Fragment<E, 4> (&a)[ROWS], Tile<E, CB> b,
                                               int row, int columnB) {
  if constexpr (E::BYTES == 2) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j += 2) {
      Fragment<E, 4> f;
      ldmatrixTransposed(f.x, b.at(row + lane() % 16, columnB + 8 * j + lane() / 16 * 8));
      accumulate<E, ROWS, COLUMNS, 2>(c, a, f, j);
    }
  } else {
    constexpr int W = WIDE<E, 8 * COLUMNS>;
    const uint32_t at = b.at(row + lane() % 4 * 2, columnB + lane() / 4 * W);
#pragma unroll
    for (int j = 0; j < COLUMNS; j += W) {
      Fragment<E, 2 * W> f;
      if constexpr (W == 4) {
        const uint4 even = loadWords4(at + 32 * j), odd = loadWords4(at + 32 * j + b.STRIDE);
        f.x[0] = even.x, f.x[1] = odd.x, f.x[2] = even.y, f.x[3] = odd.y;
        f.x[4] = even.z, f.x[5] = odd.z, f.x[6] = even.w, f.x[7] = odd.w;
      } else {
        const uint2 even = loadWords2(at + 32 * j), odd = loadWords2(at + 32 * j + b.STRIDE);
        f.x[0] = even.x, f.x[1] = odd.x, f.x[2] = even.y, f.x[3] = odd.y;
      }
      f.settle();
      accumulate<E, ROWS, COLUMNS, W>(c, a, f, j);
    }
  }
}

// multiplyRows adds A·B over K: rows of a from rowA on, against rows of b from 0 on.
template <class E, int K, int ROWS, int COLUMNS, int CA, int CB>
__device__ __forceinline__ void multiplyRows(float (&c)[ROWS][COLUMNS][4], Tile<E, CA> a, int rowA, Tile<E, CB> b, int columnB) {
#pragma unroll(UNROLL<E, K>)
  for (int k = 0; k < K; k += STEP<E>) {
    Fragment<E, 4> fa[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) rowsOperandPaired<E>(fa[i], a, rowA + 16 * i, k);
    accumulateRows<E>(c, fa, b, k, columnB);
  }
}

// multiplyColumns adds Aᵀ·B over K: columns of a from columnA on, against rows of b from 0 on.
template <class E, int K, int ROWS, int COLUMNS, int CA, int CB>
__device__ __forceinline__ void multiplyColumns(float (&c)[ROWS][COLUMNS][4], Tile<E, CA> a, int columnA, Tile<E, CB> b, int columnB) {
#pragma unroll(UNROLL<E, K>)
  for (int k = 0; k < K; k += STEP<E>) {
    Fragment<E, 4> fa[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) columnsOperandPaired<E>(fa[i], a, k, columnA + 16 * i);
    accumulateRows<E>(c, fa, b, k, columnB);
  }
}

// multiplyAccumulator adds A·B where A is an accumulator of K columns (of a product in order, W = 1).
template <class E, int K, int ROWS, int COLUMNS, int CB>
__device__ __forceinline__ void multiplyAccumulator(float (&c)[ROWS][COLUMNS][4], const float (&a)[ROWS][K / 8][4], Tile<E, CB> b) {
#pragma unroll
  for (int k = 0; k < K; k += STEP<E>) {
    Fragment<E, 4> fa[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
      const float(&x)[4] = a[i][k / 8];
      if constexpr (E::BYTES == 2) {
        const float(&y)[4] = a[i][k / 8 + 1];
        fa[i].x[0] = pack<E>(x[0], x[1]), fa[i].x[1] = pack<E>(x[2], x[3]);
        fa[i].x[2] = pack<E>(y[0], y[1]), fa[i].x[3] = pack<E>(y[2], y[3]);
      } else {
        fa[i].x[0] = __float_as_uint(x[0]), fa[i].x[1] = __float_as_uint(x[2]);
        fa[i].x[2] = __float_as_uint(x[1]), fa[i].x[3] = __float_as_uint(x[3]);
        fa[i].settle();
      }
    }
    accumulateRows<E>(c, fa, b, k, 0);
  }
}

// storeAccumulator narrows an accumulator into the tile, its first element at (row, col).
template <class E, int W, int ROWS, int COLUMNS, int CT>
__device__ __forceinline__ void storeAccumulator(const float (&c)[ROWS][COLUMNS][4], Tile<E, CT> tile, int row, int col) {
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const float x = c[i][j][2 * half], y = c[i][j][2 * half + 1];
        const uint32_t at = tile.at(row + 16 * i + lane() / 4 + 8 * half, col + column<W>(j, lane() % 4, 0));
        if constexpr (E::BYTES == 2) storeWord(at, pack<E>(x, y));
        else if constexpr (W == 1) storeWords2(at, __float_as_uint(x), __float_as_uint(y));
        else storeWord(at, __float_as_uint(x)), storeWord(at + 4 * W, __float_as_uint(y));
      }
}

// ---- between device memory and tiles

// copyAsync brings bytes of 16 and fills the rest with zeros.
__device__ __forceinline__ void copyAsync(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copyCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// copyWait waits for all but the last PENDING groups of this thread's copies; a barrier must follow.
template <int PENDING> __device__ __forceinline__ void copyWait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// Matrix is rows of a tensor in device memory, all of one head of one sequence. What lies outside rows × columns reads as
// zero and is not written.
struct Matrix {
  void* data;
  int64_t stride;  // elements
  int rows, columns;

  // aligned tells whether rows can be accessed 16 bytes at a time.
  template <class E> __device__ __forceinline__ bool aligned() const {
    return (((uint64_t)data | (uint64_t)(stride * E::BYTES)) & 15) == 0;
  }
};

template <class E> __device__ __forceinline__ Matrix matrixOf(const Rows& t, int batch, int head, int first, int rows, int columns) {
  return {(typename E::Stored*)t.data + batch * t.batch + head * t.head + first * t.row, t.row, rows, columns};
}

// loadTile starts to bring ROWS rows from row on into the tile. It is complete after copyCommit, copyWait and a barrier.
// Rows that start at any address are brought element by element: slow, and meant to be rare.
template <class E, int ROWS, int THREADS, int COLUMNS>
__device__ __forceinline__ void loadTile(Tile<E, COLUMNS> tile, const Matrix& m, int row) {
  // Neighbouring threads bring neighbouring units of 16 bytes: SPAN threads a row, as many as divide it evenly.
  constexpr int EACH = 16 / E::BYTES, UNITS = COLUMNS / EACH, SPAN = UNITS & -UNITS, PASS = THREADS / SPAN;
  static_assert(THREADS % SPAN == 0);
  const int r = threadIdx.x / SPAN, c = threadIdx.x % SPAN * EACH;
  if (m.aligned<E>()) {
    const typename E::Stored* from = (typename E::Stored*)m.data + (row + r) * m.stride + c;
    const int64_t step = PASS * m.stride;
    if (ROWS % PASS == 0 && row + ROWS <= m.rows && m.columns == COLUMNS) {
#pragma unroll
      for (int n = 0; n < ROWS / PASS; n++) {
#pragma unroll
        for (int u = 0; u < UNITS; u += SPAN) copyAsync(tile.at(n * PASS + r, c + u * EACH), from + u * EACH, 16);
        from += step;
        asm volatile("" : "+l"(from));  // one pointer that moves, not many that take registers
      }
    } else {
#pragma unroll 1
      for (int n = 0; n < ROWS; n += PASS, from += step)
#pragma unroll 1
        for (int u = 0; u < UNITS; u += SPAN) {
          if (n + r >= ROWS) break;
          const int bytes = row + n + r < m.rows ? min(16, max(0, m.columns - c - u * EACH) * E::BYTES) : 0;
          copyAsync(tile.at(n + r, c + u * EACH), bytes ? from + u * EACH : (typename E::Stored*)m.data, bytes);
        }
    }
  } else {
    using Bits = typename std::conditional<E::BYTES == 2, uint16_t, uint32_t>::type;
    constexpr int WORDS = COLUMNS * E::BYTES / 4;
#pragma unroll 1
    for (int word = threadIdx.x; word < ROWS * WORDS; word += THREADS) {
      const int n = word / WORDS, first = word % WORDS * 4 / E::BYTES;
      const Bits* from = (const Bits*)m.data + (row + n) * m.stride + first;
      uint32_t x = 0;
      if (row + n < m.rows && first < m.columns) x = from[0];
      if (E::BYTES == 2 && row + n < m.rows && first + 1 < m.columns) x |= (uint32_t)from[1] << 16;
      storeWord(tile.at(n, first), x);
    }
  }
}

// storeRows writes the tile's rows from..from+count to the matrix from row on, by THREADS threads of which this is number me.
template <class E, int THREADS, int COLUMNS>
__device__ __forceinline__ void storeRows(Tile<E, COLUMNS> tile, int from, int count, const Matrix& m, int row, int me) {
  constexpr int EACH = 16 / E::BYTES, UNITS = COLUMNS / EACH;
  const bool aligned = m.aligned<E>();
#pragma unroll 1
  for (int unit = me; unit < count * UNITS; unit += THREADS) {
    const int r = unit / UNITS, c = unit % UNITS * EACH;
    if (row + r >= m.rows || c >= m.columns) continue;
    const uint4 words = loadWords4(tile.at(from + r, c));
    typename E::Stored* to = (typename E::Stored*)m.data + (row + r) * m.stride + c;
    if (aligned && c + EACH <= m.columns) {
      *(uint4*)to = words;
    } else {
      const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int e = 0; e < EACH; e++) {
        if (c + e >= m.columns) continue;
        if constexpr (E::BYTES == 2) ((uint16_t*)to)[e] = (uint16_t)(w[e / 2] >> (e % 2 * 16));
        else ((uint32_t*)to)[e] = w[e];
      }
    }
  }
}
