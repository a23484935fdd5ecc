// The parts of attention backward for sm_90a that its two kinds of consumers share; attention_backward_sm90.cuh describes the
// whole.
#pragma once
#include "arguments.cuh"
#include "attention_dq_sm90.cuh"
#include "hopper.cuh"
#include "score.cuh"

// BackwardShape places everything in shared memory. Tiles lie in chunks of 64 columns, a row of a chunk is 128 bytes.
template <int HeadDim, int HeadDimV, int QueryTile> struct BackwardShape {
  using Sums = BackwardSums<HeadDim, QueryTile>;
  static constexpr bool Wide = HeadDim > 128;
  static constexpr int D = HeadDim, DV = HeadDimV, TileQ = QueryTile, TileK = Wide ? 64 : 128, Stages = 2;
  // Where registers are too few for P in float32, dS is made from the rounded P that dV takes.
  static constexpr bool RoundedP = D >= 128;
  static constexpr int Threads = 384, Consumers = 8;  // warps
  static constexpr int Chunks = (D + 63) / 64, ChunksV = (DV + 63) / 64;
  static constexpr int KChunk = TileK * 128, QChunk = TileQ * 128;
  static constexpr int KBytes = Chunks * KChunk, VBytes = ChunksV * KChunk, QBytes = Chunks * QChunk, OBytes = ChunksV * QChunk;
  static constexpr int DSBytes = TileK / 64 * QChunk;
  static constexpr int KAt = 0, VAt = KAt + KBytes, QAt = VAt + VBytes, OAt = QAt + Stages * QBytes;
  static constexpr int DSAt = OAt + Stages * OBytes, PAt = DSAt + 2 * DSBytes;
  // P on its way between warpgroups, two buffers, in wide shapes; dQ on its way to the sums, a buffer a warpgroup, in others.
  // Wide shapes have no room for both: when they need the latter, a slice passes in pieces through P's second buffer.
  static constexpr int Pieces = Wide ? 4 : 1, PieceBytes = Sums::SliceFloats * 4 / Pieces;
  static constexpr int PBytes = Wide ? QChunk : PieceBytes, StatsAt = PAt + 2 * PBytes;
  static DEVICE int pieceAt(int group) { return PAt + (Wide ? PBytes : 0) + group * PieceBytes; }
  static_assert(!Wide || 2 * PieceBytes <= PBytes, "the pieces do not fit");
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

// BackwardQueue hands out the tiles in one order to all blocks. Heads are visited together while their tensors fit in the L2
// cache; among them, all first tiles of keys come first, which in the causal case are the longest.
template <class Shape> struct BackwardQueue {
  const AttentionArguments& a;
  int tiles, heads, together;

  DEVICE BackwardQueue(const AttentionArguments& a)
      : a(a), tiles((a.longestK + Shape::TileK - 1) / Shape::TileK), heads(a.sequences * a.keyHeads) {
    constexpr int64_t cache = 28 << 20;
    const int64_t bytes = (int64_t)a.longestQ * (a.heads / a.keyHeads) * (Shape::D * 6 + Shape::DV * 2);
    together = (int)min((int64_t)heads, max((int64_t)1, cache / (bytes + 1)));
  }
  DEVICE int draw() const { return atomicAdd(a.counters, 1) + gridDim.x; }
  DEVICE BackwardTile at(int index) const {
    if (index >= tiles * heads) return {0, 0, -1};
    const int part = index / (together * tiles), rest = index - part * together * tiles;
    const int width = min(together, heads - part * together), head = part * together + rest % width;
    return {head / a.keyHeads, head % a.keyHeads, rest / width};
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
  DEVICE Sequence sequence() const { return {sequenceIndex(), batch(), q0(), k0(), sq(), sk()}; }

  // The place of this tile among those that are added to the sums of query tile m, and their number.
  DEVICE int order(int m) const { return key() / TileK - max(0, m * TileQ + lo()) / TileK; }
  DEVICE int orders(int m) const {
    const int to = min(sk(), min((m + 1) * TileQ, sq()) - 1 + hi());
    return (to + TileK - 1) / TileK - max(0, m * TileQ + lo()) / TileK;
  }

  DEVICE void put(const AttentionArguments& a, const BackwardTile& t) const {
    if (t.tile < 0) return storeShared16(at, make_uint4(~0u, 0, 0, 0));
    const Sequence s = sequenceOf(a, t.sequence);
    const Band band = bandOf(a, s);
    const int key = t.tile * TileK, lastKey = min(key + TileK, s.sk) - 1;
    const int from = max(0, key - band.hi + 1), to = lastKey - band.lo;  // first and last row that sees any
    const int end = from >= s.sq || to < from ? 0 : min(to / TileQ + 1, (s.sq + TileQ - 1) / TileQ);
    const int cleanRows = key - band.lo + 1;
    storeShared16(at, make_uint4(s.index, s.batch, s.q0, s.k0));
    storeShared16(at + 16, make_uint4(s.sq, s.sk, band.lo, band.hi));
    storeShared16(at + 32, make_uint4(t.keyHead, key, from / TileQ, end));
    storeShared16(at + 48, make_uint4((max(0, key + TileK - band.hi) + TileQ - 1) / TileQ,
                                      key + TileK > s.sk || cleanRows < 0 ? 0 : cleanRows / TileQ, 0, 0));
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
  DEVICE uint32_t fullDQ(int group) const { return base + 88 + 8 * group; }
  DEVICE uint32_t emptyDQ(int group) const { return base + 104 + 8 * group; }
  DEVICE uint32_t fullQ(int stage) const { return base + 120 + 8 * stage; }
  DEVICE uint32_t emptyQ(int stage) const { return fullQ(Shape::Stages + stage); }
  DEVICE uint32_t fullO(int stage) const { return fullQ(2 * Shape::Stages + stage); }
  DEVICE uint32_t emptyO(int stage) const { return fullQ(3 * Shape::Stages + stage); }
  DEVICE uint32_t fullStats(int stage) const { return fullQ(4 * Shape::Stages + stage); }
  // P between the warpgroups of wide shapes.
  DEVICE uint32_t fullP(int buffer) const { return base + 200 + 8 * buffer; }
  DEVICE uint32_t emptyP(int buffer) const { return base + 216 + 8 * buffer; }
  DEVICE BackwardRecord<Shape> record(int slot) const {
    return {base + Shape::RecordsAt - Shape::BarriersAt + BackwardRecord<Shape>::Bytes * slot};
  }

  DEVICE void init() const {
    static_assert(120 + 5 * 8 * Shape::Stages <= 200, "barriers overlap");
    constexpr int warps = Shape::Consumers;
    barrierInit(fullK(), 1);
    barrierInit(fullV(), 1);
    barrierInit(emptyKV(), warps);
    for (int i = 0; i < 2; i++) {
      barrierInit(fullTile(i), 1);
      barrierInit(emptyTile(i), warps + 3);
      barrierInit(fullDS(i), Shape::Wide ? warps / 2 : warps);
      barrierInit(emptyDS(i), warps);
      barrierInit(fullDQ(i), 4);
      barrierInit(emptyDQ(i), 1);
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
                           const AttentionArguments& a, uint32_t shared, const BackwardBarriers<Shape>& barriers) {
  const BackwardQueue<Shape> queue(a);
  Ring<2> slot(1);
  Ring<Shape::Stages> q(1), o(1);
  uint32_t parity = 1;
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
    loadQ();
    barrierWait(barriers.emptyKV(), parity);
    parity ^= 1;
    barrierExpect(barriers.fullK(), Shape::KBytes);
    for (int c = 0; c < Shape::Chunks; c++)
      loadBox(shared + Shape::KAt + c * Shape::KChunk, kMap, barriers.fullK(), c * 64, key, t.keyHead, batch);
    loadO();
    barrierExpect(barriers.fullV(), Shape::VBytes);
    for (int c = 0; c < Shape::ChunksV; c++)
      loadBox(shared + Shape::VAt + c * Shape::KChunk, vMap, barriers.fullV(), c * 64, key, t.keyHead, batch);
    for (steps.next(); steps.left; steps.next()) {
      loadQ();
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

// backwardSender is one thread's part: it adds what consumer warpgroup `group` left of dQ to the sums when their turn has come.
template <class Shape>
DEVICE void backwardSender(const AttentionArguments& a, uint32_t shared, const BackwardBarriers<Shape>& barriers, int group) {
  using Sums = typename Shape::Sums;
  Ring<2> slot(0);
  uint32_t parity = 0;
  for (;;) {
    const BackwardRecord<Shape> record = barriers.getRecord(slot);
    if (record.sequenceIndex() < 0) return;
    if (a.deterministic) {
      for (BackwardSteps<Shape> steps(a, record); steps.left; steps.next())
        for (int slice = group; slice < Sums::Slices; slice += 2) {
          const int64_t place = Sums::place(a, record.sequence(), steps.head, steps.m) * Sums::Slices + slice;
          int32_t* const turn = a.counters + 2 + place;
          for (int piece = 0; piece < Shape::Pieces; piece++) {
            barrierWait(barriers.fullDQ(group), parity);
            parity ^= 1;
            if (piece == 0)
              while (loadAcquire(turn) != record.order(steps.m)) {
              }
            addFloats(a.dQSum + place * Sums::SliceFloats + piece * (Shape::PieceBytes / 4), shared + Shape::pieceAt(group),
                      Shape::PieceBytes);
            copiesCommit();
            copiesRead<0>();
            barrierArrive(barriers.emptyDQ(group));
          }
          copiesDone<0>();
          const int done = record.order(steps.m) + 1;
          storeRelease(turn, done == record.orders(steps.m) ? 0 : done);
        }
    }
    barriers.releaseRecord(slot, true);
  }
}

// BackwardScores is what a consumer warpgroup does with a tile of S and dP of 64 keys, whatever it is for. A thread holds two
// rows, that is keys, (r = 0, 1: row and row + 8) in the accumulators' order: element (r, 8·i + pair + e) is number
// 4·i + 2·r + e, pair being 2·(lane mod 4).
template <class Shape, bool Modified> struct BackwardScores {
  using Record = BackwardRecord<Shape>;
  using Steps = BackwardSteps<Shape>;
  using Sums = typename Shape::Sums;
  static constexpr int D = Shape::D, DV = Shape::DV, TileQ = Shape::TileQ, Stages = Shape::Stages;
  static constexpr int MaskWords = (TileQ + 63) / 64;

  const AttentionArguments& a;
  const uint32_t shared;
  const int group;
  int place;              // of the thread among the consumers
  const int tilesOfHead;  // of the sums of dQ
  int tilesBefore;        // of them, those of the sequences before this one

  Ring<2> slot{0};
  uint32_t keysParity = 0;
  uint32_t n = 0;  // steps done since the kernel's start: they tell places in all rings

  uint32_t capFactor[Modified ? TileQ / 4 : 1];   // the derivative of the soft cap, as pairs of halves
  uint32_t kept[2][2][Modified ? MaskWords : 1];  // dropout: [r][e], bit 4·i for column 8·i

  DEVICE BackwardScores(const AttentionArguments& a, uint32_t shared)
      : a(a), shared(shared), group(__shfl_sync(~0u, threadIdx.x / 128, 0) - 1), place(threadIdx.x - 128),
        tilesOfHead(Sums::tiles(a)) {}

  DEVICE BackwardBarriers<Shape> barriers() const { return {shared + Shape::BarriersAt}; }
  DEVICE int thread() const { return place % 128; }
  DEVICE int lane() const { return place % 32; }
  DEVICE int pair() const { return place % 4 * 2; }
  // The thread's first key within the tile.
  DEVICE int row() const { return (Shape::Wide ? thread() : place) / 32 * 16 + lane() / 4; }
  DEVICE float toLog2() const { return Modified ? LOG2E : a.scale * LOG2E; }  // turns what S holds into powers of two
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
    productFence();
#pragma unroll
    for (int i = 0; i < TileQ / 16; i++)
      Wgmma<N * 2>::template rs<1>(sum, weights + 4 * i, operand(rows, i * 2048, Shape::QChunk), 1);
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

  // modify does to S what Modifier in score.cuh does to one score, one option after the other: an option that is not used
  // then costs one branch.
  DEVICE void modify(float (&s)[TileQ / 2], const Steps& now) {
    const int sq = now.record.sq(), sk = now.record.sk(), query = now.m * TileQ + pair(), key = now.record.key() + row();
    if (a.softCap > 0) {
      const float toCap = 2 * LOG2E * a.scale / a.softCap;
      float factor = 0;
      each([&](int at, int, int) {
        const float capped = 1 - __fdividef(2, 1 + exp2Fast(s[at] * toCap));  // tanh
        s[at] = a.softCap * capped;
        if (at % 2) {
          const __half2 both = __floats2half2_rn(factor, 1 - capped * capped);
          capFactor[at / 2] = *(const uint32_t*)&both;
        }
        factor = 1 - capped * capped;
      });
    } else {
      each([&](int at, int, int) { s[at] *= a.scale; });
    }
    if (a.slopes) {
      const float slope = a.slopes[now.head];
      const int distance = query + sk - sq - key;
      each([&](int at, int i, int j) { s[at] -= slope * (float)abs(distance + i - j); });
    }
    if (a.bias) {
      const int64_t plane = now.record.sequenceIndex() * a.biasSequence + now.head * a.biasHead;
      if (a.biasElement == ElementF32)
        addBias(s, (const float*)a.bias + plane, query, key, sq, sk);
      else
        addBias(s, (const Scalar*)a.bias + plane, query, key, sq, sk);
    }
  }
  template <class Element>
  DEVICE void addBias(float (&s)[TileQ / 2], const Element* bias, int query, int key, int sq, int sk) const {
    each([&](int at, int i, int j) { s[at] += (float)bias[min(query + i, sq - 1) * a.biasRow + min(key + j, sk - 1)]; });
  }

  // probabilities turns S into P, and rounds it for dV without what dropout drops.
  template <class Masked>
  DEVICE void probabilities(float (&s)[TileQ / 2], uint32_t (&p)[TileQ / 4], uint32_t (&forValues)[TileQ / 4],
                            const Steps& now, Masked) {
    const int query = now.m * TileQ + pair();
    if (Modified) modify(s, now);
#pragma unroll
    for (int i = 0; i < TileQ / 8; i++) {
      const float2 lse = stats(0, i);
#pragma unroll
      for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float& x = s[4 * i + 2 * r + e];
          x = exp2Fast(fmaf(x, toLog2(), -(e ? lse.y : lse.x)));
        }
      }
    }
    if (Masked::value) {
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const int key = now.record.key() + row() + 8 * r, from = key - now.record.hi() + 1, to = key - now.record.lo();
        const uint32_t width = key < now.record.sk() ? max(0, to - from + 1) : 0;
#pragma unroll
        for (int i = 0; i < TileQ / 8; i++)
#pragma unroll
          for (int e = 0; e < 2; e++)
            if ((uint32_t)(query + 8 * i + e - from) >= width) s[4 * i + 2 * r + e] = 0;
      }
    }
    const bool dropping = Modified && a.dropThreshold;
#pragma unroll
    for (int i = 0; i < TileQ / 8; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float x = s[4 * i + 2 * r], y = s[4 * i + 2 * r + 1];
        p[2 * i + r] = pack(x, y);
        if (Modified) forValues[2 * i + r] = dropping ? pack(keeps(i, r, 0) ? x : 0, keeps(i, r, 1) ? y : 0) : p[2 * i + r];
      }
  }
  // values chooses the P that dV takes.
  static DEVICE uint32_t (&values(uint32_t (&p)[TileQ / 4], uint32_t (&dropped)[Modified ? TileQ / 4 : 1]))[TileQ / 4] {
    if constexpr (Modified)
      return dropped;
    else
      return p;
  }

  // gradients makes dS, stores or adds the bias's gradient, and rounds dS.
  template <class Masked>
  DEVICE void gradients(const float (&s)[TileQ / 2], const uint32_t (&p)[TileQ / 4], float (&dp)[TileQ / 2],
                        uint32_t (&packed)[TileQ / 4], const Steps& now, Masked) {
    const bool dropping = Modified && a.dropThreshold;
#pragma unroll
    for (int i = 0; i < TileQ / 8; i++) {
      const float2 delta = stats(1, i);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float2 rounded = unpack(p[2 * i + r]);
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int at = 4 * i + 2 * r + e;
          const float x = !Shape::RoundedP ? s[at] : e ? rounded.y : rounded.x;
          if (dropping) dp[at] = keeps(i, r, e) ? dp[at] * a.keepScale : 0;
          dp[at] = x * (dp[at] - (e ? delta.y : delta.x));
          if (Masked::value && x == 0) dp[at] = 0;
        }
      }
    }
    if (Modified && a.dBias) putDBias(dp, now);
    if (Modified && a.softCap > 0) {
#pragma unroll
      for (int i = 0; i < TileQ / 4; i++) {
        const float2 factor = __half22float2(*(const __half2*)&capFactor[i]);
        dp[2 * i] *= factor.x;
        dp[2 * i + 1] *= factor.y;
      }
    }
#pragma unroll
    for (int i = 0; i < TileQ / 4; i++) packed[i] = pack(dp[2 * i], dp[2 * i + 1]);
  }

  // putDBias stores dS as the gradient of the bias, or adds it where several scores share an element.
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

  DEVICE bool keeps(int i, int r, int e) const { return kept[r][e][i / 8] >> (i % 8 * 4) & 1; }

  // drawDropout draws which elements stay. Four lanes share the four keys of a counter, for two rows of keys and two columns:
  // each draws for one of the four, and they exchange the answers.
  DEVICE void drawDropout(const Steps& now) {
    if (!Modified || !a.dropThreshold) return;
    const Dropper dropper(a, now.record.sequence(), now.head);
    const int mine = lane() / 4 % 4;
    const int key = now.record.key() + (row() & ~3) + mine / 2 * 8, query = now.m * TileQ + pair() + mine % 2;
#pragma unroll
    for (int w = 0; w < MaskWords; w++) {
      uint32_t drawn = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) {
        if (w * 8 + i >= TileQ / 8) break;
        const uint4 words = dropper.words(query + (w * 8 + i) * 8, key);
        const uint32_t four = dropper.keep(words.x) | dropper.keep(words.y) << 1 | dropper.keep(words.z) << 2 |
                              dropper.keep(words.w) << 3;
        drawn |= four << (4 * i);
      }
#pragma unroll
      for (int n = 0; n < 4; n++) kept[n / 2][n % 2][w] = __shfl_sync(~0u, drawn, (lane() & ~12) | n << 2) >> mine;
    }
  }

  // putDS writes the group's keys of dS to shared memory, a row a query.
  DEVICE void putDS(const uint32_t (&packed)[TileQ / 4]) {
    barrierWait(barriers().emptyDS(bufferOf(n)), bufferParity(n) ^ 1);
    const uint32_t to = shared + Shape::DSAt + bufferOf(n) * Shape::DSBytes + (Shape::Wide ? 0 : group * Shape::QChunk);
    const int matrix = lane() / 8, line = lane() % 8, part = thread() / 32 * 2 + matrix % 2;
#pragma unroll
    for (int i = 0; i < TileQ / 16; i++)
      storeMatrix4Transposed(to + (16 * i + matrix / 2 * 8 + line) * 128 + ((part ^ line) << 4), packed[4 * i],
                             packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]);
    sharedToAsync();
    __syncwarp();
    if (lane() == 0) barrierArrive(barriers().fullDS(bufferOf(n)));
  }
  // add adds a slice of dQ of step n to the sums, or leaves it to the sender where their order counts.
  DEVICE void add(const float (&dq)[Sums::Registers], uint32_t n, BackwardStep step, int slice) const {
    constexpr int PieceRegisters = Sums::Registers / Shape::Pieces;
    if (a.deterministic) {
#pragma unroll
      for (int piece = 0; piece < Shape::Pieces; piece++) {
        barrierWait(barriers().emptyDQ(group), (Shape::Pieces % 2 ? n : piece) & 1 ^ 1);
        const uint32_t to = shared + Shape::pieceAt(group) + thread() * 16;
#pragma unroll
        for (int i = 0; i < PieceRegisters; i += 4) {
          const float* const x = dq + piece * PieceRegisters + i;
          storeShared16(to + i * 512, make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]),
                                                 __float_as_uint(x[3])));
        }
        sharedToAsync();
        __syncwarp();
        if (lane() == 0) barrierArrive(barriers().fullDQ(group));
      }
    } else {
      const int at = (step.head * tilesOfHead + tilesBefore + step.m) * Sums::Slices + slice;
      float* const to = a.dQSum + (int64_t)at * Sums::SliceFloats;
#pragma unroll
      for (int i = 0; i < Sums::Registers / 4; i++)
        addFloats4(to + thread() * 4 + i * 512, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
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
