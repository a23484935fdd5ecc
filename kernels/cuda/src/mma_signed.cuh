// The product of an accumulator with rows of a tile, where the accumulator's numbers have any sign:
// multiplyAccumulator of mma.cuh is for probabilities.
#pragma once
#include "mma.cuh"

// scaleSigned puts the powers of b's rows into an accumulator, and then its rows into the range of
// an operand. factors are what a product with b must be multiplied with.
template <class E, int ROWS, int COLUMNS, class T>
DEVICE void scaleSigned(float (&x)[ROWS][COLUMNS][4], T b, float (&factors)[ROWS][2]) {
  withColumnPowers(x, x, b, 0);
#pragma unroll
  for (int i = 0; i < ROWS; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float most = 0;
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) most = fmaxf(most, fmaxf(fabsf(x[i][j][2 * half]), fabsf(x[i][j][2 * half + 1])));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const Power power = Power::of(most < INFINITE ? most : 1);
#pragma unroll
      for (int j = 0; j < COLUMNS; j++) x[i][j][2 * half] *= power.up, x[i][j][2 * half + 1] *= power.up;
      factors[i][half] = power.down;
    }
}

// addProduct adds A·B where A is an accumulator of K columns, which it leaves changed: B is the
// tile's columns from column on.
template <class E, int K, int ROWS, int COLUMNS, int C>
DEVICE void addProduct(float (&c)[ROWS][COLUMNS][4], float (&a)[ROWS][K / 8][4], Tile<E, C> b, int column) {
  float factors[ROWS][2];
  if constexpr (E::SCALED) scaleSigned<E>(a, b, factors);
  Fragment<E, 4> f[K / STEP][ROWS];
#pragma unroll
  for (int step = 0; step < K / STEP; step++)
#pragma unroll
    for (int i = 0; i < ROWS; i++) operandOf<E>(f[step][i], a[i][2 * step], a[i][2 * step + 1]);
  if constexpr (E::SCALED) {
    accumulateScaled<E>(c, f, b, 0, column, factors);
  } else {
#pragma unroll
    for (int step = 0; step < K / STEP; step++) accumulateRows<E>(c, f[step], b, STEP * step, column);
  }
}
