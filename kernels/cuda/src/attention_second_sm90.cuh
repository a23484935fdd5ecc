// The products of attention's second derivatives by wgmma, for sm_90a: what attention_second.cu
// asks of them. They run while the warpgroup goes on, until it waits.
#pragma once
#include "attention_sm80.cuh"
#include "hopper.cuh"

// Operand is a tile of ROWS rows in shared memory, at a multiple of 1,024 bytes, in chunks of 64
// columns.
template <class E, int D, int ROWS> struct Operand {
  static_assert(D % 64 == 0);
  static constexpr int CHUNK = ROWS * 128, BYTES = D / 64 * CHUNK;
  using Chunk = Tile<E, 64, E::BYTES, true>;
  uint32_t base;
  DEVICE Operand(uint32_t base) : base(base) {}
  DEVICE Chunk chunk(int n) const { return {base + n * CHUNK}; }
  DEVICE uint32_t at(int row, int column) const { return chunk(column / 64).at(row, column % 64); }

  template <int WARPS> DEVICE void load(const Matrix& m, int row) const {
#pragma unroll
    for (int n = 0; n < D / 64; n++) loadTile<E, ROWS, WARPS>(chunk(n), columnsOf<E>(m, 64 * n, 64), row);
  }
  template <int WARPS> DEVICE void settle() const {}
  template <int COLUMNS> DEVICE void pass(const float (&c)[1][COLUMNS][4], const Matrix& to, int row) const {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) storeAccumulator<E>(*(const float(*)[1][8][4])c[0][8 * n], chunk(n), 16 * warp(), 0);
    __syncwarp();
#pragma unroll 1
    for (int n = 0; n < COLUMNS / 8; n++) storeRows<E, 32>(chunk(n), 16 * warp(), 16, columnsOf<E>(to, 64 * n, 64), row + 16 * warp(), lane());
  }
  // Described describes it to wgmma, so many bytes on; along is the distance of chunks where columns
  // are contiguous. It is made anew for each product, and of 32 bits: a loop that keeps descriptions
  // of all steps has no registers left.
  struct Described {
    uint32_t low;
    DEVICE uint64_t operator()(uint32_t bytes) const {
      uint64_t d;
      asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(low + (bytes >> 4)), "n"(1024 >> 4 | 1 << 30));
      return d;
    }
  };
  DEVICE Described described(uint32_t bytes = 0, uint32_t along = 0) const {
    uint32_t low = (base + bytes >> 4) + (along << 12);
    asm volatile("" : "+r"(low));
    return {low};
  }
};

template <class E, int COLUMNS> struct Weights {
  uint32_t x[2 * COLUMNS];
  DEVICE Weights(const float (&from)[1][COLUMNS][4]) {
#pragma unroll
    for (int n = 0; n < 2 * COLUMNS; n++) x[n] = pack<E>(from[0][n / 2][n % 2 * 2], from[0][n / 2][n % 2 * 2 + 1]);
  }
};

// Products starts products of the warpgroup's 64 rows.
template <class E, int D, int OWN, int OTHER> struct Products {
  static constexpr uint32_t ALIGNMENT = 1024;
  static constexpr int COLUMNS = OTHER / 8;
  static constexpr bool GOES_ON = true;  // a warp does while its products are made
  using Own = Operand<E, D, OWN>;
  using Other = Operand<E, D, OTHER>;
  using Block = float[1][COLUMNS][4];

  template <bool FRESH> static DEVICE void multiply(Block& c, Own a, Other b) {
    const auto rows = a.described(warpgroupIndex() * 64 * 128);
    const auto columns = b.described();
    productFence();
#pragma unroll
    for (int k = 0; k < D / 16; k++)
      Wgmma<OTHER>::template ss<0, 0>(*(float(*)[OTHER / 2])c, rows(k / 4 * Own::CHUNK + k % 4 * 32),
                                      columns(k / 4 * Other::CHUNK + k % 4 * 32), !FRESH || k > 0);
  }
  static DEVICE void start(Block& c, Own a, Other b) {
    forget(*(float(*)[OTHER / 2])c);
    multiply<true>(c, a, b);
  }
  static DEVICE void startMore(Block& c, Own a, Other b) { multiply<false>(c, a, b); }
  template <int N> static DEVICE void add(float (&c)[1][N][4], Weights<E, COLUMNS>& a, Other b, int column) {
    const auto rows = b.described(column / 64 * Other::CHUNK, Other::CHUNK);
    productFence();
#pragma unroll
    for (int k = 0; k < OTHER / 16; k++) Wgmma<8 * N>::template rs<1>(*(float(*)[4 * N])c, a.x + 4 * k, rows(k * 2048), 1);
  }
  static DEVICE void commit() { productCommit(); }
  template <int PENDING, int N> static DEVICE void wait(float (&c)[1][N][4]) {
    productWait<PENDING>();
    pin(*(float(*)[4 * N])c);
  }
  static DEVICE void show() { sharedToAsync(); }
};
