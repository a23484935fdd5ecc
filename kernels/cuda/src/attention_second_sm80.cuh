// The products of attention's second derivatives by mma.sync, for any device since compute
// capability 8.0: what attention_second.cu asks of them. Each product is there when its call ends.
#pragma once
#include "attention_sm80.cuh"
#include "mma_signed.cuh"

// Operand is a tile of ROWS rows in shared memory.
template <class E, int D, int ROWS> struct Operand : Tile<E, D> {
  static constexpr int BYTES = ROWS * Tile<E, D>::STRIDE;
  DEVICE Operand(uint32_t base) : Tile<E, D>{base} {}

  // load starts to bring the tile; settle makes an operand of what is there.
  template <int WARPS> DEVICE void load(const Matrix& m, int row) const { loadTile<E, ROWS, WARPS>(*this, m, row); }
  template <int WARPS> DEVICE void settle() const { ::settle<E, ROWS, WARPS>(*this, *this); }
  // pass writes 16 rows of the warp, of 16 bits, through the tile.
  template <int COLUMNS> DEVICE void pass(const float (&c)[1][COLUMNS][4], const Matrix& to, int row) const {
    storeAccumulator<E>(c, *this, 16 * warp(), 0);
    __syncwarp();
    storeRows<E, 32>(*this, 16 * warp(), 16, to, row + 16 * warp(), lane());
  }
};

// Weights is an operand A of COLUMNS·8 columns that a warp has made of sums.
template <class E, int COLUMNS> struct Weights {
  Fragment<E, 4> f[COLUMNS / 2][1];
  DEVICE Weights(const float (&x)[1][COLUMNS][4]) {
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) operandOf<E>(f[i][0], x[0][2 * i], x[0][2 * i + 1]);
  }
};
template <int COLUMNS> struct Weights<F32, COLUMNS> {
  float x[1][COLUMNS][4];
  DEVICE Weights(const float (&from)[1][COLUMNS][4]) {
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) x[0][j][e] = from[0][j][e];
  }
};

// Products starts products of the warp's 16 rows.
template <class E, int D, int OWN, int OTHER> struct Products {
  static constexpr uint32_t ALIGNMENT = 16;
  static constexpr int COLUMNS = OTHER / 8;
  static constexpr bool GOES_ON = false;  // a warp does while its products are made
  using Own = Operand<E, D, OWN>;
  using Other = Operand<E, D, OTHER>;
  using Block = float[1][COLUMNS][4];

  // start starts A·Bᵀ, startMore adds to it.
  static DEVICE void start(Block& c, Own a, Other b) { multiplyTransposed<E, D>(c, (Tile<E, D>)a, 16 * warp(), (Tile<E, D>)b, 0); }
  static DEVICE void startMore(Block& c, Own a, Other b) {
    if constexpr (E::SCALED) {
      Block part;
      start(part, a, b);
#pragma unroll
      for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) c[0][j][e] += part[0][j][e];
    } else {
#pragma unroll
      for (int k = 0; k < D; k += STEP) transposedStep<E>(c, (Tile<E, D>)a, 16 * warp(), (Tile<E, D>)b, 0, k);
    }
  }
  // add adds A·B to sums: B is the tile's columns from column on.
  template <int N> static DEVICE void add(float (&c)[1][N][4], Weights<E, COLUMNS>& a, Other b, int column) {
    if constexpr (E::SCALED) {
      addProduct<E, OTHER>(c, a.x, (Tile<E, D>)b, column);
    } else {
#pragma unroll
      for (int step = 0; step < OTHER / STEP; step++) accumulateRows<E>(c, a.f[step], (Tile<E, D>)b, STEP * step, column);
    }
  }
  // commit ends a group of products; wait waits for all but the last PENDING groups, of which this
  // sum was one.
  static DEVICE void commit() {}
  template <int PENDING, int N> static DEVICE void wait(float (&)[1][N][4]) {}
  // show shows products what the thread has brought.
  static DEVICE void show() {}
};
