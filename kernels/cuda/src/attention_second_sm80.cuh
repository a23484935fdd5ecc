// The products of attention's second derivatives by mma.sync, for any device since compute
// capability 8.0: what attention_second.cu asks of them. Each product is there when its call ends.
#pragma once
#include "attention_sm80.cuh"
#include "mma_signed.cuh"

constexpr int LOADERS = 0;  // all warps bring tiles and compute

// Operand is a tile of ROWS rows in shared memory.
template <class E, int D, int ROWS> struct Operand : Tile<E, D> {
  static constexpr int BYTES = ROWS * Tile<E, D>::STRIDE, NEXT = BYTES;  // NEXT: to the other tile of a pair
  DEVICE Operand(uint32_t base) : Tile<E, D>{base} {}

  // load starts to bring the tile; settle makes an operand of what is there.
  template <int WARPS> DEVICE void load(const Matrix& m, int row) const { loadTile<E, ROWS, WARPS>(*this, m, row); }
  template <int WARPS> DEVICE void settle() const { ::settle<E, ROWS, WARPS>(*this, *this); }
  // pass writes 16 rows of the warp, of 16 bits, through the tile's from `within` on.
  template <int COLUMNS> DEVICE void pass(const float (&c)[1][COLUMNS][4], const Matrix& to, int row, int within) const {
    storeAccumulator<E>(c, *this, within, 0);
    __syncwarp();
    storeRows<E, 32>(*this, within, 16, to, row + within, lane());
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
  static constexpr uint32_t ALIGNMENT = 16, BARRIERS = 0;
  static constexpr int COLUMNS = OTHER / 8;
  using Own = Operand<E, D, OWN>;
  using Other = Operand<E, D, OTHER>;
  using Single = Other;
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
};

// Flow brings tiles, STAGES of which there is room for, and goes through them.
template <int STAGES, int WARPS> struct Flow {
  DEVICE explicit Flow(uint32_t) {}

  // start brings the block's own tiles and makes operands of them. It is false in warps that have
  // nothing else to do: they have brought so many other tiles.
  template <class Load, class Settle, class Fetch> DEVICE bool start(Load load, Settle settled, bool, int, Fetch) {
    load();
    copyCommit();
    copyWait<0>();
    settled();
    return true;
  }

  // pass goes through steps. fetch(step, stage) starts to bring its tiles, settled(stage) makes
  // operands of them. begin(stage) starts the first products and waits for those of the step before,
  // compute(step, stage) goes on to products that finish() waits for.
  template <class Fetch, class Settle, class Begin, class Compute, class Finish>
  DEVICE void pass(int steps, Fetch fetch, Settle settled, Begin begin, Compute compute, Finish finish) {
    const auto arrive = [&](int step, int stage) {
      copyWait<0>();
      settled(stage);
      __syncthreads();  // the tiles are here, and every warp is done with the step before
      if (STAGES > 1) {
        if (step + 1 < steps) fetch(step + 1, stage ^ 1);
        copyCommit();
      }
      begin(stage);
    };
    __syncthreads();  // every warp is done with what was there
    if (steps > 0) {
      fetch(0, 0);
      copyCommit();
      arrive(0, 0);
      int stage = 0;
#pragma unroll 1
      for (int step = 0;;) {
        compute(step, stage);
        if (++step == steps) break;
        if (STAGES > 1) {
          stage ^= 1;
        } else {
          finish();
          __syncthreads();
          fetch(step, 0);
          copyCommit();
        }
        arrive(step, stage);
      }
      finish();
    }
    __syncthreads();  // every warp is done with the tiles
  }

  // held is the stage through whose tiles results pass, until they are let go.
  DEVICE int held() const { return 0; }
  DEVICE void letGo() const {}
};
