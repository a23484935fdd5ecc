// The parts of attention backward for sm_90a that its two kinds of consumers share; attention_backward_sm90.cuh describes the
// whole.
#pragma once
#include "arguments.cuh"
#include "attention_dq_sm90.cuh"
#include "hopper.cuh"
#include "score.cuh"

// BackwardShape places everything in shared memory. Tiles lie in chunks of 64 columns, a row of a chunk is 128 bytes.
template <int HeadDim, int HeadDimV, int QueryTile, bool WithOptions> struct BackwardShape {
  using Sums = BackwardSums<HeadDim, QueryTile>;
  static constexpr bool Wide = HeadDim > 128, Modified = WithOptions;
  static constexpr int D = HeadDim, DV = HeadDimV, TileQ = QueryTile, TileK = Wide ? 64 : 128, Stages = 2;
  // Where registers are too few for P in float32, dS is made from the rounded P that dV takes.
  static constexpr bool RoundedP = Modified || D >= 128;
  static constexpr int Threads = Modified ? 512 : 384, Consumers = 8;  // warps
  static constexpr int Chunks = (D + 63) / 64, ChunksV = (DV + 63) / 64;
  static constexpr int KChunk = TileK * 128, QChunk = TileQ * 128;
  static constexpr int KBytes = Chunks * KChunk, VBytes = ChunksV * KChunk, QBytes = Chunks * QChunk, OBytes = ChunksV * QChunk;
  static constexpr int DSBytes = TileK / 64 * QChunk;
  static constexpr int KAt = 0, VAt = KAt + KBytes, QAt = VAt + VBytes, OAt = QAt + Stages * QBytes;
  static constexpr int DSAt = OAt + Stages * OBytes, PAt = DSAt + 2 * DSBytes;
  // P on its way between warpgroups, two buffers, in wide shapes. With options the second one holds the bias, or the soft cap's
  // derivative; other shapes have the bias in a place of its own, and that derivative where dS will be.
  static constexpr int PBytes = Wide ? QChunk : 0, PEnd = PAt + 2 * PBytes;
  static constexpr int BiasAt = Wide ? PAt + PBytes : PEnd, BiasBytes = DSBytes;
  static constexpr int BiasEnd = PEnd + (Modified && !Wide ? BiasBytes : 0);
  static constexpr int BitsAt = BiasEnd, BitsBytes = Modified ? TileK * TileQ / 8 : 0, StatsAt = BitsAt + BitsBytes;
  static_assert(!Modified || TileQ % 64 == 0, "the bits of dropout come for 64 rows at a time");
  static constexpr int BarriersAt = StatsAt + Stages * TileQ * 8;
  static constexpr int RecordsAt = BarriersAt + 256, SharedBytes = RecordsAt + 2 * 64 + 1024;  // 1,024 to align the start
};

// Ring is a place in a ring of buffers, with the parity of the phase that a wait there waits for.
template <int Stages> struct Ring {
  uint32_t stage = 0, parity;
  DEVICE Ring(uint32_t parity) : parity(parity) {}
  DEVICE void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// BackwardTile is a piece of work: one tile of keys of one head. tile < 0 says that there is no more.
struct BackwardTile {
  int sequence, keyHead, tile;
};

// BackwardQueue hands out the tiles in one order to all blocks. Heads are visited together, in parts that fit in the L2
// cache; among them, all first tiles of keys come first, which in the causal case are the longest. Where the order of sums
// counts there, blocks that share a head go through it side by side, so that parts may be larger; but tiles of a head that
// are begun at once stand in line, unless a window keeps the line short. So the last tiles of a part, which are short, and
// the first ones of the next are drawn in turn. How large parts then are best was measured.
template <class Shape> struct BackwardQueue {
  const AttentionArguments& a;
  int tiles, heads, parts;
  int mixed;  // tiles on either side of two parts' border that are drawn in turn
  bool sequencesFirst;  // neighbours are sequences of one head, which add to one gradient of the bias

  DEVICE BackwardQueue(const AttentionArguments& a)
      : a(a), tiles((a.longestK + Shape::TileK - 1) / Shape::TileK), heads(a.sequences * a.keyHeads),
        sequencesFirst(Shape::Modified && a.dBias && a.dBiasSequence == 0) {
    const bool lines = a.deterministic && a.causal && a.left < 0;
    const int64_t megabytes = (a.longestQ > 2048 ? 56 : 28) * (Shape::D > 64 ? 1 : 2);
    const int64_t cache = (lines ? megabytes : a.deterministic && a.causal ? 112 : 28) << 20;
    const int64_t bytes = (int64_t)a.longestQ * (a.heads / a.keyHeads) * (Shape::D * 6 + Shape::DV * 2);
    const int together = (int)max((int64_t)1, min((int64_t)heads, cache / (bytes + 1)));
    parts = max(1, (heads + together - 1) / together);
    mixed = lines ? min((int)gridDim.x, heads / parts * tiles / 2) : 0;
  }
  DEVICE int draw() const { return atomicAdd(a.counters, 1) + gridDim.x; }
  DEVICE BackwardTile at(int index) const {
    if (index >= tiles * heads) return {0, 0, -1};
    index = mix(index);
    const int part = partOf(index), width = first(part + 1) - first(part), rest = index - first(part) * tiles;
    const int head = first(part) + rest % width;
    if (sequencesFirst) return {head % a.sequences, head / a.sequences, rest / width};
    return {head / a.keyHeads, head % a.keyHeads, rest / width};
  }
  // The first head of a part, and the part of the tile of this index. Parts differ by at most one head in size.
  DEVICE int first(int part) const { return (int)((int64_t)part * heads / parts); }
  DEVICE int partOf(int index) const { return (int)(((int64_t)(index / tiles + 1) * parts - 1) / heads); }
  // mix exchanges indices around the borders of parts.
  DEVICE int mix(int index) const {
    const int border = first(partOf(min(index + mixed, tiles * heads - 1))) * tiles, behind = index - border + mixed;
    if (border == 0 || behind >= 2 * mixed) return index;
    return border + behind / 2 - (behind % 2 ? 0 : mixed);
  }
  // finish leaves the counters zero for the next launch; every block calls it once, with one thread.
  DEVICE void finish() const {
    if (atomicAdd(a.counters + 1, 1) == (int)gridDim.x - 1) a.counters[0] = a.counters[1] = 0;
  }
};

// BackwardRecord is what the block knows of a tile. It lies in shared memory and is read where it is needed, since registers
// are few.
template <class Shape> struct BackwardRecord {
  static constexpr int TileQ = Shape::TileQ, TileK = Shape::TileK, Bytes = 64;
  uint32_t at;

  DEVICE int get(int field) const { return loadShared4(at + 4 * field); }
  DEVICE int sequenceIndex() const { return get(0); }  // negative: there is no more work
  DEVICE int batch() const { return get(1); }
  DEVICE int q0() const { return get(2); }
  DEVICE int k0() const { return get(3); }
  DEVICE int sq() const { return get(4); }
  DEVICE int sk() const { return get(5); }
  DEVICE int lo() const { return get(6); }
  DEVICE int hi() const { return get(7); }
  DEVICE int keyHead() const { return get(8); }
  DEVICE int key() const { return get(9); }  // the first of the tile
  // Query tiles [first, end) see keys of the tile; in those of [cleanFirst, cleanEnd) every row sees every key.
  DEVICE int first() const { return get(10); }
  DEVICE int end() const { return get(11); }
  DEVICE int cleanFirst() const { return get(12); }
  DEVICE int cleanEnd() const { return get(13); }
  // From this query tile on, the tile is the first of those that are added to the sums.
  DEVICE int leads() const { return get(14); }
  DEVICE Sequence sequence() const { return {sequenceIndex(), batch(), q0(), k0(), sq(), sk()}; }

  // The place of this tile among those that are added to the sums of query tile m.
  DEVICE int order(int m) const { return key() / TileK - max(0, m * TileQ + lo()) / TileK; }

  DEVICE void put(const AttentionArguments& a, const BackwardTile& t) const {
    if (t.tile < 0) return storeShared16(at, make_uint4(~0u, 0, 0, 0));
    const Sequence s = sequenceOf(a, t.sequence);
    const Band band = bandOf(a, s);
    const int key = t.tile * TileK, lastKey = min(key + TileK, s.sk) - 1;
    const int from = max(0, key - band.hi + 1), to = lastKey - band.lo;  // first and last row that sees any
    const int end = from >= s.sq || to < from ? 0 : min(to / TileQ + 1, (s.sq + TileQ - 1) / TileQ);
    // Rows beyond the end need the mask only for what an option may make of them.
    const int cleanRows = key - band.lo + 1, cleanLimit = Shape::Modified ? s.sq : cleanRows;
    storeShared16(at, make_uint4(s.index, s.batch, s.q0, s.k0));
    storeShared16(at + 16, make_uint4(s.sq, s.sk, band.lo, band.hi));
    storeShared16(at + 32, make_uint4(t.keyHead, key, from / TileQ, end));
    storeShared16(at + 48, make_uint4((max(0, key + TileK - band.hi) + TileQ - 1) / TileQ,
                                      key + TileK > s.sk || cleanRows < 0 ? 0 : min(cleanRows, cleanLimit) / TileQ,
                                      key == 0 ? 0 : max(0, key - band.lo + TileQ - 1) / TileQ, 0));
  }
};

// BackwardStep is a query tile and a head.
struct BackwardStep {
  int m, head;
};

// BackwardSteps are a tile's steps: query tiles m from the last down to the first, for one head of the group after the other.
// Every role of the block walks over the same ones.
template <class Shape> struct BackwardSteps {
  BackwardRecord<Shape> record;
  int first, end, m, head, left;  // m, head: of this step; left: the steps left with it

  DEVICE BackwardSteps(const AttentionArguments& a, BackwardRecord<Shape> record) : record(record) {
    const int group = a.heads / a.keyHeads;
    first = record.first();
    end = record.end();
    m = end - 1;
    head = record.keyHead() * group;
    left = max(0, end - first) * group;
  }
  DEVICE void next() {
    left--;
    if (--m < first) {
      m = end - 1;
      head++;
    }
  }
  DEVICE BackwardStep before() const {
    if (m + 1 == end) return {first, head - 1};
    return {m + 1, head};
  }
  DEVICE int cleanFirst() const { return __shfl_sync(~0u, record.cleanFirst(), 0); }
  DEVICE int cleanEnd() const { return __shfl_sync(~0u, record.cleanEnd(), 0); }
  // share tells the compiler that the warp's threads all have the same steps, so that it keeps them in the registers that
  // they share.
  DEVICE void share() {
    first = __shfl_sync(~0u, first, 0);
    end = __shfl_sync(~0u, end, 0);
    m = __shfl_sync(~0u, m, 0);
    head = __shfl_sync(~0u, head, 0);
    left = __shfl_sync(~0u, left, 0);
  }
};

// BackwardOptions are what several roles need to know of the options.
template <class Shape> struct BackwardOptions {
  bool dropping, mapped, storing;  // the bias comes by TMA; its gradient is taken from dS as it lies in shared memory

  DEVICE BackwardOptions(const AttentionArguments& a)
      : dropping(Shape::Modified && a.dropThreshold),
        mapped(Shape::Modified && a.bias && a.biasMapped && a.biasElement != ElementF32 && !(Shape::Wide && a.softCap > 0)),
        storing(Shape::Modified && a.dBias && a.softCap == 0) {}
};

// BackwardBarriers are the addresses of the block's barriers in shared memory, and behind them the records of the two tiles
// last drawn.
template <class Shape> struct BackwardBarriers {
  uint32_t base;
  DEVICE uint32_t fullK() const { return base; }
  DEVICE uint32_t fullV() const { return base + 8; }
  DEVICE uint32_t emptyKV() const { return base + 16; }
  DEVICE uint32_t fullTile(int slot) const { return base + 24 + 8 * slot; }
  DEVICE uint32_t emptyTile(int slot) const { return base + 40 + 8 * slot; }
  DEVICE uint32_t fullDS(int buffer) const { return base + 56 + 8 * buffer; }
  DEVICE uint32_t emptyDS(int buffer) const { return base + 72 + 8 * buffer; }
  DEVICE uint32_t turn() const { return base + 88; }   // dQ may be added to the sums
  DEVICE uint32_t added() const { return base + 96; }  // it has been
  DEVICE uint32_t fullBits() const { return base + 104; }
  DEVICE uint32_t emptyBits() const { return base + 112; }
  DEVICE uint32_t fullQ(int stage) const { return base + 120 + 8 * stage; }
  DEVICE uint32_t emptyQ(int stage) const { return fullQ(Shape::Stages + stage); }
  DEVICE uint32_t fullO(int stage) const { return fullQ(2 * Shape::Stages + stage); }
  DEVICE uint32_t emptyO(int stage) const { return fullQ(3 * Shape::Stages + stage); }
  DEVICE uint32_t fullStats(int stage) const { return fullQ(4 * Shape::Stages + stage); }
  // P between the warpgroups of wide shapes.
  DEVICE uint32_t fullP(int buffer) const { return base + 200 + 8 * buffer; }
  DEVICE uint32_t emptyP(int buffer) const { return base + 216 + 8 * buffer; }
  DEVICE uint32_t fullBias() const { return base + 232; }
  DEVICE uint32_t emptyBias() const { return base + 240; }
  DEVICE BackwardRecord<Shape> record(int slot) const {
    return {base + Shape::RecordsAt - Shape::BarriersAt + BackwardRecord<Shape>::Bytes * slot};
  }

  DEVICE void init(const AttentionArguments& a) const {
    static_assert(120 + 5 * 8 * Shape::Stages <= 200, "barriers overlap");
    constexpr int warps = Shape::Consumers;
    const BackwardOptions<Shape> options(a);
    const int helpers = options.dropping || options.storing ? 4 : 0;
    barrierInit(fullK(), 1);
    barrierInit(fullV(), 1);
    barrierInit(emptyKV(), warps);
    for (int i = 0; i < 2; i++) {
      barrierInit(fullTile(i), 1);
      barrierInit(emptyTile(i), warps + 3 + helpers);
      barrierInit(fullDS(i), Shape::Wide ? warps / 2 : warps);
      barrierInit(emptyDS(i), warps + (options.storing ? 4 : 0));
      barrierInit(fullP(i), warps / 2);
      barrierInit(emptyP(i), warps / 2);
    }
    for (int i = 0; i < Shape::Stages; i++) {
      barrierInit(fullQ(i), 1);
      barrierInit(emptyQ(i), warps);
      barrierInit(fullO(i), 1);
      barrierInit(emptyO(i), warps);
      barrierInit(fullStats(i), 32);
    }
    barrierInit(turn(), 2);
    barrierInit(added(), warps);
    barrierInit(fullBits(), 4);
    barrierInit(emptyBits(), Shape::Wide ? warps / 2 : warps);
    barrierInit(fullBias(), 1);
    barrierInit(emptyBias(), Shape::Wide ? warps / 2 : warps);
    barrierInitDone();
  }
  // getRecord waits for the next tile's record; one thread of each warp that does so gives it back when it is done.
  DEVICE BackwardRecord<Shape> getRecord(const Ring<2>& slot) const {
    barrierWait(fullTile(slot.stage), slot.parity);
    return record(slot.stage);
  }
  DEVICE void releaseRecord(Ring<2>& slot, bool leader) const {
    if (leader) barrierArrive(emptyTile(slot.stage));
    slot.advance();
  }
};

// backwardLoader is one thread's part: it draws the tiles and loads K, V, Q and dO.
template <class Shape>
DEVICE void backwardLoader(const CUtensorMap* qMap, const CUtensorMap* kMap, const CUtensorMap* vMap, const CUtensorMap* oMap,
                           const CUtensorMap* biasMap, const AttentionArguments& a, uint32_t shared, const BackwardBarriers<Shape>& barriers) {
  const BackwardQueue<Shape> queue(a);
  Ring<2> slot(1);
  Ring<Shape::Stages> q(1), o(1);
  uint32_t parity = 1, biasParity = 1;
  const bool mapped = BackwardOptions<Shape>(a).mapped;
  for (int index = blockIdx.x;; index = queue.draw()) {
    const BackwardTile t = queue.at(index);
    if (t.tile >= 0 && t.tile * Shape::TileK >= sequenceOf(a, t.sequence).sk) continue;
    barrierWait(barriers.emptyTile(slot.stage), slot.parity);
    const BackwardRecord<Shape> record = barriers.record(slot.stage);
    record.put(a, t);
    barrierArrive(barriers.fullTile(slot.stage));
    slot.advance();
    if (t.tile < 0) return queue.finish();

    BackwardSteps<Shape> steps(a, record);
    if (!steps.left) continue;
    const int batch = record.batch(), q0 = record.q0(), key = record.k0() + record.key();
    auto loadQ = [&]() {
      barrierWait(barriers.emptyQ(q.stage), q.parity);
      barrierExpect(barriers.fullQ(q.stage), Shape::QBytes);
      for (int c = 0; c < Shape::Chunks; c++)
        loadBox(shared + Shape::QAt + q.stage * Shape::QBytes + c * Shape::QChunk, qMap, barriers.fullQ(q.stage), c * 64,
                q0 + steps.m * Shape::TileQ, steps.head, batch);
      q.advance();
    };
    auto loadO = [&]() {
      barrierWait(barriers.emptyO(o.stage), o.parity);
      barrierExpect(barriers.fullO(o.stage), Shape::OBytes);
      for (int c = 0; c < Shape::ChunksV; c++)
        loadBox(shared + Shape::OAt + o.stage * Shape::OBytes + c * Shape::QChunk, oMap, barriers.fullO(o.stage), c * 64,
                q0 + steps.m * Shape::TileQ, steps.head, batch);
      o.advance();
    };
    auto loadBias = [&]() {
      if (!mapped) return;
      barrierWait(barriers.emptyBias(), biasParity);
      biasParity ^= 1;
      barrierExpect(barriers.fullBias(), Shape::BiasBytes);
      BackwardSteps<Shape> ahead = steps;
      ahead.next();
      for (int c = 0; c < Shape::TileK / 64; c++) {
        const int column = t.tile * Shape::TileK + c * 64, sequence = a.biasSequence ? t.sequence : 0;
        loadBoxOnce(shared + Shape::BiasAt + c * Shape::QChunk, biasMap, barriers.fullBias(), column, steps.m * Shape::TileQ,
                    a.biasHead ? steps.head : 0, sequence);
        if (ahead.left) prefetchBox(biasMap, column, ahead.m * Shape::TileQ, a.biasHead ? ahead.head : 0, sequence);
      }
    };
    loadQ();
    barrierWait(barriers.emptyKV(), parity);
    parity ^= 1;
    barrierExpect(barriers.fullK(), Shape::KBytes);
    for (int c = 0; c < Shape::Chunks; c++)
      loadBox(shared + Shape::KAt + c * Shape::KChunk, kMap, barriers.fullK(), c * 64, key, t.keyHead, batch);
    loadBias();
    loadO();
    barrierExpect(barriers.fullV(), Shape::VBytes);
    for (int c = 0; c < Shape::ChunksV; c++)
      loadBox(shared + Shape::VAt + c * Shape::KChunk, vMap, barriers.fullV(), c * 64, key, t.keyHead, batch);
    for (steps.next(); steps.left; steps.next()) {
      loadQ();
      loadBias();
      loadO();
    }
  }
}

// backwardStats is a warp's part: it brings LSE, in powers of two, and δ. LSE is +∞ where P must be 0: in rows that see no
// keys and rows beyond the end.
template <class Shape>
DEVICE void backwardStats(const AttentionArguments& a, uint32_t shared, const BackwardBarriers<Shape>& barriers) {
  constexpr int PerLane = (Shape::TileQ + 31) / 32;
  const int lane = threadIdx.x & 31;
  Ring<2> slot(0);
  Ring<Shape::Stages> ring(1);
  for (;;) {
    const BackwardRecord<Shape> record = barriers.getRecord(slot);
    if (record.sequenceIndex() < 0) return;
    for (BackwardSteps<Shape> steps(a, record); steps.left; steps.next()) {
      const int64_t row = ((int64_t)record.batch() * a.heads + steps.head) * a.sq + record.q0();
      const int sq = record.sq();
      float lse[PerLane], delta[PerLane];
#pragma unroll
      for (int i = 0; i < PerLane; i++) {
        const int at = steps.m * Shape::TileQ + i * 32 + lane;
        lse[i] = at < sq ? a.lse[row + at] * LOG2E : -INFINITY;
        delta[i] = at < sq ? a.delta[row + at] : 0;
        if (lse[i] == -INFINITY) lse[i] = INFINITY;
      }
      barrierWait(barriers.emptyQ(ring.stage), ring.parity);
      const uint32_t to = shared + Shape::StatsAt + ring.stage * Shape::TileQ * 8 + lane * 4;
#pragma unroll
      for (int i = 0; i < PerLane; i++)
        if (i * 32 + lane < Shape::TileQ) {
          storeShared4(to + i * 128, lse[i]);
          storeShared4(to + Shape::TileQ * 4 + i * 128, delta[i]);
        }
      barrierArrive(barriers.fullStats(ring.stage));
      ring.advance();
    }
    __syncwarp();
    barriers.releaseRecord(slot, lane == 0);
  }
}

// backwardTurns is one thread's part: it says when the consumers may add a step's dQ to the sums. The first tile of keys writes
// rather than adds, so all others wait for it, and for each other where their order counts.
template <class Shape> DEVICE void backwardTurns(const AttentionArguments& a, const BackwardBarriers<Shape>& barriers) {
  Ring<2> slot(0);
  uint32_t n = 0;
  for (;;) {
    const BackwardRecord<Shape> record = barriers.getRecord(slot);
    if (record.sequenceIndex() < 0) return;
    for (BackwardSteps<Shape> steps(a, record); steps.left; steps.next(), n++) {
      const int order = record.order(steps.m), needed = a.deterministic ? order : min(order, 1);
      const int32_t* const done = a.counters + 2 + Shape::Sums::place(a, record.sequence(), steps.head, steps.m);
      if (needed)
        while (loadAcquire(done) < needed) {
        }
      if (n) barrierWait(barriers.turn(), n - 1 & 1);
      barrierArrive(barriers.turn());
    }
    barriers.releaseRecord(slot, true);
  }
}

// backwardAdded is one thread's part: it tells other blocks that dQ has been added. One fence covers what all consumers did.
template <class Shape> DEVICE void backwardAdded(const AttentionArguments& a, const BackwardBarriers<Shape>& barriers) {
  Ring<2> slot(0);
  uint32_t n = 0;
  barrierArrive(barriers.turn());
  for (;;) {
    const BackwardRecord<Shape> record = barriers.getRecord(slot);
    if (record.sequenceIndex() < 0) return;
    for (BackwardSteps<Shape> steps(a, record); steps.left; steps.next(), n++) {
      const int order = record.order(steps.m);
      int32_t* const done = a.counters + 2 + Shape::Sums::place(a, record.sequence(), steps.head, steps.m);
      barrierWait(barriers.added(), n & 1);
      barrierArrive(barriers.turn());
      if (a.deterministic || order == 0) storeRelease(done, order + 1);
    }
    barriers.releaseRecord(slot, true);
  }
}

// BackwardScores is what a consumer warpgroup does with a tile of S and dP of 64 keys, whatever it is for. A thread holds two
// rows, that is keys, (r = 0, 1: row and row + 8) in the accumulators' order: element (r, 8·i + pair + e) is number
// 4·i + 2·r + e, pair being 2·(lane mod 4).
template <class Shape> struct BackwardScores {
  using Record = BackwardRecord<Shape>;
  using Steps = BackwardSteps<Shape>;
  using Sums = typename Shape::Sums;
  static constexpr int D = Shape::D, DV = Shape::DV, TileQ = Shape::TileQ, Stages = Shape::Stages;
  static constexpr bool Modified = Shape::Modified;

  const AttentionArguments& a;
  const uint32_t shared;
  const int group;
  int place;              // of the thread among the consumers
  const int tilesOfHead;  // of the sums of dQ
  int tilesBefore;        // of them, those of the sequences before this one
  int leads;              // the query tile from which on this tile of keys writes the sums

  Ring<2> slot{0};
  uint32_t keysParity = 0;
  uint32_t n = 0;  // steps done since the kernel's start: they tell places in all rings

  DEVICE BackwardScores(const AttentionArguments& a, uint32_t shared)
      : a(a), shared(shared), group(__shfl_sync(~0u, threadIdx.x / 128, 0) - 1), place(threadIdx.x - 128),
        tilesOfHead(Sums::tiles(a)) {}

  DEVICE BackwardBarriers<Shape> barriers() const { return {shared + Shape::BarriersAt}; }
  DEVICE int thread() const { return place % 128; }
  DEVICE int lane() const { return place % 32; }
  DEVICE int pair() const { return place % 4 * 2; }
  // The thread's first key within the tile.
  DEVICE int row() const { return (Shape::Wide ? thread() : place) / 32 * 16 + lane() / 4; }
  // settle keeps the compiler from computing addresses before the loops: they would take the registers of the accumulators.
  DEVICE void settle() { asm volatile("" : "+r"(place)); }

  static DEVICE uint32_t stageOf(uint32_t n) { return n % Stages; }
  static DEVICE uint32_t parityOf(uint32_t n) { return n / Stages & 1; }
  // The buffer of dS of step n and the parity of its phase.
  static DEVICE uint32_t bufferOf(uint32_t n) { return n % 2; }
  static DEVICE uint32_t bufferParity(uint32_t n) { return n / 2 & 1; }

  // operand describes rows of 128 bytes for a product, as descriptor() does, at an address plus an offset that is known at
  // compile time; `along` is the distance of chunks where columns of more than one are contiguous. It is made from 32 bits,
  // since the other half is constant.
  static DEVICE uint64_t operand(uint32_t at, uint32_t offset, uint32_t along = 0) {
    uint64_t d;
    asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"((at >> 4) + (offset >> 4) + (along << 12)), "n"(1024 >> 4 | 1 << 30));
    return d;
  }

  // begin prepares for the tile that steps belong to.
  DEVICE void begin(Steps& steps) {
    steps.share();
    tilesBefore = __shfl_sync(~0u, Sums::before(a, steps.record.sequence()), 0);
    leads = __shfl_sync(~0u, steps.record.leads(), 0);
  }

  // startProduct starts a product of 64 rows of `left` and the rows of `right`, which both have Columns contiguous columns.
  template <int Columns> static DEVICE void startProduct(float (&x)[TileQ / 2], uint32_t left, int leftChunk, uint32_t right) {
    productFence();
#pragma unroll
    for (int i = 0; i < Columns / 16; i++)
      Wgmma<TileQ>::template ss<0, 0>(x, operand(left, i / 4 * leftChunk + i % 4 * 32),
                                      operand(right, i / 4 * Shape::QChunk + i % 4 * 32), i != 0);
    productCommit();
  }
  // ownRows is where the group's keys begin in a chunk of K or V.
  DEVICE uint32_t ownRows() const { return Shape::Wide ? 0 : group * 64 * 128; }
  // startScores starts S = K·Qᵀ.
  DEVICE void startScores(float (&s)[TileQ / 2], uint32_t n) const {
    forget(s);
    startProduct<D>(s, shared + Shape::KAt + ownRows(), Shape::KChunk, shared + Shape::QAt + stageOf(n) * Shape::QBytes);
  }
  // startOutputs starts dP = V·dOᵀ.
  DEVICE void startOutputs(float (&dp)[TileQ / 2], uint32_t n) const {
    forget(dp);
    startProduct<DV>(dp, shared + Shape::VAt + ownRows(), Shape::KChunk, shared + Shape::OAt + stageOf(n) * Shape::OBytes);
  }
  // startGradient starts adding weights·rows to the gradient of the group's keys: P·dO or dS·Q.
  template <int N>
  static DEVICE void startGradient(float (&sum)[N], const uint32_t (&weights)[TileQ / 4], uint32_t rows) {
    // A product of 256 columns takes more registers than ptxas allows where a thread has 128 at the start.
    constexpr int Parts = Modified && N == 128 ? 2 : 1;
    productFence();
#pragma unroll
    for (int i = 0; i < TileQ / 16; i++)
#pragma unroll
      for (int part = 0; part < Parts; part++)
        Wgmma<N * 2 / Parts>::template rs<1>(*(float(*)[N / Parts])(sum + part * (N / Parts)), weights + 4 * i,
                                             operand(rows, i * 2048 + part * (N / 32 * Shape::QChunk / Parts), Shape::QChunk), 1);
    productCommit();
  }
  // startSlice starts a slice of dQ of step n: of dQᵀ = Kᵀ·dS, or of dQ = dSᵀ·K.
  DEVICE void startSlice(float (&dq)[Sums::Registers], uint32_t n, int slice) const {
    const uint32_t dsAt = shared + Shape::DSAt + bufferOf(n) * Shape::DSBytes;
    forget(dq);
    productFence();
#pragma unroll
    for (int i = 0; i < Shape::TileK / 16; i++) {
      constexpr int step = 2048;
      const int scores = i / 4 * Shape::QChunk + i % 4 * 32;
      if constexpr (Sums::Transposed)
        Wgmma<TileQ>::template ss<1, 0>(dq, operand(shared + Shape::KAt + slice * Shape::KChunk, i * step, Shape::KChunk),
                                        operand(dsAt, scores), i != 0);
      else
        Wgmma<D>::template ss<0, 1>(dq, operand(dsAt + slice * 64 * 128, scores),
                                    operand(shared + Shape::KAt, i * step, Shape::KChunk), i != 0);
    }
    productCommit();
  }
  DEVICE void waitDS(uint32_t n) const { barrierWait(barriers().fullDS(bufferOf(n)), bufferParity(n)); }
  DEVICE void releaseDS(uint32_t n) const {
    if (lane() == 0) barrierArrive(barriers().emptyDS(bufferOf(n)));
  }

  // waitQ and waitO wait for Q and dO of a step, waitK for K.
  DEVICE void waitQ(const Steps& steps, uint32_t n) const {
    barrierWait(barriers().fullQ(stageOf(n)), parityOf(n));
    clearQ(Shape::QAt + stageOf(n) * Shape::QBytes, Shape::Chunks, steps);
  }
  DEVICE void waitO(const Steps& steps, uint32_t n) const {
    barrierWait(barriers().fullO(stageOf(n)), parityOf(n));
    clearQ(Shape::OAt + stageOf(n) * Shape::OBytes, Shape::ChunksV, steps);
  }
  DEVICE void waitK(const Steps& steps) const {
    barrierWait(barriers().fullK(), keysParity);
    clear(Shape::KAt, Shape::Chunks, Shape::KChunk, steps.record.sk() - steps.record.key(), Shape::TileK);
  }
  DEVICE void clearQ(uint32_t at, int chunks, const Steps& steps) const {
    if (a.qLens) clear(at, chunks, Shape::QChunk, steps.record.sq() - steps.m * TileQ, TileQ);
  }
  // clear zeroes the rows of a buffer from `rows` on. Beyond the end of a packed sequence lie those of the next; P and dS are
  // zero there, but zero times NaN is not. Beyond the end of the tensor TMA has put zeros. Both warpgroups clear all.
  DEVICE void clear(uint32_t at, int chunks, int chunkBytes, int rows, int tileRows) const {
    if (!a.qLens || rows >= tileRows) return;
#pragma unroll 1
    for (int i = thread(); i < (tileRows - rows) * chunks * 8; i += 128) {
      const int line = rows + i / (chunks * 8), part = i % (chunks * 8);
      storeShared16(shared + at + part / 8 * chunkBytes + line * 128 + part % 8 * 16, make_uint4(0, 0, 0, 0));
    }
    sharedToAsync();
    groupSync(1 + group, 128);
  }

  DEVICE float2 stats(int which, int i) const {
    return loadShared8(shared + Shape::StatsAt + stageOf(n) * TileQ * 8 + which * TileQ * 4 + (8 * i + pair()) * 4);
  }

  // each calls f for every score that the thread holds, with its number and how many queries and keys it lies behind the
  // thread's first.
  template <class F> static DEVICE void each(F f) {
#pragma unroll
    for (int i = 0; i < TileQ / 8; i++)
#pragma unroll
      for (int r = 0; r < 2; r++)
#pragma unroll
        for (int e = 0; e < 2; e++) f(4 * i + 2 * r + e, 8 * i + e, 8 * r);
  }

  // capAt is where the thread keeps the derivative of the soft cap for 16 queries, as pairs of halves. Outside of wide shapes
  // that is where its warp will write dS.
  DEVICE uint32_t capAt(int i) const {
    if (Shape::Wide) return shared + Shape::PAt + Shape::PBytes + i * 2048 + thread() * 16;
    const int line = 16 * i + lane() / 2, part = thread() / 32 * 2 + lane() % 2;
    return shared + Shape::DSAt + bufferOf(n) * Shape::DSBytes + group * Shape::QChunk + line * 128 + ((part ^ line % 8) << 4);
  }

  // modify does to S what Modifier in score.cuh does to one score, one option after the other: an option that is not used
  // then costs one branch. It returns what is left to multiply S by.
  DEVICE float modify(float (&s)[TileQ / 2], const Steps& now) {
    float factor = a.scale;
    if (a.softCap > 0) {
      if (Shape::Wide)
        barrierWait(barriers().emptyP(0), n & 1 ^ 1);
      else
        barrierWait(barriers().emptyDS(bufferOf(n)), bufferParity(n) ^ 1);
      const float toCap = 2 * LOG2E * a.scale / a.softCap;
#pragma unroll
      for (int i = 0; i < TileQ / 16; i++) {
        uint32_t derivative[4];
#pragma unroll
        for (int e = 0; e < 4; e++) {
          float& x = s[8 * i + 2 * e];
          float& y = s[8 * i + 2 * e + 1];
          x = 1 - __fdividef(2, 1 + exp2Fast(x * toCap));  // tanh
          y = 1 - __fdividef(2, 1 + exp2Fast(y * toCap));
          const __half2 both = __floats2half2_rn(1 - x * x, 1 - y * y);
          derivative[e] = *(const uint32_t*)&both;
        }
        storeShared16(capAt(i), make_uint4(derivative[0], derivative[1], derivative[2], derivative[3]));
      }
      factor = a.softCap;
    }
    if (a.slopes) {
      const float slope = a.slopes[now.head];
      const int distance = now.m * TileQ + pair() + now.record.sk() - now.record.sq() - now.record.key() - row();
      each([&](int at, int i, int j) { s[at] = s[at] * factor - slope * (float)abs(distance + i - j); });
      factor = 1;
    }
    if (a.bias) {
      addBias(s, factor, now);
      factor = 1;
    }
    return factor;
  }
  DEVICE void addBias(float (&s)[TileQ / 2], float factor, const Steps& now) {
    if (BackwardOptions<Shape>(a).mapped) {
      barrierWait(barriers().fullBias(), n & 1);
      const uint32_t from = shared + Shape::BiasAt + (Shape::Wide ? 0 : group * Shape::QChunk);
#pragma unroll
      for (int i = 0; i < TileQ / 16; i++) {
        uint32_t b[4];
        loadMatrix4Transposed(b, from + matrixAt(i));
#pragma unroll
        for (int x = 0; x < 4; x++) {
          const float2 both = unpack(b[x]);
          s[8 * i + 2 * x] = fmaf(s[8 * i + 2 * x], factor, both.x);
          s[8 * i + 2 * x + 1] = fmaf(s[8 * i + 2 * x + 1], factor, both.y);
        }
      }
      __syncwarp();
      if (lane() == 0) barrierArrive(barriers().emptyBias());
      return;
    }
    const int64_t plane = now.record.sequenceIndex() * a.biasSequence + now.head * a.biasHead;
    if (a.biasElement == ElementF32)
      addBiasElements(s, (const float*)a.bias + plane, factor, now);
    else
      addBiasElements(s, (const Scalar*)a.bias + plane, factor, now);
  }
  template <class Element>
  DEVICE void addBiasElements(float (&s)[TileQ / 2], const Element* bias, float factor, const Steps& now) const {
    const int sq = now.record.sq(), sk = now.record.sk(), query = now.m * TileQ + pair(), key = now.record.key() + row();
    if (a.biasRow == 0) {
      const float own[2] = {(float)bias[min(key, sk - 1)], (float)bias[min(key + 8, sk - 1)]};
      each([&](int at, int, int j) { s[at] = fmaf(s[at], factor, own[j / 8]); });
    } else {
      each([&](int at, int i, int j) {
        s[at] = fmaf(s[at], factor, (float)bias[min(query + i, sq - 1) * a.biasRow + min(key + j, sk - 1)]);
      });
    }
  }
  // matrixAt is the address that the lane names for four 8×8 matrices of its warp's keys, for 16 queries, in a chunk whose rows
  // are queries.
  DEVICE uint32_t matrixAt(int i) const {
    const int matrix = lane() / 8, line = lane() % 8, part = thread() / 32 * 2 + matrix % 2;
    return (16 * i + matrix / 2 * 8 + line) * 128 + ((part ^ line) << 4);
  }

  // probabilities turns S into P, and rounds it. What dropout drops is negative there, and missing in what dV takes.
  template <class Masked>
  DEVICE void probabilities(float (&s)[TileQ / 2], uint32_t (&p)[TileQ / 4], uint32_t (&forValues)[TileQ / 4],
                            const Steps& now, Masked) {
    const int query = now.m * TileQ + pair();
    const float toLog2 = (Modified ? modify(s, now) : a.scale) * LOG2E;
#pragma unroll
    for (int i = 0; i < TileQ / 8; i++) {
      const float2 lse = stats(0, i);
#pragma unroll
      for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& x = s[4 * i + 2 * r + e];
          x = exp2Fast(fmaf(x, toLog2, -(e ? lse.y : lse.x)));
        }
      }
    }
    if (Masked::value) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int key = now.record.key() + row() + 8 * r, from = key - now.record.hi() + 1;
        const int to = Modified ? min(key - now.record.lo(), now.record.sq() - 1) : key - now.record.lo();
        const uint32_t width = key < now.record.sk() ? max(0, to - from + 1) : 0;
#pragma unroll
        for (int i = 0; i < TileQ / 8; i++)
#pragma unroll
          for (int e = 0; e < 2; e++)
            if ((uint32_t)(query + 8 * i + e - from) >= width) s[4 * i + 2 * r + e] = 0;
      }
    }
#pragma unroll
    for (int i = 0; i < TileQ / 4; i++) p[i] = pack(s[2 * i], s[2 * i + 1]);
    if constexpr (Modified) {
      if (a.dropThreshold) {
        barrierWait(barriers().fullBits(), n & 1);
        drop(p);
#pragma unroll
        for (int i = 0; i < TileQ / 4; i++) forValues[i] = positive(p[i]);
      } else {
#pragma unroll
        for (int i = 0; i < TileQ / 4; i++) forValues[i] = p[i];
      }
    }
  }
  // drop makes negative what dropout drops. Lanes that are four apart share the words that backwardHelpers left.
  DEVICE void drop(uint32_t (&p)[TileQ / 4]) const {
    const int quads = thread() / 32 + (Shape::Wide ? 0 : 4 * group), quad = quads * 8 + lane() / 16 * 4 + lane() % 4;
    const int mine = lane() / 4 % 4;
#pragma unroll
    for (int h = 0; h < TileQ / 64; h++) {
      const uint4 words = loadShared16(shared + Shape::BitsAt + (quad * (TileQ / 64) + h) * 16);
      const uint32_t word[4] = {words.x << (3 - mine), words.y << (3 - mine), words.z << (3 - mine), words.w << (3 - mine)};
#pragma unroll
      for (int i = 0; i < 8; i++)
#pragma unroll
        for (int r = 0; r < 2; r++) p[16 * h + 2 * i + r] ^= word[2 * r + i / 4] << (12 - i % 4 * 4) & 0x80008000u;
    }
    __syncwarp();
    if (lane() == 0) barrierArrive(barriers().emptyBits());
  }
  // values chooses the P that dV takes.
  static DEVICE uint32_t (&values(uint32_t (&p)[TileQ / 4], uint32_t (&dropped)[Modified ? TileQ / 4 : 1]))[TileQ / 4] {
    if constexpr (Modified)
      return dropped;
    else
      return p;
  }

  // gradients makes dS and rounds it. The bias's gradient is it without the soft cap's derivative; without a soft cap the
  // helpers take it from shared memory.
  template <class Masked>
  DEVICE void gradients(const float (&s)[TileQ / 2], const uint32_t (&p)[TileQ / 4], float (&dp)[TileQ / 2],
                        uint32_t (&packed)[TileQ / 4], const Steps& now, Masked) {
    if constexpr (Modified) {
      if (a.dropThreshold) {
#pragma unroll
        for (int i = 0; i < TileQ / 4; i++) {
          const float2 rounded = unpack(p[i]);
          dp[2 * i] = rounded.x > 0 ? dp[2 * i] * a.keepScale : 0;
          dp[2 * i + 1] = rounded.y > 0 ? dp[2 * i + 1] * a.keepScale : 0;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < TileQ / 8; i++) {
      const float2 delta = stats(1, i);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float2 rounded = unpack(p[2 * i + r]);
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int at = 4 * i + 2 * r + e;
          float x = !Shape::RoundedP ? s[at] : e ? rounded.y : rounded.x;
          if (Modified) x = fabsf(x);
          dp[at] = x * (dp[at] - (e ? delta.y : delta.x));
          if (Masked::value && x == 0) dp[at] = 0;
        }
      }
    }
    if constexpr (Modified) {
      if (a.softCap > 0) {
        if (a.dBias) putDBias(dp, now);
#pragma unroll
        for (int i = 0; i < TileQ / 16; i++) {
          const uint4 four = loadShared16(capAt(i));
          const uint32_t derivative[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const float2 factor = __half22float2(*(const __half2*)&derivative[e]);
            dp[8 * i + 2 * e] *= factor.x;
            dp[8 * i + 2 * e + 1] *= factor.y;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < TileQ / 4; i++) packed[i] = pack(dp[2 * i], dp[2 * i + 1]);
  }

  // putDBias stores dS as the gradient of the bias, or adds it where several scores share an element: with a soft cap, where what
  // shared memory holds is something else.
  DEVICE void putDBias(const float (&dp)[TileQ / 2], const Steps& now) {
    const int64_t plane = now.record.sequenceIndex() * a.dBiasSequence + now.head * a.dBiasHead;
    if (a.dBiasSums)
      eachOfBias(now, [&](int at, int64_t place) { atomicAdd((float*)a.dBias + plane + place, dp[at]); });
    else if (a.biasElement == ElementF32)
      eachOfBias(now, [&](int at, int64_t place) { ((float*)a.dBias)[plane + place] = dp[at]; });
    else
      eachOfBias(now, [&](int at, int64_t place) { ((Scalar*)a.dBias)[plane + place] = Scalar(dp[at]); });
  }
  template <class F> DEVICE void eachOfBias(const Steps& now, F f) const {
    const int query = now.m * TileQ + pair(), key = now.record.key() + row();
    const int rows = now.record.sq() - query, keys = now.record.sk() - key;
    const int64_t first = query * a.dBiasRow + key;
    each([&](int at, int i, int j) {
      if (i < rows && j < keys) f(at, first + i * a.dBiasRow + j);
    });
  }

  // putDS writes the group's keys of dS to shared memory, a row a query.
  DEVICE void putDS(const uint32_t (&packed)[TileQ / 4]) {
    barrierWait(barriers().emptyDS(bufferOf(n)), bufferParity(n) ^ 1);
    if (Modified) __syncwarp();  // the warp has read the soft cap's derivative
    const uint32_t to = shared + Shape::DSAt + bufferOf(n) * Shape::DSBytes + (Shape::Wide ? 0 : group * Shape::QChunk);
#pragma unroll
    for (int i = 0; i < TileQ / 16; i++)
      storeMatrix4Transposed(to + matrixAt(i), packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
    sharedToAsync();
    __syncwarp();
    if (lane() == 0) barrierArrive(barriers().fullDS(bufferOf(n)));
  }
  // add adds a slice of dQ of step n to the sums when its turn has come.
  DEVICE void add(const float (&dq)[Sums::Registers], uint32_t n, BackwardStep step, int slice) const {
    const int at = (step.head * tilesOfHead + tilesBefore + step.m) * Sums::Slices + slice;
    float* const to = a.dQSum + (int64_t)at * Sums::SliceFloats + thread() * 4;
    barrierWait(barriers().turn(), n & 1);
#pragma unroll
    for (int i = 0; i < Sums::Registers / 4; i++)
      storeOrAddFloats4(step.m >= leads, to + i * 512, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    if (slice + 2 >= Sums::Slices) {
      __syncwarp();
      if (lane() == 0) barrierArrive(barriers().added());
    }
  }

  // store writes dK or dV of the group's keys. Neighbouring lanes exchange halves, so that each has four columns in a row: the
  // even lane of 8·i, the odd one of 8·(i + 1).
  template <int N>
  DEVICE void store(float (&x)[N], const Rows& to, const Record& record, int columns, float factor) const {
    const bool odd = lane() & 1;
    const int sk = record.sk();
    Scalar* const data = (Scalar*)to.data + record.batch() * to.batch + record.keyHead() * to.head + record.k0() * to.row;
    const bool whole = columns % 4 == 0 && (uint64_t)data % 8 == 0 && to.row % 4 == 0;
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int at = record.key() + row() + 8 * r;
      Scalar* const line = data + at * to.row;
#pragma unroll
      for (int i = 0; i < N / 4; i += 2) {
        const uint32_t even = pack(x[4 * i + 2 * r] * factor, x[4 * i + 2 * r + 1] * factor);
        const uint32_t next = pack(x[4 * i + 4 + 2 * r] * factor, x[4 * i + 5 + 2 * r] * factor);
        const uint32_t got = __shfl_xor_sync(~0u, odd ? even : next, 1);
        const uint2 four = odd ? make_uint2(got, next) : make_uint2(even, got);
        const int column = 8 * (i + odd) + (lane() & 2) * 2;
        if (at >= sk) continue;
        if (whole) {
          if (column < columns) *(uint2*)(line + column) = four;
        } else {
          const Scalar* elements = (const Scalar*)&four;
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (column + e < columns) line[column + e] = elements[e];
        }
      }
    }
  }
};

// BackwardHelpers is what the warpgroup does that only kernels with options have: it draws which elements dropout drops, and
// stores dS, rounded as it lies in shared memory, as the gradient of the bias.
template <class Shape> struct BackwardHelpers {
  using Steps = BackwardSteps<Shape>;
  static constexpr int TileQ = Shape::TileQ, TileK = Shape::TileK;

  const AttentionArguments& a;
  const uint32_t shared;
  const int thread, lane, warp;
  uint32_t n = 0;

  DEVICE BackwardHelpers(const AttentionArguments& a, uint32_t shared)
      : a(a), shared(shared), thread(threadIdx.x % 128), lane(threadIdx.x % 32), warp(threadIdx.x / 32 % 4) {}
  DEVICE BackwardBarriers<Shape> barriers() const { return {shared + Shape::BarriersAt}; }

  DEVICE void run() {
    const BackwardOptions<Shape> options(a);
    if (!options.dropping && !options.storing) return;
    Ring<2> slot(0);
    for (;;) {
      const BackwardRecord<Shape> record = barriers().getRecord(slot);
      if (record.sequenceIndex() < 0) return;
      Steps steps(a, record);
      if (steps.left) {
        if (options.dropping) draw(steps);
        n++;
        // The next step is drawn for before this one's dS is waited for.
        for (steps.next(); steps.left; steps.next()) {
          if (options.dropping) draw(steps);
          if (options.storing) store(steps.record, steps.before());
          n++;
        }
        if (options.storing) store(steps.record, steps.before());
      }
      __syncwarp();
      barriers().releaseRecord(slot, lane == 0);
    }
  }

  // draw leaves, for each four keys and each query, four bits that say what is dropped. A lane draws for key row + 8·r and
  // column 8·i + pair + e of the consumer's lane in its place, where r and e depend on the lane: what four lanes draw is what the
  // four lanes that share these keys need. A word has columns e = 0 in its lower half, e = 1 in its upper one.
  DEVICE void draw(const Steps& steps) const {
    constexpr int Halves = TileQ / 64, Blocks = TileK / 16 * Halves / 4;
    const int r = lane / 8 % 2, e = lane / 4 % 2;
    const Dropper dropper(a, Sequence{steps.record.sequenceIndex()}, steps.head);
    const int key = steps.record.key() + lane / 16 * 4 + 8 * r, query = steps.m * TileQ + lane % 4 * 2 + e;
    uint32_t drawn[Blocks];
#pragma unroll
    for (int b = 0; b < Blocks; b++) {
      const int block = warp + 4 * b, j = key + block / Halves * 16, i = query + block % Halves * 64;
      drawn[b] = 0;
#pragma unroll 1
      for (int part = 0; part < 4; part++)
        drawn[b] |= (four(dropper, i + 8 * part, j) | four(dropper, i + 8 * part + 32, j) << 16) << 4 * part;
    }
    barrierWait(barriers().emptyBits(), n & 1 ^ 1);
#pragma unroll
    for (int b = 0; b < Blocks; b++) {
      const int block = warp + 4 * b, quad = block / Halves * 8 + lane / 16 * 4 + lane % 4;
      const uint32_t to = shared + Shape::BitsAt + (quad * Halves + block % Halves) * 16 + r * 8 + e * 2;
      storeShared2(to, drawn[b]);
      storeShared2(to + 4, drawn[b] >> 16);
    }
    __syncwarp();
    if (lane == 0) barrierArrive(barriers().fullBits());
  }
  static DEVICE uint32_t four(const Dropper& dropper, int i, int j) {
    const uint4 words = dropper.words(i, j);
    return !dropper.keep(words.x) | !dropper.keep(words.y) << 1 | !dropper.keep(words.z) << 2 | !dropper.keep(words.w) << 3;
  }

  // store stores dS of step n - 1, or adds it where several scores share an element.
  DEVICE void store(const BackwardRecord<Shape>& record, BackwardStep step) const {
    const uint32_t buffer = (n - 1) % 2, from = shared + Shape::DSAt + buffer * Shape::DSBytes;
    const int rows = min(TileQ, record.sq() - step.m * TileQ), keys = min(TileK, record.sk() - record.key());
    const int64_t plane = record.sequenceIndex() * a.dBiasSequence + step.head * a.dBiasHead;
    const int64_t at = plane + step.m * TileQ * a.dBiasRow + record.key();
    barrierWait(barriers().fullDS(buffer), (n - 1) / 2 & 1);
    if (a.dBiasSums && a.dBiasRow == 0)
      addColumns((float*)a.dBias + at, from, rows, keys);
    else if (a.dBiasSums || a.biasElement == ElementF32)
      storeRows((float*)a.dBias + at, from, rows, keys);
    else
      storeRows((Scalar*)a.dBias + at, from, rows, keys);
    __syncwarp();
    if (lane == 0) barrierArrive(barriers().emptyDS(buffer));
  }
  // addColumns adds the sums over the rows. A thread has two columns, for some of the rows.
  DEVICE void addColumns(float* to, uint32_t from, int rows, int keys) const {
    constexpr int Parts = 128 / (TileK / 2);
    const int column = thread % (TileK / 2) * 2;
    float x = 0, y = 0;
#pragma unroll 8
    for (int row = thread / (TileK / 2); row < rows; row += Parts) {
      const float2 both = unpack(loadShared4(from + place(row, column)));
      x += both.x;
      y += both.y;
    }
    if (column < keys) atomicAdd(to + column, x);
    if (column + 1 < keys) atomicAdd(to + column + 1, y);
  }
  static DEVICE uint32_t place(int row, int column) {
    return column / 64 * Shape::QChunk + row * 128 + ((column % 64 / 8 ^ row % 8) << 4) + column % 8 * 2;
  }
  // storeRows gives each lane 16 bytes of a row, and neighbouring lanes neighbouring ones.
  template <class Element> DEVICE void storeRows(Element* to, uint32_t from, int rows, int keys) const {
    constexpr int Columns = 16 / sizeof(Element), Lanes = 64 / Columns, Step = 128 / Lanes, Batch = 2;
    static_assert(Step % 8 == 0 && TileQ % (Step * Batch) == 0, "a thread's rows must be swizzled alike");
    const bool aligned = (uint64_t)to % 16 == 0 && a.dBiasRow * sizeof(Element) % 16 == 0;
    const int first = thread / Lanes;
#pragma unroll 1
    for (int i = 0; i < TileK / 64 * TileQ; i += Step * Batch) {
      const int column = i / TileQ * 64 + thread % Lanes * Columns, row = i % TileQ + first;
      const uint32_t source = from + place(row, column);
      Element* line = to + row * a.dBiasRow + column;
      Words<Columns / 2> x[Batch];
#pragma unroll
      for (int n = 0; n < Batch; n++) x[n].load(source + n * Step * 128);
#pragma unroll
      for (int n = 0; n < Batch; n++, line += Step * a.dBiasRow) {
        if (row + n * Step >= rows || column >= keys) continue;
        if (aligned && column + Columns <= keys)
          put(line, x[n].words);
        else
          putSome(line, x[n].words, keys - column);
      }
    }
  }
  template <int N> struct Words {
    uint32_t words[N];
    DEVICE void load(uint32_t from) {
      if constexpr (N == 4) {
        const uint4 x = loadShared16(from);
        words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
      } else {
        const float2 x = loadShared8(from);
        words[0] = __float_as_uint(x.x), words[1] = __float_as_uint(x.y);
      }
    }
  };
  DEVICE void put(Scalar* to, const uint32_t (&x)[4]) const { __stcs((uint4*)to, make_uint4(x[0], x[1], x[2], x[3])); }
  DEVICE void put(float* to, const uint32_t (&x)[2]) const {
    const float2 p = unpack(x[0]), q = unpack(x[1]);
    if (a.dBiasSums)
      addFloats4(to, p.x, p.y, q.x, q.y);
    else
      __stcs((float4*)to, make_float4(p.x, p.y, q.x, q.y));
  }
  template <class Element, int N> DEVICE void putSome(Element* to, const uint32_t (&x)[N], int count) const {
#pragma unroll
    for (int e = 0; e < 2 * N; e++) {
      const float2 both = unpack(x[e / 2]);
      if (e < count) putOne(to + e, e % 2 ? both.y : both.x);
    }
  }
  DEVICE void putOne(Scalar* to, float x) const { *to = Scalar(x); }
  DEVICE void putOne(float* to, float x) const {
    if (a.dBiasSums)
      atomicAdd(to, x);
    else
      *to = x;
  }
};
