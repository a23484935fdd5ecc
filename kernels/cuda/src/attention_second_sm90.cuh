// The products of attention's second derivatives by wgmma, for sm_90a: what attention_second.cu
// asks of them. They run while the warpgroup goes on, until it waits.
#pragma once
#include "attention_sm80.cuh"
#include "hopper.cuh"

constexpr int LOADERS = 4;  // warps that bring tiles, before those that compute

// Pipe is tiles that pass, in stages that loaders fill and warps that compute empty. Each of these
// counts the tiles it has waited for.
template <int STAGES> struct Pipe {
  static constexpr int BYTES = 16 * STAGES;
  uint32_t base;
  int n = 0;
  DEVICE Pipe(uint32_t base) : base(base) {}
  DEVICE uint32_t full(int stage) const { return base + 8 * stage; }
  DEVICE uint32_t empty(int stage) const { return base + 8 * (STAGES + stage); }
  DEVICE void init(int announce, int release) const {
    for (int i = 0; i < STAGES; i++) barrierInit(full(i), announce), barrierInit(empty(i), release);
  }
  DEVICE int stage() const { return (n - 1) % STAGES; }

  // await waits for the next tile, awaitEmpty for room for it.
  DEVICE void await() {
    barrierWait(full(n % STAGES), n / STAGES & 1);
    n++;
  }
  DEVICE void awaitEmpty() {
    barrierWait(empty(n % STAGES), n / STAGES & 1 ^ 1);
    n++;
  }
  // release says that the warp is done with the tile.
  DEVICE void release() const {
    __syncwarp();
    if (lane() == 0) barrierArrive(empty(stage()));
  }
  // announce says so of what a warp has written.
  DEVICE void announce() const {
    __syncwarp();
    if (lane() == 0) barrierArrive(full(stage()));
  }
};

// announceCopies arrives when what the thread has started to bring is there. Rows that are not
// aligned it has brought itself.
DEVICE void announceCopies(uint32_t barrier, bool aligned) {
  if (aligned) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
  } else {
    copyWait<0>();
    barrierArrive(barrier);
  }
}

// startLoading and startComputing divide registers between loaders and two warpgroups.
template <int REGISTERS> DEVICE void startLoading() { fewerRegisters<REGISTERS>(); }
template <int REGISTERS> DEVICE void startComputing() { moreRegisters<(504 - REGISTERS) / 2 / 8 * 8>(); }

template <> struct Wgmma<32> {
  template <int TransposeA, int TransposeB> static DEVICE void ss(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16." WGMMA_TYPES
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, %19, %20;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "l"(a), "l"(b), "r"(accumulate), "n"(TransposeA), "n"(TransposeB));
  }
  template <int TransposeB> static DEVICE void rs(float (&d)[16], const uint32_t* a, uint64_t b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16." WGMMA_TYPES
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p, 1, 1, %22;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
          "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(TransposeB));
  }
};
template <> struct Wgmma<48> {
  template <int TransposeA, int TransposeB> static DEVICE void ss(float (&d)[24], uint64_t a, uint64_t b, int accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %26, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n48k16." WGMMA_TYPES
        " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, %24, %25, p, 1, 1, %27, %28;\n}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
        : "l"(a), "l"(b), "r"(accumulate), "n"(TransposeA), "n"(TransposeB));
  }
};

// Operand is a tile of ROWS rows in shared memory, at a multiple of 1,024 bytes, in chunks of 64
// columns. Behind each chunk of a PAIRED one lies that of another tile, which a product may take as
// more rows.
template <class E, int D, int ROWS, bool PAIRED = false> struct Operand {
  static_assert(D % 64 == 0);
  static constexpr int NEXT = ROWS * 128, CHUNK = (PAIRED ? 2 : 1) * NEXT, BYTES = D / 64 * NEXT;
  using Chunk = Tile<E, 64, E::BYTES, true>;
  uint32_t base;
  DEVICE Operand(uint32_t base) : base(base) {}
  DEVICE Chunk chunk(int n) const { return {base + n * CHUNK}; }
  DEVICE uint32_t at(int row, int column) const { return chunk(column / 64).at(row, column % 64); }

  template <int WARPS> DEVICE void load(const Matrix& m, int row) const {
#pragma unroll 1
    for (int n = 0; n < D / 64; n++) loadTile<E, ROWS, WARPS>(chunk(n), columnsOf<E>(m, 64 * n, 64), row);
  }
  template <int WARPS> DEVICE void settle() const {}
  template <int COLUMNS> DEVICE void pass(const float (&c)[1][COLUMNS][4], const Matrix& to, int row, int within) const {
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++) storeAccumulator<E>(*(const float(*)[1][8][4])c[0][8 * n], chunk(n), within, 0);
    __syncwarp();
#pragma unroll 1
    for (int n = 0; n < COLUMNS / 8; n++) storeRows<E, 32>(chunk(n), within, 16, columnsOf<E>(to, 64 * n, 64), row + within, lane());
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
  alignas(16) uint32_t x[2 * COLUMNS];
  Weights() = default;
  DEVICE Weights(const float (&from)[1][COLUMNS][4]) {
#pragma unroll
    for (int n = 0; n < 2 * COLUMNS; n++) x[n] = pack<E>(from[0][n / 2][n % 2 * 2], from[0][n / 2][n % 2 * 2 + 1]);
  }
};

// Products starts products of the warpgroup's 64 rows. Of a tile of 64 they are all.
template <class E, int D, int OWN, int OTHER> struct Products {
  static constexpr uint32_t ALIGNMENT = 1024, BARRIERS = 128;  // bytes for barriers, before tiles
  static constexpr int COLUMNS = OTHER / 8;
  using Own = Operand<E, D, OWN>;
  using Other = Operand<E, D, OTHER, true>;
  using Single = Operand<E, D, OTHER>;
  using Block = float[1][COLUMNS][4];

  template <int COLUMNS, bool FRESH, class B> static DEVICE void multiply(float (&c)[COLUMNS / 2], Own a, B b) {
    const auto rows = a.described(OWN == 64 ? 0 : (warpgroupIndex() - LOADERS / 4) * 64 * 128);
    const auto columns = b.described();
    productFence();
#pragma unroll
    for (int k = 0; k < D / 16; k++)
      Wgmma<COLUMNS>::template ss<0, 0>(c, rows(k / 4 * Own::CHUNK + k % 4 * 32), columns(k / 4 * B::CHUNK + k % 4 * 32), !FRESH || k > 0);
  }
  // start starts A·Bᵀ, startMore adds to it. startTwo starts those of both tiles of a pair.
  template <class B> static DEVICE void start(Block& c, Own a, B b) {
    forget(*(float(*)[OTHER / 2])c);
    multiply<OTHER, true>(*(float(*)[OTHER / 2])c, a, b);
  }
  template <class B> static DEVICE void startMore(Block& c, Own a, B b) { multiply<OTHER, false>(*(float(*)[OTHER / 2])c, a, b); }
  static DEVICE void startTwo(float (&c)[2][COLUMNS][4], Own a, Other b) {
    forget(*(float(*)[OTHER])c);
    multiply<2 * OTHER, true>(*(float(*)[OTHER])c, a, b);
  }
  // Kept is the warp's rows of an operand A in registers; multiplyKept is start or startMore with it.
  struct Kept {
    uint32_t x[D / 4];
    DEVICE void load(Own a, int row) {
#pragma unroll
      for (int k = 0; k < D / 16; k++) {
        Fragment<E, 4> f;
        rowsOperand<E>(f, a.chunk(k / 4), row, k % 4 * 16);
#pragma unroll
        for (int n = 0; n < 4; n++) x[4 * k + n] = f.x[0][n];
      }
    }
  };
  template <bool FRESH, class B> static DEVICE void multiplyKept(Block& c, const Kept& a, B b) {
    if (FRESH) forget(*(float(*)[OTHER / 2])c);
    const auto columns = b.described();
    productFence();
#pragma unroll
    for (int k = 0; k < D / 16; k++)
      Wgmma<OTHER>::template rs<0>(*(float(*)[OTHER / 2])c, a.x + 4 * k, columns(k / 4 * B::CHUNK + k % 4 * 32), !FRESH || k > 0);
  }
  template <int N, class B> static DEVICE void add(float (&c)[1][N][4], Weights<E, COLUMNS>& a, B b, int column) {
    const auto rows = b.described(column / 64 * B::CHUNK, B::CHUNK);
    productFence();
#pragma unroll
    for (int k = 0; k < OTHER / 16; k++) Wgmma<8 * N>::template rs<1>(*(float(*)[4 * N])c, a.x + 4 * k, rows(k * 2048), 1);
  }
  static DEVICE void commit() { productCommit(); }
  template <int PENDING, int N> static DEVICE void wait(float (&c)[1][N][4]) {
    productWait<PENDING>();
    pin(*(float(*)[4 * N])c);
  }
};

// Flow brings tiles, STAGES of which there is room for, and goes through them: LOADERS warps bring
// them, the others compute, each warpgroup at its own pace.
template <int STAGES, int WARPS> struct Flow {
  Pipe<1> own;
  Pipe<STAGES> tiles;
  bool holds = false;
  DEVICE explicit Flow(uint32_t base) : own(base), tiles(base + own.BYTES) {}

  // start brings the block's own tiles. It is false in warps that have brought so many other tiles.
  template <class Load, class Settle, class Fetch> DEVICE bool start(Load load, Settle, bool aligned, int steps, Fetch fetch) {
    if (threadIdx.x == 0) {
      own.init(32 * LOADERS, WARPS);
      tiles.init(32 * LOADERS, WARPS);
      barrierInitDone();
    }
    __syncthreads();
    if (warp() >= LOADERS) {
      startComputing<24>();
      own.await();
      sharedToAsync();
      return true;
    }
    startLoading<24>();
    load();
    announceCopies(own.full(0), aligned);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
      tiles.awaitEmpty();
      fetch(step, tiles.stage());
      announceCopies(tiles.full(tiles.stage()), aligned);
    }
    copyWait<0>();
    return false;
  }

  // pass goes through steps: see attention_second_sm80.cuh.
  template <class Fetch, class Settle, class Begin, class Compute, class Finish>
  DEVICE void pass(int steps, Fetch, Settle, Begin begin, Compute compute, Finish finish) {
    holds = steps > 0;
    if (!holds) return;
    const auto next = [&] {
      tiles.await();
      sharedToAsync();
      begin(tiles.stage());
    };
    next();
#pragma unroll 1
    for (int step = 0;;) {
      compute(step, tiles.stage());
      finish();  // products queued behind others would keep the other warpgroup's waiting
      if (++step == steps) break;
      tiles.release();
      next();
    }
    groupSync(1, 32 * WARPS);  // every warp is done with the last tiles
  }

  // held is the stage through whose tiles results pass, until they are let go.
  DEVICE int held() const { return holds ? tiles.stage() : 0; }
  DEVICE void letGo() {
    if (holds) tiles.release();
  }
};
