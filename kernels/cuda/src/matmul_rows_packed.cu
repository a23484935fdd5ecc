// Products of one to sixteen rows by packed matrices, as matmul_rows.cu has them by matrices of
// 16 bits:
//
//   C = A·Bᵀ + bias + Residual     or     C = silu(A·B0ᵀ + bias0)·(A·B1ᵀ + bias1)
//
// with an RMS norm before. B is (columns, depth), as packed.cuh has it, or several side by side.
// Compile for sm_90a with -DKERNEL=name, -DELEMENT_BF16 or -DELEMENT_F16, -DPACKED_KIND=Int8, Int4
// or NF4, and -DGATES where two are gated.
//
// A cluster has a panel of 128 columns, or of 64 of each of B0 and B1. A step is 128 bytes of codes
// of each column. A warp has 32 bytes of those of a half of the panel: one group of 32 codes of
// 8 bits, or two of 4 bits. Scales come in chunks of 1,024 of the depth, with the first step of a
// chunk. Rows are multiplied by γ once for all warps, where they lie.
//
// Codes become numbers of A's type once for all rows: integers exactly, those of NF4 rounded. They
// are the first operand of mma.sync and rows the second, so that up to eight rows take half the
// products. Each group has sums of its own, which are added to those of all in float32, times the
// group's scale.
//
// Two codes of NF4 become numbers by a table of all bytes in shared memory, of which lanes have
// COPIES so that they seldom wait for each other. A lane finds the scales of two columns of a step,
// and its warp reads them from shared memory.
#include "matmul_rows.cuh"
#include "packed.cuh"

constexpr PackedKind KIND = PACKED_KIND;
constexpr bool BYTES = KIND == Int8;
#ifdef GATES
constexpr bool GATES_KERNEL = true;
#else
constexpr bool GATES_KERNEL = false;
#endif

// A warp of consumers has a half of the panel and a share of the depth.
constexpr int CONSUMERS = 2 * SHARES, JOINING = 32 * CONSUMERS, THREADS = JOINING + 32;
constexpr int GROUP = 32;                    // codes that share a scale
constexpr int GROUPS = BYTES ? 1 : 2;        // of a warp in a step
constexpr int STEP_DEPTH = SHARES * GROUPS * GROUP;
constexpr int CHUNK = 1024, STEPS_OF_CHUNK = CHUNK / STEP_DEPTH;
// Of scales as the matrix has them: float16 of each group, or bytes of each two.
constexpr int SCALES_ROW = KIND == NF4 ? CHUNK / GROUP / 2 : CHUNK / GROUP * 2, SCALES_BOX = COLUMNS * SCALES_ROW;
constexpr int COPIES = 8;                    // of the table of NF4
constexpr int TABLE_BYTES = KIND == NF4 ? 256 * COPIES * 4 : 0, FOUND_BYTES = KIND == NF4 ? SHARES * 2 * COLUMNS * 4 : 0;
constexpr int BOXES_OF_A = STEP_DEPTH / DEPTH;
constexpr int TILES = COLUMNS / 16;          // of a half

// Layout is where a block has what, in bytes from the beginning of its shared memory.
struct Layout {
  static constexpr bool GATED = GATES_KERNEL;
  static constexpr int CONSUMERS = ::CONSUMERS, JOINING = ::JOINING, SQUARES = CONSUMERS;
  static constexpr int HALVES = 2, STAGES = BYTES ? 4 : 3, DEPTH_OF_STEP = STEP_DEPTH;
  static constexpr int codes = 0, a = codes + STAGES * HALVES * BOX, scales = a + STAGES * BOXES_OF_A * A_BOX;
  // Of NF4: the table of bytes, what the codes of scales stand for, and scales (share, column).
  static constexpr int table = scales + 2 * HALVES * SCALES_BOX, ofScales = table + TABLE_BYTES, found = ofScales + (KIND == NF4 ? 1024 : 0);
  static constexpr int ringEnd = found + FOUND_BYTES;
  static constexpr int sums = ringEnd, squares = sums + sumsBytes(HALVES), full = squares + squaresBytes();
  static constexpr int empty = full + 8 * STAGES, joined = empty + 8 * STAGES, bytes = joined + 8;
  static constexpr int ofWarps = 0, squaresOfWarps = ofWarps + leftSumsBytes(HALVES);
  static_assert(leftBytes(HALVES, CONSUMERS) <= a, "the ring has room for all sums");
  // The scales of a chunk are written over when the next chunk is being multiplied.
  static_assert(STAGES <= STEPS_OF_CHUNK, "no more than two chunks are on their way");
};
using L = Layout;

// share is which of a step's shares of the depth the warp has, side which of the panel's halves.
DEVICE uint32_t share() { return threadIdx.x / 32 % SHARES; }
DEVICE uint32_t side() { return threadIdx.x / 32 / SHARES; }

// WeightMaps are those of a panel's two halves.
struct WeightMaps {
  const CUtensorMap *codes[2], *scales[2];
};

// scalesOf is where the scales of a step lie.
DEVICE uint32_t scalesOf(uint32_t at, uint32_t step, uint32_t half) { return at + L::scales + (step / STEPS_OF_CHUNK % 2 * L::HALVES + half) * SCALES_BOX; }

// firstScaleOf is where in a row the codes of NF4's scales begin, behind floats.
DEVICE int firstScaleOf(const RowsArguments& g) {
  const int blocks = g.m.depth / (2 * GROUP);
  return g.scales + 4 * (2 + (blocks + 254) / 256 + 1);
}

// produce fills the stages. It asks for B of the first ones before the kernel waits.
DEVICE void produce(const Part& p, const CUtensorMap* a, const WeightMaps& b, int firstScale, uint32_t at) {
  const auto columnOf = [&](int half) { return p.column + (L::GATED ? 0 : half * COLUMNS); };
  const auto loadWeights = [&](int step, int stage) {
    const uint32_t barrier = at + L::full + 8 * stage;
    const bool begins = step == p.from || step % STEPS_OF_CHUNK == 0;
    barrierExpect(barrier, L::HALVES * (BOX + (begins ? SCALES_BOX : 0)) + BOXES_OF_A * A_BOX);
#pragma unroll
    for (int half = 0; half < L::HALVES; half++) {
      loadBoxOnce(at + L::codes + (stage * L::HALVES + half) * BOX, b.codes[half], barrier, step * 128, columnOf(half), 0, 0);
      const int chunk = step / STEPS_OF_CHUNK;
      if (begins) loadBox(scalesOf(at, step, half), b.scales[half], barrier, KIND == NF4 ? firstScale + chunk * SCALES_ROW : chunk * (CHUNK / GROUP), columnOf(half), 0, 0);
    }
  };
  const auto loadRows = [&](int step, int stage) {
#pragma unroll
    for (int box = 0; box < BOXES_OF_A; box++)
      loadBox(at + L::a + (stage * BOXES_OF_A + box) * A_BOX, a, at + L::full + 8 * stage, step * STEP_DEPTH + box * DEPTH, 0, 0, 0);
  };
  const int first = min(p.to, p.from + L::STAGES);
  for (int step = p.from; step < first; step++) loadWeights(step, step - p.from);
  awaitBefore();
  beginDependents();
  for (int step = p.from; step < first; step++) loadRows(step, step - p.from);
  Ring<L::STAGES> ring(0);
  for (int step = first; step < p.to; step++, ring.advance()) {
    barrierWait(at + L::empty + 8 * ring.stage, ring.parity);
    loadWeights(step, ring.stage);
    loadRows(step, ring.stage);
  }
}

// slotOf is where a step has elements 4t to 4t + 3 of half k of a group, of row lane/4 + 8·n,
// where t = lane%4.
DEVICE uint32_t slotOf(uint32_t at, uint32_t stage, uint32_t group, uint32_t n, uint32_t k) {
  const uint32_t t = threadIdx.x % 4, row = threadIdx.x % 32 / 4 + 8 * n;
  return boxed(at + L::a + (stage * BOXES_OF_A + group / 2) * A_BOX, row, group % 2 * 4 + 2 * k + t / 2) + t % 2 * 8;
}

// Prepared is what a warp multiplies by γ of each step, for all warps: of a group, up to sixteen
// rows, or eight where there are two warps for a group. A lane writes where it read.
template <bool MANY> struct Prepared {
  static constexpr int EIGHTS = MANY && !BYTES ? 2 : 1;
  float squares[2] = {0, 0};  // of what the lane has of rows lane/4 and lane/4 + 8
  float gamma[2][4];

  DEVICE uint32_t group() const { return threadIdx.x / 32 % (SHARES * GROUPS); }
  DEVICE uint32_t first() const { return BYTES ? threadIdx.x / 32 / SHARES : 0; }  // eight
  // load asks for γ of a step.
  DEVICE void load(const RowsArguments& g, int step) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int depth = step * STEP_DEPTH + group() * GROUP + 16 * k + 4 * (lane() % 4);
#pragma unroll
      for (int e = 0; e < 4; e++) gamma[k][e] = 1;
      if (g.gamma == nullptr || depth >= g.m.depth) continue;
      if (g.gammaWide)
        ::load<4>((const float*)g.gamma + depth, gamma[k]);
      else
        ::load<4>((const Scalar*)g.gamma + depth, gamma[k]);
    }
  }
  DEVICE void multiply(uint32_t at, uint32_t stage) {
    if (!MANY && first() > 0) return;
#pragma unroll
    for (int n = 0; n < EIGHTS; n++)
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const uint32_t slot = slotOf(at, stage, group(), first() + n, k);
        const float2 both = loadShared8(slot);
        const float2 y = unpack(__float_as_uint(both.x)), z = unpack(__float_as_uint(both.y));
        const float sum = fmaf(y.x, y.x, fmaf(y.y, y.y, fmaf(z.x, z.x, z.y * z.y)));
        if (n == 1 || BYTES && first() > 0)
          squares[1] += sum;
        else
          squares[0] += sum;
        storeShared8(slot, ::pack(y.x * gamma[k][0], y.y * gamma[k][1]), ::pack(z.x * gamma[k][2], z.y * gamma[k][3]));
      }
    sharedToAsync();  // the next rows come to the same place
  }
};

// maskOr is (x & mask) | bits, maskXor (x & mask) ^ bits.
DEVICE uint32_t maskOr(uint32_t x, uint32_t mask, uint32_t bits) {
  uint32_t y;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
  return y;
}
DEVICE uint32_t maskXor(uint32_t x, uint32_t mask, uint32_t bits) {
  uint32_t y;
  asm("lop3.b32 %0, %1, %2, %3, 0x6A;" : "=r"(y) : "r"(x), "r"(mask), "r"(bits));
  return y;
}
DEVICE uint32_t less(uint32_t x, uint32_t y) {
  uint32_t z;
#ifdef ELEMENT_BF16
  asm("sub.bf16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
#else
  asm("sub.f16x2 %0, %1, %2;" : "=r"(z) : "r"(x), "r"(y));
#endif
  return z;
}

// Codes of 4 bits become 128 more than they are, in bfloat16, which is 136 more than they mean.
// What is too much is a product of its own with the rows, with which all sums of a group begin.
#ifdef ELEMENT_BF16
constexpr bool OFFSET = KIND == Int4;
#else
constexpr bool OFFSET = false;
#endif

// widened are the two numbers of a word's codes in bits 0 and 16 on.
DEVICE uint32_t widened(uint32_t w) {
#ifdef ELEMENT_BF16
  // 128 and seven bits below, less 128, or 256 where the sign is set
  if constexpr (BYTES) return less(maskOr(w, 0x007f007f, 0x43004300), maskOr(w, 0x00800080, 0x43004300));
  return maskOr(w, 0x000f000f, 0x43004300);
#else
  if constexpr (BYTES) return less(maskXor(w, 0x00ff00ff, 0x64806480), 0x64806480);
  return less(maskOr(w, 0x000f000f, 0x64006400), 0x64086408);
#endif
}

// numbersOf are the two numbers of a byte of NF4, that of the lower four bits first.
DEVICE uint32_t numbersOf(uint32_t table, uint32_t w, int byte) {
  constexpr int SHIFT = 5;  // log2 of the bytes of an entry, all copies
  static_assert(COPIES * 4 == 1 << SHIFT);
  const int by = 8 * byte - SHIFT;
  return loadShared4(table + ((by < 0 ? w << -by : w >> by) & 255 << SHIFT));
}

// widen makes numbers of a column's codes for a product: k is its half of the group, and of NF4 the
// half of the lane's bytes.
DEVICE void widen(uint32_t& first, uint32_t& second, const uint32_t (&words)[2], int k, uint32_t table) {
  if constexpr (KIND == NF4) {
    first = numbersOf(table, words[0], 2 * k), second = numbersOf(table, words[0], 2 * k + 1);
  } else {
    const uint32_t word = BYTES ? words[k] : words[0] >> 4 * k;
    first = widened(word), second = widened(word >> 8);
  }
}

// Finder finds the scales of NF4 of columns lane + 32·n of the warp's half.
struct Finder {
  static constexpr int EACH = 2;
  const float* header[EACH];  // of the column: the offset, where in a group of 256 scales it begins, factors
  float offset[EACH];
  uint32_t phase[EACH];

  DEVICE void begin(const RowsArguments& g, const Part& p) {
#pragma unroll
    for (int n = 0; n < EACH; n++) {
      const int column = p.column + (L::GATED ? 0 : side() * COLUMNS) + 32 * n + lane(), weight = L::GATED ? side() : p.weight;
      const bool there = column < g.weights[weight].columns;
      header[n] = there ? (const float*)((const char*)g.packed[weight] + (int64_t)column * g.rowBytes + g.scales) : nullptr;
      offset[n] = there ? header[n][0] : 0, phase[n] = there ? ((const uint32_t*)header[n])[1] % 256 : 0;
    }
  }
  // factors are those of the warp's two groups of a step, which have one scale.
  DEVICE void factors(float (&of)[EACH], int step, int depth) const {
    const int block = min(step * STEP_DEPTH / (2 * GROUP) + share(), depth / (2 * GROUP) - 1);
#pragma unroll
    for (int n = 0; n < EACH; n++) of[n] = header[n] ? header[n][2 + (phase[n] + block) / 256] : 0;
  }
  DEVICE void find(const float (&factor)[EACH], uint32_t at, int step) const {
    __syncwarp();  // what was found before has been read
#pragma unroll
    for (int n = 0; n < EACH; n++) {
      uint16_t code;
      const int column = 32 * n + lane();
      const uint32_t from = scalesOf(at, step, side()) + column * SCALES_ROW + step % STEPS_OF_CHUNK * SHARES + share();
      asm volatile("ld.shared.u8 %0, [%1];" : "=h"(code) : "r"(from));
      storeShared4(at + L::found + ((share() * 2 + side()) * COLUMNS + column) * 4, fmaf(loadSharedFloat(at + L::ofScales + 4 * code), factor[n], offset[n]));
    }
    __syncwarp();
  }
};

// multiplyFrom is a product that is added to other sums.
DEVICE void multiplyFrom(float (&c)[4], const float (&from)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef ELEMENT_BF16
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
#endif
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]));
}

DEVICE float loadHalf(uint32_t address) {
  uint16_t x;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x) : "r"(address));
  return __half2float(__ushort_as_half(x));
}

// Sums are a lane's: of[tile][n][e] has the column 16·tile + lane/4 + 8·(e/2) of the warp's half
// and the row 8n + 2·(lane%4) + e%2.
struct Sums {
  float of[TILES][2][4];
};

// multiply adds the warp's groups of a step.
template <bool MANY> DEVICE void multiply(Sums& s, const uint32_t (&minus136)[4], uint32_t at, uint32_t stage, uint32_t step) {
  constexpr int EIGHTS = MANY ? 2 : 1;  // of rows
  const uint32_t column = threadIdx.x % 32 / 4;
  const uint32_t table = at + L::table + lane() % COPIES * 4;
  const uint32_t box = at + L::codes + (stage * L::HALVES + side()) * BOX;
#pragma unroll
  for (int group = 0; group < GROUPS; group++) {
    const uint32_t inStep = GROUPS * share() + group, inChunk = step % STEPS_OF_CHUNK * SHARES * GROUPS + inStep;
    const uint32_t scales = scalesOf(at, step, side()) + column * SCALES_ROW + ((inChunk / 8 ^ column / 2 & 3) << 4) + inChunk % 8 * 2;
    uint4 x[EIGHTS];
    float begin[EIGHTS][4] = {};
#pragma unroll
    for (int n = 0; n < EIGHTS; n++) {
      const float2 low = loadShared8(slotOf(at, stage, inStep, n, 0)), high = loadShared8(slotOf(at, stage, inStep, n, 1));
      const uint32_t own[2][2] = {{__float_as_uint(low.x), __float_as_uint(low.y)}, {__float_as_uint(high.x), __float_as_uint(high.y)}};
      // Pairs are those that widen makes: of NF4 an element of either half, of others the even,
      // then the odd ones of a half.
      const uint32_t second = KIND == NF4 ? own[1][0] : own[0][1], third = KIND == NF4 ? own[0][1] : own[1][0];
      x[n].x = __byte_perm(own[0][0], second, 0x5410), x[n].y = __byte_perm(own[0][0], second, 0x7632);
      x[n].z = __byte_perm(third, own[1][1], 0x5410), x[n].w = __byte_perm(third, own[1][1], 0x7632);
      if constexpr (OFFSET) {
        multiplyAdd<Type>(begin[n], minus136, x[n].x, x[n].y);
        multiplyAdd<Type>(begin[n], minus136, x[n].z, x[n].w);
      }
    }
    uint32_t w[4];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
      if (BYTES)
        loadMatrix4(w, boxed(box, 16 * tile + lane() % 16, 2 * share() + lane() / 16));
      else if (tile % 2 == 0)
        loadMatrix4(w, boxed(box, 16 * tile + lane(), inStep));
      float scale[2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        if constexpr (KIND == NF4)
          scale[e] = loadSharedFloat(at + L::found + ((share() * 2 + side()) * COLUMNS + 16 * tile + 8 * e + column) * 4);
        else
          scale[e] = loadHalf(scales + (16 * tile + 8 * e) * SCALES_ROW);
      }
      uint32_t b[2][4];  // of either product
#pragma unroll
      for (int k = 0; k < 2; k++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const uint32_t words[2] = {w[BYTES ? e : tile % 2 * 2 + e], w[2 + e]};
          widen(b[k][e], b[k][2 + e], words, k, table);
        }
      float c[EIGHTS][4];
#pragma unroll
      for (int n = 0; n < EIGHTS; n++) multiplyFrom(c[n], begin[n], b[0], x[n].x, x[n].y);
#pragma unroll
      for (int n = 0; n < EIGHTS; n++) multiplyAdd<Type>(c[n], b[1], x[n].z, x[n].w);
#pragma unroll
      for (int n = 0; n < EIGHTS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) s.of[tile][n][e] = fmaf(scale[e / 2], c[n][e], s.of[tile][n][e]);
    }
  }
}

// leave puts a warp's sums where all warps of the block see them.
template <bool MANY> DEVICE void leave(const Sums& s, const RowsArguments& g, char* shared) {
  float* sums = (float*)(shared + L::ofWarps) + (share() * L::HALVES + side()) * ROWS * STRIDE;
#pragma unroll
  for (int n = 0; n < (MANY ? 2 : 1); n++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int row = 8 * n + 2 * (lane() % 4) + e % 2;
      if (row >= g.m.rows) continue;
#pragma unroll
      for (int tile = 0; tile < TILES; tile++) sums[row * STRIDE + 16 * tile + lane() / 4 + e / 2 * 8] = s.of[tile][n][e];
    }
}

template <bool MANY> DEVICE void consume(const RowsArguments& g, const Part& p, char* shared, uint32_t at) {
  Sums s = {};
  Prepared<MANY> prepared;
  Finder finder;
  if constexpr (KIND == NF4) {
    finder.begin(g, p);
    for (int i = threadIdx.x; i < 256 * COPIES; i += JOINING)
      storeShared4(at + L::table + 4 * i, ::pack(g.table[i / COPIES % 16], g.table[i / COPIES / 16]));
    for (int i = threadIdx.x; i < 256; i += JOINING) storeShared4(at + L::ofScales + 4 * i, g.table[16 + i]);
    groupSync(1, JOINING);
  }
  // The compiler would make constants anew in each step.
  uint32_t minus136[4];
#pragma unroll
  for (int n = 0; n < 4; n++) minus136[n] = 0xc308c308 ^ g.count >> 8 + n;
  awaitBefore();
  const Beside<L> first(g, p, threadIdx.x);  // on its way during the product
  Ring<L::STAGES> ring(0);
#pragma unroll 1
  for (int step = p.from; step < p.to; step++, ring.advance()) {
    float factors[Finder::EACH];
    if constexpr (KIND == NF4) finder.factors(factors, step, g.m.depth);
    if (g.normed) prepared.load(g, step);
    barrierWait(at + L::full + 8 * ring.stage, ring.parity);
    if constexpr (KIND == NF4) finder.find(factors, at, step);
    if (g.normed) {
      prepared.multiply(at, ring.stage);
      groupSync(1, JOINING);
    }
    multiply<MANY>(s, minus136, at, ring.stage, step);
    __syncwarp();
    if (lane() == 0) barrierArrive(at + L::empty + 8 * ring.stage);
  }
  groupSync(1, JOINING);
  leave<MANY>(s, g, shared);
  if (g.normed) leaveSquares<L>(prepared.squares, shared);
  join<L>(g, p, first, shared, at);
}

DEVICE void multiplyRows(const RowsArguments& g, const CUtensorMap* a, const CUtensorMap* const (&maps)[6], int blocks) {
  extern __shared__ __align__(1024) char shared[];
  const uint32_t at = sharedAddress(shared);
  const Part p(g, blocks, L());
  begin<L>(g, p, at);
  if (warp() == CONSUMERS) {
    WeightMaps b;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int weight = L::GATED ? half : p.weight;
      b.codes[half] = weight == 0 ? maps[0] : weight == 1 ? maps[2] : maps[4];
      b.scales[half] = weight == 0 ? maps[1] : weight == 1 ? maps[3] : maps[5];
    }
    if (lane() == 0) produce(p, a, b, firstScaleOf(g), at);
    __syncwarp();
    awaitCluster();
    return;
  }
  if (g.m.rows > 8)
    consume<true>(g, p, shared, at);
  else
    consume<false>(g, p, shared, at);
}

#define MAP const __grid_constant__ CUtensorMap
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    KERNEL(MAP a, MAP codes0, MAP scales0, MAP codes1, MAP scales1, MAP codes2, MAP scales2, const __grid_constant__ RowsArguments g) {
  const CUtensorMap* const maps[6] = {&codes0, &scales0, &codes1, &scales1, &codes2, &scales2};
  int blocks;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(blocks));
  multiplyRows(g, &a, maps, blocks);
}
