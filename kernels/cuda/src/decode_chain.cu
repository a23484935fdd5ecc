// A chain of links for one row: what a model computes for the next token of one text. A link is
//
//   source:     the row that the chain begins with
//   product:    C = A·B + bias, with an RMS norm before and a residual behind, or gated:
//               C = silu(A·B0 + bias0)·(A·B1 + bias1), as matmul_rows.cu has it
//   attention:  of one token with a cache, to which it is added, as cache_append.cu and
//               attention_decode.cu have it
//
// Reading weights is all that should take time. A block has a multiprocessor for the whole chain.
// Its producer warp brings weights, keys and values into a ring in shared memory, and never waits
// for what links compute. Eight consumer warps multiply what is there.
//
// There are no barriers between blocks. What one block tells another is words of 64 bits: 32 bits
// of data, and the number of the link and of the launch, written and read as one. Who needs a word
// reads it until it has the number.
//
// A product is panels of 128 columns, a panel is steps of 64 of the depth. Blocks share all steps
// evenly: a block has a run of them, in the order of panels and of the depth. What it has of a
// panel is a fragment. The block with the panel's last step adds the fragments, in the order of the
// depth, so that a launch gives the bits of the one before.
//
// Of packed matrices, blocks have whole columns instead where they have room for all of A: 16 at a
// time, a tile. A step is 1,024 bytes of codes of each column, of which each warp has an eighth. So
// no block waits for the sums of another.
//
// Matrices of 8 or 4 bits, as packed.cuh has them, lie (columns, depth). A step of theirs is 128
// bytes of codes of each column, and their scales. Codes are multiplied as they are, by a row of
// whole numbers: of A, times a power of two for each group of 32, in 14 bits and a sign. The eight
// columns of mma.sync's second operand are the upper and the lower bytes of four groups. Each of
// these groups' codes are multiplied by all of them, and of what that gives the group's own columns
// are taken.
//
// Compile for sm_90a with -DPACKED where matrices may be packed, -DKERNEL=name, -DELEMENT_BF16 or
// -DELEMENT_F16, and -DHEAD_SIZE=64 or 128.
#include "decode_chain.cuh"

#ifdef PACKED
constexpr int STAGES = 11, SCALES = 16 * PANEL, PLACES_OF_A = 1;  // SCALES: bytes of a step's scales
#else
constexpr int STAGES = 12, SCALES = 0, PLACES_OF_A = 2;
#endif
constexpr int STAGE = UNIT + SCALES, MOST_STEPS = 64;  // of A, that a block has of a product
constexpr int MOST_PACKED_STEPS = 32;
// Bytes of a packed step of A: what codes of its groups are multiplied by, and what sums of groups
// are.
constexpr int PIECES_OF_A = 8 * 64, PACKED_A = PIECES_OF_A + 8 * 4;
// Words of squares that a lane reads.
#ifdef PACKED
constexpr int MOST_SQUARES = 8;
#else
constexpr int MOST_SQUARES = 4;
#endif
// Whole columns are added in rounds of tiles. A step of theirs has the eight pieces of the depth
// that the eight warps multiply.
constexpr int TILE_COLUMNS = 16, TILES_OF_ROUND = 8, PIECE = TILE_COLUMNS * 128;
constexpr int NUMBERS = 512;                  // links of a chain
constexpr int MERGED = HEAD_SIZE / 8;  // pairs of columns of a head that a block adds up at once

// Held is what an attention's cache holds when the chain begins.
struct Held {
  int32_t item, tokens;  // tokens: -1 - n where the item does not take part
  DEVICE bool takes() const { return tokens >= 0; }
  DEVICE int before() const { return takes() ? tokens : -1 - tokens; }
};

struct Layout {
  static constexpr int ring = 0, a = ring + STAGES * STAGE;
  static constexpr int ofA = SCALES ? MOST_PACKED_STEPS * PACKED_A : MOST_STEPS * DEPTH * 2;
  static constexpr int queries = a + PLACES_OF_A * ofA, ofQuery = HEAD_SIZE * 2 + 16;
  static constexpr int fresh = queries + MOST_GROUP * ofQuery;  // the new key and the new value
  static constexpr int ofSums = SCALES ? TILES_OF_ROUND * CONSUMERS * TILE_COLUMNS * 4 : CONSUMERS * MERGED * 16;
  static constexpr int sums = fresh + 2 * ofQuery, squares = sums + ofSums, links = squares + (SCALES ? 2 * CONSUMERS * 4 : 0), held = links + LINKS * (int)sizeof(ChainLink);
  static constexpr int full = held + MOST_ATTENTIONS * (int)sizeof(Held), empty = full + 8 * STAGES, bytes = empty + 8 * STAGES;
};
static_assert(sizeof(ChainLink) % 16 == 0 && Layout::bytes <= 232448, "a link is copied 16 bytes at a time");

// ---- words

DEVICE uint64_t word(uint32_t x, uint32_t number) { return (uint64_t)number << 32 | x; }
DEVICE uint64_t word(float x, uint32_t number) { return word(__float_as_uint(x), number); }
DEVICE void put(uint64_t* to, uint64_t w) { asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(to), "l"(w) : "memory"); }
DEVICE void put(uint64_t* to, uint64_t w0, uint64_t w1) {
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(w0), "l"(w1) : "memory");
}
DEVICE uint64_t get(const uint64_t* p) {
  uint64_t w;
  asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
  return w;
}
DEVICE void get(uint64_t (&w)[2], const uint64_t* p) {
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];" : "=l"(w[0]), "=l"(w[1]) : "l"(p) : "memory");
}
DEVICE bool isOf(uint64_t w, uint32_t number) { return (uint32_t)(w >> 32) == number; }
DEVICE bool isOf(const uint64_t (&w)[2], uint32_t number) { return isOf(w[0], number) && isOf(w[1], number); }
DEVICE float floatOf(uint64_t w) { return __uint_as_float((uint32_t)w); }

// ---- what a block has of a link

// Plan is what a block has of a product, found a link ahead while the block waits.
struct Plan {
  Run run;
  // ofFirst: the place of the block's sums among those of its first panel
  int panel, step, ofFirst;
  // groups: that the block finishes, from firstGroup on; count: fragments of the first of them
  int firstGroup, groups, count[2];
  DEVICE Plan(const ChainLink& l) : run(l) {
    if (SCALES && l.whole) {
      run = Run(l.groups, l.blocks);
      return;
    }
    const int steps = l.steps, halves = l.halves;
    panel = run.from / steps, step = run.from - panel * steps;
    ofFirst = (int)blockIdx.x - run.blockOf(panel * steps);
    const int whole = panel / halves;
    firstGroup = whole, groups = run.to / (halves * steps) - whole;
    const int first = firstGroup * halves * steps;
    count[0] = run.blockOf(first + steps - 1) - run.blockOf(first) + 1;
    count[1] = halves == 2 ? (int)blockIdx.x - run.blockOf(first + steps) + 1 : 0;
  }
};

// Tiles are a block's keys of an attention, all of one head. Its runs of keys are numbered.
struct Tiles {
  int runs, head, run, from, to, used;  // runs: of a head at most; used: of them

  template <class Link> DEVICE Tiles(const Link& l, int keys) : runs(min((int)gridDim.x / l.keyHeads, MOST_RUNS)), head(blockIdx.x / runs), run(blockIdx.x % runs) {
    const int all = (keys + TILE - 1) / TILE, each = (all + runs - 1) / runs;
    used = (all + each - 1) / each;
    from = min(all, run * each), to = head < l.keyHeads ? min(all, from + each) : from;
  }
  // has reports whether a key is in one of the tiles, or before them.
  DEVICE bool has(int key) const { return to * TILE > key; }
};

// ---- the producer

// Ahead is what the producer needs of a link, in registers before it comes to it.
struct Ahead {
  int32_t kind, steps, groups, halves, firstMap, transposed, panel1, panel2, slot, keyHeads, depth, gammaWide, blocks, packed, whole;
  const void* gamma;

  DEVICE Ahead(const ChainLink& l)
      : kind(l.kind), steps(l.steps), groups(l.groups), halves(l.halves), firstMap(l.firstMap), transposed(l.transposed), panel1(l.panel1), panel2(l.panel2),
        slot(l.slot), keyHeads(l.keyHeads), depth(l.depth), gammaWide(l.gammaWide), blocks(l.blocks), packed(l.packed), whole(l.whole), gamma(l.gamma) {}

  // prefetch brings the link's maps nearer, and the block's part of γ.
  DEVICE void prefetch(const CUtensorMap* maps) const {
    int count = kind == Attention ? 2 : kind == Source ? 0 : halves == 2 ? 2 : 1 + (panel1 < groups) + (panel2 < groups);
    if (SCALES && packed) count *= 2;
    for (int n = 0; n < count; n++) prefetchMap(maps + firstMap + n);
    if (kind != Product || gamma == nullptr) return;
    const int bytes = depth * (gammaWide ? 4 : 2);
    for (int n = 128 * blockIdx.x; n < bytes; n += 128 * gridDim.x) asm volatile("prefetch.global.L2 [%0];" ::"l"((const char*)gamma + n));
  }
};

DEVICE void produce(const ChainArguments& g, const Held* held, uint32_t at) {
  Ring<STAGES> ring(1), arrived(0);
  int waiting = 0;
  // More on their way than memory needs would only make words wait behind them.
  const auto begin = [&]() __attribute__((always_inline)) {
    barrierWait(at + Layout::empty + 8 * ring.stage, ring.parity);
    if (++waiting <= g.flight) return;
    barrierWait(at + Layout::full + 8 * arrived.stage, arrived.parity);
    arrived.advance();
  };
  Ahead next(g.links[0]), second(g.links[min(1, g.count - 1)]);
  for (int n = 0; n < g.count; n++) {
    const Ahead l = next;
    next = second;
    if (n + 1 < g.count) next.prefetch(g.maps);
    second = Ahead(g.links[min(n + 2, g.count - 1)]);
    if (SCALES && l.kind == Product && l.whole) {
      const Run run(l.groups, l.blocks);
      const int scales = l.packed == Int8 ? 32 : 64;  // of a step and column
      for (int tile = run.from; tile < run.to; tile++) {
        const Place place(l, tile, TILE_COLUMNS);
        for (int half = 0; half < l.halves; half++) {
          const CUtensorMap* map = g.maps + l.firstMap + 2 * (l.halves == 2 ? half : place.weight);
          for (int step = 0; step < l.steps; step++, ring.advance()) {
            const uint32_t barrier = at + Layout::full + 8 * ring.stage, to = at + Layout::ring + ring.stage * STAGE;
            begin();
            barrierExpect(barrier, UNIT + TILE_COLUMNS * scales * 2);
#pragma unroll
            for (int piece = 0; piece < CONSUMERS; piece++)
              loadBoxOnce(to + piece * PIECE, map, barrier, (step * CONSUMERS + piece) * 128, place.column, 0, 0);
            loadBox(to + UNIT, map + 1, barrier, step * scales, place.column, 0, 0);
          }
        }
      }
    } else if (l.kind == Product) {
      const int steps = l.steps, halves = l.halves, transposed = l.transposed;
      const CUtensorMap* maps = g.maps + l.firstMap;
      const Run run(l);
      int panel = run.from / steps, step = run.from % steps;
      for (int i = run.from; i < run.to; i++, ring.advance()) {
        const Place place(l, panel / halves);
        const int weight = halves == 2 ? panel % 2 : place.weight;
        const CUtensorMap* map = maps + weight;
        const uint32_t barrier = at + Layout::full + 8 * ring.stage, to = at + Layout::ring + ring.stage * STAGE;
        begin();
        if (SCALES && l.packed) {
          map += weight;
          barrierExpect(barrier, STAGE);
          loadBoxOnce(to, map, barrier, step * 128, place.column, 0, 0);
          loadBox(to + UNIT, map + 1, barrier, (l.packed == Int8 ? step / 2 : step) * 8, place.column, 0, 0);
        } else {
          barrierExpect(barrier, UNIT);
#pragma unroll
          for (int box = 0; box < 2; box++) {
            const int column = place.column + 64 * box, depth = step * DEPTH;
            loadBoxOnce(to + box * BOX, map, barrier, transposed ? depth : column, transposed ? column : depth, 0, 0);
          }
        }
        if (++step == steps) step = 0, panel++;
      }
    } else if (l.kind == Attention) {
      const Held h = held[l.slot];
      const Tiles t(l, h.before() + 1);
      for (int tile = t.from; tile < t.to; tile++, ring.advance()) {
        const uint32_t barrier = at + Layout::full + 8 * ring.stage, to = at + Layout::ring + ring.stage * STAGE;
        begin();
        barrierExpect(barrier, 2 * ROWS_OF_TILE);
#pragma unroll
        for (int box = 0; box < 2 * BOXES; box++)
          loadBox(to + box * TILE_BOX, g.maps + l.firstMap + box / BOXES, barrier, box % BOXES * 64, tile * TILE, t.head, h.item);
      }
    }
  }
}

// ---- products

// Consumer is what a warp of consumers keeps from link to link.
struct Consumer {
  const ChainArguments& g;
  char* shared;
  uint32_t at, launch;
  Ring<STAGES> ring{0};
  int products = 0;

  DEVICE uint32_t numberOf(int link) const { return launch * NUMBERS + link; }
  DEVICE uint32_t full(const Ring<STAGES>& r) const { return at + Layout::full + 8 * r.stage; }
  DEVICE uint32_t stage(const Ring<STAGES>& r) const { return at + Layout::ring + r.stage * STAGE; }
  DEVICE void release() {
    __syncwarp();
    if (lane() == 0) barrierArrive(at + Layout::empty + 8 * ring.stage);
    ring.advance();
  }

  DEVICE void source(const ChainLink& l, int number) const;
  template <bool WHOLE> DEVICE void gather(const ChainLink& l, const Run& run, uint32_t to) const;
  template <bool transposed> DEVICE void multiply(const ChainLink& l, int number, const Plan& plan, uint32_t a);
  template <Packing packed> DEVICE void multiplyPacked(const ChainLink& l, int number, const Plan& plan, uint32_t a);
  template <Packing packed> DEVICE void multiplyWhole(const ChainLink& l, int number, const Run& run, uint32_t a);
  DEVICE void finishWhole(const ChainLink& l, int number, int tile, int count, uint64_t residual) const;
  DEVICE uint32_t squaresOfWarps() const { return at + Layout::squares + products % 2 * CONSUMERS * 4; }
  DEVICE void finish(const ChainLink& l, int number, const Plan& plan) const;
  DEVICE void turn(const ChainLink& l, const Held& h, const Tiles& t);
  DEVICE void addFresh(uint32_t tile, int row) const;
  DEVICE void attend(const ChainLink& l, int number, const Held& h, const Tiles& t);
  DEVICE void merge(const ChainLink& l, int number, const Tiles& t) const;
};

// source makes words of the row that the chain begins with, and of the sums of squares of each 32.
DEVICE void Consumer::source(const ChainLink& l, int number) const {
  if (blockIdx.x >= l.groups || threadIdx.x >= PANEL / 2) return;
  const int at = blockIdx.x * (PANEL / 2) + threadIdx.x;
  const uint32_t both = 2 * at < l.depth ? ((const uint32_t*)l.data)[at] : 0;
  const float2 x = unpack(both);
  float square = x.x * x.x + x.y * x.y;
#pragma unroll
  for (int other = 8; other > 0; other /= 2) square += __shfl_xor_sync(~0u, square, other);
  if (2 * at < l.depth) put(l.out + at, word(both, numberOf(number)));
  if (threadIdx.x % 16 == 0) put(l.outSquares + at / 16, word(square, numberOf(number)));
}

// putPacked writes four neighbours of A where multiplyPacked reads them: as whole numbers, times a
// power of two of their group, in two bytes each. Eight threads side by side have those of a group.
DEVICE void putPacked(uint32_t to, int four, uint32_t low, uint32_t high) {
  const float2 x = unpack(low), y = unpack(high);
  const float list[4] = {x.x, x.y, y.x, y.y};
  uint32_t most = 0;  // as bits, of which those of a NaN are the largest
#pragma unroll
  for (int n = 0; n < 4; n++) most = max(most, __float_as_uint(fabsf(list[n])));
#pragma unroll
  for (int other = 1; other < 8; other *= 2) most = max(most, __shfl_xor_sync(~0u, most, other));
  const Power power = Power::of(__uint_as_float(most));
  const float up = power.up / 2;  // the largest number has 14 bits then
  const int group = four / 8, in = four % 8;
  int q[4];
#pragma unroll
  for (int n = 0; n < 4; n++) q[n] = __float2int_rn(list[n] * up);
  const uint32_t lower = __byte_perm(__byte_perm(q[0], q[1], 0x40), __byte_perm(q[2], q[3], 0x40), 0x5410);
#pragma unroll
  for (int n = 0; n < 4; n++) q[n] += 128;
  const uint32_t upper = __byte_perm(__byte_perm(q[0], q[1], 0x51), __byte_perm(q[2], q[3], 0x51), 0x5410);
  const uint32_t at = to + group * 64 + in % 4 * 8 + in / 4 * 4;
  storeShared4(at, upper), storeShared4(at + 32, lower);
  if (in == 0) storeShared4(to + PIECES_OF_A + group * 4, most >= 0x7f800000 ? __uint_as_float(0x7fffffff) : 2 * power.down);
}

// putStep writes four neighbours of a step of A where multiply reads them: what a lane multiplies
// by in all four products of a step lies side by side. Element 16k + 8n + 2t + e is of product k,
// and of the lanes whose number is t modulo 4.
DEVICE void putStep(uint32_t to, int four, uint32_t low, uint32_t high) {
  const uint32_t at = to + four % 2 * 64 + four / 2 * 4;
  storeShared4(at, low), storeShared4(at + 32, high);
}

// gather brings the steps of A that the block multiplies to shared memory, times γ, in the order of
// the run. For whole columns that is all of A, of which a block adds up the squares.
template <bool WHOLE> DEVICE void Consumer::gather(const ChainLink& l, const Run& run, uint32_t to) const {
  constexpr int AHEAD = SCALES ? 4 : 2;
  const int FOURS = !SCALES || !l.packed ? DEPTH / 4 : l.packed == Int8 ? 128 / 4 : 256 / 4;
  const int steps = WHOLE ? l.steps * CONSUMERS : l.steps;
  const int count = WHOLE ? (run.from < run.to ? steps * FOURS : 0) : min(run.to - run.from, steps) * FOURS, first = WHOLE ? 0 : run.from % steps;
  const uint32_t number = numberOf(l.inNumber);
  float squares = 0;
  for (int i = threadIdx.x; i < count; i += AHEAD * JOINING) {
    uint64_t x[AHEAD][2] = {};
    float gamma[AHEAD][4] = {};
    int depth[AHEAD];
#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
      const int at = i + n * JOINING;
      int step = first + at / FOURS;
      if (step >= steps) step -= steps;
      depth[n] = (step * FOURS + at % FOURS) * 4;
      if (at >= count || depth[n] >= l.depth) depth[n] = -1;
      if (depth[n] >= 0 && l.gamma != nullptr) {
        if (l.gammaWide)
          load<4>((const float*)l.gamma + depth[n], gamma[n]);
        else
          load<4>((const Scalar*)l.gamma + depth[n], gamma[n]);
      }
    }
    for (bool there = false; !there;) {
      there = true;
#pragma unroll
      for (int n = 0; n < AHEAD; n++)
        if (depth[n] >= 0 && !isOf(x[n], number)) get(x[n], l.in + depth[n] / 2);
#pragma unroll
      for (int n = 0; n < AHEAD; n++)
        if (depth[n] >= 0) there &= isOf(x[n], number);
    }
#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
      if (i + n * JOINING >= count) continue;
      uint32_t low = 0, high = 0;
      if (depth[n] >= 0) {
        low = (uint32_t)x[n][0], high = (uint32_t)x[n][1];
        if (WHOLE) {
          const float2 y = unpack(low), z = unpack(high);
          squares += fmaf(y.x, y.x, fmaf(y.y, y.y, fmaf(z.x, z.x, z.y * z.y)));
        }
        if (l.gamma != nullptr) {
          const float2 y = unpack(low), z = unpack(high);
          low = pack(y.x * gamma[n][0], y.y * gamma[n][1]), high = pack(z.x * gamma[n][2], z.y * gamma[n][3]);
        }
      }
      const int four = i + n * JOINING;
      if (SCALES && l.packed)
        putPacked(to + four / FOURS * PACKED_A, four % FOURS, low, high);
      else
        putStep(to + four / 16 * (DEPTH * 2), four % 16, low, high);
    }
  }
  if (!WHOLE) return;
  squares = sumOfWarp(squares);
  if (lane() == 0) storeShared4(squaresOfWarps() + 4 * warp(), squares);
}

#ifdef PACKED
// multiplyCodes is a product of bytes of whole numbers, 16 rows by 32 and 32 by 8.
DEVICE void multiplyCodes(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
               : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}

// sixteenth are four codes of four bits that are the upper ones of bytes, as bytes that are 16 times
// what they mean.
DEVICE uint32_t sixteenth(uint32_t x) { return (x ^ 0x80808080) & 0xf0f0f0f0; }

// PackedStep is what a warp multiplies at once: of 16 columns 128 bytes of codes, their scales, and
// of A what the lane multiplies codes and their sums by.
template <Packing packed> struct PackedStep {
  static constexpr int SETS = packed == Int8 ? 1 : 2;  // of four groups, whose bytes are the columns of a product
  uint32_t code[4][4], scale[SETS][2];
  float2 mine[SETS];
  float2 power[SETS];

  DEVICE void loadA(uint32_t x) {
#pragma unroll
    for (int set = 0; set < SETS; set++) {
      mine[set] = loadShared8(x + set * 256 + (lane() / 4 % 4 * 2 + lane() / 16) * 32 + lane() % 4 * 8);
      power[set] = loadShared8(x + PIECES_OF_A + (2 * set + lane() % 2) * 8);
    }
  }
  // load reads codes of 16 columns. scales says where the lane has two scales of a set and a column.
  template <class Scales> DEVICE void load(uint32_t codes, const Scales& scales) {
#pragma unroll
    for (int k = 0; k < 4; k++) loadMatrix4(code[k], boxed(codes, lane() % 16, 2 * k + lane() / 16));
#pragma unroll
    for (int set = 0; set < SETS; set++)
#pragma unroll
      for (int n = 0; n < 2; n++) scale[set][n] = loadShared4(scales(set, lane() / 4 + 8 * n));
  }
  // add adds to the lane's sums, which are those of upper bytes of A, or of lower ones.
  DEVICE void add(float (&sums)[2]) const {
    const int t = lane() % 4;
#pragma unroll
    for (int set = 0; set < SETS; set++) {
      int c[4][4];
#pragma unroll
      for (int n = 0; n < 4; n++) {
        const uint32_t b0 = __float_as_uint(mine[set].x), b1 = __float_as_uint(mine[set].y);
        if (packed == Int8) {
          multiplyCodes(c[n], code[n], b0, b1);
        } else {
          const int group = 4 * set + n;
          const uint32_t v = code[group / 2][group % 2 * 2], w = code[group / 2][group % 2 * 2 + 1];
          const uint32_t codes[4] = {sixteenth(v << 4), sixteenth(w << 4), sixteenth(v), sixteenth(w)};
          multiplyCodes(c[n], codes, b0, b1);
        }
      }
      // Of a group's sums only those of its own columns mean something.
      float d[4];
#pragma unroll
      for (int e = 0; e < 4; e++) d[e] = (float)(t % 2 ? c[2 + e % 2][e] : c[e % 2][e]);
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const float2 by = __half22float2(*(const __half2*)&scale[set][n]);
        sums[n] = fmaf(by.x * power[set].x, d[2 * n], sums[n]);
        sums[n] = fmaf(by.y * power[set].y, d[2 * n + 1], sums[n]);
      }
    }
  }
};

// sumOfFour adds what the four lanes of a column have.
template <Packing packed> DEVICE void sumOfFour(float (&sums)[2]) {
  const float counts = (lane() % 4 < 2 ? 256.f : 1.f) / (packed == Int4 ? 16 : 1);
#pragma unroll
  for (int n = 0; n < 2; n++) sums[n] *= counts, sums[n] += __shfl_xor_sync(~0u, sums[n], 1), sums[n] += __shfl_xor_sync(~0u, sums[n], 2);
}

// multiplyPacked is multiply of codes of four or eight bits.
template <Packing packed> DEVICE void Consumer::multiplyPacked(const ChainLink& l, int number, const Plan& plan, uint32_t a) {
  const int steps = l.steps, row = 16 * warp() + lane() / 4, t = lane() % 4;
  int panel = plan.panel, step = plan.step, slot = 0, place = plan.ofFirst;
  float sums[2] = {0, 0};
#pragma unroll 1
  for (int left = plan.run.to - plan.run.from; left > 0; left--) {
    PackedStep<packed> s;
    s.loadA(a + slot * PACKED_A);
    barrierWait(full(ring), ring.parity);
    const uint32_t box = stage(ring);
    s.load(box + warp() * PIECE, [&](int set, int column) { return box + UNIT + (16 * warp() + column) * 16 + (packed == Int8 ? step % 2 : set) * 8 + t % 2 * 4; });
    release();
    s.add(sums);
    if (++slot == steps) slot = 0;
    if (++step < steps && left > 1) continue;
    sumOfFour<packed>(sums);
    if (t == 0) {
      uint64_t* to = l.partials + (panel * l.fragments + place) * PANEL + row;
      put(to, word(sums[0], numberOf(number)));
      put(to + 8, word(sums[1], numberOf(number)));
    }
    sums[0] = sums[1] = 0, step = place = 0, panel++;
  }
}

// multiplyWhole multiplies columns by all of A. Each warp has an eighth of a step's depth, and the
// block adds up what its warps have.
template <Packing packed> DEVICE void Consumer::multiplyWhole(const ChainLink& l, int number, const Run& run, uint32_t a) {
  const int steps = l.steps, halves = l.halves, t = lane() % 4;
  uint64_t residual = 0;  // on its way during the product
  if (l.residual && (int)threadIdx.x < (run.to - run.from) * TILE_COLUMNS && threadIdx.x < TILES_OF_ROUND * TILE_COLUMNS) {
    const Place place(l, run.from + threadIdx.x / TILE_COLUMNS, TILE_COLUMNS);
    residual = get(l.residual + (l.weights[place.weight].first + place.column + threadIdx.x % TILE_COLUMNS) / 2);
  }
  int slot = 0, first = run.from;
#pragma unroll 1
  for (int tile = run.from; tile < run.to; tile++) {
#pragma unroll 1
    for (int half = 0; half < halves; half++) {
      float sums[2] = {0, 0};
#pragma unroll 1
      for (int step = 0; step < steps; step++) {
        PackedStep<packed> s;
        s.loadA(a + (step * CONSUMERS + warp()) * PACKED_A);
        barrierWait(full(ring), ring.parity);
        const uint32_t box = stage(ring);
        s.load(box + warp() * PIECE, [&](int set, int column) {
          if (packed == Int8) return box + UNIT + column * 64 + ((warp() / 2 ^ column / 2 & 3) << 4) + warp() % 2 * 8 + t % 2 * 4;
          return box + UNIT + column * 128 + ((warp() ^ column & 7) << 4) + set * 8 + t % 2 * 4;
        });
        release();
        s.add(sums);
      }
      sumOfFour<packed>(sums);
      if (t == 0) {
        const uint32_t to = at + Layout::sums + ((slot * CONSUMERS + warp()) * TILE_COLUMNS + lane() / 4) * 4;
        storeShared4(to, sums[0]), storeShared4(to + 32, sums[1]);
      }
      slot++;
    }
    const bool last = tile + 1 == run.to;
    if (!last && slot < TILES_OF_ROUND) continue;
    groupSync(1, JOINING);
    finishWhole(l, number, first, tile + 1 - first, residual);
    if (!last) groupSync(1, JOINING);
    slot = 0, first = tile + 1, residual = 0;
  }
}

// finishWhole finishes the columns of a round of tiles. A thread has a column.
DEVICE void Consumer::finishWhole(const ChainLink& l, int number, int tile, int count, uint64_t residual) const {
  if ((int)threadIdx.x / 32 * 2 >= count) return;
  const int nth = min((int)threadIdx.x / TILE_COLUMNS, count - 1), inTile = threadIdx.x % TILE_COLUMNS;
  const bool there = threadIdx.x < count * TILE_COLUMNS, gated = l.halves == 2;
  const Place place(l, tile + nth, TILE_COLUMNS);
  const Weight& w = l.weights[place.weight];
  const int column = place.column + inTile, c = w.first + column;
  float y[2] = {0, 0}, scale = 1;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (half == 1 && !gated) break;
    const uint32_t from = at + Layout::sums + ((nth * l.halves + half) * CONSUMERS * TILE_COLUMNS + inTile) * 4;
#pragma unroll
    for (int n = 0; n < CONSUMERS; n++) y[half] += loadSharedFloat(from + n * TILE_COLUMNS * 4);
  }
  if (l.whole == 2) {
    float sum = 0;
    const uint32_t from = at + Layout::squares + (products + 1) % 2 * CONSUMERS * 4;
#pragma unroll
    for (int n = 0; n < CONSUMERS; n++) sum += loadSharedFloat(from + 4 * n);
    scale = rsqrtf(sum / l.depth + l.eps);
  }
  float z = y[0] * scale;
  if (w.bias) z += loadElement(w.bias, column, w.biasElement);
  if (gated) {
    float up = y[1] * scale;
    if (l.weights[1].bias) up += loadElement(l.weights[1].bias, column, l.weights[1].biasElement);
    z = silu(z) * up;
  }
  if (l.residual && there) {
    while (!isOf(residual, numberOf(l.residualNumber))) residual = get(l.residual + c / 2);
    z += c % 2 ? unpack((uint32_t)residual).y : unpack((uint32_t)residual).x;
  }
  __syncwarp();
  const uint32_t both = pack(z, __shfl_down_sync(~0u, z, 1));
  if (there && l.out && c % 2 == 0) put(l.out + c / 2, word(both, numberOf(number)));
  if (there && l.data) {
    if (l.outElement == ElementF32)
      ((float*)l.data)[c] = z;
    else if (c % 2 == 0)
      ((uint32_t*)l.data)[c / 2] = both;
  }
  if (l.outSquares) {
    const float2 x = unpack(both);
    float square = c % 2 ? 0 : x.x * x.x + x.y * x.y;
#pragma unroll
    for (int other = 1; other < TILE_COLUMNS; other *= 2) square += __shfl_xor_sync(~0u, square, other);
    if (there && inTile == 0) put(l.outSquares + tile + nth, word(square, numberOf(number)));
  }
}
#endif

// multiply sends the sums of the block's fragments. B is the first operand of mma.sync and A the
// second, of whose 8 columns each is the row. A warp has 16 of the panel's columns.
template <bool transposed> DEVICE void Consumer::multiply(const ChainLink& l, int number, const Plan& plan, uint32_t a) {
  const int own = warp() % 4, half = lane() % 8 + 8 * (lane() / 16), other = lane() / 8 % 2, steps = l.steps;
  // Where the lane reads of a box and of a step of A. The compiler would find it anew in each step.
  uint32_t ofBox = warp() / 4 * BOX + (transposed ? boxed(0, 16 * own + lane() % 8 + 8 * other, lane() / 16) : boxed(0, half, 2 * own + other));
  uint32_t ofA = a + lane() % 4 * 32;
  asm volatile("" : "+r"(ofBox), "+r"(ofA));
  int panel = plan.panel, step = plan.step, slot = 0, place = plan.ofFirst;
  float sums[2][4] = {};
#pragma unroll 1
  for (int left = plan.run.to - plan.run.from; left > 0; left--) {
    uint32_t b[4][4];
    uint4 x[2];
    barrierWait(full(ring), ring.parity);
    const uint32_t box = stage(ring) + ofBox;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      if (transposed)
        loadMatrix4(b[k], box ^ 32 * k);
      else
        loadMatrix4Transposed(b[k], box + 16 * 128 * k);
    }
#pragma unroll
    for (int n = 0; n < 2; n++) x[n] = loadShared16(ofA + slot * DEPTH * 2 + 16 * n);
    if (++slot == steps) slot = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) multiplyAdd<Type>(sums[k % 2], b[k], k % 2 ? x[k / 2].z : x[k / 2].x, k % 2 ? x[k / 2].w : x[k / 2].y);
    release();
    if (++step < steps && left > 1) continue;
    if (lane() % 4 == 0) {
      uint64_t* to = l.partials + (panel * l.fragments + place) * PANEL + 16 * warp() + lane() / 4;
      put(to, word(sums[0][0] + sums[1][0], numberOf(number)));
      put(to + 8, word(sums[0][2] + sums[1][2], numberOf(number)));
    }
#pragma unroll
    for (int e = 0; e < 4; e++) sums[0][e] = sums[1][e] = 0;
    step = place = 0, panel++;
  }
}

// finish adds the fragments of the groups whose last step the block has. Four warps have a group,
// a thread has a column.
DEVICE void Consumer::finish(const ChainLink& l, int number, const Plan& plan) const {
  const int inPanel = threadIdx.x % PANEL;
  for (int nth = threadIdx.x / PANEL; nth < plan.groups; nth += JOINING / PANEL) {
    const int group = plan.firstGroup + nth;
    const Place place(l, group);
    const Weight& w = l.weights[place.weight];
    const int column = place.column + inPanel, c = w.first + column;
    const bool there = column < w.columns;
    const int count[2] = {nth == 0 ? plan.count[0] : 1, nth == 0 || l.halves == 1 ? plan.count[1] : 1};
    float y[2] = {0, 0}, bias[2] = {0, 0}, scale = 1;
    if (there && w.bias) bias[0] = loadElement(w.bias, column, w.biasElement);
    if (there && l.halves == 2 && l.weights[1].bias) bias[1] = loadElement(l.weights[1].bias, column, l.weights[1].biasElement);
    const uint64_t* from = l.partials + (int64_t)group * l.halves * l.fragments * PANEL + inPanel;
    // What is needed behind the wait is read before it.
    const bool gated = l.halves == 2, adds = l.residual != nullptr, normed = l.squares != nullptr, wide = l.outElement == ElementF32;
    const float depth = l.depth, eps = l.eps;
    uint64_t *const out = l.out, *const outSquares = l.outSquares;
    void* const data = l.data;
    uint64_t x[MOST_FRAGMENTS] = {}, squares[MOST_SQUARES] = {}, residual = 0;
    for (bool all = false; !all;) {
      all = true;
#pragma unroll
      for (int n = 0; n < MOST_FRAGMENTS; n++)
        if (n < count[0] + count[1] && !isOf(x[n], numberOf(number))) x[n] = get(from + (n < count[0] ? n : l.fragments + n - count[0]) * PANEL);
      if (l.residual && there && !isOf(residual, numberOf(l.residualNumber))) residual = get(l.residual + c / 2);
      if (l.squares)
#pragma unroll
        for (int n = 0; n < MOST_SQUARES; n++)
          if (lane() + 32 * n < l.squareCount && !isOf(squares[n], numberOf(l.inNumber))) squares[n] = get(l.squares + lane() + 32 * n);
#pragma unroll
      for (int n = 0; n < MOST_FRAGMENTS; n++)
        if (n < count[0] + count[1]) all &= isOf(x[n], numberOf(number));
      if (l.residual && there) all &= isOf(residual, numberOf(l.residualNumber));
      if (l.squares)
#pragma unroll
        for (int n = 0; n < MOST_SQUARES; n++)
          if (lane() + 32 * n < l.squareCount) all &= isOf(squares[n], numberOf(l.inNumber));
    }
    __syncwarp();
    if (normed) {
      float sum = 0;
#pragma unroll
      for (int n = 0; n < MOST_SQUARES; n++)
        if (lane() + 32 * n < l.squareCount) sum += floatOf(squares[n]);
      scale = rsqrtf(sumOfWarp(sum) / depth + eps);
    }
#pragma unroll
    for (int n = 0; n < MOST_FRAGMENTS; n++) {
      if (n < count[0])
        y[0] += floatOf(x[n]);
      else if (n < count[0] + count[1])
        y[1] += floatOf(x[n]);
    }
    float z = fmaf(y[0], scale, bias[0]);
    if (gated) z = silu(z) * fmaf(y[1], scale, bias[1]);
    if (adds) z += c % 2 ? unpack((uint32_t)residual).y : unpack((uint32_t)residual).x;
    if (!there) z = 0;
    const uint32_t both = pack(z, __shfl_down_sync(~0u, z, 1));
    if (there && out && c % 2 == 0) put(out + c / 2, word(both, numberOf(number)));
    if (there && data) {
      if (wide)
        ((float*)data)[c] = z;
      else if (c % 2 == 0)
        ((uint32_t*)data)[c / 2] = both;
    }
    if (outSquares) {
      const float2 x = unpack(both);
      const float square = sumOfWarp(c % 2 ? 0 : x.x * x.x + x.y * x.y);
      if (lane() == 0) put(outSquares + group * (PANEL / 32) + inPanel / 32, word(square, numberOf(number)));
    }
  }
}

// ---- attention

// turn brings turned queries to shared memory. Where the block has the new token's tile, so it does
// the new key and value, and adds them to the cache. A thread has two elements of either half of a
// row.
DEVICE void Consumer::turn(const ChainLink& l, const Held& h, const Tiles& t) {
  constexpr int THREADS_OF_ROW = HEAD_SIZE / 4;
  const int pair = threadIdx.x % THREADS_OF_ROW, group = l.heads / l.keyHeads, tokens = h.before();
  // Rows are the new key, the new value, and queries, of which there are eight for the product.
  for (int row = threadIdx.x / THREADS_OF_ROW; row < 2 + MOST_GROUP; row += JOINING / THREADS_OF_ROW) {
    const bool isKey = row == 0, isValue = row == 1;
    const uint32_t to = at + (row < 2 ? Layout::fresh + row * Layout::ofQuery : Layout::queries + (row - 2) * Layout::ofQuery) + 4 * pair;
    if (row >= 2 + group) {
      storeShared4(to, 0u);
      storeShared4(to + HEAD_SIZE, 0u);
      continue;
    }
    if (row < 2 && !t.has(tokens)) continue;
    const uint64_t* from = (isKey ? l.k + t.head * (HEAD_SIZE / 2) : isValue ? l.v + t.head * (HEAD_SIZE / 2) : l.in + (t.head * group + row - 2) * (HEAD_SIZE / 2)) + pair;
    float2 of[2] = {{1, 0}, {1, 0}};
    if (l.frequencies && !isValue)
#pragma unroll
      for (int n = 0; n < 2; n++) {
        // The angle may be many turns, which float32 could not hold; within one turn it can.
        constexpr double turn = 6.283185307179586476925;
        const double theta = (l.offset + tokens) * l.frequencies[2 * pair + n];
        sincosf((float)(theta - turn * rint(theta / turn)), &of[n].y, &of[n].x);
        of[n].x *= l.amplitude, of[n].y *= l.amplitude;
      }
    uint64_t x[2];
    do x[0] = get(from), x[1] = get(from + HEAD_SIZE / 4);
    while (!isOf(x, numberOf(l.inNumber)));
    uint32_t low = (uint32_t)x[0], high = (uint32_t)x[1];
    if (l.frequencies && !isValue) {
      const float2 y = unpack(low), z = unpack(high);
      low = pack(y.x * of[0].x - z.x * of[0].y, y.y * of[1].x - z.y * of[1].y);
      high = pack(z.x * of[0].x + y.x * of[0].y, z.y * of[1].x + y.y * of[1].y);
    }
    storeShared4(to, low);
    storeShared4(to + HEAD_SIZE, high);
    if (row >= 2 || !h.takes()) continue;
    Scalar* cached = isKey ? (Scalar*)l.keys + h.item * l.keysBatch + t.head * l.keysHead + tokens * l.keysRow
                           : (Scalar*)l.values + h.item * l.valuesBatch + t.head * l.valuesHead + tokens * l.valuesRow;
    ((uint32_t*)cached)[pair] = low, ((uint32_t*)cached)[pair + HEAD_SIZE / 4] = high;
  }
}

// addFresh puts the new token into its tile, which is the last one, once a warp comes to that: the
// ring has no room for all tiles at once.
DEVICE void Consumer::addFresh(uint32_t tile, int row) const {
  constexpr int PIECES = HEAD_SIZE / 8;
  for (int i = lane(); i < 2 * PIECES; i += 32) {
    const int isValue = i / PIECES, piece = i % PIECES;
    storeShared16(tiled(tile + isValue * ROWS_OF_TILE, row, piece), loadShared16(at + Layout::fresh + isValue * Layout::ofQuery + 16 * piece));
  }
  // Values behind the new one may be anything, also what no probability of 0 makes 0.
  for (int i = lane(); i < BOXES * TILE * 8; i += 32)
    if (i / 8 % TILE > row) storeShared16(tile + ROWS_OF_TILE + 16 * i, make_uint4(0, 0, 0, 0));
  sharedToAsync();
  __syncwarp();
}

// attend sends what the block's keys give of the queries that share them. Keys are rows of a
// product of a warp, and these queries its eight columns.
DEVICE void Consumer::attend(const ChainLink& l, int number, const Held& h, const Tiles& t) {
  if (warp() == 0) {
    const int keys = h.before() + 1, own = lane() / 4, quad = lane() % 4;
    uint32_t q[HEAD_SIZE / 16][2];
#pragma unroll
    for (int k = 0; k < HEAD_SIZE / 16; k++) {
      const uint32_t from = at + Layout::queries + own * Layout::ofQuery + 32 * k + quad * 4;
      q[k][0] = loadShared4(from), q[k][1] = loadShared4(from + 16);
    }
    // A lane has two queries.
    float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, o[HEAD_SIZE / 16][4] = {};
    for (int tile = t.from; tile < t.to; tile++) {
      barrierWait(full(ring), ring.parity);
      const uint32_t k = stage(ring), v = k + ROWS_OF_TILE;
      if ((tile + 1) * TILE >= keys) addFresh(k, (keys - 1) % TILE);
      float s[2][4] = {};
#pragma unroll
      for (int step = 0; step < HEAD_SIZE / 16; step++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
          uint32_t a[4];
          loadMatrix4(a, tiled(k, 16 * n + lane() % 16, 2 * step + lane() / 16));
          multiplyAdd<Type>(s[n], a, q[step][0], q[step][1]);
        }
      float factor[2];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float now = most[e];
#pragma unroll
        for (int n = 0; n < 4; n++) {
          float& x = s[n / 2][n % 2 * 2 + e];
          x = tile * TILE + 8 * n + own < keys ? x * l.scale : -INFINITY;
          now = fmaxf(now, x);
        }
#pragma unroll
        for (int other = 4; other < 32; other *= 2) now = fmaxf(now, __shfl_xor_sync(~0u, now, other));
        factor[e] = exp2Fast(most[e] - now);
        most[e] = now, total[e] *= factor[e];
#pragma unroll
        for (int n = 0; n < 4; n++) {
          float& x = s[n / 2][n % 2 * 2 + e];
          x = exp2Fast(x - now), total[e] += x;
        }
      }
      uint32_t p[4];
#pragma unroll
      for (int n = 0; n < 4; n++)
        asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(p[n]) : "r"(pack(s[n / 2][n % 2 * 2], s[n / 2][n % 2 * 2 + 1])));
#pragma unroll
      for (int n = 0; n < HEAD_SIZE / 16; n++) {
#pragma unroll
        for (int e = 0; e < 4; e++) o[n][e] *= factor[e % 2];
#pragma unroll
        for (int step = 0; step < 2; step++) {
          uint32_t a[4];
          loadMatrix4Transposed(a, tiled(v, 16 * step + lane() % 8 + lane() / 16 * 8, 2 * n + lane() / 8 % 2));
          multiplyAdd<Type>(o[n], a, p[2 * step], p[2 * step + 1]);
        }
      }
      release();
    }
    const int group = l.heads / l.keyHeads;
#pragma unroll
    for (int other = 4; other < 32; other *= 2) total[0] += __shfl_xor_sync(~0u, total[0], other), total[1] += __shfl_xor_sync(~0u, total[1], other);
#pragma unroll
    for (int e = 0; e < 2; e++) {
      if (2 * quad + e >= group) continue;
      uint64_t* to = l.partials + ((int64_t)(t.head * group + 2 * quad + e) * t.runs + t.run) * PARTIAL;
      if (own == 0) put(to, word(most[e], numberOf(number)), word(total[e], numberOf(number)));
#pragma unroll
      for (int n = 0; n < HEAD_SIZE / 8; n++) put(to + 2 + 8 * n + own, word(o[n / 2][n % 2 * 2 + e], numberOf(number)));
    }
    return;
  }
  for (int tile = t.from; tile < t.to; tile++) {
    barrierWait(full(ring), ring.parity);  // an earlier arrival would count for the tile before
    release();
  }
}

// merge adds what runs of keys give. A block has a quarter of a head's columns, a thread two of
// them.
DEVICE void Consumer::merge(const ChainLink& l, int number, const Tiles& t) const {
  constexpr int PAIRS = MERGED, PARTS = HEAD_SIZE / 2 / PAIRS, AHEAD = MOST_RUNS / (JOINING / PAIRS);
  for (int part = blockIdx.x; part < l.heads * PARTS; part += gridDim.x) {
    const int head = part / PARTS, pair = part % PARTS * PAIRS + threadIdx.x % PAIRS;
    uint64_t x[AHEAD][2] = {}, o[AHEAD][2] = {};
    bool there[AHEAD];
    for (bool all = false; !all;) {
      all = true;
#pragma unroll
      for (int n = 0; n < AHEAD; n++) {
        const int run = threadIdx.x / PAIRS + n * (JOINING / PAIRS);
        const uint64_t* from = l.partials + ((int64_t)head * t.runs + run) * PARTIAL;
        there[n] = run < t.used;
        if (there[n] && !isOf(x[n], numberOf(number))) get(x[n], from);
        if (there[n] && !isOf(o[n], numberOf(number))) get(o[n], from + 2 + 2 * pair);
      }
#pragma unroll
      for (int n = 0; n < AHEAD; n++)
        if (there[n]) all &= isOf(x[n], numberOf(number)) && isOf(o[n], numberOf(number));
    }
    __syncwarp();
    Joined sum;
#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
      if (!there[n]) continue;
      Joined own;
      own.most = floatOf(x[n][0]), own.total = floatOf(x[n][1]), own.o[0] = floatOf(o[n][0]), own.o[1] = floatOf(o[n][1]);
      sum.add(own);
    }
    sum.addLanes<PAIRS>();
    Joined* ofWarps = (Joined*)(shared + Layout::sums);
    if (part != blockIdx.x) groupSync(1, JOINING);  // the sums of the part before have been read
    if (lane() < PAIRS) ofWarps[warp() * PAIRS + lane()] = sum;
    groupSync(1, JOINING);
    if (threadIdx.x >= 32) continue;
    // Lanes that have the same pair share its warps' sums.
    constexpr int SHARE = CONSUMERS / (32 / PAIRS);
    sum = ofWarps[lane() / PAIRS * SHARE * PAIRS + lane() % PAIRS];
#pragma unroll
    for (int w = 1; w < SHARE; w++) sum.add(ofWarps[(lane() / PAIRS * SHARE + w) * PAIRS + lane() % PAIRS]);
    sum.addLanes<PAIRS>();
    if (lane() >= PAIRS) continue;
    const uint32_t both = pack(sum.o[0] / sum.total, sum.o[1] / sum.total);
    const int at = head * (HEAD_SIZE / 2) + pair;
    put(l.out + at, word(both, numberOf(number)));
    if (l.data) ((uint32_t*)l.data)[at] = both;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) KERNEL(const __grid_constant__ ChainArguments g) {
  extern __shared__ __align__(1024) char shared[];
  const uint32_t at = sharedAddress(shared);
  constexpr int PIECES = sizeof(ChainLink) / 16;
  const auto pieceOf = [&](int link) { return (uint4*)(shared + Layout::links + link % LINKS * (int)sizeof(ChainLink)) + threadIdx.x; };
  Held* held = (Held*)(shared + Layout::held);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; stage++) {
      barrierInit(at + Layout::full + 8 * stage, 1);
      barrierInit(at + Layout::empty + 8 * stage, CONSUMERS);
    }
    barrierInitDone();
  }
  const uint32_t launch = *(volatile const uint32_t*)&g.state->launches + 1;
  for (int n = threadIdx.x; n < g.count; n += THREADS) {
    const ChainLink& l = g.links[n];
    if (l.kind != Attention) continue;
    const int item = l.state[0], tokens = l.state[1 + item];
    held[l.slot] = {item, l.state[1 + l.items + item] ? tokens : -1 - tokens};
  }
  for (int link = 0; link < min(2, g.count); link++)
    if (threadIdx.x < PIECES) *pieceOf(link) = ((const uint4*)(g.links + link))[threadIdx.x];
  __syncthreads();
  if (warp() == CONSUMERS) {
    if (lane() == 0) produce(g, held, at);
    return;
  }
  Consumer c{g, shared, at, launch};
  Plan planned(*(const ChainLink*)(shared + Layout::links));
  for (int n = 0; n < g.count; n++) {
    const ChainLink& l = *(const ChainLink*)(shared + Layout::links + n % LINKS * (int)sizeof(ChainLink));
    const bool copies = n + 2 < g.count && threadIdx.x < PIECES;
    uint4 piece;
    if (copies) piece = ((const uint4*)(g.links + n + 2))[threadIdx.x];
    // Behind this barrier the link's input is there, and so is the link after the next one.
    const auto meet = [&] {
      if (copies) *pieceOf(n + 2) = piece;
      groupSync(1, JOINING);
    };
    // The next link's is found before this one waits.
    const Plan run = planned;
    planned = Plan(*(const ChainLink*)(shared + Layout::links + (n + 1) % LINKS * (int)sizeof(ChainLink)));
    if (l.kind == Source) {
      c.source(l, n);
      meet();
    } else if (l.kind == Product) {
      const uint32_t a = at + Layout::a + c.products % PLACES_OF_A * Layout::ofA;
#ifdef PACKED
      if (l.whole) {
        c.gather<true>(l, run.run, a);
        c.products++;
        meet();
        if (l.packed == Int8)
          c.multiplyWhole<Int8>(l, n, run.run, a);
        else
          c.multiplyWhole<Int4>(l, n, run.run, a);
        continue;
      }
#endif
      c.gather<false>(l, run.run, a);
      c.products++;
      meet();
#ifdef PACKED
      if (l.packed == Int8)
        c.multiplyPacked<Int8>(l, n, run, a);
      else if (l.packed == Int4)
        c.multiplyPacked<Int4>(l, n, run, a);
      else
#endif
      if (l.transposed)
        c.multiply<true>(l, n, run, a);
      else
        c.multiply<false>(l, n, run, a);
      if (PLACES_OF_A == 1) groupSync(1, JOINING);  // all warps have read A
      c.finish(l, n, run);
    } else {
      const Held h = held[l.slot];
      const Tiles t(l, h.before() + 1);
      if (t.from < t.to) c.turn(l, h, t);
      meet();
      if (t.from < t.to) {
        c.attend(l, n, h, t);
        groupSync(1, JOINING);  // what other warps poll would delay the warp that attends
      }
      c.merge(l, n, t);
    }
  }
  // The last block counts the launch and the tokens: all others have read both.
  __shared__ bool last;
  groupSync(1, JOINING);
  if (threadIdx.x == 0) last = atomicAdd(&g.state->ended, 1) == gridDim.x - 1;
  groupSync(1, JOINING);
  if (!last) return;
  if (threadIdx.x == 0) g.state->ended = 0, g.state->launches = launch;
  for (int n = threadIdx.x; n < g.count; n += JOINING) {
    const ChainLink& l = g.links[n];
    if (l.kind == Attention && held[l.slot].takes()) l.state[1 + held[l.slot].item] = held[l.slot].tokens + 1;
  }
}

