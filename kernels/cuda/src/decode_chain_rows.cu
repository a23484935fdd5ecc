// A chain of links for up to sixteen rows: what a model computes for the next tokens of as many
// texts. Links, and how blocks share a product, are those of decode_chain.cu. A row of a product is
// a row of A, and attention's rows are items of the cache, from the first one of its state on.
//
// What differs is what blocks tell each other, sixteen times as much.
//
//   rows:  as the next link multiplies them, times its gamma. A warp that has written some counts
//          that up for the group of 128 columns. One warp of a block waits for counts, and one copy
//          brings all that the block multiplies to shared memory.
//   sums:  of a fragment, or of a run of keys. Their place is EMPTY before, which is a NaN that no
//          sum is. The one thread that needs a sum reads until it is there, and empties its place.
//
// A block finishes some rows and columns of each panel to whose sums it has added, and all its warps
// attend.
//
// Compile for sm_90a with -DKERNEL=name, -DELEMENT_BF16 or -DELEMENT_F16, and -DHEAD_SIZE=64 or 128.
#include "decode_chain.cuh"

constexpr int STAGES = 9, MOST_STEPS = 32;  // MOST_STEPS: of A, that a block has of a product
constexpr int STAGE = UNIT;
constexpr int ROWS = 16, HALF_OF_A = ROWS * DEPTH, STEP_OF_A = 2 * HALF_OF_A, PIECES_OF_STEP = STEP_OF_A / 16;
constexpr int MOST_HELD = 1024;  // rows of all attentions
// A unit of columns is what a warp multiplies of a panel.
constexpr int UNIT_COLUMNS = 16, UNITS_OF_PANEL = PANEL / UNIT_COLUMNS;
constexpr int PIECES_OF_FRAGMENT = ROWS * PANEL / 4;  // of 16 bytes
// Places for rows and for sums, which links take in turns.
constexpr int POOLS = 16, SUM_POOLS = 4;
constexpr int MOST_PIECES_OF_SQUARES = 4;  // that a lane reads of a row
constexpr int MOST_GROUPS = 128, APART = 8;  // counts of groups of columns, and numbers from one to the next
constexpr uint32_t EMPTY = 0xffffffff;

// RowsLink is the host's rowsOfLink in decode_chain_rows.go, behind what all links have.
struct RowsLink : ChainLink {
  int32_t rows;
  int32_t firstQuery, firstKey, firstValue;  // of attention: columns, in pairs
  // Whether rows are read by the next link, the sums of their squares, and rows as residuals.
  int32_t tells, tellsSquares, tellsRaw;
  int32_t inTold;                            // how often each group of the rows before is told of, in a launch
  int32_t nextWide, reserved;
  const void* nextGamma;                     // by which the next link's norm multiplies
};

// RowsChain is the host's rowsChainArguments in decode_chain_rows.go.
struct RowsChain {
  const RowsLink* links;
  const CUtensorMap* maps;
  ChainState* state;
  int32_t count;
  int32_t flight;              // steps on their way at most
  void* rows;                  // of links
  void* sums;                  // of blocks
  int64_t rowBytes, sumBytes;  // of a place
  uint32_t* told;              // (link, MOST_GROUPS), how often groups were told of
};

// Held is what an item of an attention's cache holds when the chain begins.
struct Held {
  int32_t tokens;  // -1 - n where the item does not take part
  DEVICE bool takes() const { return tokens >= 0; }
  DEVICE int before() const { return takes() ? tokens : -1 - tokens; }
};

struct Layout {
  static constexpr int ring = 0, a = ring + STAGES * STAGE;  // of an attention, a has what warps add up
  static constexpr int queries = a + MOST_STEPS * STEP_OF_A, ofQuery = HEAD_SIZE * 2 + 16;
  static constexpr int fresh = queries + MOST_GROUP * ofQuery;  // the new key and the new value
  static constexpr int links = fresh + 2 * ofQuery, held = links + LINKS * (int)sizeof(RowsLink);
  static constexpr int items = held + MOST_HELD * (int)sizeof(Held);  // the first item of an attention
  static constexpr int scales = items + 4 * MOST_ATTENTIONS;  // of rows
  static constexpr int full = scales + 4 * ROWS, empty = full + 8 * STAGES, ofA = empty + 8 * STAGES, bytes = ofA + 8;
};
static_assert(sizeof(RowsLink) % 16 == 0 && Layout::bytes <= 232448, "a link is copied 16 bytes at a time");
static_assert(STEP_OF_A % 16 == 0, "A is read 16 bytes at a time");
static_assert(CONSUMERS * MOST_GROUP * PARTIAL * 4 <= MOST_STEPS * STEP_OF_A, "all warps' sums have room");

// ---- what a block has of a link

// Plan is what a block has of a product, found a link ahead while the block waits.
struct Plan {
  Run run;
  int panel, step, ofFirst;  // ofFirst: the place of the block's sums among those of its first panel
  DEVICE Plan(const RowsLink& l) : run(l) {
    panel = run.from / l.steps, step = run.from - panel * l.steps;
    ofFirst = (int)blockIdx.x - run.blockOf(panel * l.steps);
  }
};

// Part is what a block finishes of a group to whose sums it has added: some of its items.
struct Part {
  int first, last, count[2];  // count: fragments of each half
  DEVICE Part(const RowsLink& l, const Run& run, int group, int items) {
    const int steps = l.steps, from = group * l.halves * steps;
    const int begin = run.blockOf(from), end = run.blockOf(from + l.halves * steps - 1), n = end - begin + 1, own = (int)blockIdx.x - begin;
    first = items * own / n, last = items * (own + 1) / n;
    count[0] = run.blockOf(from + steps - 1) - begin + 1;
    count[1] = l.halves == 2 ? end - run.blockOf(from + steps) + 1 : 0;
  }
};

// Tiles are a block's keys of an attention, all of one row's head. Its runs of keys are numbered.
struct Tiles {
  int runs, row, head, run, from, to;  // runs: of a head at most

  template <class Link> DEVICE Tiles(const Link& l, const Held* held) : runs(runsOf(l)), run(blockIdx.x % runs) {
    const int pair = blockIdx.x / runs;
    row = pair / l.keyHeads, head = pair - row * l.keyHeads;
    from = to = 0;
    if (row >= l.rows) return;
    const int all = tilesOf(held[row]), each = (all + runs - 1) / runs;
    from = min(all, run * each), to = min(all, from + each);
  }
  template <class Link> static DEVICE int runsOf(const Link& l) { return min((int)gridDim.x / (l.keyHeads * l.rows), MOST_RUNS); }
  static DEVICE int tilesOf(Held h) { return (h.before() + TILE) / TILE; }
  // usedOf is how many runs have keys.
  static DEVICE int usedOf(Held h, int runs) {
    const int all = tilesOf(h), each = (all + runs - 1) / runs;
    return (all + each - 1) / each;
  }
  // has reports whether a key is in one of the tiles, or before them.
  DEVICE bool has(int key) const { return to * TILE > key; }
};

// ---- the producer

// Ahead is what the producer needs of a link, in registers before it comes to it.
struct Ahead {
  int32_t kind, steps, groups, halves, firstMap, transposed, panel1, panel2, slot, keyHeads, depth, gammaWide, blocks, rows;
  const void* gamma;

  DEVICE Ahead(const RowsLink& l)
      : kind(l.kind), steps(l.steps), groups(l.groups), halves(l.halves), firstMap(l.firstMap), transposed(l.transposed), panel1(l.panel1), panel2(l.panel2),
        slot(l.slot), keyHeads(l.keyHeads), depth(l.depth), gammaWide(l.gammaWide), blocks(l.blocks), rows(l.rows), gamma(l.gamma) {}

  // prefetch brings the link's maps nearer, and the block's part of γ.
  DEVICE void prefetch(const CUtensorMap* maps) const {
    int count = kind == Attention ? 2 : kind == Source ? 0 : halves == 2 ? 2 : 1 + (panel1 < groups) + (panel2 < groups);
    for (int n = 0; n < count; n++) prefetchMap(maps + firstMap + n);
    if (kind != Product || gamma == nullptr) return;
    const int bytes = depth * (gammaWide ? 4 : 2);
    for (int n = 128 * blockIdx.x; n < bytes; n += 128 * gridDim.x) asm volatile("prefetch.global.L2 [%0];" ::"l"((const char*)gamma + n));
  }
};

DEVICE void produce(const RowsChain& g, const Held* held, const int* items, uint32_t at) {
  Ring<STAGES> ring(1), arrived(0);
  int waiting = 0;
  // More on their way than memory needs would only make numbers wait behind them.
  const auto begin = [&](int most) __attribute__((always_inline)) {
    barrierWait(at + Layout::empty + 8 * ring.stage, ring.parity);
    for (waiting++; waiting > most; waiting--, arrived.advance()) barrierWait(at + Layout::full + 8 * arrived.stage, arrived.parity);
  };
  Ahead next(g.links[0]), second(g.links[min(1, g.count - 1)]);
  for (int n = 0; n < g.count; n++) {
    const Ahead l = next;
    next = second;
    if (n + 1 < g.count) next.prefetch(g.maps);
    second = Ahead(g.links[min(n + 2, g.count - 1)]);
    if (l.kind == Product) {
      const int steps = l.steps, halves = l.halves, transposed = l.transposed;
      const CUtensorMap* maps = g.maps + l.firstMap;
      const Run run(l);
      int panel = run.from / steps, step = run.from % steps;
      for (int i = run.from; i < run.to; i++, ring.advance()) {
        const Place place(l, panel / halves);
        const int weight = halves == 2 ? panel % 2 : place.weight;
        const CUtensorMap* map = maps + weight;
        const uint32_t barrier = at + Layout::full + 8 * ring.stage, to = at + Layout::ring + ring.stage * STAGE;
        begin(g.flight);
        barrierExpect(barrier, UNIT);
#pragma unroll
        for (int box = 0; box < 2; box++) {
          const int column = place.column + 64 * box, depth = step * DEPTH;
          loadBoxOnce(to + box * BOX, map, barrier, transposed ? depth : column, transposed ? column : depth, 0, 0);
        }
        if (++step == steps) step = 0, panel++;
      }
    } else if (l.kind == Attention) {
      const Tiles t(l, held + l.slot * l.rows);
      const int item = items[l.slot] + t.row;
      for (int tile = t.from; tile < t.to; tile++, ring.advance()) {
        const uint32_t barrier = at + Layout::full + 8 * ring.stage, to = at + Layout::ring + ring.stage * STAGE;
        begin(g.flight * (UNIT / (2 * ROWS_OF_TILE)));
        barrierExpect(barrier, 2 * ROWS_OF_TILE);
#pragma unroll
        for (int box = 0; box < 2 * BOXES; box++)
          loadBox(to + box * TILE_BOX, g.maps + l.firstMap + box / BOXES, barrier, box % BOXES * 64, tile * TILE, t.head, item);
      }
    }
  }
}

// ---- what blocks tell each other

DEVICE uint4 getPiece(const void* p) {
  uint4 x;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(p) : "memory");
  return x;
}
DEVICE uint2 getHalf(const void* p) {
  uint2 x;
  asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "l"(p) : "memory");
  return x;
}
DEVICE uint32_t getOne(const void* p) {
  uint32_t x;
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
DEVICE void putPiece(void* p, uint4 x) { asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory"); }
DEVICE void putHalf(void* p, uint2 x) { asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(x.x), "r"(x.y) : "memory"); }
DEVICE void putOne(void* p, uint32_t x) { asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
// told is a number's bits, where a NaN that is EMPTY is another one.
DEVICE uint32_t told(float x) { const uint32_t bits = __float_as_uint(x); return bits == EMPTY ? 0x7fffffff : bits; }
DEVICE bool isThere(uint4 x) { return x.x != EMPTY && x.y != EMPTY && x.z != EMPTY && x.w != EMPTY; }
DEVICE bool isThere(uint2 x) { return x.x != EMPTY && x.y != EMPTY; }

// copyBulk brings bytes that lie end to end, and counts them on the barrier.
DEVICE void copyBulk(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// placeOf is where rows of a link have a pair of columns, in pairs. What a lane multiplies by in two
// of a step's four products lies side by side: element 16k + 8n + 2t + e of a row is of product k,
// and of the lanes whose number is t modulo 4.
DEVICE int placeOf(int row, int pair) {
  const int step = pair / 32, k = pair / 8 % 4, n = pair / 4 % 2, t = pair % 4;
  return step * (STEP_OF_A / 4) + k / 2 * (HALF_OF_A / 4) + (row * 4 + t) * 4 + k % 2 * 2 + n;
}
// stepsOf is how many steps rows have, the last of which is filled up with zeros.
DEVICE int stepsOf(int columns) { return (columns + DEPTH - 1) / DEPTH; }
DEVICE int piecesOf(int columns) { return stepsOf(columns) * PIECES_OF_STEP; }

// Angles are cosines and sines by which a thread turns two elements of a row, kept from attention
// to attention: those of a model turn alike.
struct Angles {
  const double* frequencies = nullptr;
  int32_t token = 0;
  float amplitude = 0;
  float2 of[2] = {{1, 0}, {1, 0}};

  template <class Link> DEVICE void set(const Link& l, int tokens, int pair) {
    if (!l.frequencies || l.frequencies == frequencies && l.offset + tokens == token && l.amplitude == amplitude) return;
    frequencies = l.frequencies, token = l.offset + tokens, amplitude = l.amplitude;
#pragma unroll
    for (int n = 0; n < 2; n++) {
      // The angle may be many turns, which float32 could not hold; within one turn it can.
      constexpr double turn = 6.283185307179586476925;
      const double theta = token * frequencies[2 * pair + n];
      sincosf((float)(theta - turn * rint(theta / turn)), &of[n].y, &of[n].x);
      of[n].x *= amplitude, of[n].y *= amplitude;
    }
  }
};

// Consumer is what a warp of consumers keeps from link to link.
struct Consumer {
  const RowsChain& g;
  char* shared;
  uint32_t at, before, launch;  // before: links of all launches before
  int products = 0;
  uint4 square[MOST_PIECES_OF_SQUARES];
  Ring<STAGES> ring{0};
  Angles angles;

  // rowsOf is where a link puts its rows, and behind them sums of squares.
  DEVICE uint32_t* rowsOf(int link) const { return (uint32_t*)((char*)g.rows + (before + link) % POOLS * g.rowBytes); }
  DEVICE uint4* sumsOf(int link) const { return (uint4*)((char*)g.sums + (before + link) % SUM_POOLS * g.sumBytes); }
  DEVICE uint32_t full(const Ring<STAGES>& r) const { return at + Layout::full + 8 * r.stage; }
  DEVICE uint32_t stage(const Ring<STAGES>& r) const { return at + Layout::ring + r.stage * STAGE; }
  DEVICE void release() {
    __syncwarp();
    if (lane() == 0) barrierArrive(at + Layout::empty + 8 * ring.stage);
    ring.advance();
  }

  DEVICE void source(const RowsLink& l, int number) const;
  DEVICE void gather(const RowsLink& l, const Run& run);
  DEVICE void askSquares(const RowsLink& l);
  DEVICE void scale(const RowsLink& l);
  // tell says that the warp has a part of a group.
  DEVICE void tell(int link, int group) const {
    __syncwarp();
    if (lane() == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(g.told + (link * MOST_GROUPS + group) * APART) : "memory");
  }
  // await waits until a group was told of so often.
  DEVICE void await(int link, int group, uint32_t times) const {
    uint32_t now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(g.told + (link * MOST_GROUPS + group) * APART) : "memory");
    while ((int)(now - times) < 0);
  }
  // rawOf is where a link puts rows for residuals.
  DEVICE uint32_t* rawOf(int link, int columns, int groups) const { return rowsOf(link) + 4 * (piecesOf(columns) + groups * (UNITS_OF_PANEL * ROWS / 4)); }
  template <bool transposed> DEVICE void multiply(const RowsLink& l, int number, const Plan& plan);
  DEVICE void finish(const RowsLink& l, int number, const Plan& plan) const;
  DEVICE void turn(const RowsLink& l, const Held& h, const Tiles& t);
  DEVICE void addFresh(uint32_t tile, int row) const;
  DEVICE void attend(const RowsLink& l, int number, const Held& h, const Tiles& t);
  DEVICE void merge(const RowsLink& l, int number, const Held* held) const;
};

// scaled are two columns times the next link's gamma.
DEVICE uint32_t scaled(const RowsLink& l, uint32_t both, int column) {
  if (!l.nextGamma) return both;
  const float2 by = l.nextWide ? *(const float2*)((const float*)l.nextGamma + column) : unpack(*(const uint32_t*)((const Scalar*)l.nextGamma + column)), x = unpack(both);
  return pack(x.x * by.x, x.y * by.y);
}

// source tells the rows that the chain begins with, and sums of their squares.
DEVICE void Consumer::source(const RowsLink& l, int number) const {
  constexpr int EACH = PANEL / 2;  // threads that have a panel of a row
  const int words = l.depth / 2, units = l.groups * UNITS_OF_PANEL;
  uint32_t *to = rowsOf(number), *squares = to + 4 * piecesOf(l.depth);
  for (int n = blockIdx.x * (JOINING / EACH) + threadIdx.x / EACH; n < l.rows * l.groups; n += gridDim.x * (JOINING / EACH)) {
    const int row = n / l.groups, at = (n - row * l.groups) * EACH + threadIdx.x % EACH;
    const uint32_t both = at < words ? ((const uint32_t*)l.data)[row * words + at] : 0;
    const float2 x = unpack(both);
    float square = x.x * x.x + x.y * x.y;
#pragma unroll
    for (int other = 4; other > 0; other /= 2) square += __shfl_xor_sync(~0u, square, other);
    if (at < words) {
      if (l.tellsRaw) putOne(rawOf(number, l.depth, l.groups) + placeOf(row, at), both);
      putOne(to + placeOf(row, at), scaled(l, both, 2 * at));
    } else if (2 * at < stepsOf(l.depth) * DEPTH) {
      putOne(to + placeOf(row, at), 0);
    }
    if (threadIdx.x % 8 == 0) putOne(squares + row * units + at / 8, __float_as_uint(square));
    tell(number, n - row * l.groups);
  }
}

// gather brings the steps of A that the block multiplies to shared memory, in the order of the run.
DEVICE void Consumer::gather(const RowsLink& l, const Run& run) {
  if (run.from == run.to) return;
  const int all = min(run.to - run.from, l.steps), first = run.from % l.steps;
  const uint32_t parity = products++ & 1;
  if (warp() == 0) {
    const int groups = (l.depth + PANEL - 1) / PANEL;
    for (int n = lane(); n < groups; n += 32) {
      // Of squares all are needed, of rows the steps of the run.
      int step = 2 * n - first;
      if (step < -1) step += l.steps;
      if (l.squareCount || step < all) await(l.inNumber, n, launch * l.inTold);
    }
    __syncwarp();
    if (lane() == 0) {
      asm volatile("fence.proxy.async;" ::: "memory");
      const char* rows = (const char*)rowsOf(l.inNumber);
      const int begin = min(all, l.steps - first);
      barrierExpect(at + Layout::ofA, all * STEP_OF_A);
      copyBulk(at + Layout::a, rows + first * STEP_OF_A, begin * STEP_OF_A, at + Layout::ofA);
      if (begin < all) copyBulk(at + Layout::a + begin * STEP_OF_A, rows, (all - begin) * STEP_OF_A, at + Layout::ofA);
    }
  }
  barrierWait(at + Layout::ofA, parity);
}
// askSquares begins to read the sums of squares that scale adds: sixteen threads have a row's.
DEVICE void Consumer::askSquares(const RowsLink& l) {
  if (!l.squareCount || threadIdx.x / 16 >= l.rows) return;
  const uint4* squares = (const uint4*)rowsOf(l.inNumber) + piecesOf(l.depth) + threadIdx.x / 16 * (l.squareCount / 4);
#pragma unroll
  for (int n = 0; n < MOST_PIECES_OF_SQUARES; n++) {
    square[n] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x % 16 + 16 * n < l.squareCount / 4) square[n] = getPiece(squares + threadIdx.x % 16 + 16 * n);
  }
}
// scale finds what rows are multiplied by.
DEVICE void Consumer::scale(const RowsLink& l) {
  if (!l.squareCount) return;
  float sum = 0;
#pragma unroll
  for (int n = 0; n < MOST_PIECES_OF_SQUARES; n++)
    sum += __uint_as_float(square[n].x) + __uint_as_float(square[n].y) + (__uint_as_float(square[n].z) + __uint_as_float(square[n].w));
#pragma unroll
  for (int other = 8; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
  if (threadIdx.x % 16 == 0) ((float*)(shared + Layout::scales))[threadIdx.x / 16] = rsqrtf(sum / l.depth + l.eps);
  groupSync(1, JOINING);
}

// multiply sends the sums of the block's fragments. B is the first operand of mma.sync and A the
// second, whose columns are rows. A warp has 16 of the panel's columns.
template <bool transposed> DEVICE void Consumer::multiply(const RowsLink& l, int number, const Plan& plan) {
  const int own = warp() % 4, half = lane() % 8 + 8 * (lane() / 16), other = lane() / 8 % 2, steps = l.steps;
  const bool many = l.rows > 8;
  // Where the lane reads of a box and of a step of A. The compiler would find it anew in each step.
  uint32_t ofBox = warp() / 4 * BOX + (transposed ? boxed(0, 16 * own + lane() % 8 + 8 * other, lane() / 16) : boxed(0, half, 2 * own + other));
  uint32_t ofA = at + Layout::a + lane() * 16;
  asm volatile("" : "+r"(ofBox), "+r"(ofA));
  int panel = plan.panel, step = plan.step, slot = 0, place = plan.ofFirst;
  float sums[2][2][4] = {};
#pragma unroll 1
  for (int left = plan.run.to - plan.run.from; left > 0; left--) {
    uint32_t b[4][4];
    uint4 x[2][2];
    const uint32_t from = ofA + slot * STEP_OF_A;
#pragma unroll
    for (int n = 0; n < 2; n++) x[0][n] = loadShared16(from + n * HALF_OF_A);
    if (many)
#pragma unroll
      for (int n = 0; n < 2; n++) x[1][n] = loadShared16(from + n * HALF_OF_A + HALF_OF_A / 2);
    if (++slot == steps) slot = 0;
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
    for (int k = 0; k < 4; k++) {
      multiplyAdd<Type>(sums[0][k % 2], b[k], k % 2 ? x[0][k / 2].z : x[0][k / 2].x, k % 2 ? x[0][k / 2].w : x[0][k / 2].y);
      if (many) multiplyAdd<Type>(sums[1][k % 2], b[k], k % 2 ? x[1][k / 2].z : x[1][k / 2].x, k % 2 ? x[1][k / 2].w : x[1][k / 2].y);
    }
    release();
    if (++step < steps && left > 1) continue;
    uint4* to = sumsOf(number) + (panel * l.fragments + place) * PIECES_OF_FRAGMENT + warp() * 64 + lane();
#pragma unroll
    for (int eight = 0; eight < 2; eight++) {
      const float(&x)[2][4] = sums[eight];
      if (eight == 0 || many) putPiece(to + 32 * eight, make_uint4(told(x[0][0] + x[1][0]), told(x[0][1] + x[1][1]), told(x[0][2] + x[1][2]), told(x[0][3] + x[1][3])));
#pragma unroll
      for (int e = 0; e < 4; e++) sums[eight][0][e] = sums[eight][1][e] = 0;
    }
    step = place = 0, panel++;
  }
}

// finish adds the fragments of the block's part of the groups to which it has added. A warp has
// eight rows of a unit's columns, as multiply has them.
DEVICE void Consumer::finish(const RowsLink& l, int number, const Plan& plan) const {
  if (plan.run.from == plan.run.to) return;
  const int steps = l.steps * l.halves, lastGroup = (plan.run.to - 1) / steps, eights = l.rows > 8 ? 2 : 1, t = lane() % 4, column8 = lane() / 4, isOdd = column8 % 2;
  const bool gated = l.halves == 2, adds = l.residualNumber >= 0, normed = l.squareCount > 0, wide = l.outElement == ElementF32;
  const int columns = gated ? l.weights[0].columns : l.weights[0].columns + l.weights[1].columns + l.weights[2].columns;
  const uint32_t* residuals = adds ? rawOf(l.residualNumber, columns, (columns + PANEL - 1) / PANEL) : nullptr;
  uint32_t* raw = rawOf(number, columns, l.groups);
  uint32_t *out = rowsOf(number), *outSquares = out + 4 * piecesOf(columns);
  const float* scales = (const float*)(shared + Layout::scales);
  int earlier = 0;  // items of groups before
  for (int group = plan.run.from / steps; group <= lastGroup; group++) {
    const Part part(l, plan.run, group, UNITS_OF_PANEL * eights);
    const Place place(l, group);
    const Weight& w = l.weights[place.weight];
    const int ofHalf[2] = {part.count[0], part.count[1]}, all = ofHalf[0] + ofHalf[1];
    const int own = (warp() - earlier) % CONSUMERS;
    earlier += part.last - part.first;
    for (int item = part.first + (own + CONSUMERS) % CONSUMERS; item < part.last; item += CONSUMERS) {
      const int unit = item / eights, eight = item % eights;
      // Of sums a lane has two rows of two columns, of results two rows of two neighbouring columns.
      const int inPanel = UNIT_COLUMNS * unit + column8, row = 8 * eight + 2 * t, column = place.column + UNIT_COLUMNS * unit + isOdd * 8 + column8 / 2 * 2, c = w.first + column;
      const bool there = column < w.columns;
      float bias[2][2] = {};
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
          const Weight& of = half ? l.weights[1] : w;
          if ((half == 0 || gated) && of.bias && place.column + inPanel + 8 * n < of.columns) bias[half][n] = loadElement(of.bias, place.column + inPanel + 8 * n, of.biasElement);
        }
      uint4* from = sumsOf(number) + group * l.halves * l.fragments * PIECES_OF_FRAGMENT + unit * 64 + eight * 32 + lane();
      uint4 x[MOST_FRAGMENTS];
      uint32_t residual[2] = {0, 0};
#pragma unroll
      for (int f = 0; f < MOST_FRAGMENTS; f++) x[f] = make_uint4(EMPTY, EMPTY, EMPTY, EMPTY);
      const auto ofFragment = [&](int f) { return (f < ofHalf[0] ? f : l.fragments + f - ofHalf[0]) * PIECES_OF_FRAGMENT; };
#pragma unroll
      for (int n = 0; n < 2; n++)
        if (adds && there && row + n < l.rows) residual[n] = getOne(residuals + placeOf(row + n, c / 2));
      for (bool ready = false; !ready;) {
        ready = true;
#pragma unroll
        for (int f = 0; f < MOST_FRAGMENTS; f++)
          if (f < all && !isThere(x[f])) x[f] = getPiece(from + ofFragment(f));
#pragma unroll
        for (int f = 0; f < MOST_FRAGMENTS; f++)
          if (f < all) ready &= isThere(x[f]);
      }
      float y[2][4] = {};
#pragma unroll
      for (int f = 0; f < MOST_FRAGMENTS; f++) {
        if (f >= all) continue;
        putPiece(from + ofFragment(f), make_uint4(EMPTY, EMPTY, EMPTY, EMPTY));
        const float z[4] = {__uint_as_float(x[f].x), __uint_as_float(x[f].y), __uint_as_float(x[f].z), __uint_as_float(x[f].w)};
#pragma unroll
        for (int e = 0; e < 4; e++) {
          if (f < ofHalf[0])
            y[0][e] += z[e];
          else
            y[1][e] += z[e];
        }
      }
      float z[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const float scale = normed ? scales[row + e % 2] : 1;
        z[e] = fmaf(y[0][e], scale, bias[0][e / 2]);
        if (gated) z[e] = silu(z[e]) * fmaf(y[1][e], scale, bias[1][e / 2]);
      }
      float pair[2][2], square[2];
#pragma unroll
      for (int n = 0; n < 2; n++) {
        const float other = __shfl_xor_sync(~0u, isOdd ? z[n] : z[2 + n], 4);
        pair[n][0] = isOdd ? other : z[n], pair[n][1] = isOdd ? z[2 + n] : other;
        if (adds && there) {
          const float2 r = unpack(residual[n]);
          pair[n][0] += r.x, pair[n][1] += r.y;
        }
        const uint32_t both = there ? pack(pair[n][0], pair[n][1]) : 0;
        const float2 v = unpack(both);
        square[n] = v.x * v.x + v.y * v.y;
        if (row + n >= l.rows) continue;
        if (l.tells && c >= columns && c < stepsOf(columns) * DEPTH) putOne(out + placeOf(row + n, c / 2), 0);
        if (!there) continue;
        if (l.tells) {
          putOne(out + placeOf(row + n, c / 2), scaled(l, both, c));
          if (l.tellsRaw) putOne(raw + placeOf(row + n, c / 2), both);
        }
        if (!l.data) continue;
        const int64_t to = (int64_t)(row + n) * columns + c;
        if (wide)
          *(float2*)((float*)l.data + to) = make_float2(pair[n][0], pair[n][1]);
        else
          ((uint32_t*)l.data)[to / 2] = both;
      }
#pragma unroll
      for (int n = 0; n < 2 && l.tellsSquares; n++) {
#pragma unroll
        for (int other = 4; other < 32; other *= 2) square[n] += __shfl_xor_sync(~0u, square[n], other);
        if (column8 == 0 && row + n < l.rows) putOne(outSquares + (row + n) * (l.groups * UNITS_OF_PANEL) + group * UNITS_OF_PANEL + unit, __float_as_uint(square[n]));
      }
      if (l.tells) tell(number, group);
    }
  }
}

// ---- attention

// turn brings turned queries to shared memory. Where the block has the new token's tile, so it does
// the new key and value, and adds them to the cache. A thread has two elements of either half of a
// row.
DEVICE void Consumer::turn(const RowsLink& l, const Held& h, const Tiles& t) {
  constexpr int THREADS_OF_ROW = HEAD_SIZE / 4;
  const int pair = threadIdx.x % THREADS_OF_ROW, group = l.heads / l.keyHeads, tokens = h.before(), item = ((const int*)(shared + Layout::items))[l.slot] + t.row;
  angles.set(l, tokens, pair);
  const uint32_t* rows = rowsOf(l.inNumber);
  if (warp() == 0 && lane() < 6) {  // groups of queries, of keys and of values
    const int first = 2 * ((lane() < 2 ? l.firstQuery + t.head * group * (HEAD_SIZE / 2) : lane() < 4 ? l.firstKey + t.head * (HEAD_SIZE / 2) : l.firstValue + t.head * (HEAD_SIZE / 2)));
    const int last = first + (lane() < 2 ? group * HEAD_SIZE : HEAD_SIZE) - 1;
    for (int n = first / PANEL + lane() % 2; n <= last / PANEL; n += 2) await(l.inNumber, n, launch * l.inTold);
  }
  groupSync(1, JOINING);
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
    const int column = (isKey ? l.firstKey + t.head * (HEAD_SIZE / 2) : isValue ? l.firstValue + t.head * (HEAD_SIZE / 2) : l.firstQuery + (t.head * group + row - 2) * (HEAD_SIZE / 2)) + pair;
    const uint32_t *from = rows + placeOf(t.row, column), *second = rows + placeOf(t.row, column + HEAD_SIZE / 4);
    const float2(&of)[2] = angles.of;
    uint32_t low, high;
    low = getOne(from), high = getOne(second);
    if (l.frequencies && !isValue) {
      const float2 y = unpack(low), z = unpack(high);
      low = pack(y.x * of[0].x - z.x * of[0].y, y.y * of[1].x - z.y * of[1].y);
      high = pack(z.x * of[0].x + y.x * of[0].y, z.y * of[1].x + y.y * of[1].y);
    }
    storeShared4(to, low);
    storeShared4(to + HEAD_SIZE, high);
    if (row >= 2 || !h.takes()) continue;
    Scalar* cached = isKey ? (Scalar*)l.keys + item * l.keysBatch + t.head * l.keysHead + tokens * l.keysRow
                           : (Scalar*)l.values + item * l.valuesBatch + t.head * l.valuesHead + tokens * l.valuesRow;
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

// attend sends what the block's keys give of the queries that share them. A warp has a tile in
// eight. Keys are rows of a product of a warp, and these queries its eight columns.
DEVICE void Consumer::attend(const RowsLink& l, int number, const Held& h, const Tiles& t) {
  const int keys = h.before() + 1, own = lane() / 4, quad = lane() % 4, group = l.heads / l.keyHeads;
  uint32_t q[HEAD_SIZE / 16][2];
#pragma unroll
  for (int k = 0; k < HEAD_SIZE / 16; k++) {
    const uint32_t from = at + Layout::queries + own * Layout::ofQuery + 32 * k + quad * 4;
    q[k][0] = loadShared4(from), q[k][1] = loadShared4(from + 16);
  }
  // A lane has two queries.
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, o[HEAD_SIZE / 16][4] = {};
#pragma unroll 1
  for (int tile = t.from; tile < t.to; tile++) {
    barrierWait(full(ring), ring.parity);
    if ((tile - t.from) % CONSUMERS == warp()) {
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
    }
    release();
  }
#pragma unroll
  for (int other = 4; other < 32; other *= 2) total[0] += __shfl_xor_sync(~0u, total[0], other), total[1] += __shfl_xor_sync(~0u, total[1], other);
  float* ofWarps = (float*)(shared + Layout::a);  // (warp, query, PARTIAL)
#pragma unroll
  for (int e = 0; e < 2; e++) {
    float* to = ofWarps + (warp() * MOST_GROUP + 2 * quad + e) * PARTIAL;
    if (own == 0) to[0] = most[e], to[1] = total[e];
#pragma unroll
    for (int n = 0; n < HEAD_SIZE / 8; n++) to[2 + 8 * n + own] = o[n / 2][n % 2 * 2 + e];
  }
  groupSync(1, JOINING);
  for (int i = threadIdx.x; i < group * HEAD_SIZE; i += JOINING) {
    const int query = i / HEAD_SIZE, column = i % HEAD_SIZE;
    const float* from = ofWarps + query * PARTIAL;
    float largest = -INFINITY, sum = 0, x = 0;
#pragma unroll
    for (int w = 0; w < CONSUMERS; w++) largest = fmaxf(largest, from[w * MOST_GROUP * PARTIAL]);
#pragma unroll
    for (int w = 0; w < CONSUMERS; w++) {
      const float* of = from + w * MOST_GROUP * PARTIAL;
      const float by = exp2Fast(of[0] - largest);
      sum = fmaf(of[1], by, sum), x = fmaf(of[2 + column], by, x);
    }
    uint32_t* to = (uint32_t*)sumsOf(number) + ((t.row * l.heads + t.head * group + query) * t.runs + t.run) * PARTIAL;
    if (column == 0) putHalf(to, make_uint2(told(largest), told(sum)));
    putOne(to + 2 + column, told(x));
  }
}

// merge adds what runs of keys give. A warp has a row's head.
DEVICE void Consumer::merge(const RowsLink& l, int number, const Held* held) const {
  constexpr int PARTS = HEAD_SIZE / 64, AHEAD = 4;
  const int runs = Tiles::runsOf(l);
  const uint2 empty = make_uint2(EMPTY, EMPTY);
  for (int query = blockIdx.x + gridDim.x * warp(); query < l.rows * l.heads; query += gridDim.x * CONSUMERS) {
    const int row = query / l.heads, used = Tiles::usedOf(held[row], runs);
    uint32_t* from = (uint32_t*)sumsOf(number) + query * runs * PARTIAL;
    Joined sum[PARTS];
    for (int first = 0; first < used; first += AHEAD) {
      uint2 x[AHEAD], o[AHEAD][PARTS];
#pragma unroll
      for (int r = 0; r < AHEAD; r++) {
        x[r] = empty;
#pragma unroll
        for (int part = 0; part < PARTS; part++) o[r][part] = empty;
      }
      for (bool all = false; !all;) {
        all = true;
#pragma unroll
        for (int r = 0; r < AHEAD; r++) {
          if (first + r >= used) continue;
          uint32_t* run = from + (first + r) * PARTIAL;
          if (!isThere(x[r])) x[r] = getHalf(run);
#pragma unroll
          for (int part = 0; part < PARTS; part++)
            if (!isThere(o[r][part])) o[r][part] = getHalf(run + 2 + 64 * part + 2 * lane());
        }
#pragma unroll
        for (int r = 0; r < AHEAD; r++) {
          if (first + r >= used) continue;
          all &= isThere(x[r]);
#pragma unroll
          for (int part = 0; part < PARTS; part++) all &= isThere(o[r][part]);
        }
      }
      __syncwarp();
#pragma unroll
      for (int r = 0; r < AHEAD; r++) {
        if (first + r >= used) continue;
        uint32_t* run = from + (first + r) * PARTIAL;
        if (lane() == 0) putHalf(run, empty);
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
          putHalf(run + 2 + 64 * part + 2 * lane(), empty);
          Joined own;
          own.most = __uint_as_float(x[r].x), own.total = __uint_as_float(x[r].y);
          own.o[0] = __uint_as_float(o[r][part].x), own.o[1] = __uint_as_float(o[r][part].y);
          sum[part].add(own);
        }
      }
    }
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
      const uint32_t both = pack(sum[part].o[0] / sum[part].total, sum[part].o[1] / sum[part].total);
      const int pair = 32 * part + lane();
      putOne(rowsOf(number) + placeOf(row, query % l.heads * (HEAD_SIZE / 2) + pair), both);
      if (l.data) ((uint32_t*)l.data)[(int64_t)query * (HEAD_SIZE / 2) + pair] = both;
    }
    tell(number, query % l.heads * HEAD_SIZE / PANEL);
  }
}

// count counts the launch and the tokens, in the last block to come: all have read both.
DEVICE void count(const RowsChain& g, const Held* held, const int* items, uint32_t launch) {
  uint32_t before = 0;
  if (lane() == 0) before = atomicAdd(&g.state->ended, 1);
  if (__shfl_sync(~0u, before, 0) != gridDim.x - 1) return;
  if (lane() == 0) g.state->ended = 0, g.state->launches = launch;
#pragma unroll 4
  for (int n = lane(); n < g.count; n += 32) {
    const RowsLink& l = g.links[n];
    if (l.kind != Attention) continue;
    for (int row = 0; row < l.rows; row++) {
      const Held h = held[l.slot * l.rows + row];
      if (h.takes()) l.state[1 + items[l.slot] + row] = h.tokens + 1;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) KERNEL(const __grid_constant__ RowsChain g) {
  extern __shared__ __align__(1024) char shared[];
  const uint32_t at = sharedAddress(shared);
  constexpr int PIECES = sizeof(RowsLink) / 16;
  const auto pieceOf = [&](int link) { return (uint4*)(shared + Layout::links + link % LINKS * (int)sizeof(RowsLink)) + threadIdx.x; };
  Held* held = (Held*)(shared + Layout::held);
  int* items = (int*)(shared + Layout::items);
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; stage++) {
      barrierInit(at + Layout::full + 8 * stage, 1);
      barrierInit(at + Layout::empty + 8 * stage, CONSUMERS);
    }
    barrierInit(at + Layout::ofA, 1);
    barrierInitDone();
  }
  const uint32_t launch = *(volatile const uint32_t*)&g.state->launches + 1;
  for (int n = threadIdx.x; n < g.count; n += THREADS) {
    const RowsLink& l = g.links[n];
    if (l.kind != Attention) continue;
    const int first = items[l.slot] = l.state[0];
    for (int row = 0; row < l.rows; row++) {
      const int tokens = l.state[1 + first + row];
      held[l.slot * l.rows + row] = {l.state[1 + l.items + first + row] ? tokens : -1 - tokens};
    }
  }
  for (int link = 0; link < min(2, g.count); link++)
    if (threadIdx.x < PIECES) *pieceOf(link) = ((const uint4*)(g.links + link))[threadIdx.x];
  __syncthreads();
  if (warp() == CONSUMERS) {
    if (lane() == 0) produce(g, held, items, at);
    __syncwarp();
    count(g, held, items, launch);  // beside what consumers still do
    return;
  }
  Consumer c{g, shared, at, (launch - 1) * g.count, launch};
  Plan planned(*(const RowsLink*)(shared + Layout::links));
  for (int n = 0; n < g.count; n++) {
    const RowsLink& l = *(const RowsLink*)(shared + Layout::links + n % LINKS * (int)sizeof(RowsLink));
    const bool copies = n + 2 < g.count && threadIdx.x < PIECES;
    uint4 piece;
    if (copies) piece = ((const uint4*)(g.links + n + 2))[threadIdx.x];
    // Behind this barrier the link's input is there, and so is the link after the next one.
    const auto meet = [&] {
      if (copies) *pieceOf(n + 2) = piece;
      groupSync(1, JOINING);
    };
    const Plan run = planned;
    // The next link's is found before this one waits.
    const auto plan = [&] { planned = Plan(*(const RowsLink*)(shared + Layout::links + (n + 1) % LINKS * (int)sizeof(RowsLink))); };
    if (l.kind == Source) {
      c.source(l, n);
      plan();
      meet();
    } else if (l.kind == Product) {
      groupSync(1, JOINING);  // what the link before has read there is not needed any more
      c.gather(l, run.run);
      meet();
      c.askSquares(l);
      if (l.transposed)
        c.multiply<true>(l, n, run);
      else
        c.multiply<false>(l, n, run);
      plan();
      c.scale(l);
      c.finish(l, n, run);
    } else {
      const Held* ofLink = held + l.slot * l.rows;
      const Tiles t(l, ofLink);
      const Held h = ofLink[min(t.row, l.rows - 1)];
      if (t.from < t.to) c.turn(l, h, t);
      meet();
      if (t.from < t.to) c.attend(l, n, h, t);
      plan();
      c.merge(l, n, ofLink);
    }
  }
}
