// Matrix products of warps for every GPU since compute capability 8.0: tiles in shared memory, the
// instructions that move them (cp.async, ldmatrix) and multiply them (mma.sync), and the products
// of the attention kernels made from these.
//
// The kernels are written once for four kinds of arithmetic, the types BF16, F16, F32 and TF32
// below. All multiply operands of 16 bits and sum in float32.
//
// Floats become float16 of 11 bits, what TF32 keeps too, at twice its speed and half its size: F32
// takes two of them, 22 bits, TF32 one. So that the narrow range of float16 does, rows of a tile
// are multiplied by a power of two, which the padding of their row remembers the inverse of, and
// probabilities likewise when they become operands. The largest number that shares a power of two
// then lies in 2^14..2^15, and the error of a smaller one stays under 2^-40 of it (TF32: 2^-25).
//
// A warp's accumulator c[i][j][e] of a product with rows and columns counted within the warp's
// tile, with g = lane/4 and t = lane%4, lies at row 16i + g + 8·(e/2) and column 8j + 2t + e%2.
#pragma once
#include <type_traits>

#include "arguments.cuh"
#include "instructions.cuh"

// ---- arithmetic

// BYTES is the size of an element in device memory; PARTS is how many numbers of 16 bits, of type
// Part, stand for it in an operand.
struct BF16 {
  using Stored = __nv_bfloat16;
  using Part = __nv_bfloat16;
  static constexpr int BYTES = 2, PARTS = 1;
  static constexpr bool SCALED = false;
};
struct F16 {
  using Stored = __half;
  using Part = __half;
  static constexpr int BYTES = 2, PARTS = 1;
  static constexpr bool SCALED = false;
};
// F32 splits a float into two float16 and adds three products: hi·hi + hi·lo + lo·hi. What is left
// out, lo·lo, is 2^-22 of the product.
struct F32 {
  using Stored = float;
  using Part = __half;
  static constexpr int BYTES = 4, PARTS = 2;
  static constexpr bool SCALED = true;
};
struct TF32 {
  using Stored = float;
  using Part = __half;
  static constexpr int BYTES = 4, PARTS = 1;
  static constexpr bool SCALED = true;
};

// STEP is how many elements of the summed axis one mma.sync takes.
constexpr int STEP = 16;

DEVICE int lane() { return threadIdx.x % 32; }
DEVICE int warp() { return threadIdx.x / 32; }

// pack puts two numbers of 16 bits into a word, x at the lower address.
template <class E> DEVICE uint32_t pack(float x, float y) { return packed<typename E::Part>(x, y); }

// Parts are the words of two neighbouring numbers: the rounded numbers and, where there are two
// parts, what these lack.
struct Parts {
  uint32_t high, low;
};

template <class E> DEVICE Parts split(float x, float y) {
  Parts p = {pack<E>(x, y), 0};
  if constexpr (E::PARTS == 2) {
    const float2 taken = __half22float2(*(const __half2*)&p.high);
    p.low = pack<E>(x - taken.x, y - taken.y);
  }
  return p;
}

// ---- powers of two that bring numbers into the range of float16

// Power is a power of two and its inverse, both normal numbers.
struct Power {
  float up, down;

  // of is the one that brings magnitudes whose largest is most, a finite float, to 2^14..2^15. Tiny
  // ones stay under that.
  static DEVICE Power of(float most) {
    const uint32_t exponent = max(__float_as_uint(most) >> 23, 15u);
    return {__uint_as_float((268 - exponent) << 23), __uint_as_float((exponent - 14) << 23)};
  }
};

constexpr float INFINITE = __builtin_huge_valf();

// largest is the largest magnitude among the N numbers of every lane of the warp. What is not
// finite does not count.
template <int N> DEVICE float largest(const float (&x)[N]) {
  float most = 0;
#pragma unroll
  for (int n = 0; n < N; n++) most = fmaxf(most, fabsf(x[n]));  // fmaxf drops NaN
  most = __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(most)));
  if (most < INFINITE) return most;
  most = 0;
#pragma unroll
  for (int n = 0; n < N; n++)
    if (fabsf(x[n]) < INFINITE) most = fmaxf(most, fabsf(x[n]));
  return __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(most)));
}

// ---- fragments: what a lane holds of an operand

template <class E, int N> struct Fragment {
  uint32_t x[E::PARTS][N];
};

// multiplyAdd is one mma.sync of 16 rows, 8 columns and STEP.
template <class E> DEVICE void multiplyAdd(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same<E, BF16>::value)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// accumulate adds A·B for ROWS blocks of 16 rows and the two blocks of 8 columns from block first
// on; b holds two words a column block.
template <class E, int ROWS, int COLUMNS>
DEVICE void accumulate(float (&c)[ROWS][COLUMNS][4], const Fragment<E, 4> (&a)[ROWS], const Fragment<E, 4>& b,
                                           int first) {
#pragma unroll
  for (int product = E::PARTS == 1 ? 2 : 0; product < 3; product++)  // the small ones first
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int ofA = product == 0 ? 1 : 0, ofB = product == 1 ? 1 : 0;
        multiplyAdd<E>(c[i][first + j], a[i].x[ofA], b.x[ofB][2 * j], b.x[ofB][2 * j + 1]);
      }
}

// ---- tiles in shared memory

// Tile is rows of COLUMNS elements in shared memory, of BYTES each: as they come from device
// memory, or as operands, a row's first parts before its second ones. One access touches the same
// 16-byte unit of eight neighbouring rows, which must lie in different banks.
//
// By default 16 bytes of padding a row see to that: a row is an odd number of units. The padding
// also has room for four powers of two. Addresses of a warp's operands then differ by constants;
// but the 128 bytes that arrive from device memory at a time lie across two lines of shared memory,
// and writing them takes twice as long. With SWIZZLED there is no padding, the units of 128 bytes
// (of 64 where rows are an odd multiple of these) are permuted instead, and a tile begins at a
// multiple of 128 bytes.
template <class E, int COLUMNS, int BYTES = E::BYTES, bool SWIZZLED = false> struct Tile {
  static constexpr int STRIDE = COLUMNS * BYTES + (SWIZZLED ? 0 : 16);
  uint32_t base;  // shared memory address
  DEVICE uint32_t raw(int row, int column) const { return place(row, column * E::BYTES); }
  // at is the address of an operand's element, or of what lies more bytes behind it.
  DEVICE uint32_t at(int row, int column, int part = 0, int more = 0) const {
    return place(row, (part * COLUMNS + column) * 2, more);
  }
  DEVICE uint32_t power(int row, int index = 0) const {
    static_assert(!SWIZZLED, "powers are in the padding");
    return base + row * STRIDE + COLUMNS * BYTES + 4 * index;
  }

  // place is the address of a row's byte number byte + more.
  DEVICE uint32_t place(int row, int byte, int more = 0) const {
    if constexpr (!SWIZZLED) return base + row * STRIDE + byte + more;
    else return base + row * STRIDE + ((byte + more) ^ (STRIDE % 128 == 0 ? row & 7 : row >> 1 & 3) * 16);
  }
};

// OPERAND is how many bytes an element of an operand takes.
template <class E> constexpr int OPERAND = 2 * E::PARTS;

// rowsOperand loads the operand A of 16 rows from row on, a step from column on.
template <class E, int COLUMNS, int BYTES, bool SWIZZLED>
DEVICE void rowsOperand(Fragment<E, 4>& f, Tile<E, COLUMNS, BYTES, SWIZZLED> tile, int row, int column) {
#pragma unroll
  for (int part = 0; part < E::PARTS; part++) loadMatrix4(f.x[part], tile.at(row + lane() % 16, column, part, lane() / 16 * 16));
}

// columnsOperand loads the operand A whose 16 rows are the tile's columns from column on, a step of
// rows from row on.
template <class E, int COLUMNS, int BYTES, bool SWIZZLED>
DEVICE void columnsOperand(Fragment<E, 4>& f, Tile<E, COLUMNS, BYTES, SWIZZLED> tile, int row, int column) {
#pragma unroll
  for (int part = 0; part < E::PARTS; part++)
    loadMatrix4Transposed(f.x[part], tile.at(row + lane() % 8 + lane() / 16 * 8, column + lane() / 8 % 2 * 8, part));
}

// columnsOfTransposed loads the operand B whose 16 columns are rows from row on, a step from column
// on.
template <class E, int COLUMNS, int BYTES, bool SWIZZLED>
DEVICE void columnsOfTransposed(Fragment<E, 4>& f, Tile<E, COLUMNS, BYTES, SWIZZLED> tile, int row, int column) {
#pragma unroll
  for (int part = 0; part < E::PARTS; part++)
    loadMatrix4(f.x[part], tile.at(row + lane() % 8 + lane() / 16 * 8, column, part, lane() / 8 % 2 * 16));
}

// columnsOfRows loads the operand B whose 16 columns are the tile's from column on, a step of rows
// from row on.
template <class E, int COLUMNS, int BYTES, bool SWIZZLED>
DEVICE void columnsOfRows(Fragment<E, 4>& f, Tile<E, COLUMNS, BYTES, SWIZZLED> tile, int row, int column) {
#pragma unroll
  for (int part = 0; part < E::PARTS; part++)
    loadMatrix4Transposed(f.x[part], tile.at(row + lane() % 16, column + lane() / 16 * 8, part));
}

// ---- products
//
// mma.sync cuts sums off instead of rounding them, an error that grows with the number of steps.
// Products of two parts are therefore summed by ordinary additions, a few steps' at a time. So are
// other products of scaled operands where their powers change.

template <int ROWS, int COLUMNS> DEVICE void clear(float (&c)[ROWS][COLUMNS][4]) {
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[i][j][e] = 0;
}

// loadRowPowers reads the powers of the lane's rows in an accumulator whose rows are the tile's
// from row on.
template <int ROWS, class T> DEVICE void loadRowPowers(float (&powers)[ROWS][2], T tile, int row) {
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) powers[i][half] = loadSharedFloat(tile.power(row + 16 * i + lane() / 4 + 8 * half));
}
// columnPower is the power of the lane's two columns, which share it, in an accumulator whose
// columns are the tile's rows from row on.
template <class T> DEVICE float columnPower(T tile, int row) { return loadSharedFloat(tile.power(row + lane() % 4 * 2)); }

// withRowPowers and withColumnPowers put a tile's powers into an accumulator that is to be
// multiplied with the tile's rows: its rows, or its columns, are the tile's rows from row on.
// factor is one more.
template <int ROWS, int COLUMNS, class T>
DEVICE void withRowPowers(float (&out)[ROWS][COLUMNS][4], const float (&x)[ROWS][COLUMNS][4], T tile, int row,
                                              float factor = 1) {
  float powers[ROWS][2];
  loadRowPowers(powers, tile, row);
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    powers[i][0] *= factor, powers[i][1] *= factor;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) out[i][j][e] = x[i][j][e] * powers[i][e / 2];
  }
}
template <int ROWS, int COLUMNS, class T>
DEVICE void withColumnPowers(float (&out)[ROWS][COLUMNS][4], const float (&x)[ROWS][COLUMNS][4], T tile, int row,
                                                 float factor = 1) {
#pragma unroll
  for (int j = 0; j < COLUMNS; j++) {
    const float power = columnPower(tile, row + 8 * j) * factor;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) out[i][j][e] = x[i][j][e] * power;
  }
}

// scaleRows puts the powers of b's rows into an accumulator, and then its rows into the range of an
// operand. factors are what a product with b must be multiplied with.
template <class E, int ROWS, int COLUMNS, class T>
DEVICE void scaleRows(float (&x)[ROWS][COLUMNS][4], T b, float (&factors)[ROWS][2]) {
  withColumnPowers(x, x, b, 0);
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float most = 0;
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) most = fmaxf(most, fmaxf(x[i][j][2 * half], x[i][j][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, 2));
      const Power power = Power::of(most);
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) x[i][j][2 * half] *= power.up, x[i][j][2 * half + 1] *= power.up;
      factors[i][half] = power.down;
    }
}

// followUnit makes c's unit fit K rows of b: probabilities of at most highest times their powers,
// in this unit, are operands. The unit stays while it is neither too small nor much too large.
template <int K, int ROWS, int COLUMNS, class T>
DEVICE void followUnit(float (&c)[ROWS][COLUMNS][4], T b, float highest, float& unit) {
  float most = 0;
#pragma unroll
  for (int row = 0; row < K; row += 32) most = fmaxf(most, loadSharedFloat(b.power((row + lane()) % K)));
  most = __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(most)));
  const float least = fmaxf(most, 0x1p-100f) * (highest * 0x1p-14f);
  if (unit >= least && unit <= 0x1p6f * least) return;
  const float factor = unit / least;
  unit = least;
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[i][j][e] *= factor;
}

// transposedStep adds A·Bᵀ for one step, from column k on.
template <class E, int ROWS, int COLUMNS, int CA, int BA, bool SA, int CB, int BB, bool SB>
DEVICE void transposedStep(float (&c)[ROWS][COLUMNS][4], Tile<E, CA, BA, SA> a, int rowA, Tile<E, CB, BB, SB> b, int rowB,
                                               int k) {
  static_assert(COLUMNS % 2 == 0, "ldmatrix brings two column blocks");
  Fragment<E, 4> fa[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; i++) rowsOperand<E>(fa[i], a, rowA + 16 * i, k);
#pragma unroll
  for (int j = 0; j < COLUMNS; j += 2) {
    Fragment<E, 4> f;
    columnsOfTransposed<E>(f, b, rowB + 8 * j, k);
    accumulate<E>(c, fa, f, j);
  }
}

// unscale takes the powers of the rows of both tiles out of a product A·Bᵀ.
template <int ROWS, int COLUMNS, class A, class B>
DEVICE void unscale(float (&c)[ROWS][COLUMNS][4], A a, int rowA, B b, int rowB) {
  float ofA[ROWS][2];
  loadRowPowers(ofA, a, rowA);
#pragma unroll
  for (int j = 0; j < COLUMNS; j++) {
    const float ofB = columnPower(b, rowB + 8 * j);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[i][j][e] *= ofA[i][e / 2] * ofB;
  }
}

// multiplyTransposed writes A·Bᵀ: rows of a against rows of b, over K columns.
template <class E, int K, int ROWS, int COLUMNS, int CA, int BA, bool SA, int CB, int BB, bool SB>
DEVICE void multiplyTransposed(float (&c)[ROWS][COLUMNS][4], Tile<E, CA, BA, SA> a, int rowA, Tile<E, CB, BB, SB> b,
                                                   int rowB) {
  clear(c);
  if constexpr (E::PARTS == 1) {
#pragma unroll
    for (int k = 0; k < K; k += STEP) transposedStep<E>(c, a, rowA, b, rowB, k);
  } else {
#pragma unroll(ROWS == 1 ? 2 : 1)
    for (int first = 0; first < K; first += 2 * STEP) {
      float part[ROWS][COLUMNS][4];
      clear(part);
#pragma unroll
      for (int k = 0; k < 2 * STEP; k += STEP) transposedStep<E>(part, a, rowA, b, rowB, first + k);
#pragma unroll
      for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
          for (int e = 0; e < 4; e++) c[i][j][e] += part[i][j][e];
    }
  }
  if constexpr (E::SCALED) unscale(c, a, rowA, b, rowB);
}

// accumulateRows adds A·B for one step: B is the tile's rows from row on, its columns from columnB
// on.
template <class E, int ROWS, int COLUMNS, int CB, int BB, bool SB>
DEVICE void accumulateRows(float (&c)[ROWS][COLUMNS][4], const Fragment<E, 4> (&a)[ROWS], Tile<E, CB, BB, SB> b,
                                               int row, int columnB) {
#pragma unroll
  for (int j = 0; j < COLUMNS; j += 2) {
    Fragment<E, 4> f;
    columnsOfRows<E>(f, b, row, columnB + 8 * j);
    accumulate<E>(c, a, f, j);
  }
}

// accumulateScaled adds A·B over STEPS steps, its rows times their factors: B is the tile's rows
// from row on, its columns from columnB on.
template <class E, int STEPS, int ROWS, int COLUMNS, int CB, int BB, bool SB>
DEVICE void accumulateScaled(float (&c)[ROWS][COLUMNS][4], const Fragment<E, 4> (&a)[STEPS][ROWS],
                                                 Tile<E, CB, BB, SB> b, int row, int columnB, const float (&factors)[ROWS][2]) {
#pragma unroll
  for (int j = 0; j < COLUMNS; j += 2) {
    float part[ROWS][2][4];
    clear(part);
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      Fragment<E, 4> f;
      columnsOfRows<E>(f, b, row + STEP * step, columnB + 8 * j);
      accumulate<E>(part, a[step], f, 0);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) c[i][j + n][e] = fmaf(part[i][n][e], factors[i][e / 2], c[i][j + n][e]);
  }
}

// multiplyCell is accumulateScaled for an operand A that shares the power down.
template <class E, int STEPS, int ROWS, int COLUMNS, int CB, int BB, bool SB>
DEVICE void multiplyCell(float (&c)[ROWS][COLUMNS][4], const Fragment<E, 4> (&a)[STEPS][ROWS], float down,
                                             Tile<E, CB, BB, SB> b, int row, int columnB) {
  float factors[ROWS][2];
#pragma unroll
  for (int i = 0; i < ROWS; i++) factors[i][0] = factors[i][1] = down;
  accumulateScaled<E>(c, a, b, row, columnB, factors);
}

// multiplyRows adds A·B over K: rows of a from rowA on, against rows of b from 0 on. A scaled a has
// b's powers in it and consists of cells of CELL columns, each with a power.
template <class E, int K, int CELL, int ROWS, int COLUMNS, int CA, int BA, bool SA, int CB, int BB, bool SB>
DEVICE void multiplyRows(float (&c)[ROWS][COLUMNS][4], Tile<E, CA, BA, SA> a, int rowA, Tile<E, CB, BB, SB> b, int columnB) {
  if constexpr (E::SCALED) {
#pragma unroll
    for (int first = 0; first < K; first += CELL) {
      Fragment<E, 4> fa[CELL / STEP][ROWS];
#pragma unroll
      for (int step = 0; step < CELL / STEP; step++)
#pragma unroll
        for (int i = 0; i < ROWS; i++) rowsOperand<E>(fa[step][i], a, rowA + 16 * i, first + STEP * step);
      multiplyCell<E>(c, fa, loadSharedFloat(a.power(rowA, first / CELL)), b, first, columnB);
    }
  } else {
#pragma unroll
    for (int k = 0; k < K; k += STEP) {
      Fragment<E, 4> fa[ROWS];
#pragma unroll
      for (int i = 0; i < ROWS; i++) rowsOperand<E>(fa[i], a, rowA + 16 * i, k);
      accumulateRows<E>(c, fa, b, k, columnB);
    }
  }
}

// multiplyColumns adds Aᵀ·B over K: columns of a from columnA on, against rows of b from 0 on. A
// scaled a has b's powers in it and consists of cells of CELL rows, each with a power, that number
// cell of its rows, or (CELL = 0) is in c's unit.
template <class E, int K, int CELL, int ROWS, int COLUMNS, int CA, int BA, bool SA, int CB, int BB, bool SB>
DEVICE void multiplyColumns(float (&c)[ROWS][COLUMNS][4], Tile<E, CA, BA, SA> a, int columnA, int cell,
                                                Tile<E, CB, BB, SB> b, int columnB) {
  if constexpr (CELL > 0) {
#pragma unroll
    for (int first = 0; first < K; first += CELL) {
      Fragment<E, 4> fa[CELL / STEP][ROWS];
#pragma unroll
      for (int step = 0; step < CELL / STEP; step++)
#pragma unroll
        for (int i = 0; i < ROWS; i++) columnsOperand<E>(fa[step][i], a, first + STEP * step, columnA + 16 * i);
      multiplyCell<E>(c, fa, loadSharedFloat(a.power(first, cell)), b, first, columnB);
    }
  } else {
#pragma unroll
    for (int k = 0; k < K; k += STEP) {
      Fragment<E, 4> fa[ROWS];
#pragma unroll
      for (int i = 0; i < ROWS; i++) columnsOperand<E>(fa[i], a, k, columnA + 16 * i);
      accumulateRows<E>(c, fa, b, k, columnB);
    }
  }
}

// operandOf makes an operand A of two column blocks of an accumulator.
template <class E> DEVICE void operandOf(Fragment<E, 4>& f, const float (&x)[4], const float (&y)[4]) {
  const float pairs[4][2] = {{x[0], x[1]}, {x[2], x[3]}, {y[0], y[1]}, {y[2], y[3]}};
#pragma unroll
  for (int n = 0; n < 4; n++) {
    const Parts parts = split<E>(pairs[n][0], pairs[n][1]);
    f.x[0][n] = parts.high;
    if constexpr (E::PARTS == 2) f.x[1][n] = parts.low;
  }
}

// multiplyAccumulator adds A·B where A is an accumulator of K columns, of numbers up to 2^8. It
// leaves a changed. c is in units of unit if operands are scaled and have one part, 0 at first:
// they are then summed in place, and c follows b's powers.
template <class E, int K, int ROWS, int COLUMNS, int CB, int BB, bool SB>
DEVICE void multiplyAccumulator(float (&c)[ROWS][COLUMNS][4], float (&a)[ROWS][K / 8][4], Tile<E, CB, BB, SB> b,
                                                    float& unit) {
  if constexpr (E::SCALED && E::PARTS == 2) {
    float factors[ROWS][2];
    scaleRows<E>(a, b, factors);
    Fragment<E, 4> fa[K / STEP][ROWS];
#pragma unroll
    for (int step = 0; step < K / STEP; step++)
#pragma unroll
      for (int i = 0; i < ROWS; i++) operandOf<E>(fa[step][i], a[i][2 * step], a[i][2 * step + 1]);
    accumulateScaled<E>(c, fa, b, 0, 0, factors);
  } else {
    if constexpr (E::SCALED) {
      followUnit<K>(c, b, 256, unit);
      withColumnPowers(a, a, b, 0, 1 / unit);
    }
#pragma unroll
    for (int k = 0; k < K; k += STEP) {
      Fragment<E, 4> fa[ROWS];
#pragma unroll
      for (int i = 0; i < ROWS; i++) operandOf<E>(fa[i], a[i][k / 8], a[i][k / 8 + 1]);
      accumulateRows<E>(c, fa, b, k, 0);
    }
  }
}

// ---- from accumulators

// storeAccumulator makes operands of an accumulator block in the tile, its first element at (row,
// column).
template <class E, int ROWS, int COLUMNS, int CT, int BT, bool ST>
DEVICE void storeAccumulator(const float (&c)[ROWS][COLUMNS][4], Tile<E, CT, BT, ST> tile, int row, int column) {
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const Parts parts = split<E>(c[i][j][2 * half], c[i][j][2 * half + 1]);
        const uint32_t at = tile.at(row + 16 * i + lane() / 4 + 8 * half, column + 8 * j + lane() % 4 * 2);
        storeShared4(at, parts.high);
        if constexpr (E::PARTS == 2) storeShared4(at + 2 * CT, parts.low);
      }
}

// storeCell is storeAccumulator for a block that shares a power, which becomes number index of the
// tile's row. It leaves c changed.
template <class E, int ROWS, int COLUMNS, int CT, int BT, bool ST>
DEVICE void storeCell(float (&c)[ROWS][COLUMNS][4], Tile<E, CT, BT, ST> tile, int row, int column, int index) {
  const Power power = Power::of(largest((const float(&)[ROWS * COLUMNS * 4])c));
  if (lane() == 0) storeShared4(tile.power(row, index), __float_as_uint(power.down));
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[i][j][e] *= power.up;
  storeAccumulator<E>(c, tile, row, column);
}

// ---- between device memory and tiles

// copyAsync brings bytes of 16 and fills the rest with zeros.
DEVICE void copyAsync(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
DEVICE void copyCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// copyWait waits for all but the last PENDING groups of this thread's copies; a barrier must
// follow.
template <int PENDING> DEVICE void copyWait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// Matrix is rows of a tensor in device memory, all of one head of one sequence. What lies outside
// rows × columns reads as zero and is not written.
struct Matrix {
  void* data;
  int64_t stride;  // elements
  int rows, columns;

  // aligned tells whether rows can be accessed 16 bytes at a time.
  template <class E> DEVICE bool aligned() const {
    return (((uint64_t)data | (uint64_t)(stride * E::BYTES)) & 15) == 0;
  }
};

template <class E> DEVICE Matrix matrixOf(const Rows& t, int batch, int head, int first, int rows, int columns) {
  return {(typename E::Stored*)t.data + batch * t.batch + head * t.head + first * t.row, t.row, rows, columns};
}

// loadTile starts to bring ROWS rows from row on into the tile, which is complete after copyCommit,
// copyWait and a barrier. Of floats a warp brings a share of neighbouring rows, which is complete
// for this warp without the barrier. Rows that start at any address are brought element by element:
// slow, and meant to be rare.
template <class E, int ROWS, int WARPS, int COLUMNS, bool SWIZZLED>
DEVICE void loadTile(Tile<E, COLUMNS, E::BYTES, SWIZZLED> tile, const Matrix& m, int row) {
  // Neighbouring threads bring neighbouring units of 16 bytes: SPAN threads a row, as many as
  // divide it evenly. SHARE rows are brought by THREADS threads, of which this is number me.
  constexpr int EACH = 16 / E::BYTES, UNITS = COLUMNS / EACH, LARGEST = UNITS & -UNITS, SPAN = LARGEST < 32 ? LARGEST : 32;
  constexpr int SHARE = E::SCALED ? ROWS / WARPS : ROWS, THREADS = E::SCALED ? 32 : 32 * WARPS, PASS = THREADS / SPAN;
  static_assert(ROWS % WARPS == 0);
  const int share = E::SCALED ? warp() * SHARE : 0, me = E::SCALED ? lane() : threadIdx.x;
  const int r = share + me / SPAN, c = me % SPAN * EACH;
  if (m.aligned<E>()) {
    const typename E::Stored* from = (typename E::Stored*)m.data + (row + r) * m.stride + c;
    const int64_t step = PASS * m.stride;
    if (SHARE % PASS == 0 && row + ROWS <= m.rows && m.columns == COLUMNS) {
#pragma unroll
      for (int n = 0; n < SHARE / PASS; n++) {
#pragma unroll
        for (int u = 0; u < UNITS; u += SPAN) copyAsync(tile.raw(n * PASS + r, c + u * EACH), from + u * EACH, 16);
        from += step;
        asm volatile("" : "+l"(from));  // one pointer that moves, not many that take registers
      }
    } else {
#pragma unroll 1
      for (int n = 0; n < SHARE; n += PASS, from += step)
#pragma unroll 1
        for (int u = 0; u < UNITS; u += SPAN) {
          if (n + me / SPAN >= SHARE) break;
          const int bytes = row + n + r < m.rows ? min(16, max(0, m.columns - c - u * EACH) * E::BYTES) : 0;
          copyAsync(tile.raw(n + r, c + u * EACH), bytes ? from + u * EACH : (typename E::Stored*)m.data, bytes);
        }
    }
  } else {
    using Bits = typename std::conditional<E::BYTES == 2, uint16_t, uint32_t>::type;
    constexpr int WORDS = COLUMNS * E::BYTES / 4;
#pragma unroll 1
    for (int word = me; word < SHARE * WORDS; word += THREADS) {
      const int n = share + word / WORDS, first = word % WORDS * 4 / E::BYTES;
      const Bits* from = (const Bits*)m.data + (row + n) * m.stride + first;
      uint32_t x = 0;
      if (row + n < m.rows && first < m.columns) x = from[0];
      if (E::BYTES == 2 && row + n < m.rows && first + 1 < m.columns) x |= (uint32_t)from[1] << 16;
      storeShared4(tile.raw(n, first), x);
    }
  }
}

// settle makes operands of ROWS rows of floats: each warp of the share of rows that it brought,
// which must be there. Four or eight neighbouring rows share a power. Both tiles may be at the same
// place; if not, what arrives may be overwritten by the same loadTile afterwards. A barrier must
// follow. Elements of 16 bits are operands as they are.
template <class E, int ROWS, int WARPS, int COLUMNS, int BYTES, bool SWIZZLED>
DEVICE void settle(Tile<E, COLUMNS, E::BYTES, SWIZZLED> from, Tile<E, COLUMNS, BYTES, SWIZZLED> to, int rowTo = 0) {
  if constexpr (E::SCALED) {
    // A warp reads passes of 32 units of 4 floats; PASSES are the TOGETHER rows that share a power.
    constexpr int UNITS = COLUMNS / 4, SHARE = ROWS / WARPS, TOGETHER = UNITS <= 32 ? 8 : 4, PASSES = TOGETHER * UNITS / 32;
    static_assert(SHARE % TOGETHER == 0 && TOGETHER * UNITS % 32 == 0);
    __syncwarp();
#pragma unroll(UNITS <= 16 && SHARE > TOGETHER ? 2 : 1)
    for (int row = warp() * SHARE; row < (warp() + 1) * SHARE; row += TOGETHER) {
      float x[4 * PASSES];
#pragma unroll
      for (int pass = 0; pass < PASSES; pass++) {
        const int unit = 32 * pass + lane();
        const uint4 words = loadShared16(from.raw(row + unit / UNITS, unit % UNITS * 4));
        x[4 * pass] = __uint_as_float(words.x), x[4 * pass + 1] = __uint_as_float(words.y);
        x[4 * pass + 2] = __uint_as_float(words.z), x[4 * pass + 3] = __uint_as_float(words.w);
      }
      const Power power = Power::of(largest(x));
      const int first = rowTo + row;
      __syncwarp();
      if (lane() < TOGETHER) storeShared4(to.power(first + lane()), __float_as_uint(power.down));
#pragma unroll
      for (int pass = 0; pass < PASSES; pass++) {
        const int unit = 32 * pass + lane();
        const float* y = x + 4 * pass;
        const Parts left = split<E>(y[0] * power.up, y[1] * power.up), right = split<E>(y[2] * power.up, y[3] * power.up);
        const uint32_t at = to.at(first + unit / UNITS, unit % UNITS * 4);
        storeShared8(at, left.high, right.high);
        if constexpr (E::PARTS == 2) storeShared8(at + 2 * COLUMNS, left.low, right.low);
      }
    }
  }
}

// storeRows writes the tile's rows from..from+count, elements of 16 bits, to the matrix from row
// on, by THREADS threads of which this is number me.
template <class E, int THREADS, int COLUMNS, bool SWIZZLED>
DEVICE void storeRows(Tile<E, COLUMNS, E::BYTES, SWIZZLED> tile, int from, int count, const Matrix& m, int row, int me) {
  constexpr int UNITS = COLUMNS / 8;
  const bool aligned = m.aligned<E>();
#pragma unroll 1
  for (int unit = me; unit < count * UNITS; unit += THREADS) {
    const int r = unit / UNITS, c = unit % UNITS * 8;
    if (row + r >= m.rows || c >= m.columns) continue;
    const uint4 words = loadShared16(tile.at(from + r, c));
    uint16_t* to = (uint16_t*)m.data + (row + r) * m.stride + c;
    if (aligned && c + 8 <= m.columns) {
      *(uint4*)to = words;
    } else {
      const uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int e = 0; e < 8; e++)
        if (c + e < m.columns) to[e] = (uint16_t)(w[e / 2] >> (e % 2 * 16));
    }
  }
}

// storeFloats writes an accumulator block to the matrix, its first element to (row, column): four
// lanes 32 bytes of a row.
template <int ROWS, int COLUMNS>
DEVICE void storeFloats(const float (&c)[ROWS][COLUMNS][4], const Matrix& m, int row, int column) {
  const bool pairs = (((uint64_t)m.data | (uint64_t)(m.stride * 4)) & 7) == 0;
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int r = row + 16 * i + lane() / 4 + 8 * half, first = column + lane() % 4 * 2;
      if (r >= m.rows) continue;
      float* to = (float*)m.data + r * m.stride + first;
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) {
        const float x = c[i][j][2 * half], y = c[i][j][2 * half + 1];
        if (pairs && first + 8 * j + 1 < m.columns) {
          *(float2*)(to + 8 * j) = make_float2(x, y);
        } else {
          if (first + 8 * j < m.columns) to[8 * j] = x;
          if (first + 8 * j + 1 < m.columns) to[8 * j + 1] = y;
        }
      }
    }
}
